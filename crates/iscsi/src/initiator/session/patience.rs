// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long what was asked for may take on a line that is slow. Read first: RFC 7143 §7.11
//! (time-outs).
//!
//! What is asked for goes out behind all that is written, and its answer comes behind all that was
//! asked for before. So it is late when its time is over and, in each direction, either nothing
//! moves, or twice as much has passed as could stand before it:
//!
//! ```text
//! Fresh --its time is over--> Behind(what may stand before it, each way) --passed, quiet--> late
//!   ^                               |
//!   `---- the target works on it ---'
//! ```
//!
//! - Nothing that waits for an honest line is late. What could stand before it when its time is
//!   over is what all others on the connection have under way, and what is in the socket: that is
//!   known. What is sent later comes behind it, or at most takes turns with it, which is why twice
//!   as much may pass.
//! - Whatever is forgotten is late some time: while it stands still its time passes, then a bounded
//!   number of bytes, in no part of which longer than its time nothing moves; and it begins anew
//!   only while its own bytes come or go at a pace that a line for a disk has. At a target that
//!   serves all others at full speed that is little more than its time.

use core::time::Duration;

use clock::Instant;

use super::Command;
use super::Session;
use crate::initiator::ConnectionId;
use crate::initiator::datamover::TaskId;
use crate::initiator::limits;

/// What a connection has carried, and what is on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes that have come since it began.
    pub received: u64,
    /// Bytes of the PDU under way that have not.
    pub arriving: u64,
    /// Bytes that the system of the target has taken since it began; of one where that is not
    /// known, those that the socket took.
    pub taken: u64,
    /// Bytes that the socket was given and that are not taken.
    pub leaving: u64,
}

/// Both directions of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    inward: Direction,
    outward: Direction,
    /// What is on its way, each way.
    under_way: Bytes,
}

/// Bytes of each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    inward: u64,
    outward: u64,
}

/// What one direction has carried.
#[derive(Clone, Copy, Debug)]
struct Direction {
    carried: u64,
    /// When it was seen to move last.
    moved: Instant,
    pace: Pace,
}

/// Whether a count gets on, or trickles.
#[derive(Clone, Copy, Debug)]
pub(in crate::initiator) struct Pace {
    /// The count when the look at it began that is under way, and when that was.
    from: (Instant, u64),
}

/// The time that something has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::initiator) struct Patience {
    since: Instant,
    /// Its time is over: it is late when so much has been carried.
    until: Option<Bytes>,
}

impl Bytes {
    pub(super) const NONE: Self = Self { inward: 0, outward: 0 };

    /// What a command moves.
    pub(super) fn of(command: &Command) -> Self {
        Self { inward: command.data_in.into(), outward: command.data_out.into() }
    }

    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            inward: self.inward.saturating_add(other.inward),
            outward: self.outward.saturating_add(other.outward),
        }
    }

    pub(super) const fn minus(self, other: Self) -> Self {
        Self {
            inward: self.inward.saturating_sub(other.inward),
            outward: self.outward.saturating_sub(other.outward),
        }
    }
}

impl Pace {
    pub(in crate::initiator) const fn new(now: Instant) -> Self {
        Self { from: (now, 0) }
    }

    /// Takes the count; true if it has got on by `least`.
    fn note(&mut self, count: u64, least: u64, now: Instant) -> bool {
        let (begun, before) = self.from;
        let moves = count.abs_diff(before) >= least;
        if moves || now.since(begun) >= limits::PROGRESS_TIME {
            self.from = (now, count);
        }
        moves
    }
}

impl Direction {
    const fn new(now: Instant) -> Self {
        Self { carried: 0, moved: now, pace: Pace::new(now) }
    }

    /// Takes what it has carried; true if it moves.
    fn note(&mut self, carried: u64, now: Instant) -> bool {
        self.carried = self.carried.max(carried);
        let moves = self.pace.note(self.carried, limits::PROGRESS_MIN, now);
        if moves {
            self.moved = now;
        }
        moves
    }

    /// Whether it has not carried so much, and moves.
    fn is_passing(&self, until: u64, timeout: Duration, now: Instant) -> bool {
        self.carried < until && now.since(self.moved) < timeout
    }
}

impl Line {
    pub(super) const fn new(now: Instant) -> Self {
        let direction = Direction::new(now);
        Self { inward: direction, outward: direction, under_way: Bytes::NONE }
    }

    /// When it was seen to move last, either way.
    fn moved(&self) -> Instant {
        self.inward.moved.max(self.outward.moved)
    }
}

impl Patience {
    pub(in crate::initiator) const fn new(now: Instant) -> Self {
        Self { since: now, until: None }
    }

    /// When to look again; None: it is late. `before`: bytes that may stand before it now.
    fn check(
        &mut self,
        now: Instant,
        (timeout, interval): (Duration, Duration),
        line: &Line,
        before: Bytes,
    ) -> Option<Instant> {
        let end = self.since + timeout;
        if end > now {
            return Some(end);
        }
        let carried = Bytes { inward: line.inward.carried, outward: line.outward.carried };
        let until = *self.until.get_or_insert_with(|| carried.plus(before).plus(before));
        let waits = line.inward.is_passing(until.inward, timeout, now)
            || line.outward.is_passing(until.outward, timeout, now);
        waits.then(|| now + interval)
    }
}

/// What a command has to get on by to be given its time anew: a target that trickles holds nobody.
fn progress_least(command: &Command) -> u64 {
    let Bytes { inward, outward } = Bytes::of(command);
    inward.saturating_add(outward).clamp(1, limits::PROGRESS_MIN)
}

/// How often is looked at how far commands are that may take so long.
pub(super) fn look_interval(timeout: Duration) -> Duration {
    match timeout {
        Duration::ZERO => limits::LOOK_MAX,
        timeout => (timeout / limits::LOOKS).clamp(limits::LOOK_MIN, limits::LOOK_MAX),
    }
}

impl Session {
    /// Tells what a connection has carried since it began. Call it before each [`handle_timeout`]:
    /// on a slow line the answer to a ping or a command comes behind all that was asked for before,
    /// and goes out behind all that is written.
    ///
    /// [`handle_timeout`]: Self::handle_timeout
    pub fn note_carried(&mut self, at: ConnectionId, carried: Carried, now: Instant) {
        let timeout = self.ping_timeout;
        let Some(connection) = self.connections.get_mut(at) else { return };
        let line = &mut connection.line;
        line.under_way = Bytes { inward: carried.arriving, outward: carried.leaving };
        let inward = line.inward.note(carried.received, now);
        let outward = line.outward.note(carried.taken, now);
        if let Some(ping) = &mut connection.ping
            && (inward || outward)
        {
            ping.until = now + timeout;
        }
    }

    /// Tells how far the commands are that were sent: `progress` gives a number that changes
    /// whenever the target has worked on one. Call it before each [`handle_timeout`] at
    /// [`Session::looks_at`].
    ///
    /// [`handle_timeout`]: Self::handle_timeout
    pub fn note_progress(
        &mut self,
        progress: impl Fn(ConnectionId, TaskId) -> Option<u64>,
        now: Instant,
    ) {
        for (id, task) in self.tasks.iter_mut() {
            if task.sent.is_some()
                && let Some(progress) = progress(task.connection, id)
                && task.pace.note(progress, progress_least(&task.command), now)
            {
                task.patience = Patience::new(now);
            }
        }
    }

    /// A command ends by its status. Of a write that says that the line gets on where a proxy has
    /// taken all data long ago.
    pub(super) fn note_end(&mut self, at: ConnectionId, task: TaskId, now: Instant) {
        let writes = self.tasks.get(task).is_some_and(|task| task.command.data_out > 0);
        if let Some(connection) = self.connections.get_mut(at).filter(|_| writes) {
            connection.line.outward.moved = now;
        }
    }

    /// When to tell next how far the commands are.
    #[must_use]
    pub fn looks_at(&self) -> Option<Instant> {
        let waits = self.tasks.sent() > 0 && !self.command_timeout.is_zero();
        (waits || self.controls.are_waiting()).then(|| self.looked + self.look_interval)
    }

    /// When a connection was seen to carry something last.
    #[must_use]
    pub fn moved(&self) -> Option<Instant> {
        let up = self.connections.iter().filter(|(_, connection)| connection.is_up());
        up.map(|(_, connection)| connection.line.moved()).max()
    }

    /// Looks at something on a connection, and `own` of it; when to do so again, or None: it is
    /// late.
    pub(super) fn check_patience(
        &self,
        patience: &mut Patience,
        timeout: Duration,
        (at, own): (ConnectionId, Option<TaskId>),
        now: Instant,
    ) -> Option<Instant> {
        let connection = self.connections.get(at)?;
        // Its own data shows by itself whether it moves.
        let own = own.and_then(|id| self.tasks.get(id)).filter(|task| task.connection == at);
        let own = own.map_or(Bytes::NONE, |task| Bytes::of(&task.command));
        let others = connection.asked.minus(own);
        let before = connection.line.under_way.plus(others);
        patience.check(now, (timeout, self.look_interval), &connection.line, before)
    }

    /// As [`Session::check_patience`], of a command that was sent.
    pub(super) fn look_at_task(&mut self, id: TaskId, now: Instant) -> Option<Instant> {
        let task = self.tasks.get(id)?;
        let (mut patience, place) = (task.patience, (task.connection, Some(id)));
        let again = self.check_patience(&mut patience, self.command_timeout, place, now);
        if let Some(task) = self.tasks.get_mut(id) {
            task.patience = patience;
        }
        again
    }

    /// As [`Session::check_patience`], of a command that waits for the window: that opens when
    /// commands before it end, and so while data moves.
    pub(super) fn look_at_window(&self, patience: Patience, now: Instant) -> Option<Instant> {
        let since = self.moved().map_or(patience.since, |moved| moved.max(patience.since));
        let end = since + self.command_timeout;
        (end > now).then_some(end)
    }
}
