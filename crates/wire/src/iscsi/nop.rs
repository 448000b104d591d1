// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NOP-Out and NOP-In (RFC 7143 §11.18, §11.19).

use super::bhs::{BHS_LEN, CMD_SN, EXP_STAT_SN, FINAL, IMMEDIATE, ITT, LUN, NUMBERS, TTT};
use super::field::Header;
use super::view::view;
use super::{CmdSn, Itt, LunField, Numbers, ParseError, StatSn, Ttt};

/// Opcode of a NOP-Out.
pub const OPCODE_NOP_OUT: u8 = 0x00;

/// Opcode of a NOP-In.
pub const OPCODE_NOP_IN: u8 = 0x20;

view! {
    /// The header of a NOP-Out (RFC 7143 §11.18).
    pub struct NopOutView("NOP-Out", OPCODE_NOP_OUT) {
        /// I: immediate delivery.
        "I" immediate: bool = IMMEDIATE;
        /// Logical unit, a copy from the NOP-In.
        "LUN" lun: LunField = LUN;
        /// Initiator Task Tag, or none if no answer is wanted.
        "ITT" itt: Itt = ITT;
        /// Target Transfer Tag of the NOP-In that this answers, or none.
        "TTT" ttt: Ttt = TTT;
        /// CmdSN.
        "CmdSN" cmd_sn: CmdSn = CMD_SN;
        /// ExpStatSN.
        "ExpStatSN" exp_stat_sn: StatSn = EXP_STAT_SN;
    }
}

view! {
    /// The header of a NOP-In (RFC 7143 §11.19).
    pub struct NopInView("NOP-In", OPCODE_NOP_IN) {
        /// Logical unit; means something only with a Target Transfer Tag.
        "LUN" lun: LunField = LUN;
        /// Initiator Task Tag of the NOP-Out that this answers, or none.
        "ITT" itt: Itt = ITT;
        /// Target Transfer Tag, or none if no answer is wanted.
        "TTT" ttt: Ttt = TTT;
        /// StatSN, ExpCmdSN and MaxCmdSN.
        "StatSN/ExpCmdSN/MaxCmdSN" numbers: Numbers = NUMBERS;
    }
}

const BOTH_TAGS: ParseError = ParseError::Inconsistent { what: "NOP is ping and answer at once" };

/// A ping of the initiator, or its answer to one (RFC 7143 §11.18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopOut {
    /// I: set whenever `itt` is [`Itt::NONE`].
    pub immediate: bool,
    /// Copy from the NOP-In.
    pub lun: LunField,
    /// [`Itt::NONE`] if no answer is wanted.
    pub itt: Itt,
    /// Copy from the NOP-In, or [`Ttt::NONE`] if this answers none. Not NONE only if `itt` is.
    pub ttt: Ttt,
    /// CmdSN.
    pub cmd_sn: CmdSn,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
}

impl NopOut {
    /// Takes the header apart.
    ///
    /// # Errors
    /// [`ParseError::Inconsistent`] for both tags at once, and for no ITT without I.
    pub fn parse<T: AsRef<[u8]>>(view: &NopOutView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_plain(OPCODE_NOP_OUT)?;
        if view.itt() != Itt::NONE && view.ttt() != Ttt::NONE {
            return Err(BOTH_TAGS);
        }
        if view.itt() == Itt::NONE && !view.immediate() {
            return Err(ParseError::Inconsistent {
                what: "NOP-Out without task tag and without I",
            });
        }
        Ok(Self {
            immediate: view.immediate(),
            lun: view.lun(),
            itt: view.itt(),
            ttt: view.ttt(),
            cmd_sn: view.cmd_sn(),
            exp_stat_sn: view.exp_stat_sn(),
        })
    }

    /// The BHS.
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        Header::new(OPCODE_NOP_OUT, data_segment_length)
            .with(IMMEDIATE, self.immediate)
            .with(FINAL, true)
            .with(LUN, self.lun)
            .with(ITT, self.itt)
            .with(TTT, self.ttt)
            .with(CMD_SN, self.cmd_sn)
            .with(EXP_STAT_SN, self.exp_stat_sn)
            .done()
    }
}

/// A ping of the target, or its answer to one (RFC 7143 §11.19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopIn {
    /// Means something only with `ttt`.
    pub lun: LunField,
    /// Copy from the NOP-Out, or [`Itt::NONE`] if this answers none.
    pub itt: Itt,
    /// [`Ttt::NONE`] if no answer is wanted, and in every answer.
    pub ttt: Ttt,
    /// StatSN (taken only by an answer), ExpCmdSN and MaxCmdSN.
    pub numbers: Numbers,
}

impl NopIn {
    /// Takes the header apart.
    ///
    /// # Errors
    /// [`ParseError::Inconsistent`] for both tags at once (RFC 7143 §7.7).
    pub fn parse<T: AsRef<[u8]>>(view: &NopInView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_plain(OPCODE_NOP_IN)?;
        if view.itt() != Itt::NONE && view.ttt() != Ttt::NONE {
            return Err(BOTH_TAGS);
        }
        Ok(Self { lun: view.lun(), itt: view.itt(), ttt: view.ttt(), numbers: view.numbers() })
    }

    /// The BHS.
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        Header::new(OPCODE_NOP_IN, data_segment_length)
            .with(FINAL, true)
            .with(LUN, self.lun)
            .with(ITT, self.itt)
            .with(TTT, self.ttt)
            .with(NUMBERS, self.numbers)
            .done()
    }
}
