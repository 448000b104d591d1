// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of this crate, each with its reason.

use std::time::Duration;

/// Monitors have so long to answer at the start, seconds, as Ceph's configuration is written: who
/// starts a daemon waits for it, and Ceph's own 300 s look like a hang.
pub(crate) const CONNECT_SECONDS_MAX: &str = "30";

/// A keyring is read so far, bytes: a thousand keys.
pub(crate) const KEYRING_LEN_MAX: u64 = 1 << 20;

/// What is read of an option, bytes: some paths.
pub(crate) const OPTION_LEN_MAX: usize = 16 << 10;

/// Between two words about who still waits for a cluster to open an image.
pub(crate) const OPEN_NOTICE: Duration = Duration::from_secs(10);

/// Whoever opens an image waits so long: longer than for monitors, since OSDs come after them.
pub(crate) const OPEN_MAX: Duration = Duration::from_secs(60);

/// Whoever closes an image waits so long where a cache may have what was acknowledged: a cluster
/// that is well takes some milliseconds, and one that is not must not keep a daemon from ending.
pub(crate) const CLOSE_MAX: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 10_000 });

/// And so long where all that was acknowledged is in the cluster: it gives back the lock alone,
/// which the next client gets some time later by itself.
pub(crate) const CLOSE_WELL_MAX: Duration =
    Duration::from_millis(if cfg!(test) { 300 } else { 3_000 });

/// And so long if the cluster has not answered for `SILENT_AFTER` then.
pub(crate) const CLOSE_SILENT_MAX: Duration =
    Duration::from_millis(if cfg!(test) { 100 } else { 1_000 });

/// What takes longer will hardly end within the second that is left.
pub(crate) const SILENT_AFTER: Duration =
    Duration::from_millis(if cfg!(test) { 50 } else { 5_000 });

/// Clients of one image that are told: more have no business there.
pub(crate) const WATCHERS_MAX: usize = 256;

/// Names of snapshots are read so far, bytes; Ceph's own programs make none that are longer.
pub(crate) const SNAPSHOT_NAME_MAX: usize = 4096;

/// From one look at the name of an image, and at who else has it open, to the next: a client that
/// was killed counts for 30 s (`osd_client_watch_timeout`).
pub(crate) const ROUND: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 30_000 });

/// An image that is closed waits so long for operations that have not ended. Then it stays open:
/// the library may still write into their memory, which stays theirs too.
pub(crate) const LINGER_MAX: Duration =
    Duration::from_millis(if cfg!(test) { 100 } else { 60_000 });

/// How often it looks meanwhile.
pub(crate) const LINGER_LOOK: Duration = Duration::from_millis(2);

/// Tables of operations under way. Each has a lock, held for some nanoseconds: with so many of them
/// reactors and the library's threads seldom meet.
pub(crate) const SHARDS: usize = 16;

/// When operations are under way and none ends for so long, new ones are told BUSY, where nobody
/// says another time. Hosts give up a command after 30 s as a rule, and then reset the disk and
/// take it off; those that hear BUSY ask again.
pub(crate) const BUSY_AFTER: Duration = Duration::from_secs(20);

/// Whoever gives an image another size, or makes a snapshot, waits so long.
pub(crate) const CHORE_MAX: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 60_000 });

/// And whoever asks what there is: a cluster that is well says so in some milliseconds.
pub(crate) const LOOK_MAX: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5_000 });

/// Between two looks whether who has ordered something still waits for it.
pub(crate) const WANTED_LOOK: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 250 });

/// And so long behind such an order that has waited in vain and still does: others wait for their
/// turn, one after the other.
pub(crate) const BEHIND_UNANSWERED_MAX: Duration =
    Duration::from_millis(if cfg!(test) { 50 } else { 2_000 });

/// Operations under way in one of them: more than all sessions together may have.
pub(crate) const FLIGHTS_MAX: u32 = 1 << 20;

/// Objects, or rows of them, that one call is about, so that others have their turn: each is an
/// operation of its own, and asked for by itself where there is no object map. 1 GiB of the usual
/// ones.
pub(crate) const ROWS_MAX: u64 = if cfg!(test) { 2 } else { 256 };

/// Bytes that one call is about at most, whatever they lie in.
pub(crate) const PIECE_LEN_MAX: u64 = 1 << 30;

/// Bytes that are given to be repeated, at most: OSDs repeat them one by one, and 16 MiB of a block
/// of 512 bytes take 6.6 ms, of 64 KiB 0.7 ms (12 ms if they are sent; one OSD in memory). No more,
/// since the library aborts the process where one entry of a journal has no room for them, and any
/// image may get a journal while it is open.
pub(crate) const REPEATED_LEN: u64 = 8 << 10;

/// What an entry of a journal has room for at least, so that one operation fits into it: Ceph's
/// default (`rbd_journal_max_payload_bytes`).
pub(crate) const JOURNAL_ENTRY: u64 = 16 << 10;

// Beside its bytes an entry has a head.
const _: () = assert!(REPEATED_LEN < JOURNAL_ENTRY && 2 * 4096 < JOURNAL_ENTRY);

/// Options of an image that are read: Pacific has 60.
pub(crate) const OPTIONS_MAX: usize = 4096;

/// What an OSD writes without reading something around it, bytes (`bluestore_min_alloc_size`).
pub(crate) const PHYSICAL_BLOCK: u32 = 4096;

const _: () = assert!(SHARDS.is_power_of_two());
