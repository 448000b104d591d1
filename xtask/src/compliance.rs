// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Joins the catalogue of requirements, the tests that name them and the list of what is not
//! built yet into docs/COMPLIANCE.md.

use crate::built;
use crate::catalogue;
use crate::catalogue::NotYet;
use crate::catalogue::Part;
use crate::catalogue::ROLES;
use crate::catalogue::Row;
use crate::covers;
use crate::covers::Cover;
use crate::judge;
use crate::proofs::killers;
use crate::proofs::table;
use crate::proofs::table::Mutant;
use crate::proofs::table::Named;
use crate::proofs::table::Subject;
use crate::readme;
use crate::readme::Requirement;
use crate::workspace;
use anyhow::Context;
use anyhow::Result;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const CATALOGUE: &str = "conformance/iscsi.tsv";
/// RFC 7145, 5040, 5041, 5044, 6581 and 5047.
const CATALOGUE_RDMA: &str = "conformance/iser-iwarp.tsv";
const NOT_YET: &str = "conformance/not-yet.tsv";
const DOCUMENT: &str = "docs/COMPLIANCE.md";
const README: &str = "README.md";
/// Where code is that one role alone runs.
const OF_TARGET: &[&str] = &["/target_role/", "/target-node/", "/target/", "/target.rs"];
const OF_INITIATOR: &[&str] = &["/initiator/", "/initiator.rs"];
/// What both run of it: which of the keys of a login are those of the session.
const OF_BOTH: &[&str] = &["/target_role/parameters.rs"];
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
    for row in facts.all_rows() {
        for role in row.roles().filter(|role| matches!(facts.state(row, *role), State::Open)) {
            println!("{}\t{}\t{}", row.name_in(role), row.level, row.requirement);
        }
    }
    Ok(())
}

/// A test that names so many requirements shows little of each, more often than not.
const IDS_MANY: usize = 6;
/// Who promises this needs a test with two of them.
const SEVERAL: &[&str] = &["all connections", "order", "same connection"];

/// Prints what somebody should look at: tests that name many requirements, and requirements that
/// speak of several things, with their tests.
pub(crate) fn list_doubtful() -> Result<()> {
    let facts = Facts::gather()?;
    for line in facts.doubtful() {
        println!("{line}");
    }
    Ok(())
}

/// Where a requirement stands, for one role.
enum State<'a> {
    /// A mutant breaks it, which its tests must notice.
    Proven,
    /// Tests name it, or it is known why no mutant can stand for it.
    Named(Option<&'a str>),
    NotYet(&'a str),
    Open,
}

/// The part that is shown, and the test.
pub(crate) type Shown = (Option<Part>, String);

#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) rows: Vec<Row>,
    /// Rows of iSER and iWARP.
    pub(crate) rows_rdma: Vec<Row>,
    pub(crate) not_yet: Vec<NotYet>,
    /// Tests by requirement, each with the part that it shows, where it says so.
    pub(crate) covers: BTreeMap<String, Vec<Shown>>,
    /// Lines that name requirements in the wrong form.
    pub(crate) malformed: Vec<String>,
    pub(crate) mutants: Vec<Mutant>,
    /// Blocks that are no mutants.
    pub(crate) broken_blocks: Vec<String>,
    pub(crate) named: Vec<Named>,
}

impl Facts {
    pub(crate) fn gather() -> Result<Self> {
        let (mut all, mut malformed) = (Vec::new(), Vec::new());
        let files = workspace::files()?;
        for file in files.iter().filter(|file| !file.path.starts_with("xtask/")) {
            let (covers, problems) = covers::find(file);
            if !covers.is_empty() && file.path.ends_with(".rs") {
                malformed.extend(built::hindrance(&file.path, &files));
            }
            all.extend(covers);
            malformed.extend(problems);
        }
        let read = |path: &str| {
            std::fs::read_to_string(workspace::root().join(path)).with_context(|| path.to_owned())
        };
        let (mutants, mut broken_blocks) = table::mutants(&files);
        let broken: BTreeSet<&str> = mutants.iter().map(|one| one.file.as_str()).collect();
        let of_tests: BTreeSet<&str> =
            broken.into_iter().filter(|file| built::is_of_tests(file, &files)).collect();
        let of_tests = mutants.iter().filter(|one| of_tests.contains(one.file.as_str()));
        broken_blocks.extend(of_tests.map(|one| format!("{}: {} is of tests", one.at, one.file)));
        let named = std::fs::read_to_string(workspace::root().join(table::NAMED));
        Ok(Self {
            mutants,
            broken_blocks,
            named: table::named(&named.unwrap_or_default())?,
            rows: catalogue::parse_rows(&read(CATALOGUE)?)?,
            rows_rdma: catalogue::parse_rows(&read(CATALOGUE_RDMA)?)?,
            not_yet: catalogue::parse_not_yet(&read(NOT_YET)?)?,
            covers: by_requirement(all),
            malformed,
        })
    }

    /// The rows of both catalogues.
    pub(crate) fn all_rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().chain(&self.rows_rdma)
    }

    fn shown(&self, row: &Row) -> &[Shown] {
        self.covers.get(&row.id).map(Vec::as_slice).unwrap_or_default()
    }

    /// The tests that show this part of a requirement; None: that of the only role that has it.
    pub(crate) fn tests_of(&self, id: &str, part: Option<Part>) -> Vec<&str> {
        let Some(row) = self.all_rows().find(|row| row.id == id) else { return Vec::new() };
        let wanted = row.part_of(part);
        let shows = |named: Option<Part>| match (row.part_of(named), wanted) {
            (Some(shown), Some(wanted)) => wanted == Part::Shared || shown.is_of(wanted),
            _ => false,
        };
        let shown = self.shown(row).iter().filter(|(named, _)| shows(*named));
        shown.map(|(_, test)| test.as_str()).collect()
    }

    /// Whether a mutant breaks it in this role.
    pub(crate) fn has_mutant(&self, row: &Row, role: Part) -> bool {
        self.mutants.iter().any(|mutant| match &mutant.subject {
            Subject::Row(id, part) => {
                *id == row.id && row.part_of(*part).is_some_and(|part| part.is_of(role))
            }
            Subject::Command(_) | Subject::System => false,
        })
    }

    /// Whose code it changes, if that is the role that does not have the rule.
    pub(crate) fn foreign(&self, mutant: &Mutant) -> Option<&'static str> {
        let Subject::Row(id, part) = &mutant.subject else { return None };
        let row = self.all_rows().find(|row| row.id == *id)?;
        let is_in = |places: &[&str]| places.iter().any(|place| mutant.file.contains(place));
        match row.part_of(*part)? {
            Part::Initiator if is_in(OF_TARGET) && !is_in(OF_BOTH) => Some("target"),
            Part::Target if is_in(OF_INITIATOR) => Some("initiator"),
            _ => None,
        }
    }

    fn is_tested(&self, row: &Row, role: Part) -> bool {
        let mut parts = self.shown(row).iter().filter_map(|(named, _)| row.part_of(*named));
        parts.any(|part| part.is_of(role))
    }

    /// Whether a test of it is run with mutants: those of `interop/` are not.
    pub(crate) fn has_killer(&self, row: &Row, role: Part) -> bool {
        let tests = self.tests_of(&row.id, Some(role));
        tests.into_iter().any(|test| killers::file_and_name(test).is_some())
    }

    fn state(&self, row: &Row, role: Part) -> State<'_> {
        let named = self.named.iter().find(|named| named.holds_for(row, role));
        match (self.is_tested(row, role), named) {
            (true, None) if self.has_mutant(row, role) && self.has_killer(row, role) => {
                return State::Proven;
            }
            (true, None) => return State::Named(None),
            (_, Some(named)) => return State::Named(Some(&named.reason)),
            (false, None) => {}
        }
        match self.not_yet.iter().find(|entry| entry.holds_for(row, role)) {
            Some(entry) => State::NotYet(&entry.reason),
            None => State::Open,
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = self.malformed.clone();
        for (id, shown) in &self.covers {
            match self.all_rows().find(|row| row.id == *id) {
                Some(row) => problems.extend(shown.iter().filter_map(|one| wrong_part(row, one))),
                None => {
                    let tests: Vec<&str> = shown.iter().map(|(_, test)| test.as_str()).collect();
                    problems.push(format!("{}: {id} is in no catalogue", tests.join(", ")));
                }
            }
        }
        let all = || self.all_rows().flat_map(|row| row.roles().map(move |role| (row, role)));
        for entry in &self.not_yet {
            if !all().any(|(row, role)| entry.holds_for(row, role)) {
                problems.push(format!("{NOT_YET}: {} is in no catalogue", entry.pattern));
            }
            for (row, role) in all().filter(|(row, role)| entry.names(row, *role)) {
                let name = row.name_in(role);
                if self.is_tested(row, role) {
                    problems.push(format!("{NOT_YET}: {name} has a test"));
                }
                if self.named.iter().any(|named| named.holds_for(row, role)) {
                    problems.push(format!("{NOT_YET}: {name} is in {}, too", table::NAMED));
                }
            }
        }
        for (row, role) in all().filter(|(row, _)| row.level == "MUST") {
            if matches!(self.state(row, role), State::Open) {
                let name = row.name_in(role);
                problems.push(format!("{name}: no test, no reason: {}", row.requirement));
            }
        }
        problems
    }

    fn doubtful(&self) -> Vec<String> {
        let mut by_test: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (id, shown) in &self.covers {
            for (_, test) in shown {
                by_test.entry(test).or_default().push(id);
            }
        }
        for ids in by_test.values_mut() {
            ids.dedup();
        }
        let many = by_test
            .iter()
            .filter(|(test, ids)| !test.starts_with("interop/") && ids.len() >= IDS_MANY);
        let mut lines: Vec<String> = many
            .map(|(test, ids)| format!("{test} names {}: {}", ids.len(), ids.join(", ")))
            .collect();
        for row in &self.rows {
            let text = row.requirement.to_lowercase();
            let words = text.split(|c: char| !c.is_alphanumeric());
            let text = words.collect::<Vec<_>>().join(" ");
            let is_there = |word: &&&str| format!(" {text} ").contains(&format!(" {word} "));
            if let Some(word) = SEVERAL.iter().find(is_there) {
                let tests: Vec<&str> =
                    self.shown(row).iter().map(|(_, test)| test.as_str()).collect();
                lines.push(format!("{} says \"{word}\": {}", row.id, tests.join(", ")));
            }
        }
        lines
    }

    /// What must be kept, and whether it is proven.
    fn readme(&self) -> Result<String> {
        let musts = self.rows.iter().filter(|row| row.level == "MUST");
        let all = musts.flat_map(|row| row.roles().map(move |role| (row, role)));
        let requirements: Vec<Requirement<'_>> = all
            .map(|(row, role)| Requirement {
                id: &row.id,
                role,
                proven: matches!(self.state(row, role), State::Proven),
            })
            .collect();
        let now = std::fs::read_to_string(workspace::root().join(README)).context(README)?;
        readme::renew(&now, &requirements)
    }

    fn summary(&self) -> String {
        self.summary_of(&self.rows)
    }

    fn summary_of(&self, rows: &[Row]) -> String {
        let mut text = String::from("| level | requirements | proven | named | not yet | open |\n");
        text.push_str("|---|---|---|---|---|---|\n");
        for (name, role) in ["target", "initiator"].into_iter().zip(ROLES) {
            for level in catalogue::LEVELS {
                let rows = rows.iter().filter(|row| row.level == level && row.is_of(role));
                line(&mut text, &format!("{name}: {level}"), &self.count(rows, role));
            }
        }
        text
    }

    /// All, proven, named, not yet, open.
    fn count<'a>(&self, rows: impl Iterator<Item = &'a Row>, role: Part) -> [usize; 5] {
        let mut counts = [0; 5];
        for row in rows {
            counts[0] += 1;
            counts[match self.state(row, role) {
                State::Proven => 1,
                State::Named(_) => 2,
                State::NotYet(_) => 3,
                State::Open => 4,
            }] += 1;
        }
        counts
    }

    /// Where it stands: once for both roles, where it is the same.
    fn proofs(&self, row: &Row) -> String {
        let told = |role: Part| match self.state(row, role) {
            State::Proven => "proven".to_owned(),
            State::Named(None) => "named".to_owned(),
            State::Named(Some(reason)) => format!("named: {reason}"),
            State::NotYet(reason) => format!("not yet: {reason}"),
            State::Open => "no test".to_owned(),
        };
        let mut proofs: Vec<(Part, String)> = row.roles().map(|role| (role, told(role))).collect();
        proofs.dedup_by(|(_, b), (_, a)| a == b);
        match proofs.as_slice() {
            [(_, proof)] => proof.clone(),
            several => {
                let one = |(role, proof): &(Part, String)| format!("{}: {proof}", role.letter());
                several.iter().map(one).collect::<Vec<_>>().join("<br>")
            }
        }
    }

    fn document(&self) -> String {
        let mut text = String::from(
            "# Compliance\n\nGenerated by `cargo xtask compliance` from `conformance/iscsi.tsv`, \
             the tests that name a requirement\n(`/// Covers: ID.`) and `conformance/not-yet.tsv`. \
             Role: T target, I initiator, B both; what holds for both\nis counted for each, and \
             its tests say of whom they are: T, I, or S for code that both run.\n\n\
             Proven: a mutant in `conformance/mutants` breaks the rule in a copy, and one of its \
             tests must notice\n(`cargo xtask proofs`). Named: no mutant is there; why none \
             can be stands there, where it must be kept.\n\n",
        );
        text.push_str(&self.summary());
        self.table(&mut text, &self.rows);
        text.push_str(
            "\n## iSER and iWARP\n\nFrom `conformance/iser-iwarp.tsv`. For MPA the initiator's \
             part is that of who sends the request, the\ntarget's that of who replies.\n\n",
        );
        text.push_str(&self.summary_of(&self.rows_rdma));
        self.table(&mut text, &self.rows_rdma);
        text
    }

    fn table(&self, text: &mut String, rows: &[Row]) {
        text.push_str("\n| id | RFC, section | role | level | requirement | proof | test |\n");
        text.push_str("|---|---|---|---|---|---|---|\n");
        for row in rows {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} |",
                row.id,
                row.section,
                row.role,
                row.level,
                shortened(&row.requirement),
                escaped(&self.proofs(row)),
                escaped(&tests_cell(row, self.shown(row)).join("<br>"))
            );
        }
    }
}

fn line(text: &mut String, label: &str, counts: &[usize; 5]) {
    let [all, proven, named, not_yet, open] = counts;
    let _ = writeln!(text, "| {label} | {all} | {proven} | {named} | {not_yet} | {open} |");
}

/// What is wrong with the part that a test names of a row.
fn wrong_part(row: &Row, (named, test): &Shown) -> Option<String> {
    match row.part_of(*named) {
        None => Some(format!("{test}: {0} holds for both: {0}/T, /I or /S", row.id)),
        Some(part) if row.roles().any(|role| part.is_of(role)) => None,
        Some(part) => Some(format!("{test}: {} is not of role {}", row.id, part.letter())),
    }
}

fn by_requirement(covers: Vec<Cover>) -> BTreeMap<String, Vec<Shown>> {
    let mut map: BTreeMap<String, Vec<Shown>> = BTreeMap::new();
    for cover in covers {
        map.entry(cover.id).or_default().push((cover.part, cover.test));
    }
    for tests in map.values_mut() {
        tests.sort();
        tests.dedup();
    }
    map
}

fn tests_cell(row: &Row, shown: &[Shown]) -> Vec<String> {
    let named = shown.iter().take(TESTS_MAX);
    let named = named.map(|(part, test)| match row.part_of(*part) {
        Some(part) if row.is_of_both() => format!("{}: `{test}`", part.letter()),
        _ => format!("`{test}`"),
    });
    let mut cell: Vec<String> = named.collect();
    if shown.len() > TESTS_MAX {
        cell.push(format!("{} more", shown.len() - TESTS_MAX));
    }
    cell
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
pub(crate) mod tests {
    use super::*;
    use crate::workspace::File;

    pub(crate) fn facts(covered: &[&str], not_yet: &str) -> Facts {
        let rows = "head\nA-01\t7143\t1\tT\tMUST\tOne.\t-\nA-02\t7143\t2\tI\tMUST\tTwo.\t-\n\
                    A-03\t7143\t3\tB\tMAY\tThree | four.\t-\n";
        let covers = covered
            .iter()
            .map(|name| covers::id_and_part(name).unwrap())
            .map(|(id, part)| Cover { id, part, test: "file.rs: test".to_owned() })
            .collect();
        Facts {
            rows: catalogue::parse_rows(rows).unwrap(),
            rows_rdma: Vec::new(),
            not_yet: catalogue::parse_not_yet(not_yet).unwrap(),
            covers: by_requirement(covers),
            malformed: Vec::new(),
            mutants: Vec::new(),
            broken_blocks: Vec::new(),
            named: Vec::new(),
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
    fn rows_of_rdma_need_a_test_or_a_reason() {
        let row = "head\nR-01\t5040\t1\tB\tMUST\tSend.\t-\n";
        let with = |covered: &[&str], not_yet: &str| {
            let rows_rdma = catalogue::parse_rows(row).unwrap();
            Facts { rows_rdma, ..facts(covered, not_yet) }
        };
        assert_eq!(with(&["A-01", "A-02"], "").problems().len(), 2);
        assert_eq!(with(&["A-01", "A-02"], "R-*\tlater").problems(), [""; 0]);
        let facts = with(&["A-01", "A-02", "R-01/S"], "");
        assert_eq!(facts.problems(), [""; 0]);
        let text = facts.document();
        let (_, rdma) = text.split_once("## iSER and iWARP").unwrap();
        assert!(rdma.contains("| target: MUST | 1 | 0 | 1 | 0 | 0 |"), "{text}");
        assert!(rdma.contains("| R-01 | 5040 1 | B | MUST | Send. | named | S: `file.rs: test` |"));
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
    fn what_holds_for_both_is_counted_for_each() {
        let count = |covered: &[&str]| {
            let text = facts(covered, "").summary();
            ["target: MAY | 1 | 0 | 1", "initiator: MAY | 1 | 0 | 1"]
                .map(|line| text.contains(line))
        };
        assert_eq!(count(&["A-03/T"]), [true, false]);
        assert_eq!(count(&["A-03/I"]), [false, true]);
        assert_eq!(count(&["A-03/T", "A-03/I"]), [true, true]);
        assert_eq!(count(&["A-03/S"]), [true, true]);
        let text = facts(&["A-03/I"], "A-03/T\tlater").document();
        assert!(text.contains("| T: not yet: later<br>I: named | I: `file.rs: test` |"), "{text}");
    }

    #[test]
    fn a_role_that_a_row_has_not_is_found() {
        assert_eq!(facts(&["A-01", "A-02", "A-01/I"], "").problems().len(), 1);
        assert_eq!(facts(&["A-01/T", "A-02/S"], "").problems(), [""; 0]);
    }

    #[test]
    fn a_mutant_proves_and_a_reason_names() {
        let text = "A-01 a.rs\n- a\n\nA-03/S a.rs\n- b\n";
        let path = "conformance/mutants/A.txt".to_owned();
        let mut facts = facts(&["A-01", "A-02", "A-03/I"], "");
        facts.mutants = table::mutants(&[File { path, text: text.to_owned() }]).0;
        facts.named = table::named("A-02\tno code does it\n").unwrap();
        let row = |index: usize| facts.proofs(&facts.rows[index]);
        assert_eq!(row(0), "proven");
        assert_eq!(row(1), "named: no code does it");
        assert_eq!(row(2), "T: no test<br>I: proven");
        assert_eq!(facts.tests_of("A-03", Some(Part::Target)), [""; 0]);
        assert_eq!(facts.tests_of("A-03", Some(Part::Shared)), ["file.rs: test"]);
        assert_eq!(facts.tests_of("A-01", None), ["file.rs: test"]);
        // What no mutant is run with proves nothing.
        facts.covers.insert("A-01".to_owned(), vec![(None, "interop/x: test".to_owned())]);
        assert_eq!(facts.proofs(&facts.rows[0]), "named");
    }

    #[test]
    fn a_mutant_changes_code_of_its_role() {
        let foreign = |name: &str, file: &str| {
            let text = format!("{name} {file}\n- a\n");
            let path = "conformance/mutants/A.txt".to_owned();
            let (mutants, _) = table::mutants(&[File { path, text }]);
            facts(&[], "").foreign(&mutants[0])
        };
        for file in [
            "crates/iscsi/src/target_role/session.rs",
            "crates/target-node/src/lib.rs",
            "crates/mover/src/iser/target.rs",
            "crates/mover/src/iser/target/input.rs",
            "crates/mover/src/local/target.rs",
        ] {
            assert_eq!((foreign("A-03/I", file), foreign("A-03/T", file)), (Some("target"), None));
        }
        for file in ["crates/initiator/src/lib.rs", "crates/mover/src/iser/initiator.rs"] {
            assert_eq!(foreign("A-03/T", file), Some("initiator"));
            assert_eq!(foreign("A-03/I", file), None);
        }
        for file in ["crates/iscsi/src/target_role/parameters.rs", "crates/wire/src/iser.rs"] {
            assert_eq!((foreign("A-03/I", file), foreign("A-03/T", file)), (None, None));
        }
    }

    #[test]
    fn what_says_much_is_doubtful() {
        let mut facts = facts(&["A-01", "A-02"], "");
        assert_eq!(facts.doubtful(), [""; 0]);
        facts.rows[0].requirement = "Keep the order: in (all connections).".to_owned();
        facts.rows[1].requirement = "Keep what was ordered.".to_owned();
        assert_eq!(facts.doubtful(), ["A-01 says \"all connections\": file.rs: test"]);
        let ids = (0..IDS_MANY).map(|number| format!("B-0{number}"));
        let test = || (None, "file.rs: test".to_owned());
        facts.covers = ids.map(|id| (id, vec![test(), test()])).collect();
        assert!(facts.doubtful()[0].starts_with("file.rs: test names 6: B-00, B-01"));
    }

    #[test]
    fn the_document_has_counts_and_rows() {
        let text = facts(&["A-01"], "").document();
        assert!(text.contains("| target: MUST | 1 | 0 | 1 | 0 | 0 |"));
        assert!(text.contains("| target: MAY | 1 | 0 | 0 | 0 | 1 |"));
        assert!(text.contains("| initiator: MUST | 1 | 0 | 0 | 0 | 1 |"));
        assert!(text.contains("| initiator: MAY | 1 | 0 | 0 | 0 | 1 |"));
        assert!(text.contains("| A-01 | 7143 1 | T | MUST | One. | named | `file.rs: test` |"));
        assert!(text.contains("Three \\| four."));
    }

    #[test]
    fn long_requirements_are_cut_at_a_word() {
        let cut = shortened(&"word ".repeat(40));
        assert!(cut.ends_with("word ...") && cut.len() <= REQUIREMENT_MAX + 4);
    }
}
