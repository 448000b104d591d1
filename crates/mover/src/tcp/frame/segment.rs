// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data segment under way, and the one pass over its bytes that copies and checks them.
//!
//! Read first: RFC 7143 §11.2.3 (data digest).

use alloc::vec::Vec;

use crc::Crc32c;

use crate::limits::CONTROL_KEEP;

/// The data segment under way.
#[derive(Debug, Default)]
pub(in crate::tcp) struct Segment {
    /// Bytes of data, then of padding, that are still to come.
    pub(super) left: usize,
    pub(super) padding_left: usize,
    /// Some if a data digest follows.
    pub(super) crc: Option<Crc32c>,
    pub(super) control: Vec<u8>,
}

impl Segment {
    /// Whether a data digest follows.
    pub(in crate::tcp) const fn has_digest(&self) -> bool {
        self.crc.is_some()
    }

    /// Counts bytes for the digest, if there is one.
    pub(in crate::tcp) fn digest(&mut self, part: &[u8]) {
        if let Some(crc) = &mut self.crc {
            crc.update(part);
        }
    }

    /// Keeps data bytes, which count for the digest, as control data.
    pub(in crate::tcp) fn keep(&mut self, part: &[u8]) {
        if self.control.is_empty() {
            self.control.reserve_exact((part.len() + self.left).min(CONTROL_KEEP));
        }
        self.control.extend_from_slice(part);
        self.digest(part);
    }

    /// Copies into `place`, if there is one; returns how many bytes. All bytes count for the
    /// digest.
    pub(in crate::tcp) fn deposit(&mut self, place: Option<&mut [u8]>, part: &[u8]) -> usize {
        match (place, &mut self.crc) {
            (Some(place), Some(crc)) => crc.copy_update(place, part),
            (Some(place), None) => buf::copy(place, part),
            (None, _) => {
                self.digest(part);
                return 0;
            }
        }
        part.len()
    }
}
