// SPDX-License-Identifier: Apache-2.0 OR MIT
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
