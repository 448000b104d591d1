// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines of some 100 KB/s: flushes, the end that a user wants and progress wait for little.

use std::io::Read;
use std::io::Write;
use std::net::TcpListener;
use std::net::TcpStream;
use std::process::Child;
use std::process::Output;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::good;
use crate::support::pattern;
use crate::support::stderr;
use crate::support::stdout;
use crate::support::that_takes_signals;

const SIZE: usize = 8 << 20;

/// Of the line, bytes/s each way.
const RATE: f64 = 400e3;

/// The URL of `daemon` behind a line of [`RATE`].
fn behind_slow_line(daemon: &Daemon) -> String {
    let portal = daemon.portal().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = listener.local_addr().unwrap().to_string();
    let url = daemon.urls[0].replace(&portal, &slow);
    thread::spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(&portal).unwrap());
            let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
            for (from, to) in [(near, far), back] {
                thread::spawn(move || pump(from, to));
            }
        }
    });
    url
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let (mut buf, mut next) = ([0; 4096], Instant::now());
    while let Ok(length @ 1..) = from.read(&mut buf) {
        next = next.max(Instant::now()) + Duration::from_secs_f64(length as f64 / RATE);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        if to.write_all(&buf[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(std::net::Shutdown::Both);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn begin(arguments: &[&str]) -> Child {
    let mut command = that_takes_signals();
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What it says after `time` and a signal, and how long the end took.
fn interrupted(child: Child, time: Duration) -> (Output, Duration) {
    thread::sleep(time);
    let begun = Instant::now();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    (output, begun.elapsed())
}

#[test]
fn a_copy_to_a_slow_line_keeps_its_state_and_ends_soon() {
    let files = Files::new();
    let (image, state) = (files.with("image", &pattern(SIZE)), files.path("state"));
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
    let url = behind_slow_line(&daemon);
    let copy = begin(&["copy", &image, &url, "--resume", &state, "--quiet"]);
    let (output, time) = interrupted(copy, Duration::from_secs(3));
    let said = stderr(&output);
    assert!(time < Duration::from_secs(3), "{time:?}: {said}");
    assert!(said.contains("interrupted after "), "{said}");
    assert!(said.contains("the same command goes on "), "{said}");
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap();
    // Half of what the line has carried, and more.
    assert!(kept["done"].as_u64().unwrap() >= 512 << 10, "{kept}");
    // What was kept is there; the pieces that follow, and are compared, are of other lengths.
    let state_of_line = std::fs::read_to_string(&state).unwrap();
    std::fs::write(&state, state_of_line.replace(&url, &daemon.urls[0])).unwrap();
    let there = &daemon.urls[0];
    good(&["copy", &image, there, "--resume", &state, "--quiet", "--verify"]);
}

#[test]
fn progress_of_a_slow_line_is_of_what_has_moved() {
    let files = Files::new();
    let (image, out) = (files.with("image", &pattern(SIZE)), files.path("out"));
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
    good(&["write", &daemon.urls[0], &image, "--quiet"]);
    let url = behind_slow_line(&daemon);
    let (up, down) = (begin(&["write", &url, &image]), begin(&["read", &url, &out]));
    let (down, _) = interrupted(down, Duration::from_millis(5800));
    for output in [down, interrupted(up, Duration::ZERO).0] {
        let said = stderr(&output);
        let line = said.lines().find(|line| line.contains('%')).unwrap_or_default();
        assert!(line.contains(" left") && !line.contains("waiting"), "{said}");
        let percent: u32 = line.split([' ', '%']).nth(1).unwrap().parse().unwrap();
        assert!(percent >= 8, "{said}");
        assert!(said.contains("interrupted after "), "{said}");
    }
}

/// What has no answer counts: as time, and as the longest latency.
#[test]
fn a_measurement_tells_of_the_time_without_an_answer() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:4M"], &[]);
    let url = daemon.urls[0].as_str();
    let bench = that_takes_signals()
        .args(["bench", url, "--time", "60s", "--patience", "2s", "--command-timeout", "1s"])
        .arg("--json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_secs(1));
    daemon.signal(Signal::STOP);
    let begun = Instant::now();
    let output = bench.wait_with_output().unwrap();
    let silent = begun.elapsed().as_secs_f64();
    daemon.signal(Signal::CONT);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &told["results"][0];
    let seconds = result["seconds"].as_f64().unwrap();
    assert!(silent > 1.0 && seconds > silent - 0.5, "{silent} s of silence: {result}");
    let longest = result["latency_ns"]["max"].as_f64().unwrap() / 1e9;
    assert!(longest > silent - 0.5, "{silent} s of silence: {result}");
    assert_eq!(result["unended_requests"], 32, "{result}");
    assert!(result["standstills"].as_u64().unwrap() > 0, "{result}");
    let stood = result["standstill_seconds"].as_f64().unwrap();
    assert!(stood > silent - 0.5 && stood <= seconds, "{silent} s of silence: {result}");
}

/// An outage that is over when the next line is due, too, and where there is no terminal.
#[test]
fn a_measurement_tells_of_an_outage_that_is_over() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:4M"], &[]);
    let url = daemon.urls[0].as_str();
    let bench = started(&["bench", url, "--time", "5s"]);
    thread::sleep(Duration::from_secs(2));
    daemon.signal(Signal::STOP);
    thread::sleep(Duration::from_millis(1500));
    daemon.signal(Signal::CONT);
    let output = bench.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let told = stdout(&output);
    let line = told.lines().find(|line| line.contains("no answer for 1 s or longer: "));
    assert!(line.is_some_and(|line| line.ends_with(" s together")), "{told}");
}

fn started(arguments: &[&str]) -> Child {
    let mut command = that_takes_signals();
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}
