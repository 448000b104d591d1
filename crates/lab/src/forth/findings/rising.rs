// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figure 11: SFS.

use super::super::Place;
use super::super::apps::{Case, Of, Outcome};
use super::super::theirs;
use super::apps::{busy, execution, push, range, ratios, say, shares};
use crate::measure::median;
use crate::picture::{Kind, Line, Picture, number};
use crate::study::{Figure, Table};
use crate::verdict::{Bound, Spread, Test};

/// Who answers so much of what is asked, percent, is not saturated.
const SERVED: f64 = 95.0;

/// What is similar differs by a tenth at most.
const SIMILAR: Bound = Bound::Within(0.9, 1.1);

/// Who has nothing to do for most of the time works for less of it than this, percent.
const IDLE: f64 = 50.0;

pub(super) fn figure(sfs: &Outcome) -> Figure {
    let mut figure = Figure::new(&["Figure 11"], "Figure 11: SFS: response time against rate");
    figure.method = format!(
        "A rate saturates a place where the median run answers less than {SERVED:.0} % of what is \
         asked. Where the time goes is told as of figure 8, of the server of NFS."
    );
    curves(sfs, &mut figure);
    execution(sfs, &mut figure, ["figure-11-time", "figure-11-rate"]);
    table(sfs, &mut figure);
    let [direct, x1] = theirs::SFS_MOST;
    say(
        sfs,
        &mut figure,
        format!("One target saturates at {x1:.0} requests a second, direct at {direct:.0}"),
        |tests| format!("it answers {} times as many at most", range(tests)),
        most_by_direct(sfs).into_iter().collect(),
    );
    let mut easy = sfs.clone();
    if !easy.cases.is_empty() {
        easy.lacking.push("no rate was answered in full".into());
    }
    let at_ease = |tests: Vec<Test>| -> Vec<Test> {
        let is_at_ease = |test: &Test| {
            let mut items = sfs.items.iter().enumerate();
            let found = items.find(|(_, item)| test.name.ends_with(&format!(", {item}")));
            found.is_some_and(|(item, _)| is_served(sfs, item))
        };
        tests.into_iter().filter(is_at_ease).collect()
    };
    let [most, most_x3] = theirs::SFS_RESPONSE;
    let response = ("response", response as Of);
    let by_direct = |place| [place, Place::Direct];
    let times = |tests: &[Test]| format!("{} times that of direct", range(tests));
    let tests = at_ease(ratios(sfs, response, by_direct(Place::X1), Bound::Within(1.0, most)));
    let theirs = "Response time is larger with one target at all rates, by 25 to 40 %";
    say(&easy, &mut figure, theirs, times, tests);
    let tests = at_ease(ratios(sfs, ("rate", rate), by_direct(Place::X1), SIMILAR));
    let theirs = "The rate is similar up to where one target saturates";
    say(&easy, &mut figure, theirs, times, tests);
    let tests = at_ease(ratios(sfs, response, by_direct(Place::X3), Bound::Below(most_x3)));
    let theirs = "With three targets response time is within 25 % of direct";
    say(&easy, &mut figure, theirs, times, tests);
    let tests = at_ease(shares(sfs, ("busy", busy), Place::X1, Bound::Below(IDLE)));
    say(
        &easy,
        &mut figure,
        "The server is idle most of the time: the network limits, which both sides share",
        |tests| format!("server and initiator have work for {} % of the time", range(tests)),
        tests,
    );
    figure
}

fn rate(case: &Case) -> Vec<f64> {
    case.of_answers(|answers| answers.rate)
}

fn response(case: &Case) -> Vec<f64> {
    case.of_answers(|answers| answers.response_us)
}

/// What is asked of an item.
fn asked(sfs: &Outcome, item: usize) -> f64 {
    let name = sfs.items.get(item).and_then(|name| name.strip_suffix("/s"));
    name.and_then(|rate| rate.parse().ok()).unwrap_or(0.0)
}

/// Whether both of the first places answer what is asked.
fn is_served(sfs: &Outcome, item: usize) -> bool {
    [Place::Direct, Place::X1].iter().all(|place| {
        let case = sfs.case(*place, item);
        case.is_some_and(|case| median(rate(case)) >= asked(sfs, item) * SERVED / 100.0)
    })
}

/// The most that one target answers by the most that is answered direct, run by run.
fn most_by_direct(sfs: &Outcome) -> Option<Test> {
    let most = |place: Place| {
        let cases = sfs.cases.iter().filter(|case| case.place == place);
        cases.map(rate).reduce(|a, b| a.iter().zip(b).map(|(a, b)| a.max(b)).collect())
    };
    let (x1, direct) = most(Place::X1).zip(most(Place::Direct))?;
    let ratio = Spread::paired(&x1, &direct, |x1, direct| x1 / direct.max(1e-9));
    Some(Test::new("most, iSCSI x1 by direct", ratio, Bound::Below(1.0)))
}

fn curves(sfs: &Outcome, figure: &mut Figure) {
    let of = |case: &Case| {
        let at = median(rate(case)).round().max(0.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rate
        let at = at as u64;
        (at, median(response(case)))
    };
    let line = |place: Place| {
        let cases = sfs.cases.iter().filter(|case| case.place == place);
        Line { name: place.name().to_owned(), points: cases.map(of).collect(), published: false }
    };
    let mut lines: Vec<Line> = Place::GRID.into_iter().map(line).collect();
    lines.retain(|line| !line.points.is_empty());
    if !lines.is_empty() {
        figure.pictures.push(Picture {
            file: "figure-11",
            title: "Figure 11: response time".into(),
            unit: "us",
            kind: Kind::Curves { over: "answers a second", lines },
        });
    }
}

fn table(sfs: &Outcome, figure: &mut Figure) {
    let head = ["asked", "place", "answered a second", "response, us", "server and initiator, %"];
    let mut table = Table::new(&head);
    for case in &sfs.cases {
        let item = sfs.items.get(case.item).cloned().unwrap_or_default();
        let mut row = vec![item, case.place.name().to_owned()];
        row.extend([rate(case), response(case), busy(case)].map(|all| number(median(all))));
        table.row(row);
    }
    push(figure, table);
}

#[cfg(test)]
mod tests {
    use super::super::mail::tests::expect_names_once;
    use super::*;
    use crate::verdict::Verdict;

    /// Three runs in which direct answers all of 100 and 700 of 800 a second.
    fn made_up() -> Outcome {
        let mut sfs = Outcome::made_up(&["100/s", "800/s"], |_, _| 1.0);
        for case in &mut sfs.cases {
            let (most, response_us) = match case.place {
                Place::Direct => (700.0, 100.0),
                Place::X1 => (600.0, 130.0),
                _ => (650.0, 110.0),
            };
            let asked: f64 = [100.0, 800.0][case.item];
            for answers in &mut case.answers {
                (answers.rate, answers.response_us) = (asked.min(most), response_us);
            }
            for spent in &mut case.spent {
                (spent.user, spent.system) = (1e8, 1e8);
            }
        }
        sfs
    }

    #[test]
    fn claims_are_decided_by_answers_of_rates_that_are_served() {
        let sfs = made_up();
        let figure = figure(&sfs);
        let verdicts: Vec<Verdict> = figure.claims.iter().map(|claim| claim.verdict()).collect();
        assert_eq!(verdicts, [Verdict::Holds; 5], "{:?}", figure.claims);
        assert_eq!(figure.claims[1].tests.len(), 1, "nothing is said of 800 a second");
        let most = figure.claims[0].tests[0].spread.median;
        assert!((most - 600.0 / 700.0).abs() < 1e-9, "{most}");
        assert_eq!(figure.tables.last().map(|table| table.rows.len()), Some(8));
        expect_names_once(&[figure]);
    }

    #[test]
    fn where_no_rate_is_answered_in_full_that_is_the_reason() {
        let mut sfs = made_up();
        sfs.cases.iter_mut().flat_map(|case| &mut case.answers).for_each(|one| one.rate /= 2.0);
        let figure = figure(&sfs);
        assert_eq!(figure.claims[0].verdict(), Verdict::Holds, "the most is what it is");
        for claim in figure.claims.iter().skip(1) {
            assert_eq!(claim.ours, "not here, because no rate was answered in full");
        }
    }

    #[test]
    fn without_a_server_each_claim_has_the_reason() {
        let figure = figure(&Outcome::nothing("it needs ganesha"));
        assert!(figure.pictures.is_empty() && figure.tables.is_empty());
        for claim in &figure.claims {
            assert_eq!(claim.ours, "not here, because it needs ganesha");
        }
    }
}
