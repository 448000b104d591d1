// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initiator role: a [`Login`] for each new connection, a [`Session`] once it is in full
//! feature phase. A session has one connection and ErrorRecoveryLevel 0: what breaks the
//! connection ends the session, and a new login of the same ISID reinstates it.

pub mod datamover;
pub mod discovery;
mod limits;
mod login;
mod session;
mod tasks;

pub use limits::TASKS_MAX;
pub use login::Login;
pub use login::LoginError;
pub use session::Command;
pub use session::Completion;
pub use session::Ending;
pub use session::Function;
pub use session::Indication;
pub use session::Outcome;
pub use session::Output;
pub use session::Refused;
pub use session::Session;
pub use session::SessionError;

use alloc::string::String;
use core::time::Duration;

use wire::iscsi::Cid;
use wire::iscsi::CmdSn;
use wire::iscsi::Isid;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;

use self::datamover::Keys;
use self::datamover::Op;
pub use crate::target::Parameters;

/// What the initiator offers in negotiation and how patient it is. A wish outside the range of its
/// key is taken as the nearest end of the range (RFC 7143 §13).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Longest data segment that the initiator takes, bytes (RFC 7143 §13.12).
    pub max_recv_data_segment_length: u32,
    /// Longest burst, bytes (RFC 7143 §13.13).
    pub max_burst_length: u32,
    /// Most unsolicited data of a command, bytes (RFC 7143 §13.14).
    pub first_burst_length: u32,
    /// Whether to ask for R2Ts before any Data-Out (RFC 7143 §13.10).
    pub initial_r2t: bool,
    /// Whether to send immediate data where the target takes it (RFC 7143 §13.11).
    pub immediate_data: bool,
    /// Most R2Ts of a task at once (RFC 7143 §13.17).
    pub max_outstanding_r2t: u16,
    /// Header digests (RFC 7143 §13.1).
    pub header_digest: DigestOffer,
    /// Data digests (RFC 7143 §13.1).
    pub data_digest: DigestOffer,
    /// How long a login may take.
    pub login_timeout: Duration,
    /// After so much silence the initiator pings; zero: never.
    pub ping_interval: Duration,
    /// A ping that is not answered for so long ends the connection.
    pub ping_timeout: Duration,
    /// A command that is not answered for so long is aborted; zero: never.
    pub command_timeout: Duration,
}

impl Default for Settings {
    /// What suits a disk: a write up to 256 KiB goes at once, a megabyte is one burst.
    fn default() -> Self {
        Self {
            max_recv_data_segment_length: 256 << 10,
            max_burst_length: 1 << 20,
            first_burst_length: 256 << 10,
            initial_r2t: false,
            immediate_data: true,
            max_outstanding_r2t: 8,
            header_digest: DigestOffer::Allowed,
            data_digest: DigestOffer::Allowed,
            login_timeout: Duration::from_secs(15),
            ping_interval: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(10),
            command_timeout: Duration::from_secs(60),
        }
    }
}

/// Which digests an initiator offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // with one algorithm and None there is no fifth
pub enum DigestOffer {
    /// None only.
    Off,
    /// None, or CRC32C if the target insists.
    Allowed,
    /// CRC32C, or none if the target has none.
    Preferred,
    /// CRC32C only.
    Required,
}

/// Who logs in where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// InitiatorName.
    pub initiator: String,
    /// InitiatorAlias, at most 255 bytes.
    pub initiator_alias: Option<String>,
    /// TargetName; None only in a discovery session.
    pub target: Option<String>,
    /// Whether the session is for SendTargets only.
    pub discovery: bool,
    /// The initiator's part of the session id. A login with that of a session that has failed
    /// reinstates it (RFC 7143 §6.3.5).
    pub isid: Isid,
    /// Id of the connection in its session.
    pub cid: Cid,
    /// TargetPortalGroupTag as discovery told it: another one fails the login (RFC 7143 §6.3.1).
    pub portal_group_tag: Option<u16>,
}

/// What a finished login hands to its session.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    /// What the target gave to the session.
    pub tsih: Tsih,
    /// Id of this connection in its session.
    pub cid: Cid,
    /// Whether the session is for SendTargets only.
    pub discovery: bool,
    /// TargetAlias, for display only.
    pub target_alias: Option<String>,
    /// TargetPortalGroupTag, if the target told it.
    pub portal_group_tag: Option<u16>,
    /// The method by which the sides proved who they are.
    pub authentication: Authenticated,
    /// Of the next command.
    pub cmd_sn: CmdSn,
    /// The last CmdSN that the target takes.
    pub max_cmd_sn: CmdSn,
    /// The StatSN that is expected next.
    pub exp_stat_sn: StatSn,
    /// The outcome of negotiation.
    pub parameters: Parameters,
}

impl LoggedIn {
    /// What the mover must know from the first PDU of the full feature phase on.
    #[must_use]
    pub const fn keys(&self) -> Keys {
        Keys {
            header_digest: self.parameters.header_digest,
            data_digest: self.parameters.data_digest,
            max_send_data_segment_length: self.parameters.max_send_data_segment_length,
            max_recv_data_segment_length: self.parameters.max_recv_data_segment_length,
            max_burst_length: self.parameters.max_burst_length,
            max_outstanding_r2t: self.parameters.max_outstanding_r2t,
        }
    }
}

/// Who proved what in a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // neither, one or both
pub enum Authenticated {
    /// Nobody.
    Nobody,
    /// The initiator, by CHAP.
    Initiator,
    /// Both sides, by CHAP.
    Both,
}

/// What the login machine gives.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums)] // the pump must carry out each
pub enum LoginOutput {
    /// Must be carried out by the mover.
    Op(Op),
    /// Over: the connection belongs to a session from the next PDU on. Comes after the op that
    /// tells the mover what was negotiated.
    Done(alloc::boxed::Box<LoggedIn>),
    /// The target is elsewhere (RFC 7143 §11.13.5); a Terminate op came before.
    Redirected {
        /// Where: `ADDRESS[:PORT][,TAG]` without the tag.
        address: String,
        /// From now on, and not for this time alone.
        permanent: bool,
    },
    /// Refused or broken; a Terminate op came before.
    Failed(LoginError),
}
