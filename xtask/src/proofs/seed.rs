// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gives the copy what the workspace has built of foreign packages: they are the same.

use std::path::Path;

use anyhow::Context;
use anyhow::Result;

/// What Cargo has of a build.
const FOLDERS: [&str; 3] = [".fingerprint", "build", "deps"];
/// Our own packages, which are built anew: as their names begin in these folders.
const OWN: [&str; 4] = ["lunwire", "liblunwire", "xtask", "libxtask"];

/// Links into `target` what is of foreign packages in `from`, if nothing is there yet.
pub(crate) fn seed(from: &Path, target: &Path) -> Result<()> {
    if target.exists() {
        return Ok(());
    }
    for folder in FOLDERS {
        let there = from.join("debug").join(folder);
        if there.is_dir() {
            link(&there, &target.join("debug").join(folder), true)?;
        }
    }
    Ok(())
}

fn link(from: &Path, to: &Path, is_top: bool) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name();
        let own = OWN.iter().any(|own| name.to_string_lossy().starts_with(own));
        if is_top && own {
            continue;
        }
        if entry.file_type()?.is_dir() {
            link(&entry.path(), &to.join(&name), false)?;
        } else if std::fs::hard_link(entry.path(), to.join(&name)).is_err() {
            // Another disk, or gone since.
            drop(std::fs::copy(entry.path(), to.join(&name)));
        }
    }
    Ok(())
}
