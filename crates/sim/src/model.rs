// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each block may contain: the oracle of the content.
//!
//! Each write has a number of its own, its *version*, and fills its blocks with bytes that follow
//! from version and address; version 0 is all zeroes. What is kept is kept of each sector, since
//! neither a reader beside a write nor a loss of power sees whole blocks. One write at most is
//! under way on a sector, so it is described by few candidates, each with the time in which it may
//! be seen.

mod origin;

use std::collections::BTreeMap;
use std::ops::Range;

use clock::Instant;

use self::origin::Origin;
pub(crate) use self::origin::Origins;
use crate::disk::SECTOR;

/// What is under way when blocks are cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Nothing but what hosts wait for, or what is doubtful.
    Nothing,
    /// Changes that a target has left behind, which may come about later.
    Work,
}

/// Names a write; 0: never written, or zeroed.
pub(crate) type Version = u64;

/// Of a version: all of its blocks are equal.
pub(crate) const ALIKE: Version = 1 << 63;

/// Of a version: its blocks are copies of others.
pub(crate) const COPY: Version = 1 << 61;

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
    /// It was cut off while a write was under way, which may have come before that or after.
    cut: bool,
}

/// One logical unit.
#[derive(Debug)]
pub(crate) struct Model {
    sectors: Vec<Sector>,
    block_len: usize,
    unit: u64,
    /// Of versions that are copies: the first sector, and what each may be.
    copied: BTreeMap<Version, (usize, Vec<Origins>)>,
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
            cut: false,
        };
        let sectors = blocks * (block_len / SECTOR);
        let sectors = (0..sectors).map(|_| sector()).collect();
        Self { sectors, block_len, unit, copied: BTreeMap::new() }
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
                self.home(at, version).fill(sector);
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
        (first & COPY == 0 && open.all(|version| version == first)).then_some(first)
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
            if std::mem::take(&mut sector.cut) {
                sector.settled = now;
                continue;
            }
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
            (sector.writing, sector.cut) = (None, false);
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
            (sector.writing, sector.cut) = (None, false);
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

    /// The blocks from `lba` on were cut off: they are zeroes when they come again, but for what is
    /// written then.
    pub(crate) fn cut(&mut self, lba: usize, now: Instant) {
        self.cut_beside(lba, now, Beside::Nothing);
    }

    /// The same beside work that nobody waits for.
    pub(crate) fn cut_beside(&mut self, lba: usize, now: Instant, beside: Beside) {
        let count = self.len() - lba;
        for sector in self.range(lba, count) {
            let quiet = sector.ghosts == 0 && beside == Beside::Nothing;
            sector.cut = sector.writing.is_some();
            for candidate in &mut sector.candidates {
                if quiet && Some(candidate.version) != sector.writing {
                    candidate.until.get_or_insert(now);
                }
            }
            let open = sector.candidates.iter().filter(|candidate| candidate.until.is_none());
            sector.since = open.map(|candidate| candidate.version).collect();
            sector.candidates.push(Candidate {
                version: 0,
                from: now,
                until: None,
                acknowledged: Some(now),
            });
            sector.stable = vec![0];
            sector.settled = now;
        }
    }

    /// Another disk took the place of this one: it is zeroes, and nothing of what was asked for
    /// before reaches it.
    pub(crate) fn exchange(&mut self, now: Instant) {
        for sector in &mut self.sectors {
            for candidate in &mut sector.candidates {
                candidate.until.get_or_insert(now);
            }
            sector.candidates.push(Candidate {
                version: 0,
                from: now,
                until: None,
                acknowledged: Some(now),
            });
            sector.cut = sector.writing.is_some();
            (sector.stable, sector.since) = (vec![0], Vec::new());
            sector.settled = now;
        }
    }

    /// A write was refused because another disk is there: what was asked for since then never
    /// reaches it.
    pub(crate) fn refused(&mut self, lba: usize, count: usize, version: Version) {
        for sector in self.range(lba, count) {
            (sector.writing, sector.cut) = (None, false);
            // Zeroes that a fresh disk has are not those that were to be written.
            let asked = |found: &Candidate| {
                found.version == version && found.until.is_none() && found.acknowledged.is_none()
            };
            // Nor are those that a loss of power may have brought back.
            if let Some(at) = sector.candidates.iter().rposition(asked) {
                sector.candidates.remove(at);
            }
            if let Some(at) = sector.since.iter().rposition(|since| *since == version) {
                sector.since.remove(at);
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

    /// The process is gone, and what it alone had with it. Its answer to a write that is under way
    /// may still come, and says nothing of what is there by now.
    pub(crate) fn cache_lost(&mut self, now: Instant) {
        self.power_lost(now);
        self.sectors.iter_mut().for_each(|sector| sector.cut |= sector.writing.is_some());
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
            let origin = Origin::of(content);
            let found = origin.and_then(|origin| visible.find(|it| self.may_be(*it, at, origin)));
            match found {
                Some(version) => self.sectors[at].settle(version, asked, now),
                None => return Err(Wrong(self.describe(at, content, asked))),
            }
        }
        Ok(())
    }

    /// Whether every block has but one content and nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.sectors.iter().all(|sector| sector.writing.is_none() && sector.ghosts == 0)
    }

    fn describe(&self, at: usize, content: &[u8], asked: Instant) -> String {
        let sector = &self.sectors[at];
        let found = Origin::of(content).map_or_else(
            || format!("no content of any write ({:02x?}...)", &content[..16]),
            |origin| origin.to_string(),
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

#[cfg(test)]
mod tests;
