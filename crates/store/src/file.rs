// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store in a file or a block device: `file:PATH`.

use crate::health::Health;
use crate::limits::ZERO_PIECE_LEN;
use crate::{
    Error, FileId, Geometry, Io, IoResult, Op, Outcome, Part, Run, Space, Store, Submitted,
    contradiction,
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use buf::Slice;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;

/// A file that the engine reads and writes.
///
/// A Discard is tried as a hole, then as zeroing, then by writing zeroes; a Zero as zeroing, then
/// by writing; an Anchor as reserving, then by writing, which takes the space as well. A store that
/// is not to have a volatile cache writes durably and ends each other change with a sync. A read
/// that gives fewer bytes than asked for fails as unreadable: the file was cut short by somebody
/// else, and zeroes in place of lost data would be a lie.
///
/// After a failed sync flushes and durable writes fail, see [`Health`]. What is written then is
/// wrapped in a [`Part`] with the number of the failure, so that it counts as written again only if
/// the failure was before it.
#[derive(Debug)]
pub struct File {
    file: FileId,
    /// All but the size.
    geometry: Geometry,
    bytes: AtomicU64,
    sync: bool,
    health: Arc<Health>,
}

impl File {
    /// The file that the engine knows as `file`, opened with facts `geometry`; `sync`: every change
    /// is on stable storage before it is done.
    pub fn new(file: FileId, geometry: Geometry, sync: bool) -> Self {
        let bytes = AtomicU64::new(geometry.bytes);
        let health = Arc::new(Health::new(geometry.bytes, geometry.physical_block, true));
        Self { file, geometry, bytes, sync, health }
    }

    /// The same for a file past the page cache: nothing is written back late, so each sync and each
    /// write hears of its own failure.
    #[must_use]
    pub fn past_the_cache(self) -> Self {
        let (bytes, block) = (self.geometry.bytes, self.geometry.physical_block);
        Self { health: Arc::new(Health::new(bytes, block, false)), ..self }
    }

    /// The same for a file whose first sync, when it was opened, has failed: blocks that were
    /// acknowledged before are lost, and nobody can tell which. Flushes and durable writes fail
    /// until it is opened again.
    #[must_use]
    pub fn after_a_loss(self) -> Self {
        self.health.lose_unknown();
        self
    }

    /// The first Io of `op`, or None if there is nothing to do.
    fn start(&self, op: &Op) -> Option<Io> {
        let file = self.file;
        if op.range().1 == 0 && !matches!(op, Op::Flush) {
            return None;
        }
        match op {
            Op::Read { offset, length } => {
                Some(Io::Read { file, offset: *offset, length: *length })
            }
            Op::Write { offset, data, durable } => {
                let durable = *durable || self.sync;
                Some(Io::Write { file, offset: *offset, data: data.clone(), durable })
            }
            Op::Flush if self.geometry.read_only => None,
            Op::Flush => Some(Io::Sync { file }),
            Op::ProvisioningStatus { offset, .. } => {
                Some(Io::ProvisioningStatus { file, offset: *offset })
            }
            Op::Clear { offset, length, leave } => {
                let leave = match leave {
                    Space::Deallocated if self.geometry.discard_granularity.is_some() => *leave,
                    Space::Anchored if self.geometry.anchors => *leave,
                    _ => Space::Mapped,
                };
                Some(Io::Clear { file, offset: *offset, length: *length, leave })
            }
            // Refused before.
            Op::CompareAndWrite { .. } | Op::WriteSame { .. } => None,
        }
    }

    /// `io` was done for `op`.
    fn advance(&self, op: &Op, io: &Io) -> Submitted {
        let file = self.file;
        let done = Submitted::Done(Outcome::Done);
        match (op, io) {
            (Op::Clear { .. }, Io::Write { offset, data, .. }) => {
                // In range, as the whole was.
                let from = offset.saturating_add(data.len() as u64);
                self.write_zeroes(op, from).unwrap_or(done)
            }
            (_, Io::Clear { .. }) if self.sync => Submitted::Io(Io::Sync { file }),
            _ => done,
        }
    }

    /// `io` of `op` failed with `errno`: another way, or the end.
    fn retreat(&self, op: &Op, io: &Io, errno: i32) -> Submitted {
        let file = self.file;
        match io {
            Io::Clear { offset, length, leave: Space::Deallocated, .. }
                if is_unsupported(errno) =>
            {
                match self.geometry().check(op) {
                    Ok(()) => Submitted::Io(Io::Clear {
                        file,
                        offset: *offset,
                        length: *length,
                        leave: Space::Mapped,
                    }),
                    Err(error) => Submitted::Done(Outcome::Failed(error)),
                }
            }
            Io::Clear { offset, .. } if is_unsupported(errno) => self
                .write_zeroes(op, *offset)
                .unwrap_or(Submitted::Done(Outcome::Failed(Error::Internal))),
            _ => Submitted::Done(Outcome::Failed(error_of(op, errno))),
        }
    }

    /// The next piece of zeroes to write from `from` to the end of `op`; None if that is reached.
    /// The store may have become smaller since the first piece.
    fn write_zeroes(&self, op: &Op, from: u64) -> Option<Submitted> {
        if let Err(error) = self.geometry().check(op) {
            return Some(Submitted::Done(Outcome::Failed(error)));
        }
        let (offset, length) = op.range();
        let left = offset.checked_add(length)?.checked_sub(from)?;
        let piece = usize::try_from(left.min(ZERO_PIECE_LEN)).ok()?;
        if piece == 0 {
            return None;
        }
        let data = Slice::zeroes().ok().and_then(|zeroes| zeroes.part(0..piece));
        let Some(data) = data else {
            return Some(Submitted::Done(Outcome::Failed(Error::Internal)));
        };
        let durable = self.sync;
        Some(Submitted::Io(Io::Write { file: self.file, offset: from, data, durable }))
    }
}

impl Store for File {
    #[inline]
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes.load(Ordering::Acquire), ..self.geometry }
    }

    fn file(&self) -> Option<FileId> {
        Some(self.file)
    }

    fn health(&self, file: FileId) -> Option<Arc<Health>> {
        (file == self.file).then(|| Arc::clone(&self.health))
    }

    fn lose_unknown(&self) {
        self.health.lose_unknown();
    }

    fn set_bytes(&self, bytes: u64) -> bool {
        self.bytes.store(bytes, Ordering::Release);
        true
    }

    fn submit(&self, op: &Op) -> Submitted {
        if let Err(error) = self.geometry().check(op) {
            return Submitted::Done(Outcome::Failed(error));
        }
        if matches!(op, Op::CompareAndWrite { .. } | Op::WriteSame { .. }) {
            return Submitted::Done(Outcome::Failed(Error::Unsupported));
        }
        if op.changes() {
            self.note_write(op);
        }
        if let Some(failure) = self.health.failure() {
            return self.submit_failed(op, failure);
        }
        match self.start(op) {
            Some(io) => Submitted::Io(io),
            None if matches!(op, Op::Read { .. }) => Submitted::Done(Outcome::Data(Slice::empty())),
            None => Submitted::Done(Outcome::Done),
        }
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        if op.changes() {
            self.note_write(op);
        }
        if matches!(io, Io::Part(_)) || self.health.has_failed() {
            return self.complete_failed(op, io, result);
        }
        self.go_on(op, io, result)
    }
}

impl File {
    /// What was acknowledged of `op` waits for a sync, unless it brings one itself.
    #[inline]
    fn note_write(&self, op: &Op) {
        if self.sync || matches!(op, Op::Write { durable: true, .. }) {
            return;
        }
        let (offset, length) = op.range();
        self.health.note_write(offset, length);
    }

    /// As `submit`, after a failed sync.
    #[cold]
    fn submit_failed(&self, op: &Op, failure: u64) -> Submitted {
        if matches!(op, Op::Flush) && !self.health.is_whole_again() {
            return Submitted::Done(Outcome::Failed(Error::Write));
        }
        match self.start(op) {
            Some(io) if op.changes() => numbered(Submitted::Io(io), failure),
            Some(io) => Submitted::Io(io),
            None if matches!(op, Op::Read { .. }) => Submitted::Done(Outcome::Data(Slice::empty())),
            None => Submitted::Done(Outcome::Done),
        }
    }

    /// As `complete`, of what began after a failed sync or ends after it.
    #[cold]
    fn complete_failed(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        let (failure, io) = match io {
            Io::Part(part) => (Some(part.step), &part.io),
            whole => (None, whole),
        };
        if let (Some(failure), IoResult::Other(Ok(()))) = (failure, &result)
            && let Some((offset, length)) = changed(io)
        {
            self.health.note_rewrite(offset, length, failure);
        }
        let next = self.go_on(op, io, result);
        let is_done = matches!(next, Submitted::Done(Outcome::Done));
        let fails = match op {
            Op::Flush => self.health.has_failed(),
            Op::Write { durable: true, .. } => !self.health.is_whole_again(),
            _ => self.sync && op.changes() && !self.health.is_whole_again(),
        };
        match failure {
            _ if is_done && fails => Submitted::Done(Outcome::Failed(Error::Write)),
            Some(failure) => numbered(next, failure),
            None => next,
        }
    }

    fn go_on(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        match (op, result) {
            (Op::Read { length, .. }, IoResult::Read(Ok(data))) => {
                let asked = u64::from(*length);
                Submitted::Done(match (data.len() as u64).cmp(&asked) {
                    core::cmp::Ordering::Equal => Outcome::Data(data),
                    core::cmp::Ordering::Less => Outcome::Failed(Error::Read),
                    core::cmp::Ordering::Greater => Outcome::Failed(Error::Internal),
                })
            }
            (Op::ProvisioningStatus { offset, length }, IoResult::ProvisioningStatus(result)) => {
                Submitted::Done(Outcome::ProvisioningStatus(run_of(*offset, *length, result)))
            }
            (_, IoResult::ProvisioningStatus(_) | IoResult::Clock(_) | IoResult::Foreign(_)) => {
                contradiction()
            }
            (_, IoResult::Read(Err(errno)) | IoResult::Other(Err(errno))) => {
                self.retreat(op, io, errno)
            }
            (Op::Read { .. }, IoResult::Other(Ok(()))) | (_, IoResult::Read(Ok(_))) => {
                contradiction()
            }
            (_, IoResult::Other(Ok(()))) => self.advance(op, io),
        }
    }
}

/// Work on a file that had failed when it began, with the number of the failure. Syncs need none.
fn numbered(submitted: Submitted, failure: u64) -> Submitted {
    match submitted {
        Submitted::Io(io) if changed(&io).is_some() => {
            Submitted::Io(Io::Part(Box::new(Part { step: failure, read: Vec::new(), io })))
        }
        other => other,
    }
}

/// The bytes that `io` changes.
fn changed(io: &Io) -> Option<(u64, u64)> {
    match io {
        Io::Write { offset, data, .. } => Some((*offset, data.len() as u64)),
        Io::Clear { offset, length, .. } => Some((*offset, *length)),
        Io::Read { .. }
        | Io::Sync { .. }
        | Io::ProvisioningStatus { .. }
        | Io::Clock { .. }
        | Io::Pause { .. }
        | Io::Foreign(_)
        | Io::Part(_) => None,
    }
}

/// The run at `offset`; a file that cannot tell has data everywhere.
fn run_of(offset: u64, length: u64, result: Result<(Space, u64), i32>) -> Run {
    match result {
        Ok((space, end)) if end > offset => Run { space, length: length.min(end - offset) },
        _ => Run { space: Space::Mapped, length },
    }
}

/// What `errno` means to the user of the disk.
fn error_of(op: &Op, errno: i32) -> Error {
    match errno {
        ENOSPC | EDQUOT | EFBIG if !matches!(op, Op::Read { .. }) => Error::Space,
        EROFS | EPERM | EACCES | EBADF if op.changes() => Error::ReadOnly,
        EIO | ENODATA | EREMOTEIO | EILSEQ => match op {
            Op::Read { .. } => Error::Read,
            _ => Error::Write,
        },
        _ => Error::Internal,
    }
}

/// The file has no such operation, or not for this range; what cannot be at all fails in the next
/// way too.
fn is_unsupported(errno: i32) -> bool {
    matches!(errno, EOPNOTSUPP | ENOSYS | EINVAL | ENODEV | ENOTTY)
}

// Numbers of Linux, the same on all architectures that we build for; not from a crate, as the
// sans-IO crates have none for the system.
const EPERM: i32 = 1;
const EIO: i32 = 5;
const EBADF: i32 = 9;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ENOTTY: i32 = 25;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ENOSYS: i32 = 38;
const ENODATA: i32 = 61;
const EILSEQ: i32 = 84;
const EOPNOTSUPP: i32 = 95;
const EREMOTEIO: i32 = 121;
const EDQUOT: i32 = 122;

#[cfg(test)]
mod tests;
