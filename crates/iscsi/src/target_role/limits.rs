// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds of a session, each with its reason.

use core::time::Duration;

/// Immediate SCSI commands of a session that exist at once: they are outside the window, so they
/// need a bound of their own. A connection that has none may have one beyond it: RFC 7143 §4.2.2.1
/// asks for one for each.
pub(super) const IMMEDIATE_TASKS_MAX: u16 = 8;

/// R2Ts of a task that are open at once, whatever MaxOutstandingR2T allows: 64 bursts of 512 bytes,
/// the smallest, still keep a path busy, and a task cannot fill the mover's table of bursts.
pub(super) const OPEN_R2T_MAX: u16 = 64;

/// Immediate task management requests that wait at once; a connection that has none may have one
/// beyond it, as RFC 7143 §4.2.2.1 asks.
pub(super) const IMMEDIATE_MANAGEMENT_MAX: u16 = 8;

/// Largest command window: a task costs about half a kilobyte, so a session stays below a few
/// megabytes.
pub(super) const QUEUE_DEPTH_MAX: u16 = 4096;

/// Task slots for each command of the window: one that runs, one whose answer is on its way out,
/// one that was aborted before its turn.
pub(super) const SLOTS_PER_DEPTH: u32 = 3;

/// Text that one exchange may collect by the C bit, bytes. RFC 7143 §6.1 asks for 8192.
pub(super) const TEXT_REQUEST_MAX: usize = 16 * 1024;

/// Pairs in the requests of one text exchange: full feature phase has a handful of keys.
pub(super) const TEXT_PAIRS_MAX: usize = 128;

pub(super) use crate::limits::CONNECTIONS_MAX;

/// A session whose last connection is being replaced waits at least so long for the login that
/// replaces it.
pub(super) const REPLACEMENT_WAIT: Duration = Duration::from_secs(5);

/// Longest answer to SendTargets, bytes: 10,000 targets with 100 bytes of name and 4 addresses each
/// fit.
pub(super) const TEXT_RESPONSE_MAX: usize = 4 * 1024 * 1024;

/// Bytes of pings and texts that may wait behind a hole of the window.
pub(super) const HELD_BYTES_MAX: usize = 256 * 1024;

/// How long a task management function waits for data of the tasks it ends. An initiator that
/// aborts often stops sending at once; without this bound both sides would wait for each other (RFC
/// 7143 §4.2.3.3).
pub(super) const TRANSFER_WAIT: Duration = Duration::from_secs(2);

/// Ends of tasks that a connection may leave unconfirmed (async event 5): one more, and the oldest
/// counts as confirmed. An initiator with more units than this stops sending late.
pub(super) const TERMINATIONS_MAX: usize = 256;

/// A discovery session that does nothing for so long ends: it gets no pings (RFC 7143 §7.4.3).
pub(super) const DISCOVERY_IDLE: Duration = Duration::from_secs(300);

/// The same where nobody had to prove anything: an initiator that has its list logs out within
/// milliseconds, and whoever comes back for another one can log in again.
pub(super) const OPEN_DISCOVERY_IDLE: Duration = Duration::from_secs(10);

/// Such a session ends after so long whatever it does: time for 4 MiB of answer on a slow line.
pub(super) const OPEN_DISCOVERY_LIFE: Duration = Duration::from_secs(60);

/// What may still be on the way when a ping has left, either way, bytes: four times what sockets of
/// Linux hold by default, and all write data that sixty-four commands may be asked for at once. An
/// initiator that got on with more of it than that, and did not answer, does not answer pings.
pub(super) const BEHIND_PING_MAX: u64 = 64 << 20;

/// Bytes that an initiator has taken since the last look for it to count as getting on: more than a
/// few of our own pings, which its system takes when it itself stands still.
pub(super) const PROGRESS_MIN: u64 = 1024;

/// Data segments of unacknowledged responses that a connection keeps, bytes: a dozen pings of the
/// largest kind. An initiator that acknowledges nothing any more is not listening.
pub(super) const RETAINED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Unacknowledged responses that a connection keeps: far more than the tasks of a session.
pub(super) const RETAINED_MAX: usize = 32 * 1024;

/// What one PDU that is sent again costs in memory until it has left, besides its data, bytes.
pub(super) const RESEND_COST: usize = 256;

/// What a connection may send again before more is acknowledged, bytes: a SNACK of 48 bytes can ask
/// for everything, and hundreds of them arrive at once. What is acknowledged is paid back.
pub(super) const RESEND_CREDIT: usize = 2 * RETAINED_BYTES_MAX;

/// Runs that the data of an answer is kept as: 16 MiB in the usual bursts of 256 KiB.
pub(super) const ANSWER_RUNS_MAX: u32 = 64;

/// Status that stays unacknowledged for so long makes us ask (RFC 7143 §7.1.4.2): longer than a
/// busy initiator is silent, short enough to free what is kept for it.
pub(super) const STATUS_WAIT: Duration = Duration::from_secs(5);

/// Write data of which nothing comes for so long is taken for lost (RFC 7143 §7.8).
pub(super) const SEQUENCE_WAIT: Duration = Duration::from_secs(5);

/// At ErrorRecoveryLevel 0, where nothing is asked for again, this has to be longer: so long no
/// burst of the session ends, and twice that nothing comes for one of them. A line of 1 Mbit/s
/// carries two bursts of a megabyte. Most initiators give a command up after 30 s.
pub(super) const DATA_WAIT: Duration = Duration::from_secs(15);

/// Bursts that come put the look for others off no longer than this: who sends a little now and
/// then must not hold everything else for ever.
pub(super) const DATA_WAIT_MAX: Duration = Duration::from_secs(60);

/// What a slow line brings at least, bytes a second: less, and the looks for data that does not
/// come are put off no more, so that nobody holds buffers of his session for long with a trickle.
pub(super) const DATA_RATE_MIN: u64 = 32 << 10;

/// How often in a row nothing may come of the data of one task, with recovery, before it ends: its
/// initiator is not there, or does not want to.
pub(super) const SILENCES_MAX: u16 = 6;

/// How often lost data of one task is asked for again: a path that corrupts more needs another
/// cure.
pub(super) const RECOVERY_TRIES_MAX: u16 = 16;

const _: () = assert!(TEXT_REQUEST_MAX >= 8192 && TEXT_REQUEST_MAX <= HELD_BYTES_MAX);
const _: () = assert!(SILENCES_MAX < RECOVERY_TRIES_MAX);
const _: () = assert!(RETAINED_MAX > 2 * SLOTS_PER_DEPTH as usize * QUEUE_DEPTH_MAX as usize);
