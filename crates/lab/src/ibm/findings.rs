// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the figures say: the study's and ours, side by side.

mod apps;
mod bursts;
mod model;

use super::apps::Applications;
use super::bursts::Bursts;
use super::theirs::{self, Total};
use super::{BURST, Case, Load, Measured, Of, RUNS, Way};
use crate::picture::{Bar, Kind, Line, Picture, bytes, number};
use crate::study::{Figure, Findings, Table};
use crate::verdict::{Bound, Spread, Test};

pub(super) fn report(
    measured: &Measured,
    bursts: Result<&Bursts, &str>,
    applications: &Applications,
) -> Findings {
    let mut figures = vec![results(measured), accounting(measured), model::figure(measured)];
    figures.push(bursts::figure(bursts));
    figures.extend([Side::TRANSMIT, Side::RECEIVE].map(|side| side.figure(measured)));
    figures.push(apps::figure(applications));
    figures.extend(Figure::lacking("ibm"));
    Findings {
        title: "IBM: what SCSI costs over TCP, raw Ethernet and RDMA (Menon and Fuente, 2000), \
                re-run",
        preface: preface(measured),
        variations: measured.variations(),
        figures,
    }
}

fn preface(measured: &Measured) -> Vec<String> {
    let options = &measured.options;
    let sizes: Vec<String> = options.sizes.iter().map(|size| bytes(u64::from(*size))).collect();
    let [theirs, ours] = super::rig::cpus();
    let mut preface = vec![
        format!(
            "A target with a disk in memory and an initiator, engine {}, in one process: the \
             target on processor {theirs}, the initiator on processor {ours}. One operation at a \
             time, of {}; {RUNS} runs of {} rounds, {} ms for each case in turn, medians. Each run \
             makes target, sessions and wire anew.",
            measured.engine,
            sizes.join(", "),
            options.rounds,
            options.time.as_millis(),
        ),
        "\"TCP\" is iSCSI without digests, \"iSER/iWARP\" is iSER over software iWARP without CRC, \
         \"raw Ethernet\" is iSCSI over frames that a program sends and receives by packet \
         sockets: it saves the kernel's TCP, and does in user space what that did, with a thread \
         and a copy more. \"AF_XDP\" is the same past the network stack, which the study could not \
         have: a program at the interface gives frames to memory that is the program's own. \"No \
         network\" is the same target within the process: the commands and \
         the disk alone, which is what Fibre Channel's adapters left to the study's processor. It \
         stands for them as the floor, and was measured on no wire."
            .into(),
        "Utilization is that of the study: a loop with the least of all priorities counts on each \
         processor, and what slows it down was used by others. It is held against the fastest that \
         the loop was in the run, mostly alone, once in each round: whatever disturbs a loop makes \
         it slower."
            .into(),
    ];
    match &measured.wireless {
        None => preface.push(format!(
            "The wire is a pair of veth between two network namespaces for each size of a frame, \
             without segmentation offload: each frame passes the stack alone, and is counted at \
             the interface, both ways. veth has no checksums to compute, as the study's adapters \
             had them done. TCP has no congestion control that paces, with a timer for each frame \
             as BBR has: it is cubic, or reno where a network may not have that, whatever the \
             machine has. {}",
            measured.unsteered.as_ref().map_or_else(
                || "What a side receives is worked on by its own processor.".to_owned(),
                |why| format!("What a side receives is worked on by the sender: {why}."),
            ),
        )),
        Some(why) => preface.push(format!("No wire: all goes over loopback, because {why}.")),
    }
    if measured.has(Way::Xdp) {
        preface.push(XDP_SIDES.into());
    }
    if theirs == ours {
        preface.push("Both sides share a processor: its utilization is of both.".into());
    }
    for (way, why) in &measured.lacking {
        preface.push(format!("Not here: {}, because {why}.", way.name()));
    }
    preface
}

impl Measured {
    /// Of the bandwidth of each case.
    fn variations(&self) -> Vec<f64> {
        let of = |case: &Case| Spread::of(&case.values(Case::bandwidth)).variation;
        self.cases.iter().map(of).collect()
    }

    /// Something one way by the same another way, round by round.
    fn ratio(&self, case: &Case, against: Way, of: Of) -> Option<Spread> {
        let frame = case.load.frame.filter(|_| against != Way::Local);
        let other = self.case(Load { way: against, frame, ..case.load })?;
        Some(Spread::ratio(&case.values(of), &other.values(of)))
    }

    /// The processor of one way by that of another at the same bandwidth: a test for each size.
    fn ratios(&self, ways: [Way; 2], write: bool, bound: Bound) -> Vec<Test> {
        let [way, against] = ways;
        let test = |case: &Case| {
            let name = format!("{} by {}", case.load.name(), against.name());
            Some(Test::new(name, self.ratio(case, against, Case::cost)?, bound))
        };
        self.cases_of(way, write).filter_map(test).collect()
    }

    fn why(&self, way: Way) -> String {
        let found = self.lacking.iter().find(|(lacking, _)| *lacking == way);
        found.map_or_else(|| "it was not measured".to_owned(), |(_, why)| why.clone())
    }
}

/// What is about so many times as much is at least half of that, and at most the double.
fn about(times: f64) -> Bound {
    Bound::Within(times / 2.0, times * 2.0)
}

/// The median over several quantities.
fn middle(tests: &[Test]) -> f64 {
    crate::measure::median(tests.iter().map(|test| test.spread.median).collect())
}

/// Section 3.3.3.
fn results(measured: &Measured) -> Figure {
    let title = "Section 3.3.3: what 100 MB/s take of the target's processor";
    let mut figure = Figure::new(&["Results of section 3.3.3"], title);
    figure.tables.push(table(measured));
    for (write, file) in [(false, "results-read"), (true, "results-write")] {
        figure.pictures.push(picture(measured, write, file));
    }
    for (at, write) in [false, true].into_iter().enumerate() {
        let what = if write { "Writes" } else { "Reads" };
        for (way, all) in [(Way::Tcp, theirs::TCP), (Way::Ether, theirs::ONE_COPY)] {
            let times = all.get(at).copied().unwrap_or(0.0);
            let theirs = match way {
                Way::Tcp => format!("{what} over TCP/IP take {times:.0} times Fibre Channel"),
                _ => format!("{what} without TCP/IP, with one copy, take {times:.0} times it"),
            };
            let tests = measured.ratios([way, Way::Local], write, about(times));
            claim(&mut figure, measured, way, theirs, tests, "times what no network takes");
        }
        let tests = measured.ratios([Way::Ether, Way::Tcp], write, Bound::Below(1.0));
        let theirs =
            format!("Raw Ethernet with one copy takes less than TCP/IP: {}", what.to_lowercase());
        claim(&mut figure, measured, Way::Ether, theirs, tests, "times what TCP takes");
    }
    past_the_stack(&mut figure, measured);
    let [read, write] = theirs::NO_COPY;
    figure.not_here(
        format!("With no copy reads take {read:.0} times Fibre Channel, and writes {write:.0}"),
        NO_COPY,
    );
    let tests = measured.ratios([Way::Iser, Way::Tcp], true, Bound::Below(1.0));
    claim(
        &mut figure,
        measured,
        Way::Iser,
        "RDMA \"seeks to avoid\" the copy of what is received (section 3.3.1.1): writes".into(),
        tests,
        "times what TCP takes, over software iWARP",
    );
    figure
}

const NO_COPY: &str = "it needs an adapter that gathers and scatters, with a driver that has zero \
                       copy for AF_XDP: what goes through a packet socket is copied, and what \
                       goes through AF_XDP on veth is, too";

/// Why the target's processor alone tells little of it.
const XDP_SIDES: &str = "AF_XDP is in copy mode here, and veth hands a frame to it in the sender's \
                         time: what it takes to receive is on the other side's processor, the \
                         target's for what it sends, the initiator's for what the target \
                         receives. So AF_XDP is held against packet sockets by both processors \
                         together.";

/// A ring of its own, beside packet sockets: what the study does not have.
fn past_the_stack(figure: &mut Figure, measured: &Measured) {
    for write in [false, true] {
        let theirs = format!(
            "A ring that is the program's own (AF_XDP), which is not in the study, saves what the \
             stack takes of each frame beside packet sockets: {}s",
            super::direction(write)
        );
        let test = |case: &Case| {
            let ratio = measured.ratio(case, Way::Ether, Case::cost_of_both)?;
            let name = format!("{} by {}", case.load.name(), Way::Ether.name());
            Some(Test::new(name, ratio, Bound::Below(1.0)))
        };
        let tests = measured.cases_of(Way::Xdp, write).filter_map(test).collect();
        let what = "times what packet sockets take of both processors";
        claim(figure, measured, Way::Xdp, theirs, tests, what);
    }
}

/// A claim of a way, or why there is none of it here.
fn claim(
    figure: &mut Figure,
    measured: &Measured,
    way: Way,
    theirs: String,
    tests: Vec<Test>,
    what: &str,
) {
    if measured.has(way) {
        figure.claim(
            theirs,
            format!("{} {what}, the median of all", number(middle(&tests))),
            tests,
        );
    } else {
        figure.not_here(theirs, measured.why(way));
    }
}

/// All that was measured.
fn table(measured: &Measured) -> Table {
    let columns: [(&str, Of); 6] = [
        ("operations/s", Case::operations),
        ("MB/s", Case::bandwidth),
        ("frames/s", Case::frames),
        ("target, %", Case::utilization),
        ("for 100 MB/s, %", Case::cost),
        ("initiator, %", Case::initiator),
    ];
    let names = columns.map(|(name, _)| name);
    let head: Vec<&str> = ["way", "operation", "frame"].into_iter().chain(names).collect();
    let mut table = Table::new(&head);
    for case in &measured.cases {
        let load = case.load;
        let mut row = vec![load.way.name().to_owned(), load.operation(), load.frame()];
        row.extend(columns.map(|(_, of)| number(case.typical(of))));
        table.row(row);
    }
    table
}

/// The cost of each way over sizes.
fn picture(measured: &Measured, write: bool, file: &'static str) -> Picture {
    let mut lines = Vec::new();
    for way in Way::ALL {
        let frames = if way == Way::Local { vec![None] } else { measured.frames() };
        for frame in frames {
            let cases = measured.cases_of(way, write).filter(|case| case.load.frame == frame);
            let point = |case: &Case| (u64::from(case.load.bytes), case.typical(Case::cost));
            let of = frame.map(|mtu| format!(", {mtu}")).unwrap_or_default();
            let name = format!("{}{of}", way.name());
            lines.push(Line { name, points: cases.map(point).collect(), published: false });
        }
    }
    lines.retain(|line| !line.points.is_empty());
    let title = format!("What 100 MB/s of {}s take", super::direction(write));
    Picture { file, title, unit: "% of the target's processor", kind: Kind::Lines(lines) }
}

/// Section 3.3.2.3.
fn accounting(measured: &Measured) -> Figure {
    let title = "Section 3.3.2.3: the kernel's accounts and the loop";
    let mut figure = Figure::new(&["Accounting of section 3.3.2.3"], title);
    figure.method =
        "The kernel's ticks are of /proc/stat, for the target's processor without what \
                     is nice, as the loop is; its threads are those of the target, by the kernel's \
                     nanoseconds."
            .into();
    let mut table = Table::new(&["way", "operation", "frame", "loop, %", "ticks, %", "threads, %"]);
    for case in &measured.cases {
        let load = case.load;
        let mut row = vec![load.way.name().to_owned(), load.operation(), load.frame()];
        let values: [Of; 3] = [Case::utilization, Case::kernel, Case::threads];
        row.extend(values.map(|of| number(case.typical(of))));
        table.row(row);
    }
    figure.tables.push(table);
    let tests = |what: &str, of: Of, bound| {
        let test = |case: &Case| {
            let ratio = Spread::ratio(&case.values(of), &case.values(Case::utilization));
            Test::new(format!("{what} by loop, {}", case.load.name()), ratio, bound)
        };
        measured.cases.iter().map(test).collect::<Vec<_>>()
    };
    let ticks = tests("ticks", Case::kernel, Bound::Below(UNSEEN));
    figure.claim(
        "\"The Linux tools were highly suspect\": they saw no work where 40 MB/s went",
        format!(
            "the ticks see {} of what the loop does, the median of all",
            number(middle(&ticks))
        ),
        ticks,
    );
    let threads = tests("threads", Case::threads, Bound::Below(1.0));
    figure.claim(
        "The loop sees more than the time in code for I/O: switches and caches, too",
        format!(
            "the threads' own time is {} of what the loop sees, the median of all",
            number(middle(&threads))
        ),
        threads,
    );
    figure
}

/// Who sees less than half of the work is suspect.
const UNSEEN: f64 = 0.5;

/// A table of section 3.3.4.3.
struct Side {
    label: &'static [&'static str],
    file: &'static str,
    what: &'static str,
    write: bool,
    theirs: Total,
}

impl Side {
    const TRANSMIT: Self = Self {
        label: &["Transmit of section 3.3.4.3"],
        file: "transmit",
        what: "the target sends",
        write: false,
        theirs: theirs::TRANSMIT,
    };
    const RECEIVE: Self = Self {
        label: &["Receive of section 3.3.4.3"],
        file: "receive",
        what: "the target receives",
        write: true,
        theirs: theirs::RECEIVE,
    };

    fn case<'a>(&self, measured: &'a Measured, way: Way) -> Option<&'a Case> {
        let frame = measured.frames().first().copied().flatten().filter(|_| way != Way::Local);
        measured.case(Load { way, write: self.write, bytes: BURST, frame })
    }

    /// Times the floor.
    fn ratio(&self, measured: &Measured, way: Way) -> Option<Spread> {
        measured.ratio(self.case(measured, way)?, Way::Local, Case::cost)
    }

    fn rows(&self) -> [(&'static str, f64, Option<Way>); 7] {
        let Total { tcp, one_copy, no_copy, nfs, fibre_channel } = self.theirs;
        [
            ("TCP/IP", tcp, Some(Way::Tcp)),
            ("Ethernet with copies", one_copy, Some(Way::Ether)),
            ("Ethernet without copies", no_copy, None),
            ("Ethernet past the stack (AF_XDP)", 0.0, Some(Way::Xdp)),
            ("NFS", nfs, Some(Way::Nfs)),
            ("iSER/iWARP", 0.0, Some(Way::Iser)),
            ("Fibre Channel; here no network", fibre_channel, Some(Way::Local)),
        ]
    }

    fn figure(&self, measured: &Measured) -> Figure {
        let title = format!("Section 3.3.4.3: {}", self.what);
        let mut figure = Figure::new(self.label, title);
        figure.method = format!(
            "Operations of {} one after the other, frames of the first size, no file system; what \
             100 MB/s take. The study's is that of a burst, whose bytes it does not give: what can \
             be compared are the ratios.",
            bytes(u64::from(BURST))
        );
        let head = ["way", "theirs, %", "ratio", "ours, % for 100 MB/s", "ratio"];
        let mut table = Table::new(&head);
        let mut bars = Vec::new();
        let floor = self.theirs.fibre_channel;
        for (name, theirs, way) in self.rows() {
            let case = way.and_then(|way| self.case(measured, way));
            let ratio = way.and_then(|way| self.ratio(measured, way));
            let cell = |value: Option<f64>| value.map_or_else(|| "-".into(), number);
            let lacks = way.filter(|way| !measured.has(*way)).map(|way| measured.why(way));
            let published = Some(theirs).filter(|theirs| *theirs > 0.0);
            table.row(vec![
                name.into(),
                cell(published),
                cell(published.map(|theirs| theirs / floor)),
                lacks.unwrap_or_else(|| cell(case.map(|case| case.typical(Case::cost)))),
                cell(ratio.map(|ratio| ratio.median)),
            ]);
            bars.extend(published.map(|theirs| Bar::new(name, "study", vec![theirs / floor])));
            let drawn = ratio.filter(|ratio| ratio.median.is_finite());
            bars.extend(drawn.map(|ratio| Bar::new(name, "here", vec![ratio.median])));
        }
        figure.tables.push(table);
        figure.pictures.push(Picture {
            file: self.file,
            title: format!("The target's processor, {}", self.what),
            unit: "times Fibre Channel, here no network",
            kind: Kind::Bars { parts: vec![""], bars },
        });
        for (name, theirs, way) in self.rows().into_iter().filter(|row| row.1 > 0.0) {
            let Some(way) = way.filter(|way| *way != Way::Local) else { continue };
            let times = theirs / floor;
            let claim = format!("{name} takes {times:.1} times Fibre Channel");
            match self.ratio(measured, way) {
                Some(ratio) => figure.claim(
                    claim,
                    format!("{} times no network", number(ratio.median)),
                    vec![Test::new(format!("{} by no network", way.name()), ratio, about(times))],
                ),
                None => figure.not_here(claim, measured.why(way)),
            }
        }
        figure.not_here(
            format!(
                "Ethernet without copies takes {:.1} times Fibre Channel",
                self.theirs.no_copy / floor
            ),
            NO_COPY,
        );
        let claim = format!(
            "NFS takes {:.1} times TCP/IP, far more than any SAN",
            self.theirs.nfs / self.theirs.tcp
        );
        let nfs = self.case(measured, Way::Nfs);
        match nfs.and_then(|case| measured.ratio(case, Way::Tcp, Case::cost)) {
            Some(ratio) => figure.claim(
                claim,
                format!("{} times TCP", number(ratio.median)),
                vec![Test::new("NFS by TCP", ratio, Bound::Above(1.0))],
            ),
            None => figure.not_here(claim, measured.why(Way::Nfs)),
        }
        figure
    }
}
