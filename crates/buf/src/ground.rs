// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What bytes lie on, for those who show memory to a device once and not for each operation.

/// The memory below a buffer of a pool, and everything that shares it: it stays in its place as
/// long as one of them lives.
///
/// Whoever has told a device of such memory may go on with that as long as it is the same. When a
/// pool has given a free buffer's pages back to the system, the next buffer there has others: the
/// address is the same, `pages` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Ground {
    /// Of the first byte.
    pub address: usize,
    /// Bytes.
    pub length: usize,
    /// Names the pages, in the whole process.
    pub pages: u64,
}

#[cfg(test)]
mod tests {
    use crate::{Pool, Slice, Trimmed};

    #[test]
    fn pages_that_went_back_are_told_from_those_that_follow() {
        let pool = Pool::new(1 << 20).expect("room");
        let mut buf = pool.take(5000).expect("room");
        let ground = buf.ground();
        assert_eq!((ground.address, ground.length), (buf.as_mut_ptr().addr(), 16 << 10));
        let slice = buf.freeze();
        assert_eq!(slice.part(9..10).expect("within").ground(), Some(ground));
        drop(slice);
        assert_eq!(pool.take(5000).expect("room").ground(), ground, "the slot stayed warm");
        while pool.trim(1 << 20) != Trimmed::All {}
        let next = pool.take(5000).expect("room").ground();
        assert_eq!(next.address, ground.address);
        assert_ne!(next.pages, ground.pages);
        assert_eq!(Slice::from(vec![1]).ground(), None);
    }

    #[test]
    fn no_two_pools_have_the_same_pages() {
        let ground = |_| Pool::new(4096).expect("room").take(1).expect("room").ground().pages;
        let (one, other) = (ground(1), ground(2));
        assert_ne!(one, other);
    }
}
