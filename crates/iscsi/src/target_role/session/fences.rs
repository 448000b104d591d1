// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Responses that wait behind a fence: the fences say who is next, tasks and management whether it
//! is ready, connections what is acknowledged.

use super::Session;
use crate::target_role::fence::Fence;
use crate::target_role::fence::Holder;
use crate::target_role::fence::Turn;
use crate::target_role::names::ConnectionId;
use crate::target_role::parameters::TaskReporting;

impl Session {
    /// Gets in line with a response. False if nothing is in the way: it leaves now.
    #[cold]
    pub(super) fn get_in_line(&mut self, holder: Holder, fence: Fence) -> bool {
        let fence =
            if fence == Fence::Promised && !self.keeps_order() { Fence::None } else { fence };
        self.fences.get_in_line(holder, fence)
    }

    /// Lets go who may go. True if a function was answered.
    pub(super) fn progress_fences(&mut self) -> bool {
        let mut answered = false;
        loop {
            match self.fences.turn() {
                Turn::None => return answered,
                Turn::First { holder, .. } if !self.is_ready(holder) => {}
                Turn::First { holder, fenced: false } => answered |= self.let_go(holder).is_some(),
                Turn::First { holder, fenced: true } => {
                    let connections = self.connections.iter();
                    let next = connections.map(|at| (at.id(), at.status().next()));
                    self.fences.begin(holder, next);
                }
                Turn::Waiting(holder) if !self.is_ready(holder) => self.fences.move_on(),
                Turn::Waiting(holder) => {
                    if self.ask_for_missing() {
                        return answered;
                    }
                    answered |= self.send_fenced(holder);
                }
                Turn::Sent { connection, before } => {
                    let at = self.connections.get(connection);
                    if at.is_some_and(|at| !at.status().is_acknowledged(before)) {
                        self.send_ping(connection);
                        return answered;
                    }
                    self.fences.move_on();
                }
            }
        }
    }

    /// True where the initiator relies on fences.
    fn keeps_order(&self) -> bool {
        self.login.parameters.task_reporting != TaskReporting::Rfc3720
            && self.connections.count() > 1
    }

    /// Asks each connection that has not acknowledged what was sent before the fence. True if there
    /// is one.
    fn ask_for_missing(&mut self) -> bool {
        let connections = &self.connections;
        let misses = self.fences.misses(|id, before| {
            connections.get(id).is_none_or(|at| at.status().is_acknowledged(before))
        });
        let mut nth = 0;
        while let Some(id) = self.fences.missing(nth) {
            self.send_ping(id);
            nth += 1;
        }
        misses
    }

    fn send_fenced(&mut self, holder: Holder) -> bool {
        self.fences.let_go(self.connections.count());
        let connection = match holder {
            Holder::Task(task) => self.connection_of(task),
            Holder::Management(_) => None,
        };
        let answered = self.let_go(holder);
        let sent = connection.or(answered).and_then(|id| self.connections.get(id));
        if let Some(sent) = sent
            && self.connections.count() > 1
        {
            self.fences.sent(sent.id(), sent.status().next());
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

    fn is_ready(&self, holder: Holder) -> bool {
        match holder {
            // One that waits for another connection gets in line again with it.
            Holder::Task(task) => self.tasks.is_ready(task),
            Holder::Management(id) => self.managements.is_answered(id),
        }
    }
}
