// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each block may contain: the oracle of the content.
//!
//! Each write has a number of its own, its *version*, and fills its blocks with bytes that follow
//! from version and address; version 0 is all zeroes. What is kept is kept of each sector, since
//! neither a reader beside a write nor a loss of power sees whole blocks. One write at most is
//! under way on a sector, so it is described by few candidates, each with the time in which it may
//! be seen.

use std::ops::Range;

use clock::Instant;

use crate::disk::SECTOR;
use crate::rng::mix;

/// Names a write; 0: never written, or zeroed.
pub(crate) type Version = u64;

/// Of a version: all of its blocks are equal.
pub(crate) const ALIKE: Version = 1 << 63;

/// A content that a sector may have.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    version: Version,
    /// From when on a read may see it.
    from: Instant,
    /// Until when; None: still.
    until: Option<Instant>,
    /// When the write was acknowledged.
    acknowledged: Option<Instant>,
}

/// A sector.
#[derive(Debug)]
struct Sector {
    candidates: Vec<Candidate>,
    /// What a loss of power leaves at the least: one of these,
    stable: Vec<Version>,
    /// or one of those that came later, in order.
    since: Vec<Version>,
    /// A write is under way.
    writing: Option<Version>,
    /// A write that nobody waits for any more may still take effect.
    ghosts: u32,
    /// When the last of them was known to be none, or the power was lost.
    settled: Instant,
}

/// One logical unit.
#[derive(Debug)]
pub(crate) struct Model {
    sectors: Vec<Sector>,
    block_len: usize,
    unit: u64,
}

/// A content that may not be there.
#[derive(Debug)]
pub(crate) struct Wrong(pub(crate) String);

impl Sector {
    /// A read that was under way from `asked` to `now` found `version`. A quiet sector has one
    /// content from then on, whichever it was.
    fn settle(&mut self, version: Version, asked: Instant, now: Instant) {
        let quiet = self.writing.is_none()
            && self.ghosts == 0
            && self.settled < asked
            && self.candidates.iter().all(|candidate| {
                candidate.from < asked && candidate.until.is_none_or(|until| until < asked)
            });
        if !quiet {
            return;
        }
        for candidate in &mut self.candidates {
            if candidate.version != version {
                // A read that began earlier may still tell of it.
                candidate.until.get_or_insert(now);
            }
        }
        if self.since.is_empty() {
            self.stable = vec![version];
        }
    }

    /// From `now` on it has what was stable, or anything since: returns which versions these are.
    fn fall_back(&mut self, now: Instant) -> Vec<Version> {
        let mut left = [&self.stable[..], &self.since[..]].concat();
        left.sort_unstable();
        left.dedup();
        let writing = self.writing;
        for candidate in &mut self.candidates {
            // Answers that are under way may still tell of what was lost.
            if candidate.until.is_none() && Some(candidate.version) != writing {
                candidate.until = Some(now);
            }
        }
        let again = left.iter().filter(|version| Some(**version) != writing);
        self.candidates.extend(again.map(|version| Candidate {
            version: *version,
            from: now,
            until: None,
            acknowledged: None,
        }));
        self.settled = now;
        left
    }
}

impl Model {
    /// A unit of zeroes.
    pub(crate) fn new(unit: u64, blocks: usize, block_len: usize, now: Instant) -> Self {
        let candidate = Candidate { version: 0, from: now, until: None, acknowledged: Some(now) };
        let sector = || Sector {
            candidates: vec![candidate],
            stable: vec![0],
            since: Vec::new(),
            writing: None,
            ghosts: 0,
            settled: now,
        };
        let sectors = blocks * (block_len / SECTOR);
        Self { sectors: (0..sectors).map(|_| sector()).collect(), block_len, unit }
    }

    /// Blocks.
    pub(crate) const fn len(&self) -> usize {
        self.sectors.len() / (self.block_len / SECTOR)
    }

    /// The sectors of some blocks.
    const fn span(&self, lba: usize, count: usize) -> Range<usize> {
        let each = self.block_len / SECTOR;
        lba * each..(lba + count) * each
    }

    fn range(&mut self, lba: usize, count: usize) -> &mut [Sector] {
        let span = self.span(lba, count);
        &mut self.sectors[span]
    }

    pub(crate) const fn block_len(&self) -> usize {
        self.block_len
    }

    /// Whether a write may begin here.
    pub(crate) fn is_free(&self, lba: usize, count: usize) -> bool {
        self.sectors[self.span(lba, count)]
            .iter()
            .all(|sector| sector.writing.is_none() && sector.ghosts == 0)
    }

    /// Bytes of `count` blocks of a write.
    pub(crate) fn content(&self, lba: usize, count: usize, version: Version) -> Vec<u8> {
        let mut bytes = vec![0; count * self.block_len];
        if version != 0 {
            for (at, sector) in self.span(lba, count).zip(bytes.chunks_mut(SECTOR)) {
                fill(sector, self.unit, self.address(at, version), version);
            }
        }
        bytes
    }

    /// The address that is in a sector of `version`.
    const fn address(&self, at: usize, version: Version) -> u64 {
        let alike = version & ALIKE != 0;
        (if alike { at % (self.block_len / SECTOR) } else { at }) as u64
    }

    /// The one content that a block has, if that is certain.
    pub(crate) fn certain(&self, lba: usize) -> Option<Version> {
        if !self.is_free(lba, 1) {
            return None;
        }
        let mut open = self.sectors[self.span(lba, 1)]
            .iter()
            .flat_map(|sector| &sector.candidates)
            .filter(|candidate| candidate.until.is_none())
            .map(|candidate| candidate.version);
        let first = open.next()?;
        open.all(|version| version == first).then_some(first)
    }

    /// Whether a block had no content but this and that of `new`, which may be under way, between
    /// `asked` and `now`.
    pub(crate) fn was(
        &self,
        lba: usize,
        version: Version,
        new: Version,
        (asked, now): (Instant, Instant),
    ) -> bool {
        self.sectors[self.span(lba, 1)].iter().flat_map(|sector| &sector.candidates).all(|found| {
            let seen = found.from <= now && found.until.is_none_or(|until| until >= asked);
            !seen || found.version == version || found.version == new
        })
    }

    /// A write of `version` is given to the initiator.
    pub(crate) fn begin(&mut self, lba: usize, count: usize, version: Version, now: Instant) {
        for sector in self.range(lba, count) {
            sector.writing = Some(version);
            let new = Candidate { version, from: now, until: None, acknowledged: None };
            sector.candidates.push(new);
            sector.since.push(version);
        }
    }

    /// It was acknowledged; `durable`: it must survive a loss of power.
    pub(crate) fn acknowledge(
        &mut self,
        lba: usize,
        count: usize,
        version: Version,
        durable: bool,
        now: Instant,
    ) {
        for sector in self.range(lba, count) {
            sector.writing = None;
            for candidate in &mut sector.candidates {
                if candidate.version == version && candidate.until.is_none() {
                    candidate.acknowledged = Some(now);
                } else {
                    candidate.until.get_or_insert(now);
                }
            }
            if durable {
                sector.stable = vec![version];
                sector.since.clear();
            }
        }
    }

    /// Nobody knows what became of it. Until `exorcise` it may still take effect.
    pub(crate) fn doubt(&mut self, lba: usize, count: usize) {
        for sector in self.range(lba, count) {
            sector.writing = None;
            sector.ghosts += 1;
        }
    }

    /// A doubtful write has had its effect or never will.
    pub(crate) fn exorcise(&mut self, lba: usize, count: usize, now: Instant) {
        for sector in self.range(lba, count) {
            sector.ghosts = sector.ghosts.saturating_sub(1);
            sector.settled = now;
        }
    }

    /// It was certainly not carried out.
    pub(crate) fn retract(&mut self, lba: usize, count: usize, version: Version) {
        for sector in self.range(lba, count) {
            sector.writing = None;
            let open = |candidate: &Candidate| {
                candidate.version == version && candidate.acknowledged.is_none()
            };
            if let Some(at) = sector.candidates.iter().rposition(open) {
                sector.candidates.remove(at);
            }
            if let Some(at) = sector.since.iter().rposition(|since| *since == version) {
                sector.since.remove(at);
            }
        }
    }

    /// A flush that was given to the initiator at `asked` was acknowledged. Where it is not certain
    /// what it covers, nothing is concluded.
    pub(crate) fn flushed(&mut self, asked: Instant) {
        for sector in &mut self.sectors {
            let writing = sector.writing;
            let open = |candidate: &&Candidate| {
                candidate.until.is_none() && Some(candidate.version) != writing
            };
            let covered = sector.ghosts == 0
                && sector.settled <= asked
                && sector.candidates.iter().filter(open).all(|candidate| {
                    candidate.from <= asked && candidate.acknowledged.is_none_or(|at| at <= asked)
                });
            if covered {
                sector.stable =
                    sector.candidates.iter().filter(open).map(|found| found.version).collect();
                sector.since = writing.into_iter().collect();
            }
        }
    }

    /// The power was lost: each block is what was stable, or anything since, and stays that.
    pub(crate) fn power_lost(&mut self, now: Instant) {
        for sector in &mut self.sectors {
            let left = sector.fall_back(now);
            sector.stable = left;
            sector.since = sector.writing.into_iter().collect();
        }
    }

    /// The process is gone, and what could not be written back with it: a block may be again what
    /// was stable. What the system still has of others, a loss of power may take later, whatever
    /// was read of it.
    pub(crate) fn pages_lost(&mut self, now: Instant) {
        for sector in &mut self.sectors {
            sector.fall_back(now);
        }
    }

    /// A read that was under way from `asked` to `now` found `bytes`.
    pub(crate) fn check(
        &mut self,
        lba: usize,
        bytes: &[u8],
        asked: Instant,
        now: Instant,
    ) -> Result<(), Wrong> {
        let first = self.span(lba, 0).start;
        for (at, content) in (first..).zip(bytes.chunks(SECTOR)) {
            let sector = &self.sectors[at];
            let seen = |candidate: &&Candidate| {
                candidate.from <= now && candidate.until.is_none_or(|until| until >= asked)
            };
            let mut visible = sector.candidates.iter().filter(seen).map(|found| found.version);
            match self.version_of(content, at) {
                Some(version) if visible.any(|other| other == version) => {
                    self.sectors[at].settle(version, asked, now);
                }
                _ => return Err(Wrong(self.describe(at, content, asked))),
            }
        }
        Ok(())
    }

    /// Whether every block has but one content and nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.sectors.iter().all(|sector| sector.writing.is_none() && sector.ghosts == 0)
    }

    /// Which write a whole sector is of; None: of none.
    fn version_of(&self, sector: &[u8], at: usize) -> Option<Version> {
        let version = u64::from_le_bytes(*sector.first_chunk::<8>()?);
        if version == 0 {
            return sector.iter().all(|byte| *byte == 0).then_some(0);
        }
        let mut expected = vec![0; sector.len()];
        fill(&mut expected, self.unit, self.address(at, version), version);
        (expected == sector).then_some(version)
    }

    fn describe(&self, at: usize, content: &[u8], asked: Instant) -> String {
        let sector = &self.sectors[at];
        let found = self.version_of(content, at).map_or_else(
            || format!("no content of any write to it ({:02x?}...)", &content[..16]),
            |version| format!("version {version}"),
        );
        let may: Vec<String> = sector
            .candidates
            .iter()
            .filter(|candidate| candidate.until.is_none_or(|until| until >= asked))
            .map(|candidate| candidate.version.to_string())
            .collect();
        format!("unit {}, sector {at} has {found}, may have {}", self.unit, may.join(", "))
    }
}

/// Fills a block: its version, its address, then bytes that follow from both.
fn fill(block: &mut [u8], unit: u64, at: u64, version: Version) {
    let salt = mix(version ^ mix(at.wrapping_add(unit << 40)));
    for (number, word) in (0..).zip(block.as_chunks_mut::<8>().0) {
        *word = match number {
            0 => version.to_le_bytes(),
            1 => (unit << 40 | at).to_le_bytes(),
            _ => mix(salt.wrapping_add(number)).to_le_bytes(),
        };
    }
}

#[cfg(test)]
mod tests;
