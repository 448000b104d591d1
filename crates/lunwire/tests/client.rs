// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that use disks, against our own daemon: what they do, and what they say when it
//! goes wrong.
#![allow(clippy::unwrap_used)] // a test that panics has failed

mod support;

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use conformance::Mock;
use support::Daemon;
use support::Files;
use support::TARGET;
use support::fails;
use support::good;
use support::lunwire;
use support::pattern;
use support::stderr;
use support::stdout;
use support::that_takes_signals;
use support::wait_for;
use wire::iscsi::LunField;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::TextResponse;
use wire::iscsi::Ttt;

#[test]
fn discover_lists_targets_and_portals() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let portal = daemon.portal();
    let text = stdout(&good(&["discover", portal]));
    assert!(text.contains(&format!("target {TARGET}")) && text.contains(portal), "{text}");
    let output = good(&["discover", &format!("iscsi://{portal}"), "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["targets"][0]["name"], TARGET);
    assert_eq!(json["targets"][0]["portals"][0]["portal"], portal);
}

/// Covers: DIS-10.
#[test]
fn a_target_without_an_address_is_where_it_was_told_of() {
    let mock = Mock::start(|request, _, numbers| {
        let Request::Text(text) = request else { return Vec::new() };
        let (lun, itt, ttt) = (LunField::default(), text.itt, Ttt::NONE);
        let (final_, continue_) = (true, false);
        let answer = TextResponse { final_, continue_, lun, itt, ttt, numbers };
        vec![(Response::Text(answer), format!("TargetName={TARGET}\0").into_bytes())]
    });
    let portal = mock.portal().to_string();
    let text = stdout(&good(&["discover", &portal]));
    assert!(text.contains(&format!("target {TARGET}\n  {portal}\n")), "{text}");
    let output = good(&["discover", &portal, "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["targets"][0]["portals"][0]["portal"], portal);
}

#[test]
fn inspect_tells_what_a_unit_is() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M", "memory:1M"], &[]);
    let text = stdout(&good(&["inspect", &daemon.urls[0]]));
    for part in ["8 MiB (8388608 bytes)", "16384 of 512 bytes", "READ(16)", "LUNs here", "0, 1"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let output = good(&["inspect", &daemon.urls[1], "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["bytes"].as_u64(), json["block_bytes"].as_u64()), (Some(1 << 20), Some(512)));
    assert_eq!(json["unmap"], true);
}

#[test]
fn write_and_read_keep_every_byte() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
    let url = daemon.urls[0].as_str();
    let bytes = pattern(5_000_000);
    let image = files.with("image", &bytes);
    good(&["write", url, &image, "--offset", "1M", "--verify"]);
    let back = files.path("back");
    good(&["read", url, &back, "--offset", "1M", "--length", "5000192", "--quiet"]);
    let read = std::fs::read(&back).unwrap();
    assert!(read[..bytes.len()] == bytes[..]);
    assert!(read[bytes.len()..].iter().all(|byte| *byte == 0), "the tail of the last block");
    let again = files.path("again");
    good(&["read", url, &again, "--offset", "1M", "--length", "5000192", "--verify", "--quiet"]);
    assert!(std::fs::read(&again).unwrap() == read, "compared as well");
    fails(2, &["read", url, "--verify"], &["--verify", "cannot be read back"]);
    let output = good(&["read", url, "--offset", "1M", "--length", "512"]);
    assert!(output.stdout == bytes[..512], "standard output");
    let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["write", url, "--quiet"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&bytes[..3_000_001]).unwrap();
    assert!(child.wait().unwrap().success());
    let output = good(&["read", url, "--length", "3000320", "--quiet"]);
    assert!(output.stdout[..3_000_001] == bytes[..3_000_001], "standard input");
}

#[test]
fn copy_goes_between_any_two_places() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M", "memory:8M"], &[]);
    let (a, b) = (daemon.urls[0].as_str(), daemon.urls[1].as_str());
    let mut bytes = pattern(8 << 20);
    bytes[2 << 20..6 << 20].fill(0);
    let image = files.with("image", &bytes);
    good(&["copy", &image, a, "--verify", "--quiet", "--data-digest", "required"]);
    good(&["copy", a, b, "--verify"]);
    let back = files.path("back");
    good(&["copy", b, &back, "--verify", "--quiet"]);
    assert!(std::fs::read(&back).unwrap() == bytes);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&back).unwrap());
    assert!(blocks * 512 <= 5 << 20, "{blocks} blocks: zeroes are left out");
    assert!(good(&["copy", b, "-", "--quiet"]).stdout == bytes, "to standard output");
}

#[test]
fn an_interrupted_copy_goes_on() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:64M"], &[]);
    let (source, state) = (files.path("fifo-less"), files.path("state"));
    let bytes = pattern(64 << 20);
    std::fs::write(&source, &bytes).unwrap();
    let mut child = that_takes_signals()
        .args(["copy", &source, &daemon.urls[0], "--resume", &state, "--quiet"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A daemon that stands still holds the copy up in its middle.
    wait_for(&state);
    daemon.signal(rustix::process::Signal::STOP);
    std::thread::sleep(Duration::from_millis(200));
    let pid = rustix::process::Pid::from_child(&child);
    if child.try_wait().unwrap().is_none() {
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        daemon.signal(rustix::process::Signal::CONT);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains("interrupted"), "{}", stderr(&output));
        assert!(stderr(&output).contains("goes on from there"), "{}", stderr(&output));
        assert!(Path::new(&state).exists());
    } else {
        daemon.signal(rustix::process::Signal::CONT);
    }
    let other = files.path("other");
    std::fs::write(&other, &bytes).unwrap();
    if Path::new(&state).exists() {
        let arguments = ["copy", &other, &daemon.urls[0], "--resume", &state, "--quiet"];
        fails(1, &arguments, &["another copy"]);
    }
    let arguments = ["copy", &source, &daemon.urls[0], "--resume", &state, "--quiet", "--verify"];
    good(&arguments);
    assert!(!Path::new(&state).exists(), "a whole copy leaves no state");
}

#[test]
fn bench_tells_rates_and_latencies() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
    let (url, svg) = (daemon.urls[0].as_str(), files.path("plot.svg"));
    let text = stdout(&good(&["bench", url, "--time", "200ms", "--svg", &svg]));
    assert!(
        text.contains("random reads of 4 KiB, 32 at once") && text.contains("p99.99"),
        "{text}"
    );
    assert!(std::fs::read_to_string(&svg).unwrap().contains("polyline"));
    let output = good(&[
        "bench",
        url,
        "--time",
        "100ms",
        "--json",
        "--reads",
        "50",
        "--destroy-data",
        "--block",
        "4K,64K",
        "--depth",
        "1,8",
        "--sessions",
        "2",
        "--sequential",
    ]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = json["results"].as_array().unwrap();
    assert_eq!(results.len(), 4);
    for result in results {
        assert!(result["requests"].as_u64().unwrap() > 0);
        assert!(result["latency_ns"]["percentiles"]["p50"].as_u64().unwrap() > 0);
    }
    fails(2, &["bench", url, "--reads", "50"], &["--destroy-data"]);
    fails(2, &["bench", url, "--block", "1000"], &["--block 1000", "512"]);
}

/// A load goes on when its connection is made anew, and so do its figures.
#[test]
fn bench_counts_the_bytes_of_connections_that_were_lost() {
    let files = Files::new();
    let lun = format!("file:{}", files.with("disk", &pattern(8 << 20)));
    let mut daemon = Daemon::start(files.folder.path(), &[&lun], &[]);
    let (url, portal) = (daemon.urls[0].clone(), daemon.portal().to_owned());
    let mut bench = Command::new(env!("CARGO_BIN_EXE_lunwire"));
    bench.args(["bench", &url, "--time", "3s", "--json"]);
    let bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Much of all that is read.
    daemon.await_work();
    std::thread::sleep(Duration::from_secs(1));
    daemon.kill();
    daemon.restart(&portal, &[&lun]);
    let output = bench.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &told["results"][0];
    assert!(result["connections_lost"].as_u64().unwrap() > 0, "{told:#}");
    // Reads of 4 KiB come with their headers, and are copied to where they belong.
    let copied = result["copied_per_byte"].as_f64().unwrap();
    assert!(copied > 0.9 && copied < 2.0, "{told:#}");
}

#[test]
fn bench_checks_what_it_reads() {
    let files = Files::new();
    let disk = files.with("disk", &pattern(8 << 20));
    let daemon = Daemon::start(files.folder.path(), &[&format!("file:{disk}")], &[]);
    let load = ["bench", &daemon.urls[0], "--reads", "50", "--destroy-data", "--verify"];
    let run = |more: &[&str]| good(&[&load[..], &["--time", "200ms"], more].concat());
    let output = run(&["--json", "--block", "4K,64K", "--depth", "1,8", "--sessions", "2"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for result in json["results"].as_array().unwrap() {
        assert!(result["checked_reads"].as_u64().unwrap() > 0, "{result}");
        assert_eq!(result["read_again"], true, "{result}");
        assert_eq!(result["connections_lost"], 0);
    }
    assert!(stdout(&run(&["--range", "128K"])).contains("reads gave what was written last"));
    // All that was written is there: the last writes of the last load are stamped.
    let bytes = std::fs::read(&disk).unwrap();
    assert_eq!(bytes[4096 * 3 + 16..][..8], (4096_u64 * 3 + 16).to_be_bytes());
    fails(2, &["bench", &daemon.urls[0], "--verify"], &["--destroy-data"]);
    let nothing = ["bench", &daemon.urls[0], "--verify", "--destroy-data", "--time", "50ms"];
    fails(2, &nothing, &["--verify needs --reads below 100"]);
    fails(2, &[&nothing[..], &["--reads", "100"]].concat(), &["--verify needs --reads below 100"]);
    fails(2, &[&load[..], &["--range", "64K", "--depth", "17"]].concat(), &["--range", "17"]);
}

#[test]
fn bench_names_what_it_did_not_write() {
    let files = Files::new();
    let disk = files.with("disk", &vec![0; 8 << 20]);
    let daemon = Daemon::start(files.folder.path(), &[&format!("file:{disk}")], &[]);
    let load = ["bench", &daemon.urls[0], "--reads", "50", "--destroy-data", "--verify"];
    let more = ["--range", "256K", "--time", "60s"];
    let child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args([&load[..], &more].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Somebody else writes to the disk, in the middle of a block.
    let file = std::fs::OpenOptions::new().write(true).open(&disk).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(order) {
                std::os::unix::fs::FileExt::write_all_at(&file, b"x", 8192 + 1234).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let output = child.wait_with_output().unwrap();
        stop.store(true, order);
        output
    });
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("byte 9424 of the disk does not hold what write"), "{said}");
}

#[test]
fn bench_tells_where_the_time_went_and_how_often_bytes_were_touched() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &[]);
    let bench = |more: &[&str]| {
        let common = ["bench", &daemon.urls[0], "--time", "300ms", "--json", "--layers"];
        let words = [&common[..], &["--control-socket", &daemon.socket], more].concat();
        let json: serde_json::Value = serde_json::from_slice(&good(&words).stdout).unwrap();
        json["results"][0].clone()
    };
    let read = bench(&["--data-digest", "off", "--block", "16K", "--depth", "4"]);
    let layers = &read["layers"];
    for (side, names) in [
        ("initiator", ["post", "send", "idle", "protocol"]),
        ("target", ["protocol", "scsi", "store", "send"]),
    ] {
        assert!(layers[side]["timed_commands"].as_u64().unwrap() > 0, "{read}");
        for name in names {
            let layer = &layers[side]["layers"][name];
            assert!(layer["us_per_command"].as_f64().unwrap() > 0.0, "{side} {name}: {read}");
            assert!(layer["p99_us"].as_f64() >= layer["p50_us"].as_f64(), "{read}");
        }
    }
    let times = |value: &serde_json::Value| (value.as_f64().unwrap() * 100.0).round();
    assert_eq!(times(&read["copied_per_byte"]), 100.0, "into the caller's buffer: {read}");
    assert_eq!(times(&read["digested_per_byte"]), 0.0, "{read}");
    assert_eq!(times(&layers["target"]["copied_per_byte"]), 0.0, "sent from the store: {read}");
    let write = ["--data-digest", "required", "--reads", "0", "--destroy-data", "--block", "16K"];
    let write = bench(&write);
    assert_eq!(times(&write["copied_per_byte"]), 0.0, "sent from the caller's buffer: {write}");
    assert_eq!(times(&write["digested_per_byte"]), 100.0, "{write}");
    let target = &write["layers"]["target"];
    assert_eq!(times(&target["copied_per_byte"]), 100.0, "into the task's buffer: {write}");
    assert_eq!(times(&target["digested_per_byte"]), 100.0, "{write}");
    assert_eq!(times(&target["stored_per_byte"]), 100.0, "{write}");
    // More at once may go from the kernel straight to where it belongs.
    let large = bench(&["--block", "128K", "--depth", "4"]);
    assert!((0.0..=100.0).contains(&times(&large["copied_per_byte"])), "{large}");
    let text = stdout(&good(&["bench", &daemon.urls[0], "--time", "50ms"]));
    assert!(text.contains("copied 1.00 times"), "{text}");
    let lost = files.path("nobody");
    let words = ["bench", &daemon.urls[0], "--layers", "--control-socket", &lost];
    fails(1, &words, &["cannot reach a daemon"]);
}

#[test]
fn the_shell_runs_scripts() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let data = files.with("data", &pattern(1024));
    let (back, log) = (files.path("back"), files.path("log"));
    let inner = files.with("inner", b"scsi 00 00 00 00 00 00\n");
    let script = format!(
        "# a script\nlog {log}\nlogin {}\nscsi 12 00 00 00 60 00 in 96\nwrite 8 2 {data}\n\
         read 8 2 {back}\nread 8 1\nflush\nrepeat 3 {inner}\nreset unit\nlogout\nquit\nnonsense\n",
        daemon.urls[0]
    );
    let script = files.with("script", script.as_bytes());
    let text = stdout(&good(&["shell", &script]));
    assert!(text.contains("LUNWIRE"), "{text}");
    assert_eq!(text.matches("GOOD").count(), 4, "{text}");
    assert!(std::fs::read(&back).unwrap() == pattern(1024));
    let log = std::fs::read_to_string(&log).unwrap();
    assert_eq!(log.lines().count(), 11, "{log}");
    assert!(log.lines().all(|line| line.split('\t').nth(1) == Some("good")), "{log}");
    let beyond = format!("login {}\nscsi 28 00 00 10 00 00 00 00 01 00 in 512\n", daemon.urls[0]);
    let beyond = files.with("beyond", beyond.as_bytes());
    fails(1, &["shell", &beyond], &["beyond:2", "logical block address out of range"]);
    let reset = format!("login {}\nreset target\nreset all\n", daemon.urls[0]);
    let reset = files.with("reset", reset.as_bytes());
    fails(1, &["shell", &reset], &["reset:3", "unit or target"]);
    let unknown = files.with("unknown", b"\nfrobnicate\n");
    fails(1, &["shell", &unknown], &["unknown:2", "frobnicate", "help"]);
}

#[test]
fn wrong_urls_are_wrong_usage() {
    let disk = format!("iscsi://127.0.0.1/{TARGET}/0");
    fails(2, &["inspect", "http://127.0.0.1/x/0"], &["http://127.0.0.1/x/0", "iscsi://"]);
    fails(2, &["read", "iscsi://127.0.0.1"], &["the target is missing"]);
    fails(2, &["read", &format!("iscsi://127.0.0.1/{TARGET}")], &["the LUN is missing"]);
    let secret = "iscsi://me%topsecretword@127.0.0.1/x/y";
    fails(2, &["inspect", secret], &["***@127.0.0.1/x/y", "\"y\" is no LUN"]);
    let output = lunwire(&["inspect", secret]);
    assert!(!stderr(&output).contains("topsecretword"));
    let arguments = ["inspect", &disk, "--data-digest", "maybe"];
    fails(2, &arguments, &["--data-digest maybe", "preferred"]);
    fails(2, &["read", &disk, "--offset", "1X"], &["--offset 1X"]);
    fails(2, &["copy", "-", &disk, "--resume", "x"], &["--resume"]);
    fails(2, &["discover", "127.0.0.1:0"], &["port"]);
}

#[test]
fn unreachable_portals_are_named() {
    let url = format!("iscsi://127.0.0.1:1/{TARGET}/0");
    // As long as somebody waits who says nothing of it.
    fails(1, &["inspect", &url], &["127.0.0.1:1", "refused", "lunwire discover 127.0.0.1:1"]);
    let at_once = ["--patience", "0s"];
    fails(1, &["discover", "127.0.0.1:1", at_once[0], at_once[1]], &["cannot connect"]);
    let url = format!("iscsi://no.such.host.invalid/{TARGET}/0");
    fails(1, &["inspect", &url, at_once[0], at_once[1]], &["no.such.host.invalid"]);
}

#[test]
fn refused_logins_say_what_to_try() {
    let files = Files::new();
    let secret = files.with("secret", b"a long enough secret\n");
    let wrong = files.with("wrong", b"another long secret!\n");
    let target = files.with("target", b"the secret of the disk\n");
    for path in [&secret, &wrong, &target] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let chap = [
        "--chap-user",
        "host",
        "--chap-secret-file",
        &secret,
        "--mutual-user",
        "disk",
        "--mutual-secret-file",
        &target,
    ];
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &chap);
    let url = daemon.urls[0].as_str();
    fails(1, &["inspect", url], &[TARGET, "0201", "--chap-secret-file"]);
    let user = ["--chap-user", "host", "--chap-secret-file"];
    let login = |file: &str, more: &[&str]| {
        let mut arguments = vec!["inspect", url];
        arguments.extend(user);
        arguments.push(file);
        arguments.extend(more);
        lunwire(&arguments)
    };
    let output = login(&wrong, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("authentication failed"), "{}", stderr(&output));
    assert!(login(&secret, &[]).status.success());
    let mutual = ["--mutual-user", "disk", "--mutual-secret-file"];
    assert!(login(&secret, &[&mutual[..], &[&target]].concat()).status.success());
    let output = login(&secret, &[&mutual[..], &[&wrong]].concat());
    assert!(stderr(&output).contains("does not know its own secret"), "{}", stderr(&output));
    let output = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["inspect", url, "--chap-user", "host", "--chap-secret-env", "SECRET"])
        .env("SECRET", "a long enough secret")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let with_user = url.replace("iscsi://", "iscsi://host%a long enough secret@");
    assert!(lunwire(&["inspect", &with_user]).status.success());
    let nobody = url.replace(TARGET, "iqn.2026-01.local.lunwire:none");
    fails(1, &["inspect", &nobody], &["no such target", "lunwire discover"]);
}

#[test]
fn units_that_are_not_there_are_named() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let url = format!("{}7", daemon.urls[0]);
    fails(1, &["inspect", &url], &["no such logical unit", "/7"]);
}

#[test]
fn destinations_that_are_too_small_are_found_before() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let image = files.with("image", &pattern(2 << 20));
    let said = [&daemon.urls[0], "room for 1048576 bytes", "2097152"];
    fails(1, &["copy", &image, &daemon.urls[0], "--quiet"], &said);
    // How much a stream has is known only at its end.
    let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["copy", "-", &daemon.urls[0], "--quiet"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(&pattern(2 << 20));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the disk is full"), "{}", stderr(&output));
}

#[test]
fn disks_that_cannot_be_written_say_where_to_look() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M,readonly"], &[]);
    let (image, url) = (files.with("image", &pattern(512)), daemon.urls[0].as_str());
    let said = [url, "write protected", &format!("try: lunwire inspect {url}")];
    fails(1, &["write", url, &image, "--quiet"], &said);
}

#[test]
fn top_tells_what_sessions_do_now() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:16M"], &[]);
    let arguments = ["top", "--count", "1", "--interval", "100ms", "--control-socket"];
    let top = |more: &[&str]| good(&[&arguments[..], &[&daemon.socket], more].concat());
    assert!(stdout(&top(&[])).contains("no sessions"));
    let mut load = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["bench", &daemon.urls[0], "--time", "60s"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let busy = loop {
        let told: serde_json::Value = serde_json::from_slice(&top(&["--json"]).stdout).unwrap();
        let session = &told["sessions"][0];
        if session["read_bytes_per_s"].as_u64().is_some_and(|rate| rate > 0) {
            break session.clone();
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "the load does not begin: {told}");
    };
    let text = stdout(&top(&[]));
    load.kill().unwrap();
    load.wait().unwrap();
    assert_eq!(busy["target"], TARGET);
    assert!(busy["commands_per_s"].as_u64().unwrap() > 0, "{busy}");
    assert!(text.contains("commands/s") && text.contains(TARGET), "{text}");
    fails(2, &["top", "--interval", "1us"], &["--interval 1us", "10ms"]);
}

#[test]
fn a_full_file_system_is_named() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let image = files.with("image", &pattern(1 << 20));
    good(&["write", &daemon.urls[0], &image, "--quiet"]);
    // Every write to this device meets ENOSPC.
    let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["read", &daemon.urls[0], "--quiet"])
        .stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(text.contains("cannot write standard output") && text.contains("No space"), "{text}");
}

#[test]
fn an_interrupt_ends_a_read_with_a_message() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1G"], &[]);
    let mut child = that_takes_signals()
        .args(["bench", &daemon.urls[0], "--time", "60s"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    daemon.await_work();
    let begin = Instant::now();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{text}");
    assert!(text.contains("interrupted"), "{text}");
    assert!(begin.elapsed() < Duration::from_secs(20), "it ends soon");
}

#[test]
fn a_daemon_that_restarts_is_waited_for() {
    let files = Files::new();
    let disk = files.with("disk", &vec![0; 16 << 20]);
    let lun = format!("file:{disk}");
    let image = files.with("image", &pattern(16 << 20));
    let mut daemon = Daemon::start(files.folder.path(), &[&lun], &[]);
    let (url, state) = (daemon.urls[0].clone(), files.path("state"));
    let portal = daemon.portal().to_owned();
    let child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["copy", &image, &url, "--quiet", "--verify", "--resume", &state])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&state);
    daemon.kill();
    daemon.restart(&portal, &[&lun]);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    drop(daemon);
    assert!(std::fs::read(&disk).unwrap() == pattern(16 << 20));
}

/// The disk forgets what was not flushed while its target is away: what is copied is written again.
#[test]
fn a_copy_writes_again_what_a_loss_of_power_took() {
    let files = Files::new();
    let disk = files.with("disk", &vec![0; 16 << 20]);
    let slow = format!("file:{disk},limit=4M/s");
    let image = files.with("image", &pattern(16 << 20));
    let mut daemon = Daemon::start(files.folder.path(), &[&slow], &[]);
    let (url, portal) = (daemon.urls[0].clone(), daemon.portal().to_owned());
    let child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["write", &url, &image, "--quiet"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while std::fs::read(&disk).unwrap().first_chunk::<8>() != pattern(8).first_chunk() {
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing is written");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    daemon.kill();
    std::fs::write(&disk, vec![0; 16 << 20]).unwrap();
    daemon.restart(&portal, &[&format!("file:{disk}")]);
    let output = child.wait_with_output().unwrap();
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("may have lost"), "{text}");
    drop(daemon);
    assert!(std::fs::read(&disk).unwrap() == pattern(16 << 20), "{text}");
}

/// What came from a pipe is gone, so that the copy must not end well.
#[test]
fn a_copy_from_a_pipe_says_that_a_loss_of_power_took_it() {
    let files = Files::new();
    let disk = files.with("disk", &vec![0; 32 << 20]);
    let lun = format!("file:{disk}");
    let mut daemon = Daemon::start(files.folder.path(), &[&lun], &[]);
    let (url, portal) = (daemon.urls[0].clone(), daemon.portal().to_owned());
    let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["copy", "-", &url, "--quiet"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (bytes, mut pipe) = (pattern(32 << 20), child.stdin.take().unwrap());
    // More than is read ahead of the first write.
    pipe.write_all(&bytes[..24 << 20]).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    daemon.kill();
    std::fs::write(&disk, vec![0; 32 << 20]).unwrap();
    daemon.restart(&portal, &[&lun]);
    let _ = pipe.write_all(&bytes[24 << 20..]);
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("standard input cannot be read again"), "{text}");
}

#[test]
fn a_daemon_that_stays_away_is_given_up() {
    let files = Files::new();
    let mut daemon = Daemon::start(files.folder.path(), &["memory:16M"], &[]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["copy", "-", &daemon.urls[0], "--quiet", "--patience", "1s"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (bytes, mut pipe) = (pattern(8 << 20), child.stdin.take().unwrap());
    pipe.write_all(&bytes[..4 << 20]).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    daemon.kill();
    let _ = pipe.write_all(&bytes[4 << 20..]);
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("trying to get the session back"), "{text}");
    assert!(text.contains("cannot connect") && text.contains("lunwire discover"), "{text}");
}

/// A copy from a pipe in whose middle the daemon comes back with other units; what it says.
fn changed_in_the_middle(files: &Files, before: &[&str], after: impl Fn(&Files)) -> String {
    let mut daemon = Daemon::start(files.folder.path(), before, &[]);
    let (url, portal) = (daemon.urls[before.len() - 1].clone(), daemon.portal().to_owned());
    let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["copy", "-", &url, "--quiet"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (bytes, mut pipe) = (pattern(16 << 20), child.stdin.take().unwrap());
    pipe.write_all(&bytes[..4 << 20]).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    daemon.kill();
    after(files);
    daemon.restart(&portal, &before[..1]);
    let _ = pipe.write_all(&bytes[4 << 20..]);
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    stderr(&output)
}

#[test]
fn a_unit_that_vanishes_is_named() {
    let files = Files::new();
    let said = changed_in_the_middle(&files, &["memory:16M", "memory:16M"], |_| {});
    assert!(said.contains("the logical unit has vanished"), "{said}");
    assert!(said.contains("were copied, then: "), "{said}");
    assert!(said.contains("try: lunwire inspect"), "{said}");
}

#[test]
fn a_disk_that_shrinks_is_named() {
    let files = Files::new();
    let disk = files.with("disk", &vec![0; 16 << 20]);
    let said = changed_in_the_middle(&files, &[&format!("file:{disk}")], |_| {
        std::fs::OpenOptions::new().write(true).open(&disk).unwrap().set_len(8 << 20).unwrap();
    });
    assert!(said.contains("has changed its size from 32768 to 16384 blocks"), "{said}");
    assert!(said.contains("try: again, from the beginning"), "{said}");
}

#[test]
fn sessions_are_negotiated_as_the_options_say() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:16M"], &["--markers"]);
    let url = daemon.urls[0].as_str();
    let (image, back) = (files.path("image"), files.path("back"));
    std::fs::write(&image, pattern(4 << 20)).unwrap();
    let session = [
        "--connections",
        "3",
        "--policy",
        "least-outstanding",
        "--recovery-level",
        "2",
        "--any-order",
        "--markers",
        "--fast-abort",
        "--data-digest",
        "required",
        "--enterprise-number",
        "32473",
    ];
    good(&[&["write", url, &image, "--quiet", "--verify"], &session[..]].concat());
    good(&[&["read", url, &back, "--quiet", "--length", "4M"], &session[..]].concat());
    assert!(std::fs::read(&back).unwrap() == pattern(4 << 20));
    fails(2, &["read", url, &back, "--policy", "sideways"], &["--policy", "round-robin"]);
    fails(2, &["read", url, &back, "--recovery-level", "3"], &["--recovery-level"]);
    fails(2, &["read", url, &back, "--connections", "0"], &["--connections"]);
    fails(2, &["read", url, &back, "--enterprise-number", "16777216"], &["--enterprise-number"]);
}

/// A load whose content is verified goes on while the daemon is killed ten times: what it had
/// acknowledged is there.
#[test]
fn a_daemon_that_is_killed_ten_times_loses_nothing() {
    const CHUNK: usize = 64 << 10;
    const CHUNKS: u64 = 32;
    let files = Files::new();
    let disk = files.path("disk");
    std::fs::write(&disk, vec![0; 16 << 20]).unwrap();
    let lun = format!("file:{disk}");
    let mut daemon = Daemon::start(files.folder.path(), &[&lun], &[]);
    let portal = daemon.portal().to_owned();
    let mut options = initiator::Options::new(portal.clone(), Some(TARGET.to_owned()));
    options.reconnect_patience = Duration::from_secs(120);
    let initiator = initiator::Initiator::start(&initiator::Config::default()).unwrap();
    let session = initiator.connect(options).unwrap();
    let content = |chunk: u64, round: u64| -> Vec<u8> {
        (chunk << 32 | round).to_be_bytes().iter().copied().cycle().take(CHUNK).collect()
    };
    let rounds = std::sync::atomic::AtomicU64::new(0);
    let over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let disk = initiator::Disk::open(&session, 0).unwrap();
            let mut back = vec![0; CHUNK];
            for round in 1.. {
                for chunk in 0..CHUNKS {
                    let at = chunk * CHUNK as u64;
                    disk.read_at(at, &mut back).unwrap();
                    let was = if round == 1 { vec![0; CHUNK] } else { content(chunk, round - 1) };
                    assert!(back == was, "chunk {chunk} in round {round}");
                    disk.write_at(at, &content(chunk, round)).unwrap();
                }
                rounds.store(round, order);
                if over.load(order) {
                    return;
                }
            }
        });
        for time in 1..=10 {
            let (before, begin) = (rounds.load(order), Instant::now());
            while rounds.load(order) < before + 1 {
                assert!(begin.elapsed() < Duration::from_secs(120), "no way on after kill {time}");
                std::thread::sleep(Duration::from_millis(3));
            }
            daemon.kill();
            daemon.restart(&portal, &[&lun]);
        }
        over.store(true, order);
    });
    session.logout();
}
