// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `delay=TIME`: operations wait before they begin, as a slow disk or a long way has it.

use super::behind;
use crate::{FilterIndex, Io, IoResult, Op, Store, Submitted};
use alloc::sync::Arc;
use core::time::Duration;

/// Which operations wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the spelling has these
pub enum Delayed {
    /// Every one.
    All,
    /// Reads.
    Reads,
    /// Everything that changes the content, and Flush.
    Writes,
}

/// A wait before operations.
#[derive(Debug)]
pub struct Delay {
    behind: Arc<dyn Store>,
    filter: FilterIndex,
    which: Delayed,
    length: Duration,
}

impl Delay {
    /// In front of `behind`: `which` wait for `length`.
    pub fn new(
        behind: Arc<dyn Store>,
        filter: FilterIndex,
        which: Delayed,
        length: Duration,
    ) -> Self {
        Self { behind, filter, which, length }
    }
}

impl Delayed {
    fn includes(self, op: &Op) -> bool {
        match self {
            Self::All => true,
            Self::Reads => op.reads(),
            Self::Writes => op.changes() || matches!(op, Op::Flush),
        }
    }
}

impl Store for Delay {
    fn submit(&self, op: &Op) -> Submitted {
        if self.which.includes(op) {
            return Submitted::Io(Io::Pause { filter: self.filter, length: self.length, turn: 0 });
        }
        self.behind.submit(op)
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        match io {
            Io::Pause { filter, .. } if *filter == self.filter => self.behind.submit(op),
            _ => self.behind.complete(op, io, result),
        }
    }

    behind!(geometry);
}
