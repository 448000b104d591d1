// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the figures say: the study's and ours, side by side.

mod open;
mod wire;

use super::{Carrier, Case, KERNEL_CUT, Load, Measured, OWN_CUT, theirs};
use crate::picture::{self, Bar, Kind, Line, Picture, bytes, number};
use crate::study::{Figure, Findings, Table};
use crate::verdict::{Answer, Bound, Spread, Test};
use crate::words::beside;

/// From here on the study speaks of a throughput that stays, bytes.
const STEADY: u32 = 2 << 20;

pub(super) fn report(measured: &Measured) -> Findings {
    Findings {
        title: "UNH: iSCSI over RDMA (Burns, 2008), re-run",
        preface: preface(measured),
        variations: measured.variations(),
        figures: vec![
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
    let (cut, kernel) = (bytes(u64::from(OWN_CUT)), bytes(u64::from(KERNEL_CUT)));
    vec![
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
    ]
}

impl Measured {
    /// Of the throughput of each case.
    fn variations(&self) -> Vec<f64> {
        self.cases.iter().map(|case| Spread::of(&case.rates()).variation).collect()
    }

    fn megabits(&self, load: Load) -> Option<f64> {
        self.case(load).map(Case::megabits)
    }

    /// Throughput over sizes.
    fn line(&self, name: &str, load: impl Fn(u32) -> Load) -> Line {
        let point = |size: u32| Some((u64::from(size), self.megabits(load(size))?));
        let points = self.options.sizes().into_iter().filter_map(point).collect();
        Line { name: name.to_owned(), points, published: false }
    }

    /// The case with the largest throughput of some.
    fn best(&self, load: impl Fn(u32) -> Load) -> Option<&Case> {
        let cases = self.options.sizes().into_iter().filter_map(|size| self.case(load(size)));
        cases.max_by(|a, b| a.megabits().total_cmp(&b.megabits()))
    }

    fn most(&self, load: impl Fn(u32) -> Load) -> f64 {
        self.best(load).map_or(0.0, Case::megabits)
    }

    /// By how many percent the throughput of one load is above that of another.
    fn gain(&self, of: Load, against: Load) -> Option<Spread> {
        Some(gain(self.case(of)?, self.case(against)?))
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

fn picture(file: &'static str, title: &str, ours: Vec<Line>, of: &str) -> Picture {
    let mut lines = ours;
    lines.extend(theirs::lines(of));
    Picture { file, title: title.into(), unit: "Mb/s", kind: Kind::Lines(lines) }
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

/// By how many percent one case is above another, run by run.
fn gain(of: &Case, against: &Case) -> Spread {
    Spread::paired(&of.rates(), &against.rates(), above)
}

/// A test for each size.
fn for_sizes(
    sizes: impl IntoIterator<Item = u32>,
    what: &str,
    of: impl Fn(u32) -> Option<Spread>,
    bound: Bound,
) -> Vec<Test> {
    let test = |size: u32| {
        let name = format!("{what}, {}", bytes(u64::from(size)));
        Some(Test::new(name, of(size)?, bound))
    };
    sizes.into_iter().filter_map(test).collect()
}

/// The median over several quantities.
fn middle(tests: &[Test]) -> f64 {
    crate::measure::median(tests.iter().map(|test| test.spread.median).collect())
}

/// Percent by which `new` is above `old`.
fn above(new: f64, old: f64) -> f64 {
    if old > 0.0 { 100.0 * (new / old - 1.0) } else { 0.0 }
}

fn percent(value: f64) -> String {
    format!("{value:+.0} %")
}

/// Figures 4-1 to 4-3.
fn as_the_kernel(measured: &Measured) -> Figure {
    let mut figure = Figure::new(
        &["Figure 4-1", "Figure 4-2", "Figure 4-3"],
        "Figures 4-1 to 4-3: commands of 512 KiB, as of the initiator in the kernel (here in user \
         space)",
    );
    let line = |name: &str, carrier, write| measured.line(name, pieces(carrier, write));
    let reads =
        || [line("iSER read", Carrier::Iwarp, false), line("iSCSI read", Carrier::Tcp, false)];
    let writes =
        || [line("iSER write", Carrier::Iwarp, true), line("iSCSI write", Carrier::Tcp, true)];
    figure.pictures.push(picture("figure-4-1", "Figure 4-1: reads", reads().into(), "4-1"));
    figure.pictures.push(picture("figure-4-2", "Figure 4-2: writes", writes().into(), "4-2"));
    let both =
        vec![line("iSER read", Carrier::Iwarp, false), line("iSER write", Carrier::Iwarp, true)];
    figure.pictures.push(picture("figure-4-3", "Figure 4-3: iSER, both", both, "4-3"));
    figure.tables.push(table(&reads().into_iter().chain(writes()).collect::<Vec<_>>()));
    ahead(&mut figure, measured, pieces, "with commands of 512 KiB");
    let gaps = for_sizes(
        measured.steady(),
        "% that reads are above writes",
        |size| {
            let of = |write| pieces(Carrier::Iwarp, write)(size);
            measured.gain(of(false), of(true))
        },
        Bound::Above(0.0),
    );
    figure.claim(
        "\"Reads are about 500 Mb/s above writes beyond 1 MB\", for a write needs an RDMA Read \
         Request",
        format!("they are {} them from 2 MiB on", beside(middle(&gaps))),
        gaps,
    );
    let climb = |write| {
        let at = |size| measured.case(pieces(Carrier::Iwarp, write)(size));
        let last = measured.options.sizes().last().copied().and_then(at);
        Some((measured.steady().next().and_then(at)?, last?))
    };
    let mut tests = Vec::new();
    let mut told = Vec::new();
    for (write, what) in [(false, "reads"), (true, "writes")] {
        let Some((first, last)) = climb(write) else { continue };
        let ratio = Spread::paired(&last.rates(), &first.rates(), |last, first| last / first);
        tests.push(Test::new(format!("{what}, 10 MiB against 2 MiB"), ratio, STAYS));
        told.push(format!("{what} go from {:.0} to {:.0} Mb/s", first.megabits(), last.megabits()));
    }
    figure.claim(
        "\"A steep climb until about 2 MB\", then a throughput that stays",
        format!("iSER {} between the first size of 2 MiB or more and 10 MiB", told.join(", ")),
        tests,
    );
    figure
}

/// A throughput that stays changes by less than a third.
const STAYS: Bound = Bound::Within(0.75, 1.33);

/// iSER against plain iSCSI, at all sizes and where throughput stays.
fn ahead<L: Fn(u32) -> Load>(
    figure: &mut Figure,
    measured: &Measured,
    of: impl Fn(Carrier, bool) -> L,
    how: &str,
) {
    for (write, what) in [(false, "reads"), (true, "writes")] {
        let ratio = |size: u32| {
            let at = |carrier| of(carrier, write)(size);
            measured.gain(at(Carrier::Iwarp), at(Carrier::Tcp))
        };
        let name = format!("% that {what} by iSER are above");
        let all = for_sizes(measured.options.sizes(), &name, ratio, Bound::Above(0.0));
        let steady: Vec<f64> =
            measured.steady().filter_map(ratio).map(|spread| spread.median).collect();
        let medians = all.iter().map(|test| test.spread.median);
        let least = medians.fold(f64::INFINITY, f64::min);
        figure.claim(
            format!(
                "\"iSER surpasses plain iSCSI immediately\", at each size (adapters, {how}): {what}"
            ),
            format!(
                "over software iWARP they are {}; {} it where throughput stays, and {} it \
                 at the worst size: the processor that moves the bytes is the same one, and \
                 does MPA's CRC, too",
                sides(&all),
                beside(crate::measure::median(steady)),
                beside(least)
            ),
            all,
        );
    }
}

/// At how many sizes something is above.
fn sides(tests: &[Test]) -> String {
    let count = |of: Answer| tests.iter().filter(|test| test.answer() == of).count();
    format!(
        "above plain iSCSI at {} of {} sizes, not so at {}, and the spread hides it at {}",
        count(Answer::Yes),
        tests.len(),
        count(Answer::No),
        count(Answer::Hidden)
    )
}

/// Figures 4-4 to 4-6.
fn user_space(measured: &Measured) -> Figure {
    let mut figure = Figure::new(
        &["Figure 4-4", "Figure 4-5", "Figure 4-6"],
        "Figures 4-4 to 4-6: user space, commands of the exact size",
    );
    let line = |name: &str, carrier, write| measured.line(name, exact(carrier, write));
    let reads =
        || [line("iSER read", Carrier::Iwarp, false), line("iSCSI read", Carrier::Tcp, false)];
    let writes =
        || [line("iSER write", Carrier::Iwarp, true), line("iSCSI write", Carrier::Tcp, true)];
    figure.pictures.push(picture("figure-4-4", "Figure 4-4: reads", reads().into(), "4-4"));
    figure.pictures.push(picture("figure-4-5", "Figure 4-5: writes", writes().into(), "4-5"));
    let both =
        vec![line("iSER read", Carrier::Iwarp, false), line("iSER write", Carrier::Iwarp, true)];
    figure.pictures.push(picture("figure-4-6", "Figure 4-6: iSER, both", both, "4-6"));
    figure.tables.push(table(&reads().into_iter().chain(writes()).collect::<Vec<_>>()));
    ahead(&mut figure, measured, exact, "one command for each transfer");
    let best = |write| measured.best(exact(Carrier::Iwarp, write));
    if let (Some(read), Some(write)) = (best(false), best(true)) {
        figure.claim(
            format!(
                "Reads stood still far below writes in user space ({:.0} of 8500 Mb/s), which the \
                 study could not explain",
                theirs::READS_STAND_STILL
            ),
            format!("reads reach {:.0} Mb/s and writes {:.0}", read.megabits(), write.megabits()),
            vec![Test::new("% that reads are above writes", gain(read, write), Bound::Below(0.0))],
        );
    }
    figure
}

/// Figures 4-7 to 4-9, 4-12 and 4-13.
fn both_spaces(measured: &Measured) -> Figure {
    let mut figure = Figure::new(
        &["Figure 4-7", "Figure 4-8", "Figure 4-9", "Figure 4-12", "Figure 4-13"],
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
        figure.pictures.push(picture(file, title, pair(write), of));
    }
    let hybrid = vec![measured.line("512 KiB", pieces(iser, true))];
    let title = "Figure 4-12: iSER writes with commands of 512 KiB";
    figure.pictures.push(picture("figure-4-12", title, hybrid, "4-12"));
    let mut named = pair(false);
    named.extend(pair(true));
    let kinds = ["read, exact", "read, 512 KiB", "write, exact", "write, 512 KiB"];
    named.iter_mut().zip(kinds).for_each(|(line, name)| line.name = name.to_owned());
    figure.tables.push(table(&named));
    let gains = |write, what| {
        let of = |size: u32| measured.gain(exact(iser, write)(size), pieces(iser, write)(size));
        for_sizes(measured.steady(), what, of, Bound::Above(0.0))
    };
    let (reads, writes) = (gains(false, "% for reads"), gains(true, "% for writes"));
    figure.claim(
        "\"Without the overhead of the extra commands a significant increase\" (writes, figure \
         4-13)",
        format!(
            "{} for writes and {} for reads from 2 MiB on",
            percent(middle(&writes)),
            percent(middle(&reads))
        ),
        writes,
    );
    figure.not_here(
        "Initiator and target in the kernel (figures 4-7 to 4-9)",
        "that needs root and modules; Linux's initiator and target over its own software iWARP \
         are peers of ours in interop/iser",
    );
    figure
}

/// Table 5.1.
fn maxima(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&["Table 5.1"], "Table 5.1: the largest throughput");
    let mut table = Table::new(&["what", "iSER, Mb/s", "iSCSI, Mb/s", "iSER / iSCSI"]);
    let mut bars = Vec::new();
    let mut row = |what: &str, iser: f64, iscsi: f64| {
        let ratio = if iscsi > 0.0 { iser / iscsi } else { 0.0 };
        table.row(vec![what.into(), number(iser), number(iscsi), format!("{ratio:.2}")]);
        bars.push(Bar::new(what, "iSER", vec![iser]));
        bars.push(Bar::new(what, "iSCSI", vec![iscsi]));
    };
    for pair in theirs::said("5.1").chunks_exact(2) {
        let [iser, iscsi] = pair else { continue };
        let what = iser.line.strip_suffix(", iSER").unwrap_or(iser.line);
        row(&format!("study: {what}"), iser.megabits, iscsi.megabits);
    }
    for (what, write) in [("ours: reads", false), ("ours: writes", true)] {
        let most = |carrier| measured.most(exact(carrier, write));
        row(what, most(Carrier::Iwarp), most(Carrier::Tcp));
    }
    for (what, write) in [("ours: reads, 512 KiB", false), ("ours: writes, 512 KiB", true)] {
        let most = |carrier| measured.most(pieces(carrier, write));
        row(what, most(Carrier::Iwarp), most(Carrier::Tcp));
    }
    figure.tables.push(table);
    figure.pictures.push(Picture {
        file: "table-5-1",
        title: "Table 5.1: the largest throughput".into(),
        unit: "Mb/s",
        kind: Kind::Bars { parts: vec!["payload"], bars },
    });
    let mut tests = Vec::new();
    for (what, write) in [("reads", false), ("writes", true)] {
        let best = |carrier| measured.best(exact(carrier, write));
        let (Some(iser), Some(plain)) = (best(Carrier::Iwarp), best(Carrier::Tcp)) else {
            continue;
        };
        let ratio = Spread::paired(&iser.rates(), &plain.rates(), |iser, plain| iser / plain);
        tests.push(Test::new(format!("{what}, iSER by iSCSI"), ratio, Bound::Above(1.0)));
    }
    let told = tests.iter().map(|test| {
        let what = test.name.split(',').next().unwrap_or_default();
        format!("{} ({what})", picture::beside(test.spread.median, &[1.0]))
    });
    figure.claim(
        "\"iSER makes much more efficient use\" of the line: at its largest, its throughput is 1.6 \
         to 1.9 times that of plain iSCSI, with adapters",
        format!(
            "over software iWARP the largest is {} times that of plain iSCSI",
            told.collect::<Vec<_>>().join(" and ")
        ),
        tests,
    );
    figure
}
