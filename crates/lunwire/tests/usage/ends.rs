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
