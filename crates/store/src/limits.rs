// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of this crate, each with its reason.

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

/// Largest memory store, bytes, whose written pages are known: their bits take 128 MiB then.
pub(crate) const TRACKED_MAX: u64 = 4 << 40;

const _: () = assert!(ZERO_PIECE_LEN <= buf::BUF_LEN_MAX as u64);
