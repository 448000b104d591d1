// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initiator role: a [`Login`] for each new connection, a [`Session`] once the first one is in
//! full feature phase.
//!
//! At ErrorRecoveryLevel 0 with one connection, what breaks the connection ends the session, and a
//! new login of the same ISID reinstates it. Above, or with several connections, a session outlives
//! its connections ([`Session::wanted`]).

pub mod datamover;
pub mod discovery;
mod limits;
mod login;
mod session;
mod tasks;

pub use limits::TASKS_MAX;
pub use login::Login;
pub use login::LoginError;
pub use session::Carried;
pub use session::Command;
pub use session::Completion;
pub use session::DeclareError;
pub use session::Ending;
pub use session::Function;
pub use session::Indication;
pub use session::Outcome;
pub use session::Output;
pub use session::Refused;
pub use session::Session;
pub use session::SessionError;
pub use session::Step;

use alloc::string::String;
use core::time::Duration;

use wire::iscsi::Cid;
use wire::iscsi::CmdSn;
use wire::iscsi::Isid;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;

use self::datamover::Keys;
use self::datamover::Op;
use crate::datamover::Capabilities;
use crate::datamover::Rdma;
use crate::limits::UNEXPECTED_BUFFERS;
use crate::limits::UNEXPECTED_MAX;
pub use crate::target_role::ConnectionId;
pub use crate::target_role::Parameters;
pub use crate::target_role::TaskReporting;

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
    /// Whether PDUs of a sequence have to come in order (RFC 7143 §13.18); if not, it is as the
    /// target likes.
    pub data_pdu_in_order: bool,
    /// Whether sequences have to come in order (RFC 7143 §13.19); if not, as the target likes.
    pub data_sequence_in_order: bool,
    /// Whether to ask for markers of RFC 3720 in both directions.
    pub markers: bool,
    /// What RDMAExtensions is to come to: what the mover says. Where it is not [`Rdma::Never`] the
    /// login ends without it.
    pub rdma: Rdma,
    /// Over RDMA, PDUs that a target may send without being asked before it hears that they have
    /// come: from 2 on (RFC 7145 §6.7).
    pub unexpected_pdus_max: u32,
    /// Commands that are with the target at once, however wide its window is.
    pub commands_max: u32,
    /// Whether RDMA begins with a Hello (RFC 7145 §5.1.3), which tells a target how many RDMA Reads
    /// are served at once where MPA does not.
    pub hello: bool,
    /// Highest ErrorRecoveryLevel to ask for (RFC 7143 §13.20); discovery sessions have 0.
    pub error_recovery_level: u8,
    /// DefaultTime2Wait to ask for, seconds (RFC 7143 §13.15).
    pub time2wait: u16,
    /// DefaultTime2Retain to ask for, seconds (RFC 7143 §13.16): for so long a target keeps tasks
    /// whose connection is gone, at ErrorRecoveryLevel 2. At other levels 0 is asked for.
    pub time2retain: u16,
    /// How many connections the session is to have, as far as the target agrees (RFC 7143 §13.2).
    pub connections: u16,
    /// Which of them commands go to.
    pub policy: Policy,
    /// Whether to ask for TaskReporting=FastAbort (RFC 7143 §4.2.3.4, §13.23).
    pub fast_abort: bool,
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
    /// A command that is not answered for so long is aborted, not counting the time in which it
    /// waits behind others for a line that is slow; zero: never. If it cannot be aborted
    /// its unit is reset, and then the session ends. A text request that is not answered for so
    /// long ends the session; where this is zero, after 30 seconds.
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
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            markers: false,
            rdma: Rdma::Never,
            unexpected_pdus_max: UNEXPECTED_MAX,
            commands_max: u32::MAX,
            hello: false,
            error_recovery_level: 0,
            time2wait: 0,
            time2retain: 20,
            connections: 1,
            policy: Policy::RoundRobin,
            fast_abort: false,
            header_digest: DigestOffer::Allowed,
            data_digest: DigestOffer::Allowed,
            login_timeout: Duration::from_secs(12),
            ping_interval: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(10),
            command_timeout: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// What of this a mover can do. A digest that is required guards bytes on their way: where the
    /// mover knows none, there are none on the way.
    #[must_use]
    pub fn within(mut self, capabilities: Capabilities) -> Self {
        if !capabilities.digests {
            (self.header_digest, self.data_digest) = (DigestOffer::Off, DigestOffer::Off);
        }
        self.error_recovery_level = self.error_recovery_level.min(capabilities.recovery_level);
        if let Some(buffers) = capabilities.buffers {
            // One for the answer to each command, and of the others half for answers to what is no
            // command.
            self.commands_max = buffers.saturating_sub(UNEXPECTED_BUFFERS).into();
            self.unexpected_pdus_max = u32::from(UNEXPECTED_BUFFERS / 2);
        }
        self.markers &= capabilities.markers;
        self.rdma = capabilities.rdma;
        // Nothing is reordered there.
        self.data_pdu_in_order |= capabilities.rdma != Rdma::Never;
        if capabilities.rdma == Rdma::Possible {
            // What RDMA does not have is not asked for.
            (self.header_digest, self.data_digest) = (DigestOffer::Off, DigestOffer::Off);
            self.markers = false;
        }
        self
    }
}

/// Which of the connections of a session a command goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // callers choose
pub enum Policy {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest commands under way.
    LeastOutstanding,
}

/// Which digests an initiator offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // with one algorithm and None there is no fifth
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
    /// InitiatorAlias; one of more than 255 bytes, or a reserved word, is not sent.
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
    /// The TargetPortalGroupTag that is wanted: another one fails the login (RFC 7143 §6.3.1).
    pub portal_group_tag: Option<u16>,
    /// The login has to end what is left of another session, or to join one: the target must have
    /// understood the ISID.
    pub reinstates: bool,
}

/// A connection that a session wants to have: for [`Login::join`].
#[derive(Clone, Debug)]
pub struct Joining {
    /// Its place in the session.
    pub connection: ConnectionId,
    /// What the target gave to the session.
    pub tsih: Tsih,
    /// That of the connection that it replaces, or another one.
    pub cid: Cid,
    /// The session's next CmdSN, which the login does not use up (RFC 7143 §11.12.8).
    pub cmd_sn: CmdSn,
    /// ExpStatSN of the connection that it replaces; 0 if there was none (RFC 7143 §11.12.9).
    pub exp_stat_sn: StatSn,
    /// What the session has agreed on; what is a connection's own is negotiated anew.
    pub parameters: Parameters,
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
    /// The ISID of the responses, where it is not that of the requests (RFC 7143 §11.13).
    pub foreign_isid: Option<Isid>,
    /// The method by which the sides proved who they are.
    pub authentication: Authenticated,
    /// Of the next command.
    pub cmd_sn: CmdSn,
    /// The CmdSN that the target expects next.
    pub exp_cmd_sn: CmdSn,
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
        let agreed = &self.parameters;
        let level = agreed.error_recovery_level;
        let fast = matches!(agreed.task_reporting, TaskReporting::FastAbort);
        Keys {
            header_digest: agreed.header_digest,
            data_digest: agreed.data_digest,
            max_send_data_segment_length: agreed.max_send_data_segment_length,
            max_recv_data_segment_length: agreed.max_recv_data_segment_length,
            max_burst_length: agreed.max_burst_length,
            max_outstanding_r2t: agreed.max_outstanding_r2t,
            data_in_order: agreed.data_pdu_in_order && agreed.data_sequence_in_order,
            // Over RDMA nothing is lost that could come again (RFC 7145 §10.2.1).
            recovery: level > 0 && agreed.rdma.is_none(),
            strays: level > 0 || fast || agreed.max_connections > 1,
            markers: agreed.markers,
            unexpected_max: match agreed.rdma {
                Some(rdma) => rdma.unexpected_max,
                None => 0,
            },
            solicited_only: match agreed.rdma {
                Some(rdma) => rdma.solicited_only,
                None => false,
            },
            hello: match agreed.rdma {
                Some(rdma) => rdma.hello,
                None => false,
            },
        }
    }
}

/// Who proved what in a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // neither, one or both
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
#[expect(clippy::exhaustive_enums)] // the pump must carry out each
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
