// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proves that tests prove what they name: each mutant of `conformance/mutants` breaks one rule in
//! a copy, and one of the tests that name the rule in that role must fail.

mod build;
pub(crate) mod compose;
pub(crate) mod killers;
mod rounds;
mod seed;
mod source;
pub(crate) mod switch;
pub(crate) mod table;
mod trial;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::catalogue::Part;
use crate::catalogue::ROLES;
use crate::compliance::Facts;
use crate::judge;
use crate::metadata;
use crate::proofs::compose::Placed;
use crate::proofs::rounds::Group;
use crate::proofs::rounds::Job;
use crate::proofs::rounds::Outcome;
use crate::proofs::rounds::Workshop;
use crate::proofs::source::Source;
use crate::proofs::table::Mutant;
use crate::proofs::table::Subject;
use crate::scsi;
use crate::workspace;

/// Of the rows that must be kept, less than one in so many stands without a mutant.
const NAMED_SHARE: usize = 10;

/// So many that are built alone are among those that are drawn.
const DRAWN_ALONE_MAX: usize = 1;

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    check: bool,
    /// So many, drawn from the seed.
    random: Option<usize>,
    seed: Option<String>,
    /// Ids, ids with roles, families.
    names: Vec<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--check" => options.check = true,
                "--random" => {
                    let number = words.next().and_then(|number| number.parse().ok());
                    options.random = Some(number.context("--random: how many?")?);
                }
                "--seed" => {
                    let seed = words.next().context("--seed: which?")?;
                    options.seed = Some((*seed).to_owned());
                }
                option if option.starts_with('-') => bail!("proofs: what is {option}?"),
                name => options.names.push(name.to_owned()),
            }
        }
        Ok(options)
    }

    /// Those that are meant, in the order of the tables.
    fn choose<'a>(&self, placed: &'a [Placed<'a>]) -> Result<Vec<&'a Placed<'a>>> {
        for name in &self.names {
            if !placed.iter().any(|one| is_called(one.mutant, name)) {
                bail!("{name}: no mutant has that name");
            }
        }
        let is_meant = |one: &&Placed<'_>| {
            self.names.is_empty() || self.names.iter().any(|name| is_called(one.mutant, name))
        };
        let mut chosen: Vec<&Placed<'_>> = placed.iter().filter(is_meant).collect();
        if let Some(number) = self.random {
            let seed = match &self.seed {
                Some(seed) => seed.clone(),
                None => workspace::output_of("git", &["rev-parse", "HEAD"])?.trim().to_owned(),
            };
            println!("seed {seed}");
            chosen.sort_by_key(|one| table::hash([seed.as_str(), one.mutant.name.as_str()]));
            // Each of these costs a build.
            let mut alone = 0;
            chosen.retain(|one| {
                alone += usize::from(one.alone);
                !one.alone || alone <= DRAWN_ALONE_MAX
            });
            chosen.truncate(number);
            chosen.sort_by(|a, b| a.mutant.name.cmp(&b.mutant.name));
        }
        Ok(chosen)
    }
}

/// Whether it is `KEY-24a/I`, `KEY-24a`, `KEY-24` or `KEY` that is asked for.
fn is_called(mutant: &Mutant, name: &str) -> bool {
    let own = mutant.name.split(' ').next().unwrap_or_default();
    let family = own.split('-').next();
    let row = match &mutant.subject {
        Subject::Row(id, _) => id.as_str(),
        Subject::Command(_) | Subject::System => own,
    };
    let whole = row.trim_end_matches(|c: char| c.is_ascii_lowercase());
    own == name || mutant.name == name || row == name || whole == name || family == Some(name)
}

/// Runs what the words ask for.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let options = Options::parse(words)?;
    let facts = Facts::gather()?;
    let commands = scsi::tests_by_command()?;
    let mut sources = BTreeMap::new();
    let (placed, mut problems) = place(&facts, &mut sources);
    problems.extend(table_problems(&facts, &commands));
    if options.check {
        problems.extend(missing(&facts, &commands));
        println!("proofs: {} mutants", facts.mutants.len());
        return judge("proofs", &problems);
    }
    for problem in &problems {
        println!("{problem}");
    }
    let chosen = options.choose(&placed)?;
    let jobs: Vec<Job<'_>> = chosen
        .into_iter()
        .map(|placed| Job { placed, groups: groups_of(placed.mutant, &facts, &commands) })
        .filter(|job| !job.groups.is_empty())
        .collect();
    let packages = metadata::packages()?;
    let workshop = Workshop::new(&packages, &sources)?;
    let begin = Instant::now();
    let outcomes = Mutex::new(Vec::new());
    let broken = workshop.run(&placed, &jobs, |job, outcome| {
        let name = &job.placed.mutant.name;
        println!("{name}: {}", told(&outcome));
        let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.push((name.clone(), job.placed.mutant.at.clone(), outcome));
    })?;
    // Whoever else was drawn, these prove nothing.
    problems.extend(broken.iter().map(|one| format!("{}: {} does not compile", one.at, one.name)));
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by(|(_, a, _), (_, b, _)| a.cmp(b));
    let count = |is: fn(&Outcome) -> bool| outcomes.iter().filter(|(_, _, one)| is(one)).count();
    println!(
        "{} mutants in {} s: {} noticed, {} survived, {} useless",
        outcomes.len(),
        begin.elapsed().as_secs(),
        count(|one| matches!(one, Outcome::Noticed(..))),
        count(|one| matches!(one, Outcome::Survived(_))),
        count(|one| matches!(one, Outcome::Useless(_))),
    );
    for (name, at, outcome) in &outcomes {
        match outcome {
            Outcome::Noticed(..) => {}
            Outcome::Survived(_) => problems.push(format!("{at}: {name} {}", told(outcome))),
            Outcome::Useless(_) => problems.push(format!("{at}: {name} does not compile")),
        }
    }
    judge("proofs", &problems)
}

fn told(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Noticed(test, seconds, false) => format!("noticed by {test} after {seconds:.1} s"),
        Outcome::Noticed(test, seconds, true) => {
            format!("noticed by {test}, which had not ended after {seconds:.0} s")
        }
        Outcome::Survived(whose) if whose.is_empty() => "SURVIVED".to_owned(),
        Outcome::Survived(whose) => format!("SURVIVED the tests of {whose}"),
        Outcome::Useless(why) => why.clone(),
    }
}

/// What is wrong with the tables, for tidy.
pub(crate) fn problems() -> Result<Vec<String>> {
    let facts = Facts::gather()?;
    let (_, mut problems) = place(&facts, &mut BTreeMap::new());
    let commands = scsi::tests_by_command()?;
    problems.extend(table_problems(&facts, &commands));
    problems.extend(missing(&facts, &commands));
    Ok(problems)
}

fn place<'a>(
    facts: &'a Facts,
    sources: &mut BTreeMap<String, Source>,
) -> (Vec<Placed<'a>>, Vec<String>) {
    compose::place(&facts.mutants, sources, workspace::read)
}

/// The tests in Rust that name what it breaks. What breaks both roles proves of each only what a
/// test of it notices.
fn groups_of<'a>(
    mutant: &Mutant,
    facts: &'a Facts,
    commands: &'a BTreeMap<String, Vec<String>>,
) -> Vec<Group<'a>> {
    let is_shared = |id: &str, part: Option<Part>| {
        part == Some(Part::Shared) && facts.all_rows().any(|row| row.id == id && row.is_of_both())
    };
    let groups = match &mutant.subject {
        Subject::Command(code) => {
            let tests = commands.get(code).into_iter().flatten().map(String::as_str).collect();
            vec![Group { whose: None, tests }]
        }
        Subject::System => Vec::new(),
        Subject::Row(id, part) if is_shared(id, *part) => ROLES
            .map(|role| Group { whose: Some(role), tests: facts.tests_of(id, Some(role)) })
            .into(),
        Subject::Row(id, part) => vec![Group { whose: None, tests: facts.tests_of(id, *part) }],
    };
    let in_rust = |group: Group<'a>| {
        let tests = group.tests.into_iter();
        let tests = tests.filter(|test| killers::file_and_name(test).is_some()).collect();
        Group { tests, ..group }
    };
    groups.into_iter().map(in_rust).filter(|group| !group.tests.is_empty()).collect()
}

/// Ids, roles and reasons that do not fit the catalogue.
fn table_problems(facts: &Facts, commands: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut problems = facts.broken_blocks.clone();
    for mutant in &facts.mutants {
        let (at, name) = (&mutant.at, &mutant.name);
        if let Subject::Row(id, part) = &mutant.subject {
            match facts.all_rows().find(|row| row.id == *id) {
                None => {
                    problems.push(format!("{at}: {name} is not in the catalogue"));
                    continue;
                }
                Some(row) if row.is_of_both() && part.is_none() => {
                    problems.push(format!("{at}: {id} holds for both: {id}/T, /I or /S"));
                    continue;
                }
                Some(row) if part.is_some_and(|part| !row.roles().any(|role| part.is_of(role))) => {
                    problems.push(format!("{at}: {id} is not of that role"));
                    continue;
                }
                Some(_) => {}
            }
        } else if let Subject::Command(code) = &mutant.subject
            && !commands.contains_key(code)
        {
            problems.push(format!("{at}: there is no command {name}"));
            continue;
        }
        if let Some(whose) = facts.foreign(mutant) {
            problems.push(format!("{at}: {name} changes code of the {whose} alone"));
        }
        if groups_of(mutant, facts, commands).is_empty() {
            problems.push(format!("{at}: no test in Rust names {name}"));
        }
    }
    problems.extend(named_problems(facts));
    problems
}

/// What is wrong with the rows without mutants.
fn named_problems(facts: &Facts) -> Vec<String> {
    let mut problems = Vec::new();
    for named in &facts.named {
        let is_row = |role| {
            facts.all_rows().find(|row| row.id == named.id).filter(|row| named.holds_for(row, role))
        };
        let rows: Vec<_> =
            ROLES.into_iter().filter_map(|role| is_row(role).map(|row| (row, role))).collect();
        if rows.is_empty() {
            problems.push(format!("{}: {} is not in the catalogue", table::NAMED, named.id));
        }
        for (row, role) in rows {
            if facts.has_mutant(row, role) {
                let name = row.name_in(role);
                problems.push(format!("{}: {name} has a mutant", table::NAMED));
            }
        }
    }
    // One catalogue has no reserve for the other.
    for (rows, role) in
        [&facts.rows, &facts.rows_rdma].into_iter().flat_map(|rows| ROLES.map(|role| (rows, role)))
    {
        let musts = rows.iter().filter(|row| row.level == "MUST" && row.is_of(role));
        let all = musts.clone().count();
        let named = musts.filter(|row| facts.named.iter().any(|one| one.holds_for(row, role)));
        let named = named.count();
        if named * NAMED_SHARE >= all && named > 0 {
            let letter = role.letter();
            problems.push(format!("{}: {named} of {all} rows of {letter}: too many", table::NAMED));
        }
    }
    problems
}

/// What must be kept and has neither a mutant nor a reason why it has none.
fn missing(facts: &Facts, commands: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut missing = Vec::new();
    for row in facts.all_rows().filter(|row| row.level == "MUST") {
        for role in row.roles() {
            let is_named = facts.named.iter().any(|named| named.holds_for(row, role));
            let name = row.name_in(role);
            if !is_named && !facts.has_mutant(row, role) {
                missing.push(format!("{name}: no mutant"));
            } else if !is_named && !facts.has_killer(row, role) {
                missing.push(format!("{name}: no test that is run with its mutant"));
            }
        }
    }
    for code in commands.keys() {
        if !facts.mutants.iter().any(|one| one.subject == Subject::Command(code.clone())) {
            missing.push(format!("command {code}: no mutant"));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::compliance;
    use crate::workspace::File;

    fn facts(covered: &[&str], rows_rdma: &str, blocks: &str) -> Facts {
        let path = "conformance/mutants/A.txt".to_owned();
        let (mutants, _) = table::mutants(&[File { path, text: blocks.to_owned() }]);
        let rows_rdma = catalogue::parse_rows(rows_rdma).unwrap();
        Facts { mutants, rows_rdma, ..compliance::tests::facts(covered, "") }
    }

    #[test]
    fn what_both_roles_run_is_noticed_by_both() {
        let groups = |covered: &[&str], name: &str| {
            let facts = facts(covered, "head\n", &format!("{name} a.rs\n- a\n"));
            let commands = BTreeMap::new();
            let groups = groups_of(&facts.mutants[0], &facts, &commands);
            groups.iter().map(|group| group.whose).collect::<Vec<_>>()
        };
        let each = [Some(Part::Target), Some(Part::Initiator)];
        assert_eq!(groups(&["A-03/T", "A-03/I"], "A-03/S"), each);
        assert_eq!(groups(&["A-03/S"], "A-03/S"), each);
        assert_eq!(groups(&["A-03/I"], "A-03/S"), [Some(Part::Initiator)]);
        assert_eq!(groups(&["A-03/T", "A-03/I"], "A-03/T"), [None]);
        assert_eq!(groups(&["A-01"], "A-01/S"), [None]);
    }

    #[test]
    fn a_rule_that_must_be_kept_needs_a_mutant_and_a_test_in_rust() {
        let missing = |test: Option<&str>, mutant: &str| {
            let mut facts = facts(&["A-01", "A-02"], "head\n", mutant);
            let shown = test.map(|test| vec![(None, test.to_owned())]);
            facts.covers.insert("A-02".to_owned(), shown.unwrap_or_default());
            missing(&facts, &BTreeMap::new()).len()
        };
        let both = "A-01 a.rs\n- a\n\nA-02 a.rs\n- b\n";
        assert_eq!(missing(Some("a.rs: test"), both), 0);
        assert_eq!(missing(Some("interop/a: test"), both), 1);
        assert_eq!(missing(None, both), 1);
        assert_eq!(missing(Some("a.rs: test"), "A-01 a.rs\n- a\n"), 1);
    }

    #[test]
    fn each_catalogue_has_few_rows_without_mutants() {
        let rows: String = (10..30).map(|n| format!("R-{n}\t5040\t1\tT\tMUST\tx\t-\n")).collect();
        let with = |named: &str| {
            let named = table::named(named).unwrap();
            named_problems(&Facts { named, ..facts(&[], &format!("head\n{rows}"), "") })
        };
        assert_eq!(with("R-10\tno code does it\n"), [""; 0]);
        assert_eq!(with("R-10\tno code\nR-11\tdoes it\n").len(), 1);
    }

    #[test]
    fn mutants_are_asked_for_by_name_and_by_lot() {
        let text = "KEY-24a/I a.rs\n- a\n\nKEY-24b/T a.rs\n- b\n\nKEY-25 a.rs\n- c\n";
        let path = "conformance/mutants/KEY.txt".to_owned();
        let (mutants, _) = table::mutants(&[File { path, text: text.to_owned() }]);
        let source = "fn f() { a; b; c; }".to_owned();
        let mut sources = BTreeMap::new();
        let renamed: Vec<Mutant> = mutants
            .into_iter()
            .map(|one| Mutant { file: "crates/a/src/b.rs".to_owned(), ..one })
            .collect();
        let (placed, _) = compose::place(&renamed, &mut sources, |_| Some(source.clone()));
        let chosen = |words: &[&str]| -> Result<Vec<String>> {
            let chosen = Options::parse(words)?.choose(&placed)?;
            Ok(chosen.iter().map(|one| one.mutant.name.clone()).collect())
        };
        assert_eq!(chosen(&["KEY-24"]).unwrap(), ["KEY-24a/I", "KEY-24b/T"]);
        assert_eq!(chosen(&["KEY-24b", "KEY-25"]).unwrap(), ["KEY-24b/T", "KEY-25"]);
        assert_eq!(chosen(&["KEY-24a/I"]).unwrap(), ["KEY-24a/I"]);
        assert_eq!(chosen(&["KEY"]).unwrap().len(), 3);
        let two = |seed: &str| chosen(&["--random", "2", "--seed", seed]).unwrap();
        assert_eq!(two("a"), two("a"));
        assert_eq!(two("a").len(), 2);
        assert!((0..20).any(|seed| two(&seed.to_string()) != two("a")));
        assert!(chosen(&["KEY-26"]).is_err() && chosen(&["--what"]).is_err());
    }
}
