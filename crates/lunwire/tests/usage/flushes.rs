// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks that lose what they had acknowledged and tell it once: success is said of what is there.

use std::io::Write;
use std::process::Command;
use std::process::Stdio;

use wire::scsi::opcode::Opcode;

use crate::foreign::Cache;
use crate::foreign::Character;
use crate::foreign::Foreign;
use crate::support::Files;
use crate::support::fails;
use crate::support::good;
use crate::support::pattern;
use crate::support::stderr;

const NAME: &str = "iqn.2026-01.com.example:foreign";

const ABORTED: [u8; 3] = [0x0b, 0x44, 0];
const WRITE_ERROR: [u8; 3] = [3, 0x0c, 0];

fn disk(cache: Cache) -> Foreign {
    Foreign::start(Character { cache, ..Character::default() })
}

#[test]
fn what_a_deferred_error_or_a_failed_flush_took_is_written_again() {
    let files = Files::new();
    let image = pattern(64 << 10);
    let source = files.with("image", &image);
    for cache in [
        Cache::Kept,
        Cache::Defers(3, ABORTED),
        Cache::Defers(16, ABORTED),
        Cache::Defers(3, WRITE_ERROR),
        Cache::FailsFlush(1, ABORTED),
        Cache::FailsFlush(2, ABORTED),
    ] {
        let disk = disk(cache);
        let output = good(&["copy", &source, &disk.url(NAME), "--quiet"]);
        assert!(disk.stable() == image, "{cache:?}");
        let again = stderr(&output).contains("writing them again");
        assert_eq!(again, cache != Cache::Kept, "{cache:?}: {}", stderr(&output));
    }
}

/// It cannot be read again.
#[test]
fn what_came_from_a_pipe_and_was_lost_is_no_success() {
    for cache in [Cache::Defers(3, ABORTED), Cache::FailsFlush(1, ABORTED)] {
        let disk = disk(cache);
        let mut command = Command::new(env!("CARGO_BIN_EXE_lunwire"));
        command.args(["write", &disk.url(NAME), "-", "--quiet"]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&pattern(64 << 10)).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{cache:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("cannot be read again"), "{}", stderr(&output));
    }
}

/// Whoever asks again is told that all is well.
#[test]
fn a_state_to_resume_from_does_not_believe_a_flush_that_failed_before() {
    let files = Files::new();
    let image = pattern(64 << 10);
    let (source, state) = (files.with("image", &image), files.path("state"));
    let disk = disk(Cache::FailsFlush(1, WRITE_ERROR));
    let words = ["copy", &source, &disk.url(NAME), "--quiet", "--resume", &state];
    fails(1, &words, &["SYNCHRONIZE CACHE", "write error"]);
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap();
    assert_eq!(kept["done"], 0, "{kept}");
    good(&words);
    assert!(disk.stable() == image);
}

#[test]
fn a_cache_that_cannot_be_flushed_is_written_through_or_not_at_all() {
    let files = Files::new();
    let mut image = pattern(64 << 10);
    image[16 << 10..32 << 10].fill(0);
    let source = files.with("image", &image);
    let through = disk(Cache::NoFlush { fua: true });
    good(&["copy", &source, &through.url(NAME), "--quiet", "--verify"]);
    assert!(through.stable() == image);
    let lost = disk(Cache::NoFlush { fua: false });
    fails(1, &["copy", &source, &lost.url(NAME), "--quiet"], &["SYNCHRONIZE CACHE", "FUA"]);
    assert_eq!(lost.count(Opcode::WRITE_10), 0, "it is said before anything is written");
}

#[test]
fn a_flush_in_the_shell_stands_for_what_was_written_there() {
    let files = Files::new();
    for (cache, said) in [
        (Cache::Defers(1, ABORTED), "may be lost"),
        (Cache::FailsFlush(1, ABORTED), "may be lost"),
        (Cache::NoFlush { fua: true }, "SYNCHRONIZE CACHE"),
    ] {
        let disk = disk(cache);
        let script = format!("login {}\nwrite 0 8\nwrite 8 8\nflush\n", disk.url(NAME));
        fails(1, &["shell", &files.with("script", script.as_bytes())], &["script:4", said]);
    }
}
