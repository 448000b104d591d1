// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block stores behind one trait; `scsi` calls the trait, `target` opens stores.
//!
//! A store is shared by all reactors. [`Store::submit`] either finishes an operation at once or
//! gives an [`Io`] for the engine, or for others ([`foreign`]); the driver runs it and hands the
//! result to [`Store::complete`], until the operation is done.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(test)]
mod able;
pub mod beside;
pub mod device;
pub mod file;
pub mod filter;
pub mod foreign;
pub mod health;
mod limits;
pub mod memory;
pub mod null;
pub mod spec;
pub mod stripe;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use buf::{BUF_LEN_MAX, Slice};
use clock::Instant;
use core::fmt;
use core::time::Duration;
use device::{Answer, Device};
use foreign::Errand;
use health::{Health, Watched};

pub use medium::Space;

/// Facts about a store; only its size can change while it is open ([`Store::set_bytes`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size in bytes, a multiple of 512.
    pub bytes: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// Discard granularity in bytes; None: the store cannot give space back.
    pub discard_granularity: Option<u32>,
    /// Space can be set aside for a later write ([`Op::Clear`]) and told from space that holds
    /// data ([`Space::Anchored`]).
    pub anchors: bool,
    /// True if a write can be lost by a crash of the host until a Flush (WCE, SBC-4 §6.5.6).
    pub volatile_cache: bool,
    /// Physical block size, bytes, power of two.
    pub physical_block: u32,
    /// True for a disk that turns.
    pub rotational: bool,
}

impl Geometry {
    /// Whether a store of this geometry may try `op`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for a change of a read-only store; [`Error::Range`] for a range that is
    /// not within the store; [`Error::Internal`] for a Read above [`BUF_LEN_MAX`], a
    /// CompareAndWrite of unequal halves and a WriteSame of no whole number of times, as the caller
    /// has checked that.
    pub fn check(&self, op: &Op) -> Result<(), Error> {
        let (offset, length) = op.range();
        if self.read_only && op.changes() {
            return Err(Error::ReadOnly);
        }
        if offset.checked_add(length).is_none_or(|end| end > self.bytes) {
            return Err(Error::Range);
        }
        let is_well_formed = match op {
            Op::Read { .. } => length <= BUF_LEN_MAX as u64,
            Op::CompareAndWrite { old, new, .. } => old.len() == new.len(),
            Op::WriteSame { data, .. } => length.checked_rem(data.len() as u64) == Some(0),
            _ => true,
        };
        if is_well_formed { Ok(()) } else { Err(Error::Internal) }
    }
}

/// Space, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Taken.
    pub used: u64,
    /// Left.
    pub available: u64,
    /// What is left may be taken by others, too.
    pub shared: bool,
}

/// One block operation; offsets and lengths in bytes, within the store.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // each store must do each of them
pub enum Op {
    /// Gives the bytes; at most [`BUF_LEN_MAX`] of them.
    Read {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u32,
    },
    /// Changes the bytes from `offset` on to `data`.
    Write {
        /// First byte.
        offset: u64,
        /// The new bytes.
        data: Slice,
        /// On stable storage before it is done (FUA).
        durable: bool,
    },
    /// Brings all that was done before to stable storage.
    Flush,
    /// Reads as zero afterwards.
    Clear {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// What is to stand behind the bytes, where the store knows the difference: space that is
        /// taken already, space that is set aside, so that a later write does not lack it, or none.
        /// A store that cannot set aside ([`Geometry::anchors`]) or give back
        /// ([`Geometry::discard_granularity`]) leaves what is mapped.
        leave: Space,
    },
    /// Asks what stands behind the bytes at `offset`, and how far that holds; see [`Run`].
    ProvisioningStatus {
        /// First byte.
        offset: u64,
        /// Number of bytes that matter; more than none.
        length: u64,
    },
    /// Changes the bytes from `offset` on to `new` if they are `old`, as one for everybody: also
    /// for those who have what is behind the store by another way. Who wants that of a store
    /// that cannot ([`Store::compare_unit`]) reads, compares and writes, and keeps others out.
    CompareAndWrite {
        /// First byte.
        offset: u64,
        /// The bytes that are to be there.
        old: Slice,
        /// The new bytes, as many.
        new: Slice,
        /// On stable storage before it is done (FUA).
        durable: bool,
    },
    /// Changes bytes to `data` over and over. Not every store can ([`Store::writes_same`]).
    WriteSame {
        /// First byte.
        offset: u64,
        /// Number of bytes, a multiple of those of `data`.
        length: u64,
        /// The new bytes, once.
        data: Slice,
    },
}

/// Bytes behind which the same stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// What stands behind them.
    pub space: Space,
    /// How many bytes from the first one on are alike: at least one, at most as many as were asked
    /// about. What follows may be alike too.
    pub length: u64,
}

impl Op {
    /// First byte and number of bytes; no bytes at 0 for a Flush.
    pub fn range(&self) -> (u64, u64) {
        match self {
            Self::Read { offset, length } => (*offset, u64::from(*length)),
            Self::Write { offset, data, .. } => (*offset, data.len() as u64),
            Self::Flush => (0, 0),
            Self::Clear { offset, length, .. }
            | Self::ProvisioningStatus { offset, length }
            | Self::WriteSame { offset, length, .. } => (*offset, *length),
            Self::CompareAndWrite { offset, new, .. } => (*offset, new.len() as u64),
        }
    }

    /// What it is, in words.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Write { durable: true, .. } => "durable write",
            Self::Write { .. } => "write",
            Self::Flush => "flush",
            Self::Clear { leave: Space::Deallocated, .. } => "discard",
            Self::Clear { leave: Space::Mapped, .. } => "zero",
            Self::Clear { leave: Space::Anchored, .. } => "anchor",
            Self::ProvisioningStatus { .. } => "status",
            Self::CompareAndWrite { .. } => "compare and write",
            Self::WriteSame { .. } => "write same",
        }
    }

    /// True if the content of the store may change.
    pub fn changes(&self) -> bool {
        match self {
            Self::Write { .. }
            | Self::Clear { .. }
            | Self::CompareAndWrite { .. }
            | Self::WriteSame { .. } => true,
            Self::Read { .. } | Self::Flush | Self::ProvisioningStatus { .. } => false,
        }
    }

    /// True if what the store holds decides how it ends.
    pub const fn reads(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareAndWrite { .. })
    }
}

/// How an operation ended.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // each caller must handle each of them
pub enum Outcome {
    /// As asked.
    Done,
    /// The bytes of a Read, as many as asked for.
    Data(Slice),
    /// The answer to a ProvisioningStatus.
    ProvisioningStatus(Run),
    /// Nothing was written by a CompareAndWrite: other bytes are there, from this one of them on.
    /// None: the store cannot tell from which.
    Miscompare(Option<u64>),
    /// How a command ended that a device has carried out; no block operation ends so.
    Answered(Box<Answer>),
    /// Not, or only in part; of a range that was to change, each byte is old or new.
    Failed(Error),
}

/// Why an operation failed; `scsi` turns it into sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Unreadable: 3/11/00.
    #[error("unreadable")]
    Read,
    /// Not written: 3/0C/00.
    #[error("not written")]
    Write,
    /// No space left: 7/27/07.
    #[error("no space left")]
    Space,
    /// 7/27/00.
    #[error("read only")]
    ReadOnly,
    /// Not within the store, which may have become smaller meanwhile: 5/21/00.
    #[error("beyond the end of the store")]
    Range,
    /// No room for it now, since others use too much: TASK SET FULL.
    #[error("too much of the store is lent")]
    Busy,
    /// What is behind the store does not answer, for now: BUSY.
    #[error("no answer")]
    Silent,
    /// Nothing was done: the store has no such operation, or not of these bytes. Whoever asks does
    /// it by others.
    #[error("no such operation")]
    Unsupported,
    /// The store is gone or misbehaves: 4/44/00.
    #[error("internal failure of the store")]
    Internal,
}

/// A file of the engine, by the number under which the target installed it on every reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// Work that a store needs from its driver, which gets most of it done by the engine; offsets and
/// lengths in bytes.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // each driver must run each of them
pub enum Io {
    /// The driver takes the buffer from its pool and gives it back frozen in [`IoResult::Read`].
    Read {
        /// Where from.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Number of bytes, at most [`BUF_LEN_MAX`].
        length: u32,
    },
    /// All of `data`, however many calls that takes.
    Write {
        /// Where to.
        file: FileId,
        /// First byte.
        offset: u64,
        /// The bytes.
        data: Slice,
        /// On stable storage before it is done.
        durable: bool,
    },
    /// What was written, and the size and place of it, to stable storage.
    Sync {
        /// Which.
        file: FileId,
    },
    /// Zeroes without transferring bytes: the size of the file stays.
    Clear {
        /// Where.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// What is to stand behind the bytes.
        leave: Space,
    },
    /// What stands behind the bytes at `offset`, and where that changes.
    ProvisioningStatus {
        /// Where.
        file: FileId,
        /// First byte.
        offset: u64,
    },
    /// What time it is.
    Clock {
        /// Which filter asks.
        filter: FilterIndex,
    },
    /// Nothing, for so long.
    Pause {
        /// Which filter asks.
        filter: FilterIndex,
        /// At least so long; the result is what time it is then.
        length: Duration,
        /// What the filter knows the operation by.
        turn: u64,
    },
    /// What the engine does not know: somebody else does it, and answers later.
    Foreign(Errand),
    /// Work of one of several stores that are one.
    Part(Box<Part>),
}

impl Io {
    /// The file whose [`Health`] this may change, and how: it is to be run under a
    /// [`Watch`](health::Watch).
    #[inline]
    pub fn watched(&self) -> Option<(FileId, Watched)> {
        match self {
            Self::Sync { file } => Some((*file, Watched::Sync)),
            Self::Write { file, durable: true, .. } => Some((*file, Watched::DurableWrite)),
            Self::Part(part) => part.io.watched(),
            Self::Write { durable: false, .. }
            | Self::Read { .. }
            | Self::Clear { .. }
            | Self::ProvisioningStatus { .. }
            | Self::Clock { .. }
            | Self::Pause { .. }
            | Self::Foreign(_) => None,
        }
    }

    /// The file that it is for.
    #[must_use]
    pub fn file(&self) -> Option<FileId> {
        match self.innermost() {
            Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::Sync { file }
            | Self::Clear { file, .. }
            | Self::ProvisioningStatus { file, .. } => Some(*file),
            Self::Clock { .. } | Self::Pause { .. } | Self::Foreign(_) | Self::Part(_) => None,
        }
    }

    /// Whether `result` ends before what it was to read.
    #[must_use]
    pub fn is_cut_short(&self, result: &IoResult) -> bool {
        match (self.innermost(), result) {
            (Self::Read { length, .. }, IoResult::Read(Ok(data))) => data.len() < *length as usize,
            _ => false,
        }
    }

    /// The work itself, which may be that of a part of a part.
    pub fn innermost(&self) -> &Self {
        let mut io = self;
        while let Self::Part(part) = io {
            io = &part.io;
        }
        io
    }
}

/// The place of a filter in front of a store, from 0: each filter of a stack has its own, so that
/// it knows its Io again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterIndex(pub u8);

/// Work of one of several stores that are one, and how far the whole operation has come.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where in the operation this is; its meaning is the store's.
    step: u64,
    /// What was read before, in order.
    read: alloc::vec::Vec<Slice>,
    /// The work.
    io: Io,
}

impl Part {
    /// The work that is to be done; its result goes to the store together with the part.
    pub const fn io(&self) -> &Io {
        &self.io
    }
}

/// What became of an [`Io`]: bytes moved, or the errno.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // each store must handle each of them
pub enum IoResult {
    /// Holds as many bytes as were read; fewer than asked means end of file.
    Read(Result<Slice, i32>),
    /// What there is, and where that ends, bytes.
    ProvisioningStatus(Result<(Space, u64), i32>),
    /// The time, of a Clock.
    Clock(Instant),
    /// How the operation ended, of a Foreign; not what the engine says, but the store.
    Foreign(Outcome),
    /// Of all others.
    Other(Result<(), i32>),
}

/// What a store needs next for an operation.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // each driver must handle both
pub enum Submitted {
    /// Nothing: it is over.
    Done(Outcome),
    /// This; its result goes to [`Store::complete`].
    Io(Io),
}

impl From<Result<Outcome, Error>> for Submitted {
    fn from(result: Result<Outcome, Error>) -> Self {
        Self::Done(result.unwrap_or_else(Outcome::Failed))
    }
}

/// Who answers for a store, as people are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // whoever answers tells all of it
pub struct Elsewhere {
    /// A word for it, such as `cluster`.
    pub who: &'static str,
    /// Where to look when it does not answer.
    pub advice: &'static str,
    /// New operations are told [`Error::Silent`] when it has answered none for so long.
    pub busy_after: Duration,
    /// They are told so now.
    pub is_busy: bool,
    /// What keeps data on this side of it, in a word: `none`, `writethrough`, `writeback` or
    /// `persistent`.
    pub cache: &'static str,
    /// Who else reads and writes there, beside a cache that does not hear of it; None: nobody has
    /// looked.
    pub others: Option<usize>,
    /// It takes nothing from us any more, for good: all operations fail until the store is opened
    /// again.
    pub shut_out: bool,
    /// What has become of what is behind the store, if it is not found by its name any more:
    /// `moved`, `replaced` or `removed`.
    pub lost: Option<&'static str>,
}

impl Elsewhere {
    /// Two that answer for one store: of each what hosts and people meet first.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        Self {
            who: self.who,
            advice: self.advice,
            busy_after: self.busy_after.min(other.busy_after),
            is_busy: self.is_busy || other.is_busy,
            cache: worst(&CACHES, self.cache, other.cache),
            others: self.others.max(other.others),
            shut_out: self.shut_out || other.shut_out,
            lost: match (self.lost, other.lost) {
                (Some(one), Some(other)) => Some(worst(&LOSSES, one, other)),
                (one, other) => one.or(other),
            },
        }
    }
}

/// Words for caches, each keeps more than the one before.
const CACHES: [&str; 5] = ["none", "writethrough", "writearound", "writeback", "persistent"];

/// Words for what is lost, each is worse than the one before.
const LOSSES: [&str; 3] = ["moved", "replaced", "removed"];

/// The one of two words that comes later; one that nobody knows comes first.
fn worst(words: &[&str], one: &'static str, other: &'static str) -> &'static str {
    let place = |word: &str| words.iter().position(|known| *known == word);
    if place(other) > place(one) { other } else { one }
}

/// A block store, shared by all reactors.
///
/// A store keeps no state of an operation: what is under way is known by the [`Io`] that the driver
/// gives back, so that any reactor can continue it.
pub trait Store: Send + Sync + fmt::Debug {
    /// Facts about the store.
    fn geometry(&self) -> Geometry;

    /// The longest write, bytes, of which a read never sees a part, nor anybody after the end of
    /// the process or a loss of power; None: no such promise. Its reads give bytes that nobody
    /// changes any more, and whoever drives it lets no read and no write beside such a write.
    fn atomic_max(&self) -> Option<u32> {
        None
    }

    /// Bytes that are best read or written at once, since they lie together in one place; None: the
    /// store has no such unit.
    fn optimal_io(&self) -> Option<u32> {
        None
    }

    /// The store has [`Op::CompareAndWrite`] of bytes that lie in one aligned piece of so many; it
    /// may end with [`Error::Unsupported`] all the same. None: it has no such operation.
    fn compare_unit(&self) -> Option<u32> {
        None
    }

    /// The store has [`Op::WriteSame`].
    fn writes_same(&self) -> bool {
        false
    }

    /// A Read of this range is likely to be submitted soon.
    fn expect_read(&self, _offset: u64, _length: u32) {}

    /// A Write of this range is likely to be submitted soon: its data is about to come.
    fn expect_write(&self, _offset: u64, _length: u32) {}

    /// Starts `op`. An operation that [`Geometry::check`] refuses fails before any Io.
    fn submit(&self, op: &Op) -> Submitted;

    /// What the `result` of `io`, which was the last one for `op`, means: done, or the next Io.
    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted;

    /// `op` has ended before the pause `io`, which was the last for it: there will be no
    /// [`complete`](Self::complete).
    fn give_up(&self, _op: &Op, _io: &Io) {}

    /// The file that the store is, if it is a file and nothing else: it can get another size.
    fn file(&self) -> Option<FileId> {
        None
    }

    /// All files that the store works on.
    fn files(&self) -> alloc::vec::Vec<FileId> {
        self.file().into_iter().collect()
    }

    /// What is known of the syncs of a file that the store works on.
    fn health(&self, _file: FileId) -> Option<Arc<Health>> {
        None
    }

    /// Whether something that was acknowledged may be lost for good, as far as a store knows that
    /// works on no file; of a file its [`health`](Self::health) tells.
    fn may_have_lost(&self) -> bool {
        false
    }

    /// Something that was acknowledged before it was opened may be lost, and nobody can name it:
    /// flushes fail until it is opened again.
    fn lose_unknown(&self) {}

    /// The space that the store takes and that is left for it, if the store itself knows.
    fn usage(&self) -> Option<Usage> {
        None
    }

    /// The bytes that there are by now behind what is served, if the store has heard that somebody
    /// else has changed them. A store in a file does not hear that: its file is asked.
    fn bytes_behind(&self) -> Option<u64> {
        None
    }

    /// Begins what [`look_behind`](Self::look_behind) waits for, so that several stores are asked
    /// side by side.
    fn begin_look(&self) {}

    /// Asks for the bytes behind the store, which [`bytes_behind`](Self::bytes_behind) gives then;
    /// waits for that. None: it need not be asked.
    ///
    /// # Errors
    /// Why nobody knows, and what to do.
    fn look_behind(&self) -> Option<Result<(), String>> {
        None
    }

    /// Who answers for the store, and how, where its work is done elsewhere
    /// ([`foreign`]) by somebody whom people know by name.
    fn elsewhere(&self) -> Option<Elsewhere> {
        None
    }

    /// Numbers of the gateways that what is read and written passes from here on, the nearest one
    /// first, so that none of them serves what leads back to itself.
    fn gateways(&self) -> alloc::vec::Vec<u64> {
        alloc::vec::Vec::new()
    }

    /// Whether something may be on it that ends with this process.
    fn has_data_in_memory(&self) -> bool {
        false
    }

    /// Changes of what ends with this process end with [`Error::Silent`] from now on, but for those
    /// that are under way: another process is about to serve in its place.
    fn hold_back(&self) {}

    /// The end of [`hold_back`](Self::hold_back).
    fn let_on(&self) {}

    /// Whether changes are held back now, of some of it at least: what many changes make up had
    /// better not begin.
    fn is_held_back(&self) -> bool {
        false
    }

    /// Begins what [`finish`](Self::finish) waits for, so that several stores end side by side.
    fn begin_finish(&self) {}

    /// Nothing is submitted any more: what was acknowledged goes to stable storage, and what is
    /// behind the store is let go. Waits for that. A file is flushed and closed by whoever opened
    /// it.
    ///
    /// # Errors
    /// What was acknowledged may be lost, or nobody can tell.
    fn finish(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Gives what is behind the store another size, where the store can do that itself; waits for
    /// it. None: it cannot. What is served stays as it is ([`set_bytes`](Self::set_bytes)). What
    /// has not begun when it `is_wanted` no more does not begin.
    ///
    /// # Errors
    /// Why not, and what to do.
    fn resize_behind(
        &self,
        _bytes: u64,
        _is_wanted: &dyn Fn() -> bool,
    ) -> Option<Result<(), String>> {
        None
    }

    /// Keeps the present content behind the store under a name, where the store can do that
    /// itself; waits for it, as [`resize_behind`](Self::resize_behind) does. Gives the whole name.
    /// Nothing can be kept under an empty name.
    ///
    /// # Errors
    /// Why not, and what to do.
    fn snapshot_behind(
        &self,
        _name: &str,
        _is_wanted: &dyn Fn() -> bool,
    ) -> Option<Result<String, String>> {
        None
    }

    /// The device in its place, where there are no blocks but one that carries out commands itself.
    fn device(&self) -> Option<&Arc<dyn Device>> {
        None
    }

    /// The file of [`Store::file`], or what [`Store::bytes_behind`] tells of, has, or is about to
    /// have, this many bytes: what is submitted from now on is held against it. False if the store
    /// has no such thing.
    fn set_bytes(&self, _bytes: u64) -> bool {
        false
    }
}

/// What a store says to a result that does not belong to any Io of its own.
pub(crate) const fn contradiction() -> Submitted {
    Submitted::Done(Outcome::Failed(Error::Internal))
}
