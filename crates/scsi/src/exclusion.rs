// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps changes of the medium out of commands that read, decide and write as one (SBC-3 §5.3).
//!
//! A writer counts itself in its own nexus's link, whose cache line no other reactor writes to,
//! and then looks whether the unit is claimed. Who claims the unit does it the other way round:
//! claims, then looks at every count. One of the two sees the other, for both orders are
//! sequentially consistent.

use crate::lun::Link;
use crate::lun::LogicalUnit;
use crate::lun::Special;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering;

/// Writers of one nexus that are under way.
#[derive(Debug, Default)]
pub(crate) struct Writers(AtomicU32);

/// What a command needs for its next store operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Reads.
    Free,
    /// Changes the medium.
    Shared,
    /// No other command may change the medium meanwhile.
    Exclusive,
}

/// What a task holds of its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Nothing,
    Shared,
    /// Has claimed the unit; writers may still be under way.
    Claimed,
    Exclusive,
}

impl Hold {
    /// Tries to get from here to `access`; false if others must end first. Never goes back.
    #[inline]
    pub(crate) fn acquire(&mut self, access: Access, unit: &LogicalUnit, link: &Link) -> bool {
        match (access, *self) {
            (Access::Free, _) | (Access::Shared, Self::Shared) | (_, Self::Exclusive) => true,
            (Access::Shared, _) => self.share(unit, link),
            (Access::Exclusive, _) => self.claim(unit),
        }
    }

    #[inline]
    fn share(&mut self, unit: &LogicalUnit, link: &Link) -> bool {
        // A look first, so that waiting writers do not disturb the count that the claimant reads.
        if unit.is_special(Special::Claimed) {
            return false;
        }
        link.writers.0.fetch_add(1, Ordering::SeqCst);
        if unit.is_special(Special::Claimed) {
            link.writers.0.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        *self = Self::Shared;
        true
    }

    #[cold]
    fn claim(&mut self, unit: &LogicalUnit) -> bool {
        if *self == Self::Nothing && unit.make_special(Special::Claimed) {
            *self = Self::Claimed;
        }
        if *self == Self::Claimed && !unit.any_link(|link| link.writers.any()) {
            *self = Self::Exclusive;
        }
        *self == Self::Exclusive
    }

    /// Gives back what is held.
    #[inline]
    pub(crate) fn release(&mut self, unit: &LogicalUnit, link: &Link) {
        match core::mem::replace(self, Self::Nothing) {
            Self::Nothing => {}
            Self::Shared => {
                link.writers.0.fetch_sub(1, Ordering::SeqCst);
            }
            Self::Claimed | Self::Exclusive => unit.make_ordinary(Special::Claimed),
        }
    }
}

impl Writers {
    fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }
}
