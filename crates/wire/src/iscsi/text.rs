// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text Request and Response (RFC 7143 §11.10, §11.11).

use super::bhs::{BHS_LEN, CMD_SN, EXP_STAT_SN, FINAL, IMMEDIATE, ITT, LUN, NUMBERS, TTT};
use super::field::Flag;
use super::field::Header;
use super::view::view;
use super::{CmdSn, Itt, LunField, Numbers, ParseError, StatSn, Ttt};

/// Opcode of a Text Request.
pub const OPCODE_TEXT_REQUEST: u8 = 0x04;

/// Opcode of a Text Response.
pub const OPCODE_TEXT_RESPONSE: u8 = 0x24;

pub(super) const CONTINUE: Flag = Flag { at: 1, mask: 0x40 };

view! {
    /// The header of a Text Request (RFC 7143 §11.10).
    pub struct TextRequestView("Text Request", OPCODE_TEXT_REQUEST) {
        /// I: immediate delivery.
        "I" immediate: bool = IMMEDIATE;
        /// F: the initiator has no more to say.
        "F" final_: bool = FINAL;
        /// C: the text goes on in the next PDU.
        "C" continue_: bool = CONTINUE;
        /// Logical unit, a copy from the Text Response.
        "LUN" lun: LunField = LUN;
        /// Initiator Task Tag.
        "ITT" itt: Itt = ITT;
        /// Target Transfer Tag, a copy from the Text Response, or none.
        "TTT" ttt: Ttt = TTT;
        /// CmdSN.
        "CmdSN" cmd_sn: CmdSn = CMD_SN;
        /// ExpStatSN.
        "ExpStatSN" exp_stat_sn: StatSn = EXP_STAT_SN;
    }
}

view! {
    /// The header of a Text Response (RFC 7143 §11.11).
    pub struct TextResponseView("Text Response", OPCODE_TEXT_RESPONSE) {
        /// F: the target has no more to say.
        "F" final_: bool = FINAL;
        /// C: the text goes on in the next PDU.
        "C" continue_: bool = CONTINUE;
        /// Logical unit; means something only with a Target Transfer Tag.
        "LUN" lun: LunField = LUN;
        /// Initiator Task Tag.
        "ITT" itt: Itt = ITT;
        /// Target Transfer Tag, or none.
        "TTT" ttt: Ttt = TTT;
        /// StatSN, ExpCmdSN and MaxCmdSN.
        "StatSN/ExpCmdSN/MaxCmdSN" numbers: Numbers = NUMBERS;
    }
}

const FINAL_GOES_ON: ParseError = ParseError::Inconsistent { what: "text with C and F" };

/// A step of a text negotiation (RFC 7143 §11.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRequest {
    /// I: deliver at once; the same in all requests of a sequence.
    pub immediate: bool,
    /// F: the initiator has no more to say.
    pub final_: bool,
    /// C: the text goes on in the next PDU. Not with `final_`.
    pub continue_: bool,
    /// Copy from the Text Response, with `ttt`.
    pub lun: LunField,
    /// The same in all requests of a sequence.
    pub itt: Itt,
    /// Copy from the Text Response; [`Ttt::NONE`] starts a sequence.
    pub ttt: Ttt,
    /// CmdSN.
    pub cmd_sn: CmdSn,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
}

impl TextRequest {
    /// Takes the header apart.
    ///
    /// # Errors
    /// [`ParseError::Inconsistent`] for C with F (RFC 7143 §6.2).
    pub fn parse<T: AsRef<[u8]>>(view: &TextRequestView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_plain(OPCODE_TEXT_REQUEST)?;
        if view.final_() && view.continue_() {
            return Err(FINAL_GOES_ON);
        }
        Ok(Self {
            immediate: view.immediate(),
            final_: view.final_(),
            continue_: view.continue_(),
            lun: view.lun(),
            itt: view.bhs().task_tag()?,
            ttt: view.ttt(),
            cmd_sn: view.cmd_sn(),
            exp_stat_sn: view.exp_stat_sn(),
        })
    }

    /// The BHS.
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        debug_assert!(!(self.final_ && self.continue_), "C needs F clear");
        Header::new(OPCODE_TEXT_REQUEST, data_segment_length)
            .with(IMMEDIATE, self.immediate)
            .with(FINAL, self.final_)
            .with(CONTINUE, self.continue_)
            .with(LUN, self.lun)
            .with(ITT, self.itt)
            .with(TTT, self.ttt)
            .with(CMD_SN, self.cmd_sn)
            .with(EXP_STAT_SN, self.exp_stat_sn)
            .done()
    }
}

/// The answer to a step of a text negotiation (RFC 7143 §11.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextResponse {
    /// F: the target has no more to say.
    pub final_: bool,
    /// C: the text goes on in the next PDU. Not with `final_`.
    pub continue_: bool,
    /// Means something only with `ttt`.
    pub lun: LunField,
    /// Initiator Task Tag of the sequence.
    pub itt: Itt,
    /// [`Ttt::NONE`] if and only if `final_`.
    pub ttt: Ttt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: Numbers,
}

impl TextResponse {
    /// Takes the header apart. The TTT of a final response counts for nothing and reads as none.
    ///
    /// # Errors
    /// [`ParseError::Inconsistent`] for C with F, and for F clear without TTT (RFC 7143 §11.11.4).
    pub fn parse<T: AsRef<[u8]>>(view: &TextResponseView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_plain(OPCODE_TEXT_RESPONSE)?;
        if view.final_() && view.continue_() {
            return Err(FINAL_GOES_ON);
        }
        if !view.final_() && view.ttt() == Ttt::NONE {
            return Err(ParseError::Inconsistent { what: "Text Response with F and TTT clear" });
        }
        Ok(Self {
            final_: view.final_(),
            continue_: view.continue_(),
            lun: view.lun(),
            itt: view.bhs().task_tag()?,
            ttt: if view.final_() { Ttt::NONE } else { view.ttt() },
            numbers: view.numbers(),
        })
    }

    /// The BHS.
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        debug_assert!(!(self.final_ && self.continue_), "C needs F clear");
        Header::new(OPCODE_TEXT_RESPONSE, data_segment_length)
            .with(FINAL, self.final_)
            .with(CONTINUE, self.continue_)
            .with(LUN, self.lun)
            .with(ITT, self.itt)
            .with(TTT, self.ttt)
            .with(NUMBERS, self.numbers)
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{line, reject_reason_with, request_vector, response_vector};
    use super::super::*;
    use super::*;

    /// Covers: FMT-11/T, FMT-11/I.
    #[test]
    fn request() {
        let pdu = TextRequest {
            immediate: false,
            final_: true,
            continue_: false,
            lun: LunField([0; 8]),
            itt: Itt(1),
            ttt: Ttt::NONE,
            cmd_sn: CmdSn(5),
            exp_stat_sn: StatSn(0x65),
        };
        let bytes = request_vector(
            Request::Text(pdu),
            16,
            "04 80 00 00 00 00 00 10 00 00 00 00 00 00 00 00
             00 00 00 01 ff ff ff ff 00 00 00 05 00 00 00 65
             00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
        );
        assert_eq!(line(&bytes), "Text Request Data=16 F ITT=0x00000001 CmdSN=5 ExpStatSN=101");
        assert_eq!(reject_reason_with(&bytes, 1, 0x40), None);
        assert_eq!(reject_reason_with(&bytes, 1, 0x00), None);
        assert_eq!(reject_reason_with(&bytes, 1, 0xc0), Some(0x04), "C with F");
        assert_eq!(reject_reason_with(&bytes, 0, 0x84), None, "bit 7 is reserved");
    }

    #[test]
    fn response() {
        let pdu = TextResponse {
            final_: false,
            continue_: true,
            lun: LunField([0; 8]),
            itt: Itt(1),
            ttt: Ttt(1),
            numbers: Numbers {
                stat_sn: StatSn(0x65),
                exp_cmd_sn: CmdSn(6),
                max_cmd_sn: CmdSn(0x25),
            },
        };
        let mut bytes = response_vector(
            Response::Text(pdu),
            8192,
            "24 40 00 00 00 00 20 00 00 00 00 00 00 00 00 00
             00 00 00 01 00 00 00 01 00 00 00 65 00 00 00 06
             00 00 00 25 00 00 00 00 00 00 00 00 00 00 00 00",
        );
        assert_eq!(
            line(&bytes),
            "Text Response Data=8192 C ITT=0x00000001 TTT=0x00000001 \
             StatSN/ExpCmdSN/MaxCmdSN=101/6/37"
        );
        bytes[1] = 0xc0;
        assert!(Response::parse(&bytes).is_err(), "C with F");
        bytes[1] = 0x80;
        let last = TextResponse { final_: true, continue_: false, ttt: Ttt::NONE, ..pdu };
        assert_eq!(Response::parse(&bytes), Ok(Response::Text(last)), "TTT is ignored");
        bytes[1] = 0x00;
        bytes[20..24].fill(0xff);
        assert!(Response::parse(&bytes).is_err(), "goes on without TTT");
    }
}
