// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of all groups of pages of a region.

use super::words::Words;
use crate::copy::prefetch;
use crate::limits::PAGE;
use crate::map::Mapping;
use std::io;
use std::ops::Range;

/// Bytes of a group: few words to touch for a large read, and so few in all that those of a region
/// of a gigabyte stay in a cache; a write that meets a lent group makes new pages only for those
/// that it touches.
pub(super) const GROUP: usize = 16 * PAGE;

/// In memory that takes no room before it is used.
#[derive(Debug)]
pub(super) struct Groups {
    words: Mapping,
    count: usize,
}

/// The groups that have a byte of the range.
#[inline]
pub(super) const fn of(start: usize, len: usize) -> Range<usize> {
    if len == 0 {
        return 0..0;
    }
    start / GROUP..(start + len - 1) / GROUP + 1
}

impl Groups {
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let count = len.div_ceil(GROUP);
        Ok(Self { words: Mapping::new(count * size_of::<Words>())?, count })
    }

    /// Has the processor bring the words of a group into its caches.
    #[inline]
    pub(super) fn prefetch(&self, group: usize) {
        prefetch(self.words.at(group * size_of::<Words>()).as_ptr(), size_of::<Words>());
    }

    #[inline]
    pub(super) fn words(&self, group: usize) -> &Words {
        assert!(group < self.count, "a group of the region");
        let words = self.words.at(group * size_of::<Words>()).cast::<Words>();
        // SAFETY: the mapping has room for `count` of them, zero at first, is page aligned, lives
        // as long as self and is used for nothing else.
        unsafe { words.as_ref() }
    }
}
