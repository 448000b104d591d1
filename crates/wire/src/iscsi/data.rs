// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCSI Data-Out and Data-In (RFC 7143 §11.7).

use super::bhs::{BHS_LEN, EXP_STAT_SN, FINAL, ITT, LUN, NUMBERS, TTT};
use super::field::Field;
use super::field::Flag;
use super::field::Header;
use super::response::{OVERFLOW, RESIDUAL_COUNT, STATUS, UNDERFLOW};
use super::view::view;
use super::{DataSn, Itt, LunField, Numbers, ParseError, Residual, StatSn, Ttt};

/// Opcode of a SCSI Data-Out.
pub const OPCODE_DATA_OUT: u8 = 0x05;

/// Opcode of a SCSI Data-In.
pub const OPCODE_DATA_IN: u8 = 0x25;

const ACKNOWLEDGE: Flag = Flag { at: 1, mask: 0x40 };
const HAS_STATUS: Flag = Flag { at: 1, mask: 0x01 };
const DATA_SN: Field<DataSn> = Field::at(36);
const OFFSET: Field<u32> = Field::at(40);

view! {
    /// The header of a SCSI Data-Out (RFC 7143 §11.7).
    pub struct DataOutView("Data-Out", OPCODE_DATA_OUT) {
        /// F: last PDU of its sequence.
        "F" final_: bool = FINAL;
        /// Logical unit.
        "LUN" lun: LunField = LUN;
        /// Initiator Task Tag.
        "ITT" itt: Itt = ITT;
        /// Target Transfer Tag of the R2T, or none.
        "TTT" ttt: Ttt = TTT;
        /// ExpStatSN.
        "ExpStatSN" exp_stat_sn: StatSn = EXP_STAT_SN;
        /// Number within the sequence.
        "DataSN" data_sn: DataSn = DATA_SN;
        /// Buffer Offset, bytes.
        "Offset" offset: u32 = OFFSET;
    }
}

view! {
    /// The header of a SCSI Data-In (RFC 7143 §11.7).
    pub struct DataInView("Data-In", OPCODE_DATA_IN) {
        /// F: last PDU of its sequence.
        "F" final_: bool = FINAL;
        /// A: acknowledge with a DataACK SNACK.
        "A" acknowledge: bool = ACKNOWLEDGE;
        /// O: residual overflow.
        "O" overflow: bool = OVERFLOW;
        /// U: residual underflow.
        "U" underflow: bool = UNDERFLOW;
        /// S: status is within.
        "S" has_status: bool = HAS_STATUS;
        /// SCSI status; means something only with S.
        "Status" status: u8 = STATUS;
        /// Logical unit; means something only with A.
        "LUN" lun: LunField = LUN;
        /// Initiator Task Tag.
        "ITT" itt: Itt = ITT;
        /// Target Transfer Tag; means something only with A.
        "TTT" ttt: Ttt = TTT;
        /// StatSN (means something only with S), ExpCmdSN and MaxCmdSN.
        "StatSN/ExpCmdSN/MaxCmdSN" numbers: Numbers = NUMBERS;
        /// Number within the command.
        "DataSN" data_sn: DataSn = DATA_SN;
        /// Buffer Offset, bytes.
        "Offset" offset: u32 = OFFSET;
        /// Residual Count, bytes.
        "Residual" residual_count: u32 = RESIDUAL_COUNT;
    }
}

/// Data to the target (RFC 7143 §11.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOut {
    /// F: last PDU of the unsolicited burst or of the answer to an R2T.
    pub final_: bool,
    /// Copy from the R2T; means nothing without `ttt`.
    pub lun: LunField,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Copy from the R2T; [`Ttt::NONE`] if unsolicited.
    pub ttt: Ttt,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
    /// From 0 in each sequence.
    pub data_sn: DataSn,
    /// Offset in the whole buffer of the command, bytes.
    pub offset: u32,
}

impl DataOut {
    /// Takes the header apart.
    ///
    /// # Errors
    /// Only those of every PDU: opcode, AHS, task tag.
    pub fn parse<T: AsRef<[u8]>>(view: &DataOutView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_plain(OPCODE_DATA_OUT)?;
        Ok(Self {
            final_: view.final_(),
            lun: view.lun(),
            itt: view.bhs().task_tag()?,
            ttt: view.ttt(),
            exp_stat_sn: view.exp_stat_sn(),
            data_sn: view.data_sn(),
            offset: view.offset(),
        })
    }

    /// The BHS.
    #[inline]
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        Header::new(OPCODE_DATA_OUT, data_segment_length)
            .with(FINAL, self.final_)
            .with(LUN, self.lun)
            .with(ITT, self.itt)
            .with(TTT, self.ttt)
            .with(EXP_STAT_SN, self.exp_stat_sn)
            .with(DATA_SN, self.data_sn)
            .with(OFFSET, self.offset)
            .done()
    }
}

/// Data to the initiator (RFC 7143 §11.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataIn {
    /// F: last PDU of its sequence. Set whenever `status` is Some.
    pub final_: bool,
    /// A: the initiator shall acknowledge with a DataACK SNACK.
    pub acknowledge: bool,
    /// Some when the S bit is set: status and its StatSN travel in this PDU.
    pub status: Option<CollapsedStatus>,
    /// Means something only with `acknowledge`.
    pub lun: LunField,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Means something only with `acknowledge`; [`Ttt::NONE`] otherwise.
    pub ttt: Ttt,
    /// `stat_sn` counts only when `status` is Some and is zero otherwise.
    pub numbers: Numbers,
    /// From 0 in each command.
    pub data_sn: DataSn,
    /// Offset in the whole buffer of the command, bytes.
    pub offset: u32,
}

/// Status that travels in the last Data-In (RFC 7143 §11.7.3): only good ones may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollapsedStatus {
    /// GOOD 0x00 or CONDITION MET 0x04, or their obsolete intermediate forms 0x10 and 0x14.
    pub status: u8,
    /// Residual.
    pub residual: Residual,
}

impl DataIn {
    /// Takes the header apart. Without S, status, residual and StatSN are reserved and read as
    /// none.
    ///
    /// # Errors
    /// [`ParseError::Inconsistent`] for S without F, for a status that needs sense data, for O with
    /// U.
    pub fn parse<T: AsRef<[u8]>>(view: &DataInView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_plain(OPCODE_DATA_IN)?;
        let status = CollapsedStatus::parse(view)?;
        let mut numbers = view.numbers();
        if status.is_none() {
            numbers.stat_sn = StatSn(0);
        }
        Ok(Self {
            final_: view.final_(),
            acknowledge: view.acknowledge(),
            status,
            lun: view.lun(),
            itt: view.bhs().task_tag()?,
            ttt: view.ttt(),
            numbers,
            data_sn: view.data_sn(),
            offset: view.offset(),
        })
    }

    /// The BHS.
    #[inline]
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        let mut numbers = self.numbers;
        let mut header = Header::new(OPCODE_DATA_IN, data_segment_length)
            .with(FINAL, self.final_)
            .with(ACKNOWLEDGE, self.acknowledge);
        if let Some(CollapsedStatus { status, residual }) = self.status {
            debug_assert!(self.final_, "S needs F");
            header = header
                .with(HAS_STATUS, true)
                .with(STATUS, status)
                .with(OVERFLOW, residual.is_overflow())
                .with(UNDERFLOW, residual.is_underflow())
                .with(RESIDUAL_COUNT, residual.count());
        } else {
            numbers.stat_sn = StatSn(0);
        }
        header
            .with(LUN, self.lun)
            .with(ITT, self.itt)
            .with(TTT, self.ttt)
            .with(NUMBERS, numbers)
            .with(DATA_SN, self.data_sn)
            .with(OFFSET, self.offset)
            .done()
    }
}

impl CollapsedStatus {
    fn parse<T: AsRef<[u8]>>(view: &DataInView<T>) -> Result<Option<Self>, ParseError> {
        if !view.has_status() {
            return Ok(None);
        }
        if !view.final_() {
            return Err(ParseError::Inconsistent { what: "Data-In with S and without F" });
        }
        if !matches!(view.status(), 0x00 | 0x04 | 0x10 | 0x14) {
            return Err(ParseError::Inconsistent {
                what: "Data-In with a status that is not good",
            });
        }
        let flags = (view.overflow(), view.underflow());
        let residual = Residual::from_flags(flags, view.residual_count())?;
        Ok(Some(Self { status: view.status(), residual }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{line, request_vector, response_vector};
    use super::super::*;
    use super::*;

    /// Covers: FMT-11/T, FMT-11/I.
    #[test]
    fn data_out() {
        let pdu = DataOut {
            final_: true,
            lun: LunField([0, 1, 0, 0, 0, 0, 0, 0]),
            itt: Itt(0x22),
            ttt: Ttt(0x1234),
            exp_stat_sn: StatSn(0x67),
            data_sn: DataSn(7),
            offset: 294_912,
        };
        let bytes = request_vector(
            Request::DataOut(pdu),
            5088,
            "05 80 00 00 00 00 13 e0 00 01 00 00 00 00 00 00
             00 00 00 22 00 00 12 34 00 00 00 00 00 00 00 67
             00 00 00 00 00 00 00 07 00 04 80 00 00 00 00 00",
        );
        assert_eq!(
            line(&bytes),
            "Data-Out Data=5088 F LUN=0001000000000000 ITT=0x00000022 TTT=0x00001234 ExpStatSN=103 \
             DataSN=7 Offset=294912"
        );
    }

    fn collapsed() -> DataIn {
        DataIn {
            final_: true,
            acknowledge: false,
            status: Some(CollapsedStatus { status: 0, residual: Residual::None }),
            lun: LunField([0; 8]),
            itt: Itt(0x11),
            ttt: Ttt::NONE,
            numbers: Numbers {
                stat_sn: StatSn(0x65),
                exp_cmd_sn: CmdSn(6),
                max_cmd_sn: CmdSn(0x25),
            },
            data_sn: DataSn(0),
            offset: 0,
        }
    }

    #[test]
    fn data_in_with_status() {
        let bytes = response_vector(
            Response::DataIn(collapsed()),
            36,
            "25 81 00 00 00 00 00 24 00 00 00 00 00 00 00 00
             00 00 00 11 ff ff ff ff 00 00 00 65 00 00 00 06
             00 00 00 25 00 00 00 00 00 00 00 00 00 00 00 00",
        );
        assert_eq!(
            line(&bytes),
            "Data-In Data=36 F S ITT=0x00000011 StatSN/ExpCmdSN/MaxCmdSN=101/6/37 DataSN=0"
        );
    }

    #[test]
    fn data_in_with_residual() {
        let mut pdu = collapsed();
        pdu.status = Some(CollapsedStatus { status: 4, residual: Residual::Underflow(4096) });
        let bytes = pdu.emit(512);
        assert_eq!((bytes[1], bytes[3], &bytes[44..]), (0x83, 4, &[0, 0, 0x10, 0][..]));
        pdu.status = Some(CollapsedStatus { status: 0, residual: Residual::Overflow(1) });
        let bytes = pdu.emit(512);
        assert_eq!((bytes[1], &bytes[44..]), (0x85, &[0, 0, 0, 1][..]));
        assert_eq!(Response::parse(&bytes), Ok(Response::DataIn(pdu)));
    }

    /// Covers: SRS-06.
    #[test]
    fn a_count_without_a_flag_is_none() {
        let mut bytes = collapsed().emit(512);
        bytes[44..].copy_from_slice(&7_u32.to_be_bytes());
        assert_eq!(Response::parse(&bytes), Ok(Response::DataIn(collapsed())));
    }

    /// Covers: FMT-11/T, FMT-11/I.
    #[test]
    fn data_in_without_status() {
        let pdu = DataIn {
            final_: false,
            acknowledge: true,
            status: None,
            lun: LunField([0, 1, 0, 0, 0, 0, 0, 0]),
            ttt: Ttt(9),
            numbers: Numbers { stat_sn: StatSn(0), ..collapsed().numbers },
            data_sn: DataSn(3),
            offset: 196_608,
            ..collapsed()
        };
        let mut bytes = response_vector(
            Response::DataIn(pdu),
            65536,
            "25 40 00 00 00 01 00 00 00 01 00 00 00 00 00 00
             00 00 00 11 00 00 00 09 00 00 00 00 00 00 00 06
             00 00 00 25 00 00 00 03 00 03 00 00 00 00 00 00",
        );
        // Status, StatSN, O, U and the residual are reserved without S.
        bytes[1] |= 0x06;
        bytes[3] = 2;
        bytes[24..28].fill(0xff);
        bytes[44..].fill(0xff);
        assert_eq!(Response::parse(&bytes), Ok(Response::DataIn(pdu)));
    }

    #[test]
    fn statuses_that_do_not_collapse() {
        let mut bytes = collapsed().emit(0);
        let mut parse = |flags: u8, status: u8| {
            bytes[1] = flags;
            bytes[3] = status;
            Response::parse(&bytes).is_ok()
        };
        assert!(parse(0x81, 0) && parse(0xc1, 4) && parse(0x83, 0x10) && parse(0x85, 0x14));
        assert!(!parse(0x01, 0), "S without F");
        assert!(!parse(0x87, 0), "O with U");
        for status in [0x02, 0x08, 0x18, 0x28, 0x30, 0x40, 0xff] {
            assert!(!parse(0x81, status));
        }
    }
}
