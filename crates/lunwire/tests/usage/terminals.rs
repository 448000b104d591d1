// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What people see on a terminal.

use std::io::Read;
use std::io::Write;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;
use std::time::Instant;

use crate::support::Daemon;
use crate::support::Files;

/// So long it may take until a terminal shows what is waited for, and until all is over.
const END: Duration = Duration::from_secs(120);

/// What a terminal shows while `words` run, on whose keyboard `typed` is typed as soon as it shows
/// `sign`.
fn shown(words: &str, sign: &str, typed: &[u8]) -> String {
    let lunwire = env!("CARGO_BIN_EXE_lunwire");
    // Who runs tests may ignore signals, and then so does all that they start.
    let mut script = Command::new("env");
    script.args(["--default-signal=HUP,INT,TERM", "script"]).args([
        "--quiet",
        "--return",
        "--command",
        &format!("{lunwire} {words}"),
        "/dev/null",
    ]);
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = script.spawn().unwrap();
    let mut keyboard = child.stdin.take().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let (show, shown) = mpsc::channel();
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut part) {
            let _ = show.send(part[..count].to_vec());
        }
    });
    let (mut text, mut has_typed, end) = (Vec::new(), false, Instant::now() + END);
    while let Ok(part) = shown.recv_timeout(end.saturating_duration_since(Instant::now())) {
        text.extend_from_slice(&part);
        if !has_typed && String::from_utf8_lossy(&text).contains(sign) {
            keyboard.write_all(typed).unwrap();
            keyboard.flush().unwrap();
            has_typed = true;
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let is_over = Instant::now() < end;
    if !is_over {
        let _ = child.kill();
    }
    let _ = child.wait();
    assert!(is_over, "{words} goes on: {text:?}");
    text
}

#[test]
fn a_message_does_not_stand_in_the_line_of_the_progress() {
    let files = Files::new();
    let store = format!("file:{},size=64M,delay=300ms", files.path("disk"));
    let daemon = Daemon::start(files.folder.path(), &[&store], &[]);
    let words = format!("copy {} {}", daemon.urls[0], files.path("out"));
    let text = shown(&words, "copied: ", b"\x03");
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
        let said = format!("standard input is a terminal: what is typed there goes to {url}");
        let text = shown(&words, &said, b"\x03");
        assert!(text.contains(&said), "{words}: {text:?}");
    }
}
