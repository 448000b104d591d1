// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures (`--capture`): what is refused, what is told, and that I/O goes on whatever becomes of
//! them. What is in them tshark says (`interop/captures`).
#![allow(clippy::unwrap_used)] // a test that panics has failed

mod support;

use support::Daemon;
use support::Files;
use support::fails;
use support::good;
use support::pattern;
use support::stderr;
use support::stdout;

/// Magic of pcap with nanoseconds, on a little-endian machine.
const MAGIC: [u8; 4] = [0x4d, 0x3c, 0xb2, 0xa1];

/// The records of a file, which are whole.
fn records(path: &str) -> usize {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes[..4], MAGIC);
    let (mut at, mut count) = (24, 0);
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap());
        at += 16 + usize::try_from(length).unwrap();
        count += 1;
    }
    assert_eq!(at, bytes.len(), "whole records");
    count
}

#[test]
fn both_sides_write_what_they_say_and_status_tells_how_far_that_is() {
    let files = Files::new();
    let (theirs, ours) = (files.path("target.pcap"), files.path("initiator.pcap"));
    let options = ["--rdma", "iwarp", "--capture", &theirs];
    let mut daemon = Daemon::start(files.folder.path(), &["memory:8M"], &options);
    let image = files.with("image", &pattern(1 << 20));
    for url in [daemon.urls[0].clone(), daemon.urls[0].replace("iscsi://", "iser://")] {
        good(&["copy", &image, &url, "--verify", "--quiet", "--capture", &ours]);
        let bytes = std::fs::metadata(&ours).unwrap().len();
        assert!(records(&ours) > 20 && bytes > 2 << 20, "there and back: {bytes}");
    }
    let control = ["--control-socket", &daemon.socket];
    let told = stdout(&good(&[&["status"], &control[..]].concat()));
    assert!(told.contains(&format!("capture to {theirs}: ")), "{told}");
    let told = good(&[&["status", "--json"], &control[..]].concat()).stdout;
    let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
    assert_eq!((&told["capture"]["lost"], &told["capture"]["ended"]), (&0.into(), &().into()));
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.child.wait().unwrap().success());
    let segments = told["capture"]["segments"].as_u64().unwrap();
    assert_eq!(records(&theirs) as u64, segments, "all is written");
}

#[test]
fn a_capture_that_is_full_disturbs_nobody() {
    let files = Files::new();
    let (theirs, ours) = (files.path("target.pcap"), files.path("initiator.pcap"));
    let folder = files.folder.path();
    let options = ["--capture", &*theirs, "--capture-limit", "64K"];
    let daemon = Daemon::start_logged(folder, &["memory:8M"], &options);
    let image = files.with("image", &pattern(1 << 20));
    let copy = ["copy", &image, &daemon.urls[0], "--verify", "--quiet"];
    let output = good(&[&copy[..], &["--capture", &ours, "--capture-limit", "10K"]].concat());
    let said = stderr(&output);
    assert!(said.contains("as large as it may get; nothing more is captured"), "{said}");
    assert!(Daemon::told(folder, "nothing more is captured").contains("as large as it may get"));
    for (path, limit) in [(&theirs, 64 << 10), (&ours, 10 << 10)] {
        assert!(records(path) > 3 && std::fs::metadata(path).unwrap().len() <= limit);
    }
    let told = stdout(&good(&["status", "--control-socket", &daemon.socket]));
    assert!(told.contains("; over: it is as large as it may get"), "{told}");
}

#[test]
fn what_is_there_and_no_capture_stays() {
    let files = Files::new();
    let image = files.with("image", b"bytes of a disk");
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let url = &*daemon.urls[0];
    fails(1, &["inspect", url, "--capture", &image], &[&image, "no capture; try: another name"]);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--lun", "memory:1M", "--capture", &image];
    fails(1, &serve, &[&image, "no capture; try: another name"]);
    assert_eq!(std::fs::read(&image).unwrap(), b"bytes of a disk");
    let nowhere = files.path("nowhere/x.pcap");
    fails(1, &["inspect", url, "--capture", &nowhere], &["cannot write", &nowhere]);
    fails(2, &["inspect", url, "--capture-limit", "1G"], &["--capture"]);
    for command in [&["inspect", url][..], &["serve", "--lun", "memory:1M"]] {
        fails(2, &[command, &["--capture", "-"]].concat(), &["--capture: a file is wanted"]);
    }
    let much = ["inspect", url, "--capture", &nowhere, "--capture-limit", "much"];
    fails(2, &much, &["--capture-limit much"]);
    let none = ["inspect", url, "--capture", &nowhere, "--capture-limit", "0"];
    fails(2, &none, &["--capture-limit 0: 1K or more is right"]);
}

/// A command that is typed twice, or in two terminals.
#[test]
fn a_capture_that_is_under_way_is_left_alone() {
    let files = Files::new();
    let theirs = files.path("target.pcap");
    let mut daemon = Daemon::start(files.folder.path(), &["memory:8M"], &["--capture", &theirs]);
    let url = &*daemon.urls[0];
    good(&["inspect", url]);
    fails(1, &["inspect", url, "--capture", &theirs], &["another capture is being written"]);
    let second = ["serve", "--listen", "127.0.0.1:0", "--control-socket", &files.path("second")];
    let second = [&second[..], &["--lun", "memory:1M", "--capture", &theirs]].concat();
    fails(1, &second, &["another capture is being written"]);
    good(&["inspect", url]);
    let status = ["status", "--json", "--control-socket", &daemon.socket];
    let told: serde_json::Value = serde_json::from_slice(&good(&status).stdout).unwrap();
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.child.wait().unwrap().success());
    assert_eq!(records(&theirs) as u64, told["capture"]["segments"].as_u64().unwrap());
}

/// What would be emptied is wanted.
#[test]
fn an_old_capture_that_a_command_or_a_daemon_uses_is_no_place_for_another() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
    let url = &*daemon.urls[0];
    let old = [&MAGIC[..], &[2, 0, 4, 0], &[0; 4088]].concat();
    let path = files.with("old.pcap", &old);
    for command in [["copy", &path, url], ["write", url, &path], ["read", url, &path]] {
        let command = [&command[..], &["--capture", &path]].concat();
        fails(1, &command, &[&path, "the command itself reads or writes it; try: another name"]);
    }
    let lun = format!("file:{path}");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--control-socket", &files.path("second")];
    let serve = [&serve[..], &["--lun", &lun, "--capture", &path]].concat();
    fails(1, &serve, &[&path, "try: another name"]);
    let wrong = [&serve[..3], &["--lun", "file:/nowhere/disk", "--capture", &path]].concat();
    fails(1, &wrong, &["/nowhere/disk"]);
    assert_eq!(std::fs::read(&path).unwrap(), old);
}
