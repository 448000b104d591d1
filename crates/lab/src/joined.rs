// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One page of all studies that were run.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use control::words;
use serde_json::{Value, json};

use crate::course::failed;
use crate::given;
use crate::html::{FOOT, SMOKE, badge, escape, head, reading};
use crate::report::{PAGE, RESULTS, list, word, write_whole};
use crate::study::STUDIES;
use crate::tally::tally;

/// Why reports cannot be joined or compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// There is none.
    #[error("there is no report in {at}; try: lunwire lab run all --out {at}", at = shown(.0))]
    None(PathBuf),
    /// It is of another program, or of an older one.
    #[error("{} is no results.json of a study; try: STUDY/results.json of a run", shown(.0))]
    Foreign(PathBuf),
    /// It is in the folder of another one.
    #[error("{} is of {of}; try: lunwire lab run {study}", shown(.path))]
    Astray {
        /// The results.
        path: PathBuf,
        /// The study whose results belong there.
        study: &'static str,
        /// The one whose results are there, on one line.
        of: String,
    },
    /// What they measured has nothing in common.
    #[error("{a} and {b} are results of different studies; try: two runs of one")]
    Different {
        /// The study of one, on one line.
        a: String,
        /// And of the other.
        b: String,
    },
    /// There is none, or it may not be read.
    #[error("cannot read {}; try: STUDY/results.json of a run", shown(.0))]
    Unread(PathBuf, #[source] io::Error),
    /// The page cannot be written.
    #[error("cannot write the page of all reports to {}; try: a copy elsewhere", shown(.0))]
    Unwritten(PathBuf, #[source] io::Error),
}

/// On one line: who made a file has given it its name.
fn shown(path: &Path) -> String {
    words::shown(&path.display().to_string())
}

/// A page of all reports.
#[derive(Debug)]
#[non_exhaustive]
pub struct Joined {
    /// Where it is.
    pub page: PathBuf,
    /// What is there and could not be read, and why.
    pub left_out: Vec<String>,
}

/// Writes the page that joins the reports below `folder`, with what could not be run or read, and
/// the same for programs.
///
/// # Errors
/// [`JoinError`].
pub fn join(folder: &Path) -> Result<Joined, JoinError> {
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    for study in &STUDIES {
        match of_study(folder, study.name) {
            Ok(Some(results)) => found.push(results),
            Ok(None) => {}
            Err(error) => left_out.push((study.name, error)),
        }
    }
    let failed = failed(folder);
    if found.is_empty() && failed.is_empty() {
        let first = left_out.into_iter().next();
        return Err(first.map_or_else(|| JoinError::None(folder.to_owned()), |(_, error)| error));
    }
    let left_out: Vec<(&str, String)> =
        left_out.into_iter().map(|(study, error)| (study, told(&error))).collect();
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
        for (_, why) in left_out.iter().filter(|(name, _)| *name == study.name) {
            let (name, why) = (study.name, escape(why));
            let _ = writeln!(page, "<h2>{name}: left out</h2>\n<p>{why}</p>");
        }
    }
    page.push_str(FOOT);
    let studies: Vec<Value> = found.iter().map(outline).collect();
    let left_out: Vec<String> = left_out.into_iter().map(|(_, why)| why).collect();
    let results = json!({ "studies": studies, "failed": failed, "left_out": left_out });
    let results = format!("{results:#}\n");
    let path = folder.join(PAGE);
    write_whole(&folder.join(RESULTS), &results)
        .and_then(|()| write_whole(&path, &page))
        .map_err(|error| JoinError::Unwritten(folder.to_owned(), error))?;
    Ok(Joined { page: path, left_out })
}

/// The results of a study below `folder`, if there are any.
fn of_study(folder: &Path, study: &'static str) -> Result<Option<Value>, JoinError> {
    let path = folder.join(study).join(RESULTS);
    match read(&path) {
        Err(JoinError::Unread(_, error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(results) if word(&results, "study") != study => {
            let of = words::shown(word(&results, "study"));
            Err(JoinError::Astray { path, study, of })
        }
        read => read.map(Some),
    }
}

/// An error with its cause, and what to do behind that.
fn told(error: &JoinError) -> String {
    let text = error.to_string();
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    let (what, advice) = text.split_at(text.find("; try: ").unwrap_or(text.len()));
    format!("{what}{}{advice}", cause.unwrap_or_default())
}

pub(crate) fn read(path: &Path) -> Result<Value, JoinError> {
    let text = given::read(path).map_err(|error| JoinError::Unread(path.to_owned(), error))?;
    let results: Option<Value> = serde_json::from_slice(&text).ok();
    let has_figures =
        |all: &Value| all["figures"].as_array().is_some_and(|all| all.len() <= FIGURES_MOST);
    let is_ours = |results: &Value| results["study"].is_string() && has_figures(results);
    results.filter(is_ours).ok_or_else(|| JoinError::Foreign(path.to_owned()))
}

/// More than ten times as many as all studies have, together.
const FIGURES_MOST: usize = 1000;

/// A study without what was measured.
fn outline(results: &Value) -> Value {
    let figures = list(results, "figures").iter();
    let told = |figure: &Value| {
        let [title, verdict] = ["title", "verdict"].map(|name| flat(&figure[name]));
        json!({ "title": title, "verdict": verdict })
    };
    let figures = figures.map(told).collect::<Vec<_>>();
    json!({
        "study": results["study"],
        "summary": tally(list(results, "figures")),
        "command": flat(&results["command"]),
        "seconds": flat(&results["seconds"]),
        "machine": members(&results["machine"]),
        "noise": members(&results["noise"]),
        "figures": figures,
    })
}

/// A text, a number or the like; null: others, each of whose lines is set in as deep as it lies.
fn flat(value: &Value) -> &Value {
    if value.is_array() || value.is_object() { &Value::Null } else { value }
}

/// The same of each member.
fn members(value: &Value) -> Value {
    let all = value.as_object().into_iter().flatten();
    all.map(|(name, value)| (name.clone(), flat(value).clone())).collect()
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

pub(crate) fn machine_of(results: &Value) -> String {
    let machine = results["machine"].as_object().into_iter().flatten();
    let machine = machine.map(|(name, value)| format!("{name} {}", value.as_str().unwrap_or("")));
    machine.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;
    use crate::course::Course;
    use crate::study::{Effort, Settings};

    pub(crate) fn results(
        folder: &Path,
        name: &str,
        study: &str,
        [low, median, high]: [f64; 3],
    ) -> PathBuf {
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
            let page = fs::read_to_string(join(folder.path()).unwrap().page).unwrap();
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
        let page = fs::read_to_string(join(folder.path()).unwrap().page).unwrap();
        assert!(page.contains("<h2>ibm: not run</h2>\n<p>cannot run ibm: no memory"), "{page}");
        assert!(crate::report::is_report(folder.path()));
    }

    #[test]
    fn nothing_cannot_be_joined() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(join(folder.path()), Err(JoinError::None(_))));
    }
}
