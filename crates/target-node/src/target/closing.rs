// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a target: reactors, then files, then what is no file.

use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use super::Error;
use super::Target;
use crate::pump::Letter;

impl Target {
    /// Stops cleanly: no new connections; initiators are asked to log out and get `grace` for it;
    /// what is left is dropped with an asynchronous message; commands under way end; files are
    /// flushed.
    ///
    /// # Errors
    /// If a file cannot be flushed; all the rest is done first.
    pub fn stop(&self, grace: Duration) -> Result<(), Error> {
        let leaving = self.isns.leave();
        self.doors.close();
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Letter::Stop { grace });
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a reactor had panicked");
            }
        }
        // With the connections that nobody has taken: stations wait for the end of all.
        self.shared.mailboxes.iter().for_each(|mailbox| drop(mailbox.close()));
        self.stations.lock().unwrap_or_else(PoisonError::into_inner).clear();
        if let Some(leaving) = leaving {
            leaving.wait();
        }
        worst([self.flush(), self.finish_stores()])
    }

    /// Lets go of what is no file, of all disks at once: each may have to wait for what does not
    /// answer.
    pub(crate) fn finish_stores(&self) -> Result<(), Error> {
        let nodes = self.nodes();
        let units = nodes.all().iter().flat_map(|served| {
            let name = &served.node().name;
            served.luns().into_iter().map(move |(lun, unit)| (name, lun, unit))
        });
        let units: Vec<_> = units.collect();
        let ends: Vec<_> = units.iter().map(|(.., unit)| || unit.store().finish()).collect();
        let ends = side_by_side(&ends, thread::Builder::new);
        worst(units.iter().zip(ends).map(|((name, lun, _), end)| {
            let failed = |source| Error::Finish { target: (*name).clone(), lun: *lun, source };
            end.map_err(failed)
        }))
    }

    /// Brings what was written to the files of all disks to stable storage.
    ///
    /// # Errors
    /// If that is not certain of one of them; the last one is named.
    pub fn flush(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for file in self.files().all().into_iter().filter(|file| file.writable) {
            if let Err(source) = file.synced(|fd| engine::files::sync(fd)) {
                result = Err(Error::Flush { path: file.path, source });
            }
        }
        result
    }
}

/// The error that matters most: all are told, and one is given to whoever asks, who is not to hear
/// that nothing is lost where something may be.
fn worst(results: impl IntoIterator<Item = Result<(), Error>>) -> Result<(), Error> {
    let errors: Vec<Error> = results.into_iter().filter_map(Result::err).collect();
    if errors.len() > 1 {
        errors.iter().for_each(|error| tracing::error!("{error}"));
    }
    let is_harmless =
        |error: &Error| matches!(error, Error::Finish { source: store::Error::Silent, .. });
    errors.into_iter().min_by_key(is_harmless).map_or(Ok(()), Err)
}

/// What all of these give, each by a thread of its own; where none is to be had, before the next
/// one begins.
fn side_by_side<F: Fn() -> Result<(), store::Error> + Sync>(
    ends: &[F],
    new: impl Fn() -> thread::Builder,
) -> Vec<Result<(), store::Error>> {
    thread::scope(|scope| {
        let begun: Vec<_> =
            ends.iter().map(|end| new().spawn_scoped(scope, end).map_err(|_| end())).collect();
        let ended = begun.into_iter().map(|end| match end {
            // One that has panicked has said why.
            Ok(thread) => thread.join().unwrap_or(Err(store::Error::Internal)),
            Err(ended) => ended,
        });
        ended.collect()
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering;

    use super::*;

    fn closing(lun: u16, source: store::Error) -> Error {
        Error::Finish { target: "iqn.2026-01.com.example:a".to_owned(), lun, source }
    }

    #[test]
    fn of_two_errors_the_one_is_told_that_may_be_a_loss() {
        let (silent, lost) = (store::Error::Silent, store::Error::Write);
        for results in [[(1, silent), (2, lost)], [(2, lost), (3, silent)]] {
            let said = worst(results.map(|(lun, source)| Err(closing(lun, source))));
            let said = said.expect_err("two errors").to_string();
            assert!(said.contains("LUN 2") && said.contains("may be lost"), "{said}");
        }
        let flush =
            || Error::Flush { path: "/disk".to_owned(), source: io::ErrorKind::Other.into() };
        let said = worst([Err(closing(1, silent)), Err(flush())]).expect_err("two errors");
        assert!(said.to_string().contains("/disk"), "{said}");
        assert!(worst([Ok(()), Ok(())]).is_ok());
    }

    /// A machine without threads closes all disks, too.
    #[test]
    fn disks_are_closed_with_and_without_threads() {
        let closed = AtomicUsize::new(0);
        let ends: Vec<_> = (0..9)
            .map(|number| {
                let closed = &closed;
                move || {
                    closed.fetch_add(1, Ordering::Relaxed);
                    if number == 7 { Err(store::Error::Silent) } else { Ok(()) }
                }
            })
            .collect();
        let without = || thread::Builder::new().stack_size(1 << 60);
        for new in [thread::Builder::new as fn() -> thread::Builder, without] {
            let ended = side_by_side(&ends, new);
            assert_eq!(ended.iter().position(Result::is_err), Some(7));
            assert_eq!((ended.len(), closed.swap(0, Ordering::Relaxed)), (9, 9));
        }
    }
}
