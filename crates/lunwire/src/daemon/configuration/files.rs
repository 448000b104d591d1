// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether files that are read stand still.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;

/// # Errors
/// It cannot be looked at, or is nothing that can be read twice.
pub(super) fn facts(path: &Path) -> Result<Metadata> {
    let shown = path.display();
    let facts = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?;
    match facts.is_file() {
        true => Ok(facts),
        false => Err(anyhow!("{shown} is no file, and cannot be read again; try: a file")),
    }
}

/// What the file at `path` is now, and those that it has `named`; None: one is not there.
///
/// # Errors
/// As [`facts`].
pub(super) fn seen(path: &Path, named: &[PathBuf]) -> Result<Vec<(PathBuf, Option<Metadata>)>> {
    let named = named.iter().map(|path| (path.clone(), std::fs::metadata(path).ok()));
    let mut all = vec![(path.to_owned(), Some(facts(path)?))];
    all.extend(named);
    Ok(all)
}

/// The first of `now` that was another one `before`, or not looked at.
pub(super) fn changed<'a>(
    before: &[(PathBuf, Option<Metadata>)],
    now: &'a [(PathBuf, Option<Metadata>)],
) -> Option<&'a Path> {
    let stood = |(path, now): &(PathBuf, Option<Metadata>)| {
        let known = before.iter().find(|(known, _)| known == path);
        known.is_some_and(|(_, known)| are_same(known.as_ref(), now.as_ref()))
    };
    now.iter().find(|one| !stood(one)).map(|(path, _)| path.as_path())
}

/// None: there is no file.
pub(super) fn are_same(one: Option<&Metadata>, other: Option<&Metadata>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => is_same(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

pub(super) fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let of = |facts: &Metadata| {
        (facts.dev(), facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec())
    };
    of(one) == of(other)
}
