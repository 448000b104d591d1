// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks that lose what they had acknowledged and tell it once: success is said of what is there.

use std::io::Write;
use std::process::Command;
use std::process::Stdio;

use wire::scsi::opcode::Opcode;

use crate::foreign::Cache;
use crate::foreign::Character;
use crate::foreign::Foreign;
use crate::foreign::Promise;
use crate::support::Files;
use crate::support::fails;
use crate::support::good;
use crate::support::pattern;
use crate::support::stderr;

const NAME: &str = "iqn.2026-01.com.example:foreign";

const ABORTED: [u8; 3] = [0x0b, 0x44, 0];
const WRITE_ERROR: [u8; 3] = [3, 0x0c, 0];

const RECOVERED: [u8; 3] = [1, 0x0c, 0];

fn disk(cache: Cache) -> Foreign {
    disk_with(cache, Promise::Cached)
}

fn disk_with(cache: Cache, promise: Promise) -> Foreign {
    Foreign::start(Character { cache, promise, ..Character::default() })
}

/// Those that have no cache to lose, as far as they say.
const PROMISES: [Promise; 3] = [Promise::Through, Promise::ThroughAlone, Promise::Fua];

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

/// What was told to have failed is not on the medium, whatever the disk promised before.
#[test]
fn what_a_disk_that_writes_through_failed_to_keep_is_written_again() {
    let files = Files::new();
    let image = pattern(64 << 10);
    let source = files.with("image", &image);
    let deferring = PROMISES.into_iter().flat_map(|promise| {
        [(3, ABORTED), (16, ABORTED), (3, WRITE_ERROR), (16, RECOVERED)]
            .map(|(after, sense)| (promise, Cache::Defers(after, sense)))
    });
    let flushing = [1, 2].map(|times| (Promise::Through, Cache::FailsFlush(times, ABORTED)));
    for (promise, cache) in deferring.chain(flushing) {
        for more in [None, Some("--verify")] {
            let disk = disk_with(cache, promise);
            let url = disk.url(NAME);
            let words = ["copy", &source, &url, "--quiet"].into_iter().chain(more);
            let output = good(&words.collect::<Vec<_>>());
            assert!(disk.stable() == image, "{promise:?}, {cache:?}");
            let told = stderr(&output);
            assert!(told.contains("writing them again"), "{promise:?}, {cache:?}: {told}");
        }
    }
}

/// Where there is no flush nothing has confirmed what was copied before, in the run before either.
#[test]
fn a_state_to_resume_from_does_not_stand_for_a_disk_that_failed_to_keep_writes() {
    let files = Files::new();
    let image = pattern(64 << 10);
    let source = files.with("image", &image);
    for (promise, writes) in
        [(Promise::Through, 31), (Promise::ThroughAlone, 40), (Promise::Fua, 40)]
    {
        let state = files.path(&format!("{promise:?}"));
        // Nine of 16 pieces are kept by the first run; the second one writes seven more, and the
        // command that hears of the failure is sent twice.
        let disk = disk_with(Cache::FailsThenDefers(10, 18, WRITE_ERROR), promise);
        let words = ["copy", &source, &disk.url(NAME), "--quiet", "--resume", &state];
        fails(1, &words, &["write error", "goes on from there"]);
        good(&words);
        assert!(disk.stable() == image, "{promise:?}");
        assert_eq!(disk.count(Opcode::WRITE_10), writes, "{promise:?}");
    }
}

/// What is read may be of its cache.
#[test]
fn a_disk_that_tells_of_a_failure_while_it_is_compared_is_not_verified() {
    let files = Files::new();
    let (source, state) = (files.with("image", &pattern(64 << 10)), files.path("state"));
    let disk = disk(Cache::TakesBack(WRITE_ERROR));
    let url = disk.url(NAME);
    let words = ["copy", &source, &url, "--quiet", "--verify"];
    fails(1, &words, &["said to be on stable storage; try: again"]);
    // By now nothing differs: it tells nothing.
    good(&words);
    let disk = self::disk(Cache::TakesBack(WRITE_ERROR));
    let url = disk.url(NAME);
    let words = ["copy", &source, &url, "--quiet", "--verify", "--resume", &state];
    fails(1, &words, &["copies again from byte 0 on"]);
}

/// It cannot be read again.
#[test]
fn what_came_from_a_pipe_and_was_lost_is_no_success() {
    let deferring = PROMISES.map(|promise| (Cache::Defers(3, ABORTED), promise));
    let cached = [Cache::Defers(3, ABORTED), Cache::FailsFlush(1, ABORTED)];
    let cached = cached.map(|cache| (cache, Promise::Cached));
    for (cache, promise) in cached.into_iter().chain(deferring) {
        let disk = disk_with(cache, promise);
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
    for (promise, cache, said) in [
        (Promise::Cached, Cache::Defers(2, ABORTED), "may be lost"),
        (Promise::Through, Cache::Defers(2, ABORTED), "may be lost"),
        (Promise::ThroughAlone, Cache::Defers(2, ABORTED), "may be lost"),
        (Promise::Cached, Cache::FailsFlush(1, ABORTED), "may be lost"),
        (Promise::Through, Cache::FailsFlush(1, ABORTED), "may be lost"),
        (Promise::Cached, Cache::NoFlush { fua: true }, "SYNCHRONIZE CACHE"),
    ] {
        let disk = disk_with(cache, promise);
        let script = format!("login {}\nwrite 0 8\nwrite 8 8\nflush\n", disk.url(NAME));
        fails(1, &["shell", &files.with("script", script.as_bytes())], &["script:4", said]);
    }
}

/// Whether anybody flushes or not.
#[test]
fn the_shell_fails_at_the_command_that_hears_of_a_failed_write() {
    let files = Files::new();
    for promise in [Promise::Cached, Promise::Through, Promise::ThroughAlone] {
        for next in ["write 8 8", "read 8 8"] {
            let disk = disk_with(Cache::Defers(1, ABORTED), promise);
            let script = format!("login {}\nwrite 0 8\n{next}\n", disk.url(NAME));
            let script = files.with("script", script.as_bytes());
            fails(1, &["shell", &script], &["script:3", "may be lost"]);
        }
    }
}

/// Figures of writes that were not kept are none.
#[test]
fn a_bench_whose_writes_failed_fails() {
    for promise in [Promise::Cached, Promise::Through] {
        let disk = disk_with(Cache::Defers(3, ABORTED), promise);
        let url = disk.url(NAME);
        let words = ["bench", &url, "--reads", "50", "--destroy-data", "--time", "1s"];
        fails(1, &words, &["of an earlier command"]);
    }
}

/// A copy that gives up says how far it came, whatever it gives up at.
#[test]
fn a_flush_that_fails_for_good_is_told_with_what_was_copied() {
    let files = Files::new();
    let source = files.with("image", &pattern(64 << 10));
    let disk = disk(Cache::FailsFlush(99, [7, 0x27, 0]));
    let url = disk.url(NAME);
    fails(
        1,
        &["copy", &source, &url, "--quiet", "--patience", "1s"],
        &["64 KiB were copied, then: ", &url, "SYNCHRONIZE CACHE"],
    );
}
