// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `lunwire trace` refuses, and what it leaves then.

use super::support::Daemon;
use super::support::fails;

#[test]
fn what_is_refused_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), &["memory:16M"], &[]);
    let path = folder.path().join("new.pcap").display().to_string();
    let trace = |socket: &str, words: &[&str], code: i32, said: &str| {
        let all = [&["trace", "-o", &path, "--control-socket", socket][..], words].concat();
        fails(code, &all, &[said]);
        assert!(!std::fs::exists(&path).unwrap(), "{words:?} leaves a file");
    };
    trace(&daemon.socket, &["--session", "999"], 1, "no session 999");
    trace(&daemon.socket, &["--target", "iqn.2026-01.test:other"], 1, "no target");
    trace(&daemon.socket, &["--lun", "77"], 1, "no LUN 77; try: lunwire status");
    trace(&daemon.socket, &["--data", "70000"], 2, "64000");
    trace(&daemon.socket, &["--data", "64001"], 2, "--data 64001: 64000 or less is right, or all");
    let nobody = folder.path().join("nobody").display().to_string();
    trace(&nobody, &[], 1, "");
    // What was there stays.
    std::fs::write(&path, "").unwrap();
    fails(
        1,
        &["trace", "-o", &path, "--control-socket", &daemon.socket, "--session", "999"],
        &["no session 999"],
    );
    assert!(std::fs::exists(&path).unwrap());
}

#[test]
fn a_trace_to_a_pipe_says_so_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), &["memory:16M"], &[]);
    let words = ["trace", "-o", "-", "--time", "50ms", "--control-socket", &daemon.socket];
    fails(1, &words, &["tracing to standard output; "]);
}
