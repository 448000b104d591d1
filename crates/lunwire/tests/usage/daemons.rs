// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Those who look after a daemon: how it is reached, what it outlives, the words of its figures.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::fails;
use crate::support::good;
use crate::support::stderr;

#[test]
fn a_daemon_outlives_the_signals_that_its_parent_ignores() {
    let files = Files::new();
    let socket = files.path("control");
    let mut daemon = Command::new("env")
        .args(["--default-signal=TERM", "--ignore-signal=INT", env!("CARGO_BIN_EXE_lunwire")])
        .args(["serve", "--listen", "127.0.0.1:0", "--lun", "memory:1M", "--log", "error"])
        .args(["--control-socket", &socket])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("serving "), "{line}");
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    good(&["status", "--control-socket", &socket]);
    assert!(daemon.try_wait().unwrap().is_none());
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn who_reaches_no_daemon_hears_that_one_may_be_elsewhere() {
    let files = Files::new();
    for command in ["status", "sessions", "alua"] {
        let mut ask = Command::new(env!("CARGO_BIN_EXE_lunwire"));
        let output = ask.arg(command).env("XDG_RUNTIME_DIR", files.path("")).output().unwrap();
        let text = stderr(&output);
        assert!(text.contains("try: lunwire serve --control-socket "), "{text}");
        let said = "or the --control-socket that a running one was started with";
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn what_is_in_the_place_of_a_control_socket_is_named() {
    let files = Files::new();
    let (file, folder) = (files.with("file", b"mine"), files.path(""));
    for (path, what) in [(&file, "is a file"), (&folder, "is a folder")] {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--lun", "memory:1M"];
        let said = [&format!("{path} {what}"), "try: --control-socket with another path"];
        fails(1, &[&serve[..], &["--control-socket", path]].concat(), &said);
        fails(1, &["status", "--control-socket", path], &[&format!("{path} is no socket")]);
    }
    assert_eq!(std::fs::read(file).unwrap(), b"mine");
}

#[test]
fn times_have_one_spelling() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    for time in ["1", "1s", "1000ms"] {
        let words = ["session", "logout", "999", "--timeout", time];
        fails(
            1,
            &[&words[..], &["--control-socket", &daemon.socket]].concat(),
            &["no session 999"],
        );
    }
    for time in ["500ms", "1h", "70000", "x"] {
        let words = ["session", "logout", "999", "--timeout", time];
        fails(2, &words, &[&format!("--timeout {time}: whole seconds are right")]);
    }
    fails(2, &["top", "--interval", "61m"], &["from 10ms to 60m"]);
}

#[test]
fn sessions_and_their_rates_have_one_vocabulary() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let mut shell = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["shell"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keyboard = shell.stdin.take().unwrap();
    let words = format!("login {}\nread 0 8 {}\nflush\n", daemon.urls[0], files.path("out"));
    keyboard.write_all(words.as_bytes()).unwrap();
    let socket = ["--control-socket", daemon.socket.as_str()];
    let told = |words: &[&str]| -> serde_json::Value {
        let output = good(&[words, &socket].concat());
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        told["sessions"][0].clone()
    };
    let begin = std::time::Instant::now();
    let read = |session: &serde_json::Value| session["read_bytes"].as_u64().unwrap_or(0);
    let mut session = told(&["sessions", "--json"]);
    while read(&session) < 4096 && begin.elapsed() < Duration::from_secs(60) {
        session = told(&["sessions", "--json"]);
    }
    assert!(read(&session) >= 4096 && session["written_bytes"] == 0, "{session}");
    let rate = told(&["top", "--json", "--count", "1", "--interval", "10ms"]);
    for name in ["read_bytes_per_s", "written_bytes_per_s"] {
        assert!(rate[name].is_u64(), "{rate}");
    }
    drop(keyboard);
    assert!(shell.wait().unwrap().success());
}
