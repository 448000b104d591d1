// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the cluster answers: operations are under way, and none has ended for some time.
#![forbid(unsafe_code)]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

/// The ends of an image's operations.
#[derive(Debug)]
pub(crate) struct Pulse {
    since: Instant,
    /// When something ended last, or began while nothing was under way: milliseconds.
    last: AtomicU64,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), last: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Something has ended, or begins while nothing is under way.
    pub(crate) fn beat(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// Whether nothing has ended for `limit`. Only of worth while something is under way.
    pub(crate) fn is_silent(&self, limit: Duration) -> bool {
        let waited = self.now().saturating_sub(self.last.load(Ordering::Relaxed));
        Duration::from_millis(waited) >= limit
    }
}
