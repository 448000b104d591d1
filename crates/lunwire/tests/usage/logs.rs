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
