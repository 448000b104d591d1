// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCSI Command (RFC 7143 §11.3).

use super::ahs::{AHS_BIDI_READ_LENGTH, AHS_EXTENDED_CDB, Ahs, AhsList, push_ahs};
use super::bhs::{BHS_LEN, CMD_SN, EXP_STAT_SN, FINAL, IMMEDIATE, ITT, LUN, TOTAL_AHS_LENGTH};
use super::field::Bits;
use super::field::Field;
use super::field::Flag;
use super::field::Header;
use super::field::Place;
use super::view::view;
use super::{CmdSn, Itt, LunField, ParseError, StatSn};
use alloc::vec::Vec;

/// Opcode of a SCSI Command.
pub const OPCODE_SCSI_COMMAND: u8 = 0x01;

const READ: Flag = Flag { at: 1, mask: 0x40 };
const WRITE: Flag = Flag { at: 1, mask: 0x20 };
const ATTR: Bits = Bits { at: 1, mask: 0x07 };
const PRI: Bits = Bits { at: 2, mask: 0xf0 };
const EXPECTED_LENGTH: Field<u32> = Field::at(20);
const CDB: Field<[u8; 16]> = Field::at(32);

view! {
    /// The header of a SCSI Command (RFC 7143 §11.3).
    pub struct CommandView("SCSI Command", OPCODE_SCSI_COMMAND) {
        /// I: immediate delivery.
        "I" immediate: bool = IMMEDIATE;
        /// F: no unsolicited Data-Out follows.
        "F" final_: bool = FINAL;
        /// R: data to the initiator is expected.
        "R" read: bool = READ;
        /// W: data to the target is expected.
        "W" write: bool = WRITE;
        /// Task attribute code.
        "ATTR" attribute: u8 = ATTR;
        /// Command priority (RFC 7144 §6.1.1).
        "PRI" priority: u8 = PRI;
        /// Logical unit.
        "LUN" lun: LunField = LUN;
        /// Initiator Task Tag.
        "ITT" itt: Itt = ITT;
        /// Expected Data Transfer Length, bytes.
        "EDTL" expected_length: u32 = EXPECTED_LENGTH;
        /// CmdSN.
        "CmdSN" cmd_sn: CmdSn = CMD_SN;
        /// ExpStatSN.
        "ExpStatSN" exp_stat_sn: StatSn = EXP_STAT_SN;
        /// Bytes 0 to 15 of the CDB.
        "CDB" cdb: [u8; 16] = CDB;
    }
}

impl<T: AsRef<[u8]>> CommandView<T> {
    /// The AHS list.
    pub fn ahs(&self) -> AhsList<'_> {
        let end = BHS_LEN + self.bhs().total_ahs_length();
        AhsList::new(self.bytes.as_ref().get(BHS_LEN..end).unwrap_or_default())
    }
}

/// A CDB as it came: `len` is its full length, `bytes` its first 32 bytes, zero filled.
///
/// The BHS does not say how much of its 16 bytes the CDB fills, so that `len` is 16 unless an
/// extended CDB follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cdb {
    /// The first 32 bytes.
    pub bytes: [u8; 32],
    /// Length in bytes, 16 to [`Cdb::LEN_MAX`] in what was parsed; less than 16 is taken by `emit`
    /// as 16.
    pub len: u16,
}

impl Cdb {
    /// What the one byte of TotalAHSLength leaves room for beside a bidirectional read length, in
    /// bytes.
    pub const LEN_MAX: u16 = 1024;

    /// One that begins with `bytes`, at most 32, and ends with zeroes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut cdb = Self { bytes: [0; 32], len: u16::try_from(bytes.len()).ok()?.max(16) };
        cdb.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(cdb)
    }
}

/// Task attribute (RFC 7143 §11.3.1, SAM-5 §8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // those of the standard
pub enum Attribute {
    /// Code 0; SAM no longer knows it and takes it as simple.
    Untagged,
    /// Code 1.
    Simple,
    /// Code 2.
    Ordered,
    /// Code 3.
    HeadOfQueue,
    /// Code 4.
    Aca,
}

impl Attribute {
    /// The code on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Untagged => 0,
            Self::Simple => 1,
            Self::Ordered => 2,
            Self::HeadOfQueue => 3,
            Self::Aca => 4,
        }
    }

    /// The attribute of a code; 5 to 7 are reserved.
    ///
    /// # Errors
    /// [`ParseError::ReservedValue`].
    pub const fn from_code(code: u8) -> Result<Self, ParseError> {
        Ok(match code {
            0 => Self::Untagged,
            1 => Self::Simple,
            2 => Self::Ordered,
            3 => Self::HeadOfQueue,
            4 => Self::Aca,
            _ => return Err(ParseError::ReservedValue { field: "ATTR", value: code as u32 }),
        })
    }
}

/// A SCSI Command (RFC 7143 §11.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiCommand {
    /// I: deliver at once, outside of CmdSN order.
    pub immediate: bool,
    /// F: no unsolicited Data-Out follows. Clear only with `write`.
    pub final_: bool,
    /// R: data to the initiator is expected.
    pub read: bool,
    /// W: data to the target is expected.
    pub write: bool,
    /// Task attribute.
    pub attribute: Attribute,
    /// RFC 7144 command priority, 0-15.
    pub priority: u8,
    /// Logical unit.
    pub lun: LunField,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Expected Data Transfer Length in bytes; of the write part if bidirectional. Zero without
    /// `read` and `write`.
    pub expected_length: u32,
    /// CmdSN.
    pub cmd_sn: CmdSn,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
    /// The command.
    pub cdb: Cdb,
    /// From the AHS of type 2: Some exactly with `read` and `write`. Bytes.
    pub bidi_read_length: Option<u32>,
}

impl ScsiCommand {
    /// Takes the header apart.
    ///
    /// # Errors
    /// [`ParseError::Inconsistent`] for F and W both clear, a length without direction, a
    /// bidirectional command whose read length is missing, a broken AHS;
    /// [`ParseError::ReservedValue`] for an attribute or AHS type without meaning.
    pub fn parse<T: AsRef<[u8]>>(view: &CommandView<T>) -> Result<Self, ParseError> {
        let bhs = view.bhs();
        bhs.expect_opcode(OPCODE_SCSI_COMMAND)?;
        let mut command = Self {
            immediate: view.immediate(),
            final_: view.final_(),
            read: view.read(),
            write: view.write(),
            attribute: Attribute::from_code(view.attribute())?,
            priority: view.priority(),
            lun: view.lun(),
            itt: bhs.task_tag()?,
            expected_length: view.expected_length(),
            cmd_sn: view.cmd_sn(),
            exp_stat_sn: view.exp_stat_sn(),
            cdb: Cdb { bytes: [0; 32], len: 16 },
            bidi_read_length: None,
        };
        command.cdb.bytes[..16].copy_from_slice(&view.cdb());
        for ahs in view.ahs() {
            command.take_ahs(ahs?)?;
        }
        command.check()?;
        Ok(command)
    }

    /// Appends BHS and AHS. CDB bytes from 32 on go out as zeros: a caller that has more fills them
    /// in.
    pub fn emit(&self, data_segment_length: u32, out: &mut Vec<u8>) {
        debug_assert!(self.cdb.len <= Cdb::LEN_MAX, "the AHS fit into TotalAHSLength");
        let (first, second) = self.cdb.bytes.split_at(16);
        let start = out.len();
        let header = Header::new(OPCODE_SCSI_COMMAND, data_segment_length)
            .with(IMMEDIATE, self.immediate)
            .with(FINAL, self.final_)
            .with(READ, self.read)
            .with(WRITE, self.write)
            .with(ATTR, self.attribute.code())
            .with(PRI, self.priority)
            .with(LUN, self.lun)
            .with(ITT, self.itt)
            .with(EXPECTED_LENGTH, self.expected_length)
            .with(CMD_SN, self.cmd_sn)
            .with(EXP_STAT_SN, self.exp_stat_sn)
            .with(CDB, first.try_into().unwrap_or_default());
        out.extend_from_slice(&header.done());
        if let Some(content_len @ 1..) = self.cdb.len.min(Cdb::LEN_MAX).checked_sub(16) {
            let content = second.get(..usize::from(content_len)).unwrap_or(second);
            push_ahs(out, AHS_EXTENDED_CDB, content, content_len);
        }
        if let Some(length) = self.bidi_read_length {
            push_ahs(out, AHS_BIDI_READ_LENGTH, &length.to_be_bytes(), 4);
        }
        let words = (out.len() - start - BHS_LEN) / 4;
        if let Some(header) = out.get_mut(start..) {
            TOTAL_AHS_LENGTH.write(header, u8::try_from(words).unwrap_or(u8::MAX));
        }
    }

    fn take_ahs(&mut self, ahs: Ahs<'_>) -> Result<(), ParseError> {
        match ahs.kind {
            AHS_EXTENDED_CDB => {
                const BAD: ParseError = ParseError::Inconsistent { what: "bad extended CDB AHS" };
                let Some((_, content @ [_, ..])) = ahs.body.split_first() else {
                    return Err(BAD);
                };
                if self.cdb.len != 16 {
                    return Err(BAD);
                }
                for (to, from) in self.cdb.bytes.iter_mut().skip(16).zip(content) {
                    *to = *from;
                }
                self.cdb.len = u16::try_from(16 + content.len())
                    .ok()
                    .filter(|len| *len <= Cdb::LEN_MAX)
                    .ok_or(BAD)?;
            }
            AHS_BIDI_READ_LENGTH => {
                let (None, &[_, a, b, c, d]) = (self.bidi_read_length, ahs.body) else {
                    return Err(ParseError::Inconsistent { what: "bad bidirectional read AHS" });
                };
                self.bidi_read_length = Some(u32::from_be_bytes([a, b, c, d]));
            }
            kind => {
                return Err(ParseError::ReservedValue { field: "AHSType", value: kind.into() });
            }
        }
        Ok(())
    }

    /// The rules between F, R, W and the lengths (RFC 7143 §11.3.1).
    ///
    /// # Errors
    /// [`ParseError::Inconsistent`].
    pub fn check(&self) -> Result<(), ParseError> {
        let what = if !self.final_ && !self.write {
            "SCSI Command with F and W clear"
        } else if self.expected_length != 0 && !self.read && !self.write {
            "SCSI Command with a length and no direction"
        } else if self.bidi_read_length.is_some() != (self.read && self.write) {
            "bidirectional read length does not match R and W"
        } else {
            return Ok(());
        };
        Err(ParseError::Inconsistent { what })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{hex, line, reject_reason_with, request_vector};
    use super::super::*;
    use super::*;

    const READ_10: &str = "01 c0 00 00 00 00 00 00 00 00 00 00 00 00 00 00
                           14 00 00 00 00 00 04 00 00 00 00 14 00 00 00 18
                           28 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00";

    fn cdb(bytes: &[u8], len: u16) -> Cdb {
        let mut cdb = Cdb { bytes: [0; 32], len };
        cdb.bytes[..bytes.len()].copy_from_slice(bytes);
        cdb
    }

    fn read_10() -> ScsiCommand {
        ScsiCommand {
            immediate: false,
            final_: true,
            read: true,
            write: false,
            attribute: Attribute::Untagged,
            priority: 0,
            lun: LunField([0; 8]),
            itt: Itt(0x1400_0000),
            expected_length: 1024,
            cmd_sn: CmdSn(20),
            exp_stat_sn: StatSn(24),
            cdb: cdb(&[0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0], 16),
            bidi_read_length: None,
        }
    }

    #[test]
    fn read() {
        let bytes = request_vector(Request::Command(read_10()), 0, READ_10);
        assert_eq!(
            line(&bytes),
            "SCSI Command F R ITT=0x14000000 EDTL=1024 CmdSN=20 ExpStatSN=24 \
             CDB=28000000000000000200000000000000"
        );
    }

    #[test]
    fn inquiry() {
        let command = ScsiCommand {
            attribute: Attribute::Simple,
            itt: Itt(0x11),
            expected_length: 36,
            cmd_sn: CmdSn(5),
            exp_stat_sn: StatSn(0x65),
            cdb: cdb(&[0x12, 0, 0, 0, 0x24], 16),
            ..read_10()
        };
        request_vector(
            Request::Command(command),
            0,
            "01 c1 00 00 00 00 00 00 00 00 00 00 00 00 00 00
             00 00 00 11 00 00 00 24 00 00 00 05 00 00 00 65
             12 00 00 00 24 00 00 00 00 00 00 00 00 00 00 00",
        );
    }

    /// Immediate data, unsolicited data to follow, priority, an immediate command, a LUN of 16383.
    #[test]
    fn write() {
        let command = ScsiCommand {
            immediate: true,
            final_: false,
            read: false,
            write: true,
            attribute: Attribute::HeadOfQueue,
            priority: 0xa,
            lun: LunField([0x7f, 0xff, 0, 0, 0, 0, 0, 0]),
            itt: Itt(0x22),
            expected_length: 300_000,
            cmd_sn: CmdSn(0xffff_ffff),
            exp_stat_sn: StatSn(1),
            cdb: cdb(&[0x2a, 0, 0, 0, 0, 0, 0, 2, 0x4a, 0], 16),
            bidi_read_length: None,
        };
        request_vector(
            Request::Command(command),
            32768,
            "41 23 a0 00 00 00 80 00 7f ff 00 00 00 00 00 00
             00 00 00 22 00 04 93 e0 ff ff ff ff 00 00 00 01
             2a 00 00 00 00 00 00 02 4a 00 00 00 00 00 00 00",
        );
    }

    /// Covers: FMT-14.
    #[test]
    fn bidirectional_with_long_cdb() {
        let bytes: Vec<u8> = (0x80..0xa0).collect();
        let command = ScsiCommand {
            read: true,
            write: true,
            attribute: Attribute::Ordered,
            expected_length: 512,
            cdb: cdb(&bytes, 32),
            bidi_read_length: Some(0x0102_0304),
            ..read_10()
        };
        let bytes = request_vector(
            Request::Command(command),
            0,
            "01 e2 00 00 07 00 00 00 00 00 00 00 00 00 00 00
             14 00 00 00 00 00 02 00 00 00 00 14 00 00 00 18
             80 81 82 83 84 85 86 87 88 89 8a 8b 8c 8d 8e 8f
             00 11 01 00 90 91 92 93 94 95 96 97 98 99 9a 9b
             9c 9d 9e 9f 00 05 02 00 01 02 03 04",
        );
        assert_eq!(CommandView::new_checked(&bytes).unwrap().ahs().count(), 2);
    }

    /// Sizes of AHS for CDB lengths: AHSLength, TotalAHSLength in words.
    ///
    /// Covers: FMT-12, FMT-13.
    #[test]
    fn long_cdb_sizes() {
        let sizes = [(17, 2, 2), (20, 5, 2), (21, 6, 3), (32, 17, 5), (260, 245, 62)];
        for (len, ahs_length, words) in sizes {
            let command = ScsiCommand { cdb: cdb(&[0x7f], len), ..read_10() };
            let mut out = Vec::new();
            command.emit(0, &mut out);
            assert_eq!(usize::from(out[4]), words);
            assert_eq!(out.len(), 48 + 4 * words);
            assert_eq!(out[48..51], [0, ahs_length, 1]);
            assert_eq!(Request::parse(&out), Ok(Request::Command(command)));
        }
        let mut out = Vec::new();
        read_10().emit(0, &mut out);
        assert_eq!((out.len(), out[4]), (48, 0));
    }

    /// Covers: FMT-15.
    #[test]
    fn broken_ahs() {
        let refuse = |flags: u8, ahs: &str| {
            let mut bytes = hex(READ_10);
            bytes[1] = flags;
            bytes.extend(hex(ahs));
            bytes[4] = u8::try_from((bytes.len() - 48) / 4).unwrap();
            Request::parse(&bytes).err().map(|error| error.reject_reason())
        };
        assert_eq!(refuse(0xc0, "0002 01 00 aa 000000"), None);
        assert_eq!(refuse(0xe0, "0005 02 00 00000001"), None);
        assert_eq!(refuse(0xe0, "0005 c2 ff 00000001"), None, "reserved bits are ignored");
        for (flags, ahs, reason) in [
            (0xc0, "0006 01 00 aa bbccdd", 0x04),
            (0xc0, "ffff 01 00 aa 000000", 0x04),
            (0xc0, "0001 01 00", 0x04),
            (0xc0, "0000 01 00", 0x04),
            (0xc0, "0002 01 00 aa 000000 0002 01 00 aa 000000", 0x04),
            (0xe0, "0004 02 00 00000001", 0x04),
            (0xe0, "0006 02 00 0000000100000000", 0x04),
            (0xe0, "0005 02 00 00000001 0005 02 00 00000001", 0x04),
            (0xc0, "0005 02 00 00000001", 0x04),
            (0xe0, "", 0x04),
            (0xc0, "0001 00 00", 0x09),
            (0xc0, "0001 03 00", 0x09),
            (0xc0, "0001 3f 00", 0x09),
        ] {
            assert_eq!(refuse(flags, ahs), Some(reason), "{ahs}");
        }
        let mut long = alloc::string::String::from("03ed 01 00");
        long.push_str(&"55".repeat(1016));
        assert_eq!(refuse(0xc0, &long), Some(0x04), "no room for a read length");
    }

    #[test]
    fn ahs_is_not_all_there() {
        let mut bytes = hex(READ_10);
        bytes[4] = 2;
        let error = ParseError::Truncated { needed: 56, given: 48 };
        assert_eq!(Request::parse(&bytes), Err(error));
        bytes.extend(hex("0002 01 00 aa 000000 ff"));
        assert!(Request::parse(&bytes).is_ok(), "what follows is not looked at");
    }

    #[test]
    fn flags() {
        let bytes = hex(READ_10);
        for (byte, reason) in [
            (0xc0, None),
            (0xa0, None),
            (0x20, None),
            (0xc4, None),
            (0xd8, None),
            (0x40, Some(0x04)),
            (0x00, Some(0x04)),
            (0x80, Some(0x04)),
            (0xe0, Some(0x04)),
            (0xc5, Some(0x09)),
            (0xc6, Some(0x09)),
            (0xc7, Some(0x09)),
        ] {
            assert_eq!(reject_reason_with(&bytes, 1, byte), reason, "0x{byte:02x}");
        }
        let mut bytes = bytes;
        bytes[20..24].fill(0);
        assert_eq!(reject_reason_with(&bytes, 1, 0x80), None);
    }
}
