// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Advice that leads somewhere: it names what is wrong and not what stands beside it, keeps what
//! was written, and can be pasted.

use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::fails;
use crate::support::good;
use crate::support::lunwire;
use crate::support::stderr;
use crate::support::stdout;

const TABLE: &str = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n";

/// What `lunwire check` says of a configuration that is wrong.
#[track_caller]
fn checked(files: &Files, text: &str) -> String {
    let file = files.with("wrong.toml", text.as_bytes());
    let output = lunwire(&["check", &file]);
    assert_eq!(output.status.code(), Some(1), "{text}: {}", stdout(&output));
    stderr(&output)
}

/// What a command says that ends with `code`.
#[track_caller]
fn said(code: i32, words: &[&str]) -> String {
    let output = lunwire(words);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
    text
}

/// Where this machine lacks something, nobody asks whether the other one has it.
#[test]
fn what_is_missing_here_is_not_looked_for_there() {
    for (url, wanted) in [
        ("ether://02:00:5e:10:00:01%nothing0/iqn.2026-01.com.example:a/0", ["ip link", "as root"]),
        ("iser://127.0.0.1:1/iqn.2026-01.com.example:a/0?provider=verbs", ["apt-get", "modprobe"]),
    ] {
        let told = said(1, &["inspect", url, "--patience", "0s"]);
        assert!(wanted.iter().any(|words| told.contains(&format!("; try: {words}"))), "{told}");
        assert!(!told.contains("running there"), "{told}");
    }
}

#[test]
fn a_target_without_chap_may_be_why_mutual_chap_fails() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let (own, theirs) = (files.with("own", b"secret of the host"), files.with("its", &[b'x'; 16]));
    let words = ["inspect", &daemon.urls[0], "--chap-user", "a", "--chap-secret-file", &own];
    let mutual = ["--mutual-user", "b", "--mutual-secret-file", &theirs];
    let text = said(1, &[&words[..], &mutual].concat());
    assert!(text.contains("0201") && text.contains("may not use CHAP"), "{text}");
    // Who asked for proofs is not told to do without them.
    assert!(!text.contains("without --"), "{text}");
    assert!(!text.contains("?;"), "{text}");
}

#[test]
fn who_asks_for_a_unit_that_is_not_there_hears_which_are() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M", "memory:1M"], &[]);
    let (image, disk) = (files.with("image", &[0; 512]), daemon.urls[0].as_str());
    let (missing, back) = (disk.replace(":disk/0", ":disk/7"), files.path("back"));
    for words in [
        &["inspect", &missing][..],
        &["write", &missing, &image],
        &["read", &missing, &back],
        &["copy", &missing, &back],
        &["copy", disk, &missing],
        &["bench", &missing],
    ] {
        let text = said(1, words);
        assert!(text.contains("no such logical unit"), "{text}");
        assert!(text.contains("LUNs that are there: 0, 1"), "{text}");
        assert!(!text.contains("try: lunwire inspect"), "{text}");
    }
}

#[test]
fn who_may_not_ask_a_daemon_hears_who_may() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let mut status = Command::new(env!("CARGO_BIN_EXE_lunwire"));
    status.args(["status", "--control-socket", &daemon.socket]);
    if rustix::process::geteuid().is_root() {
        status.uid(65534).gid(65534);
    } else {
        let none = std::os::unix::fs::PermissionsExt::from_mode(0o000);
        std::fs::set_permissions(&daemon.socket, none).unwrap();
    }
    let text = stderr(&status.output().unwrap());
    assert!(text.contains("as root, or as the user that it runs as"), "{text}");
    assert!(!text.contains("try: lunwire serve"), "{text}");
    let plain = files.with("plain", b"");
    let text = said(1, &["status", "--control-socket", &plain]);
    assert!(text.contains("is no socket") && !text.contains("lunwire serve"), "{text}");
    let none = files.path("none");
    let serve = format!("try: lunwire serve --control-socket {none}");
    fails(1, &["status", "--control-socket", &none], &[&serve]);
}

#[test]
fn check_warns_of_what_serve_warns_of() {
    let files = Files::new();
    let disk = files.with("disk", &[0; 1 << 16]);
    let secret = files.with("secret", b"secret of the host");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&secret, open).unwrap();
    let text = format!(
        "{TABLE}chap-user = \"a\"\nchap-secret-file = \"{secret}\"\n\
         [[target.lun]]\nstore = \"file:{disk},size=1M\"\n"
    );
    let file = files.with("odd.toml", text.as_bytes());
    let text = stderr(&good(&["check", &file]));
    assert!(text.contains(&disk) && text.contains("size="), "{text}");
    let told: Value = serde_json::from_slice(&good(&["check", &file, "--json"]).stdout).unwrap();
    let warnings = told["warnings"].as_array().unwrap();
    let warned = |what: &str| warnings.iter().any(|text| text.as_str().unwrap().contains(what));
    assert!(warnings.len() == 2 && warned("chmod 600") && warned("65536"), "{told}");
    let fine = files
        .with("fine.toml", format!("{TABLE}[[target.lun]]\nstore = \"memory:1M\"\n").as_bytes());
    let told: Value = serde_json::from_slice(&good(&["check", &fine, "--json"]).stdout).unwrap();
    assert_eq!(told["warnings"], Value::Array(Vec::new()), "{told}");
}

#[test]
fn a_folder_that_is_missing_is_blamed() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let (folder, path) = (files.path("nodir"), files.path("nodir/ro.img"));
    let blamed = format!("the folder {folder} does not exist; try: mkdir -p {folder}");
    for store in [format!("file:{path},readonly"), format!("file:{path}")] {
        let text = checked(&files, &format!("{TABLE}[[target.lun]]\nstore = \"{store}\"\n"));
        assert!(text.contains(&blamed), "{text}");
        let text = said(1, &["serve", "--listen", "127.0.0.1:0", "--lun", &store]);
        assert!(text.contains(&blamed) && !text.contains("size=10G"), "{text}");
        fails(1, &["lun", "add", &store, "--control-socket", &daemon.socket], &[&blamed]);
    }
    // What is only read is not made.
    let none = format!("file:{},readonly", files.path("none"));
    let text = said(1, &["serve", "--listen", "127.0.0.1:0", "--lun", &none]);
    assert!(text.contains("does not exist") && !text.contains("size=10G"), "{text}");
}

#[test]
fn a_file_that_is_served_elsewhere_can_be_shared_for_reading() {
    let files = Files::new();
    let disk = files.with("disk", &[0; 4096]);
    let _daemon = Daemon::start(files.folder.path(), &[&format!("file:{disk},readonly")], &[]);
    let store = format!("file:{disk}");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--lun", &store];
    let text = said(1, &serve);
    assert!(text.contains("in use by process") && text.contains("readonly in each"), "{text}");
    let source = files.with("source", &[0; 4096]);
    let text = said(1, &["copy", &source, &disk, "--overwrite"]);
    assert!(text.contains("in use by process") && !text.contains("readonly"), "{text}");
}

#[test]
fn a_start_that_fails_leaves_no_files() {
    let files = Files::new();
    let (disk, empty) = (files.path("made"), files.with("empty", b""));
    let store = format!("file:{disk},size=1M");
    let is_there =
        || [&disk, &format!("{disk}.pi")].map(|path| std::path::Path::new(path).exists());
    let socket = files.path("control");
    let with = |socket: &str, more: &[&str]| {
        said(1, &[&["serve", "--control-socket", socket, "--lun", &store], more].concat());
    };
    with(&socket, &["--listen", "127.0.0.1:0", "--lun", &format!("file:{empty}")]);
    assert_eq!(is_there(), [false, false]);
    with(&socket, &["--listen", "192.0.2.1:3260", "--protection", "1"]);
    assert_eq!(is_there(), [false, false]);
    with(&empty, &["--listen", "127.0.0.1:0"]);
    assert_eq!(is_there(), [false, false]);
    // What was there before stays.
    std::fs::write(&disk, [0; 4096]).unwrap();
    with(&socket, &["--listen", "192.0.2.1:3260"]);
    assert_eq!(is_there(), [true, false]);
    std::fs::remove_file(&disk).unwrap();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M", &store], &[]);
    assert_eq!(is_there(), [true, false]);
    drop(daemon);
    assert_eq!(is_there(), [true, false]);
}

#[test]
fn a_value_is_shown_as_the_file_has_it() {
    let files = Files::new();
    for (text, said) in [
        ("login-timeout = 15\n", "login-timeout = 15: invalid type: integer `15`"),
        ("login-timeout = 15\n", "for example login-timeout = \"15s\""),
        ("spin = 100\n", "for example spin = \"100us\""),
        ("engine = 1\n", "for example engine = \"auto\""),
        ("isns = 1\n", "for example isns = \"isns.example.com:3205\""),
        ("listen = 3260\n", "for example listen = [\"127.0.0.1:3260\"]"),
        ("cpus = 1\n", "for example cpus = [1]"),
        ("reactors = 0\n", "reactors = 0: "),
        ("reactors = \"3\"\n", "reactors = \"3\": "),
        ("engine = 'steam'\n", "engine = 'steam': "),
        ("spin = \"a\\tb\"\n", "spin = \"a\\tb\": "),
    ] {
        let problem = checked(&files, text);
        assert!(problem.contains(said), "{text}: {problem}");
    }
    for (lun, said) in [("number = 20000", "number = 20000: "), ("block = 1024", "block = 1024: ")]
    {
        let text = format!("{TABLE}[[target.lun]]\nstore = \"memory:1M\"\n{lun}\n");
        let problem = checked(&files, &text);
        assert!(problem.contains(said), "{text}: {problem}");
    }
}

#[test]
fn what_is_near_to_toml_is_put_right() {
    let files = Files::new();
    let lun = "store = \"memory:1M\"\n";
    let twice = format!("{TABLE}[target.lun]\n{lun}[target.lun]\n{lun}");
    let once = format!("{TABLE}[target.lun]\n{lun}");
    for text in [&twice, &once] {
        let problem = checked(&files, text);
        assert!(problem.contains("[[target.lun]]"), "{problem}");
    }
    let problem = checked(&files, "[target]\nname = \"iqn.2026-01.com.example:a\"\n");
    assert!(problem.contains("[[target]]"), "{problem}");
    let problem = checked(&files, "[[target]]\nname = iqn.host3\n");
    assert!(problem.contains("name = \"iqn.host3\""), "{problem}");
    assert!(!problem.contains("float"), "{problem}");
    let problem = checked(&files, "[[target]]\nchap-user = me\nchap-secret-file = topsecret\n");
    assert!(problem.contains("in quotes") && !problem.contains("topsecret"), "{problem}");
    let masked = "[[target.lun]]\nstore = \"memory:1M\"\n[[target.lun]]\nstore = \"memory:1M\"\n\
                  number = 3\n[[target.initiator]]\nname = \"iqn.2026-01.com.example:h\"\n\
                  luns = [0, 1, 5]\n";
    let problem = checked(&files, &format!("{TABLE}{masked}"));
    assert!(problem.contains("luns = 1: no such LUN; there are 0, 3"), "{problem}");
}

#[test]
fn a_character_that_is_wrong_in_a_serial_number_is_named() {
    fails(2, &["lun", "add", "memory:8M", "--serial", "a b"], &["' ' is none", "1 to 32"]);
    fails(2, &["lun", "add", "memory:8M", "--serial", "d\u{e9}j\u{e0}"], &["'\u{e9}' is none"]);
    let long = "x".repeat(33);
    fails(2, &["lun", "add", "memory:8M", "--serial", &long], &["it has 33"]);
}

#[test]
fn a_secret_file_that_is_missing_is_not_shown_and_that_is_said() {
    let files = Files::new();
    for key in ["chap-secret-file", "chap-secret-env"] {
        let text = format!(
            "{TABLE}chap-user = \"a\"\n{key} = \"/no/such/place\"\n\
             [[target.lun]]\nstore = \"memory:1M\"\n"
        );
        let problem = checked(&files, &text);
        assert!(problem.contains("may be the secret itself"), "{problem}");
        assert!(!problem.contains("/no/such/place"), "{problem}");
    }
    let url = "iscsi://127.0.0.1:1/iqn.2026-01.com.example:a/0";
    let words = ["inspect", url, "--chap-user", "a", "--chap-secret-file", "/no/such/place"];
    fails(2, &words, &["may be the secret itself", "try: the path of a file"]);
}

#[test]
fn discovery_says_at_once_what_it_waits_for() {
    let text = said(1, &["discover", "nosuchhost.invalid", "--patience", "2s"]);
    assert_eq!(text.matches("trying to reach the target").count(), 1, "{text}");
    let text = said(1, &["discover", "127.0.0.1:1", "--patience", "2s"]);
    assert_eq!(text.matches("trying to reach the target").count(), 1, "{text}");
}

#[test]
fn a_disk_that_is_served_already_is_named() {
    let files = Files::new();
    let disk = files.with("disk", &[0; 4096]);
    let store = format!("file:{disk}");
    let daemon = Daemon::start(files.folder.path(), &["memory:1M", &store], &[]);
    std::fs::hard_link(&disk, files.path("link")).unwrap();
    for store in [store.clone(), format!("file:{}", files.path("link"))] {
        let words = ["lun", "add", &store, "--control-socket", &daemon.socket];
        let text = said(1, &words);
        assert!(text.contains("it is LUN 1 of iqn.2026-01.local.lunwire:disk"), "{text}");
    }
    let other = files.path("other");
    let words = ["serve", "--listen", "127.0.0.1:0", "--control-socket", &other];
    let new = format!("file:{},size=1M", files.path("new"));
    fails(1, &[&words[..], &["--lun", &new, "--lun", &new]].concat(), &["it is LUN 0 of"]);
}

#[test]
fn protection_is_shown() {
    let files = Files::new();
    let disk = format!("file:{},size=1M", files.path("disk"));
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let socket = ["--control-socket", daemon.socket.as_str()];
    let words = ["lun", "add", &disk, "--protection", "1"];
    let text = stdout(&good(&[&words[..], &socket].concat()));
    assert!(text.contains("protection type 1"), "{text}");
    let text = stdout(&good(&[&["status"][..], &socket].concat()));
    assert_eq!(text.matches("protection type 1").count(), 1, "{text}");
    let output = good(&[&["status", "--json"][..], &socket].concat());
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let luns = &told["targets"][0]["luns"];
    assert_eq!((&luns[0]["protection"], &luns[1]["protection"]), (&Value::Null, &1.into()));
}

#[test]
fn there_is_one_piece_of_advice() {
    let files = Files::new();
    let (folder, socket) = (files.path("no"), files.path("no/socket"));
    let config = format!("control-socket = \"{socket}\"\n");
    let file = files.with("lunwire.toml", config.as_bytes());
    for words in [
        &["check", &file][..],
        &["serve", "--listen", "127.0.0.1:0", "--lun", "memory:1M", "--control-socket", &socket],
    ] {
        let text = said(1, words);
        assert_eq!(text.matches("try: ").count(), 1, "{text}");
        assert!(text.trim_end().ends_with(&format!("try: mkdir -p {folder}")), "{text}");
    }
}

#[test]
fn one_slash_is_one_too_few() {
    let files = Files::new();
    let image = files.with("image", &[0; 512]);
    let meant = "did you mean iscsi://127.0.0.1/x/0?";
    for words in [
        ["copy", &image, "iscsi:/127.0.0.1/x/0"],
        ["copy", "iscsi:/127.0.0.1/x/0", &image],
        ["write", "iscsi:/127.0.0.1/x/0", &image],
    ] {
        fails(2, &words, &[meant]);
    }
    fails(2, &["inspect", "iscsi:/127.0.0.1/x/0"], &[meant]);
}

#[test]
fn examples_are_many_and_revisions_whole() {
    let help = stdout(&good(&["session", "--help"]));
    assert!(help.contains("Examples:\n  lunwire session logout 3"), "{help}");
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let output = good(&["inspect", &daemon.urls[0], "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let revision = told["revision"].as_str().unwrap();
    assert!(!revision.ends_with('.'), "{revision}");
    assert!(env!("CARGO_PKG_VERSION").starts_with(revision), "{revision}");
}
