// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks as they travel, with their protection information behind each, and as they are stored.

use super::terms::BlockPosition;
use super::terms::Terms;
use crate::sense;
use crate::sense::Fault;
use alloc::vec::Vec;
use buf::Slice;
use wire::scsi::protection::INFORMATION_LEN;
use wire::scsi::protection::Information;

/// Addresses of what is written are multiples of this, which direct I/O needs.
const ALIGNMENT: usize = 4096;

/// What came as Data-Out.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// The blocks, one behind the other.
    pub(super) data: Slice,
    /// What came behind each of them, if anything did.
    pub(super) information: Option<Vec<Information>>,
}

impl Sent {
    /// Takes apart what came, for blocks of `block` bytes.
    pub(super) fn split(whole: Slice, block: usize, terms: &Terms) -> Result<Self, Fault> {
        if !terms.travels() {
            return Ok(Self { data: whole, information: None });
        }
        let whole = whole.bytes();
        let pairs = whole.chunks_exact(block + INFORMATION_LEN);
        let information = pairs.clone().map(|pair| Information::at(pair, block)).collect();
        let data = aligned(pairs.map(|pair| pair.get(..block).unwrap_or_default()), whole.len());
        let information: Option<Vec<_>> = information;
        Ok(Self { data, information: Some(information.ok_or(sense::INTERNAL)?) })
    }

    /// Checks what came behind each block, the first of which is for `lba`; after `count` blocks it
    /// begins again.
    pub(super) fn check(
        &self,
        terms: &Terms,
        lba: u64,
        count: u64,
        block: usize,
    ) -> Result<(), Fault> {
        let Some(list) = &self.information else { return Ok(()) };
        let data = self.data.bytes();
        for ((data, found), index) in data.chunks_exact(block).zip(list).zip((0..count).cycle()) {
            let place = BlockPosition { lba: lba.saturating_add(index), index };
            terms
                .check(*found, || crc::crc16_t10dif(data), place)
                .map_err(|wrong| wrong.aborted(place.lba))?;
        }
        Ok(())
    }

    /// What came behind block `index`.
    pub(super) fn information(&self, index: u64) -> Option<Information> {
        let list = self.information.as_ref()?;
        list.get(usize::try_from(index).ok()?).copied()
    }

    /// The bytes of the blocks.
    pub(super) fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }
}

/// Blocks of `block` bytes, each with what stands beside it.
pub(super) fn joined(data: &[u8], block: usize, information: &[Information]) -> Slice {
    let mut whole = Vec::with_capacity(data.len() + information.len() * INFORMATION_LEN);
    for (data, information) in data.chunks_exact(block).zip(information) {
        whole.extend_from_slice(data);
        whole.extend_from_slice(&information.emit());
    }
    Slice::from(whole)
}

/// `pieces`, of not more than `room` bytes, one behind the other at an aligned address.
fn aligned<'a>(pieces: impl Iterator<Item = &'a [u8]>, room: usize) -> Slice {
    let mut bytes: Vec<u8> = Vec::with_capacity(room + ALIGNMENT);
    let skip = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    bytes.resize(skip, 0);
    pieces.for_each(|piece| bytes.extend_from_slice(piece));
    let end = bytes.len();
    Slice::from(bytes).part(skip..end).unwrap_or_default()
}
