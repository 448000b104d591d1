// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `physical=SIZE`: another physical block size than the store has by itself.

use super::behind;
use crate::{Geometry, Io, IoResult, Op, Store, Submitted};
use alloc::sync::Arc;

/// Shows hosts another physical block size.
#[derive(Debug)]
pub struct Physical {
    behind: Arc<dyn Store>,
    bytes: u32,
}

impl Physical {
    /// In front of `behind`; `bytes`: a power of two, at least 512.
    pub fn new(behind: Arc<dyn Store>, bytes: u32) -> Self {
        debug_assert!(bytes.is_power_of_two() && bytes >= 512, "checked by the parser");
        Self { behind, bytes }
    }
}

impl Store for Physical {
    fn geometry(&self) -> Geometry {
        Geometry { physical_block: self.bytes, ..self.behind.geometry() }
    }

    fn submit(&self, op: &Op) -> Submitted {
        self.behind.submit(op)
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        self.behind.complete(op, io, result)
    }

    behind!();
}
