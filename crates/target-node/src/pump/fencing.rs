// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work for a task that has ended, and which does not end itself: a cluster, a device or a file
//! system does not answer, and what was asked of it cannot be taken back.
//!
//! ```text
//! wanted --task ends--> waited for --its end--> over
//!                           |                     ^
//!                           +--too long--> left --+
//! ```
//!
//! Whoever wants such a task to be over (task management, a logout, a login that takes the place of
//! a session or connection) waits for `end_wait`, which is less than hosts do, and then goes on:
//! what is left keeps all out that could see it or come before it ([`scsi::Task::fence`]), so that
//! for everybody who comes later it was done before, or not at all. Administration that touches
//! what is behind a unit waits for the end itself.

use std::sync::Arc;

use engine::Port;
use scsi::LogicalUnit;

use super::Kind;
use super::PendingIo;
use super::Pump;
use super::context::Context;
use super::jobs;
use super::jobs::Job;
use super::token;
use super::view::never;
use crate::table::Key;

/// How long the end of work is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Patience {
    /// Nobody waits, or for what must not be left behind.
    #[default]
    Unbounded,
    /// A timer runs.
    Bounded,
    /// Nobody waits any longer, and it keeps out what comes later.
    Over,
}

impl Patience {
    pub(super) fn is_bounded(self) -> bool {
        self == Self::Bounded
    }

    pub(super) fn is_over(self) -> bool {
        self == Self::Over
    }
}

impl<P: Port> Context<P> {
    /// The end of this work is waited for; not for ever, and not at all where other work of its
    /// unit was waited for in vain: hosts end their commands one by one. Nor longer than all that
    /// hangs was waited for in vain, for they go from disk to disk, too.
    pub(super) fn bound_wait(&mut self, io: Key) {
        let now = self.port.now();
        let Some(pending) = self.ios.get_mut(io) else { return never("it is under way") };
        if pending.patience != Patience::Unbounded || !pending.may_hang() {
            return;
        }
        pending.patience = Patience::Bounded;
        let unit = pending.ended.as_ref().and_then(|task| task.place());
        let since = match pending.seen {
            _ if unit.is_some_and(|unit| unit.has_left_work()) => None,
            Some(seen) if self.left > 0 => Some(seen),
            _ => Some(now),
        };
        let end = since.map_or(now, |since| since + self.shared.end_wait);
        let is_seen = pending.seen.is_some();
        self.timers.set(token(Kind::EndTimer, io).0, end);
        if !is_seen {
            self.ios.values_mut().for_each(|io| _ = io.seen.get_or_insert(now));
        }
    }
}

impl<P: Port> Pump<P> {
    /// Work was waited for long enough: its unit is fenced, and whoever waits goes on.
    #[cold]
    pub(super) fn leave_behind(&mut self, io: Key) {
        let context = &mut self.context;
        // It may have ended in this turn.
        let Some(pending) = context.ios.get_mut(io) else { return };
        let (session, is_reset) = (pending.session, pending.is_reset());
        let (unit, fences) = match (&mut pending.ended, session) {
            (Some(task), _) => (task.place().cloned(), Some(task.fence())),
            // A reset that does not end is no task.
            (None, _) if is_reset => (None, None),
            (None, Key::NOBODY) => {
                let job = self.jobs.get_mut(jobs::key_of(pending.task));
                let unit = job.as_ref().and_then(|job| job.task().place().cloned());
                (unit, job.and_then(Job::fence_cancelled))
            }
            (None, _) => return never("a command that goes on is not waited for"),
        };
        // A job that goes on is as any other command that nobody has ended, and so is a reset.
        pending.patience = fences.map_or(Patience::Unbounded, |_| Patience::Over);
        let waiters = std::mem::take(&mut pending.managements);
        let (stay, go): (Vec<Key>, Vec<Key>) =
            waiters.into_iter().partition(|waiter| context.managements.is_drain(*waiter));
        pending.managements = stay;
        if fences == Some(true)
            && let Some(unit) = &unit
        {
            tracing::error!(
                disk = unit.identity().serial.as_str(),
                store = unit.label(),
                "what was asked of a disk for commands that have ended does not end: until it \
                 does, other commands are told BUSY; try: a look at what is behind the disk"
            );
        }
        context.tell_waiting(None);
        context.left += usize::from(fences.is_some());
        if fences.is_some()
            && let Some(session) = self.sessions.get_mut(session)
        {
            session.ios -= 1;
        }
        for management in go {
            self.done_elsewhere(management);
        }
        self.vacate(session);
    }
}

impl PendingIo {
    /// Nobody can promise that it ends. A state that is kept is not left behind: what is answered
    /// follows from it.
    fn may_hang(&self) -> bool {
        self.is_for_the_medium() || self.is_reset()
    }
}

/// What a unit was fenced for has ended, or a part of it.
#[cold]
pub(super) fn tell_end(unit: &Arc<LogicalUnit>) {
    if !unit.is_fenced() {
        tracing::info!(
            disk = unit.identity().serial.as_str(),
            store = unit.label(),
            "what was asked of a disk for commands that have ended is over"
        );
    }
}
