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
//!
//! Where such a work does not end in the time that hosts wait, whoever wants its task to be over is
//! not held up any longer, but the unit is fenced: what comes later is told BUSY until the work has
//! ended, since a host that waits gives up. Work that changes nothing keeps nobody out, unless
//! there is so much of it that the memory it holds would be missed.

use crate::limits::LEFT_READS_MAX;
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
    /// Of a task that has ended before the store's work for it, which may change the medium.
    Outlasting(Held),
    /// The same, and nobody waits for it any more: the unit is fenced.
    Fencing(Held),
    /// Nothing, of a task that has ended, whose work changes nothing and is not waited for.
    Left,
}

/// What a task held when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// It is one of too many that are left.
    Nothing,
    Shared,
    Exclusive,
}

/// Tasks that have ended before the store's work for them.
#[derive(Debug, Default)]
pub(crate) struct Outlasting {
    /// All that come later wait for these.
    all: AtomicU32,
    /// Those of them for which nobody is to wait.
    fencing: AtomicU32,
    /// Those that change nothing and are not waited for.
    left: AtomicU32,
}

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

    const fn waits_or_has_nothing(&self) -> bool {
        matches!(self, Self::Waits(_) | Self::Nothing)
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
        if self.waits_or_has_nothing() && unit.outlasting().any() {
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
        let held = match *self {
            Self::Shared => Held::Shared,
            Self::Exclusive => Held::Exclusive,
            Self::Nothing
            | Self::Waits(_)
            | Self::Claimed
            | Self::Outlasting(_)
            | Self::Fencing(_)
            | Self::Left => return,
        };
        unit.outlasting().all.fetch_add(1, Ordering::SeqCst);
        *self = Self::Outlasting(held);
    }

    /// The task has ended, and nobody waits any more for the store's work for it. True if that
    /// fences the unit, which was not fenced before.
    #[cold]
    pub(crate) fn fence(&mut self, unit: &LogicalUnit) -> bool {
        self.outlast(unit);
        let outlasting = unit.outlasting();
        let held = match *self {
            Self::Outlasting(held) => held,
            Self::Nothing => {
                if outlasting.left.fetch_add(1, Ordering::SeqCst) < LEFT_READS_MAX {
                    *self = Self::Left;
                    return false;
                }
                outlasting.all.fetch_add(1, Ordering::SeqCst);
                Held::Nothing
            }
            // The others are not with the store, or have been here.
            _ => return false,
        };
        *self = Self::Fencing(held);
        outlasting.fencing.fetch_add(1, Ordering::SeqCst) == 0
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
            Self::Outlasting(held) => held.release(unit, nexus_state),
            Self::Fencing(held) => {
                held.release(unit, nexus_state);
                unit.outlasting().fencing.fetch_sub(1, Ordering::SeqCst);
            }
            Self::Left => {
                unit.outlasting().left.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

impl Held {
    #[cold]
    fn release(self, unit: &LogicalUnit, nexus_state: &NexusState) {
        match self {
            Self::Nothing => {
                unit.outlasting().left.fetch_sub(1, Ordering::SeqCst);
            }
            Self::Shared => Hold::Shared.release(unit, nexus_state),
            Self::Exclusive => Hold::Exclusive.release(unit, nexus_state),
        }
        unit.outlasting().all.fetch_sub(1, Ordering::SeqCst);
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
        self.all.load(Ordering::SeqCst) != 0
    }

    /// Who must wait for any of them is told BUSY.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fencing.load(Ordering::SeqCst) != 0
    }

    /// Some are not waited for any more.
    pub(crate) fn any_left(&self) -> bool {
        self.is_fenced() || self.left.load(Ordering::SeqCst) != 0
    }
}

impl Writers {
    fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }
}
