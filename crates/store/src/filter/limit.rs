// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `limit=...`: so many operations or bytes in a second, over all initiators together.
//!
//! A token bucket, kept as the time at which it will be full again: an operation moves that time by
//! what it costs when it begins, and waits until no more than [`LIMIT_BURST`] lies ahead. Those
//! that wait stand in line in the order in which they came, and are charged nothing yet: one that
//! nobody wants any more leaves the line, and those behind it go on sooner.

use super::behind;
use crate::limits::{LIMIT_BURST, LIMIT_LOOK, LIMIT_LOOK_MIN};
use crate::{FilterIndex, Geometry, Io, IoResult, Op, Store, Submitted};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use clock::Instant;
use core::time::Duration;
use spin::Mutex;

const SECOND_NS: u64 = 1_000_000_000;

/// A bound on what is done in a second.
#[derive(Debug)]
pub struct Limit {
    behind: Arc<dyn Store>,
    filter: FilterIndex,
    rate: Rate,
    /// Held for a few instructions.
    line: Mutex<Line>,
}

/// What was admitted, and what waits.
#[derive(Debug, Default)]
struct Line {
    /// Nanoseconds of the driver's clock at which all that was admitted is paid for.
    paid: u64,
    /// In the order of their turns.
    waiting: VecDeque<Waiting>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    turn: u64,
    /// Nanoseconds at the full rate.
    cost: u64,
}

/// What an operation is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Go,
    /// To look again for its turn after so long.
    Wait {
        length: Duration,
        turn: u64,
    },
}

/// How much in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the spelling has these
pub enum Rate {
    /// Operations, of any kind and length; at least one.
    Operations(u64),
    /// Bytes read and written; at least one.
    Bytes(u64),
}

impl Limit {
    /// In front of `behind`.
    pub fn new(behind: Arc<dyn Store>, filter: FilterIndex, rate: Rate) -> Self {
        Self { behind, filter, rate, line: Mutex::default() }
    }

    /// Nanoseconds that `op` takes at the full rate.
    fn cost(&self, op: &Op) -> u64 {
        let (units, rate) = match self.rate {
            Rate::Operations(rate) => (1, rate),
            Rate::Bytes(rate) => (op.range().1, rate),
        };
        let cost = u128::from(units) * u128::from(SECOND_NS) / u128::from(rate.max(1));
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    fn tell(&self, op: &Op, answer: Answer) -> Submitted {
        match answer {
            Answer::Go => self.behind.submit(op),
            Answer::Wait { length, turn } => {
                Submitted::Io(Io::Pause { filter: self.filter, length, turn })
            }
        }
    }
}

impl Line {
    /// An operation of this cost has come.
    fn arrive(&mut self, now: Instant, cost: u64) -> Answer {
        let turn = self.next;
        self.next += 1;
        self.waiting.push_back(Waiting { turn, cost });
        self.look(now, turn)
    }

    /// The operation of `turn` looks whether it may begin.
    fn look(&mut self, now: Instant, turn: u64) -> Answer {
        let burst = u64::try_from(LIMIT_BURST.as_nanos()).unwrap_or(u64::MAX);
        let Ok(at) = self.find(turn) else { return Answer::Go };
        let mut free = Instant(self.paid.saturating_sub(burst));
        for before in self.waiting.iter().take(at) {
            if free.since(now) >= LIMIT_LOOK {
                break;
            }
            free = Instant(free.0.saturating_add(before.cost));
        }
        if at == 0 && free <= now {
            let cost = self.waiting.pop_front().map_or(0, |first| first.cost);
            self.paid = self.paid.max(now.0).saturating_add(cost);
            return Answer::Go;
        }
        let least = if at == 0 { Duration::ZERO } else { LIMIT_LOOK_MIN };
        Answer::Wait { length: free.since(now).clamp(least, LIMIT_LOOK), turn }
    }

    fn leave(&mut self, turn: u64) {
        if let Ok(at) = self.find(turn) {
            self.waiting.remove(at);
        }
    }

    fn find(&self, turn: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&turn, |waiting| waiting.turn)
    }
}

impl Store for Limit {
    fn submit(&self, op: &Op) -> Submitted {
        // What is refused takes nobody's turn.
        let free =
            matches!(op, Op::ProvisioningStatus { .. }) || self.geometry().check(op).is_err();
        let moves = op.reads() || matches!(op, Op::Write { .. } | Op::WriteSame { .. });
        if free || (matches!(self.rate, Rate::Bytes(_)) && !moves) {
            return self.behind.submit(op);
        }
        Submitted::Io(Io::Clock { filter: self.filter })
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        match (io, result) {
            (Io::Clock { filter }, IoResult::Clock(now)) if *filter == self.filter => {
                let answer = self.line.lock().arrive(now, self.cost(op));
                self.tell(op, answer)
            }
            (Io::Pause { filter, turn, .. }, IoResult::Clock(now)) if *filter == self.filter => {
                let answer = self.line.lock().look(now, *turn);
                self.tell(op, answer)
            }
            (_, result) => self.behind.complete(op, io, result),
        }
    }

    fn give_up(&self, op: &Op, io: &Io) {
        match io {
            Io::Pause { filter, turn, .. } if *filter == self.filter => {
                self.line.lock().leave(*turn)
            }
            _ => self.behind.give_up(op, io),
        }
    }

    fn geometry(&self) -> Geometry {
        self.behind.geometry()
    }

    behind!(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Space;
    use crate::null::Null;
    use alloc::vec::Vec;

    const READ: Op = Op::Read { offset: 0, length: 4096 };

    fn limit(rate: Rate) -> Limit {
        Limit::new(Arc::new(Null::new(1 << 20).expect("room")), FilterIndex(0), rate)
    }

    const BEGIN: Instant = Instant(5 * SECOND_NS);

    /// Operations of this cost that come at once, and what they are told.
    fn arrive(limit: &Limit, now: Instant, count: usize, cost: u64) -> Vec<Answer> {
        let mut line = limit.line.lock();
        (0..count).map(|_| line.arrive(now, cost)).collect()
    }

    /// After how many milliseconds each of those that wait may begin, in the order of their ends.
    fn begins(limit: &Limit, now: Instant, answers: Vec<Answer>) -> Vec<u128> {
        let mut begun = Vec::new();
        let mut looks: Vec<(Instant, u64)> = Vec::new();
        for answer in answers {
            match answer {
                Answer::Go => begun.push(0),
                Answer::Wait { length, turn } => looks.push((now + length, turn)),
            }
        }
        while let Some(next) = looks.iter().copied().min() {
            looks.retain(|look| *look != next);
            let (at, turn) = next;
            match limit.line.lock().look(at, turn) {
                Answer::Go => begun.push(at.since(now).as_millis()),
                Answer::Wait { length, turn } => looks.push((at + length, turn)),
            }
        }
        begun
    }

    #[test]
    fn operations_are_spread_behind_a_burst() {
        let limit = limit(Rate::Operations(20));
        let cost = limit.cost(&READ);
        let answers = arrive(&limit, BEGIN, 10, cost);
        assert_eq!(begins(&limit, BEGIN, answers), [0, 0, 0, 50, 100, 150, 200, 250, 300, 350]);
        // A second later the bucket is full again, and no fuller than at the beginning.
        let later = BEGIN + Duration::from_secs(2);
        let answers = arrive(&limit, later, 4, cost);
        assert_eq!(begins(&limit, later, answers), [0, 0, 0, 50]);
    }

    #[test]
    fn bytes_count_by_their_number() {
        let limit = limit(Rate::Bytes(40_960));
        let cost = limit.cost(&READ);
        let answers = arrive(&limit, BEGIN, 4, cost);
        assert_eq!(begins(&limit, BEGIN, answers), [0, 0, 100, 200]);
        let longer = Op::Read { offset: 0, length: 8192 };
        assert_eq!(limit.cost(&longer), 2 * cost);
    }

    #[test]
    fn what_nobody_wants_any_more_costs_nothing() {
        let limit = limit(Rate::Operations(10));
        let cost = limit.cost(&READ);
        let mut answers = arrive(&limit, BEGIN, 1000, cost);
        let last = answers.split_off(999);
        for answer in answers {
            if let Answer::Wait { length, turn } = answer {
                limit.give_up(&READ, &Io::Pause { filter: FilterIndex(0), length, turn });
            }
        }
        let begun = begins(&limit, BEGIN, last);
        assert!(begun[0] <= 250, "{begun:?}");
        assert!(limit.line.lock().waiting.is_empty());
    }

    /// Nobody who comes later goes before those that wait.
    #[test]
    fn the_line_keeps_its_order() {
        let limit = limit(Rate::Operations(10));
        let cost = limit.cost(&READ);
        arrive(&limit, BEGIN, 5, cost);
        let later = BEGIN + Duration::from_secs(60);
        assert!(matches!(limit.line.lock().arrive(later, cost), Answer::Wait { .. }));
    }

    #[test]
    fn the_rate_over_a_long_time_is_what_was_asked() {
        let limit = limit(Rate::Operations(1000));
        let cost = limit.cost(&READ);
        let (mut now, mut done) = (Instant(0), 0_u32);
        while now.0 < 10 * SECOND_NS {
            let mut answer = limit.line.lock().arrive(now, cost);
            while let Answer::Wait { length, turn } = answer {
                now = now + length;
                answer = limit.line.lock().look(now, turn);
            }
            done += 1;
        }
        assert!((9_990..=10_110).contains(&done), "{done}");
    }

    #[test]
    fn what_moves_no_bytes_is_free_of_a_bound_on_bytes() {
        let limit = limit(Rate::Bytes(1));
        for op in [Op::Flush, Op::Clear { offset: 0, length: 512, leave: Space::Mapped }] {
            assert!(matches!(limit.submit(&op), Submitted::Done(_)), "{op:?}");
        }
        assert!(matches!(limit.submit(&READ), Submitted::Io(Io::Clock { .. })));
    }

    #[test]
    fn no_rate_overflows() {
        let limit = limit(Rate::Bytes(1));
        let op = Op::Read { offset: 0, length: u32::MAX };
        let mut line = limit.line.lock();
        for now in [u64::MAX - 5, u64::MAX] {
            for _ in 0..10 {
                line.arrive(Instant(now), limit.cost(&op));
            }
        }
        assert_eq!(line.paid, u64::MAX);
    }
}
