// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a value stands in a header, and how it is read and written there.
//!
//! Reading is total: bytes beyond the end read as zero. A view checks its length once, so that this
//! never shows.

use super::{BHS_LEN, Cid, CmdSn, DataSn, Isid, Itt, LunField, R2tSn, StatSn, Tsih, Ttt};
use core::marker::PhantomData;

/// A place in a header.
pub(super) trait Place: Copy {
    /// What stands there.
    type Value;
    /// Reads the value.
    fn read(self, header: &[u8]) -> Self::Value;
    /// Writes the value; bits outside of the place stay.
    fn write(self, header: &mut [u8], value: Self::Value);
}

/// A value with a fixed layout in whole bytes, big-endian.
pub(super) trait Layout: Copy {
    /// Length in bytes.
    const LEN: usize;
    /// Reads `LEN` bytes.
    fn from_slice(bytes: &[u8]) -> Self;
    /// Writes `LEN` bytes.
    fn to_slice(self, out: &mut [u8]);
}

/// A value of type `V` at a byte offset.
#[derive(Debug)]
pub(super) struct Field<V> {
    at: usize,
    value: PhantomData<fn() -> V>,
}

impl<V> Clone for Field<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Field<V> {}

impl<V: Layout> Field<V> {
    /// The value's first byte stands at `at`.
    pub(super) const fn at(at: usize) -> Self {
        assert!(at + V::LEN <= BHS_LEN, "a field lies within the BHS");
        Self { at, value: PhantomData }
    }
}

impl<V: Layout> Place for Field<V> {
    type Value = V;

    #[inline]
    fn read(self, header: &[u8]) -> V {
        V::from_slice(header.get(self.at..self.at + V::LEN).unwrap_or_default())
    }

    #[inline]
    fn write(self, header: &mut [u8], value: V) {
        if let Some(out) = header.get_mut(self.at..self.at + V::LEN) {
            value.to_slice(out);
        }
    }
}

/// Adjoining bits of one byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits {
    /// Byte offset.
    pub(super) at: usize,
    /// The bits.
    pub(super) mask: u8,
}

impl Place for Bits {
    type Value = u8;

    #[inline]
    fn read(self, header: &[u8]) -> u8 {
        (header.get(self.at).copied().unwrap_or_default() & self.mask) >> self.mask.trailing_zeros()
    }

    #[inline]
    fn write(self, header: &mut [u8], value: u8) {
        if let Some(byte) = header.get_mut(self.at) {
            *byte = *byte & !self.mask | (value << self.mask.trailing_zeros()) & self.mask;
        }
    }
}

/// One bit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    /// Byte offset.
    pub(super) at: usize,
    /// The bit.
    pub(super) mask: u8,
}

impl Place for Flag {
    type Value = bool;

    #[inline]
    fn read(self, header: &[u8]) -> bool {
        header.get(self.at).is_some_and(|byte| byte & self.mask != 0)
    }

    #[inline]
    fn write(self, header: &mut [u8], value: bool) {
        if let Some(byte) = header.get_mut(self.at) {
            *byte = *byte & !self.mask | if value { self.mask } else { 0 };
        }
    }
}

/// Three bytes that make a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Three {
    /// Byte offset.
    pub(super) at: usize,
}

impl Place for Three {
    type Value = u32;

    #[inline]
    fn read(self, header: &[u8]) -> u32 {
        match header.get(self.at..self.at + 3) {
            Some(&[high, middle, low]) => u32::from_be_bytes([0, high, middle, low]),
            _ => 0,
        }
    }

    #[inline]
    fn write(self, header: &mut [u8], value: u32) {
        let [_, bytes @ ..] = value.to_be_bytes();
        if let Some(out) = header.get_mut(self.at..self.at + 3) {
            out.copy_from_slice(&bytes);
        }
    }
}

/// A BHS under construction; all that is not written is zero (RFC 7143 §11).
#[derive(Debug)]
pub(super) struct Header([u8; BHS_LEN]);

impl Header {
    /// A BHS with its opcode and DataSegmentLength.
    #[inline]
    pub(super) fn new(opcode: u8, data_segment_length: u32) -> Self {
        debug_assert!(data_segment_length < 1 << 24, "DataSegmentLength has 24 bits");
        Self([0; BHS_LEN])
            .with(super::bhs::OPCODE, opcode)
            .with(super::bhs::DATA_SEGMENT_LENGTH, data_segment_length)
    }

    /// A BHS of a PDU that never has a data segment.
    #[inline]
    pub(super) fn bare(opcode: u8, data_segment_length: u32) -> Self {
        debug_assert!(data_segment_length == 0, "opcode 0x{opcode:02x} has no data segment");
        Self::new(opcode, 0)
    }

    /// Writes `value` at `place`.
    #[inline]
    #[must_use]
    pub(super) fn with<P: Place>(mut self, place: P, value: P::Value) -> Self {
        place.write(&mut self.0, value);
        self
    }

    /// The bytes.
    #[inline]
    pub(super) fn done(self) -> [u8; BHS_LEN] {
        self.0
    }
}

impl<const N: usize> Layout for [u8; N] {
    const LEN: usize = N;

    #[inline]
    fn from_slice(bytes: &[u8]) -> Self {
        bytes.try_into().unwrap_or([0; N])
    }

    #[inline]
    fn to_slice(self, out: &mut [u8]) {
        if let Some(out) = out.first_chunk_mut() {
            *out = self;
        }
    }
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl Layout for $int {
            const LEN: usize = size_of::<$int>();

            #[inline]
            fn from_slice(bytes: &[u8]) -> Self {
                Self::from_be_bytes(Layout::from_slice(bytes))
            }

            #[inline]
            fn to_slice(self, out: &mut [u8]) {
                self.to_be_bytes().to_slice(out);
            }
        }
    )*};
}

macro_rules! newtypes {
    ($($name:ident($inner:ty)),*) => {$(
        impl Layout for $name {
            const LEN: usize = <$inner as Layout>::LEN;

            #[inline]
            fn from_slice(bytes: &[u8]) -> Self {
                Self(Layout::from_slice(bytes))
            }

            #[inline]
            fn to_slice(self, out: &mut [u8]) {
                self.0.to_slice(out);
            }
        }
    )*};
}

integers!(u8, u16, u32);
newtypes!(
    CmdSn(u32),
    StatSn(u32),
    DataSn(u32),
    R2tSn(u32),
    Itt(u32),
    Ttt(u32),
    Cid(u16),
    Tsih(u16),
    Isid([u8; 6]),
    LunField([u8; 8])
);
