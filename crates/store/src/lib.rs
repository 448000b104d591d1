// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block stores behind one trait; `scsi` calls the trait, `target` opens stores.
//!
//! Border 4. A store is shared by all reactors. `submit` either finishes at once or gives an [`Io`] for the engine;
//! the driver runs it and hands the result to `complete`.
#![allow(missing_docs)]
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

use buf::Slice;
use core::fmt;

/// Facts that do not change while a store is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size in bytes, a multiple of 512.
    pub bytes: u64,
    pub read_only: bool,
    /// Discard granularity in bytes; None: the store cannot give space back.
    pub discard_granularity: Option<u32>,
    /// True if a write can be lost by a crash of the host until a Flush (WCE).
    pub volatile_cache: bool,
    /// Physical block size, bytes, power of two.
    pub physical_block: u32,
    pub rotational: bool,
}

/// One block operation; offsets and lengths in bytes, within the store.
#[derive(Clone, Debug)]
pub enum Op {
    Read { offset: u64, length: u32 },
    /// `durable`: on stable storage before it is done (FUA).
    Write { offset: u64, data: Slice, durable: bool },
    Flush,
    /// Reads as zero afterwards; space may be given back.
    Discard { offset: u64, length: u64 },
    /// Reads as zero afterwards; space stays allocated where the store knows the difference.
    Zero { offset: u64, length: u64 },
}

/// How an operation ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    Done,
    /// The bytes of a Read, as many as asked for.
    Data(Slice),
    Failed(Error),
}

/// Why an operation failed; `scsi` turns it into sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Unreadable: 3/11/00.
    Read,
    /// Not written: 3/0C/00.
    Write,
    /// No space left: 7/27/07.
    Space,
    /// 7/27/00.
    ReadOnly,
    /// The store is gone or misbehaves: 4/44/00.
    Internal,
}

/// A file of the engine, by the number under which the target installed it on every reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// Work that a store needs from the engine.
#[derive(Clone, Debug)]
pub enum Io {
    /// The driver takes the buffer from its pool and gives it back frozen in [`IoResult::Read`].
    Read { file: FileId, offset: u64, length: u32 },
    Write { file: FileId, offset: u64, data: Slice, durable: bool },
    Sync { file: FileId },
    Punch { file: FileId, offset: u64, length: u64 },
    Zero { file: FileId, offset: u64, length: u64 },
}

/// What became of an [`Io`]: bytes moved, or the errno.
#[derive(Clone, Debug)]
pub enum IoResult {
    /// `data` holds as many bytes as were read; fewer than asked means end of file.
    Read(Result<Slice, i32>),
    Other(Result<(), i32>),
}

/// The first answer of a store.
#[derive(Clone, Debug)]
pub enum Submitted {
    Done(Outcome),
    Io(Io),
}

/// A block store, shared by all reactors.
pub trait Store: Send + Sync + fmt::Debug {
    fn geometry(&self) -> Geometry;
    fn submit(&self, op: &Op) -> Submitted;
    /// What the result of an [`Io`] means for `op`: done, or the next Io.
    fn complete(&self, op: &Op, result: IoResult) -> Submitted;
}
