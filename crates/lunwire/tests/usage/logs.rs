// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the log of a daemon tells, whatever else there is to tell.

use crate::support::Daemon;
use crate::support::Files;
use crate::support::fails;
use crate::support::good;

/// Who looks for attempts to get in finds them, however busy the address is that they come from.
#[test]
fn good_logins_do_not_hide_one_that_is_refused() {
    let files = Files::new();
    let right = files.with("right", b"a secret that is right");
    let wrong = files.with("wrong", b"a secret that is wrong");
    let account = ["--chap-user", "host", "--chap-secret-file"];
    let serve = [&account[..], &[&right]].concat();
    let daemon = Daemon::start_logged(files.folder.path(), &["memory:1M"], &serve);
    let url = daemon.urls[0].as_str();
    // Several sets of logins, each of which is more than is told of one address in a second.
    let busy = [&["bench", url, "--sessions", "64", "--time", "10ms"][..], &serve].concat();
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        let working: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while begun.elapsed().as_secs() < 5 {
                        good(&busy);
                    }
                })
            })
            .collect();
        Daemon::told(files.folder.path(), "left_out");
        let words =
            [&["inspect", url, "--initiator", "iqn.2026-01.com.example:guest"][..], &account];
        fails(1, &[words.concat().as_slice(), &[&wrong]].concat(), &["login"]);
        working.into_iter().for_each(|one| one.join().unwrap());
    });
    let line = Daemon::told(files.folder.path(), "login refused");
    assert!(line.contains("iqn.2026-01.com.example:guest"), "{line}");
}

#[test]
fn a_command_that_is_slow_is_told_of_with_where_its_time_went() {
    let files = Files::new();
    let folder = files.folder.path();
    let store = "memory:1M,delay=write:400ms";
    let daemon = Daemon::start_logged(folder, &[store], &["--slow", "200ms"]);
    let data = files.with("data", &[7; 4096]);
    good(&["write", &daemon.urls[0], &data, "--offset", "8K"]);
    let line = Daemon::told(folder, "command=\"WRITE(10)\"");
    let part = |name: &str| -> f64 {
        let rest = line.split_once(&format!(" {name}=")).expect("it has the part").1;
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    for text in ["WARN", "a command was slow", "lun=0", "cdb=\"2a000000001000000800\"", "GOOD"] {
        assert!(line.contains(text), "{text}: {line}");
    }
    assert!(part("store_ms") >= 400.0 && part("took_ms") >= part("store_ms"), "{line}");
    let others = ["data_ms", "memory_ms", "others_ms", "server_ms"].map(part);
    assert!(
        (part("took_ms") - part("store_ms") - others.iter().sum::<f64>()).abs() < 0.01,
        "{line}"
    );
}

/// It is the one that somebody looks for.
#[test]
fn a_slow_command_that_its_host_aborts_is_told_of() {
    let files = Files::new();
    let folder = files.folder.path();
    let store = "memory:1M,delay=read:20s";
    let daemon = Daemon::start_logged(folder, &[store], &["--slow", "500ms"]);
    let back = files.path("back");
    let read = ["read", &daemon.urls[0], &back, "--length", "4K", "--command-timeout", "1s"];
    fails(1, &[&read[..], &["--patience", "1s"]].concat(), &[]);
    let line = Daemon::told(folder, "status=\"aborted\"");
    assert!(line.contains("a command was slow") && line.contains("READ("), "{line}");
}
