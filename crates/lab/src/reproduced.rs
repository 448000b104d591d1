// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a model that was fitted twice has the same factors: in the two runs of a study, and in
//! two reports.

use std::path::Path;

use serde_json::{Value, json};

use crate::compared::read_both;
use crate::fit::{Again, Factor, expected_outside};
use crate::joined::JoinError;
use crate::measure::real;
use crate::picture::number;
use crate::report::{list, word};
use crate::verdict::{Bound, Spread, Test};

/// Factors of two fits, and what chance says of them.
#[derive(Debug)]
pub struct Reproduced {
    factors: Vec<Again>,
    /// How many are expected outside of the first one's intervals.
    expected: f64,
    /// More are outside in 5 of 100 cases at most.
    most: usize,
}

impl Reproduced {
    pub(crate) fn of(factors: Vec<Again>) -> Self {
        let chances: Vec<f64> = factors.iter().map(Again::chance).collect();
        let (expected, most) = expected_outside(&chances);
        Self { factors, expected, most }
    }

    fn outside(&self) -> impl Iterator<Item = &Again> {
        self.factors.iter().filter(|factor| !factor.is_within())
    }

    /// Whether no more are outside than chance alone brings there.
    pub(crate) fn test(&self) -> Test {
        let outside = Spread::exact(real(self.outside().count() as u64));
        let name = format!("factors of {} outside of the first interval", self.factors.len());
        Test::new(name, outside, Bound::Within(0.0, real(self.most as u64)))
    }

    /// In a sentence, in which the two fits have these names.
    #[must_use]
    pub fn told(&self, [first, second]: [&str; 2]) -> String {
        let outside: Vec<&str> = self.outside().map(|factor| factor.name.as_str()).collect();
        let count = self.factors.len();
        let which = match &outside[..] {
            [] => String::new(),
            some => format!("; outside: {}", some.join("; ")),
        };
        format!(
            "{} of {count} factors of the {second} lie within the interval of the {first}; of two \
             that measure the same {} are expected outside, and {} at most in 95 of 100 \
             cases{which}",
            count - outside.len(),
            number(self.expected),
            self.most
        )
    }

    /// A row for each factor: its name, the first one's value and interval, the second one's value,
    /// whether that is within.
    #[must_use]
    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |factor: &Again| {
            let Factor { value, low, high, .. } = factor.first;
            let [value, low, high, second] = [value, low, high, factor.second.value].map(number);
            let answer = if factor.is_within() { "within" } else { "outside" };
            let first = format!("{value} ({low} to {high})");
            vec![factor.name.clone(), first, second, answer.to_owned()]
        };
        self.factors.iter().map(row).collect()
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let factors = self.factors.iter().map(|factor| {
            let mut told = factor.json();
            told["within"] = factor.is_within().into();
            told
        });
        json!({
            "factors": factors.collect::<Vec<_>>(),
            "outside": self.outside().count(),
            "outside_expected": self.expected,
            "outside_most": self.most,
        })
    }
}

/// The factors of the models of two reports, those of the first run of each; None: one has none.
///
/// # Errors
/// [`JoinError`].
pub fn reproduced(a: &Path, b: &Path) -> Result<Option<Reproduced>, JoinError> {
    let both = read_both(a, b)?.map(|one| factors(&one));
    if let Some((_, path)) = both.iter().zip([a, b]).find(|(all, _)| all.len() > FACTORS_MOST) {
        return Err(JoinError::Foreign(path.to_owned()));
    }
    let [a, b] = both;
    let pair = |(name, first): (String, Factor)| {
        let (_, second) = b.iter().find(|(other, _)| *other == name)?;
        Some(Again { name, first, second: *second })
    };
    let both: Vec<Again> = a.into_iter().filter_map(pair).collect();
    Ok((!both.is_empty()).then(|| Reproduced::of(both)))
}

/// More than ten times as many as all models have, together.
const FACTORS_MOST: usize = 1000;

fn factors(results: &Value) -> Vec<(String, Factor)> {
    let all = list(results, "figures").iter().flat_map(|figure| list(figure, "factors"));
    let factor = |told: &Value| {
        let of = |name: &str| told["first"][name].as_f64();
        let (value, error) = (of("value")?, of("error")?);
        let factor = Factor { value, error, low: of("low")?, high: of("high")? };
        Some((word(told, "of").to_owned(), factor))
    };
    all.filter_map(factor).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn factor(value: f64) -> Factor {
        Factor { value, error: 0.1, low: value - 0.196, high: value + 0.196 }
    }

    fn results(folder: &Path, name: &str, values: &[f64]) -> PathBuf {
        let factors = values.iter().enumerate().map(|(at, value)| {
            let name = format!("factor {at}");
            Again { name, first: factor(*value), second: factor(0.0) }.json()
        });
        let figure = json!({ "factors": factors.collect::<Vec<_>>() });
        let path = folder.join(name);
        let results = json!({ "study": "ibm", "figures": [figure, {}] });
        fs::write(&path, results.to_string()).unwrap();
        path
    }

    #[test]
    fn factors_of_two_reports_are_held_against_the_intervals_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let a = results(folder.path(), "a", &[1.0, 2.0, 3.0]);
        let b = results(folder.path(), "b", &[1.1, 2.5, 3.0, 9.0]);
        let told = reproduced(&a, &b).unwrap().unwrap();
        let answers: Vec<String> = told.rows().into_iter().map(|mut row| row.remove(3)).collect();
        assert_eq!(answers, ["within", "outside", "within"]);
        assert_eq!(told.rows()[1][1..3], ["2.00 (1.80 to 2.20)", "2.50"]);
        assert_eq!(
            told.told(["first", "second"]),
            "2 of 3 factors of the second lie within the interval of the first; of two that \
             measure the same 0.50 are expected outside, and 2 at most in 95 of 100 cases; \
             outside: factor 1"
        );
        assert_eq!(told.json()["outside"], 1);
        assert_eq!(told.json()["factors"][1]["within"], false);
        let none = results(folder.path(), "none", &[]);
        assert!(reproduced(&a, &none).unwrap().is_none());
    }

    #[test]
    fn more_outside_than_by_chance_is_no_reproduction() {
        use crate::verdict::Answer;
        let answer = |apart: f64| {
            let again = |at: u32| {
                let value = f64::from(at);
                let (first, second) = (factor(value), factor(value + apart));
                Again { name: at.to_string(), first, second }
            };
            Reproduced::of((0..22).map(again).collect()).test().answer()
        };
        assert_eq!((answer(0.0), answer(0.1), answer(0.5)), (Answer::Yes, Answer::Yes, Answer::No));
    }
}
