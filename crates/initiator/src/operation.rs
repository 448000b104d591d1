// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be asked of a disk, and what comes of it.

use std::iter::Chain;
use std::option;
use std::vec;

use buf::Buf;
use buf::Slice;

/// One operation on a disk. Ranges are bytes and made of whole blocks; they may be of any length
/// and are cut to what the unit takes, but for [`Operation::CompareAndWrite`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Operation {
    /// Reads. The data comes in one buffer for each command.
    Read {
        /// First byte.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// Writes.
    Write {
        /// First byte.
        offset: u64,
        /// What; it is not copied.
        data: Slice,
        /// When it has ended.
        durability: Durability,
    },
    /// Brings to stable storage what was written: by all operations that have ended before.
    Flush,
    /// The content is of no interest any more, and the unit may give the blocks back. What is read
    /// of them then is [`Geometry::unmap_zeros`](crate::Geometry)'s business. Nothing is done where
    /// the unit has no UNMAP ([`Geometry::unmap_max`](crate::Geometry) is zero).
    Discard {
        /// First byte.
        offset: u64,
        /// How many.
        length: u64,
        /// When it has ended.
        durability: Durability,
    },
    /// Writes zeroes: by WRITE SAME where the unit has it, else byte by byte.
    Zero {
        /// First byte.
        offset: u64,
        /// How many.
        length: u64,
        /// What becomes of the blocks.
        space: Space,
        /// When it has ended.
        durability: Durability,
    },
    /// Writes `new` if the disk has `expected` there, as one (SBC-3 §5.3); else it fails with
    /// [`Kind::Miscompare`](crate::Kind) and nothing is written. At most
    /// [`Geometry::compare_max`](crate::Geometry) blocks. If it is not known how it ended it is not
    /// sent again.
    CompareAndWrite {
        /// First byte.
        offset: u64,
        /// What has to be there.
        expected: Slice,
        /// What is written; as long.
        new: Slice,
    },
}

/// When what changes a disk has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // callers choose
pub enum Durability {
    /// When the unit has it: a later flush brings it to stable storage.
    #[default]
    Cached,
    /// When it is on stable storage: by FUA where the unit has it, else by a flush behind it. If
    /// the unit has told that an earlier write has failed it fails
    /// ([`Kind::WritesLost`](crate::Kind)), and so do all that follow, as flushes do.
    Stable,
}

/// What becomes of blocks that are zeroed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // callers choose
pub enum Space {
    /// They may be given back, as long as they read as zeroes.
    #[default]
    GiveBack,
    /// They are kept: later writes to them do not fail for want of space.
    Keep,
}

impl Operation {
    /// A read of `length` bytes at `offset`.
    #[must_use]
    pub const fn read(offset: u64, length: u64) -> Self {
        Self::Read { offset, length }
    }

    /// A write of `data` at `offset`.
    #[must_use]
    pub const fn write(offset: u64, data: Slice) -> Self {
        Self::Write { offset, data, durability: Durability::Cached }
    }

    /// A discard of `length` bytes at `offset`.
    #[must_use]
    pub const fn discard(offset: u64, length: u64) -> Self {
        Self::Discard { offset, length, durability: Durability::Cached }
    }

    /// `length` zeroes at `offset`, whose blocks may be given back.
    #[must_use]
    pub const fn zero(offset: u64, length: u64) -> Self {
        let (space, durability) = (Space::GiveBack, Durability::Cached);
        Self::Zero { offset, length, space, durability }
    }

    /// The same, ended when it is on stable storage ([`Durability::Stable`]).
    #[must_use]
    pub fn durable(mut self) -> Self {
        match &mut self {
            Self::Write { durability, .. }
            | Self::Discard { durability, .. }
            | Self::Zero { durability, .. } => *durability = Durability::Stable,
            Self::Read { .. } | Self::Flush | Self::CompareAndWrite { .. } => {}
        }
        self
    }

    /// Its range: offset and length. None: the whole disk.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        match self {
            Self::Read { offset, length }
            | Self::Discard { offset, length, .. }
            | Self::Zero { offset, length, .. } => Some((*offset, *length)),
            Self::Write { offset, data, .. } => Some((*offset, data.len() as u64)),
            Self::CompareAndWrite { offset, new, .. } => Some((*offset, new.len() as u64)),
            Self::Flush => None,
        }
    }
}

/// The data of a read, in the order of the disk: one buffer for each command that it took. Empty
/// for what reads nothing.
#[derive(Debug, Default)]
pub struct Chunks {
    pub(crate) first: Option<Buf>,
    pub(crate) rest: Vec<Buf>,
}

impl Chunks {
    /// The buffers.
    pub fn iter(&self) -> impl Iterator<Item = &Buf> + Clone {
        self.first.iter().chain(&self.rest)
    }

    /// Bytes in all.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.iter().map(|buf| buf.len()).sum()
    }

    /// Fills `to` from the start, as far as there is data.
    pub fn copy_to(&self, to: &mut [u8]) {
        let mut rest = to;
        for part in self.iter() {
            let (here, after) = rest.split_at_mut(part.len().min(rest.len()));
            here.copy_from_slice(part.get(..here.len()).unwrap_or_default());
            rest = after;
        }
    }
}

impl IntoIterator for Chunks {
    type Item = Buf;
    type IntoIter = Chain<option::IntoIter<Buf>, vec::IntoIter<Buf>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}
