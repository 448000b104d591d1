// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logout Request and Response (RFC 7143 §11.14, §11.15).

use super::bhs::{BHS_LEN, CMD_SN, EXP_STAT_SN, FINAL, IMMEDIATE, ITT, NUMBERS};
use super::field::Bits;
use super::field::Field;
use super::field::Header;
use super::view::view;
use super::{Cid, CmdSn, Itt, Numbers, ParseError, StatSn};

/// Opcode of a Logout Request.
pub const OPCODE_LOGOUT_REQUEST: u8 = 0x06;

/// Opcode of a Logout Response.
pub const OPCODE_LOGOUT_RESPONSE: u8 = 0x26;

const REASON: Bits = Bits { at: 1, mask: 0x7f };
const CID: Field<Cid> = Field::at(20);
const RESPONSE: Field<u8> = Field::at(2);
const TIME2WAIT: Field<u16> = Field::at(40);
const TIME2RETAIN: Field<u16> = Field::at(42);

view! {
    /// The header of a Logout Request (RFC 7143 §11.14).
    pub struct LogoutRequestView("Logout Request", OPCODE_LOGOUT_REQUEST) {
        /// I: immediate delivery.
        "I" immediate: bool = IMMEDIATE;
        /// Reason code.
        "Reason" reason: u8 = REASON;
        /// Initiator Task Tag.
        "ITT" itt: Itt = ITT;
        /// Connection id.
        "CID" cid: Cid = CID;
        /// CmdSN.
        "CmdSN" cmd_sn: CmdSn = CMD_SN;
        /// ExpStatSN.
        "ExpStatSN" exp_stat_sn: StatSn = EXP_STAT_SN;
    }
}

view! {
    /// The header of a Logout Response (RFC 7143 §11.15).
    pub struct LogoutResponseView("Logout Response", OPCODE_LOGOUT_RESPONSE) {
        /// Response code.
        "Response" response: u8 = RESPONSE;
        /// Initiator Task Tag.
        "ITT" itt: Itt = ITT;
        /// StatSN, ExpCmdSN and MaxCmdSN.
        "StatSN/ExpCmdSN/MaxCmdSN" numbers: Numbers = NUMBERS;
        /// Time2Wait, seconds.
        "Time2Wait" time2wait: u16 = TIME2WAIT;
        /// Time2Retain, seconds.
        "Time2Retain" time2retain: u16 = TIME2RETAIN;
    }
}

/// The wish to close a session or connection (RFC 7143 §11.14). It has neither AHS nor data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutRequest {
    /// I: deliver at once, outside of CmdSN order.
    pub immediate: bool,
    /// Reason code as it came, 7 bits.
    pub reason: u8,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// The connection; means nothing for reason 0, "close the session".
    pub cid: Cid,
    /// CmdSN.
    pub cmd_sn: CmdSn,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
}

impl LogoutRequest {
    /// Takes the header apart.
    ///
    /// # Errors
    /// [`ParseError::Inconsistent`] for AHS or data.
    pub fn parse<T: AsRef<[u8]>>(view: &LogoutRequestView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_bare(OPCODE_LOGOUT_REQUEST)?;
        Ok(Self {
            immediate: view.immediate(),
            reason: view.reason(),
            itt: view.bhs().task_tag()?,
            cid: view.cid(),
            cmd_sn: view.cmd_sn(),
            exp_stat_sn: view.exp_stat_sn(),
        })
    }

    /// The BHS. `data_segment_length` must be 0, and 0 is what goes out.
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        Header::bare(OPCODE_LOGOUT_REQUEST, data_segment_length)
            .with(IMMEDIATE, self.immediate)
            .with(FINAL, true)
            .with(REASON, self.reason)
            .with(ITT, self.itt)
            .with(CID, self.cid)
            .with(CMD_SN, self.cmd_sn)
            .with(EXP_STAT_SN, self.exp_stat_sn)
            .done()
    }
}

/// The answer to a Logout Request (RFC 7143 §11.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResponse {
    /// 0 closed, 1 CID not found, 2 recovery not supported, 3 clean-up failed (RFC 7143 §11.15.1).
    pub response: u8,
    /// Initiator Task Tag of the request.
    pub itt: Itt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: Numbers,
    /// Earliest time to try again, seconds.
    pub time2wait: u16,
    /// How long after that tasks are kept, seconds.
    pub time2retain: u16,
}

impl LogoutResponse {
    /// Takes the header apart.
    ///
    /// # Errors
    /// [`ParseError::Inconsistent`] for AHS or data.
    pub fn parse<T: AsRef<[u8]>>(view: &LogoutResponseView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_bare(OPCODE_LOGOUT_RESPONSE)?;
        Ok(Self {
            response: view.response(),
            itt: view.bhs().task_tag()?,
            numbers: view.numbers(),
            time2wait: view.time2wait(),
            time2retain: view.time2retain(),
        })
    }

    /// The BHS. `data_segment_length` must be 0, and 0 is what goes out.
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        Header::bare(OPCODE_LOGOUT_RESPONSE, data_segment_length)
            .with(FINAL, true)
            .with(RESPONSE, self.response)
            .with(ITT, self.itt)
            .with(NUMBERS, self.numbers)
            .with(TIME2WAIT, self.time2wait)
            .with(TIME2RETAIN, self.time2retain)
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{line, reject_reason_with, request_vector, response_vector};
    use super::super::*;
    use super::*;

    #[test]
    fn request() {
        let pdu = LogoutRequest {
            immediate: true,
            reason: 1,
            itt: Itt(0x40),
            cid: Cid(0x0102),
            cmd_sn: CmdSn(9),
            exp_stat_sn: StatSn(0x70),
        };
        let bytes = request_vector(
            Request::Logout(pdu),
            0,
            "46 81 00 00 00 00 00 00 00 00 00 00 00 00 00 00
             00 00 00 40 01 02 00 00 00 00 00 09 00 00 00 70
             00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
        );
        assert_eq!(
            line(&bytes),
            "Logout Request I Reason=0x01 ITT=0x00000040 CID=258 CmdSN=9 ExpStatSN=112"
        );
        assert_eq!(reject_reason_with(&bytes, 7, 4), Some(0x04), "data");
    }

    #[test]
    fn response() {
        let pdu = LogoutResponse {
            response: 3,
            itt: Itt(0x40),
            numbers: Numbers {
                stat_sn: StatSn(0x70),
                exp_cmd_sn: CmdSn(9),
                max_cmd_sn: CmdSn(0x28),
            },
            time2wait: 2,
            time2retain: 20,
        };
        let bytes = response_vector(
            Response::Logout(pdu),
            0,
            "26 80 03 00 00 00 00 00 00 00 00 00 00 00 00 00
             00 00 00 40 00 00 00 00 00 00 00 70 00 00 00 09
             00 00 00 28 00 00 00 00 00 02 00 14 00 00 00 00",
        );
        assert_eq!(
            line(&bytes),
            "Logout Response Response=0x03 ITT=0x00000040 StatSN/ExpCmdSN/MaxCmdSN=112/9/40 \
             Time2Wait=0x0002 Time2Retain=0x0014"
        );
    }
}
