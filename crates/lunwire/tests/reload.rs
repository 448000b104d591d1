// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire reload`, `lunwire diff` and SIGHUP: the file takes effect as a whole or not at all, and
//! who is not meant notices nothing.
#![allow(clippy::unwrap_used)] // a test that panics has failed

#[path = "reload/dump.rs"]
mod dump;
mod support;
#[path = "reload/watched.rs"]
mod watched;

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use proptest::collection::btree_map;
use proptest::option;
use proptest::strategy::Strategy;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::Value;
use support::stderr;
use support::stdout;

/// Random configurations, one after the other.
const STEPS: usize = 80;

const PREFIX: &str = "iqn.2026-01.test.lunwire";

/// A daemon of a file, and its log.
struct Daemon {
    child: Child,
    file: PathBuf,
    socket: String,
    folder: tempfile::TempDir,
}

impl Daemon {
    fn start(config: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), config)
    }

    fn start_in(folder: tempfile::TempDir, config: &str) -> Self {
        let file = folder.path().join("lunwire.toml");
        std::fs::write(&file, config).unwrap();
        Self::start_with(folder, file, &[])
    }

    fn start_with(folder: tempfile::TempDir, file: PathBuf, more: &[&str]) -> Self {
        let socket = folder.path().join("control").display().to_string();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut command = support::that_takes_signals();
        command.args(["serve", "--control-socket", &socket, "--config"]).arg(&file).args(more);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let daemon = Self { child, file, socket, folder };
        assert!(line.starts_with("serving "), "{line:?}: {}", daemon.log());
        daemon
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    #[track_caller]
    fn expect_log(&self, what: &str) {
        let begun = Instant::now();
        while !self.log().contains(what) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what:?} is not in {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// As editors and tools do it: another file takes the place of the old one.
    fn write(&self, config: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, config).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    /// Exit status, what is printed, what is said.
    fn run(&self, command: &[&str]) -> (i32, String, String) {
        let mut words = command.to_vec();
        words.extend(["--control-socket", &self.socket]);
        let output = support::lunwire(&words);
        (output.status.code().unwrap(), stdout(&output), stderr(&output))
    }

    #[track_caller]
    fn good(&self, command: &[&str]) -> String {
        let (status, printed, said) = self.run(command);
        assert_eq!(status, 0, "{command:?}: {printed} {said} {}", self.log());
        printed
    }

    #[track_caller]
    fn fails(&self, command: &[&str], parts: &[&str]) {
        let (status, printed, said) = self.run(command);
        assert_eq!(status, 1, "{command:?}: {printed} {said}");
        for part in parts {
            assert!(printed.contains(part) || said.contains(part), "{part:?}: {printed} {said}");
        }
    }

    fn reload(&self, config: &str) -> String {
        self.write(config);
        self.good(&["reload"])
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.good(&["status", "--json"])).unwrap()
    }

    /// What hosts can see: of each target who may use it and its disks, and how many portals.
    fn served(&self) -> Value {
        let status = self.status();
        let targets = status["targets"].as_array().unwrap().iter().map(|target| {
            let luns = target["luns"].as_array().unwrap().iter();
            let mut luns: Vec<Value> = luns
                .map(|lun| serde_json::json!([lun["lun"], lun["store"], lun["bytes"]]))
                .collect();
            luns.sort_by_key(|lun| lun[0].as_u64().unwrap());
            let terms = [&target["name"], &target["alias"], &target["access"]];
            let name = target["name"].as_str().unwrap().to_owned();
            (name, serde_json::json!([terms, target["authentication"], luns]))
        });
        let targets: std::collections::BTreeMap<String, Value> = targets.collect();
        serde_json::json!([targets, status["portals"].as_array().unwrap().len()])
    }

    fn portals(&self) -> Vec<String> {
        let portals = self.status()["portals"].as_array().unwrap().clone();
        portals.iter().map(|portal| portal.as_str().unwrap().to_owned()).collect()
    }

    fn url(&self, target: &str, lun: u16) -> String {
        format!("iscsi://{}/{PREFIX}:{target}/{lun}", self.portals()[0])
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One target on one disk in memory, with more lines.
fn target(name: &str, more: &str) -> String {
    format!(
        "[[target]]\nname = \"{PREFIX}:{name}\"\n{more}\n\
         [[target.lun]]\nstore = \"memory:1M\"\n"
    )
}

fn config(targets: &[String]) -> String {
    format!("listen = [\"127.0.0.1:0\"]\n{}", targets.concat())
}

#[test]
fn targets_and_disks_come_and_go() {
    let daemon = Daemon::start(&config(&[target("a", ""), target("b", "")]));
    let two = format!("{}[[target.lun]]\nstore = \"memory:2M\"\n", target("a", "alias = \"x\""));
    daemon.write(&config(&[two, target("c", "")]));
    let before = daemon.served();
    let (status, differs, _) = daemon.run(&["diff"]);
    assert_eq!(status, 1);
    for line in [
        "~ target iqn.2026-01.test.lunwire:a: alias",
        "+ LUN 1 of iqn.2026-01.test.lunwire:a: memory:2M",
        "- target iqn.2026-01.test.lunwire:b: memory:1M",
        "+ target iqn.2026-01.test.lunwire:c: memory:1M",
    ] {
        assert!(differs.lines().any(|said| said == line), "{line}: {differs}");
    }
    assert!(daemon.good(&["reload", "--dry-run"]).contains("nothing has changed"));
    assert_eq!(daemon.served(), before, "it was a look");
    assert!(daemon.good(&["reload"]).contains("4 differences"));
    support::good(&["read", &daemon.url("c", 0), "-"]);
    assert_eq!(support::good(&["read", &daemon.url("a", 1), "-"]).stdout.len(), 2 << 20);
    support::fails(1, &["read", &daemon.url("b", 0), "-"], &["no such target"]);
    assert!(daemon.good(&["diff"]).contains("nothing is otherwise"));
    assert!(daemon.good(&["reload"]).contains("nothing is otherwise"));
}

#[test]
fn a_session_that_is_not_meant_goes_on() {
    let daemon = Daemon::start(&config(&[target("a", "")]));
    let (mut sessions, mut count) = (0, 0);
    // On a machine with much to do there are few reloads while one works.
    while count <= 3 {
        sessions += 1;
        let mut bench = Command::new(env!("CARGO_BIN_EXE_lunwire"))
            .args(["bench", &daemon.url("a", 0), "--time", "4s", "--reads", "50"])
            .args(["--destroy-data", "--verify", "--depth", "4"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while daemon.status()["sessions"] != 1 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", bench.try_wait());
            std::thread::sleep(Duration::from_millis(10));
        }
        while bench.try_wait().unwrap().is_none() {
            count += 1;
            let alias = format!("alias = \"{count}\"");
            let more = (0..count % 3).map(|number| target(&format!("more{number}"), ""));
            let targets: Vec<String> = std::iter::once(target("a", &alias)).chain(more).collect();
            daemon.reload(&config(&targets));
        }
        let done = bench.wait_with_output().unwrap();
        assert!(done.status.success(), "{count}: {}", stderr(&done));
        assert!(count > 0 && sessions < 9, "{count} reloads while {sessions} worked");
    }
    assert!(!daemon.log().contains("session lost"), "{}", daemon.log());
    let opened = daemon.log().matches("session opened").count();
    assert_eq!(opened, sessions, "one has logged in again: {}", daemon.log());
}

#[test]
fn what_cannot_change_is_named_and_nothing_changes() {
    let daemon = Daemon::start(&config(&[target("a", "")]));
    let before = daemon.served();
    let more = target("b", "");
    for (file, said) in [
        (format!("reactors = 2\n{}", config(&[target("a", ""), more.clone()])), "! reactors: "),
        (
            config(&[target("a", "").replace("1M", "2M"), more.clone()]),
            "! LUN 0 of iqn.2026-01.test.lunwire:a: store: hosts would take",
        ),
        (config(&[target("a", "identity = \"name\""), more.clone()]), ":a: identity: "),
        (config(&[target("a", "") + "block = 4096\n", more]), ":a: block: "),
    ] {
        daemon.write(&file);
        daemon.fails(&["reload"], &[said, "nothing has changed: 1 thing"]);
        assert_eq!(daemon.served(), before, "{said}");
    }
}

#[test]
fn a_store_cannot_come_before_it_has_gone() {
    let disk =
        |name: &str, more: &str| target(name, "").replace("memory:1M", "file:disk,size=1M") + more;
    let daemon = Daemon::start(&config(&[disk("a", "")]));
    for moved in [disk("b", ""), disk("a", "number = 5\n")] {
        daemon.write(&config(&[moved]));
        let parts = ["it has the store of LUN 0", "reload without it first"];
        daemon.fails(&["reload", "--dry-run"], &parts);
        daemon.fails(&["reload"], &parts);
        let (status, printed, said) = daemon.run(&["reload", "--json"]);
        let told: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!((status, &told["applied"]), (1, &Value::Bool(false)), "{printed} {said}");
    }
    support::good(&["read", &daemon.url("a", 0), "-"]);
    let without_size = disk("a", "").replace(",size=1M", "");
    assert!(daemon.reload(&config(&[without_size])).contains("nothing is otherwise"));
}

#[test]
fn portals_that_cannot_be_told_apart_stay() {
    let portal = |portals: &str| format!("listen = [{portals}]\n{}", target("a", ""));
    let daemon = Daemon::start(&portal("\"127.0.0.1:0\", \"127.0.0.1:0\""));
    let before = daemon.portals();
    for file in ["\"127.0.0.2:0\"", "\"127.0.0.1:0\""] {
        daemon.write(&portal(file));
        daemon.fails(&["reload"], &["! listen: which of several portals"]);
        assert_eq!(daemon.portals(), before);
    }
}

#[test]
fn a_secret_that_does_not_come_holds_up_nobody() {
    let with = "chap-user = \"host\"\nchap-secret-file = \"secret\"";
    let daemon = Daemon::start(&config(&[target("a", "")]));
    let secret = daemon.folder.path().join("secret");
    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(&secret).status().unwrap().success());
    daemon.write(&config(&[target("a", with)]));
    let mut waits = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["reload", "--control-socket", &daemon.socket])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    daemon.good(&["lun", "add", "memory:1M"]);
    let _ = waits.kill();
    let _ = waits.wait();
}

#[test]
fn a_file_with_an_error_changes_nothing() {
    let daemon = Daemon::start(&config(&[target("a", "")]));
    let before = daemon.served();
    let missing = target("b", "").replace("memory:1M", "file:missing");
    let made = target("c", "").replace("memory:1M", "file:made,size=1M");
    for (file, said) in [
        ("[[target".to_owned(), "lunwire.toml:1"),
        (config(&[target("a", "alias = 1")]), "lunwire.toml:4"),
        // A disk that cannot be opened, behind one that can.
        (config(&[target("a", "alias = \"x\""), made, missing]), "missing"),
        // It may not be written yet.
        (String::new(), "names no target"),
    ] {
        daemon.write(&file);
        daemon.fails(&["reload"], &[said]);
        assert_eq!(daemon.served(), before, "{file}");
    }
    assert!(!daemon.folder.path().join("made").exists(), "it was made for nothing");
    std::fs::remove_file(&daemon.file).unwrap();
    let dump = format!("try: lunwire dump --control-socket {}", daemon.socket);
    daemon.fails(&["reload"], &["cannot read", "lunwire.toml: No such file", &dump]);
    assert_eq!(daemon.served(), before);
}

/// What does not stand still for so long is still being written (`STEADY` of the daemon), with some
/// time for its look.
const STEADY: Duration = Duration::from_millis(80);

/// How somebody writes who takes his time.
struct Pace {
    last: Mutex<Option<Instant>>,
    has_faltered: AtomicBool,
}

impl Pace {
    fn pause(&self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
        let now = Instant::now();
        let last = self.last.lock().unwrap().replace(now);
        let falters = last.is_some_and(|last| now.duration_since(last) >= STEADY);
        self.has_faltered.fetch_or(falters, Ordering::Relaxed);
    }
}

/// What `attempt` gives is so; but where its writer has paused for too long, as on a machine with
/// much to do, it is tried again: what he wrote may have stood still in the middle.
#[track_caller]
fn in_one_go(attempt: impl Fn(&Pace) -> (bool, String)) {
    for _ in 0..20 {
        let pace = Pace { last: Mutex::new(None), has_faltered: AtomicBool::new(false) };
        let (is_so, said) = attempt(&pace);
        if is_so {
            return;
        }
        assert!(pace.has_faltered.into_inner(), "{said}");
    }
    panic!("nobody writes in one go here");
}

#[test]
fn a_file_that_is_being_written_is_waited_for() {
    let whole = config(&[target("a", ""), target("b", ""), target("c", "")]);
    in_one_go(|pace| {
        let daemon = Daemon::start(&config(&[target("a", "")]));
        let file = daemon.file.clone();
        std::fs::write(&file, "").unwrap();
        pace.pause(0);
        let (status, told, said) = std::thread::scope(|scope| {
            scope.spawn(|| {
                for end in (0..whole.len()).step_by(16).chain([whole.len()]) {
                    std::fs::write(&file, &whole[..end]).unwrap();
                    pace.pause(30);
                }
            });
            daemon.run(&["reload"])
        });
        (status == 0 && told.contains("2 differences"), format!("{told} {said}"))
    });
}

#[test]
fn data_in_memory_goes_only_when_somebody_says_so() {
    let daemon = Daemon::start(&config(&[target("a", ""), target("b", "")]));
    let data = daemon.folder.path().join("data");
    std::fs::write(&data, [7; 4096]).unwrap();
    support::good(&["write", &daemon.url("b", 0), data.to_str().unwrap()]);
    daemon.write(&config(&[target("a", "")]));
    daemon.fails(&["reload"], &["LUN 0 of iqn.2026-01.test.lunwire:b", "--destroy-data"]);
    support::good(&["read", &daemon.url("b", 0), "-"]);
    daemon.good(&["reload", "--destroy-data"]);
    support::fails(1, &["read", &daemon.url("b", 0), "-"], &["no such target"]);
}

#[test]
fn disks_of_orders_are_among_what_is_served() {
    let daemon = Daemon::start(&config(&[target("a", "")]));
    daemon.good(&["lun", "add", "memory:3M"]);
    let (status, differs, _) = daemon.run(&["diff"]);
    assert_eq!((status, &*differs), (1, "- LUN 1 of iqn.2026-01.test.lunwire:a: memory:3M\n"));
    // The file says the same now.
    let both = target("a", "") + "[[target.lun]]\nstore = \"memory:3M\"\n";
    assert!(daemon.reload(&config(std::slice::from_ref(&both))).contains("nothing is otherwise"));
    daemon.good(&["lun", "remove", "1"]);
    let (_, differs, _) = daemon.run(&["diff"]);
    assert_eq!(differs, "+ LUN 1 of iqn.2026-01.test.lunwire:a: memory:3M\n");
    daemon.good(&["reload"]);
    assert_eq!(support::good(&["read", &daemon.url("a", 1), "-"]).stdout.len(), 3 << 20);
}

/// Names of targets are compared without regard to case (RFC 7143 §4.2.7.2), those of orders, too.
#[test]
fn orders_name_a_target_as_logins_do() {
    let groups = target("a", "").replace(
        "[[target.lun]]",
        "[[target.port-group]]\nnumber = 1\nportal-groups = [1]\n[[target.lun]]",
    );
    let daemon = Daemon::start(&config(&[groups, target("b", "")]));
    let name = format!("{PREFIX}:a").to_uppercase();
    let of = |words: &[&str]| daemon.good(&[words, &["--target", &name]].concat());
    of(&["lun", "add", "null:3M", "--number", "3"]);
    of(&["limit", "set", "--lun", "3", "--iops", "500"]);
    daemon.good(&["alua", "set", &name, "1", "standby"]);
    let dumped = daemon.good(&["dump"]);
    for part in ["null:3M", "iops = 500", "standby"] {
        assert!(dumped.contains(part), "{part}: {dumped}");
    }
    of(&["lun", "remove", "3"]);
    assert!(!daemon.good(&["dump"]).contains("null:3M"));
    let no = ["lun", "remove", "3", "--target", "iqn.2026-01.test.lunwire:c"];
    daemon.fails(&no, &["no target iqn.2026-01.test.lunwire:c"]);
}

#[test]
fn a_size_that_was_given_by_an_order_is_no_difference() {
    let file = |size: &str| {
        let disk = target("a", "").replace("memory:1M", &format!("file:disk,size={size}"));
        config(&[disk])
    };
    let daemon = Daemon::start(&file("1M"));
    daemon.good(&["lun", "resize", "0", "2M"]);
    assert!(daemon.good(&["diff"]).contains("nothing is otherwise"));
    assert!(daemon.reload(&file("2M")).contains("nothing is otherwise"));
    daemon.write(&file("3M"));
    daemon.fails(&["reload"], &["size: try: lunwire lun resize first"]);
}

#[test]
fn secrets_are_read_again_and_end_their_sessions() {
    let with = "chap-user = \"host\"\nchap-secret-file = \"secret\"";
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    let keep = |text: &str| {
        std::fs::write(&secret, text).unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    keep("first secret of all");
    let path = secret.display().to_string();
    let daemon = Daemon::start_in(folder, &config(&[target("a", with)]));
    let url = daemon.url("a", 0);
    let as_host = ["--chap-user", "host", "--chap-secret-file", &path];
    support::good(&[&["read", &url, "-"], &as_host[..]].concat());
    let mut bench = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["bench", &url, "--time", "60s"])
        .args(as_host)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while daemon.status()["sessions"] != 1 && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    keep("another secret than before");
    let looked = daemon.good(&["reload", "--dry-run"]);
    assert!(looked.contains("prove something else"), "{looked}");
    let told = daemon.good(&["reload"]);
    assert!(told.contains("~ target") && told.contains("prove something else"), "{told}");
    support::good(&[&["read", &url, "-"], &as_host[..]].concat());
    let _ = bench.kill();
    let _ = bench.wait();
}

/// Who writes it takes his time, and has written enough for a secret already.
#[test]
fn a_secret_that_is_half_written_is_waited_for() {
    let with = "chap-user = \"host\"\nchap-secret-file = \"secret\"";
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let begin = || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        options.open(&path).unwrap().write_all(b"first secret of all").unwrap();
        let daemon = Daemon::start_in(folder, &config(&[target("a", with)]));
        (daemon, path)
    };
    in_one_go(|pace| {
        let (daemon, path) = begin();
        let url = daemon.url("a", 0);
        let secret = "another one, which is written letter by letter";
        let (begin, rest) = secret.split_at(12);
        let mut file = options.open(&path).unwrap();
        file.write_all(begin.as_bytes()).unwrap();
        pace.pause(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for letter in rest.as_bytes() {
                    pace.pause(20);
                    file.write_all(&[*letter]).unwrap();
                }
            });
            daemon.good(&["reload"]);
        });
        let account = ["--chap-user", "host", "--chap-secret-file", path.to_str().unwrap()];
        let read = support::lunwire(&[&["read", &url, "-"], &account[..]].concat());
        (read.status.success(), stderr(&read))
    });
    // It never stands still.
    in_one_go(|pace| {
        let (daemon, path) = begin();
        let mut file = options.open(&path).unwrap();
        let is_over = AtomicBool::new(false);
        pace.pause(0);
        let (status, _, said) = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    file.write_all(b"x").unwrap();
                    pace.pause(20);
                }
            });
            let told = daemon.run(&["reload"]);
            is_over.store(true, Ordering::Relaxed);
            told
        });
        (status == 1 && said.contains("secret changes while it is read"), said)
    });
}

#[test]
fn portals_come_and_go() {
    let portal = |portals: &str| format!("listen = [{portals}]\n{}", target("a", ""));
    let daemon = Daemon::start(&portal("\"127.0.0.1:0\""));
    let first = daemon.portals();
    // Free a moment ago: it is taken here at once.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    daemon.reload(&portal(&format!("\"127.0.0.1:0\", \"{port}\"")));
    assert_eq!(daemon.portals(), [first[0].clone(), port.to_string()]);
    support::good(&["discover", &port.to_string()]);
    daemon.reload(&portal(&format!("\"{port}\"")));
    assert_eq!(daemon.portals(), [port.to_string()]);
    support::fails(1, &["discover", &first[0]], &[&first[0]]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    daemon.write(&portal(&format!("\"{port}\", \"{taken}\"")));
    if std::net::TcpStream::connect(&taken).is_ok() {
        daemon.fails(&["reload"], &["cannot listen on", &taken]);
    }
    assert_eq!(daemon.portals(), [port.to_string()]);
}

#[test]
fn access_states_are_those_of_the_file() {
    let of = |state: &str, more: &str| {
        let group = "[[target.port-group]]\nnumber = 1\nportal-groups = [1]\nstate =";
        config(&[format!(
            "[[target]]\nname = \"{PREFIX}:a\"\n{more}\n{group} \"{state}\"\n\
             [[target.lun]]\nstore = \"memory:1M\"\n"
        )])
    };
    let name = format!("{PREFIX}:a");
    let daemon = Daemon::start(&of("standby", ""));
    let state = |daemon: &Daemon, state: &str| {
        let shown = daemon.good(&["alua"]);
        assert!(shown.contains(&format!("is {state}\n")), "{shown}");
    };
    state(&daemon, "standby");
    daemon.good(&["alua", "set", &name, "1", "unavailable"]);
    let told = format!("~ port group 1 of {name}: state\n");
    assert_eq!(daemon.run(&["diff"]).1, told);
    daemon.good(&["reload"]);
    state(&daemon, "standby");
    assert_eq!(daemon.reload(&of("active-non-optimized", "")).lines().next(), Some(told.trim()));
    state(&daemon, "active-non-optimized");

    // Who may set it is to find it as it was set.
    let daemon = Daemon::start(&of("standby", "explicit-alua = true"));
    daemon.good(&["alua", "set", &name, "1", "unavailable"]);
    assert!(daemon.good(&["reload"]).contains("nothing is otherwise"));
    state(&daemon, "unavailable");
}

#[test]
fn a_disk_that_comes_has_the_states_of_all() {
    let group = "[[target.port-group]]\nnumber = 1\nportal-groups = [1]\nstate =";
    let of = |state: &str| config(&[target("a", &format!("{group} \"{state}\"\n"))]);
    let name = format!("{PREFIX}:a");
    let daemon = Daemon::start(&of("active-optimized"));
    let states = |daemon: &Daemon| {
        let groups: Value = serde_json::from_str(&daemon.good(&["alua", "--json"])).unwrap();
        let groups = groups["groups"].as_array().or(groups.as_array()).unwrap().clone();
        groups.iter().map(|one| one["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // That of one disk is its own.
    daemon.good(&["alua", "set", &name, "1", "unavailable", "--lun", "0"]);
    daemon.good(&["lun", "add", "null:1M"]);
    assert_eq!(states(&daemon), ["unavailable", "active-optimized"]);
    daemon.good(&["alua", "set", &name, "1", "standby"]);
    daemon.good(&["lun", "add", "null:2M"]);
    assert_eq!(states(&daemon), ["standby"; 3]);
    let (status, text, said) = daemon.run(&["dump"]);
    assert_eq!((status, &*said), (0, ""));
    assert!(text.contains("state = \"standby\""), "{text}");
    // A reload has all that the file says.
    daemon.reload(&of("active-non-optimized"));
    daemon.good(&["lun", "add", "null:3M"]);
    assert_eq!(states(&daemon), ["active-non-optimized"; 2]);
}

#[test]
fn slow_commands_are_told_of_from_a_reload_on() {
    let of = |slow: &str| {
        let store = "memory:1M,delay=write:20ms";
        let target = target("a", "").replace("memory:1M", store);
        format!("{slow}{}", config(&[target]))
    };
    let daemon = Daemon::start(&of(""));
    let data = daemon.folder.path().join("data");
    std::fs::write(&data, [7; 512]).unwrap();
    let write = || {
        let (url, data) = (daemon.url("a", 0), data.display().to_string());
        let output = support::lunwire(&["write", &url, &data]);
        assert!(output.status.success(), "{}", stderr(&output));
    };
    write();
    assert!(!daemon.log().contains("was slow"), "{}", daemon.log());
    assert_eq!(daemon.reload(&of("slow = \"10ms\"\n")).lines().next(), Some("~ the daemon: slow"));
    write();
    daemon.expect_log("was slow");
    daemon.reload(&of("slow = \"0\"\n"));
    let before = daemon.log().matches("was slow").count();
    write();
    assert_eq!(daemon.log().matches("was slow").count(), before);
}

#[test]
fn a_hangup_has_the_file_read_again() {
    let daemon = Daemon::start(&config(&[target("a", "")]));
    let hang_up = || {
        let pid = rustix::process::Pid::from_child(&daemon.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    };
    daemon.write(&config(&[target("a", ""), target("b", "")]));
    hang_up();
    daemon.expect_log("configuration reloaded");
    assert!(daemon.log().contains("reloaded: + target "), "{}", daemon.log());
    support::good(&["read", &daemon.url("b", 0), "-"]);
    daemon.write("[[target");
    hang_up();
    daemon.expect_log("not reloaded: ");
    let threads =
        || std::fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap().count();
    let before = threads();
    for _ in 0..200 {
        hang_up();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(threads() <= before + 2, "{before} threads before, {} now", threads());
    daemon.write(&format!("reactors = 2\n{}", config(&[target("a", "")])));
    hang_up();
    daemon.expect_log("not reloaded: reactors: ");
    support::good(&["read", &daemon.url("b", 0), "-"]);
}

/// As folders of Kubernetes change: a link leads to another folder from one moment to the next.
#[test]
fn a_file_that_is_watched_takes_effect_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_owned();
    let put = |version: &str, config: &str| {
        std::fs::create_dir(place.join(version)).unwrap();
        std::fs::write(place.join(version).join("lunwire.toml"), config).unwrap();
        std::os::unix::fs::symlink(version, place.join("new")).unwrap();
        std::fs::rename(place.join("new"), place.join("data")).unwrap();
    };
    put("one", &config(&[target("a", "")]));
    let file = place.join("data/lunwire.toml");
    let daemon = Daemon::start_with(folder, file, &["--watch"]);
    put("two", &config(&[target("a", ""), target("b", "")]));
    daemon.expect_log("differences=1");
    put("three", "[[target");
    daemon.expect_log("not reloaded");
    std::fs::create_dir_all(place.join("none/lunwire.toml")).unwrap();
    std::os::unix::fs::symlink("none", place.join("new")).unwrap();
    std::fs::rename(place.join("new"), place.join("data")).unwrap();
    daemon.expect_log("the configuration stays as it is");
    put("four", &config(&[target("b", "")]));
    let begun = Instant::now();
    while daemon.status()["targets"].as_array().unwrap().len() > 1 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", daemon.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(daemon.status()["targets"][0]["name"], format!("{PREFIX}:b"));
    assert_eq!(daemon.log().matches("not reloaded").count(), 1, "{}", daemon.log());
    support::fails(2, &["serve", "--watch"], &["--config"]);
    let line = format!(
        "exec {} serve --watch --config <(echo 'listen = [\"127.0.0.1:0\"]')",
        env!("CARGO_BIN_EXE_lunwire")
    );
    let piped = Command::new("bash").args(["-c", &line]).output().unwrap();
    assert_eq!(piped.status.code(), Some(1));
    assert!(stderr(&piped).contains("cannot be read again"), "{}", stderr(&piped));
}

#[test]
fn a_daemon_without_a_file_has_none_to_read() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = support::Daemon::start(folder.path(), &["memory:1M"], &[]);
    let reload = ["reload", "--control-socket", &daemon.socket];
    support::fails(1, &reload, &["started without a file", "--config"]);
}

/// What a random target has: alias, queue depth, initiators, and by number the size of disks.
type Random = (Option<u8>, Option<u8>, Vec<u8>, std::collections::BTreeMap<u8, u8>);

fn random_config(targets: &std::collections::BTreeMap<u8, Random>, portals: u8) -> String {
    let mut text = "listen = [\"127.0.0.1:0\"".to_owned();
    for portal in 0..portals {
        text.push_str(&format!(", \"127.0.0.{}:0\"", portal + 2));
    }
    text.push_str("]\n");
    for (name, (alias, depth, initiators, luns)) in targets {
        text.push_str(&format!("[[target]]\nname = \"{PREFIX}:t{name}\"\n"));
        alias.iter().for_each(|alias| text.push_str(&format!("alias = \"{alias}\"\n")));
        depth.iter().for_each(|depth| text.push_str(&format!("queue-depth = {}\n", depth + 1)));
        for (lun, size) in luns {
            let store = format!("memory:{}M", size + 1);
            text.push_str(&format!("[[target.lun]]\nnumber = {lun}\nstore = \"{store}\"\n"));
        }
        for initiator in initiators {
            let name = format!("{PREFIX}:host{initiator}");
            text.push_str(&format!("[[target.initiator]]\nname = \"{name}\"\n"));
        }
    }
    text
}

fn random_configs() -> impl Strategy<Value = String> {
    // Mostly the same disk by a number: another one is refused.
    let luns = btree_map(0..4_u8, mostly_zero(), 1..4);
    let initiators = btree_map(0..3_u8, 0..1_u8, 0..3)
        .prop_map(|initiators| initiators.into_keys().collect::<Vec<u8>>());
    let target = (option::of(0..3_u8), option::of(0..3_u8), initiators, luns);
    (btree_map(0..5_u8, target, 1..5), 0..3_u8)
        .prop_map(|(targets, portals)| random_config(&targets, portals))
}

/// After each of many random files the daemon serves what one does that starts with it, or, where
/// it says that it cannot, what it served before.
#[test]
fn a_reload_ends_where_a_start_would() {
    let configs = random_configs();
    let mut runner = TestRunner::deterministic();
    let mut next = || configs.new_tree(&mut runner).unwrap().current();
    let daemon = Daemon::start(&next());
    let (mut applied, mut refused) = (0, 0);
    for _ in 0..STEPS {
        let (config, before) = (next(), daemon.served());
        daemon.write(&config);
        let (status, printed, said) = daemon.run(&["reload"]);
        if status == 0 {
            applied += 1;
            let fresh = Daemon::start(&config);
            assert_eq!(daemon.served(), fresh.served(), "{config}\n{printed}");
            assert_eq!(daemon.run(&["diff"]).0, 0, "{config}");
        } else {
            refused += 1;
            assert!(said.contains("nothing has changed"), "{config}\n{said}");
            assert!(printed.contains(": store: hosts would take"), "{config}\n{printed}");
            assert_eq!(daemon.served(), before, "{config}");
        }
    }
    assert!(applied > STEPS / 4 && refused > STEPS / 16, "{applied} and {refused} of {STEPS}");
}

/// Zero, and seldom something else.
fn mostly_zero() -> impl Strategy<Value = u8> {
    (0..8_u8).prop_map(|dice| u8::from(dice == 0))
}

/// Limits come by the file and by order; what an order has changed is shown, and written down.
#[test]
fn limits_are_what_the_file_and_orders_say() {
    let of = |limits: &str| config(&[format!("{}{limits}", target("a", ""))]);
    let limit = "[[target.limit]]\nlun = 0\niops = 20 # few\n";
    let daemon = Daemon::start(&of(limit));
    let data = daemon.folder.path().join("data");
    std::fs::write(&data, [7; 512]).unwrap();
    let name = format!("{PREFIX}:a");
    let shown = || daemon.good(&["limit"]);
    assert!(shown().contains(&format!("{name}: LUN 0: 20 IOPS; 0 of ")), "{}", shown());
    assert!(daemon.good(&["status"]).contains("LUN 0: 20 IOPS"));
    let same = |daemon: &Daemon| assert_eq!(daemon.run(&["diff"]).0, 0);
    same(&daemon);
    daemon.good(&["limit", "set", "--initiator", "*", "--bandwidth", "1M", "--sessions", "3"]);
    daemon.good(&["limit", "set", "--lun", "0", "--iops", "30"]);
    let (status, differs, _) = daemon.run(&["diff"]);
    let wanted = format!(
        "~ limits of {name}: LUN 0: 30 IOPS -> 20 IOPS, each initiator: 1 MiB/s and 3 sessions -> \
         none\n"
    );
    assert_eq!((status, differs), (1, wanted));
    let dumped = daemon.good(&["dump"]);
    let wanted = "[[target.limit]]\nlun = 0\niops = 30\n\n[[target.limit]]\ninitiator = \"*\"\n\
                  bandwidth = \"1M\"\nsessions = 3\n";
    assert!(dumped.contains(wanted), "{dumped}");
    daemon.reload(&dumped);
    same(&daemon);
    // As in the file, with its comment.
    daemon.reload(&of(limit));
    assert!(daemon.good(&["dump"]).contains("iops = 20 # few"));
    daemon.good(&["limit", "lift", "--lun", "0"]);
    assert_eq!(shown(), "no limits\n");
    let none = format!("LUN 0 of {name} has no limit; try: lunwire limit");
    daemon.fails(&["limit", "lift", "--lun", "0"], &[&none]);
    daemon.fails(&["limit", "lift", "--initiator", "*"], &["each initiator of"]);
    assert!(!daemon.good(&["dump"]).contains("limit"));
    // That of a disk which goes goes with it.
    daemon.good(&["lun", "add", "memory:1M", "--number", "3"]);
    daemon.good(&["limit", "set", "--lun", "3", "--iops", "9"]);
    daemon.good(&["lun", "remove", "3"]);
    assert_eq!(shown(), "no limits\n");
    assert!(!daemon.good(&["dump"]).contains("limit"));
    daemon.good(&["lun", "add", "memory:1M", "--number", "3"]);
    assert_eq!(shown(), "no limits\n");
    daemon.good(&["lun", "remove", "3"]);
    for (limit, told) in [
        ("lun = 1\niops = 1\n", "no such LUN"),
        ("lun = 0\n", "iops, bandwidth or sessions is missing"),
        ("iops = 1\n", "lun or initiator"),
        ("lun = 0\niops = 0\n", "1 to 1000000000"),
        ("lun = 0\nsessions = 1\n", "sessions are those of an initiator"),
        ("initiator = \"*\"\nbandwidth = \"1K\"\n", "64K at least"),
        ("initiator = \"nobody\"\niops = 1\n", "target.limit.initiator"),
    ] {
        daemon.write(&of(&format!("[[target.limit]]\n{limit}")));
        daemon.fails(&["reload"], &[told]);
    }
    for (order, told) in [
        (&["set", "--lun", "7", "--iops", "1"][..], "no LUN 7"),
        (&["set", "--lun", "0", "--iops", "0"], "--iops"),
        (&["set", "--lun", "0", "--sessions", "1"], "--sessions"),
        (&["set", "--iops", "1"], "--lun <NUMBER>|--initiator <IQN>"),
        (&["lift"], "--lun <NUMBER>|--initiator <IQN>"),
        (&["set", "--lun", "0"], "--iops, --bandwidth or --sessions is missing"),
    ] {
        let line: Vec<&str> = [&["limit"], order].concat();
        let (status, _, said) = daemon.run(&line);
        assert!(status != 0 && said.contains(told), "{order:?}: {said}");
    }
}

/// Of several targets one is named, with a LUN or an initiator of it.
#[test]
fn an_order_limits_what_one_of_several_targets_has() {
    let daemon = Daemon::start(&config(&[target("a", ""), target("b", "")]));
    let name = format!("{PREFIX}:b");
    for (of, shown) in [(["--lun", "0"], "LUN 0"), (["--initiator", "*"], "each initiator")] {
        let most = ["--iops", "30"];
        daemon.fails(&[&["limit", "set"][..], &of, &most].concat(), &["target"]);
        daemon.good(&[&["limit", "set", "--target", &name][..], &of, &most].concat());
        let limits = daemon.good(&["limit"]);
        assert!(limits.starts_with(&format!("{name}: {shown}: 30 IOPS; 0 of ")), "{limits}");
        assert_eq!(limits.lines().count(), 1, "{limits}");
        daemon.good(&[&["limit", "lift", "--target", &name][..], &of].concat());
        assert_eq!(daemon.good(&["limit"]), "no limits\n");
    }
    let (status, _, said) = daemon.run(&["limit", "set", "--target", &name, "--iops", "1"]);
    assert!(status == 2 && said.contains("--lun <NUMBER>|--initiator <IQN>"), "{said}");
}

/// With what a slow command has spent its time tells of limits, too.
#[test]
fn a_command_that_a_limit_holds_is_slow_by_that() {
    let limit = "[[target.limit]]\ninitiator = \"*\"\niops = 5\n";
    let config = config(&[format!("{}{limit}", target("a", ""))]);
    let daemon = Daemon::start(&format!("slow = \"50ms\"\n{config}"));
    let data = daemon.folder.path().join("data");
    std::fs::write(&data, [7; 512]).unwrap();
    for _ in 0..3 {
        support::good(&["write", &daemon.url("a", 0), data.to_str().unwrap()]);
    }
    let spent = |line: &str, word: &str| -> f64 {
        let text = line.split(&format!("{word}=")).nth(1).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    // Where the machine has much to do others may be slow, too.
    let by_limits = |line: &str| spent(line, "limits_ms") > 0.9 * spent(line, "took_ms") - 5.0;
    let begun = Instant::now();
    while !daemon.log().lines().any(|line| line.contains("was slow") && by_limits(line)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", daemon.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}
