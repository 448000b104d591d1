// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that break out of what they are confined to.

use super::*;
use std::fs;
use std::io;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::process::Command;

/// What a thread does that has put `reach` on, unless this kernel has no landlock.
fn under<T: Send>(reach: &Reach, does: impl FnOnce(Confined) -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let there = scope.spawn(|| match confine(reach) {
            Ok(confined) => Some(does(confined)),
            Err(Refused::NoLandlock) => None,
            Err(error) => panic!("{error}"),
        });
        there.join().expect("it goes on")
    })
}

fn is_denied<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["in", "read", "out"] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
        fs::write(folder.path().join(name).join("file"), b"x").expect("a file");
    }
    folder
}

fn files(folder: &Path) -> Reach {
    let files = Files {
        read: vec![folder.join("read")],
        change: vec![folder.join("in"), folder.join("missing")],
        sockets: Vec::new(),
    };
    Reach { files: Some(files), ..Reach::default() }
}

#[test]
fn what_is_not_named_cannot_be_opened() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    under(&files(folder.path()), |confined| {
        assert!(confined.files);
        fs::write(at("in/new"), b"x").expect("it may be made");
        fs::rename(at("in/new"), at("in/newer")).expect("renamed");
        fs::remove_file(at("in/newer")).expect("and removed");
        assert_eq!(fs::read(at("read/file")).expect("it may be read"), b"x");
        assert!(is_denied(fs::write(at("read/file"), b"y")));
        assert!(is_denied(fs::read(at("out/file"))));
        assert!(is_denied(fs::write(at("out/new"), b"x")));
        assert!(is_denied(fs::remove_file(at("out/file"))));
        assert!(is_denied(fs::read_dir(at("out"))));
        assert!(is_denied(fs::read("/etc/passwd")));
        assert!(is_denied(fs::read("/proc/self/environ")));
    });
    assert!(fs::read(at("out/file")).is_ok(), "other threads are as they were");
}

/// By another name, and by a descriptor of a folder.
#[test]
fn links_lead_nowhere_else() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink(at("out/file"), at("in/link")).expect("a link");
    let open = fs::File::open(at("out")).expect("a folder");
    under(&files(folder.path()), |_| {
        assert!(is_denied(fs::read(at("in/link"))));
        assert!(is_denied(fs::read(at("in/../out/file"))));
        assert!(fs::hard_link(at("out/file"), at("in/hard")).is_err());
        assert!(fs::rename(at("out/file"), at("in/moved")).is_err());
        let by_descriptor = format!("/proc/self/fd/{}/file", open.as_raw_fd());
        assert!(fs::read(by_descriptor).is_err());
    });
}

#[test]
fn threads_that_are_started_later_are_under_it() {
    let folder = folder();
    let outside = folder.path().join("out/file");
    let denied = under(&files(folder.path()), |_| {
        let there = std::thread::spawn(move || is_denied(fs::read(outside)));
        there.join().expect("threads can be started")
    });
    assert_ne!(denied, Some(false));
}

#[test]
fn files_that_are_open_stay_so() {
    let folder = folder();
    let outside = folder.path().join("out/file");
    let file = fs::File::options().read(true).write(true).open(outside).expect("it is there");
    under(&files(folder.path()), |_| {
        file.set_len(4096).expect("it grows");
        file.sync_all().expect("it is written");
    });
}

/// What is on where nobody names files.
#[test]
fn nothing_is_executed_and_all_else_goes_on() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    under(&Reach::default(), |confined| {
        assert!(!confined.files && !confined.ports);
        assert!(is_denied(Command::new("/bin/true").status()));
        fs::write(at("out/new"), b"x").expect("files are made");
        fs::rename(at("out/new"), at("in/new")).expect("and moved");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        TcpStream::connect(listener.local_addr().expect("it has one")).expect("it is reached");
    });
}

#[test]
fn ports_are_those_that_were_named() {
    let known = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = known.local_addr().expect("it has one");
    let listen = Some(BTreeSet::from([0]));
    under(&Reach { files: None, listen, no_connections: true }, |confined| {
        if !confined.ports {
            return;
        }
        assert!(TcpListener::bind("127.0.0.1:0").is_ok(), "one that the system chooses");
        assert!(is_denied(TcpListener::bind("127.0.0.1:3261")));
        assert!(is_denied(TcpStream::connect(address)));
        // Who was there before goes on.
        known.set_nonblocking(true).expect("it is ours");
        assert!(known.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    });
    assert!(TcpStream::connect(address).is_ok(), "other threads are as they were");
}

#[test]
fn a_socket_is_made_where_nothing_else_is() {
    let folder = folder();
    let files = Files { sockets: vec![folder.path().join("in")], ..Files::default() };
    under(&Reach { files: Some(files), ..Reach::default() }, |_| {
        let place = folder.path().join("in/socket");
        std::os::unix::net::UnixListener::bind(&place).expect("a socket");
        fs::remove_file(&place).expect("it is removed");
        assert!(is_denied(fs::write(folder.path().join("in/new"), b"x")));
        assert!(is_denied(fs::read(folder.path().join("in/file"))));
    });
}
