// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accounts of clients: whose they are, and at which end of a copy.

use std::os::unix::fs::PermissionsExt;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::fails;
use crate::support::good;

fn secret(files: &Files, name: &str) -> String {
    let path = files.with(name, b"secret of the host");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path
}

#[test]
fn an_end_without_a_user_is_named() {
    let files = Files::new();
    let own = secret(&files, "own");
    let chap = ["--chap-user", "u", "--chap-secret-file", &own];
    let source = Daemon::start(files.folder.path(), &["memory:1M"], &chap);
    let folder = tempfile::tempdir().unwrap();
    let open = Daemon::start(folder.path(), &["memory:1M"], &[]);
    let (with_user, to) = (source.urls[0].replace("//", "//u@"), open.urls[0].as_str());
    let given = format!("--chap-secret-file {own}");
    let copy = ["copy", &with_user, to, "--chap-secret-file", &own];
    let said = [&*given, to, "?auth=none", "--chap-user is missing"];
    fails(2, &copy, &said);
    good(&["copy", &with_user, &format!("{to}?auth=none"), "--chap-secret-file", &own]);
    fails(2, &["inspect", to, "--chap-secret-file", &own], &[&given, to, "--chap-user is missing"]);
}

#[test]
fn a_url_without_chap_and_a_user_contradict_each_other() {
    let files = Files::new();
    let own = secret(&files, "own");
    let chap = ["--chap-user", "u", "--chap-secret-file", &own];
    let source = Daemon::start(files.folder.path(), &["memory:1M"], &chap);
    let folder = tempfile::tempdir().unwrap();
    let open = Daemon::start(folder.path(), &["memory:1M"], &[]);
    let none = format!("{}?auth=none", open.urls[0]);
    let inspect = [&["inspect", &none][..], &chap].concat();
    fails(2, &inspect, &["--chap-user u", "says auth=none", "without one of them"]);
    // What is for both ends is for the one that has not said so.
    good(&[&["copy", &source.urls[0], &none][..], &chap].concat());
    let at_destination = ["--to-chap-user", "u", "--to-chap-secret-file", &own];
    let copy = [&["copy", &source.urls[0], &none][..], &chap, &at_destination].concat();
    fails(2, &copy, &["--to-chap-user u", "says auth=none"]);
    let none = format!("{}?auth=none", source.urls[0]);
    fails(1, &["inspect", &none], &["0201", "as auth=none in the URL says; try: without it"]);
}

#[test]
fn what_a_measurement_in_one_process_has_not_is_refused() {
    let files = Files::new();
    let own = secret(&files, "own");
    for words in [
        &["--chap-user", "u", "--chap-secret-file", &*own][..],
        &["--data-digest", "required"],
        &["--header-digest", "off"],
        &["--markers"],
    ] {
        let bench = [&["bench", "--local", "--time", "100ms"], words].concat();
        fails(2, &bench, &["cannot be used with", words[0]]);
    }
}
