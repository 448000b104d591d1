// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The studies that this project implements, re-run on the reader's machine; the command line
//! calls it.
//!
//! A [`Study`] gives a [`Report`]: what it measured beside what was published, as tables, as
//! pictures and as a verdict for each claim, computed by the same rules for all (`verdict.rs`).
#![forbid(unsafe_code)]

mod amp;
mod attached;
mod axis;
mod catalogue;
mod compared;
mod congestion;
mod course;
mod driver;
mod fast05;
mod fit;
mod forth;
mod given;
#[cfg(test)]
mod hostile;
mod html;
mod huge;
mod ibm;
mod joined;
mod machine;
mod measure;
mod nfs;
mod pace;
mod peers;
mod picture;
mod programs;
mod progress;
mod report;
mod reproduced;
mod study;
mod tally;
mod threads;
mod unh;
mod verdict;
mod words;
mod workplace;

pub use compared::{By, Change, POINTS, circumstances, compare, efforts_differ};
pub use course::Course;
pub use joined::{JoinError, Joined, join};
pub use pace::{Left, Pace};
pub use progress::Audience;
pub use report::{PAGE, RESULTS, Report, is_report};
pub use reproduced::{Reproduced, reproduced};
pub use study::{Effort, STUDIES, Settings, Study};
pub use verdict::Verdict;
pub use workplace::clean;

use machine::Machine;
use progress::Steps;

/// Why a study cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody wants the rest.
    #[error("stopped")]
    Stopped,
    /// There is not enough memory for the buffers.
    #[error("no memory for {0} bytes of buffers")]
    Memory(usize),
    /// The fast path did not do what it was driven to do: a defect of ours.
    #[error("the sandbox went wrong: {0}")]
    Sandbox(String),
    /// Target and initiator did not run together: not enough memory, threads or descriptors, or a
    /// defect of ours.
    #[error("the rig of target and initiator failed: {0}")]
    Rig(String),
}

impl Error {
    /// Of a rig, for whatever reason.
    fn rig(reason: impl ToString) -> Self {
        Self::Rig(reason.to_string())
    }

    /// As the reason of what cannot be measured: what failed is told there already.
    fn why(self) -> String {
        match self {
            Self::Rig(why) => why,
            other => other.to_string(),
        }
    }
}

/// The thread that a study runs in: it loads the target itself, and is counted by its name.
const LOAD_NAME: &str = "lab-load";

/// Runs a study.
///
/// # Errors
/// [`Error`]: it was stopped, there is no memory or no thread, or a defect of ours.
pub fn run(study: &Study, settings: &Settings, audience: &dyn Audience) -> Result<Report, Error> {
    let machine = Machine::look();
    let findings = std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name(LOAD_NAME.into());
        let work = || (study.run)(settings, &Steps::new(audience));
        let running = builder.spawn_scoped(scope, work).map_err(Error::rig)?;
        running.join().map_err(|_| Error::Rig("the load has panicked".into()))?
    })?;
    Ok(Report { study: *study, settings: settings.clone(), findings, noted: machine.note() })
}

/// Names of the figures and tables of `study` that its runs have to show.
#[must_use]
pub fn labels_of(study: &str) -> Vec<&'static str> {
    let all = catalogue::of(study);
    all.filter(|one| one.state == catalogue::State::Measured).map(|one| one.label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_what_went_wrong_and_not_where() {
        assert_eq!(Error::rig("no root").why(), "no root");
        assert_eq!(
            Error::rig("no root").to_string(),
            "the rig of target and initiator failed: no root"
        );
        assert_eq!(Error::Stopped.why(), "stopped");
    }
}
