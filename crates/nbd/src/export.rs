// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is served.

use alloc::string::String;

/// "Block size constraints": bytes, powers of two but for the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // these three are told to clients
pub struct BlockSizes {
    /// Offsets and lengths are multiples of it.
    pub least: u32,
    /// What is best.
    pub preferred: u32,
    /// Longest data of one request; a multiple of `least`.
    pub most: u32,
}

/// A disk as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // whoever serves one says all of it
pub struct Export {
    /// Clients ask for it by that; the empty name means it, too.
    pub name: String,
    /// For people.
    pub description: String,
    /// Size, bytes.
    pub bytes: u64,
    /// Block sizes.
    pub blocks: BlockSizes,
    /// Writes are refused.
    pub read_only: bool,
    /// `NBD_CMD_TRIM` gives space back.
    pub trim: bool,
    /// Zeroes can be written without their being sent, and a request for that may ask to fail
    /// rather than be slow.
    pub fast_zero: bool,
    /// Clients may ask what has space (`base:allocation`).
    pub allocation: bool,
}

// "Transmission flags".
const HAS_FLAGS: u16 = 1 << 0;
const READ_ONLY: u16 = 1 << 1;
const SEND_FLUSH: u16 = 1 << 2;
const SEND_FUA: u16 = 1 << 3;
const SEND_TRIM: u16 = 1 << 5;
const SEND_WRITE_ZEROES: u16 = 1 << 6;
const SEND_DF: u16 = 1 << 7;
const CAN_MULTI_CONN: u16 = 1 << 8;
const SEND_FAST_ZERO: u16 = 1 << 11;

impl Export {
    pub(crate) fn is_called(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }

    /// "Transmission flags". A flush on one connection holds for what was acknowledged on any.
    pub(crate) fn flags(&self, structured: bool) -> u16 {
        let when = |condition, flag| if condition { flag } else { 0 };
        HAS_FLAGS
            | SEND_FLUSH
            | CAN_MULTI_CONN
            | when(structured, SEND_DF)
            | if self.read_only {
                READ_ONLY
            } else {
                SEND_FUA
                    | SEND_WRITE_ZEROES
                    | when(self.trim, SEND_TRIM)
                    | when(self.fast_zero, SEND_FAST_ZERO)
            }
    }
}
