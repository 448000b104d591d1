// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Write data that was asked for, or announced, and does not come (RFC 7143 §7.8).
//!
//! The mover is asked to look at intervals: a burst to which nothing came between two looks has
//! ended in error. At ErrorRecoveryLevel 0 that ends its command, so that no initiator holds
//! buffers, and the task sets of its units, for as long as it likes; above that it is asked for
//! again (`recovery`), several times. At level 0 the look is put off while other bursts of the
//! session come to their ends: on a slow line the last one of many waits long for its turn.

use crate::datamover::{DataError, Op, TaskId};
use crate::target_role::limits;
use crate::target_role::session::Session;
use clock::Instant;

/// When data that does not come is looked for next.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::target_role) struct Look {
    at: Option<Instant>,
    /// It is not put off beyond this.
    latest: Instant,
}

impl Look {
    pub(in crate::target_role) const fn at(&self) -> Option<Instant> {
        self.at
    }
}

impl Session {
    /// Data is on its way from now on.
    pub(in crate::target_role) fn expect_data(&mut self) {
        if self.look.at.is_none() {
            self.plan_look();
        }
    }

    /// A burst has come.
    pub(super) fn data_came(&mut self) {
        if let Some(at) = &mut self.look.at
            && !self.recovery.is_on()
        {
            *at = (self.now + limits::DATA_WAIT).min(self.look.latest);
        }
    }

    /// A burst has ended in error. Counts at how many looks nothing had come.
    pub(in crate::target_role) fn note_silence(&mut self, task: TaskId, error: DataError) {
        if error == DataError::Overdue
            && let Some(entry) = self.tasks.live_mut(task)
            && !core::mem::replace(&mut entry.transfer.silent, true)
        {
            entry.transfer.silences = entry.transfer.silences.saturating_add(1);
        }
    }

    /// Looks for bursts to which nothing has come for long.
    pub(in crate::target_role) fn look_for_overdue(&mut self) {
        if self.look.at.is_none_or(|at| at > self.now) {
            return;
        }
        self.look.at = None;
        for task in self.tasks.live() {
            let Some(entry) = self.tasks.live_mut(task) else { continue };
            entry.transfer.silent = false;
            if entry.transfer.is_open() {
                let id = entry.connection;
                self.outputs.op(id, Op::Overdue { task });
                self.plan_look();
            }
        }
    }

    fn plan_look(&mut self) {
        let wait = if self.recovery.is_on() { limits::SEQUENCE_WAIT } else { limits::DATA_WAIT };
        self.look.at = Some(self.now + wait);
        self.look.latest = self.now + limits::DATA_WAIT_MAX;
    }
}
