// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a target tells of itself: figures of each reactor.

use std::time::Duration;

use engine::laps::Layer;
use lunwire_conformance::initiator::BLOCK_BYTES;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::server::BLOCK;
use lunwire_conformance::server::CLOSED_TARGET;
use lunwire_conformance::server::LUNS;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::UNIT_BYTES;
use lunwire_conformance::*;
use scsi::Identity;
use scsi::LogicalUnit;
use target::DiskFigures;
use target::Failure;
use target::LunSnapshot;
use target::NewLun;
use target::Operation;
use target::Shrink;
use target::Spec;
use target::Traffic;
use target::Visits;
use target::VolumeError;

const PATIENCE: Duration = Duration::from_secs(20);

fn traffic(server: &Server) -> Traffic {
    let answered = server.target().figures(PATIENCE);
    assert_eq!(answered.silent, [0_usize; 0]);
    let mut all = Traffic::default();
    answered.answers.iter().for_each(|figures| all.join(&figures.traffic));
    all
}

/// They never become less when sessions and connections go.
#[test]
fn figures_count_what_has_come_and_gone() {
    on_each_engine(
        |_| {},
        |server| {
            let begin = traffic(server);
            assert_eq!(begin, Traffic::default());
            let mut session = server.login();
            session.settle(0);
            let before = traffic(server);
            for _ in 0..3 {
                let read = session.read_blocks(0, 0, 2);
                assert_eq!(session.run(&read).code, GOOD);
            }
            let during = traffic(server);
            assert_eq!(during.commands - before.commands, 3);
            assert_eq!(during.bytes_in - before.bytes_in, 6 * BLOCK_BYTES as u64);
            let (now, was) = (during.connections, before.connections);
            assert_eq!(now.pdus_in.scsi_command - was.pdus_in.scsi_command, 3);
            assert_eq!(now.pdus_out.data_in - was.pdus_out.data_in, 3);
            assert_eq!((now.pdus_in.login, now.pdus_out.login), (1, 1));
            session.leave();
            while !server.target().sessions().is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let after = traffic(server);
            assert_eq!((after.commands, after.bytes_in), (during.commands, during.bytes_in));
            assert_eq!((after.connections.pdus_in.logout, after.connections.pdus_in.login), (1, 1));
            assert_eq!(after.connections.pdus_in.scsi_command, now.pdus_in.scsi_command);
        },
    );
}

/// What one disk's commands were like, on all reactors.
fn commands(server: &Server, disk: &str) -> Vec<DiskFigures> {
    let answers = server.target().figures(PATIENCE).answers;
    let disks = answers.into_iter().flat_map(|figures| figures.disks);
    disks.filter(|of| of.disk.as_deref() == Some(disk)).collect()
}

#[test]
fn failures_and_times_are_counted_by_disk() {
    on_each_engine(
        |_| {},
        |server| {
            let serials: Vec<String> =
                server.target().targets()[0].luns.iter().map(|lun| lun.serial.clone()).collect();
            let mut session = server.login();
            session.settle(0);
            let failed = |status: u8, sense_key: Option<u8>| -> u64 {
                let all = commands(server, &serials[0]).into_iter().flat_map(|of| of.failures);
                let of =
                    |(how, _): &(Failure, u64)| (how.status, how.sense_key) == (status, sense_key);
                all.filter(of).map(|(_, count)| count).sum()
            };
            // Each new session has unit attentions to tell.
            let attentions = failed(0x02, Some(0x06));
            assert!(attentions > 0);
            for _ in 0..3 {
                let beyond = session.read_blocks(0, u32::MAX, 1);
                assert_eq!(session.run(&beyond).code, 0x02);
            }
            assert_eq!((failed(0x02, Some(0x05)), failed(0x02, Some(0x06))), (3, attentions));
            assert!(commands(server, &serials[1]).is_empty(), "it is another disk's");
            let took = |operation: Operation| -> u64 {
                let all = commands(server, &serials[0]).into_iter().flat_map(|of| of.took);
                all.filter(|(of, _)| *of == operation).map(|(_, took)| took.laps).sum()
            };
            for _ in 0..5000 {
                let read = session.read_blocks(0, 0, 1);
                assert_eq!(session.run(&read).code, GOOD);
                if took(Operation::Read) > 0 {
                    break;
                }
            }
            assert!(took(Operation::Read) > 0, "one turn in 127 is timed");
            assert_eq!(took(Operation::Write), 0);
            // What its session is told to have taken is the same.
            let sessions = server.target().sessions();
            let [one] = &*sessions else { panic!("one is logged in: {sessions:?}") };
            let layer = |all: &[(Operation, Layer)]| {
                let mut its = all.iter().filter(|(of, _)| *of == Operation::Read);
                its.next().map(|(_, layer)| (layer.laps, layer.cycles, layer.lengths().to_vec()))
            };
            let of_disk = commands(server, &serials[0]).into_iter().flat_map(|of| of.took);
            assert_eq!(layer(&one.took), layer(&of_disk.collect::<Vec<_>>()));
            assert!(one.took.iter().all(|(_, layer)| layer.laps > 0), "{:?}", one.took);
        },
    );
}

#[test]
fn logins_are_counted_and_why_they_were_refused() {
    on_each_engine(
        |_| {},
        |server| {
            let visits = || {
                let answers = server.target().figures(PATIENCE).answers;
                let sum = |of: fn(&Visits) -> u64| -> u64 {
                    answers.iter().map(|figures| of(&figures.visits)).sum()
                };
                let not_found = |of: &Visits| of.refused.get(&0x0203).copied().unwrap_or_default();
                (sum(|of| of.logins), sum(not_found), sum(|of| of.refused.values().sum()))
            };
            assert_eq!(visits(), (0, 0, 0));
            let _sessions = [server.login(), server.login()];
            assert_eq!(visits(), (2, 0, 0));
            let target = Some("iqn.2026-01.com.example:nowhere".to_owned());
            LoginPlan { target, ..LoginPlan::new() }.expect_refused(server.connect(), 0x0203);
            assert_eq!(visits(), (2, 1, 1));
        },
    );
}

#[test]
fn figures_name_sessions_and_memory_of_each_reactor() {
    on_each_engine(
        |_| {},
        |server| {
            let sessions = [server.login(), server.login(), server.login()];
            let figures = server.target().figures(PATIENCE).answers;
            let numbers: Vec<usize> = figures.iter().map(|one| one.reactor).collect();
            assert_eq!(numbers, (0..server.target().reactors()).collect::<Vec<_>>());
            let held: usize = figures.iter().map(|one| one.holdings.sessions).sum();
            assert_eq!(held, sessions.len());
            for one in &figures {
                assert_eq!(one.holdings.sessions, one.sessions.len());
                assert!(one.sessions.iter().all(|session| session.reactor == one.reactor));
                assert_eq!(one.pool_bytes_max, 64 << 20);
                assert!(one.holdings.pool_bytes <= one.pool_bytes_max);
            }
        },
    );
}

/// Whoever shows what is served needs no table of their own.
#[test]
fn the_target_itself_knows_what_it_serves() {
    on_each_engine(
        |_| {},
        |server| {
            let folder = tempfile::tempdir().expect("a folder");
            let targets = server.target().targets();
            let names: Vec<&str> = targets.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(names, [TARGET, CLOSED_TARGET]);
            assert_eq!(targets[0].luns.len(), usize::from(LUNS));
            let [memory, ..] = &targets[0].luns[..] else { panic!("{targets:?}") };
            let facts = (memory.number, memory.bytes, memory.block, memory.read_only);
            assert_eq!(facts, (0, UNIT_BYTES, BLOCK, false));

            let word = format!("file:{},size=1M", folder.path().join("disk").display());
            let added = server.target().add_lun(TARGET, NewLun::default(), |stores, number| {
                let spec: Spec = word.parse().expect("a store");
                let store = stores.open(&spec).expect("it opens");
                let identity = Identity::derive(TARGET, number, "LUNWIRE", "VIRTUAL DISK");
                let unit = LogicalUnit::new(identity, store, BLOCK).expect("a legal unit");
                Ok::<_, VolumeError>(unit.with_label(word.clone()))
            });
            let number = added.expect("room");
            let shown = || -> Option<LunSnapshot> {
                let luns = server.target().targets().remove(0).luns;
                luns.into_iter().find(|lun| lun.number == number)
            };
            let lun = shown().expect("it was added");
            assert_eq!((lun.label, lun.bytes), (word.clone(), 1 << 20));
            server.target().resize(TARGET, number, 2 << 20, Shrink::Refused).expect("room");
            assert_eq!(shown().expect("it is there").bytes, 2 << 20);
            let mut session = server.login();
            let at = u8::try_from(number).expect("small");
            session.settle(at);
            let before = shown().expect("it is there").totals;
            let read = session.read_blocks(at, 0, 4);
            assert_eq!(session.run(&read).code, GOOD);
            let after = shown().expect("it is there").totals;
            assert_eq!(after.reads - before.reads, 1);
            assert_eq!(after.bytes_read - before.bytes_read, 4 * BLOCK_BYTES as u64);
            std::fs::remove_file(folder.path().join("disk")).expect("it is there");
            server.target().note_names();
            assert_eq!(shown().expect("it is there").astray, Some("deleted"));
            server.target().remove_lun(TARGET, number).expect("it is there");
            assert!(shown().is_none());
        },
    );
}
