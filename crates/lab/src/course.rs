// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The course of a run of several studies: what of it is done, so that one that was stopped goes on
//! where it was.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::given;
use crate::report::{list, word, write_whole};
use crate::study::Settings;

/// In the folder of the reports, while a run is not over.
const UNFINISHED: &str = "unfinished.json";

/// What of a run is done.
#[derive(Debug)]
pub struct Course {
    path: PathBuf,
    /// What was asked for: settings and studies.
    words: Value,
    done: Vec<String>,
    /// The same of runs in other words that were stopped in the same folder.
    others: Vec<Value>,
    /// Studies that could not be run when they were last tried, and why.
    failed: Vec<Value>,
}

impl Course {
    /// That of the reports in `folder`: the last one in the same words, if it was stopped, or a
    /// new one.
    #[must_use]
    pub fn of(folder: &Path, settings: &Settings, studies: &[&str]) -> Self {
        let path = folder.join(UNFINISHED);
        let whole = read(folder);
        let words = told(settings, studies);
        let (same, others): (Vec<_>, Vec<_>) =
            list(&whole, "courses").iter().cloned().partition(|one| one["words"] == words);
        let done = same.iter().flat_map(|one| list(one, "done"));
        let done = done.filter_map(|name| Some(name.as_str()?.to_owned())).collect();
        Self { path, words, done, others, failed: list(&whole, "failed").to_vec() }
    }

    /// Whether the report of this study is of this run.
    #[must_use]
    pub fn is_done(&self, study: &str) -> bool {
        self.done.iter().any(|name| name == study)
    }

    /// The report of this study is written: that of no other run is there any more.
    ///
    /// # Errors
    /// Of the file system.
    pub fn note(&mut self, study: &str) -> io::Result<()> {
        self.done.push(study.to_owned());
        self.failed.retain(|one| word(one, "study") != study);
        for other in &mut self.others {
            if let Some(done) = other.get_mut("done").and_then(Value::as_array_mut) {
                done.retain(|name| name != study);
            }
        }
        self.write()
    }

    /// This study could not be run, for a reason that the page of all names.
    ///
    /// # Errors
    /// Of the file system.
    pub fn note_failed(&mut self, study: &str, why: &str) -> io::Result<()> {
        self.failed.retain(|one| word(one, "study") != study);
        self.failed.push(json!({ "study": study, "why": why }));
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        let own = json!({ "words": self.words, "done": self.done });
        let courses: Vec<&Value> = self.others.iter().chain([&own]).collect();
        write_whole(&self.path, &courses_and(&courses, &self.failed))
    }

    /// All that was asked for is done: the next run begins anew.
    ///
    /// # Errors
    /// Of the file system.
    pub fn finish(self) -> io::Result<()> {
        if !self.others.is_empty() || !self.failed.is_empty() {
            let courses: Vec<&Value> = self.others.iter().collect();
            return write_whole(&self.path, &courses_and(&courses, &self.failed));
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn courses_and(courses: &[&Value], failed: &[Value]) -> String {
    format!("{:#}\n", json!({ "courses": courses, "failed": failed }))
}

/// The studies that could not be run into `folder` when they were last tried, with the reasons.
pub(crate) fn failed(folder: &Path) -> Vec<Value> {
    list(&read(folder), "failed").to_vec()
}

/// Nothing where there is none, or none that can be read.
fn read(folder: &Path) -> Value {
    let text = given::read(&folder.join(UNFINISHED)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn told(settings: &Settings, studies: &[&str]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let Settings { effort, rounds, .. } = settings;
    json!({ "effort": effort.name(), "rounds": rounds, "version": version, "studies": studies })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::Effort;

    const BOTH: [&str; 2] = ["amp", "unh"];

    #[test]
    fn a_run_goes_on_where_it_was_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let quick = Settings::new(Effort::Quick);
        let mut course = Course::of(folder.path(), &quick, &BOTH);
        course.note("amp").unwrap();
        let again = Course::of(folder.path(), &quick, &BOTH);
        assert!(again.is_done("amp") && !again.is_done("unh"));
        let full = Settings::new(Effort::Full);
        assert!(!Course::of(folder.path(), &full, &BOTH).is_done("amp"));
        again.finish().unwrap();
        let new = Course::of(folder.path(), &quick, &BOTH);
        assert!(!new.is_done("amp"));
        new.finish().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_run_in_other_words_leaves_the_one_that_was_stopped_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let quick = Settings::new(Effort::Quick);
        let all = ["fast05", "amp", "unh"];
        let mut course = Course::of(folder.path(), &quick, &all);
        course.note("fast05").unwrap();
        course.note("amp").unwrap();
        // Who asks for one gets that, and has written over its report.
        let smoke = Settings::new(Effort::Smoke);
        let mut one = Course::of(folder.path(), &smoke, &["amp"]);
        assert!(!one.is_done("amp"));
        one.note("amp").unwrap();
        one.finish().unwrap();
        let again = Course::of(folder.path(), &quick, &all);
        assert!(again.is_done("fast05") && !again.is_done("amp"));
    }

    #[test]
    fn a_study_that_failed_is_known_until_it_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let quick = Settings::new(Effort::Quick);
        let run = || Course::of(folder.path(), &quick, &BOTH);
        let whys = || -> Vec<String> {
            failed(folder.path()).iter().map(|one| word(one, "why").to_owned()).collect()
        };
        run().note_failed("amp", "no memory").unwrap();
        run().note_failed("amp", "no threads").unwrap();
        assert_eq!(whys(), ["no threads"]);
        let mut other = Course::of(folder.path(), &quick, &["unh"]);
        other.note("unh").unwrap();
        other.finish().unwrap();
        assert_eq!(whys(), ["no threads"], "of that the other one says nothing");
        let mut again = run();
        again.note("amp").unwrap();
        again.finish().unwrap();
        assert_eq!(whys(), [""; 0]);
    }
}
