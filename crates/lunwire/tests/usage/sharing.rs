// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that only one may have at a time: the session ids of a client, the socket of a daemon.

use rustix::process::Signal;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::fails;
use crate::support::good;

/// They would end each other all the time, and what is measured or moved then tells nothing.
#[test]
fn two_sessions_with_one_target_do_not_get_one_session_id() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M", "memory:1M"], &[]);
    let [from, to] = [&daemon.urls[0], &daemon.urls[1]];
    let isid = ["--isid", "80c0ffee0001"];
    let said = ["--isid 80c0ffee0001", "would end the other", "without --isid"];
    let twice: [&[&str]; 4] = [
        &["bench", "--local", "--time", "100ms"],
        &["bench", from, "--sessions", "2", "--time", "100ms"],
        &["copy", from, to, "--quiet"],
        &["copy", from, &to.replace("127.0.0.1", "127.0.0.2"), "--portal", daemon.portal()],
    ];
    for words in twice {
        fails(2, &[words, &isid].concat(), &said);
    }
    let folder = tempfile::tempdir().unwrap();
    let other = Daemon::start(folder.path(), &["memory:1M"], &[]);
    let once: [&[&str]; 3] = [
        &["bench", from, "--time", "100ms"],
        &["copy", from, &files.path("image"), "--quiet"],
        // It has the same name elsewhere.
        &["copy", from, &other.urls[0], "--quiet"],
    ];
    for words in once {
        good(&[words, &isid].concat());
    }
}

#[test]
fn a_daemon_that_ends_leaves_the_socket_of_another() {
    let files = Files::new();
    let folder = files.folder.path();
    let mut first = Daemon::start(folder, &["memory:1M"], &[]);
    std::fs::remove_file(&first.socket).unwrap();
    let mut second = Daemon::start(folder, &["memory:2M"], &[]);
    let status = ["status", "--control-socket", &second.socket.clone()].map(str::to_owned);
    let status: Vec<&str> = status.iter().map(String::as_str).collect();
    for (daemon, is_left) in [(&mut first, true), (&mut second, false)] {
        daemon.signal(Signal::TERM);
        assert!(daemon.child.wait().unwrap().success());
        assert_eq!(std::fs::symlink_metadata(&daemon.socket).is_ok(), is_left);
        if is_left {
            good(&status);
        }
    }
}

#[test]
fn what_stands_in_the_place_of_the_socket_is_named() {
    let files = Files::new();
    let (file, folder) = (files.with("file", b"notes"), files.path("folder"));
    std::fs::create_dir(&folder).unwrap();
    let device = "/dev/null".to_owned();
    for (path, kind) in [(&file, "a file"), (&folder, "a folder"), (&device, "no socket")] {
        let words = ["serve", "--listen", "127.0.0.1:0", "--lun", "memory:1M"];
        let said = [path, kind, "try: --control-socket"];
        fails(1, &[&words[..], &["--control-socket", path]].concat(), &said);
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"notes");
}
