// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the bytes of a stripe (RAID-0) lie: in chunks, in one member after the other.
//!
//! ```text
//! bytes of the stripe:  | chunk 0 | chunk 1 | chunk 2 | chunk 3 | ...
//! member 0:             | chunk 0 |         | chunk 2 |
//! member 1:                       | chunk 1 |         | chunk 3 |
//! ```

/// Members of one stripe: a command for all of them touches each.
pub const MEMBERS_MAX: usize = 64;

/// Smallest chunk, bytes: a page, so that parts of a buffer stay aligned.
pub const CHUNK_MIN: u64 = 4096;

/// Largest chunk, bytes: a longest command then still meets two members.
pub const CHUNK_MAX: u64 = 4 << 20;

/// How bytes are laid out over members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Of the bytes that lie together in one member: a power of two, since each request divides by
    /// it some times.
    shift: u32,
    members: u64,
}

/// What cannot be laid out so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a layout has no other parts
pub enum Misfit {
    /// One member, or too many.
    Members(usize),
    /// Not a power of two, too small or too large.
    Chunk(u64),
}

/// Bytes that lie together in one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // a range
pub struct Piece {
    /// Which member.
    pub member: usize,
    /// First byte, of the member.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Layout {
    /// Over `members` members, in chunks of `chunk` bytes.
    ///
    /// # Errors
    /// [`Misfit`].
    pub fn new(chunk: u64, members: usize) -> Result<Self, Misfit> {
        if !(2..=MEMBERS_MAX).contains(&members) {
            return Err(Misfit::Members(members));
        }
        if !chunk.is_power_of_two() || !(CHUNK_MIN..=CHUNK_MAX).contains(&chunk) {
            return Err(Misfit::Chunk(chunk));
        }
        Ok(Self { shift: chunk.trailing_zeros(), members: members as u64 })
    }

    /// Bytes that lie together in one member.
    #[must_use]
    pub const fn chunk(&self) -> u64 {
        1 << self.shift
    }

    /// Bytes of a stripe whose smallest member has `smallest`: of each one as many whole chunks
    /// count as that one has. None: more than can be counted.
    #[must_use]
    pub const fn bytes(&self, smallest: u64) -> Option<u64> {
        ((smallest >> self.shift) << self.shift).checked_mul(self.members)
    }

    /// Whether a range lies in one chunk.
    #[must_use]
    pub fn is_whole(&self, offset: u64, length: u64) -> bool {
        self.within(offset).checked_add(length).is_some_and(|end| end <= self.chunk())
    }

    /// The first bytes of a range, up to the end of their chunk at most.
    #[must_use]
    pub fn first(&self, offset: u64, length: u64) -> Piece {
        let (number, within) = (offset >> self.shift, self.within(offset));
        Piece {
            member: usize::try_from(number % self.members).unwrap_or(usize::MAX),
            offset: ((number / self.members) << self.shift) + within,
            length: length.min(self.chunk() - within),
        }
    }

    /// How far into its chunk an offset is.
    const fn within(&self, offset: u64) -> u64 {
        offset & (self.chunk() - 1)
    }

    /// All pieces of a range, in its order.
    pub fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = Piece> + use<> {
        let (layout, mut done) = (*self, 0);
        core::iter::from_fn(move || {
            let left = length.checked_sub(done).filter(|left| *left > 0)?;
            let piece = layout.first(offset.checked_add(done)?, left);
            done += piece.length;
            Some(piece)
        })
    }

    /// What a member has of a range: its pieces there lie together.
    #[must_use]
    pub fn share(&self, member: usize, offset: u64, length: u64) -> Option<Piece> {
        let (shift, count, index) = (self.shift, self.members, member as u64);
        let end = offset.checked_add(length)?;
        let (first, last) = (offset >> shift, end.checked_sub(1)? >> shift);
        if length == 0 || index >= count {
            return None;
        }
        let own_first = first + (index + count - first % count) % count;
        let own_last = last.checked_sub((last % count + count - index) % count)?;
        if own_first > last || own_last < own_first {
            return None;
        }
        let into_first = if own_first == first { self.within(offset) } else { 0 };
        let from = ((own_first / count) << shift) + into_first;
        let behind = if own_last == last { self.within(end - 1) + 1 } else { self.chunk() };
        Some(Piece { member, offset: from, length: ((own_last / count) << shift) + behind - from })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)] // a test that panics has failed
mod tests {
    use super::*;

    #[test]
    fn what_is_no_stripe_is_refused() {
        assert_eq!(Layout::new(65_536, 1), Err(Misfit::Members(1)));
        assert_eq!(Layout::new(65_536, 65), Err(Misfit::Members(65)));
        for chunk in [0, 2048, 100 << 10, 8 << 20] {
            assert_eq!(Layout::new(chunk, 2), Err(Misfit::Chunk(chunk)));
        }
        let layout = Layout::new(65_536, 3).unwrap();
        assert_eq!(layout.bytes(200_000), Some(3 * 3 * 65_536));
        assert_eq!(layout.bytes(u64::MAX), None);
    }

    /// Every byte is in one piece and one share, at one place, and no two bytes are at one.
    #[test]
    fn pieces_and_shares_are_the_same_bytes() {
        let (chunk, members) = (4096, 3);
        let layout = Layout::new(chunk, members).unwrap();
        for offset in [0, 1, 4095, 4096, 8192, 12_288, 13_000] {
            for length in [0, 1, 4095, 4096, 4097, 12_287, 12_288, 40_000] {
                let mut ends: [Option<Piece>; 3] = [None; 3];
                let mut sum = 0;
                for piece in layout.pieces(offset, length) {
                    sum += piece.length;
                    let so_far = &mut ends[piece.member];
                    match so_far {
                        None => *so_far = Some(piece),
                        Some(before) => {
                            assert_eq!(before.offset + before.length, piece.offset);
                            before.length += piece.length;
                        }
                    }
                }
                assert_eq!(sum, length);
                for (member, joined) in ends.into_iter().enumerate() {
                    assert_eq!(layout.share(member, offset, length), joined, "{offset} {length}");
                }
                let one = layout.pieces(offset, length).count() <= 1;
                assert_eq!(layout.is_whole(offset, length), one, "{offset} {length}");
            }
        }
    }
}
