// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds, each with its reason.

/// Handles of one kind at a time: far more than a program has disks.
pub(crate) const HANDLES_MAX: u32 = 1 << 16;

/// Operations of one queue at a time: each takes some 100 bytes here and in the session.
pub(crate) const DEPTH_MAX: u32 = 1 << 16;

/// Longest read, write or comparison, bytes: its data is in memory at once, beside that of others.
pub(crate) const LENGTH_MAX: usize = 32 << 20;

/// So much of a longer one is under way at a time where a call waits, bytes.
pub(crate) const PIECE: usize = 8 << 20;

/// Changes that one set of options has: portals may be said again and again.
pub(crate) const CHANGES_MAX: usize = 256;

/// Longest file with a secret, bytes: one of CHAP has 256 at most, twice as many in hex.
pub(crate) const SECRET_FILE_LEN_MAX: usize = 1024;

/// Smallest bound on buffers, bytes: a few of the longest commands.
pub(crate) const POOL_BYTES_MIN: usize = 16 << 20;

const _: () = assert!(PIECE <= LENGTH_MAX && LENGTH_MAX <= isize::MAX as usize);
