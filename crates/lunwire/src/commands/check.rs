// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire check FILE`.

use anyhow::Context;
use anyhow::Result;
use control::words;
use serde_json::json;

use crate::args::CheckOptions;
use crate::output;
use crate::plan::DEFAULT_STORE;
use crate::plan::DEFAULT_TARGET;
use crate::plan::Draft;

/// Validates a configuration and looks at what it names and needs; nothing is written to or locked,
/// no name is made, and nothing is listened on.
pub(crate) fn run(options: &CheckOptions) -> Result<()> {
    let draft = Draft::from_file(&options.file)?;
    let mut warnings = draft.warnings();
    warnings.iter().for_each(output::warn);
    let odd = draft.examine_files().with_context(|| options.file.display().to_string())?;
    odd.iter().for_each(output::warn);
    warnings.extend(odd);
    draft.examine_machine().with_context(|| options.file.display().to_string())?;
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
