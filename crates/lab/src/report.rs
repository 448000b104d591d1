// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a study found.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::figure::Figure;
use crate::html;

/// The page of a report within its folder.
pub const PAGE: &str = "index.html";

/// The figures of a report, for programs.
pub const RESULTS: &str = "results.json";

/// Whether `folder` holds a report of some study.
#[must_use]
pub fn is_report(folder: &Path) -> bool {
    let results = fs::read(folder.join(RESULTS)).ok();
    let results = results.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    results.is_some_and(|results| results["study"].is_string() && results["sections"].is_array())
}

/// What a study found, figure by figure.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// Short name of the study.
    pub name: &'static str,
    /// What it is about.
    pub title: String,
    /// How and on what it was measured, and where that differs from the study.
    pub preface: Vec<String>,
    /// The figures.
    pub sections: Vec<Section>,
}

/// A figure of the study and ours.
#[derive(Debug)]
#[non_exhaustive]
pub struct Section {
    /// Such as "Figure 11: ...".
    pub title: String,
    /// The figures of both, side by side.
    pub tables: Vec<Table>,
    /// Drawn as SVG.
    pub(crate) figures: Vec<Figure>,
    /// What ours says about theirs.
    pub conclusions: Vec<Conclusion>,
}

/// What a measurement says about a claim of the study.
#[derive(Debug)]
#[non_exhaustive]
pub struct Conclusion {
    /// Whether it is so here, too; None: nothing was measured of it.
    pub supports: Option<bool>,
    /// The claim and our figures.
    pub text: String,
}

/// Rows of text under a head.
#[derive(Debug)]
#[non_exhaustive]
pub struct Table {
    /// Names of the columns.
    pub head: Vec<String>,
    /// As many cells each.
    pub rows: Vec<Vec<String>>,
}

impl Section {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        let title = title.into();
        Self { title, tables: Vec::new(), figures: Vec::new(), conclusions: Vec::new() }
    }

    pub(crate) fn conclude(&mut self, supports: bool, text: String) {
        self.conclusions.push(Conclusion { supports: Some(supports), text });
    }

    /// A claim of which nothing was measured.
    pub(crate) fn pass_over(&mut self, text: String) {
        self.conclusions.push(Conclusion { supports: None, text });
    }
}

impl Conclusion {
    /// "supported", "contradicted" or "not measured".
    #[must_use]
    pub const fn verdict(&self) -> &'static str {
        match self.supports {
            Some(true) => "supported",
            Some(false) => "contradicted",
            None => "not measured",
        }
    }
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|cell| (*cell).to_owned()).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

/// What to say where so few runs were made that one of them may decide a figure.
pub(crate) fn doubt(rounds: usize, enough: usize) -> Option<String> {
    (rounds < enough).then(|| {
        let runs = if rounds == 1 { "One run is".to_owned() } else { format!("{rounds} runs are") };
        format!(
            "{runs} too few for a verdict: whatever else the machine did then shows in the \
             figures, and \"contradicted\" may be noise. Try --rounds {enough} or more on an \
             idle machine."
        )
    })
}

impl Report {
    /// How many of the claims of the study of which something was measured hold here.
    #[must_use]
    pub fn verdict(&self) -> String {
        let all = || self.sections.iter().flat_map(|section| &section.conclusions);
        let measured = all().filter_map(|one| one.supports).count();
        let supported = all().filter(|one| one.supports == Some(true)).count();
        format!("Of {measured} claims of the study, {supported} are supported here.")
    }

    /// For a terminal: tables in columns.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n\n{}\n\n", self.title, self.verdict());
        for line in &self.preface {
            let _ = writeln!(text, "{line}");
        }
        for section in &self.sections {
            let _ = writeln!(text, "\n{}\n", section.title);
            for table in &section.tables {
                let _ = writeln!(text, "{}", columns(table));
            }
            for conclusion in &section.conclusions {
                let _ = writeln!(text, "{}: {}", conclusion.verdict(), conclusion.text);
            }
        }
        text
    }

    /// Writes `index.html`, `results.json` and one SVG for each figure into `folder`, which is
    /// made if it is not there. Gives the path of the page.
    ///
    /// # Errors
    /// Of the file system.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        for figure in self.sections.iter().flat_map(|section| &section.figures) {
            fs::write(folder.join(format!("{}.svg", figure.file)), figure.svg())?;
        }
        fs::write(folder.join(RESULTS), format!("{:#}\n", self.json()))?;
        let page = folder.join(PAGE);
        fs::write(&page, html::page(self))?;
        Ok(page)
    }

    fn json(&self) -> Value {
        let sections: Vec<Value> = self.sections.iter().map(section_json).collect();
        json!({
            "study": self.name,
            "title": self.title,
            "preface": self.preface,
            "sections": sections,
        })
    }
}

fn section_json(section: &Section) -> Value {
    let tables: Vec<Value> = section
        .tables
        .iter()
        .map(|table| json!({"head": table.head, "rows": table.rows}))
        .collect();
    let conclusions: Vec<Value> = section
        .conclusions
        .iter()
        .map(|one| json!({"verdict": one.verdict(), "text": one.text}))
        .collect();
    json!({"title": section.title, "tables": tables, "conclusions": conclusions})
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
