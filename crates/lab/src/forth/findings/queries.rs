// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures 9, 10 and 13, and table 2: TPC-H.

use super::super::Place;
use super::super::apps::{Case, Of, Outcome};
use super::super::theirs;
use super::apps::{
    ALMOST_ALL, blocks, busy, execution, how, layers, normalized, push, range, ratios, say, shares,
    system,
};
use crate::picture::number;
use crate::study::{Figure, Table};
use crate::verdict::{Bound, Spread, Test};

/// Trends that are the same differ by a quarter at most.
const ALIKE: Bound = Bound::Within(0.8, 1.25);

pub(super) fn figures(queries: &Outcome) -> Vec<Figure> {
    vec![against_direct(queries), time(queries), layered(queries), seconds_direct(queries)]
}

fn seconds(case: &Case) -> Vec<f64> {
    case.of_spent(|spent| spent.seconds)
}

fn user(case: &Case) -> Vec<f64> {
    case.of_spent(|spent| spent.percent(spent.user))
}

/// Figure 9.
fn against_direct(queries: &Outcome) -> Figure {
    let mut figure = Figure::new(&["Figure 9"], "Figure 9: TPC-H: execution time against direct");
    normalized(queries, &mut figure, ("figure-9", "Figure 9: execution time", seconds));
    let time = ("time", seconds as Of);
    let longer = |tests: &[Test]| format!("{} times as long", range(tests));
    let tests = ratios(queries, time, [Place::X1, Place::Direct], Bound::Above(1.0));
    let theirs = "One target makes queries 1 to 95 % longer";
    say(queries, &mut figure, theirs, longer, tests);
    let most = Bound::Below(theirs::TPCH_X3);
    let tests = ratios(queries, time, [Place::X3, Place::Direct], most);
    let theirs = "Three targets are within 40 % of direct";
    say(queries, &mut figure, theirs, longer, tests);
    let tests = ratios(queries, time, [Place::X3, Place::X1], Bound::Below(1.0));
    let theirs = "With three targets all queries are faster than with one";
    say(queries, &mut figure, theirs, longer, tests);
    let most = Bound::Below(theirs::TPCH_UNCACHED);
    let tests = ratios(queries, time, [Place::X3Uncached, Place::X3], most);
    let others = tests.into_iter().filter(|test| !test.name.ends_with(", q14"));
    let theirs = "Without the targets' cache they are at most 7 % slower, but for query 14";
    say(queries, &mut figure, theirs, longer, others.collect());
    figure
}

/// Figure 10.
fn time(queries: &Outcome) -> Figure {
    let title = "Figure 10: TPC-H: where the time goes, and rate of I/O";
    let mut figure = Figure::new(&["Figure 10"], title);
    figure.method = "As figure 8, of the database server. Claims of its own share are tested with \
                     queries that have ten samples in each run."
        .into();
    execution(queries, &mut figure, ["figure-10-time", "figure-10-rate"]);
    let places = [Place::X1, Place::Direct];
    let apart = queries.told_apart();
    let tests = ratios(&apart, ("system", system), places, Bound::Above(1.0));
    let times = |tests: &[Test]| format!("it is {} times that of direct", range(tests));
    let theirs = "The system's share of the time is up to 200 % more behind one target";
    say(&apart, &mut figure, theirs, times, tests);
    let tests = ratios(&apart, ("user", user), places, Bound::Below(1.0));
    let theirs = "The share of the database itself is less in all queries, by up to 50 % (query 6)";
    say(&apart, &mut figure, theirs, times, tests);
    let tests = shares(queries, ("busy", busy), Place::X3, Bound::Above(ALMOST_ALL));
    let percent = |tests: &[Test]| format!("it has work for {} % of the time", range(tests));
    let theirs = "Behind three targets the processor is idle for almost 0 % of the time";
    say(queries, &mut figure, theirs, percent, tests);
    figure
}

/// Figure 13.
fn layered(queries: &Outcome) -> Figure {
    let mut figure = Figure::new(&["Figure 13"], "Figure 13: TPC-H: where the system's time goes");
    figure.method = format!("{} Tested as figure 10.", how(queries));
    let apart = queries.told_apart();
    layers(queries, &mut figure, "figure-13");
    let part = ("of system's time", blocks as Of);
    let percent = |tests: &[Test]| format!("{} %", range(tests));
    let bound = Bound::Above(theirs::BLOCK_IO);
    let tests = shares(&apart, part, Place::X1, bound);
    let named = |test: &Test| theirs::BLOCK_QUERIES.iter().any(|name| test.name.ends_with(name));
    let (theirs, tests) = (
        "30 to 80 % of the system's time is that of block I/O in queries 3, 5, 6, 7, 12, 14 and 19",
        tests.into_iter().filter(named).collect(),
    );
    say(&apart, &mut figure, theirs, percent, tests);
    let tests = ratios(&apart, part, [Place::X3, Place::X1], Bound::Above(1.0));
    let times = |tests: &[Test]| format!("its share is {} times as large", range(tests));
    let theirs = "Three targets make block I/O a larger part than one, by up to 20 %";
    say(&apart, &mut figure, theirs, times, tests);
    let tests = ratios(&apart, part, [Place::X3Uncached, Place::X3], ALIKE);
    let theirs = "Without the targets' cache it is the same";
    say(&apart, &mut figure, theirs, times, tests);
    figure
}

/// Table 2.
fn seconds_direct(queries: &Outcome) -> Figure {
    let mut figure = Figure::new(&["Table 2"], "Table 2: TPC-H: execution time");
    let head = ["query", "study, direct, s"].into_iter().chain(Place::GRID.map(Place::name));
    let head: Vec<&str> = head.chain(["times direct of the study"]).collect();
    let mut table = Table::new(&head);
    for (item, name) in queries.items.iter().enumerate() {
        let their = theirs::TPCH.iter().find(|(query, _)| query == name).map(|(_, value)| *value);
        let ours = |place| Some(Spread::of(&seconds(queries.case(place, item)?)).median);
        let told = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), precise);
        let direct = ours(Place::Direct);
        let by = their.zip(direct).map(|(their, ours)| ours / their);
        let cells = [name.clone(), their.map_or_else(|| "-".to_owned(), number)].into_iter();
        let cells = cells.chain(Place::GRID.map(|place| told(ours(place))));
        table.row(cells.chain([told(by)]).collect());
    }
    push(&mut figure, table);
    let [longest, shortest] = theirs::TPCH_ENDS;
    let tests = theirs::TPCH.iter().flat_map(|(query, _)| {
        [(longest, *query), (*query, shortest)].into_iter().filter_map(|(longer, shorter)| {
            let of = |name: &str| {
                let item = queries.items.iter().position(|item| item == name)?;
                queries.case(Place::Direct, item).map(seconds)
            };
            let ratio = Spread::paired(&of(longer)?, &of(shorter)?, |a, b| a / b.max(1e-9));
            let test =
                Test::new(format!("direct, {longer} by {shorter}"), ratio, Bound::Above(1.0));
            Some(test).filter(|_| longer != shorter)
        })
    });
    // The longest by the shortest is asked twice.
    let mut tests: Vec<Test> = tests.collect();
    tests.sort_by(|a, b| a.name.cmp(&b.name));
    tests.dedup_by(|a, b| a.name == b.name);
    say(
        queries,
        &mut figure,
        "Query 8 takes longest (148 s direct), query 6 least (10.9 s)",
        |tests| {
            format!(
                "{}; query 8 by each other one, and each by query 6: {} times as long",
                ends(queries),
                range(tests)
            )
        },
        tests,
    );
    figure
}

/// Which of the study's queries take longest and least here.
fn ends(queries: &Outcome) -> String {
    let of = |(query, _): &(&'static str, f64)| {
        let item = queries.items.iter().position(|item| item == query)?;
        Some((*query, Spread::of(&seconds(queries.case(Place::Direct, item)?)).median))
    };
    let mut all: Vec<(&str, f64)> = theirs::TPCH.iter().filter_map(of).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let told = |one: Option<&(&str, f64)>| {
        let (query, seconds) = one.copied().unwrap_or_default();
        format!("{} ({} s direct)", query.replace('q', "query "), precise(seconds))
    };
    format!("{} takes longest, {} least", told(all.first()), told(all.last()))
}

/// Seconds, which may be few.
fn precise(value: f64) -> String {
    format!("{value:.4}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    #[test]
    fn claims_are_decided_by_what_was_spent() {
        let names = ["q1", "q3", "q6", "q8", "q14"];
        // Query 8 takes longest, and one target makes all slower.
        let queries = Outcome::made_up(&names, |place, item| {
            let time = [5.0, 4.0, 1.0, 9.0, 3.0][item];
            time * if place == Place::X1 { 1.5 } else { 1.0 }
        });
        let figures = figures(&queries);
        let verdicts = |at: usize| -> Vec<Verdict> {
            figures[at].claims.iter().map(|claim| claim.verdict()).collect()
        };
        assert_eq!(verdicts(0), [Verdict::Holds; 4], "{:?}", figures[0].claims);
        assert_eq!(verdicts(3), [Verdict::Holds]);
        let told = &figures[3].claims[0].ours;
        assert!(told.starts_with("query 8 (9.0"), "{told}");
        assert!(told.contains(" s direct) takes longest, query 6 (1.0"), "{told}");
        assert_eq!(figures[3].tables[0].rows.len(), names.len());
        assert_eq!(figures[3].claims[0].tests.len(), 7, "each pair once");
        super::super::mail::tests::expect_names_once(&figures);
    }
}
