// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proves that the simulator sees: breaks one line of the product in a copy, and the simulator must
//! notice within two minutes, by a seed that fails with nothing else.

mod table;

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::metadata;
use crate::mutants::table::Entry;
use crate::proofs::compose;
use crate::proofs::switch;
use crate::proofs::table::Mutant;
use crate::tree;
use crate::workspace;

/// Real time within which each must be noticed; the slowest takes 62 s on two processors that do
/// nothing else.
const LIMIT: Duration = Duration::from_secs(120);

/// A mutant, and what all sessions go over.
#[derive(Clone, Copy)]
struct Trial<'a> {
    entry: &'a Entry,
    over: &'a str,
}

impl Trial<'_> {
    /// `stat-sn` where it is drawn what they go over, or `stat-sn/iser`.
    fn name(self) -> String {
        match self.over {
            table::ANY => self.entry.mutant.name.clone(),
            over => format!("{}/{over}", self.entry.mutant.name),
        }
    }

    fn is_called(self, name: &str) -> bool {
        name == self.name() || name == self.over
    }
}

fn trials(entries: &[Entry]) -> impl Iterator<Item = Trial<'_>> {
    entries.iter().flat_map(|entry| entry.over.iter().map(move |over| Trial { entry, over }))
}

/// Runs the mutants with these names, or all; `iser` stands for all that are tried over iSER, and
/// `ether` for those over raw Ethernet. All are built, whichever are run.
pub(crate) fn run(names: &[&str]) -> Result<()> {
    let entries = table::read()?;
    for name in names {
        if !trials(&entries).any(|trial| trial.is_called(name)) {
            bail!("{name}: no mutant has that name");
        }
    }
    let is_meant =
        |trial: &Trial<'_>| names.is_empty() || names.iter().any(|name| trial.is_called(name));
    let simulator = Simulator::build(&entries)?;
    let mut missed = Vec::new();
    for trial in trials(&entries).filter(is_meant) {
        let noticed = simulator.try_on(trial);
        match noticed.with_context(|| format!("mutant {}", trial.name()))? {
            Some(what) => println!("{}: {what}", trial.name()),
            None => missed.push(trial.name()),
        }
    }
    if !missed.is_empty() {
        bail!("mutants that nobody noticed: {}", missed.join(", "));
    }
    Ok(())
}

/// The simulator with all mutants in it, each by its number.
struct Simulator(PathBuf);

impl Simulator {
    fn build(entries: &[Entry]) -> Result<Self> {
        let mutants: Vec<Mutant> = entries.iter().map(|entry| entry.mutant.clone()).collect();
        let mut sources = BTreeMap::new();
        let (placed, mut problems) = compose::place(&mutants, &mut sources, workspace::read);
        let alone = placed.iter().filter(|one| one.alone);
        problems.extend(alone.map(|one| format!("{}: is in no function", one.mutant.at)));
        if !problems.is_empty() {
            bail!("{}", problems.join("\n"));
        }
        let mut files = switch::files(&metadata::packages()?)?;
        let composed = compose::together(&placed.iter().collect::<Vec<_>>(), &sources);
        files.extend(composed.into_iter().map(|(path, composed)| (path, composed.text)));
        let tree = workspace::root().join("target/mutants/tree");
        tree::write(&tree, &files)?;
        build(&tree).map(Self)
    }

    /// What the simulator said, and when; None: nothing. The seed must be good with nothing broken.
    fn try_on(&self, trial: Trial<'_>) -> Result<Option<String>> {
        let over = (trial.over != table::ANY).then_some(["--transport", trial.over]);
        let drawn: Vec<&str> =
            ["--class", &trial.entry.class].into_iter().chain(over.into_iter().flatten()).collect();
        let simulate = |number: u32, words: [&str; 4]| {
            let mut command = Command::new(&self.0);
            command.env(switch::VARIABLE, number.to_string());
            Failure::of(&command.arg("--fail-fast").args(words).args(&drawn).output()?)
        };
        let (first, limit) = (trial.entry.first_seed.to_string(), LIMIT.as_secs().to_string());
        let begun = Instant::now();
        let failure = simulate(trial.entry.mutant.number, ["--from", &first, "--time", &limit])?;
        let took = begun.elapsed().as_secs_f64();
        let Some(Failure { seed, text }) = failure else { return Ok(None) };
        let again = ["--from", &seed.to_string(), "--count", "1"];
        if let Some(failure) = simulate(0, again)? {
            bail!("with nothing broken: {}", failure.text);
        }
        Ok(Some(format!("noticed after {took:.1} s: {text}")))
    }
}

/// A seed that fails, and what the simulator says of it.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    seed: u64,
    text: String,
}

impl Failure {
    /// None: all went well. A simulator that does not run at all has noticed nothing.
    fn of(output: &Output) -> Result<Option<Self>> {
        if output.status.success() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let found = text.lines().find_map(|line| {
            let (seed, _) = line.strip_prefix("FAILED seed ")?.split_once(' ')?;
            Some(Self { seed: seed.parse().ok()?, text: line.chars().take(200).collect() })
        });
        if found.is_none() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("the simulator ends with {} and names no seed: {}", output.status, said.trim());
        }
        Ok(found)
    }
}

/// Builds the simulator of `tree`.
fn build(tree: &Path) -> Result<PathBuf> {
    let target = workspace::root().join("target/mutants/build");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "-p", "lunwire-sim"])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", &target)
        // Quick to build is better here than quick to run.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("RUSTFLAGS", "-A warnings")
        .status()?;
    if !built.success() {
        bail!("does not build");
    }
    Ok(target.join("release/lunwire-sim"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn who_names_no_seed_has_noticed_nothing() {
        let ended = |script: &str| {
            let output = Command::new("sh").args(["-c", script]).output().unwrap();
            Failure::of(&output).map_err(|error| error.to_string())
        };
        let line = "FAILED seed 17 class calm: a write is lost";
        let failure = Failure { seed: 17, text: line.to_owned() };
        assert_eq!(ended(&format!("echo seeds from 1; echo '{line}'; exit 1")), Ok(Some(failure)));
        assert_eq!(ended("echo 0 failures"), Ok(None));
        // As with a class that is none, or where the program breaks down.
        for script in ["echo no class clam >&2; exit 2", "kill -SEGV $$", "echo FAILED; exit 1"] {
            assert!(ended(script).is_err(), "{script}");
        }
    }

    #[test]
    fn a_seed_that_fails_with_nothing_broken_proves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let entries = table::parse("a calm iser,any crates/a/src/b.rs\n- a\n+ b\n").unwrap();
        let mut trials = trials(&entries);
        let (trial, other) = (trials.next().unwrap(), trials.next().unwrap());
        assert_eq!((trial.name(), other.name()), ("a/iser".to_owned(), "a".to_owned()));
        let tried = |name: &str, script: &str, trial: Trial<'_>| {
            let program = folder.path().join(name);
            std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
            Simulator(program).try_on(trial)
        };
        let fails = "echo FAILED seed $3 class $7 $8 $9: no; exit 1";
        let broken = format!("[ $LUNWIRE_MUTANT = 0 ] || {{ {fails}; }}");
        let noticed = tried("broken", &broken, trial).unwrap().unwrap();
        assert!(noticed.contains("FAILED seed 1 class calm --transport iser: no"), "{noticed}");
        assert!(tried("drawn", &broken, other).unwrap().unwrap().ends_with("class calm : no"));
        assert_eq!(tried("works", "exit 0", trial).unwrap(), None);
        assert!(tried("fails", fails, trial).is_err());
    }

    #[test]
    fn every_mutant_has_its_line() {
        let entries = table::read().unwrap();
        let mutants: Vec<Mutant> = entries.iter().map(|entry| entry.mutant.clone()).collect();
        let (_, problems) = compose::place(&mutants, &mut BTreeMap::new(), workspace::read);
        assert_eq!(problems, [""; 0]);
        let count = |over| trials(&entries).filter(|trial| trial.over == over).count();
        for over in table::OVER {
            assert!(count(over) > 0, "{over}");
        }
    }
}
