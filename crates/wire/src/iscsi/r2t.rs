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

    /// The BHS. `data_segment_length` must be 0, and 0 is what goes out.
    #[inline]
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        debug_assert!(self.ttt != Ttt::NONE && self.desired_length != 0, "a legal R2T");
        Header::bare(OPCODE_R2T, data_segment_length)
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

#[cfg(test)]
mod tests {
    use super::super::testing::{line, response_vector};
    use super::super::*;
    use super::*;

    /// Covers: R2T-09.
    #[test]
    fn r2t() {
        let pdu = R2t {
            lun: LunField([0, 1, 0, 0, 0, 0, 0, 0]),
            itt: Itt(0x22),
            ttt: Ttt(0x1234),
            numbers: Numbers {
                stat_sn: StatSn(0x67),
                exp_cmd_sn: CmdSn(8),
                max_cmd_sn: CmdSn(0x27),
            },
            r2t_sn: R2tSn(1),
            offset: 65536,
            desired_length: 234_464,
        };
        let bytes = response_vector(
            Response::R2t(pdu),
            0,
            "31 80 00 00 00 00 00 00 00 01 00 00 00 00 00 00
             00 00 00 22 00 00 12 34 00 00 00 67 00 00 00 08
             00 00 00 27 00 00 00 01 00 01 00 00 00 03 93 e0",
        );
        assert_eq!(
            line(&bytes),
            "R2T LUN=0001000000000000 ITT=0x00000022 TTT=0x00001234 \
             StatSN/ExpCmdSN/MaxCmdSN=103/8/39 R2TSN=1 Offset=65536 Length=234464"
        );
        let refuse = |range: core::ops::Range<usize>, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[range].fill(byte);
            assert!(Response::parse(&bytes).is_err());
        };
        refuse(20..24, 0xff);
        refuse(44..48, 0);
        refuse(16..20, 0xff);
        refuse(5..8, 1);
        refuse(4..5, 1);
    }
}
