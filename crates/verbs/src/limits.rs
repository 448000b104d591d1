// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of this crate, each with its reason.

use std::ffi::c_int;

/// Sends and Writes of one connection that its adapter has at once: a command window with the data
/// of each command; the rest waits with the mover.
pub(crate) const SENDS: usize = 256;

/// Reads of one connection that its adapter has at once, at most: what adapters serve.
pub(crate) const READS_MAX: u8 = 128;

/// Reads that an initiator asks for: it has none, and some devices want one.
pub(crate) const READS_OF_INITIATORS: u8 = 1;

/// Buffers for messages of one connection: as many as iSER wants of an adapter.
pub(crate) const RECEIVES: usize = 160;

/// Bytes of a place for the head of a Send, with what follows if that is short: a SCSI Response
/// with sense data.
pub(crate) const SLOT_LEN: usize = 256;

/// Bytes that the adapter is asked to take with an operation, in turn: Linux's siw takes no more
/// than the second one, and some take none.
pub(crate) const INLINE_LENS: [u32; 3] = [256, 64, 0];

/// Pieces of a Send: its head, and the rest.
pub(crate) const PIECES: usize = 2;

/// Completions that are asked for at once.
pub(crate) const COMPLETIONS: usize = 16;

/// Connections that wait to be accepted.
pub(crate) const BACKLOG: c_int = 128;

/// Bytes of private data that a connection may begin with: of which four are iSER's.
pub(crate) const PRIVATE_MAX: usize = 256;
