// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of the space of blocks that are unmapped (SBC-3 §4.7).

use crate::limits;
use store::Op;

/// What an unmap operation leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// Nothing.
    Deallocate,
    /// Space without data (ANCHOR).
    Anchor,
}

impl Release {
    /// By the ANCHOR bit.
    pub(crate) const fn of(anchor: bool) -> Self {
        if anchor { Self::Anchor } else { Self::Deallocate }
    }

    /// The longest piece, bytes.
    pub(crate) const fn piece_max(self) -> u64 {
        match self {
            Self::Deallocate => limits::DISCARD_MAX,
            Self::Anchor => limits::ANCHOR_MAX,
        }
    }

    /// One piece.
    pub(crate) const fn op(self, offset: u64, length: u64) -> Op {
        match self {
            Self::Deallocate => Op::Discard { offset, length },
            Self::Anchor => Op::Anchor { offset, length },
        }
    }
}
