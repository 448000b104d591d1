// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Redirections that one login follows: a chain of more is a loop.
pub(crate) const REDIRECTS_MAX: u32 = 4;

/// Addresses that are tried at once: more than any target has portals, and few enough threads.
pub(crate) const ADDRESSES_MAX: usize = 32;

/// How long one TCP connection may take to be made.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection that is over waits for its last word to leave: it is short, and who reads
/// nothing is not waited for.
pub(crate) const LAST_WORD_PATIENCE: Duration = Duration::from_millis(200);

/// How long a login may take at least, however little patience is left: what begins shortly before
/// the end is to have a chance.
pub(crate) const LOGIN_MIN: Duration = Duration::from_secs(1);

/// How long a login over RDMA is unanswered before the target is nudged, the first time; each time
/// after it takes twice as long. More than a target takes that has heard us.
pub(crate) const NUDGE_AFTER: Duration = Duration::from_millis(50);

/// How long the portal that was named first is tried alone: more than it takes in a data centre,
/// less than anybody notices.
pub(crate) const HEAD_START: Duration = Duration::from_millis(50);

/// Pause before the second try to connect; it doubles with each further one.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(100);

/// Longest pause between two tries to connect.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How long another session is tried to be had in the place of one that is abandoned: on a slow
/// line its login waits behind what is on it.
pub(crate) const REPLACE_PATIENCE: Duration = Duration::from_secs(10);

/// Longest pause between two of these tries: somebody waits.
pub(crate) const REPLACE_PAUSE_MAX: Duration = Duration::from_millis(400);

/// How often a command may be lost with its session and sent again: one that makes a target fail
/// must not do so for ever.
pub(crate) const LOSSES_MAX: u32 = 6;

/// How often a command that was not answered in time is sent again: once after its abort, once
/// after a reset of its unit, once in a new session.
pub(crate) const TIMEOUTS_MAX: u32 = 3;

/// How often a command is sent again because of a unit attention or a deferred error, which are
/// about something else: a unit has a few at most.
pub(crate) const ATTENTIONS_MAX: u32 = 8;

/// How often a command that the target aborted is sent again.
pub(crate) const ABORTS_MAX: u32 = 3;

/// Pause before a command that met BUSY, TASK SET FULL or TASK ABORTED is sent again; it doubles.
pub(crate) const BUSY_MIN: Duration = Duration::from_millis(2);

/// A session that lasts as long was one, though nothing was asked in it: longer than a login takes.
pub(crate) const SESSION_MIN: Duration = Duration::from_secs(5);

/// Longest pause before a command that met BUSY is sent again.
pub(crate) const BUSY_MAX: Duration = Duration::from_millis(500);

/// Shortest chunk of a stripe of which a read of several has a command each: with chunks of 64 KiB
/// that read twice as much as a command for each member. Below this commands, 2 us each or more,
/// would cost more than the data.
pub(crate) const CHUNK_COMMAND_MIN: u64 = 32 << 10;

/// Pause before the pool is asked again for a request that lost its buffer with its connection:
/// buffers may come back from any thread, which tells nobody. Little work, and soon enough.
pub(crate) const ROOM_INTERVAL: Duration = Duration::from_millis(1);

/// How long a target may be busy for one command where the user sets no limit: what a command may
/// take as a rule.
pub(crate) const BUSY_PATIENCE: Duration = Duration::from_secs(30);

/// How long what is under way may take to end before a session moves to another portal: longer than
/// a disk that works takes for a command.
pub(crate) const MOVE_PATIENCE: Duration = Duration::from_secs(10);

/// What a target is busy for less long is not worth a word.
pub(crate) const BUSY_NOTICE: Duration = Duration::from_secs(1);

/// That a unit is still busy is told again after so long: who waits sees that something goes on.
pub(crate) const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// Units of a session whose being busy is told of in that time; with more of them it has told
/// enough.
pub(crate) const NOTICES_MAX: usize = 32;

/// How long a path is silent before it is asked whether it is there, and how long it may take to
/// say so: with both over, another one goes on within the 5 s that people notice.
pub(crate) const PATH_PING: Duration = Duration::from_secs(2);

/// How long the login of a path may take: one that takes longer is of no use to who waits.
pub(crate) const PATH_LOGIN: Duration = Duration::from_secs(4);

/// How long all paths are waited for when one is there: as long as a login takes on a slow line.
pub(crate) const PATHS_OPEN_PATIENCE: Duration = Duration::from_secs(1);

/// How long a path is tried by its session: for ever, since others carry on meanwhile.
pub(crate) const PATH_PATIENCE: Duration = Duration::from_secs(1 << 32);

/// How long a path may be busy for one command before another one is tried: longer than a unit is
/// busy that works.
pub(crate) const PATH_BUSY: Duration = Duration::from_secs(2);

/// Pause before the session of a path is tried again that a target has refused.
pub(crate) const PATH_TRY_AGAIN: Duration = Duration::from_secs(5);

/// How long no path may carry anything before that is told, where not all are lost: longer than
/// access moves from one to another.
pub(crate) const PATHS_DOWN_AFTER: Duration = Duration::from_secs(5);

/// Pause before a question to a path is repeated for which there was no room, or no time yet.
pub(crate) const PATH_ASK_AGAIN: Duration = Duration::from_millis(20);

/// Pause before a path is asked again whose port takes no commands: soon enough for who waits.
pub(crate) const PATH_ACCESS_AGAIN: Duration = Duration::from_millis(500);

/// How often a unit with target port groups is asked for their states: one that is not used is told
/// of no change.
pub(crate) const PATH_ACCESS_INTERVAL: Duration = Duration::from_secs(10);

/// Events of a completion queue that may be missed and wait to be reaped: more than happen while a
/// program does something else.
pub(crate) const EVENTS_MAX: usize = 4096;

/// Longest transfer of one command, bytes: what one buffer holds, and no more than keeps a
/// connection from being blocked by one command.
pub(crate) const TRANSFER_BYTES_MAX: u32 = 4 << 20;

/// Transfer of one command where the unit names no optimum, bytes: one burst.
pub(crate) const TRANSFER_BYTES_DEFAULT: u32 = 1 << 20;

/// Room for what a unit says of itself, bytes: more than any list of names of a unit has.
pub(crate) const IDENTITY_BYTES: u32 = 4096;

/// How often a unit is asked from the beginning who it is, because it told meanwhile that it may
/// have changed: more often than anybody changes LUNs while a few questions are answered, and soon
/// over with a unit that tells so each time.
pub(crate) const IDENTITY_ROUNDS_MAX: u32 = 32;

/// How often a disk is asked for its size in a row because it told meanwhile that this has changed:
/// more often than anybody changes it while one question is answered, and no endless work for a
/// unit that tells so each time.
pub(crate) const SIZE_QUESTIONS_MAX: u32 = 32;

/// Answers to pings of a target that wait to be sent: a target asks once, and waits. One that goes
/// on asking and takes no answers would have us keep them all.
pub(crate) const ECHOES_MAX: usize = 1024;

/// Default bound on data buffers of one queue, bytes.
pub(crate) const POOL_BYTES: usize = 256 << 20;

/// Bytes of a CHAP challenge of ours: as many as the largest hash has.
pub(crate) const CHALLENGE_LEN: usize = 32;

const _: () = assert!(TRANSFER_BYTES_MAX as usize <= buf::BUF_LEN_MAX);
const _: () = assert!(TRANSFER_BYTES_DEFAULT <= TRANSFER_BYTES_MAX);
