// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that need no network: messages between a host and a target, as within one process.
//!
//! Nothing is lost or late there; what befalls both ends befalls these sessions, too. A port is
//! woken by the other end, and gets to it as it gets to everything else.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use engine::Event;
use engine::Token;
use engine::Waker;
use initiator::Connected;
use initiator::Line;
use target::LocalDoor;

use crate::world::Due;
use crate::world::World;

/// What a message takes.
const HOP: Duration = Duration::from_micros(1);

/// What the world knows of local connections.
#[derive(Debug, Default)]
pub(crate) struct Locals {
    /// By target that is up.
    doors: BTreeMap<usize, LocalDoor>,
    /// By desk: what wakes its port. Empty where no session is local.
    bells: BTreeMap<usize, Waker>,
    /// Some session is local.
    pub(crate) is_used: bool,
    /// Desks to which something was said that they have not heard.
    unheard: BTreeSet<usize>,
}

/// What a host calls a target in its own process.
pub(crate) fn local_portal(number: usize) -> String {
    format!("local:{number}")
}

impl Locals {
    /// A process begins with this port.
    pub(crate) fn begin(&mut self, desk: usize, waker: Waker) {
        if self.is_used {
            self.bells.insert(desk, waker);
        }
    }

    /// A target is up.
    pub(crate) fn open(&mut self, home: usize, door: LocalDoor) {
        self.doors.insert(home, door);
    }

    /// It is not.
    pub(crate) fn close(&mut self, home: usize) {
        self.doors.remove(&home);
    }

    /// Something is under way between two ends. They are of one process, which cannot end between
    /// what one has said and what the other has heard.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.unheard.is_empty()
    }

    /// A connection to a target, which is up.
    pub(crate) fn join(&self, home: usize, portal: &str) -> Option<Connected> {
        let end = self.doors.get(&home)?.connect();
        let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        Some(Connected { line: Line::Local(end), peer, portal: portal.to_owned() })
    }
}

impl World {
    /// Ports that were woken by the other end of a local connection get something to do.
    pub(crate) fn ring_locals(&mut self) {
        let bells = self.locals.bells.iter();
        let woken: Vec<usize> =
            bells.filter(|(_, waker)| waker.answer()).map(|(desk, _)| *desk).collect();
        for desk in woken {
            let life = self.desks[desk].life;
            self.locals.unheard.insert(desk);
            self.after(HOP, Due::Woken(desk, life));
        }
    }

    /// A message has come, unless the process has gone meanwhile.
    pub(crate) fn hear_message(&mut self, desk: usize, life: u64) {
        self.locals.unheard.remove(&desk);
        if self.desks[desk].life == life {
            self.tally.mark("woken by a message");
            self.tell(desk, Token(0), Event::Woken);
        }
    }
}
