// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs of the laboratory that are killed or stopped, or meet each other: what they leave.
#![allow(clippy::unwrap_used)] // a test that panics has failed

mod support;

use std::fs;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;
use support::stderr;
use support::that_takes_signals;

/// Time enough on a machine with much to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// Without SPDK, which wants huge pages of the machine.
fn begin(folder: &Path, words: &[&str]) -> Child {
    let temporary = folder.join("tmp");
    fs::create_dir_all(&temporary).unwrap();
    let mut command = that_takes_signals();
    command.args(["lab", "run"]).args(words).arg("--out").arg(folder.join("a/out"));
    command.env("TMPDIR", temporary).env("PEERS", "/nowhere");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Programs of the run in `folder`.
fn programs(folder: &Path) -> Vec<String> {
    let folder = folder.join("tmp").display().to_string();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let words = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    words.filter(|words| words.contains(&folder)).collect()
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn a_run_that_is_killed_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let run = begin(folder.path(), &["peers", "--smoke"]);
    wait_until("a target", || !programs(folder.path()).is_empty());
    kill_process(Pid::from_child(&run), Signal::KILL).unwrap();
    let said = stderr(&run.wait_with_output().unwrap());
    assert!(said.contains("took away what a killed run had left: its folder"), "{said}");
    assert_eq!(programs(folder.path()), [""; 0]);
    assert!(is_empty(&folder.path().join("tmp")));
}

#[test]
fn a_run_that_is_stopped_leaves_no_empty_folder() {
    let folder = tempfile::tempdir().unwrap();
    let run = begin(folder.path(), &["fast05", "peers", "--smoke", "--rounds", "1000"]);
    wait_until("its place", || folder.path().join("a/out").exists());
    // It takes signals from then on.
    std::thread::sleep(Duration::from_secs(1));
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    let ended = run.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("fast05: stopped"), "{}", stderr(&ended));
    assert!(!folder.path().join("a").exists());
    assert!(is_empty(&folder.path().join("tmp")));
}

#[test]
fn a_study_that_cannot_be_run_keeps_no_other_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let run = || {
        let mut command = that_takes_signals();
        command.args(["lab", "run", "fast05", "unh", "peers", "--smoke", "--rounds", "1", "--out"]);
        command.arg(&out).env("TMPDIR", "/nowhere").output().unwrap()
    };
    let first = run();
    let said = stderr(&first);
    assert_eq!(first.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot run unh: ") && said.contains("cannot run peers: "), "{said}");
    assert!(said.ends_with("not run: unh, peers; the same command tries what is left\n"), "{said}");
    assert!(out.join("fast05/index.html").exists() && out.join("index.html").exists());
    assert!(!out.join("unh").exists());
    assert!(stderr(&run()).contains("fast05: done before this run was stopped"));
}

#[test]
fn one_study_that_cannot_be_run_is_named_on_the_page_and_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let run = |temporary: &Path| {
        let mut command = that_takes_signals();
        command.args(["lab", "run", "peers", "--smoke", "--rounds", "1", "--out"]);
        command.arg(&out).env("TMPDIR", temporary).env("PEERS", "/nowhere").output().unwrap()
    };
    let page = || fs::read_to_string(out.join("index.html")).unwrap();
    let first = run(Path::new("/nowhere"));
    let said = stderr(&first);
    assert_eq!(first.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot run peers: "), "{said}");
    assert!(said.ends_with("not run: peers; the same command tries what is left\n"), "{said}");
    assert!(page().contains("<h2>peers: not run</h2>\n<p>cannot run peers: "), "{}", page());
    let results = fs::read_to_string(out.join("results.json")).unwrap();
    assert!(results.contains("cannot run peers: "), "{results}");
    let second = run(folder.path());
    assert_eq!(second.status.code(), Some(0), "{}", stderr(&second));
    assert!(!page().contains("not run") && out.join("peers/index.html").exists());
    assert!(!out.join("unfinished.json").exists());
}

#[test]
fn a_second_run_in_a_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = begin(folder.path(), &["fast05", "--smoke", "--rounds", "1000"]);
    wait_until("its place", || folder.path().join("a/out").exists());
    std::thread::sleep(Duration::from_secs(1));
    let second = begin(folder.path(), &["fast05", "--smoke"]).wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = stderr(&second);
    assert!(said.contains("another run writes its reports to "), "{said}");
    assert!(said.contains("try: wait for it, or name another folder with --out"), "{said}");
    kill_process(Pid::from_child(&first), Signal::TERM).unwrap();
    first.wait_with_output().unwrap();
}

#[test]
fn what_is_left_can_be_taken_away_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let left = folder.path().join("lunwire-lab-left");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("held"), "").unwrap();
    let clean = |command: &mut Command| {
        command.args(["lab", "clean"]).env("TMPDIR", folder.path()).output().unwrap()
    };
    let first = clean(&mut that_takes_signals());
    assert!(first.status.success() && stderr(&first).contains("took away"), "{first:?}");
    assert!(!left.exists());
    assert_eq!(stderr(&clean(&mut that_takes_signals())), "");
}
