// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Error recovery above level 0 (RFC 7143 §7). Read first: §7.1.5 (the levels), §7.2.2 (allegiance
//! reassignment), §7.8, §7.9, §11.16 (SNACK).
//!
//! At level 0 nothing of this runs: the session looks at its level where a command ends and where a
//! response leaves, and nowhere else.
//!
//! - `retained`: responses stay with their connection until ExpStatSN acknowledges them; Status
//!   SNACK sends them again.
//! - `answer`: a command that was answered stays a task, with its data, until its status is
//!   acknowledged; Data SNACK, R-Data SNACK and DataACK. `runs`: which DataSN its bytes had.
//! - `transfer`: which write data was asked for and has not come: recovery R2T, R2T SNACK.
//! - `allegiance`: at level 2, connections that are gone, and whose tasks are not.
//! - `kept`: how much data of answers there may be.

mod allegiance;
mod answer;
mod kept;
mod retained;
mod runs;
mod transfer;

pub(super) use allegiance::LostConnections;
pub(super) use answer::Answer;
pub(super) use kept::Kept;
pub(super) use retained::Entry;
pub(super) use retained::Retained;
pub(super) use retained::with_window;
pub(super) use runs::Run;
pub(super) use transfer::Asked;
pub(super) use transfer::R2tState;
