// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which write a sector is of, wherever it was copied to.

use std::fmt;

use clock::Instant;

use super::COPY;
use super::Candidate;
use super::Model;
use super::Version;
use crate::rng::mix;

/// A content: of which write, and where it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    version: Version,
    /// Unit and address; 0 of zeroes.
    place: u64,
}

/// What a sector of a copy may be.
#[derive(Clone, Debug)]
pub(crate) enum Origins {
    /// Whatever somebody wrote somewhere.
    Any,
    /// One of these.
    Among(Vec<Origin>),
}

impl Origin {
    /// That of a sector; None: it is of no write, or not whole.
    pub(super) fn of(sector: &[u8]) -> Option<Self> {
        let (words, _) = sector.as_chunks::<8>();
        let version = u64::from_le_bytes(*words.first()?);
        let place = u64::from_le_bytes(*words.get(1)?);
        let origin = Self { version, place };
        let mut expected = vec![0; sector.len()];
        origin.fill(&mut expected);
        (expected == sector).then_some(origin)
    }

    /// Fills a sector: its version, its place, then bytes that follow from both.
    pub(super) fn fill(self, sector: &mut [u8]) {
        if self.version == 0 {
            return sector.fill(0);
        }
        let salt = mix(self.version ^ mix(self.place));
        for (number, word) in (0..).zip(sector.as_chunks_mut::<8>().0) {
            *word = match number {
                0 => self.version.to_le_bytes(),
                1 => self.place.to_le_bytes(),
                _ => mix(salt.wrapping_add(number)).to_le_bytes(),
            };
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, at) = (self.place >> 40, self.place & ((1 << 40) - 1));
        write!(f, "version {} of unit {unit}, sector {at}", self.version)
    }
}

impl Model {
    /// What a write of `version`, which is no copy, puts into a sector.
    pub(super) const fn home(&self, at: usize, version: Version) -> Origin {
        let place = if version == 0 { 0 } else { self.unit << 40 | self.address(at, version) };
        Origin { version, place }
    }

    /// Whether `origin` may be what `version` has put into a sector.
    pub(super) fn may_be(&self, version: Version, at: usize, origin: Origin) -> bool {
        if version & COPY == 0 {
            return self.home(at, version) == origin;
        }
        match self.origins_of(version, at) {
            Origins::Any => true,
            Origins::Among(origins) => origins.contains(&origin),
        }
    }

    fn origins_of(&self, version: Version, at: usize) -> &Origins {
        let copied = self.copied.get(&version);
        copied.and_then(|(first, all)| all.get(at.checked_sub(*first)?)).unwrap_or(&Origins::Any)
    }

    /// Of each sector of some blocks: what may have been there without a break from the first of
    /// two moments, or before, to the second one.
    pub(crate) fn origins(
        &self,
        lba: usize,
        count: usize,
        (from, to): (Instant, Instant),
    ) -> Vec<Origins> {
        let stayed =
            |found: &&Candidate| found.from <= from && found.until.is_none_or(|until| until >= to);
        self.span(lba, count)
            .map(|at| {
                let mut among = Vec::new();
                for found in self.sectors[at].candidates.iter().filter(stayed) {
                    match found.version & COPY {
                        0 => among.push(self.home(at, found.version)),
                        _ => match self.origins_of(found.version, at) {
                            Origins::Any => return Origins::Any,
                            Origins::Among(others) => among.extend(others),
                        },
                    }
                }
                Origins::Among(among)
            })
            .collect()
    }

    /// What a copy has put into the blocks from `lba` on.
    pub(crate) fn trace_back(&mut self, version: Version, lba: usize, origins: Vec<Origins>) {
        let first = self.span(lba, 0).start;
        self.copied.insert(version, (first, origins));
    }
}
