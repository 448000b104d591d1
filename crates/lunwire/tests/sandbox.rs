// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `serve --sandbox`: what a daemon has given up, and that all else goes on. The rules themselves
//! are broken into where they are made (`crates/sandbox`).
#![allow(clippy::unwrap_used)] // a test that panics has failed

mod support;

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::Daemon;
use support::Files;
use support::fails;
use support::good;
use support::lunwire;
use support::pattern;
use support::stderr;
use support::stdout;

const AT: &str = "--control-socket";

const ENGINES: [&str; 2] = ["auto", "epoll"];

/// Whether this kernel has all that is needed.
fn has_landlock() -> bool {
    let told: Value = serde_json::from_slice(&good(&["explain", "--json"]).stdout).unwrap();
    let sandbox = &told["sandbox"];
    let has = sandbox["seccomp"] == true && sandbox["landlock"].as_u64() >= Some(4);
    if !has {
        println!("skipped: this kernel has {sandbox}");
    }
    has
}

/// Two folders, each with a disk in it.
fn folders() -> Files {
    let files = Files::new();
    for folder in ["in", "out"] {
        fs::create_dir(files.path(folder)).unwrap();
        fs::write(files.path(&format!("{folder}/disk")), vec![0; 1 << 20]).unwrap();
    }
    files
}

fn start(files: &Files, more: &[&str]) -> Daemon {
    let disk = format!("file:{}", files.path("in/disk"));
    Daemon::start(files.folder.path(), &[&disk], more)
}

/// Threads of a process with the values of two fields of their status.
fn threads(pid: u32) -> Vec<(String, String)> {
    let field = |text: &str, name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned())).unwrap()
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    // One that has ended meanwhile is none.
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    texts.map(|text| (field(&text, "NoNewPrivs:"), field(&text, "Seccomp:"))).collect()
}

#[test]
fn all_threads_are_in_it() {
    for engine in ENGINES {
        for (more, filter) in [(&[][..], "2"), (&["--sandbox"], "2"), (&["--sandbox=no"], "0")] {
            let files = folders();
            let options = ["--engine", engine, "--http", "127.0.0.1:0", "--reactors", "2"];
            let daemon = start(&files, &[&options, more].concat());
            good(&["read", &daemon.urls[0], &files.path("copy")]);
            let threads = threads(daemon.child.id());
            assert!(threads.len() >= 7, "{threads:?}");
            let no_new = if filter == "0" { "0" } else { "1" };
            let expected = (no_new.to_owned(), filter.to_owned());
            assert!(threads.iter().all(|one| *one == expected), "{more:?}: {threads:?}");
        }
    }
}

#[test]
fn what_comes_from_outside_is_refused_and_named() {
    if !has_landlock() {
        return;
    }
    let files = folders();
    let (inside, outside) = (files.path("in/new"), files.path("out/disk"));
    let daemon = start(&files, &["--sandbox"]);
    let socket = &*daemon.socket;
    let text = [&*outside, "--sandbox-allow", "--sandbox=auto"];
    fails(1, &["lun", "add", &format!("file:{outside}"), AT, socket], &text);
    let link = files.path("in/link");
    std::os::unix::fs::symlink(&outside, &link).unwrap();
    fails(1, &["lun", "add", &format!("file:{link}"), AT, socket], &["--sandbox-allow"]);
    let new = format!("file:{},size=1M", files.path("out/new"));
    // Nobody is to allow a file that is not there: the option would refuse it.
    let folder = format!("--sandbox-allow {} (sandbox-allow)", files.path("out"));
    fails(1, &["lun", "add", &new, AT, socket], &[&folder]);
    assert!(!Path::new(&files.path("out/new")).exists());
    let remote = "iscsi://127.0.0.1:1/iqn.2026-01.test:a/0";
    fails(1, &["lun", "add", remote, AT, socket], &["--sandbox-allow connect"]);
    let snapshot = files.path("out/snapshot");
    fails(1, &["lun", "snapshot", "0", &snapshot, AT, socket], &[&folder]);
    good(&["lun", "add", &format!("file:{inside},size=1M"), AT, socket]);
    good(&["lun", "add", "memory:1M", AT, socket]);
    good(&["lun", "resize", "1", "2M", AT, socket]);
    let told: Value =
        serde_json::from_slice(&good(&["status", "--json", AT, socket]).stdout).unwrap();
    let all = ["privileges", "calls", "programs", "signals", "files", "ports"];
    let given_up = &told["sandbox"];
    let has = |word: &&str| given_up.as_array().unwrap().iter().any(|one| one == word);
    assert!(all.iter().filter(|word| **word != "signals").all(has), "{given_up}");
}

/// As it was in earlier versions, where nobody asks for more.
#[test]
fn without_it_all_files_come() {
    let files = folders();
    for more in [&[][..], &["--sandbox=auto"], &["--sandbox=no"]] {
        let daemon = start(&files, more);
        let disk = format!("file:{}", files.path("out/disk"));
        good(&["lun", "add", &disk, AT, &daemon.socket]);
    }
}

#[test]
fn data_goes_through_it_by_both_engines() {
    if !has_landlock() {
        return;
    }
    for engine in ENGINES {
        let files = folders();
        let source = files.with("source", &pattern(1 << 20));
        let state = files.path("state");
        let more = ["--sandbox", "--engine", engine, "--state-dir", &state];
        let mut daemon = start(&files, &more);
        good(&["write", &daemon.urls[0], &source]);
        let mode = fs::metadata(&state).unwrap();
        assert!(mode.is_dir(), "the state folder was made in a folder out of reach");
        good(&["read", &daemon.urls[0], &files.path("copy")]);
        assert!(fs::read(files.path("copy")).unwrap() == pattern(1 << 20));
        daemon.signal(rustix::process::Signal::TERM);
        assert!(daemon.child.wait().unwrap().success());
        assert!(fs::read(files.path("in/disk")).unwrap() == pattern(1 << 20));
        assert!(!Path::new(&daemon.socket).exists(), "its socket goes with it");
        // What is there now is found again.
        drop(start(&files, &more));
    }
}

fn configuration(disks: &[String], more: &str) -> String {
    let luns = disks.iter().map(|disk| format!("[[target.lun]]\nstore = \"file:{disk}\"\n"));
    let luns: String = luns.collect();
    format!("{more}[[target]]\nname = \"iqn.2026-01.test.lunwire:a\"\n{luns}")
}

const LISTEN: &str = "listen = [\"127.0.0.1:0\"]\n";

/// Runs `lunwire reload`, and gives what it says if it does not take effect.
fn reload(daemon: &Daemon) -> Option<String> {
    let output = lunwire(&["reload", AT, &daemon.socket]);
    let said = [stdout(&output), stderr(&output)].concat();
    (!output.status.success()).then_some(said)
}

#[test]
fn a_reload_brings_what_is_within_reach() {
    if !has_landlock() {
        return;
    }
    let files = folders();
    fs::write(files.path("in/more"), vec![0; 1 << 20]).unwrap();
    let path = |name: &str| files.path(name);
    let strict = format!("sandbox = \"yes\"\n{LISTEN}");
    fs::create_dir(path("etc")).unwrap();
    let file = path("etc/lunwire.toml");
    let write = |disks: &[&str], more: &str| {
        let disks: Vec<String> = disks.iter().map(|disk| path(disk)).collect();
        fs::write(path("etc/new"), configuration(&disks, more)).unwrap();
        fs::rename(path("etc/new"), &file).unwrap();
    };
    write(&["in/disk"], &strict);
    let daemon = Daemon::start_configured(files.folder.path(), &file, 1, &[]);
    write(&["in/disk", "in/more"], &strict);
    assert_eq!(reload(&daemon), None);
    write(&["in/disk", "in/more", "out/disk"], &strict);
    let said = reload(&daemon).unwrap();
    assert!(said.contains("LUN 2 of") && said.contains("--sandbox-allow"), "{said}");
    let wider = strict.replace("127.0.0.1:0\"", "127.0.0.1:0\", \"127.0.0.1:3261\"");
    write(&["in/disk", "in/more"], &wider);
    let said = reload(&daemon).unwrap();
    assert!(said.contains("portal 127.0.0.1:3261"), "{said}");
    assert!(said.contains("--sandbox-allow listen"), "{said}");
    write(&["in/disk"], &strict.replace("yes", "no"));
    let said = reload(&daemon).unwrap();
    assert!(said.contains("sandbox: it is read when the daemon starts"), "{said}");
}

/// Nobody but the kernel says no.
#[test]
fn a_secret_in_another_folder_is_not_read() {
    if !has_landlock() {
        return;
    }
    let files = folders();
    for folder in ["etc", "secrets"] {
        fs::create_dir(files.path(folder)).unwrap();
        fs::write(files.path(&format!("{folder}/secret")), "a secret of the tests").unwrap();
    }
    let file = files.path("etc/lunwire.toml");
    let with_secret = |place: &str| {
        let chap = format!("chap-user = \"a\"\nchap-secret-file = \"{place}\"\n[[target.lun]]");
        let disks = [files.path("in/disk")];
        let more = format!("sandbox = \"yes\"\n{LISTEN}");
        let text = configuration(&disks, &more).replacen("[[target.lun]]", &chap, 1);
        fs::write(&file, text).unwrap();
    };
    with_secret("secret");
    let daemon = Daemon::start_configured(files.folder.path(), &file, 1, &[]);
    assert_eq!(reload(&daemon), None);
    with_secret(&files.path("secrets/secret"));
    let said = reload(&daemon).unwrap();
    assert!(said.contains("Permission denied") && said.contains("--sandbox-allow"), "{said}");
}

#[test]
fn what_is_allowed_comes() {
    if !has_landlock() {
        return;
    }
    let files = folders();
    let (other, name) = (folders(), "file:");
    let far = start(&other, &[]);
    let out = files.path("out");
    let allow = ["--sandbox-allow", &out, "--sandbox-allow", "connect"];
    let daemon = start(&files, &[&["--sandbox"], &allow[..]].concat());
    let disk = format!("{name}{}", files.path("out/disk"));
    good(&["lun", "add", &disk, AT, &daemon.socket]);
    good(&["lun", "add", &far.urls[0], AT, &daemon.socket]);
    let dumped = stdout(&good(&["dump", AT, &daemon.socket]));
    assert!(dumped.contains("sandbox = \"yes\""), "{dumped}");
    assert!(dumped.contains(&format!("sandbox-allow = [\"{out}\", \"connect\"]")), "{dumped}");
}

#[test]
fn what_is_no_wish_is_named() {
    fails(2, &["serve", "--sandbox=maybe"], &["--sandbox maybe: auto, yes or no is right"]);
    let text = "--sandbox-allow nowhere: a file or folder that is there, connect or listen";
    fails(2, &["serve", "--sandbox-allow", "nowhere"], &[text]);
}

#[test]
fn what_is_left_where_nothing_is_given_up_is_told() {
    let files = Files::new();
    let said = |line: &str| {
        let text = format!(
            "sandbox-allow = [\"connect\"]\n{line}[[target]]\n\
             name = \"iqn.2026-01.com.example:a\"\n[[target.lun]]\nstore = \"memory:1M\"\n"
        );
        stderr(&good(&["check", &files.with("lunwire.toml", text.as_bytes())]))
    };
    const TOLD: &str = "sandbox-allow (--sandbox-allow) is for sandbox = \"yes\" (--sandbox)";
    for (line, wish) in [("", "auto"), ("sandbox = \"no\"\n", "no")] {
        let said = said(line);
        assert!(said.contains(TOLD) && said.contains(&format!("it is {wish}")), "{said}");
        assert_eq!(said.matches("; try: ").count(), 1, "{said}");
    }
    assert!(!said("sandbox = \"yes\"\n").contains("sandbox-allow"));
    let allow = ["--sandbox-allow", "connect"];
    let _daemon = Daemon::start_logged(files.folder.path(), &["memory:1M"], &allow);
    Daemon::told(files.folder.path(), TOLD);
}
