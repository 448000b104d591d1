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
        output::line(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "kernel": report.kernel,
            "engine": chosen,
            "uring": uring,
            "crc32c": crc::tier().name(),
            "cpus": cpus,
        }));
        return Ok(());
    }
    output::table(&[
        vec!["version".into(), env!("CARGO_PKG_VERSION").into()],
        vec!["kernel".into(), report.kernel.clone()],
        vec!["engine".into(), format!("{chosen} (io_uring: {})", uring)],
        vec!["CRC32C".into(), crc::tier().name().into()],
        vec!["CPUs".into(), format!("{} allowed: {cpus:?}", cpus.len())],
        vec!["transport".into(), "TCP".into()],
    ]);
    Ok(())
}
