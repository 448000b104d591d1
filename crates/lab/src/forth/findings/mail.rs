// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures 7, 8 and 12, and table 1: PostMark.

use super::super::Place;
use super::super::apps::{Case, Of, Outcome};
use super::super::theirs;
use super::apps::{
    ALMOST_ALL, busy, execution, files, how, ios, layers, normalized, push, range, ratios, say,
    shares, system,
};
use crate::picture::number;
use crate::study::{Figure, Table};
use crate::verdict::{Bound, Spread, Test};

/// Percent by which a share may be less than the study's.
const ALLOWANCE: f64 = 10.0;

/// What follows the same pattern differs by a quarter at most.
const ALIKE: Bound = Bound::Within(0.8, 1.25);

pub(super) fn figures(mail: &Outcome) -> Vec<Figure> {
    vec![against_direct(mail), time(mail), layered(mail), rates(mail)]
}

fn transactions(case: &Case) -> Vec<f64> {
    case.of_rates(|rates| rates.transactions)
}

fn read(case: &Case) -> Vec<f64> {
    case.of_rates(|rates| rates.read)
}

fn written(case: &Case) -> Vec<f64> {
    case.of_rates(|rates| rates.written)
}

/// Figure 7.
fn against_direct(mail: &Outcome) -> Figure {
    let mut figure = Figure::new(&["Figure 7"], "Figure 7: PostMark against direct");
    for one in [
        ("figure-7-transactions", "Figure 7: transactions a second", transactions as Of),
        ("figure-7-read", "Figure 7: read throughput", read),
        ("figure-7-write", "Figure 7: write throughput", written),
    ] {
        normalized(mail, &mut figure, one);
    }
    let rate = ("transactions/s", transactions as Of);
    let by_direct = |place| [place, Place::Direct];
    let [least, most] = theirs::POSTMARK_X1;
    let bound = Bound::Within(least, most);
    let tests = ratios(mail, rate, by_direct(Place::X1), bound);
    let ours = |tests: &[Test]| format!("{} times as many", range(tests));
    say(
        mail,
        &mut figure,
        "One target costs 0 to 20 % of the transactions that direct does",
        ours,
        tests,
    );
    let tests = ratios(mail, rate, by_direct(Place::X3), Bound::Above(1.0));
    let theirs = "Three targets make it 5 to 80 % faster than direct: a larger cache";
    say(mail, &mut figure, theirs, ours, tests);
    let tests = ratios(mail, rate, by_direct(Place::X3Uncached), Bound::Below(1.0));
    let theirs = "Without the targets' cache it falls below direct";
    say(mail, &mut figure, theirs, ours, tests);
    let tests = [(1, 0), (3, 2)].into_iter().filter_map(|pair| more_transactions(mail, pair));
    say(
        mail,
        &mut figure,
        "Three targets help most with more transactions for as many files",
        |tests| format!("{} times the improvement of half as many", range(tests)),
        tests.collect(),
    );
    figure
}

/// What three targets gain at one size by what they gain at another.
fn more_transactions(mail: &Outcome, (more, fewer): (usize, usize)) -> Option<Test> {
    let gain = |item| mail.ratio(item, [Place::X3, Place::Direct], transactions);
    let names = [more, fewer].map(|item| mail.items.get(item).cloned().unwrap_or_default());
    let name = format!("gain of {} by that of {}", names[0], names[1]);
    Some(Test::new(name, gain(more)? / gain(fewer)?, Bound::Above(1.0)))
}

/// Figure 8.
fn time(mail: &Outcome) -> Figure {
    let mut figure =
        Figure::new(&["Figure 8"], "Figure 8: PostMark: where the time goes, and rate of I/O");
    figure.method =
        "Percent of the time from PostMark's start to its end: its own program and its \
                     system calls, and the process that has attached the disk (the study's \
                     initiator is a part of the kernel); the rest it waits. Of all runs together. \
                     Requests that the block device got."
            .into();
    execution(mail, &mut figure, ["figure-8-time", "figure-8-rate"]);
    let places = [Place::X1, Place::Direct];
    let tests = ratios(mail, ("system", system), places, Bound::Below(1.0));
    say(
        mail,
        &mut figure,
        "The system's share of the time drops by 10 to 15 % behind one target, which answers later",
        |tests| format!("it is {} times that of direct", range(tests)),
        tests,
    );
    let tests = shares(mail, ("busy", busy), Place::X3, Bound::Above(ALMOST_ALL));
    say(
        mail,
        &mut figure,
        "Behind three targets the processor has work for almost 100 % of the time",
        |tests| format!("{} %", range(tests)),
        tests,
    );
    let tests = [Place::X1, Place::X3].into_iter().flat_map(|place| {
        let alike = |case: &Case| {
            let rates = transactions(case);
            ios(case).into_iter().zip(rates).map(|(ios, rate)| ios / rate.max(1e-9)).collect()
        };
        ratios(mail, ("I/O for each transaction", alike), [place, Place::Direct], ALIKE)
    });
    say(
        mail,
        &mut figure,
        "The rate of I/O follows that of transactions",
        |tests| format!("requests for each transaction are {} times those of direct", range(tests)),
        tests.collect(),
    );
    figure
}

/// Figure 12.
fn layered(mail: &Outcome) -> Figure {
    let mut figure =
        Figure::new(&["Figure 12"], "Figure 12: PostMark: where the system's time goes");
    figure.method = how(mail).into();
    layers(mail, &mut figure, "figure-12");
    let least = theirs::FILE_SYSTEM;
    let places = [Place::Direct, Place::X1, Place::X3];
    let bound = Bound::Above(least - ALLOWANCE);
    let tests = places
        .into_iter()
        .flat_map(|place| shares(mail, ("of system's time", files), place, bound));
    say(
        mail,
        &mut figure,
        format!("{least:.0} to 95 % of the system's time is the file system's"),
        |tests| format!("{} % is", range(tests)),
        tests.collect(),
    );
    figure
}

/// Table 1.
fn rates(mail: &Outcome) -> Figure {
    let mut figure = Figure::new(&["Table 1"], "Table 1: PostMark");
    let mut table = Table::new(&["size", "place", "transactions/s", "read, KB/s", "written, KB/s"]);
    let row = |size: &str, place: &str, values: [f64; 3]| {
        [size, place].map(str::to_owned).into_iter().chain(values.map(number)).collect()
    };
    for case in &mail.cases {
        let name = mail.items.get(case.item).map_or("", String::as_str);
        if let Some(size) = theirs::POSTMARK.get(case.item).filter(|_| case.place == Place::Direct)
        {
            table.row(row(name, "study, direct", size.rates));
        }
        let of = [transactions, read, written].map(|of| Spread::of(&of(case)).median);
        table.row(row(name, case.place.name(), of));
    }
    push(&mut figure, table);
    let few_by_many = |(few, many): (usize, usize)| {
        let [few, many] = [few, many].map(|item| mail.case(Place::Direct, item));
        let (few, many) = (few?, many?);
        let ratio = Spread::paired(&transactions(few), &transactions(many), |few, many| few / many);
        let [a, b] = [few, many].map(|case| mail.items.get(case.item).map_or("", String::as_str));
        Some(Test::new(format!("direct, {a} by {b}"), ratio, Bound::Above(1.0)))
    };
    let tests: Vec<Test> = [(0, 2), (1, 3)].into_iter().filter_map(few_by_many).collect();
    let direct = (0..mail.items.len()).filter_map(|item| mail.case(Place::Direct, item));
    let direct: Vec<String> =
        direct.map(|case| number(Spread::of(&transactions(case)).median)).collect();
    say(
        mail,
        &mut figure,
        "Direct does 204 and 165 transactions a second with 50,000 files, 81 and 74 with 100,000: \
         fewer files, more transactions",
        |tests| {
            format!(
                "direct does {} with as many files by the scale of this run; half as many files \
                 make it {} times as fast",
                direct.join(", "),
                range(tests)
            )
        },
        tests,
    );
    figure
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::verdict::Verdict;

    pub(in super::super) fn expect_names_once(figures: &[Figure]) {
        for figure in figures {
            let tests = figure.claims.iter().flat_map(|claim| &claim.tests);
            let names: Vec<&str> = tests.map(|test| test.name.as_str()).collect();
            let once: BTreeSet<&str> = names.iter().copied().collect();
            assert_eq!(once.len(), names.len(), "{names:?}");
        }
    }

    #[test]
    fn claims_are_decided_by_what_was_spent() {
        let names = theirs::POSTMARK.map(|size| size.name());
        let names = names.each_ref().map(String::as_str);
        // Three targets are faster, above all with many transactions; one takes a tenth.
        let mail = Outcome::made_up(&names, |place, item| match place {
            Place::X1 => 1.1,
            Place::X3 => [0.9, 0.6, 0.9, 0.6][item],
            Place::X3Uncached => 2.0,
            _ => 1.0,
        });
        let figures = figures(&mail);
        let verdicts: Vec<Verdict> =
            figures[0].claims.iter().map(|claim| claim.verdict()).collect();
        assert_eq!(verdicts, [Verdict::Holds; 4], "{:?}", figures[0].claims);
        let drawn: Vec<usize> = figures.iter().map(|figure| figure.pictures.len()).collect();
        assert_eq!(drawn, [3, 2, 1, 0]);
        // Ours at all places, and theirs.
        assert_eq!(figures[3].tables[0].rows.len(), 4 * 4 + 4);
        expect_names_once(&figures);
    }

    #[test]
    fn where_nothing_ran_each_claim_has_the_reason() {
        for figure in figures(&Outcome::nothing("it needs root")) {
            assert!(figure.pictures.is_empty() && figure.tables.is_empty());
            for claim in &figure.claims {
                assert_eq!(claim.ours, "not here, because it needs root");
            }
        }
    }
}
