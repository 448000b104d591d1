// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SCSI device server as sans-IO machines; a pump drives it between `iscsi` and `store`.
//!
//! Border 1 as SCSI sees it (SAM-5 §5.4). A [`LogicalUnit`] is shared by all reactors; a [`Nexus`]
//! belongs to one session; a [`Task`] is one command. [`Nexus::start`] gives the first [`Step`],
//! [`Task::resume`] each further one, until [`Step::Complete`]. A task may be dropped at any step
//! but one: what has become of a [`Step::Keep`] under way, its task is told ([`Task::kept_late`]).
//!
//! A READ, file by file: `nexus` finds the unit, `lun` is the gate (attention, table, readiness),
//! `table` names the handler, `sbc::rw` checks the range and asks the store, `task` carries it to
//! its completion.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod attention;
mod copy;
mod exclusion;
#[cfg(test)]
mod hostile;
mod identity;
mod keeping;
mod kept;
pub mod limits;
mod lun;
mod management;
mod mmc;
mod nexus;
mod pass;
mod protect;
mod sbc;
mod sense;
mod space;
mod spc;
mod statistics;
mod table;
mod task;
mod taskset;
#[cfg(test)]
mod testing;

pub use identity::Identity;
pub use kept::Keep;
pub use kept::KeepFailed;
pub use kept::Keeper;
pub use kept::Kept;
pub use kept::RestoreError;
pub use lun::LogicalUnit;
pub use lun::ReservationsShown;
pub use lun::UnitError;
pub use lun::Watchers;
pub use management::AcaCleared;
pub use management::PendingSense;
pub use nexus::Nexus;
pub use nexus::NexusNames;
pub use nexus::Queries;
pub use protect::CheckedAt;
pub use protect::FailedCheck;
pub use protect::FormatError;
pub use protect::PROTECTION_HEADER_LEN;
pub use protect::PROTECTION_RECORDS_AT;
pub use protect::ProtectionFormat;
pub use spc::alua::groups::Explicit;
pub use spc::alua::groups::NoSuchGroup;
pub use spc::alua::groups::PortGroup;
pub use statistics::Totals;
pub use table::Supported;
pub use table::supported_commands;
pub use task::Completion;
pub use task::DRAWN_LEN;
pub use task::Drawn;
pub use task::Input;
pub use task::Request;
pub use task::Step;
pub use task::Task;
pub use task::Victims;
pub use wire::scsi::alua::AccessState;
pub use wire::scsi::protection::ProtectionType;
