// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire lab`: published studies, re-run.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use clap::Subcommand;
use serde_json::json;

use crate::args::AmpOptions;
use crate::args::Fast05Options;
use crate::args::LabAction;
use crate::args::LabOptions;
use crate::args::Study;
use crate::args::UnhOptions;
use crate::args::Usage;
use crate::client::outfile::Outfile;
use crate::output;
use crate::plan::allowed_cpu;
use crate::plan::option;

/// What a study of PDUs of 8 KiB and commands of at most 64 KiB takes, bytes.
const SIZES: RangeInclusive<u32> = 512..=64 << 10;

/// What a run may last: long enough to count, short enough to repeat.
const TIMES: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(10);

/// Runs the study, prints its tables and writes its page.
pub(crate) fn run(options: &LabOptions) -> Result<()> {
    match &options.action {
        LabAction::List { json } => {
            list(*json);
            Ok(())
        }
        LabAction::Run(Study::Fast05(options)) => fast05(options),
        LabAction::Run(Study::Amp(options)) => amp(options),
        LabAction::Run(Study::Unh(options)) => unh(options),
    }
}

/// The studies as the help texts name them.
fn list(json: bool) {
    let studies = Study::augment_subcommands(clap::Command::new("run"));
    let rows = studies.get_subcommands().map(|study| {
        let about = study.get_about().map(ToString::to_string).unwrap_or_default();
        vec![study.get_name().to_owned(), about]
    });
    let rows: Vec<_> = rows.collect();
    if json {
        let named = |row: &Vec<String>| json!({ "name": row.first(), "about": row.get(1) });
        output::result(json!({ "studies": rows.iter().map(named).collect::<Vec<_>>() }));
    } else {
        output::table(&rows);
    }
}

fn fast05(options: &Fast05Options) -> Result<()> {
    let size_max = store::spec::parse_bytes(&options.size_max)
        .ok()
        .and_then(|bytes| u32::try_from(bytes).ok())
        .filter(|bytes| SIZES.contains(bytes));
    let Some(size_max) = size_max else {
        let given = &options.size_max;
        return Err(Usage(format!("--size-max {given}: from 512 to 64K, such as 8K")).into());
    };
    if let Some(cpu) = options.cpu {
        option("--cpu", cpu, allowed_cpu(cpu))?;
    }
    let cpu = options.cpu.or_else(|| engine::affinity::allowed_cpus().last().copied());
    if let Some(cpu) = cpu {
        engine::affinity::pin(cpu).with_context(|| {
            format!("cannot run on processor {cpu}; try one of those of `lunwire explain`")
        })?;
    }
    let out = prepare(&options.out)?;
    let report =
        lab::fast05::run(&lab::fast05::Options { rounds: options.rounds.into(), size_max })?;
    publish(&report, &options.out, out)
}

fn amp(options: &AmpOptions) -> Result<()> {
    let time = time(&options.time, "700ms")?;
    let out = prepare(&options.out)?;
    let report = lab::amp::run(&lab::amp::Options { rounds: options.rounds.into(), time })?;
    publish(&report, &options.out, out)
}

fn unh(options: &UnhOptions) -> Result<()> {
    let time = time(&options.time, "100ms")?;
    let usual = if options.quick { 1 } else { lab::unh::Options::default().rounds };
    let rounds = options.rounds.map_or(usual, usize::from);
    let out = prepare(&options.out)?;
    let report = lab::unh::run(&lab::unh::Options { rounds, time, quick: options.quick })?;
    publish(&report, &options.out, out)
}

/// What one run lasts.
fn time(given: &str, such_as: &str) -> Result<Duration> {
    let time = control::units::duration(given).ok().filter(|time| TIMES.contains(time));
    time.ok_or_else(|| Usage(format!("--time {given}: from 50ms to 10s, such as {such_as}")).into())
}

/// Makes the folder of a report, and sees that its page can be written there.
fn prepare(folder: &Path) -> Result<Outfile> {
    expect_report_or_nothing(folder)?;
    let made = std::fs::create_dir_all(folder).map_err(anyhow::Error::from);
    made.and_then(|()| Outfile::open(&folder.join(lab::PAGE))).with_context(|| cannot(folder))
}

/// Fails where a report would replace what is none.
fn expect_report_or_nothing(folder: &Path) -> Result<()> {
    if lab::is_report(folder) {
        return Ok(());
    }
    let holds = |name: &str| {
        std::fs::metadata(folder.join(name)).is_ok_and(|found| !found.is_file() || found.len() > 0)
    };
    match [lab::PAGE, lab::RESULTS].into_iter().find(|name| holds(name)) {
        None => Ok(()),
        Some(name) => bail!(
            "{} exists and is of no report; try: another folder with --out",
            folder.join(name).display()
        ),
    }
}

fn cannot(folder: &Path) -> String {
    let folder = folder.display();
    format!("cannot write the report to {folder}; name another folder with --out")
}

/// Prints a report and writes its page, for which `out` held the place.
fn publish(report: &lab::Report, folder: &Path, out: Outfile) -> Result<()> {
    output::line(report.text());
    drop(out);
    let page = report.write(folder).with_context(|| cannot(folder))?;
    output::line(format!("report: {}", page.display()));
    Ok(())
}
