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
use super::parameters::TaskReporting;
use super::session::Session;
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
    stage: Stage,
    /// Responses that wait for their turn, and whether each is fenced; oldest first.
    line: VecDeque<(Holder, bool)>,
    /// Responses of tasks have to get in line.
    holds: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// Its turn has come; each connection has noted what must be acknowledged first.
    Waiting(Holder),
    /// It was sent; no other leaves before `before` is acknowledged there.
    Sent { connection: ConnectionId, before: StatSn },
}

impl Fences {
    /// Forgets everybody: the tasks have ended.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check(&self) {
        assert!(self.stage != Stage::Open || self.line.is_empty(), "the line moves");
    }
}

impl Session {
    /// True if the response of `task` cannot leave yet; it does when its turn has come.
    #[inline]
    pub(super) fn waits_in_line(&mut self, task: TaskId, fence: Fence) -> bool {
        if !self.fences.holds && fence == Fence::None {
            return false;
        }
        self.get_in_line(Holder::Task(task), fence)
    }

    /// The same for whoever. False if nothing is in the way.
    #[cold]
    pub(super) fn get_in_line(&mut self, holder: Holder, fence: Fence) -> bool {
        let fenced = match fence {
            Fence::None => false,
            Fence::Promised => self.keeps_order(),
            Fence::Always => true,
        };
        if !fenced && !self.fences.holds {
            return false;
        }
        self.fences.line.push_back((holder, fenced));
        true
    }

    /// Lets go who may go. True if a function was answered.
    pub(super) fn progress_fences(&mut self) -> bool {
        let mut answered = false;
        loop {
            let stage = self.fences.stage;
            match stage {
                Stage::Open => {
                    let Some((holder, fenced)) = self.fences.line.pop_front() else {
                        self.fences.holds = false;
                        return answered;
                    };
                    if !self.is_ready(holder) {
                        continue;
                    }
                    if fenced {
                        self.begin_fence(holder);
                    } else {
                        answered |= self.let_go(holder).is_some();
                    }
                }
                Stage::Waiting(holder) if !self.is_ready(holder) => self.fences.stage = Stage::Open,
                Stage::Waiting(holder) => {
                    if !self.is_all_acknowledged() {
                        return answered;
                    }
                    answered |= self.send_fenced(holder);
                }
                Stage::Sent { connection, before } => {
                    let at = self.connection(connection);
                    if at.is_some_and(|at| !at.status.is_acknowledged(before)) {
                        self.send_ping(connection);
                        return answered;
                    }
                    self.fences.stage = Stage::Open;
                }
            }
        }
    }

    /// True where the initiator relies on fences.
    fn keeps_order(&self) -> bool {
        self.login.parameters.task_reporting != TaskReporting::Rfc3720
            && self.connections.count() > 1
    }

    /// From now on the holder waits for the acknowledgement of all that was sent.
    fn begin_fence(&mut self, holder: Holder) {
        self.fences.stage = Stage::Waiting(holder);
        self.fences.holds = self.connections.count() > 1;
        for connection in self.connections.iter_mut() {
            connection.fence = Some(connection.status.next());
        }
    }

    /// True if each connection has acknowledged what was sent before the fence; asks for what is
    /// not.
    fn is_all_acknowledged(&mut self) -> bool {
        let mut missing = Vec::new();
        for connection in self.connections.iter_mut() {
            match connection.fence {
                Some(before) if !connection.status.is_acknowledged(before) => {
                    missing.push(connection.id);
                }
                _ => connection.fence = None,
            }
        }
        for id in &missing {
            self.send_ping(*id);
        }
        missing.is_empty()
    }

    fn send_fenced(&mut self, holder: Holder) -> bool {
        self.fences.stage = Stage::Open;
        self.fences.holds = self.connections.count() > 1;
        let connection = match holder {
            Holder::Task(task) => self.connection_of(task),
            Holder::Management(_) => None,
        };
        let answered = self.let_go(holder);
        let sent = connection.or(answered).and_then(|id| self.connection(id));
        if let Some(sent) = sent
            && self.connections.count() > 1
        {
            let before = sent.status.next();
            self.fences.stage = Stage::Sent { connection: sent.id, before };
        }
        answered.is_some()
    }

    /// Sends a response; gives the connection of an answered function.
    fn let_go(&mut self, holder: Holder) -> Option<ConnectionId> {
        match holder {
            Holder::Task(task) => {
                self.answer_task(task);
                None
            }
            Holder::Management(id) => self.answer_management(id),
        }
    }

    fn is_ready(&mut self, holder: Holder) -> bool {
        match holder {
            // One that waits for another connection gets in line again with it.
            Holder::Task(task) => {
                self.tasks.running_mut(task).is_some_and(|task| task.orphan.is_none())
            }
            Holder::Management(id) => self.managements.is_answered(id),
        }
    }
}
