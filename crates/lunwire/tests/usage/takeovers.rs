// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that want to serve next, and do not.

mod window;

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use conformance::Host;
use conformance::Initiator;
use conformance::LoginPlan;
use conformance::Raw;
use conformance::initiator::cdb10;
use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;

use super::support::Daemon;
use super::support::Files;
use super::support::TARGET;
use super::support::good;
use super::support::lunwire;
use super::support::stdout;
use super::support::that_takes_signals;

const ASYNC_MESSAGE: u8 = 0x32;
const WRITE_10: u8 = 0x2a;
const FORMAT_UNIT: u8 = 0x04;
const BUSY: u8 = 0x08;

/// A process that is to serve next.
pub(crate) struct Next {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Next {
    /// It has the sockets, and not the disks.
    pub(crate) fn of(daemon: &Daemon) -> Self {
        let mut next = Self::asks(daemon);
        next.hear(r#""reply":"offer""#);
        next
    }

    fn asks(daemon: &Daemon) -> Self {
        Self::asks_at(&daemon.socket)
    }

    fn asks_at(socket: &str) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        let mut next = Self { stream, lines };
        next.say(r#"{"request":"take-over","protocol":1,"version":"0.0.0"}"#);
        next
    }

    /// The disks are its own.
    pub(crate) fn take(mut self) -> Self {
        self.say(r#"{"word":"take"}"#);
        self.hear(r#""word":"released""#);
        self
    }

    fn say(&mut self, word: &str) {
        writeln!(self.stream, "{word}").unwrap();
    }

    #[track_caller]
    fn hear(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim().is_empty() {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it hangs up before {word}");
        }
        assert!(line.contains(word), "{word}: {line}");
    }
}

/// A session that does not log out when it is asked to.
fn host_of(daemon: &Daemon) -> Host {
    let raw = Raw::connect(daemon.portal().parse().unwrap()).unwrap();
    let plan = LoginPlan { target: Some(TARGET.to_owned()), ..LoginPlan::new() };
    let mut session = Initiator::login(raw, &plan);
    session.settle(0);
    Host::new(session, 0, 512)
}

/// Another process serves in the place of this one.
#[track_caller]
fn take_over(daemon: &mut Daemon, words: &[&str]) {
    let mut next = that_takes_signals();
    next.args(["serve", "--take-over", "--listen", "127.0.0.1:0", "--target", TARGET]);
    next.args(["--control-socket", &daemon.socket, "--log", "error"]).args(words);
    takes_place(daemon, next);
}

#[track_caller]
fn takes_place(daemon: &mut Daemon, mut next: Command) {
    let next = next.stdout(Stdio::null()).spawn().unwrap();
    let mut before = std::mem::replace(&mut daemon.child, next);
    let ended = loop {
        if let Some(ended) = before.try_wait().unwrap() {
            break ended;
        }
        if daemon.child.try_wait().unwrap().is_some() {
            daemon.child = before;
            panic!("it does not take over");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(ended.success());
}

#[track_caller]
fn expect_service(daemon: &Daemon, patience: Duration) {
    let begun = Instant::now();
    while !lunwire(&["inspect", &daemon.urls[0]]).status.success() {
        assert!(begun.elapsed() < patience, "nobody serves");
    }
}

#[test]
fn who_takes_and_says_nothing_does_not_keep_disks_from_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let disk = format!("file:{},size=1M", folder.path().join("disk").display());
    let daemon = Daemon::start(folder.path(), &[&disk], &[]);
    let mut next = Next::of(&daemon).take();
    // It opens disks for longer than one may say nothing.
    let begun = Instant::now();
    for disks in 1..=6 {
        std::thread::sleep(Duration::from_secs(2));
        next.say(&format!(r#"{{"word":"opening","disks":{disks}}}"#));
    }
    // And is stopped, or hangs.
    expect_service(&daemon, Duration::from_secs(30));
    assert!(begun.elapsed() > Duration::from_secs(12));
    let told = good(&["events", "--control-socket", &daemon.socket]);
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("another process has not taken over: serving again"), "{told}");
    assert!(told.contains("it says nothing within 10 s"), "{told}");
}

/// The port is shut to people then, and disks are not to hosts.
#[test]
fn tokens_that_cannot_be_read_keep_nobody_from_serving_again() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, format!("change {}\n", "a".repeat(32))).unwrap();
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let disk = format!("file:{},size=1M", folder.path().join("disk").display());
    let http = ["--http", "127.0.0.1:0", "--http-token-file", tokens.to_str().unwrap()];
    let daemon = Daemon::start(folder.path(), &[&disk], &http);
    std::fs::remove_file(&tokens).unwrap();
    drop(Next::of(&daemon).take());
    expect_service(&daemon, Duration::from_secs(20));
}

/// What is beside disks may have gone by then: hosts do not wait for it.
#[test]
fn what_is_gone_beside_the_disks_keeps_nobody_from_serving_again() {
    let files = Files::new();
    let text = "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-01.example:t\"\n\
                [[target.lun]]\nstore = \"file:disk,size=1M\"\n";
    let config = files.with("lunwire.toml", text.as_bytes());
    let beside = files.folder.path().join("beside");
    std::fs::create_dir(&beside).unwrap();
    let capture = beside.join("capture.pcap").display().to_string();
    for what in ["capture", "watch", "control socket"] {
        files.with("lunwire.toml", text.as_bytes());
        let _ = std::fs::create_dir(&beside);
        let more = ["--watch", "--capture", &capture];
        let more = match what {
            "capture" => &more[1..],
            "watch" => &more[..1],
            _ => &[],
        };
        let daemon = Daemon::start_configured(files.folder.path(), &config, 1, more);
        let next = Next::of(&daemon);
        match what {
            "capture" => std::fs::remove_dir_all(&beside).unwrap(),
            "watch" => std::fs::remove_file(&config).unwrap(),
            _ => std::fs::remove_file(&daemon.socket).unwrap(),
        }
        drop(next.take());
        expect_service(&daemon, Duration::from_secs(20));
        good(&["status", "--control-socket", &daemon.socket]);
    }
}

/// Its end was asked for before it had what it is to serve.
#[test]
fn who_is_stopped_while_it_opens_disks_leaves_them_to_who_had_them() {
    let files = Files::new();
    let disk = format!("file:{},size=1M", files.path("disk"));
    let other = files.with("other", &[0; 1 << 20]);
    let daemon = Daemon::start(files.folder.path(), &[&disk], &[]);
    let held = std::fs::File::open(&other).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let log = std::fs::File::create(files.path("log")).unwrap();
    let mut next = that_takes_signals();
    next.args(["serve", "--take-over", "--listen", "127.0.0.1:0", "--target", TARGET]);
    next.args(["--control-socket", &daemon.socket, "--lun", &disk]);
    next.args(["--lun", &format!("file:{other}")]).stdout(Stdio::null()).stderr(log);
    let mut next = next.spawn().unwrap();
    Daemon::told(files.folder.path(), "taking over");
    std::thread::sleep(Duration::from_millis(500));
    let pid = Pid::from_child(&next);
    kill_process(pid, Signal::TERM).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    drop(held);
    assert!(next.wait().unwrap().success(), "{}", Daemon::told(files.folder.path(), ""));
    expect_service(&daemon, Duration::from_secs(20));
}

/// It has time to look at its configuration, and hosts write meanwhile.
#[test]
fn what_hosts_write_to_memory_before_disks_are_taken_is_not_lost() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let mut next = Next::of(&daemon);
    let image = files.with("image", &[7; 1 << 20]);
    good(&["copy", &image, &daemon.urls[0]]);
    next.say(r#"{"word":"take"}"#);
    next.hear("it is in memory, and what hosts wrote to it would be lost");
    let read = files.path("read");
    good(&["copy", &daemon.urls[0], &read]);
    assert!(std::fs::read(&read).unwrap() == [7; 1 << 20], "it is there");
    good(&["lun", "add", "null:1M", "--control-socket", &daemon.socket]);
}

/// No block of it is written to, and how it is formatted would be lost all the same.
#[test]
fn what_hosts_have_made_of_a_disk_in_memory_by_a_format_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), &["memory:1M"], &["--protection", "1"]);
    drop(Next::of(&daemon));
    let mut host = host_of(&daemon);
    assert_eq!(host.send(&[FORMAT_UNIT, 0, 0, 0, 0, 0], &[]).code, 0);
    host.session.leave();
    Next::asks(&daemon).hear("it is in memory, and what hosts wrote to it would be lost");
    let removed = lunwire(&["lun", "remove", "0", "--control-socket", &daemon.socket]);
    assert!(!removed.status.success(), "{}", stdout(&removed));
}

#[test]
fn who_only_asks_over_http_keeps_nobody_from_taking_over() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), &["null:1M"], &["--http", "127.0.0.1:0"]);
    let told = stdout(&good(&["status", "--json", "--control-socket", &daemon.socket]));
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let place = told["http"].as_str().unwrap();
    let is_over = AtomicBool::new(false);
    let ask = &|what: &str| {
        while !is_over.load(Ordering::Relaxed) {
            let mut stream = TcpStream::connect(place).unwrap();
            write!(stream, "GET /api/v1/{what} HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }
    };
    let offered = || {
        let mut stream = UnixStream::connect(&daemon.socket).unwrap();
        let say = r#"{"request":"take-over","protocol":1,"version":"0.0.0"}"#;
        writeln!(stream, "{say}").unwrap();
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line);
        line
    };
    std::thread::scope(|scope| {
        for what in ["status", "sessions", "load", "layers", "port-groups"] {
            scope.spawn(move || ask(what));
        }
        let begun = Instant::now();
        let mut said = std::iter::repeat_with(offered);
        let refused = said.find(|said| {
            said.contains("an order is being") || begun.elapsed() > Duration::from_secs(3)
        });
        is_over.store(true, Ordering::Relaxed);
        let refused = refused.unwrap();
        assert!(!refused.contains("an order is being"), "{refused}");
    });
}

/// Hosts go on until they have logged out, which takes its time.
#[test]
fn what_hosts_write_to_memory_when_disks_are_taken_is_not_acknowledged() {
    for lun in ["memory:1M", "stripe:64K(memory:1M;memory:1M),delay=1ms"] {
        let folder = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(folder.path(), &[lun], &[]);
        let mut host = host_of(&daemon);
        let mut next = Next::of(&daemon);
        next.say(r#"{"word":"take"}"#);
        assert_eq!(host.session.read().opcode(), ASYNC_MESSAGE);
        let write = cdb10(WRITE_10, 3, 1);
        assert_eq!(host.send(&write, &[7; 512]).code, BUSY, "{lun}: it goes to nobody");
        host.session.leave();
        next.hear(r#""word":"released""#);
        drop(next);
        expect_service(&daemon, Duration::from_secs(20));
        let mut host = host_of(&daemon);
        host.write(&write, &[7; 512]);
    }
}

#[test]
fn disks_in_memory_are_written_to_when_another_process_has_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(folder.path(), &["memory:1M"], &[]);
    take_over(&mut daemon, &["--lun", "memory:1M"]);
    host_of(&daemon).write(&cdb10(WRITE_10, 3, 1), &[7; 512]);
}

/// Nothing of them is lost, and hosts would take them for other disks.
#[test]
fn disks_that_no_file_has_are_the_same_in_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let stripe = "stripe:64K(memory:1M;memory:1M)";
    let words = ["--lun", "memory:1M", "--lun", "null:1M", "--lun", stripe];
    let mut daemon = Daemon::start(folder.path(), &[words[1], words[3], words[5]], &[]);
    let who = |daemon: &Daemon| -> Vec<String> {
        let known = |url: &String| {
            let told = stdout(&good(&["inspect", url]));
            let is_name = |line: &&str| ["serial", "designator"].iter().any(|it| line.contains(it));
            told.lines().filter(is_name).collect::<Vec<_>>().join("\n")
        };
        daemon.urls.iter().map(known).collect()
    };
    let known = who(&daemon);
    assert!(known[0].contains("naa.") && known[0] != known[1], "{known:?}");
    // One that has not taken over, one that has, and one that has other filters.
    drop(Next::of(&daemon).take());
    expect_service(&daemon, Duration::from_secs(20));
    assert_eq!(who(&daemon), known);
    take_over(&mut daemon, &words);
    assert_eq!(who(&daemon), known);
    take_over(&mut daemon, &["--lun", "memory:1M,delay=1us", "--lun", "null:2M", "--lun", stripe]);
    let now = who(&daemon);
    assert_eq!((&now[0], &now[2]), (&known[0], &known[2]));
    assert_ne!(now[1], known[1], "another disk is in its place");
}

/// They look at who a disk is when they have logged in again.
#[test]
fn hosts_of_disks_that_no_file_has_go_on_across_a_take_over() {
    for more in [&["--serial", "A1"][..], &[]] {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = Daemon::start(folder.path(), &["memory:1M"], more);
        let mut bench = that_takes_signals();
        bench.args(["bench", &daemon.urls[0], "--reads", "100", "--time", "2s"]);
        let bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        daemon.await_work();
        take_over(&mut daemon, &[more, &["--lun", "memory:1M"]].concat());
        let done = bench.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(stdout(&done).contains("connections lost: 1"), "{}", stdout(&done));
    }
}

/// Another disk keeps what there is from being taken: none is held back then.
#[test]
fn disks_in_memory_are_written_to_again_where_nothing_is_taken() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M", "memory:1M"], &[]);
    let mut next = Next::of(&daemon);
    good(&["copy", &files.with("image", &[7; 1 << 20]), &daemon.urls[1]]);
    next.say(r#"{"word":"take"}"#);
    next.hear("it is in memory, and what hosts wrote to it would be lost");
    host_of(&daemon).write(&cdb10(WRITE_10, 3, 1), &[7; 512]);
}

/// What was captured is what led to it, perhaps.
#[test]
fn a_capture_goes_on_where_another_process_has_not_taken_over() {
    let files = Files::new();
    let capture = files.path("capture.pcap");
    let disk = format!("file:{},size=1M", files.path("disk"));
    let mut daemon = Daemon::start(files.folder.path(), &[&disk], &["--capture", &capture]);
    expect_service(&daemon, Duration::from_secs(20));
    let next = Next::of(&daemon).take();
    let before = std::fs::read(&capture).unwrap();
    assert!(before.len() > 1000, "a session is in it");
    drop(next);
    expect_service(&daemon, Duration::from_secs(20));
    good(&["status", "--control-socket", &daemon.socket]);
    let begun = Instant::now();
    let after = loop {
        let now = std::fs::read(&capture).unwrap();
        if now.len() > before.len() || begun.elapsed() > Duration::from_secs(5) {
            break now;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(after.starts_with(&before), "{} bytes, {} before", after.len(), before.len());
    assert!(after.len() > before.len(), "it goes on");
    take_over(&mut daemon, &["--lun", &disk, "--capture", &capture]);
    let now = std::fs::read(&capture).unwrap();
    assert!(now.starts_with(&after), "{} bytes, {} before", now.len(), after.len());
}

/// It stands still, and another one comes first: what it was offered are disks no more.
#[test]
fn who_stands_still_before_it_takes_keeps_no_disks_from_another_one() {
    let files = Files::new();
    let disk = files.with("disk", &[0; 1 << 20]);
    let daemon = Daemon::start(files.folder.path(), &[&format!("file:{disk}")], &[]);
    let _still = Next::of(&daemon);
    std::thread::sleep(Duration::from_secs(11));
    let next = Next::of(&daemon).take();
    let file = std::fs::File::open(&disk).unwrap();
    let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    assert_eq!(locked, Ok(()), "the disk is not closed");
    drop((file, next));
    expect_service(&daemon, Duration::from_secs(20));
}

/// A daemon whose file has one disk, with its log beside it; and what comes behind that disk.
fn hears_sighup(files: &Files) -> (Child, impl Fn(&str)) {
    let disk = files.with("disk", &[0; 1 << 20]);
    let config = files.path("lunwire.toml");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"{TARGET}\"\n\
         [[target.lun]]\nstore = \"file:{disk}\"\n"
    );
    let write = move |more: &str| std::fs::write(&config, format!("{text}{more}")).unwrap();
    write("");
    let log = std::fs::File::create(files.path("log")).unwrap();
    let child = that_takes_signals()
        .args(["serve", "--config", &files.path("lunwire.toml")])
        .args(["--control-socket", &files.path("control")])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    expect_disk(files, "file:");
    (child, write)
}

#[track_caller]
fn expect_disk(files: &Files, what: &str) {
    let begun = Instant::now();
    loop {
        let told = lunwire(&["status", "--control-socket", &files.path("control")]);
        if stdout(&told).contains(what) {
            return;
        }
        let log = std::fs::read_to_string(files.path("log")).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20), "no {what}: {log}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn sighup_while_nobody_serves_has_the_file_read_when_somebody_does() {
    let files = Files::new();
    let (mut daemon, write) = hears_sighup(&files);
    let mut next = Next::asks_at(&files.path("control"));
    next.hear(r#""reply":"offer""#);
    let next = next.take();
    write("[[target.lun]]\nnumber = 1\nstore = \"null:3M\"\n");
    signal(&daemon, Signal::HUP);
    Daemon::told(files.folder.path(), "SIGHUP");
    drop(next);
    expect_disk(&files, "null:3M");
    signal(&daemon, Signal::TERM);
    assert!(daemon.wait().unwrap().success());
}

/// That one has read the file before.
#[test]
fn sighup_to_a_process_that_hands_over_is_heard_by_the_next_one() {
    let files = Files::new();
    let (mut daemon, write) = hears_sighup(&files);
    let other = files.with("other", &[0; 1 << 20]);
    let held = std::fs::File::open(&other).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let more = format!("[[target.lun]]\nnumber = 1\nstore = \"file:{other}\"\n");
    write(&more);
    let mut next = that_takes_signals();
    next.args(["serve", "--take-over", "--config", &files.path("lunwire.toml")]);
    next.args(["--control-socket", &files.path("control"), "--log", "error"]);
    let mut next = next.stdout(Stdio::null()).spawn().unwrap();
    Daemon::told(files.folder.path(), "all is closed");
    write(&format!("{more}[[target.lun]]\nnumber = 2\nstore = \"null:3M\"\n"));
    signal(&daemon, Signal::HUP);
    Daemon::told(files.folder.path(), "SIGHUP");
    drop(held);
    assert!(daemon.wait().unwrap().success());
    expect_disk(&files, "null:3M");
    signal(&next, Signal::TERM);
    assert!(next.wait().unwrap().success());
}
