// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credentials in configuration files and options: what is refused, and in which words.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::process::Output;

const SECRET: &str = "correct horse battery";
const OTHER: &str = "staple of the other way";

fn lunwire(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(arguments)
        .env("HOST_SECRET", SECRET)
        .env("SHORT_SECRET", "elevenbytes")
        .env_remove("NO_SECRET")
        .output()
        .unwrap()
}

/// Writes a secret and gives its path.
fn secret(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// Status and what was said of a configuration, which holds no secret.
fn check(folder: &Path, text: &str) -> (Option<i32>, String) {
    let file = folder.join("lunwire.toml").display().to_string();
    std::fs::write(&file, text).unwrap();
    let output = lunwire(&["check", &file]);
    let said = String::from_utf8(output.stderr).unwrap().replace(&file, "lunwire.toml");
    assert!(!said.contains("horse") && !said.contains("staple"), "{said}");
    (output.status.code(), said)
}

const TARGET: &str = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n";
const LUN: &str = "[[target.lun]]\nstore = \"memory:1M\"\n";
const INITIATOR: &str = "[[target.initiator]]\nname = \"iqn.2026-01.com.example:h\"\n";
const USER: &str = "chap-user = \"host\"\nchap-secret-env = \"HOST_SECRET\"\n";

#[test]
fn wrong_credentials_name_line_field_value_and_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let short = secret(folder, "short", "elevenbytes\n");
    let odd = secret(folder, "odd", "0x00112233445566778899aabbc\n");
    let same = secret(folder, "same", &format!("{SECRET}\n"));
    let other = secret(folder, "other", OTHER);
    let long = secret(folder, "long", &"x".repeat(5000));
    let missing = folder.join("missing").display().to_string();
    let file = |path: &str| format!("chap-user = \"host\"\nchap-secret-file = \"{path}\"\n");
    let mutual = |path: &str| format!("mutual-user = \"disk\"\nmutual-secret-file = \"{path}\"\n");
    let common = |fields: &str| format!("{TARGET}{fields}{LUN}");
    let own = |fields: &str| format!("{TARGET}{LUN}{INITIATOR}{fields}");
    let cases = [
        (common(&file(&missing)), 4, "target.chap-secret-file", "cannot read"),
        (common(&file(&short)), 4, "target.chap-secret-file", "11 bytes; at least 12 (96 bits)"),
        (common(&file(&odd)), 4, "target.chap-secret-file", "whole bytes"),
        (common(&file(&long)), 4, "target.chap-secret-file", "more than 4096 bytes"),
        (
            common("chap-user = \"u\"\nchap-secret-env = \"SHORT_SECRET\"\n"),
            4,
            "target.chap-secret-env = \"SHORT_SECRET\"",
            "at least 12",
        ),
        (
            common("chap-user = \"u\"\nchap-secret-env = \"NO_SECRET\"\n"),
            4,
            "target.chap-secret-env: ",
            "no such environment variable",
        ),
        (
            common("chap-user = \"u\"\nchap-secret-env = \"A=B\"\n"),
            4,
            "target.chap-secret-env",
            "no such environment variable",
        ),
        (common("chap-user = \"u\"\n"), 3, "target.chap-user = \"u\"", "add chap-secret-file"),
        (
            common("chap-secret-env = \"HOST_SECRET\"\n"),
            3,
            "target.chap-secret-env",
            "add chap-user",
        ),
        (
            common(&format!("{}chap-secret-env = \"HOST_SECRET\"\n", file(&same))),
            5,
            "target.chap-secret-env",
            "one will do",
        ),
        (common(&mutual(&other)), 3, "target.mutual-user = \"disk\"", "add chap-user"),
        (
            common(&format!("{USER}mutual-user = \"disk\"\n")),
            5,
            "target.mutual-user",
            "add mutual-secret-file",
        ),
        (common("chap-secret = \"x\"\n"), 3, "chap-secret", "unknown field"),
        (
            common(&format!("chap-user = \"\"\nchap-secret-file = \"{other}\"\n")),
            3,
            "target.chap-user",
            "1 to 255",
        ),
        (
            common("authentication = \"yes\"\n"),
            3,
            "target.authentication = \"yes\"",
            "off, optional, required or mutual",
        ),
        (common("authentication = \"required\"\n"), 2, "target.name", "never log in"),
        (
            common(&format!("authentication = \"mutual\"\n{USER}")),
            2,
            "target.name",
            "no mutual-user",
        ),
        (
            common(&format!("chap-algorithms = [\"md5\", \"md4\"]\n{USER}")),
            3,
            "target.chap-algorithms = \"md4\"",
            "sha3-256, sha256, sha1 and md5",
        ),
        (
            common(&format!("chap-algorithms = []\n{USER}")),
            3,
            "target.chap-algorithms = []",
            "nobody could log in",
        ),
        (
            own(&file(&short)),
            8,
            "target.initiator.chap-secret-file",
            "at least 12 (96 bits) are right",
        ),
        (
            own(&format!("{USER}[[target.initiator]]\nname = \"iqn.2026-01.com.example:j\"\n")),
            10,
            "target.initiator.name = \"iqn.2026-01.com.example:j\"",
            "never log in",
        ),
        (
            "[discovery]\nauthentication = \"required\"\n".into(),
            2,
            "discovery.authentication",
            "never log in",
        ),
        (format!("[discovery]\n{}", file(&short)), 3, "discovery.chap-secret-file", "at least 12"),
    ];
    for (text, line, what, right) in cases {
        let (status, said) = check(folder, &text);
        assert_eq!(status, Some(1), "{text}\n{said}");
        assert!(said.contains(&format!("lunwire.toml:{line}: ")), "{text}\n{said}");
        assert!(said.contains(what), "{text}\n{said}");
        assert!(said.contains(right), "{text}\n{said}");
    }
}

/// Covers: CHP-16/T.
#[test]
fn one_secret_for_both_directions_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let same = secret(folder, "same", &format!("{SECRET}\n"));
    let mutual = format!("mutual-user = \"disk\"\nmutual-secret-file = \"{same}\"\n");
    let (status, said) = check(folder, &format!("{TARGET}{USER}{mutual}{LUN}"));
    assert_eq!(status, Some(1), "{said}");
    let place = "lunwire.toml:5: target.mutual-user = \"disk\": ";
    assert!(said.contains(place) && said.contains("each needs its own"), "{said}");
    // Nor may it be that of another account.
    let other = secret(folder, "other", OTHER);
    let first = format!("chap-user = \"a\"\nchap-secret-file = \"{other}\"\n{mutual}");
    let text = format!("[discovery]\n{USER}{TARGET}{first}{LUN}");
    let (status, said) = check(folder, &text);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("both directions need secrets of their own"), "{said}");
    let arguments = ["serve", "--lun", "memory:1M", "--listen", "127.0.0.1:0", "--chap-user", "a"];
    let credentials =
        ["--chap-secret-file", &same, "--mutual-user", "b", "--mutual-secret-file", &same];
    let output = lunwire(&[&arguments[..], &credentials[..]].concat());
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--mutual-user b: ") && said.contains("each needs its own"), "{said}");
    let url = "iscsi://127.0.0.1:1/iqn.2026-01.com.example:a/0";
    let output = lunwire(&[&["inspect", url, "--chap-user", "a"][..], &credentials].concat());
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let place = format!("--mutual-secret-file {same}: ");
    assert!(said.contains(&place) && said.contains("each needs its own"), "{said}");
}

#[test]
fn good_credentials_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let hex = secret(folder, "hex", "0x00112233445566778899aabbccddeeff\r\n");
    let other = secret(folder, "other", OTHER);
    let mutual = format!("mutual-user = \"disk\"\nmutual-secret-file = \"{other}\"\n");
    for text in [
        format!("{TARGET}{USER}{LUN}"),
        format!("{TARGET}{LUN}{INITIATOR}{USER}{mutual}"),
        format!("{TARGET}authentication = \"mutual\"\n{USER}{mutual}{LUN}{INITIATOR}"),
        format!("{TARGET}authentication = \"optional\"\n{LUN}{INITIATOR}{USER}{INITIATOR}"),
        format!("{TARGET}{USER}chap-algorithms = [\"sha256\", \"md5\"]\n{LUN}"),
        format!("[discovery]\n{USER}\n{TARGET}{LUN}"),
        format!("{TARGET}chap-user = \"u\"\nchap-secret-file = \"{hex}\"\n{LUN}"),
    ] {
        let (status, said) = check(folder, &text);
        assert_eq!((status, said.as_str()), (Some(0), ""), "{text}");
    }
    let (status, said) = check(folder, &format!("{TARGET}authentication = \"off\"\n{USER}{LUN}"));
    assert_eq!(status, Some(0));
    assert!(said.contains("lunwire.toml:3: target.authentication = \"off\""), "{said}");
}

#[test]
fn a_secret_that_everybody_can_read_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = secret(folder, "open", SECRET);
    let text = format!("{TARGET}chap-user = \"u\"\nchap-secret-file = \"{path}\"\n{LUN}");
    for (mode, warned) in [(0o600, false), (0o640, false), (0o644, true), (0o602, true)] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let (status, said) = check(folder, &text);
        assert_eq!(status, Some(0));
        assert_eq!(said.contains(&format!("chmod 600 {path}")), warned, "{mode:o}: {said}");
    }
}

#[test]
fn wrong_options_are_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let good = secret(folder, "good", SECRET);
    let short = secret(folder, "short", "elevenbytes");
    let config = folder.join("lunwire.toml").display().to_string();
    std::fs::write(&config, format!("listen = [\"127.0.0.1:0\"]\n{TARGET}{LUN}")).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["--chap-user", "u"], "--chap-user u: --chap-secret-file is missing"),
        (&["--chap-secret-file", &good], "--chap-user is missing"),
        (&["--chap-user", "u", "--chap-secret-file", &short], "at least 12 (96 bits)"),
        (&["--chap-user", "u", "--chap-secret-file", "/no/such"], "cannot read the secret"),
        (&["--mutual-user", "u", "--mutual-secret-file", &good], "--chap-user"),
        (
            &["--config", &config, "--chap-user", "u", "--chap-secret-file", &good],
            "write chap-user into the file",
        ),
    ];
    for (arguments, wanted) in cases {
        let output = lunwire(&[&["serve", "--listen", "127.0.0.1:0"], *arguments].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(wanted), "{arguments:?}: {said}");
        assert!(!said.contains("horse"), "{said}");
    }
}
