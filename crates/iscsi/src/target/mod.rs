// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The target role: [`Login`] and [`Session`]. (Skeleton: the bodies are being written.)
#![allow(missing_docs, unused_variables, dead_code, clippy::all)]

mod connection;
mod limits;
mod login;
mod logout;
mod management;
mod ping;
mod session;
mod task;
mod text;

pub use login::Login;
pub use session::{Output, Session};

use crate::datamover::{Event, Op};
use alloc::string::String;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::{Cid, CmdSn, Isid, StatSn, Tsih};

/// What the target wishes and allows in negotiation; one per node, shared by its logins.
#[derive(Clone, Debug)]
pub struct Settings {
    pub max_recv_data_segment_length: u32,
    pub max_burst_length: u32,
    pub first_burst_length: u32,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    pub max_outstanding_r2t: u16,
    /// Command window: largest MaxCmdSN - ExpCmdSN + 1.
    pub queue_depth: u16,
    /// Digest lists that we accept; CRC32C and None by default.
    pub header_digest: DigestPolicy,
    pub data_digest: DigestPolicy,
    pub login_timeout: core::time::Duration,
    pub ping_interval: core::time::Duration,
    pub ping_timeout: core::time::Duration,
    pub time2wait: u16,
    pub time2retain: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestPolicy {
    /// First of the initiator's list that we know.
    Any,
    /// CRC32C or nothing.
    Required,
    /// None only.
    Off,
}

/// Asked once, as soon as names are known and before the first answer that depends on them.
#[derive(Clone, Debug)]
pub struct AdmissionRequest {
    pub initiator: String,
    /// None in a discovery session without TargetName.
    pub target: Option<String>,
    pub discovery: bool,
    pub isid: Isid,
    pub tsih: Tsih,
    pub cid: Cid,
}

/// The answer of the node.
#[derive(Clone, Debug)]
pub enum Admission {
    Granted { portal_group_tag: u16, target_alias: Option<String>, settings: Settings },
    /// A status of class 2 or 3, for example 0x0203.
    Refused { status: u16 },
}

/// What a finished login hands to its session.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    pub initiator: String,
    pub initiator_alias: Option<String>,
    pub target: Option<String>,
    pub discovery: bool,
    pub isid: Isid,
    pub cid: Cid,
    pub tsih: Tsih,
    pub exp_cmd_sn: CmdSn,
    /// StatSN of the next response on this connection.
    pub stat_sn: StatSn,
    pub parameters: Parameters,
}

/// All negotiated values of a session and its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    pub header_digest: bool,
    pub data_digest: bool,
    /// The initiator's, which bounds what we send.
    pub max_send_data_segment_length: u32,
    /// Ours.
    pub max_recv_data_segment_length: u32,
    pub max_burst_length: u32,
    pub first_burst_length: u32,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    pub max_outstanding_r2t: u16,
    pub time2wait: u16,
    pub time2retain: u16,
    pub max_connections: u16,
    pub error_recovery_level: u8,
    pub data_pdu_in_order: bool,
    pub data_sequence_in_order: bool,
    pub protocol_level: u8,
}

/// What the login machine gives.
#[derive(Debug)]
pub enum LoginOutput {
    /// Must be carried out by the mover.
    Op(Op),
    /// Ask the node; answer with `admit`. Until then the machine waits.
    Admit(AdmissionRequest),
    /// Negotiation has succeeded: the pump gives the TSIH (after ending a session that this one reinstates) by
    /// `establish`; the final response goes out only then.
    Establish,
    /// Over: the connection belongs to a session from the next PDU on. Comes after the ops of the final response.
    Done(LoggedIn),
    /// Refused or broken: `status` was sent (None: closed silently); a Terminate op came before.
    Failed { status: Option<u16>, reason: String },
}

/// Names a connection within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub u16);

/// One target as SendTargets lists it.
#[derive(Clone, Debug)]
pub struct TargetRecord {
    pub name: String,
    /// `address:port,tag` as they go into TargetAddress.
    pub addresses: Vec<String>,
}
