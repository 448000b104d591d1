// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FAST05: what a software iSCSI initiator costs without a network: protocol, copy and CRC of each
//! data PDU, and what slicing-by-8 and copying with CRC in one go make of it.

mod findings;
mod sandbox;
mod theirs;
mod touching;

use crc::Tier;

use crate::measure::{Meter, median};
use crate::{Error, Report};
use sandbox::{Direction, Load, Sandbox};
use touching::{Costs, Segments};

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Runs of 40 commands for each figure; medians count.
    pub rounds: usize,
    /// Up to this size of a read or write, bytes: 512 to 65536.
    pub size_max: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { rounds: 31, size_max: 64 << 10 }
    }
}

/// Runs the study. The CRC kernel in use is another one meanwhile, for the whole process.
///
/// # Errors
/// [`Error`]: no memory, or a defect of ours.
pub fn run(options: &Options) -> Result<Report, Error> {
    let best = crc::tier();
    let measured = Measured::take(options, best);
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
    protocol: BySize<[f64; 2]>,
    /// Of a Data-Out.
    protocol_out: BySize<[f64; 2]>,
    /// By size of the segment.
    costs: BySize<OfTiers<Costs>>,
    /// The whole path of a read for each PDU, by size of the I/O.
    reads: BySize<OfTiers<f64>>,
    /// The same of a write.
    writes: BySize<OfTiers<f64>>,
}

impl Measured {
    fn take(options: &Options, best: Tier) -> Result<Self, Error> {
        let meter = Meter::new();
        let tiers = [Tier::Sarwate, Tier::Slicing8, best];
        // Of one PDU always: its protocol costs the same whatever its data is.
        let is_wanted = |pdus: &u32| *pdus == 1 || pdus * theirs::SEGMENT <= options.size_max;
        let several: Vec<u32> = SEVERAL.into_iter().filter(is_wanted).collect();
        let small: Vec<u32> =
            ONE_PDU.into_iter().filter(|size| *size <= options.size_max).collect();
        let larger = several.iter().filter(|pdus| **pdus > 1).map(|pdus| pdus * theirs::SEGMENT);
        let sizes: Vec<u32> = small.iter().copied().chain(larger).collect();
        let protocol = |direction| protocol(direction, &several, options, &meter);
        let path = |direction| path(direction, &sizes, tiers, options, &meter);
        Ok(Self {
            per_second: meter.per_second,
            rounds: options.rounds,
            tiers,
            protocol: protocol(Direction::Read)?,
            protocol_out: protocol(Direction::Write)?,
            costs: costs(&small, tiers, options, &meter)?,
            reads: path(Direction::Read)?,
            writes: path(Direction::Write)?,
        })
    }
}

/// The protocol alone: no digests, and data segments that cost nothing.
fn protocol(
    direction: Direction,
    several: &[u32],
    options: &Options,
    meter: &Meter,
) -> Result<BySize<[f64; 2]>, Error> {
    let mut sandbox = Sandbox::new(false)?;
    let mut one = |pdus| {
        let load = |cold| Load { direction, pdus, segment: SMALL_SEGMENT, cold };
        Ok((pdus, both(|cold| typical(&mut sandbox, load(cold), options, meter))?))
    };
    let mut all = Vec::new();
    for pdus in several {
        all.push(one(*pdus)?);
    }
    // At least one, however small the I/Os are.
    if all.is_empty() {
        all.push(one(1)?);
    }
    Ok(all)
}

/// The whole path with both digests.
fn path(
    direction: Direction,
    sizes: &[u32],
    tiers: [Tier; 3],
    options: &Options,
    meter: &Meter,
) -> Result<BySize<OfTiers<f64>>, Error> {
    let mut sandbox = Sandbox::new(true)?;
    let mut all = Vec::new();
    for size in sizes {
        let segment = theirs::SEGMENT.min(*size);
        let load = |cold| Load { direction, pdus: size / segment, segment, cold };
        let mut of_tiers = [[0.0; 2]; 3];
        for (tier, place) in tiers.into_iter().zip(&mut of_tiers) {
            force(tier);
            *place = both(|cold| typical(&mut sandbox, load(cold), options, meter))?;
        }
        all.push((*size, of_tiers));
    }
    Ok(all)
}

/// What touches every byte.
fn costs(
    sizes: &[u32],
    tiers: [Tier; 3],
    options: &Options,
    meter: &Meter,
) -> Result<BySize<OfTiers<Costs>>, Error> {
    let mut all = Vec::new();
    for size in sizes {
        let mut segments = Segments::new(*size as usize)?;
        let mut of_tiers = [[Costs::default(); 2]; 3];
        for (tier, place) in tiers.into_iter().zip(&mut of_tiers) {
            force(tier);
            *place = both(|cold| {
                let rounds = (0..options.rounds).map(|_| segments.run(cold, meter));
                Ok(typical_costs(&rounds.collect::<Vec<_>>()))
            })?;
        }
        all.push((*size, of_tiers));
    }
    Ok(all)
}

/// Cold and warm.
fn both<T>(mut measure: impl FnMut(bool) -> Result<T, Error>) -> Result<[T; 2], Error> {
    Ok([measure(true)?, measure(false)?])
}

fn typical(
    sandbox: &mut Sandbox,
    load: Load,
    options: &Options,
    meter: &Meter,
) -> Result<f64, Error> {
    sandbox.run(load, meter)?;
    let rounds = (0..options.rounds).map(|_| sandbox.run(load, meter));
    Ok(median(rounds.collect::<Result<_, _>>()?))
}

fn typical_costs(rounds: &[Costs]) -> Costs {
    let of = |part: fn(&Costs) -> f64| median(rounds.iter().map(part).collect());
    Costs { copy: of(|one| one.copy), crc: of(|one| one.crc), fused: of(|one| one.fused) }
}

/// The tables run on every processor, and the best kernel is one that runs on this one.
fn force(tier: Tier) {
    let forced = crc::force(tier);
    debug_assert!(forced.is_ok(), "{tier} is available");
}
