// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reject (RFC 7143 §11.17).

use super::bhs::{BHS_LEN, FINAL, ITT, NUMBERS};
use super::field::Field;
use super::field::Header;
use super::view::view;
use super::{DataSn, Itt, Numbers, ParseError};

/// Opcode of a Reject.
pub const OPCODE_REJECT: u8 = 0x3f;

const REASON: Field<u8> = Field::at(2);
const DATA_SN: Field<DataSn> = Field::at(36);

view! {
    /// The header of a Reject (RFC 7143 §11.17).
    pub struct RejectView("Reject", OPCODE_REJECT) {
        /// Reason code.
        "Reason" reason: u8 = REASON;
        /// StatSN, ExpCmdSN and MaxCmdSN.
        "StatSN/ExpCmdSN/MaxCmdSN" numbers: Numbers = NUMBERS;
        /// The next DataSN or R2TSN, in the rejection of a Data/R2T SNACK.
        "DataSN" data_sn: DataSn = DATA_SN;
    }
}

/// The refusal of a PDU (RFC 7143 §11.17). The header of that PDU is the data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Reason code (RFC 7143 §11.17.1).
    pub reason: u8,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: Numbers,
    /// The next DataSN or R2TSN, in the rejection of a Data/R2T SNACK; else 0.
    pub data_sn: DataSn,
}

impl Reject {
    /// Takes the header apart.
    ///
    /// # Errors
    /// Only those of every PDU: opcode, AHS.
    pub fn parse<T: AsRef<[u8]>>(view: &RejectView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_plain(OPCODE_REJECT)?;
        Ok(Self { reason: view.reason(), numbers: view.numbers(), data_sn: view.data_sn() })
    }

    /// The BHS.
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        Header::new(OPCODE_REJECT, data_segment_length)
            .with(FINAL, true)
            .with(REASON, self.reason)
            .with(ITT, Itt::NONE)
            .with(NUMBERS, self.numbers)
            .with(DATA_SN, self.data_sn)
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{line, response_vector};
    use super::super::*;
    use super::*;

    #[test]
    fn reject() {
        let pdu = Reject {
            reason: 5,
            numbers: Numbers {
                stat_sn: StatSn(0x67),
                exp_cmd_sn: CmdSn(8),
                max_cmd_sn: CmdSn(0x27),
            },
            data_sn: DataSn(2),
        };
        let bytes = response_vector(
            Response::Reject(pdu),
            48,
            "3f 80 05 00 00 00 00 30 00 00 00 00 00 00 00 00
             ff ff ff ff 00 00 00 00 00 00 00 67 00 00 00 08
             00 00 00 27 00 00 00 02 00 00 00 00 00 00 00 00",
        );
        assert_eq!(
            line(&bytes),
            "Reject Data=48 Reason=0x05 StatSN/ExpCmdSN/MaxCmdSN=103/8/39 DataSN=2"
        );
    }
}
