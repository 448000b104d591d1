// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One page of all studies that were run, and two runs of one side by side.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::course::failed;
use crate::given;
use crate::html::{FOOT, SMOKE, badge, escape, head, reading};
use crate::picture::number;
use crate::report::{PAGE, RESULTS, list, word, write_whole};
use crate::study::STUDIES;
use crate::tally::tally;

/// Why reports cannot be joined or compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// There is none.
    #[error("there is no report in {at}; try: lunwire lab run all --out {at}", at = .0.display())]
    None(PathBuf),
    /// It is of another program, or of an older one.
    #[error("{} is no results.json of a study; try: STUDY/results.json of a run", .0.display())]
    Foreign(PathBuf),
    /// What they measured has nothing in common.
    #[error("{a} and {b} are results of different studies; try: two runs of one")]
    Different {
        /// The study of one.
        a: String,
        /// And of the other.
        b: String,
    },
    /// There is none, or it may not be read.
    #[error("cannot read {}; try: STUDY/results.json of a run", .0.display())]
    Unread(PathBuf, #[source] io::Error),
    /// The page cannot be written.
    #[error("cannot write the page of all reports to {}; try: a copy elsewhere", .0.display())]
    Unwritten(PathBuf, #[source] io::Error),
}

/// Writes the page that joins the reports below `folder`, with what could not be run, and the same
/// for programs; gives its path.
///
/// # Errors
/// [`JoinError`].
pub fn join(folder: &Path) -> Result<PathBuf, JoinError> {
    let mut found = Vec::new();
    for study in &STUDIES {
        if let Ok(results) = read(&folder.join(study.name).join(RESULTS)) {
            found.push(results);
        }
    }
    let failed = failed(folder);
    if found.is_empty() && failed.is_empty() {
        return Err(JoinError::None(folder.to_owned()));
    }
    let mut page = head("The laboratory: published studies, theirs and ours");
    page.push_str(&reading(found.iter().any(|results| word(results, "effort") == SMOKE)));
    for study in &STUDIES {
        let of = |all: &'_ [Value]| all.iter().position(|one| word(one, "study") == study.name);
        let results = of(&found).and_then(|at| found.get(at));
        let failed = of(&failed).and_then(|at| failed.get(at));
        match (results, failed) {
            (Some(results), failed) => push_study(&mut page, results, failed),
            (None, Some(failed)) => push_failed(&mut page, failed),
            (None, None) => {}
        }
    }
    page.push_str(FOOT);
    let studies: Vec<Value> = found.iter().map(outline).collect();
    let results = format!("{:#}\n", json!({ "studies": studies, "failed": failed }));
    let path = folder.join(PAGE);
    write_whole(&folder.join(RESULTS), &results)
        .and_then(|()| write_whole(&path, &page))
        .map_err(|error| JoinError::Unwritten(folder.to_owned(), error))?;
    Ok(path)
}

fn read(path: &Path) -> Result<Value, JoinError> {
    let text = given::read(path).map_err(|error| JoinError::Unread(path.to_owned(), error))?;
    let results: Option<Value> = serde_json::from_slice(&text).ok();
    let is_ours = |results: &Value| results["study"].is_string() && results["figures"].is_array();
    results.filter(is_ours).ok_or_else(|| JoinError::Foreign(path.to_owned()))
}

/// A study without what was measured.
fn outline(results: &Value) -> Value {
    let figures = list(results, "figures").iter();
    let figures = figures
        .map(|figure| json!({ "title": figure["title"], "verdict": figure["verdict"] }))
        .collect::<Vec<_>>();
    json!({
        "study": results["study"],
        "summary": tally(list(results, "figures")),
        "command": results["command"],
        "seconds": results["seconds"],
        "machine": results["machine"],
        "noise": results["noise"],
        "figures": figures,
    })
}

/// `failed`: how the last run of it did, of which there is no report.
fn push_study(page: &mut String, results: &Value, failed: Option<&Value>) {
    let (study, title) = (word(results, "study"), escape(word(results, "title")));
    let _ = writeln!(page, "<h2><a href=\"{study}/{PAGE}\">{title}</a></h2>");
    if let Some(failed) = failed {
        let why = escape(word(failed, "why"));
        let _ = writeln!(page, "<p><b>Its last run failed; this is an earlier one:</b> {why}</p>");
    }
    let summary = tally(list(results, "figures"));
    let command = escape(word(results, "command"));
    let _ = writeln!(page, "<p><b>{}</b> <code>{command}</code></p>", escape(&summary));
    let machine = machine_of(results);
    let _ = writeln!(page, "<p class=\"how\">{}</p>\n<ul>", escape(&machine));
    for (at, figure) in list(results, "figures").iter().enumerate() {
        let (title, badge) = (escape(word(figure, "title")), badge(word(figure, "verdict")));
        let _ = writeln!(page, "<li><a href=\"{study}/{PAGE}#s{at}\">{title}</a> {badge}</li>");
    }
    page.push_str("</ul>\n");
}

/// A study that could not be run.
fn push_failed(page: &mut String, failed: &Value) {
    let [study, why] = ["study", "why"].map(|name| escape(word(failed, name)));
    let _ = writeln!(page, "<h2>{study}: not run</h2>\n<p>{why}</p>");
}

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

fn machine_of(results: &Value) -> String {
    let machine = results["machine"].as_object().into_iter().flatten();
    let machine = machine.map(|(name, value)| format!("{name} {}", value.as_str().unwrap_or("")));
    machine.collect::<Vec<_>>().join(", ")
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
    use crate::course::Course;
    use crate::study::{Effort, Settings};

    fn results(folder: &Path, name: &str, study: &str, [low, median, high]: [f64; 3]) -> PathBuf {
        let measured = json!({ "low": low, "median": median, "high": high });
        let test = json!({ "of": "it", "measured": measured, "answer": "yes" });
        let figure = json!({ "title": "Figure 1", "claims": [{ "tests": [test] }] });
        let path = folder.join(name);
        let machine = json!({ "kernel": "6.1", "processor": "one of two" });
        let results = json!({
            "study": study,
            "command": format!("lunwire lab run {study}"),
            "effort": if name == "c" { "smoke" } else { "quick" },
            "machine": machine,
            "figures": [figure],
        });
        fs::write(&path, results.to_string()).unwrap();
        path
    }

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

    #[test]
    fn a_study_that_could_not_be_run_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("amp")).unwrap();
        results(&folder.path().join("amp"), RESULTS, "amp", [1.0; 3]);
        let settings = Settings::new(Effort::Quick);
        let run = || Course::of(folder.path(), &settings, &["amp", "ibm"]);
        let mut course = run();
        course.note_failed("ibm", "cannot run ibm: no <room>").unwrap();
        course.note("amp").unwrap();
        let both = || {
            let page = fs::read_to_string(join(folder.path()).unwrap()).unwrap();
            (page, fs::read_to_string(folder.path().join(RESULTS)).unwrap())
        };
        let (page, json) = both();
        assert!(
            page.contains("<h2>ibm: not run</h2>\n<p>cannot run ibm: no &lt;room&gt;"),
            "{page}"
        );
        assert!(json.contains("cannot run ibm: no <room>"), "{json}");
        // What it is that stands there where an earlier run of it did not fail.
        run().note_failed("amp", "cannot run amp: no threads").unwrap();
        let (page, _) = both();
        assert!(page.contains("this is an earlier one:</b> cannot run amp: no threads"), "{page}");
        assert_eq!(page.matches(": not run<").count(), 1, "{page}");
        // The next run tries them again, and is over.
        let mut course = run();
        course.note("amp").unwrap();
        course.note("ibm").unwrap();
        course.finish().unwrap();
        let (page, _) = both();
        assert!(!page.contains(": not run<") && !page.contains("earlier"), "{page}");
    }

    #[test]
    fn where_all_failed_there_is_a_page_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut course = Course::of(folder.path(), &Settings::new(Effort::Quick), &["ibm"]);
        course.note_failed("ibm", "cannot run ibm: no memory").unwrap();
        let page = fs::read_to_string(join(folder.path()).unwrap()).unwrap();
        assert!(page.contains("<h2>ibm: not run</h2>\n<p>cannot run ibm: no memory"), "{page}");
        assert!(crate::report::is_report(folder.path()));
    }

    #[test]
    fn nothing_cannot_be_joined() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(join(folder.path()), Err(JoinError::None(_))));
    }
}
