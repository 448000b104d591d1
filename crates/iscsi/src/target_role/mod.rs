// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The target role: a [`Login`] for each new connection, a [`Session`] once it is in full feature
//! phase.

mod connection;
mod fence;
mod life;
mod limits;
mod login;
mod logout;
mod management;
mod numbering;
mod ping;
mod recovery;
mod session;
mod task;
mod termination;
mod text;

pub use login::Login;
pub use login::reason_of;
pub use ping::Traffic;
pub use session::Output;
pub use session::Session;
pub use task::BufferNeed;
pub use task::Room;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use wire::iscsi::Cid;
use wire::iscsi::CmdSn;
use wire::iscsi::Isid;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;

use crate::chap::Exchange;
use crate::datamover::Markers;
use crate::datamover::Op;
use crate::params::Id;
use crate::params::Values;

/// What the target wishes and allows in negotiation; one per node, shared by its logins. A wish
/// outside the range of its key is taken as the nearest end of the range (RFC 7143 §13).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Longest data segment that the target takes, bytes (RFC 7143 §13.12).
    pub max_recv_data_segment_length: u32,
    /// Longest burst, bytes (RFC 7143 §13.13).
    pub max_burst_length: u32,
    /// Most unsolicited data of a command, bytes (RFC 7143 §13.14).
    pub first_burst_length: u32,
    /// Whether unsolicited Data-Out is unwelcome (RFC 7143 §13.10).
    pub initial_r2t: bool,
    /// Whether immediate data is welcome (RFC 7143 §13.11).
    pub immediate_data: bool,
    /// Most R2Ts of a task that may be agreed on (RFC 7143 §13.17); no more than 64 are ever open.
    pub max_outstanding_r2t: u16,
    /// Whether PDUs of a sequence must come in order (RFC 7143 §13.18); if not, it is as the
    /// initiator likes.
    pub data_pdu_in_order: bool,
    /// Whether sequences must come in order (RFC 7143 §13.19); if not, as the initiator likes.
    pub data_sequence_in_order: bool,
    /// Whether markers of RFC 3720 are agreed to; if not, their keys are answered with Reject.
    pub markers: bool,
    /// Command window: largest MaxCmdSN - ExpCmdSN + 1; zero counts as one.
    pub queue_depth: u16,
    /// Most connections of a session; discovery sessions have one (RFC 7143 §13.2).
    pub max_connections: u16,
    /// Header digests that the target accepts (RFC 7143 §13.1).
    pub header_digest: DigestPolicy,
    /// Data digests that the target accepts (RFC 7143 §13.1).
    pub data_digest: DigestPolicy,
    /// How long a login may take.
    pub login_timeout: Duration,
    /// After so much silence the target pings.
    pub ping_interval: Duration,
    /// A ping that is not answered for so long ends the connection.
    pub ping_timeout: Duration,
    /// DefaultTime2Wait, seconds (RFC 7143 §13.15).
    pub time2wait: u16,
    /// DefaultTime2Retain, seconds (RFC 7143 §13.16).
    pub time2retain: u16,
    /// Highest ErrorRecoveryLevel that the target agrees to (RFC 7143 §13.20); discovery sessions
    /// have 0.
    pub error_recovery_level: u8,
    /// Above ErrorRecoveryLevel 0, bytes of unacknowledged read data that a session keeps to send
    /// them again.
    pub kept_bytes_max: usize,
    /// What the node says of its kind as X#NodeArchitecture; None: nothing (RFC 7143 §9.4, §13.26).
    pub node_architecture: Option<String>,
    /// Which resets of the whole target initiators may ask for.
    pub target_reset: TargetReset,
}

impl Default for Settings {
    /// What suits a disk: writes up to 256 KiB need no R2T, a megabyte is one burst.
    fn default() -> Self {
        Self {
            max_recv_data_segment_length: 256 << 10,
            max_burst_length: 1 << 20,
            first_burst_length: 256 << 10,
            initial_r2t: false,
            immediate_data: true,
            max_outstanding_r2t: 8,
            data_pdu_in_order: false,
            data_sequence_in_order: false,
            markers: false,
            queue_depth: 128,
            max_connections: 4,
            header_digest: DigestPolicy::Any,
            data_digest: DigestPolicy::Any,
            login_timeout: Duration::from_secs(15),
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(15),
            time2wait: 2,
            time2retain: 20,
            error_recovery_level: 2,
            kept_bytes_max: 16 << 20,
            node_architecture: None,
            target_reset: TargetReset::Warm,
        }
    }
}

/// Which digests a target accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // with one algorithm and None there is no fourth
pub enum DigestPolicy {
    /// First of the initiator's list that we know.
    Any,
    /// CRC32C or nothing.
    Required,
    /// None only.
    Off,
}

/// Which resets of a whole target an initiator may ask for (RFC 7143 §11.5.1); others are answered
/// with "function authorization failed".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums)] // the resets of the standard
pub enum TargetReset {
    /// None.
    None,
    /// TARGET WARM RESET: all tasks on the units that the initiator sees end, whoever sent them.
    Warm,
    /// TARGET COLD RESET, too: all sessions of the target end.
    Cold,
}

/// How ends of tasks are reported (RFC 7143 §13.23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the three of the standard
pub enum TaskReporting {
    /// As RFC 3720 has it.
    Rfc3720,
    /// With response fences.
    ResponseFence,
    /// With response fences and fast multi-task abort.
    FastAbort,
}

/// Asked once, as soon as names are known and before the first answer that depends on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// InitiatorName, prepared for comparison (RFC 3722).
    pub initiator: String,
    /// TargetName, prepared for comparison (RFC 3722). None in a discovery session without one.
    pub target: Option<String>,
    /// Whether the session is for SendTargets only.
    pub discovery: bool,
    /// The initiator's part of the session id.
    pub isid: Isid,
    /// Zero asks for a new session (RFC 7143 §6.3.1).
    pub tsih: Tsih,
    /// Id of this connection in its session.
    pub cid: Cid,
}

/// For how long a target has moved (RFC 7143 §11.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the two of the standard
pub enum Redirection {
    /// This time only: status 0101h.
    Temporary,
    /// From now on: status 0102h.
    Permanent,
}

/// The answer of the node.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // the node decides; there is no other answer
pub enum Admission {
    /// The login may go on.
    Granted {
        /// Tag of the portal group that took the connection (RFC 7143 §13.9).
        portal_group_tag: u16,
        /// For the initiator's display, at most 255 bytes (RFC 7143 §13.6).
        target_alias: Option<String>,
        /// What to negotiate for.
        settings: Settings,
        /// How the initiator has to prove who it is.
        authentication: Authentication,
    },
    /// The target is elsewhere: the login ends with status 0101h or 0102h.
    Redirected {
        /// `ADDRESS:PORT`, IPv6 in brackets; at most 255 bytes, no portal group tag (RFC 7143
        /// §13.8).
        address: String,
        /// For how long.
        duration: Redirection,
    },
    /// The login ends.
    Refused {
        /// A status of class 2 or 3, for example 0x0203; another one is sent as 0x0300 (RFC 7143
        /// §11.13.5). Where names are to be hidden, give the same for unknown and forbidden
        /// targets.
        status: u16,
        /// Why, for our log alone: the initiator hears nothing of it.
        reason: &'static str,
    },
}

/// How an initiator has to prove who it is (RFC 7143 §6.3.2, §12.1).
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // the node decides; there is no fourth policy
pub enum Authentication {
    /// Not at all: of the methods, None alone is taken.
    Off,
    /// By CHAP if it offers that before None.
    Optional(Box<Exchange>),
    /// By CHAP; a login without is refused with 0x0201.
    Required(Box<Exchange>),
}

/// What a finished login hands to its session.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    /// InitiatorName.
    pub initiator: String,
    /// InitiatorAlias, for display only: it may hold any characters (RFC 7143 §13.7).
    pub initiator_alias: Option<String>,
    /// TargetName; None in a discovery session without one.
    pub target: Option<String>,
    /// Whether the session is for SendTargets only.
    pub discovery: bool,
    /// Whether the initiator has proved who it is.
    pub proved: bool,
    /// The initiator's part of the session id.
    pub isid: Isid,
    /// Id of this connection in its session.
    pub cid: Cid,
    /// What the node gave by [`Login::establish`].
    pub tsih: Tsih,
    /// CmdSN of the login: of the next non-immediate command of a new session (RFC 7143 §11.12.8).
    pub exp_cmd_sn: CmdSn,
    /// StatSN of the next response on this connection.
    pub stat_sn: StatSn,
    /// ExpStatSN of the first request: where the login replaces a connection, the
    /// acknowledgement of what that one sent (RFC 7143 §11.12.9).
    pub exp_stat_sn: StatSn,
    /// The outcome of negotiation. A login to a session that exists cannot negotiate what holds for
    /// the whole session: these values are then the defaults and mean nothing.
    pub parameters: Parameters,
}

/// All negotiated values of a session and its connection (RFC 7143 §13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// HeaderDigest is CRC32C.
    pub header_digest: bool,
    /// DataDigest is CRC32C.
    pub data_digest: bool,
    /// MaxRecvDataSegmentLength of the initiator, which bounds what we send, bytes.
    pub max_send_data_segment_length: u32,
    /// MaxRecvDataSegmentLength as we declared it, bytes.
    pub max_recv_data_segment_length: u32,
    /// MaxBurstLength, bytes.
    pub max_burst_length: u32,
    /// FirstBurstLength, bytes; never above MaxBurstLength.
    pub first_burst_length: u32,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u16,
    /// DefaultTime2Wait, seconds.
    pub time2wait: u16,
    /// DefaultTime2Retain, seconds.
    pub time2retain: u16,
    /// MaxConnections.
    pub max_connections: u16,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u8,
    /// DataPDUInOrder.
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder.
    pub data_sequence_in_order: bool,
    /// TaskReporting.
    pub task_reporting: TaskReporting,
    /// iSCSIProtocolLevel.
    pub protocol_level: u8,
    /// IFMarker and IFMarkInt for what we send, OFMarker and OFMarkInt for what we receive.
    pub markers: Markers,
}

impl Parameters {
    /// What `values` come to, in either role. `declared`: what was declared as our own
    /// MaxRecvDataSegmentLength, or the default.
    pub(crate) fn agreed(values: &Values, declared: &Values, markers: Markers) -> Self {
        let short = |id| u16::try_from(values.get(id)).unwrap_or(u16::MAX);
        let byte = |id| u8::try_from(values.get(id)).unwrap_or(u8::MAX);
        let max_burst_length = values.get(Id::MaxBurstLength);
        Self {
            header_digest: values.is_yes(Id::HeaderDigest),
            data_digest: values.is_yes(Id::DataDigest),
            max_send_data_segment_length: values.get(Id::MaxRecvDataSegmentLength),
            max_recv_data_segment_length: declared.get(Id::MaxRecvDataSegmentLength),
            max_burst_length,
            // A default above the agreed MaxBurstLength can only mean MaxBurstLength.
            first_burst_length: values.get(Id::FirstBurstLength).min(max_burst_length),
            initial_r2t: values.is_yes(Id::InitialR2T),
            immediate_data: values.is_yes(Id::ImmediateData),
            max_outstanding_r2t: short(Id::MaxOutstandingR2T),
            time2wait: short(Id::DefaultTime2Wait),
            time2retain: short(Id::DefaultTime2Retain),
            max_connections: short(Id::MaxConnections),
            error_recovery_level: byte(Id::ErrorRecoveryLevel),
            data_pdu_in_order: values.is_yes(Id::DataPduInOrder),
            data_sequence_in_order: values.is_yes(Id::DataSequenceInOrder),
            task_reporting: match values.get(Id::TaskReporting) {
                1 => TaskReporting::ResponseFence,
                2 => TaskReporting::FastAbort,
                _ => TaskReporting::Rfc3720,
            },
            protocol_level: byte(Id::ProtocolLevel),
            markers,
        }
    }

    /// Those of a connection that joins: what each connection has for itself is its own, the rest
    /// is the session's (RFC 7143 §6.3, §13).
    pub(crate) fn joining(self, session: Self) -> Self {
        Self {
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            max_send_data_segment_length: self.max_send_data_segment_length,
            max_recv_data_segment_length: self.max_recv_data_segment_length,
            markers: self.markers,
            ..session
        }
    }
}

/// What the login machine gives.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // the pump must carry out each
pub enum LoginOutput {
    /// Must be carried out by the mover.
    Op(Op),
    /// Ask the node; answer with [`Login::admit`]. Until then the machine waits.
    Admit(AdmissionRequest),
    /// Negotiation has succeeded: the pump gives the TSIH (after ending a session that this one
    /// reinstates) by [`Login::establish`]; the final response goes out only then.
    Establish,
    /// Over: the connection belongs to a session from the next PDU on. Comes after the ops of the
    /// final response.
    Done(LoggedIn),
    /// Refused or broken; a Terminate op came before.
    Failed {
        /// What the initiator was told; None: closed silently.
        status: Option<u16>,
        /// For the log. Peer text in it is escaped and short.
        reason: String,
    },
}

/// Names a connection within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub u16);

/// One target as SendTargets lists it.
#[derive(Clone, Debug)]
pub struct TargetRecord {
    /// Its iSCSI name.
    pub name: String,
    /// `address:port,tag` as they go into TargetAddress.
    pub addresses: Vec<String>,
}
