// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stands beside a disk or behind it: protection information, which is not lost or made wrong
//! by a command that forgets it, and files that fail or go away.

use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::Loop;
use crate::support::fails;
use crate::support::good;
use crate::support::lunwire;
use crate::support::stderr;
use crate::support::stdout;

/// A disk that was served with protection information once, and its name as a store.
fn protected(files: &Files) -> String {
    let store = format!("file:{}", files.path("disk"));
    let made = format!("{store},size=1M");
    let daemon = Daemon::start(files.folder.path(), &[&made], &["--protection", "1"]);
    let image = files.with("image", &[7; 4096]);
    good(&["write", &daemon.urls[0], &image]);
    store
}

/// What `lunwire check` reads for one disk.
fn configuration(files: &Files, lun: &str) -> String {
    let text = format!("[[target]]\nname = \"iqn.2026-01.com.example:a\"\n[[target.lun]]\n{lun}\n");
    files.with("one.toml", text.as_bytes())
}

#[test]
fn a_disk_with_protection_is_not_served_without_it() {
    let files = Files::new();
    let store = protected(&files);
    let side = files.path("disk.pi");
    let said = [side.as_str(), "--protection 1", "protection = 1", "remove"];
    let serve = ["serve", "--listen", "127.0.0.1:0", "--control-socket", &files.path("other")];
    std::os::unix::fs::symlink(files.path("disk"), files.path("link")).unwrap();
    let link = format!("file:{}", files.path("link"));
    for store in
        [store.clone(), format!("{store},log"), format!("stripe:4K({store};memory:1M)"), link]
    {
        fails(1, &[&serve[..], &["--lun", &store]].concat(), &said);
        fails(1, &["check", &configuration(&files, &format!("store = \"{store}\""))], &said);
    }
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let add = ["lun", "add", &store, "--control-socket", &daemon.socket];
    fails(1, &add, &said);
    good(&[&add[..], &["--protection", "1"]].concat());
    drop(daemon);
    // What is not written to does no harm.
    let read_only = format!("{store},readonly");
    drop(Daemon::start(files.folder.path(), &[&read_only], &[]));
    good(&["check", &configuration(&files, &format!("store = \"{read_only}\""))]);
    // All is as it was, and can be given up.
    let kept = configuration(&files, &format!("store = \"{store}\"\nprotection = 1"));
    good(&["check", &kept]);
    let daemon = Daemon::start(files.folder.path(), &[&store], &["--protection", "1"]);
    good(&["read", &daemon.urls[0], &files.path("back"), "--verify"]);
    drop(daemon);
    std::fs::remove_file(&side).unwrap();
    drop(Daemon::start(files.folder.path(), &[&store], &[]));
    // A file of that name may be anything.
    std::fs::write(&side, b"notes of a private investigator").unwrap();
    drop(Daemon::start(files.folder.path(), &[&store], &[]));
}

#[test]
fn a_new_disk_does_not_get_what_stood_beside_an_old_one() {
    let files = Files::new();
    let store = format!("{},size=1M", protected(&files));
    let (disk, side) = (files.path("disk"), files.path("disk.pi"));
    std::fs::remove_file(&disk).unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--control-socket", &files.path("other")];
    let serve = [&serve[..], &["--lun", &store]].concat();
    let said = [side.as_str(), "that is not there", "remove"];
    for (more, lun) in [(&[][..], ""), (&["--protection", "1"], "protection = 1")] {
        fails(1, &[&serve[..], more].concat(), &said);
        fails(1, &["check", &configuration(&files, &format!("store = \"{store}\"\n{lun}"))], &said);
    }
    assert!(!Path::new(&disk).exists(), "nothing is made");
}

#[test]
fn a_file_with_protection_beside_it_is_not_written_past_it() {
    let files = Files::new();
    protected(&files);
    let (disk, side) = (files.path("disk"), files.path("disk.pi"));
    let before = std::fs::read(&disk).unwrap();
    let image = files.with("other", &[8; 1 << 20]);
    let names = ["link", "hard"].map(|name| files.path(name));
    std::os::unix::fs::symlink(&disk, &names[0]).unwrap();
    std::fs::hard_link(&disk, &names[1]).unwrap();
    let knows = keeps_records(&disk);
    let memory = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let said = [side.as_str(), "URL", "--protection 1", "move"];
    for name in [&disk, &names[0], &names[1]].into_iter().take(if knows { 3 } else { 2 }) {
        fails(1, &["copy", &image, name, "--overwrite"], &said);
        fails(1, &["copy", &image, name, "--resume", &files.path("state"), "--overwrite"], &said);
        fails(1, &["read", &memory.urls[0], name, "--overwrite"], &said);
        fails(1, &["bench", &memory.urls[0], "--time", "1s", "--svg", name], &said);
    }
    assert_eq!(std::fs::read(&disk).unwrap(), before);
    // Read from it may be.
    good(&["copy", &disk, &files.path("back")]);
    good(&["write", &memory.urls[0], &disk]);
    // Nor is a new file made beside that of one that is gone.
    let (moved, gone) = (files.path("moved"), [side.as_str(), "that is not there", "remove"]);
    std::fs::rename(&disk, &moved).unwrap();
    fails(1, &["copy", &image, &disk], &gone);
    assert!(!Path::new(&disk).exists(), "nothing is made");
    std::fs::rename(&moved, &disk).unwrap();
    // It can be given up, and what is beside by chance is nothing.
    std::fs::rename(&side, files.path("away")).unwrap();
    good(&["copy", &image, &names[1], "--overwrite"]);
    std::fs::write(&side, b"notes of a private investigator").unwrap();
    good(&["copy", &image, &disk, "--overwrite"]);
}

#[test]
fn a_device_in_front_of_a_disk_with_protection_is_that_disk() {
    let files = Files::new();
    protected(&files);
    let (disk, side) = (files.path("disk"), files.path("disk.pi"));
    let image = files.with("other", &[8; 1 << 20]);
    let Some(shown) = Loop::of(&disk, &[]) else { return };
    let device = shown.device.as_str();
    fails(1, &["copy", &image, device, "--overwrite"], &[&side, device, "move"]);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--control-socket", &files.path("socket")];
    let store = format!("file:{device}");
    fails(1, &[&serve[..], &["--lun", &store]].concat(), &[&side, device, "remove"]);
    if !keeps_records(&disk) {
        return;
    }
    // A device cannot have protection: what is advised is about the file.
    let advice = format!("try: {disk} with protection = 1");
    fails(1, &[&serve[..], &["--lun", &store]].concat(), &[&advice, "in place of", device]);
    std::fs::rename(&side, files.path("away")).unwrap();
    let astray = lunwire(&["check", "--lun", &format!("{store},readonly")]);
    let said = stderr(&astray) + &stdout(&astray);
    assert!(!said.contains(&format!("{device}.pi")), "{said}");
}

/// Whether the file system of a file that was served keeps what is written beside its blocks.
fn keeps_records(path: &str) -> bool {
    let keeps = engine::files::recorded(std::fs::File::open(path).unwrap()).unwrap().is_some();
    if !keeps {
        println!("skipped in part: no extended attributes here");
    }
    keeps
}

#[test]
fn a_disk_with_protection_is_known_by_its_other_names() {
    let files = Files::new();
    protected(&files);
    let (disk, side) = (files.path("disk"), files.path("disk.pi"));
    if !keeps_records(&disk) {
        return;
    }
    let serve = ["serve", "--listen", "127.0.0.1:0", "--control-socket", &files.path("socket")];
    let check = |name: &str, more: &str| {
        configuration(&files, &format!("store = \"file:{}\"\n{more}", files.path(name)))
    };
    let refused = |name: &str| {
        let store = format!("file:{}", files.path(name));
        let said = [side.as_str(), &files.path(name), "move", "--protection 1", "remove"];
        for (more, lun) in [(&[][..], ""), (&["--protection", "1"], "protection = 1")] {
            fails(1, &[&serve[..], &["--lun", &store], more].concat(), &said);
            fails(1, &["check", &check(name, lun)], &said);
        }
        assert!(!Path::new(&files.path(&format!("{name}.pi"))).exists(), "{name}");
    };
    std::fs::hard_link(&disk, files.path("hard")).unwrap();
    refused("hard");
    std::fs::remove_file(files.path("hard")).unwrap();
    std::os::unix::fs::symlink(&disk, files.path("link")).unwrap();
    refused("link");
    std::fs::remove_file(files.path("link")).unwrap();
    std::fs::rename(&disk, files.path("moved")).unwrap();
    refused("moved");
    // With what belongs to it, it is the disk that it was, and its old name is free.
    std::fs::rename(&side, files.path("moved.pi")).unwrap();
    let store = format!("file:{}", files.path("moved"));
    let daemon = Daemon::start(files.folder.path(), &[&store], &["--protection", "1"]);
    good(&["read", &daemon.urls[0], &files.path("back"), "--verify"]);
    drop(daemon);
    // Another disk at the old place is another one; so is a copy.
    let made = format!("file:{disk},size=1M");
    drop(Daemon::start(files.folder.path(), &[&made], &["--protection", "1"]));
    std::fs::rename(files.path("moved.pi"), files.path("away.pi")).unwrap();
    drop(Daemon::start(files.folder.path(), &[&store], &[]));
    std::fs::rename(files.path("away.pi"), files.path("moved.pi")).unwrap();
    std::fs::copy(files.path("moved"), files.path("copy")).unwrap();
    let copy = format!("file:{}", files.path("copy"));
    drop(Daemon::start(files.folder.path(), &[&copy], &[]));
}

/// Whether it was removed or moved nobody knows.
#[test]
fn protection_that_is_not_found_any_more_is_warned_of() {
    let files = Files::new();
    protected(&files);
    let (disk, side) = (files.path("disk"), files.path("disk.pi"));
    if !keeps_records(&disk) {
        return;
    }
    // Moved together, the disk goes by a second name there.
    let (there, far) = (files.path("there"), files.path("far"));
    std::fs::create_dir(&there).unwrap();
    std::fs::rename(&disk, format!("{there}/disk")).unwrap();
    std::fs::rename(&side, format!("{there}/disk.pi")).unwrap();
    std::fs::hard_link(format!("{there}/disk"), format!("{there}/hard")).unwrap();
    let image = files.with("other", &[8; 1 << 20]);
    let hard = format!("{there}/hard");
    fails(1, &["copy", &image, &hard, "--overwrite"], &[&format!("{there}/disk.pi"), "move"]);
    // And elsewhere by a third one.
    std::fs::hard_link(&hard, &far).unwrap();
    let store = format!("file:{far}");
    let said = [side.as_str(), &far, "moved", "with protection", "user.lunwire.beside"];
    let warned = |text: &str, how: bool| {
        for part in said {
            assert_eq!(text.contains(part) && text.contains("had protection"), how, "{text}");
        }
    };
    let checked = |how| {
        let output = good(&["check", &configuration(&files, &format!("store = \"{store}\""))]);
        warned(&format!("{}{}", stdout(&output), stderr(&output)), how);
    };
    checked(true);
    drop(Daemon::start_logged(files.folder.path(), &[&store], &[]));
    warned(&Daemon::told(files.folder.path(), "had protection information"), true);
    warned(&stderr(&good(&["copy", &image, &far, "--overwrite"])), true);
    // What is not written to does no harm.
    good(&["check", &configuration(&files, &format!("store = \"{store},readonly\""))]);
    // As it says.
    let file = std::fs::File::open(&far).unwrap();
    rustix::fs::fremovexattr(&file, "user.lunwire.beside").unwrap();
    checked(false);
    warned(&stderr(&good(&["copy", &image, &far, "--overwrite"])), false);
}

#[test]
fn a_block_that_was_changed_behind_our_back_is_told_in_the_log() {
    let files = Files::new();
    let (folder, store) = (files.folder.path(), protected(&files));
    let disk = std::fs::File::options().write(true).open(files.path("disk")).unwrap();
    disk.write_all_at(b"changed", 1024).unwrap();
    let daemon = Daemon::start_logged(folder, &[&store], &["--protection", "1"]);
    fails(1, &["read", &daemon.urls[0], &files.path("back")], &["10"]);
    let line = Daemon::told(folder, "is not what was written");
    for part in ["WARN", "target=\"iqn.2026-01.local.lunwire:disk\"", "lun=0", "block=2", "guard"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn a_store_that_fails_is_named() {
    let files = Files::new();
    let (folder, path) = (files.folder.path(), files.with("disk", &[7; 1 << 16]));
    let daemon = Daemon::start_logged(folder, &["memory:1M", &format!("file:{path}")], &[]);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    fails(1, &["read", &daemon.urls[1], &files.path("back")], &[]);
    let line = Daemon::told(folder, "a store has failed");
    let named = format!("path=\"{path}\"");
    let target = "target=\"iqn.2026-01.local.lunwire:disk\" lun=1";
    for part in ["WARN", target, &named, "error=\"unreadable\"", "cause=\"the file ends before"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn a_file_that_is_deleted_while_it_is_served_is_told() {
    let files = Files::new();
    let (folder, path) = (files.folder.path(), files.with("disk", &[7; 1 << 16]));
    let other = files.with("other", &[7; 1 << 16]);
    let stores = [format!("file:{path}"), format!("file:{other},readonly"), "memory:1M".into()];
    let stores: Vec<&str> = stores.iter().map(String::as_str).collect();
    let daemon = Daemon::start_logged(folder, &stores, &[]);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(files.path("new"), [8; 1 << 16]).unwrap();
    std::fs::rename(files.path("new"), &other).unwrap();
    for (how, path, lun) in [("deleted", &path, 0), ("replaced", &other, 1)] {
        let line = Daemon::told(folder, &format!("the file of a disk was {how}"));
        for part in ["WARN", &format!("path=\"{path}\""), &format!("lun={lun}"), "lunwire copy"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    let socket = ["--control-socket", daemon.socket.as_str()];
    let text = stdout(&good(&[&["status"][..], &socket].concat()));
    assert!(text.contains("its file was deleted") && text.contains("was replaced"), "{text}");
    let output = good(&[&["status", "--json"][..], &socket].concat());
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let lost = |lun: usize| told["targets"][0]["luns"][lun]["file_lost"].as_str();
    assert_eq!([lost(0), lost(1), lost(2)], [Some("deleted"), Some("replaced"), None]);
    // It is told once.
    good(&[&["lun", "rescan"][..], &socket].concat());
    let log = std::fs::read_to_string(folder.join("log")).unwrap();
    assert_eq!(log.matches("the file of a disk was deleted").count(), 1, "{log}");
}
