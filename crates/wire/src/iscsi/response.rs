// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCSI Response (RFC 7143 §11.4).

use super::bhs::{BHS_LEN, FINAL, ITT, NUMBERS};
use super::field::Field;
use super::field::Flag;
use super::field::Header;
use super::view::view;
use super::{DataSn, Itt, Numbers, ParseError};

/// Opcode of a SCSI Response.
pub const OPCODE_SCSI_RESPONSE: u8 = 0x21;

const BIDI_OVERFLOW: Flag = Flag { at: 1, mask: 0x10 };
const BIDI_UNDERFLOW: Flag = Flag { at: 1, mask: 0x08 };
pub(super) const OVERFLOW: Flag = Flag { at: 1, mask: 0x04 };
pub(super) const UNDERFLOW: Flag = Flag { at: 1, mask: 0x02 };
const RESPONSE: Field<u8> = Field::at(2);
pub(super) const STATUS: Field<u8> = Field::at(3);
const STATUS_QUALIFIER: Field<u16> = Field::at(8);
const SNACK_TAG: Field<u32> = Field::at(20);
const EXP_DATA_SN: Field<DataSn> = Field::at(36);
const BIDI_RESIDUAL_COUNT: Field<u32> = Field::at(40);
pub(super) const RESIDUAL_COUNT: Field<u32> = Field::at(44);

view! {
    /// The header of a SCSI Response (RFC 7143 §11.4).
    pub struct ResponseView("SCSI Response", OPCODE_SCSI_RESPONSE) {
        /// o: residual overflow of the read part of a bidirectional command.
        "o" bidi_overflow: bool = BIDI_OVERFLOW;
        /// u: residual underflow of the read part of a bidirectional command.
        "u" bidi_underflow: bool = BIDI_UNDERFLOW;
        /// O: residual overflow.
        "O" overflow: bool = OVERFLOW;
        /// U: residual underflow.
        "U" underflow: bool = UNDERFLOW;
        /// iSCSI service response.
        "Response" response: u8 = RESPONSE;
        /// SCSI status.
        "Status" status: u8 = STATUS;
        /// Status Qualifier (RFC 7144 §6.2.1).
        "StatusQualifier" status_qualifier: u16 = STATUS_QUALIFIER;
        /// Initiator Task Tag.
        "ITT" itt: Itt = ITT;
        /// SNACK Tag.
        "SNACKTag" snack_tag: u32 = SNACK_TAG;
        /// StatSN, ExpCmdSN and MaxCmdSN.
        "StatSN/ExpCmdSN/MaxCmdSN" numbers: Numbers = NUMBERS;
        /// Number of Data-In PDUs of the task.
        "ExpDataSN" exp_data_sn: DataSn = EXP_DATA_SN;
        /// Bidirectional Read Residual Count, bytes.
        "BidiResidual" bidi_residual_count: u32 = BIDI_RESIDUAL_COUNT;
        /// Residual Count, bytes.
        "Residual" residual_count: u32 = RESIDUAL_COUNT;
    }
}

/// Residual of one direction, in bytes (RFC 7143 §11.4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // those of the standard
pub enum Residual {
    /// As much as expected.
    #[default]
    None,
    /// So much was not transferred, because the expected length was too small.
    Overflow(u32),
    /// So much of the expected length was not used.
    Underflow(u32),
}

impl Residual {
    /// From the two flags, `(overflow, underflow)`, and the count, which means nothing without a
    /// flag.
    pub(super) fn from_flags(flags: (bool, bool), count: u32) -> Result<Self, ParseError> {
        match flags {
            (false, false) => Ok(Self::None),
            (true, false) => Ok(Self::Overflow(count)),
            (false, true) => Ok(Self::Underflow(count)),
            (true, true) => {
                Err(ParseError::Inconsistent { what: "residual overflow and underflow at once" })
            }
        }
    }

    /// The count on the wire.
    #[inline]
    pub(super) fn count(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Overflow(count) | Self::Underflow(count) => count,
        }
    }

    #[inline]
    pub(super) fn is_overflow(self) -> bool {
        matches!(self, Self::Overflow(_))
    }

    #[inline]
    pub(super) fn is_underflow(self) -> bool {
        matches!(self, Self::Underflow(_))
    }
}

/// A SCSI Response (RFC 7143 §11.4). Sense and response data are its data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiResponse {
    /// 0 command completed at target, 1 target failure, 0x80-0xff vendor's (RFC 7143 §11.4.3).
    pub response: u8,
    /// SCSI status; counts only when `response` is 0 and is 0 otherwise (RFC 7143 §11.4.2).
    pub status: u8,
    /// Status Qualifier: means something at iSCSIProtocolLevel 2 and for some statuses (RFC 7144
    /// §6.2.1).
    pub status_qualifier: u16,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Tag of the last R-Data SNACK that was taken, else 0 (RFC 7143 §11.4.4).
    pub snack_tag: u32,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: Numbers,
    /// Number of Data-In PDUs of the task (RFC 7143 §11.4.8); RFC 3720 counted R2Ts, too.
    pub exp_data_sn: DataSn,
    /// Residual of the read part of a bidirectional command; `None` when `response` is not 0.
    pub bidi_read_residual: Residual,
    /// Residual; `None` when `response` is not 0.
    pub residual: Residual,
}

impl ScsiResponse {
    /// Takes the header apart. With a `response` other than 0 status and residuals are reserved and
    /// read as none.
    ///
    /// # Errors
    /// [`ParseError::Inconsistent`] for O with U or o with u.
    pub fn parse<T: AsRef<[u8]>>(view: &ResponseView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_plain(OPCODE_SCSI_RESPONSE)?;
        let mut response = Self {
            response: view.response(),
            status: 0,
            status_qualifier: 0,
            itt: view.bhs().task_tag()?,
            snack_tag: view.snack_tag(),
            numbers: view.numbers(),
            exp_data_sn: view.exp_data_sn(),
            bidi_read_residual: Residual::None,
            residual: Residual::None,
        };
        if response.response == 0 {
            response.status = view.status();
            response.status_qualifier = view.status_qualifier();
            response.bidi_read_residual = Residual::from_flags(
                (view.bidi_overflow(), view.bidi_underflow()),
                view.bidi_residual_count(),
            )?;
            response.residual =
                Residual::from_flags((view.overflow(), view.underflow()), view.residual_count())?;
        }
        Ok(response)
    }

    /// The BHS.
    #[inline]
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        let header = Header::new(OPCODE_SCSI_RESPONSE, data_segment_length)
            .with(FINAL, true)
            .with(RESPONSE, self.response)
            .with(ITT, self.itt)
            .with(SNACK_TAG, self.snack_tag)
            .with(NUMBERS, self.numbers)
            .with(EXP_DATA_SN, self.exp_data_sn);
        if self.response != 0 {
            return header.done();
        }
        header
            .with(STATUS, self.status)
            .with(STATUS_QUALIFIER, self.status_qualifier)
            .with(BIDI_OVERFLOW, self.bidi_read_residual.is_overflow())
            .with(BIDI_UNDERFLOW, self.bidi_read_residual.is_underflow())
            .with(OVERFLOW, self.residual.is_overflow())
            .with(UNDERFLOW, self.residual.is_underflow())
            .with(BIDI_RESIDUAL_COUNT, self.bidi_read_residual.count())
            .with(RESIDUAL_COUNT, self.residual.count())
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{line, response_vector};
    use super::super::*;
    use super::*;

    fn failed() -> ScsiResponse {
        ScsiResponse {
            response: 0,
            status: 2,
            status_qualifier: 0,
            itt: Itt(0x11),
            snack_tag: 7,
            numbers: Numbers {
                stat_sn: StatSn(0x66),
                exp_cmd_sn: CmdSn(7),
                max_cmd_sn: CmdSn(0x26),
            },
            exp_data_sn: DataSn(5),
            bidi_read_residual: Residual::Overflow(1),
            residual: Residual::Underflow(4096),
        }
    }

    #[test]
    fn check_condition() {
        let bytes = response_vector(
            Response::Scsi(failed()),
            20,
            "21 92 00 02 00 00 00 14 00 00 00 00 00 00 00 00
             00 00 00 11 00 00 00 07 00 00 00 66 00 00 00 07
             00 00 00 26 00 00 00 05 00 00 00 01 00 00 10 00",
        );
        assert_eq!(
            line(&bytes),
            "SCSI Response Data=20 o U Status=0x02 ITT=0x00000011 SNACKTag=7 \
             StatSN/ExpCmdSN/MaxCmdSN=102/7/38 ExpDataSN=5 BidiResidual=1 Residual=4096"
        );
    }

    /// Covers: P44-09, FMT-01/S.
    #[test]
    fn status_qualifier() {
        let response = ScsiResponse { status: 0x28, status_qualifier: 0x8001, ..failed() };
        let bytes = response_vector(
            Response::Scsi(response),
            0,
            "21 92 00 28 00 00 00 00 80 01 00 00 00 00 00 00
             00 00 00 11 00 00 00 07 00 00 00 66 00 00 00 07
             00 00 00 26 00 00 00 05 00 00 00 01 00 00 10 00",
        );
        assert!(line(&bytes).contains("StatusQualifier=0x8001"), "{}", line(&bytes));
    }

    #[test]
    fn other_residuals() {
        let response = ScsiResponse {
            bidi_read_residual: Residual::Underflow(2),
            residual: Residual::Overflow(3),
            ..failed()
        };
        let bytes = response.emit(0);
        assert_eq!(bytes[1], 0x8c);
        assert_eq!(Response::parse(&bytes), Ok(Response::Scsi(response)));
    }

    /// A count without a flag is reserved.
    ///
    /// Covers: SRS-06.
    #[test]
    fn a_count_without_a_flag_is_none() {
        let pdu = ScsiResponse { response: 0, residual: Residual::Underflow(9), ..failed() };
        let mut bytes = pdu.emit(0);
        assert_eq!(bytes[44..], 9_u32.to_be_bytes());
        bytes[1] = 0x80;
        bytes[40..44].copy_from_slice(&7_u32.to_be_bytes());
        let Ok(Response::Scsi(parsed)) = Response::parse(&bytes) else { panic!("a response") };
        assert_eq!((parsed.residual, parsed.bidi_read_residual), (Residual::None, Residual::None));
    }

    /// Covers: SRS-03.
    #[test]
    fn flags_exclude_each_other() {
        let mut bytes = failed().emit(0);
        for flags in [0x86, 0x98, 0x9e] {
            bytes[1] = flags;
            assert!(matches!(Response::parse(&bytes), Err(ParseError::Inconsistent { .. })));
        }
        let values = [Residual::None, Residual::Overflow(9), Residual::Underflow(9)];
        for (residual, bidi) in values.into_iter().flat_map(|a| values.map(|b| (a, b))) {
            for response in [0, 1, 0x80] {
                let pdu = ScsiResponse { response, residual, bidi_read_residual: bidi, ..failed() };
                let flags = pdu.emit(0)[1];
                assert!(flags & 0x06 != 0x06 && flags & 0x18 != 0x18);
                assert!(response == 0 || flags == 0x80);
            }
        }
    }

    #[test]
    fn counts_mean_nothing_without_flags() {
        let mut bytes = failed().emit(0);
        bytes[1] = 0x80;
        let response = ScsiResponse {
            residual: Residual::None,
            bidi_read_residual: Residual::None,
            ..failed()
        };
        assert_eq!(Response::parse(&bytes), Ok(Response::Scsi(response)));
        bytes[1] = 0x9e;
        bytes[2] = 1;
        let response = ScsiResponse { response: 1, status: 0, status_qualifier: 0, ..response };
        assert_eq!(Response::parse(&bytes), Ok(Response::Scsi(response)), "target failure");
    }
}
