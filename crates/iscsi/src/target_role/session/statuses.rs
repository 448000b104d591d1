// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Responses that are kept until they are acknowledged, above ErrorRecoveryLevel 0 (RFC 7143
//! §4.2.2.2, §7.1.4.2, §11.16).

use super::Session;
use crate::datamover::Op;
use crate::target_role::connection::Connection;
use crate::target_role::names::ConnectionId;
use crate::target_role::recovery::Entry;
use crate::target_role::recovery::with_window;
use crate::violation::Violation;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::Snack;
use wire::iscsi::StatSn;

impl Session {
    /// The initiator has seen all responses before `expected`.
    pub(super) fn take_acknowledgement(
        &mut self,
        id: ConnectionId,
        expected: StatSn,
    ) -> Result<(), Violation> {
        let Some(connection) = self.connections.present_mut(id) else { return Ok(()) };
        connection.acknowledge(expected);
        if connection.retained().is_empty() {
            return Ok(());
        }
        for task in connection.take_acknowledged(self.now) {
            if let Some(tag) = self.tasks.forget_answer(task) {
                connection.note_released(tag);
            }
            self.outputs.op(id, Op::Release { task });
        }
        self.check_retained(id)
    }

    /// Whether an initiator may still be sent what must be kept for it. PDUs that acknowledge
    /// nothing, since they cannot be read, are answered too.
    pub(super) fn check_retained(&self, id: ConnectionId) -> Result<(), Violation> {
        match self.connections.get(id) {
            Some(at) if at.retained().is_overfull() => Err(Violation::Unacknowledged),
            _ => Ok(()),
        }
    }

    /// Status SNACK: sends responses again, with the window as it is now.
    pub(super) fn resend_status(
        &mut self,
        id: ConnectionId,
        snack: &Snack,
    ) -> Result<(), Violation> {
        let now = self.numbers(id);
        let Some(connection) = self.connections.present_mut(id) else { return Ok(()) };
        for entry in connection.retained_mut().again(snack)? {
            match entry {
                Entry::Pdu(response, data) => {
                    let response = with_window(response, now);
                    self.outputs.op(id, Op::SendControl { response, data, task: None });
                }
                Entry::Task(task) => self.send_status_again(task),
            }
        }
        Ok(())
    }

    /// When status has stayed unacknowledged for long on some connection.
    pub(super) fn status_deadline(&self) -> Option<Instant> {
        let waits = self.connections.iter().filter(|at| !at.life().is_asked());
        waits.filter_map(|at| at.retained().deadline()).min()
    }

    /// Asks at once where statuses that are not acknowledged are all that keeps the window closed:
    /// the initiator has no command left to acknowledge them with. Once, then as ever.
    pub(super) fn ask_if_stuck(&mut self) {
        let busy = self.tasks.running() > 0 || self.managements.numbered() > 0;
        if !self.keeps_answers() || busy || !self.numbering.is_closed() {
            return;
        }
        self.ask_where(|at, now| {
            let next = at.status().next();
            at.retained_mut().is_stuck(next, now)
        });
    }

    /// Tells initiators the next StatSN where status stays unacknowledged for long, so that they
    /// see what they miss (RFC 7143 §7.1.4.2).
    pub(super) fn ask_for_acknowledgements(&mut self) {
        self.ask_where(|at, now| at.retained_mut().is_due(now));
    }

    fn ask_where(&mut self, silent: impl Fn(&mut Connection, Instant) -> bool) {
        let now = self.now;
        let all = self.connections.iter_mut();
        let silent: Vec<ConnectionId> =
            all.filter_map(|at| silent(at, now).then_some(at.id())).collect();
        for id in silent {
            self.send_ping(id);
        }
    }
}
