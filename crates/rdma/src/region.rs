// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that peers may reach by STags (RFC 5040 §8, RFC 5041 §7).
//!
//! What kind of memory is advertised says what peers may do: a buffer is written to, a slice is
//! read, and nothing is both.

use crate::filled::Filled;
use crate::limits::REGIONS_MAX;
use buf::Buf;
use buf::Slice;
use crc::Crc32c;
use slots::Id;
use slots::Slots;
use thiserror::Error;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

/// The stream, or protection domain, that an STag is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// Memory and what peers may do with it.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // a right each
pub enum Memory {
    /// They write to it: the sink of RDMA Writes, and of our own RDMA Reads.
    Sink(Buf),
    /// They read it: the source of their RDMA Reads.
    Source(Slice),
}

impl Memory {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Sink(buf) => buf.len(),
            Self::Source(slice) => slice.len(),
        }
    }
}

/// Why a peer may not reach a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[expect(clippy::exhaustive_enums)] // each has its causes
pub enum Denied {
    /// Nothing is advertised by this name.
    #[error("an STag that names nothing")]
    Stag,
    /// It is another stream's.
    #[error("an STag of another stream")]
    Stream,
    /// Reading where one may write, or the reverse.
    #[error("an STag without that right")]
    Access,
    /// Beyond the end of all offsets.
    #[error("an offset that wraps")]
    Wrap,
    /// Not within the memory.
    #[error("bytes outside of the STag's memory")]
    Bounds,
}

/// Where bytes go, or come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Who asks.
    pub stream: StreamId,
    /// The memory.
    pub stag: Stag,
    /// The first byte.
    pub offset: TaggedOffset,
}

/// What has lost its STag.
#[derive(Debug)]
pub struct Withdrawn {
    /// The memory.
    pub memory: Memory,
    /// Bytes from its first one on that the peer has had put into it, without a gap.
    pub filled: u64,
}

/// The table of STags. One table may serve many streams: each STag is good for its own only. What
/// the STags of a table look like follows from its seed: who mixes up two connections finds nothing
/// by one that is of the other.
#[derive(Debug)]
pub struct Regions {
    slots: Slots<Handle, Region>,
    /// What STags differ in from handles.
    mask: u32,
    /// Bytes that were placed in all.
    placed: u64,
}

#[derive(Debug)]
struct Region {
    stream: StreamId,
    base: TaggedOffset,
    memory: Memory,
    /// Bytes that the peer has had put into it, or asked for.
    moved: u64,
    filled: Filled,
}

impl Regions {
    /// Without any. `seed`: a number that no other table has, and no peer guesses.
    #[must_use]
    pub const fn new(seed: u32) -> Self {
        Self { slots: Slots::new(REGIONS_MAX), mask: seed | UNUSED, placed: 0 }
    }

    /// Gives memory a name that a stream's peer may use. Its first byte has offset `base`.
    ///
    /// # Errors
    /// The memory, if the table is full or the last byte would have no offset.
    pub fn advertise(
        &mut self,
        stream: StreamId,
        base: TaggedOffset,
        memory: Memory,
    ) -> Result<Stag, Memory> {
        let has_offsets = u64::try_from(memory.len()).is_ok_and(|len| wraps(base, len).is_none());
        if self.slots.next_id().is_none() || !has_offsets {
            return Err(memory);
        }
        let Handle { index, key } =
            self.slots.insert(Region { stream, base, memory, moved: 0, filled: Filled::default() });
        Ok(Stag((index << KEY_BITS | key) ^ self.mask))
    }

    /// Ends an STag: from now on nobody reaches the memory, which is given back.
    pub fn invalidate(&mut self, stag: Stag) -> Option<Withdrawn> {
        let Region { memory, filled, .. } = self.slots.remove(self.handle(stag)?)?;
        let filled = u64::try_from(filled.whole()).unwrap_or(u64::MAX);
        Some(Withdrawn { memory, filled })
    }

    /// As `invalidate`, on behalf of a stream's peer (RFC 5040 §5.3).
    ///
    /// # Errors
    /// It names nothing of this stream.
    pub fn invalidate_for(&mut self, stream: StreamId, stag: Stag) -> Result<Withdrawn, Denied> {
        self.find(stream, stag)?;
        self.invalidate(stag).ok_or(Denied::Stag)
    }

    /// Ends all STags of a stream.
    pub fn invalidate_all(&mut self, stream: StreamId) {
        let all = self.slots.iter().filter(|(_, region)| region.stream == stream);
        let handles: alloc::vec::Vec<Handle> = all.map(|(handle, _)| handle).collect();
        for handle in handles {
            self.slots.discard(handle);
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.values().count()
    }

    /// Bytes of the memory that they name.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.values().map(|region| region.memory.len()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts bytes where a peer says, all of them or none. No bytes may go anywhere
    /// (RFC 5040 §5.1).
    ///
    /// # Errors
    /// Why they may not.
    pub fn place(&mut self, place: Place, bytes: &[u8]) -> Result<(), Denied> {
        self.place_counted(place, bytes, None)
    }

    /// As `place`; the bytes are taken into `crc` as they are copied, if there is one.
    ///
    /// # Errors
    /// Why they may not.
    pub fn place_counted(
        &mut self,
        place: Place,
        bytes: &[u8],
        crc: Option<&mut Crc32c>,
    ) -> Result<(), Denied> {
        let range = self.room(place, bytes.len())?;
        let region = self.handle(place.stag).and_then(|handle| self.slots.get_mut(handle));
        let Some(Region { memory: Memory::Sink(buf), moved, filled, .. }) = region else {
            return Ok(());
        };
        let to = buf.get_mut(range.clone()).ok_or(Denied::Bounds)?;
        match crc {
            Some(crc) => crc.copy_update(to, bytes),
            None => buf::copy(to, bytes),
        }
        filled.note(range);
        let count = u64::try_from(bytes.len()).unwrap_or_default();
        *moved = moved.saturating_add(count);
        self.placed = self.placed.saturating_add(count);
        Ok(())
    }

    /// Whether so many bytes could be placed.
    ///
    /// # Errors
    /// Why not.
    pub fn may_place(&self, place: Place, length: u32) -> Result<(), Denied> {
        self.room(place, usize::try_from(length).map_err(|_| Denied::Bounds)?).map(drop)
    }

    /// The bytes that a peer asks for. Nothing may be asked for anywhere (RFC 5040 §5.2).
    ///
    /// # Errors
    /// Why it may not have them.
    pub fn fetch(&mut self, place: Place, length: u32) -> Result<Slice, Denied> {
        if length == 0 {
            return Ok(Slice::empty());
        }
        let range = self.range(place, usize::try_from(length).map_err(|_| Denied::Bounds)?)?;
        let handle = self.handle(place.stag).ok_or(Denied::Stag)?;
        let region = self.slots.get_mut(handle).ok_or(Denied::Stag)?;
        match &region.memory {
            Memory::Source(slice) => {
                let part = slice.part(range).ok_or(Denied::Bounds)?;
                region.moved = region.moved.saturating_add(length.into());
                Ok(part)
            }
            Memory::Sink(_) => Err(Denied::Access),
        }
    }

    /// Bytes that a peer has had put into this memory, or asked for.
    #[must_use]
    pub fn moved(&self, stag: Stag) -> u64 {
        let region = self.handle(stag).and_then(|handle| self.slots.get(handle));
        region.map_or(0, |region| region.moved)
    }

    /// Bytes that were placed in all.
    #[must_use]
    pub const fn bytes_placed(&self) -> u64 {
        self.placed
    }

    /// None: it is none of this table.
    const fn handle(&self, stag: Stag) -> Option<Handle> {
        let bits = stag.0 ^ self.mask;
        if bits & UNUSED != 0 {
            return None;
        }
        Some(Handle { index: bits >> KEY_BITS, key: bits & ((1 << KEY_BITS) - 1) })
    }

    fn find(&self, stream: StreamId, stag: Stag) -> Result<&Region, Denied> {
        let handle = self.handle(stag).ok_or(Denied::Stag)?;
        let region = self.slots.get(handle).ok_or(Denied::Stag)?;
        if region.stream == stream { Ok(region) } else { Err(Denied::Stream) }
    }

    /// Where in its memory so many bytes go that a peer puts there. Nowhere, if there are none.
    fn room(&self, place: Place, len: usize) -> Result<core::ops::Range<usize>, Denied> {
        if len == 0 {
            return Ok(0..0);
        }
        let range = self.range(place, len)?;
        match self.find(place.stream, place.stag)?.memory {
            Memory::Sink(_) => Ok(range),
            Memory::Source(_) => Err(Denied::Access),
        }
    }

    /// Where in its memory a place is.
    fn range(&self, place: Place, len: usize) -> Result<core::ops::Range<usize>, Denied> {
        let region = self.find(place.stream, place.stag)?;
        let wide = u64::try_from(len).map_err(|_| Denied::Bounds)?;
        if let Some(denied) = wraps(place.offset, wide) {
            return Err(denied);
        }
        let start = place.offset.0.checked_sub(region.base.0).ok_or(Denied::Bounds)?;
        let start = usize::try_from(start).map_err(|_| Denied::Bounds)?;
        let end = start.checked_add(len).ok_or(Denied::Bounds)?;
        if end <= region.memory.len() { Ok(start..end) } else { Err(Denied::Bounds) }
    }
}

/// The last byte has an offset, or they wrap (RFC 5041 §5.1).
fn wraps(offset: TaggedOffset, length: u64) -> Option<Denied> {
    let last = offset.0.checked_add(length.saturating_sub(1));
    if last.is_none() { Some(Denied::Wrap) } else { None }
}

/// What an STag stands for: 24 bits name a slot, and 8 are the key, which is another one each time
/// that the slot is used again (RFC 5040 §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle {
    index: u32,
    key: u32,
}

const KEY_BITS: u32 = 8;

/// A bit that no slot has and every STag: none of them is zero, which some peers take for no STag.
const UNUSED: u32 = 1 << 31;

const _: () = assert!(REGIONS_MAX <= UNUSED >> KEY_BITS, "the index fits an STag");

impl Id for Handle {
    const GENERATION_BITS: u32 = KEY_BITS;

    fn new(index: u32, generation: u32) -> Self {
        Self { index, key: generation }
    }

    fn index(self) -> u32 {
        self.index
    }

    fn generation(self) -> u32 {
        self.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use buf::Pool;
    use proptest::prelude::*;

    const OURS: StreamId = StreamId(1);
    const BASE: TaggedOffset = TaggedOffset(0x1000);

    fn sink(len: usize) -> Memory {
        let mut buf = Pool::new(1 << 20).expect("memory").take(len).expect("room");
        buf.fill(0);
        Memory::Sink(buf)
    }

    fn source(len: usize) -> Memory {
        Memory::Source(Slice::from((0..=255).cycle().take(len).collect::<Vec<u8>>()))
    }

    fn at(stag: Stag, offset: u64) -> Place {
        Place { stream: OURS, stag, offset: TaggedOffset(offset) }
    }

    #[test]
    fn bytes_go_where_they_may() {
        let mut regions = Regions::new(0x1234_5678);
        let stag = regions.advertise(OURS, BASE, sink(16)).unwrap();
        assert_eq!(regions.place(at(stag, 0x1004), &[1, 2]), Ok(()));
        for (place, wanted) in [
            (at(stag, 0x0fff), Denied::Bounds),
            (at(stag, 0x100f), Denied::Bounds),
            (at(stag, u64::MAX), Denied::Wrap),
            (at(Stag(stag.0 ^ 1), 0x1000), Denied::Stag),
            (at(Stag(stag.0 + 0x100), 0x1000), Denied::Stag),
            (at(Stag(0), 0x1000), Denied::Stag),
            (Place { stream: StreamId(2), ..at(stag, 0x1000) }, Denied::Stream),
        ] {
            assert_eq!(regions.place(place, &[9, 9]), Err(wanted), "{place:?}");
            assert_eq!(regions.may_place(place, 2), Err(wanted), "{place:?}");
            assert_eq!(regions.place(place, &[]), Ok(()), "nothing goes anywhere");
            assert!(regions.fetch(place, 0).is_ok_and(|slice| slice.is_empty()));
        }
        assert_eq!(regions.fetch(at(stag, 0x1000), 2).unwrap_err(), Denied::Access);
        assert_eq!(regions.moved(stag), 2);
        let Some(Withdrawn { memory: Memory::Sink(buf), filled: 0 }) = regions.invalidate(stag)
        else {
            panic!("it was there, and the first bytes have not come")
        };
        assert_eq!(buf[..], [0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(regions.place(at(stag, 0x1004), &[1]), Err(Denied::Stag), "it has ended");
    }

    #[test]
    fn what_is_read_is_not_written() {
        let mut regions = Regions::new(0x1234_5678);
        let stag = regions.advertise(OURS, TaggedOffset(0), source(8)).unwrap();
        assert_eq!(regions.fetch(at(stag, 6), 2).unwrap().bytes(), [6, 7]);
        assert_eq!(regions.fetch(at(stag, 6), 3).unwrap_err(), Denied::Bounds);
        assert_eq!(regions.fetch(at(stag, 0), u32::MAX).unwrap_err(), Denied::Bounds);
        assert_eq!(regions.place(at(stag, 0), &[1]), Err(Denied::Access));
        assert_eq!(regions.may_place(at(stag, 0), 1), Err(Denied::Access));
    }

    #[test]
    fn the_last_offset_of_all_can_be_used() {
        let mut regions = Regions::new(0x1234_5678);
        let last = TaggedOffset(u64::MAX);
        assert!(regions.advertise(OURS, last, sink(2)).is_err());
        let stag = regions.advertise(OURS, last, sink(1)).unwrap();
        assert_eq!(regions.place(at(stag, u64::MAX), &[1]), Ok(()));
    }

    #[test]
    fn a_name_is_not_used_again_at_once() {
        let mut regions = Regions::new(0x1234_5678);
        let mut names: Vec<Stag> = Vec::new();
        for _ in 0..256 {
            let stag = regions.advertise(OURS, BASE, source(1)).unwrap();
            assert!(stag.0 != 0 && !names.contains(&stag));
            names.push(stag);
            assert!(regions.invalidate_for(StreamId(2), stag).is_err());
            assert!(regions.invalidate_for(OURS, stag).is_ok());
            assert!(regions.invalidate_for(OURS, stag).is_err());
        }
        assert!(regions.is_empty());
    }

    #[test]
    fn a_stream_takes_its_names_along() {
        let mut regions = Regions::new(0x1234_5678);
        let gone = regions.advertise(OURS, BASE, source(1)).unwrap();
        let stays = regions.advertise(StreamId(2), BASE, source(1)).unwrap();
        regions.invalidate_all(OURS);
        assert!(regions.invalidate(gone).is_none());
        assert!(regions.len() == 1 && regions.invalidate(stays).is_some());
    }

    proptest! {
        /// Covers: RDM-29/S.
        #[test]
        fn nothing_outside_of_a_sink_is_reached(
            stag: u32,
            is_right: bool,
            offset in prop_oneof![any::<u64>(), 0x0ff0..0x1030_u64],
            bytes in proptest::collection::vec(1..=255_u8, 0..40),
        ) {
            let mut regions = Regions::new(0x1234_5678);
            let ours = regions.advertise(OURS, BASE, sink(16)).unwrap();
            let other = regions.advertise(StreamId(2), BASE, sink(16)).unwrap();
            let place = at(if is_right { ours } else { Stag(stag) }, offset);
            let fits = place.stag == ours
                && offset >= 0x1000
                && offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= 0x1010);
            prop_assert_eq!(
                regions.place(place, &bytes).is_ok(),
                fits || bytes.is_empty()
            );
            let buf = |withdrawn: Option<Withdrawn>| match withdrawn.map(|all| all.memory) {
                Some(Memory::Sink(buf)) => buf,
                other => panic!("{other:?}"),
            };
            prop_assert!(buf(regions.invalidate(other)).iter().all(|byte| *byte == 0));
            let buf = buf(regions.invalidate(ours));
            let written = buf.iter().filter(|byte| **byte != 0).count();
            prop_assert_eq!(written, if fits { bytes.len() } else { 0 });
        }
    }
}
