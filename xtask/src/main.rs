// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks and generated documents of the workspace, called as `cargo xtask TASK`.
#![forbid(unsafe_code)]

mod borders;
mod built;
mod catalogue;
mod circles;
mod compliance;
mod configuration;
mod covers;
mod lessons;
mod lexer;
mod metadata;
mod mutants;
mod proofs;
mod readme;
mod scsi;
mod studies;
mod tidy;
mod tree;
mod units;
mod unused;
mod workspace;

use anyhow::Result;
use anyhow::bail;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK
  tidy                  the rules of the house that a machine can judge
  compliance            writes docs/COMPLIANCE.md and the table of README.md
  compliance --check    fails when it is stale, wrong or leaves a requirement of ours open
  configuration         writes docs/CONFIGURATION.md
  mutants [NAME...]     breaks lines in a copy; the simulator must notice each within two minutes
  mutants iser          those that are tried over iSER (verbs, ether)
  proofs [ID|FAMILY...] breaks rules in a copy; the tests that name each rule must notice
  proofs --random N     some of them; drawn by --seed TEXT or the commit
  proofs --check        fails when a mutant has no place or a rule no mutant; builds nothing
  scsi                  writes docs/SCSI.md
  scsi --check          fails when it is stale, or a command is named by no test
  studies               writes docs/STUDIES.md
  studies --check       fails when it is stale
  compliance --open     lists what a role must do that has neither test nor reason
  compliance --doubtful lists tests that name much, and rows that speak of several things
  units                 builds all tests and runs them, several binaries at once
  units --timings       the same; then says which binaries and which tests took long";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["tidy"] => tidy::run(),
        ["scsi"] => scsi::write(),
        ["scsi", "--check"] => scsi::check(),
        ["studies"] => studies::write(),
        ["studies", "--check"] => studies::check(),
        ["compliance"] => compliance::write(),
        ["configuration"] => configuration::write(),
        ["compliance", "--check"] => compliance::check(),
        ["mutants", names @ ..] => mutants::run(names),
        ["proofs", words @ ..] => proofs::run(words),
        ["compliance", "--open"] => compliance::list_open(),
        ["compliance", "--doubtful"] => compliance::list_doubtful(),
        ["units"] => units::run(false),
        ["units", "--timings"] => units::run(true),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints what was found and fails if that is anything.
fn judge(task: &str, problems: &[String]) -> Result<()> {
    for problem in problems {
        println!("{problem}");
    }
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{task}: {} problems", problems.len())
}
