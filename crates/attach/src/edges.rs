// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes that begin or end within a block: what is around the new bytes is read before.

use std::ops::Range;

use buf::Buf;
use buf::Slice;

/// Whole blocks that are to be written, of which some bytes are still to be read.
#[derive(Debug)]
pub(crate) struct Edges {
    pub(crate) bytes: Bytes,
    pub(crate) blocks: Range<u64>,
    /// What is the client's, and not read.
    pub(crate) new: Range<usize>,
    pub(crate) durable: bool,
    pub(crate) reads_left: usize,
    pub(crate) failed: Option<initiator::Error>,
}

/// Bytes that are being put together.
#[derive(Debug)]
pub(crate) enum Bytes {
    Buffer(Buf),
    /// A few.
    Heap(Vec<u8>),
}

impl Bytes {
    pub(crate) fn get(&mut self) -> &mut [u8] {
        match self {
            Self::Buffer(buf) => buf,
            Self::Heap(bytes) => bytes,
        }
    }

    pub(crate) fn freeze(self) -> Slice {
        match self {
            Self::Buffer(buf) => buf.freeze(),
            Self::Heap(bytes) => Slice::from(bytes),
        }
    }
}

/// Copies `data`, which was read, to `at` in `bytes`, but for the range that is `new`.
pub(crate) fn fill_around(bytes: &mut [u8], at: usize, data: &[u8], new: &Range<usize>) {
    let end = at + data.len();
    for part in [at..new.start.min(end), new.end.max(at)..end] {
        if let (Some(to), Some(from)) = (
            bytes.get_mut(part.clone()),
            data.get(part.start.wrapping_sub(at)..part.end.wrapping_sub(at)),
        ) {
            to.copy_from_slice(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_goes_around_what_is_new() {
        let filled = |at, data: &[u8], new: Range<usize>| {
            let mut bytes = *b"........";
            fill_around(&mut bytes, at, data, &new);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        assert_eq!(filled(0, b"abcd", 2..3), "ab.d....");
        assert_eq!(filled(0, b"abcd", 2..7), "ab......");
        assert_eq!(filled(4, b"abcd", 2..7), ".......d");
        assert_eq!(filled(0, b"abcdefgh", 0..8), "........");
    }
}
