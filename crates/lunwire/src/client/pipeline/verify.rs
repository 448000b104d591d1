// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads back what was written and compares.

use std::collections::BTreeMap;

use anyhow::Result;
use anyhow::bail;
use initiator::Event;

use super::Copy;
use super::Moving;
use super::narrow;
use crate::client;
use crate::client::place::Place;
use crate::client::progress::Progress;

/// What was compared and found right; pieces come in any order.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Everything before.
    end: u64,
    /// Behind a gap: their ends.
    pieces: BTreeMap<u64, u64>,
}

impl Compared {
    fn add(&mut self, offset: u64, length: u64) {
        self.pieces.insert(offset, offset + length);
        while let Some(end) = self.pieces.remove(&self.end) {
            self.end = end;
        }
    }
}

impl Copy<'_> {
    /// Compares all of the destination, by CRC32C of each piece. What was copied before an
    /// interruption is read from the source again.
    pub(super) fn verify(&mut self) -> Result<()> {
        let (total, quiet) = (self.done, self.plan.quiet);
        let mut progress = Progress::new("verified", 0, Some(total), quiet);
        let (mut next, mut checked) = (0, 0);
        while checked < total {
            if client::is_interrupted() {
                bail!("interrupted while it was verified; all {total} bytes are copied");
            }
            while next < total && !self.is_full() {
                let length = self.to_compare(next, total);
                checked += self.look_at(next, length)?;
                next += length;
            }
            if !self.under_way.is_empty() {
                self.queue.wait_n(1, client::LOOK);
            }
            while let Some(event) = self.queue.reap() {
                checked += self.looked_at(event)?;
            }
            progress.show(checked, || None);
        }
        progress.finish(checked);
        Ok(())
    }

    /// Bytes of the next piece to compare: as it was written, where that is known.
    fn to_compare(&self, next: u64, total: u64) -> u64 {
        match self.digests.range(next..).next() {
            Some((offset, (length, _))) if *offset == next => *length,
            Some((offset, _)) => self.piece_at(next).min(offset - next),
            None => self.piece_at(next).min(total - next),
        }
    }

    /// Reads a piece of the destination; gives how many bytes were compared at once.
    fn look_at(&mut self, offset: u64, length: u64) -> Result<u64> {
        let at = self.plan.to_offset + offset;
        match &self.plan.to {
            Place::Disk(disk) => {
                let request = disk.read(at, disk.round_up(length));
                let session = disk.session;
                let begun = self.begin(length);
                let moving =
                    Moving { session, offset, length, reading: true, zeroing: false, begun };
                self.post(moving, request)?;
                Ok(0)
            }
            Place::File(file) => {
                let mut bytes = self.take(length)?;
                file.read(at, &mut bytes)?;
                self.compare(offset, &bytes)?;
                Ok(length)
            }
            Place::Stream => bail!("--verify: standard output cannot be read back"),
        }
    }

    fn looked_at(&mut self, event: Event) -> Result<u64> {
        let Event::Done { tag, result, .. } = event else {
            client::tell(&event);
            return self.stands(&event).map(|()| 0);
        };
        let Some(moving) = self.under_way.remove(&tag) else { return Ok(0) };
        let done = match result {
            Ok(done) => done,
            Err(error) => return Err(self.explain(moving.session, error)),
        };
        self.note_time(moving.begun, moving.length);
        let Some(disk) = self.plan.disk_of(moving.session) else { return Ok(0) };
        let at = self.plan.to_offset + moving.offset;
        let data = disk.whole(done, at, disk.round_up(moving.length))?;
        let length = usize::try_from(moving.length).unwrap_or(usize::MAX);
        // Bytes behind the last one stand in the same block, and are not of the source.
        self.compare(moving.offset, data.get(..length).unwrap_or(&data))?;
        Ok(moving.length)
    }

    /// Fails if the destination tells that it has not kept what it had said is on stable storage:
    /// what is read may be of its cache.
    fn stands(&mut self, event: &Event) -> Result<()> {
        let Event::Deferred { session, error } = event else { return Ok(()) };
        let Place::Disk(disk) = &self.plan.to else { return Ok(()) };
        if disk.session != *session {
            return Ok(());
        }
        self.doubted = Some(0);
        let again = if self.plan.journal.is_some() { "" } else { "; try: again" };
        let error = client::besides(error, &disk.url);
        bail!("{}: {error}, and was said to be on stable storage{again}", disk.url)
    }

    fn compare(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let expected = match self.digests.get(&offset).copied() {
            Some((_, digest)) => digest,
            None => self.digest_of_source(offset, bytes.len() as u64)?,
        };
        if crc::crc32c(bytes) != expected {
            let end = offset + bytes.len() as u64;
            let (from, to) = (self.plan.from.name(), self.plan.to.name());
            self.doubted = Some(self.compared.end);
            let again = if self.plan.journal.is_some() { "" } else { "; try: again" };
            bail!(
                "{to}: the destination differs from {from} between bytes {offset} and {end} of \
                 the copy: damaged on the way or on the disk, or somebody else writes to one of \
                 them{again}"
            );
        }
        self.compared.add(offset, bytes.len() as u64);
        Ok(())
    }

    fn digest_of_source(&mut self, offset: u64, length: u64) -> Result<u32> {
        let at = self.plan.from_offset + offset;
        match &self.plan.from {
            Place::Disk(disk) => {
                let bytes = disk.read_now(self.queue, at, narrow(length))?;
                Ok(crc::crc32c(&bytes))
            }
            Place::File(file) => {
                let mut bytes = self.take(length)?;
                file.read(at, &mut bytes)?;
                Ok(crc::crc32c(&bytes))
            }
            Place::Stream => bail!("standard input cannot be read again"),
        }
    }
}
