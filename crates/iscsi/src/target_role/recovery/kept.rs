// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much data of answers is kept to be sent again.
//!
//! Read data beyond that, or whatever is kept when the pool has nothing for new commands, is given
//! up, the oldest first: a SNACK for it gets Reject 03h, and a task that is reassigned without it
//! ends with 0B/11/13.

/// Bytes of answered reads that a session keeps.
#[derive(Debug)]
pub(in crate::target_role) struct Kept {
    bytes: usize,
    bytes_max: usize,
}

impl Kept {
    pub(in crate::target_role) const fn new(bytes_max: usize) -> Self {
        Self { bytes: 0, bytes_max }
    }

    /// True if so much can be kept at all.
    pub(in crate::target_role) const fn fits(&self, bytes: usize) -> bool {
        bytes <= self.bytes_max
    }

    pub(in crate::target_role) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    pub(in crate::target_role) fn give_back(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.bytes, "more given back than was kept");
        self.bytes -= bytes;
    }

    pub(in crate::target_role) const fn is_overfull(&self) -> bool {
        self.bytes > self.bytes_max
    }

    pub(in crate::target_role) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Panics if an invariant does not hold. `answers`: bytes that answers have.
    pub(in crate::target_role) fn check(&self, answers: usize) {
        assert_eq!(answers, self.bytes, "bytes kept for sending again");
        assert!(!self.is_overfull(), "more bytes kept than allowed");
    }
}
