// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The books of a pool: which slots are free, and who has how much.

use super::Claim;
use crate::limits::{CLASS_SIZES, PAGE, SHARE_OF_LITTLE, SHARE_OF_MUCH};

/// The account of those who have no share: bounded by the pool alone.
pub(super) const OPEN: u32 = 0;

#[derive(Debug)]
pub(super) struct Lists {
    pub(super) bytes_in_use: usize,
    /// Bytes of the slots that are in use or warm.
    pub(super) bytes_resident: usize,
    /// Slots that ever came back.
    pub(super) returned: u64,
    pub(super) classes: [Free; CLASS_SIZES.len()],
    /// By slot: whose it is while it is in use.
    owners: Box<[u32]>,
    accounts: Vec<Account>,
    /// Accounts that nobody has.
    vacant: Vec<u32>,
}

/// What a buffer would leave of the pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) free: usize,
    pub(super) bytes_max: usize,
}

impl Room {
    /// What one taker may have where there is much: [`SHARE_OF_MUCH`] of the square of the part
    /// that is free.
    fn share(self) -> usize {
        let pages = |bytes: usize| (bytes / PAGE) as u64;
        let (free, all) = (pages(self.free), pages(self.bytes_max).max(1));
        let share = free * free / all * SHARE_OF_MUCH;
        usize::try_from(share).unwrap_or(usize::MAX).saturating_mul(PAGE)
    }
}

/// What one taker has.
#[derive(Debug, Default)]
struct Account {
    bytes: usize,
    /// Views of the pool that take in its name.
    views: usize,
}

impl Lists {
    pub(super) fn new(slots: [usize; CLASS_SIZES.len()], slots_all: usize) -> Self {
        Self {
            bytes_in_use: 0,
            bytes_resident: 0,
            returned: 0,
            classes: slots.map(|slots| Free {
                warm: Vec::with_capacity(slots),
                unused: 0,
                cold: Vec::with_capacity(slots),
                fresh: 0,
            }),
            owners: vec![OPEN; slots_all].into(),
            accounts: vec![Account { bytes: 0, views: 1 }],
            vacant: Vec::new(),
        }
    }

    pub(super) fn open_account(&mut self) -> u32 {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.accounts.push(Account::default());
            u32::try_from(self.accounts.len() - 1).expect("fewer sessions than 32 bits count")
        });
        self.account(index).views = 1;
        index
    }

    pub(super) fn join_account(&mut self, index: u32) {
        self.account(index).views += 1;
    }

    pub(super) fn leave_account(&mut self, index: u32) {
        self.account(index).views -= 1;
        self.vacate(index);
    }

    pub(super) fn bytes_of(&self, account: u32) -> usize {
        match account {
            OPEN => self.bytes_in_use,
            account => self.accounts[account as usize].bytes,
        }
    }

    /// Whether an account may take `size` bytes more of `bytes_max`, after which `free` bytes are
    /// left to all.
    pub(super) fn allows(&self, account: u32, size: usize, room: Room, claim: Claim) -> bool {
        if account == OPEN || claim == Claim::Completion {
            return true;
        }
        let mut own = self.accounts[account as usize].bytes + size;
        if claim == Claim::Convenience {
            own *= 2;
        }
        // Where nobody has anything, one buffer is never too much. What is of no share may stay as
        // long as who asks.
        let nobody_has = self.bytes_in_use == self.accounts[OPEN as usize].bytes;
        own <= room.free / SHARE_OF_LITTLE || own <= room.share() || nobody_has
    }

    pub(super) fn charge(&mut self, account: u32, slot: usize, size: usize) {
        self.owners[slot] = account;
        self.account(account).bytes += size;
    }

    pub(super) fn discharge(&mut self, slot: usize, size: usize) {
        let index = self.owners[slot];
        let account = self.account(index);
        account.bytes =
            account.bytes.checked_sub(size).expect("what comes back was charged to its owner");
        if account.views == 0 {
            self.vacate(index);
        }
    }

    /// An account whose holder is gone, and all of whose buffers are back, is given to another.
    fn vacate(&mut self, index: u32) {
        let account = self.account(index);
        if index != OPEN && account.views == 0 && account.bytes == 0 {
            self.vacant.push(index);
        }
    }

    fn account(&mut self, index: u32) -> &mut Account {
        &mut self.accounts[index as usize]
    }
}

/// The free slots of a class; the lists have room for all slots from the start.
#[derive(Debug)]
pub(super) struct Free {
    /// Used before, last in first out: the hottest in the caches is taken first.
    pub(super) warm: Vec<u32>,
    /// So many at the bottom of `warm` were not taken since the period began.
    unused: usize,
    /// Used before, their memory given back to the system.
    pub(super) cold: Vec<u32>,
    /// This one and all above it were never used.
    fresh: u32,
}

impl Free {
    pub(super) fn take_warm(&mut self) -> Option<u32> {
        let index = self.warm.pop()?;
        self.unused = self.unused.min(self.warm.len());
        Some(index)
    }

    /// Tells up to `most` warm slots that were not taken since the period began; they are cold
    /// then. Returns how many.
    pub(super) fn cool_unused(&mut self, most: usize, tell: impl FnMut(u32)) -> usize {
        let count = self.unused.min(most);
        let first = self.unused - count;
        let before = self.cold.len();
        self.cold.extend(self.warm.drain(first..self.unused));
        self.unused = first;
        self.cold[before..].iter().copied().for_each(tell);
        count
    }

    /// From now on it is counted anew what is not needed.
    pub(super) fn begin_period(&mut self) {
        self.unused = self.warm.len();
    }

    /// A slot without memory. The bound counts class sizes, so a class cannot run out before it.
    pub(super) fn take_cold(&mut self, slots: usize) -> u32 {
        self.cold.pop().unwrap_or_else(|| {
            let index = self.fresh;
            assert!((index as usize) < slots, "the bound is reached before the slots run out");
            self.fresh += 1;
            index
        })
    }
}
