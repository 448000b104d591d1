// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether all that was acknowledged is on stable storage.

/// How many changes had ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark(u64);

/// Changes that a volatile cache may lose, by when they ended.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    ended: Mark,
    flushed: Mark,
}

impl Unflushed {
    /// A change has ended, or somebody else may have made some.
    pub(super) const fn note(&mut self) {
        self.ended.0 += 1;
    }

    /// What a flush covers that is sent now.
    pub(super) const fn mark(&self) -> Mark {
        self.ended
    }

    /// Such a flush has ended well.
    pub(super) fn flushed(&mut self, mark: Mark) {
        self.flushed = self.flushed.max(mark);
    }

    pub(super) fn is_any(&self) -> bool {
        self.flushed < self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_what_had_ended_when_it_was_sent() {
        let mut unflushed = Unflushed::default();
        assert!(!unflushed.is_any());
        unflushed.note();
        let before = unflushed.mark();
        unflushed.note();
        let behind = unflushed.mark();
        unflushed.flushed(before);
        assert!(unflushed.is_any(), "the second is not covered");
        unflushed.flushed(behind);
        // They may end in another order.
        unflushed.flushed(before);
        assert!(!unflushed.is_any());
    }
}
