// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The target role: [`Login`] and [`Session`]. (Skeleton: the bodies are being written.)
#![allow(missing_docs, unused_variables, dead_code, clippy::all)]

mod login;
pub use login::Login;

use crate::datamover::{Event, Immediate, Op, TaskId};
use crate::service::{Completion, Indication, ServiceResponse};
use alloc::string::String;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::{Cid, CmdSn, Isid, Request, StatSn, Tsih};

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

/// One session in full feature phase (RFC 7143 §4.2, §6.2 on).
#[derive(Debug)]
pub struct Session(());

impl Session {
    /// The session with its leading connection, which gets `ConnectionId(0)`.
    pub fn new(login: LoggedIn, settings: &Settings, now: Instant) -> Self { todo!() }
    /// `header`: BHS and AHS of the PDU at hand. `data`: its data segment unless it is a SCSI command.
    pub fn handle_event(&mut self, connection: ConnectionId, event: Event, header: &[u8], data: &[u8], now: Instant) { todo!() }
    /// The transport of `connection` is gone.
    pub fn handle_disconnect(&mut self, connection: ConnectionId, now: Instant) { todo!() }
    pub fn handle_timeout(&mut self, now: Instant) { todo!() }

    /// SCSI side: the command takes `length` bytes of write data. Returns how the buffer must look:
    /// the pump attaches a buffer of at least min(length, expected_out) bytes to the mover before it polls ops.
    pub fn receive_data_out(&mut self, task: TaskId, length: u32) { todo!() }
    /// SCSI side: the command is over. If write data is still on its way, the status waits for its end.
    pub fn complete(&mut self, task: TaskId, completion: Completion) { todo!() }
    pub fn task_management_done(&mut self, id: u32, response: ServiceResponse) { todo!() }
    /// End a task without a response (task management, another nexus's reset). `Ended` follows when its buffer is free.
    pub fn abort(&mut self, task: TaskId) { todo!() }
    /// The tasks of `lun` that exist, oldest first.
    pub fn tasks(&self, lun: Option<wire::iscsi::LunField>) -> Vec<TaskId> { todo!() }

    /// Node side: what SendTargets may show this initiator; asked by `Output::Targets`.
    pub fn targets(&mut self, records: Vec<TargetRecord>) { todo!() }
    /// Ask the initiator to log out within `seconds` (async event 1, RFC 7143 §11.9.1).
    pub fn request_logout(&mut self, seconds: u16) { todo!() }
    /// Say that the session will be dropped (async event 3) and terminate it.
    pub fn drop_session(&mut self) { todo!() }

    pub fn poll_output(&mut self) -> Option<Output> { todo!() }
    pub fn poll_timeout(&self) -> Option<Instant> { todo!() }
    /// Verifies every invariant (panics on a defect); tests and the simulator call it after each step.
    pub fn check(&self) { todo!() }
}

/// What a session gives, in order.
#[derive(Debug)]
pub enum Output {
    Op(ConnectionId, Op),
    Indication(Indication),
    /// SendTargets was asked: answer with `targets`. None: all that the initiator may see.
    Targets(Option<String>),
    /// The session is over (logout, failure, timeout): drop it when its connections are closed. Text for the log.
    Closed { reason: String },
}
