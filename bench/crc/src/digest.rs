// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CRC of bytes in the nearest cache that holds them.

use crate::isal;
use crate::report::{Report, Row};
use crate::timing::{Contestant, Effort, rates};
use crc::{Tier, crc32c};
use std::hint::black_box;

const SIZES: [usize; 9] = [48, 512, 1000, 4096, 8192, 65_536, 262_144, 1 << 20, 4 << 20];

/// Buffers begin with a page.
pub(crate) const PAGE: usize = 4096;

/// The kernels that this processor runs, the oracle left out.
pub(crate) fn tiers() -> impl Iterator<Item = Tier> {
    Tier::ALL.into_iter().filter(|tier| tier.is_available() && *tier != Tier::Bitwise)
}

/// The peers' CRC.
pub(crate) type Digest = fn(&[u8]) -> u32;

const PEERS: [(&str, Digest); 3] =
    [("crc32c", ::crc32c::crc32c), ("crc-fast", fast), (ISAL, isal::crc32c)];

const ISAL: &str = "ISA-L";

/// Those that this machine has.
pub(crate) fn peers() -> impl Iterator<Item = (&'static str, Digest)> {
    PEERS.into_iter().filter(|(name, _)| *name != ISAL || isal::is_here())
}

fn fast(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    let best = Tier::ALL.into_iter().rev().find(|tier| tier.is_available());
    let mut names: Vec<String> = tiers().map(|tier| tier.name().to_owned()).collect();
    names.extend(peers().map(|(name, _)| name.to_owned()));
    let mut rows = Vec::new();
    for size in SIZES {
        let memory = memory(size + PAGE);
        let start = memory.as_ptr().align_offset(PAGE);
        let bytes = &memory[start..start + size];
        let ours = tiers().map(|tier| {
            Contestant::ours(tier, move || {
                black_box(crc32c(black_box(bytes)));
            })
        });
        let theirs = peers().map(|(name, digest)| {
            Contestant::new(name, move || {
                black_box(digest(black_box(bytes)));
            })
        });
        let mut contestants: Vec<_> = ours.chain(theirs).collect();
        let rates = rates(effort, size, &mut contestants);
        let at = |name: &str| names.iter().position(|known| known == name);
        let rate = |name: &str| at(name).and_then(|at| rates.get(at)).copied().unwrap_or(0.0);
        let peer = peers().map(|(name, _)| rate(name)).fold(0.0, f64::max);
        let ours = best.map_or(0.0, |tier| rate(tier.name()));
        let slicing = rate("slicing8") / rate("sarwate");
        rows.push(Row::new(size, rates).ratio("ours / best peer", ours / peer, 1.0).ratio(
            "slicing8 / sarwate",
            slicing,
            2.5,
        ));
    }
    report.table("CRC32C, bytes in cache, GB/s", names, rows);
}

/// Bytes without a pattern.
pub(crate) fn memory(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}
