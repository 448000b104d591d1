// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A copy of the workspace, in which something is broken.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;

use crate::workspace;

/// Copies what belongs to the workspace, and nothing else is there then, but that the files of
/// `instead` have these contents; files that have not changed keep their times.
pub(crate) fn write(tree: &Path, instead: &BTreeMap<String, String>) -> Result<()> {
    let root = workspace::root();
    let paths = workspace::paths()?;
    let kept = paths.iter().chain(instead.keys()).map(PathBuf::from).collect();
    prune(tree, tree, &kept)?;
    for path in paths.iter().filter(|path| !instead.contains_key(*path)) {
        let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
        renew(tree, path, &bytes)?;
    }
    instead.iter().try_for_each(|(path, text)| renew(tree, path, text.as_bytes()))
}

/// Writes one file of a copy, unless it has these contents.
pub(crate) fn renew(tree: &Path, path: &str, bytes: &[u8]) -> Result<()> {
    let to = tree.join(path);
    if std::fs::read(&to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let folder = to.parent().context("a file is in a folder")?;
    std::fs::create_dir_all(folder)?;
    std::fs::write(&to, bytes).with_context(|| to.display().to_string())
}

/// Removes the files below `folder` that are not among `paths`, which are below `tree`.
fn prune(tree: &Path, folder: &Path, paths: &HashSet<PathBuf>) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() {
            prune(tree, &path, paths)?;
            // One that is not empty stays.
            drop(std::fs::remove_dir(path));
        } else if path.strip_prefix(tree).is_ok_and(|below| !paths.contains(below)) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}
