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
//! Who has to wait is counted by epoch, of which two last at a time. Nobody claims the unit before
//! those who waited in the former epoch, and a claim that finds none of them left begins the next
//! one. So nobody waits for more claims than one and those that others waited for with it, however
//! many come.
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

/// Tasks that wait, by the parity of the epoch in which they began to.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    epoch: AtomicU32,
    counts: [AtomicU32; 2],
}

/// One of two epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parity {
    Even,
    Odd,
}

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
    /// Waits, since such an epoch.
    Waits(Parity),
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
            (Access::Shared, _) => {
                self.share(unit, nexus_state, op) || self.wait_for_claim(unit.waiters())
            }
            (Access::Exclusive | Access::Sole | Access::There, _) => {
                self.claim(access, unit, op) || self.wait_for_claim(unit.waiters())
            }
        }
    }

    /// Is counted among those who wait, if it holds nothing; false.
    #[cold]
    fn wait_for_claim(&mut self, waiters: &Waiters) -> bool {
        if *self == Self::Nothing {
            *self = Self::Waits(waiters.join());
        }
        false
    }

    pub(crate) const fn waits(&self) -> bool {
        matches!(self, Self::Waits(_))
    }

    /// Gets something instead of waiting for it.
    #[inline]
    fn become_holder(&mut self, hold: Self, unit: &LogicalUnit) {
        if let Self::Waits(since) = core::mem::replace(self, hold) {
            unit.waiters().leave(since);
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
        self.become_holder(Self::Shared, unit);
        true
    }

    #[cold]
    fn claim(&mut self, access: Access, unit: &LogicalUnit, op: &Op) -> bool {
        if access != Access::Sole && unit.is_special(Special::Wiping) {
            return false;
        }
        let since = match *self {
            Self::Nothing => Some(None),
            Self::Waits(since) => Some(Some(since)),
            _ => None,
        };
        // Who keeps everybody out need not wait for them.
        if let Some(since) = since
            && (access == Access::Sole || unit.waiters().let_claim(since))
            && unit.make_special(Special::Claimed)
        {
            unit.waiters().claimed();
            self.become_holder(Self::Claimed, unit);
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
            Self::Nothing | Self::Waits(_) | Self::Claimed | Self::Outlasting { .. } => return,
        };
        unit.outlasting().0.fetch_add(1, Ordering::SeqCst);
        *self = Self::Outlasting { exclusive };
    }

    /// Gives back what is held.
    #[inline]
    pub(crate) fn release(&mut self, unit: &LogicalUnit, nexus_state: &NexusState) {
        match core::mem::replace(self, Self::Nothing) {
            Self::Nothing => {}
            Self::Waits(since) => unit.waiters().leave(since),
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

impl Waiters {
    fn count(&self, parity: Parity) -> &AtomicU32 {
        let [even, odd] = &self.counts;
        match parity {
            Parity::Even => even,
            Parity::Odd => odd,
        }
    }

    fn join(&self) -> Parity {
        let parity = Parity::of(self.epoch.load(Ordering::SeqCst));
        self.count(parity).fetch_add(1, Ordering::SeqCst);
        parity
    }

    fn leave(&self, since: Parity) {
        self.count(since).fetch_sub(1, Ordering::SeqCst);
    }

    /// Those of the former epoch come first.
    fn let_claim(&self, since: Option<Parity>) -> bool {
        let former = Parity::of(self.epoch.load(Ordering::SeqCst)).other();
        since == Some(former) || self.count(former).load(Ordering::SeqCst) == 0
    }

    /// Somebody has claimed the unit: where nobody of the former epoch waits, those who wait now
    /// come before who comes later.
    fn claimed(&self) {
        let epoch = self.epoch.load(Ordering::SeqCst);
        if self.count(Parity::of(epoch).other()).load(Ordering::SeqCst) == 0 {
            // The unit is claimed: nobody else does this.
            self.epoch.store(epoch.wrapping_add(1), Ordering::SeqCst);
        }
    }
}

impl Parity {
    const fn of(epoch: u32) -> Self {
        if epoch.is_multiple_of(2) { Self::Even } else { Self::Odd }
    }

    const fn other(self) -> Self {
        match self {
            Self::Even => Self::Odd,
            Self::Odd => Self::Even,
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
