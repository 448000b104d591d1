// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Check conditions by name (SPC-4 §4.5, codes of SPC-4 annex D).

use crate::task::CHECK_CONDITION;
use crate::task::Completion;
use alloc::vec::Vec;
use store::Error;
use wire::scsi::FieldPointer;
use wire::scsi::Sense;
use wire::scsi::SenseKey;
use wire::scsi::sense::FieldOf;

/// Why a command ends with CHECK CONDITION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) sense: Sense,
    /// CHECK CONDITION, or a status that needs no sense data.
    pub(crate) status: u8,
    /// Base of the residual, bytes: zero but where the initiator's expectation itself is the fault.
    pub(crate) presented: u64,
}

/// The format of sense data (D_SENSE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Fixed,
    Descriptor,
}

impl Fault {
    /// Status RESERVATION CONFLICT.
    pub(crate) const RESERVATION_CONFLICT: Self =
        Self::of_status(crate::task::RESERVATION_CONFLICT);

    /// Status ACA ACTIVE.
    pub(crate) const ACA_ACTIVE: Self = Self::of_status(crate::task::ACA_ACTIVE);

    /// Status BUSY.
    pub(crate) const BUSY: Self = Self::of_status(crate::task::BUSY);

    /// Status TASK SET FULL.
    pub(crate) const TASK_SET_FULL: Self = Self::of_status(crate::task::TASK_SET_FULL);

    /// A status that needs no sense data.
    const fn of_status(status: u8) -> Self {
        Self { sense: NO_SENSE, status, presented: 0 }
    }

    pub(crate) fn complete(self, format: Format) -> Completion {
        let sense = match (self.status, format) {
            (CHECK_CONDITION, Format::Fixed) => self.sense.emit_fixed().to_vec(),
            (CHECK_CONDITION, Format::Descriptor) => self.sense.emit_descriptor(),
            _ => Vec::new(),
        };
        let Self { status, presented, .. } = self;
        Completion { status, sense, data_in: None, presented, fence: self.is_fenced() }
    }
}

impl Fault {
    /// A unit attention after a function that ended the tasks of many, or ACA ACTIVE (RFC 7143
    /// §4.2.2.3.4 a, d).
    pub(crate) fn is_fenced(&self) -> bool {
        let of_many = matches!(self.sense.asc, RESET_OCCURRED | COMMANDS_CLEARED);
        match self.status {
            CHECK_CONDITION => self.sense.key == SenseKey::UnitAttention && of_many,
            status => status == crate::task::ACA_ACTIVE,
        }
    }
}

impl From<Sense> for Fault {
    fn from(sense: Sense) -> Self {
        Self { sense, status: CHECK_CONDITION, presented: 0 }
    }
}

/// Additional sense code of POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
const RESET_OCCURRED: u8 = 0x29;
/// Additional sense code of COMMANDS CLEARED BY ANOTHER INITIATOR.
const COMMANDS_CLEARED: u8 = 0x2f;
/// Additional sense code of UNRECOVERED READ ERROR.
pub(crate) const UNRECOVERED_READ_ERROR: u8 = 0x11;
/// 0/00/00 NO ADDITIONAL SENSE INFORMATION.
pub(crate) const NO_SENSE: Sense = Sense::new(SenseKey::NoSense, 0, 0);
/// 2/04/02 LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED: stopped.
pub(crate) const STOPPED: Sense = Sense::new(SenseKey::NotReady, 0x04, 0x02);
/// 2/04/04 LOGICAL UNIT NOT READY, FORMAT IN PROGRESS.
pub(crate) const FORMAT_IN_PROGRESS: Sense = Sense::new(SenseKey::NotReady, 0x04, 0x04);
/// 2/04/1B LOGICAL UNIT NOT READY, SANITIZE IN PROGRESS.
pub(crate) const SANITIZE_IN_PROGRESS: Sense = Sense::new(SenseKey::NotReady, 0x04, 0x1b);
/// 3/31/01 FORMAT COMMAND FAILED.
pub(crate) const FORMAT_FAILED: Sense = Sense::new(SenseKey::MediumError, 0x31, 0x01);
/// 3/31/03 SANITIZE COMMAND FAILED.
pub(crate) const SANITIZE_FAILED: Sense = Sense::new(SenseKey::MediumError, 0x31, 0x03);
/// 2/04/0A LOGICAL UNIT NOT ACCESSIBLE, ASYMMETRIC ACCESS STATE TRANSITION.
pub(crate) const ACCESS_STATE_TRANSITION: Sense = Sense::new(SenseKey::NotReady, 0x04, 0x0a);
/// 2/04/0B LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN STANDBY STATE.
pub(crate) const PORT_IN_STANDBY: Sense = Sense::new(SenseKey::NotReady, 0x04, 0x0b);
/// 2/04/0C LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE.
pub(crate) const PORT_UNAVAILABLE: Sense = Sense::new(SenseKey::NotReady, 0x04, 0x0c);
/// 2/3A/02 MEDIUM NOT PRESENT - TRAY OPEN.
pub(crate) const TRAY_OPEN: Sense = Sense::new(SenseKey::NotReady, 0x3a, 0x02);
/// 5/30/02 CANNOT READ MEDIUM - INCOMPATIBLE FORMAT: what is asked for is of another kind of disc.
pub(crate) const INCOMPATIBLE_FORMAT: Sense = Sense::new(SenseKey::IllegalRequest, 0x30, 0x02);
/// 5/53/02 MEDIUM REMOVAL PREVENTED.
pub(crate) const REMOVAL_PREVENTED: Sense = Sense::new(SenseKey::IllegalRequest, 0x53, 0x02);
/// 5/64/00 ILLEGAL MODE FOR THIS TRACK.
pub(crate) const ILLEGAL_TRACK_MODE: Sense = Sense::new(SenseKey::IllegalRequest, 0x64, 0);
/// 4/44/00 INTERNAL TARGET FAILURE.
pub(crate) const INTERNAL: Sense = Sense::new(SenseKey::HardwareError, 0x44, 0);
/// 4/3E/03 LOGICAL UNIT FAILED SELF-TEST.
pub(crate) const FAILED_SELF_TEST: Sense = Sense::new(SenseKey::HardwareError, 0x3e, 0x03);
/// 5/00/16 OPERATION IN PROGRESS: the list identifier is that of a copy under way.
pub(crate) const COPY_IN_PROGRESS: Sense = Sense::new(SenseKey::IllegalRequest, 0x00, 0x16);
/// 5/23/01 INVALID TOKEN OPERATION, UNSUPPORTED TOKEN TYPE.
pub(crate) const UNSUPPORTED_TOKEN_TYPE: Sense = Sense::new(SenseKey::IllegalRequest, 0x23, 0x01);
/// 5/23/04 INVALID TOKEN OPERATION, TOKEN UNKNOWN.
pub(crate) const TOKEN_UNKNOWN: Sense = Sense::new(SenseKey::IllegalRequest, 0x23, 0x04);
/// 5/23/05 INVALID TOKEN OPERATION, TOKEN CORRUPT.
pub(crate) const TOKEN_CORRUPT: Sense = Sense::new(SenseKey::IllegalRequest, 0x23, 0x05);
/// 5/23/06 INVALID TOKEN OPERATION, TOKEN REVOKED: the source has changed.
pub(crate) const TOKEN_REVOKED: Sense = Sense::new(SenseKey::IllegalRequest, 0x23, 0x06);
/// 5/23/07 INVALID TOKEN OPERATION, TOKEN EXPIRED.
pub(crate) const TOKEN_EXPIRED: Sense = Sense::new(SenseKey::IllegalRequest, 0x23, 0x07);
/// 5/23/09 INVALID TOKEN OPERATION, TOKEN DELETED.
pub(crate) const TOKEN_DELETED: Sense = Sense::new(SenseKey::IllegalRequest, 0x23, 0x09);
/// 5/23/0A INVALID TOKEN OPERATION, INVALID TOKEN LENGTH.
pub(crate) const INVALID_TOKEN_LENGTH: Sense = Sense::new(SenseKey::IllegalRequest, 0x23, 0x0a);
/// 5/26/06 TOO MANY TARGET DESCRIPTORS.
pub(crate) const TOO_MANY_CSCDS: Sense = Sense::new(SenseKey::IllegalRequest, 0x26, 0x06);
/// 5/26/07 UNSUPPORTED TARGET DESCRIPTOR TYPE CODE.
pub(crate) const UNSUPPORTED_CSCD: Sense = Sense::new(SenseKey::IllegalRequest, 0x26, 0x07);
/// 5/26/08 TOO MANY SEGMENT DESCRIPTORS.
pub(crate) const TOO_MANY_SEGMENTS: Sense = Sense::new(SenseKey::IllegalRequest, 0x26, 0x08);
/// 5/26/09 UNSUPPORTED SEGMENT DESCRIPTOR TYPE CODE.
pub(crate) const UNSUPPORTED_SEGMENT: Sense = Sense::new(SenseKey::IllegalRequest, 0x26, 0x09);
/// 5/26/0B INLINE DATA LENGTH EXCEEDED.
pub(crate) const INLINE_DATA_LENGTH_EXCEEDED: Sense =
    Sense::new(SenseKey::IllegalRequest, 0x26, 0x0b);
/// 5/55/03 INSUFFICIENT RESOURCES.
pub(crate) const INSUFFICIENT_RESOURCES: Sense = Sense::new(SenseKey::IllegalRequest, 0x55, 0x03);
/// A/00/00 NO ADDITIONAL SENSE INFORMATION: a copy ended early.
pub(crate) const COPY_ABORTED: Sense = Sense::new(SenseKey::CopyAborted, 0x00, 0x00);
/// A/08/04 UNREACHABLE COPY TARGET: no descriptor has this index.
pub(crate) const UNREACHABLE_COPY_TARGET: Sense = Sense::new(SenseKey::CopyAborted, 0x08, 0x04);
/// A/0D/01 THIRD PARTY DEVICE FAILURE.
pub(crate) const THIRD_PARTY_FAILURE: Sense = Sense::new(SenseKey::CopyAborted, 0x0d, 0x01);
/// A/0D/02 COPY TARGET DEVICE NOT REACHABLE.
pub(crate) const COPY_TARGET_NOT_REACHABLE: Sense = Sense::new(SenseKey::CopyAborted, 0x0d, 0x02);
/// A/26/0A UNEXPECTED INEXACT SEGMENT.
pub(crate) const COPY_SEGMENT_INEXACT: Sense = Sense::new(SenseKey::CopyAborted, 0x26, 0x0a);
/// 5/1A/00 PARAMETER LIST LENGTH ERROR.
pub(crate) const PARAMETER_LIST_LENGTH: Sense = Sense::new(SenseKey::IllegalRequest, 0x1a, 0);
/// 5/20/00 INVALID COMMAND OPERATION CODE.
pub(crate) const INVALID_OPCODE: Sense = Sense::new(SenseKey::IllegalRequest, 0x20, 0);
/// 5/21/00 LOGICAL BLOCK ADDRESS OUT OF RANGE; INFORMATION is the first bad one.
pub(crate) const LBA_OUT_OF_RANGE: Sense = Sense::new(SenseKey::IllegalRequest, 0x21, 0);
/// 5/25/00 LOGICAL UNIT NOT SUPPORTED.
pub(crate) const UNIT_NOT_SUPPORTED: Sense = Sense::new(SenseKey::IllegalRequest, 0x25, 0);
/// 6/29/00 POWER ON, RESET, OR BUS DEVICE RESET OCCURRED: nobody knows which.
pub(crate) const RESET_OCCURRED_UNKNOWN: Sense =
    Sense::new(SenseKey::UnitAttention, RESET_OCCURRED, 0);
/// 6/3F/03 INQUIRY DATA HAS CHANGED: another unit has the number.
pub(crate) const INQUIRY_CHANGED: Sense = Sense::new(SenseKey::UnitAttention, 0x3f, 0x03);
/// 5/26/04 INVALID RELEASE OF PERSISTENT RESERVATION.
pub(crate) const INVALID_RELEASE: Sense = Sense::new(SenseKey::IllegalRequest, 0x26, 0x04);
/// 5/55/04 INSUFFICIENT REGISTRATION RESOURCES.
pub(crate) const INSUFFICIENT_REGISTRATION_RESOURCES: Sense =
    Sense::new(SenseKey::IllegalRequest, 0x55, 0x04);
/// 5/2C/00 COMMAND SEQUENCE ERROR.
pub(crate) const COMMAND_SEQUENCE: Sense = Sense::new(SenseKey::IllegalRequest, 0x2c, 0);
/// 5/39/00 SAVING PARAMETERS NOT SUPPORTED.
pub(crate) const SAVING_NOT_SUPPORTED: Sense = Sense::new(SenseKey::IllegalRequest, 0x39, 0);
/// 5/49/00 INVALID MESSAGE ERROR: a task attribute that does not exist here.
pub(crate) const INVALID_MESSAGE: Sense = Sense::new(SenseKey::IllegalRequest, 0x49, 0);
/// 7/27/00 WRITE PROTECTED.
pub(crate) const WRITE_PROTECTED: Sense = Sense::new(SenseKey::DataProtect, 0x27, 0);
/// 7/27/02 LOGICAL UNIT SOFTWARE WRITE PROTECTED.
pub(crate) const SOFTWARE_WRITE_PROTECTED: Sense = Sense::new(SenseKey::DataProtect, 0x27, 0x02);
/// E/1D/00 MISCOMPARE DURING VERIFY OPERATION.
pub(crate) const MISCOMPARE: Sense = Sense::new(SenseKey::Miscompare, 0x1d, 0);

/// 5/24/00 INVALID FIELD IN CDB: the field that starts at `byte` and is whole bytes.
pub(crate) const fn invalid_field(byte: u16) -> Sense {
    let field = FieldPointer { of: FieldOf::Cdb, byte, bit: None };
    Sense::new(SenseKey::IllegalRequest, 0x24, 0).with_field(field)
}

/// 5/24/00 INVALID FIELD IN CDB: the field whose leftmost bit is `bit` of `byte`.
pub(crate) const fn invalid_bit(byte: u16, bit: u8) -> Sense {
    let field = FieldPointer { of: FieldOf::Cdb, byte, bit: Some(bit) };
    Sense::new(SenseKey::IllegalRequest, 0x24, 0).with_field(field)
}

/// 5/26/00 INVALID FIELD IN PARAMETER LIST: the field that starts at `byte` of the list.
pub(crate) const fn invalid_parameter(byte: u16) -> Sense {
    let field = FieldPointer { of: FieldOf::ParameterList, byte, bit: None };
    Sense::new(SenseKey::IllegalRequest, 0x26, 0).with_field(field)
}

/// 5/26/00 INVALID FIELD IN PARAMETER LIST: the field whose leftmost bit is `bit` of `byte`.
pub(crate) const fn invalid_parameter_bit(byte: u16, bit: u8) -> Sense {
    let field = FieldPointer { of: FieldOf::ParameterList, byte, bit: Some(bit) };
    Sense::new(SenseKey::IllegalRequest, 0x26, 0).with_field(field)
}

/// x/10/01 LOGICAL BLOCK GUARD CHECK FAILED.
pub(crate) const fn guard_check_failed(key: SenseKey) -> Sense {
    Sense::new(key, 0x10, 0x01)
}

/// x/10/02 LOGICAL BLOCK APPLICATION TAG CHECK FAILED.
pub(crate) const fn application_tag_check_failed(key: SenseKey) -> Sense {
    Sense::new(key, 0x10, 0x02)
}

/// x/10/03 LOGICAL BLOCK REFERENCE TAG CHECK FAILED.
pub(crate) const fn reference_tag_check_failed(key: SenseKey) -> Sense {
    Sense::new(key, 0x10, 0x03)
}

/// What of the protection information of a block was found wrong.
pub(crate) const fn field_checked(sense: &Sense) -> Option<&'static str> {
    match (sense.asc, sense.ascq) {
        (0x10, 0x01) => Some("guard"),
        (0x10, 0x02) => Some("application tag"),
        (0x10, 0x03) => Some("reference tag"),
        _ => None,
    }
}

/// 5/0E/03 INVALID FIELD IN COMMAND INFORMATION UNIT: the initiator means to send fewer bytes than
/// the CDB says. Refused before anything is written; `needed` keeps the residual truthful (RFC 7143
/// §11.4.5.2).
pub(crate) const fn short_data_out(needed: u64) -> Fault {
    let sense = Sense::new(SenseKey::IllegalRequest, 0x0e, 0x03);
    Fault { sense, status: CHECK_CONDITION, presented: needed }
}

/// What the store reports; `lba` is the first block of the operation.
pub(crate) fn store_failed(error: Error, lba: u64) -> Fault {
    let sense = match error {
        // Whoever asks again gets it once others have taken what they read.
        Error::Busy => return Fault::TASK_SET_FULL,
        Error::Silent => return Fault::BUSY,
        Error::Read => {
            Sense::new(SenseKey::MediumError, UNRECOVERED_READ_ERROR, 0).with_information(lba)
        }
        Error::Write => Sense::new(SenseKey::MediumError, 0x0c, 0).with_information(lba),
        Error::Space => Sense::new(SenseKey::DataProtect, 0x27, 0x07).with_information(lba),
        Error::ReadOnly => WRITE_PROTECTED,
        Error::Range => LBA_OUT_OF_RANGE.with_information(lba),
        _ => INTERNAL,
    };
    sense.into()
}

/// Completion of a command for which there is nothing to say.
pub(crate) const fn good(presented: u64) -> Completion {
    let status = crate::task::GOOD;
    Completion { status, sense: Vec::new(), data_in: None, presented, fence: false }
}
