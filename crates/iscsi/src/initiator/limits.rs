// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds of the initiator role.

use core::time::Duration;

use super::datamover::TASK_SLOTS_MAX;

/// SCSI commands that a session holds at once, those that wait for the command window included:
/// thousands of outstanding commands, at some hundred bytes each.
pub const TASKS_MAX: u32 = 16 * 1024;

/// Longest text that a SendTargets answer may have, bytes: some ten thousand targets.
pub(super) const DISCOVERY_TEXT_LEN_MAX: usize = 4 << 20;

/// Text responses that one exchange may have: the longest text in segments of 512 bytes.
pub(super) const TEXT_EXCHANGES_MAX: u32 = 8192;

/// Task management functions that may be under way at once: each is immediate, and targets need
/// not take more than a few of those (RFC 7143 §4.2.2.1).
pub(super) const MANAGEMENTS_MAX: usize = 4;

/// How long a logout may take.
pub(super) const LOGOUT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an abort of a command that took too long may take, before the connection is given up.
pub(super) const ABORT_TIMEOUT: Duration = Duration::from_secs(10);

const _: () = assert!(TASKS_MAX <= TASK_SLOTS_MAX);
