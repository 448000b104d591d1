// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a login comes to.

use super::parameters::Parameters;
use crate::datamover::Capabilities;
use alloc::string::String;
use wire::iscsi::Cid;
use wire::iscsi::CmdSn;
use wire::iscsi::Isid;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;

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
    /// What the node gave by [`Login::establish`](super::Login::establish).
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
    /// What the mover of the connection can do.
    pub capabilities: Capabilities,
}
