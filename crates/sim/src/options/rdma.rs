// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions over iSER (RFC 7145) instead of a stream of PDUs.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use initiator::Begin;
use initiator::Checks;
use initiator::Transport;

use crate::options::Class;
use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 98;

/// Room for the messages of a connection, bytes.
const MESSAGES: usize = 32 << 10;

impl Options {
    /// In one of four systems two of three sessions go over iSER.
    pub(super) fn go_by_rdma(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        if !rng.chance(250) {
            return;
        }
        let choices = [
            Transport::Tcp,
            Transport::Iser(Begin::Rdma, Checks::Crc),
            Transport::Iser(Begin::Login, Checks::Crc),
        ];
        self.carry_by(|| rng.pick(&choices));
    }

    /// All sessions go over `transport`, whatever was drawn, but where that makes no sense.
    pub fn set_transport(&mut self, transport: Transport) {
        self.carry_by(|| transport);
    }

    fn carry_by(&mut self, mut transport: impl FnMut() -> Transport) {
        for session in self.hosts.iter_mut().flatten() {
            let chosen = transport();
            // A liar lies in headers of PDUs.
            if self.class == Class::Liar || chosen == Transport::Tcp {
                session.transport = Transport::Tcp;
                continue;
            }
            session.transport = chosen;
            // A connection keeps memory for two messages of it; some linger.
            let connections = 2 * usize::from(session.connections);
            self.targets[session.target].pool += connections * MESSAGES;
        }
    }
}
