// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes to send, gathered from many places.

use crate::Slice;
use crate::limits::{SG_ARENA_CAPACITY, SG_PIECES_CAPACITY};
use std::fmt;

/// Bytes to send: headers copied into an arena of the list, data by reference.
///
/// Kept and reused: `clear` keeps the memory, so that nothing is allocated in steady state.
#[derive(Default)]
pub struct SgList {
    arena: Vec<u8>,
    pieces: Vec<Piece>,
    len: usize,
}

enum Piece {
    Arena { start: usize, len: usize },
    Slice(Slice),
}

impl SgList {
    /// An empty list with room for a usual batch.
    pub fn new() -> Self {
        Self {
            arena: Vec::with_capacity(SG_ARENA_CAPACITY),
            pieces: Vec::with_capacity(SG_PIECES_CAPACITY),
            len: 0,
        }
    }

    /// Appends a copy of `bytes`: headers, digests, padding.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        self.len += bytes.len();
        // Only arena bytes can follow the arena's last ones, so the last piece, if it is one,
        // adjoins.
        if let Some(Piece::Arena { len, .. }) = self.pieces.last_mut() {
            *len += bytes.len();
        } else {
            self.pieces.push(Piece::Arena { start, len: bytes.len() });
        }
    }

    /// Appends `slice` by reference.
    pub fn push(&mut self, slice: Slice) {
        if slice.is_empty() {
            return;
        }
        self.len += slice.len();
        self.pieces.push(Piece::Slice(slice));
    }

    /// Drops the references, keeps the memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.pieces.clear();
        self.len = 0;
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of elements; adjoining arena bytes count as one.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The elements in order, as address and length, none of them empty. The addresses are valid
    /// until the list is changed or dropped; moving the list does not change them.
    pub fn iter(&self) -> impl Iterator<Item = (*const u8, usize)> + '_ {
        self.pieces.iter().map(|piece| self.place(piece))
    }

    /// As `iter`, without the first `skip` bytes: what is left after a partial send.
    pub fn iter_from(&self, skip: usize) -> impl Iterator<Item = (*const u8, usize)> + '_ {
        let mut skip = skip;
        self.iter().filter_map(move |(base, len)| {
            let here = skip.min(len);
            skip -= here;
            (here < len).then(|| (base.wrapping_add(here), len - here))
        })
    }

    /// The elements in order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|piece| match piece {
            Piece::Arena { start, len } => &self.arena[*start..*start + *len],
            Piece::Slice(slice) => slice.bytes(),
        })
    }

    /// A copy of all bytes: for tests and traces.
    pub fn to_vec(&self) -> Vec<u8> {
        self.part_to_vec(0, self.len)
    }

    /// A copy of at most `len` bytes from `start` on: what a simulated network takes at once.
    pub fn part_to_vec(&self, start: usize, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        let mut skip = start;
        for all in self.parts() {
            let here = &all[skip.min(all.len())..];
            skip -= all.len() - here.len();
            bytes.extend_from_slice(&here[..here.len().min(len - bytes.len())]);
            if bytes.len() == len {
                break;
            }
        }
        bytes
    }

    fn place(&self, piece: &Piece) -> (*const u8, usize) {
        match piece {
            Piece::Arena { start, len } => (self.arena[*start..*start + *len].as_ptr(), *len),
            Piece::Slice(slice) => (slice.as_ptr(), slice.len()),
        }
    }
}

impl fmt::Debug for SgList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SgList")
            .field("len", &self.len)
            .field("pieces", &self.pieces.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::SgList;
    use crate::{Pool, Slice};

    fn is_send<T: Send>(_: &T) {}

    #[test]
    fn pieces_keep_their_order_and_arena_bytes_merge() {
        let pool = Pool::new(1 << 20).expect("room");
        let mut list = SgList::new();
        is_send(&list);
        list.push_bytes(b"head");
        list.push_bytes(b"er ");
        list.push(pool.take(0).expect("room").freeze());
        list.push_bytes(b"more ");
        list.push(Slice::from_static(b"data "));
        list.push(Slice::from(b"vec ".to_vec()));
        list.push_bytes(b"end");
        assert_eq!(list.pieces(), 4);
        assert_eq!(list.to_vec(), b"header more data vec end");
        assert_eq!(list.len(), 24);
        let lens: Vec<usize> = list.iter().map(|(_, len)| len).collect();
        assert_eq!(lens, [12, 5, 4, 3]);
        list.clear();
        assert!(list.is_empty());
        assert_eq!((list.pieces(), list.iter().count()), (0, 0));
        list.push_bytes(b"again");
        assert_eq!(list.to_vec(), b"again");
    }

    #[test]
    fn the_rest_after_a_partial_send_is_the_rest() {
        let mut list = SgList::default();
        list.push_bytes(b"0123");
        list.push(Slice::from_static(b"4567"));
        list.push_bytes(b"89");
        let whole: usize = list.iter_from(0).map(|(_, len)| len).sum();
        assert_eq!(whole, 10);
        let starts: Vec<*const u8> = list.iter().map(|(base, _)| base).collect();
        for skip in 0..=10 {
            let rest: Vec<(*const u8, usize)> = list.iter_from(skip).collect();
            assert_eq!(rest.iter().map(|(_, len)| len).sum::<usize>(), 10 - skip);
            if let Some((base, _)) = rest.first() {
                let first = if skip < 4 {
                    0
                } else if skip < 8 {
                    1
                } else {
                    2
                };
                assert_eq!(*base, starts[first].wrapping_add(skip - [0, 4, 8][first]));
            }
        }
    }

    #[test]
    fn clear_gives_the_buffers_back_and_keeps_the_memory() {
        let pool = Pool::new(1 << 20).expect("room");
        let mut list = SgList::new();
        list.push(pool.take(5000).expect("room").freeze());
        assert_eq!(pool.bytes_in_use(), 16 << 10);
        let capacity = (list.arena.capacity(), list.pieces.capacity());
        list.clear();
        assert_eq!(pool.bytes_in_use(), 0);
        assert_eq!((list.arena.capacity(), list.pieces.capacity()), capacity);
    }
}
