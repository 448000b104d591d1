// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `log`: tells of every operation when it is over.

use super::behind;
use crate::{Io, IoResult, Op, Outcome, Store, Submitted};
use alloc::sync::Arc;
use core::fmt;

/// Who writes down what happens.
pub trait Journal: Send + Sync + fmt::Debug {
    /// `op` has ended.
    fn ended(&self, op: &Op, outcome: &Outcome);
}

/// A store whose operations are written down.
#[derive(Debug)]
pub struct Log {
    behind: Arc<dyn Store>,
    journal: Arc<dyn Journal>,
}

impl Log {
    /// In front of `behind`.
    pub fn new(behind: Arc<dyn Store>, journal: Arc<dyn Journal>) -> Self {
        Self { behind, journal }
    }

    fn seen(&self, op: &Op, submitted: Submitted) -> Submitted {
        if let Submitted::Done(outcome) = &submitted {
            self.journal.ended(op, outcome);
        }
        submitted
    }
}

impl Store for Log {
    fn submit(&self, op: &Op) -> Submitted {
        self.seen(op, self.behind.submit(op))
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        self.seen(op, self.behind.complete(op, io, result))
    }

    behind!(geometry);
}
