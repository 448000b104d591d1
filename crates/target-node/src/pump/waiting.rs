// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that wait for others: for their turn in the task set, for the end of an ACA condition,
//! for a unit that somebody works on alone.
//!
//! Those of one session and one unit stand in line: the first one that can go on is the first in
//! it, but for HEAD OF QUEUE and ACA commands, which overtake. So when something has ended that
//! they may wait for, the first of each line tries, and the next one only if it could. Who ends a
//! task looks whether somebody waits for its unit, on whatever reactor, and tells these.

mod lines;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use engine::Port;
use iscsi::datamover::TaskId;
use scsi::Input;
use scsi::LogicalUnit;

pub(super) use lines::Waiting;

use super::Pump;
use super::context::Context;
use super::course::With;
use super::services::task_of;
use super::view::SessionView;
use super::view::never;

/// Reactors on which commands wait, of whatever unit: one look tells that nobody does.
#[derive(Debug, Default)]
pub(crate) struct Board(AtomicU64);

impl Board {
    #[inline]
    fn is_empty(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }

    /// The unit whose commands may wait for the end of `task`; none if nobody waits.
    #[inline]
    fn concerned(&self, task: &scsi::Task) -> Option<Arc<LogicalUnit>> {
        if self.is_empty() { None } else { task.unit().cloned() }
    }
}

/// The bit of a reactor; all from the last bit on share it, and hear more than they need to.
fn bit_of(reactor: usize) -> u64 {
    1 << reactor.min(63)
}

/// A shared bit is never taken back.
fn is_shared(bit: u64) -> bool {
    bit == 1 << 63
}

impl<P: Port> SessionView<'_, P> {
    /// A command cannot go on before others.
    #[cold]
    pub(super) fn wait_for_others(&mut self, id: TaskId) {
        let Some(task) = task_of(&mut self.session.tasks, id) else {
            return never("who ends a command takes its next step, too");
        };
        let Some(unit) = task.scsi.unit().cloned() else {
            return never("who waits for others waits for those of its unit");
        };
        let overtakes = task.overtakes;
        self.spends(id, With::Others);
        let context = &mut *self.context;
        let bit = bit_of(context.reactor);
        context.shared.board.0.fetch_or(bit, Ordering::SeqCst);
        // What ended before the bit was there is seen by trying once more.
        let is_new = unit.watchers().add(bit);
        let now = context.port.now();
        context.waiting.add((self.key, id), unit, overtakes, now);
        if is_new {
            context.waiting.somebody_ended();
        }
    }

    /// Ends a command, and tells those who may wait for that; false if it has ended before.
    pub(super) fn end(&mut self, id: TaskId) -> bool {
        let Some(slot) = self.session.slot_of(id) else { return false };
        let unit = slot.as_ref().and_then(|task| self.context.shared.board.concerned(&task.scsi));
        *slot = None;
        self.context.has_ended(unit);
        true
    }

    /// What time it is.
    #[cold]
    pub(super) fn tell_time(&mut self, id: TaskId) {
        let milliseconds = self.context.port.wall_clock().as_millis();
        self.resume(id, Input::Clock(u64::try_from(milliseconds).unwrap_or(u64::MAX)));
    }
}

impl<P: Port> Context<P> {
    /// Ends a task that is in nobody's table any more.
    pub(super) fn over(&mut self, task: scsi::Task) {
        let unit = self.shared.board.concerned(&task);
        drop(task);
        self.has_ended(unit);
    }

    /// Somebody may have begun to wait, perhaps for this one, since `unit` was looked up.
    fn has_ended(&mut self, unit: Option<Arc<LogicalUnit>>) {
        if !self.shared.board.is_empty() {
            self.tell_waiting(unit.as_ref());
        }
    }

    /// Something has ended that commands may wait for: of one unit, or nobody knows of which.
    #[cold]
    pub(super) fn tell_waiting(&mut self, unit: Option<&Arc<LogicalUnit>>) {
        let bits = match unit {
            Some(unit) => unit.watchers().bits(),
            None => self.shared.board.0.load(Ordering::SeqCst),
        };
        if bits == 0 {
            return;
        }
        for (reactor, mailbox) in self.shared.mailboxes.iter().enumerate() {
            if bits & bit_of(reactor) == 0 {
                continue;
            }
            match reactor == self.reactor {
                true => self.waiting.somebody_ended(),
                false => mailbox.stir(),
            }
        }
    }
}

impl<P: Port> Pump<P> {
    /// Lets commands that wait try again, if there is a reason to.
    pub(super) fn try_again(&mut self) {
        let waiting = &mut self.context.waiting;
        if !waiting.has_lines() || (!waiting.is_empty() && !waiting.begin(self.context.port.now()))
        {
            return;
        }
        while let Some((key, id)) = self.context.waiting.next() {
            self.resume(key, id, Input::Turn);
        }
        let bit = bit_of(self.context.reactor);
        for unit in self.context.waiting.end() {
            if !is_shared(bit) {
                unit.watchers().remove(bit);
            }
        }
        if self.context.waiting.is_empty() && !is_shared(bit) {
            self.context.shared.board.0.fetch_and(!bit, Ordering::SeqCst);
        }
    }
}
