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
//!
//! Of a disk that comes and goes it is told once in some time, and not how often.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use clock::Instant;

/// When a silence of a disk was told, those that begin within this time are told only if they last
/// longer than it. Each is two lines, of each disk of a cluster.
const TOLD_FOR: Duration = Duration::from_secs(60);

/// The silences that are not over, and those that were told not long ago, by disk.
#[derive(Debug, Default)]
pub(crate) struct Silences(Mutex<BTreeMap<String, Silence>>);

#[derive(Debug)]
struct Silence {
    place: Place,
    since: Instant,
    /// Who has work of it that waits; nobody if it is over.
    reactors: Vec<usize>,
    is_busy: bool,
    /// When one of this disk was told last.
    told: Instant,
    /// This one was told.
    is_told: bool,
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
        let silences = self.0.lock().expect("no panic");
        silences.values().all(|silence| silence.reactors.is_empty())
    }

    /// These, and no others, are what `reactor` waits for.
    pub(crate) fn note(&self, reactor: usize, found: &[Found], now: Instant) -> Vec<News> {
        // What the lock guards is whole between any two statements.
        let mut silences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut news = Vec::new();
        for Found { place, since, is_busy } in found {
            let told = if *is_busy { News::Busy } else { News::Silent };
            let Some(silence) = silences.get_mut(&place.disk) else {
                news.push(told(place.clone()));
                let silence = Silence {
                    place: place.clone(),
                    since: *since,
                    reactors: vec![reactor],
                    is_busy: *is_busy,
                    told: now,
                    is_told: true,
                };
                silences.insert(place.disk.clone(), silence);
                continue;
            };
            if silence.reactors.is_empty() {
                (silence.since, silence.is_busy, silence.is_told) = (*since, false, false);
            }
            silence.since = silence.since.min(*since);
            if !silence.reactors.contains(&reactor) {
                silence.reactors.push(reactor);
            }
            let is_news = match silence.is_told {
                true => *is_busy && !silence.is_busy,
                false => now.since(silence.told) >= TOLD_FOR,
            };
            silence.is_busy |= is_busy;
            if is_news {
                (silence.told, silence.is_told) = (now, true);
                news.push(told(place.clone()));
            }
        }
        let found: BTreeSet<&str> = found.iter().map(|found| &*found.place.disk).collect();
        silences.retain(|disk, silence| {
            if silence.reactors.is_empty() {
                return now.since(silence.told) < TOLD_FOR;
            }
            if !found.contains(&**disk) {
                silence.reactors.retain(|one| *one != reactor);
            }
            if silence.reactors.is_empty() && silence.is_told {
                news.push(News::Over(silence.place.clone(), now.since(silence.since)));
            }
            true
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
        assert_eq!(silences.note(1, &[found("a", 100, false)], at(105)), [News::Silent(a)]);
    }

    /// A cluster that stops for some seconds, goes on for some, and so on, does not fill the log.
    #[test]
    fn a_disk_that_comes_and_goes_is_told_once_a_minute() {
        let silences = Silences::default();
        let mut told = 0;
        for minute in (0..600).step_by(4) {
            told += silences.note(0, &[found("a", minute, true)], at(minute + 2)).len();
            told += silences.note(0, &[], at(minute + 3)).len();
            assert!(silences.is_empty());
        }
        assert_eq!(told, 20, "two lines in each of ten minutes");
        // One that lasts is told, however soon it came.
        let last = |now| silences.note(0, &[found("a", 600, true)], at(now));
        assert!(last(601).is_empty());
        assert_eq!(last(602), [News::Busy(place("a"))]);
        assert_eq!(silences.note(0, &[], at(670)), [News::Over(place("a"), at(70).since(at(0)))]);
        // Nothing is kept of what is long over.
        assert!(silences.note(0, &[], at(800)).is_empty());
        assert!(silences.0.lock().expect("no panic").is_empty());
    }
}
