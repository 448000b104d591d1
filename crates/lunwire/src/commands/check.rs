// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire check FILE`.

use std::path::Path;

use anyhow::Result;
use control::config::ConfigError;
use control::words;
use serde_json::json;

use crate::args::CheckOptions;
use crate::output;
use crate::plan::DEFAULT_STORE;
use crate::plan::DEFAULT_TARGET;
use crate::plan::Draft;
use crate::plan::Examination;

/// Validates a configuration and looks at what it names and needs; nothing is written to or locked,
/// no name is made, and nothing is listened on.
pub(crate) fn run(options: &CheckOptions) -> Result<()> {
    let (draft, unread) = Draft::from_file(&options.file)?;
    if !unread.is_empty() {
        // Disks and folders are looked at when it is known which there are.
        return refuse(&options.file, unread, options.json);
    }
    let mut warnings = draft.warnings();
    warnings.extend(draft.taken_portals());
    warnings.iter().for_each(output::warn);
    let Examination { odd, mut wrong } = draft.examine_files();
    odd.iter().for_each(output::warn);
    warnings.extend(odd);
    wrong.extend(draft.examine_machine());
    refuse(&options.file, wrong, options.json)?;
    let luns: usize = draft.targets.iter().map(|target| target.luns.len()).sum();
    if options.json {
        output::result(json!({
            "targets": draft.targets.len(),
            "luns": luns,
            "default_disk": draft.default_disk,
            "warnings": warnings,
        }));
    } else {
        let file = options.file.display();
        let targets = words::count(draft.targets.len() as u64, "target");
        let luns = words::count(luns as u64, "LUN");
        output::line(format!("{file}: good: {targets}, {luns}"));
        if draft.default_disk {
            let portals: Vec<String> = draft.listen.iter().map(ToString::to_string).collect();
            let portals = portals.join(", ");
            output::line(format!(
                "no [[target]]: {DEFAULT_TARGET} with a disk {DEFAULT_STORE} would be served at \
                 {portals}, to everybody who reaches it"
            ));
        }
    }
    Ok(())
}

/// Tells all that is wrong, the last one as the error of the command.
fn refuse(file: &Path, wrong: Vec<anyhow::Error>, json: bool) -> Result<()> {
    let name = file.display().to_string();
    let placed = |error: anyhow::Error| match error.downcast_ref::<ConfigError>() {
        Some(_) => error,
        None => error.context(name.clone()),
    };
    let mut wrong: Vec<_> = wrong.into_iter().map(placed).collect();
    let Some(last) = wrong.pop() else { return Ok(()) };
    let mut texts: Vec<String> = wrong.iter().map(output::error).collect();
    texts.push(output::masked(&output::chain(&last)));
    if json {
        output::partial(json!({
            "ok": false,
            "error": texts.first(),
            "errors": texts,
            "exit_status": 1,
        }));
    }
    Err(last)
}
