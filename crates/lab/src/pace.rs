// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a study still takes, by what its last run in the same folder took: steps are not of one
//! length, and how many there are is not known at the beginning. Without such a run, by what its
//! effort may take.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::given;
use crate::report::{list, write_whole};
use crate::study::{Settings, Study};

/// In the folder of a report.
const TIMES: &str = "times.json";

/// So much of the last run counts as done at its pace: what the first steps take is noise.
const PRIOR: f64 = 0.1;

/// What is left of a run, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums)] // whoever tells it has words for each
pub enum Left {
    /// By the last run in the same words.
    About(f64),
    /// No run of this effort is to take longer.
    UpTo(f64),
    /// It takes longer than so much, which none is to take.
    Late(f64),
    /// Nothing tells.
    Unknown,
}

/// When the steps of a study begin, in this run and in the last one.
#[derive(Debug)]
pub struct Pace {
    path: PathBuf,
    words: Value,
    /// How long a run of this effort takes at most; None: the user has said how many rounds it has.
    most: Option<Duration>,
    /// Seconds, the last ones those of the end; empty where there was no such run.
    before: Vec<f64>,
    now: Vec<f64>,
}

impl Pace {
    /// That of `study`, whose reports go into `folder`.
    #[must_use]
    pub fn of(study: &Study, settings: &Settings, folder: &Path) -> Self {
        let path = folder.join(TIMES);
        let (effort, rounds) = (settings.effort.name(), settings.rounds);
        let words = json!({ "study": study.name, "effort": effort, "rounds": rounds });
        let last: Value = given::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .filter(|last: &Value| last["words"] == words)
            .unwrap_or_default();
        let before: Vec<f64> = list(&last, "seconds").iter().filter_map(Value::as_f64).collect();
        let before = Some(before).filter(|before| is_course(before)).unwrap_or_default();
        let most = settings.rounds.is_none().then(|| settings.effort.most());
        Self { path, words, most, before, now: Vec::new() }
    }

    /// A step begins.
    pub fn step(&mut self, so_far: Duration) {
        self.now.push(so_far.as_secs_f64());
    }

    /// From the beginning of the step that was told last to the end.
    #[must_use]
    pub fn left(&self) -> Left {
        if let Some(seconds) = self.by_the_last_run() {
            return Left::About(seconds);
        }
        let so_far = Duration::try_from_secs_f64(self.now.last().copied().unwrap_or(0.0));
        let so_far = so_far.unwrap_or_default();
        match self.most {
            None => Left::Unknown,
            Some(most) if so_far < most => Left::UpTo((most - so_far).as_secs_f64()),
            Some(most) => Left::Late(most.as_secs_f64()),
        }
    }

    fn by_the_last_run(&self) -> Option<f64> {
        let (at, so_far) = (self.now.len().checked_sub(1)?, *self.now.last()?);
        let (then, end) = (*self.before.get(at)?, *self.before.last()?);
        // Other work on the machine, or another machine.
        let prior = (PRIOR * end).max(0.1);
        let factor = (so_far + prior) / (then + prior);
        let is_last_step_known = at + 1 < self.before.len();
        is_last_step_known.then(|| (end - then).max(0.0) * factor)
    }

    /// It is at its end: the next run has it to go by.
    ///
    /// # Errors
    /// Of the file system.
    pub fn keep(&self, took: Duration) -> io::Result<()> {
        let seconds: Vec<f64> = self.now.iter().copied().chain([took.as_secs_f64()]).collect();
        let text = json!({ "words": self.words, "seconds": seconds });
        write_whole(&self.path, &format!("{text}\n"))
    }
}

/// Whether a run may have had these times.
fn is_course(seconds: &[f64]) -> bool {
    seconds.is_sorted() && seconds.iter().all(|one| (0.0..=LONGEST).contains(one))
}

/// No run takes a week.
const LONGEST: f64 = 7.0 * 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{Effort, STUDIES};

    #[test]
    fn the_first_run_takes_no_longer_than_its_effort() {
        let folder = tempfile::tempdir().unwrap();
        for (effort, most) in
            [(Effort::Smoke, 60.0), (Effort::Quick, 180.0), (Effort::Full, 1800.0)]
        {
            let mut first = Pace::of(&STUDIES[0], &Settings::new(effort), folder.path());
            assert_eq!(first.left(), Left::UpTo(most));
            first.step(Duration::from_secs(50));
            assert_eq!(first.left(), Left::UpTo(most - 50.0));
            first.step(Duration::from_secs(2000));
            assert_eq!(first.left(), Left::Late(most));
        }
    }

    #[test]
    fn what_is_left_is_judged_by_the_last_run() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings::new(Effort::Quick);
        let new = || Pace::of(&STUDIES[0], &settings, folder.path());
        // Many short steps, then few long ones.
        let steps = (0..50).map(|at| f64::from(at) * 0.1).chain([5.0, 35.0, 65.0]);
        let steps: Vec<f64> = steps.collect();
        let mut first = new();
        for seconds in &steps {
            first.step(Duration::from_secs_f64(*seconds));
            assert_eq!(first.left(), Left::UpTo(180.0 - seconds), "nothing is known of it");
        }
        first.keep(Duration::from_secs(95)).unwrap();
        for slower in [0.5, 1.0, 3.0] {
            let mut again = new();
            for seconds in &steps {
                again.step(Duration::from_secs_f64(slower * seconds));
                let Left::About(left) = again.left() else { panic!("{again:?}") };
                let right = slower * (95.0 - seconds);
                if *seconds > 4.5 || slower <= 1.0 {
                    assert!((0.5..=2.0).contains(&(left / right)), "{seconds}: {left}, {right}");
                }
            }
            again.step(Duration::from_secs(95));
            assert_eq!(again.left(), Left::UpTo(85.0), "it has more steps than before");
        }
        let other = Settings { rounds: Some(3), ..settings.clone() };
        let mut other = Pace::of(&STUDIES[0], &other, folder.path());
        other.step(Duration::ZERO);
        assert_eq!(other.left(), Left::Unknown, "another run in other words");
    }
}
