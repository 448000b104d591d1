// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether files that are read stand still.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;
use anyhow::anyhow;

use crate::plan;

/// A file, and what it was at a look; None: there was none.
pub(super) type Seen = (PathBuf, Option<Metadata>);

/// # Errors
/// It cannot be looked at, or is nothing that can be read twice.
pub(super) fn facts(path: &Path) -> Result<Metadata> {
    let shown = path.display();
    let facts = std::fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow::Error::from(error).context(format!(
            "cannot read {shown}; try: lunwire dump > {shown}, which writes down what is served"
        )),
        _ => plan::unreadable(path, error),
    })?;
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
    // They come in one order, unless others are named by now.
    let mut in_order = before.iter();
    let mut stood = |(path, now): &Seen| {
        let of_path = |(known, _): &&Seen| known == path;
        let known = in_order.next().filter(of_path).or_else(|| before.iter().find(of_path));
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
    // Who writes may set the time of that, and who may read it is told by the other one alone.
    let of = |facts: &Metadata| {
        let times = [facts.mtime(), facts.mtime_nsec(), facts.ctime(), facts.ctime_nsec()];
        (facts.dev(), facts.ino(), facts.len(), times)
    };
    of(one) == of(other)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_with_the_time_and_length_of_the_one_before_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "old").unwrap();
        let before = vec![look(&path)];
        let time = before[0].1.as_ref().unwrap().modified().unwrap();
        // The clock of the kernel has ticks.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(changed(&before, &[look(&path)]), None);
        std::fs::write(&path, "new").unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        let written = vec![look(&path)];
        assert_eq!(changed(&before, &written), Some(path.as_path()));
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(changed(&written, &[look(&path)]), Some(path.as_path()), "who may read it");
    }

    #[test]
    fn files_are_found_in_any_order() {
        let paths = ["a", "b", "c"].map(PathBuf::from);
        let seen = |order: &[usize]| -> Vec<Seen> {
            order.iter().map(|at| (paths[*at].clone(), None)).collect()
        };
        assert_eq!(changed(&seen(&[0, 1, 2]), &seen(&[2, 0, 1])), None);
        assert_eq!(changed(&seen(&[0, 1, 2]), &seen(&[1, 2])), None);
        assert_eq!(changed(&seen(&[0, 2]), &seen(&[0, 1, 2])), Some(paths[1].as_path()));
    }
}
