// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `error=...`: operations fail on purpose, for tests of what hosts do then. Nothing of an
//! operation that fails here reaches the store behind.

use super::behind;
use crate::{Error, Io, IoResult, Op, Outcome, Store, Submitted};
use alloc::sync::Arc;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the spelling has these
pub enum Fault {
    /// Nothing that is to be read, or compared, is readable.
    Read,
    /// A change is not written.
    Write,
    /// A change finds no space.
    Space,
    /// A Flush fails.
    Flush,
}

/// When it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the spelling has these
pub enum When {
    /// Every `n`-th time, counted over all initiators; 1: always.
    Every(u64),
    /// If the operation touches one of these bytes.
    Within {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
}

/// A store that fails on purpose.
#[derive(Debug)]
pub struct Failing {
    behind: Arc<dyn Store>,
    fault: Fault,
    when: When,
    seen: AtomicU64,
}

impl Failing {
    /// In front of `behind`.
    pub fn new(behind: Arc<dyn Store>, fault: Fault, when: When) -> Self {
        Self { behind, fault, when, seen: AtomicU64::new(0) }
    }

    fn fails(&self, op: &Op) -> bool {
        let concerned = match self.fault {
            Fault::Read => op.reads(),
            Fault::Write | Fault::Space => op.changes(),
            Fault::Flush => matches!(op, Op::Flush),
        };
        concerned
            && match self.when {
                When::Every(n) => {
                    let before = self.seen.fetch_add(1, Ordering::Relaxed);
                    before.wrapping_add(1).is_multiple_of(n.max(1))
                }
                When::Within { offset, length } => {
                    let (from, long) = op.range();
                    from < offset.saturating_add(length) && offset < from.saturating_add(long)
                }
            }
    }
}

impl Store for Failing {
    fn submit(&self, op: &Op) -> Submitted {
        if self.fails(op) {
            return Submitted::Done(Outcome::Failed(match self.fault {
                Fault::Read => Error::Read,
                Fault::Write | Fault::Flush => Error::Write,
                Fault::Space => Error::Space,
            }));
        }
        self.behind.submit(op)
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        self.behind.complete(op, io, result)
    }

    behind!(geometry);
}
