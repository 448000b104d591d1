// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FAST05: what a software iSCSI initiator costs without a network: protocol, copy and CRC of each
//! data PDU, and what slicing-by-8 and copying with CRC in one go make of it.

mod findings;
mod sandbox;
mod theirs;
mod touching;

use crc::Tier;

use crate::Error;
use crate::measure::Meter;
use crate::progress::Steps;
use crate::study::{Findings, Settings};
use crate::verdict::Spread;
use sandbox::{Direction, Load, Sandbox};
use touching::{Costs, Segments};

/// How much to measure.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// Runs of 40 commands for each figure; medians count.
    rounds: usize,
    /// Up to this size of a read or write, bytes.
    size_max: u32,
}

/// Runs the study. The CRC kernel in use is another one meanwhile, for the whole process.
pub(crate) fn run(settings: &Settings, steps: &Steps<'_>) -> Result<Findings, Error> {
    let size_max = settings.effort.of(16 << 10, 64 << 10, 64 << 10);
    let options = Options { rounds: settings.rounds([3, 31, 101]), size_max };
    if let Some(cpu) = engine::affinity::allowed_cpus().last() {
        // Where it cannot be pinned it runs where it likes.
        let _ = engine::affinity::pin(*cpu);
    }
    let best = crc::tier();
    let measured = Measured::take(&options, best, steps);
    force(best);
    Ok(findings::report(&measured?))
}

/// Sizes of an I/O of one PDU, bytes.
const ONE_PDU: [u32; 5] = [512, 1024, 2048, 4096, 8192];

/// Data PDUs of an I/O of several.
const SEVERAL: [u32; 4] = [1, 2, 4, 8];

/// A data segment that costs nothing by itself.
const SMALL_SEGMENT: u32 = 4;

/// Of each kernel: Sarwate, slicing-by-8, the best; cold and warm.
type OfTiers<T> = [[T; 2]; 3];

/// By size in bytes, or by count of PDUs.
type BySize<T> = Vec<(u32, T)>;

/// Everything that was measured, in cycles.
#[derive(Debug)]
struct Measured {
    per_second: f64,
    rounds: usize,
    /// The three kernels: Sarwate, slicing-by-8, the best.
    tiers: [Tier; 3],
    /// Of a Data-In for reads of so many: cold and warm.
    protocol: BySize<[Spread; 2]>,
    /// Of a Data-Out.
    protocol_out: BySize<[Spread; 2]>,
    /// By size of the segment.
    costs: BySize<OfTiers<Costs<Spread>>>,
    /// The whole path of a read for each PDU, by size of the I/O.
    reads: BySize<OfTiers<Spread>>,
    /// The same of a write.
    writes: BySize<OfTiers<Spread>>,
}

impl Measured {
    fn take(options: &Options, best: Tier, steps: &Steps<'_>) -> Result<Self, Error> {
        let meter = Meter::new();
        let tiers = [Tier::Sarwate, Tier::Slicing8, best];
        // Of one PDU always: its protocol costs the same whatever its data is.
        let is_wanted = |pdus: &u32| *pdus == 1 || pdus * theirs::SEGMENT <= options.size_max;
        let several: Vec<u32> = SEVERAL.into_iter().filter(is_wanted).collect();
        let small: Vec<u32> =
            ONE_PDU.into_iter().filter(|size| *size <= options.size_max).collect();
        let larger = several.iter().filter(|pdus| **pdus > 1).map(|pdus| pdus * theirs::SEGMENT);
        let sizes: Vec<u32> = small.iter().copied().chain(larger).collect();
        let bench = Bench { options, meter: &meter, steps };
        steps.expect(2 * several.len().max(1) + 2 * sizes.len() + small.len());
        let protocol = |direction| bench.protocol(direction, &several);
        let path = |direction| bench.path(direction, &sizes, tiers);
        Ok(Self {
            per_second: meter.per_second,
            rounds: options.rounds,
            tiers,
            protocol: protocol(Direction::Read)?,
            protocol_out: protocol(Direction::Write)?,
            costs: bench.costs(&small, tiers)?,
            reads: path(Direction::Read)?,
            writes: path(Direction::Write)?,
        })
    }
}

/// What measures.
#[derive(Clone, Copy)]
struct Bench<'a> {
    options: &'a Options,
    meter: &'a Meter,
    steps: &'a Steps<'a>,
}

impl Bench<'_> {
    /// The protocol alone: no digests, and data segments that cost nothing.
    fn protocol(
        &self,
        direction: Direction,
        several: &[u32],
    ) -> Result<BySize<[Spread; 2]>, Error> {
        let mut sandbox = Sandbox::new(false)?;
        // At least one, however small the I/Os are.
        let several = if several.is_empty() { &[1][..] } else { several };
        let mut all = Vec::new();
        for &pdus in several {
            self.steps.next(&format!("protocol of {pdus} PDUs"))?;
            let load = |cold| Load { direction, pdus, segment: SMALL_SEGMENT, cold };
            all.push((pdus, both(|cold| self.typical(&mut sandbox, load(cold)))?));
        }
        Ok(all)
    }

    /// The whole path with both digests.
    fn path(
        &self,
        direction: Direction,
        sizes: &[u32],
        tiers: [Tier; 3],
    ) -> Result<BySize<OfTiers<Spread>>, Error> {
        let mut sandbox = Sandbox::new(true)?;
        let mut all = Vec::new();
        for size in sizes {
            self.steps.next(&format!("the whole path of {size} bytes"))?;
            let segment = theirs::SEGMENT.min(*size);
            let load = |cold| Load { direction, pdus: size / segment, segment, cold };
            let mut of_tiers = [[Spread::default(); 2]; 3];
            for (tier, place) in tiers.into_iter().zip(&mut of_tiers) {
                force(tier);
                *place = both(|cold| self.typical(&mut sandbox, load(cold)))?;
            }
            all.push((*size, of_tiers));
        }
        Ok(all)
    }

    /// What touches every byte.
    fn costs(
        &self,
        sizes: &[u32],
        tiers: [Tier; 3],
    ) -> Result<BySize<OfTiers<Costs<Spread>>>, Error> {
        let mut all = Vec::new();
        for size in sizes {
            self.steps.next(&format!("copy and CRC of {size} bytes"))?;
            let mut segments = Segments::new(*size as usize)?;
            let mut of_tiers = [[Costs::default(); 2]; 3];
            for (tier, place) in tiers.into_iter().zip(&mut of_tiers) {
                force(tier);
                *place = both(|cold| {
                    let rounds = (0..self.options.rounds).map(|_| segments.run(cold, self.meter));
                    Ok(typical_costs(&rounds.collect::<Vec<_>>()))
                })?;
            }
            all.push((*size, of_tiers));
        }
        Ok(all)
    }

    fn typical(&self, sandbox: &mut Sandbox, load: Load) -> Result<Spread, Error> {
        sandbox.run(load, self.meter)?;
        let rounds = (0..self.options.rounds).map(|_| sandbox.run(load, self.meter));
        Ok(Spread::of(&rounds.collect::<Result<Vec<_>, _>>()?))
    }
}

/// Cold and warm.
fn both<T>(mut measure: impl FnMut(bool) -> Result<T, Error>) -> Result<[T; 2], Error> {
    Ok([measure(true)?, measure(false)?])
}

fn typical_costs(rounds: &[Costs<f64>]) -> Costs<Spread> {
    let of =
        |part: fn(&Costs<f64>) -> f64| Spread::of(&rounds.iter().map(part).collect::<Vec<_>>());
    Costs { copy: of(|one| one.copy), crc: of(|one| one.crc), fused: of(|one| one.fused) }
}

/// The tables run on every processor, and the best kernel is one that runs on this one.
fn force(tier: Tier) {
    let forced = crc::force(tier);
    debug_assert!(forced.is_ok(), "{tier} is available");
}
