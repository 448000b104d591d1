// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CDBs of MODE SENSE and MODE SELECT.

use super::Header;
use super::PageControl;
use crate::scsi::cdb::CdbView;

/// MODE SENSE(6), (10) (SPC-4 §6.11, §6.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// Which of them.
    pub header: Header,
    /// PC.
    pub control: PageControl,
    /// PAGE CODE and SUBPAGE CODE.
    pub page: (u8, u8),
    /// LLBAA: a long block descriptor may be given; only (10) can ask for it.
    pub long_allowed: bool,
    /// DBD: no block descriptor.
    pub without_descriptor: bool,
    /// ALLOCATION LENGTH, bytes.
    pub allocation: u16,
}

impl Sense {
    /// Reads a CDB with one of their operation codes.
    #[must_use]
    pub fn parse(cdb: &CdbView<'_>) -> Self {
        let header = Header::of(cdb.opcode());
        Self {
            header,
            control: PageControl::from_code(cdb.byte(2) >> 6),
            page: (cdb.byte(2) & 0x3f, cdb.byte(3)),
            long_allowed: header == Header::Ten && cdb.bit(1, 4),
            without_descriptor: cdb.bit(1, 3),
            allocation: header.length_in(cdb),
        }
    }
}

/// MODE SELECT(6), (10) (SPC-4 §6.9, §6.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Select {
    /// Which of them.
    pub header: Header,
    /// PF: the list has the format of the standard.
    pub page_format: bool,
    /// SP: the values are to be saved.
    pub saves: bool,
    /// PARAMETER LIST LENGTH, bytes.
    pub length: u16,
}

impl Select {
    /// Reads a CDB with one of their operation codes.
    #[must_use]
    pub fn parse(cdb: &CdbView<'_>) -> Self {
        let header = Header::of(cdb.opcode());
        let (page_format, saves) = (cdb.bit(1, 4), cdb.bit(1, 0));
        Self { header, page_format, saves, length: header.length_in(cdb) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iscsi::Cdb;

    fn cdb(bytes: &[u8]) -> Cdb {
        Cdb::new(bytes).expect("32 bytes at most")
    }

    #[test]
    fn mode_sense_vectors() {
        let six = cdb(&[0x1a, 0x18, 0xc8, 0x01, 0xfe, 0]);
        let asked = Sense::parse(&CdbView::new(&six));
        let expected = Sense {
            header: Header::Six,
            control: PageControl::Saved,
            page: (0x08, 0x01),
            long_allowed: false,
            without_descriptor: true,
            allocation: 0xfe,
        };
        assert_eq!(asked, expected);
        let ten = cdb(&[0x5a, 0x10, 0x4a, 0xff, 0, 0, 0, 0x12, 0x34, 0]);
        let expected = Sense {
            header: Header::Ten,
            control: PageControl::Changeable,
            page: (0x0a, 0xff),
            long_allowed: true,
            without_descriptor: false,
            allocation: 0x1234,
        };
        assert_eq!(Sense::parse(&CdbView::new(&ten)), expected);
    }

    #[test]
    fn mode_select_vectors() {
        let six = cdb(&[0x15, 0x10, 0, 0, 24, 0]);
        let expected = Select { header: Header::Six, page_format: true, saves: false, length: 24 };
        assert_eq!(Select::parse(&CdbView::new(&six)), expected);
        let ten = cdb(&[0x55, 0x01, 0, 0, 0, 0, 0, 1, 2, 0]);
        let expected =
            Select { header: Header::Ten, page_format: false, saves: true, length: 0x102 };
        assert_eq!(Select::parse(&CdbView::new(&ten)), expected);
    }
}
