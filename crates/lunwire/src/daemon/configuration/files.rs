// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether files that are read stand still.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;

/// A file, and what it was at a look; None: there was none.
pub(super) type Seen = (PathBuf, Option<Metadata>);

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
pub(super) fn seen(path: &Path, named: &[PathBuf]) -> Result<Vec<Seen>> {
    let mut all = vec![(path.to_owned(), Some(facts(path)?))];
    all.extend(named.iter().map(|path| look(path)));
    Ok(all)
}

/// What is at `path` now.
pub(super) fn look(path: &Path) -> Seen {
    (path.to_owned(), std::fs::metadata(path).ok())
}

/// The first of `now` that was another one `before`, or not looked at.
pub(super) fn changed<'a>(before: &[Seen], now: &'a [Seen]) -> Option<&'a Path> {
    let stood = |(path, now): &Seen| {
        let known = before.iter().find(|(known, _)| known == path);
        known.is_some_and(|(_, known)| are_same(known.as_ref(), now.as_ref()))
    };
    now.iter().find(|one| !stood(one)).map(|(path, _)| path.as_path())
}

/// None: there is no file.
fn are_same(one: Option<&Metadata>, other: Option<&Metadata>) -> bool {
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
