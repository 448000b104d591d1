// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Connections at a time: a client has one for each processor as a rule.
pub(crate) const CLIENTS_MAX: usize = 64;

/// How long the machine of a client may be silent before it is asked whether it is there, between
/// two such questions, and how many go unanswered before its connection is over.
pub(crate) const PEER_SILENCE: Duration = Duration::from_secs(60);
pub(crate) const PEER_QUESTION: Duration = Duration::from_secs(10);
pub(crate) const PEER_QUESTIONS: u32 = 6;

/// A negotiation that takes longer is closed: nothing in it waits for a person.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A negotiation that takes longer gives way to another one when there are as many connections as
/// may be: clients take milliseconds.
pub(crate) const HANDSHAKE_MIN: Duration = Duration::from_secs(1);

/// How much of what clients do is told in that time, a sentence each, and then how much was not:
/// enough to see what is wrong, and a log that nobody can fill.
pub(crate) const CLIENT_NEWS_MAX: u32 = 20;
pub(crate) const CLIENT_NEWS_INTERVAL: Duration = Duration::from_secs(60);

/// Requests of one connection that are under way or whose reply has not left: more than clients
/// have (the kernel's: 128), and a bound for one that never reads.
pub(crate) const REQUESTS_MAX: usize = 256;

/// Bytes of one connection that are under way or whose reply has not left; one longer request is
/// taken when it is alone.
pub(crate) const BYTES_MAX: u64 = 16 << 20;

/// Longest request, bytes: what clients may send that were told nothing, and what we tell.
pub(crate) const REQUEST_BYTES_MAX: u32 = nbd::PAYLOAD_MAX;

/// Longest buffer, bytes: a longer write is several. Pools have such buffers, and longer ones are
/// no quicker.
pub(crate) const BUFFER_BYTES_MAX: usize = 4 << 20;
const _: () = assert!(BUFFER_BYTES_MAX <= buf::BUF_LEN_MAX);

/// Reads that found no memory and are tried again at a time: if these find some more follow.
pub(crate) const HUNGRY_AT_ONCE: usize = 16;

/// What is best for the disk behind a network, where it does not say: pages.
pub(crate) const PREFERRED_MIN: u32 = 4096;

/// How long the last flush waits for the disk.
pub(crate) const LAST_FLUSH: Duration = Duration::from_secs(10);

/// How long a process that leaves a device to the next one waits for what is under way.
pub(crate) const LEAVING: Duration = Duration::from_secs(5);

/// Between two tries to have memory for a request that waits for some: it comes back from any
/// thread, which tells nobody.
pub(crate) const ROOM_INTERVAL: Duration = Duration::from_millis(1);

/// A client that has not read its answers, or sent nothing more of a write, for so long gives way
/// when others lack memory.
pub(crate) const SLOW_READER: Duration = Duration::from_secs(30);

/// What is kept of writes that nobody has flushed, bytes: half of it is written again within a
/// second, and is more than what comes between two flushes of file systems and databases.
pub(crate) const KEEP_BYTES: u64 = 64 << 20;

/// What is written again at a time: enough to keep a path busy.
pub(crate) const REWRITES_MAX: usize = 32;

/// How often in a row a disk may tell that it failed to keep something before nothing more is
/// tried.
pub(crate) const FAILURES_MAX: u32 = 8;

/// Between two tries of a flush that no client has asked for, or of what is written again: what
/// keeps the disk from it, such as a reservation of another host, may pass.
pub(crate) const DELAY: Duration = Duration::from_secs(1);

/// How often in a row such a try may fail before nothing more is tried: for half a minute.
pub(crate) const DELAYS_MAX: u32 = 30;

/// What a range costs that is kept and has no data, bytes: far more than it takes, so that there
/// are few of them, too.
pub(crate) const RANGE_COST: u64 = 4096;

/// What is sealed by TLS at a time for a connection, bytes: it lies in memory that is no pool's,
/// and fills a socket.
pub(crate) const SEAL_BYTES: usize = 256 << 10;

/// Extents of one answer: a client asks again from where they end.
pub(crate) const EXTENTS_MAX: usize = 256;

/// Room for what the unit says about them, bytes: a header of 8, and 16 for each.
pub(crate) const STATUS_BYTES: u32 = 8 + 16 * 256;

/// Longest data of a request of FUSE, bytes: the system cuts longer ones to that by default, too.
pub(crate) const FUSE_BYTES_MAX: u32 = 1 << 20;

/// Threads that take requests of FUSE and copy what is written: one that copies holds up no other.
pub(crate) const FUSE_THREADS: usize = 2;

/// Longest piece of a range that is zeroed, bytes: requests count in 32 bits. Whole blocks.
pub(crate) const ZERO_BYTES_MAX: u32 = 1 << 30;

/// Bytes of writes by FUSE that are under way, and of what the next ones are received into: as the
/// longest of 32 at once, and a share of the pool that leaves some for reads.
pub(crate) const FUSE_WRITES_MAX: usize = 32 << 20;
