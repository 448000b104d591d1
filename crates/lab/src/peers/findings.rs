// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the figures say: ours beside each of the others, of the same rounds.

use super::load::Sample;
use super::{CASES, Case, DISK_BYTES, Measured, Peer};
use crate::picture::{Bar, Kind, Picture, number};
use crate::study::{Figure, Findings, Table};
use crate::verdict::{Bound, Spread, Test};
use crate::words;

/// A load that takes as much of its processor is what limits the rate.
const FULL: f64 = 0.95;

/// What is compared.
struct Quantity {
    labels: &'static [&'static str],
    title: &'static str,
    file: &'static str,
    unit: &'static str,
    /// What is claimed of ours, beside one of the others.
    claim: fn(&str) -> String,
    /// How much of ours there is for one of the other's, in words.
    ours: &'static str,
    of: fn(&Sample) -> f64,
    /// On which side of the other's ours has to be.
    bound: Bound,
    method: &'static str,
}

const QUANTITIES: [Quantity; 3] = [
    Quantity {
        labels: &["Table 1"],
        title: "Table 1: requests answered in a second",
        file: "rate",
        unit: "requests a second",
        claim: |other| format!("lunwire answers more requests in a second than {other}"),
        ours: "as many",
        of: Sample::rate,
        bound: Bound::Above(1.0),
        method: "By the load's clock. Where the load's processor is full, the rate is that of the \
                 load, whoever serves: Table 2 tells them apart then.",
    },
    Quantity {
        labels: &["Table 2"],
        title: "Table 2: processor time of the target for a request",
        file: "cost",
        unit: "us",
        claim: |other| format!("lunwire needs less processor time for a request than {other}"),
        ours: "as much",
        of: Sample::target_us,
        bound: Bound::Below(1.0),
        method: "By the scheduler's account of all threads of the process. SPDK polls, so its \
                 process takes a whole processor always; of it counts the time in which its \
                 threads found something to do, as it says itself.",
    },
    Quantity {
        labels: &["Table 3"],
        title: "Table 3: time within which 99 of 100 requests are answered",
        file: "p99",
        unit: "us",
        claim: |other| format!("99 of 100 answers of lunwire come sooner than those of {other}"),
        ours: "as long",
        of: |sample| sample.p99_us,
        bound: Bound::Below(1.0),
        method: "From the request's posting to its answer, as the load sees both.",
    },
];

pub(super) fn report(measured: &Measured) -> Findings {
    let mut figures: Vec<Figure> =
        QUANTITIES.iter().map(|quantity| compare(measured, quantity)).collect();
    figures.push(function(measured));
    let rates = measured.samples.iter().map(|(.., samples)| spread(samples, Sample::rate));
    Findings {
        title: "Peers: lunwire beside other targets, on this machine in one run",
        preface: preface(measured),
        variations: rates.map(|rate| rate.variation).collect(),
        figures,
    }
}

fn spread(samples: &[Sample], of: fn(&Sample) -> f64) -> Spread {
    Spread::of(&samples.iter().map(of).collect::<Vec<_>>())
}

fn preface(measured: &Measured) -> Vec<String> {
    let mut told = vec![format!(
        "No study: what is claimed is claimed by this project, and \"no longer\" says that it is \
         not so here. One load, our initiator, in {} rounds of {} ms for each case. In each round \
         all targets take turns, another one first each time, and those that are not measured are \
         stopped (SIGSTOP). Each has a disk of {} MiB in memory, all of it written before. A ratio \
         is of the same round, and its interval that in which the median lies.",
        measured.options.rounds,
        measured.options.time.as_millis(),
        DISK_BYTES >> 20,
    )];
    told.extend(measured.notes.iter().cloned());
    let lacking = measured.lacking.iter();
    told.extend(lacking.map(|(peer, why)| format!("Not here: {}, because {why}.", peer.name())));
    told
}

/// Ours beside each of the others, case by case.
fn compare(measured: &Measured, quantity: &Quantity) -> Figure {
    let mut figure = Figure::new(quantity.labels, quantity.title);
    figure.method = quantity.method.to_owned();
    if !measured.present.is_empty() {
        figure.tables.push(values(measured, quantity));
        figure.pictures.push(picture(measured, quantity));
    }
    let others: Vec<Peer> =
        Peer::OTHERS.into_iter().filter(|peer| measured.present.contains(peer)).collect();
    let both = |case: Case, other: Peer| {
        let [ours, theirs] = [measured.of(case, Peer::Lunwire)?, measured.of(case, other)?];
        let [ours, theirs] =
            [ours, theirs].map(|all| all.iter().map(quantity.of).collect::<Vec<_>>());
        Some(Spread::ratio(&ours, &theirs))
    };
    let names = others.iter().map(|other| format!("of {}", other.name()));
    let head: Vec<String> = ["ours is, times that".to_owned()].into_iter().chain(names).collect();
    let mut ratios = Table { head, rows: Vec::new() };
    for case in CASES {
        let found: Vec<Spread> = others.iter().filter_map(|other| both(case, *other)).collect();
        if !found.is_empty() && found.len() == others.len() {
            let cells = found.iter().map(with_ends);
            ratios.row([case.name.to_owned()].into_iter().chain(cells).collect());
        }
    }
    if !ratios.rows.is_empty() {
        figure.tables.push(ratios);
    }
    for other in Peer::OTHERS {
        let claim = (quantity.claim)(other.name());
        let why = measured.lacking.iter().find(|(peer, _)| [other, Peer::Lunwire].contains(peer));
        if let Some((_, why)) = why {
            figure.not_here(claim, why.clone());
            continue;
        }
        let tests = CASES.into_iter().filter_map(|case| {
            let name = format!("times {}'s, {}", other.name(), case.name);
            Some(Test::new(name, both(case, other)?, quantity.bound))
        });
        let tests: Vec<Test> = tests.collect();
        let ours = in_words(&tests, quantity.ours);
        figure.claim(claim, ours, tests);
    }
    figure
}

/// The range of ratios over all cases.
fn in_words(tests: &[Test], what: &str) -> String {
    let range = words::range(tests.iter().map(|test| test.spread.median));
    format!("{range} times {what}, by case")
}

fn with_ends(spread: &Spread) -> String {
    let [median, low, high] = [spread.median, spread.low, spread.high].map(number);
    format!("{median} ({low} to {high})")
}

fn values(measured: &Measured, quantity: &Quantity) -> Table {
    let names = measured.present.iter().map(|peer| peer.name().to_owned());
    let first = format!("{}, median", quantity.unit);
    let mut head: Vec<String> = [first].into_iter().chain(names).collect();
    let tells_load = quantity.file == "rate";
    if tells_load {
        head.push("load, % of its processor".to_owned());
    }
    let mut table = Table { head, rows: Vec::new() };
    for case in CASES {
        let cells = measured.present.iter().map(|peer| {
            let samples = measured.of(case, *peer).unwrap_or_default();
            number(spread(samples, quantity.of).median)
        });
        let mut cells: Vec<String> = [case.name.to_owned()].into_iter().chain(cells).collect();
        if tells_load {
            cells.push(load_share(measured, case));
        }
        table.row(cells);
    }
    table
}

/// Under the target that keeps it busiest.
fn load_share(measured: &Measured, case: Case) -> String {
    let all = measured.present.iter().filter_map(|peer| measured.of(case, *peer));
    let shares = all.map(|samples| spread(samples, Sample::load_share).median);
    let most = shares.fold(0.0, f64::max);
    let full = if most >= FULL { ", full" } else { "" };
    format!("{}{full}", number(100.0 * most))
}

fn picture(measured: &Measured, quantity: &Quantity) -> Picture {
    // Of large requests there are few, and they take long: what is beside the best one is seen.
    let bars = CASES.into_iter().flat_map(|case| {
        let of = move |peer: &Peer| {
            let samples = measured.of(case, *peer).unwrap_or_default();
            (*peer, spread(samples, quantity.of).median)
        };
        let all: Vec<(Peer, f64)> = measured.present.iter().map(of).collect();
        let most = all.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
        all.into_iter()
            .map(move |(peer, value)| Bar::new(case.name, peer.name(), vec![100.0 * value / most]))
            .collect::<Vec<_>>()
    });
    Picture {
        file: quantity.file,
        title: quantity.title.split_once(": ").map_or("", |(_, title)| title).to_owned(),
        unit: "% of the largest of each case",
        kind: Kind::Bars { parts: vec![""], bars: bars.collect() },
    }
}

/// Whether each gives back what it was given.
fn function(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&["Table 4"], "Table 4: what is read is what was written");
    figure.method = "Every block of the disk is written by our initiator, each MiB with bytes of \
                     its own, and 64 places are read again and compared, byte by byte."
        .to_owned();
    let mut table = Table::new(&["target", "places of 64 that are as they were written, %"]);
    for peer in Peer::ALL {
        let claim = format!("{} gives back what was written", peer.name());
        let intact = measured.intact.iter().find(|(of, _)| *of == peer);
        let lacking = measured.lacking.iter().find(|(of, _)| *of == peer);
        match (intact, lacking) {
            (Some((_, share)), _) => {
                table.row(vec![peer.name().into(), number(*share)]);
                let name = format!("% of the places, {}", peer.name());
                let whole = Bound::Within(100.0, 100.0);
                let test = Test::new(name, Spread::exact(*share), whole);
                figure.claim(claim, format!("{} % of the places", number(*share)), vec![test]);
            }
            (None, Some((_, why))) => figure.not_here(claim, why.clone()),
            (None, None) => {}
        }
    }
    if !table.rows.is_empty() {
        figure.tables.push(table);
    }
    figure
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Options;
    use super::*;
    use crate::verdict::Verdict;

    /// Three rounds, in which ours answers so many times what tgt does.
    fn measured(faster: [f64; 3]) -> Measured {
        let time = Duration::from_secs(1);
        let sample = |rate: f64| Sample {
            ios: rate,
            seconds: 1.0,
            target: 0.5,
            load: 0.97,
            p99_us: 1e6 / rate,
        };
        let ours: Vec<Sample> = faster.map(|times| sample(1000.0 * times)).to_vec();
        let theirs = vec![sample(1000.0); 3];
        let both = [(Peer::Lunwire, ours), (Peer::Tgt, theirs)];
        let samples = CASES.into_iter().flat_map(|case| {
            let of = move |(peer, samples): (Peer, Vec<Sample>)| (case, peer, samples);
            both.clone().map(of)
        });
        Measured {
            options: Options { rounds: 3, time },
            notes: Vec::new(),
            present: vec![Peer::Lunwire, Peer::Tgt],
            lacking: [Peer::Spdk, Peer::Istgt, Peer::Lio]
                .map(|peer| (peer, "it needs a program".to_owned()))
                .to_vec(),
            intact: vec![(Peer::Lunwire, 100.0), (Peer::Tgt, 50.0)],
            samples: samples.collect(),
        }
    }

    fn verdicts(measured: &Measured, at: usize) -> Vec<Verdict> {
        let findings = report(measured);
        findings.figures[at].claims.iter().map(|claim| claim.verdict()).collect()
    }

    #[test]
    fn who_is_not_there_decides_nothing() {
        use Verdict::{Hidden, Holds, NoLonger, NotHere};
        assert_eq!(verdicts(&measured([2.0; 3]), 0), [NotHere, Holds, NotHere, NotHere]);
        assert_eq!(verdicts(&measured([0.5; 3]), 0)[1], NoLonger);
        assert_eq!(verdicts(&measured([0.9, 1.0, 1.2]), 0)[1], Hidden);
        // The same time for twice as many; and sooner.
        assert_eq!(verdicts(&measured([2.0; 3]), 1)[1], Holds);
        assert_eq!(verdicts(&measured([2.0; 3]), 2)[1], Holds);
        assert_eq!(verdicts(&measured([2.0; 3]), 3), [Holds, NotHere, NoLonger, NotHere, NotHere]);
    }

    #[test]
    fn ratios_have_their_ends_and_a_full_load_is_told() {
        let findings = report(&measured([1.5, 2.0, 2.5]));
        let [values, ratios] = &findings.figures[0].tables[..] else { panic!("two tables") };
        assert_eq!(values.rows[0][1..], ["2000", "1000", "97.0, full"]);
        assert_eq!(ratios.rows[0][1], "2.00 (1.50 to 2.50)");
        assert_eq!(findings.figures[0].claims[1].ours, "2.00 times as many, by case");
        assert!(findings.preface.iter().any(|line| line.starts_with("Not here: LIO, because")));
    }

    #[test]
    fn without_ours_nothing_is_compared() {
        let mut alone = measured([1.0; 3]);
        alone.present.retain(|peer| *peer != Peer::Lunwire);
        alone.samples.retain(|(_, peer, _)| *peer != Peer::Lunwire);
        alone.lacking.push((Peer::Lunwire, "it needs the command".to_owned()));
        assert!(verdicts(&alone, 0).iter().all(|verdict| *verdict == Verdict::NotHere));
    }
}
