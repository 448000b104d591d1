// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the CRC32C kernels beside ISA-L and the crates `crc32c` and `crc-fast`, and copying
//! with CRC beside memcpy; called by `bench/crc/run`.
#![deny(unsafe_code)]

mod copying;
mod digest;
#[allow(unsafe_code)] // a library in C
mod isal;
mod report;
mod timing;

use report::Report;
use std::process::ExitCode;
use timing::Effort;

const USAGE: &str = "\
usage: bench/crc/run [--runs N] [--ms-each MS] [--only digest|warm|cold|alignment]
  --runs N       runs of each case, alternating; medians count (7)
  --ms-each MS   length of a run (4)
  --only PART    one part alone";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((effort, only)) = parse(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if !isal::is_here() {
        eprintln!("bench/crc: without ISA-L, which is not installed (Debian: libisal2)");
    }
    let mut report = Report::new(effort);
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if wanted("digest") {
        digest::measure(effort, &mut report);
    }
    if wanted("warm") {
        copying::measure_warm(effort, &mut report);
    }
    if wanted("alignment") {
        copying::measure_alignments(effort, &mut report);
    }
    if wanted("cold") {
        copying::measure_cold(effort, &mut report);
    }
    match report.write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench/crc: cannot write {}: {error}", report::FILE);
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Option<(Effort, Option<String>)> {
    let mut effort = Effort { runs: 7, ms_each: 4 };
    let mut only = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--runs" => effort.runs = value.parse().ok().filter(|runs| *runs > 0)?,
            "--ms-each" => effort.ms_each = value.parse().ok().filter(|ms| *ms > 0)?,
            "--only" => only = Some(value.clone()),
            _ => return None,
        }
    }
    Some((effort, only))
}
