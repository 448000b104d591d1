// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two runs of one study side by side.

use std::path::Path;

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
    /// By how many percent the second is above the first.
    pub percent: f64,
    /// Whether the intervals of both lie apart: else the change may be noise.
    pub is_apart: bool,
    /// The answers of both.
    pub answers: [String; 2],
}

impl Change {
    /// As cells of a table: figure, quantity, both, the change.
    #[must_use]
    pub fn cells(&self) -> Vec<String> {
        let [a, b] = self.medians.map(number);
        let change = match self.is_apart {
            true => format!("{:+.0} %", self.percent),
            false => format!("{:+.0} %, within the spread", self.percent),
        };
        let [before, after] = &self.answers;
        let answer =
            if before == after { before.clone() } else { format!("{before}, then {after}") };
        vec![self.figure.clone(), self.what.clone(), a, b, change, answer]
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "figure": self.figure,
            "what": self.what,
            "medians": self.medians,
            "percent": self.percent,
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
    let [a, b] = read_both(a, b)?.map(|one| tests(&one));
    let pair = |(figure, what, test): (String, String, Value)| {
        let other = b.iter().find(|(f, w, _)| (f, w) == (&figure, &what)).map(|(_, _, test)| test);
        other.map(|other| change(figure.clone(), what.clone(), &test, other))
    };
    Ok(a.into_iter().filter_map(pair).collect())
}

/// Results of one study.
pub(crate) fn read_both(a: &Path, b: &Path) -> Result<[Value; 2], JoinError> {
    let (a, b) = (read(a)?, read(b)?);
    let [name_a, name_b] = [&a, &b].map(|one| word(one, "study").to_owned());
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

/// All tests of a study, with their figures.
fn tests(results: &Value) -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    for figure in list(results, "figures") {
        for claim in list(figure, "claims") {
            for test in list(claim, "tests") {
                let names = (word(figure, "title").to_owned(), word(test, "of").to_owned());
                all.push((names.0, names.1, test.clone()));
            }
        }
    }
    all
}

fn change(figure: String, what: String, a: &Value, b: &Value) -> Change {
    let of = |test: &Value, name: &str| test["measured"][name].as_f64().unwrap_or(0.0);
    let medians = [of(a, "median"), of(b, "median")];
    let percent = match medians {
        [before, after] if before != 0.0 => 100.0 * (after - before) / before.abs(),
        _ => 0.0,
    };
    let high = |test: &Value| test["measured"]["high"].as_f64().unwrap_or(f64::INFINITY);
    let is_apart = high(a) < of(b, "low") || high(b) < of(a, "low");
    let answers = [a, b].map(|test| word(test, "answer").to_owned());
    Change { figure, what, medians, percent, is_apart, answers }
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
}
