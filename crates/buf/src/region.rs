// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that several threads and the kernel read and write at once.

use crate::Slice;
use crate::copy::{copy_raw, copy_raw_away, prefetch};
use crate::limits::{PAGE, STREAM_MIN};
use crate::map::Mapping;
use std::fmt;
use std::io;
use std::ptr;
use std::sync::Arc;

/// Zeroed, sparse memory of a fixed length: a RAM disk.
///
/// Takes no room for pages that were never written. Reads and writes that meet in time give each
/// byte from one or the other, as a disk does.
///
/// JUSTIFICATION: the bytes are treated as a device's memory. Other threads and the kernel read and
/// write them at any time, so no Rust reference to them is ever made and no value with an invariant
/// is ever read from them: whole ranges are copied through raw pointers, and what a copy has
/// brought out is private. The language has no copy that is defined to race; one relaxed atomic per
/// byte would be defined, copies at a fraction of the speed, and would not bind the kernel, which
/// copies as we do.
#[derive(Debug)]
pub struct Region {
    map: Mapping,
    len: usize,
}

/// The range is not within the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // says all there is to say
pub struct OutOfRange;

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the range is not within the region")
    }
}

impl std::error::Error for OutOfRange {}

/// Regions up to half of the machine's memory get huge pages. A larger one is meant to be sparse,
/// and with huge pages each written block could take two megabytes.
fn huge_pages_len_max() -> usize {
    let facts = rustix::system::sysinfo();
    let bytes = u64::from(facts.mem_unit).saturating_mul(facts.totalram);
    usize::try_from(bytes / 2).unwrap_or(usize::MAX)
}

impl Region {
    /// Reserves `len` bytes, all zero.
    ///
    /// # Errors
    /// The system's error if there is not so much address space; `InvalidInput` if no address can
    /// be so large.
    pub fn new(len: u64) -> io::Result<Arc<Self>> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let map = Mapping::new(len)?;
        if len <= huge_pages_len_max() {
            map.prefer_huge_pages();
        }
        Ok(Arc::new(Self { map, len }))
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part that others may change meanwhile; None if out of range.
    pub fn slice(self: &Arc<Self>, offset: u64, len: usize) -> Option<Slice> {
        let start = self.start(offset, len).ok()?;
        Some(Slice::of_region(Arc::clone(self), self.map.at(start), len))
    }

    /// Has the processor bring a range that will be written to soon into its caches, as far as
    /// that pays: a range out of bounds, or one that is streamed past them, it leaves alone.
    pub fn prefetch(&self, offset: u64, len: usize) {
        if let Ok(start) = self.start(offset, len)
            && len < STREAM_MIN
        {
            prefetch(self.map.at(start).as_ptr(), len);
        }
    }

    /// Copies the bytes from `offset` on into `to`.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), OutOfRange> {
        let start = self.start(offset, to.len())?;
        let from = self.map.at(start).as_ptr();
        // SAFETY: `start` checked the range; `to` is the caller's own and so not part of the
        // region.
        unsafe { copy_raw(to.as_mut_ptr(), from, to.len()) }
        Ok(())
    }

    /// Copies `from` to `offset`.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), OutOfRange> {
        let start = self.start(offset, from.len())?;
        // SAFETY: `start` checked the range; concurrent access is a device's (see the type).
        unsafe { copy_raw_away(self.map.at(start).as_ptr(), from.as_ptr(), from.len()) }
        Ok(())
    }

    /// Copies all bytes of `from` to `offset`; `from` may be a part of a region, even of this one.
    pub fn write_slice(&self, offset: u64, from: &Slice) -> Result<(), OutOfRange> {
        let start = self.start(offset, from.len())?;
        // SAFETY: `start` checked the range, the slice keeps its bytes alive, and the copy allows
        // overlap; concurrent access is a device's (see the type).
        unsafe { copy_raw_away(self.map.at(start).as_ptr(), from.as_ptr(), from.len()) }
        Ok(())
    }

    /// Writes zeroes: the pages stay.
    pub fn fill_zero(&self, offset: u64, len: u64) -> Result<(), OutOfRange> {
        let (start, len) = self.range(offset, len)?;
        self.zero(start, len);
        Ok(())
    }

    /// Gives whole pages back to the system and zeroes the rest: the range reads as zero
    /// afterwards.
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), OutOfRange> {
        let (start, len) = self.range(offset, len)?;
        let end = start + len;
        let first = start.next_multiple_of(PAGE);
        let last = end - end % PAGE;
        if first >= last {
            self.zero(start, len);
            return Ok(());
        }
        self.zero(start, first - start);
        self.zero(last, end - last);
        // SAFETY: no Rust reference to a region's bytes is ever made (see the type).
        if !unsafe { self.map.give_back(first, last - first) } {
            self.zero(first, last - first);
        }
        Ok(())
    }

    fn zero(&self, start: usize, len: usize) {
        debug_assert!(start + len <= self.len, "checked by the caller");
        // SAFETY: the range is within the region; concurrent access is a device's (see the type).
        unsafe { ptr::write_bytes(self.map.at(start).as_ptr(), 0, len) }
    }

    fn start(&self, offset: u64, len: usize) -> Result<usize, OutOfRange> {
        let start = usize::try_from(offset).map_err(|_| OutOfRange)?;
        let end = start.checked_add(len).ok_or(OutOfRange)?;
        if end <= self.len { Ok(start) } else { Err(OutOfRange) }
    }

    fn range(&self, offset: u64, len: u64) -> Result<(usize, usize), OutOfRange> {
        let len = usize::try_from(len).map_err(|_| OutOfRange)?;
        Ok((self.start(offset, len)?, len))
    }
}

#[cfg(test)]
mod tests {
    use super::{OutOfRange, Region};
    use proptest::prelude::*;

    const LEN: usize = 5 * 4096 + 100;

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, Vec<u8>),
        Copy { from: usize, to: usize, len: usize },
        Zero(usize, usize),
        Discard(usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = || (0..LEN + 50, 0..LEN);
        prop_oneof![
            (0..LEN + 50, 0..6000_usize, 1..255_u8)
                .prop_map(|(at, len, byte)| Step::Write(at, vec![byte; len])),
            (0..LEN, 0..LEN, 0..9000_usize).prop_map(|(from, to, len)| Step::Copy {
                from,
                to,
                len
            }),
            range().prop_map(|(at, len)| Step::Zero(at, len)),
            range().prop_map(|(at, len)| Step::Discard(at, len)),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_bytes_do(steps in proptest::collection::vec(step(), 1..40)) {
            let region = Region::new(LEN as u64).expect("room");
            let mut model = vec![0_u8; LEN];
            for step in steps {
                match step {
                    Step::Write(at, bytes) => {
                        let place = model.get_mut(at..at + bytes.len());
                        prop_assert_eq!(region.write(at as u64, &bytes).is_ok(), place.is_some());
                        if let Some(place) = place {
                            place.copy_from_slice(&bytes);
                        }
                    }
                    Step::Copy { from, to, len } => {
                        let Some(slice) = region.slice(from as u64, len) else {
                            prop_assert!(from + len > LEN);
                            continue;
                        };
                        let fits = to + len <= LEN;
                        prop_assert_eq!(region.write_slice(to as u64, &slice).is_ok(), fits);
                        if fits {
                            model.copy_within(from..from + len, to);
                        }
                    }
                    Step::Zero(at, len) => {
                        let place = model.get_mut(at..at + len);
                        let done = region.fill_zero(at as u64, len as u64);
                        prop_assert_eq!(done.is_ok(), place.is_some());
                        if let Some(place) = place {
                            place.fill(0);
                        }
                    }
                    Step::Discard(at, len) => {
                        let place = model.get_mut(at..at + len);
                        let done = region.discard(at as u64, len as u64);
                        prop_assert_eq!(done.is_ok(), place.is_some());
                        if let Some(place) = place {
                            place.fill(0);
                        }
                    }
                }
            }
            let mut bytes = vec![0xee; LEN];
            region.read(0, &mut bytes).expect("within");
            prop_assert!(bytes == model);
        }
    }

    #[test]
    fn ranges_that_overflow_are_refused() {
        let region = Region::new(4096).expect("room");
        assert_eq!(region.read(u64::MAX, &mut [0; 2]), Err(OutOfRange));
        assert_eq!(region.write(u64::MAX, &[0; 2]), Err(OutOfRange));
        assert_eq!(region.discard(1, u64::MAX), Err(OutOfRange));
        assert_eq!(region.fill_zero(4096, 1), Err(OutOfRange));
        assert_eq!(region.fill_zero(4096, 0), Ok(()));
        assert!(region.slice(4096, 1).is_none());
        assert!(region.slice(u64::MAX, usize::MAX).is_none());
    }

    #[test]
    fn a_prefetch_changes_nothing_and_goes_nowhere_else() {
        let region = Region::new(1 << 20).expect("room");
        region.write(4090, b"0123456789").expect("within");
        for (offset, len) in [(4090, 10), (0, 1 << 20), (1 << 20, 1), (u64::MAX, usize::MAX)] {
            region.prefetch(offset, len);
        }
        let mut bytes = [0; 12];
        region.read(4089, &mut bytes).expect("within");
        assert_eq!(&bytes, b"\x000123456789\0");
    }

    #[test]
    fn a_large_region_costs_nothing_until_written() {
        let region = Region::new(1 << 40).expect("address space");
        region.write((1 << 40) - 3, b"end").expect("within");
        let mut end = [0; 4];
        region.read((1 << 40) - 4, &mut end).expect("within");
        assert_eq!(&end, b"\0end");
        region.discard(0, 1 << 40).expect("within");
        region.read((1 << 40) - 4, &mut end).expect("within");
        assert_eq!(&end, b"\0\0\0\0");
        assert!(Region::new(u64::MAX).is_err());
        assert!(Region::new(0).is_ok_and(|region| region.is_empty()));
    }

    #[test]
    fn threads_see_whole_bytes_of_each_other() {
        let region = Region::new(1 << 16).expect("room");
        std::thread::scope(|scope| {
            for byte in 1..4_u8 {
                let region = &region;
                scope.spawn(move || {
                    for _ in 0..200 {
                        region.write(100, &[byte; 10_000]).expect("within");
                        let mut bytes = [0; 10_000];
                        region.read(100, &mut bytes).expect("within");
                        assert!(bytes.iter().all(|byte| (1..4).contains(byte)));
                    }
                });
            }
        });
    }
}
