// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions over iSER (RFC 7145) instead of a stream of PDUs.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was, and what
//! was added later has another one.

use std::time::Duration;

use initiator::Begin;
use initiator::Checks;
use initiator::Transport;

use crate::options::AdapterPlan;
use crate::options::Class;
use crate::options::Fault;
use crate::options::Options;
use crate::options::Rogue;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 98;

/// That of what makes it narrow.
const STREAM_OF_NARROWNESS: u64 = 101;

/// Room for the messages of a connection, bytes.
const MESSAGES: usize = 32 << 10;

/// Few PDUs that nobody asked for; 0: as many as usual.
const UNEXPECTED: [u32; 5] = [0, 0, 2, 3, 8];

/// IRD and ORD of an initiator. It reads nothing, and serves one RDMA Read at least.
const DEPTHS: [Option<[u8; 2]>; 6] =
    [None, None, Some([1, 0]), Some([1, 1]), Some([2, 1]), Some([8, 0])];

impl Options {
    /// In one of four systems two of three sessions go over iSER.
    pub(super) fn go_by_rdma(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        // A liar lies in headers of PDUs, and of segments where there is no CRC.
        if !rng.chance(250) || self.class == Class::Liar {
            return;
        }
        let choices = [
            Transport::Tcp,
            Transport::Iser(Begin::Rdma, Checks::Crc),
            Transport::Iser(Begin::Login, Checks::Crc),
        ];
        self.carry_by(|| rng.pick(&choices));
    }

    /// Sessions over iSER have little room and other ways, their connections end in the middle of
    /// an FPDU, and others come that break its rules. In one of two systems with a liar all
    /// sessions go over it.
    pub(super) fn narrow_rdma(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM_OF_NARROWNESS);
        if self.class == Class::Liar && rng.chance(500) {
            let begin = rng.pick(&[Begin::Rdma, Begin::Login]);
            self.carry_by(|| Transport::Iser(begin, Checks::None));
        }
        let mut is_there = false;
        for session in self.hosts.iter_mut().flatten() {
            let Transport::Iser(begin, checks) = session.transport else { continue };
            is_there = true;
            let checks = if rng.chance(300) { Checks::None } else { checks };
            session.transport = Transport::Iser(begin, checks);
            session.unexpected = rng.pick(&UNEXPECTED);
            session.hello = rng.chance(200);
        }
        if !is_there {
            return;
        }
        for target in &mut self.targets {
            target.unexpected = rng.pick(&UNEXPECTED);
            target.depths = rng.pick(&DEPTHS);
        }
        let length = u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX);
        // Load may be done long before the time is over.
        let mut at = || {
            let part = length / rng.pick(&[1, 4, 16, 64]);
            Duration::from_millis(1 + rng.below(part.max(1)))
        };
        let mut times: Vec<Duration> = (0..8).map(|_| at()).collect();
        if matches!(self.class, Class::Network | Class::Mixed) {
            self.faults.extend(times.drain(..4).map(|at| (at, Fault::Tear)));
            self.faults.sort();
        }
        self.rogues = times.into_iter().map(|at| (at, rng.pick(&Rogue::ALL))).collect();
        self.rogues.sort();
    }

    /// All sessions go over `transport`, whatever was drawn, but where that makes no sense: in the
    /// usual way, with all the room that there is, if `is_usual`.
    pub fn set_transport(&mut self, transport: Transport, is_usual: Usual) {
        let checks = |transport| match (transport, self.class) {
            (Transport::Iser(begin, _), Class::Liar) => Transport::Iser(begin, Checks::None),
            (Transport::Verbs, Class::Liar) => Transport::Tcp,
            (transport, _) => transport,
        };
        let transport = checks(transport);
        self.adapters = AdapterPlan::LARGE;
        self.faults.retain(|(_, fault)| *fault != Fault::Tear);
        self.rogues.clear();
        for target in &mut self.targets {
            (target.unexpected, target.depths) = (0, None);
        }
        for session in self.hosts.iter_mut().flatten() {
            (session.unexpected, session.hello) = (0, false);
        }
        if transport == Transport::Ether {
            self.carry_by(|| transport);
            return self.draw_frames();
        }
        match (is_usual, self.class) {
            // There was none when what is kept was found.
            (Usual::Yes, Class::Liar) => self.carry_by(|| Transport::Tcp),
            (Usual::Yes, _) => self.carry_by(|| transport),
            (Usual::No, _) => {
                self.carry_by(|| transport);
                self.narrow_rdma();
                self.shrink_adapters();
            }
        }
        self.add_adapter_room();
    }

    pub(super) fn carry_by(&mut self, mut transport: impl FnMut() -> Transport) {
        for session in self.hosts.iter_mut().flatten() {
            let chosen = transport();
            session.transport = chosen;
            if matches!(chosen, Transport::Tcp | Transport::Ether) {
                continue;
            }
            // A connection keeps memory for two messages of it; some linger.
            let connections = 2 * usize::from(session.connections);
            self.targets[session.target].pool += connections * MESSAGES;
        }
    }
}

/// Whether sessions over iSER have all the room that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // they have, or what is drawn
pub enum Usual {
    /// As before less could be drawn.
    Yes,
    /// As is drawn.
    No,
}
