// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every requirement of the full feature phase that a peer can break, and what we do about it.

pub(crate) use wire::scsi::sam::TASK_SET_FULL;

use crate::datamover::{DataError, StreamViolation};
use thiserror::Error;
use wire::iscsi::{CmdSn, DataSn};

/// What follows from a [`Violation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a session must carry out each
pub enum Reaction {
    /// Nothing at all: the PDU is dropped silently.
    Ignore,
    /// Send a Reject with this reason (RFC 7143 §11.17.1) and go on.
    Reject(u8),
    /// End the command with this sense once no more data is on its way (RFC 7143 §11.4.7.2).
    FailTask(Sense),
    /// End the command with this SCSI status, without sense, once no more data is on its way.
    RefuseTask(u8),
    /// End this connection.
    DropConnection,
    /// End all connections of the session (RFC 7143 §7.7).
    DropSession,
}

/// Sense data that the iSCSI layer makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// Sense key.
    pub key: u8,
    /// Additional sense code.
    pub code: u8,
    /// Additional sense code qualifier.
    pub qualifier: u8,
}

impl Sense {
    /// Fixed format, current error (SPC-4 §4.5.3).
    pub const fn to_fixed(self) -> [u8; 18] {
        let Self { key, code, qualifier } = self;
        [0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, code, qualifier, 0, 0, 0, 0]
    }
}

/// Sense key 0Bh: the command was aborted by the transport.
const fn aborted(code: u8, qualifier: u8) -> Sense {
    Sense { key: 0x0b, code, qualifier }
}

/// Reject reasons that we send (RFC 7143 §11.17.1).
pub mod reason {
    /// The data digest of the PDU was wrong.
    pub const DATA_DIGEST_ERROR: u8 = 0x02;
    /// The SNACK cannot be served; the command ends another way.
    pub const SNACK_REJECT: u8 = 0x03;
    /// The PDU breaks the protocol where it stands.
    pub const PROTOCOL_ERROR: u8 = 0x04;
    /// We do not support this PDU.
    pub const COMMAND_NOT_SUPPORTED: u8 = 0x05;
    /// Too many immediate commands; may be sent again.
    pub const IMMEDIATE_COMMAND_REJECT: u8 = 0x06;
    /// The task tag is in use.
    pub const TASK_IN_PROGRESS: u8 = 0x07;
    /// A DataACK that fits nothing we asked to be acknowledged.
    pub const INVALID_DATA_ACK: u8 = 0x08;
    /// A field that names a task, response or transfer is wrong.
    pub const INVALID_PDU_FIELD: u8 = 0x09;
    /// No resources to go on with a long text exchange.
    pub const LONG_OPERATION_REJECT: u8 = 0x0a;
}

/// One variant for each broken requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[expect(clippy::exhaustive_enums)] // each has its reaction
pub enum Violation {
    /// RFC 7143 §4.2.2.1.
    #[error("command number {} lies outside the window", .0.0)]
    OutsideWindow(CmdSn),
    /// RFC 7143 §4.2.2.1.
    #[error("command number {} came twice", .0.0)]
    DuplicateCommand(CmdSn),

    /// RFC 7143 §11.1: told by the mover, which knows the bytes.
    #[error("malformed pdu, reject reason {0:#04x}")]
    Malformed(u8),
    /// RFC 7143 §7.8.
    #[error("wrong data digest")]
    DataDigest,
    /// RFC 7143 §4.2.4.
    #[error("login request in full feature phase")]
    LoginRequest,
    /// RFC 7143 §4.3.
    #[error("pdu not allowed in a discovery session")]
    NotInDiscovery,
    /// RFC 7143 §11.16: recovery level 0 has no SNACK.
    #[error("snack request at error recovery level 0")]
    Snack,
    /// RFC 7145 §7.3.11: nothing is lost there.
    #[error("snack request over rdma")]
    SnackOverRdma,
    /// RFC 7143 §11.16: what was never sent or is acknowledged. The next DataSN or R2TSN of the
    /// task.
    #[error("snack for something never sent or already acknowledged")]
    NothingToResend(DataSn),
    /// RFC 7143 §7.8: our memory for resending is bounded.
    #[error("snack for data that was not kept")]
    NotKept,
    /// RFC 7143 §11.16.1-11.16.7.
    #[error("snack with a field that names nothing")]
    SnackField,
    /// RFC 7143 §11.17.1.
    #[error("acknowledgement of data that was not asked for")]
    DataAcknowledgement,
    /// RFC 7143 §4.2.2.2: a large difference between StatSN and ExpStatSN.
    #[error("too many responses without an acknowledgement")]
    Unacknowledged,
    /// RFC 7143 §11.7.4: data for no transfer that is open.
    #[error("data for an unknown transfer")]
    UnknownTransfer,

    /// RFC 7143 §11.2.1.8.
    #[error("the reserved task tag names a task")]
    ReservedTaskTag,
    /// RFC 7143 §11.2.1.8.
    #[error("the task tag is in use")]
    TaskInProgress,
    /// RFC 7143 §4.2.2.1.
    #[error("too many immediate commands")]
    TooManyImmediate,
    /// More commands than the windows we gave allow for.
    #[error("no room for another command")]
    OutOfTasks,
    /// RFC 7143 §11.3.1: F=0 announces data that a command without W cannot have.
    #[error("unsolicited data announced without a write")]
    FinalMissing,

    /// RFC 7143 §11.4.7.2.
    #[error("unsolicited data although the keys forbid it")]
    UnexpectedUnsolicited,
    /// RFC 7143 §11.4.7.2.
    #[error("wrong amount of data")]
    IncorrectAmount,
    /// RFC 7143 §7.8: also data out of order, which counts as lost.
    #[error("write data was lost or corrupt")]
    LostData,
    /// Data came before there was a place to put it.
    #[error("write data came before there was a buffer for it")]
    NoBuffer,
    /// RFC 7143 §11.3.4: no logical unit of ours has bidirectional commands.
    #[error("bidirectional command")]
    Bidirectional,

    /// RFC 7143 §11.18.1.
    #[error("nop-out without a task tag is not immediate")]
    NopNotImmediate,
    /// RFC 7143 §11.18: a ping and an answer at once.
    #[error("nop-out with both tags")]
    NopBothTags,
    /// RFC 7143 §11.18.2.
    #[error("nop-out answers a ping that was not sent")]
    UnknownPing,

    /// RFC 7143 §11.14.1.
    #[error("unknown logout reason {0}")]
    UnknownLogoutReason(u8),

    /// RFC 7143 §11.10.2.
    #[error("text request is final and continues")]
    TextContinueFinal,
    /// RFC 7143 §11.10.4.
    #[error("text request names no exchange under way")]
    UnknownTextExchange,
    /// RFC 7143 §6.1.
    #[error("text is not made of key=value pairs")]
    TextMalformed,
    /// RFC 7143 §6.3.
    #[error("a key came twice in one exchange")]
    TextRepeatedKey,
    /// RFC 7143 §6.2: at most one is open on a connection.
    #[error("text request before the former one was answered")]
    TextUnanswered,
    /// RFC 7143 §6.2: keys while we still send ours.
    #[error("text request with keys in the middle of our answer")]
    TextInterrupted,
    /// RFC 7143 §11.11.4.
    #[error("text longer than we have room for")]
    TextTooLong,

    /// RFC 7143 §7.7, §7.8: the byte stream cannot be trusted any more.
    #[error("byte stream not usable any more: {0}")]
    Stream(StreamViolation),
    /// RFC 7143 §7.14.
    #[error("no answer to a ping")]
    PingTimeout,
    /// RFC 7143 §11.9.1.
    #[error("no logout after it was requested")]
    LogoutTimeout,
    /// A discovery session has no work that lasts.
    #[error("idle discovery session")]
    DiscoveryIdle,
}

impl Violation {
    /// What we do about it.
    pub fn reaction(&self) -> Reaction {
        use reason::*;
        match self {
            Self::OutsideWindow(_) | Self::DuplicateCommand(_) => Reaction::Ignore,

            Self::Malformed(code) => Reaction::Reject(sendable(*code)),
            Self::DataDigest => Reaction::Reject(DATA_DIGEST_ERROR),
            Self::LoginRequest
            | Self::NotInDiscovery
            | Self::SnackOverRdma
            | Self::NopNotImmediate
            | Self::NopBothTags
            | Self::TextContinueFinal
            | Self::TextMalformed
            | Self::TextRepeatedKey
            | Self::NothingToResend(_)
            | Self::TextUnanswered
            | Self::TextInterrupted => Reaction::Reject(PROTOCOL_ERROR),
            Self::NotKept => Reaction::Reject(SNACK_REJECT),
            Self::DataAcknowledgement => Reaction::Reject(INVALID_DATA_ACK),
            Self::Snack => Reaction::Reject(COMMAND_NOT_SUPPORTED),
            Self::TooManyImmediate => Reaction::Reject(IMMEDIATE_COMMAND_REJECT),
            Self::TaskInProgress => Reaction::Reject(TASK_IN_PROGRESS),
            Self::ReservedTaskTag
            | Self::FinalMissing
            | Self::SnackField
            | Self::UnknownTransfer
            | Self::UnknownPing
            | Self::UnknownLogoutReason(_)
            | Self::UnknownTextExchange => Reaction::Reject(INVALID_PDU_FIELD),
            Self::TextTooLong | Self::OutOfTasks => Reaction::Reject(LONG_OPERATION_REJECT),

            Self::UnexpectedUnsolicited => Reaction::FailTask(aborted(0x0c, 0x0c)),
            Self::IncorrectAmount => Reaction::FailTask(aborted(0x0c, 0x0d)),
            Self::LostData => Reaction::FailTask(aborted(0x47, 0x05)),
            Self::Bidirectional => {
                Reaction::FailTask(Sense { key: 0x05, code: 0x20, qualifier: 0x00 })
            }
            Self::NoBuffer => Reaction::RefuseTask(TASK_SET_FULL),

            // A format error: nothing that this peer says on any connection can be relied on (RFC
            // 7143 §7.7).
            Self::Stream(
                StreamViolation::SegmentTooLong { .. } | StreamViolation::AdditionalHeader,
            ) => Reaction::DropSession,

            Self::Stream(_)
            | Self::Unacknowledged
            | Self::PingTimeout
            | Self::LogoutTimeout
            | Self::DiscoveryIdle => Reaction::DropConnection,
        }
    }
}

impl Violation {
    /// What a Reject says of the next DataSN or R2TSN (RFC 7143 §11.17.2).
    pub(crate) const fn next_data_sn(&self) -> DataSn {
        match self {
            Self::NothingToResend(next) => *next,
            _ => DataSn(0),
        }
    }
}

impl From<DataError> for Violation {
    fn from(error: DataError) -> Self {
        match error {
            DataError::Digest | DataError::Sequence | DataError::Overdue => Self::LostData,
            DataError::Amount => Self::IncorrectAmount,
        }
    }
}

/// Reasons 01h and 0Bh are deprecated and must not be sent (RFC 7143 §11.17.1).
fn sendable(code: u8) -> u8 {
    match code {
        0x02..=0x0a | 0x0c => code,
        _ => reason::PROTOCOL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use wire::iwarp::Cause;

    #[test]
    fn sense_is_fixed_format() {
        let bytes = aborted(0x0c, 0x0d).to_fixed();
        assert_eq!((bytes[0], bytes[2], bytes[7]), (0x70, 0x0b, 10));
        assert_eq!((bytes[12], bytes[13]), (0x0c, 0x0d));
    }

    /// Covers: OBS-11.
    #[test]
    fn deprecated_reasons_are_never_sent() {
        for code in 0..=255 {
            let Reaction::Reject(sent) = Violation::Malformed(code).reaction() else { panic!() };
            assert!((0x02..=0x0a).contains(&sent) || sent == 0x0c, "{code:#x} sent as {sent:#x}");
        }
    }

    #[test]
    fn text_is_lower_case_without_full_stop() {
        let text = Violation::Stream(StreamViolation::HeaderDigest).to_string();
        assert!(text.starts_with("byte stream"));
        assert!(!Violation::PingTimeout.to_string().ends_with('.'));
        let text = Violation::Stream(StreamViolation::Rdma(Some(Cause::MPA_CRC))).to_string();
        assert_eq!(
            text,
            "byte stream not usable any more: the rdma stream has ended: MPA: CRC error"
        );
    }
}
