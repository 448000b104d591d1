// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the cluster answers: operations are under way, and none has ended for some time.
#![forbid(unsafe_code)]

use std::sync::atomic::AtomicBool;
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
    /// It was told that there is none.
    is_told: AtomicBool,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), last: AtomicU64::new(0), is_told: AtomicBool::new(false) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Something has ended, or begins while nothing is under way.
    pub(crate) fn beat(&self, image: &str) {
        self.last.store(self.now(), Ordering::Relaxed);
        if self.is_told.load(Ordering::Relaxed) && self.is_told.swap(false, Ordering::Relaxed) {
            tracing::info!(image, "the cluster answers again");
        }
    }

    /// Whether nothing has ended for `limit`. Only of worth while something is under way.
    pub(crate) fn is_silent(&self, limit: Duration, image: &str) -> bool {
        let waited =
            Duration::from_millis(self.now().saturating_sub(self.last.load(Ordering::Relaxed)));
        if waited < limit {
            return false;
        }
        if !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::error!(
                image,
                ?waited,
                "the cluster does not answer: what is under way waits, new commands are told \
                 BUSY; try: ceph health detail"
            );
        }
        true
    }
}
