// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire lab`: published studies, re-run.

use anyhow::Context;
use anyhow::Result;

use crate::args::Fast05Options;
use crate::args::LabAction;
use crate::args::LabOptions;
use crate::args::Study;
use crate::args::Usage;
use crate::output;

/// What a study of PDUs of 8 KiB and commands of at most 64 KiB takes, bytes.
const SIZES: std::ops::RangeInclusive<u32> = 512..=64 << 10;

/// Runs the study, prints its tables and writes its page.
pub(crate) fn run(options: &LabOptions) -> Result<()> {
    match &options.action {
        LabAction::Run(Study::Fast05(options)) => fast05(options),
    }
}

fn fast05(options: &Fast05Options) -> Result<()> {
    let size_max = control::units::size(&options.size_max)
        .ok()
        .and_then(|bytes| u32::try_from(bytes).ok())
        .filter(|bytes| SIZES.contains(bytes));
    let Some(size_max) = size_max else {
        let given = &options.size_max;
        return Err(Usage(format!("--size-max {given}: from 512 to 64K, such as 8K")).into());
    };
    let cpu = options.cpu.or_else(|| engine::affinity::allowed_cpus().last().copied());
    if let Some(cpu) = cpu {
        engine::affinity::pin(cpu).with_context(|| {
            format!("cannot run on processor {cpu}; try one of those of `lunwire explain`")
        })?;
    }
    let report =
        lab::fast05::run(&lab::fast05::Options { rounds: options.rounds.into(), size_max })?;
    output::line(report.text());
    let folder = options.out.display();
    let page = report.write(&options.out).with_context(|| {
        format!("cannot write the report to {folder}; name another folder with --out")
    })?;
    output::line(format!("report: {}", page.display()));
    Ok(())
}
