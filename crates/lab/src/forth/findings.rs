// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the figures say: the study's and ours, side by side.

mod apps;
mod columns;
mod grid;
mod mail;
mod queries;
mod rising;

use super::apps::Outcome;
use super::theirs;
use super::{Case, Load, Measured, Mix, Packet, Pattern, Place, Sample};
use crate::picture::{Kind, Line, Picture, bytes, number};
use crate::study::{Figure, Findings, Table};
use crate::verdict::{Bound, Spread, Test};

pub(super) fn report(measured: &Measured, applications: &[Outcome; 4]) -> Findings {
    let [mail, tpch, columns, sfs] = applications;
    let mut figures = vec![network(measured), single(measured)];
    figures.extend(grid::figures(measured));
    figures.extend(mail::figures(mail));
    figures.extend(queries::figures(tpch));
    figures.push(columns::figure(columns, tpch));
    figures.push(rising::figure(sfs));
    figures.extend(Figure::lacking("forth"));
    let varied = applications.iter().flat_map(Outcome::variations);
    let variations = measured.variations().into_iter().chain(varied).collect();
    Findings {
        title: "FORTH: disks behind one target and behind three (Xinidis et al., 2005), re-run",
        preface: preface(measured, applications),
        variations,
        figures,
    }
}

fn preface(measured: &Measured, applications: &[Outcome]) -> Vec<String> {
    let options = &measured.options;
    let sizes: Vec<String> = options.sizes.iter().map(|size| bytes(u64::from(*size))).collect();
    let depths: Vec<String> = options.depths.iter().map(ToString::to_string).collect();
    let mut preface = vec![
        format!(
            "Direct: {disks} files as RAID-0 (64 KiB), read and written by a thread for each \
             request outstanding. iSCSI x1: {disks} such files behind a target. iSCSI x3: {nodes} \
             such targets, striped by the initiator. Sizes {}; {} outstanding; {} runs of {} ms of \
             each case in turn, medians. Files of {} MiB each.",
            sizes.join(", "),
            depths.join(", "),
            options.rounds,
            options.time.as_millis(),
            options.disk >> 20,
            disks = theirs::DISKS,
            nodes = theirs::NODES,
        ),
        "All is in one process over loopback: the application's side has the last processor, all \
         targets share the first one, so three of them have no more processors, memory or wire \
         than one has, which the study's had. Files are in the system's cache, which the targets \
         have as the study's had theirs; \"no cache\" and \"one disk\" pass it by. CPU is that of \
         the application's threads, with the initiator and the kernel's work for them."
            .to_owned(),
        "The study's plots are not in its text: what the text says of them is drawn dashed. It \
         does not say how many requests were outstanding in figures 4 to 6: claims are tested with \
         as many as were measured."
            .to_owned(),
    ];
    for (place, why) in &measured.lacking {
        preface.push(format!("Not here: {}, because {why}.", place.name()));
    }
    for outcome in applications {
        preface.extend(outcome.preface.iter().cloned());
    }
    let reasons = applications.iter().flat_map(|outcome| &outcome.lacking);
    let mut told: Vec<String> = Vec::new();
    for line in reasons.map(|why| format!("Not here: {why}.")) {
        // Several applications may need the same.
        if !told.contains(&line) {
            told.push(line);
        }
    }
    preface.extend(told);
    preface
}

impl Measured {
    /// Of the throughput of each case.
    fn variations(&self) -> Vec<f64> {
        let of = |case: &Case| Spread::of(&case.values(Case::rate)).variation;
        self.cases.iter().map(of).collect()
    }

    fn spread(&self, place: Place, load: Load, of: Of) -> Option<Spread> {
        Some(Spread::of(&self.case(place, load)?.values(of)))
    }

    /// Something at one place by the same at another, run by run.
    fn ratio(&self, load: Load, places: [Place; 2], of: Of) -> Option<Spread> {
        let [a, b] = places.map(|place| self.case(place, load));
        Some(Spread::paired(&a?.values(of), &b?.values(of), |a, b| a / b.max(1e-9)))
    }

    /// Something over sizes.
    fn line(&self, place: Place, load: Load, of: Of) -> Line {
        let point = |&size: &u32| {
            let case = self.case(place, Load { bytes: size, ..load })?;
            Some((u64::from(size), case.typical(of)))
        };
        let points = self.options.sizes.iter().filter_map(point).collect();
        Line { name: place.name().to_owned(), points, published: false }
    }

    /// What the study says of all sizes.
    fn published(&self, name: &str, value: f64) -> Line {
        let ends = [self.options.sizes.first(), self.options.sizes.last()];
        let points = ends.into_iter().flatten().map(|size| (u64::from(*size), value)).collect();
        Line { name: format!("study: {name}"), points, published: true }
    }
}

/// Something of a run.
type Of = fn(&Case, &Sample) -> f64;

/// Figure 2.
fn network(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&["Figure 2"], "Figure 2: TCP alone");
    figure.method = "A stream of packets over loopback, and one that goes to and fro.".into();
    let mut table = Table::new(&["packet", "Mbit/s", "latency, us"]);
    let [mut rates, mut latencies] = [Vec::new(), Vec::new()];
    for packet in &measured.packets {
        let [rate, latency] =
            [&packet.megabits, &packet.latency_us].map(|values| Spread::of(values).median);
        let size = u64::from(packet.bytes);
        table.row(vec![bytes(size), number(rate), number(latency)]);
        rates.push((size, rate));
        latencies.push((size, latency));
    }
    figure.tables.push(table);
    let at_most = Line {
        name: "study: at most".into(),
        points: vec![(512, theirs::NETWORK), (u64::from(theirs::PACKET_MAX), theirs::NETWORK)],
        published: true,
    };
    let line = |points| Line { name: "ours, loopback".into(), points, published: false };
    for (file, title, unit, lines) in [
        ("figure-2a", "Throughput of TCP", "Mbit/s", vec![line(rates), at_most]),
        ("figure-2b", "Latency of TCP", "us", vec![line(latencies)]),
    ] {
        figure.pictures.push(Picture { file, title: title.into(), unit, kind: Kind::Lines(lines) });
    }
    let last = measured.packets.iter().find(|packet| packet.bytes == theirs::PACKET_MAX);
    let Some(last) = last else { return figure };
    let others = measured.packets.iter().filter(|packet| packet.bytes < theirs::PACKET_MAX);
    let test = |packet: &Packet| {
        let ratio = Spread::paired(&last.megabits, &packet.megabits, |last, one| last / one);
        let name = format!("times the throughput of {}", bytes(u64::from(packet.bytes)));
        Test::new(name, ratio, Bound::Above(1.0))
    };
    figure.claim(
        format!("The largest packets carry most: about {:.0} Mbit/s at 128 KiB", theirs::NETWORK),
        format!("{:.0} Mbit/s over loopback, which has no wire", Spread::of(&last.megabits).median),
        others.map(test).collect(),
    );
    figure
}

/// Figure 3.
fn single(measured: &Measured) -> Figure {
    let mut figure = Figure::new(
        &["Figure 3"],
        "Figure 3: one disk and a RAM-disk behind iSCSI, one request at a time",
    );
    let load = |mix, bytes| Load { pattern: Pattern::Sequential, mix, bytes, depth: 1 };
    let quantities: [(&str, &str, Of); 3] = [
        ("MB/s", "throughput", Case::rate),
        ("us", "response", Case::response),
        ("% of a processor", "cpu", Case::cpu),
    ];
    let mut table = Table::new(&["place", "sequential", "bytes", "MB/s", "response, us", "CPU, %"]);
    for place in Place::SINGLE {
        for mix in Mix::ALL {
            for &size in &measured.options.sizes {
                let Some(case) = measured.case(place, load(mix, size)) else { continue };
                let mut row = vec![place.name().into(), mix.name().into(), bytes(u64::from(size))];
                row.extend(quantities.map(|(_, _, of)| number(case.typical(of))));
                table.row(row);
            }
        }
    }
    figure.tables.push(table);
    let files = ["figure-3-throughput", "figure-3-response", "figure-3-cpu"];
    for (file, (unit, what, of)) in files.into_iter().zip(quantities) {
        let lines = Place::SINGLE.into_iter().flat_map(|place| Mix::ALL.map(|mix| (place, mix)));
        let line = |(place, mix): (Place, Mix)| {
            let name = format!("{}, {}", place.name(), mix.name());
            Line { name, ..measured.line(place, load(mix, 0), of) }
        };
        let lines: Vec<Line> = lines.map(line).filter(|line| !line.points.is_empty()).collect();
        let title = format!("Figure 3: {what}");
        figure.pictures.push(Picture { file, title, unit, kind: Kind::Lines(lines) });
    }
    let mut tests = Vec::new();
    for (mix, percent) in [Mix::Read, Mix::Write].into_iter().zip(theirs::RAM_DISK_CPU) {
        let sizes = measured.options.sizes.iter();
        for &size in sizes.filter(|size| **size >= theirs::RAM_DISK_CPU_SIZE) {
            let Some(cpu) = measured.spread(Place::Ram, load(mix, size), Case::cpu) else {
                continue;
            };
            let name = format!("% of CPU, {} of {}", mix.name(), bytes(u64::from(size)));
            tests.push(Test::new(name, cpu, Bound::Above(percent - ALLOWANCE)));
        }
    }
    let median = crate::measure::median(tests.iter().map(|test| test.spread.median).collect());
    let [reads, writes] = theirs::RAM_DISK_CPU;
    figure.claim(
        format!(
            "The initiator's CPU limits: {reads:.0} % for reads and {writes:.0} % for writes from \
             1 KiB on"
        ),
        format!("{median:.0} % at the median, beside a target on a processor of its own"),
        tests,
    );
    let least = load(Mix::Read, 512);
    if let Some(response) = measured.spread(Place::Ram, least, Case::response) {
        figure.claim(
            format!("Response time at 512 B is less than {:.0} us", theirs::RESPONSE),
            format!("{:.0} us", response.median),
            vec![Test::new("us", response, Bound::Below(theirs::RESPONSE))],
        );
    }
    let at = load(Mix::Read, theirs::RAM_DISK_SIZE);
    let at = measured.spread(Place::Ram, at, Case::rate);
    let claim =
        format!("The RAM-disk reaches {:.0} MB/s at 16 KiB, one at a time", theirs::RAM_DISK);
    match at {
        Some(rate) => figure.claim(
            claim,
            format!("{:.0} MB/s", rate.median),
            vec![Test::new("MB/s", rate, Bound::Above(theirs::RAM_DISK))],
        ),
        None => figure.not_here(claim, "16 KiB is not among the sizes of this run"),
    }
    let [read, write, mixed] = theirs::DISK;
    let rates = Mix::ALL.map(|mix| {
        let cases = measured.options.sizes.iter();
        let cases =
            cases.filter_map(|size| measured.spread(Place::Disk, load(mix, *size), Case::rate));
        Spread::most(cases)
    });
    let claim = format!(
        "A disk reads {read:.0} MB/s and writes {write:.0} sequentially ({mixed:.0} of 70 % reads)"
    );
    match measured.lacking.iter().find(|(place, _)| *place == Place::Disk) {
        Some((_, why)) => figure.not_here(claim, why.clone()),
        None => figure.claim(
            claim,
            format!(
                "{:.0} and {:.0} MB/s ({:.0})",
                rates[0].median, rates[1].median, rates[2].median
            ),
            vec![Test::new("reads by writes", rates[0] / rates[1], Bound::Above(1.0))],
        ),
    }
    figure
}

/// Percent by which a share of the CPU may be less than the study's.
const ALLOWANCE: f64 = 10.0;
