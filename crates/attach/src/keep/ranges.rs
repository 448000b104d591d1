// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was written last to each byte: ranges that do not overlap, of writes that may be held by
//! several of them. No I/O.

use std::collections::BTreeMap;
use std::ops::Range;

use buf::Slice;
use initiator::Operation;
use initiator::Space;
use slab::Slab;

use super::Stamp;

/// What was done to a range.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// It was written; as long as the range.
    Data(Slice),
    /// It was zeroed.
    Zero(Space),
    /// Its content is of no interest.
    Discard,
}

impl Content {
    /// What it is to the disk once more; `skip` bytes of it are left out, and `length` follow.
    fn operation(&self, start: u64, skip: usize, length: u64) -> Option<Operation> {
        Some(match self {
            Self::Data(data) => {
                let end = skip.checked_add(usize::try_from(length).ok()?)?;
                Operation::write(start, data.part(skip..end)?)
            }
            Self::Zero(space) => {
                let mut zero = Operation::zero(start, length);
                if let Operation::Zero { space: to, .. } = &mut zero {
                    *to = *space;
                }
                zero
            }
            Self::Discard => Operation::discard(start, length),
        })
    }
}

/// A write, of which something is still the last word.
#[derive(Debug)]
struct Record {
    start: u64,
    content: Content,
    stamp: Stamp,
    /// Ranges that show it.
    pieces: usize,
    cost: u64,
}

/// A range, by its first byte.
#[derive(Debug)]
struct Piece {
    end: u64,
    record: usize,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    pieces: BTreeMap<u64, Piece>,
    records: Slab<Record>,
    /// Of all records.
    cost: u64,
}

impl Ranges {
    /// `content` is what `range` holds from now on. It takes `cost` as long as a byte of it is the
    /// last word: memory is held as a whole.
    pub(super) fn insert(&mut self, range: Range<u64>, content: Content, stamp: Stamp, cost: u64) {
        if range.is_empty() {
            return;
        }
        self.remove(range.clone());
        let record = Record { start: range.start, content, stamp, pieces: 1, cost };
        let record = self.records.insert(record);
        self.cost += cost;
        self.pieces.insert(range.start, Piece { end: range.end, record });
    }

    /// Nothing is known of `range` any more.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if let Some((_, before)) = self.pieces.range_mut(..range.start).next_back()
            && before.end > range.start
        {
            let tail = std::mem::replace(&mut before.end, range.start);
            if tail > range.end {
                let record = before.record;
                if let Some(record) = self.records.get_mut(record) {
                    record.pieces += 1;
                }
                self.pieces.insert(range.end, Piece { end: tail, record });
            }
        }
        while let Some((&start, _)) = self.pieces.range(range.clone()).next() {
            let Some(piece) = self.pieces.remove(&start) else { return };
            if piece.end > range.end {
                self.pieces.insert(range.end, piece);
            } else {
                drop_piece(&mut self.records, &mut self.cost, piece.record);
            }
        }
    }

    /// What was written until `stamp` need not be known any more.
    pub(super) fn forget(&mut self, stamp: Stamp) {
        let Self { pieces, records, cost } = self;
        pieces.retain(|_, piece| {
            let stays = records.get(piece.record).is_some_and(|record| record.stamp > stamp);
            if !stays {
                drop_piece(records, cost, piece.record);
            }
            stays
        });
    }

    /// The first range at or behind `from`, written once more, and where it ends.
    pub(super) fn next(&self, from: u64) -> Option<(Operation, u64)> {
        self.pieces.range(from..).find_map(|(&start, piece)| {
            let record = self.records.get(piece.record)?;
            let skip = usize::try_from(start - record.start).ok()?;
            Some((record.content.operation(start, skip, piece.end - start)?, piece.end))
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) const fn cost(&self) -> u64 {
        self.cost
    }

    /// Bytes that the ranges have.
    pub(super) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(start, piece)| piece.end - start).sum()
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut pieces = std::collections::HashMap::<usize, usize>::new();
        let mut at = 0;
        for (start, piece) in &self.pieces {
            assert!(at <= *start && *start < piece.end);
            at = piece.end;
            *pieces.entry(piece.record).or_default() += 1;
        }
        assert_eq!(pieces.len(), self.records.len());
        let cost = self.records.iter().map(|(_, record)| record.cost).sum::<u64>();
        assert_eq!(self.cost, cost);
        for (number, record) in &self.records {
            assert_eq!(pieces.get(&number), Some(&record.pieces));
        }
    }
}

fn drop_piece(records: &mut Slab<Record>, cost: &mut u64, number: usize) {
    let Some(record) = records.get_mut(number) else { return };
    record.pieces -= 1;
    if record.pieces == 0 {
        *cost -= record.cost;
        records.remove(number);
    }
}
