// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TPC-H: queries that read much of a database, each with nothing of it in memory.

mod client;
mod data;
mod database;
mod duckdb;
mod mariadb;

use std::path::Path;

use super::Outcome;
use super::account::Look;
use super::disks::{Disks, Mounted, Writes};
use super::samples::{self, Sampler};
use crate::Error;
use crate::forth::{Place, theirs};
use crate::progress::Steps;
use crate::study::Settings;
use crate::workplace::Workplace;
use database::{Programs, agree};

const QUERIES: &str = include_str!("queries.sql");

/// Runs all queries at all places in turn, by MariaDB and by DuckDB.
pub(crate) fn measure(settings: &Settings, steps: &Steps<'_>) -> Result<[Outcome; 2], Error> {
    // One of so many rows of scale factor 1.
    let scale: u64 = settings.effort.of(2000, 100, 20);
    let bytes = settings.effort.of(4, 8, 32) << 20;
    let rounds = settings.rounds([1, 3, 3]);
    let databases = [Programs::mariadb(), Programs::duckdb()];
    if databases.iter().all(Result::is_err) {
        return Ok(databases.map(|why| Outcome::nothing(why.err().unwrap_or_default())));
    }
    let disks = match Disks::start(settings.program.as_deref(), bytes) {
        Ok(disks) => disks,
        Err(why) => return Ok([(); 2].map(|()| Outcome::nothing(&why))),
    };
    let tables = Workplace::new().map_err(Error::rig)?;
    data::write(tables.path(), scale).map_err(Error::rig)?;
    let places = disks.places();
    let mut loads = databases.map(|programs| programs.map(|one| Load::expect(one, &places)));
    let mut preface = Some(format!(
        "TPC-H: data of our own generator after the published schema at scale factor 1/{scale}; \
         the study, which does not tell its scale factor, had MySQL. {rounds} runs, medians: for \
         each the database is loaded into a new ext4 of {} MiB, and all queries run one after the \
         other; before each the tables are closed and the system forgets their pages, of which \
         targets may still have theirs.",
        (bytes * theirs::DISKS as u64) >> 20,
    ));
    for load in loads.iter_mut().flatten() {
        let before = preface.take();
        load.outcome.preface.splice(0..0, before);
        steps.expect(rounds * (places.len() + load.outcome.cases.len()));
    }
    let sampler = Sampler::start(samples::rate(settings.effort));
    for _ in 0..rounds {
        for &place in &places {
            for load in loads.iter_mut().flatten() {
                let mounted = disks.mount(place, Writes::Later)?;
                load.run(&mounted, place, tables.path(), steps)?;
                mounted.end()?;
            }
        }
    }
    let mut ran: Vec<&mut Outcome> =
        loads.iter_mut().flatten().map(|load| &mut load.outcome).collect();
    Outcome::part(&mut ran, sampler);
    if let [Ok(one), Ok(other)] = &loads {
        compare(one, other)?;
    }
    let outcomes = loads.map(|load| match load {
        Ok(load) => Outcome { lacking: disks.lacking.clone(), ..load.outcome },
        Err(why) => Outcome::nothing(why),
    });
    disks.end()?;
    Ok(outcomes)
}

/// All queries by one database.
#[derive(Debug)]
struct Load {
    programs: Programs,
    outcome: Outcome,
    /// To each query.
    answers: Vec<Option<String>>,
}

impl Load {
    fn expect(programs: Programs, places: &[Place]) -> Self {
        let queries = queries();
        let items = queries.iter().map(|(name, _)| format!("q{name}")).collect();
        let mut outcome = Outcome::expect(items, places);
        outcome.preface.push(match &programs {
            Programs::MariaDb { .. } => {
                "MariaDB is a server of this run's own with MyISAM tables and 1 MiB for keys."
            }
            Programs::DuckDb { .. } => {
                "Beside it DuckDB has the same data in columns in one file, without keys, and one \
                 thread. Its file, too, is closed before each query, and opening it is a part of \
                 that."
            }
        }
        .to_owned());
        Self { programs, outcome, answers: vec![None; queries.len()] }
    }

    fn run(
        &mut self,
        mounted: &Mounted<'_>,
        place: Place,
        tables: &Path,
        steps: &Steps<'_>,
    ) -> Result<(), Error> {
        let what = format!("TPC-H, {}", self.programs.name());
        steps.next(&format!("{what}, loading: {}", place.name()))?;
        let mut database = self.programs.start(mounted.folder(), tables)?;
        for (item, ((name, sql), answer)) in queries().iter().zip(&mut self.answers).enumerate() {
            steps.next(&format!("{what}, query {name}: {}", place.name()))?;
            database.forget()?;
            let process = Some(database.process());
            let look = || Look::now(process, mounted.initiator(), &mounted.device());
            let before = look();
            let said = database.ask(sql)?;
            let spent = look().since(&before);
            // The same data gives the same answer, whatever disk it is on.
            if answer.get_or_insert_with(|| said.clone()) != &said {
                let place = place.name();
                return Err(Error::Rig(format!(
                    "{what}: query {name} answers otherwise on {place}"
                )));
            }
            let is_it = |case: &&mut super::Case| (case.place, case.item) == (place, item);
            if let Some(case) = self.outcome.cases.iter_mut().find(is_it) {
                case.spent.push(spent);
            }
        }
        database.end()
    }
}

/// And the same answer, whatever database it is in.
fn compare(one: &Load, other: &Load) -> Result<(), Error> {
    let answers = one.answers.iter().zip(&other.answers);
    for ((name, _), (answer, other)) in queries().iter().zip(answers) {
        let (Some(answer), Some(other)) = (answer, other) else { continue };
        if !agree(answer, other) {
            return Err(Error::Rig(format!(
                "TPC-H: query {name} answers {answer:?} in one database and {other:?} in another"
            )));
        }
    }
    Ok(())
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

    #[test]
    fn databases_that_are_installed_answer_the_same() {
        let place = Workplace::new().unwrap();
        let tables = place.path().join("tables");
        std::fs::create_dir(&tables).unwrap();
        data::write(&tables, 500).unwrap();
        let found = [Programs::mariadb(), Programs::duckdb()].into_iter().flatten();
        let answers = found.map(|programs| {
            let folder = place.path().join(programs.name());
            std::fs::create_dir(&folder).unwrap();
            let mut load = Load::expect(programs, &[]);
            let mut database = load.programs.start(&folder, &tables).unwrap();
            for ((_, sql), answer) in queries().iter().zip(&mut load.answers) {
                database.forget().unwrap();
                *answer = Some(database.ask(sql).unwrap());
                assert_eq!(answer.as_ref(), database.ask(sql).ok().as_ref(), "{sql}");
            }
            let used = crate::threads::process(database.process());
            assert!(used.cpu_ns > 0, "it is the one that works");
            assert!(database.ask("select nothing from nowhere;").is_err());
            load
        });
        let loads: Vec<Load> = answers.collect();
        for pair in loads.windows(2) {
            compare(&pair[0], &pair[1]).unwrap();
        }
        let mut wrong = Load::expect(Programs::DuckDb { program: "none".into() }, &[]);
        for load in &loads {
            wrong.answers[0] = Some("A\tF\t1".into());
            assert!(compare(load, &wrong).is_err());
        }
    }
}
