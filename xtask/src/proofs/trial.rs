// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs one test with one mutant.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::proofs::killers::Test;
use crate::proofs::rounds::Files;
use crate::proofs::rounds::Job;
use crate::proofs::switch;

/// A test that takes longer has noticed: the slowest ones take a minute on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// A test that has noticed is asked so many times whether it is good with nothing broken.
const TRIES_MAX: usize = 3;
/// How often a test is asked whether it is done.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A mutant as it runs.
#[derive(Debug)]
pub(crate) struct Trial<'a> {
    pub(crate) job: &'a Job<'a>,
    /// By which it is chosen; 0: it is built alone.
    pub(crate) number: u32,
    /// What it is among.
    pub(crate) composed: Option<&'a Files>,
    pub(crate) worker: usize,
}

impl Trial<'_> {
    /// The line by which a mutant itself ends the program that has said this: whoever comes there
    /// notices, whatever the rule is.
    pub(crate) fn own_end(&self, output: &[u8]) -> Option<String> {
        let output = String::from_utf8_lossy(output);
        let (file, line) = panic_place(&output)?;
        let mutant = self.job.placed.mutant;
        let composed = self.composed?.get(file).filter(|_| file == mutant.file)?;
        let text = composed.line_of(mutant, line)?;
        Some(text.trim().to_owned())
    }

    /// The test that has noticed is good at once when nothing is broken: else it is the machine, or
    /// luck, and it would notice anything.
    pub(crate) fn try_whole(&self, test: &Test, log: &Path) -> Result<()> {
        let runs = if self.number == 0 { 0 } else { TRIES_MAX };
        for _ in 0..runs {
            if run(test, 0, log)?.0 == Ended::Passed {
                return Ok(());
            }
        }
        if runs > 0 {
            bail!("{} fails with nothing broken, too", test.name);
        }
        Ok(())
    }
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ended {
    Passed,
    Failed,
    /// It was stopped.
    TooLate,
    /// There is no such test, or it is ignored.
    NotRun,
}

/// Where a program says in its output that it panicked first: file and line.
fn panic_place(output: &str) -> Option<(&str, usize)> {
    let mut said = output.lines().filter_map(|line| line.strip_prefix("thread "));
    let (_, place) = said.find_map(|line| line.split_once("panicked at "))?;
    let mut parts = place.split(':');
    Some((parts.next()?, parts.next()?.parse().ok()?))
}

/// Runs a test with this mutant, 0 for none; gives the seconds that it took.
pub(crate) fn run(test: &Test, number: u32, log: &Path) -> Result<(Ended, f64)> {
    let begin = Instant::now();
    let output = File::create(log).with_context(|| log.display().to_string())?;
    let mut child = Command::new(&test.program)
        .args(["--exact", &test.name, "--test-threads=1"])
        .current_dir(&test.folder)
        .env("CARGO_MANIFEST_DIR", &test.folder)
        .env(switch::VARIABLE, number.to_string())
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0)
        .spawn()
        .with_context(|| test.program.display().to_string())?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if begin.elapsed() > LIMIT {
            break None;
        }
        thread::sleep(LOOK_INTERVAL);
    };
    if !status.is_some_and(|status| status.success()) {
        // Servers that it started are of its group, and would stay.
        let group = format!("-{}", child.id());
        let mut kill = Command::new("kill");
        drop(kill.args(["-KILL", "--", &group]).stderr(Stdio::null()).status());
    }
    if status.is_none() {
        child.wait()?;
    }
    let text = String::from_utf8_lossy(&std::fs::read(log)?).into_owned();
    let ended = match status {
        None => Ended::TooLate,
        Some(status) if !status.success() => Ended::Failed,
        Some(_) if text.contains("test result: ok. 1 passed") => Ended::Passed,
        Some(_) => Ended::NotRun,
    };
    Ok((ended, begin.elapsed().as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_panic_has_a_place() {
        for thread in ["'a::b'", "'a::b' (17)"] {
            let text = format!(
                "\nthread {thread} panicked at crates/a/src/b.rs:8:20:\nindex out of bounds\n\
                 thread 'c' panicked at crates/c/src/d.rs:9:1:\n"
            );
            assert_eq!(panic_place(&text), Some(("crates/a/src/b.rs", 8)));
        }
        assert_eq!(panic_place("test result: FAILED. 0 passed"), None);
    }
}
