// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that come to an end while much of what they write is on a slow line: nothing of it
//! comes to the disk when they are gone, or they say that it may.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use conformance::Line;
use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::good;
use crate::support::stderr;
use crate::support::that_takes_signals;

/// Bytes of the disk.
const SIZE: usize = 32 << 20;

/// Speed of the line before it becomes slow, bytes a second: some of the disk is written then, and
/// not all.
const QUICK: u64 = 4 << 20;

/// Speed when it is slow.
const SLOW: u64 = 200_000;

/// Bytes on the line that tell of a write: a piece of a copy has twice as many at least.
const DATA: usize = 32 << 10;

/// Until a client is at work.
const PAUSE: Duration = Duration::from_secs(2);

/// Far longer than any client takes to its end, on a machine with much to do: it says that one goes
/// on, and measures nothing.
const END: Duration = Duration::from_secs(150);

/// A disk behind a line, with what is written to it by a client that comes to an end, and what
/// somebody writes then.
struct Scene {
    files: Files,
    daemon: Daemon,
    line: Line,
}

impl Scene {
    fn new() -> Self {
        let files = Files::new();
        files.with("old", &vec![1; SIZE]);
        files.with("new", &vec![2; SIZE]);
        let daemon = Daemon::start(files.folder.path(), &[&format!("memory:{SIZE}")], &[]);
        let line = Line::start(daemon.portal().parse().unwrap(), QUICK);
        Self { files, daemon, line }
    }

    /// The disk by the line.
    fn url(&self) -> String {
        self.daemon.urls[0].replace(self.daemon.portal(), &self.line.portal().to_string())
    }

    fn client(&self, arguments: &[&str]) -> Child {
        let mut command = that_takes_signals();
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn copy(&self, more: &[&str]) -> Child {
        let (old, url) = (self.files.path("old"), self.url());
        self.client(&[&["copy", &old, &url, "--quiet"], more].concat())
    }

    /// The line becomes slow for what is on it, and data to be written are on it: what a login and
    /// the questions behind it take is less.
    fn slow_down(&self) {
        std::thread::sleep(PAUSE);
        self.line.slow(0, SLOW);
        let begun = Instant::now();
        while self.line.held() < DATA {
            assert!(begun.elapsed() < END, "nothing is under way");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Nothing old comes to the disk over what is written when the client is gone.
    #[track_caller]
    fn is_safe(&self) {
        let url = &self.daemon.urls[0];
        good(&["copy", &self.files.path("new"), url, "--quiet"]);
        // What is on the line has time to come.
        self.line.slow(0, u64::MAX);
        let begun = Instant::now();
        while self.line.held() > 0 {
            assert!(begun.elapsed() < END, "{} bytes do not come", self.line.held());
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(PAUSE);
        let read = self.files.path("read");
        good(&["read", url, &read, "--quiet"]);
        let read = std::fs::read(read).unwrap();
        let old = read.iter().filter(|byte| **byte == 1).count();
        assert_eq!(old, 0, "bytes of the client that had ended");
    }
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// What it says up to its end, and how long that takes.
#[track_caller]
fn end_of(mut child: Child) -> (Output, Duration) {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > END {
            child.kill().unwrap();
            panic!("it goes on: {}", stderr(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let time = begun.elapsed();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    (output, time)
}

/// What is said of what could not be called back.
const WARNING: &str = "may still be written to this disk";

#[test]
fn every_signal_ends_a_copy_and_what_it_has_under_way() {
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        let scene = Scene::new();
        let copy = scene.copy(&[]);
        scene.slow_down();
        send(&copy, signal);
        let (output, _) = end_of(copy);
        let said = stderr(&output);
        assert!(said.contains("interrupted after") && !said.contains(WARNING), "{said}");
        scene.is_safe();
    }
}

/// Whoever starts it so wants it to go on.
#[test]
fn a_copy_outlives_signals_that_were_ignored_at_its_start() {
    let scene = Scene::new();
    scene.line.slow_others(64 << 20);
    let (old, url) = (scene.files.path("old"), scene.url());
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_lunwire");
    let line = format!("trap '' HUP INT TERM; exec {program} copy - {url} --quiet");
    command.args(["-c", &line]).stdin(Stdio::piped());
    let mut copy = command.spawn().unwrap();
    std::thread::sleep(PAUSE);
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        send(&copy, signal);
        std::thread::sleep(Duration::from_millis(200));
    }
    let input = copy.stdin.take().unwrap();
    std::io::Write::write_all(&mut &input, &std::fs::read(old).unwrap()).unwrap();
    drop(input);
    assert!(copy.wait().unwrap().success());
}

#[test]
fn a_flush_that_waits_for_a_slow_line_ends_at_a_signal() {
    let scene = Scene::new();
    let state = scene.files.path("state");
    let copy = scene.copy(&["--resume", &state]);
    scene.slow_down();
    // It flushes each 2 s.
    std::thread::sleep(PAUSE);
    send(&copy, Signal::INT);
    let (output, _) = end_of(copy);
    assert!(!stderr(&output).contains(WARNING), "{}", stderr(&output));
    scene.is_safe();
}

#[test]
fn a_command_of_the_shell_ends_at_a_signal() {
    for signal in [Signal::INT, Signal::TERM] {
        let scene = Scene::new();
        scene.line.slow_others(100_000);
        let script = format!("login {}\nwrite 0 4096 {}\n", scene.url(), scene.files.path("old"));
        let script = scene.files.with("script", script.as_bytes());
        let shell = scene.client(&["shell", &script]);
        scene.slow_down();
        scene.line.slow_others(QUICK);
        send(&shell, signal);
        let (output, _) = end_of(shell);
        assert!(stderr(&output).contains("interrupted"), "{}", stderr(&output));
        scene.is_safe();
    }
}

#[test]
fn a_source_that_is_frozen_takes_no_time_from_the_destination() {
    let scene = Scene::new();
    let folder = tempfile::tempdir().unwrap();
    let old = format!("file:{}", scene.files.path("old"));
    let source = Daemon::start(folder.path(), &[&old], &[]);
    let copy = scene.client(&["copy", &source.urls[0], &scene.url(), "--quiet"]);
    scene.slow_down();
    source.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(500));
    send(&copy, Signal::INT);
    let (output, _) = end_of(copy);
    source.signal(Signal::CONT);
    assert!(!stderr(&output).contains(WARNING), "{}", stderr(&output));
    scene.is_safe();
}

#[test]
fn a_login_that_fails_is_not_the_last_one() {
    let scene = Scene::new();
    let copy = scene.copy(&[]);
    scene.slow_down();
    scene.line.refuse(2);
    send(&copy, Signal::INT);
    let (output, _) = end_of(copy);
    assert!(!stderr(&output).contains(WARNING), "{}", stderr(&output));
    scene.is_safe();
}

#[test]
fn a_copy_that_fails_leaves_nothing_under_way() {
    let scene = Scene::new();
    let folder = tempfile::tempdir().unwrap();
    let old = format!("file:{}", scene.files.path("old"));
    let mut source = Daemon::start(folder.path(), &[&old], &[]);
    let patience = ["--patience", "300ms"];
    let words = ["copy", &source.urls[0], &scene.url(), "--quiet"];
    let copy = scene.client(&[&words[..], &patience].concat());
    scene.slow_down();
    // A logout would wait for it for far too long.
    scene.line.slow(0, SLOW / 5);
    source.kill();
    let (output, _) = end_of(copy);
    assert!(!stderr(&output).contains(WARNING), "{}", stderr(&output));
    scene.is_safe();
}

#[test]
fn several_connections_leave_nothing_under_way() {
    let scene = Scene::new();
    let copy = scene.copy(&["--connections", "2"]);
    std::thread::sleep(PAUSE);
    scene.line.slow(1, SLOW);
    scene.slow_down();
    send(&copy, Signal::INT);
    let (output, _) = end_of(copy);
    assert!(!stderr(&output).contains(WARNING), "{}", stderr(&output));
    scene.line.slow(1, u64::MAX);
    scene.is_safe();
}

#[test]
fn a_bench_leaves_nothing_under_way() {
    let scene = Scene::new();
    let url = scene.url();
    let load = ["--destroy-data", "--reads", "0", "--block", "256K", "--depth", "32"];
    let bench = [&["bench", &url, "--sequential", "--time", "300s"], &load[..]].concat();
    let bench = scene.client(&bench);
    scene.slow_down();
    scene.line.refuse(1);
    send(&bench, Signal::INT);
    let (output, _) = end_of(bench);
    assert!(!stderr(&output).contains(WARNING), "{}", stderr(&output));
    scene.is_safe();
}

/// Nothing can be done about it, but it must be known.
#[test]
fn what_cannot_be_called_back_is_told() {
    let scene = Scene::new();
    let copy = scene.copy(&[]);
    scene.slow_down();
    scene.line.refuse(usize::MAX);
    send(&copy, Signal::INT);
    let (output, time) = end_of(copy);
    let said = stderr(&output);
    assert!(said.contains(WARNING) && said.contains(&scene.url()), "{said}");
    assert!(said.contains("try: wait"), "{said}");
    assert!(time > Duration::from_secs(2), "it has tried for {time:?} only");
}

/// Where a login waits on the line there is more time, and who does not want to wait is told.
#[test]
fn a_line_that_moves_is_waited_for_and_a_second_signal_ends_that() {
    for signals in [1, 2] {
        let scene = Scene::new();
        let mut copy = scene.copy(&[]);
        scene.slow_down();
        scene.line.slow_others(0);
        send(&copy, Signal::INT);
        // It waits for some seconds in silence.
        let mut lines = BufReader::new(copy.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("waiting for what is still on its way there") {
            assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{said}");
        }
        let begun = Instant::now();
        match signals {
            1 => scene.line.slow_others(QUICK),
            _ => send(&copy, Signal::INT),
        }
        end_of(copy);
        lines.read_to_string(&mut said).unwrap();
        assert_eq!(said.contains(WARNING), signals == 2, "{said}");
        match signals {
            1 => scene.is_safe(),
            _ => assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed()),
        }
    }
}
