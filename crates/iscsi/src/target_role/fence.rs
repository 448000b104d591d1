// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Response fences (RFC 7143 §4.2.2.3): an initiator with several connections must see a fenced
//! response after all that went before it and before all that comes after it.
//!
//! ```text
//!   ready, nothing in the way --------------------------------------------> sent
//!   ready, else --> in line --first--> sent
//!                      |
//!                      +--first, fenced--> Waiting --all before acknowledged--> sent: Sent
//!                                                                                |
//!                                        the next in line <------acknowledged----+
//! ```
//!
//! With one connection the stream itself keeps the order. There, too, the answers to ABORT TASK SET
//! and CLEAR TASK SET wait for what was sent before (RFC 7143 §11.6.1), but nobody waits for them.

use super::names::ConnectionId;
use crate::datamover::TaskId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use wire::iscsi::StatSn;

/// Who has a response ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Task(TaskId),
    /// By the id of the function.
    Management(u32),
}

/// How a response stands to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    None,
    /// Where the initiator was promised fences (RFC 7143 §13.23) and has several connections.
    Promised,
    /// Always: all before it must be acknowledged (RFC 7143 §11.6.1).
    Always,
}

/// The fences of a session.
#[derive(Debug, Default)]
pub(super) struct Fences {
    stage: FenceState,
    /// Responses that wait for their turn, and whether each is fenced; oldest first.
    line: VecDeque<(Holder, bool)>,
    /// Responses of tasks have to get in line.
    holds: bool,
    /// What must be acknowledged, and where, before the one that waits may leave.
    before: Vec<(ConnectionId, StatSn)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FenceState {
    #[default]
    Open,
    /// Its turn has come.
    Waiting(Holder),
    /// It was sent; no other leaves before `before` is acknowledged there.
    Sent { connection: ConnectionId, before: StatSn },
}

/// What stands at the head of the line, and what has to be known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nobody waits.
    None,
    /// Taken out of the line: it is sent if it is still ready, or [begun](Fences::begin) if it is
    /// fenced, too.
    First { holder: Holder, fenced: bool },
    /// It is sent if it is still ready and nothing is [missing](Fences::misses); if it is not
    /// ready any more, the line [moves on](Fences::move_on).
    Waiting(Holder),
    /// The line moves on when this is acknowledged there.
    Sent { connection: ConnectionId, before: StatSn },
}

impl Fences {
    /// True if such a response of a task has to get in line.
    #[inline]
    pub(super) fn holds_up(&self, fence: Fence) -> bool {
        self.holds || fence != Fence::None
    }

    /// Gets in line. False if nothing is in the way. `fence`: as things are, so that a promise
    /// that concerns nobody is none.
    pub(super) fn get_in_line(&mut self, holder: Holder, fence: Fence) -> bool {
        let waits = self.holds_up(fence);
        if waits {
            self.line.push_back((holder, fence != Fence::None));
        }
        waits
    }

    /// Who is next.
    #[inline]
    pub(super) fn turn(&mut self) -> Turn {
        match self.stage {
            FenceState::Open => match self.line.pop_front() {
                Some((holder, fenced)) => Turn::First { holder, fenced },
                None => {
                    self.holds = false;
                    Turn::None
                }
            },
            FenceState::Waiting(holder) => Turn::Waiting(holder),
            FenceState::Sent { connection, before } => Turn::Sent { connection, before },
        }
    }

    /// From now on `holder` waits for the acknowledgement of all that was sent. `connections`: each
    /// with its next StatSN.
    pub(super) fn begin(
        &mut self,
        holder: Holder,
        connections: impl Iterator<Item = (ConnectionId, StatSn)>,
    ) {
        debug_assert_eq!(self.stage, FenceState::Open, "one fence at a time");
        self.before.clear();
        self.before.extend(connections);
        self.holds = self.before.len() > 1;
        self.stage = FenceState::Waiting(holder);
    }

    /// Forgets what is acknowledged; true if something is missing.
    pub(super) fn misses(&mut self, acknowledged: impl Fn(ConnectionId, StatSn) -> bool) -> bool {
        self.before.retain(|(id, before)| !acknowledged(*id, *before));
        !self.before.is_empty()
    }

    /// The `nth` connection that has not acknowledged what it must.
    pub(super) fn missing(&self, nth: usize) -> Option<ConnectionId> {
        self.before.get(nth).map(|(id, _)| *id)
    }

    /// Nobody waits for an acknowledgement any more.
    pub(super) fn move_on(&mut self) {
        self.before.clear();
        self.stage = FenceState::Open;
    }

    /// The fenced response is about to leave.
    pub(super) fn let_go(&mut self, connections: usize) {
        self.move_on();
        self.holds = connections > 1;
    }

    /// It has left: nothing follows before `before` is acknowledged there.
    pub(super) fn sent(&mut self, connection: ConnectionId, before: StatSn) {
        debug_assert_eq!(self.stage, FenceState::Open, "one fence at a time");
        self.stage = FenceState::Sent { connection, before };
    }

    /// Nobody waits for a connection that is gone, nor for the next one of its id.
    pub(super) fn forget_connection(&mut self, id: ConnectionId) {
        self.before.retain(|(of, _)| *of != id);
        if matches!(self.stage, FenceState::Sent { connection, .. } if connection == id) {
            self.stage = FenceState::Open;
        }
    }

    /// Forgets everybody: the tasks have ended.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check(&self) {
        assert!(self.stage != FenceState::Open || self.line.is_empty(), "the line moves");
        let waits = matches!(self.stage, FenceState::Waiting(_));
        assert!(waits || self.before.is_empty(), "only who waits waits for acknowledgements");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: ConnectionId = ConnectionId(0);
    const SECOND: ConnectionId = ConnectionId(1);

    fn waiting() -> Fences {
        let mut fences = Fences::default();
        assert!(fences.get_in_line(Holder::Management(1), Fence::Always));
        let turn = Turn::First { holder: Holder::Management(1), fenced: true };
        assert_eq!(fences.turn(), turn);
        let connections = [(FIRST, StatSn(7)), (SECOND, StatSn(9))];
        fences.begin(Holder::Management(1), connections.into_iter());
        fences.check();
        fences
    }

    #[test]
    fn nothing_is_in_the_way_without_a_fence() {
        let mut fences = Fences::default();
        assert!(!fences.get_in_line(Holder::Management(1), Fence::None));
        assert_eq!(fences.turn(), Turn::None);
    }

    #[test]
    fn what_comes_behind_a_fence_waits_for_its_acknowledgement() {
        let mut fences = waiting();
        assert!(fences.get_in_line(Holder::Management(2), Fence::None));
        assert!(fences.misses(|id, before| id == FIRST && before == StatSn(7)));
        assert_eq!((fences.missing(0), fences.missing(1)), (Some(SECOND), None));
        assert_eq!(fences.turn(), Turn::Waiting(Holder::Management(1)));
        assert!(!fences.misses(|_, _| true));
        fences.let_go(2);
        fences.sent(FIRST, StatSn(8));
        assert_eq!(fences.turn(), Turn::Sent { connection: FIRST, before: StatSn(8) });
        fences.move_on();
        let turn = Turn::First { holder: Holder::Management(2), fenced: false };
        assert_eq!(fences.turn(), turn);
        assert_eq!(fences.turn(), Turn::None);
        fences.check();
    }

    #[test]
    fn nobody_waits_for_a_connection_that_is_gone() {
        let mut fences = waiting();
        fences.forget_connection(SECOND);
        assert!(!fences.misses(|id, _| id == FIRST));
        fences.let_go(1);
        fences.sent(FIRST, StatSn(8));
        fences.forget_connection(FIRST);
        assert_eq!(fences.turn(), Turn::None);
        fences.check();
    }
}
