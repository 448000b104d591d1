// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds what one peer, or one disk that fails, can cause to be logged in a second.
//!
//! Events say whom they are about in a field `peer`, `initiator` or `disk`; others are ours and
//! always pass.

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
use tracing::Metadata;
use tracing::Subscriber;
use tracing::field::Field;
use tracing::field::Visit;
use tracing_subscriber::layer::Context;
use tracing_subscriber::layer::Filter;

/// Lines about one of them in a second: enough for a login, its end and some trouble between.
const LINES_PER_SECOND: u32 = 20;

const SECOND: Duration = Duration::from_secs(1);

/// How many are told apart; further ones share a place.
const KNOWN_MAX: usize = 1024;

/// Who has no place of its own.
const OTHERS: &str = "others";

/// Who has been talked about lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moderation(Arc<Mutex<HashMap<String, Window>>>);

#[derive(Debug)]
struct Window {
    since: Instant,
    told: u32,
    left_out: u64,
}

impl Moderation {
    fn windows(&self) -> MutexGuard<'_, HashMap<String, Window>> {
        // Whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if there may be another line about `whom`.
    fn admits(&self, whom: &str, now: Instant) -> bool {
        let mut windows = self.windows();
        let is_known = windows.contains_key(whom) || windows.len() < KNOWN_MAX;
        let whom = if is_known { whom } else { OTHERS };
        let window = windows.entry(whom.to_owned());
        let window = window.or_insert(Window { since: now, told: 0, left_out: 0 });
        if now.saturating_duration_since(window.since) >= SECOND {
            (window.since, window.told) = (now, 0);
        }
        if window.told >= LINES_PER_SECOND {
            window.left_out += 1;
            return false;
        }
        window.told += 1;
        true
    }

    /// Of whom how many lines were left out since the last time; who is quiet is forgotten.
    pub(crate) fn take_left_out(&self) -> Vec<(String, u64)> {
        let mut left_out = Vec::new();
        let now = Instant::now();
        self.windows().retain(|whom, window| {
            if window.left_out > 0 {
                left_out.push((whom.clone(), std::mem::take(&mut window.left_out)));
            }
            now.saturating_duration_since(window.since) < SECOND
        });
        left_out
    }
}

impl<S: Subscriber> Filter<S> for Moderation {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let mut about = About::default();
        event.record(&mut about);
        match about.whom() {
            Some(whom) => self.admits(whom, Instant::now()),
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
        let admitted =
            |whom: &str, now: Instant| (0..100).filter(|_| moderation.admits(whom, now)).count();
        assert_eq!(admitted("a", begin), 20);
        assert_eq!(admitted("b", begin), 20);
        assert_eq!(admitted("a", begin + SECOND / 2), 0);
        assert_eq!(admitted("a", begin + SECOND), 20);
        let mut left_out = moderation.take_left_out();
        left_out.sort();
        assert_eq!(left_out, [("a".to_owned(), 260), ("b".to_owned(), 80)]);
        assert_eq!(moderation.take_left_out(), []);
    }

    #[test]
    fn strangers_share_a_place_when_there_are_many() {
        let moderation = Moderation::default();
        let now = Instant::now();
        let told = (0..KNOWN_MAX * 2).filter(|peer| moderation.admits(&peer.to_string(), now));
        assert!(told.count() <= KNOWN_MAX + 20);
        assert!(moderation.windows().len() <= KNOWN_MAX + 1);
    }
}
