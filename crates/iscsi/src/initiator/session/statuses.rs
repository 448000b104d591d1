// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which StatSNs of a connection have come. Read first: RFC 7143 §4.2.2.2 (status numbering), §7.8
//! and §7.9 (what is lost), §11.16 (Status SNACK).

use alloc::collections::VecDeque;

use wire::iscsi::StatSn;

use crate::initiator::datamover::Run;
use crate::initiator::limits;
use crate::serial::Serial;

/// What has come of the numbered PDUs of a connection.
#[derive(Debug)]
pub(super) struct Statuses {
    /// ExpStatSN: all before has come, and may be forgotten by the target.
    expected: StatSn,
    /// `expected` and the numbers after it. Empty while all comes in order.
    ahead: VecDeque<Known>,
    /// How often something was asked for again since all was in order.
    tries: u32,
}

/// What is known of a number that is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Missing,
    /// Missing, and asked for.
    Asked,
    /// The status came before the data of its command.
    Held,
    Done,
}

/// Whether a number is worth looking at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    New,
    /// It came before.
    Again,
}

/// More is lost than may be, or too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hopeless;

impl Statuses {
    pub(super) const fn new(expected: StatSn) -> Self {
        Self { expected, ahead: VecDeque::new(), tries: 0 }
    }

    pub(super) const fn expected(&self) -> StatSn {
        self.expected
    }

    /// Whether nothing is missing.
    pub(super) fn are_in_order(&self) -> bool {
        self.ahead.is_empty()
    }

    /// A PDU with this number came, and is dealt with.
    pub(super) fn take(&mut self, number: StatSn) -> Result<Arrival, Hopeless> {
        if number == self.expected && self.ahead.is_empty() {
            self.expected = number.plus(1);
            return Ok(Arrival::New);
        }
        let Some(known) = self.reach(number)? else { return Ok(Arrival::Again) };
        if *known == Known::Done {
            return Ok(Arrival::Again);
        }
        *known = Known::Done;
        while self.ahead.front() == Some(&Known::Done) {
            self.ahead.pop_front();
            self.expected = self.expected.plus(1);
        }
        if self.ahead.is_empty() {
            self.tries = 0;
        }
        Ok(Arrival::New)
    }

    /// A status with this number came, but not yet all data before it: it is not acknowledged
    /// (RFC 7143 §7.9).
    pub(super) fn hold(&mut self, number: StatSn) -> Result<Arrival, Hopeless> {
        let Some(known) = self.reach(number)? else { return Ok(Arrival::Again) };
        if matches!(known, Known::Done | Known::Held) {
            return Ok(Arrival::Again);
        }
        *known = Known::Held;
        Ok(Arrival::New)
    }

    /// The PDU with this number was damaged on its way.
    pub(super) fn lose(&mut self, number: StatSn) -> Result<(), Hopeless> {
        if let Some(known) = self.reach(number)?
            && *known == Known::Asked
        {
            *known = Known::Missing;
        }
        Ok(())
    }

    /// The target will give the next numbered PDU this number: all before was sent.
    pub(super) fn expect(&mut self, next: StatSn) -> Result<(), Hopeless> {
        if next.is_after(self.expected) {
            self.reach(next.minus(1))?;
        }
        Ok(())
    }

    /// An answer came to a question that was put after all others: what was asked for before and
    /// is not there is lost again.
    pub(super) fn ask_again(&mut self) {
        for known in self.ahead.iter_mut().filter(|known| **known == Known::Asked) {
            *known = Known::Missing;
        }
    }

    /// Whether this number is still missing.
    pub(super) fn is_missing(&self, number: StatSn) -> bool {
        let known = self.ahead.get(number.steps_from(self.expected) as usize);
        matches!(known, Some(Known::Missing | Known::Asked))
    }

    /// A run of numbers that are missing and were not asked for; from now on they were.
    pub(super) fn ask(&mut self) -> Result<Option<Run>, Hopeless> {
        let Some(from) = self.ahead.iter().position(|known| *known == Known::Missing) else {
            return Ok(None);
        };
        self.tries += 1;
        if self.tries > limits::STATUS_SNACKS_MAX {
            return Err(Hopeless);
        }
        let mut count = 0;
        for known in self.ahead.iter_mut().skip(from) {
            if *known != Known::Missing {
                break;
            }
            *known = Known::Asked;
            count += 1;
        }
        let from = u32::try_from(from).map_err(|_| Hopeless)?;
        Ok(Some(Run { first: self.expected.plus(from).0, count }))
    }

    pub(super) fn check(&self) {
        assert_ne!(self.ahead.front(), Some(&Known::Done), "what came is counted");
        assert!(self.ahead.len() <= limits::STATUSES_AHEAD_MAX, "bounded");
    }

    /// What is known of a number, which is entered if it was not; None if all up to it has come.
    fn reach(&mut self, number: StatSn) -> Result<Option<&mut Known>, Hopeless> {
        if number.is_before(self.expected) {
            return Ok(None);
        }
        let place = number.steps_from(self.expected) as usize;
        if place >= limits::STATUSES_AHEAD_MAX {
            return Err(Hopeless);
        }
        while self.ahead.len() <= place {
            self.ahead.push_back(Known::Missing);
        }
        Ok(self.ahead.get_mut(place))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const START: StatSn = StatSn(u32::MAX - 3);

    fn run(first: u32, count: u32) -> Option<Run> {
        Some(Run { first: START.plus(first).0, count })
    }

    /// Covers: STS-04.
    #[test]
    fn gaps_are_asked_for_once() {
        let mut statuses = Statuses::new(START);
        assert_eq!(statuses.take(START), Ok(Arrival::New));
        assert_eq!(statuses.take(START), Ok(Arrival::Again));
        assert_eq!(statuses.take(START.plus(3)), Ok(Arrival::New));
        assert_eq!(statuses.expected(), START.plus(1), "not beyond the gap");
        assert_eq!(statuses.ask(), Ok(run(1, 2)));
        assert_eq!(statuses.ask(), Ok(None));
        statuses.expect(START.plus(6)).unwrap();
        assert_eq!(statuses.ask(), Ok(run(4, 2)));
        statuses.lose(START.plus(1)).unwrap();
        assert_eq!(statuses.ask(), Ok(run(1, 1)), "what was damaged again is asked for again");
        statuses.ask_again();
        assert_eq!(statuses.ask(), Ok(run(1, 2)));
        assert_eq!(statuses.ask(), Ok(run(4, 2)));
        assert!(statuses.is_missing(START.plus(1)) && !statuses.is_missing(START.plus(3)));
        for number in [2, 1, 5, 4] {
            assert_eq!(statuses.take(START.plus(number)), Ok(Arrival::New));
            statuses.check();
        }
        assert_eq!((statuses.expected(), statuses.are_in_order()), (START.plus(6), true));
    }

    /// Covers: ERL-12.
    #[test]
    fn what_is_held_is_neither_asked_for_nor_acknowledged() {
        let mut statuses = Statuses::new(START);
        assert_eq!(statuses.hold(START), Ok(Arrival::New));
        assert_eq!(statuses.hold(START), Ok(Arrival::Again));
        assert_eq!(statuses.take(START.plus(1)), Ok(Arrival::New));
        assert_eq!((statuses.ask(), statuses.expected()), (Ok(None), START));
        assert_eq!(statuses.take(START), Ok(Arrival::New));
        assert_eq!(statuses.expected(), START.plus(2));
    }

    /// Covers: STS-05.
    #[test]
    fn patience_is_bounded() {
        let mut statuses = Statuses::new(START);
        let far = u32::try_from(limits::STATUSES_AHEAD_MAX).unwrap();
        assert_eq!(statuses.take(START.plus(far)), Err(Hopeless));
        for _ in 0..limits::STATUS_SNACKS_MAX {
            statuses.lose(START).unwrap();
            assert_eq!(statuses.ask(), Ok(run(0, 1)));
        }
        statuses.lose(START).unwrap();
        assert_eq!(statuses.ask(), Err(Hopeless));
    }

    proptest! {
        /// Whatever order the numbers come in, each counts once and the acknowledgement is right.
        #[test]
        fn each_number_counts_once(order in prop::collection::vec(0..40u32, 1..200)) {
            let mut statuses = Statuses::new(START);
            let mut come: Vec<u32> = Vec::new();
            for number in order {
                let new = !come.contains(&number);
                let arrival = if new { Arrival::New } else { Arrival::Again };
                prop_assert_eq!(statuses.take(START.plus(number)), Ok(arrival));
                come.push(number);
                let all = (0..).take_while(|number| come.contains(number)).count();
                prop_assert_eq!(statuses.expected(), START.plus(u32::try_from(all).unwrap()));
                statuses.check();
            }
        }
    }
}
