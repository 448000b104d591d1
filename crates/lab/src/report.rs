// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A study that was run, as text, as a page and for programs.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::given;
use crate::html;
use crate::machine::Noted;
use crate::measure::median;
use crate::study::{Findings, Settings, Study, Table};
use crate::tally::tally;
use crate::verdict::REPETITIONS_MIN;

/// The page of a report within its folder.
pub const PAGE: &str = "index.html";

/// What a report has found, for programs.
pub const RESULTS: &str = "results.json";

/// Whether `folder` holds a report of some study, or of all.
#[must_use]
pub fn is_report(folder: &Path) -> bool {
    let results = given::read(&folder.join(RESULTS)).ok();
    let results = results.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    results.is_some_and(|results| {
        let of_one = results["study"].is_string()
            && ["figures", "sections"].iter().any(|member| results[member].is_array());
        of_one || results["studies"].is_array()
    })
}

/// What a study found, figure by figure.
#[derive(Debug)]
pub struct Report {
    pub(crate) study: Study,
    pub(crate) settings: Settings,
    pub(crate) findings: Findings,
    pub(crate) noted: Noted,
}

impl Report {
    /// How many of the study's figures, and of their claims, hold here.
    #[must_use]
    pub fn verdict(&self) -> String {
        tally(&self.figures())
    }

    /// For programs.
    fn figures(&self) -> Vec<Value> {
        let name = self.study.name;
        self.findings.figures.iter().map(|figure| figure.json(name)).collect()
    }

    /// How to have it again.
    pub(crate) fn command(&self) -> String {
        let Settings { effort, rounds, .. } = self.settings;
        let rounds = rounds.map(|rounds| format!(" --rounds {rounds}")).unwrap_or_default();
        format!("lunwire lab run {} --{}{rounds}", self.study.name, effort.name())
    }

    /// What else the machine did, and how much the figures vary.
    pub(crate) fn noise(&self) -> (f64, f64) {
        (100.0 * median(self.findings.variations.clone()), self.noted.steal)
    }

    /// What was noted of the run, in sentences.
    pub(crate) fn circumstances(&self) -> Vec<String> {
        let (variation, steal) = self.noise();
        let took = self.noted.took.as_secs_f64();
        let mut told = vec![
            format!("`{}` took {took:.0} s. {}.", self.command(), self.noted.text()),
            format!(
                "Noise: the coefficient of variation of the cases is \
                 {variation:.1} % at the median; a hypervisor took {steal:.1} % of the processors' \
                 time."
            ),
        ];
        told.extend(self.noted.disturbed());
        let claims = self.findings.figures.iter().flat_map(|figure| &figure.claims);
        let mut repetitions =
            claims.flat_map(|claim| &claim.tests).filter_map(|test| test.spread.repetitions);
        if repetitions.any(|count| count < REPETITIONS_MIN) {
            told.push(format!(
                "Fewer than {REPETITIONS_MIN} runs are too few for a verdict: whatever else the \
                 machine did then shows in the figures."
            ));
        }
        told
    }

    /// For a terminal: claims, and tables in columns.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n\n{}\n\n", self.findings.title, self.verdict());
        for line in self.circumstances().iter().chain(&self.findings.preface) {
            let _ = writeln!(text, "{line}");
        }
        for figure in &self.findings.figures {
            let _ = writeln!(text, "\n{} ({})\n", figure.title, figure.verdict().name());
            for table in &figure.tables {
                let _ = writeln!(text, "{}", columns(table));
            }
            for claim in &figure.claims {
                let verdict = claim.verdict().name();
                let cases = claim.cases().map(|cases| format!(" ({cases})")).unwrap_or_default();
                let _ = writeln!(text, "{verdict}{cases}: {}\n    {}", claim.theirs, claim.told());
            }
        }
        text
    }

    /// Writes `index.html`, `results.json` and an SVG for each picture into `folder`, which is
    /// made if it is not there. Gives the path of the page.
    ///
    /// # Errors
    /// Of the file system.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        for picture in self.findings.figures.iter().flat_map(|figure| &figure.pictures) {
            write_whole(&folder.join(format!("{}.svg", picture.file)), &picture.svg())?;
        }
        write_whole(&folder.join(RESULTS), &format!("{:#}\n", self.json()))?;
        let page = folder.join(PAGE);
        write_whole(&page, &html::page(self))?;
        Ok(page)
    }

    /// All of it, for programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let figures = self.figures();
        let (variation, steal) = self.noise();
        json!({
            "study": self.study.name,
            "title": self.findings.title,
            "summary": tally(&figures),
            "command": self.command(),
            "effort": self.settings.effort.name(),
            "seconds": self.noted.took.as_secs_f64(),
            "machine": self.noted.json(),
            "noise": { "variation_percent": variation, "steal_percent": steal },
            "preface": self.findings.preface,
            "figures": figures,
        })
    }
}

/// A file has all of it, or what it had before: one that is cut off is no report, and the next run
/// would not write over it.
pub(crate) fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let written = given::write(Path::new(&beside), text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// A member of results that is text.
pub(crate) fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// And one that is a list.
pub(crate) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn columns(table: &Table) -> String {
    let all = || std::iter::once(&table.head).chain(&table.rows);
    let widths: Vec<usize> = (0..table.head.len())
        .map(|at| all().filter_map(|row| row.get(at)).map(String::len).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in all() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        let _ = writeln!(text, "  {}", cells.collect::<Vec<_>>().join("  "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RESULTS);
        write_whole(&path, "first").unwrap();
        let beside = folder.path().join("results.json.new");
        fs::create_dir(&beside).unwrap();
        assert!(write_whole(&path, "second").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        fs::remove_dir(&beside).unwrap();
        write_whole(&path, "third").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "third");
    }
}
