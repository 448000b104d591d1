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

use crate::proofs::killers::Test;

/// By which a process is told its mutant.
pub(crate) const SWITCH: &str = "LUNWIRE_MUTANT";
/// A test that takes longer has noticed: the slowest ones take a minute on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// How often a test is asked whether it is done.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

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

/// Runs a test with this mutant, 0 for none; gives the seconds that it took.
pub(crate) fn run(test: &Test, number: u32, log: &Path) -> Result<(Ended, f64)> {
    let begin = Instant::now();
    let output = File::create(log).with_context(|| log.display().to_string())?;
    let mut child = Command::new(&test.program)
        .args(["--exact", &test.name, "--test-threads=1"])
        .current_dir(&test.folder)
        .env("CARGO_MANIFEST_DIR", &test.folder)
        .env(SWITCH, number.to_string())
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
