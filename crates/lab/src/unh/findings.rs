// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the figures say: the study's and ours, side by side.

mod open;
mod wire;

use super::{Carrier, KERNEL_CUT, Load, Measured, OWN_CUT, theirs};
use crate::figure::{Bar, Figure, Kind, Line, bytes, number};
use crate::report::{Report, Section, Table, doubt};

/// Fewer runs have no median that an outlier leaves alone.
const ROUNDS_MIN: usize = 3;

/// From here on the study speaks of a throughput that stays, bytes.
const STEADY: u32 = 2 << 20;

pub(super) fn report(measured: &Measured) -> Report {
    Report {
        name: "unh",
        title: "UNH: iSCSI over RDMA (Burns, 2008), re-run".into(),
        preface: preface(measured),
        sections: vec![
            wire::combinations(),
            wire::headers(measured),
            as_the_kernel(measured),
            user_space(measured),
            both_spaces(measured),
            wire::messages(measured),
            maxima(measured),
            open::unasked(measured),
            open::many(measured),
            open::cpu(measured),
            open::reads(measured),
            open::files(measured),
        ],
    }
}

fn preface(measured: &Measured) -> Vec<String> {
    let mut preface: Vec<String> = doubt(measured.options.rounds, ROUNDS_MIN).into_iter().collect();
    let (cut, kernel) = (bytes(u64::from(OWN_CUT)), bytes(u64::from(KERNEL_CUT)));
    preface.extend([
        format!(
            "Our target and our initiator in user space, in one process over loopback, engine {}, \
             {} CPUs, one thread each, which sleeps when it waits; a disk of 32 MiB in memory; {} \
             runs of {} ms of each case in turn, medians. iSER goes over software iWARP with MPA's \
             CRC, plain iSCSI over TCP without digests, as in the study.",
            measured.engine,
            measured.cpus,
            measured.options.rounds,
            measured.options.time.as_millis(),
        ),
        format!(
            "The study's parameters: MaxBurstLength and MaxRecvDataSegmentLength 512 KiB, \
             InitialR2T=Yes, ImmediateData=No, one transfer at a time, each of one command; here \
             one command moves {cut} at most, which is what the disk takes. Where it is said, \
             commands are of {kernel} at most, as Linux cut them for the study's initiator in the \
             kernel. InitiatorRecvDataSegmentLength and TargetRecvDataSegmentLength are 8 KiB \
             here: data that is asked for does not go by them.",
        ),
        "The study had adapters that carried iWARP by themselves, on 10-Gigabit Ethernet, with \
         four processors of 2.6 GHz a side. Here processors do the adapters' work, and loopback \
         has no line rate. Its plots are pictures that its text does not have: what the text says \
         of them is drawn dashed, where it says it (theirs.tsv, with the source of each value)."
            .into(),
    ]);
    preface
}

impl Measured {
    fn megabits(&self, load: Load) -> Option<f64> {
        self.case(load).map(super::Case::megabits)
    }

    /// Throughput over sizes.
    fn line(&self, name: &str, load: impl Fn(u32) -> Load) -> Line {
        let point = |size: u32| Some((u64::from(size), self.megabits(load(size))?));
        let points = self.options.sizes().into_iter().filter_map(point).collect();
        Line { name: name.to_owned(), points, published: false }
    }

    /// The largest of a line, and where.
    fn best(&self, load: impl Fn(u32) -> Load) -> f64 {
        let line = self.line("", load);
        line.points.iter().map(|(_, value)| *value).fold(0.0, f64::max)
    }

    /// Where the study speaks of a throughput that stays.
    fn steady(&self) -> impl Iterator<Item = u32> {
        self.options.sizes().into_iter().filter(|size| *size >= STEADY)
    }
}

/// Commands as those of Linux: what is small is the same.
fn pieces(carrier: Carrier, write: bool) -> impl Fn(u32) -> Load {
    move |size| {
        let load = Load::of(carrier, write, size);
        if size > KERNEL_CUT { load.in_pieces() } else { load }
    }
}

fn exact(carrier: Carrier, write: bool) -> impl Fn(u32) -> Load {
    move |size| Load::of(carrier, write, size)
}

fn figure(file: &'static str, title: &str, ours: Vec<Line>, of: &str) -> Figure {
    let mut lines = ours;
    lines.extend(theirs::lines(of));
    Figure { file, title: title.into(), unit: "Mb/s", kind: Kind::Lines(lines) }
}

/// The values of our lines.
fn table(lines: &[Line]) -> Table {
    let names = lines.iter().map(|line| line.name.as_str());
    let head: Vec<&str> = ["transfer"].into_iter().chain(names).collect();
    let mut table = Table::new(&head);
    let sizes = lines.first().map(|line| line.points.iter().map(|point| point.0));
    for size in sizes.into_iter().flatten() {
        let of = |line: &Line| {
            let point = line.points.iter().find(|point| point.0 == size);
            point.map_or_else(String::new, |(_, value)| number(*value))
        };
        table.row([bytes(size)].into_iter().chain(lines.iter().map(of)).collect());
    }
    table
}

/// Percent by which `new` is above `old`.
fn above(new: f64, old: f64) -> f64 {
    if old > 0.0 { 100.0 * (new / old - 1.0) } else { 0.0 }
}

fn percent(value: f64) -> String {
    format!("{value:+.0} %")
}

/// Figures 4-1 to 4-3.
fn as_the_kernel(measured: &Measured) -> Section {
    let mut section = Section::new(
        "Figures 4-1 to 4-3: commands of 512 KiB, as of the initiator in the kernel (here in user \
         space)",
    );
    let line = |name: &str, carrier, write| measured.line(name, pieces(carrier, write));
    let reads =
        || [line("iSER read", Carrier::Iwarp, false), line("iSCSI read", Carrier::Tcp, false)];
    let writes =
        || [line("iSER write", Carrier::Iwarp, true), line("iSCSI write", Carrier::Tcp, true)];
    section.figures.push(figure("figure-4-1", "Figure 4-1: reads", reads().into(), "4-1"));
    section.figures.push(figure("figure-4-2", "Figure 4-2: writes", writes().into(), "4-2"));
    let both =
        vec![line("iSER read", Carrier::Iwarp, false), line("iSER write", Carrier::Iwarp, true)];
    section.figures.push(figure("figure-4-3", "Figure 4-3: iSER, both", both, "4-3"));
    section.tables.push(table(&reads().into_iter().chain(writes()).collect::<Vec<_>>()));
    ahead(&mut section, measured, pieces, "with commands of 512 KiB");
    let gaps: Vec<f64> = measured
        .steady()
        .filter_map(|size| {
            let of = |write| measured.megabits(pieces(Carrier::Iwarp, write)(size));
            Some(of(false)? - of(true)?)
        })
        .collect();
    let gap = crate::measure::median(gaps);
    section.conclude(
        gap > 0.0,
        format!(
            "\"Reads are about 500 Mb/s above writes beyond 1 MB\", for a write needs an RDMA Read \
             Request: here they are {gap:+.0} Mb/s from them"
        ),
    );
    let climbs = [false, true].map(|write| {
        let at = |size| measured.megabits(pieces(Carrier::Iwarp, write)(size)).unwrap_or(0.0);
        let all: Vec<u32> = measured.options.sizes();
        let last = all.last().map_or(0.0, |size| at(*size));
        let first = measured.steady().next().map_or(0.0, at);
        (first, last)
    });
    section.conclude(
        climbs.iter().all(|(first, last)| (0.75..1.33).contains(&(last / first.max(1e-9)))),
        format!(
            "\"A steep climb until about 2 MB\", then a throughput that stays: here iSER reads go \
             from {:.0} to {:.0} Mb/s between the first size of 2 MiB or more and 10 MiB, writes \
             from {:.0} to {:.0}",
            climbs[0].0, climbs[0].1, climbs[1].0, climbs[1].1
        ),
    );
    section
}

/// iSER against plain iSCSI, at all sizes and where throughput stays.
fn ahead<L: Fn(u32) -> Load>(
    section: &mut Section,
    measured: &Measured,
    of: impl Fn(Carrier, bool) -> L,
    how: &str,
) {
    for (write, what) in [(false, "reads"), (true, "writes")] {
        let ratio = |size: u32| {
            let at = |carrier| measured.megabits(of(carrier, write)(size));
            Some(above(at(Carrier::Iwarp)?, at(Carrier::Tcp)?))
        };
        let all: Vec<f64> = measured.options.sizes().into_iter().filter_map(ratio).collect();
        let steady = crate::measure::median(measured.steady().filter_map(ratio).collect());
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        section.conclude(
            least > 0.0,
            format!(
                "\"iSER surpasses plain iSCSI immediately\" (adapters, {how}): {what} over \
                 software iWARP are at {} of plain iSCSI where throughput stays, and at {} at the \
                 worst size: the processor that moves the bytes is the same one, and does MPA's \
                 CRC, too",
                percent(steady),
                percent(least)
            ),
        );
    }
}

/// Figures 4-4 to 4-6.
fn user_space(measured: &Measured) -> Section {
    let mut section = Section::new("Figures 4-4 to 4-6: user space, commands of the exact size");
    let line = |name: &str, carrier, write| measured.line(name, exact(carrier, write));
    let reads =
        || [line("iSER read", Carrier::Iwarp, false), line("iSCSI read", Carrier::Tcp, false)];
    let writes =
        || [line("iSER write", Carrier::Iwarp, true), line("iSCSI write", Carrier::Tcp, true)];
    section.figures.push(figure("figure-4-4", "Figure 4-4: reads", reads().into(), "4-4"));
    section.figures.push(figure("figure-4-5", "Figure 4-5: writes", writes().into(), "4-5"));
    let both =
        vec![line("iSER read", Carrier::Iwarp, false), line("iSER write", Carrier::Iwarp, true)];
    section.figures.push(figure("figure-4-6", "Figure 4-6: iSER, both", both, "4-6"));
    section.tables.push(table(&reads().into_iter().chain(writes()).collect::<Vec<_>>()));
    ahead(&mut section, measured, exact, "one command for each transfer");
    let best = |write| measured.best(exact(Carrier::Iwarp, write));
    let (read, write) = (best(false), best(true));
    section.conclude(
        read < write,
        format!(
            "Reads stood still far below writes in user space ({:.0} of 8500 Mb/s), which the \
             study could not explain: here reads reach {read:.0} Mb/s and writes {write:.0}",
            theirs::READS_STAND_STILL
        ),
    );
    section
}

/// Figures 4-7 to 4-9, 4-12 and 4-13.
fn both_spaces(measured: &Measured) -> Section {
    let mut section = Section::new(
        "Figures 4-7 to 4-9, 4-12 and 4-13: commands of the exact size against those of 512 KiB",
    );
    let iser = Carrier::Iwarp;
    let pair = |write| {
        vec![
            measured.line("exact size", exact(iser, write)),
            measured.line("512 KiB", pieces(iser, write)),
        ]
    };
    for (file, title, write, of) in [
        ("figure-4-7", "Figure 4-7: iSER reads", false, "4-7"),
        ("figure-4-8", "Figure 4-8: iSER writes", true, "4-8"),
        ("figure-4-9", "Figure 4-9: iSER writes by kind of initiator", true, "4-9"),
        ("figure-4-13", "Figure 4-13: iSER writes by size of the command", true, "4-13"),
    ] {
        section.figures.push(figure(file, title, pair(write), of));
    }
    let hybrid = vec![measured.line("512 KiB", pieces(iser, true))];
    let title = "Figure 4-12: iSER writes with commands of 512 KiB";
    section.figures.push(figure("figure-4-12", title, hybrid, "4-12"));
    let mut named = pair(false);
    named.extend(pair(true));
    let kinds = ["read, exact", "read, 512 KiB", "write, exact", "write, 512 KiB"];
    named.iter_mut().zip(kinds).for_each(|(line, name)| line.name = name.to_owned());
    section.tables.push(table(&named));
    let gain = |write| {
        let of = |size: u32| {
            let exact = measured.megabits(exact(iser, write)(size))?;
            Some(above(exact, measured.megabits(pieces(iser, write)(size))?))
        };
        crate::measure::median(measured.steady().filter_map(of).collect())
    };
    let (read, write) = (gain(false), gain(true));
    section.conclude(
        write > 0.0,
        format!(
            "\"Without the overhead of the extra commands a significant increase\" (writes, figure \
             4-13): here {} for writes and {} for reads from 2 MiB on",
            percent(write),
            percent(read)
        ),
    );
    section.pass_over(
        "Initiator and target in the kernel (figures 4-7 to 4-9): not here, because that needs \
         root and modules; Linux's initiator and target over its own software iWARP are peers of \
         ours in interop/iser."
            .into(),
    );
    section
}

/// Table 5.1.
fn maxima(measured: &Measured) -> Section {
    let mut section = Section::new("Table 5.1: the largest throughput");
    let mut table = Table::new(&["what", "iSER, Mb/s", "iSCSI, Mb/s", "iSER / iSCSI"]);
    let mut bars = Vec::new();
    let mut row = |what: &str, iser: f64, iscsi: f64| {
        let ratio = if iscsi > 0.0 { iser / iscsi } else { 0.0 };
        table.row(vec![what.into(), number(iser), number(iscsi), format!("{ratio:.2}")]);
        bars.push(Bar::new(what, "iSER", vec![iser]));
        bars.push(Bar::new(what, "iSCSI", vec![iscsi]));
        ratio
    };
    for pair in theirs::said("5.1").chunks_exact(2) {
        let [iser, iscsi] = pair else { continue };
        let what = iser.line.strip_suffix(", iSER").unwrap_or(iser.line);
        row(&format!("study: {what}"), iser.megabits, iscsi.megabits);
    }
    let mut ratios = Vec::new();
    for (what, write) in [("ours: reads", false), ("ours: writes", true)] {
        let best = |carrier| measured.best(exact(carrier, write));
        ratios.push(row(what, best(Carrier::Iwarp), best(Carrier::Tcp)));
    }
    for (what, write) in [("ours: reads, 512 KiB", false), ("ours: writes, 512 KiB", true)] {
        let best = |carrier| measured.best(pieces(carrier, write));
        row(what, best(Carrier::Iwarp), best(Carrier::Tcp));
    }
    section.tables.push(table);
    section.figures.push(Figure {
        file: "table-5-1",
        title: "Table 5.1: the largest throughput".into(),
        unit: "Mb/s",
        kind: Kind::Bars { parts: vec!["payload"], bars },
    });
    section.conclude(
        ratios.iter().all(|ratio| *ratio > 1.0),
        format!(
            "\"iSER makes much more efficient use\" of the line, 1.6 to 1.9 times plain iSCSI with \
             adapters: here {:.2} times for reads and {:.2} for writes, by software",
            ratios.first().copied().unwrap_or(0.0),
            ratios.last().copied().unwrap_or(0.0)
        ),
    );
    section
}
