// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the two halves of a local connection say to each other.
//!
//! Messages of one direction are never mistaken for those of the other: each has a type of its own.
//! What a message says is no more to be trusted than a PDU: the other half may belong to somebody
//! else.

use alloc::vec::Vec;

use buf::Slice;
use wire::iscsi::CollapsedStatus;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Numbers;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::ScsiCommand;
use wire::iscsi::ScsiResponse;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;

/// From the initiator's half to the target's.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // the target's half must take each
pub enum ToTarget {
    /// A request that is neither a SCSI command nor data, and its data segment.
    Control {
        /// The request.
        request: Request,
        /// Its data segment.
        data: Vec<u8>,
    },
    /// A SCSI command and its immediate data.
    Command {
        /// The command.
        command: ScsiCommand,
        /// Its immediate data, from the first byte of its buffer on; empty without.
        data: Slice,
    },
    /// Data of a command: all that comes unasked behind the immediate data, or all that one
    /// [`Get`] asked for.
    Data(Data),
}

/// From the target's half to the initiator's.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // the initiator's half must take each
pub enum ToInitiator {
    /// A response that neither ends a SCSI command nor moves its data, and its data segment.
    Control {
        /// The response.
        response: Response,
        /// Its data segment.
        data: Vec<u8>,
    },
    /// The end of a SCSI command.
    Status {
        /// How it ended.
        response: ScsiResponse,
        /// Its sense data, as in the data segment of a SCSI Response.
        sense: Vec<u8>,
    },
    /// Data of a SCSI command, the last of it perhaps with status.
    Put(Put),
    /// A request for data of a SCSI command.
    Get(Get),
}

/// A whole burst of data to the target.
#[derive(Debug)]
pub struct Data {
    /// The tag of the command.
    pub itt: Itt,
    /// That of the [`Get`] that asked for it; [`Ttt::NONE`]: it comes unasked.
    pub ttt: Ttt,
    /// The newest one of the initiator.
    pub exp_stat_sn: StatSn,
    /// Place in the initiator's buffer, bytes.
    pub offset: u32,
    /// All bytes of the burst.
    pub data: Slice,
}

/// Data to the initiator.
#[derive(Debug)]
pub struct Put {
    /// The tag of the command.
    pub itt: Itt,
    /// Place in the initiator's buffer, bytes.
    pub offset: u32,
    /// The bytes; any number of them.
    pub data: Slice,
    /// StatSN counts with `status`.
    pub numbers: Numbers,
    /// How the command ended, if nothing more comes for it.
    pub status: Option<CollapsedStatus>,
}

/// Asks for data of the initiator's buffer: one [`Data`] answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get {
    /// The tag of the command.
    pub itt: Itt,
    /// Names the answer; never [`Ttt::NONE`].
    pub ttt: Ttt,
    /// The logical unit of the command.
    pub lun: LunField,
    /// Place in the initiator's buffer, bytes.
    pub offset: u32,
    /// Bytes, at least one.
    pub length: u32,
    /// The next StatSN, which this message does not take, ExpCmdSN and MaxCmdSN.
    pub numbers: Numbers,
}

impl ToTarget {
    /// Bytes of data that it refers to or has.
    pub fn data_len(&self) -> usize {
        match self {
            Self::Control { data, .. } => data.len(),
            Self::Command { data, .. } | Self::Data(Data { data, .. }) => data.len(),
        }
    }
}

impl ToInitiator {
    /// Bytes of data that it refers to or has.
    pub fn data_len(&self) -> usize {
        match self {
            Self::Control { data, .. } => data.len(),
            Self::Status { sense, .. } => sense.len(),
            Self::Put(Put { data, .. }) => data.len(),
            Self::Get(_) => 0,
        }
    }
}

/// They are moved from queue to queue for every command.
const _: () = assert!(size_of::<ToTarget>() <= 144 && size_of::<ToInitiator>() <= 104);
