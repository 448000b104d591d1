// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How disks are named: targets with the names that they have, the options of libiscsi, and secrets
//! that are never shown.

use std::io::Read;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::process::Output;
use std::time::Duration;
use std::time::Instant;

use crate::foreign::Character;
use crate::foreign::Foreign;
use crate::support::Daemon;
use crate::support::Files;
use crate::support::TARGET;
use crate::support::fails;
use crate::support::good;
use crate::support::lunwire;
use crate::support::stderr;
use crate::support::stdout;

/// Names as deployed targets have them, and whether they depart from RFC 7143.
const NAMES: [(&str, bool); 4] = [
    ("iqn.2000-01.com.synology:DiskStation.Target-1", false),
    ("iqn.test", true),
    ("iqn.2004-04.com.qnap:ts-453be:iscsi.my_disk.1A2B3C", true),
    ("IQN.2026-01.com.example:a", false),
];

/// Who has the port says so, or its first bytes do.
#[test]
fn what_does_not_speak_iscsi_is_told() {
    let files = Files::new();
    for (banner, first) in [
        (&b"SSH-2.0-OpenSSH_9.2p1\r\n"[..], true),
        (b"220 mail.example.com ESMTP\r\n", true),
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let portal = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if !first {
                    let _ = stream.read(&mut [0; 64]);
                }
                let _ = stream.write_all(banner);
                held.push(stream);
            }
        });
        let url = format!("iscsi://{portal}/{TARGET}/0");
        let said = ["does not speak iscsi", "is the port right?"];
        let begun = Instant::now();
        fails(1, &["inspect", &url], &said);
        fails(1, &["discover", &portal], &said);
        fails(1, &["copy", &url, &files.path("copy")], &said);
        assert!(begun.elapsed() < Duration::from_secs(8), "it was waited for");
    }
}

/// A portal that is none is told at once, and not on the day when the first one fails.
#[test]
fn each_portal_is_one() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let url = daemon.urls[0].as_str();
    for (portal, said) in [
        ("127.0.0.1:99999", "no port"),
        ("foo:bar:baz/zz", "ADDR[:PORT] alone is right"),
        ("127.0.0.1/iqn.2026-01.com.example:a", "ADDR[:PORT] alone is right"),
        ("127.0.0.1?auth=none", "ADDR[:PORT] alone is right"),
        ("iscsi://127.0.0.1", "ADDR[:PORT] alone is right"),
        ("me@127.0.0.1", "users go into the URL"),
        ("::1", "brackets: [::1]"),
        ("127.0.0.1:", "no port"),
    ] {
        fails(2, &["inspect", url, "--portal", portal], &["--portal", said]);
        fails(2, &["bench", url, "--time", "10ms", "--portal", portal], &["--portal", said]);
    }
    good(&["inspect", url, "--portal", "localhost", "--portal", "[::1]:3260"]);
}

/// Nobody means a file by the name of a target, nor by an address.
#[test]
fn a_forgotten_scheme_makes_no_file() {
    let files = Files::new();
    let image = files.with("image", &[7; 4096]);
    let run = |words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_lunwire"))
            .args(words)
            .current_dir(files.folder.path())
            .output()
            .unwrap()
    };
    let target = "iqn.2026-01.com.example:slow";
    for (name, meant) in [
        ("127.0.0.1:18880".to_owned(), "127.0.0.1:18880/TARGET/LUN".to_owned()),
        (format!("127.0.0.1:18880/{target}/0"), format!("127.0.0.1:18880/{target}/0")),
        (format!("localhost/{target}"), format!("localhost/{target}/LUN")),
        (target.to_owned(), format!("HOST/{target}/LUN")),
        (format!("{target}/0"), format!("HOST/{target}/0")),
        (format!("iscsi//127.0.0.1/{target}/0"), format!("127.0.0.1/{target}/0")),
        (format!("iscis://127.0.0.1/{target}/0"), format!("127.0.0.1/{target}/0")),
    ] {
        let url = format!("iscsi://127.0.0.1:1/{TARGET}/0");
        for words in [
            ["copy", &image, &name],
            ["copy", &name, &image],
            ["write", &url, &name],
            ["read", &url, &name],
            ["read", &name, &image],
        ] {
            let output = run(&words);
            let text = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
            // Of the commands that take one file alone, one says that this is a URL.
            let is_told = text.contains(&format!("did you mean iscsi://{meant}?"));
            assert!(is_told || text.contains("try: lunwire copy"), "{words:?}: {text}");
        }
        assert!(!files.folder.path().join(&name).exists(), "{name}");
    }
    // Who means a file says so, or it is there.
    let output = run(&["copy", &image, &format!("./{target}"), "--quiet"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let output = run(&["copy", target, "copied", "--quiet"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let output = run(&["discover", "iscsi//127.0.0.1"]);
    assert!(stderr(&output).contains("did you mean iscsi://127.0.0.1?"), "{}", stderr(&output));
}

#[test]
fn what_discovery_prints_can_be_used_as_it_is() {
    let targets = NAMES.map(|(name, _)| format!("TargetName={name}\0")).concat().into_bytes();
    let disk = Foreign::start(Character { targets, ..Character::default() });
    let printed = stdout(&good(&["discover", &disk.portal()]));
    for (name, departs) in NAMES {
        assert!(printed.contains(&format!("target {name}\n")), "{name}: {printed}");
        let output = good(&["read", &disk.url(name), "--length", "512", "--quiet"]);
        assert_eq!(disk.names().last().map(String::as_str), Some(name), "byte for byte");
        let warned = stderr(&output);
        assert_eq!(warned.contains("warning: target"), departs, "{warned}");
        assert_eq!(warned.contains(name), departs, "{warned}");
    }
}

#[test]
fn our_target_is_found_in_any_letters() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let upper = daemon.urls[0].replace(TARGET, &TARGET.to_uppercase());
    good(&["inspect", &upper]);
    let other = daemon.urls[0].replace(TARGET, &format!("{TARGET}s"));
    fails(1, &["inspect", &other], &["no such target"]);
}

/// A daemon that wants CHAP both ways, and the URL of its disk with user and secret, each 16 bytes.
fn guarded(files: &Files) -> (Daemon, String) {
    let own = files.with("own", OURS.as_bytes());
    let theirs = files.with("theirs", THEIRS.as_bytes());
    for path in [&own, &theirs] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let chap = ["--chap-user", "host", "--chap-secret-file", &own];
    let mutual = ["--mutual-user", "disk", "--mutual-secret-file", &theirs];
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[chap, mutual].concat());
    let url = daemon.urls[0].replace("iscsi://", &format!("iscsi://host%{OURS}@"));
    (daemon, url)
}

const OURS: &str = "oursoursoursours";
const THEIRS: &str = "theirstheirsthei";

#[test]
fn the_options_of_libiscsi_do_what_they_say() {
    let files = Files::new();
    let (daemon, url) = guarded(&files);
    let mutual = format!("target_user=disk&target_password={THEIRS}");
    good(&["inspect", &format!("{url}?{mutual}")]);
    good(&["inspect", &url.replace('%', ":"), "--header-digest", "off"]);
    for auth in ["chap", "md5", "sha1", "sha256", "sha3-256"] {
        good(&["inspect", &format!("{url}?auth={auth}&{mutual}")]);
    }
    let wrong = format!("{url}?target_user=disk&target_password=wrongwrongwrongw");
    fails(1, &["inspect", &wrong], &["does not know its own secret"]);
    fails(1, &["inspect", &format!("{url}?auth=none")], &["0201"]);
    // Whoever reads the disk for a moment shows what was agreed on.
    let digests = |options: &str| {
        let url = format!("{url}?{options}");
        let mut load = Command::new(env!("CARGO_BIN_EXE_lunwire"))
            .args(["bench", &url, "--time", "60s"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let told = loop {
            let words = ["sessions", "--json", "--control-socket", &daemon.socket];
            let told: serde_json::Value = serde_json::from_slice(&good(&words).stdout).unwrap();
            if let Some(session) = told["sessions"].as_array().and_then(|list| list.first()) {
                break session.to_string();
            }
            assert!(begin.elapsed().as_secs() < 60, "no session: {told}");
        };
        load.kill().unwrap();
        load.wait().unwrap();
        told
    };
    let told = digests("header_digest=crc32c&data_digest=crc32c");
    assert!(told.contains("[\"HeaderDigest\",\"CRC32C\"]"), "{told}");
    assert!(told.contains("[\"DataDigest\",\"CRC32C\"]"), "{told}");
    let plain = url.split_once('@').unwrap().1;
    let said = ["did you mean header_digest?", "there is no option \"header-digest\""];
    fails(2, &["inspect", &format!("iscsi://{plain}?header-digest=crc32c")], &said);
    fails(2, &["inspect", &format!("iscsi://{plain}?lun=1")], &["\"lun\"", "known are auth"]);
    fails(2, &["inspect", &format!("iscsi://{plain}?auth=md5")], &["a user and its secret"]);
}

/// Neither secret is in what a command says.
#[track_caller]
fn silent(arguments: &[&str]) -> Output {
    let output = lunwire(arguments);
    for text in [stdout(&output), stderr(&output)] {
        assert!(!text.contains("oursours") && !text.contains("theirsth"), "{arguments:?}: {text}");
    }
    output
}

#[test]
fn secrets_are_never_shown() {
    let files = Files::new();
    let (_daemon, url) = guarded(&files);
    let image = files.with("image", &[1; 512]);
    let whole = format!("{url}?target_user=disk&target_password={THEIRS}");
    let output = silent(&["inspect", &whole]);
    assert!(output.status.success(), "{}", stderr(&output));
    let warned = stderr(&output);
    assert!(
        warned.contains("shows to everybody") && warned.contains("--chap-secret-file"),
        "{warned}"
    );
    let colon = whole.replacen('%', ":", 1);
    let target = TARGET.to_owned();
    let places = [
        whole.clone(),
        colon.clone(),
        whole.replace("/0?", "/7?"),
        whole.replace("/0?", "/x?"),
        whole.replace("/0?", "/0/1?"),
        whole.replace(&target, "iqn.2026-01.com.example:none"),
        whole.replace("disk&", "somebody&"),
        whole.replace("?", "?lun=1&"),
        whole.replace("?", "?header_digest=no&"),
        whole.replace("target_user=disk&", ""),
        whole.replace("iscsi://", "iscsi:/"),
        whole.replace("iscsi://", "http://"),
        whole.replace("iscsi://", "nbd://"),
        whole.replace("iscsi://", ""),
        format!("iscsi://host%{OURS}"),
        format!("iscsi://host:{OURS}"),
        format!("iscsi://host%{OURS}/{TARGET}/0"),
        format!("iscsi://host%o/{OURS}@127.0.0.1/{TARGET}/0"),
        format!("iscsi://host%o?{OURS}@127.0.0.1/{TARGET}/0"),
        format!("iscsi://host:o/{OURS}@127.0.0.1/{TARGET}/0"),
        format!("iscsi://host%{OURS}@127.0.0.1:port/{TARGET}/0"),
        format!("iscsi://host%{OURS}@/{TARGET}/0"),
        format!("iscsi://%{OURS}@127.0.0.1/{TARGET}/0"),
    ];
    // Nobody is there; each command would try for a while.
    let empty = [
        format!("iscsi://host%{OURS}@127.0.0.1:1/{TARGET}/0"),
        format!("iscsi://host%{OURS}@no.such.host.invalid/{TARGET}/0"),
        format!("iscsi://iqn.2026-01.com.example:host:{OURS}@127.0.0.1:1/{TARGET}/0"),
    ];
    for place in &empty {
        silent(&["inspect", place, "--patience", "0s"]);
        silent(&["copy", place, &image, "--patience", "0s", "--json"]);
    }
    for place in &places {
        silent(&["inspect", place]);
        silent(&["inspect", place, "--json"]);
        silent(&["discover", place]);
        silent(&["read", place, "--length", "512", "--quiet"]);
        silent(&["write", place, &image, "--quiet"]);
        silent(&["copy", place, &image, "--quiet"]);
        silent(&["copy", place, place, "--quiet"]);
        silent(&["bench", place, "--time", "10ms"]);
        silent(&["read", &whole, place]);
        silent(&["inspect", &whole, "--portal", place]);
        silent(&["inspect", &whole, place]);
        silent(&["status", place]);
        silent(&[place]);
        silent(&["serve", "--listen", place]);
        silent(&["serve", "--lun", place, "--control-socket", &files.path("other")]);
        silent(&["inspect", &whole, "--header-digest", place]);
        let script = files.with("script", format!("login {place}\nread 0 1\nlogout\n").as_bytes());
        silent(&["shell", &script]);
    }
}

#[test]
fn a_url_without_its_beginning_is_known_before_a_directory() {
    let url = "10.0.0.1/iqn.2026-01.com.example:a/0";
    for given in [url.to_owned(), format!("iscsi:/{url}")] {
        fails(2, &["attach", &given, "/"], &[&format!("did you mean iscsi://{url}?")]);
    }
    fails(2, &["attach", "a", "b"], &["URLs and behind them one directory are right"]);
}

#[test]
fn what_is_no_ublk_device_takes_none_over() {
    let url = "iscsi://127.0.0.1:1/iqn.2026-01.com.example:a/0";
    for place in [&["--loop"][..], &["--nbd", "127.0.0.1:0"]] {
        let words = [&["attach", url, "--recover", "1", "--patience", "0s"], place].concat();
        fails(2, &words, &["--recover <NUMBER>", "cannot be used with"]);
    }
}
