// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts from numbers, by rules that are the same for every study.
//!
//! A quantity is a [`Spread`]: its median and the interval in which the median lies, taken from
//! repetitions. A [`Test`] holds it against a bound:
//!
//! - yes: the whole interval is on the bound's good side;
//! - no: the whole interval is on the other side;
//! - hidden: the bound is within the interval, which may have no end above (a ratio whose divisor
//!   is not told from nothing), or there are fewer than [`REPETITIONS_MIN`]
//!   repetitions, so that nobody knows how wide the interval is.
//!
//! A claim is the answers of its tests, and a figure those of its claims ([`Verdict::of`]):
//!
//! - "cannot be tested here": there is no test;
//! - "the spread hides it": more than a third of the tests are hidden;
//! - else those that are not hidden decide: all yes "holds", all no "no longer", both "holds in
//!   part".

use std::ops::{Add, Div, Mul, Sub};

use serde_json::{Value, json};

use crate::measure::{median, real};

/// Fewer repetitions have no spread that one could know.
pub(crate) const REPETITIONS_MIN: usize = 3;

/// How seldom the median may lie outside of the interval, where there are enough repetitions.
const MISSED: f64 = 0.05;

/// A quantity over its repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    /// Where the median lies: in 95 of 100 cases from six repetitions on, by their order alone;
    /// of fewer repetitions the least and the most.
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Standard deviation by mean: the coefficient of variation.
    pub(crate) variation: f64,
    /// How many repetitions; None: it was counted, and no repetition changes it.
    pub(crate) repetitions: Option<usize>,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let cut = cut_of(sorted.len());
        let at = |at: usize| sorted.get(at).copied().unwrap_or(0.0);
        Self {
            low: at(cut),
            high: at(sorted.len().saturating_sub(cut + 1)),
            variation: variation(&sorted),
            repetitions: Some(sorted.len()),
            median: median(sorted),
        }
    }

    /// What was counted, not measured.
    pub(crate) const fn exact(value: f64) -> Self {
        Self { median: value, low: value, high: value, variation: 0.0, repetitions: None }
    }

    /// Something of two quantities that were measured in turn: of each repetition by itself, so
    /// that what the machine did meanwhile hits both.
    pub(crate) fn paired(a: &[f64], b: &[f64], of: impl Fn(f64, f64) -> f64) -> Self {
        let values: Vec<f64> = a.iter().zip(b).map(|(a, b)| of(*a, *b)).collect();
        Self::of(&values)
    }

    /// One quantity by another that was measured in turn with it; amounts, of which those below
    /// nothing are errors of measuring. The interval has each ratio that the order of repetitions
    /// does not rule out, so no division decides: a repetition whose divisor is nothing says that
    /// the ratio may be as large as can be, and if both are nothing, that it may be any.
    pub(crate) fn ratio(a: &[f64], b: &[f64]) -> Self {
        let range = |(a, b): (&f64, &f64)| match (a.max(0.0), b.max(0.0)) {
            (a, b) if b > 0.0 => (a / b, a / b),
            (a, _) if a > 0.0 => (f64::INFINITY, f64::INFINITY),
            _ => (0.0, f64::INFINITY),
        };
        let (lows, highs): (Vec<f64>, Vec<f64>) = a.iter().zip(b).map(range).unzip();
        let known: Vec<f64> =
            lows.iter().zip(&highs).filter(|ends| ends.1.is_finite()).map(|ends| *ends.0).collect();
        let (low, high) = (Self::of(&lows).low, Self::of(&highs).high);
        let variation = variation(&known);
        let repetitions = Some(lows.len());
        // With many rounds of which nothing is known the middle of the others may be out of it.
        let median = median(known).max(low).min(high);
        Self { median, low, high, variation, repetitions }
    }

    /// The largest of some quantities.
    pub(crate) fn most(of: impl IntoIterator<Item = Self>) -> Self {
        of.into_iter().reduce(|a, b| if b.median > a.median { b } else { a }).unwrap_or_default()
    }

    fn with(self, other: Self, [low, median, high]: [f64; 3], variation: f64) -> Self {
        let repetitions = match (self.repetitions, other.repetitions) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self { median, low, high, variation, repetitions }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "variation": self.variation,
            "repetitions": self.repetitions,
        })
    }
}

/// How many repetitions lie outside of the interval at each end.
fn cut_of(count: usize) -> usize {
    let mut at_or_below = 0.0;
    let mut chance = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut cut = 0;
    for k in 0..count / 2 {
        at_or_below += chance;
        if 2.0 * at_or_below > MISSED {
            break;
        }
        cut = k;
        chance *= real((count - k) as u64) / real((k + 1) as u64);
    }
    cut
}

fn variation(values: &[f64]) -> f64 {
    let count = real(values.len() as u64);
    if count < 2.0 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if mean.abs() > 0.0 { (squares / (count - 1.0)).sqrt() / mean.abs() } else { 0.0 }
}

impl Add for Spread {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let sum = self.median + other.median;
        let parts = [self, other].map(|one| one.median * one.variation);
        let variation = if sum == 0.0 { 0.0 } else { parts[0].hypot(parts[1]) / sum.abs() };
        self.with(other, [self.low + other.low, sum, self.high + other.high], variation)
    }
}

impl Sub for Spread {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + other * -1.0
    }
}

/// Of quantities that are not negative. What may be nothing leaves no bound above.
impl Div for Spread {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        let by = |a: f64, b: f64| if b > 0.0 { a / b } else { f64::INFINITY };
        let low = if other.high > 0.0 { self.low / other.high } else { 0.0 };
        let middle = self.median / other.median.max(1e-9);
        let ends = [low, middle.max(low), by(self.high, other.low)];
        self.with(other, ends, self.variation.hypot(other.variation))
    }
}

impl Mul<f64> for Spread {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        let ends = [self.low * times, self.high * times];
        Self {
            median: self.median * times,
            low: ends[0].min(ends[1]),
            high: ends[0].max(ends[1]),
            ..self
        }
    }
}

/// What a quantity is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    Above(f64),
    Below(f64),
    Within(f64, f64),
}

/// A quantity and its bound.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) spread: Spread,
    pub(crate) bound: Bound,
}

/// What a test says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
    Hidden,
}

impl Test {
    pub(crate) fn new(name: impl Into<String>, spread: Spread, bound: Bound) -> Self {
        Self { name: name.into(), spread, bound }
    }

    pub(crate) fn answer(&self) -> Answer {
        let Spread { low, high, repetitions, .. } = self.spread;
        if repetitions.is_some_and(|count| count < REPETITIONS_MIN) {
            return Answer::Hidden;
        }
        let (all, none) = match self.bound {
            Bound::Above(least) => (low > least, high <= least),
            Bound::Below(most) => (high < most, low >= most),
            Bound::Within(least, most) => {
                (low >= least && high <= most, high < least || low > most)
            }
        };
        match (all, none) {
            (true, _) => Answer::Yes,
            (_, true) => Answer::No,
            _ => Answer::Hidden,
        }
    }

    pub(crate) fn json(&self) -> Value {
        let bound = match self.bound {
            Bound::Above(least) => json!({ "above": least }),
            Bound::Below(most) => json!({ "below": most }),
            Bound::Within(least, most) => json!({ "above": least, "below": most }),
        };
        let answer = match self.answer() {
            Answer::Yes => "yes",
            Answer::No => "no",
            Answer::Hidden => "hidden",
        };
        json!({ "of": self.name, "measured": self.spread.json(), "bound": bound, "answer": answer })
    }
}

/// What is left of a claim of a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the rules give no other
pub enum Verdict {
    /// It is so here, too.
    Holds,
    /// Some of it is.
    InPart,
    /// It is not.
    NoLonger,
    /// What was measured varies too much to say.
    Hidden,
    /// Nothing was measured of it.
    NotHere,
}

impl Verdict {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::InPart => "holds in part",
            Self::NoLonger => "no longer",
            Self::Hidden => "the spread hides it",
            Self::NotHere => "cannot be tested here",
        }
    }

    /// Of what has these answers.
    pub(crate) fn of(answers: &[Answer]) -> Self {
        let count = |of: Answer| answers.iter().filter(|one| **one == of).count();
        let (yes, no, hidden) = (count(Answer::Yes), count(Answer::No), count(Answer::Hidden));
        match (yes, no) {
            _ if answers.is_empty() => Self::NotHere,
            _ if 3 * hidden > answers.len() => Self::Hidden,
            (_, 0) => Self::Holds,
            (0, _) => Self::NoLonger,
            _ => Self::InPart,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64]) -> Spread {
        Spread::of(values)
    }

    fn ask(values: &[f64], bound: Bound) -> Answer {
        Test::new("x", spread(values), bound).answer()
    }

    #[test]
    fn the_interval_is_that_of_the_order_of_repetitions() {
        let to = |count: u32| (1..=count).map(f64::from).collect::<Vec<_>>();
        for (count, low, high) in
            [(1, 1.0, 1.0), (3, 1.0, 3.0), (5, 1.0, 5.0), (6, 1.0, 6.0), (9, 2.0, 8.0)]
        {
            let one = spread(&to(count));
            assert_eq!((one.low, one.high), (low, high), "{count}");
        }
        // Of 31 repetitions the 10th and the 22nd, as tables of the sign test have it.
        let many = spread(&to(31));
        assert_eq!((many.low, many.median, many.high), (10.0, 16.0, 22.0));
        assert_eq!(spread(&[]), Spread { repetitions: Some(0), ..Spread::default() });
    }

    #[test]
    fn a_test_is_decided_by_the_whole_interval() {
        let values = [9.0, 10.0, 11.0];
        assert_eq!(ask(&values, Bound::Above(8.0)), Answer::Yes);
        assert_eq!(ask(&values, Bound::Above(10.5)), Answer::Hidden);
        assert_eq!(ask(&values, Bound::Above(12.0)), Answer::No);
        assert_eq!(ask(&values, Bound::Below(12.0)), Answer::Yes);
        assert_eq!(ask(&values, Bound::Below(10.5)), Answer::Hidden);
        assert_eq!(ask(&values, Bound::Below(9.0)), Answer::No);
        assert_eq!(ask(&values, Bound::Within(8.0, 12.0)), Answer::Yes);
        assert_eq!(ask(&values, Bound::Within(10.5, 12.0)), Answer::Hidden);
        assert_eq!(ask(&values, Bound::Within(12.0, 14.0)), Answer::No);
    }

    #[test]
    fn too_few_repetitions_say_nothing_and_counts_need_none() {
        assert_eq!(ask(&[10.0], Bound::Above(1.0)), Answer::Hidden);
        assert_eq!(ask(&[10.0, 11.0], Bound::Above(1.0)), Answer::Hidden);
        let counted = Test::new("x", Spread::exact(10.0), Bound::Above(1.0));
        assert_eq!(counted.answer(), Answer::Yes);
    }

    #[test]
    fn one_outlier_of_many_does_not_hide_a_median() {
        let mut values = vec![10.0; 15];
        values.push(1000.0);
        assert_eq!(ask(&values, Bound::Below(20.0)), Answer::Yes);
        assert_eq!(ask(&[10.0, 10.0, 1000.0], Bound::Below(20.0)), Answer::Hidden);
    }

    #[test]
    fn answers_make_a_verdict() {
        use Answer::{Hidden, No, Yes};
        for (answers, verdict) in [
            (&[][..], Verdict::NotHere),
            (&[Yes], Verdict::Holds),
            (&[Yes, Yes, Yes], Verdict::Holds),
            (&[No, No], Verdict::NoLonger),
            (&[Yes, No, No], Verdict::InPart),
            (&[Hidden], Verdict::Hidden),
            (&[Yes, Hidden], Verdict::Hidden),
            (&[Yes, Yes, Hidden], Verdict::Holds),
            (&[No, No, No, Hidden], Verdict::NoLonger),
            (&[Yes, No, Hidden], Verdict::InPart),
            (&[Yes, No, Hidden, Hidden], Verdict::Hidden),
        ] {
            assert_eq!(Verdict::of(answers), verdict, "{answers:?}");
        }
    }

    #[test]
    fn a_ratio_is_never_decided_by_a_divisor_of_nothing() {
        let ones = [1.0, 2.0, 4.0];
        let twice = Spread::ratio(&[2.0, 4.0, 8.0], &ones);
        assert_eq!((twice.low, twice.median, twice.high), (2.0, 2.0, 2.0));
        // As it was with a small number in place of nothing, it is large; but it has no end.
        let open = Spread::ratio(&[2.0, 4.0, 8.0], &[1.0, -0.5, 4.0]);
        assert_eq!((open.low, open.median, open.high), (2.0, 2.0, f64::INFINITY));
        assert_eq!(Test::new("x", open, Bound::Above(1.5)).answer(), Answer::Yes);
        assert_eq!(Test::new("x", open, Bound::Below(100.0)).answer(), Answer::Hidden);
        // A dividend below nothing is nothing, not a large number with a sign.
        let least = Spread::ratio(&[-3.0, 4.0, 8.0], &[1e-6, 4.0, 4.0]);
        assert_eq!((least.low, least.median, least.high), (0.0, 1.0, 2.0));
        let any = Spread::ratio(&[-3.0, 4.0, 8.0], &[-1.0, 4.0, 4.0]);
        assert_eq!((any.low, any.high), (0.0, f64::INFINITY), "both may be nothing");
        let nothing = Spread::ratio(&[1.0; 3], &[0.0; 3]);
        assert_eq!((nothing.low, nothing.median), (f64::INFINITY, f64::INFINITY));
        assert_eq!(Spread::ratio(&[], &[]).repetitions, Some(0));
        // One round of ten is left out, as for all quantities.
        let mut many = [1.0; 10];
        many[3] = 0.0;
        let ratio = Spread::ratio(&[3.0; 10], &many);
        assert_eq!((ratio.low, ratio.median, ratio.high), (3.0, 3.0, 3.0));
        assert!(Spread::ratio(&ones, &[1.0, 0.0, 1.0]).json()["high"].is_null(), "no end");
    }

    #[test]
    fn sums_and_ratios_keep_the_spread() {
        let (a, b) = (spread(&[9.0, 10.0, 11.0]), spread(&[4.0, 5.0, 6.0]));
        let sum = a + b;
        assert_eq!((sum.low, sum.median, sum.high), (13.0, 15.0, 17.0));
        let less = a - b;
        assert_eq!((less.low, less.median, less.high), (3.0, 5.0, 7.0));
        let ratio = a / b;
        assert_eq!((ratio.low, ratio.median, ratio.high), (1.5, 2.0, 2.75));
        assert!((a.variation - 0.1).abs() < 1e-9 && ratio.variation > 0.2);
        assert_eq!((a * 2.0).high, 22.0);
        // What varies together does not vary against each other.
        let paired = Spread::paired(&[10.0, 20.0, 30.0], &[5.0, 10.0, 15.0], |a, b| a / b);
        assert_eq!((paired.low, paired.high), (2.0, 2.0));
        assert_eq!((a + Spread::exact(1.0)).repetitions, Some(3));
    }
}
