// SPDX-License-Identifier: Apache-2.0 OR MIT
//! READ BUFFER and WRITE BUFFER (SPC-4 §6.18, §6.49): modes and descriptors.

use super::cdb::CdbView;
use super::field::get_u8;
use super::field::get_u16;

/// MODE: what buffers there are.
pub const DESCRIPTOR: u8 = 0x03;
/// MODE: the echo buffer.
pub const ECHO: u8 = 0x0a;
/// MODE: how large the echo buffer is.
pub const ECHO_DESCRIPTOR: u8 = 0x0b;

/// READ BUFFER(10), WRITE BUFFER. BUFFER ID and BUFFER OFFSET mean nothing for an echo buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// MODE, five bits.
    pub mode: u8,
    /// ALLOCATION LENGTH or PARAMETER LIST LENGTH, bytes, 24 bits.
    pub length: u32,
}

impl Request {
    /// Reads a CDB with one of their operation codes.
    #[must_use]
    pub fn parse(cdb: &CdbView<'_>) -> Self {
        Self { mode: cdb.byte(1) & 0x1f, length: cdb.u32_at(5) & 0x00ff_ffff }
    }
}

/// READ BUFFER descriptor (SPC-4 §6.18.5) of a buffer that is not there.
pub const NO_BUFFER: [u8; 4] = [0; 4];

/// Echo buffer descriptor (SPC-4 §6.18.8): no other nexus writes to the buffer of this one (EBOS =
/// 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoDescriptor {
    /// BUFFER CAPACITY, bytes; 13 bits.
    pub capacity: u16,
}

impl EchoDescriptor {
    const CAPACITY: u16 = 0x1fff;

    /// Writes the descriptor.
    #[must_use]
    pub const fn emit(&self) -> [u8; 4] {
        let [high, low] = (self.capacity & Self::CAPACITY).to_be_bytes();
        [0, 0, high, low]
    }

    /// Reads the descriptor; None if it is cut, or the buffer is one of several nexuses.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let several = get_u8(bytes, 0)? & 1 == 1;
        let capacity = get_u16(bytes, 2)? & Self::CAPACITY;
        (!several).then_some(Self { capacity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iscsi::Cdb;

    #[test]
    fn a_request_has_a_length_of_three_bytes() {
        let cdb = Cdb::new(&[0x3b, 0xea, 1, 2, 3, 4, 5, 6, 7, 8]).expect("short");
        let request = Request::parse(&CdbView::new(&cdb));
        assert_eq!(request, Request { mode: ECHO, length: 0x05_0607 });
    }

    #[test]
    fn echo_descriptors_round_trip() {
        for capacity in [0, 1, 4096, 0x1fff] {
            let descriptor = EchoDescriptor { capacity };
            assert_eq!(EchoDescriptor::parse(&descriptor.emit()), Some(descriptor));
        }
        assert_eq!(EchoDescriptor { capacity: 0x1000 }.emit(), [0, 0, 0x10, 0]);
        assert_eq!(EchoDescriptor::parse(&[1, 0, 0, 4]), None);
        assert_eq!(EchoDescriptor::parse(&[0, 0, 0]), None);
    }
}
