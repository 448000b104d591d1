// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard output that takes nothing, readers that go away, and what is left behind when a command
//! fails.

use std::fs::File;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::TARGET;
use crate::support::lunwire;
use crate::support::stderr;
use crate::support::stdout;

fn into(arguments: &[&str], to: impl Into<Stdio>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(to)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(Child::wait_with_output)
        .unwrap()
}

/// A device that is always full.
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// A pipe that nobody reads any more.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Each command that has a result, with and without `--json`.
fn commands(daemon: &Daemon, files: &Files) -> Vec<Vec<String>> {
    let (url, at) = (daemon.urls[0].as_str(), daemon.portal());
    let config = files.with("c.toml", b"control-socket = \"/tmp/none\"\n");
    let script = files.with("script", format!("login {url}\n").as_bytes());
    let (image, back) = (files.with("image", &[7; 512]), files.path("back"));
    let plain: [&[&str]; 7] = [
        &["discover", at],
        &["inspect", url],
        &["bench", url, "--time", "50ms"],
        &["bench", url, "--time", "50ms", "--sessions", "2"],
        &["check", &config],
        &["explain"],
        &["lab", "list"],
    ];
    let odd: [&[&str]; 8] = [
        &["read", url, &back, "--length", "512", "--quiet", "--json"],
        &["write", url, &image, "--quiet", "--json"],
        &["copy", &image, url, "--quiet", "--json"],
        &["shell", &script],
        &["read", url, "--length", "512", "--quiet"],
        &["--help"],
        &["--version"],
        &["lun", "add", "--help"],
    ];
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut all: Vec<Vec<String>> = odd.iter().map(|words| owned(words)).collect();
    for words in plain {
        all.extend([owned(words), [owned(words), owned(&["--json"])].concat()]);
    }
    for more in [&[][..], &["--json"]] {
        let store = format!("file:{},size=1M", files.path(&format!("disk{}", more.len())));
        let talks: [&[&str]; 9] = [
            &["status"],
            &["sessions"],
            &["top", "--count", "1", "--interval", "10ms"],
            &["alua"],
            &["lun", "add", &store, "--number", "5"],
            &["lun", "resize", "5", "2M"],
            &["lun", "rescan"],
            &["lun", "remove", "5"],
            &["lun", "add", "memory:1M", "--number", "6"],
        ];
        let place = owned(&["--control-socket", &daemon.socket]);
        all.extend(talks.iter().map(|words| [owned(words), place.clone(), owned(more)].concat()));
        all.push([owned(&["lun", "remove", "6"]), place, owned(more)].concat());
    }
    all
}

/// Whether it writes the data of a disk to standard output.
fn is_data(words: &[&str]) -> bool {
    words == ["read", words.get(1).unwrap_or(&""), "--length", "512", "--quiet"]
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
    for words in commands(&daemon, &files) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = into(&words, full());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
        let said = ["cannot write standard output", "No space left on device", "; try: "];
        assert!(said.iter().all(|part| text.contains(part)), "{words:?}: {text}");
    }
}

/// Whatever the command, and whether a folder is missing or the name is none.
#[test]
fn a_file_that_cannot_be_written_is_told_with_what_to_try() {
    let files = Files::new();
    let disk = format!("file:{},size=1M", files.path("disk"));
    let daemon = Daemon::start(files.folder.path(), &[&disk], &[]);
    let (url, socket) = (&*daemon.urls[0], &*daemon.socket);
    let name = files.path(&"n".repeat(300));
    for place in [&*files.path("none/x"), &name] {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--lun", "memory:1M"];
        let below = format!("{place}/state");
        for words in [
            &["read", url, place][..],
            &["copy", url, place],
            &["copy", url, &files.path("copied"), "--resume", place],
            &["inspect", url, "--capture", place],
            &["bench", url, "--time", "10ms", "--svg", place],
            &["trace", "-o", place, "--control-socket", socket],
            &["lun", "snapshot", "0", place, "--control-socket", socket],
            &["serve", "--listen", "127.0.0.1:0", "--lun", &format!("file:{place},size=1M")],
            &["lab", "run", "amp", "--smoke", "--out", &format!("{}/x", files.path("disk"))],
            &["lab", "report", "--out", place],
            &[&serve[..], &["--control-socket", place]].concat(),
            &[&serve[..], &["--control-socket", &files.path("own"), "--capture", place]].concat(),
            &[&serve[..], &["--control-socket", &files.path("own"), "--state-dir", &below]]
                .concat(),
        ] {
            let output = lunwire(words);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
            let told = said.lines().last().unwrap_or_default();
            assert_eq!(told.matches("; try: ").count(), 1, "{words:?}: {said}");
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
    for words in commands(&daemon, &files) {
        if words[0] == "read" {
            std::fs::remove_file(files.path("back")).ok();
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if is_data(&words) {
            continue;
        }
        let output = into(&words, closed());
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{words:?}");
    }
    let output = into(&["top", "--interval", "10ms", "--control-socket", &daemon.socket], closed());
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "it ends");
}

/// What is read in part may not pass for the whole, in a pipeline that looks at each status.
#[test]
fn data_that_is_not_all_taken_is_a_failure() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
    let url = daemon.urls[0].as_str();
    for words in [
        &["copy", url, "-", "--quiet"][..],
        &["read", url, "-", "--quiet"],
        &["read", url, "--length", "512", "--quiet"],
    ] {
        let output = into(words, closed());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
        assert!(text.contains("has gone away before the end"), "{words:?}: {text}");
    }
}

#[test]
fn no_standard_output_is_a_failure() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
    for words in commands(&daemon, &files) {
        let output = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" >&-", env!("CARGO_BIN_EXE_lunwire")])
            .args(&words)
            .output()
            .unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
        assert!(text.contains("standard output is closed"), "{words:?}: {text}");
    }
    // Whoever wants it thrown away says so.
    assert_eq!(into(&["inspect", &daemon.urls[0]], Stdio::null()).status.code(), Some(0));
}

#[test]
fn standard_error_that_takes_nothing_stops_nobody() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lunwire"));
        command.args(words).stdout(Stdio::null()).stderr(full()).status().unwrap().code()
    };
    assert_eq!(run(&["copy", &daemon.urls[0], "-"]), Some(0));
    let gone = format!("iscsi://127.0.0.1:1/{TARGET}/0");
    assert_eq!(run(&["inspect", &gone, "--patience", "200ms"]), Some(1));
    assert_eq!(run(&["bench", &gone, "--reads", "0"]), Some(2));
}

#[test]
fn a_load_whose_target_goes_away_tells_what_it_measured() {
    for json in [false, true] {
        let files = Files::new();
        let mut daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
        let url = daemon.urls[0].clone();
        let mut words = vec!["bench", &url, "--time", "30s", "--patience", "300ms"];
        words.extend(json.then_some("--json"));
        let begun = std::time::Instant::now();
        let child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
            .args(&words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        daemon.await_work();
        std::thread::sleep(Duration::from_millis(1000));
        daemon.kill();
        let output = child.wait_with_output().unwrap();
        let (text, told) = (stderr(&output), stdout(&output));
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("the session ended") || text.contains("cannot connect"), "{text}");
        if !json {
            assert!(told.contains("requests/s") && told.contains("p50"), "{told}");
            continue;
        }
        let told: Value = serde_json::from_str(&told).unwrap();
        assert!(told["results"][0]["requests"].as_u64().unwrap() > 0, "{told}");
        // The time without an answer is a part of it.
        let seconds = told["results"][0]["seconds"].as_f64().unwrap();
        assert!((1.0..begun.elapsed().as_secs_f64()).contains(&seconds), "{told}");
        assert!(text.contains(told["error"].as_str().unwrap()), "{told}: {text}");
    }
}

#[test]
fn a_load_without_time_is_refused() {
    let output =
        lunwire(&["bench", "iscsi://127.0.0.1:1/iqn.2026-01.com.example:a/0", "--time", "0s"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--time 0s: "), "{}", stderr(&output));
}

#[test]
fn a_command_that_fails_logs_out() {
    let files = Files::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["serve", "--listen", "127.0.0.1:0", "--control-socket", &files.path("control")])
        .args(["--target", TARGET, "--log", "info", "--lun", "memory:8M"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("serving ").unwrap();
    let script = files.with("script", format!("login {url}\nnonsense\n").as_bytes());
    let image = files.with("image", &[0; 9 << 20]);
    let lost: [&[&str]; 9] = [
        &["bench", url, "--block", "100"],
        &["bench", url, "--range", "512"],
        &["bench", url, "--sessions", "2", "--block", "100"],
        &["read", url, "--offset", "7", "--length", "512"],
        &["read", url, "--offset", "9M", "--length", "512"],
        &["read", url, "/none/such"],
        &["write", url, &image],
        &["copy", url, "/none/such"],
        &["shell", &script],
    ];
    for words in lost {
        assert_ne!(lunwire(words).status.code(), Some(0), "{words:?}");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    child.wait().unwrap();
    let closed: Vec<&str> = log.lines().filter(|line| line.contains("session closed")).collect();
    assert!(closed.len() >= lost.len(), "{log}");
    let lost: Vec<_> = closed.iter().filter(|line| line.contains("connection lost")).collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

/// What a program reads says how the command ends.
#[test]
fn a_plot_that_cannot_be_written_is_told_with_the_figures() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
    let words = ["bench", &daemon.urls[0], "--time", "50ms", "--json", "--svg", "/dev/full"];
    let output = lunwire(&words);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!((&told["ok"], &told["exit_status"]), (&false.into(), &1.into()), "{told}");
    assert!(told["error"].as_str().unwrap().contains("/dev/full"), "{told}");
    assert!(told["results"][0]["requests"].as_u64().unwrap() > 0, "{told}");
}

#[test]
fn a_bench_that_writes_refuses_a_read_only_disk_at_once() {
    let files = Files::new();
    let image = format!("file:{},readonly", files.with("image", &[7; 1 << 20]));
    let daemon = Daemon::start(files.folder.path(), &[&image], &[]);
    let url = daemon.urls[0].as_str();
    for share in ["0", "99"] {
        let output = lunwire(&["bench", url, "--reads", share, "--destroy-data", "--time", "50ms"]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains("write protected"), "{}", stderr(&output));
        assert_eq!(stdout(&output), "", "there is nothing to measure");
    }
    assert!(lunwire(&["bench", url, "--time", "50ms"]).status.success());
}
