// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps changes of the medium out of commands that read, decide and write as one (SBC-3 §5.3).
//!
//! A writer counts itself in its own nexus's state, whose cache line no other reactor writes to,
//! and then looks whether the unit is claimed. Who claims the unit does it the other way round:
//! claims, then looks at every count. One of the two sees the other, for both orders are
//! sequentially consistent. Readers are not held up: they see blocks of before, of after, or a
//! mixture, as with any write at the same time. Only beside writes that are to be whole (`atomic`)
//! are they counted, too.
//!
//! A task may end while the store works for it: its connection is gone, or another command aborts
//! it. Its initiator soon hears of it, in one way or another, and does the same again. What such a
//! work does to the medium must not come behind what is done later, so as long as any of it lasts,
//! all that comes later waits.

use crate::lun::LogicalUnit;
use crate::lun::NexusState;
use crate::lun::Special;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering;
use store::Op;

/// What keeps writers out.
const OUT: u32 = Special::Claimed as u32 | Special::Wiping as u32;

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
    /// Of another unit than its own, perhaps: it is looked at there.
    There,
    /// As Exclusive while FORMAT UNIT or SANITIZE keeps everybody else out.
    Sole,
}

/// What a task holds of its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Nothing,
    Shared,
    /// Has claimed the unit; writers may still be under way.
    Claimed,
    Exclusive,
    /// Shared or Exclusive, of a task that has ended before the store's work for it.
    Outlasting {
        exclusive: bool,
    },
}

/// Tasks that have ended before the store's work for them, which may change the medium.
#[derive(Debug, Default)]
pub(crate) struct Outlasting(AtomicU32);

impl Hold {
    /// Tries to get from here to `access` for `op`; false if others must end first. Never goes
    /// back. ROD tokens that stand for what changes end here, before it changes.
    #[inline]
    pub(crate) fn acquire(
        &mut self,
        access: Access,
        unit: &LogicalUnit,
        nexus_state: &NexusState,
        op: &Op,
    ) -> bool {
        match (access, *self) {
            (Access::Free, _) => !unit.outlasting().any(),
            (Access::Shared, Self::Shared) | (_, Self::Exclusive) => {
                if unit.is_special(Special::Tokens) && op.changes() {
                    unit.revoke_tokens(op.range());
                }
                true
            }
            (Access::Shared, _) => self.share(unit, nexus_state, op),
            (Access::Exclusive | Access::Sole | Access::There, _) => self.claim(access, unit, op),
        }
    }

    #[inline]
    fn share(&mut self, unit: &LogicalUnit, nexus_state: &NexusState, op: &Op) -> bool {
        // A look first, so that waiting writers do not disturb the count that the claimant reads.
        if unit.specials() & OUT != 0 || unit.outlasting().any() {
            return false;
        }
        nexus_state.writers.0.fetch_add(1, Ordering::SeqCst);
        let specials = unit.specials();
        if specials & (OUT | Special::Tokens as u32) != 0 {
            if specials & OUT != 0 {
                nexus_state.writers.0.fetch_sub(1, Ordering::SeqCst);
                return false;
            }
            if op.changes() {
                unit.revoke_tokens(op.range());
            }
        }
        *self = Self::Shared;
        true
    }

    #[cold]
    fn claim(&mut self, access: Access, unit: &LogicalUnit, op: &Op) -> bool {
        if access != Access::Sole && unit.is_special(Special::Wiping) {
            return false;
        }
        if *self == Self::Nothing && unit.make_special(Special::Claimed) {
            *self = Self::Claimed;
        }
        if *self == Self::Claimed && !unit.any_nexus(|nexus_state| nexus_state.writers.any()) {
            *self = Self::Exclusive;
            if op.changes() {
                unit.revoke_tokens(op.range());
            }
        }
        *self == Self::Exclusive
    }

    /// The task has ended, and the store still works for it.
    #[cold]
    pub(crate) fn outlast(&mut self, unit: &LogicalUnit) {
        let exclusive = match *self {
            Self::Shared => false,
            Self::Exclusive => true,
            Self::Nothing | Self::Claimed | Self::Outlasting { .. } => return,
        };
        unit.outlasting().0.fetch_add(1, Ordering::SeqCst);
        *self = Self::Outlasting { exclusive };
    }

    /// Gives back what is held.
    #[inline]
    pub(crate) fn release(&mut self, unit: &LogicalUnit, nexus_state: &NexusState) {
        match core::mem::replace(self, Self::Nothing) {
            Self::Nothing => {}
            Self::Shared => {
                nexus_state.writers.0.fetch_sub(1, Ordering::SeqCst);
            }
            Self::Claimed | Self::Exclusive => unit.make_ordinary(Special::Claimed),
            Self::Outlasting { exclusive } => {
                match exclusive {
                    true => Self::Exclusive.release(unit, nexus_state),
                    false => Self::Shared.release(unit, nexus_state),
                }
                unit.outlasting().0.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

impl Outlasting {
    #[inline]
    fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }
}

impl Writers {
    fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }
}
