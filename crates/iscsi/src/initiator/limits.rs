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

/// Longest answer to keys that a target offers in full feature phase, bytes: every peer takes a
/// segment of that length (RFC 7143 §13.12).
pub(super) const TEXT_ANSWER_LEN_MAX: usize = 512;

/// Keys that a target may name in a negotiation in full feature phase: there are fewer.
pub(super) const TEXT_KEYS_MAX: usize = 32;

/// How often a negotiation that came to nothing begins anew.
pub(super) const TEXT_RESETS_MAX: u8 = 2;

/// How long a target may take to answer a Text Request where commands may take for ever.
pub(super) const TEXT_TIMEOUT: Duration = Duration::from_secs(30);

/// StatSNs that may have come before one that is missing: more than a command window holds.
pub(super) const STATUSES_AHEAD_MAX: usize = 64 * 1024;

/// How often missing statuses of a connection are asked for before it is given up. Statuses of a
/// deep queue may be damaged one by one.
pub(super) const STATUS_SNACKS_MAX: u32 = 256;

/// How often missing data of a command is asked for before the command is given up: on a path that
/// damages every second PDU, a megabyte in PDUs of 8 KiB gets through.
pub(super) const DATA_SNACKS_MAX: u16 = 256;

/// How often a command whose PDU the target rejected as damaged is sent again.
pub(super) const RESENDS_MAX: u8 = 8;

/// Pause before the second try to log a connection in; it doubles with each further one.
pub(super) const REJOIN_MIN: Duration = Duration::from_millis(100);

/// Longest pause between two tries to log a connection in.
pub(super) const REJOIN_MAX: Duration = Duration::from_secs(5);

/// Task management functions that may be under way at once: each is immediate, and targets need
/// not take more than a few of those (RFC 7143 §4.2.2.1).
pub(super) const MANAGEMENTS_MAX: usize = 4;

/// How long a logout may take.
pub(super) const LOGOUT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an abort of a command that took too long may take, before the connection is given up.
pub(super) const ABORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Aborts that were given up and whose answers are still known when they come: a target that
/// answers none of so many will answer none.
pub(super) const GIVEN_UP_MAX: usize = 32;

/// Bytes that a direction of a connection carries within [`PROGRESS_TIME`] if it gets on: more than
/// the pings of either side. So many of its own, or all, a command that gets on moves in that time.
pub(super) const PROGRESS_MIN: u64 = 1024;

/// See [`PROGRESS_MIN`]: less than a hundred bytes a second is no line for a disk.
pub(super) const PROGRESS_TIME: Duration = Duration::from_secs(10);

/// How often is looked, in the time that a command may take, at how far those under way are: what
/// stood still is late an eighth of it later than it could be.
pub(super) const LOOKS: u32 = 8;

/// The same, at most so often: what the least time costs that a user can give.
pub(super) const LOOK_MIN: Duration = Duration::from_millis(1);

/// And at least so often, so that pings are not taken for progress.
pub(super) const LOOK_MAX: Duration = PROGRESS_TIME;

const _: () = assert!(TASKS_MAX <= TASK_SLOTS_MAX);
