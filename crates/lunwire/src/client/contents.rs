// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a load has written where, so that each read can be checked.

use anyhow::Result;
use anyhow::bail;

/// Most places of a load: a table of 9 bytes for each of them is kept.
pub(crate) const PLACES_MAX: u64 = 1 << 26;
/// A stamp: the byte of the disk where it belongs, and the number of its write.
const STAMP_BYTES: usize = 16;

/// The places of a disk that a load writes and reads, all of one length. A place is in use by one
/// request at a time, for else nobody could say what a read of it must give.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Number of the last write of each place; 0: what was there before, which nobody knows.
    written: Vec<u64>,
    busy: Vec<bool>,
    /// Bytes of a place.
    length: u64,
    writes: u64,
    /// Reads that were found right.
    pub(crate) checked: u64,
}

impl Contents {
    /// Nothing is known of `places`, at most [`PLACES_MAX`].
    pub(crate) fn new(places: u64, length: u32) -> Self {
        assert!(places <= PLACES_MAX, "the caller has looked");
        let places = index(places);
        let (written, busy) = (vec![0; places], vec![false; places]);
        Self { written, busy, length: length.into(), writes: 0, checked: 0 }
    }

    /// Takes the first place from `place` on that is not in use; None if all are.
    pub(crate) fn take(&mut self, place: u64) -> Option<u64> {
        let (before, after) = self.busy.split_at(index(place).min(self.busy.len()));
        let free = |flags: &[bool]| flags.iter().position(|busy| !busy);
        let found = free(after).map(|at| at + before.len()).or_else(|| free(before))?;
        self.busy[found] = true;
        Some(found as u64)
    }

    /// The place is no longer in use.
    pub(crate) fn release(&mut self, place: u64) {
        self.busy[index(place)] = false;
    }

    /// Stamps `data` as the next write of a place.
    pub(crate) fn stamp(&mut self, place: u64, data: &mut [u8]) {
        self.writes += 1;
        self.written[index(place)] = self.writes;
        for (stamp, at) in data.chunks_exact_mut(STAMP_BYTES).zip(self.offsets(place)) {
            let (offset, number) = stamp.split_at_mut(STAMP_BYTES / 2);
            offset.copy_from_slice(&at.to_be_bytes());
            number.copy_from_slice(&self.writes.to_be_bytes());
        }
    }

    /// Whether `data` is what the last write of the place put there.
    ///
    /// # Errors
    ///
    /// Where it is not, and what is there instead.
    pub(crate) fn check(&mut self, place: u64, data: &[u8]) -> Result<()> {
        let wanted = self.written[index(place)];
        if wanted == 0 {
            return Ok(());
        }
        if data.len() as u64 != self.length {
            bail!("{} bytes came instead of {}", data.len(), self.length);
        }
        for (stamp, at) in data.chunks_exact(STAMP_BYTES).zip(self.offsets(place)) {
            let (offset, number) = stamp.split_at(STAMP_BYTES / 2);
            if offset != at.to_be_bytes() || number != wanted.to_be_bytes() {
                let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, b| sum << 8 | u64::from(*b));
                let (offset, found) = (number(offset), number(stamp.split_at(STAMP_BYTES / 2).1));
                bail!(
                    "byte {at} of the disk does not hold what write {wanted} put there, but \
                     {offset:#x} {found:#x}, as write {found} puts it at byte {offset}"
                );
            }
        }
        self.checked += 1;
        Ok(())
    }

    /// The first place from `from` on that was written.
    pub(crate) fn next_written(&self, from: u64) -> Option<u64> {
        let rest = self.written.get(index(from)..)?;
        rest.iter().position(|number| *number != 0).map(|at| from + at as u64)
    }

    /// Where each stamp of a place belongs.
    fn offsets(&self, place: u64) -> impl Iterator<Item = u64> + use<> {
        (place * self.length..).step_by(STAMP_BYTES)
    }
}

fn index(place: u64) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_gives_the_last_write() {
        let mut contents = Contents::new(4, 1024);
        let (mut old, mut new) = (vec![0; 1024], vec![0; 1024]);
        contents.check(2, &old).unwrap();
        contents.stamp(2, &mut old);
        contents.check(2, &old).unwrap();
        contents.stamp(2, &mut new);
        contents.check(2, &new).unwrap();
        assert_eq!(contents.checked, 2);
        let said = contents.check(2, &old).unwrap_err().to_string();
        assert!(said.contains("byte 2048 ") && said.contains("write 1 puts it"), "{said}");
    }

    #[test]
    fn every_byte_counts() {
        let mut contents = Contents::new(4, 512);
        let mut data = vec![0; 512];
        contents.stamp(3, &mut data);
        for at in 0..data.len() {
            data[at] ^= 0x40;
            assert!(contents.check(3, &data).is_err(), "byte {at}");
            data[at] ^= 0x40;
        }
        assert!(contents.check(3, &data[..496]).is_err());
        contents.check(3, &data).unwrap();
        // The right write at another place.
        contents.stamp(1, &mut vec![0; 512]);
        contents.stamp(0, &mut data);
        assert!(contents.check(1, &data).is_err());
    }

    #[test]
    fn a_place_has_one_user() {
        let mut contents = Contents::new(3, 512);
        assert_eq!(
            [1, 1, 1, 1].map(|place| contents.take(place)),
            [Some(1), Some(2), Some(0), None]
        );
        contents.release(2);
        assert_eq!(contents.take(0), Some(2));
    }

    #[test]
    fn what_was_written_is_found_again() {
        let mut contents = Contents::new(5, 512);
        assert_eq!(contents.next_written(0), None);
        contents.stamp(1, &mut [0; 512]);
        contents.stamp(4, &mut [0; 512]);
        assert_eq!([0, 2, 5].map(|from| contents.next_written(from)), [Some(1), Some(4), None]);
    }
}
