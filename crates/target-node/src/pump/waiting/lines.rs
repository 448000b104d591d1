// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lines in which commands wait, and who of them tries when.

use std::sync::Arc;
use std::time::Duration;

use clock::Instant;
use iscsi::datamover::TaskId;
use scsi::LogicalUnit;

use crate::table::Key;

/// As long as this a wait is expected to be over at any moment, as that for COMPARE AND WRITE is.
const SHORT: Duration = Duration::from_micros(200);

/// The first of each line tries so often whether or not something has ended here: for what is told
/// to nobody, such as the end of a job.
const INTERVAL: Duration = Duration::from_millis(10);

/// All of them try so often, lest one should stand behind another that waits for it.
const ALL_INTERVAL: Duration = Duration::from_millis(250);

/// All commands that wait on a reactor.
#[derive(Debug, Default)]
pub(in crate::pump) struct Waiting {
    lines: Vec<Line>,
    count: usize,
    /// When the last of them began to wait.
    since: Option<Instant>,
    next: Instant,
    next_of_all: Instant,
    ended: bool,
    round: Option<Round>,
}

/// Commands of one session for one unit, in the order in which they began to wait.
#[derive(Debug)]
struct Line {
    session: Key,
    unit: Arc<LogicalUnit>,
    /// Those that may overtake the others.
    overtaking: Vec<TaskId>,
    tasks: Vec<TaskId>,
}

/// Those that wait try again.
#[derive(Debug)]
struct Round {
    all: bool,
    line: usize,
    /// Lines when it began.
    lines: usize,
    place: Order,
    /// Where in the list the next one stands.
    at: usize,
    /// Who tries now.
    trying: Option<(Key, TaskId)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Overtaking,
    InLine,
}

impl Waiting {
    /// Something has ended that one of them may wait for.
    pub(in crate::pump) const fn somebody_ended(&mut self) {
        self.ended = true;
    }

    pub(in crate::pump) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// False if nobody waits, nor did since the last round.
    pub(in crate::pump) const fn has_lines(&self) -> bool {
        !self.lines.is_empty()
    }

    pub(in crate::pump) const fn len(&self) -> usize {
        self.count
    }

    /// When to try again, if anybody waits.
    pub(in crate::pump) fn next_try(&self, now: Instant) -> Option<Instant> {
        let since = self.since.filter(|_| self.count > 0)?;
        if self.ended || now < since + SHORT { Some(now) } else { Some(self.next) }
    }

    /// A task waits, or goes on waiting.
    pub(in crate::pump) fn add(
        &mut self,
        (session, task): (Key, TaskId),
        unit: Arc<LogicalUnit>,
        overtakes: bool,
        now: Instant,
    ) {
        if let Some(round) = &mut self.round
            && round.trying == Some((session, task))
            && let Some(line) = self.lines.get_mut(round.line)
        {
            // Where it was.
            let list = line.list(round.place);
            let at = round.at.min(list.len());
            list.insert(at, task);
            round.trying = None;
            round.at =
                if round.all || round.place == Order::Overtaking { at + 1 } else { usize::MAX };
            self.count += 1;
            return;
        }
        if self.count == 0 {
            self.next = now + INTERVAL;
            self.next_of_all = now + ALL_INTERVAL;
        }
        self.since = Some(now);
        self.count += 1;
        let place = if overtakes { Order::Overtaking } else { Order::InLine };
        let found = self
            .lines
            .iter_mut()
            .find(|line| line.session == session && Arc::ptr_eq(&line.unit, &unit));
        if let Some(line) = found {
            return line.list(place).push(task);
        }
        let mut line = Line { session, unit, overtaking: Vec::new(), tasks: Vec::new() };
        line.list(place).push(task);
        self.lines.push(line);
    }

    /// The task is over.
    pub(in crate::pump) fn forget(&mut self, session: Key, task: TaskId) {
        for line in self.lines.iter_mut().filter(|line| line.session == session) {
            self.count -= line.forget(|waiting| waiting == task);
        }
    }

    /// The session is over.
    pub(in crate::pump) fn forget_session(&mut self, session: Key) {
        for line in self.lines.iter_mut().filter(|line| line.session == session) {
            self.count -= line.forget(|_| true);
        }
    }

    /// Begins a round; false if there is no reason for one now.
    pub(in crate::pump) fn begin(&mut self, now: Instant) -> bool {
        let is_due = self.next_try(now).is_some_and(|at| at <= now);
        if !is_due {
            return false;
        }
        self.ended = false;
        let all = now >= self.next_of_all;
        self.next = now + INTERVAL;
        if all {
            self.next_of_all = now + ALL_INTERVAL;
        }
        let (lines, place) = (self.lines.len(), Order::Overtaking);
        self.round = Some(Round { all, line: 0, lines, place, at: 0, trying: None });
        true
    }

    /// Who tries next; if it must still wait, it is added again before the next call.
    pub(in crate::pump) fn next(&mut self) -> Option<(Key, TaskId)> {
        let round = self.round.as_mut()?;
        round.trying = None;
        while round.line < round.lines {
            let line = self.lines.get_mut(round.line)?;
            let session = line.session;
            let list = line.list(round.place);
            if round.at < list.len() {
                let task = list.remove(round.at);
                self.count -= 1;
                round.trying = Some((session, task));
                return round.trying;
            }
            round.at = 0;
            match round.place {
                Order::Overtaking => round.place = Order::InLine,
                Order::InLine => {
                    round.place = Order::Overtaking;
                    round.line += 1;
                }
            }
        }
        None
    }

    /// The round is over; gives the units for which nobody waits any more.
    pub(in crate::pump) fn end(&mut self) -> Vec<Arc<LogicalUnit>> {
        self.round = None;
        let mut left = Vec::new();
        for line in self.lines.extract_if(.., |line| line.is_empty()) {
            if !left.iter().any(|unit| Arc::ptr_eq(unit, &line.unit)) {
                left.push(line.unit);
            }
        }
        left.retain(|unit| !self.lines.iter().any(|line| Arc::ptr_eq(unit, &line.unit)));
        left
    }
}

impl Line {
    const fn list(&mut self, place: Order) -> &mut Vec<TaskId> {
        match place {
            Order::Overtaking => &mut self.overtaking,
            Order::InLine => &mut self.tasks,
        }
    }

    const fn is_empty(&self) -> bool {
        self.overtaking.is_empty() && self.tasks.is_empty()
    }

    /// Takes out those that `which` names; returns how many.
    fn forget(&mut self, which: impl Fn(TaskId) -> bool) -> usize {
        let before = self.overtaking.len() + self.tasks.len();
        self.overtaking.retain(|task| !which(*task));
        self.tasks.retain(|task| !which(*task));
        before - self.overtaking.len() - self.tasks.len()
    }
}
