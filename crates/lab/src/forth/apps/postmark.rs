// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PostMark (J. Katcher, 1997): many small files that are made, read, appended to and deleted, as
//! those of a mail server.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::Outcome;
use super::account::Look;
use super::disks::{Disks, Mounted, Writes};
use super::samples::{self, Sampler};
use crate::Error;
use crate::forth::theirs;
use crate::measure::real;
use crate::programs::installed;
use crate::progress::Steps;
use crate::study::Settings;

/// Between two looks whether it is over, or is to be.
const LOOK: Duration = Duration::from_millis(2);

/// What PostMark tells of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    /// Transactions a second, while there were some.
    pub(crate) transactions: f64,
    /// KB/s over all of the run.
    pub(crate) read: f64,
    pub(crate) written: f64,
}

/// Runs all sizes at all places in turn.
pub(crate) fn measure(settings: &Settings, steps: &Steps<'_>) -> Result<Outcome, Error> {
    // One of so many files and transactions of the study.
    let scale: u32 = settings.effort.of(5000, 1000, 200);
    let bytes = settings.effort.of(4, 8, 16) << 20;
    let rounds = settings.rounds([1, 3, 3]);
    let program = match installed("postmark", "postmark") {
        Ok(program) => program,
        Err(why) => return Ok(Outcome::nothing(why)),
    };
    let disks = match Disks::start(settings.program.as_deref(), bytes) {
        Ok(disks) => disks,
        Err(why) => return Ok(Outcome::nothing(why)),
    };
    let items = theirs::POSTMARK.map(|size| size.name());
    let mut outcome = Outcome::expect(items.to_vec(), &disks.places());
    outcome.preface.push(
        "Applications have a file system: direct, on a loop device on one file, which passes the \
         system's cache by; the others on what `lunwire attach --loop` makes of a target's disk. \
         So each has the cache of its file system, and targets have theirs besides, but for \"no \
         cache\"."
            .to_owned(),
    );
    outcome.preface.push(format!(
        "PostMark: Debian's package, with its own sizes of files (500 to 9,770 B) and one of \
         {scale} of the study's files and transactions, {rounds} runs of each case in turn, \
         medians. It counts, and this process measures the time. Each run has a new ext4 of {} \
         MiB. The study's machine had 512 MB of memory for 0.3 to 0.5 GB of files, and so waited \
         for its disks; here all fits into memory, so the file system writes at once (sync, \
         dirsync), and without barriers, which ext3 had not then.",
        (bytes * theirs::DISKS as u64) >> 20,
    ));
    steps.expect(rounds * outcome.cases.len());
    let sampler = Sampler::start(samples::rate(settings.effort));
    for _ in 0..rounds {
        for case in &mut outcome.cases {
            let size = theirs::POSTMARK.get(case.item).copied().unwrap_or(theirs::POSTMARK[0]);
            steps.next(&format!("PostMark, {}: {}", size.name(), case.place.name()))?;
            let mounted = disks.mount(case.place, Writes::AtOnce)?;
            let load = Load { files: size.files / scale, transactions: size.transactions / scale };
            let (spent, rates) = load.run(&program, &mounted, steps)?;
            mounted.end()?;
            case.spent.push(spent);
            case.rates.push(rates);
        }
    }
    Outcome::part(&mut [&mut outcome], sampler);
    outcome.lacking.clone_from(&disks.lacking);
    disks.end()?;
    Ok(outcome)
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
struct Load {
    files: u32,
    transactions: u32,
}

impl Load {
    fn run(
        self,
        program: &Path,
        mounted: &Mounted<'_>,
        steps: &Steps<'_>,
    ) -> Result<(super::Spent, Rates), Error> {
        let Self { files, transactions } = self;
        let folder = mounted.folder().join("mail");
        fs::create_dir(&folder).map_err(Error::rig)?;
        let orders = mounted.folder().join("orders");
        let text = format!(
            "set location {}\nset number {files}\nset transactions {transactions}\nset seed 42\n\
             run\nquit\n",
            folder.display()
        );
        fs::write(&orders, text).map_err(Error::rig)?;
        let look = |pid| Look::now(pid, mounted.initiator(), &mounted.device());
        let before = look(None);
        let mut process = Command::new(program)
            .arg(&orders)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(Error::rig)?;
        let told = listen(&mut process, steps);
        // It is over and has not been waited for: the kernel still knows what it used.
        let after = look(Some(process.id()));
        let ended = process.wait().map_err(Error::rig)?;
        let told = told?;
        if !ended.success() {
            return Err(Error::Rig(format!("postmark: {ended}: {}", told.text.trim())));
        }
        let rates = told.rates(transactions);
        let rates = rates.ok_or_else(|| Error::Rig(format!("postmark said: {}", told.text)))?;
        Ok((after.since(&before), rates))
    }
}

/// What it says, and when it said that a part begins or is over.
#[derive(Debug, Default)]
struct Told {
    text: String,
    at: [Option<Instant>; MARKS.len()],
}

/// Where its parts begin, in this order.
const MARKS: [&str; 4] = ["Creating files", "Performing transactions", "Deleting files", "Time:"];

/// Reads until it ends; ends it when nobody wants the rest.
fn listen(process: &mut Child, steps: &Steps<'_>) -> Result<Told, Error> {
    let from = process.stdout.take().ok_or_else(|| Error::rig("postmark has no output"))?;
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || read(from));
        while !reading.is_finished() {
            if steps.is_to_stop() {
                let _ = process.kill();
            }
            std::thread::sleep(LOOK);
        }
        let told = reading.join().map_err(|_| Error::rig("a thread has panicked"))?;
        match steps.is_to_stop() {
            true => Err(Error::Stopped),
            false => told.map_err(Error::rig),
        }
    })
}

fn read(mut from: ChildStdout) -> std::io::Result<Told> {
    let mut told = Told::default();
    let mut part = [0; 4096];
    loop {
        let length = from.read(&mut part)?;
        if length == 0 {
            return Ok(told);
        }
        told.text.push_str(&String::from_utf8_lossy(part.get(..length).unwrap_or_default()));
        for (at, mark) in told.at.iter_mut().zip(MARKS) {
            if at.is_none() && told.text.contains(mark) {
                *at = Some(Instant::now());
            }
        }
    }
}

impl Told {
    fn rates(&self, transactions: u32) -> Option<Rates> {
        let [begun, first, last, over] = self.at;
        let mixed = last?.duration_since(first?).as_secs_f64();
        let all = over?.duration_since(begun?).as_secs_f64();
        let rate = |what| Some(kilobytes(&self.text, what)? / all.max(1e-9));
        Some(Rates {
            transactions: real(transactions.into()) / mixed.max(1e-9),
            read: rate(" read (")?,
            written: rate(" written (")?,
        })
    }
}

/// Of a line such as `293.51 kilobytes read (...)`.
fn kilobytes(text: &str, what: &str) -> Option<f64> {
    let data = text.split_once("Data:")?.1;
    let line = data.lines().find(|line| line.contains(what))?;
    let mut words = line.split_whitespace();
    let value: f64 = words.next()?.parse().ok()?;
    let times = match words.next()? {
        "bytes" => 1e-3,
        "kilobytes" => 1.0,
        "megabytes" => 1e3,
        "gigabytes" => 1e6,
        _ => return None,
    };
    Some(value * times)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Files:\n\t49 read (49 per second)\n\nData:\n\t293.51 kilobytes read (97.84 \
                        kilobytes per second)\n\t1.25 megabytes written (0.4 megabytes per \
                        second)\n";

    #[test]
    fn its_words_and_our_clock_make_rates() {
        let begun = Instant::now();
        let at = [0, 1, 3, 5].map(|second| Some(begun + Duration::from_secs(second)));
        let told = Told { text: SAID.into(), at };
        let rates = told.rates(100).unwrap();
        assert!((rates.transactions - 50.0).abs() < 1e-9, "{rates:?}");
        assert!((rates.read - 58.702).abs() < 1e-3 && (rates.written - 250.0).abs() < 1e-9);
        assert!(Told { text: SAID.into(), ..Told::default() }.rates(100).is_none());
        let silent = Told { text: "Error: cannot open".into(), at };
        assert!(silent.rates(100).is_none());
    }
}
