// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `copy --resume` goes on with the source and the destination that it began with, or not at all.
#![allow(clippy::unwrap_used)] // a test that panics has failed

mod support;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;
use support::Daemon;
use support::Files;
use support::Loop;
use support::good;
use support::lunwire;
use support::pattern;
use support::stderr;
use support::that_takes_signals;

const SIZE: usize = 16 << 20;

/// Begins a copy, whose disk takes seconds for it, and ends it by `signal` in its middle.
fn begin(from: &str, to: &str, state: &str, signal: Signal) {
    let child = that_takes_signals()
        .args(["copy", from, to, "--resume", state, "--quiet", "--overwrite"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let kept = || {
        let kept = std::fs::read(state).unwrap_or_default();
        let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap_or_default();
        kept["done"].as_u64().unwrap_or(0)
    };
    // Until the first flush.
    for _ in 0..600 {
        if kept() > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    let done = kept();
    assert!(0 < done && done < SIZE as u64, "{done}: {}", stderr(&output));
}

#[track_caller]
fn refuses(from: &str, to: &str, state: &str, why: &str) {
    let output = lunwire(&["copy", from, to, "--resume", state, "--quiet"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(why), "{why:?} is not in {text}");
    assert!(text.contains(&format!("try: rm {state}")), "{text}");
}

#[test]
fn a_destination_that_is_not_the_one_it_was_is_refused() {
    let files = Files::new();
    let disk = files.with("disk", &pattern(SIZE));
    let slow = format!("file:{disk},limit=3M/s");
    let daemon = Daemon::start(files.folder.path(), &[&slow], &[]);
    let (url, state, out) = (&daemon.urls[0], files.path("state"), files.path("out"));
    begin(url, &out, &state, Signal::KILL);
    let aside = files.path("aside");
    std::fs::rename(&out, &aside).unwrap();
    refuses(url, &out, &state, "is gone");
    assert!(!Path::new(&out).exists(), "nothing is made in its place");
    std::fs::copy(&aside, &out).unwrap();
    refuses(url, &out, &state, "is another file");
    std::fs::rename(&aside, &out).unwrap();
    let part = std::fs::metadata(&out).unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(&out).unwrap();
    let tail = std::fs::read(&out).unwrap();
    file.set_len(512).unwrap();
    refuses(url, &out, &state, "was cut from");
    file.write_all_at(&tail, 0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), part);
    good(&["copy", url, &out, "--resume", &state, "--quiet"]);
    assert!(std::fs::read(&out).unwrap() == pattern(SIZE));
    assert!(!Path::new(&state).exists());
}

/// An end in order says when the destination was written to last.
#[test]
fn a_destination_that_others_wrote_to_is_refused() {
    let files = Files::new();
    let disk = files.with("disk", &pattern(SIZE));
    let slow = format!("file:{disk},limit=3M/s");
    let daemon = Daemon::start(files.folder.path(), &[&slow], &[]);
    let (url, state, out) = (&daemon.urls[0], files.path("state"), files.path("out"));
    begin(url, &out, &state, Signal::INT);
    let file = std::fs::OpenOptions::new().write(true).open(&out).unwrap();
    file.write_all_at(b"others", 0).unwrap();
    refuses(url, &out, &state, "was changed since");
    std::fs::remove_file(&state).unwrap();
    good(&["copy", url, &out, "--resume", &state, "--quiet", "--overwrite"]);
    assert!(std::fs::read(&out).unwrap() == pattern(SIZE));
}

/// A device is what lies under it, however deep.
#[test]
fn a_device_over_another_one_that_shows_another_file_is_refused() {
    let files = Files::new();
    let (first, second) = (files.with("first", &pattern(SIZE)), files.with("second", &[7; SIZE]));
    let Some(lower) = Loop::of(&first, &[]) else { return };
    let Some(upper) = Loop::of(&lower.device, &[]) else { return };
    let disk = files.with("disk", &pattern(SIZE));
    let slow = format!("file:{disk},limit=3M/s");
    let daemon = Daemon::start(files.folder.path(), &[&slow], &[]);
    let (url, state) = (daemon.urls[0].as_str(), files.path("state"));
    for (from, to) in [(url, upper.device.as_str()), (&upper.device, url)] {
        begin(from, to, &state, Signal::INT);
        let exchange = |file| {
            upper.detach();
            lower.shows(file);
            upper.shows(&lower.device);
        };
        exchange(&second);
        refuses(from, to, &state, "shows another disk or file than before");
        assert!(std::fs::read(&second).unwrap() == [7; SIZE], "it was not written to");
        exchange(&first);
        good(&["copy", from, to, "--resume", &state, "--quiet"]);
        assert!(std::fs::read(&first).unwrap() == pattern(SIZE));
        assert!(std::fs::read(&disk).unwrap() == pattern(SIZE));
    }
}

#[test]
fn a_source_that_was_changed_is_refused() {
    let files = Files::new();
    let disk = files.with("disk", &vec![0; SIZE]);
    let slow = format!("file:{disk},limit=3M/s");
    let daemon = Daemon::start(files.folder.path(), &[&slow], &[]);
    let (url, state) = (&daemon.urls[0], files.path("state"));
    let image = files.with("image", &pattern(SIZE));
    begin(&image, url, &state, Signal::INT);
    let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();
    file.write_all_at(b"changed", 0).unwrap();
    refuses(&image, url, &state, "was changed since");
    std::fs::remove_file(&state).unwrap();
    good(&["copy", &image, url, "--resume", &state, "--quiet"]);
    assert!(std::fs::read(&disk).unwrap() == std::fs::read(&image).unwrap());
}

#[test]
fn another_disk_behind_the_url_is_refused() {
    let files = Files::new();
    let (disk, image) = (files.with("disk", &vec![0; SIZE]), files.with("image", &pattern(SIZE)));
    let lun = format!("file:{disk},limit=3M/s");
    let mut daemon = Daemon::start(files.folder.path(), &[&lun], &[]);
    let (url, portal) = (daemon.urls[0].clone(), daemon.portal().to_owned());
    let state = files.path("state");
    begin(&image, &url, &state, Signal::KILL);
    daemon.kill();
    daemon.restart(&portal, &["memory:16M"]);
    refuses(&image, &url, &state, "is another disk");
    // As a source, too.
    let (back, of_back) = (files.path("back"), files.path("state-of-back"));
    daemon.kill();
    daemon.restart(&portal, &[&lun]);
    begin(&url, &back, &of_back, Signal::KILL);
    daemon.kill();
    daemon.restart(&portal, &["memory:16M"]);
    refuses(&url, &back, &of_back, "is another disk");
    daemon.kill();
    daemon.restart(&portal, &[&lun]);
    good(&["copy", &image, &url, "--resume", &state, "--quiet", "--verify"]);
    assert!(std::fs::read(&disk).unwrap() == pattern(SIZE));
}

#[test]
fn memory_that_has_begun_anew_is_another_disk_by_the_same_name() {
    let files = Files::new();
    let image = files.with("image", &pattern(SIZE));
    let slow = "memory:16M,limit=3M/s";
    let mut daemon = Daemon::start(files.folder.path(), &[slow], &["--serial", "A1"]);
    let (url, portal) = (daemon.urls[0].clone(), daemon.portal().to_owned());
    let state = files.path("state");
    begin(&image, &url, &state, Signal::INT);
    daemon.kill();
    daemon.restart(&portal, &[slow]);
    refuses(&image, &url, &state, "has begun anew");
}

/// What was found wrong is copied again; before it was compared for ever.
#[test]
fn a_copy_that_does_not_verify_is_mended_by_the_same_command() {
    let files = Files::new();
    let content = pattern(SIZE);
    let image = files.with("image", &content);
    let disk = files.with("disk", &vec![0; SIZE]);
    let lun = format!("file:{disk},limit=8M/s");
    let daemon = Daemon::start(files.folder.path(), &[&lun], &[]);
    let (url, state) = (&daemon.urls[0], files.path("state"));
    let arguments = ["copy", &image, url, "--resume", &state, "--quiet", "--verify"];
    let child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The copy passes over what is changed behind it.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&disk).unwrap();
    let at = 1 << 20;
    let mut found = [0; 8];
    while found != content[at..at + 8] {
        std::thread::sleep(Duration::from_millis(10));
        file.read_exact_at(&mut found, at as u64).unwrap();
    }
    file.write_all_at(b"damaged!", at as u64).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("between bytes 1048576 and "), "{text}");
    assert!(text.contains("the same command copies again from byte 1048576 on"), "{text}");
    good(&arguments);
    assert!(std::fs::read(&disk).unwrap() == content);
    assert!(!Path::new(&state).exists());
}
