// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An image as a store: what `crates/rbd` is over the library.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use buf::Slice;
use store::Error;
use store::Geometry;
use store::Io;
use store::IoResult;
use store::Op;
use store::Outcome;
use store::Store;
use store::Submitted;
use store::foreign;

use crate::elsewhere::Counter;

/// What a store knows of its image without asking.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    silent: AtomicBool,
    /// What was heard of its size, bytes; 0: nothing.
    bytes: AtomicU64,
    /// What hosts see of it, bytes.
    served: AtomicU64,
}

impl Sight {
    /// Gives what was there before.
    pub(super) fn set_silent(&self, silent: bool) -> bool {
        self.silent.swap(silent, Ordering::AcqRel)
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    /// True if hosts see less.
    pub(super) fn hear(&self, bytes: u64) -> bool {
        self.bytes.store(bytes, Ordering::Release);
        self.served.load(Ordering::Acquire) < bytes
    }

    /// What is served at the most, as far as was heard.
    pub(super) fn known(&self) -> u64 {
        self.bytes().unwrap_or(u64::MAX).min(self.served.load(Ordering::Acquire))
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.bytes.load(Ordering::Acquire)).filter(|bytes| *bytes > 0)
    }
}

/// An image as a store.
#[derive(Debug)]
pub(crate) struct ImageStore {
    counter: Counter,
    disk: usize,
    /// All but the size.
    geometry: Geometry,
    sight: Arc<Sight>,
    compare_unit: Option<u32>,
}

/// The step of a write that makes it last.
const FLUSH: u64 = 1;

impl ImageStore {
    pub(crate) fn new(
        counter: Counter,
        disk: usize,
        geometry: Geometry,
        sight: Arc<Sight>,
        object: u64,
    ) -> Self {
        sight.served.store(geometry.bytes, Ordering::Release);
        let half = u32::try_from(object / 2).ok();
        let compare_unit = half.filter(|_| !geometry.volatile_cache);
        Self { counter, disk, geometry, sight, compare_unit }
    }

    /// Whether it reaches behind the end that was heard of.
    fn is_behind(&self, op: &Op) -> bool {
        let (offset, length) = op.range();
        self.sight.bytes().is_some_and(|end| offset.saturating_add(length) > end)
    }
}

impl Store for ImageStore {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.sight.served.load(Ordering::Acquire), ..self.geometry.clone() }
    }

    fn set_bytes(&self, bytes: u64) -> bool {
        self.sight.served.store(bytes, Ordering::Release);
        true
    }

    fn compare_unit(&self) -> Option<u32> {
        self.compare_unit
    }

    fn writes_same(&self) -> bool {
        true
    }

    fn bytes_behind(&self) -> Option<u64> {
        self.sight.bytes()
    }

    fn submit(&self, op: &Op) -> Submitted {
        if let Err(error) = self.geometry().check(op) {
            return Submitted::Done(Outcome::Failed(error));
        }
        if self.sight.is_silent() {
            return Submitted::Done(Outcome::Failed(Error::Silent));
        }
        // The client would cut off what it cannot write, and say that all is well.
        if self.is_behind(op) {
            return Submitted::Done(Outcome::Failed(Error::Range));
        }
        if matches!(op, Op::CompareAndWrite { .. }) && self.compare_unit.is_none() {
            return Submitted::Done(Outcome::Failed(Error::Unsupported));
        }
        match (op, op.range().1) {
            (Op::Read { .. }, 0) => Submitted::Done(Outcome::Data(Slice::empty())),
            (Op::Flush, _) | (_, 1..) => self.counter.ask(self.disk, op.clone(), 0),
            (_, 0) => Submitted::Done(Outcome::Done),
        }
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        let first = matches!(io, Io::Foreign(errand) if errand.step() != FLUSH);
        let lasts = !self.geometry.volatile_cache || !matches!(op, Op::Write { durable: true, .. });
        match foreign::ended(result) {
            // The end may have moved meanwhile, and the client cut off what is behind it.
            Submitted::Done(Outcome::Done) if self.is_behind(op) => {
                Submitted::Done(Outcome::Failed(Error::Range))
            }
            Submitted::Done(Outcome::Done) if first && !lasts => {
                self.counter.ask(self.disk, Op::Flush, FLUSH)
            }
            ended => ended,
        }
    }
}
