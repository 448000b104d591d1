// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes of a stream by their offsets, in memory of a fixed size.

use alloc::boxed::Box;
use alloc::vec;

use crate::limits::RING_BYTES;

/// The bytes from some offset on, [`RING_BYTES`] at most. Which of them are there is its owner's
/// business.
pub(crate) struct Ring(Box<[u8]>);

impl Ring {
    pub(crate) fn new() -> Self {
        // Pages that nobody touches take no memory.
        Self(vec![0; RING_BYTES].into_boxed_slice())
    }

    /// The bytes from `from` on: up to `len` of them, as many as are in one piece.
    pub(crate) fn piece(&self, from: u64, len: usize) -> &[u8] {
        let rest = self.0.get(place(from)..).unwrap_or_default();
        rest.get(..len).unwrap_or(rest)
    }

    /// The same, to be written to.
    pub(crate) fn piece_mut(&mut self, from: u64, len: usize) -> &mut [u8] {
        let rest = self.0.get_mut(place(from)..).unwrap_or_default();
        let len = len.min(rest.len());
        rest.get_mut(..len).unwrap_or_default()
    }

    /// All `len` bytes from `from` on, in two pieces.
    pub(crate) fn pieces(&self, from: u64, len: usize) -> [&[u8]; 2] {
        let first = self.piece(from, len);
        let second = self.0.get(..len.saturating_sub(first.len())).unwrap_or_default();
        [first, second]
    }

    pub(crate) fn write(&mut self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let piece = self.piece_mut(at, bytes.len());
            let (now, rest) = bytes.split_at(piece.len());
            piece.copy_from_slice(now);
            at = at.saturating_add(now.len() as u64);
            bytes = rest;
        }
    }
}

/// Where in the ring an offset is.
fn place(offset: u64) -> usize {
    usize::try_from(offset % RING_BYTES as u64).unwrap_or(0)
}
