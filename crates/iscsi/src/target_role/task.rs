// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One SCSI command: its data bursts and its status (RFC 7143 §4.2.5, §11.3-11.4, §11.7-11.8).
//!
//! ```text
//!           +-- hole before it --> Held --+                      C  complete: status goes out
//!   arrives +                             +--> Running --C--> Draining --Released--> gone
//!           +-- in CmdSN order -----------+       |              ^
//!                                                 +--- abort ----+  (no status)
//! ```
//!
//! READ: `deliver` -> the SCSI side -> `complete` -> `advance` -> `answer`. WRITE: `deliver` -> the
//! SCSI side -> `receive` -> `next_burst` -> `data_done` ... -> `advance` -> the SCSI side ->
//! `complete` -> `advance` -> `answer`. `tasks` has all of them; one of them is an `entry` of its
//! `table`, with its write data in `transfer`.

mod burst;
mod early;
mod entry;
mod overdue;
mod table;
mod tasks;
mod terms;
mod transfer;

pub use early::BufferNeed;
pub use early::Room;
pub(super) use entry::Task;
pub(super) use tasks::Tasks;
pub(super) use terms::Terms;
