// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A daemon among people and programs that do not do as it wishes: its log, its signals.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::fs::File;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use rustix::process::Pid;
use rustix::process::Resource;
use rustix::process::Rlimit;
use rustix::process::Signal;
use rustix::process::kill_process;
use rustix::process::prlimit;

/// Whatever is awaited here is there long before.
const PATIENCE: Duration = Duration::from_secs(30);

fn lunwire(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lunwire")).args(arguments).output().unwrap()
}

/// A daemon that ends with the test, however the test ends.
struct Daemon {
    child: Child,
    url: String,
    socket: String,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Daemon {
    /// Its log goes to a file.
    fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, |log| File::create(log).unwrap().into())
    }

    fn start_with(arguments: &[&str], stderr: impl FnOnce(&PathBuf) -> Stdio) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control").display().to_string();
        let log = folder.path().join("log");
        let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
            .args(["serve", "--listen", "127.0.0.1:0", "--control-socket", &socket])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(stderr(&log))
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.next().unwrap().unwrap().strip_prefix("serving ").unwrap().to_owned();
        Self { child, url, socket, log, _folder: folder }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the log has a line with all of `words`.
    fn expect(&self, words: &[&str]) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = self.log();
            let found = log.lines().find(|line| words.iter().all(|word| line.contains(word)));
            if let Some(line) = found {
                return line.to_owned();
            }
            assert!(Instant::now() < deadline, "no line with {words:?} in:\n{log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn portal(&self) -> &str {
        self.url.strip_prefix("iscsi://").unwrap().split('/').next().unwrap()
    }

    /// It answers, on the control socket and to initiators.
    fn assert_serves(&self) {
        let status = lunwire(&["status", "--control-socket", &self.socket]);
        assert!(status.status.success(), "{status:?}");
        let read = self.read();
        assert!(read.status.success(), "{read:?}");
    }

    fn read(&self) -> Output {
        let mut read = Command::new(env!("CARGO_BIN_EXE_lunwire"));
        read.args(["read", &self.url, "--quiet"]).stdout(Stdio::null()).output().unwrap()
    }

    fn stop(&mut self) -> i32 {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status.code().unwrap(),
                None => assert!(Instant::now() < deadline, "it does not end"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// More lines than any pipe holds, from the filter that logs each operation.
fn talk(daemon: &Daemon) {
    let bench = lunwire(&["bench", &daemon.url, "--time", "1s"]);
    assert!(bench.status.success(), "{bench:?}");
    daemon.assert_serves();
}

#[test]
fn a_log_that_nobody_reads_stops_nobody() {
    let mut daemon = Daemon::start_with(&["--lun", "memory:1M,log"], |_| Stdio::piped());
    talk(&daemon);
    assert_eq!(daemon.stop(), 0);
}

/// It cannot be said why there is no daemon: there is none all the same.
#[test]
fn an_error_that_nobody_reads_holds_up_no_end() {
    let (_reader, mut full) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[b'\n'; 4096]).is_ok() {}
    full.set_nonblocking(false).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["serve", "--listen", "127.0.0.1:0", "--lun", "file:/nonexistent/disk"])
        .stdout(Stdio::null())
        .stderr(OwnedFd::from(full))
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status.code(),
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            None => {
                child.kill().unwrap();
                break child.wait().unwrap().code();
            }
        }
    };
    assert_eq!(status, Some(1), "it does not end");
}

#[test]
fn a_log_that_cannot_be_written_ends_nobody() {
    let mut daemon = Daemon::start_with(&["--lun", "memory:1M,log"], |_| Stdio::piped());
    drop(daemon.child.stderr.take());
    talk(&daemon);
    assert_eq!(daemon.stop(), 0);
    let mut daemon = Daemon::start_with(&["--lun", "memory:1M,log"], |_| {
        File::options().write(true).open("/dev/full").unwrap().into()
    });
    talk(&daemon);
    assert_eq!(daemon.stop(), 0);
}

/// What a peer can cause is bounded, and how much was left out is told.
#[test]
fn a_noisy_peer_does_not_fill_the_log() {
    const CONNECTIONS: usize = 2000;
    // None of them goes for another one.
    let options = ["--lun", "memory:1M", "--unauthenticated-per-address", "4096"];
    let mut daemon = Daemon::start(&options);
    let begun = Instant::now();
    for _ in 0..CONNECTIONS {
        // No login begins so.
        let mut stream = TcpStream::connect(daemon.portal()).unwrap();
        stream.write_all(&[0x3f; 48]).unwrap();
        // Closed or reset: a daemon that is stopped earlier has not seen it.
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
    let line = daemon.expect(&["127.0.0.1", "left_out"]);
    assert!(line.contains("left out"), "{line}");
    assert_eq!(daemon.stop(), 0);
    let log = daemon.log();
    let told = log.lines().filter(|line| line.contains("closed before login")).count();
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap() + 1;
    assert!(told <= 20 * seconds, "{told} lines in {seconds} s");
    let left_out: usize = log
        .lines()
        .filter_map(|line| line.split_once("left_out=")?.1.split(' ').next()?.parse::<usize>().ok())
        .sum();
    assert_eq!(told + left_out, CONNECTIONS);
}

/// Each would end a process by itself, without a flush or a word.
#[test]
fn signals_that_ask_for_nothing_are_told_and_ignored() {
    let mut daemon = Daemon::start(&["--lun", "memory:1M"]);
    for (signal, name) in [
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::XFSZ, "SIGXFSZ"),
    ] {
        daemon.signal(signal);
        daemon.expect(&[name, "ignored"]);
        daemon.assert_serves();
    }
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_start_and_a_stop_say_what_matters() {
    let mut daemon = Daemon::start(&["--engine", "epoll", "--lun", "memory:1M"]);
    assert_eq!(daemon.log(), "", "the first lines are those that say what is served");
    assert_eq!(daemon.stop(), 0);
    let log = daemon.log();
    assert!(!log.contains("os error"), "{log}");
    assert!(log.contains("stopped"), "{log}");
}

#[test]
fn a_failing_store_is_in_the_log() {
    let mut daemon = Daemon::start(&["--lun", "memory:1M,error=write"]);
    let source = daemon.log.with_file_name("source").display().to_string();
    std::fs::write(&source, [7; 4096]).unwrap();
    let failed = lunwire(&["write", &daemon.url, &source]);
    assert!(!failed.status.success());
    daemon.expect(&["WARN", "disk=", "write", "not written"]);
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_refused_login_says_who_asked_for_what() {
    let mut daemon = Daemon::start(&["--lun", "memory:1M"]);
    let url = format!("iscsi://{}/iqn.2026-01.com.example:other/0", daemon.portal());
    let name = "iqn.2026-01.com.example:guest";
    assert!(!lunwire(&["read", &url, "/dev/null", "--initiator", name]).status.success());
    daemon.expect(&["login refused", name, "iqn.2026-01.com.example:other"]);
    assert_eq!(daemon.stop(), 0);
}

/// No stack fits into what is left to it, as where a control group lets nobody start a thread.
fn keep_from_threads(daemon: &Daemon) {
    let size_now = || -> u64 {
        let facts = std::fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
        let size = facts.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        size.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    };
    // Its threads are there when it serves, but on a busy machine not all that they take.
    let mut size = size_now();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let before = std::mem::replace(&mut size, size_now());
        if size == before {
            break;
        }
    }
    let bound = Rlimit { current: Some((size + 1024) << 10), maximum: None };
    prlimit(Some(Pid::from_child(&daemon.child)), Resource::As, bound).unwrap();
}

#[test]
fn a_daemon_that_can_start_no_thread_goes_on() {
    let luns = ["--lun", "memory:1M"].repeat(40);
    let mut daemon = Daemon::start(&[&luns[..], &["--http", "127.0.0.1:0"]].concat());
    let socket = daemon.socket.clone();
    let ask = |words: &[&str]| lunwire(&[words, &["--control-socket", &socket]].concat());
    let status = ask(&["status", "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    let address = status["http"].as_str().unwrap();
    keep_from_threads(&daemon);
    assert!(ask(&["lun", "rescan"]).status.success());
    for _ in 0..2 {
        let mut asked = TcpStream::connect(address).unwrap();
        asked.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        asked.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    daemon.signal(Signal::HUP);
    let traced = ask(&["trace", "-o", "-", "--time", "1s"]);
    let said = String::from_utf8_lossy(&traced.stderr).into_owned();
    assert!(!traced.status.success() && said.contains("no thread or descriptor"), "{said}");
    assert!(ask(&["status"]).status.success());
    assert!(daemon.child.try_wait().unwrap().is_none(), "it is there");
    daemon.signal(Signal::TERM);
    assert!(daemon.child.wait().unwrap().success());
}

/// What would wait for a file in a thread is done all the same.
#[test]
fn a_disk_is_written_where_no_thread_can_be_started() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, data) = (folder.path().join("disk"), folder.path().join("data"));
    std::fs::write(&data, vec![7; 1 << 20]).unwrap();
    let lun = format!("file:{},size=1M", disk.display());
    for engine in ["epoll", "auto"] {
        let mut daemon = Daemon::start(&["--lun", &lun, "--engine", engine]);
        keep_from_threads(&daemon);
        let from = data.display().to_string();
        let copied = lunwire(&["copy", &from, &daemon.url, "--verify", "--quiet"]);
        assert!(copied.status.success(), "{engine}: {copied:?}");
        assert_eq!(daemon.stop(), 0);
    }
    assert!(std::fs::read(&disk).unwrap().iter().all(|byte| *byte == 7));
}
