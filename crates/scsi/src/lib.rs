// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SCSI device server as sans-IO machines; a pump drives it between `iscsi` and `store`.
//!
//! Border 1 as SCSI sees it. [`LogicalUnit`] is shared by all reactors; [`Nexus`] belongs to one session;
//! [`Task`] is one command. `Nexus::start` gives the first [`Step`], `Task::resume` each further one.
//! (Skeleton: the bodies are being written.)
#![allow(missing_docs, unused_variables, dead_code, clippy::all)]
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

use alloc::{string::String, sync::Arc, vec::Vec};
use buf::Slice;
use store::{Op, Outcome, Store};
use wire::iscsi::{Attribute, Cdb, LunField};

/// Who the logical unit is: stable for the life of the volume and equal through all paths.
#[derive(Clone, Debug)]
pub struct Identity {
    pub vendor: String,
    pub product: String,
    pub revision: String,
    pub serial: String,
    /// NAA designator, 16 bytes (type 6) or 8 (type 3).
    pub naa: Vec<u8>,
}

/// A logical unit: identity, store, and the little that its nexuses share.
#[derive(Debug)]
pub struct LogicalUnit(());
impl LogicalUnit {
    /// `block`: logical block length, 512 or 4096.
    pub fn new(identity: Identity, store: Arc<dyn Store>, block: u32) -> Result<Self, String> { todo!() }
    pub fn store(&self) -> &Arc<dyn Store> { todo!() }
}

/// An I_T nexus: initiator port, target port, the LUN map as this initiator sees it.
#[derive(Debug)]
pub struct Nexus(());

#[derive(Clone, Debug)]
pub struct NexusNames {
    /// `iqn...,i,0x<isid>`
    pub initiator_port: String,
    /// `iqn...`
    pub target_device: String,
    pub portal_group_tag: u16,
    pub relative_port: u16,
}

/// One command as SAM gives it.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub lun: LunField,
    pub cdb: Cdb,
    pub attribute: Attribute,
    pub expected_out: u32,
    pub expected_in: u32,
}

/// What must happen next.
#[derive(Debug)]
pub enum Step {
    /// Receive Data-Out: resume with `Input::DataOut` when `length` bytes are there.
    ReceiveDataOut { length: u32 },
    /// Run on the store of `Task::store`; resume with `Input::Store`.
    Store(Op),
    /// Over.
    Complete(Completion),
}

#[derive(Debug)]
pub struct Completion {
    pub status: u8,
    pub sense: Vec<u8>,
    pub data_in: Option<Slice>,
    pub presented: u64,
}

#[derive(Debug)]
pub enum Input {
    DataOut(Slice),
    Store(Outcome),
}

/// A command under way.
#[derive(Debug)]
pub struct Task(());
impl Task {
    pub fn resume(&mut self, nexus: &Nexus, input: Input) -> Step { todo!() }
    /// The logical unit that the command addresses; None for a LUN that is not mapped.
    pub fn unit(&self) -> Option<&Arc<LogicalUnit>> { todo!() }
}

impl Nexus {
    /// Registers with every unit of the map: a unit attention (29/00) waits there for it.
    pub fn new(names: NexusNames, map: Vec<(u16, Arc<LogicalUnit>)>) -> Self { todo!() }
    pub fn start(&self, request: &Request) -> (Task, Step) { todo!() }
    pub fn unit(&self, lun: LunField) -> Option<&Arc<LogicalUnit>> { todo!() }
    /// Task management (SAM-5 §7): the pump has ended the tasks; this does the rest (unit attentions, reservations).
    pub fn logical_unit_reset(&self, unit: &LogicalUnit) { todo!() }
    /// Tasks of this nexus were ended by another one's CLEAR TASK SET: 2F/00.
    pub fn commands_cleared(&self, unit: &LogicalUnit) { todo!() }
    /// Tasks of this nexus were ended by a logout or time-out of its own connection: 47/7F.
    pub fn commands_cleared_by_iscsi(&self, unit: &LogicalUnit) { todo!() }
    /// SAM-5 §6.3.4: establish 29/07 for the next session of the same initiator port.
    pub fn lost(self) { todo!() }
}
