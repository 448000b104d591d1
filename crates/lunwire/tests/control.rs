// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients of the control socket that are idle, slow, or many: nobody else waits for them.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use rustix::process::Resource;
use rustix::process::Rlimit;

const STATUS: &[u8] = b"{\"request\":\"status\"}\n";

/// Far less than anybody is waited for, and time enough on a machine with much to do.
const SOON: Duration = Duration::from_secs(4);

/// How long a whole request may take, and what a busy machine may add.
const DEADLINE: Duration = Duration::from_secs(15);

struct Daemon {
    child: Child,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control");
        let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
            .args(["serve", "--listen", "127.0.0.1:0", "--lun", "memory:1M", "--control-socket"])
            .arg(&socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, socket, _folder: folder }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// Somebody who asks as one should is answered at once.
    fn assert_answers(&self) {
        let begun = Instant::now();
        let mut stream = self.connect();
        stream.write_all(STATUS).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("\"pid\""), "{answer:?}");
        assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
    }

    /// Processor time so far, clock ticks.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    fn limit_descriptors(&self, count: usize) -> usize {
        let id = rustix::process::Pid::from_raw(self.child.id().cast_signed());
        // The most that it may have is what we may have.
        let own = rustix::process::getrlimit(Resource::Nofile);
        let limit = Rlimit { current: Some(u64::try_from(count).unwrap()), ..own };
        let before = rustix::process::prlimit(id, Resource::Nofile, limit);
        before.unwrap().current.map_or(usize::MAX, |count| usize::try_from(count).unwrap())
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_idle_client_holds_nobody_up() {
    let daemon = Daemon::start();
    let mut idle = daemon.connect();
    daemon.assert_answers();
    // It is told that it was too slow by the end of the connection.
    assert!(idle.read(&mut [0; 64]).is_ok());
}

#[test]
fn hundreds_of_idle_clients_hold_nobody_up() {
    let daemon = Daemon::start();
    let before = daemon.descriptors();
    let idle: Vec<UnixStream> = (0..300).map(|_| daemon.connect()).collect();
    daemon.assert_answers();
    assert!(daemon.descriptors() < before + 100, "the oldest ones go");
    drop(idle);
    daemon.assert_answers();
}

#[test]
fn a_client_that_sends_byte_by_byte_has_one_deadline_for_all() {
    let daemon = Daemon::start();
    let begun = Instant::now();
    let mut slow = daemon.connect();
    slow.write_all(b"{").unwrap();
    while slow.write_all(b" ").is_ok() {
        assert!(begun.elapsed() < DEADLINE, "each byte was a new beginning");
        std::thread::sleep(Duration::from_millis(200));
        daemon.assert_answers();
    }
}

#[test]
fn clients_that_never_read_hold_nobody_up() {
    let daemon = Daemon::start();
    let before = daemon.descriptors();
    let mut deaf = Vec::new();
    for _ in 0..300 {
        let mut stream = daemon.connect();
        stream.write_all(STATUS).unwrap();
        deaf.push(stream);
    }
    daemon.assert_answers();
    assert!(daemon.descriptors() < before + 100);
}

#[test]
fn what_comes_in_pieces_is_understood() {
    let daemon = Daemon::start();
    let mut stream = daemon.connect();
    for piece in STATUS.chunks(3) {
        stream.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"pid\""), "{answer:?}");
}

/// A connection that waits is told of again and again while there is no descriptor for it.
#[test]
fn without_descriptors_the_daemon_waits_and_does_not_spin() {
    let daemon = Daemon::start();
    daemon.assert_answers();
    // Those up to 2 are in use.
    let before = daemon.limit_descriptors(3);
    let mut stream = daemon.connect();
    stream.write_all(STATUS).unwrap();
    let ticks = daemon.ticks();
    std::thread::sleep(Duration::from_secs(1));
    let spent = daemon.ticks() - ticks;
    daemon.limit_descriptors(before);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"pid\""), "{answer:?}");
    assert!(spent < 20, "{spent} hundredths of a second in one second");
}

/// The answer to an order that is said as a client says it.
fn ordered(socket: &std::path::Path, order: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(format!("{order}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Who is next may remove it at once: that is another order.
#[test]
fn a_disk_that_was_added_is_answered_so() {
    const ADD: &str = r#"{"request":"add-lun","target":null,"number":5,"lun":{"store":"null:1M"}}"#;
    const REMOVE: &str = r#"{"request":"remove-lun","target":null,"lun":5,"destroy_data":true}"#;
    let daemon = Daemon::start();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let load = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(load) {
                    ordered(&daemon.socket, REMOVE);
                }
            });
        }
        let mut added = 0;
        let begun = Instant::now();
        let mut other = None;
        while added < 300 && other.is_none() && begun.elapsed() < Duration::from_secs(60) {
            let answer = ordered(&daemon.socket, ADD);
            added += usize::from(answer.contains(r#""reply":"added""#));
            let is_known = answer.contains(r#""reply":"added""#) || answer.contains("LUN 5 is at ");
            other = (!is_known).then_some(answer);
        }
        is_over.store(true, load);
        assert_eq!(other, None, "behind {added} that were added");
    });
}
