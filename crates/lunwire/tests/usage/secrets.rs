// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Secrets in places and spellings where they do not belong: no command repeats one.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::TARGET;
use crate::support::stderr;
use crate::support::stdout;

const SECRET: &str = "SeCrEt99999999zz";

/// Runs a command that must not say the secret; nobody is where it is sent.
#[track_caller]
fn silent(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(arguments)
        .env("LUNWIRE_SECRET", SECRET)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    for text in [stdout(&output), stderr(&output)] {
        assert!(!text.contains(SECRET), "{arguments:?}: {text}");
    }
    assert!(!output.status.success(), "{arguments:?}");
    output
}

/// Spellings of a URL with a secret that are wrong, or whose portal is empty.
fn spellings() -> Vec<String> {
    let disk = format!("127.0.0.1:1/{TARGET}/0");
    let (s, other) = (SECRET, format!("127.0.0.1:1/{}/0", TARGET.to_uppercase()));
    let logins = ["u%S", "u:S", "u%%S", "u%25S", "u/S", "u;S", "u S", "u?S", "u#S", "%S", "u%a@S"]
        .map(|login| format!("iscsi://{login}@{disk}"));
    let options = [
        "?target_user=a&target_password=S",
        "?TARGET_PASSWORD=S",
        "?target%5Fpassword=S",
        "?target_password:S",
        "?target_password S",
        "?foo&password=S",
        "?foo=bar&password=S",
        "?password=S",
        "?passwd=S&auth=md5",
        "?chap_secret=S",
        "?user=u%S",
        "?target_user=u%S",
        "?target_password=a@b&c=S",
        "?target_password=&S",
        "?S",
        "??target_password=S",
        "&target_password=S",
        "#target_password=S",
        ";target_password=S",
        "/?user=u%S",
        "/target_password=S",
        " target_password=S",
    ]
    .map(|option| format!("iscsi://{disk}{option}"));
    let shapes = [
        format!("iscsi:/u%S@{disk}"),
        format!("iscsi:u%S@{disk}"),
        format!("iscs://u%S@{disk}"),
        format!("ISCSI://u%S@{disk}"),
        format!(" iscsi://u%S@{disk}"),
        format!("u%S@{disk}"),
        format!("u:S@{disk}"),
        format!("iscsi://u%S@@{disk}"),
        format!("iscsi://a@u%S@{other}"),
        "iscsi://u%S@".to_owned(),
        "iscsi://u%S".to_owned(),
        "iscsi://u:S".to_owned(),
        format!("iscsi://u;S/{TARGET}/0"),
        format!("iscsi://u%S@127.0.0.1:99999/{TARGET}/0"),
        format!("iscsi://u%S@127.0.0.1:1/{TARGET}/70000"),
        format!("iscsi://u%S@[::1/{TARGET}/0"),
        format!("iscsi://127.0.0.1:1/u%S/{TARGET}/0"),
        format!("http://u:S@{disk}"),
    ];
    let all = logins.into_iter().chain(options).chain(shapes);
    // Not in names such as `SECRET`.
    all.map(|text| text.replace("TARGET_PASSWORD", "TARGET_PA\0\0WORD"))
        .map(|text| text.replace('S', s).replace('\0', "S").replace(&format!("I{s}C{s}I"), "ISCSI"))
        .collect()
}

#[test]
fn no_spelling_of_a_url_shows_its_secret() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let image = files.with("image", &[1; 512]);
    let (other, good) = (files.path("other"), daemon.urls[0].as_str());
    for url in &spellings() {
        let url = url.as_str();
        for words in [
            &["discover", url][..],
            &["inspect", url, "--json"],
            &["inspect", good, url],
            &["inspect", good, "--portal", url, "--header-digest", "bad"],
            &["read", url, "-"],
            &["write", url, &image],
            &["copy", url, &other, "--quiet"],
            &["copy", &image, url, "--quiet", "--json"],
            &["bench", url, "--time", "10ms"],
        ] {
            let json = words.contains(&"--json");
            let output = silent(&[words, &["--patience", "0s"]].concat());
            assert!(json || output.stdout.is_empty(), "{words:?}");
            let _ = std::fs::remove_file(&other);
        }
        for words in [
            &[url][..],
            &["serve", "--listen", url],
            &["serve", "--lun", url, "--control-socket", &other],
            &["serve", "--isns", url, url],
            &["check", url, "--json"],
            &["lun", "add", url, "--control-socket", &daemon.socket],
            &["lun", "remove", url],
            &["status", "--control-socket", url],
        ] {
            silent(words);
        }
        let words = [format!("login {url}"), url.to_owned(), format!("login {good} {url}")];
        for (number, line) in words.iter().enumerate() {
            let script = files.with(&format!("script{number}"), format!("{line}\n").as_bytes());
            silent(&["shell", &script, "--patience", "0s"]);
        }
    }
}

#[test]
fn a_secret_in_place_of_its_file_is_not_repeated() {
    let files = Files::new();
    let right = files.with("right", b"correct horse battery");
    std::fs::set_permissions(&right, std::fs::Permissions::from_mode(0o600)).unwrap();
    let target = format!("[[target]]\nname = \"{TARGET}\"\n");
    for (line, key) in [
        ("chap-secret-file = [\"S\"]", "chap-secret-file"),
        ("chap-secret-file = [\n  \"S\",\n  1\n]", "chap-secret-file"),
        ("chap-secret-file = \"S\"", "chap-secret-file"),
        ("chap-secret-env = \"S\"", "chap-secret-env"),
        ("chap-secret-env = { name = \"S\" }", "chap-secret-env"),
        ("chap-user = \"u\"\nchap-secret-env = \"S\"", "chap-secret-env"),
        ("chap-user = \"u\"\nchap-secret-file = \"S\"", "chap-secret-file"),
        ("mutual-user = \"u\"\nmutual-secret-file = \"S\"", "mutual-secret-file"),
        ("chap-secret = \"S\"", "chap-secret"),
        ("chap-password = \"S\"", "chap-password"),
        ("chap-secret = S", ""),
        ("chap-secret-file = S", ""),
        ("chap-secret-file: \"S\"", ""),
        ("chap-secret-file = \"S", ""),
        ("chap-secret-file = 'S'x", ""),
        ("chap-secret-file = [\n  S,\n]", ""),
        ("\"chap-secret-file\" = [\"S\"]", "chap-secret-file"),
        ("chap-user = { chap-secret = \"S\" }", "chap-user"),
        ("initiator = [{ name = \"iqn.a\", chap-secret-file = [\"S\"] }]", "chap-secret-file"),
        ("chap-user = \"u%S\"\nchap-secret-file = \"/no/such\"", "chap-secret-file"),
    ] {
        let line = line.replace('S', SECRET);
        let text = format!("{target}{line}\n[[target.lun]]\nstore = \"memory:1M\"\n");
        let file = files.with("lunwire.toml", text.as_bytes());
        for words in [&["check", &file][..], &["check", &file, "--json"]] {
            let said = stderr(&silent(words));
            assert!(said.contains("lunwire.toml:") && said.contains(key), "{line}: {said}");
        }
        silent(&["serve", "--config", &file]);
    }
    let url = format!("iscsi://127.0.0.1:1/{TARGET}/0");
    for words in [
        &["--chap-user", "u", "--chap-secret-file", SECRET][..],
        &["--chap-user", "u", "--chap-secret-file", &right, "--mutual-secret-file", SECRET],
        &["--chap-secret-file", SECRET],
        &["--chap-user", &format!("u%{SECRET}"), "--chap-secret-file", "/no/such"],
        &["--chap-user", &format!("u%{SECRET}")],
    ] {
        silent(&[&["serve", "--lun", "memory:1M"], words].concat());
        silent(&[&["inspect", &url, "--patience", "0s"], words].concat());
    }
    silent(&["inspect", &url, "--patience", "0s", "--chap-user", "u", "--chap-secret-env", SECRET]);
    silent(&["inspect", &url, "--patience", "0s", "--chap-secret-env", SECRET]);
}
