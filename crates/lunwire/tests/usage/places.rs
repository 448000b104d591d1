// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where bytes come from and go to: what is one object under two names, what is served, what
//! stays in the memory of this machine.

use std::fs::File;
use std::process::Command;
use std::process::Stdio;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::fails;
use crate::support::good;
use crate::support::pattern;
use crate::support::stderr;

/// A loop device in front of a file; None without the rights for one.
struct Loop {
    device: String,
}

impl Loop {
    fn of(file: &str, more: &[&str]) -> Option<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]).args(more).arg(file);
        let output = losetup.stderr(Stdio::null()).output().ok()?;
        let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        output.status.success().then_some(Self { device })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    let files = Files::new();
    let bytes = pattern(3 << 20);
    let image = files.with("image", &bytes);
    let (link, hard) = (files.path("link"), files.path("hard"));
    std::os::unix::fs::symlink(&image, &link).unwrap();
    std::fs::hard_link(&image, &hard).unwrap();
    let dotted = files.path("./image");
    let state = files.path("state");
    for other in [&image, &link, &hard, &dotted] {
        for (from, to) in [(&image, other), (other, &image)] {
            fails(1, &["copy", from, to, "--quiet"], &["are the same", from, to]);
            fails(1, &["copy", from, to, "--resume", &state], &["are the same"]);
            assert!(std::fs::read(&image).unwrap() == bytes, "{from} to {to}");
        }
    }
    assert!(!std::path::Path::new(&state).exists(), "nothing was begun");
    let piped = |arguments: &[&str], stdin: Stdio, stdout: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lunwire"));
        let output = command.args(arguments).stdin(stdin).stdout(stdout).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains("are the same"), "{}", stderr(&output));
        assert!(std::fs::read(&image).unwrap() == bytes, "{arguments:?}");
    };
    piped(&["copy", "-", &image], File::open(&image).unwrap().into(), Stdio::null());
    let appended = File::options().append(true).open(&image).unwrap();
    piped(&["copy", &image, "-"], Stdio::null(), appended.into());
    good(&["copy", &image, &files.path("other"), "--quiet"]);
    assert!(std::fs::read(files.path("other")).unwrap() == bytes);
}

#[test]
fn a_device_is_not_copied_onto_what_is_behind_it() {
    let files = Files::new();
    let bytes = pattern(4 << 20);
    let image = files.with("image", &bytes);
    let half = (2 << 20).to_string();
    let Some(whole) = Loop::of(&image, &[]) else { return };
    let Some(again) = Loop::of(&image, &["--read-only"]) else { return };
    let Some(upper) = Loop::of(&image, &["--offset", &half]) else { return };
    let Some(lower) = Loop::of(&image, &["--sizelimit", &half]) else { return };
    let pairs = [
        (&whole.device, &image),
        (&image, &whole.device),
        (&again.device, &whole.device),
        (&upper.device, &whole.device),
        (&whole.device, &whole.device),
    ];
    for (from, to) in pairs {
        fails(1, &["copy", from, to, "--quiet"], &["are the same", from, to]);
        assert!(std::fs::read(&image).unwrap() == bytes, "{from} to {to}");
    }
    good(&["copy", &lower.device, &upper.device, "--quiet"]);
    drop((whole, again, upper, lower));
    let halves = std::fs::read(&image).unwrap();
    assert!(halves[..2 << 20] == halves[2 << 20..], "parts of a file are no danger to each other");
}

#[test]
fn a_disk_is_not_copied_onto_itself() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M", "memory:1M"], &[]);
    let (a, b) = (daemon.urls[0].as_str(), daemon.urls[1].as_str());
    let twin = a.replace("127.0.0.1", "localhost");
    fails(1, &["copy", a, a, "--quiet"], &["are the same"]);
    fails(1, &["copy", a, &twin, "--quiet"], &["are the same", "--different-disks"]);
    good(&["copy", a, &twin, "--quiet", "--different-disks"]);
    good(&["copy", a, b, "--quiet"]);
}

#[test]
fn a_file_that_is_served_is_not_written_to() {
    let files = Files::new();
    let bytes = pattern(1 << 20);
    let image = files.with("image", &bytes);
    let daemon = Daemon::start(files.folder.path(), &[&format!("file:{image}")], &[]);
    let url = daemon.urls[0].as_str();
    for command in ["copy", "read"] {
        fails(1, &[command, url, &image, "--quiet"], &[&image, "in use"]);
        assert!(std::fs::read(&image).unwrap() == bytes, "{command}");
    }
}

#[test]
fn what_a_copy_wrote_to_a_device_is_on_it() {
    let files = Files::new();
    let bytes = pattern(4 << 20);
    let image = files.with("image", &bytes);
    let behind = files.with("behind", &vec![0; 4 << 20]);
    let Some(device) = Loop::of(&behind, &[]) else { return };
    // As long as somebody has it open, closing it brings nothing to it.
    let holder = File::open(&device.device).unwrap();
    good(&["copy", &image, &device.device, "--quiet"]);
    assert!(std::fs::read(&behind).unwrap() == bytes);
    std::fs::write(&behind, vec![0; 4 << 20]).unwrap();
    let stdout = File::options().write(true).open(&device.device).unwrap();
    let mut copy = Command::new(env!("CARGO_BIN_EXE_lunwire"));
    assert!(copy.args(["copy", &image, "-", "--quiet"]).stdout(stdout).status().unwrap().success());
    assert!(std::fs::read(&behind).unwrap() == bytes, "standard output");
    drop(holder);
}
