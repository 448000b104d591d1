// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire lab`: published studies, re-run.

mod reports;
mod warden;

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use control::words;
use lab::Audience;
use lab::By;
use lab::Course;
use lab::Effort;
use lab::Joined;
use lab::Left;
use lab::Pace;
use lab::STUDIES;
use lab::Settings;
use lab::Study;
use serde_json::json;

use crate::args;
use crate::args::LabAction;
use crate::args::LabCleanOptions;
use crate::args::LabOptions;
use crate::args::LabReportOptions;
use crate::args::LabRunOptions;
use crate::args::Usage;
use crate::client;
use crate::client::leaving;
use crate::output;
use reports::Reports;
use reports::cannot;
use reports::expect_report_or_nothing;
use warden::Warden;

/// What is measured when the user wants an end is measured to its end, so that all that was started
/// is stopped.
const STEP_MOST: Duration = Duration::from_secs(30);

pub(crate) fn run(options: &LabOptions) -> Result<()> {
    match &options.action {
        LabAction::List { json } => {
            list(*json);
            Ok(())
        }
        LabAction::Run(options) => measure(options),
        LabAction::Report(options) => report(options),
        LabAction::Clean(options) => {
            clean(options);
            Ok(())
        }
    }
}

fn list(json: bool) {
    if json {
        let told = STUDIES.iter().map(|study| {
            let figures = lab::labels_of(study.name);
            json!({ "name": study.name, "about": study.about, "figures": figures })
        });
        output::result(json!({ "studies": told.collect::<Vec<_>>() }));
    } else {
        let rows = STUDIES.iter().map(|study| vec![study.name.to_owned(), study.about.to_owned()]);
        output::table(&rows.collect::<Vec<_>>());
    }
}

/// Runs studies, prints their tables and writes their pages.
fn measure(options: &LabRunOptions) -> Result<()> {
    let LabRunOptions { names, full, smoke, rounds, out, .. } = options;
    let effort = match (full, smoke) {
        (true, _) => Effort::Full,
        (_, true) => Effort::Smoke,
        _ => Effort::Quick,
    };
    let mut settings = Settings::new(effort);
    settings.rounds = rounds.map(usize::from);
    settings.program = std::env::current_exe().ok();
    expect_studies(names)?;
    let is_wanted =
        |study: &&Study| names.iter().any(|name| name == study.name || name == args::ALL);
    let studies: Vec<&Study> = STUDIES.iter().filter(is_wanted).collect();
    // That it can be written is seen before the work.
    let reports = Reports::take(out)?;
    for study in &studies {
        reports.of(study.name)?;
    }
    leaving::catch_signals(|| leaving::set_most(STEP_MOST))?;
    take_away();
    let _warden = Warden::start();
    let names: Vec<&str> = studies.iter().map(|study| study.name).collect();
    let mut course = Course::of(out, &settings, &names);
    let mut failed = Vec::new();
    for study in &studies {
        if course.is_done(study.name) && lab::is_report(&out.join(study.name)) {
            output::say(format_args!("{}: done before this run was stopped", study.name));
            continue;
        }
        let noted = match one(study, &settings, &reports.of(study.name)?)? {
            Ok(()) => course.note(study.name),
            Err(error) => {
                let why = format!("{error:#}");
                output::say(&why);
                failed.push(study.name);
                course.note_failed(study.name, &why)
            }
        };
        noted.map_err(|error| cannot(out, error))?;
        // Who stops the next one has a page of all before it.
        lab::join(out)?;
    }
    if failed.is_empty() {
        course.finish().map_err(|error| cannot(out, error))?;
    }
    tell(&lab::join(out)?);
    if failed.is_empty() {
        return Ok(());
    }
    bail!("not run: {}; the same command tries what is left", failed.join(", "))
}

/// Fails where a name is none, or there is none.
fn expect_studies(names: &[String]) -> Result<(), Usage> {
    let known = || STUDIES.iter().map(|study| study.name).chain([args::ALL]);
    let what = match names.iter().find(|name| !known().any(|known| known == *name)) {
        None if names.is_empty() => "which study is missing".to_owned(),
        None => return Ok(()),
        Some(name) => {
            let shown = output::on_one_line(name);
            if let Some(meant) = words::nearest(name, known()) {
                return Err(Usage(format!("{shown} is no study; did you mean {meant}?")));
            }
            format!("{shown} is no study")
        }
    };
    let known = known().collect::<Vec<_>>().join(", ");
    Err(Usage(format!("{what}; there are {known}; try: lunwire lab list")))
}

/// Runs a study, prints what it found and writes its page; or gives the reason why it cannot be
/// run, which others may be.
fn one(study: &Study, settings: &Settings, folder: &Path) -> Result<Result<()>> {
    let viewer = Viewer::new(study, settings, folder);
    let ran = lab::run(study, settings, &viewer);
    let took = viewer.begun.elapsed();
    output::clear();
    let found = match ran {
        Err(lab::Error::Stopped) => bail!(
            "{}: stopped; the same command goes on with what is left of the studies",
            study.name
        ),
        Err(error) => {
            return Ok(Err(anyhow!(error).context(format!("cannot run {}", study.name))));
        }
        Ok(found) => found,
    };
    output::line(found.text());
    let page = found.write(folder).map_err(|error| cannot(folder, error))?;
    viewer.keep(took).map_err(|error| cannot(folder, error))?;
    output::line(format!("report: {}", page.display()));
    Ok(Ok(()))
}

/// Takes away what runs left that were killed.
fn clean(options: &LabCleanOptions) {
    if options.after.is_none_or(warden::is_left_alone) {
        take_away();
    }
}

fn take_away() {
    for left in lab::clean() {
        output::say(format_args!("{left}"));
    }
}

/// Where the page of all is, and what it lacks.
fn tell(joined: &Joined) {
    joined.left_out.iter().for_each(output::warn);
    output::line(format!("all reports: {}", joined.page.display()));
}

/// Joins reports, or compares two.
fn report(options: &LabReportOptions) -> Result<()> {
    let Some([a, b]) = options.compare.as_deref() else {
        expect_report_or_nothing(&options.out)?;
        let _held = reports::hold(&options.out)?;
        let joined = lab::join(&options.out)?;
        match options.json {
            true => {
                let page = joined.page.display().to_string();
                output::result(json!({ "page": page, "left_out": joined.left_out }));
            }
            false => tell(&joined),
        }
        return Ok(());
    };
    let changes = lab::compare(a, b)?;
    let reproduced = lab::reproduced(a, b)?;
    let efforts = lab::efforts_differ(a, b)?;
    let [first, second] = [lab::circumstances(a)?, lab::circumstances(b)?];
    if options.json {
        let changes: Vec<_> = changes.iter().map(lab::Change::json).collect();
        let factors = reproduced.as_ref().map(lab::Reproduced::json);
        output::result(json!({
            "first": first,
            "second": second,
            "efforts_differ": efforts,
            "changes": changes,
            "reproduced": factors,
        }));
        return Ok(());
    }
    let shown = output::on_one_line;
    efforts.iter().for_each(|efforts| output::line(shown(efforts)));
    output::line(format!("first: {}\nsecond: {}\n", shown(&first), shown(&second)));
    if changes.is_empty() {
        output::line("no test of one is in the other");
    }
    let head =
        ["figure", "what", "first", "second", "change", "answer"].map(str::to_owned).to_vec();
    let rows: Vec<_> = [head].into_iter().chain(changes.iter().map(lab::Change::cells)).collect();
    output::table(&rows);
    if changes.iter().any(|change| matches!(change.by, Some(By::Points(_)))) {
        output::line(format!("\n{}", lab::POINTS));
    }
    if let Some(reproduced) = reproduced {
        output::line(String::new());
        let head = ["factor", "first", "second", "interval"].map(str::to_owned).to_vec();
        output::table(&[vec![head], reproduced.rows()].concat());
        output::line(format!("\n{}", shown(&reproduced.told(["first", "second"]))));
    }
    Ok(())
}

/// Says on standard error how far a study has come.
struct Viewer {
    study: &'static str,
    begun: Instant,
    shown: Mutex<Option<Instant>>,
    pace: Mutex<Pace>,
    pause: Duration,
    is_terminal: bool,
}

impl Viewer {
    fn new(study: &Study, settings: &Settings, folder: &Path) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let pause = Duration::from_millis(if is_terminal { 200 } else { 10_000 });
        let (pace, study) = (Mutex::new(Pace::of(study, settings, folder)), study.name);
        Self { study, begun: Instant::now(), shown: Mutex::default(), pace, pause, is_terminal }
    }

    /// For the next run.
    fn keep(&self, took: Duration) -> std::io::Result<()> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).keep(took)
    }
}

impl Audience for Viewer {
    fn step(&self, what: &str, done: usize, of: usize) {
        let left = {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            pace.step(self.begun.elapsed());
            pace.left()
        };
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.is_some_and(|shown| shown.elapsed() < self.pause) {
            return;
        }
        *shown = Some(Instant::now());
        let text = line(self.study, what, [done, of], (self.begun.elapsed(), left));
        match self.is_terminal {
            true => output::rewrite(&text),
            false => output::say(text),
        }
    }

    fn is_to_stop(&self) -> bool {
        client::is_interrupted()
    }
}

/// What runs, how much of it is done, and how long the rest takes as far as that is known.
fn line(
    study: &str,
    what: &str,
    [done, of]: [usize; 2],
    (so_far, left): (Duration, Left),
) -> String {
    let seconds = so_far.as_secs();
    let left = match left {
        Left::About(left) => format!("about {left:.0} s left"),
        Left::UpTo(most) => format!("up to {most:.0} s left"),
        Left::Late(most) => format!("longer than the {most:.0} s it is to take"),
        Left::Unknown => "how long is known after a first run".to_owned(),
    };
    format!("{study}: {done} of {of}, {seconds} s, {left}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_told_where_it_is_known() {
        let told = line("amp", "SMP", [20, 60], (Duration::from_secs(10), Left::About(19.6)));
        assert_eq!(told, "amp: 20 of 60, 10 s, about 20 s left: SMP");
        for (left, told) in [
            (Left::UpTo(180.0), "up to 180 s left"),
            (Left::Late(180.0), "longer than the 180 s it is to take"),
            (Left::Unknown, "how long is known after a first run"),
        ] {
            let said = line("amp", "SMP", [0, 60], (Duration::ZERO, left));
            assert_eq!(said, format!("amp: 0 of 60, 0 s, {told}: SMP"));
        }
    }
}
