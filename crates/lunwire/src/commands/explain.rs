// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire explain`.

use anyhow::Result;
use serde_json::json;

use crate::args::ExplainOptions;
use crate::output;

/// What this machine offers, what would be chosen, and why.
pub(crate) fn run(options: &ExplainOptions) -> Result<()> {
    let report = engine::probe();
    let chosen = report.choice.name();
    let uring = match &report.uring {
        Ok(features) => (*features).to_owned(),
        Err(refusal) => refusal.to_string(),
    };
    let cpus = engine::affinity::allowed_cpus();
    if options.json {
        output::result(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "kernel": report.kernel,
            "engine": chosen,
            "uring": uring,
            "crc32c": crc::tier().name(),
            "cpus": cpus,
            "mode": "smp",
            "amp": amp(cpus.len()),
        }));
        return Ok(());
    }
    output::table(&[
        vec!["version".into(), env!("CARGO_PKG_VERSION").into()],
        vec!["kernel".into(), report.kernel.clone()],
        vec!["engine".into(), format!("{chosen} (io_uring: {})", uring)],
        vec!["CRC32C".into(), crc::tier().name().into()],
        vec!["CPUs".into(), format!("{} allowed: {cpus:?}", cpus.len())],
        vec!["mode".into(), format!("smp; {}", amp(cpus.len()))],
        vec!["transport".into(), "TCP".into()],
    ]);
    Ok(())
}

/// When `--mode amp` pays. More reactors are the better use of CPUs as long as there are sessions
/// for them: a polling core adds a hand-over to each command, and takes the work on sockets, which
/// is most of it, from one reactor.
fn amp(cpus: usize) -> &'static str {
    match cpus {
        0..=2 => {
            "--mode amp does not pay with fewer than 3 CPUs: its polling core needs one for itself"
        }
        _ => {
            "--mode amp pays where one session keeps one reactor busy and CPUs are idle: a polling \
             core takes the work on sockets from it; for many sessions --reactors is better"
        }
    }
}
