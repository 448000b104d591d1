// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TPC-H: queries that read much of a database, each with nothing of it in memory.

mod data;
mod database;

use super::Outcome;
use super::account::Look;
use super::disks::{Disks, Writes};
use crate::Error;
use crate::forth::theirs;
use crate::progress::Steps;
use crate::study::Settings;
use crate::workplace::Workplace;
use database::{Database, Programs};

const SCHEMA: &str = include_str!("schema.sql");
const QUERIES: &str = include_str!("queries.sql");

/// Runs all queries at all places in turn.
pub(crate) fn measure(settings: &Settings, steps: &Steps<'_>) -> Result<Outcome, Error> {
    // One of so many rows of scale factor 1.
    let scale: u64 = settings.effort.of(2000, 100, 20);
    let bytes = settings.effort.of(4, 8, 32) << 20;
    let rounds = settings.rounds([1, 3, 3]);
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(why) => return Ok(Outcome::nothing(why)),
    };
    let disks = match Disks::start(settings.program.as_deref(), bytes) {
        Ok(disks) => disks,
        Err(why) => return Ok(Outcome::nothing(why)),
    };
    let tables = Workplace::new().map_err(Error::rig)?;
    data::write(tables.path(), scale).map_err(Error::rig)?;
    let schema = SCHEMA.replace("FOLDER", &tables.path().display().to_string());
    let queries = queries();
    let items = queries.iter().map(|(name, _)| format!("q{name}")).collect();
    let mut outcome = Outcome::expect(items, &disks.places());
    outcome.preface.push(format!(
        "TPC-H: MariaDB, a server of this run's own with MyISAM tables and 1 MiB for keys, and \
         data of our own generator after the published schema at scale factor 1/{scale}; the \
         study, which does not tell its scale factor, had MySQL. {rounds} runs, medians: for each \
         the database is loaded into a new ext4 of {} MiB, and all queries run one after the \
         other; before each the tables are closed and the system forgets their pages, of which \
         targets may still have theirs.",
        (bytes * theirs::DISKS as u64) >> 20,
    ));
    let places = disks.places();
    steps.expect(rounds * places.len() * (1 + outcome.items.len()));
    let mut answers: Vec<Option<String>> = vec![None; queries.len()];
    for _ in 0..rounds {
        for &place in &places {
            steps.next(&format!("TPC-H, loading: {}", place.name()))?;
            let mounted = disks.mount(place, Writes::Later)?;
            let mut database = Database::start(&programs, mounted.folder())?;
            database.ask(&schema)?;
            for (item, ((name, sql), answer)) in queries.iter().zip(&mut answers).enumerate() {
                steps.next(&format!("TPC-H, query {name}: {}", place.name()))?;
                database.forget()?;
                let server = Some(database.process());
                let look = || Look::now(server, mounted.initiator(), &mounted.device());
                let before = look();
                let said = database.ask(sql)?;
                let spent = look().since(&before);
                // The same data gives the same answer, whatever disk it is on.
                if answer.get_or_insert_with(|| said.clone()) != &said {
                    return Err(Error::Rig(format!(
                        "query {name} answers otherwise on {}",
                        place.name()
                    )));
                }
                let is_it = |case: &&mut super::Case| (case.place, case.item) == (place, item);
                if let Some(case) = outcome.cases.iter_mut().find(is_it) {
                    case.spent.push(spent);
                }
            }
            database.end()?;
            mounted.end()?;
        }
    }
    outcome.lacking.clone_from(&disks.lacking);
    disks.end()?;
    Ok(outcome)
}

/// The queries with their names.
fn queries() -> Vec<(&'static str, &'static str)> {
    QUERIES.split("\n-- q").skip(1).filter_map(named).collect()
}

fn named(text: &'static str) -> Option<(&'static str, &'static str)> {
    text.split_once('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_queries_of_the_study_are_there() {
        let names: Vec<&str> = queries().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["1", "2", "3", "5", "6", "7", "8", "11", "12", "14", "19"]);
        assert!(queries().iter().all(|(_, sql)| sql.starts_with("select")));
        assert!(queries().iter().all(|(_, sql)| sql.trim_end().ends_with(';')));
    }
}
