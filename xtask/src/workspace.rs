// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the workspace lies and which files belong to it.

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

/// A text file of the workspace.
#[derive(Debug)]
pub(crate) struct File {
    /// Relative to the workspace, with `/`.
    pub(crate) path: String,
    /// Its contents.
    pub(crate) text: String,
}

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Standard output of a program that ran in the workspace.
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// A text file of the workspace; None: there is none.
pub(crate) fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(root().join(path)).ok()
}

/// The path of every file that git tracks or would track.
pub(crate) fn paths() -> Result<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listing = output_of("git", &arguments)?;
    Ok(listing.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// Every UTF-8 file that git tracks or would track, generated ones left out.
pub(crate) fn files() -> Result<Vec<File>> {
    let mut files = Vec::new();
    for path in paths()?.iter().filter(|path| !path.ends_with(".lock")) {
        // A file that was deleted but not yet from the index.
        let Ok(bytes) = std::fs::read(root().join(path)) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path: path.clone(), text });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
    Ok(files)
}
