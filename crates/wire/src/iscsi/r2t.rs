// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ready To Transfer (RFC 7143 §11.8).

use super::bhs::{BHS_LEN, FINAL, ITT, LUN, NUMBERS, TTT};
use super::field::Field;
use super::field::Header;
use super::view::view;
use super::{Itt, LunField, Numbers, ParseError, R2tSn, Ttt};

/// Opcode of an R2T.
pub const OPCODE_R2T: u8 = 0x31;

const R2T_SN: Field<R2tSn> = Field::at(36);
const OFFSET: Field<u32> = Field::at(40);
const DESIRED_LENGTH: Field<u32> = Field::at(44);

view! {
    /// The header of an R2T (RFC 7143 §11.8).
    pub struct R2tView("R2T", OPCODE_R2T) {
        /// Logical unit.
        "LUN" lun: LunField = LUN;
        /// Initiator Task Tag.
        "ITT" itt: Itt = ITT;
        /// Target Transfer Tag.
        "TTT" ttt: Ttt = TTT;
        /// The next StatSN, ExpCmdSN and MaxCmdSN.
        "StatSN/ExpCmdSN/MaxCmdSN" numbers: Numbers = NUMBERS;
        /// Number within the command.
        "R2TSN" r2t_sn: R2tSn = R2T_SN;
        /// Buffer Offset, bytes.
        "Offset" offset: u32 = OFFSET;
        /// Desired Data Transfer Length, bytes.
        "Length" desired_length: u32 = DESIRED_LENGTH;
    }
}

/// A request for data (RFC 7143 §11.8). It has neither AHS nor data (§11.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    /// The command's logical unit.
    pub lun: LunField,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Names this transfer; never [`Ttt::NONE`].
    pub ttt: Ttt,
    /// The next StatSN, which this PDU does not take, ExpCmdSN and MaxCmdSN.
    pub numbers: Numbers,
    /// From 0 in each command.
    pub r2t_sn: R2tSn,
    /// Offset in the whole buffer of the command, bytes.
    pub offset: u32,
    /// Bytes wanted, at least 1.
    pub desired_length: u32,
}

impl R2t {
    /// Takes the header apart.
    ///
    /// # Errors
    /// [`ParseError::Inconsistent`] for a length of 0, a transfer tag of none, or a data segment.
    pub fn parse<T: AsRef<[u8]>>(view: &R2tView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_bare(OPCODE_R2T)?;
        if view.ttt() == Ttt::NONE {
            return Err(ParseError::Inconsistent { what: "R2T without Target Transfer Tag" });
        }
        if view.desired_length() == 0 {
            return Err(ParseError::Inconsistent { what: "R2T for no data" });
        }
        Ok(Self {
            lun: view.lun(),
            itt: view.bhs().task_tag()?,
            ttt: view.ttt(),
            numbers: view.numbers(),
            r2t_sn: view.r2t_sn(),
            offset: view.offset(),
            desired_length: view.desired_length(),
        })
    }

    /// The BHS. `data_segment_length` is 0 in every legal R2T.
    #[inline]
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        debug_assert!(self.ttt != Ttt::NONE && self.desired_length != 0, "a legal R2T");
        Header::new(OPCODE_R2T, data_segment_length)
            .with(FINAL, true)
            .with(LUN, self.lun)
            .with(ITT, self.itt)
            .with(TTT, self.ttt)
            .with(NUMBERS, self.numbers)
            .with(R2T_SN, self.r2t_sn)
            .with(OFFSET, self.offset)
            .with(DESIRED_LENGTH, self.desired_length)
            .done()
    }
}
