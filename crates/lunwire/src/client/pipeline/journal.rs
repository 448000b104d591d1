// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a copy has come, in a file, so that it can go on after an interruption.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use serde_json::Value;
use serde_json::json;

/// The state of one copy.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    source: String,
    destination: String,
    length: u64,
    done: u64,
}

/// Longest state of a copy, bytes: two numbers, and two places of at most 4 KiB, each byte escaped.
const STATE_LEN_MAX: u64 = 64 << 10;

impl Journal {
    /// Reads what an interrupted copy has left, or begins.
    pub(crate) fn open(
        path: &Path,
        source: String,
        destination: String,
        length: u64,
    ) -> Result<Self> {
        let mut journal = Self { path: path.to_owned(), source, destination, length, done: 0 };
        let text = match engine::files::read_whole(path, STATE_LEN_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(journal),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let state: Value = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not the state of a copy", path.display()))?;
        let same = state["source"] == journal.source
            && state["destination"] == journal.destination
            && state["length"] == journal.length;
        let done = state["done"].as_u64().filter(|done| same && *done <= length);
        let Some(done) = done else {
            bail!(
                "{} is the state of another copy; remove it or name another file",
                path.display()
            );
        };
        journal.done = done;
        Ok(journal)
    }

    /// Bytes that need not be copied again.
    pub(crate) const fn done(&self) -> u64 {
        self.done
    }

    /// Notes that `done` bytes are on stable storage.
    pub(crate) fn keep(&mut self, done: u64) -> Result<()> {
        self.done = done;
        let state = json!({
            "source": self.source,
            "destination": self.destination,
            "length": self.length,
            "done": done,
        });
        let beside = self.path.with_extension("new");
        let cannot = || format!("cannot keep the state in {}", self.path.display());
        std::fs::write(&beside, state.to_string()).with_context(cannot)?;
        std::fs::rename(&beside, &self.path).with_context(cannot)
    }

    /// The copy is whole.
    pub(crate) fn remove(self) -> Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
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
        journal.keep(40).unwrap();
        assert_eq!(open("a", 100).unwrap().done(), 40);
        assert!(open("c", 100).unwrap_err().to_string().contains("another copy"));
        assert!(open("a", 101).is_err());
        std::fs::write(&path, "no json").unwrap();
        assert!(open("a", 100).unwrap_err().to_string().contains("not the state"));
        journal.remove().unwrap();
        assert_eq!(open("a", 100).unwrap().done(), 0);
    }
}
