// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures 4 to 6: disks at hand, behind one target, and behind three.

use super::super::theirs;
use super::super::{Case, Load, Measured, Mix, Pattern, Place};
use super::Of;
use crate::picture::{Kind, Line, Picture, bytes, number};
use crate::study::{Figure, Table};
use crate::verdict::{Bound, Spread, Test};

/// As many outstanding in the pictures; the tables have all.
const DEPTH: usize = 4;

/// What is said to be about the same differs by a quarter at most.
const ALIKE: Bound = Bound::Within(0.8, 1.25);

/// What is said to be significantly less is so by a fifth.
const LESS: f64 = 0.8;

/// From this size on a block is a large one, bytes.
const LARGE: u32 = 64 << 10;

pub(super) fn figures(measured: &Measured) -> Vec<Figure> {
    vec![throughput(measured), response(measured), cpu(measured)]
}

/// The six kinds of load, each with a picture.
const KINDS: [(Pattern, Mix, [&str; 3]); 6] = [
    (Pattern::Sequential, Mix::Read, ["figure-4-sr", "figure-5-sr", "figure-6-sr"]),
    (Pattern::Sequential, Mix::Write, ["figure-4-sw", "figure-5-sw", "figure-6-sw"]),
    (Pattern::Sequential, Mix::Mixed, ["figure-4-sm", "figure-5-sm", "figure-6-sm"]),
    (Pattern::Random, Mix::Read, ["figure-4-rr", "figure-5-rr", "figure-6-rr"]),
    (Pattern::Random, Mix::Write, ["figure-4-rw", "figure-5-rw", "figure-6-rw"]),
    (Pattern::Random, Mix::Mixed, ["figure-4-rm", "figure-5-rm", "figure-6-rm"]),
];

/// Pictures and table of one quantity; `of` the three.
fn draw(
    measured: &Measured,
    figure: &mut Figure,
    (which, what, unit, of): (usize, &str, &'static str, Of),
    published: impl Fn(Pattern, Mix) -> Vec<Line>,
) {
    for (pattern, mix, files) in KINDS {
        let load = Load { pattern, mix, bytes: 0, depth: DEPTH };
        let lines = Place::GRID.map(|place| measured.line(place, load, of));
        let mut lines: Vec<Line> =
            lines.into_iter().filter(|line| !line.points.is_empty()).collect();
        lines.extend(published(pattern, mix));
        let title = format!("{what}, {}, {DEPTH} at once", load.kind());
        let file = files.get(which).copied().unwrap_or_default();
        figure.pictures.push(Picture { file, title, unit, kind: Kind::Lines(lines) });
    }
    let names = Place::GRID.map(Place::name);
    let head: Vec<&str> = ["load", "bytes", "at once"].into_iter().chain(names).collect();
    let mut table = Table::new(&head);
    for load in measured.options.loads() {
        let size = bytes(u64::from(load.bytes));
        let cells = Place::GRID.map(|place| {
            let case = measured.case(place, load);
            case.map_or_else(|| "-".to_owned(), |case| number(case.typical(of)))
        });
        let names = [load.kind(), size, load.depth.to_string()];
        table.row(names.into_iter().chain(cells).collect());
    }
    figure.tables.push(table);
}

/// A test for each load that is wanted.
fn tests(
    measured: &Measured,
    wanted: impl Fn(&Load) -> bool,
    places: [Place; 2],
    of: Of,
    bound: Bound,
) -> Vec<Test> {
    let [a, b] = places.map(Place::name);
    let test = |load: Load| {
        let name = format!("{a} by {b}, {}", load.name());
        Some(Test::new(name, measured.ratio(load, places, of)?, bound))
    };
    measured.options.loads().into_iter().filter(wanted).filter_map(test).collect()
}

fn is_sequential(load: &Load, mix: Mix) -> bool {
    (load.pattern, load.mix) == (Pattern::Sequential, mix)
}

/// The median of ratios, as text.
fn middle(tests: &[Test]) -> String {
    let medians = tests.iter().map(|test| test.spread.median).collect();
    format!("{:.2}", crate::measure::median(medians))
}

/// The largest throughput of a place with sequential requests.
fn most(measured: &Measured, place: Place, mix: Mix) -> f64 {
    let loads = measured.options.loads().into_iter().filter(|load| is_sequential(load, mix));
    let rates = loads.filter_map(|load| measured.spread(place, load, Case::rate));
    Spread::most(rates).median
}

/// Figure 4.
fn throughput(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&["Figure 4"], "Figure 4: throughput");
    draw(measured, &mut figure, (0, "Throughput", "MB/s", Case::rate), |pattern, mix| {
        let at = Mix::ALL.iter().position(|one| *one == mix).unwrap_or(0);
        let values = [("direct", theirs::DIRECT), ("x1", theirs::X1)];
        let values = values.into_iter().filter(|_| pattern == Pattern::Sequential);
        let line = |(name, all): (&str, [f64; 3])| {
            measured.published(&format!("{name}, at most"), all.get(at).copied().unwrap_or(0.0))
        };
        values.map(line).collect()
    });
    for (mix, their) in Mix::ALL.into_iter().zip(theirs::DIRECT.into_iter().zip(theirs::X1)) {
        let places = [Place::Direct, Place::X1];
        let above = Bound::Above(1.0);
        let tests = tests(measured, |load| is_sequential(load, mix), places, Case::rate, above);
        let [direct, x1] = places.map(|place| most(measured, place, mix));
        figure.claim(
            format!(
                "Sequential {}: {:.0} MB/s direct, {:.0} behind a target, at most",
                mix.name(),
                their.0,
                their.1
            ),
            format!(
                "{direct:.0} and {x1:.0} MB/s at most; direct has {} times, the median of all",
                middle(&tests)
            ),
            tests,
        );
    }
    for (mix, bound, theirs) in [
        (Mix::Write, ALIKE, "Three targets write about as much as one"),
        (Mix::Read, Bound::Above(1.0), "Three targets read much more than one: a larger cache"),
    ] {
        let places = [Place::X3, Place::X1];
        let tests = tests(measured, |load| is_sequential(load, mix), places, Case::rate, bound);
        figure.claim(theirs, format!("{} times", middle(&tests)), tests);
    }
    let share = best_sizes(measured);
    figure.claim(
        "One target does most at 4 or 8 KiB",
        format!("there it has {} of the largest throughput", middle(&share)),
        share,
    );
    let random = random(measured);
    figure.claim(
        "Random requests have significantly less throughput everywhere",
        format!("{} times that of sequential ones, the median of all", middle(&random)),
        random,
    );
    figure
}

/// The throughput of one target at the study's best sizes by the largest.
fn best_sizes(measured: &Measured) -> Vec<Test> {
    let mut tests = Vec::new();
    for &depth in &measured.options.depths {
        for mix in Mix::ALL {
            let load = |bytes| Load { pattern: Pattern::Sequential, mix, bytes, depth };
            let cases = || {
                let sizes = measured.options.sizes.iter();
                sizes.filter_map(|size| measured.case(Place::X1, load(*size)))
            };
            let by_rate =
                |a: &&Case, b: &&Case| a.typical(Case::rate).total_cmp(&b.typical(Case::rate));
            let best = cases().max_by(by_rate);
            let theirs = cases().filter(|case| theirs::BEST_SIZES.contains(&case.load.bytes));
            let (Some(best), Some(their)) = (best, theirs.max_by(by_rate)) else { continue };
            let share = Spread::paired(
                &their.values(Case::rate),
                &best.values(Case::rate),
                |their, best| their / best,
            );
            let name = format!("of the largest, {}, {depth} at once", load(0).kind());
            tests.push(Test::new(name, share, Bound::Above(NEARLY)));
        }
    }
    tests
}

/// What is nearly as much.
const NEARLY: f64 = 0.9;

/// Random requests by sequential ones.
fn random(measured: &Measured) -> Vec<Test> {
    let mut tests = Vec::new();
    for load in measured.options.loads() {
        if load.pattern == Pattern::Sequential {
            continue;
        }
        for place in Place::GRID {
            let beside = Load { pattern: Pattern::Sequential, ..load };
            let cases = [load, beside].map(|load| measured.case(place, load));
            let [Some(random), Some(sequential)] = cases else { continue };
            let ratio = Spread::paired(
                &random.values(Case::rate),
                &sequential.values(Case::rate),
                |random, sequential| random / sequential,
            );
            let name = format!("by sequential, {}, {}", place.name(), load.name());
            tests.push(Test::new(name, ratio, Bound::Below(LESS)));
        }
    }
    tests
}

/// Figure 5.
fn response(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&["Figure 5"], "Figure 5: mean response time");
    figure.method = "As many requests as are allowed are always outstanding, so their number by \
                     their rate is the mean response time (Little's law)."
        .into();
    draw(measured, &mut figure, (1, "Response time", "us", Case::response), |_, _| Vec::new());
    let alike = tests(measured, |_| true, [Place::X1, Place::Direct], Case::response, ALIKE);
    figure.claim(
        "Disks behind a target answer as fast as those at hand",
        format!("they take {} times as long, the median of all", middle(&alike)),
        alike,
    );
    let large = |load: &Load| load.bytes >= LARGE;
    let places = [Place::X3, Place::X1];
    let slower = tests(measured, large, places, Case::response, Bound::Above(1.0));
    figure.claim(
        "Three targets take longer for larger blocks: the network is congested",
        format!("{} times as long from 64 KiB on", middle(&slower)),
        slower,
    );
    figure
}

/// Figure 6.
fn cpu(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&["Figure 6"], "Figure 6: CPU of the application's side");
    let what = (2, "CPU", "% of a processor", Case::cpu as Of);
    draw(measured, &mut figure, what, |pattern, _| match pattern {
        Pattern::Sequential => vec![
            measured.published("direct, at most", theirs::CPU_DIRECT[1]),
            measured.published("x1, at most", theirs::CPU_X1[1]),
        ],
        Pattern::Random => Vec::new(),
    });
    let sequential = |load: &Load| load.pattern == Pattern::Sequential;
    let places = [Place::X1, Place::Direct];
    let costs = tests(measured, sequential, places, Case::cost, Bound::Above(1.0));
    let ([a, b], [c, d]) = (theirs::CPU_DIRECT, theirs::CPU_X1);
    figure.claim(
        format!(
            "{a:.0} to {b:.0} % direct and {c:.0} to {d:.0} % behind a target: given the \
             throughput, iSCSI takes more"
        ),
        format!("{} times as much for each request, the median of all", middle(&costs)),
        costs,
    );
    let reads = |load: &Load| is_sequential(load, Mix::Read);
    let high = tests(measured, reads, [Place::X3, Place::X1], Case::cpu, Bound::Above(1.0));
    figure.claim(
        "Three targets take very much CPU, sequential reads above all",
        format!("{} times that of one, the median of all", middle(&high)),
        high,
    );
    figure
}
