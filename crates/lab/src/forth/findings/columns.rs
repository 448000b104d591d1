// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Beside figure 9 and table 2: TPC-H in a database of columns. The study has none, so nothing here
//! counts for its claims: what it says of figure 9 is asked of the other kind of database by the
//! same bounds.

use super::super::Place;
use super::super::apps::{Case, Of, Outcome};
use super::super::theirs;
use super::apps::{normalized, push, range, ratios, say};
use crate::study::{Figure, Table};
use crate::verdict::{Bound, Spread, Test};

pub(super) fn figure(columns: &Outcome, rows: &Outcome) -> Figure {
    let title = "Beside figure 9 and table 2: TPC-H in DuckDB, a database of columns";
    let mut figure = Figure::new(&[], title);
    figure.method = "As figure 9, which the study has of a database of rows alone: its bounds, \
                     asked of columns; and both databases beside each other, run by run."
        .into();
    normalized(columns, &mut figure, ("figure-9-duckdb", "DuckDB: execution time", seconds));
    push(&mut figure, table(columns, rows));
    let time = ("time", seconds as Of);
    let longer = |tests: &[Test]| format!("{} times as long", range(tests));
    for (what, places, bound) in [
        ("One target makes queries longer", [Place::X1, Place::Direct], Bound::Above(1.0)),
        (
            "Three targets are within 40 % of direct",
            [Place::X3, Place::Direct],
            Bound::Below(theirs::TPCH_X3),
        ),
        (
            "With three targets all queries are faster than with one",
            [Place::X3, Place::X1],
            Bound::Below(1.0),
        ),
    ] {
        let tests = ratios(columns, time, places, bound);
        say(columns, &mut figure, format!("Of rows the study says: {what}"), longer, tests);
    }
    for place in [Place::Direct, Place::X3] {
        let against = |(what, of): (&str, Of)| -> Vec<Test> {
            let test = |(item, name): (usize, &String)| {
                let ratio = by(rows, columns, (place, item), of)?;
                let name = format!("{what}, {}, MariaDB by DuckDB, {name}", place.name());
                Some(Test::new(name, ratio, Bound::Above(1.0)))
            };
            columns.items.iter().enumerate().filter_map(test).collect()
        };
        let lacking = if columns.cases.is_empty() { columns } else { rows };
        say(
            lacking,
            &mut figure,
            format!("Not in the study: columns take less time than rows, {}", place.name()),
            |tests| format!("rows take {} times as long", range(tests)),
            against(time),
        );
    }
    figure
}

fn seconds(case: &Case) -> Vec<f64> {
    case.of_spent(|spent| spent.seconds)
}

fn requests(case: &Case) -> Vec<f64> {
    case.of_spent(|spent| spent.ios)
}

/// Something of an item in one database by the same in another; None where there is nothing.
fn by(one: &Outcome, other: &Outcome, (place, item): (Place, usize), of: Of) -> Option<Spread> {
    let (one, other) = (of(one.case(place, item)?), of(other.case(place, item)?));
    Some(Spread::ratio(&one, &other))
}

fn table(columns: &Outcome, rows: &Outcome) -> Table {
    let head = ["query"].into_iter().map(str::to_owned);
    let head = head.chain(Place::GRID.map(|place| format!("{}, s", place.name())));
    let last = ["MariaDB, times direct", "requests, direct", "those of MariaDB"];
    let head: Vec<String> = head.chain(last.map(str::to_owned)).collect();
    let mut table = Table { head, rows: Vec::new() };
    if columns.cases.is_empty() {
        return table;
    }
    for (item, name) in columns.items.iter().enumerate() {
        let of = |outcome: &Outcome, place, of: Of| {
            Some(Spread::of(&of(outcome.case(place, item)?)).median)
        };
        let told = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let times = by(rows, columns, (Place::Direct, item), seconds).map(|ratio| ratio.median);
        let requests = [columns, rows].map(|outcome| of(outcome, Place::Direct, requests));
        let cells = Place::GRID.map(|place| told(of(columns, place, seconds), 4));
        let cells = [name.clone()].into_iter().chain(cells);
        table.row(cells.chain([told(times, 2)]).chain(requests.map(|one| told(one, 0))).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn made_up(times: f64) -> Outcome {
        Outcome::made_up(&["q1", "q6"], |place, _| match place {
            Place::X1 => 1.5 * times,
            Place::X3 => 1.2 * times,
            _ => times,
        })
    }

    fn verdicts(figure: &Figure) -> Vec<Verdict> {
        figure.claims.iter().map(|claim| claim.verdict()).collect()
    }

    #[test]
    fn what_is_said_of_rows_is_asked_of_columns() {
        let quick = figure(&made_up(1.0), &made_up(5.0));
        assert_eq!(verdicts(&quick), [Verdict::Holds; 5], "{:?}", quick.claims);
        assert!(quick.labels.is_empty(), "no claim of the study");
        assert_eq!(quick.tables[0].rows.len(), 2);
        assert_eq!(quick.tables[0].rows[0][5], "5.00");
        let slow = figure(&made_up(5.0), &made_up(1.0));
        let [.., direct, x3] = verdicts(&slow)[..] else { panic!("{:?}", slow.claims) };
        assert_eq!([direct, x3], [Verdict::NoLonger; 2]);
        super::super::mail::tests::expect_names_once(&[quick]);
    }

    #[test]
    fn one_that_is_missing_is_named() {
        let none = |why: &str| Outcome::nothing(why);
        let lone = figure(&none("it needs duckdb"), &made_up(1.0));
        assert_eq!(lone.verdict(), Verdict::NotHere);
        assert!(lone.tables.is_empty() && lone.pictures.is_empty());
        let whys =
            lone.claims.iter().all(|claim| claim.ours == "not here, because it needs duckdb");
        assert!(whys, "{:?}", lone.claims);
        let other = figure(&made_up(1.0), &none("it needs mariadbd"));
        assert_eq!(verdicts(&other)[..3], [Verdict::Holds; 3]);
        assert_eq!(other.claims[4].ours, "not here, because it needs mariadbd");
    }
}
