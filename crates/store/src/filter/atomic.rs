// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `atomic`: writes that are whole for everybody.

use super::behind;
use crate::limits::ATOMIC_MAX;
use crate::{Geometry, Io, IoResult, Op, Store, Submitted};
use alloc::sync::Arc;

/// In front of a store that forgets all when the process ends, so that nobody can find a part of a
/// write afterwards.
#[derive(Debug)]
pub struct Atomic {
    behind: Arc<dyn Store>,
}

impl Atomic {
    /// In front of `behind`.
    pub fn new(behind: Arc<dyn Store>) -> Self {
        Self { behind }
    }
}

impl Store for Atomic {
    fn geometry(&self) -> Geometry {
        self.behind.geometry()
    }

    fn atomic_max(&self) -> Option<u32> {
        Some(ATOMIC_MAX)
    }

    fn submit(&self, op: &Op) -> Submitted {
        self.behind.submit(op)
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        self.behind.complete(op, io, result)
    }

    fn give_up(&self, op: &Op, io: &Io) {
        self.behind.give_up(op, io);
    }

    behind!(but_atomic_max);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;
    use crate::memory::Memory;
    use buf::Slice;

    #[test]
    fn a_read_keeps_its_bytes() {
        let store = Atomic::new(Arc::new(Memory::new(4096).expect("room")));
        let read = || match store.submit(&Op::Read { offset: 0, length: 512 }) {
            Submitted::Done(Outcome::Data(data)) => data,
            other => panic!("{other:?}"),
        };
        let before = read();
        let data = Slice::from(alloc::vec![7; 512]);
        store.submit(&Op::Write { offset: 0, data, durable: false });
        assert!(before.to_vec() == [0; 512] && read().to_vec() == [7; 512]);
        assert_eq!(store.atomic_max(), Some(ATOMIC_MAX));
    }
}
