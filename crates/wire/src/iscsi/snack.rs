// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SNACK Request (RFC 7143 §11.16).

use super::bhs::{BHS_LEN, EXP_STAT_SN, FINAL, ITT, LUN};
use super::field::Bits;
use super::field::Field;
use super::field::Header;
use super::view::view;
use super::{Itt, LunField, ParseError, StatSn};

/// Opcode of a SNACK Request.
pub const OPCODE_SNACK: u8 = 0x10;

const KIND: Bits = Bits { at: 1, mask: 0x0f };
const TAG: Field<u32> = Field::at(20);
const BEG_RUN: Field<u32> = Field::at(40);
const RUN_LENGTH: Field<u32> = Field::at(44);

view! {
    /// The header of a SNACK Request (RFC 7143 §11.16).
    pub struct SnackView("SNACK", OPCODE_SNACK) {
        /// Type code.
        "Type" kind: u8 = KIND;
        /// Logical unit.
        "LUN" lun: LunField = LUN;
        /// Initiator Task Tag, or none.
        "ITT" itt: Itt = ITT;
        /// Target Transfer Tag or SNACK Tag.
        "Tag" tag: u32 = TAG;
        /// ExpStatSN.
        "ExpStatSN" exp_stat_sn: StatSn = EXP_STAT_SN;
        /// First number wanted.
        "BegRun" beg_run: u32 = BEG_RUN;
        /// How many.
        "RunLength" run_length: u32 = RUN_LENGTH;
    }
}

/// A request to send again, or the acknowledgement of data (RFC 7143 §11.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snack {
    /// Type code as it came, 4 bits: 0 Data/R2T, 1 Status, 2 DataACK, 3 R-Data.
    pub kind: u8,
    /// Copy from the Data-In that a DataACK answers.
    pub lun: LunField,
    /// The task, or [`Itt::NONE`] for Status and DataACK.
    pub itt: Itt,
    /// Target transfer tag or SNACK tag.
    pub tag: u32,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
    /// First DataSN, R2TSN or StatSN wanted; for DataACK the next one expected.
    pub beg_run: u32,
    /// How many are wanted; 0 means all from `beg_run` on.
    pub run_length: u32,
}

impl Snack {
    /// Takes the header apart.
    ///
    /// # Errors
    /// Only those of every PDU: opcode, AHS.
    pub fn parse<T: AsRef<[u8]>>(view: &SnackView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_plain(OPCODE_SNACK)?;
        Ok(Self {
            kind: view.kind(),
            lun: view.lun(),
            itt: view.itt(),
            tag: view.tag(),
            exp_stat_sn: view.exp_stat_sn(),
            beg_run: view.beg_run(),
            run_length: view.run_length(),
        })
    }

    /// The BHS. `data_segment_length` must be 0, and 0 is what goes out.
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        Header::bare(OPCODE_SNACK, data_segment_length)
            .with(FINAL, true)
            .with(KIND, self.kind)
            .with(LUN, self.lun)
            .with(ITT, self.itt)
            .with(TAG, self.tag)
            .with(EXP_STAT_SN, self.exp_stat_sn)
            .with(BEG_RUN, self.beg_run)
            .with(RUN_LENGTH, self.run_length)
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{line, request_vector};
    use super::super::*;
    use super::*;

    /// Covers: FMT-11/T, FMT-11/I.
    #[test]
    fn snack() {
        let pdu = Snack {
            kind: 2,
            lun: LunField([0, 1, 0, 0, 0, 0, 0, 0]),
            itt: Itt::NONE,
            tag: 9,
            exp_stat_sn: StatSn(0x67),
            beg_run: 4,
            run_length: 3,
        };
        let bytes = request_vector(
            Request::Snack(pdu),
            0,
            "10 82 00 00 00 00 00 00 00 01 00 00 00 00 00 00
             ff ff ff ff 00 00 00 09 00 00 00 00 00 00 00 67
             00 00 00 00 00 00 00 00 00 00 00 04 00 00 00 03",
        );
        assert_eq!(
            line(&bytes),
            "SNACK Type=0x02 LUN=0001000000000000 Tag=9 ExpStatSN=103 BegRun=4 RunLength=3"
        );
    }
}
