// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Joins the catalogue of requirements, the tests that name them and the list of what is not
//! built yet into docs/COMPLIANCE.md.

use crate::catalogue;
use crate::catalogue::NotYet;
use crate::catalogue::Row;
use crate::covers;
use crate::covers::Cover;
use crate::judge;
use crate::readme;
use crate::readme::Requirement;
use crate::workspace;
use anyhow::Context;
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const CATALOGUE: &str = "conformance/iscsi.tsv";
const NOT_YET: &str = "conformance/not-yet.tsv";
const DOCUMENT: &str = "docs/COMPLIANCE.md";
const README: &str = "README.md";
/// A requirement is shortened to so many characters.
const REQUIREMENT_MAX: usize = 110;
/// So many tests are named in a row; more are counted.
const TESTS_MAX: usize = 4;

/// Writes the document.
pub(crate) fn write() -> Result<()> {
    let facts = Facts::gather()?;
    std::fs::create_dir_all(workspace::root().join("docs"))?;
    std::fs::write(workspace::root().join(DOCUMENT), facts.document())?;
    std::fs::write(workspace::root().join(README), facts.readme()?)?;
    println!("{DOCUMENT}: {}", facts.summary().replace('\n', " "));
    judge("compliance", &facts.problems())
}

/// Fails when the document is stale or the facts contradict each other.
pub(crate) fn check() -> Result<()> {
    let facts = Facts::gather()?;
    let mut problems = facts.problems();
    let written = std::fs::read_to_string(workspace::root().join(DOCUMENT)).unwrap_or_default();
    if written != facts.document() {
        problems.push(format!("{DOCUMENT} is stale: run cargo xtask compliance"));
    }
    if std::fs::read_to_string(workspace::root().join(README))? != facts.readme()? {
        problems.push(format!("{README} is stale: run cargo xtask compliance"));
    }
    judge("compliance", &problems)
}

/// Prints the requirements that have neither test nor reason.
pub(crate) fn list_open() -> Result<()> {
    let facts = Facts::gather()?;
    for row in facts.rows.iter().filter(|row| matches!(facts.state(row), State::Open)) {
        println!("{}\t{}\t{}\t{}", row.id, row.role, row.level, row.requirement);
    }
    Ok(())
}

/// Where a requirement stands.
enum State<'a> {
    Covered(&'a [String]),
    NotYet(&'a str),
    Open,
}

#[derive(Debug)]
struct Facts {
    rows: Vec<Row>,
    not_yet: Vec<NotYet>,
    /// Tests by requirement.
    covers: BTreeMap<String, Vec<String>>,
    /// Lines that name requirements in the wrong form.
    malformed: Vec<String>,
}

impl Facts {
    fn gather() -> Result<Self> {
        let (mut all, mut malformed) = (Vec::new(), Vec::new());
        let files = workspace::files()?;
        for file in files.iter().filter(|file| !file.path.starts_with("xtask/")) {
            let (covers, problems) = covers::find(file);
            all.extend(covers);
            malformed.extend(problems);
        }
        let read = |path: &str| {
            std::fs::read_to_string(workspace::root().join(path)).with_context(|| path.to_owned())
        };
        Ok(Self {
            rows: catalogue::parse_rows(&read(CATALOGUE)?)?,
            not_yet: catalogue::parse_not_yet(&read(NOT_YET)?)?,
            covers: by_requirement(all),
            malformed,
        })
    }

    fn state(&self, row: &Row) -> State<'_> {
        if let Some(tests) = self.covers.get(&row.id) {
            return State::Covered(tests);
        }
        match self.not_yet.iter().find(|entry| entry.holds_for(&row.id)) {
            Some(entry) => State::NotYet(&entry.reason),
            None => State::Open,
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = self.malformed.clone();
        for (id, tests) in &self.covers {
            if !self.rows.iter().any(|row| row.id == *id) {
                problems.push(format!("{}: {id} is not in {CATALOGUE}", tests.join(", ")));
            }
            if self.not_yet.iter().any(|entry| entry.names(id)) {
                problems.push(format!("{NOT_YET}: {id} has a test: {}", tests.join(", ")));
            }
        }
        for entry in &self.not_yet {
            if !self.rows.iter().any(|row| entry.holds_for(&row.id)) {
                problems.push(format!("{NOT_YET}: {} is not in {CATALOGUE}", entry.pattern));
            }
        }
        for row in self.rows.iter().filter(|row| row.level == "MUST") {
            if matches!(self.state(row), State::Open) {
                problems.push(format!("{}: no test, no reason: {}", row.id, row.requirement));
            }
        }
        problems
    }

    fn readme(&self) -> Result<String> {
        let of_target = self.rows.iter().filter(|row| row.is_of_target());
        let requirements: Vec<Requirement<'_>> = of_target
            .map(|row| Requirement { id: &row.id, tested: self.covers.contains_key(&row.id) })
            .collect();
        let now = std::fs::read_to_string(workspace::root().join(README)).context(README)?;
        readme::renew(&now, &requirements)
    }

    fn summary(&self) -> String {
        let mut text = String::from("| level | requirements | tested | not yet | open |\n");
        text.push_str("|---|---|---|---|---|\n");
        for (role, of_target) in [("target", true), ("initiator", false)] {
            for level in ["MUST", "SHOULD", "MAY"] {
                let rows = self.rows.iter().filter(|row| row.level == level);
                let rows = rows.filter(|row| row.is_of_target() == of_target);
                line(&mut text, &format!("{role}: {level}"), &self.count(rows));
            }
        }
        text
    }

    /// All, covered, not yet, open.
    fn count<'a>(&self, rows: impl Iterator<Item = &'a Row>) -> [usize; 4] {
        let mut counts = [0; 4];
        for row in rows {
            counts[0] += 1;
            counts[match self.state(row) {
                State::Covered(_) => 1,
                State::NotYet(_) => 2,
                State::Open => 3,
            }] += 1;
        }
        counts
    }

    fn document(&self) -> String {
        let mut text = String::from(
            "# Compliance\n\nGenerated by `cargo xtask compliance` from `conformance/iscsi.tsv`, \
             the tests that name a requirement\n(`/// Covers: ID.`) and `conformance/not-yet.tsv`. \
             Role: T target, I initiator, B both; what holds for both is counted with the \
             target.\n\n",
        );
        text.push_str(&self.summary());
        text.push_str("\n| id | RFC, section | role | level | requirement | test |\n");
        text.push_str("|---|---|---|---|---|---|\n");
        for row in &self.rows {
            let tests = match self.state(row) {
                State::Covered(tests) => tests_cell(tests),
                State::NotYet(reason) => format!("not yet: {reason}"),
                State::Open => "no test".to_owned(),
            };
            let requirement = shortened(&row.requirement);
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {requirement} | {} |",
                row.id,
                row.section,
                row.role,
                row.level,
                escaped(&tests)
            );
        }
        text
    }
}

fn line(text: &mut String, label: &str, counts: &[usize; 4]) {
    let [all, covered, not_yet, open] = counts;
    let _ = writeln!(text, "| {label} | {all} | {covered} | {not_yet} | {open} |");
}

fn by_requirement(covers: Vec<Cover>) -> BTreeMap<String, Vec<String>> {
    let mut map: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for cover in covers {
        map.entry(cover.id).or_default().push(cover.test);
    }
    for tests in map.values_mut() {
        tests.sort();
        tests.dedup();
    }
    map
}

fn tests_cell(tests: &[String]) -> String {
    let mut cell: Vec<String> =
        tests.iter().take(TESTS_MAX).map(|test| format!("`{test}`")).collect();
    if tests.len() > TESTS_MAX {
        cell.push(format!("{} more", tests.len() - TESTS_MAX));
    }
    cell.join("<br>")
}

/// Cut at a word, and without what a table cell cannot hold.
fn shortened(requirement: &str) -> String {
    let text = escaped(requirement);
    if text.chars().count() <= REQUIREMENT_MAX {
        return text;
    }
    let head: String = text.chars().take(REQUIREMENT_MAX).collect();
    let cut = head.rsplit_once(' ').map_or(head.as_str(), |(words, _)| words);
    format!("{cut} ...")
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(covered: &[&str], not_yet: &str) -> Facts {
        let rows = "head\nA-01\t7143\t1\tT\tMUST\tOne.\t-\nA-02\t7143\t2\tI\tMUST\tTwo.\t-\n\
                    A-03\t7143\t3\tB\tMAY\tThree | four.\t-\n";
        let covers = covered
            .iter()
            .map(|&id| Cover { id: id.to_owned(), test: "file: test".to_owned() })
            .collect();
        Facts {
            rows: catalogue::parse_rows(rows).unwrap(),
            not_yet: catalogue::parse_not_yet(not_yet).unwrap(),
            covers: by_requirement(covers),
            malformed: Vec::new(),
        }
    }

    #[test]
    fn a_must_needs_a_test_or_a_reason() {
        assert_eq!(facts(&[], "").problems().len(), 2);
        assert_eq!(facts(&["A-01"], "").problems().len(), 1);
        assert_eq!(facts(&["A-01", "A-02"], "").problems(), [""; 0]);
        assert_eq!(facts(&[], "A-*\tlater").problems(), [""; 0]);
        assert_eq!(facts(&[], "A-01\tlater\nA-02\tlater").problems(), [""; 0]);
    }

    #[test]
    fn a_test_and_a_reason_contradict_each_other() {
        assert_eq!(facts(&["A-01", "A-02"], "A-01\tlater").problems().len(), 1);
        assert_eq!(facts(&["A-01"], "A-*\tlater").problems(), [""; 0]);
    }

    #[test]
    fn names_that_do_not_exist_are_found() {
        assert_eq!(facts(&["A-01", "A-02", "A-99"], "").problems().len(), 1);
        assert_eq!(facts(&["A-01", "A-02"], "B-*\tlater").problems().len(), 1);
    }

    #[test]
    fn the_document_has_counts_and_rows() {
        let text = facts(&["A-01"], "").document();
        assert!(text.contains("| target: MUST | 1 | 1 | 0 | 0 |"));
        assert!(text.contains("| target: MAY | 1 | 0 | 0 | 1 |"));
        assert!(text.contains("| initiator: MUST | 1 | 0 | 0 | 1 |"));
        assert!(text.contains("| A-01 | 7143 1 | T | MUST | One. | `file: test` |"));
        assert!(text.contains("Three \\| four."));
    }

    #[test]
    fn long_requirements_are_cut_at_a_word() {
        let cut = shortened(&"word ".repeat(40));
        assert!(cut.ends_with("word ...") && cut.len() <= REQUIREMENT_MAX + 4);
    }
}
