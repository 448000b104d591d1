// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The moments in which it is not decided yet who serves.

use std::collections::BTreeMap;

use conformance::host;

use super::*;

const SYNCHRONIZE_CACHE: u8 = 0x35;

const COMPARE: [u8; 512] = [0; 512];

/// The name by which a copy finds the disk of `host`.
fn naa(host: &mut Host) -> Vec<u8> {
    let page = host.vital(0x83);
    let names = host::designators(&page).into_iter();
    names.into_iter().find(|name| (name.0, name.1) == (0, 3)).unwrap().2
}

/// All that changes a disk goes the same way: what is left of it is what was there.
#[test]
fn nothing_begins_with_a_disk_in_memory_when_disks_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let stripe = "stripe:64K(memory:1M;memory:1M)";
    let atomic = "memory:1M,atomic";
    for (lun, more) in [("memory:1M", &["--protection", "1"][..]), (stripe, &[]), (atomic, &[])] {
        let daemon = Daemon::start(folder.path(), &[lun], more);
        let mut host = host_of(&daemon);
        let name = naa(&mut host);
        let mut next = Next::of(&daemon);
        next.say(r#"{"word":"take"}"#);
        assert_eq!(host.session.read().opcode(), ASYNC_MESSAGE);
        let (unmap, runs) = host::unmap(&[(0, 64)]);
        let (compare, both) = host::compare_and_write(0, &COMPARE, &[7; 512]);
        let copy = host::copy_list([&name, &name], 64, [0, 512]);
        for (cdb, out) in [
            (&[FORMAT_UNIT, 0, 0, 0, 0, 0][..], &[][..]),
            (&[FORMAT_UNIT, 0x10, 0, 0, 0, 0], &[0, 2, 0, 0]),
            (&[0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
            (&[0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
            (&[0x48, 0x01, 0, 0, 0, 0, 0, 0, 5, 0], &[1, 0, 0, 1, 7]),
            (&unmap, &runs),
            (&host::cdb16(0x93, 0, 0, 64), &[7; 512]),
            (&host::cdb16(0x93, 8, 0, 64), &[0; 512]),
            (&host::cdb16(0x9c, 0, 0, 1), &[7; 512]),
            (&cdb10(0x2e, 0, 1), &[7; 512]),
            (&compare, &both),
            (&host::copy_out(0, 0, copy.len()), &copy),
        ] {
            // WRITE ATOMIC(16) is not for all of them, nor is EXTENDED COPY.
            if cdb[0] == 0x9c && lun != atomic || cdb[0] == 0x83 && !more.is_empty() {
                continue;
            }
            let status = host.send(cdb, out);
            assert_eq!(status.code, BUSY, "{lun}: {cdb:x?}: {status:?}");
        }
        host.session.leave();
        next.hear(r#""word":"released""#);
        drop(next);
        expect_service(&daemon, Duration::from_secs(20));
        let mut host = host_of(&daemon);
        assert_eq!(host.read_whole(&cdb10(0x28, 0, 1), 512), COMPARE);
        assert_eq!(host.send(&[FORMAT_UNIT, 0, 0, 0, 0, 0], &[]).code, 0, "{lun}");
        host.session.leave();
    }
}

/// Another process serves in the place of this one, from a file.
#[track_caller]
fn takes_over(daemon: &mut Daemon, config: &str) {
    let mut next = that_takes_signals();
    next.args(["serve", "--take-over", "--config", config, "--log", "error"]);
    next.args(["--control-socket", &daemon.socket]);
    takes_place(daemon, next);
}

/// That of all disks is what is in force, and not what the file says.
#[test]
fn disks_that_come_after_a_take_over_have_the_states_of_all() {
    for explicit in [false, true] {
        let files = Files::new();
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"{TARGET}\"\n\
             explicit-alua = {explicit}\n[[target.port-group]]\nnumber = 1\n\
             portal-groups = [1]\n[[target.lun]]\nstore = \"null:1M\"\n"
        );
        let config = files.with("lunwire.toml", text.as_bytes());
        let mut daemon = Daemon::start_configured(files.folder.path(), &config, 1, &[]);
        let ask = |daemon: &Daemon, words: &[&str]| {
            stdout(&good(&[words, &["--control-socket", &daemon.socket]].concat()))
        };
        let states = |daemon: &Daemon| {
            let told: serde_json::Value =
                serde_json::from_str(&ask(daemon, &["alua", "--json"])).unwrap();
            let groups = told["groups"].as_array().or(told.as_array()).unwrap().clone();
            let state = |one: &serde_json::Value| one["state"].as_str().unwrap().to_owned();
            let by_number = groups.iter().map(|one| (one["lun"].as_u64(), state(one)));
            by_number.collect::<BTreeMap<_, _>>().into_values().collect::<Vec<_>>()
        };
        ask(&daemon, &["lun", "add", "null:2M"]);
        ask(&daemon, &["alua", "set", TARGET, "1", "standby"]);
        // That of one disk is its own, though it be that of the file.
        ask(&daemon, &["alua", "set", TARGET, "1", "active-optimized", "--lun", "1"]);
        let more = format!("{text}[[target.lun]]\nnumber = 2\nstore = \"null:3M\"\n");
        files.with("lunwire.toml", more.as_bytes());
        takes_over(&mut daemon, &config);
        expect_disk(&files, "null:3M");
        assert_eq!(states(&daemon), ["standby", "active-optimized", "standby"], "a new one");
        ask(&daemon, &["lun", "add", "null:4M"]);
        let now = ["standby", "active-optimized", "standby", "standby"];
        assert_eq!(states(&daemon), now, "one that was added");
        // And behind one that has not taken over, and the next one that does.
        drop(Next::of(&daemon).take());
        expect_disk(&files, "null:4M");
        takes_over(&mut daemon, &config);
        expect_disk(&files, "null:4M");
        ask(&daemon, &["lun", "add", "null:5M"]);
        assert_eq!(states(&daemon)[4], "standby", "one that was added later");
        // With explicit-alua a reload leaves states as they are.
        if explicit {
            let more = format!("{more}[[target.lun]]\nnumber = 6\nstore = \"null:6M\"\n");
            files.with("lunwire.toml", more.as_bytes());
            ask(&daemon, &["reload"]);
            let states = states(&daemon);
            assert_eq!(states.last().map(String::as_str), Some("standby"), "{states:?}");
        }
    }
}

/// There is nothing on it that could be lost: and none of what is beside it.
#[test]
fn a_stripe_with_a_part_that_keeps_nothing_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let stripe = "stripe:64K(memory:1M;null:1M)";
    let mut daemon = Daemon::start(folder.path(), &[stripe, "memory:1M,readonly"], &[]);
    take_over(&mut daemon, &["--lun", stripe, "--lun", "memory:1M,readonly"]);
    host_of(&daemon).write(&cdb10(WRITE_10, 3, 1), &[7; 512]);
    Next::asks(&daemon).hear("it is in memory, and what hosts wrote to it would be lost");
}

/// It is not carried out by somebody who is about to end, nor forgotten.
#[test]
fn sighup_to_a_process_that_is_asked_to_hand_over_is_heard_by_who_serves() {
    for takes in [false, true] {
        let files = Files::new();
        let (mut daemon, write) = hears_sighup(&files);
        let mut next = Next::asks_at(&files.path("control"));
        next.hear(r#""reply":"offer""#);
        write("[[target.lun]]\nnumber = 1\nstore = \"null:3M\"\n");
        signal(&daemon, Signal::HUP);
        Daemon::told(files.folder.path(), "SIGHUP");
        std::thread::sleep(Duration::from_millis(300));
        drop(if takes { next.take() } else { next });
        expect_disk(&files, "null:3M");
        signal(&daemon, Signal::TERM);
        assert!(daemon.wait().unwrap().success());
    }
}

/// Who stands still does not hold it up for longer than other orders.
#[test]
fn sighup_goes_before_a_process_that_takes_its_time() {
    let files = Files::new();
    let (mut daemon, write) = hears_sighup(&files);
    let mut still = Next::asks_at(&files.path("control"));
    still.hear(r#""reply":"offer""#);
    write("[[target.lun]]\nnumber = 1\nstore = \"null:3M\"\n");
    signal(&daemon, Signal::HUP);
    expect_disk(&files, "null:3M");
    still.hear("an order came first");
    signal(&daemon, Signal::TERM);
    assert!(daemon.wait().unwrap().success());
}

/// They are told what has become of them, and not that this is unknown.
#[test]
fn orders_that_wait_when_disks_are_taken_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), &["null:1M"], &[]);
    let mut said = String::new();
    for _ in 0..20 {
        let mut next = Next::of(&daemon);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let orders = (0..4).map(|_| {
                scope.spawn(|| {
                    let mut all = String::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let words = ["limit", "set", "--lun", "0", "--iops", "1000000"];
                        let told =
                            lunwire(&[&words[..], &["--control-socket", &daemon.socket]].concat());
                        all.push_str(&String::from_utf8_lossy(&told.stderr));
                    }
                    all
                })
            });
            let orders: Vec<_> = orders.collect();
            std::thread::sleep(Duration::from_millis(20));
            next.say(r#"{"word":"take"}"#);
            next.hear(r#""word":"released""#);
            drop(next);
            expect_service(&daemon, Duration::from_secs(20));
            is_over.store(true, Ordering::Relaxed);
            for order in orders {
                said.push_str(&order.join().unwrap());
            }
        });
    }
    assert!(said.contains("another process takes over"), "{said}");
    // But for who has not said what he wants within a tenth of a second, on a machine that is busy.
    assert!(said.matches("may have done").count() < 2, "{said}");
}

/// Nobody would tell hosts of it: the next process has not seen it.
#[test]
fn what_is_lost_as_disks_are_closed_is_told_to_hosts() {
    let (files, other) = (Files::new(), Files::new());
    // Each second one.
    let disk = format!("file:{},size=1M,error=flush:2", other.path("disk"));
    let behind = Daemon::start(other.folder.path(), &[&disk], &[]);
    let url = &behind.urls[0];
    let mut daemon = Daemon::start_logged(files.folder.path(), &[url], &[]);
    let flush = [SYNCHRONIZE_CACHE, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut host = host_of(&daemon);
    host.must(&flush);
    host.write(&cdb10(WRITE_10, 0, 1), &[7; 512]);
    host.session.leave();
    let mut next = that_takes_signals();
    next.args(["serve", "--take-over", "--listen", "127.0.0.1:0", "--target", TARGET]);
    next.args(["--control-socket", &daemon.socket, "--lun", url]).stdout(Stdio::null());
    let log = std::fs::File::create(files.path("next")).unwrap();
    let mut next = next.stderr(log).spawn().unwrap();
    let begun = Instant::now();
    while next.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = next.try_wait().unwrap();
    let _ = (next.kill(), next.wait());
    let said = std::fs::read_to_string(files.path("next")).unwrap();
    assert!(ended.is_some_and(|it| !it.success()) && said.contains("lost writes"), "{said}");
    assert!(daemon.child.try_wait().unwrap().is_none(), "it serves again");
    expect_service(&daemon, Duration::from_secs(20));
    let told = stdout(&good(&["status", "--control-socket", &daemon.socket]));
    assert!(told.contains("lost"), "{told}");
    let mut host = host_of(&daemon);
    for _ in 0..3 {
        let flushed = host.send(&flush, &[]);
        assert_eq!(flushed.sense_code(), (3, 0x0c, 0), "{flushed:?}");
    }
    // It cannot be taken over as if it were sound, either.
    Next::asks(&daemon).hear("lost writes");
}

/// Its interface may come back at any time; hosts at other doors are not to wait for that.
#[test]
fn who_serves_again_does_so_without_an_interface_that_has_gone() {
    fn ip(words: &str) -> bool {
        let run = Command::new("ip").args(words.split(' ')).status();
        run.is_ok_and(|status| status.success())
    }
    let make = || ip("link add v0 type veth peer name v1") && ip("link set v0 up");
    let seen = || {
        if !ip("link set lo up") || !make() {
            println!("skipped: no interfaces");
            return;
        }
        let files = Files::new();
        let folder = files.folder.path();
        let daemon = Daemon::start_logged(folder, &["memory:1M"], &["--ether", "v0"]);
        assert!(ip("link del v0"));
        drop(Next::of(&daemon).take());
        expect_service(&daemon, Duration::from_secs(20));
        let told = || stdout(&good(&["status", "--control-socket", &daemon.socket]));
        assert!(told().contains("the interface is gone"), "{}", told());
        assert!(make());
        let begun = Instant::now();
        while told().contains("the interface is gone") {
            assert!(begun.elapsed() < Duration::from_secs(20), "{}", told());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    match engine::network::Network::new() {
        Ok(network) => network.within(seen).unwrap(),
        Err(error) => println!("skipped: no network of its own: {error}"),
    }
}
