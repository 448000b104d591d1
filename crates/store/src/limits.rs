// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of this crate, each with its reason.

use core::time::Duration;

/// Sizes are multiples of this, bytes: the smallest logical block length.
pub(crate) const BLOCK_MIN: u64 = 512;

/// Largest size of a store, bytes: file offsets of the system are signed.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;

/// Bytes of zeroes that are written by one Io where a file cannot zero by itself: long enough that
/// the disk sets the pace, short enough that other commands get their turn.
pub(crate) const ZERO_PIECE_LEN: u64 = 1 << 20;

/// From this many bytes on, a memory store zeroes by giving pages back: below, writing is cheaper
/// than the system call and the faults after it.
pub(crate) const ZERO_BY_DISCARD_MIN: u64 = 64 << 10;

/// Largest memory store, bytes, whose pages are known: their bits take 256 MiB when all
/// of it has been written to.
pub(crate) const TRACKED_MAX: u64 = 4 << 40;

/// Work that a `limit` lets through at once after a pause, as time at the full rate: long enough
/// that timers need not be exact, short enough that no second sees much more than its share.
pub(crate) const LIMIT_BURST: Duration = Duration::from_millis(100);

/// An operation that a `limit` lets wait looks for its turn at least so often: those before it may
/// have ended meanwhile, and then it goes on sooner than it was told.
pub(crate) const LIMIT_LOOK: Duration = Duration::from_millis(250);

/// It looks again no sooner than this when the one before it is late.
pub(crate) const LIMIT_LOOK_MIN: Duration = Duration::from_millis(1);

/// Filters in front of one store: far more than anybody stacks, and their numbers fit a byte.
pub(crate) const FILTERS_MAX: usize = 16;

/// Stores within stores within stores: a stripe of stripes is one too many already.
pub(crate) const NESTING_MAX: usize = 4;

/// Longest delay: after it hosts have given a command up.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(60);

/// Longest time that a command of a device may be given: hosts have given up all but a few long
/// before, and the system counts milliseconds in 32 bits.
pub(crate) const DEVICE_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Longest time that commands may wait for another target to come back: a day, as for devices.
pub(crate) const REMOTE_WAIT_MAX: Duration = DEVICE_TIME_MAX;

/// Blocks of one file whose writes are told apart at most: the list of their chunks takes 2 MiB.
pub(crate) const MARKS_MAX: u64 = 1 << 32;

/// Blocks in which the writes of a file are told apart at its first size: of a file of 1 TiB those
/// of 4 KiB, of a larger one larger pieces. Each of three sets takes 32 MiB at most.
pub(crate) const MARKED_BLOCKS_MAX: u64 = 1 << 28;

/// The writes of a file that grows to more than so many times its size are not told apart.
pub(crate) const MARKS_GROWTH: u64 = 8;

const _: () = assert!(ZERO_PIECE_LEN <= buf::BUF_LEN_MAX as u64);

/// Longest write that is whole for everybody, bytes: what databases ask for, many times over.
pub(crate) const ATOMIC_MAX: u32 = 1 << 20;
