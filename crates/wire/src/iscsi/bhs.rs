// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The 48 bytes all PDUs share (RFC 7143 §11.2.1).

use super::field::Bits;
use super::field::Field;
use super::field::Flag;
use super::field::Layout;
use super::field::Place;
use super::field::Three;
use super::{CmdSn, Itt, LunField, ParseError, StatSn, Ttt};

/// Length of the basic header segment that all PDUs share, in bytes (RFC 7143 §11.2.1).
pub const BHS_LEN: usize = 48;

/// `len` bytes rounded up to whole words, as every segment is padded (RFC 7143 §11.1).
///
/// `len` comes from a 24-bit field or a buffer of ours, so that the sum does not overflow; it
/// saturates if it would.
#[inline]
pub const fn pad4(len: usize) -> usize {
    len.saturating_add(3) & !3
}

/// A BHS; AHS and data may follow it in `T` and are not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BhsView<T: AsRef<[u8]>> {
    bytes: T,
}

impl<T: AsRef<[u8]>> BhsView<T> {
    /// Wraps the first 48 bytes of a PDU.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if there are fewer.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, ParseError> {
        let given = bytes.as_ref().len();
        if given < BHS_LEN {
            return Err(ParseError::Truncated { needed: BHS_LEN, given });
        }
        Ok(Self { bytes })
    }

    /// Wraps bytes whose length is known.
    #[inline]
    pub(super) fn unchecked(bytes: T) -> Self {
        Self { bytes }
    }

    /// Bits 0-5 of the first byte (RFC 7143 §11.2.1.2).
    #[inline]
    pub fn opcode(&self) -> u8 {
        OPCODE.read(self.bytes.as_ref())
    }

    /// I: deliver at once, outside of CmdSN order (RFC 7143 §11.2.1.1). Reserved in Data-Out, SNACK
    /// and what targets send.
    #[inline]
    pub fn immediate(&self) -> bool {
        IMMEDIATE.read(self.bytes.as_ref())
    }

    /// Length of all AHS with their padding, in bytes, 0 to 1020; on the wire in words
    /// (RFC 7143 §11.2.1.5).
    #[inline]
    pub fn total_ahs_length(&self) -> usize {
        usize::from(TOTAL_AHS_LENGTH.read(self.bytes.as_ref())) * 4
    }

    /// Length of the data segment without padding and digest, in bytes, 24 bits
    /// (RFC 7143 §11.2.1.6).
    #[inline]
    pub fn data_segment_length(&self) -> u32 {
        DATA_SEGMENT_LENGTH.read(self.bytes.as_ref())
    }

    /// Bytes 8-15, which not every PDU uses for a LUN (RFC 7143 §11.2.1.7).
    #[inline]
    pub fn lun(&self) -> LunField {
        LUN.read(self.bytes.as_ref())
    }

    /// Initiator Task Tag, bytes 16-19 (RFC 7143 §11.2.1.8).
    #[inline]
    pub fn itt(&self) -> Itt {
        ITT.read(self.bytes.as_ref())
    }

    /// Refuses another opcode.
    #[inline]
    pub(super) fn expect_opcode(&self, opcode: u8) -> Result<(), ParseError> {
        if self.opcode() != opcode {
            return Err(ParseError::UnknownOpcode(self.opcode()));
        }
        Ok(())
    }

    /// Refuses another opcode and an AHS, which only a SCSI Command has (RFC 7143 §11.2.1.5).
    #[inline]
    pub(super) fn expect_plain(&self, opcode: u8) -> Result<(), ParseError> {
        self.expect_opcode(opcode)?;
        if self.total_ahs_length() != 0 {
            return Err(ParseError::Inconsistent { what: "AHS in a PDU that has none" });
        }
        Ok(())
    }

    /// As `expect_plain`, for a PDU that has no data segment either.
    #[inline]
    pub(super) fn expect_bare(&self, opcode: u8) -> Result<(), ParseError> {
        self.expect_plain(opcode)?;
        if self.data_segment_length() != 0 {
            return Err(ParseError::Inconsistent { what: "data segment in a PDU that has none" });
        }
        Ok(())
    }

    /// The Initiator Task Tag of a PDU that belongs to a task: never 0xffffffff
    /// (RFC 7143 §11.2.1.8).
    #[inline]
    pub(super) fn task_tag(&self) -> Result<Itt, ParseError> {
        match self.itt() {
            Itt::NONE => {
                Err(ParseError::ReservedValue { field: "Initiator Task Tag", value: u32::MAX })
            }
            itt => Ok(itt),
        }
    }
}

/// The three numbers that every numbered target PDU carries (bytes 24-35).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// StatSN of this PDU, or the next one where the PDU takes none (RFC 7143 §11.4.9).
    pub stat_sn: StatSn,
    /// The next CmdSN that the target expects (RFC 7143 §11.4.10).
    pub exp_cmd_sn: CmdSn,
    /// The last CmdSN that the target takes (RFC 7143 §11.4.11).
    pub max_cmd_sn: CmdSn,
}

impl Layout for Numbers {
    const LEN: usize = 12;

    #[inline]
    fn from_slice(bytes: &[u8]) -> Self {
        let part = |at: usize| Layout::from_slice(bytes.get(at..at + 4).unwrap_or_default());
        Self { stat_sn: StatSn(part(0)), exp_cmd_sn: CmdSn(part(4)), max_cmd_sn: CmdSn(part(8)) }
    }

    #[inline]
    fn to_slice(self, out: &mut [u8]) {
        let numbers = [self.stat_sn.0, self.exp_cmd_sn.0, self.max_cmd_sn.0];
        for (out, number) in out.chunks_exact_mut(4).zip(numbers) {
            number.to_slice(out);
        }
    }
}

/// Refuses bytes in which BHS and AHS are not whole.
#[inline]
pub(super) fn check_length(header: &[u8]) -> Result<(), ParseError> {
    let needed = BHS_LEN + BhsView::new_checked(header)?.total_ahs_length();
    if header.len() < needed {
        return Err(ParseError::Truncated { needed, given: header.len() });
    }
    Ok(())
}

pub(super) const OPCODE: Bits = Bits { at: 0, mask: 0x3f };
pub(super) const IMMEDIATE: Flag = Flag { at: 0, mask: 0x40 };
/// F of most PDUs.
pub(super) const FINAL: Flag = Flag { at: 1, mask: 0x80 };
pub(super) const TOTAL_AHS_LENGTH: Field<u8> = Field::at(4);
pub(super) const DATA_SEGMENT_LENGTH: Three = Three { at: 5 };
pub(super) const LUN: Field<LunField> = Field::at(8);
pub(super) const ITT: Field<Itt> = Field::at(16);
/// Target Transfer Tag of the PDUs that have one.
pub(super) const TTT: Field<Ttt> = Field::at(20);
/// CmdSN of the requests that have one.
pub(super) const CMD_SN: Field<CmdSn> = Field::at(24);
/// ExpStatSN of all requests.
pub(super) const EXP_STAT_SN: Field<StatSn> = Field::at(28);
/// StatSN, ExpCmdSN and MaxCmdSN of all that a target sends.
pub(super) const NUMBERS: Field<Numbers> = Field::at(24);
