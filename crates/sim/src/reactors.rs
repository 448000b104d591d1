// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Targets of several reactors: when each gets its turn, what it learns of the others meanwhile,
//! and connections that go from one to another.
//!
//! A step of the simulation is a turn of one reactor, so what they share changes only between two
//! turns. Which reactor goes next is drawn: whoever has something to do gets to it after a time of
//! its own, as a thread does that a scheduler has to find a processor for. What comes until then
//! is seen in one turn, events before letters, in the order in which it came: that is what the real
//! mailboxes promise, which are one queue each.

use std::time::Duration;

use engine::Event;
use engine::Token;
use engine::Waker;

use crate::net::LinkId;
use crate::net::Side;
use crate::options::Reactors;
use crate::rng::Rng;
use crate::world::Due;
use crate::world::Place;
use crate::world::World;

/// Longest time that a thread gets no processor, microseconds.
const NAP_MAX: u64 = 30_000;

/// A port takes so long at most to give a connection back, microseconds.
const DETACH_MAX: u64 = 200;

/// So many of a thousand times a turn takes no more of the events that are there.
const BREAKS: u64 = 100;

/// The reactors of a target that has several.
#[derive(Debug)]
pub(crate) struct Crew {
    desks: Vec<usize>,
    /// Those of their ports, in this life of the process.
    wakers: Vec<Waker>,
    plan: Reactors,
    rng: Rng,
}

impl Crew {
    pub(crate) const fn new(desks: Vec<usize>, plan: Reactors, rng: Rng) -> Self {
        Self { desks, wakers: Vec::new(), plan, rng }
    }

    /// A process begins with these ports.
    pub(crate) fn begin(&mut self, wakers: impl Iterator<Item = Waker>) {
        self.wakers = wakers.collect();
    }

    fn lag(&mut self) -> Duration {
        let (low, high) = self.plan.lag;
        match self.rng.chance(self.plan.naps) {
            true => self.rng.micros(high..=NAP_MAX),
            false => self.rng.micros(low..=high),
        }
    }
}

impl World {
    /// A port has something to do: it gets to it at once, or, if it is one of several reactors,
    /// when it gets a processor.
    pub(crate) fn make_ready(&mut self, desk: usize) {
        let entry = &mut self.desks[desk];
        let Some(crew) = self.crews.get_mut(&entry.home) else {
            self.ready.insert(desk);
            return;
        };
        if !std::mem::replace(&mut entry.is_called, true) {
            let (lag, life) = (crew.lag(), entry.life);
            self.after(lag, Due::Turn(desk, life));
        }
    }

    /// It gets to it, if its process is still the same.
    pub(crate) fn come_to_its_turn(&mut self, desk: usize, life: u64) {
        let entry = &mut self.desks[desk];
        if entry.life == life {
            entry.is_called = false;
            self.ready.insert(desk);
        }
    }

    /// Whether a command for this target gets another attribute; then, whether it is HEAD OF QUEUE.
    pub(crate) fn draws_attribute(&mut self, home: usize) -> Option<bool> {
        let crew = self.crews.get_mut(&home)?;
        (crew.plan.ordered > 0 && crew.rng.chance(crew.plan.ordered)).then(|| crew.rng.chance(250))
    }

    /// Reactors of the process of `desk` that were woken get something to do. False: it has one
    /// alone.
    pub(crate) fn ring(&mut self, desk: usize) -> bool {
        let Some(crew) = self.crews.get(&self.desks[desk].home) else { return false };
        let reactors = crew.desks.iter().zip(&crew.wakers);
        let woken: Vec<usize> =
            reactors.filter(|(_, waker)| waker.answer()).map(|(desk, _)| *desk).collect();
        for reactor in woken {
            self.tally.mark("reactor woken");
            self.make_ready(reactor);
        }
        true
    }

    /// Whether a reactor leaves the events that are there to its next turn.
    pub(crate) fn breaks_off(&mut self, desk: usize) -> bool {
        let entry = &self.desks[desk];
        let Some(crew) = self.crews.get_mut(&entry.home) else { return false };
        !entry.events.is_empty() && crew.rng.chance(BREAKS)
    }

    /// A port is asked to give a connection back: what comes until it does is for it.
    pub(crate) fn begin_detach(&mut self, desk: usize, token: Token, socket: u32) {
        let entry = &self.desks[desk];
        if let Some(Place::End(id, side)) = entry.sockets.get(&socket).copied()
            && let Some(link) = self.net.links.get_mut(&id)
            && let Some(crew) = self.crews.get_mut(&entry.home)
        {
            link.ends[side].detaching = Some((token, socket));
            let delay = crew.rng.micros(0..=DETACH_MAX);
            return self.after(delay, Due::Detach(id, side));
        }
        self.tell(desk, token, Event::Detached { connection: None });
    }

    /// It does, unless it was closed before.
    pub(crate) fn detach(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let end = &mut link.ends[side];
        if end.sending.is_some() {
            // It is finished before.
            return self.after(Duration::from_micros(DETACH_MAX), Due::Detach(id, side));
        }
        let Some((token, socket)) = end.detaching.take() else { return };
        end.receiving = None;
        let (desk, connection) = (end.desk, end.fd.take());
        self.desks[desk].sockets.remove(&socket);
        self.tally.mark("connection goes to another reactor");
        self.tell(desk, token, Event::Detached { connection });
    }
}
