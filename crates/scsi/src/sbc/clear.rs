// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks that are cleared, and what becomes of their space (SBC-3 §4.7).

use store::Op;
use store::Space;

use crate::limits;

/// What an unmap operation leaves behind, by its ANCHOR bit.
pub(crate) const fn left_by(anchor: bool) -> Space {
    if anchor { Space::Anchored } else { Space::Deallocated }
}

/// The first piece of what is to be cleared, of at most `left` bytes, and its length.
pub(crate) fn piece(offset: u64, left: u64, leave: Space) -> (u64, Op) {
    let max = match leave {
        Space::Deallocated => limits::DISCARD_MAX,
        Space::Anchored | Space::Mapped => limits::ZERO_MAX,
    };
    let length = left.min(max);
    (length, Op::Clear { offset, length, leave })
}
