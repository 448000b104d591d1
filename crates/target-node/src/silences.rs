// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks whose stores do not answer, as all reactors of a target find them: each is told once, and
//! once more when it answers again.
//!
//! ```text
//!        found by a reactor              new operations are told BUSY
//! well ---------------------> silent ----------------------------------> busy
//!   ^                            |                                         |
//!   `------ found by none -------+-----------------------------------------'
//! ```

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use clock::Instant;

/// The silences that were told and are not over.
#[derive(Debug, Default)]
pub(crate) struct Silences(Mutex<Vec<Silence>>);

#[derive(Debug)]
struct Silence {
    place: Place,
    since: Instant,
    /// Who has work of it that waits.
    reactors: Vec<usize>,
    is_busy: bool,
}

/// What people know a disk by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) disk: String,
    pub(crate) target: Option<String>,
    pub(crate) lun: Option<u16>,
    pub(crate) store: String,
    /// Who does not answer.
    pub(crate) who: &'static str,
}

/// A disk that a reactor waits for.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) place: Place,
    /// When the oldest of what waits began.
    pub(crate) since: Instant,
    /// New operations are told BUSY.
    pub(crate) is_busy: bool,
}

/// What is new of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It does not answer.
    Silent(Place),
    /// Nor does it take what is new.
    Busy(Place),
    /// It answers again, after so long.
    Over(Place, Duration),
}

impl Silences {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().expect("no panic").is_empty()
    }

    /// These, and no others, are what `reactor` waits for.
    pub(crate) fn note(&self, reactor: usize, found: &[Found], now: Instant) -> Vec<News> {
        // What the lock guards is whole between any two statements.
        let mut silences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut news = Vec::new();
        for Found { place, since, is_busy } in found {
            let known = silences.iter_mut().find(|silence| silence.place.disk == place.disk);
            let Some(silence) = known else {
                let (place, since, is_busy) = (place.clone(), *since, *is_busy);
                let told = if is_busy { News::Busy } else { News::Silent };
                news.push(told(place.clone()));
                silences.push(Silence { place, since, reactors: vec![reactor], is_busy });
                continue;
            };
            silence.since = silence.since.min(*since);
            if !silence.reactors.contains(&reactor) {
                silence.reactors.push(reactor);
            }
            if *is_busy && !std::mem::replace(&mut silence.is_busy, true) {
                news.push(News::Busy(place.clone()));
            }
        }
        silences.retain_mut(|silence| {
            if found.iter().all(|found| found.place.disk != silence.place.disk) {
                silence.reactors.retain(|one| *one != reactor);
            }
            let is_over = silence.reactors.is_empty();
            if is_over {
                news.push(News::Over(silence.place.clone(), now.since(silence.since)));
            }
            !is_over
        });
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    fn found(disk: &str, since: u64, is_busy: bool) -> Found {
        Found { place: place(disk), since: at(since), is_busy }
    }

    fn place(disk: &str) -> Place {
        Place { disk: disk.to_owned(), ..Place::default() }
    }

    #[test]
    fn a_silence_is_told_once_and_its_end_when_no_reactor_waits_any_more() {
        let silences = Silences::default();
        let (a, b) = (place("a"), place("b"));
        let one = silences.note(0, &[found("a", 3, false)], at(8));
        assert_eq!(one, [News::Silent(a.clone())]);
        // By another reactor, which has waited for longer, and again by the first one.
        assert!(silences.note(1, &[found("a", 2, false)], at(8)).is_empty());
        assert!(silences.note(0, &[found("a", 3, false)], at(9)).is_empty());
        let more = silences.note(0, &[found("a", 3, true), found("b", 20, true)], at(25));
        assert_eq!(more, [News::Busy(a.clone()), News::Busy(b.clone())]);
        assert!(silences.note(0, &[found("a", 3, true), found("b", 20, true)], at(26)).is_empty());
        assert_eq!(silences.note(0, &[], at(28)), [News::Over(b, Duration::from_secs(8))]);
        assert_eq!(silences.note(1, &[], at(30)), [News::Over(a.clone(), Duration::from_secs(28))]);
        assert!(silences.note(1, &[], at(31)).is_empty());
        assert_eq!(silences.note(1, &[found("a", 40, false)], at(45)), [News::Silent(a)]);
    }
}
