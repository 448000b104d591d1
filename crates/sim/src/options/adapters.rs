// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions over RDMA adapters instead of software iWARP.

use initiator::Begin;
use initiator::Transport;

use crate::options::Class;
use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 103;

/// What a session over an adapter may have of the pool of its target, bytes: buffers for its
/// messages, twice, since connections linger, and as much for others as makes that a fair share.
const ROOM: usize = 4 * 162 * (16 << 10);

/// What adapters of a system can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // all that is drawn of them
pub struct AdapterPlan {
    /// Sends and Writes of a connection under way.
    pub sends: usize,
    /// RDMA Reads of a connection under way: IRD and ORD.
    pub reads: usize,
    /// Memory that peers reach, of a connection.
    pub keys: usize,
    /// What is done is told so many microseconds late at most.
    pub late: u64,
}

impl AdapterPlan {
    /// Adapters with room for everything.
    pub const LARGE: Self = Self { sends: 256, reads: 16, keys: 1 << 16, late: 10 };
}

impl Options {
    /// In one of two systems with sessions that begin with RDMA, half of these go over adapters.
    pub(super) fn go_by_adapters(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        // A liar lies in bytes, and there are none.
        if self.class == Class::Liar || !rng.chance(500) {
            return;
        }
        let alone = rng.chance(500);
        let sessions = self.hosts.iter_mut().flatten();
        let begins = |transport| matches!(transport, Transport::Iser(Begin::Rdma, _));
        for session in sessions.filter(|session| begins(session.transport)) {
            if rng.chance(500) {
                session.transport = Transport::Verbs;
                // With one each, all that has no place in memory is wrong.
                session.connections = if alone { 1 } else { session.connections };
                self.targets[session.target].pool += ROOM;
            }
        }
        self.shrink_adapters();
    }

    /// Adapters are small.
    pub(super) fn shrink_adapters(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM + 1);
        self.adapters = AdapterPlan {
            sends: rng.pick(&[2, 4, 16, 256]),
            reads: rng.pick(&[1, 1, 2, 16]),
            keys: rng.pick(&[8, 64, 1 << 16]),
            late: rng.pick(&[10, 200, 5000]),
        };
    }

    /// Memory for a session that goes over an adapter.
    pub(super) fn add_adapter_room(&mut self) {
        let sessions = self.hosts.iter().flatten();
        for session in sessions.filter(|session| session.transport == Transport::Verbs) {
            self.targets[session.target].pool += ROOM;
        }
    }
}
