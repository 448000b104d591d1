// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds what one peer, or one disk that fails, can cause to be logged in a second.
//!
//! Events say whom they are about in a field `peer`, `initiator` or `disk`; others are ours and
//! always pass. What goes well, what does not, and logins that are refused have a bound each: a
//! busy host hides neither its troubles nor one that tries secrets.

use std::collections::HashMap;
use std::fmt;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use tracing::Event;
use tracing::Level;
use tracing::Metadata;
use tracing::Subscriber;
use tracing::field::Field;
use tracing::field::Visit;
use tracing_subscriber::layer::Context;
use tracing_subscriber::layer::Filter;

/// Lines of one kind about one of them in a second: enough for a login, its end and some trouble
/// between.
const LINES_PER_SECOND: u32 = 20;

/// Of commands that it aborts: an initiator whose disk is slow aborts all that it has there, one by
/// one.
const ABORTS_PER_SECOND: u32 = 1;

const SECOND: Duration = Duration::from_secs(1);

/// How many are told apart; further ones share a place.
const KNOWN_MAX: usize = 1024;

/// Who has no place of its own.
const OTHERS: &str = "others";

/// Who has been talked about lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moderation(Arc<Mutex<HashMap<Kind, HashMap<String, Window>>>>);

/// What a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Somebody was not let in.
    Refusal,
    /// A host has waited for too long for a command.
    Abort,
    /// Something else is wrong.
    Trouble,
    /// Nothing is wrong.
    Other,
}

impl Kind {
    fn of(metadata: &Metadata<'_>) -> Self {
        match target::Event::of_name(metadata.name()) {
            Some(target::Event::Refusal) => Self::Refusal,
            Some(target::Event::Abort) => Self::Abort,
            _ if *metadata.level() <= Level::WARN => Self::Trouble,
            _ => Self::Other,
        }
    }

    const fn lines_per_second(self) -> u32 {
        match self {
            Self::Abort => ABORTS_PER_SECOND,
            Self::Refusal | Self::Trouble | Self::Other => LINES_PER_SECOND,
        }
    }

    /// The lines that were left out.
    pub(crate) const fn left_out(self) -> &'static str {
        match self {
            Self::Refusal => "refused logins of this peer left out",
            Self::Abort => "commands besides that this peer has ended by ABORT TASK",
            Self::Trouble => "warnings about this peer or disk left out",
            Self::Other => "lines about this peer or disk left out",
        }
    }
}

#[derive(Debug)]
struct Window {
    since: Instant,
    told: u32,
    left_out: u64,
}

impl Moderation {
    fn windows(&self) -> MutexGuard<'_, HashMap<Kind, HashMap<String, Window>>> {
        // Whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if there may be another line of this kind about `whom`.
    fn admits(&self, kind: Kind, whom: &str, now: Instant) -> bool {
        let mut windows = self.windows();
        let windows = windows.entry(kind).or_default();
        let is_known = windows.contains_key(whom) || windows.len() < KNOWN_MAX;
        let whom = if is_known { whom } else { OTHERS };
        let window = windows.entry(whom.to_owned());
        let window = window.or_insert(Window { since: now, told: 0, left_out: 0 });
        if now.saturating_duration_since(window.since) >= SECOND {
            (window.since, window.told) = (now, 0);
        }
        if window.told >= kind.lines_per_second() {
            window.left_out += 1;
            return false;
        }
        window.told += 1;
        true
    }

    /// Nobody has been talked about lately: no line is left out before another one is told.
    pub(crate) fn is_quiet(&self) -> bool {
        self.windows().values().all(HashMap::is_empty)
    }

    /// Of whom how many lines were left out since the last time; who is quiet is forgotten.
    pub(crate) fn take_left_out(&self) -> Vec<LeftOut> {
        let mut left_out = Vec::new();
        let now = Instant::now();
        for (kind, windows) in self.windows().iter_mut() {
            windows.retain(|whom, window| {
                if window.left_out > 0 {
                    let lines = std::mem::take(&mut window.left_out);
                    left_out.push(LeftOut { kind: *kind, whom: whom.clone(), lines });
                }
                now.saturating_duration_since(window.since) < SECOND
            });
        }
        left_out
    }
}

/// What was not told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) kind: Kind,
    pub(crate) whom: String,
    pub(crate) lines: u64,
}

impl<S: Subscriber> Filter<S> for Moderation {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let mut about = About::default();
        event.record(&mut about);
        match about.whom() {
            Some(whom) => self.admits(Kind::of(event.metadata()), whom, Instant::now()),
            None => true,
        }
    }
}

/// Whom an event is about.
#[derive(Debug, Default)]
struct About {
    peer: Option<String>,
    other: Option<String>,
}

impl About {
    /// The address says most: names cost nothing.
    fn whom(&self) -> Option<&str> {
        self.peer.as_deref().or(self.other.as_deref())
    }
}

impl Visit for About {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let of = match field.name() {
            "peer" => &mut self.peer,
            "initiator" | "disk" => &mut self.other,
            _ => return,
        };
        let mut text = String::new();
        if write!(text, "{value:?}").is_ok() {
            // Each connection has another port.
            let address = text.parse::<SocketAddr>();
            *of = Some(address.map_or(text, |address| address.ip().to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_share_of_each_second() {
        let moderation = Moderation::default();
        let begin = Instant::now();
        let admitted = |kind, whom: &str, now: Instant| {
            (0..100).filter(|_| moderation.admits(kind, whom, now)).count()
        };
        assert_eq!(admitted(Kind::Other, "a", begin), 20);
        assert_eq!(admitted(Kind::Other, "b", begin), 20);
        assert_eq!(admitted(Kind::Other, "a", begin + SECOND / 2), 0);
        assert_eq!(admitted(Kind::Refusal, "a", begin + SECOND / 2), 20);
        assert_eq!(admitted(Kind::Trouble, "a", begin + SECOND / 2), 20);
        assert_eq!(admitted(Kind::Abort, "a", begin + SECOND / 2), 1);
        assert_eq!(admitted(Kind::Other, "a", begin + SECOND), 20);
        let left_out = moderation.take_left_out();
        let lines = |kind, whom: &str| {
            left_out.iter().find(|one| one.kind == kind && one.whom == whom).map(|one| one.lines)
        };
        assert_eq!(lines(Kind::Other, "a"), Some(260));
        assert_eq!(lines(Kind::Other, "b"), Some(80));
        assert_eq!(lines(Kind::Refusal, "a"), Some(80));
        assert_eq!(lines(Kind::Trouble, "a"), Some(80));
        assert_eq!(lines(Kind::Abort, "a"), Some(99));
        assert_eq!((left_out.len(), moderation.take_left_out().len()), (5, 0));
    }

    #[test]
    fn who_is_quiet_is_forgotten() {
        let moderation = Moderation::default();
        assert!(moderation.is_quiet());
        let now = Instant::now();
        assert!(moderation.admits(Kind::Other, "a", now + SECOND));
        moderation.take_left_out();
        assert!(!moderation.is_quiet());
        let moderation = Moderation::default();
        assert!(moderation.admits(Kind::Other, "a", now.checked_sub(SECOND).unwrap_or(now)));
        moderation.take_left_out();
        assert!(moderation.is_quiet());
    }

    #[test]
    fn strangers_share_a_place_when_there_are_many() {
        let moderation = Moderation::default();
        let now = Instant::now();
        let admitted = |peer: &usize| moderation.admits(Kind::Other, &peer.to_string(), now);
        assert!((0..KNOWN_MAX * 2).filter(admitted).count() <= KNOWN_MAX + 20);
        assert!(moderation.windows()[&Kind::Other].len() <= KNOWN_MAX + 1);
        assert!(moderation.admits(Kind::Refusal, "one more", now));
    }
}
