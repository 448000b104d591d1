// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connections of a session, and which of them a command goes to. Read first: RFC 7143 §4.2.2
//! (numbers), §4.2.5.1 (allegiance), §8.1 (the states of a connection).
//!
//! ```text
//! Wanted --login--> Joining --> Up --gone--> CleanUp --logged out--> Wanted
//!    |                 |         |    (another connection asks for it; before and after that
//!    |                 |         |     Respite, where the target told Time2Wait)
//!    |                 `-fails---+--gone, no other--> Wanted (its login stands for the logout)
//!    `--no hope--> Down
//! ```

use alloc::vec::Vec;

use clock::Instant;
use wire::iscsi::Cid;
use wire::iscsi::Itt;
use wire::iscsi::StatSn;

use super::Command;
use super::patience::Bytes;
use super::patience::Line;
use super::patience::Patience;
use super::statuses::Statuses;
use crate::initiator::ConnectionId;
use crate::initiator::Policy;
use crate::initiator::datamover::Keys;

/// One connection of a session.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) cid: Cid,
    pub(super) phase: Phase,
    pub(super) statuses: Statuses,
    /// When something came last.
    pub(super) heard: Instant,
    pub(super) ping: Option<Ping>,
    /// What it has carried.
    pub(super) line: Line,
    /// Commands that were sent on it and have not ended.
    pub(super) load: u32,
    /// What these move.
    pub(super) asked: Bytes,
    /// What is in force on it.
    pub(super) keys: Keys,
}

/// How far a connection is. Of `CleanUp`: `until` is when to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Full feature phase: LOGGED_IN of RFC 7143 §8.1.
    Up,
    /// Another connection logs it out: CLEANUP_WAIT.
    CleanUp { itt: Itt, at: ConnectionId, until: Instant, patience: Patience },
    /// CLEANUP_WAIT, and the target told to wait until then: with the logout or, if it is logged
    /// out, with its commands (RFC 7143 §7.5.2).
    Respite { until: Instant, logged_out: bool },
    /// A login is wanted from then on: CLEANUP_WAIT if there was a connection, else FREE.
    Wanted { from: Instant, tries: u32 },
    /// A login is under way.
    Joining { tries: u32 },
    /// The target does not take it: FREE.
    Down,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ping {
    pub(super) itt: Itt,
    pub(super) until: Instant,
}

impl Connection {
    pub(super) const fn new(cid: Cid, expected: StatSn, keys: Keys, now: Instant) -> Self {
        Self {
            cid,
            phase: Phase::Up,
            statuses: Statuses::new(expected),
            heard: now,
            ping: None,
            line: Line::new(now),
            load: 0,
            asked: Bytes::NONE,
            keys,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }
}

/// All of them, by their [`ConnectionId`]; there is at least one.
#[derive(Debug)]
pub(super) struct Connections {
    all: Vec<Connection>,
    policy: Policy,
    /// Where the next command goes, if they take turns.
    turn: usize,
}

impl Connections {
    pub(super) fn new(leading: Connection, policy: Policy) -> Self {
        Self { all: Vec::from([leading]), policy, turn: 0 }
    }

    pub(super) fn push(&mut self, connection: Connection) {
        self.all.push(connection);
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.all.get(usize::from(id.0))
    }

    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.all.get_mut(usize::from(id.0))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.all.iter().zip(0..).map(|(connection, id)| (ConnectionId(id), connection))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ConnectionId, &mut Connection)> {
        self.all.iter_mut().zip(0..).map(|(connection, id)| (ConnectionId(id), connection))
    }

    /// The first one that is up.
    pub(super) fn any_up(&self) -> Option<ConnectionId> {
        self.iter().find(|(_, connection)| connection.is_up()).map(|(id, _)| id)
    }

    /// The connection for the next command; None while there is none.
    pub(super) fn choose(&mut self) -> Option<ConnectionId> {
        if let [only] = self.all.as_slice() {
            return only.is_up().then_some(LEADING);
        }
        let count = self.all.len();
        let order = (0..count).map(|step| (self.turn + step) % count);
        let up = order.filter(|at| self.all.get(*at).is_some_and(Connection::is_up));
        let at = match self.policy {
            Policy::RoundRobin => { up }.next(),
            Policy::LeastOutstanding => {
                up.min_by_key(|at| self.all.get(*at).map_or(0, |connection| connection.load))
            }
        }?;
        self.turn = (at + 1) % count;
        u16::try_from(at).ok().map(ConnectionId)
    }

    /// Moves the count of a command that was sent.
    pub(super) fn shift_load(
        &mut self,
        from: Option<ConnectionId>,
        to: Option<ConnectionId>,
        command: &Command,
    ) {
        let bytes = Bytes::of(command);
        if let Some(connection) = from.and_then(|id| self.get_mut(id)) {
            connection.load -= 1;
            connection.asked = connection.asked.minus(bytes);
        }
        if let Some(connection) = to.and_then(|id| self.get_mut(id)) {
            connection.load += 1;
            connection.asked = connection.asked.plus(bytes);
        }
    }
}

/// The one that a session begins with.
pub(super) const LEADING: ConnectionId = ConnectionId(0);

#[cfg(test)]
mod tests {
    use super::*;

    fn three(policy: Policy) -> Connections {
        let new = |cid| Connection::new(Cid(cid), StatSn(1), Keys::LOGIN, Instant(0));
        let mut connections = Connections::new(new(0), policy);
        connections.push(new(1));
        connections.push(new(2));
        connections
    }

    #[test]
    fn connections_take_turns() {
        let mut all = three(Policy::RoundRobin);
        let turns: Vec<u16> = (0..4).filter_map(|_| all.choose()).map(|id| id.0).collect();
        assert_eq!(turns, [0, 1, 2, 0]);
        all.get_mut(ConnectionId(1)).unwrap().phase = Phase::Down;
        let turns: Vec<u16> = (0..3).filter_map(|_| all.choose()).map(|id| id.0).collect();
        assert_eq!(turns, [2, 0, 2], "past the one that is gone");
    }

    #[test]
    fn the_one_with_the_fewest_commands_is_next() {
        let mut all = three(Policy::LeastOutstanding);
        for (id, load) in [(0, 2), (1, 0), (2, 1)] {
            all.get_mut(ConnectionId(id)).unwrap().load = load;
        }
        assert_eq!(all.choose(), Some(ConnectionId(1)));
        let cdb = wire::iscsi::Cdb { bytes: [0; 32], len: 16 };
        let (lun, attribute) = (Default::default(), wire::iscsi::Attribute::Simple);
        let command = Command { lun, cdb, attribute, data_out: 0, data_in: 512 };
        all.shift_load(None, Some(ConnectionId(1)), &command);
        assert_eq!(all.choose(), Some(ConnectionId(2)), "turns decide between equals");
        for (_, connection) in all.iter_mut() {
            connection.phase = Phase::Down;
        }
        assert_eq!((all.choose(), all.any_up()), (None, None));
    }
}
