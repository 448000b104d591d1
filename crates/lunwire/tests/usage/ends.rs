// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two ends of a copy, where each is another one to get at.

use crate::support::Daemon;
use crate::support::Files;
use crate::support::fails;
use crate::support::good;
use crate::support::pattern;
use crate::support::stderr;

#[test]
fn each_end_of_a_copy_has_an_account_of_its_own() {
    let (here, there) = (Files::new(), Files::new());
    let secret = |name: &str, text: &str| here.with(name, text.as_bytes());
    let (a, b) = (secret("a", "secret of end a"), secret("b", "secret of end b"));
    let (back, image) = (secret("back", "what b proves"), here.with("image", &pattern(1 << 20)));
    let first = ["--chap-user", "ua", "--chap-secret-file", &a];
    let second = ["--chap-user", "ub", "--chap-secret-file", &b];
    let mutual = ["--mutual-user", "tb", "--mutual-secret-file", &back];
    let from = Daemon::start(here.folder.path(), &["memory:1M"], &first);
    let to = Daemon::start(there.folder.path(), &["memory:1M"], &[second, mutual].concat());
    let (source, destination) = (from.urls[0].as_str(), to.urls[0].as_str());
    good(&[&["write", source, &image, "--quiet"][..], &first].concat());
    let copy = ["copy", source, destination, "--quiet"];
    let one = [&copy[..], &first].concat();
    fails(1, &one, &["--to-chap-user"]);
    let there = ["--to-chap-user", "ub", "--to-chap-secret-file", &b];
    let proof = ["--to-mutual-user", "tb", "--to-mutual-secret-file", &back];
    let output = good(&[&one[..], &there, &proof].concat());
    assert!(!stderr(&output).contains("ps"), "{}", stderr(&output));
    good(&[&["read", destination, &here.path("out"), "--quiet"][..], &second, &mutual].concat());
    assert!(std::fs::read(here.path("out")).unwrap() == pattern(1 << 20));
    // Users may stand in the URLs; an option that lacks another one is named as it was written.
    let with_user = |url: &str, user: &str| url.replace("iscsi://", &format!("iscsi://{user}@"));
    let (source, destination) = (with_user(source, "ua"), with_user(destination, "ub"));
    let copy = ["copy", &source, &destination, "--quiet", "--chap-secret-file", &a];
    good(&[&copy[..], &["--to-chap-secret-file", &b]].concat());
    fails(2, &[&copy[..], &proof].concat(), &["--to-chap-secret-file FILE"]);
    let new = here.path("new");
    let words = [&["copy", &source, &new, "--chap-secret-file", &a][..], &there];
    fails(2, &words.concat(), &["--to-chap-user", "DESTINATION"]);
    assert!(!std::path::Path::new(&new).exists());
}

#[test]
fn an_image_of_a_virtual_machine_is_not_written_as_a_disk() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let url = daemon.urls[0].as_str();
    let mut bytes = pattern(1 << 20);
    good(&["write", url, &files.with("old", &bytes), "--quiet"]);
    bytes[..4].copy_from_slice(b"QFI\xfb");
    let image = files.with("q.qcow2", &bytes);
    let said = ["qcow2", "qemu-img convert -O raw", "| lunwire copy - ", "nothing was written"];
    fails(1, &["copy", &image, url, "--quiet"], &said);
    fails(1, &["write", url, &image, "--quiet"], &said);
    let resumed = ["copy", &image, url, "--quiet", "--resume", &files.path("state")];
    fails(1, &resumed, &said);
    let out = files.path("out");
    good(&["read", url, &out, "--quiet"]);
    assert!(std::fs::read(&out).unwrap() == pattern(1 << 20));
    // As a file it is one as any other, and through a pipe its bytes are what is meant.
    good(&["copy", &image, &files.path("twin"), "--quiet"]);
    let piped = piped(&["copy", "-", url, "--quiet"], &image);
    assert!(piped.status.success(), "{}", stderr(&piped));
    good(&["read", url, &out, "--quiet", "--overwrite"]);
    assert!(std::fs::read(&out).unwrap() == bytes);
}

/// With `file` as standard input.
fn piped(arguments: &[&str], file: &str) -> std::process::Output {
    let input = std::fs::File::open(file).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lunwire"));
    command.args(arguments).stdin(input).output().unwrap()
}

#[test]
fn nothing_at_all_is_no_disk() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let (url, empty) = (daemon.urls[0].as_str(), files.with("empty", b""));
    let said = ["empty", "nothing was written"];
    fails(1, &["write", url, &empty], &said);
    fails(1, &["copy", &empty, url, "--json"], &said);
    fails(1, &["copy", &empty, url, "--resume", &files.path("state")], &said);
    for arguments in [&["write", url][..], &["copy", "-", url, "--json"]] {
        let output = piped(arguments, "/dev/null");
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains("standard input") && text.contains("pipefail"), "{text}");
        assert!(!text.contains("100%"), "{text}");
    }
    // A file may be empty.
    good(&["copy", &empty, &files.path("twin"), "--quiet"]);
    assert!(piped(&["copy", "-", &files.path("other")], "/dev/null").status.success());
    good(&["read", url, &files.path("out"), "--length", "0", "--quiet"]);
}

#[test]
fn a_state_that_does_not_fit_says_why() {
    let files = Files::new();
    let image = files.with("image", &pattern(1 << 20));
    let (out, lost) = (files.path("out"), files.path("no/such/state"));
    let folder = files.path("no/such");
    fails(1, &["copy", &image, &out, "--resume", &lost], &["mkdir -p", &folder, "keep the state"]);
    assert!(!std::path::Path::new(&out).exists());
    let text = format!(
        "{{\"source\":\"{image}\",\"destination\":\"{}\",\"length\":1048576,\"done\":0,\
         \"from\":null,\"to\":null}}",
        files.path("./out")
    );
    let state = files.with("state", text.as_bytes());
    let dotted = files.path("./out");
    let said = ["another copy", dotted.as_str(), out.as_str(), "the same words", "rm "];
    fails(1, &["copy", &image, &out, "--resume", &state], &said);
    good(&["copy", &image, &dotted, "--resume", &state, "--quiet"]);
}

#[test]
fn bytes_of_a_disk_do_not_go_to_a_terminal() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let (url, lunwire) = (daemon.urls[0].as_str(), env!("CARGO_BIN_EXE_lunwire"));
    for words in [format!("read {url}"), format!("copy {url} -"), format!("read {url} | wc -c")] {
        let mut script = std::process::Command::new("script");
        script.args(["--quiet", "--return", "--command", &format!("{lunwire} {words}")]);
        let Ok(output) = script.arg("/dev/null").output() else {
            return println!("skipped: no program script, which makes terminals");
        };
        let said = crate::support::stdout(&output);
        let piped = words.contains('|');
        assert_eq!(output.status.code(), Some(if piped { 0 } else { 2 }), "{words}: {said}");
        assert!(said.contains(if piped { "1048576" } else { "is a terminal" }), "{words}: {said}");
    }
}

#[test]
fn a_folder_is_no_place_for_bytes() {
    let files = Files::new();
    let (image, folder) = (files.with("image", &[1; 4096]), files.path(""));
    let (gone, within) = (files.path("gone/"), files.path("gone/file"));
    fails(1, &["copy", &image, &folder], &["it is a folder; try: ", "/NAME"]);
    fails(1, &["copy", &image, &gone], &["no such folder; try: mkdir -p", "gone/NAME"]);
    fails(1, &["copy", &image, &within], &["gone does not exist; try: mkdir -p "]);
}

#[test]
fn a_command_that_is_given_up_says_how_it_gets_more_time() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M,delay=5s"], &[]);
    let read = ["read", &daemon.urls[0], &files.path("out"), "--command-timeout", "100ms"];
    fails(1, &read, &["it took too long", "try: --command-timeout"]);
}
