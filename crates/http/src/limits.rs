// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of this crate, each with its reason.

use std::time::Duration;

/// Connections at a time; with more, the oldest one goes. Who scrapes and who probes have one each,
/// a browser six.
pub(crate) const CONNECTIONS_MAX: usize = 32;

/// The head of a request must be there in this time.
pub(crate) const HEAD_WAIT: Duration = Duration::from_secs(10);

/// Longest head of a request, bytes: browsers send 2 KiB, proxies some more.
pub(crate) const HEAD_LEN_MAX: usize = 16 << 10;

/// Lines of a head.
pub(crate) const HEADERS_MAX: usize = 64;

/// A connection that asks for nothing for so long ends, and one that has not taken its answer: who
/// scrapes each minute connects anew then.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A socket that cannot be had, as for want of descriptors, is tried again after so long.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Reactors that do not answer for so long are told of as silent.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// What was seen is told for so long: however many ask, reactors are asked ten times in a second.
pub(crate) const FRESH: Duration = Duration::from_millis(100);

/// A difference to the file is told for so long: the file is read for it, twice.
pub(crate) const DIFFERENCE_FRESH: Duration = Duration::from_secs(2);

/// Longest answer of the daemon, bytes: some ten thousand sessions.
pub(crate) const ANSWER_LEN_MAX: usize = 16 << 20;

/// A long answer is told for longer, a second for each so many bytes: those who do not take theirs
/// hold no more together than what comes in [`SILENCE_MAX`].
pub(crate) const ANSWER_BYTES_PER_SECOND: usize = 1 << 20;

/// Shortest token: 128 bits in hexadecimal.
pub(crate) const TOKEN_LEN_MIN: usize = 32;

/// Longest token.
pub(crate) const TOKEN_LEN_MAX: usize = 256;

/// Longest file of tokens, bytes: some hundred with what they are for.
pub(crate) const TOKENS_LEN_MAX: usize = 64 << 10;

/// Longest file with the key of a certificate, bytes: what stands beside the key is a chain.
pub(crate) const KEY_LEN_MAX: usize = 64 << 10;

/// Threads that wait for reactors, and for a file: one for each thing that can be asked, one for
/// orders, one for streams, some for looks.
pub(crate) const ASIDE_MAX: usize = 11;

/// Streams at a time: who watches, in some browsers. Others ask again and again.
pub(crate) const STREAMS_MAX: usize = 8;

/// What waits for one who reads a stream: some seconds. They are the same for all streams.
pub(crate) const STREAM_MESSAGES_MAX: usize = 8;

/// How often what is new is told.
pub(crate) const STREAM_TICK: Duration = Duration::from_secs(1);

/// Where nothing is new that is told: half of what a connection may be silent, and of what proxies
/// let pass.
pub(crate) const STREAM_KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a port that goes waits until its streams have taken their end: it fits into a buffer of
/// whoever reads.
pub(crate) const END_WAIT: Duration = Duration::from_millis(300);

/// Logical units that are told of one by one.
pub(crate) const LUNS_MAX: usize = 2048;

/// Logical units whose times are told: a histogram for each operation and reactor.
pub(crate) const TIMED_LUNS_MAX: usize = 256;

/// Limits that are told of.
pub(crate) const LIMITS_MAX: usize = 2048;

/// Sessions that are told of one by one.
pub(crate) const SESSIONS_MAX: usize = 1024;

/// The thread leaves the processor to reactors where both want it.
pub(crate) const NICE: i32 = 10;

const _: () = assert!(STREAM_KEEP_ALIVE.as_secs() * 2 <= SILENCE_MAX.as_secs());
const _: () = assert!(STREAMS_MAX < CONNECTIONS_MAX, "others are answered, too");
const _: () = assert!(HEAD_LEN_MAX >= 8192, "hyper takes no less");
