// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two stores as one: data, and what is kept beside them.

use crate::health::Health;
use crate::{
    Error, FileId, Geometry, Io, IoResult, Op, Outcome, Part, Store, Submitted, Usage,
    contradiction,
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The first byte of the side store: data can never reach so far, since a file has no more than
/// 2^63 bytes.
pub const SIDE: u64 = 1 << 63;

/// Data at 0 and what is kept beside them, such as protection information, at [`SIDE`].
///
/// Its geometry is that of the data; who uses it knows how much there is beside. A Flush is that of
/// both, the side first. It cannot get another size, for the side would have to get one with it;
/// and what changes bytes by what they are, or over and over, is not one operation, for what stands
/// beside them changes, too.
#[derive(Debug)]
pub struct Beside {
    data: Arc<dyn Store>,
    side: Arc<dyn Store>,
}

impl Beside {
    /// `side` must not have filters that need time: their Io could not be told from that of
    /// `data`.
    pub fn new(data: Arc<dyn Store>, side: Arc<dyn Store>) -> Self {
        Self { data, side }
    }

    /// `op` as the side store sees it; None if it is for the data.
    fn of_side(op: &Op) -> Option<Op> {
        let (offset, _) = op.range();
        let offset = offset.checked_sub(SIDE)?;
        Some(match *op {
            Op::Flush => return None,
            Op::Read { length, .. } => Op::Read { offset, length },
            Op::Write { ref data, durable, .. } => {
                Op::Write { offset, data: data.clone(), durable }
            }
            Op::Clear { length, leave, .. } => Op::Clear { offset, length, leave },
            Op::ProvisioningStatus { length, .. } => Op::ProvisioningStatus { offset, length },
            Op::CompareAndWrite { ref old, ref new, durable, .. } => {
                Op::CompareAndWrite { offset, old: old.clone(), new: new.clone(), durable }
            }
            Op::WriteSame { length, ref data, .. } => {
                Op::WriteSame { offset, length, data: data.clone() }
            }
        })
    }

    /// A flush goes on from what the store whose turn it is has said: after the side come the data.
    fn flush(&self, turn: u64, said: Submitted) -> Submitted {
        match said {
            Submitted::Io(io) => {
                Submitted::Io(Io::Part(Box::new(Part { step: turn, read: Vec::new(), io })))
            }
            Submitted::Done(Outcome::Done) if turn == SIDE_FIRST => {
                self.flush(DATA_THEN, self.data.submit(&Op::Flush))
            }
            Submitted::Done(outcome) => Submitted::Done(outcome),
        }
    }

    /// Whose flush `part` is of.
    fn flushed(&self, part: &Part) -> &dyn Store {
        if part.step == SIDE_FIRST { &*self.side } else { &*self.data }
    }
}

/// The steps of a flush.
const SIDE_FIRST: u64 = 0;
const DATA_THEN: u64 = 1;

impl Store for Beside {
    fn geometry(&self) -> Geometry {
        let (data, side) = (self.data.geometry(), self.side.geometry());
        Geometry {
            volatile_cache: data.volatile_cache || side.volatile_cache,
            read_only: data.read_only || side.read_only,
            // Who writes a block writes beside it, too.
            anchors: data.anchors && side.anchors,
            ..data
        }
    }

    fn files(&self) -> Vec<FileId> {
        let mut files = self.data.files();
        files.extend(self.side.files());
        files
    }

    fn health(&self, file: FileId) -> Option<Arc<Health>> {
        self.data.health(file).or_else(|| self.side.health(file))
    }

    fn submit(&self, op: &Op) -> Submitted {
        if op.changes() && self.geometry().read_only {
            return Submitted::Done(Outcome::Failed(Error::ReadOnly));
        }
        match Self::of_side(op) {
            Some(op) => self.side.submit(&op),
            None if matches!(op, Op::Flush) => self.flush(SIDE_FIRST, self.side.submit(op)),
            None => self.data.submit(op),
        }
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        match (Self::of_side(op), op, io) {
            (Some(op), _, _) => self.side.complete(&op, io, result),
            (None, Op::Flush, Io::Part(part)) => {
                self.flush(part.step, self.flushed(part).complete(op, &part.io, result))
            }
            (None, Op::Flush, _) => contradiction(),
            (None, _, _) => self.data.complete(op, io, result),
        }
    }

    fn give_up(&self, op: &Op, io: &Io) {
        match (Self::of_side(op), op, io) {
            (Some(op), _, _) => self.side.give_up(&op, io),
            (None, Op::Flush, Io::Part(part)) => self.flushed(part).give_up(op, &part.io),
            (None, _, _) => self.data.give_up(op, io),
        }
    }

    fn lose_unknown(&self) {
        self.data.lose_unknown();
    }

    fn usage(&self) -> Option<Usage> {
        self.data.usage()
    }

    /// What is beside them says nothing without the data.
    fn has_data_in_memory(&self) -> bool {
        self.data.has_data_in_memory()
    }

    fn hold_back(&self) {
        self.data.hold_back();
        self.side.hold_back();
    }

    fn let_on(&self) {
        self.data.let_on();
        self.side.let_on();
    }

    fn is_held_back(&self) -> bool {
        self.data.is_held_back() || self.side.is_held_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileId;
    use crate::Space;
    use crate::file::File;
    use crate::filter::{Delay, Delayed};
    use crate::memory::Memory;
    use alloc::vec;
    use buf::Slice;

    fn geometry(bytes: u64, read_only: bool) -> Geometry {
        Geometry {
            bytes,
            read_only,
            discard_granularity: Some(512),
            anchors: true,
            volatile_cache: true,
            physical_block: 512,
            rotational: false,
        }
    }

    fn read(store: &Beside, offset: u64) -> Vec<u8> {
        match store.submit(&Op::Read { offset, length: 4 }) {
            Submitted::Done(Outcome::Data(data)) => data.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_byte_has_its_store() {
        let memory = |bytes| Arc::new(Memory::new(bytes).expect("room"));
        let store = Beside::new(memory(4096), memory(1024));
        assert_eq!(store.geometry().bytes, 4096);
        let write = |offset, byte| {
            let data = Slice::from(alloc::vec![byte; 4]);
            let done = store.submit(&Op::Write { offset, data, durable: true });
            assert!(matches!(done, Submitted::Done(Outcome::Done)), "{done:?}");
        };
        write(8, 1);
        write(SIDE + 8, 2);
        assert_eq!((read(&store, 8), read(&store, SIDE + 8)), ([1; 4].to_vec(), [2; 4].to_vec()));
        store.submit(&Op::Clear { offset: SIDE, length: 1024, leave: Space::Deallocated });
        assert_eq!((read(&store, 8), read(&store, SIDE + 8)), ([1; 4].to_vec(), [0; 4].to_vec()));
        assert!(matches!(store.submit(&Op::Flush), Submitted::Done(Outcome::Done)));
        let beyond = store.submit(&Op::Read { offset: SIDE + 1024, length: 1 });
        assert!(matches!(beyond, Submitted::Done(Outcome::Failed(Error::Range))));
    }

    #[test]
    fn a_flush_is_of_both_and_the_side_comes_first() {
        let file =
            |id, read_only| Arc::new(File::new(FileId(id), geometry(4096, read_only), false));
        let store = Beside::new(file(1, false), file(2, false));
        assert_eq!(flushed(&store, &[Ok(()), Ok(())]), (vec![2, 1], None));
        assert_eq!(flushed(&store, &[Err(5)]), (vec![2], Some(Error::Write)));
        assert_eq!(flushed(&store, &[Ok(()), Err(5)]), (vec![2, 1], Some(Error::Write)));
        assert_eq!((store.file(), store.set_bytes(8192)), (None, false), "it cannot be resized");
    }

    /// The data are flushed after any work that the flush of the side needs, not in place of it.
    #[test]
    fn a_flush_is_of_both_behind_a_filter_that_waits() {
        let file = |id| Arc::new(File::new(FileId(id), geometry(4096, false), false));
        let slow = |id| {
            let length = core::time::Duration::from_millis(1);
            Arc::new(Delay::new(file(id), crate::FilterIndex(0), Delayed::All, length))
        };
        let store = Beside::new(slow(1), slow(2));
        assert_eq!(flushed(&store, &[Ok(()), Ok(())]), (vec![2, 1], None));
    }

    /// The files that a flush syncs, in turn, with these results; and why it failed.
    fn flushed(store: &Beside, results: &[Result<(), i32>]) -> (Vec<u32>, Option<Error>) {
        let (mut files, mut results) = (Vec::new(), results.iter());
        let mut next = store.submit(&Op::Flush);
        loop {
            let io = match next {
                Submitted::Io(io) => io,
                Submitted::Done(Outcome::Failed(error)) => return (files, Some(error)),
                Submitted::Done(_) => return (files, None),
            };
            let result = match io.innermost() {
                Io::Sync { file } => {
                    files.push(file.0);
                    IoResult::Other(*results.next().expect("no more syncs than this"))
                }
                _ => IoResult::Clock(clock::Instant(0)),
            };
            next = store.complete(&Op::Flush, &io, result);
        }
    }

    #[test]
    fn one_that_is_read_only_makes_both_so() {
        let file =
            |id, read_only| Arc::new(File::new(FileId(id), geometry(4096, read_only), false));
        let store = Beside::new(file(1, false), file(2, true));
        assert!(store.geometry().read_only);
        for offset in [0, SIDE] {
            let refused = store.submit(&Op::Clear { offset, length: 512, leave: Space::Mapped });
            assert!(matches!(refused, Submitted::Done(Outcome::Failed(Error::ReadOnly))));
        }
    }
}
