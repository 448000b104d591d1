// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fields one behind the other, big-endian.

use super::IwarpError;

/// Reads fields. Beyond the end they are zero: who reads has checked the length.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Over the first `len` of these bytes.
    pub(crate) fn of(bytes: &'a [u8], len: usize) -> Result<Self, IwarpError> {
        let given = bytes.len();
        bytes.get(..len).map(Self).ok_or(IwarpError::Truncated { needed: len, given })
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_be_bytes(self.take())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }

    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((field, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *field
    }
}

/// Writes fields into a header of `N` bytes, which is zero where nothing is written.
#[derive(Debug)]
pub(crate) struct Writer<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Writer<N> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    /// Appends a field, which must have room.
    #[must_use]
    pub(crate) fn put(mut self, field: &[u8]) -> Self {
        let to = self.bytes.get_mut(self.at..self.at + field.len());
        to.expect("a header has room for its fields").copy_from_slice(field);
        self.at += field.len();
        self
    }

    /// The bytes; all of them have been written.
    pub(crate) fn done(self) -> [u8; N] {
        assert_eq!(self.at, N, "a header is whole");
        self.bytes
    }
}
