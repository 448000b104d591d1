// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stands beside each logical block: its protection information, twice.
//!
//! A record has two slots of 16 bytes, each `{ information:8 data_crc:4 sequence:4 }`, big-endian;
//! a slot of zeros is empty. A write fills the slot that is not in force, then the block itself:
//! whatever is torn between the two, the slot whose `data_crc` is that of the block is in force. So
//! an end of the process at any point leaves each block with the information that belongs to it,
//! old or new, without a journal and without an order that the system would have to keep for longer
//! than from one write to the next. The first write fills both slots, so that a block that was not
//! written before, too, is told from one that was changed behind our back.

use wire::scsi::protection::INFORMATION_LEN;
use wire::scsi::protection::Information;

/// Bytes beside a block.
pub(crate) const RECORD_LEN: usize = 2 * SLOT_LEN;

const SLOT_LEN: usize = INFORMATION_LEN + 8;

/// What stands beside a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record([Option<Slot>; 2]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    information: Information,
    /// CRC32C of the block that it belongs to.
    data_crc: u32,
    /// The larger one is newer, in serial arithmetic; never zero.
    sequence: u32,
}

impl Slot {
    fn parse(bytes: [u8; SLOT_LEN]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, crc @ .., i, j, k, l] = bytes;
        let sequence = u32::from_be_bytes([i, j, k, l]);
        (sequence != 0).then(|| Self {
            information: Information::parse([a, b, c, d, e, f, g, h]),
            data_crc: u32::from_be_bytes(crc),
            sequence,
        })
    }

    fn emit(&self) -> [u8; SLOT_LEN] {
        let mut bytes = [0; SLOT_LEN];
        let (information, rest) = bytes.split_at_mut(INFORMATION_LEN);
        information.copy_from_slice(&self.information.emit());
        let (crc, sequence) = rest.split_at_mut(4);
        crc.copy_from_slice(&self.data_crc.to_be_bytes());
        sequence.copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }
}

impl Record {
    /// Reads a record; every bytes are one.
    pub(crate) fn parse(bytes: [u8; RECORD_LEN]) -> Self {
        let (slots, _) = bytes.as_chunks::<SLOT_LEN>();
        let slot = |at: usize| slots.get(at).copied().and_then(Slot::parse);
        Self([slot(0), slot(1)])
    }

    /// Writes it.
    pub(crate) fn emit(&self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        let (slots, _) = bytes.as_chunks_mut::<SLOT_LEN>();
        for (to, slot) in slots.iter_mut().zip(self.0) {
            *to = slot.map_or([0; SLOT_LEN], |slot| slot.emit());
        }
        bytes
    }

    /// The information of a block with this CRC: all ones if none was ever written. Where nothing
    /// belongs to the block, which no write of ours leaves behind, it is the newest one: its guard
    /// tells on the block.
    pub(crate) fn information(&self, data_crc: u32) -> Information {
        let slot = self.in_force(data_crc).and_then(|at| self.slot(at));
        slot.map_or(Information::ONES, |slot| slot.information)
    }

    /// The record while a block with CRC `old` becomes one with CRC `new`.
    pub(crate) fn replaced(&self, old: u32, new: u32, information: Information) -> Self {
        let slot = |sequence| Some(Slot { information, data_crc: new, sequence });
        let Some(newest) = self.newest().and_then(|at| self.slot(at)) else {
            let before = Slot { information: Information::ONES, data_crc: old, sequence: 1 };
            return Self([Some(before), slot(2)]);
        };
        let slot = slot(newest.sequence.checked_add(1).unwrap_or(1));
        match (self.in_force(old), self.0) {
            (Some(0), [kept, _]) => Self([kept, slot]),
            (_, [_, kept]) => Self([slot, kept]),
        }
    }

    fn in_force(&self, data_crc: u32) -> Option<usize> {
        let fits = |at: usize| self.slot(at).is_some_and(|slot| slot.data_crc == data_crc);
        match (fits(0), fits(1)) {
            (true, false) => Some(0),
            (false, true) => Some(1),
            _ => self.newest(),
        }
    }

    fn newest(&self) -> Option<usize> {
        match self.0 {
            [None, None] => None,
            [Some(_), None] => Some(0),
            [None, Some(_)] => Some(1),
            [Some(left), Some(right)] => {
                let ahead = right.sequence.wrapping_sub(left.sequence);
                Some(usize::from(ahead < 1 << 31))
            }
        }
    }

    fn slot(&self, at: usize) -> Option<Slot> {
        self.0.get(at).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn information(tag: u16) -> Information {
        Information { guard: tag, application: !tag, reference: u32::from(tag) << 7 }
    }

    const EMPTY: Record = Record([None, None]);

    #[test]
    fn vector() {
        let record = EMPTY.replaced(
            0x0a0b_0c0d,
            0x0102_0304,
            Information { guard: 0xa1a2, application: 0xb1b2, reference: 0xc1c2_c3c4 },
        );
        let bytes = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0,
            1, //
            0xa1, 0xa2, 0xb1, 0xb2, 0xc1, 0xc2, 0xc3, 0xc4, 1, 2, 3, 4, 0, 0, 0, 2,
        ];
        assert_eq!(record.emit(), bytes);
        assert_eq!(Record::parse(bytes), record);
    }

    #[test]
    fn nothing_written_is_all_ones() {
        assert_eq!(Record::parse([0; RECORD_LEN]), EMPTY);
        assert_eq!(EMPTY.information(7), Information::ONES);
    }

    #[test]
    fn the_sequence_wraps_around() {
        let last = Slot { information: information(1), data_crc: 1, sequence: u32::MAX };
        let record = Record([None, Some(last)]).replaced(1, 2, information(2));
        assert_eq!(
            (record.information(1), record.information(2)),
            (information(1), information(2))
        );
        assert_eq!(record.information(3), information(2), "the newer one");
    }

    proptest! {
        /// Writes of which each is either whole, or ends behind its record.
        #[test]
        fn a_block_keeps_the_information_that_belongs_to_it(
            writes in proptest::collection::vec((any::<u8>(), any::<u16>(), any::<bool>()), 1..20),
            before in proptest::option::of(any::<u32>()),
        ) {
            let mut record = EMPTY;
            let (mut crc, mut expected) = (before.unwrap_or(0), Information::ONES);
            for (data, tag, whole) in writes {
                // Few CRCs, so that blocks are written again with the same bytes.
                let new = u32::from(data % 4) << 20;
                record = Record::parse(record.replaced(crc, new, information(tag)).emit());
                if whole {
                    crc = new;
                }
                // With the same bytes the write has happened once its record is there.
                if whole || crc == new {
                    expected = information(tag);
                }
                prop_assert_eq!(record.information(crc), expected);
            }
        }

        #[test]
        fn any_bytes_are_a_record(bytes: [u8; RECORD_LEN], crc: u32) {
            let record = Record::parse(bytes);
            prop_assert_eq!(Record::parse(record.emit()), record);
            let _ = record.information(crc);
            let next = record.replaced(crc, !crc, information(9));
            prop_assert_eq!(next.information(!crc), information(9));
        }
    }
}
