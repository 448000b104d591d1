// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two runs of one study side by side.

use std::collections::HashMap;
use std::path::Path;

use control::words;
use serde_json::{Value, json};

use crate::joined::{JoinError, machine_of, read};
use crate::picture::number;
use crate::report::{list, word};

/// A quantity in two runs.
#[derive(Debug)]
#[non_exhaustive]
pub struct Change {
    /// The figure.
    pub figure: String,
    /// What was measured.
    pub what: String,
    /// The medians of both.
    pub medians: [f64; 2],
    /// By how much the second is above the first; None where no number says that: of what was
    /// nothing before, or has no end.
    pub by: Option<By>,
    /// Whether the intervals of both lie apart: else the change may be noise.
    pub is_apart: bool,
    /// The answers of both.
    pub answers: [String; 2],
}

/// By how much something is above what it was before.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum By {
    /// In percent of that.
    Percent(f64),
    /// Of what is in percent itself: percent of these would read as if they were of the whole.
    Points(f64),
}

impl By {
    fn of(what: &str, [before, after]: [f64; 2]) -> Option<Self> {
        let by = match is_in_percent(what) {
            true => Self::Points(after - before),
            false if before == after => Self::Percent(0.0),
            false => Self::Percent(100.0 * (after - before) / before.abs()),
        };
        Some(by).filter(|by| by.number().is_finite())
    }

    const fn number(self) -> f64 {
        match self {
            Self::Percent(number) | Self::Points(number) => number,
        }
    }

    fn told(self) -> String {
        // What is nothing has no sign.
        let signed = |value: f64, least: f64| if value.abs() < least { 0.0 } else { value };
        match self {
            Self::Percent(percent) => format!("{:+.0} %", signed(percent, 0.5)),
            Self::Points(points) => format!("{:+.1} points", signed(points, 0.05)),
        }
    }
}

/// What is said of a table that has some of these.
pub const POINTS: &str =
    "Of what is in % itself the change is in points: the second less the first.";

impl Change {
    /// As cells of a table: figure, quantity, both, the change.
    #[must_use]
    pub fn cells(&self) -> Vec<String> {
        let [a, b] = self.medians.map(number);
        let change = match (self.by.map(By::told), self.is_apart) {
            (Some(by), true) => by,
            (Some(by), false) => format!("{by}, within the spread"),
            (None, true) => "another".to_owned(),
            (None, false) => "within the spread".to_owned(),
        };
        let [before, after] = &self.answers;
        let answer =
            if before == after { before.clone() } else { format!("{before}, then {after}") };
        vec![self.figure.clone(), self.what.clone(), a, b, change, answer]
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let (percent, points) = match self.by {
            Some(By::Percent(percent)) => (Some(percent), None),
            Some(By::Points(points)) => (None, Some(points)),
            None => (None, None),
        };
        json!({
            "figure": self.figure,
            "what": self.what,
            "medians": self.medians,
            "percent": percent,
            "points": points,
            "apart": self.is_apart,
            "answers": self.answers,
        })
    }
}

/// What the verdicts of a study rest on, in two runs: of two machines, or of two revisions.
///
/// # Errors
/// [`JoinError`].
pub fn compare(a: &Path, b: &Path) -> Result<Vec<Change>, JoinError> {
    let both = read_both(a, b)?;
    let [in_a, in_b] = [&both[0], &both[1]].map(tests);
    if let Some((_, path)) = [(&in_a, a), (&in_b, b)].iter().find(|(all, _)| all.len() > TESTS_MOST)
    {
        return Err(JoinError::Foreign((*path).to_owned()));
    }
    let mut others = HashMap::new();
    for Named { figure, what, test } in in_b {
        others.entry((figure, what)).or_insert(test);
    }
    let pair = |Named { figure, what, test }| {
        let other = others.get(&(figure, what))?;
        Some(change(figure.to_owned(), what.to_owned(), test, other))
    };
    Ok(in_a.into_iter().filter_map(pair).collect())
}

/// Results of one study.
pub(crate) fn read_both(a: &Path, b: &Path) -> Result<[Value; 2], JoinError> {
    let (a, b) = (read(a)?, read(b)?);
    let [name_a, name_b] = [&a, &b].map(|one| words::shown(word(one, "study")));
    match name_a == name_b {
        true => Ok([a, b]),
        false => Err(JoinError::Different { a: name_a, b: name_b }),
    }
}

/// Says that the efforts of two reports differ, where they do; None: they are the same.
///
/// # Errors
/// [`JoinError`].
pub fn efforts_differ(a: &Path, b: &Path) -> Result<Option<String>, JoinError> {
    let both = read_both(a, b)?;
    let [first, second] = [&both[0], &both[1]].map(|results| word(results, "effort"));
    Ok((first != second).then(|| {
        format!(
            "The efforts differ, --{first} and --{second}: cases of one name differ in size and \
             time, so a change may be of these."
        )
    }))
}

/// What a report is of: its command, and the machine and version that it was run on.
///
/// # Errors
/// [`JoinError`].
pub fn circumstances(path: &Path) -> Result<String, JoinError> {
    let results = read(path)?;
    Ok(format!("{}: {}", word(&results, "command"), machine_of(&results)))
}

/// A test of a report.
struct Named<'a> {
    figure: &'a str,
    what: &'a str,
    test: &'a Value,
}

/// All tests of a study, with their figures.
fn tests(results: &Value) -> Vec<Named<'_>> {
    let mut all = Vec::new();
    for figure in list(results, "figures") {
        for claim in list(figure, "claims") {
            for test in list(claim, "tests") {
                let [figure, what] = [word(figure, "title"), word(test, "of")].map(cut);
                all.push(Named { figure, what, test });
            }
        }
    }
    all
}

/// More than a hundred times as many as a study has.
const TESTS_MOST: usize = 200_000;

/// What there is of a name at most: each test has that of its figure.
fn cut(name: &str) -> &str {
    name.get(..name.floor_char_boundary(NAME_BYTES_MOST)).unwrap_or_default()
}

/// Several times as many as the longest name has.
const NAME_BYTES_MOST: usize = 1000;

fn change(figure: String, what: String, a: &Value, b: &Value) -> Change {
    // What has no end is null: a ratio whose divisor may be nothing.
    let of = |test: &Value, name: &str, none: f64| test["measured"][name].as_f64().unwrap_or(none);
    let medians = [a, b].map(|test| of(test, "median", f64::INFINITY));
    let [(low_a, high_a), (low_b, high_b)] =
        [a, b].map(|test| (of(test, "low", 0.0), of(test, "high", f64::INFINITY)));
    let is_apart = high_a < low_b || high_b < low_a;
    let answers = [a, b].map(|test| word(test, "answer").to_owned());
    Change { by: By::of(&what, medians), figure, what, medians, is_apart, answers }
}

/// Names of tests have the unit before a part: `% saved, 8 KiB read`; `8 KiB read, % more`.
fn is_in_percent(what: &str) -> bool {
    what.split(", ").any(|part| part.starts_with("% "))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::joined::tests::results;

    #[test]
    fn a_change_within_the_spread_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let a = results(folder.path(), "a", "amp", [9.0, 10.0, 11.0]);
        let b = results(folder.path(), "b", "amp", [10.5, 12.0, 13.0]);
        let c = results(folder.path(), "c", "amp", [19.0, 20.0, 21.0]);
        let within = compare(&a, &b).unwrap();
        assert_eq!(within[0].cells()[4], "+20 %, within the spread");
        let of_a = "lunwire lab run amp: kernel 6.1, processor one of two";
        assert_eq!(circumstances(&a).unwrap(), of_a);
        let apart = compare(&a, &c).unwrap();
        assert!(apart[0].is_apart && apart[0].cells()[4] == "+100 %");
        assert_eq!(efforts_differ(&a, &b).unwrap(), None);
        let differ = efforts_differ(&a, &c).unwrap().unwrap();
        assert!(differ.starts_with("The efforts differ, --quick and --smoke: "), "{differ}");
        let other = results(folder.path(), "d", "unh", [1.0; 3]);
        assert!(matches!(compare(&a, &other), Err(JoinError::Different { .. })));
        let none = folder.path().join("none");
        let why = compare(&a, &none).unwrap_err();
        let said = format!("cannot read {}; try: STUDY/results.json of a run", none.display());
        assert_eq!(why.to_string(), said);
        fs::write(folder.path().join("e"), "{}").unwrap();
        assert!(matches!(compare(&a, &folder.path().join("e")), Err(JoinError::Foreign(_))));
    }

    /// 10 % of 10 % more is no 10 % of the whole.
    #[test]
    fn what_is_in_percent_changes_by_points() {
        let moved = |name: &str, [before, after]: [f64; 2]| {
            let test = |at: f64| json!({ "measured": { "low": at, "median": at, "high": at } });
            change("Figure 1".into(), name.into(), &test(before), &test(after)).cells().remove(4)
        };
        for name in ["% busy, q1", "64 KiB read, % more", "% that are CRC", "% saved, sarwate"] {
            assert_eq!(moved(name, [10.0, 12.0]), "+2.0 points", "{name}");
        }
        assert_eq!(moved("% saved", [0.0, 0.5]), "+0.5 points");
        assert_eq!(moved("% saved", [-3.0, -4.25]), "-1.2 points");
        assert_eq!(moved("% saved", [3.0, 3.0]), "+0.0 points, within the spread");
        for name in ["sequential 70 % read, 512 B", "8 connections by one, loss 0.1 %", "MB/s"] {
            assert_eq!(moved(name, [10.0, 12.0]), "+20 %", "{name}");
        }
    }
}
