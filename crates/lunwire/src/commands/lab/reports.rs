// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder that a run writes its reports to: no other run has it meanwhile, and what was made
//! in it for nothing goes again.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use rustix::fs::FlockOperation;
use rustix::fs::OFlags;
use rustix::fs::flock;
use rustix::io::Errno;

use crate::client::outfile::Outfile;

/// One that is this run's.
#[derive(Debug)]
pub(super) struct Reports {
    folder: Made,
    _held: File,
}

impl Reports {
    /// # Errors
    /// It cannot be written to, another run has it, or it holds what is no report.
    pub(super) fn take(folder: &Path) -> Result<Self> {
        let folder = Made::new(folder)?;
        let held = File::open(&folder.path).map_err(|error| cannot(&folder.path, error))?;
        if is_held(&held) {
            bail!(
                "another run writes its reports to {}; try: wait for it, or name another folder \
                 with --out",
                folder.path.display()
            );
        }
        expect_place(&folder.path)?;
        Ok(Self { folder, _held: held })
    }

    /// Where that of a study goes, once it is seen that it can be written there.
    ///
    /// # Errors
    /// It cannot, or there is something else.
    pub(super) fn of(&self, study: &str) -> Result<PathBuf> {
        let folder = Made::new(&self.folder.path.join(study))?;
        expect_place(&folder.path)?;
        Ok(folder.path.clone())
    }
}

/// As long as it is there, no run writes to `folder`; None where there is no folder.
///
/// # Errors
/// A run does.
pub(super) fn hold(folder: &Path) -> Result<Option<File>> {
    let flags = OFlags::DIRECTORY.bits().cast_signed();
    let Ok(held) = File::options().read(true).custom_flags(flags).open(folder) else {
        return Ok(None);
    };
    if is_held(&held) {
        bail!(
            "a run writes its reports to {}, and their page behind each study; try: wait for it",
            folder.display()
        );
    }
    Ok(Some(held))
}

/// Whether somebody else has it; else it is ours.
fn is_held(folder: &File) -> bool {
    // A file system without locks has no other run, either, as far as one can see.
    flock(folder, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

/// A folder that goes again if it was made here and nothing is in it.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    /// The outermost one that was not there.
    first: Option<PathBuf>,
}

impl Made {
    fn new(path: &Path) -> Result<Self> {
        expect_report_or_nothing(path)?;
        let lacking = path.ancestors().filter(|one| !one.as_os_str().is_empty());
        let first = lacking.take_while(|one| !one.exists()).last().map(Path::to_owned);
        let made = Self { path: path.to_owned(), first };
        std::fs::create_dir_all(path).map_err(|error| cannot(path, error))?;
        Ok(made)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let Some(first) = &self.first else { return };
        for folder in self.path.ancestors() {
            // One that has something in it stays.
            if std::fs::remove_dir(folder).is_err() || folder == first {
                return;
            }
        }
    }
}

fn expect_place(folder: &Path) -> Result<()> {
    let opened = Outfile::open(&folder.join(lab::PAGE)).map(drop);
    opened.map_err(|error| cannot(folder, error.root_cause()))
}

/// Fails where a report would replace what is none.
pub(super) fn expect_report_or_nothing(folder: &Path) -> Result<()> {
    let is_report = lab::is_report(folder);
    // A pipe beside results that are some would be waited for.
    let is_other = |name: &str| {
        std::fs::metadata(folder.join(name))
            .is_ok_and(|found| !found.is_file() || !is_report && found.len() > 0)
    };
    match [lab::PAGE, lab::RESULTS].into_iter().find(|name| is_other(name)) {
        None => Ok(()),
        Some(name) => bail!(
            "{} exists and is of no report; try: another folder with --out",
            folder.join(name).display()
        ),
    }
}

/// Why a report cannot be written, told once.
pub(super) fn cannot(folder: &Path, why: impl std::fmt::Display) -> anyhow::Error {
    let folder = folder.display();
    anyhow!("cannot write the report to {folder}: {why}; try: another folder with --out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_for_nothing_goes_again() {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("a/b");
        let reports = Reports::take(&out).unwrap();
        let of_one = reports.of("amp").unwrap();
        assert!(out.is_dir() && !of_one.exists());
        drop(reports);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
        std::fs::create_dir_all(&out).unwrap();
        drop(Reports::take(&out).unwrap());
        assert!(out.is_dir(), "it was there before");
        let reports = Reports::take(&out.join("c")).unwrap();
        std::fs::write(out.join("c/kept"), "").unwrap();
        drop(reports);
        assert!(out.join("c/kept").exists());
    }

    #[test]
    fn why_it_cannot_be_written_is_told_once() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        std::fs::write(&file, "").unwrap();
        let why = format!("{:#}", Reports::take(&file.join("out")).unwrap_err());
        let end = "file/out: Not a directory (os error 20); try: another folder with --out";
        assert!(why.ends_with(end), "{why}");
        std::fs::create_dir(parent.path().join(lab::PAGE)).unwrap();
        let why = format!("{:#}", expect_place(parent.path()).unwrap_err());
        assert_eq!(why.matches("cannot write").count(), 1, "{why}");
        assert_eq!(why.matches("try:").count(), 1, "{why}");
    }

    #[test]
    fn a_pipe_beside_results_is_no_report() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::write(parent.path().join(lab::RESULTS), "{\"studies\": []}").unwrap();
        expect_report_or_nothing(parent.path()).unwrap();
        let pipe = parent.path().join(lab::PAGE);
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        let why = expect_report_or_nothing(parent.path()).unwrap_err().to_string();
        assert!(why.contains("index.html exists and is of no report"), "{why}");
    }

    #[test]
    fn two_runs_have_two_folders() {
        let parent = tempfile::tempdir().unwrap();
        let first = Reports::take(parent.path()).unwrap();
        let why = Reports::take(parent.path()).unwrap_err().to_string();
        assert!(why.starts_with("another run writes its reports to "), "{why}");
        drop(Reports::take(&parent.path().join("other")).unwrap());
        drop(first);
        // A program that another test starts has our files until it is itself.
        let again = (0..100).find_map(|_| {
            let pause = || std::thread::sleep(std::time::Duration::from_millis(50));
            Reports::take(parent.path()).ok().or_else(|| {
                pause();
                None
            })
        });
        assert!(again.is_some());
    }
}
