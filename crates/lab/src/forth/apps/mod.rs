// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applications on a file system on the disk of each place: what they did there, and what of a
//! processor it took.

mod account;
mod disks;
mod layer;
pub(super) mod postmark;
mod samples;
pub(super) mod sfs;
pub(super) mod tpch;

use super::Place;
use crate::verdict::Spread;
pub(super) use account::Spent;
pub(super) use layer::Layer;
use samples::Sampler;
#[cfg(test)]
pub(super) use samples::Seen;

/// What an application did at all places.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// How it was measured here.
    pub(super) preface: Vec<String>,
    /// What was done, as the study calls it: sizes, or queries.
    pub(super) items: Vec<String>,
    pub(super) cases: Vec<Case>,
    /// Why there is nothing of some places, or nothing at all.
    pub(super) lacking: Vec<String>,
}

/// One item at one place.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) place: Place,
    pub(super) item: usize,
    /// Of each run.
    pub(super) spent: Vec<Spent>,
    /// What the application itself tells of each run; nothing, if it tells nothing.
    pub(super) rates: Vec<postmark::Rates>,
    /// What a load measures of the answers that it gets; nothing, if there is none.
    pub(super) answers: Vec<sfs::Answers>,
}

impl Outcome {
    /// Nothing, and why.
    pub(super) fn nothing(why: impl ToString) -> Self {
        Self { lacking: vec![why.to_string()], ..Self::default() }
    }

    /// All items at all of these places, not yet run.
    fn expect(items: Vec<String>, places: &[Place]) -> Self {
        let cases = (0..items.len()).flat_map(|item| {
            let new = move |&place: &Place| Case {
                place,
                item,
                spent: Vec::new(),
                rates: Vec::new(),
                answers: Vec::new(),
            };
            places.iter().map(new)
        });
        Self { cases: cases.collect(), items, ..Self::default() }
    }

    /// Where the time went, as samples tell it; without them the kernel's accounts do.
    fn part(outcomes: &mut [&mut Self], sampler: Result<Sampler, String>) {
        let samples = sampler.and_then(Sampler::end);
        if let Some(first) = outcomes.first_mut() {
            first.preface.push(match &samples {
                Ok(samples) => format!(
                    "Where its time goes is what `perf` saw of the whole machine, {:.0} times a \
                     second on each processor.",
                    samples.rate()
                ),
                Err(why) => format!(
                    "Where its time goes is what the kernel's accounts tell, without samples of \
                     what the kernel was at: {why}."
                ),
            });
        }
        let Ok(samples) = samples else { return };
        let cases = outcomes.iter_mut().flat_map(|outcome| &mut outcome.cases);
        cases.flat_map(|case| &mut case.spent).for_each(|spent| spent.part(&samples));
    }

    /// Whether there are samples of all that was run.
    pub(super) fn is_sampled(&self) -> bool {
        !self.cases.is_empty()
            && self.cases.iter().all(|case| case.spent.iter().all(|spent| spent.seen.is_some()))
    }

    pub(super) fn case(&self, place: Place, item: usize) -> Option<&Case> {
        self.cases.iter().find(|case| (case.place, case.item) == (place, item))
    }

    /// Something at one place by the same at another, run by run; None where there is nothing.
    pub(super) fn ratio(&self, item: usize, places: [Place; 2], of: Of) -> Option<Spread> {
        let [a, b] = places.map(|place| self.case(place, item));
        let (a, b) = (of(a?), of(b?));
        // Of nothing nothing is so many times.
        let is_some = b.iter().all(|value| *value > 0.0);
        is_some.then(|| Spread::paired(&a, &b, |a, b| a / b))
    }

    /// Of the time of each case.
    pub(super) fn variations(&self) -> impl Iterator<Item = f64> {
        let seconds = |case: &Case| case.spent.iter().map(|spent| spent.seconds).collect();
        self.cases.iter().map(move |case| {
            let seconds: Vec<f64> = seconds(case);
            Spread::of(&seconds).variation
        })
    }

    /// Three runs everywhere that took so many seconds, half of them the application's.
    #[cfg(test)]
    pub(super) fn made_up(items: &[&str], seconds: impl Fn(Place, usize) -> f64) -> Self {
        let items = items.iter().map(|item| (*item).to_owned()).collect();
        let mut outcome = Self::expect(items, &Place::GRID);
        for case in &mut outcome.cases {
            let seconds = seconds(case.place, case.item);
            let spent = Spent {
                seconds,
                user: seconds * 5e8,
                system: 1e6,
                samples: 99,
                ..Spent::default()
            };
            let rate = 1.0 / seconds;
            case.spent = vec![spent; 3];
            case.rates = vec![postmark::Rates { transactions: rate, read: rate, written: rate }; 3];
            case.answers = vec![sfs::Answers { rate, response_us: seconds }; 3];
        }
        outcome
    }

    /// The cases whose runs have samples enough to tell the application and its system calls apart.
    pub(super) fn told_apart(&self) -> Self {
        let mut outcome = self.clone();
        outcome.cases.retain(|case| case.spent.iter().all(|spent| spent.samples >= SAMPLES_MIN));
        outcome.lacking.push("the runs are too short for the kernel's samples of its time".into());
        outcome
    }

    /// What there is not.
    pub(super) fn why(&self) -> String {
        self.lacking.join("; ")
    }
}

/// Of fewer samples a share may be anything.
const SAMPLES_MIN: u64 = 10;

/// Something of all runs of a case.
pub(super) type Of = fn(&Case) -> Vec<f64>;

impl Case {
    pub(super) fn of_spent(&self, of: impl Fn(&Spent) -> f64) -> Vec<f64> {
        self.spent.iter().map(of).collect()
    }

    pub(super) fn of_rates(&self, of: impl Fn(&postmark::Rates) -> f64) -> Vec<f64> {
        self.rates.iter().map(of).collect()
    }

    pub(super) fn of_answers(&self, of: impl Fn(&sfs::Answers) -> f64) -> Vec<f64> {
        self.answers.iter().map(of).collect()
    }

    /// Of all runs together: the kernel's samples are too few in one.
    pub(super) fn sum(&self, of: impl Fn(&Spent) -> f64) -> f64 {
        self.spent.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_a_reason() {
        let none = Outcome::nothing("there is no root");
        assert_eq!(none.why(), "there is no root");
        assert!(none.case(Place::X1, 0).is_none() && none.variations().next().is_none());
    }

    #[test]
    fn few_samples_tell_nothing_apart() {
        let mut outcome = Outcome::made_up(&["q1", "q6"], |_, _| 1.0);
        for case in outcome.cases.iter_mut().filter(|case| case.item == 1) {
            case.spent[2].samples = SAMPLES_MIN - 1;
        }
        let apart = outcome.told_apart();
        assert!(apart.case(Place::X1, 0).is_some() && apart.case(Place::X1, 1).is_none());
        let nothing: Of = |case| case.of_spent(|spent| spent.ios);
        assert!(outcome.ratio(0, [Place::X1, Place::Direct], nothing).is_none());
    }
}
