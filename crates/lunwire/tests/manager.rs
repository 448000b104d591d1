// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A daemon that a service manager has started: what it is told and when, as sd_notify(3) has it.
#![allow(clippy::unwrap_used)] // a test that panics has failed

mod support;

use std::io::Read;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use conformance::Initiator;
use conformance::LoginPlan;
use conformance::Raw;
use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;

/// Whatever is awaited here is there long before.
const PATIENCE: Duration = Duration::from_secs(60);

const ONE: &str = "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-01.test.lunwire:a\"\n\
                   [[target.lun]]\nstore = \"memory:1M\"\n";
const SECOND: &str = "[[target.lun]]\nstore = \"memory:1M\"\n";

/// A daemon that ends with the test, however the test ends.
struct Daemon(Child);

impl Daemon {
    fn start(folder: &Path, environment: &[(&str, &str)]) -> Self {
        Self::with(folder, environment, &[])
    }

    fn with(folder: &Path, environment: &[(&str, &str)], more: &[&str]) -> Self {
        let mut command = support::that_takes_signals();
        command.envs(environment.iter().copied()).arg("serve");
        command.arg("--config").arg(folder.join("file"));
        command.arg("--control-socket").arg(folder.join("control")).args(more);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    #[track_caller]
    fn ends_well(&mut self) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The next word, but for those to the watchdog.
#[track_caller]
fn hear(manager: &UnixDatagram) -> String {
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    loop {
        let mut bytes = [0; 1000];
        let count = manager.recv(&mut bytes).unwrap();
        let word = String::from_utf8(bytes[..count].to_vec()).unwrap();
        if word != "WATCHDOG=1" {
            return word;
        }
    }
}

fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), config).unwrap();
    folder
}

#[test]
fn a_manager_is_told_of_start_reload_and_end() {
    let folder = folder(ONE);
    let place = folder.path().join("notify");
    let manager = UnixDatagram::bind(&place).unwrap();
    let place = place.display().to_string();
    let mut daemon = Daemon::start(folder.path(), &[("NOTIFY_SOCKET", &place)]);
    // To be listened at when it is started again.
    assert!(hear(&manager).starts_with("FDSTORE=1\nFDNAME=portal-127.0.0.1_"));
    assert_eq!(hear(&manager), "READY=1\nSTATUS=LUNs: 1, targets: 1");
    std::fs::write(folder.path().join("new"), [ONE, SECOND].concat()).unwrap();
    std::fs::rename(folder.path().join("new"), folder.path().join("file")).unwrap();
    daemon.signal(Signal::HUP);
    let word = hear(&manager);
    let time = word.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    assert!(time.parse::<u64>().unwrap() > 0, "{word}");
    assert!(hear(&manager).starts_with("FDSTORE=1\n"), "once more: the manager knows it");
    assert_eq!(hear(&manager), "READY=1\nSTATUS=LUNs: 2, targets: 1");
    daemon.signal(Signal::TERM);
    assert_eq!(hear(&manager), "STOPPING=1\nSTATUS=initiators are asked to log out");
    daemon.ends_well();
}

/// In the abstract namespace, as in a container; there it is told of life, too.
#[test]
fn a_watchdog_hears_of_it_again_and_again() {
    let folder = folder(ONE);
    let name = format!("lunwire-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
    let manager = UnixDatagram::bind_addr(&address).unwrap();
    let place = format!("@{name}");
    let environment = [("NOTIFY_SOCKET", &*place), ("WATCHDOG_USEC", "300000")];
    let mut daemon = Daemon::start(folder.path(), &environment);
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut words, mut bytes) = (0, [0; 1000]);
    while words < 5 {
        let count = manager.recv(&mut bytes).unwrap();
        words += usize::from(&bytes[..count] == b"WATCHDOG=1");
    }
    // A process that stands still does not say that it is well.
    daemon.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(100));
    manager.set_nonblocking(true).unwrap();
    while manager.recv(&mut bytes).is_ok() {}
    std::thread::sleep(Duration::from_millis(600));
    assert!(manager.recv(&mut bytes).is_err(), "it stands still");
    daemon.signal(Signal::CONT);
    daemon.signal(Signal::TERM);
    daemon.ends_well();
}

/// Who is not heard for so long is taken for dead: less than one that takes over may keep all
/// waiting, and more than a machine with much to do stands still.
const WATCHDOG: Duration = Duration::from_millis(1500);

/// There is a word at least within each time of the watchdog.
#[track_caller]
fn hear_life(manager: &UnixDatagram, seconds: u64) {
    manager.set_read_timeout(Some(WATCHDOG)).unwrap();
    let (begun, mut bytes) = (Instant::now(), [0; 1000]);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let heard = manager.recv(&mut bytes);
        assert!(heard.is_ok(), "{:?} after {:?}", heard, begun.elapsed());
    }
}

/// One takes over from another one, which takes over from the one that the manager has started.
#[test]
fn a_watchdog_hears_of_it_across_take_overs() {
    let folder = folder(ONE);
    let place = folder.path().join("notify");
    let manager = UnixDatagram::bind(&place).unwrap();
    let place = place.display().to_string();
    let within = WATCHDOG.as_micros().to_string();
    let mut daemon =
        Daemon::start(folder.path(), &[("NOTIFY_SOCKET", &place), ("WATCHDOG_USEC", &within)]);
    while !hear(&manager).starts_with("READY=1") {}
    for _ in 0..2 {
        let next = Daemon::with(folder.path(), &[("NOTIFY_SOCKET", &place)], &["--take-over"]);
        while !hear(&manager).starts_with("MAINPID=") {}
        daemon.ends_well();
        daemon = next;
        hear_life(&manager, 1);
    }
    // While one that says that it wants the disks keeps all waiting.
    let mut asked = UnixStream::connect(folder.path().join("control")).unwrap();
    let ask = "{\"request\":\"take-over\",\"protocol\":1,\"version\":\"0\"}\n";
    asked.write_all(ask.as_bytes()).unwrap();
    assert!(asked.read(&mut [0; 4096]).unwrap() > 100, "an offer");
    asked.write_all(b"{\"word\":\"take\"}\n").unwrap();
    hear_life(&manager, 3);
    assert!(daemon.0.try_wait().unwrap().is_none());
    drop(asked);
    while !hear(&manager).starts_with("READY=1") {}
    hear_life(&manager, 1);
    daemon.signal(Signal::TERM);
    daemon.ends_well();
}

/// Hosts log out late, or not at all, and disks are flushed for long.
#[test]
fn a_watchdog_hears_of_it_while_disks_are_closed() {
    let folder = folder(ONE);
    let place = folder.path().join("notify");
    let manager = UnixDatagram::bind(&place).unwrap();
    let place = place.display().to_string();
    let mut daemon =
        Daemon::start(folder.path(), &[("NOTIFY_SOCKET", &place), ("WATCHDOG_USEC", "300000")]);
    let word = hear(&manager);
    let port = word.strip_prefix("FDSTORE=1\nFDNAME=portal-127.0.0.1_").unwrap();
    let portal = format!("127.0.0.1:{port}").parse().unwrap();
    while !hear(&manager).starts_with("READY=1") {}
    let target = Some("iqn.2026-01.test.lunwire:a".to_owned());
    let plan = LoginPlan { target, ..LoginPlan::new() };
    let _stays = Initiator::login(Raw::connect(portal).unwrap(), &plan);
    let mut asked = UnixStream::connect(folder.path().join("control")).unwrap();
    let ask = "{\"request\":\"take-over\",\"protocol\":1,\"version\":\"0\"}\n";
    asked.write_all(ask.as_bytes()).unwrap();
    assert!(asked.read(&mut [0; 4096]).unwrap() > 100, "an offer");
    asked.write_all(b"{\"word\":\"take\"}\n").unwrap();
    hear_life(&manager, 4);
    drop(asked);
    while !hear(&manager).starts_with("READY=1") {}
    daemon.signal(Signal::TERM);
    daemon.ends_well();
}

#[test]
fn a_watchdog_of_another_process_hears_nothing() {
    let folder = folder(ONE);
    let place = folder.path().join("notify");
    let manager = UnixDatagram::bind(&place).unwrap();
    let place = place.display().to_string();
    let environment =
        [("NOTIFY_SOCKET", &*place), ("WATCHDOG_USEC", "3000"), ("WATCHDOG_PID", "1")];
    let mut daemon = Daemon::start(folder.path(), &environment);
    assert!(hear(&manager).starts_with("FDSTORE=1"));
    assert!(hear(&manager).starts_with("READY=1"));
    std::thread::sleep(Duration::from_millis(100));
    daemon.signal(Signal::TERM);
    let mut bytes = [0; 1000];
    let count = manager.recv(&mut bytes).unwrap();
    assert!(bytes[..count].starts_with(b"STOPPING=1"), "{:?}", &bytes[..count]);
    daemon.ends_well();
}

/// Its words are dropped then, and nobody waits for it.
#[test]
fn a_manager_that_does_not_read_holds_up_nothing() {
    let folder = folder(ONE);
    let place = folder.path().join("notify");
    let _manager = UnixDatagram::bind(&place).unwrap();
    let place = place.display().to_string();
    let environment = [("NOTIFY_SOCKET", &*place), ("WATCHDOG_USEC", "30000")];
    let mut daemon = Daemon::start(folder.path(), &environment);
    let begun = Instant::now();
    while !folder.path().join("control").exists() {
        assert!(begun.elapsed() < PATIENCE, "it does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    // More words than a socket has room for.
    std::thread::sleep(Duration::from_secs(2));
    daemon.signal(Signal::TERM);
    daemon.ends_well();
}
