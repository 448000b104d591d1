// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What people see on a terminal.

use std::io::Write;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::stdout;

/// What a terminal shows while `words` run, on whose keyboard `typed` is typed after a while. None:
/// there is no program that makes terminals.
fn shown(words: &str, typed: &[u8]) -> Option<String> {
    let lunwire = env!("CARGO_BIN_EXE_lunwire");
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &format!("{lunwire} {words}"), "/dev/null"]);
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = script.spawn() else {
        println!("skipped: no program script, which makes terminals");
        return None;
    };
    std::thread::sleep(Duration::from_secs(3));
    let mut keyboard = child.stdin.take().unwrap();
    keyboard.write_all(typed).unwrap();
    keyboard.flush().unwrap();
    let output = child.wait_with_output().unwrap();
    drop(keyboard);
    Some(stdout(&output))
}

#[test]
fn a_message_does_not_stand_in_the_line_of_the_progress() {
    let files = Files::new();
    let store = format!("file:{},size=64M,delay=300ms", files.path("disk"));
    let daemon = Daemon::start(files.folder.path(), &[&store], &[]);
    let words = format!("copy {} {}", daemon.urls[0], files.path("out"));
    let Some(text) = shown(&words, b"\x03") else { return };
    let (before, _) = text.split_once("lunwire: coming to an end").expect(&text);
    assert!(before.contains("copied: "), "{text:?}");
    assert!(before.ends_with("\r\x1b[K") || before.ends_with('\n'), "{text:?}");
}

#[test]
fn who_is_to_type_the_bytes_of_a_disk_is_told() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let url = &daemon.urls[0];
    for words in [format!("write {url}"), format!("copy - {url}")] {
        let Some(text) = shown(&words, b"\x03") else { return };
        let said = format!("standard input is a terminal: what is typed there goes to {url}");
        assert!(text.contains(&said), "{words}: {text:?}");
    }
}
