// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is told of each application in the same way: where the time went, and what reached the
//! device.

use super::super::Place;
use super::super::apps::{Case, Layer, Of, Outcome, Spent};
use crate::measure::real;
use crate::picture::{Bar, Kind, Picture, number};
use crate::study::{Figure, Table};
use crate::verdict::{Bound, Spread, Test};
use crate::words;

/// What is almost all of the time, percent.
pub(super) const ALMOST_ALL: f64 = 90.0;

/// A part of a run, with its name: nanoseconds of a processor.
type Part = (&'static str, fn(&Spent) -> f64);

/// Where an application's time goes: percent of it, without what it waits.
const PARTS: [Part; 3] = [
    ("user", |spent| spent.user),
    ("system", |spent| spent.system),
    ("initiator", Spent::attached),
];

/// Parts of the system's time, by the functions that the kernel was at.
const SAMPLED: [Part; 8] = [
    ("file system", |spent| seen(spent, Layer::FileSystem)),
    ("page cache", |spent| seen(spent, Layer::PageCache)),
    ("block layer", |spent| seen(spent, Layer::Block)),
    ("FUSE", |spent| seen(spent, Layer::Fuse)),
    ("TCP", |spent| seen(spent, Layer::Network)),
    ("interrupts", |spent| seen(spent, Layer::Interrupts)),
    ("others", |spent| seen(spent, Layer::Other)),
    ("iSCSI", |spent| spent.seen.map_or(0.0, |seen| seen.initiator)),
];

fn seen(spent: &Spent, layer: Layer) -> f64 {
    spent.seen.map_or(0.0, |seen| seen.layer(layer))
}

/// Parts of the system's time, by the kernel's accounts of who worked.
const LAYERS: [Part; 4] = [
    ("calls: file system and page cache", |spent| spent.system),
    ("kernel threads: journal, loop", |spent| spent.kernel),
    ("iSCSI", |spent| spent.initiator),
    ("TCP and FUSE", |spent| spent.network),
];

/// Requests a second that reach the device.
pub(super) fn ios(case: &Case) -> Vec<f64> {
    case.of_spent(|spent| spent.ios / spent.seconds.max(1e-9))
}

/// Percent of the time that is not waited.
pub(super) fn busy(case: &Case) -> Vec<f64> {
    case.of_spent(Spent::busy)
}

/// Percent of the time that is the system's, the initiator within.
pub(super) fn system(case: &Case) -> Vec<f64> {
    case.of_spent(|spent| spent.percent(spent.system + spent.attached()))
}

/// Percent of the system's time that is the file system's.
pub(super) fn files(case: &Case) -> Vec<f64> {
    case.of_spent(Spent::of_files)
}

/// Percent of the system's time that is spent below the file system.
pub(super) fn blocks(case: &Case) -> Vec<f64> {
    case.of_spent(Spent::of_blocks)
}

/// How it is known where the system's time goes.
pub(super) fn how(outcome: &Outcome) -> &'static str {
    match outcome.is_sampled() {
        true => {
            "Samples of the kernel, each for the innermost function whose name tells a layer: \
             copying and locking are of whoever calls for them. Of all processors while it runs, \
             with the kernel's threads and interrupts, and iSCSI, which is the program that has \
             attached the disk (in the study a part of the kernel). Below direct's disk, too, is \
             a file system. What the targets take, with the kernel for them, stands beside it; \
             over loopback TCP of who receives is done by who sends."
        }
        false => {
            "The kernel's accounts of the application's system calls (file management, reads and \
             writes, and the page cache together), of the threads of the kernel, and of the \
             process that has attached the disk: its program, which is iSCSI, and its system \
             calls, TCP and FUSE. Threads of the kernel are those of the whole machine: those \
             that write targets' files are among them."
        }
    }
}

/// Where the time goes, and the rate of I/O.
pub(super) fn execution(outcome: &Outcome, figure: &mut Figure, [parts, rate]: [&'static str; 2]) {
    let names = PARTS.iter().map(|(name, _)| *name).chain(["waits"]);
    let mut table = head_of(names.clone(), &["I/O a second"]);
    let mut bars = Vec::new();
    let mut rates = Vec::new();
    for case in &outcome.cases {
        let seconds = case.sum(|spent| spent.seconds).max(1e-9);
        let mut values = PARTS.map(|(_, of)| case.sum(of) / seconds / 1e7).to_vec();
        values.push((100.0 - values.iter().sum::<f64>()).max(0.0));
        let ios = crate::measure::median(ios(case));
        let cells = values.iter().chain([&ios]).map(|value| number(*value));
        table.row(cells_of(outcome, case, cells));
        rates.push(bar(outcome, case, vec![ios]));
        bars.push(bar(outcome, case, values));
    }
    let title = format!("{}: where the time goes", figure.labels.join(", "));
    draw(figure, parts, title, "% of the time", names.collect(), bars);
    let title = format!("{}: what reaches the device", figure.labels.join(", "));
    draw(figure, rate, title, "I/O a second", vec!["I/O"], rates);
    push(figure, table);
}

/// Where the system's time goes.
pub(super) fn layers(outcome: &Outcome, figure: &mut Figure, file: &'static str) {
    let (parts, last): (&[Part], &[&str]) = match outcome.is_sampled() {
        true => (&SAMPLED, &["ms of a run", "ms of targets"]),
        false => (&LAYERS, &["ms of a run"]),
    };
    let names = parts.iter().map(|(name, _)| *name);
    let mut table = head_of(names.clone(), last);
    let mut bars = Vec::new();
    for case in &outcome.cases {
        let all = parts.iter().map(|(_, of)| case.sum(of)).sum::<f64>().max(1.0);
        let values = parts.iter().map(|(_, of)| 100.0 * case.sum(of) / all);
        let values: Vec<f64> = values.collect();
        let targets = case.sum(|spent| spent.seen.map_or(0.0, |seen| seen.targets));
        let runs = real(case.spent.len().max(1) as u64);
        let times = [all, targets].map(|time| time / 1e6 / runs);
        let cells = values.iter().chain(times.iter().take(last.len()));
        table.row(cells_of(outcome, case, cells.map(|value| number(*value))));
        bars.push(bar(outcome, case, values));
    }
    let title = format!("{}: where the system's time goes", figure.labels.join(", "));
    draw(figure, file, title, "% of it", names.collect(), bars);
    push(figure, table);
}

/// Something of each item at all places by the same at hand.
pub(super) fn normalized(
    outcome: &Outcome,
    figure: &mut Figure,
    (file, what, of): (&'static str, &str, Of),
) {
    let value = |case: &Case| {
        let ratio = outcome.ratio(case.item, [case.place, Place::Direct], of);
        bar(outcome, case, vec![ratio.map_or(0.0, |ratio| ratio.median)])
    };
    let bars = outcome.cases.iter().map(value).collect();
    draw(figure, file, what.to_owned(), "times direct", vec!["ratio"], bars);
}

/// A test of each item: something at one place by the same at another.
pub(super) fn ratios(
    outcome: &Outcome,
    (what, of): (&str, Of),
    places: [Place; 2],
    bound: Bound,
) -> Vec<Test> {
    let [a, b] = places.map(Place::name);
    let test = |(item, name): (usize, &String)| {
        let ratio = outcome.ratio(item, places, of)?;
        Some(Test::new(format!("{what}, {a} by {b}, {name}"), ratio, bound))
    };
    outcome.items.iter().enumerate().filter_map(test).collect()
}

/// A test of each item at one place.
pub(super) fn shares(
    outcome: &Outcome,
    (what, of): (&str, Of),
    place: Place,
    bound: Bound,
) -> Vec<Test> {
    let test = |(item, name): (usize, &String)| {
        let spread = Spread::of(&of(outcome.case(place, item)?));
        Some(Test::new(format!("% {what}, {}, {name}", place.name()), spread, bound))
    };
    outcome.items.iter().enumerate().filter_map(test).collect()
}

/// The claim, with what was measured of it; or why there is nothing.
pub(super) fn say(
    outcome: &Outcome,
    figure: &mut Figure,
    theirs: impl Into<String>,
    ours: impl FnOnce(&[Test]) -> String,
    tests: Vec<Test>,
) {
    match tests.is_empty() {
        true => figure.not_here(theirs, outcome.why()),
        false => figure.claim(theirs, ours(&tests), tests),
    }
}

/// The least and the most of the medians, as text.
pub(super) fn range(tests: &[Test]) -> String {
    words::range(tests.iter().map(|test| test.spread.median))
}

fn head_of<'a>(names: impl Iterator<Item = &'a str>, last: &[&'a str]) -> Table {
    let head: Vec<&str> =
        ["of", "place"].into_iter().chain(names).chain(last.iter().copied()).collect();
    Table::new(&head)
}

fn cells_of(outcome: &Outcome, case: &Case, cells: impl Iterator<Item = String>) -> Vec<String> {
    let item = outcome.items.get(case.item).cloned().unwrap_or_default();
    [item, case.place.name().to_owned()].into_iter().chain(cells).collect()
}

pub(super) fn bar(outcome: &Outcome, case: &Case, values: Vec<f64>) -> Bar {
    let item = outcome.items.get(case.item).map_or("", String::as_str);
    Bar::new(item, case.place.name(), values)
}

/// Draws what there is.
fn draw(
    figure: &mut Figure,
    file: &'static str,
    title: String,
    unit: &'static str,
    parts: Vec<&'static str>,
    bars: Vec<Bar>,
) {
    if !bars.is_empty() {
        figure.pictures.push(Picture { file, title, unit, kind: Kind::Bars { parts, bars } });
    }
}

/// The table, if it has rows.
pub(super) fn push(figure: &mut Figure, table: Table) {
    if !table.rows.is_empty() {
        figure.tables.push(table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_those_of_samples_where_there_are_some() {
        let mut outcome = Outcome::made_up(&["q1"], |_, _| 1.0);
        let head = |outcome: &Outcome| {
            let mut figure = Figure::new(&[], "Figure 12");
            layers(outcome, &mut figure, "figure-12");
            let row = figure.tables[0].rows[0].len();
            assert_eq!(row, figure.tables[0].head.len());
            figure.tables[0].head.join(", ")
        };
        let told = head(&outcome);
        assert!(told.contains("kernel threads") && !how(&outcome).contains("Samples"), "{told}");
        for spent in outcome.cases.iter_mut().flat_map(|case| &mut case.spent) {
            spent.seen = Some(crate::forth::apps::Seen::default());
        }
        let told = head(&outcome);
        assert!(told.ends_with("iSCSI, ms of a run, ms of targets"), "{told}");
        assert!(how(&outcome).starts_with("Samples"));
        outcome.cases[0].spent[1].seen = None;
        assert!(head(&outcome).contains("kernel threads"), "one is without");
    }
}
