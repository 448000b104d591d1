// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an initiator names of its memory over iSER, and what a target does with the names
//! (RFC 7145 §7.3, §8.3).

use std::collections::BTreeMap;
use std::collections::VecDeque;

use wire::iscsi::Itt;
use wire::iser::Advertised;
use wire::iwarp::ReadRequest;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

use super::Judgement;
use super::demand;

/// So many names that have ended are remembered: more than a lie chooses from.
const ENDED_MAX: usize = 16;

/// What is known of one connection.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    names: BTreeMap<u32, Name>,
    /// The newest last, each with whether the target could read it.
    ended: VecDeque<(Stag, bool)>,
    /// RDMA Reads under way, the oldest first.
    reads: VecDeque<Read>,
    /// As many as that, where it is known.
    pub(crate) depth: Option<usize>,
}

/// Memory that the target has a name for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    pub(super) itt: Itt,
    pub(crate) base: u64,
    /// It has no more.
    pub(crate) length: u32,
    /// The target may read it.
    pub(crate) is_source: bool,
}

#[derive(Debug)]
struct Read {
    itt: Itt,
    left: u32,
}

impl Memory {
    /// A command has gone out that names `memory`, for as many bytes at most.
    pub(super) fn name(&mut self, itt: Itt, memory: Advertised, length: u32, is_source: bool) {
        let base = memory.base.0;
        self.names.insert(memory.stag.0, Name { itt, base, length, is_source });
    }

    /// The target writes bytes; which command they are of, and where they are in its data.
    pub(super) fn write(
        &self,
        (stag, offset): (Stag, TaggedOffset),
        length: usize,
    ) -> Result<(Itt, u32), String> {
        let name = self.names.get(&stag.0).ok_or("a write to memory that has no such name")?;
        demand(!name.is_source, || "a write to memory that may be read".to_owned())?;
        Ok((name.itt, name.within(offset, length)?))
    }

    /// The target asks for bytes; which command they are of.
    pub(super) fn ask(&mut self, request: &ReadRequest) -> Result<Itt, String> {
        let name = self.names.get(&request.source_stag.0);
        let name = name.ok_or("a read of memory that has no such name")?;
        demand(name.is_source, || "a read of memory that may be written to".to_owned())?;
        let length = usize::try_from(request.length).unwrap_or(usize::MAX);
        name.within(request.source_offset, length)?;
        self.reads.push_back(Read { itt: name.itt, left: request.length });
        let (count, depth) = (self.reads.len(), self.depth.unwrap_or(usize::MAX));
        demand(count <= depth, || format!("{count} RDMA Reads at once, served are {depth}"))?;
        Ok(name.itt)
    }

    /// The initiator answers the oldest RDMA Read, wholly with `last`.
    pub(super) fn answer(&mut self, length: usize, last: bool) -> Result<(Itt, u32), String> {
        let read = self.reads.front_mut().ok_or("data that nobody asked for")?;
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let left = read.left.checked_sub(length);
        read.left = left.ok_or("more data than was asked for")?;
        let (itt, left) = (read.itt, read.left);
        demand(last == (left == 0), || format!("{left} bytes are left of an RDMA Read"))?;
        if last {
            self.reads.pop_front();
        }
        Ok((itt, length))
    }

    /// The target tells the end of a command: it names nothing of it any more, and has all that it
    /// has asked for if it `is_good`.
    pub(super) fn end(&mut self, itt: Itt, is_good: bool) -> Judgement {
        let of = self.names.iter().filter(|(_, name)| name.itt == itt);
        let of: Vec<(u32, bool)> = of.map(|(stag, name)| (*stag, name.is_source)).collect();
        for (stag, is_source) in of {
            self.names.remove(&stag);
            self.ended.push_back((Stag(stag), is_source));
        }
        while self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
        let is_owed = self.reads.iter().any(|read| read.itt == itt);
        demand(!is_good || !is_owed, || "a good status before all data has come".to_owned())
    }

    /// What a name stands for.
    pub(crate) fn of(&self, stag: Stag) -> Option<Name> {
        self.names.get(&stag.0).copied()
    }

    /// Names that have ended, of memory that the target could read or could not, and that nothing
    /// else has now.
    pub(crate) fn ended(&self, was_source: bool) -> impl Iterator<Item = Stag> {
        let ended = self.ended.iter().filter(move |(_, is_source)| *is_source == was_source);
        ended.map(|(stag, _)| *stag).filter(|stag| !self.names.contains_key(&stag.0))
    }
}

impl Name {
    /// Where bytes are in it.
    fn within(&self, offset: TaggedOffset, length: usize) -> Result<u32, String> {
        let at = offset.0.checked_sub(self.base).and_then(|at| u32::try_from(at).ok());
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let fits = |at: &u32| at.checked_add(length).is_some_and(|end| end <= self.length);
        at.filter(fits).ok_or_else(|| format!("outside of the {} bytes that it names", self.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x1_0000;

    fn named(is_source: bool) -> Memory {
        let mut memory = Memory::default();
        let named = Advertised { stag: Stag(7), base: TaggedOffset(BASE) };
        memory.name(Itt(1), named, 100, is_source);
        memory
    }

    fn asks(stag: u32, offset: u64, length: u32) -> ReadRequest {
        let (source_stag, source_offset) = (Stag(stag), TaggedOffset(offset));
        let (sink_stag, sink_offset) = (Stag(9), TaggedOffset(0));
        ReadRequest { sink_stag, sink_offset, length, source_stag, source_offset }
    }

    #[test]
    fn a_name_is_good_for_its_memory_and_right_until_the_status() {
        let mut memory = named(false);
        let write = |memory: &Memory, stag, offset, length| {
            memory.write((Stag(stag), TaggedOffset(offset)), length)
        };
        assert_eq!(write(&memory, 7, BASE + 40, 60), Ok((Itt(1), 40)));
        for (stag, offset, length) in
            [(8, BASE, 1), (7, BASE - 1, 1), (7, BASE + 40, 61), (7, u64::MAX, 1)]
        {
            assert!(write(&memory, stag, offset, length).is_err(), "{stag} {offset} {length}");
        }
        assert!(memory.ask(&asks(7, BASE, 1)).is_err(), "it may be written to");
        assert_eq!(memory.end(Itt(1), true), Ok(()));
        assert!(write(&memory, 7, BASE, 1).is_err());
        assert_eq!(memory.ended(false).collect::<Vec<_>>(), [Stag(7)]);
        assert_eq!(memory.ended(true).count(), 0);
    }

    #[test]
    fn reads_are_answered_in_order_and_before_a_good_status() {
        let mut memory = named(true);
        memory.depth = Some(2);
        assert!(memory.write((Stag(7), TaggedOffset(BASE)), 1).is_err(), "it may be read");
        assert_eq!(memory.ask(&asks(7, BASE, 60)), Ok(Itt(1)));
        assert_eq!(memory.ask(&asks(7, BASE + 60, 40)), Ok(Itt(1)));
        assert!(memory.ask(&asks(7, BASE, 0)).is_err(), "one too many");
        memory.reads.pop_back();
        assert_eq!(memory.answer(50, false), Ok((Itt(1), 50)));
        assert!(memory.answer(11, false).is_err(), "more than was asked for");
        assert_eq!(memory.answer(10, true), Ok((Itt(1), 10)));
        assert!(memory.answer(39, true).is_err(), "less than that");
        let mut memory = named(true);
        assert_eq!(memory.ask(&asks(7, BASE, 100)), Ok(Itt(1)));
        assert!(memory.end(Itt(1), true).is_err());
        let mut memory = named(true);
        assert_eq!(memory.ask(&asks(7, BASE, 100)), Ok(Itt(1)));
        assert_eq!(memory.end(Itt(1), false), Ok(()), "one that failed needs no data");
    }
}
