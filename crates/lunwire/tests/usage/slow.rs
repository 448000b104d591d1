// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines of some 100 KB/s: flushes, the end that a user wants and progress wait for little.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::net::TcpListener;
use std::net::TcpStream;
use std::process::Child;
use std::process::Output;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
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

/// Far longer than anything takes here, on a machine with much to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// A thread of ours that comes late to its turn makes up for that: the line does not become slower
/// with the machine.
const LATE_MAX: Duration = Duration::from_millis(200);

/// The URL of `daemon` behind a line of [`RATE`], and the bytes that it has carried to there and
/// back.
fn behind_slow_line(daemon: &Daemon) -> (String, [Arc<AtomicU64>; 2]) {
    let portal = daemon.portal().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = listener.local_addr().unwrap().to_string();
    let url = daemon.urls[0].replace(&portal, &slow);
    let carried = <[Arc<AtomicU64>; 2]>::default();
    let counts = carried.clone();
    thread::spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(&portal).unwrap());
            let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
            for ((from, to), count) in [(near, far), back].into_iter().zip(counts.clone()) {
                thread::spawn(move || pump(from, to, &count));
            }
        }
    });
    (url, carried)
}

fn pump(mut from: TcpStream, mut to: TcpStream, count: &AtomicU64) {
    let (mut buf, mut next) = ([0; 4096], Instant::now());
    while let Ok(length @ 1..) = from.read(&mut buf) {
        let now = Instant::now();
        next = next.max(now.checked_sub(LATE_MAX).unwrap_or(now));
        next += Duration::from_secs_f64(length as f64 / RATE);
        thread::sleep(next.saturating_duration_since(now));
        if to.write_all(&buf[..length]).is_err() {
            break;
        }
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
    let _ = from.shutdown(std::net::Shutdown::Both);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn begin(arguments: &[&str]) -> Child {
    let mut command = that_takes_signals();
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What it says after a signal, and how long the end took.
fn interrupted(child: Child) -> (Output, Duration) {
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
    let (url, [carried, _]) = behind_slow_line(&daemon);
    let copy = begin(&["copy", &image, &url, "--resume", &state, "--quiet"]);
    let kept = || {
        let kept = std::fs::read(&state).unwrap_or_default();
        let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap_or_default();
        kept["done"].as_u64().unwrap_or(0)
    };
    // What was flushed stands in the state, and as much again has come since.
    let carried = || carried.load(Ordering::Relaxed);
    let begun = Instant::now();
    while kept() == 0 || carried() < 3 * SIZE as u64 / 16 {
        assert!(begun.elapsed() < PATIENCE, "{} of {} are kept", kept(), carried());
        thread::sleep(Duration::from_millis(20));
    }
    let before = carried();
    let (output, time) = interrupted(copy);
    let said = stderr(&output);
    // Counted in what the line carries meanwhile, for three seconds at the most: where the machine
    // has much to do it may stand still for longer, but not for what a line without bounds would
    // have on it.
    let more = carried() - before;
    assert!((more as f64) < 3.0 * RATE, "{more} bytes in {time:?}: {said}");
    assert!(time < Duration::from_secs(12), "{time:?}: {said}");
    assert!(said.contains("interrupted after "), "{said}");
    assert!(said.contains("the same command goes on "), "{said}");
    let (kept, carried) = (kept(), carried());
    assert!(kept >= carried / 2, "{kept} of {carried} bytes");
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
    let (url, carried) = behind_slow_line(&daemon);
    let moves = [begin(&["write", &url, &image]), begin(&["read", &url, &out])];
    for (mut child, carried) in moves.into_iter().zip(carried) {
        // The first line of progress.
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let (mut said, mut line) = (String::new(), String::new());
        while !line.contains('%') {
            line.clear();
            assert_ne!(lines.read_line(&mut line).unwrap(), 0, "no progress: {said}");
            said.push_str(&line);
        }
        let carried = carried.load(Ordering::Relaxed);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        lines.read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
        assert!(line.contains(" left") && !line.contains("waiting"), "{said}");
        let percent: u64 = line.split([' ', '%']).nth(1).unwrap().parse().unwrap();
        // The rest is under way, or has come since.
        assert!(percent * SIZE as u64 / 100 >= carried / 3, "{carried} bytes carried: {said}");
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
    daemon.await_work();
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
    daemon.await_work();
    thread::sleep(Duration::from_secs(1));
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
