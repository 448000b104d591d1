// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What people are told who serve disks: of what they may not have meant, and what to do about what
//! does not work.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::fails;
use crate::support::good;
use crate::support::stderr;
use crate::support::stdout;

const TABLE: &str = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n";
const LUN: &str = "[[target.lun]]\nstore = \"memory:1M\"\n";

/// What `lunwire check` says of a configuration that is good.
#[track_caller]
fn warned(files: &Files, text: &str) -> String {
    let file = files.with("good.toml", text.as_bytes());
    stderr(&good(&["check", &file]))
}

#[test]
fn a_disk_for_everybody_is_warned_of() {
    let files = Files::new();
    let secret = files.with("secret", b"secret of the host");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let chap = format!("chap-user = \"a\"\nchap-secret-file = \"{secret}\"\n");
    let initiator = "[[target.initiator]]\nname = \"iqn.2026-01.com.example:h\"\n";
    let open = "can be used by everybody";
    for (listen, more, warns) in [
        ("0.0.0.0:0", "", true),
        ("[::]:0", "", true),
        ("127.0.0.1:0", "", false),
        ("0.0.0.0:0", initiator, false),
        ("0.0.0.0:0", &*chap, false),
    ] {
        // The keys of a target stand before its tables.
        let text = match more.starts_with('[') {
            true => format!("listen = [\"{listen}\"]\n{TABLE}{LUN}{more}"),
            false => format!("listen = [\"{listen}\"]\n{TABLE}{more}{LUN}"),
        };
        let said = warned(&files, &text);
        assert_eq!(said.contains(open), warns, "{text}: {said}");
        assert_eq!(said.contains("iqn.2026-01.com.example:a"), warns, "{text}: {said}");
    }
    let group = "[[portal-group]]\ntag = 2\nlisten = [\"0.0.0.0:0\"]\n";
    let said = warned(&files, &format!("{group}{TABLE}{LUN}"));
    assert!(said.contains(open), "{said}");
    let none = format!("file:{}", files.path("none"));
    let serve = ["serve", "--listen", "0.0.0.0:0", "--lun", &none];
    fails(1, &serve, &["WARN", open, "iqn.2026-01.local.lunwire:disk"]);
}

/// As a user who owns nothing, where the test runs as root.
fn as_nobody(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lunwire"));
    command.args(arguments);
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    stderr(&output)
}

#[test]
fn a_folder_without_permission_is_blamed() {
    let files = Files::new();
    let folder = files.folder.path();
    let of_mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(folder, of_mode(0o555)).unwrap();
    let serve = |store: &str| as_nobody(&["serve", "--listen", "127.0.0.1:0", "--lun", store]);
    let new = files.path("new.img");
    let text = serve(&format!("file:{new},size=1M"));
    assert!(text.contains(&format!("its folder {}", folder.display())), "{text}");
    assert!(!text.contains("read-only") && !text.contains("to open"), "{text}");
    let text = serve(&format!("file:{new},readonly"));
    assert!(text.contains("does not exist") && !text.contains("without readonly"), "{text}");
    std::fs::set_permissions(folder, of_mode(0o000)).unwrap();
    for store in [format!("file:{new}"), format!("file:{new},readonly")] {
        let text = serve(&store);
        assert!(text.contains("chmod +x the folders above it"), "{text}");
    }
    std::fs::set_permissions(folder, of_mode(0o700)).unwrap();
}

#[test]
fn a_secret_in_the_configuration_is_told_where_it_belongs() {
    let files = Files::new();
    for (key, file) in [
        ("chap-secret", "chap-secret-file"),
        ("chap-password", "chap-secret-file"),
        ("mutual-secret", "mutual-secret-file"),
        ("password", "chap-secret-file"),
    ] {
        for table in [TABLE, "[discovery]\n"] {
            let text = format!("{table}{key} = \"verysecretindeed\"\n");
            let path = files.with("wrong.toml", text.as_bytes());
            let output = crate::support::lunwire(&["check", &path]);
            let said = stderr(&output);
            assert!(said.contains(&format!("{file} = \"/path\"")), "{said}");
            assert!(!said.contains("did you mean") && !said.contains("verysecret"), "{said}");
        }
    }
    let path = files.with("near.toml", format!("{TABLE}chap-secret-fiel = \"/x\"\n").as_bytes());
    fails(1, &["check", &path], &["did you mean `chap-secret-file`?"]);
}

#[test]
fn an_ipv6_address_needs_its_brackets() {
    let url = "iscsi://2001:db8::1234:5678/iqn.2026-01.com.example:a/0";
    fails(2, &["discover", "::1"], &["PORTAL ::1", "brackets: [::1]"]);
    fails(2, &["discover", "::1:3260"], &["[::1]:3260"]);
    fails(2, &["inspect", url], &[url, "brackets: [2001:db8::1234:5678]"]);
    let good = "iscsi://[::1]:1/iqn.2026-01.com.example:a/0";
    fails(2, &["inspect", good, "--portal", "::1"], &["--portal ::1", "brackets: [::1]"]);
}

#[test]
fn a_state_folder_is_not_made_where_nothing_is() {
    let files = Files::new();
    let (state, folder) = (files.path("srv/state"), files.path("srv"));
    let advice = format!("the folder {folder} does not exist; try: mkdir -p {folder}");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--lun", "memory:1M", "--state-dir", &state];
    fails(1, &serve, &[&advice]);
    let file = files.with("state.toml", format!("state-dir = \"{state}\"\n").as_bytes());
    fails(1, &["check", &file], &["state-dir", &advice]);
    assert!(!std::path::Path::new(&folder).exists());
}

#[test]
fn every_result_for_a_program_says_that_it_is_one() {
    let files = Files::new();
    let disk = format!("file:{},size=1M", files.path("disk"));
    let daemon = Daemon::start(files.folder.path(), &["memory:1M", &disk], &[]);
    let config = files.with("good.toml", format!("{TABLE}{LUN}").as_bytes());
    let (image, back) = (files.with("image", &[7; 512]), files.path("back"));
    let (url, portal) = (daemon.urls[0].as_str(), daemon.portal());
    let socket = ["--control-socket", daemon.socket.as_str()];
    let asked = |words: &[&str], more: &[&str]| {
        let output = good(&[words, &["--json"], more].concat());
        for line in stdout(&output).lines() {
            let told: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(told["ok"], serde_json::Value::Bool(true), "{words:?}: {line}");
        }
        assert!(!output.stdout.is_empty(), "{words:?}");
    };
    for words in [
        &["status"][..],
        &["sessions"],
        &["alua"],
        &["lun", "add", "memory:1M"],
        &["lun", "resize", "1", "2M"],
        &["lun", "rescan"],
        &["lun", "remove", "2"],
        &["top", "--interval", "10ms", "--count", "2"],
    ] {
        asked(words, &socket);
    }
    for words in [
        &["check", &config][..],
        &["explain"],
        &["lab", "list"],
        &["discover", portal],
        &["inspect", url],
        &["write", url, &image],
        &["read", url, &back],
        &["copy", url, &back, "--overwrite"],
        &["bench", url, "--time", "50ms"],
    ] {
        asked(words, &[]);
    }
}

#[test]
fn advice_suits_what_is_to_be_served() {
    let files = Files::new();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--control-socket", &files.path("other")];
    let disc = format!("iso:{}", files.path("none.iso"));
    let said = |store: &str| {
        let output = crate::support::lunwire(&[&serve[..], &["--lun", store]].concat());
        assert_eq!(output.status.code(), Some(1), "{store}");
        stderr(&output)
    };
    let text = said(&disc);
    assert!(text.contains("does not exist") && !text.contains("readonly"), "{text}");
    let text = said(&format!("file:{}", files.with("passwd", &[b'x'; 1200])));
    assert!(text.contains("try: another file, or truncate -s 1536"), "{text}");
}
