// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a copy has come, in a file, so that it can go on after an interruption.

mod who;

use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use control::units;
use initiator::Queue;
use serde_json::Value;
use serde_json::json;
use tempfile::NamedTempFile;

use self::who::End;
use crate::client::place::Place;
use crate::client::place::expect_there;

/// The state of one copy.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    source: String,
    destination: String,
    length: u64,
    done: u64,
    /// What source and destination were when the state was kept; None: it is a new one.
    kept: Option<[Value; 2]>,
    /// What they are.
    ends: [Value; 2],
    /// The destination, where it is a file.
    file: Option<File>,
}

/// Whether the copy writes on, as far as the state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The destination changes from now on.
    Going,
    /// It stays as it is.
    Halted,
}

/// Longest state of a copy, bytes: two numbers, two places of at most 4 KiB, each byte escaped, and
/// the names that disks give themselves.
const STATE_LEN_MAX: u64 = 64 << 10;

/// Where the state of a copy cannot be.
const ANOTHER: &str = "try: --resume with another file";

impl Journal {
    /// Reads what an interrupted copy has left, or begins. The state is in no file that is copied.
    pub(crate) fn open(
        path: &Path,
        source: String,
        destination: String,
        length: u64,
    ) -> Result<Self> {
        for (what, place) in [("source", &source), ("destination", &destination)] {
            if is_same(path, place.as_ref()) {
                let path = path.display();
                bail!(
                    "{path} is the {what}; the state of the copy needs a file of its own; {ANOTHER}"
                );
            }
        }
        if let Some(folder) = folder_of(path) {
            expect_there(folder, &format!("cannot keep the state in {}", path.display()))?;
        }
        let (path, ends) = (path.to_owned(), [Value::Null, Value::Null]);
        let (kept, file) = (None, None);
        let mut journal = Self { path, source, destination, length, done: 0, kept, ends, file };
        let path = &journal.path;
        let text = match engine::files::read_whole(path, STATE_LEN_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(journal),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot read {}; {ANOTHER}", path.display()));
            }
        };
        let state: Value = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not the state of a copy; {ANOTHER}", path.display()))?;
        let done = state["done"].as_u64().filter(|done| *done <= length);
        let (Some(done), None) = (done, journal.differs(&state)) else {
            let path = path.display();
            let why = journal.differs(&state).unwrap_or_else(|| "it has more bytes".to_owned());
            bail!(
                "{path} is the state of another copy: {why}; try: with the same words as then, or \
                 another file; rm {path}, and the copy begins anew"
            );
        };
        let ends = [&state["from"], &state["to"]].map(Value::clone);
        if ends.iter().any(Value::is_null) && done > 0 {
            return Err(journal.refusal(
                "it is of an earlier version, and does not say which disks and files it is about",
            ));
        }
        (journal.done, journal.kept) = (done, Some(ends));
        Ok(journal)
    }

    /// What of the words and sizes is not as it was when `state` was kept.
    fn differs(&self, state: &Value) -> Option<String> {
        let words = [("source", &self.source), ("destination", &self.destination)];
        for (end, now) in words {
            if state[end] != **now {
                let was = state[end].as_str().unwrap_or("another one");
                return Some(format!("its {end} is {was}, and now {now}"));
            }
        }
        if state["length"] == self.length {
            return None;
        }
        let was = state["length"].as_u64().map_or_else(|| "another size".to_owned(), units::bytes);
        let (source, now) = (&self.source, units::bytes(self.length));
        Some(format!("the source {source} had {was}, and has {now} now"))
    }

    /// Fails if the copy would go on with another source, or another destination, than it began
    /// with.
    pub(crate) fn meet(&mut self, queue: &mut Queue, from: &Place, to: &Place) -> Result<()> {
        self.ends = [who::of(queue, from)?, who::of(queue, to)?];
        if let Place::File(local) = to {
            let twin = local.file().try_clone();
            self.file = Some(twin.with_context(|| format!("cannot keep {} open", to.name()))?);
        }
        let Some([source, destination]) = self.kept.as_ref().filter(|_| self.done > 0) else {
            return Ok(());
        };
        let [now_source, now_destination] = &self.ends;
        let changed = [
            (from, who::differs(source, now_source, End::Source)),
            (to, who::differs(destination, now_destination, End::Destination)),
        ];
        for (place, why) in changed {
            if let Some(why) = why {
                return Err(self.refusal(&format!("{} {why}", place.name())));
            }
        }
        Ok(())
    }

    /// Fails for a destination that the copy has begun with and that is gone, before a new one is
    /// made in its place.
    pub(crate) fn expect(&self, destination: &str) -> Result<()> {
        if self.done > 0 && matches!(Path::new(destination).try_exists(), Ok(false)) {
            return Err(self.refusal(&format!("{destination} is gone")));
        }
        Ok(())
    }

    /// Whether the destination was begun with by this very copy.
    pub(crate) fn has_begun_with(&self, to: &Place) -> bool {
        let [_, now] = &self.ends;
        let kept = self.kept.as_ref().is_some_and(|[_, destination]| {
            who::differs(destination, now, End::Destination).is_none()
        });
        kept && matches!(to, Place::File(_))
    }

    fn refusal(&self, why: &str) -> anyhow::Error {
        let path = self.path.display();
        anyhow::anyhow!(
            "cannot go on with the copy of which {path} is the state: {why}; nothing was written; \
             try: rm {path}, and the copy begins anew (--overwrite, where the destination is a \
             file)"
        )
    }

    /// Bytes that need not be copied again.
    pub(crate) const fn done(&self) -> u64 {
        self.done
    }

    /// Notes that `done` bytes are on stable storage.
    pub(crate) fn keep(&mut self, done: u64, pace: Pace) -> Result<()> {
        self.done = done;
        let cannot = || format!("cannot keep the state in {}; {ANOTHER}", self.path.display());
        let [from, to] = &mut self.ends;
        if let Some(file) = &self.file {
            *to = who::of_file(&file.metadata().with_context(cannot)?);
            if pace == Pace::Going && to["file"].is_array() {
                to["modified"] = Value::Null;
            }
        }
        let state = json!({
            "source": self.source,
            "destination": self.destination,
            "length": self.length,
            "done": done,
            "from": from,
            "to": to,
        });
        self.put(state.to_string().as_bytes())
            .with_context(|| format!("cannot keep the state in {}; {ANOTHER}", self.path.display()))
    }

    /// The new state takes the place of the old one, whole; its draft has a name that nobody had.
    fn put(&self, state: &[u8]) -> io::Result<()> {
        let folder = folder_of(&self.path).unwrap_or_else(|| Path::new("."));
        // The name of the draft is nothing to the user.
        let draft = NamedTempFile::new_in(folder).map_err(|error| io::Error::from(error.kind()));
        let mut draft = draft?;
        draft.write_all(state)?;
        draft.as_file().sync_all()?;
        draft.persist(&self.path)?;
        Ok(())
    }

    /// The copy is whole.
    pub(crate) fn remove(self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}

/// The folder that a path names.
fn folder_of(path: &Path) -> Option<&Path> {
    path.parent().filter(|folder| !folder.as_os_str().is_empty())
}

/// Whether two names are those of one file, which need not be there.
fn is_same(one: &Path, other: &Path) -> bool {
    if let (Ok(one), Ok(other)) = (fs::metadata(one), fs::metadata(other)) {
        return (one.dev(), one.ino()) == (other.dev(), other.ino());
    }
    let whole = |path: &Path| {
        let folder = fs::canonicalize(folder_of(path).unwrap_or_else(|| Path::new("."))).ok()?;
        Some(folder.join(path.file_name()?))
    };
    whole(one).is_some_and(|one| whole(other) == Some(one))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    #[test]
    fn only_the_same_copy_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let open =
            |source: &str, length| Journal::open(&path, source.to_owned(), "b".to_owned(), length);
        let mut journal = open("a", 100).unwrap();
        assert_eq!(journal.done(), 0);
        journal.ends = [json!({ "disk": ["naa.1"] }), json!({ "disk": ["naa.2"] })];
        journal.keep(40, Pace::Going).unwrap();
        assert_eq!(open("a", 100).unwrap().done(), 40);
        let other = |source, length| open(source, length).unwrap_err().to_string();
        assert!(other("c", 100).contains("another copy: its source is a, and now c; try: "));
        assert!(other("a", 1024).contains("the source a had 100 B, and has 1 KiB now"));
        assert!(other("a", 101).contains("another copy"));
        fs::write(&path, "no json").unwrap();
        assert!(open("a", 100).unwrap_err().to_string().contains("not the state"));
        let old = json!({ "source": "a", "destination": "b", "length": 100, "done": 40 });
        fs::write(&path, old.to_string()).unwrap();
        let text = open("a", 100).unwrap_err().to_string();
        assert!(text.contains("earlier version") && text.contains("try: rm "), "{text}");
        journal.remove().unwrap();
        assert_eq!(open("a", 100).unwrap().done(), 0);
    }

    #[test]
    fn nobody_elses_file_is_written_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let text = |name: &str| path(name).to_string_lossy().into_owned();
        fs::write(path("a.new"), "image").unwrap();
        let mut journal = Journal::open(&path("a.state"), text("a.new"), text("b"), 100).unwrap();
        journal.keep(40, Pace::Going).unwrap();
        journal.keep(50, Pace::Going).unwrap();
        journal.remove().unwrap();
        assert_eq!(fs::read(path("a.new")).unwrap(), b"image");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
        for (state, source, destination) in
            [("a.new", "a.new", "b"), ("b", "a.new", "b"), ("./b", "a.new", "b")]
        {
            let state = path(state);
            let refused = Journal::open(&state, text(source), text(destination), 100).unwrap_err();
            assert!(refused.to_string().contains("a file of its own"), "{refused}");
        }
    }
}
