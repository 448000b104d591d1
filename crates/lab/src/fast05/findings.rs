// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures 11, 12, 14 to 17 of the study beside ours, and what ours say of them.

mod profile;

use profile::profile;

use super::theirs;
use super::touching::Costs;
use super::{Measured, OfTiers};
use crate::machine::processor;
use crate::picture::{Bar, Kind, Line, Picture, bytes, number};
use crate::study::{Figure, Findings, Table};
use crate::verdict::{Bound, Spread, Test};
use crate::words;

/// Places of the kernels in what was measured.
const SARWATE: usize = 0;
const SLICING8: usize = 1;
const BEST: usize = 2;

/// Places of the states of the caches.
const COLD: usize = 0;
const WARM: usize = 1;

/// The whole report.
pub(super) fn report(measured: &Measured) -> Findings {
    Findings {
        title: "FAST05: the cost of iSCSI without a network, theirs and ours",
        preface: preface(measured),
        variations: variations(measured),
        figures: vec![
            profile(measured, SARWATE),
            protocol(measured),
            crc(measured),
            profile(measured, SLICING8),
            profile(measured, BEST),
            one_go(measured),
            throughput(measured),
            writes(measured),
        ],
    }
}

/// Of the cycles of each path.
fn variations(measured: &Measured) -> Vec<f64> {
    let paths = measured.reads.iter().chain(&measured.writes).flat_map(|(_, tiers)| tiers);
    paths.flatten().map(|cycles| cycles.variation).collect()
}

fn preface(measured: &Measured) -> Vec<String> {
    let best = measured.tiers[BEST];
    vec![
        format!(
            "Theirs: a Pentium M at 1.7 GHz. Ours: {}; cycles are those of the time-stamp counter, \
             {:.2} GHz, medians of {} runs. The best CRC32C kernel of this machine is {best}.",
            processor(),
            measured.per_second / 1e9,
            measured.rounds
        ),
        format!(
            "As in the study: one session of {} connections, {} commands in turn, PDUs of 8 KiB, \
             both digests, the status in the last Data-In. Cold: data is purged from all caches, \
             everything else from the two nearest ones, and headers are brought back: TCP has just \
             looked at them.",
            theirs::CONNECTIONS,
            theirs::COMMANDS
        ),
        "Data comes out of order: each two PDUs of a read change places. Cycles for the protocol \
         are measured without digests and with 4 bytes of data, those for copy and CRC for the \
         same bytes without protocol."
            .to_owned(),
    ]
}

/// Protocol of a single cold Data-In.
fn protocol_of_one(measured: &Measured) -> Spread {
    measured.protocol.first().map_or_else(Spread::default, |(_, costs)| costs[COLD])
}

/// The largest size of one PDU that was measured, and its costs, cold.
fn largest(measured: &Measured, tier: usize) -> (u32, Costs<Spread>) {
    let last = measured.costs.last();
    last.map_or_else(|| (1, Costs::default()), |(size, all)| (*size, all[tier][COLD]))
}

fn percent(part: Spread, whole: Spread) -> Spread {
    part / whole * 100.0
}

/// Figure 12.
fn protocol(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&["Figure 12"], "Figure 12: protocol cost of a Data-In of 8 KiB");
    let mut table = Table::new(&["read", "cold", "warm", "theirs, cold", "theirs, warm"]);
    for (pdus, costs) in &measured.protocol {
        let their = match pdus {
            1 => number(theirs::PROTOCOL_COLD),
            8 => number(theirs::PROTOCOL_64K),
            _ => "-".to_owned(),
        };
        table.row(vec![
            bytes(u64::from(pdus * theirs::SEGMENT)),
            number(costs[COLD].median),
            number(costs[WARM].median),
            their,
            number(theirs::PROTOCOL_WARM),
        ]);
    }
    figure.tables.push(table);
    let line = |name: &str, state: usize| Line {
        name: name.to_owned(),
        points: measured
            .protocol
            .iter()
            .map(|(pdus, costs)| (u64::from(pdus * theirs::SEGMENT), costs[state].median))
            .collect(),
        published: false,
    };
    let published = |name: &str, first: f64, last: f64| Line {
        name: name.to_owned(),
        points: vec![(8 << 10, first), (64 << 10, last)],
        published: true,
    };
    let lines = vec![
        line("ours, cold", COLD),
        line("ours, warm", WARM),
        published("theirs, cold", theirs::PROTOCOL_COLD, theirs::PROTOCOL_64K),
        published("theirs, warm", theirs::PROTOCOL_WARM, theirs::PROTOCOL_WARM),
    ];
    figure.pictures.push(Picture {
        file: "figure-12",
        title: "Protocol cost of a Data-In over the size of the read".to_owned(),
        unit: "cycles",
        kind: Kind::Lines(lines),
    });
    let claim = format!(
        "Later PDUs of a read find its context in cache: {:.0} cycles for one PDU, {:.0} for each \
         of eight.",
        theirs::PROTOCOL_COLD,
        theirs::PROTOCOL_64K
    );
    let (first, last) = (measured.protocol.first(), measured.protocol.last());
    match (first, last) {
        (Some((_, first)), Some((pdus, last))) if *pdus > 1 => {
            let size = bytes(u64::from(pdus * theirs::SEGMENT));
            let (one, each) = (first[COLD], last[COLD]);
            figure.claim(
                claim,
                format!("{:.0} to {:.0} cycles for {size}.", one.median, each.median),
                vec![Test::new("each against one", each / one, Bound::Below(LESS))],
            );
        }
        _ => figure.not_here(claim, "reads of this size have one PDU."),
    }
    figure
}

/// What is said to be less is so by a fifth.
const LESS: f64 = 0.8;

/// What is said to be two or three times as fast has to be this many times as fast.
const TWICE: f64 = 2.0;

/// What is said to cost as much costs half as much to twice as much.
const ALIKE: Bound = Bound::Within(0.5, 2.0);

/// Figure 14.
fn crc(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&["Figure 14"], "Figure 14: CRC of what is in cache");
    let names = measured.tiers.map(|tier| format!("{tier}, cycles"));
    let mut head = vec!["bytes"];
    head.extend(names.iter().map(String::as_str));
    head.extend(["ratio", "theirs: Sarwate", "slicing-by-8"]);
    let mut table = Table::new(&head);
    for (size, all) in &measured.costs {
        let of = all.map(|costs| costs[WARM].crc);
        let mut row = vec![bytes((*size).into())];
        row.extend(of.map(|one| number(one.median)));
        row.push(format!("{:.2}", (of[SARWATE] / of[SLICING8]).median));
        row.push(number(theirs::SARWATE * f64::from(*size)));
        row.push(number(theirs::SLICING8 * f64::from(*size)));
        table.row(row);
    }
    figure.tables.push(table);
    let ours = (0..3).map(|tier| Line {
        name: measured.tiers[tier].name().to_owned(),
        points: points(&measured.costs, |all| all[tier][WARM].crc.median),
        published: false,
    });
    let published =
        [("theirs, Sarwate", theirs::SARWATE), ("theirs, slicing-by-8", theirs::SLICING8)].map(
            |(name, per_byte)| Line {
                name: name.to_owned(),
                points: measured
                    .costs
                    .iter()
                    .map(|(size, _)| (u64::from(*size), per_byte * f64::from(*size)))
                    .collect(),
                published: true,
            },
        );
    figure.pictures.push(Picture {
        file: "figure-14",
        title: "CRC of a data segment and its header".to_owned(),
        unit: "cycles",
        kind: Kind::Lines(ours.chain(published).collect()),
    });
    if let Some((size, all)) = measured.costs.last() {
        let of = all.map(|costs| costs[WARM].crc * f64::from(*size).recip());
        let [sarwate, slicing8, best] = of;
        figure.claim(
            format!(
                "Slicing-by-8 is three times as fast as Sarwate's algorithm: {} to {} cycles for a \
                 byte.",
                theirs::SARWATE,
                theirs::SLICING8
            ),
            format!(
                "{:.2} to {:.2} cycles ({:.1} times); {} takes {:.3} ({:.0} times).",
                sarwate.median,
                slicing8.median,
                (sarwate / slicing8).median,
                measured.tiers[BEST],
                best.median,
                (sarwate / best).median,
            ),
            vec![Test::new("times as fast", sarwate / slicing8, Bound::Above(TWICE))],
        );
    }
    figure
}

fn points<T>(all: &[(u32, T)], value: impl Fn(&T) -> f64) -> Vec<(u64, f64)> {
    all.iter().map(|(size, one)| (u64::from(*size), value(one))).collect()
}

/// Figure 16.
fn one_go(measured: &Measured) -> Figure {
    let mut figure = Figure::new(
        &["Figure 16"],
        "Figure 16: copy and CRC one after the other and in one go, cold",
    );
    let mut table = Table::new(&[
        "kernel",
        "bytes",
        "copy, then CRC",
        "in one go",
        "saved, %",
        "theirs, saved, %",
    ]);
    let mut bars = Vec::new();
    for (tier, published) in [
        (SARWATE, Some(theirs::SAVED_SARWATE)),
        (SLICING8, Some(theirs::SAVED_SLICING8)),
        (BEST, None),
    ] {
        let name = measured.tiers[tier].name();
        for (size, all) in &measured.costs {
            let Costs { copy, crc, fused } = all[tier][COLD];
            let saved = percent(copy + crc - fused, copy + crc);
            let at_last = *size == largest(measured, tier).0;
            let their = published.filter(|_| at_last);
            table.row(vec![
                name.to_owned(),
                bytes((*size).into()),
                number((copy + crc).median),
                number(fused.median),
                format!("{:.0}", saved.median),
                their.map_or_else(|| "-".to_owned(), |saved| format!("{saved:.0}")),
            ]);
            if at_last {
                let [of_copy, of_crc, of_both] = [copy, crc, fused].map(|one| one.median);
                bars.push(Bar::new(name, "one after the other", vec![of_copy, of_crc, 0.0]));
                bars.push(Bar::new(name, "in one go", vec![0.0, 0.0, of_both]));
                let ours = format!(
                    "{} ({:.0} to {of_both:.0} cycles for {}).",
                    words::percent(saved.median),
                    of_copy + of_crc,
                    bytes((*size).into())
                );
                let tests =
                    vec![Test::new(format!("% saved, {name}"), saved, Bound::Above(SAVED_MIN))];
                match published {
                    Some(their) => figure.claim(
                        format!("Copying and CRC in one go save {their:.0} % with {name}."),
                        ours,
                        tests,
                    ),
                    None => figure.claim(
                        format!("They save with {name}, too, which is not in the study."),
                        ours,
                        tests,
                    ),
                }
            }
        }
    }
    figure.tables.push(table);
    figure.pictures.push(Picture {
        file: "figure-16",
        title: format!("Copy and CRC of {}, cold", bytes(largest(measured, BEST).0.into())),
        unit: "cycles",
        kind: Kind::Bars { parts: vec!["copy", "CRC", "in one go"], bars },
    });
    figure
}

/// Percent that are worth the name.
const SAVED_MIN: f64 = 5.0;

/// What was measured for a size.
fn of_size(all: &[(u32, OfTiers<Spread>)], size: u32) -> OfTiers<Spread> {
    let found = all.iter().find(|(known, _)| *known == size);
    found.map_or_else(OfTiers::default, |(_, costs)| *costs)
}

/// MB/s of PDUs of `size` bytes that take `cycles`.
fn rate(measured: &Measured, size: u32, cycles: Spread) -> Spread {
    Spread::exact(f64::from(size) * measured.per_second / 1e6) / cycles
}

/// Figure 17.
fn throughput(measured: &Measured) -> Figure {
    let mut figure =
        Figure::new(&["Figure 17"], "Figure 17: throughput of reads, cold, projected from cycles");
    figure.method = "Cycles of one processor for each PDU, without a TCP stack below, make the \
                     throughput that it could have at most."
        .to_owned();
    let [sarwate, slicing8, best] = measured.tiers.map(|tier| tier.name());
    let heads = [
        format!("{sarwate}, one after the other"),
        format!("{slicing8}, one after the other"),
        format!("{slicing8}, in one go"),
        format!("{best}, in one go"),
    ];
    let mut table = Table::new(&["read", &heads[0], &heads[1], &heads[2], &heads[3]]);
    let mut lines = heads.clone().map(|name| Line { name, points: Vec::new(), published: false });
    let mut ends = [Spread::default(); 4];
    for (size, path) in &measured.reads {
        let segment = theirs::SEGMENT.min(*size);
        let pdus = size / segment;
        let protocol = measured.protocol.iter().find(|(known, _)| *known == pdus);
        let protocol = protocol.map_or_else(|| protocol_of_one(measured), |(_, costs)| costs[COLD]);
        let costs = measured.costs.iter().find(|(known, _)| *known == segment);
        let costs = costs.map_or_else(OfTiers::default, |(_, costs)| *costs);
        let sequential = |tier: usize| protocol + costs[tier][COLD].copy + costs[tier][COLD].crc;
        let cycles =
            [sequential(SARWATE), sequential(SLICING8), path[SLICING8][COLD], path[BEST][COLD]];
        let rates = cycles.map(|cycles| rate(measured, segment, cycles));
        let mut row = vec![bytes((*size).into())];
        row.extend(rates.map(|rate| number(rate.median)));
        table.row(row);
        for (line, rate) in lines.iter_mut().zip(rates) {
            line.points.push((u64::from(*size), rate.median));
        }
        ends = rates;
    }
    figure.tables.push(table);
    let size_max = measured.reads.last().map_or(8192, |(size, _)| u64::from(*size));
    let flat = |name: &str, value: f64| Line {
        name: name.to_owned(),
        points: vec![(512, value), (size_max, value)],
        published: true,
    };
    let mut lines = Vec::from(lines);
    lines.push(flat("10 GbE", theirs::LINE_RATE));
    lines.push(flat("theirs, before", theirs::BEFORE));
    lines.push(flat("theirs, after", theirs::AFTER));
    figure.pictures.push(Picture {
        file: "figure-17",
        title: "MB/s that one processor could read (theirs with TCP, at most)".to_owned(),
        unit: "MB/s",
        kind: Kind::Lines(lines),
    });
    let [before, _, after, today] = ends;
    figure.claim(
        format!(
            "Both improvements together make reads {:.1} times as fast: {} to {} MB/s, with a TCP \
             stack below.",
            theirs::AFTER / theirs::BEFORE,
            theirs::BEFORE,
            theirs::AFTER
        ),
        format!(
            "{:.0} to {:.0} MB/s, {:.1} times, without a TCP stack, which would take as much of \
             both; {best} makes it {:.0}.",
            before.median,
            after.median,
            (after / before).median,
            today.median
        ),
        vec![Test::new("times as fast", after / before, Bound::Above(TWICE))],
    );
    figure.claim(
        format!("With tables iSCSI stays below the {:.0} MB/s of 10 GbE.", theirs::LINE_RATE),
        format!("{:.0} MB/s on one processor.", after.median),
        vec![Test::new("MB/s", after, Bound::Below(theirs::LINE_RATE))],
    );
    figure
}

/// Writes, of which the study has words and no figure.
fn writes(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&[], "Writes: cost of a Data-Out with both digests");
    let mut head = vec!["write".to_owned()];
    head.extend(measured.tiers.map(|tier| format!("{tier}, cold")));
    head.extend(measured.tiers.map(|tier| format!("{tier}, warm")));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new(&head);
    for (size, path) in &measured.writes {
        let mut row = vec![bytes((*size).into())];
        row.extend((0..3).map(|tier| number(path[tier][COLD].median)));
        row.extend((0..3).map(|tier| number(path[tier][WARM].median)));
        table.row(row);
    }
    figure.tables.push(table);
    let mut table = Table::new(&["I/O", "Data-In, cold", "Data-Out, cold", "warm", "warm"]);
    for ((pdus, read), (_, write)) in measured.protocol.iter().zip(&measured.protocol_out) {
        table.row(vec![
            bytes(u64::from(pdus * theirs::SEGMENT)),
            number(read[COLD].median),
            number(write[COLD].median),
            number(read[WARM].median),
            number(write[WARM].median),
        ]);
    }
    figure.tables.push(table);
    let (read, write) = (measured.protocol.last(), measured.protocol_out.last());
    if let (Some((pdus, read)), Some((_, write))) = (read, write) {
        let (out, into) = (write[COLD], read[COLD]);
        figure.claim(
            "Writes cost less protocol than reads.",
            format!(
                "{:.0} against {:.0} cycles for a PDU of {}. A write is not copied at all: its \
                 gather list points into its buffer.",
                out.median,
                into.median,
                bytes(u64::from(pdus * theirs::SEGMENT))
            ),
            vec![Test::new("a write against a read", out / into, Bound::Below(1.0))],
        );
    }
    figure
}
