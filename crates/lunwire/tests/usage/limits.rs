// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that never end, or are far too long for what they are said to be.

use std::process::Command;
use std::process::Stdio;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::TARGET;
use crate::support::fails;
use crate::support::good;
use crate::support::pattern;
use crate::support::stderr;

/// Runs a command with little memory; it must fail by itself, and say why.
#[track_caller]
fn refused(arguments: &[&str], said: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 4000000; exec timeout 20 \"$@\"", "sh"]);
    command.arg(env!("CARGO_BIN_EXE_lunwire")).args(arguments).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = stderr(&output);
    assert!(
        matches!(output.status.code(), Some(1 | 2)),
        "{arguments:?}: {:?} {text}",
        output.status
    );
    assert!(text.contains(said), "{arguments:?}: {text}");
}

#[test]
fn no_file_is_read_until_memory_is_out() {
    let files = Files::new();
    let image = files.with("image", &pattern(1 << 20));
    let long = files.path("long");
    std::fs::File::create(&long).unwrap().set_len(1 << 40).unwrap();
    let url = format!("iscsi://127.0.0.1:1/{TARGET}/0");
    for endless in ["/dev/zero", "/dev/urandom"] {
        refused(&["check", endless], "neither a file nor a pipe");
        refused(&["serve", "--config", endless], "neither a file nor a pipe");
        refused(&["shell", endless], "neither a file nor a pipe");
        let other = files.path("other");
        refused(&["copy", &image, &other, "--resume", endless], "neither a file nor a pipe");
        let words = ["inspect", &url, "--chap-user", "u", "--chap-secret-file", endless];
        refused(&words, "neither a file nor a pipe");
    }
    refused(&["check", &long], "16 MiB");
    refused(&["serve", "--config", &long], "16 MiB");
    refused(&["shell", &long], "longer than");
    refused(&["copy", &image, &files.path("other"), "--resume", &long], "64 KiB");
    refused(&["check", &files.folder.path().display().to_string()], "cannot read");
}

#[test]
fn a_configuration_may_come_from_a_pipe() {
    let command =
        format!("printf 'reactors = 1\n' | {} check /dev/stdin", env!("CARGO_BIN_EXE_lunwire"));
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn what_a_copy_may_have_under_way_is_bounded() {
    let files = Files::new();
    let image = files.with("image", &pattern(1 << 20));
    let other = files.path("other");
    let wrong = |words: &[&str], said: &str| {
        fails(2, &[&["copy", &image, &other], words].concat(), &[said]);
    };
    wrong(&["--block", "1000"], "--block 1000: a command moves 512 bytes to 4 MiB here");
    wrong(&["--block", "0"], "a multiple of 512");
    wrong(&["--block", "8M"], "512 bytes to 4 MiB");
    wrong(&["--depth", "64", "--block", "4M"], "256 MiB would be under way at once, 128 MiB at");
    wrong(&["--depth", "0"], "--depth 0: 1 to 128 is right");
    assert!(!std::path::Path::new(&other).exists());
}

#[test]
fn a_copy_has_as_much_under_way_as_is_wanted() {
    let files = Files::new();
    let image = files.with("image", &pattern(3 << 20));
    let daemon = Daemon::start(files.folder.path(), &["memory:3M"], &[]);
    for (depth, block) in [("1", "512K"), ("128", "64K"), ("3", "4M"), ("32", "4K")] {
        let words = ["--depth", depth, "--block", block, "--verify", "--quiet"];
        good(&[&["copy", &image, &daemon.urls[0]], &words[..]].concat());
        let back = files.path(&format!("back-{depth}"));
        good(&[&["copy", &daemon.urls[0], &back], &words[..]].concat());
        assert!(std::fs::read(&back).unwrap() == pattern(3 << 20), "{depth} {block}");
    }
}
