// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Filters: stores that stand in front of another one and change one thing about it.
//!
//! Each filter is a store, so they stack in any order, and one that is not there costs nothing. A
//! filter that needs time asks its driver for it ([`Io::Clock`], [`Io::Pause`]) under its
//! [`FilterIndex`](crate::FilterIndex), by which it knows its own Io among those of what is behind
//! it.

mod atomic;
mod delay;
mod error;
mod limit;
mod log;
mod physical;

pub use atomic::Atomic;
pub use delay::Delay;
pub use delay::Delayed;
pub use error::Failing;
pub use error::Fault;
pub use error::When;
pub use limit::Limit;
pub use limit::Rate;
pub use log::Journal;
pub use log::Log;
pub use physical::Physical;

use crate::{FileId, Geometry, Io, IoResult, Op, Outcome, Space, Store, Submitted};
use alloc::sync::Arc;

/// What a filter that changes nothing else says of the store behind it.
macro_rules! behind {
    (geometry) => {
        fn geometry(&self) -> crate::Geometry {
            self.behind.geometry()
        }
        crate::filter::behind!();
    };
    () => {
        fn give_up(&self, op: &crate::Op, io: &crate::Io) {
            self.behind.give_up(op, io);
        }
        crate::filter::behind!(rest);
    };
    (rest) => {
        fn atomic_max(&self) -> Option<u32> {
            self.behind.atomic_max()
        }
        crate::filter::behind!(but_atomic_max);
    };
    (but_atomic_max) => {
        fn file(&self) -> Option<crate::FileId> {
            self.behind.file()
        }

        fn files(&self) -> alloc::vec::Vec<crate::FileId> {
            self.behind.files()
        }

        fn health(&self, file: crate::FileId) -> Option<alloc::sync::Arc<crate::health::Health>> {
            self.behind.health(file)
        }

        fn set_bytes(&self, bytes: u64) -> bool {
            self.behind.set_bytes(bytes)
        }

        fn usage(&self) -> Option<crate::Usage> {
            self.behind.usage()
        }

        fn lose_unknown(&self) {
            self.behind.lose_unknown();
        }

        fn may_have_lost(&self) -> bool {
            self.behind.may_have_lost()
        }

        fn bytes_behind(&self) -> Option<u64> {
            self.behind.bytes_behind()
        }

        fn begin_look(&self) {
            self.behind.begin_look();
        }

        fn look_behind(&self) -> Option<Result<(), alloc::string::String>> {
            self.behind.look_behind()
        }

        fn resize_behind(
            &self,
            bytes: u64,
            is_wanted: &dyn Fn() -> bool,
        ) -> Option<Result<(), alloc::string::String>> {
            self.behind.resize_behind(bytes, is_wanted)
        }

        fn snapshot_behind(
            &self,
            name: &str,
            is_wanted: &dyn Fn() -> bool,
        ) -> Option<Result<alloc::string::String, alloc::string::String>> {
            self.behind.snapshot_behind(name, is_wanted)
        }

        fn optimal_io(&self) -> Option<u32> {
            self.behind.optimal_io()
        }

        fn compare_unit(&self) -> Option<u32> {
            self.behind.compare_unit()
        }

        fn writes_same(&self) -> bool {
            self.behind.writes_same()
        }

        fn elsewhere(&self) -> Option<crate::Elsewhere> {
            self.behind.elsewhere()
        }

        fn gateways(&self) -> alloc::vec::Vec<u64> {
            self.behind.gateways()
        }

        fn has_data_in_memory(&self) -> bool {
            self.behind.has_data_in_memory()
        }

        fn hold_back(&self) {
            self.behind.hold_back();
        }

        fn let_on(&self) {
            self.behind.let_on();
        }

        fn is_held_back(&self) -> bool {
            self.behind.is_held_back()
        }

        fn begin_finish(&self) {
            self.behind.begin_finish();
        }

        fn finish(&self) -> Result<(), crate::Error> {
            self.behind.finish()
        }

        fn expect_read(&self, offset: u64, length: u32) {
            self.behind.expect_read(offset, length);
        }

        fn expect_write(&self, offset: u64, length: u32) {
            self.behind.expect_write(offset, length);
        }
    };
}
pub(crate) use behind;

/// `readonly`: refuses every change.
#[derive(Debug)]
pub struct ReadOnly {
    behind: Arc<dyn Store>,
}

impl ReadOnly {
    /// In front of `behind`.
    pub fn new(behind: Arc<dyn Store>) -> Self {
        Self { behind }
    }
}

impl Store for ReadOnly {
    fn geometry(&self) -> Geometry {
        Geometry {
            read_only: true,
            discard_granularity: None,
            anchors: false,
            ..self.behind.geometry()
        }
    }

    fn submit(&self, op: &Op) -> Submitted {
        match self.geometry().check(op) {
            Ok(()) => self.behind.submit(op),
            Err(error) => Submitted::Done(Outcome::Failed(error)),
        }
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        self.behind.complete(op, io, result)
    }

    fn give_up(&self, op: &Op, io: &Io) {
        self.behind.give_up(op, io);
    }

    // Its file cannot get another size: a change of the content, too, if it becomes smaller.
    fn file(&self) -> Option<FileId> {
        None
    }

    fn files(&self) -> alloc::vec::Vec<FileId> {
        self.behind.files()
    }

    fn health(&self, file: FileId) -> Option<Arc<crate::health::Health>> {
        self.behind.health(file)
    }

    fn has_data_in_memory(&self) -> bool {
        self.behind.has_data_in_memory()
    }
}

/// `discard=off`: space is never given back. A Discard or an Anchor, which nobody asks for who
/// reads the geometry, is a Zero.
#[derive(Debug)]
pub struct NoDiscard {
    behind: Arc<dyn Store>,
}

impl NoDiscard {
    /// In front of `behind`.
    pub fn new(behind: Arc<dyn Store>) -> Self {
        Self { behind }
    }
}

/// What the store behind is asked for in place of `op`.
fn kept(op: &Op) -> Option<Op> {
    match *op {
        Op::Clear { offset, length, leave: Space::Deallocated | Space::Anchored } => {
            Some(Op::Clear { offset, length, leave: Space::Mapped })
        }
        _ => None,
    }
}

impl Store for NoDiscard {
    fn geometry(&self) -> Geometry {
        Geometry { discard_granularity: None, anchors: false, ..self.behind.geometry() }
    }

    fn submit(&self, op: &Op) -> Submitted {
        self.behind.submit(kept(op).as_ref().unwrap_or(op))
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        self.behind.complete(kept(op).as_ref().unwrap_or(op), io, result)
    }

    behind!();
}
