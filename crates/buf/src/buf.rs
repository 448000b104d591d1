// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A buffer with one owner.

use crate::pool::Slot;
use crate::{Ground, Slice};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

/// A page-aligned buffer of a [`Pool`](crate::Pool) with one owner, who may write. Goes back on
/// drop.
pub struct Buf {
    slot: Slot,
    base: NonNull<u8>,
    len: usize,
}

impl Buf {
    /// `slot` has no other reference.
    pub(crate) fn new(slot: Slot, len: usize) -> Self {
        assert!(len <= slot.capacity(), "the visible part lies within the slot");
        let base = slot.base();
        Self { slot, base, len }
    }

    /// Shortens the visible length; never grows it.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// What its bytes lie on.
    pub fn ground(&self) -> Ground {
        self.slot.ground()
    }

    /// Address for the kernel, or an adapter, that is to write to it: valid while the buffer lives.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Gives up the right to write: the bytes can now be shared. Costs nothing.
    pub fn freeze(self) -> Slice {
        Slice::of_slot(self.slot, self.base, self.len)
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot has `len` bytes at `base`, initialised since it was mapped, and nobody
        // else has a reference to it: writing needs `&mut self`.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only way to the bytes while this one lives.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("len", &self.len)
            .field("capacity", &self.slot.capacity())
            .finish()
    }
}

// SAFETY: a Buf is the only way to its bytes; the slot itself is Send.
unsafe impl Send for Buf {}
// SAFETY: a shared Buf can only be read; the slot itself is Sync.
unsafe impl Sync for Buf {}
