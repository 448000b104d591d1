// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One signal ends a client, whatever has become of its target.
#![allow(clippy::unwrap_used)] // a test that panics has failed

mod support;

use std::net::TcpListener;
use std::process::Child;
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use conformance::Digests;
use conformance::Fate;
use conformance::Proxy;
use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;
use support::Daemon;
use support::await_ears;
use support::stderr;
use support::stdout;
use support::that_takes_signals;

/// Until a client that hears signals waits for something, or has noticed that its target is gone.
const PAUSE: Duration = Duration::from_millis(1500);

/// What waits for nobody has ended, on a machine with much to do, and nobody is given up so soon.
const AT_ONCE: Duration = Duration::from_secs(5);

/// What a client says that does not come to its end by itself.
const LATE: &str = "what is under way does not end";

/// Far less than the patience of the clients, and time enough on a machine with much to do.
const END: Duration = Duration::from_secs(20);

fn client(arguments: &[&str]) -> Child {
    let mut command = that_takes_signals();
    command.args(arguments).args(["--patience", "300s"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What it says after one signal, and how long it took.
#[track_caller]
fn interrupted(mut child: Child, signal: Signal) -> (Output, Duration) {
    let begun = Instant::now();
    kill_process(Pid::from_child(&child), signal).unwrap();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > END {
            child.kill().unwrap();
            panic!("it goes on: {}", stderr(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let time = begun.elapsed();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    (output, time)
}

#[test]
fn a_bench_ends_at_one_signal_though_its_target_is_gone() {
    for (frozen, signal) in [(false, Signal::TERM), (true, Signal::INT)] {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = Daemon::start(folder.path(), &["memory:16M"], &[]);
        let bench = client(&["bench", &daemon.urls[0], "--time", "300s", "--json"]);
        daemon.await_work();
        if frozen {
            daemon.signal(Signal::STOP);
        } else {
            daemon.kill();
        }
        std::thread::sleep(PAUSE);
        let (output, time) = interrupted(bench, signal);
        let said = stderr(&output);
        assert!(said.contains("interrupted: the figures are those up to then"), "{said}");
        let told: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert!(told["results"][0]["requests"].as_u64().unwrap() > 0, "{told}");
        // There is nobody to wait for.
        assert!(frozen || time < AT_ONCE, "{time:?}");
        assert!(frozen || !said.contains(LATE), "{said}");
    }
}

/// Whoever interrupts a check hears that it was not done.
#[test]
fn a_bench_that_is_interrupted_says_that_it_has_not_checked_all() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), &["memory:16M"], &[]);
    let url = daemon.urls[0].as_str();
    let check = ["--reads", "50", "--destroy-data", "--verify", "--time", "300s"];
    for json in [None, Some("--json")] {
        let arguments: Vec<&str> = ["bench", url].into_iter().chain(check).chain(json).collect();
        let bench = client(&arguments);
        daemon.await_work();
        let (output, _) = interrupted(bench, Signal::INT);
        let told = stdout(&output);
        match json {
            Some(_) => {
                let told: serde_json::Value = serde_json::from_str(&told).unwrap();
                assert_eq!(told["results"][0]["read_again"], false, "{told}");
            }
            None => assert!(told.contains("; not all that was written was read again"), "{told}"),
        }
        let said = stderr(&output);
        assert!(said.contains(", and not all that was written was read again"), "{said}");
    }
}

#[test]
fn a_client_that_waits_for_a_login_ends_at_one_signal() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let portal = listener.local_addr().unwrap().to_string();
    let url = format!("iscsi://{portal}/{}/0", support::TARGET);
    for arguments in [["discover", portal.as_str()], ["inspect", url.as_str()]] {
        let mut child = client(&arguments);
        await_ears(&mut child);
        std::thread::sleep(PAUSE);
        interrupted(child, Signal::TERM);
    }
}

/// Nothing is under way: there is nothing to wait for.
#[test]
fn a_client_that_waits_for_its_input_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), &["memory:16M"], &[]);
    let url = daemon.urls[0].as_str();
    for arguments in [["write", url, "-"], ["copy", "-", url]] {
        let mut command = that_takes_signals();
        command.args(arguments).arg("--quiet").stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        await_ears(&mut child);
        std::thread::sleep(PAUSE);
        let (output, time) = interrupted(child, Signal::INT);
        assert!(time < AT_ONCE, "{time:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains(LATE), "{}", stderr(&output));
        assert!(stderr(&output).contains("interrupted"), "{}", stderr(&output));
        drop(input);
    }
}

/// Megabytes of a copy that is given up are on their way on a slow line, long after the program has
/// gone: they must not come over what is written next.
#[test]
fn nothing_that_was_under_way_reaches_a_disk_after_the_end() {
    const SIZE: usize = 8 << 20;
    let folder = tempfile::tempdir().unwrap();
    let [old, new, read] = ["old", "new", "read"].map(|name| folder.path().join(name));
    std::fs::write(&old, vec![1; SIZE]).unwrap();
    std::fs::write(&new, vec![2; SIZE]).unwrap();
    let [old, new, read] = [&old, &new, &read].map(|path| path.to_str().unwrap());
    let daemon = Daemon::start(folder.path(), &["memory:8M"], &[]);
    let (url, portal) = (daemon.urls[0].as_str(), daemon.portal());
    // 400 kB/s.
    let proxy = Proxy::start(portal.parse().unwrap(), Digests::default(), |pdu| {
        std::thread::sleep(Duration::from_nanos(2500) * u32::try_from(pdu.data.len()).unwrap());
        Fate::Pass
    });
    let copy = client(&["copy", old, &url.replace(portal, &proxy.portal().to_string())]);
    daemon.await_work();
    std::thread::sleep(PAUSE);
    interrupted(copy, Signal::INT);
    for arguments in [["copy", new, url], ["read", url, read]] {
        let output = client(&arguments).wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        // What has left has time to come.
        std::thread::sleep(PAUSE * 2);
    }
    assert!(std::fs::read(read).unwrap() == vec![2; SIZE], "something of the old copy came");
}

/// Nothing was written yet: it ends at once, says what it waited for, and leaves nothing behind.
#[test]
fn an_attachment_that_waits_for_its_login_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let frozen = TcpListener::bind("127.0.0.1:0").unwrap();
    for portal in [silent, frozen.local_addr().unwrap()] {
        let url = format!("iscsi://{portal}/{}/0", support::TARGET);
        let state = folder.path().join("state");
        let place = folder.path().join("socket").display().to_string();
        let mut words = vec!["attach", &url, "--nbd", &place, "--state-dir"];
        words.push(state.to_str().unwrap());
        let mut child = client(&words);
        await_ears(&mut child);
        std::thread::sleep(PAUSE);
        let (output, time) = interrupted(child, Signal::INT);
        let said = stderr(&output);
        assert!(time < AT_ONCE, "{time:?}: {said}");
        assert!(said.contains("interrupted before the login was over"), "{said}");
        let left: Vec<_> = std::fs::read_dir(&state).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Whoever has called it waits for it no more, as after Ctrl-C: it does not go on by itself.
#[test]
fn an_attachment_in_the_background_ends_with_who_has_called_it() {
    let folder = tempfile::tempdir().unwrap();
    let frozen = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("iscsi://{}/{}/0", frozen.local_addr().unwrap(), support::TARGET);
    let state = folder.path().join("state");
    let place = folder.path().join("socket").display().to_string();
    let mut words = vec!["attach", &url, "--nbd", &place, "--daemon", "--state-dir"];
    words.push(state.to_str().unwrap());
    let mut child = client(&words);
    std::thread::sleep(PAUSE);
    child.kill().unwrap();
    let begun = Instant::now();
    // It has the same standard error.
    let said = stderr(&child.wait_with_output().unwrap());
    assert!(begun.elapsed() < AT_ONCE, "{:?}: {said}", begun.elapsed());
    assert!(said.contains("nobody waits for it any more"), "{said}");
    assert!(std::fs::read_dir(&state).unwrap().next().is_none(), "something is left");
}
