// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copying with CRC, in one go and one after the other.

use crate::digest::{Digest, PAGE, memory, peers, tiers};
use crate::report::{Report, Row};
use crate::timing::{Contestant, Effort, rates};
use crc::{Crc32c, Tier};
use std::cell::{Cell, RefCell};
use std::hint::black_box;

/// More than the caches that a machine may have.
const ARENA: usize = 768 << 20;
const WARM: [usize; 6] = [512, 4096, 8192, 16_384, 65_536, 262_144];
const COLD: [usize; 3] = [4096, 8192, 65_536];
const ALIGNED: [usize; 4] = [4096, 8192, 65_536, 262_144];

/// A source and a destination that move on with each call, or stay.
struct Places {
    source: Vec<u8>,
    /// Where the first page of the source begins.
    source_start: usize,
    destination: RefCell<Vec<u8>>,
    destination_start: usize,
    at: Cell<usize>,
    size: usize,
    cold: [bool; 2],
}

impl Places {
    fn new(size: usize, cold: [bool; 2], offsets: [usize; 2]) -> Self {
        let [source, destination] = cold.map(|cold| if cold { ARENA } else { size } + 2 * PAGE);
        let source = if cold[0] { vec![0x5a; source] } else { memory(source) };
        let destination = vec![1; destination];
        Self {
            source_start: source.as_ptr().align_offset(PAGE) + offsets[0],
            destination_start: destination.as_ptr().align_offset(PAGE) + offsets[1],
            source,
            destination: RefCell::new(destination),
            at: Cell::new(0),
            size,
            cold,
        }
    }

    fn next(&self, work: impl Fn(&mut [u8], &[u8])) {
        let at = self.at.get();
        let next = at + self.size;
        self.at.set(if next + self.size > ARENA { 0 } else { next });
        let [from, to] = self.cold.map(|cold| if cold { at } else { 0 });
        let from = self.source_start + from;
        let to = self.destination_start + to;
        let destination = &mut *self.destination.borrow_mut();
        work(&mut destination[to..to + self.size], &self.source[from..from + self.size]);
    }
}

fn fused(dst: &mut [u8], src: &[u8]) {
    let mut crc = Crc32c::new();
    crc.copy_update(black_box(dst), black_box(src));
    black_box(crc.finish());
}

fn copy(dst: &mut [u8], src: &[u8]) {
    black_box(dst).copy_from_slice(black_box(src));
}

fn copy_then(digest: Digest) -> impl Fn(&mut [u8], &[u8]) {
    move |dst, src| {
        copy(dst, src);
        black_box(digest(black_box(dst)));
    }
}

fn best() -> Tier {
    tiers().last().unwrap_or(Tier::Slicing8)
}

/// Names and GB/s: memcpy, memcpy then each peer, each kernel fused.
fn contest(effort: Effort, places: &Places) -> (Vec<String>, Vec<f64>) {
    let mut contestants = vec![Contestant::new("memcpy", || places.next(copy))];
    for (name, digest) in peers() {
        let work = move || places.next(copy_then(digest));
        contestants.push(Contestant::new(format!("memcpy, {name}"), work));
    }
    for tier in tiers() {
        contestants.push(Contestant::ours(tier, || places.next(fused)));
    }
    let rates = rates(effort, places.size, &mut contestants);
    (contestants.into_iter().map(|one| one.name).collect(), rates)
}

/// The rates of memcpy, of the best peer behind memcpy, and ours.
fn of_interest(names: &[String], rates: &[f64]) -> [f64; 3] {
    let rate = |wanted: &str| {
        let found = names.iter().zip(rates).find(|(name, _)| *name == wanted);
        found.map_or(0.0, |(_, rate)| *rate)
    };
    let peers = peers().map(|(name, _)| rate(&format!("memcpy, {name}")));
    [rate("memcpy"), peers.fold(0.0, f64::max), rate(best().name())]
}

pub(crate) fn measure_warm(effort: Effort, report: &mut Report) {
    let (mut rows, mut names) = (Vec::new(), Vec::new());
    for size in WARM {
        let places = Places::new(size, [false, false], [0, 0]);
        let rates;
        (names, rates) = contest(effort, &places);
        let [memcpy, peer, ours] = of_interest(&names, &rates);
        rows.push(Row::new(size, rates).ratio("ours / peer", ours / peer, 1.5).ratio(
            "ours / memcpy",
            ours / memcpy,
            0.0,
        ));
    }
    report.table("Copy and CRC32C, both sides in cache, GB/s", names, rows);
}

pub(crate) fn measure_cold(effort: Effort, report: &mut Report) {
    for (cold, title) in [
        ([true, false], "Copy and CRC32C, source in memory, destination in cache, GB/s"),
        ([true, true], "Copy and CRC32C, both sides in memory, GB/s"),
    ] {
        let effort = Effort { ms_each: effort.ms_each * 5, ..effort };
        let (mut rows, mut names) = (Vec::new(), Vec::new());
        for size in COLD {
            let places = Places::new(size, cold, [0, 0]);
            let rates;
            (names, rates) = contest(effort, &places);
            let [memcpy, peer, ours] = of_interest(&names, &rates);
            rows.push(Row::new(size, rates).ratio("ours / peer", ours / peer, 1.4).ratio(
                "ours / memcpy",
                ours / memcpy,
                0.95,
            ));
        }
        report.table(title, names, rows);
    }
}

/// The worst of many pairs of misaligned places against the best peer at the same places.
pub(crate) fn measure_alignments(effort: Effort, report: &mut Report) {
    let offsets = [[0, 0], [0, 1], [0, 16], [1, 0], [16, 0], [4, 48], [48, 31], [63, 62], [52, 4]];
    let effort = Effort { ms_each: effort.ms_each.div_ceil(2), ..effort };
    let mut rows = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for size in ALIGNED {
        let mut worst: Option<(f64, Row)> = None;
        let mut aligned = 0.0;
        for pair in offsets {
            let places = Places::new(size, [false, false], pair);
            let rates;
            (names, rates) = contest(effort, &places);
            let [_, peer, ours] = of_interest(&names, &rates);
            if pair == [0, 0] {
                aligned = ours;
            }
            if worst.as_ref().is_none_or(|(ratio, _)| ours / peer < *ratio) {
                let row = Row::new(size, rates)
                    .note(format!("+{}, +{}", pair[0], pair[1]))
                    .ratio("ours / peer", ours / peer, 1.0)
                    .ratio("ours / ours aligned", ours / aligned, 0.0);
                worst = Some((ours / peer, row));
            }
        }
        rows.extend(worst.map(|(_, row)| row));
    }
    let title = "Copy and CRC32C at the worst of 9 misalignments, in cache, GB/s";
    report.table(title, names, rows);
}
