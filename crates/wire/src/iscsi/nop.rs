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

#[cfg(test)]
mod tests {
    use super::super::testing::{line, lines, request_vector, response_vector};
    use super::super::*;
    use super::*;

    /// Covers: FMT-11/T, FMT-11/I.
    #[test]
    fn ping() {
        let pdu = NopOut {
            immediate: true,
            lun: LunField([0; 8]),
            itt: Itt(0x22),
            ttt: Ttt::NONE,
            cmd_sn: CmdSn(6),
            exp_stat_sn: StatSn(0x66),
        };
        let bytes = request_vector(
            Request::NopOut(pdu),
            5,
            "40 80 00 00 00 00 00 05 00 00 00 00 00 00 00 00
             00 00 00 22 ff ff ff ff 00 00 00 06 00 00 00 66
             00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
        );
        assert_eq!(line(&bytes), "NOP-Out Data=5 I ITT=0x00000022 CmdSN=6 ExpStatSN=102");
        assert_eq!(
            lines(&bytes),
            "NOP-Out\n  AHS: 0\n  Data: 5\n  I: 1\n  LUN: 0000000000000000\n  ITT: 0x00000022\n  \
             TTT: 0xffffffff\n  CmdSN: 6\n  ExpStatSN: 102"
        );
    }

    #[test]
    fn echo() {
        let pdu = NopIn {
            lun: LunField([0; 8]),
            itt: Itt(0x22),
            ttt: Ttt::NONE,
            numbers: Numbers {
                stat_sn: StatSn(0x66),
                exp_cmd_sn: CmdSn(6),
                max_cmd_sn: CmdSn(0x25),
            },
        };
        let bytes = response_vector(
            Response::NopIn(pdu),
            5,
            "20 80 00 00 00 00 00 05 00 00 00 00 00 00 00 00
             00 00 00 22 ff ff ff ff 00 00 00 66 00 00 00 06
             00 00 00 25 00 00 00 00 00 00 00 00 00 00 00 00",
        );
        assert_eq!(line(&bytes), "NOP-In Data=5 ITT=0x00000022 StatSN/ExpCmdSN/MaxCmdSN=102/6/37");
        let mut bytes = bytes;
        bytes[20] = 0;
        assert!(Response::parse(&bytes).is_err(), "both tags");
    }

    #[test]
    fn tags() {
        let pdu = NopOut {
            immediate: true,
            lun: LunField([0; 8]),
            itt: Itt::NONE,
            ttt: Ttt(1),
            cmd_sn: CmdSn(6),
            exp_stat_sn: StatSn(0x66),
        };
        let reason = |pdu: NopOut| {
            let parsed = Request::parse(&pdu.emit(0));
            assert!(parsed.is_err() || parsed == Ok(Request::NopOut(pdu)));
            parsed.err().map(|error| error.reject_reason())
        };
        assert_eq!(reason(pdu), None, "answer");
        assert_eq!(reason(NopOut { ttt: Ttt::NONE, ..pdu }), None, "only ExpStatSN");
        assert_eq!(reason(NopOut { immediate: false, ..pdu }), Some(0x04));
        assert_eq!(reason(NopOut { itt: Itt(1), ..pdu }), Some(0x04));
        assert_eq!(reason(NopOut { itt: Itt(1), ttt: Ttt::NONE, immediate: false, ..pdu }), None);
    }
}
