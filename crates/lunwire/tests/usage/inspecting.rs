// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `inspect` shows what it can: of a disk that others have reserved, and of what is no disk.

use std::process::Command;
use std::process::Stdio;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::TARGET;
use crate::support::fails;
use crate::support::good;
use crate::support::stderr;
use crate::support::stdout;

/// PERSISTENT RESERVE OUT parameters: key, and the key to register.
fn parameters(key: u64, new: u64) -> Vec<u8> {
    [&key.to_be_bytes()[..], &new.to_be_bytes(), &[0; 8]].concat()
}

#[test]
fn a_disk_that_others_have_reserved_is_shown() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
    let url = daemon.urls[0].as_str();
    let register = files.with("register", &parameters(0, 0xabc));
    let reserve = files.with("reserve", &parameters(0xabc, 0));
    let script = format!(
        "login {url}\nscsi 5f 00 00 00 00 00 00 00 18 00 out {register}\n\
         scsi 5f 01 03 00 00 00 00 00 18 00 out {reserve}\n"
    );
    let script = files.with("script", script.as_bytes());
    good(&["shell", &script, "--initiator", "iqn.2026-01.local.lunwire:holder"]);
    let said = "another host has reserved the disk; try: lunwire inspect";
    fails(1, &["read", url, &files.path("out"), "--quiet"], &[said]);
    let text = stdout(&good(&["inspect", url]));
    for part in ["8 MiB", "by 0x0000000000000abc", "ExclusiveAccess", "write cache"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let told: serde_json::Value =
        serde_json::from_str(&stdout(&good(&["inspect", url, "--json"]))).unwrap();
    assert_eq!(told["reservation"]["key"], "0x0000000000000abc", "{told}");
    assert_eq!(told["bytes"], 8 << 20, "{told}");
}

#[test]
fn what_is_no_disk_is_shown() {
    let files = Files::new();
    let image = files.with("image.iso", &vec![0; 1 << 20]);
    let daemon = Daemon::start(files.folder.path(), &[&format!("iso:{image}")], &[]);
    let url = daemon.urls[0].as_str();
    let text = stdout(&good(&["inspect", url]));
    for part in ["CD or DVD (05h)", "1 MiB (1048576 bytes)", "512 of 2048 bytes", "naa."] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let told: serde_json::Value =
        serde_json::from_str(&stdout(&good(&["inspect", url, "--json"]))).unwrap();
    assert_eq!((&told["device_type"], &told["blocks"]), (&5.into(), &512.into()), "{told}");
    fails(1, &["read", url, &files.path("out")], &["CD or DVD", "try: lunwire inspect"]);
    let absent = url.replace("disk/0", "disk/7");
    fails(1, &["inspect", &absent], &["no such logical unit", "LUNs that are there: 0"]);
}

#[test]
fn the_units_of_a_target_are_listed() {
    let files = Files::new();
    let disk = format!("file:{},size=2M", files.path("disk"));
    let luns = ["memory:1M,readonly", &*disk];
    let daemon = Daemon::start(files.folder.path(), &luns, &["--serial", "one", "--serial", "two"]);
    let target = daemon.urls[0].strip_suffix("/0").unwrap();
    let text = stdout(&good(&["inspect", target]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    for (line, parts) in [
        (lines[1], ["0 ", "1 MiB", "disk (00h)", "read only", "one", "naa."]),
        (lines[2], ["1 ", "2 MiB", "disk (00h)", "read, write", "two", "naa."]),
    ] {
        parts.iter().for_each(|part| assert!(line.contains(part), "{part}: {text}"));
    }
    let told = good(&["inspect", target, "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!((&told["ok"], &told["target"]), (&true.into(), &TARGET.into()));
    let second = &told["luns"][1];
    assert_eq!((&second["lun"], &second["bytes"]), (&1.into(), &(2 << 20).into()), "{told}");
    assert_eq!((&second["serial"], &second["read_only"]), (&"two".into(), &false.into()));
    let whole = good(&["inspect", &daemon.urls[1], "--json"]);
    let whole: serde_json::Value = serde_json::from_slice(&whole.stdout).unwrap();
    assert_eq!(whole["designators"][0], second["designator"], "{told}");
    // Who needs one hears how to find it.
    let advice = format!("try: lunwire inspect {target}, which shows those that are there");
    fails(2, &["read", target], &["the LUN is missing", &advice]);
}

#[test]
fn who_loses_a_unit_hears_where_those_are_that_are_left() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M", "memory:64M,delay=200ms"], &[]);
    let copy = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["copy", &daemon.urls[1], &files.path("out"), "--quiet"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    daemon.await_work();
    good(&["lun", "remove", "1", "--control-socket", &daemon.socket, "--destroy-data"]);
    let text = stderr(&copy.wait_with_output().unwrap());
    let target = daemon.urls[0].strip_suffix("/0").unwrap();
    assert!(text.contains("the logical unit has vanished"), "{text}");
    assert!(text.contains(&format!("try: lunwire inspect {target}, which")), "{text}");
}
