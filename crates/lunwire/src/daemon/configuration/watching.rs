// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks at the files of a daemon from time to time.

use std::fs::Metadata;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;

use super::Configuration;
use super::LOOK;
use super::files::Seen;
use super::files::changed;
use super::files::facts;
use super::files::is_same;
use super::files::look;
use crate::daemon::periodic::Periodic;
use crate::output;

/// So many files that a configuration names are looked at in one look, which takes a millisecond
/// or two; more have their turn at the next ones.
const FILES_AT_A_LOOK: usize = 1000;

/// # Errors
/// The file of `configuration` cannot be looked at.
pub(crate) fn expect_file(configuration: &Configuration) -> Result<()> {
    let file = configuration.options.config.as_deref();
    file.map_or(Ok(()), |path| facts(path).map(drop).context("--watch"))
}

/// Looks whether the file of `configuration` has changed, or one that it names, and calls `tell`
/// with what has if it has, until it is dropped. None: there is no file.
pub(crate) fn watch(
    configuration: &Arc<Configuration>,
    tell: impl Fn(&str) + Send + 'static,
) -> Result<Option<Periodic>> {
    let Some(path) = configuration.options.config.clone() else { return Ok(None) };
    let configuration = Arc::clone(configuration);
    let (mut seen, mut told): (Option<Metadata>, Option<String>) = (None, None);
    let mut warn = move |error: Option<&anyhow::Error>| {
        let text = error.map(output::chain);
        if let Some(text) = text.as_ref().filter(|_| told != text) {
            tracing::warn!("the configuration stays as it is: {text}");
        }
        told = text;
    };
    let mut named = Named::default();
    let look = move || {
        // Who has it in hand reads them.
        let as_read = configuration.now.try_lock().map(|now| Arc::clone(&now.named));
        if let Some(path) = as_read.ok().and_then(|as_read| named.look(&as_read)) {
            tell(&format!("{} has changed", path.display()));
        }
        let now = match facts(&path) {
            Ok(now) => now,
            Err(error) => return warn(Some(&error)),
        };
        if seen.as_ref().is_some_and(|seen| is_same(seen, &now)) {
            return;
        }
        match configuration.is_as_read(&path) {
            // It is looked at again.
            None => {}
            Some(Err(error)) => warn(Some(&error)),
            Some(Ok(is_as_read)) => {
                warn(None);
                seen = Some(now);
                match is_as_read {
                    // What else has changed may have been refused for what it said meanwhile.
                    true => named.told.clear(),
                    false => tell("it has changed"),
                }
            }
        }
    };
    Periodic::start("configuration", LOOK, look).map(Some)
}

/// The files that a configuration names: secrets, tokens, certificates. Some come one after the
/// other, and belong together.
#[derive(Debug, Default)]
struct Named {
    /// As they were when they were read.
    as_read: Arc<Vec<Seen>>,
    /// As far as this look, or one before it, has come.
    now: Vec<Seen>,
    /// As they were when all were looked at last.
    seen: Vec<Seen>,
    /// Those that were told of last: they may be no good.
    told: Vec<Seen>,
}

impl Named {
    /// One that is another one than was read, where all of them stand still. `as_read`: the same
    /// ones, until they are read again.
    fn look(&mut self, as_read: &Arc<Vec<Seen>>) -> Option<PathBuf> {
        if !Arc::ptr_eq(&self.as_read, as_read) {
            *self = Self { as_read: Arc::clone(as_read), ..Self::default() };
        }
        let rest = as_read.iter().skip(self.now.len());
        self.now.extend(rest.take(FILES_AT_A_LOOK).map(|(path, _)| look(path)));
        if self.now.len() < as_read.len() {
            return None;
        }
        let now = std::mem::take(&mut self.now);
        let stands = changed(&self.seen, &now).is_none();
        let is_told = changed(&self.told, &now).is_none();
        let other = changed(as_read, &now).filter(|_| stands && !is_told).map(Path::to_owned);
        if other.is_some() {
            self.told.clone_from(&now);
        }
        self.seen = now;
        other
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    /// However many there are, a look takes no longer.
    #[test]
    fn many_files_are_looked_at_one_after_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let at = |number: usize| folder.path().join(number.to_string());
        let many = 2 * FILES_AT_A_LOOK + 1;
        let as_read: Vec<Seen> = (0..many).map(|number| look(&at(number))).collect();
        let as_read = Arc::new(as_read);
        let mut named = Named::default();
        let looks = |named: &mut Named, most: usize| {
            (1..=most).find_map(|count| named.look(&as_read).map(|path| (count, path)))
        };
        assert_eq!(looks(&mut named, 9), None);
        std::fs::write(at(many - 1), "new").unwrap();
        // Once to see it, once more to see that it stands still.
        let last = as_read.last().unwrap().0.clone();
        assert_eq!(looks(&mut named, 9), Some((6, last)));
        assert_eq!(looks(&mut named, 9), None, "it is told once");
        let read = Arc::new(as_read.iter().map(|(path, _)| look(path)).collect());
        assert_eq!((0..9).find_map(|_| named.look(&read)), None);
    }
}
