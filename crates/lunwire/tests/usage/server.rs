// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What people are told who serve disks: of what they may not have meant, and what to do about what
//! does not work.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::TARGET;
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

/// The figures of a daemon are of no use to who measures another one.
#[test]
fn the_layers_of_another_daemon_are_refused() {
    let folders = [Files::new(), Files::new()];
    let [here, there] =
        folders.each_ref().map(|files| Daemon::start(files.folder.path(), &["memory:1M"], &[]));
    let words = ["bench", &here.urls[0], "--time", "50ms", "--layers", "--control-socket"];
    let said = [&there.socket, "does not serve this session with", TARGET, "; try: "];
    fails(1, &[&words[..], &[&there.socket]].concat(), &said);
    good(&[&words[..], &[&here.socket]].concat());
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
        ("0.0.0.0:0", initiator, true),
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
        // Names are no defence, and not recommended as one.
        assert_eq!(said.contains("nobody has to prove"), more == initiator, "{text}: {said}");
        assert!(!said.contains("[[target.initiator]]"), "{said}");
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

#[test]
fn port_groups_that_nobody_has_configured_are_shown() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let socket = ["--control-socket", daemon.socket.as_str()];
    let text = stdout(&good(&[&["alua"][..], &socket].concat()));
    assert!(
        text.contains("LUN 0: group 1 (portal groups 1) is active-optimized, always"),
        "{text}"
    );
    let set = ["alua", "set", TARGET, "1", "standby"];
    fails(1, &[&set[..], &socket].concat(), &["[[target.port-group]]", "always active"]);
}

#[test]
fn who_gives_no_length_does_not_hear_of_it() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let (url, image) = (daemon.urls[0].as_str(), files.with("image", &[7; 512]));
    let back = files.path("back");
    for words in
        [&["write", url, &image, "--offset", "1000"][..], &["read", url, &back, "--offset", "2G"]]
    {
        let output = crate::support::lunwire(words);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("--offset: ") && !text.contains("--length"), "{text}");
    }
    let words = ["read", url, &back, "--offset", "0", "--length", "100"];
    fails(2, &words, &["--offset and --length"]);
}

/// That is wrong usage, as it is where a disk is read.
#[test]
fn who_writes_over_the_end_hears_where_that_is() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let (url, image) = (daemon.urls[0].as_str(), files.with("image", &[7; 64 << 10]));
    let said = ["--offset 1000K: the range ends at byte 1089536, the disk at byte 1048576"];
    fails(2, &["write", url, &image, "--offset", "1000K"], &said);
    let said = ["--offset 1M: the disk ends at byte 1048576"];
    fails(2, &["write", url, "--offset", "1M"], &said);
    good(&["write", url, &image, "--offset", "960K", "--quiet"]);
}

#[test]
fn memory_with_data_is_not_removed_without_a_word() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M", "memory:1M", "memory:1M"], &[]);
    let remove = |lun: &str, more: &[&str]| {
        let words = [&["lun", "remove", lun, "--control-socket", &daemon.socket][..], more];
        crate::support::lunwire(&words.concat())
    };
    good(&["write", &daemon.urls[1], &files.with("image", &[7; 512])]);
    assert!(remove("0", &[]).status.success(), "it is empty");
    let refused = remove("1", &[]);
    let text = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("--destroy-data") && text.contains("in memory"), "{text}");
    good(&["inspect", &daemon.urls[1]]);
    assert!(remove("1", &["--destroy-data"]).status.success());
}

#[test]
fn what_is_shown_of_a_disk_leads_to_it() {
    let files = Files::new();
    let folder = files.folder.path();
    files.with("disk", &[7; 4096]);
    let socket = files.path("control");
    let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["serve", "--listen", "127.0.0.1:0", "--lun", "file:disk,log"])
        .args(["--control-socket", &socket])
        .current_dir(folder)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let text = stdout(&good(&["status", "--control-socket", &socket]));
    // Who copies to what is served is told where it can be written to.
    let source = files.with("source", &[7; 4096]);
    let copied = crate::support::lunwire(&["copy", &source, &files.path("disk"), "--overwrite"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(text.contains(&format!("file:{},log (4 KiB", files.path("disk"))), "{text}");
    let text = stderr(&copied);
    assert!(text.contains("lunwire copy to the URL of the disk"), "{text}");
}

#[test]
fn a_number_that_is_given_twice_is_shown_itself() {
    let files = Files::new();
    let lun = "[[target.lun]]\nnumber = 3\nstore = \"memory:1M\"\n";
    let file = files.with("twice.toml", format!("{TABLE}{lun}{lun}").as_bytes());
    fails(1, &["check", &file], &[":7: ", "target.lun.number = 3: LUN 3 is there already"]);
}

#[test]
fn a_load_is_bounded_by_its_disk_and_tells_how_far_it_is() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M", "memory:2K"], &[]);
    let url = daemon.urls[0].as_str();
    fails(2, &["bench", url, "--range", "1T"], &["--range", "has 1 MiB"]);
    fails(2, &["bench", &daemon.urls[1]], &["--block 4096: the disk has 2048 bytes"]);
    fails(2, &["bench", url, "--reads", "150"], &["--reads 150: 0 to 100 is right"]);
    let text = stderr(&good(&["bench", url, "--time", "6s"]));
    assert!(text.contains("measured: 5 of 6 s") && text.contains("commands/s"), "{text}");
}

#[test]
fn a_unit_in_standby_is_told_where_else_to_be_tried() {
    let files = Files::new();
    let (config, socket) = (files.path("standby.toml"), files.path("control"));
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n{TABLE}{LUN}[[target.port-group]]\nnumber = 1\n\
         portal-groups = [1]\nstate = \"standby\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["serve", "--config", &config, "--control-socket", &socket])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let url = line.trim().strip_prefix("serving ").unwrap().to_owned();
    let read = crate::support::lunwire(&["read", &url, &files.path("back")]);
    child.kill().unwrap();
    child.wait().unwrap();
    let text = stderr(&read);
    assert!(!read.status.success() && text.contains("try: --portal"), "{text}");
}

#[test]
fn check_tells_all_that_is_wrong() {
    let files = Files::new();
    let (none, empty) = (files.path("none"), files.with("empty", b""));
    let text = format!(
        "state-dir = \"{none}/state\"\n{TABLE}[[target.lun]]\nstore = \"file:{none}\"\n{LUN}\
         [[target.lun]]\nstore = \"file:{empty}\"\n"
    );
    let file = files.with("wrong.toml", text.as_bytes());
    let said = [&format!("{none} does not exist"), &*format!("{empty} is empty"), "state-dir"];
    fails(1, &["check", &file], &said);
    let output = crate::support::lunwire(&["check", &file, "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let errors = told["errors"].as_array().unwrap();
    assert!(errors.len() == 3 && told["error"] == errors[0] && told["ok"] == false, "{told}");
    for (error, part) in errors.iter().zip(said) {
        assert!(error.as_str().unwrap().contains(part), "{part}: {told}");
    }
}

#[test]
fn a_disk_keeps_the_protection_that_it_was_made_with() {
    let files = Files::new();
    let folder = files.folder.path();
    let lun = format!("file:{},size=1M", files.path("disk"));
    drop(Daemon::start(folder, &[&lun], &["--protection", "1"]));
    let _daemon = Daemon::start_logged(folder, &[&lun], &["--protection", "2"]);
    let said = Daemon::told(folder, "protection type 1");
    assert!(said.contains("keeps it") && said.contains("the 2 of the configuration"), "{said}");
    assert!(!said.contains("by a host:"), "{said}");
}
