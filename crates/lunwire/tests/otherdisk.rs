// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target that comes back with another disk behind the same LUN: no command of ours goes to it,
//! and none ends well with one part of the data here and one there.
#![allow(clippy::unwrap_used)] // a test that panics has failed

mod support;

use std::io::Write;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;

use support::Daemon;
use support::Files;
use support::pattern;
use support::stderr;

const SIZE: usize = 16 << 20;

fn client(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lunwire"));
    command.args(arguments).stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What a command says in whose middle the daemon comes back with `after` in place of `before`.
fn exchanged(files: &Files, before: &str, after: &str, arguments: &[&str]) -> Output {
    exchanged_as(files, before, after, &[], arguments)
}

/// The same with a daemon that has these options both times.
fn exchanged_as(
    files: &Files,
    before: &str,
    after: &str,
    options: &[&str],
    arguments: &[&str],
) -> Output {
    let mut daemon = Daemon::start(files.folder.path(), &[before], options);
    let (url, portal) = (daemon.urls[0].clone(), daemon.portal().to_owned());
    let arguments: Vec<_> =
        arguments.iter().map(|word| if *word == "URL" { url.as_str() } else { word }).collect();
    let mut child = client(&arguments);
    let mut pipe = child.stdin.take().unwrap();
    let feeds = arguments.contains(&"-");
    if feeds {
        pipe.write_all(&pattern(SIZE / 4)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().unwrap().is_none(), "it is over before the daemon ends");
    daemon.kill();
    daemon.restart(&portal, &[after]);
    if feeds {
        let _ = pipe.write_all(&pattern(SIZE)[SIZE / 4..]);
    }
    drop(pipe);
    child.wait_with_output().unwrap()
}

#[track_caller]
fn assert_refused(output: &Output) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("another one than before"), "{text}");
    assert!(text.contains("try: "), "{text}");
}

#[test]
fn a_copy_does_not_go_on_to_another_disk() {
    let files = Files::new();
    let image = files.with("image", &pattern(SIZE));
    let (first, second) = (files.with("a", &vec![0; SIZE]), files.with("b", &vec![0; SIZE]));
    let (before, after) = (format!("file:{first},limit=4M/s"), format!("file:{second}"));
    for command in [&["copy", &image, "URL", "--quiet"][..], &["write", "URL", &image, "--quiet"]] {
        assert_refused(&exchanged(&files, &before, &after, command));
        assert!(std::fs::read(&second).unwrap() == vec![0; SIZE], "nothing is written to it");
    }
}

#[test]
fn what_is_read_does_not_come_from_two_disks() {
    let files = Files::new();
    let disk = files.with("a", &pattern(SIZE));
    let (before, out) = (format!("file:{disk},limit=4M/s"), files.path("out"));
    for command in ["read", "copy"] {
        let arguments = [command, "URL", &out, "--quiet", "--overwrite"];
        assert_refused(&exchanged(&files, &before, "memory:16M", &arguments));
    }
}

/// Memory is another disk at each start.
#[test]
fn memory_that_begins_anew_ends_what_is_under_way() {
    let files = Files::new();
    let image = files.with("image", &pattern(SIZE));
    let (slow, fast) = ("memory:16M,limit=4M/s", "memory:16M");
    assert_refused(&exchanged(&files, slow, fast, &["copy", &image, "URL", "--quiet"]));
    assert_refused(&exchanged(&files, fast, fast, &["write", "URL", "-", "--quiet"]));
    assert_refused(&exchanged(&files, fast, fast, &["bench", "URL", "--time", "60s"]));
    let more = ["bench", "URL", "--time", "60s", "--sessions", "3"];
    assert_refused(&exchanged(&files, fast, fast, &more));
}

/// Also if it has a name that stays, by which hosts find it.
#[test]
fn memory_with_a_name_that_begins_anew_is_another_disk() {
    let files = Files::new();
    let image = files.with("image", &pattern(SIZE));
    let slow = "memory:16M,limit=4M/s";
    for options in [["--serial", "A1"], ["--identity", "name"]] {
        let copy = ["copy", &image, "URL", "--quiet"];
        let output = exchanged_as(&files, slow, "memory:16M", &options, &copy);
        assert_refused(&output);
        assert!(stderr(&output).contains("content"), "{}", stderr(&output));
    }
    // A file with such a name is the same disk, whoever serves it.
    let disk = files.with("disk", &vec![0; SIZE]);
    let (slow, fast) = (format!("file:{disk},limit=4M/s"), format!("file:{disk}"));
    let copy = ["copy", &image, "URL", "--quiet"];
    let output = exchanged_as(&files, &slow, &fast, &["--serial", "A1"], &copy);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(std::fs::read(&disk).unwrap() == pattern(SIZE));
}

/// Whoever works with single commands is told by each of them.
#[test]
fn a_shell_is_told_too() {
    let files = Files::new();
    let mut daemon = Daemon::start(files.folder.path(), &["memory:16M"], &[]);
    let portal = daemon.portal().to_owned();
    let mut child = client(&["shell"]);
    let mut pipe = child.stdin.take().unwrap();
    writeln!(pipe, "login {}", daemon.urls[0]).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    daemon.kill();
    daemon.restart(&portal, &["memory:16M"]);
    writeln!(pipe, "read 0 1").unwrap();
    drop(pipe);
    assert_refused(&child.wait_with_output().unwrap());
}
