// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where bytes come from and go to: what is one object under two names, what is served, what
//! stays in the memory of this machine.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::process::Stdio;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::Loop;
use crate::support::fails;
use crate::support::good;
use crate::support::lunwire;
use crate::support::pattern;
use crate::support::stderr;

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
    good(&["copy", &lower.device, &upper.device, "--quiet", "--overwrite"]);
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

/// The shell, too, writes to files of this machine; so does what is drawn.
#[test]
fn no_command_empties_a_file_that_it_was_not_told_to() {
    let files = Files::new();
    let (old, image) = (files.with("old", b"precious"), files.with("image", &pattern(1 << 20)));
    let luns = ["memory:1M".to_owned(), format!("file:{image}")];
    let luns: Vec<&str> = luns.iter().map(String::as_str).collect();
    let daemon = Daemon::start(files.folder.path(), &luns, &[]);
    let url = daemon.urls[0].as_str();
    let script =
        |line: &str| files.with("script", format!("login {url}\n{line}\nlogout\n").as_bytes());
    for line in [format!("read 0 8 {old}"), format!("log {old}")] {
        fails(1, &["shell", &script(&line)], &["script:2", &old, "--overwrite"]);
        assert!(std::fs::read(&old).unwrap() == b"precious", "{line}");
    }
    for command in ["read 0 8", "log"] {
        for more in ["", "--overwrite"] {
            let line = format!("{command} {image} {more}");
            fails(1, &["shell", &script(&line)], &["script:2", &image]);
            assert!(std::fs::read(&image).unwrap() == pattern(1 << 20), "{line}");
        }
    }
    let bench = ["bench", url, "--time", "50ms", "--svg", &image];
    fails(1, &bench, &[&image, "in use by process"]);
    assert!(std::fs::read(&image).unwrap() == pattern(1 << 20), "{bench:?}");
    let kept = files.with("kept", b"precious");
    let bench = ["bench", url, "--time", "50ms", "--svg", &kept];
    fails(1, &bench, &[&kept, "8 B", "--overwrite"]);
    assert!(std::fs::read(&kept).unwrap() == b"precious", "{bench:?}");
    good(&[&bench[..], &["--overwrite"]].concat());
    assert!(std::fs::read_to_string(&kept).unwrap().contains("<svg"));
    fails(2, &["bench", url, "--overwrite"], &["--svg"]);
    good(&["shell", &script(&format!("read 0 8 {old} --overwrite"))]);
    assert!(std::fs::read(&old).unwrap() == [0; 4096]);
    good(&["shell", &script(&format!("read 0 1 {old} --overwrite"))]);
    assert!(std::fs::read(&old).unwrap() == [0; 512]);
    good(&["shell", &script(&format!("log {old} --overwrite"))]);
    assert!(
        std::fs::read_to_string(&old).unwrap().starts_with(|digit: char| digit.is_ascii_digit())
    );
    good(&["shell", &script("read 0 1 /dev/null")]);
}

/// Where there was another page, a report goes elsewhere.
#[test]
fn a_report_replaces_reports_alone() {
    let files = Files::new();
    let run =
        |out: &str| lunwire(&["lab", "run", "fast05", "--smoke", "--rounds", "1", "--out", out]);
    for name in ["index.html", "results.json"] {
        let out = files.path(&format!("with-{name}"));
        std::fs::create_dir(&out).unwrap();
        let page = files.with(&format!("with-{name}/{name}"), b"precious");
        let refused = run(&out);
        assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
        let said = ["is of no report", "--out", &page];
        assert!(said.iter().all(|part| stderr(&refused).contains(part)), "{}", stderr(&refused));
        assert!(std::fs::read(&page).unwrap() == b"precious");
    }
    let out = files.path("report");
    for _ in 0..2 {
        let ran = run(&out);
        assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
    }
}

/// What is not there any more is not zeroes.
#[test]
fn a_source_that_becomes_shorter_fails() {
    let files = Files::new();
    let source = files.with("source", &pattern(16 << 20));
    for left in [0, 4096, 9 << 20] {
        File::options().write(true).open(&source).unwrap().set_len(16 << 20).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lunwire"));
        command.args(["copy", &source, "-", "--quiet"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        // It has begun, and goes on when there is room in the pipe.
        stdout.read_exact(&mut [0]).unwrap();
        File::options().write(true).open(&source).unwrap().set_len(left).unwrap();
        let came = std::io::copy(&mut stdout, &mut std::io::sink()).unwrap() + 1;
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{left}: {came} bytes came");
        assert!(stderr(&output).contains("shorter"), "{}", stderr(&output));
    }
}

/// Files of the kernel tell no size, or a wrong one.
#[test]
fn a_file_without_a_size_is_no_source() {
    let files = Files::new();
    let to = files.path("to");
    fails(1, &["copy", "/proc/self/status", &to], &["/proc/self/status", "lunwire copy - "]);
    fails(1, &["copy", "/sys/kernel/mm/transparent_hugepage/enabled", &to], &["shorter"]);
    good(&["copy", &files.with("empty", b""), &to, "--quiet"]);
}

/// A range of a stripe is another one of its members.
#[test]
fn a_file_that_is_served_is_not_copied_to_a_disk_that_it_may_be_behind() {
    let files = Files::new();
    let bytes = pattern(2 << 20);
    let member = files.with("member", &bytes);
    let stripe = format!("stripe:64K(file:{member};memory:2M)");
    let daemon = Daemon::start(files.folder.path(), &[&stripe], &[]);
    let url = daemon.urls[0].as_str();
    let refused = |words: &[&str]| {
        fails(1, words, &[&member, "in use by process", "--different-disks"]);
        assert!(std::fs::read(&member).unwrap() == bytes, "{words:?}");
    };
    refused(&["copy", &member, url, "--quiet"]);
    refused(&["copy", &member, url, "--quiet", "--verify"]);
    refused(&["write", url, &member, "--quiet"]);
    let mut piped = Command::new(env!("CARGO_BIN_EXE_lunwire"));
    piped.args(["copy", "-", url, "--quiet"]).stdin(File::open(&member).unwrap());
    assert_eq!(piped.output().unwrap().status.code(), Some(1));
    assert!(std::fs::read(&member).unwrap() == bytes, "standard input");
    if let Some(shown) = Loop::of(&member, &["--read-only"]) {
        fails(1, &["copy", &shown.device, url, "--quiet"], &["in use by process"]);
    }
    // Nobody writes to what it reads, and to what nobody serves.
    good(&["copy", &member, &files.path("other"), "--quiet"]);
    good(&["copy", &files.path("other"), url, "--quiet"]);
    good(&["copy", &member, url, "--quiet", "--different-disks"]);
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
    let device_name = device.device.as_str();
    fails(1, &["copy", &image, device_name, "--quiet"], &["is a device", "try: lsblk --fs"]);
    assert!(std::fs::read(&behind).unwrap() == vec![0; 4 << 20], "nothing is written");
    good(&["copy", &image, device_name, "--quiet", "--overwrite"]);
    assert!(std::fs::read(&behind).unwrap() == bytes);
    std::fs::write(&behind, vec![0; 4 << 20]).unwrap();
    let stdout = File::options().write(true).open(&device.device).unwrap();
    let mut copy = Command::new(env!("CARGO_BIN_EXE_lunwire"));
    assert!(copy.args(["copy", &image, "-", "--quiet"]).stdout(stdout).status().unwrap().success());
    assert!(std::fs::read(&behind).unwrap() == bytes, "standard output");
    drop(holder);
}

/// Copies and asks for the reason of a refusal; `image` must stay as it is.
#[track_caller]
fn is_in_use(from: &str, to: &str, image: &str, said: &[&str]) {
    let before = std::fs::read(image).unwrap();
    fails(1, &["copy", from, to, "--quiet", "--overwrite"], said);
    assert!(std::fs::read(image).unwrap() == before, "{from} to {to}");
}

#[test]
fn a_file_that_a_device_shows_is_not_written_to() {
    let files = Files::new();
    let source = files.with("source", &pattern(1 << 20));
    let image = files.with("image", &vec![7; 4 << 20]);
    let half = (2 << 20).to_string();
    let Some(shown) = Loop::of(&image, &["--sizelimit", &half]) else { return };
    let Some(again) = Loop::of(&image, &[]) else { return };
    let Some(upper) = Loop::of(&image, &["--offset", &half]) else { return };
    is_in_use(&source, &image, &image, &[&image, "/dev/loop", "losetup --detach"]);
    // As a file system does that is mounted.
    let mut alone = File::options();
    alone.read(true).write(true);
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut alone, libc_o_excl());
    let mounted = alone.open(&shown.device).unwrap();
    is_in_use(&source, &shown.device, &image, &[&shown.device, "mounted", "try: "]);
    is_in_use(&source, &again.device, &image, &[&again.device, &shown.device, "mounted"]);
    good(&["copy", &source, &upper.device, "--quiet", "--overwrite"]);
    drop(mounted);
    good(&["copy", &source, &again.device, "--quiet", "--overwrite"]);
}

fn libc_o_excl() -> i32 {
    rustix::fs::OFlags::EXCL.bits().cast_signed()
}

#[test]
fn a_device_of_a_file_that_is_served_is_not_written_to() {
    let files = Files::new();
    let source = files.with("source", &pattern(1 << 20));
    let image = files.with("image", &vec![7; 4 << 20]);
    let daemon = Daemon::start(files.folder.path(), &[&format!("file:{image}")], &[]);
    let Some(shown) = Loop::of(&image, &[]) else { return };
    is_in_use(&source, &shown.device, &image, &["in use by process"]);
    drop(daemon);
    good(&["copy", &source, &shown.device, "--quiet", "--overwrite"]);
}

#[test]
fn a_file_is_not_copied_onto_the_disk_that_it_backs() {
    let files = Files::new();
    let image = files.with("image", &pattern(4 << 20));
    let other = files.with("other", &pattern(4 << 20));
    let luns = [format!("file:{image}"), format!("file:{other}"), "memory:4M".to_owned()];
    let luns: Vec<&str> = luns.iter().map(String::as_str).collect();
    let daemon = Daemon::start(files.folder.path(), &luns, &[]);
    let url = daemon.urls[0].as_str();
    let hard = files.path("hard");
    std::fs::hard_link(&image, &hard).unwrap();
    for from in [&image, &hard] {
        fails(1, &["copy", from, url, "--quiet"], &["are the same", from, url]);
        fails(1, &["write", url, from, "--quiet"], &["are the same"]);
    }
    if let Some(shown) = Loop::of(&image, &[]) {
        fails(1, &["copy", &shown.device, url, "--quiet"], &["are the same"]);
        good(&["copy", &shown.device, &daemon.urls[1], "--quiet", "--different-disks"]);
    }
    for url in &daemon.urls {
        good(&["copy", &image, url, "--quiet", "--different-disks"]);
    }
}

#[test]
fn a_device_that_is_not_there_is_not_made() {
    let files = Files::new();
    let source = files.with("source", &pattern(1 << 20));
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let link = files.path("link");
    std::os::unix::fs::symlink("/dev/lunwire-no-such-device", &link).unwrap();
    for to in ["/dev/lunwire-no-such-device", "/dev/../dev/lunwire-no-such-device", &link] {
        fails(1, &["copy", &source, to, "--quiet"], &[to, "no such device"]);
        fails(1, &["read", &daemon.urls[0], to, "--quiet"], &[to, "no such device"]);
    }
    assert!(!std::path::Path::new("/dev/lunwire-no-such-device").exists());
    // Memory that looks like a folder of devices.
    let shared = format!("/dev/shm/lunwire-{}", std::process::id());
    if std::path::Path::new("/dev/shm").is_dir() {
        good(&["copy", &source, &shared, "--quiet"]);
        std::fs::remove_file(shared).unwrap();
    }
}

#[test]
fn a_folder_that_cannot_be_reached_is_not_said_to_be_missing() {
    let files = Files::new();
    let image = files.with("image", &pattern(1 << 20));
    // It may be there, but nobody who is asked knows.
    let around = files.path("around");
    std::os::unix::fs::symlink(&around, &around).unwrap();
    let (to, copied) = (format!("{around}/folder/to"), files.path("copied"));
    for arguments in [["copy", &image, &to].as_slice(), &["copy", &image, &copied, "--resume", &to]]
    {
        let output = lunwire(arguments);
        let said = stderr(&output);
        assert!(said.contains("cannot be reached") && !said.contains("mkdir"), "{said}");
    }
}

/// As the file of an attached disk: it is written, and keeps its size.
#[test]
fn a_file_that_keeps_its_size_has_the_room_of_a_device() {
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
    let sealed = File::from(rustix::fs::memfd_create("sealed", flags).unwrap());
    sealed.set_len(1 << 20).unwrap();
    let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW;
    rustix::fs::fcntl_add_seals(&sealed, seals).unwrap();
    let there = format!("/proc/{}/fd/{}", std::process::id(), sealed.as_raw_fd());
    let holds = || std::fs::read(&there).unwrap();
    let files = Files::new();
    // What is left out as a hole would leave what was there.
    let (full, holes) = (pattern(1 << 20), vec![0; 512 << 10]);
    good(&["copy", &files.with("full", &full), &there, "--overwrite", "--verify", "--quiet"]);
    assert!(holds() == full);
    let empty = files.path("empty");
    File::create(&empty).unwrap().set_len(holes.len() as u64).unwrap();
    good(&["copy", &empty, &there, "--overwrite", "--quiet"]);
    assert!(holds() == [holes.as_slice(), &full[512 << 10..]].concat());
    let large = files.with("large", &pattern((1 << 20) + 512));
    let words = ["copy", &large, &there, "--overwrite", "--quiet"];
    fails(1, &words, &["has room for 1048576 bytes, 1049088 are needed"]);
    assert!(holds()[..512 << 10] == holes, "nothing was begun");
}
