// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The course of a run of several studies: what of it is done, so that one that was stopped goes on
//! where it was.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::report::write_whole;
use crate::study::Settings;

/// In the folder of the reports, while a run is not over.
const UNFINISHED: &str = "unfinished.json";

/// What of a run is done.
#[derive(Debug)]
pub struct Course {
    path: PathBuf,
    settings: Settings,
    done: Vec<String>,
    /// Studies that could not be run, and why.
    failed: Vec<(String, String)>,
}

impl Course {
    /// That of the reports in `folder`: the last one with the same settings, if it was stopped,
    /// or a new one.
    #[must_use]
    pub fn of(folder: &Path, settings: Settings) -> Self {
        let path = folder.join(UNFINISHED);
        let before = fs::read(&path).ok();
        let before = before.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        let before = before.filter(|before| before["settings"] == told(&settings));
        let done = before.as_ref().and_then(|before| before["done"].as_array());
        let done = done.into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned()));
        let done = done.collect();
        Self { path, settings, done, failed: Vec::new() }
    }

    /// Whether the report of this study is of this run.
    #[must_use]
    pub fn is_done(&self, study: &str) -> bool {
        self.done.iter().any(|name| name == study)
    }

    /// The report of this study is written.
    ///
    /// # Errors
    /// Of the file system.
    pub fn note(&mut self, study: &str) -> io::Result<()> {
        self.done.push(study.to_owned());
        self.write()
    }

    /// This study could not be run, for a reason that the page of all names.
    ///
    /// # Errors
    /// Of the file system.
    pub fn note_failed(&mut self, study: &str, why: &str) -> io::Result<()> {
        self.failed.push((study.to_owned(), why.to_owned()));
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        let failed = self.failed.iter().map(|(study, why)| json!({ "study": study, "why": why }));
        let whole = json!({
            "settings": told(&self.settings),
            "done": self.done,
            "failed": failed.collect::<Vec<_>>(),
        });
        write_whole(&self.path, &format!("{whole:#}\n"))
    }

    /// All that was asked for is done: the next run begins anew.
    ///
    /// # Errors
    /// Of the file system.
    pub fn finish(self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The studies that the last run into `folder` could not run, with the reasons.
pub(crate) fn failed(folder: &Path) -> Vec<Value> {
    let text = fs::read(folder.join(UNFINISHED)).ok();
    let whole = text.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    whole.and_then(|whole| whole["failed"].as_array().cloned()).unwrap_or_default()
}

fn told(settings: &Settings) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({ "effort": settings.effort.name(), "rounds": settings.rounds, "version": version })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::Effort;

    #[test]
    fn a_run_goes_on_where_it_was_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let quick = Settings::new(Effort::Quick);
        let mut course = Course::of(folder.path(), quick.clone());
        course.note("amp").unwrap();
        let again = Course::of(folder.path(), quick.clone());
        assert!(again.is_done("amp") && !again.is_done("unh"));
        assert!(!Course::of(folder.path(), Settings::new(Effort::Full)).is_done("amp"));
        again.finish().unwrap();
        let new = Course::of(folder.path(), quick);
        assert!(!new.is_done("amp"));
        new.finish().unwrap();
    }
}
