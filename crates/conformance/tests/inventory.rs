// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logical units that come and go while sessions are there (SPC-4 §6.33: REPORTED LUNS DATA HAS
//! CHANGED), with commands of every kind under way.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use lunwire_conformance::initiator::BLOCK_BYTES;
use lunwire_conformance::initiator::CHECK_CONDITION;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::Status;
use lunwire_conformance::initiator::cdb10;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::server::BLOCK;
use lunwire_conformance::server::FILE_LUN;
use lunwire_conformance::server::FRIEND;
use lunwire_conformance::server::LUNS;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::*;
use scsi::Identity;
use scsi::LogicalUnit;
use scsi::ProtectionType;
use store::spec::Spec;
use target::AccessRule;
use target::NewLun;
use target::Plan;
use target::VolumeError;
use wire::iscsi::*;
use wire::scsi::sam::TASK_ABORTED;

/// The number under which a test adds a unit.
const LUN: u8 = 9;
/// An initiator that sees LUN 0 alone, where a test says so.
const SOME: &str = "iqn.2026-01.example.conformance:some";
const POWER_ON: (u8, u8, u8) = (6, 0x29, 0);
const LUNS_CHANGED: (u8, u8, u8) = (6, 0x3f, 0x0e);
const INQUIRY_CHANGED: (u8, u8, u8) = (6, 0x3f, 0x03);
const NOT_SUPPORTED: (u8, u8, u8) = (5, 0x25, 0);
const NOTHING: (u8, u8, u8) = (0, 0, 0);

fn add_at(server: &Server, number: Option<u16>, word: &str) -> Result<u16, VolumeError> {
    add_for(server, NewLun { number, initiators: Vec::new() }, word)
}

fn add_for(server: &Server, wanted: NewLun, word: &str) -> Result<u16, VolumeError> {
    let spec: Spec = word.parse().expect("a store");
    server.target().add_lun(TARGET, wanted, |stores, number| {
        let store = stores.open(&spec).expect("it opens");
        Ok(LogicalUnit::new(identity(number), store, BLOCK).expect("a legal unit"))
    })
}

fn identity(number: u16) -> Identity {
    Identity::derive(TARGET, number, "LUNWIRE", "VIRTUAL DISK")
}

fn add(server: &Server, word: &str) {
    assert_eq!(add_at(server, Some(LUN.into()), word).expect("a free number"), LUN.into());
}

fn remove(server: &Server) {
    server.target().remove_lun(TARGET, LUN.into()).expect("it is there");
}

fn file(folder: &Path) -> String {
    format!("file:{},size=1M", folder.join("disk").display())
}

/// A session that has heard of everything.
fn session(server: &Server) -> Initiator {
    let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No")];
    let mut session = server.login_with(&LoginPlan::new().with(&keys));
    (0..u8::try_from(LUNS).expect("few")).for_each(|lun| session.settle(lun));
    session
}

fn ready(session: &mut Initiator, lun: u8) -> (u8, u8, u8) {
    let command = session.test_unit_ready(lun);
    session.run(&command).sense_code()
}

/// Numbers of REPORT LUNS.
fn luns(session: &mut Initiator) -> Vec<u8> {
    let command = session.command(0, &host::report_luns(256));
    let data = session.run(&ScsiCommand { read: true, expected_length: 256, ..command }).data;
    data[8..].chunks(8).map(|entry| entry[1]).collect()
}

fn write(session: &mut Initiator, data: &[u8]) -> Status {
    let command = session.write_blocks(LUN, 0, 1);
    session.start(&command);
    let r2t = session.read_r2t();
    let out = session.data_out(&r2t);
    session.send(&Request::DataOut(out), data);
    session.finish(command.itt)
}

fn read(session: &mut Initiator) -> Status {
    let command = session.read_blocks(LUN, 0, 1);
    session.run(&command)
}

#[test]
fn a_unit_comes_and_goes_and_everybody_is_told() {
    on_each_transport(
        |_| {},
        |server| {
            let folder = tempfile::tempdir().expect("a folder");
            let mut sessions = [session(server), session(server), session(server)];
            assert_eq!(ready(&mut sessions[0], LUN), NOT_SUPPORTED);
            add(server, &file(folder.path()));
            for session in &mut sessions {
                assert_eq!(ready(session, 0), LUNS_CHANGED);
                assert_eq!(ready(session, 0), NOTHING, "told once");
                assert_eq!(luns(session), [0, 1, FILE_LUN, LUN]);
                assert_eq!(ready(session, 1), NOTHING, "who has asked needs not be told");
                assert_eq!(ready(session, LUN), POWER_ON);
            }
            let data = pattern(BLOCK_BYTES, 3);
            assert_eq!(write(&mut sessions[0], &data).code, GOOD);
            assert_eq!(read(&mut sessions[1]).data, data);
            let mut late = session(server);
            assert_eq!(luns(&mut late), [0, 1, FILE_LUN, LUN], "logins see it");

            remove(server);
            for session in &mut sessions {
                assert_eq!(ready(session, FILE_LUN), LUNS_CHANGED);
                assert_eq!(ready(session, LUN), NOT_SUPPORTED);
                assert_eq!(luns(session), [0, 1, FILE_LUN]);
            }
            add(server, &file(folder.path()));
            assert_eq!(ready(&mut late, LUN), INQUIRY_CHANGED, "it knew another one there");
            assert_eq!(ready(&mut late, LUN), POWER_ON, "its file was given back");
            assert_eq!(ready(&mut late, LUN), LUNS_CHANGED);
            assert_eq!(read(&mut late).data, data);
            remove(server);
        },
    );
}

#[test]
fn numbers_are_free_or_taken() {
    on_each_transport(
        |_| {},
        |server| {
            let taken = add_at(server, Some(1), "memory:1M");
            assert!(matches!(taken, Err(VolumeError::Taken { lun: 1, .. })), "{taken:?}");
            assert_eq!(add_at(server, None, "memory:1M").expect("room"), LUNS);
            assert_eq!(add_at(server, None, "memory:1M").expect("room"), LUNS + 1);
            server.target().remove_lun(TARGET, LUNS).expect("it is there");
            let next = add_at(server, None, "memory:1M").expect("room");
            assert_eq!(next, LUNS + 2, "hosts must not take it for the one that has gone");
            assert_eq!(add_at(server, Some(LUNS), "memory:1M").expect("asked for"), LUNS);
            let missing = server.target().remove_lun(TARGET, 77);
            assert!(matches!(missing, Err(VolumeError::NoLun { lun: 77, .. })), "{missing:?}");
            let missing = server.target().remove_lun("iqn.2026-01.example:none", 0);
            assert!(matches!(missing, Err(VolumeError::NoTarget(_))), "{missing:?}");
        },
    );
}

/// What the store works on ends well; what waits for an initiator is ended after a while.
#[test]
fn commands_under_way_end_cleanly() {
    on_each_transport(
        |_| {},
        |server| {
            let folder = tempfile::tempdir().expect("a folder");
            let word = format!("{},delay=write:300ms", file(folder.path()));
            let [mut busy, mut idle] = [session(server), session(server)];
            add(server, &word);
            for session in [&mut busy, &mut idle] {
                luns(session);
                session.settle(LUN);
            }
            // Its data never comes.
            let stuck = idle.write_blocks(LUN, 1, 1);
            idle.start(&stuck);
            idle.read_r2t();
            // This one waits for the store.
            let command = busy.write_blocks(LUN, 0, 1);
            busy.start(&command);
            let r2t = busy.read_r2t();
            let out = busy.data_out(&r2t);
            let data = pattern(BLOCK_BYTES, 5);
            busy.send(&Request::DataOut(out), &data);
            busy.expect_quiet();
            remove(server);
            assert_eq!(busy.finish(command.itt).code, GOOD, "it was under way");
            assert_eq!(ready(&mut busy, 0), LUNS_CHANGED);
            assert_eq!(ready(&mut busy, LUN), NOT_SUPPORTED);
            add(server, &file(folder.path()));
            busy.settle(0);
            busy.settle(LUN);
            assert_eq!(read(&mut busy).data, data, "acknowledged is kept");
            remove(server);
            drop(idle);
        },
    );
}

/// What was sent to the unit before, and comes when another one has its number, does not reach
/// that one: neither reads nor writes, however many there are.
#[test]
fn what_was_sent_to_the_unit_before_does_not_reach_the_next_one() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session(server);
            add(server, "memory:1M");
            luns(&mut session);
            session.settle(LUN);
            assert_eq!(write(&mut session, &pattern(BLOCK_BYTES, 1)).code, GOOD);
            // Behind a hole in the order.
            let hole = session.test_unit_ready(0);
            let mut commands = Vec::new();
            for turn in 0..6 {
                commands.push(match turn % 3 {
                    0 => session.read_blocks(LUN, 0, 1),
                    1 => session.write_blocks(LUN, 0, 1),
                    _ => {
                        let read = session.read_blocks(LUN, 0, 1);
                        ScsiCommand { attribute: Attribute::Ordered, ..read }
                    }
                });
            }
            commands.iter().for_each(|command| session.start(command));
            remove(server);
            add(server, "memory:1M");
            session.start(&hole);
            let tags: Vec<Itt> = [&hole].into_iter().chain(&commands).map(|of| of.itt).collect();
            let mut ends = Vec::new();
            for _ in &tags {
                let pdu = session.read();
                let Response::Scsi(answer) = pdu.response() else { panic!("{pdu:x?}") };
                let sense = pdu.data.get(2..).unwrap_or_default();
                let at = |at: usize| sense.get(at).copied().unwrap_or(0);
                ends.push((answer.itt, (at(2) & 15, at(12), at(13))));
            }
            for (itt, code) in ends {
                let expected = if itt == hole.itt { LUNS_CHANGED } else { INQUIRY_CHANGED };
                assert_eq!(code, expected, "{itt:?}");
            }
            // What it sends now it sends to the new one.
            assert_eq!(ready(&mut session, LUN), POWER_ON);
            assert_eq!(ready(&mut session, LUN), LUNS_CHANGED);
            assert_eq!(read(&mut session).data, [0; BLOCK_BYTES], "nothing was written");
            remove(server);
        },
    );
}

/// An immediate command overtakes what was sent before it: that its initiator knows of the next
/// unit says nothing about commands that have not come yet.
#[test]
fn an_immediate_command_lets_nothing_older_through_to_the_next_unit() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session(server);
            add(server, "memory:1M");
            luns(&mut session);
            session.settle(LUN);
            // Behind a hole in the order.
            let hole = session.test_unit_ready(0);
            let old = session.write_blocks(LUN, 0, 1);
            session.start(&old);
            remove(server);
            add(server, "memory:1M");
            for expected in [INQUIRY_CHANGED, POWER_ON, LUNS_CHANGED, NOTHING] {
                let next = session.cmd_sn;
                let ready = session.test_unit_ready(LUN);
                session.cmd_sn = next;
                let ready = ScsiCommand { immediate: true, cmd_sn: next, ..ready };
                assert_eq!(session.run(&ready).sense_code(), expected);
            }
            session.start(&hole);
            assert_eq!(session.finish(hole.itt).sense_code(), LUNS_CHANGED);
            assert_eq!(session.finish(old.itt).sense_code(), INQUIRY_CHANGED);
            // From the first one on that has its place in the order, all is meant for the new unit.
            assert_eq!(ready(&mut session, LUN), NOTHING);
            assert_eq!(write(&mut session, &pattern(BLOCK_BYTES, 2)).code, GOOD);
            remove(server);
        },
    );
}

/// With InitialR2T a WRITE waits for its initiator: nobody else can end it in time.
#[test]
fn a_command_that_waits_for_its_initiator_is_aborted() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session(server);
            add(server, "memory:1M");
            luns(&mut session);
            session.settle(LUN);
            let stuck = session.write_blocks(LUN, 1, 1);
            session.start(&stuck);
            let r2t = session.read_r2t();
            remove(server);
            // Without FastAbort the answer comes when the data has ended (RFC 7143 §4.2.3.3).
            let out = session.data_out(&r2t);
            session.send(&Request::DataOut(out), &[1; BLOCK_BYTES]);
            assert_eq!(session.finish(stuck.itt).code, TASK_ABORTED);
            assert_eq!(ready(&mut session, LUN), NOT_SUPPORTED);
            assert_eq!(ready(&mut session, 0), LUNS_CHANGED);
        },
    );
}

/// Another unit's EXTENDED COPY ends with the piece under way.
#[test]
fn a_copy_to_a_unit_that_goes_ends() {
    on_each_transport(
        |_| {},
        |server| {
            let folder = tempfile::tempdir().expect("a folder");
            let mut session = session(server);
            add(
                server,
                &format!(
                    "file:{},size=64M,delay=write:300ms",
                    folder.path().join("disk").display()
                ),
            );
            luns(&mut session);
            let units = [identity(0).naa, identity(LUN.into()).naa];
            let list = host::copy_list(units.each_ref().map(|naa| &**naa), 32_000, [0, 0]);
            let command = session.command(0, &host::copy_out(0, 0, list.len()));
            let expected_length = u32::try_from(list.len()).expect("short");
            session.start(&ScsiCommand { write: true, expected_length, ..command });
            let r2t = session.read_r2t();
            let out = session.data_out(&r2t);
            session.send(&Request::DataOut(out), &list);
            session.expect_quiet();
            remove(server);
            let ended = session.finish(command.itt);
            assert_eq!((ended.code, ended.sense_code()), (CHECK_CONDITION, NOT_SUPPORTED));
            assert_eq!(ready(&mut session, 0), LUNS_CHANGED);
        },
    );
}

/// Only who may see a unit hears of it.
#[test]
fn a_masked_unit_comes_and_goes_unseen() {
    let mask = |plan: &mut Plan| {
        let node = plan.nodes.iter_mut().find(|node| node.name == TARGET).expect("the target");
        let rule = |initiator: &str, luns| AccessRule {
            initiator: initiator.to_owned(),
            luns,
            account: None,
            target_reset: None,
        };
        node.access = vec![rule(FRIEND, None), rule(SOME, Some(vec![0]))];
    };
    on_each_plan(|_| {}, mask, see_what_is_theirs);
}

fn see_what_is_theirs(server: &Server) {
    let login = |name: &str| LoginPlan { initiator: Some(name.to_owned()), ..LoginPlan::new() };
    let mut sessions = [FRIEND, SOME].map(|name| server.login_with(&login(name)));
    sessions.iter_mut().for_each(|session| session.settle(0));
    let heard = |sessions: &mut [Initiator; 2]| sessions.each_mut().map(|each| ready(each, 0));
    add(server, "memory:1M");
    assert_eq!(heard(&mut sessions), [LUNS_CHANGED, NOTHING]);
    let [friend, some] = &mut sessions;
    assert_eq!((luns(friend), luns(some)), (vec![0, 1, FILE_LUN, LUN], vec![0]));
    assert_eq!(ready(some, LUN), NOT_SUPPORTED);
    remove(server);
    assert_eq!(heard(&mut sessions), [LUNS_CHANGED, NOTHING]);
    // The rules know nothing of a unit that is added for somebody.
    let wanted = |name: &str| NewLun { number: Some(LUN.into()), initiators: vec![name.into()] };
    add_for(server, wanted(SOME), "memory:1M").expect("a free number");
    assert_eq!(heard(&mut sessions), [NOTHING, LUNS_CHANGED]);
    assert_eq!(sessions.each_mut().map(luns), [vec![0, 1, FILE_LUN], vec![0, LUN]]);
    remove(server);
    assert_eq!(heard(&mut sessions), [NOTHING, LUNS_CHANGED]);
    let stranger = add_for(server, wanted("iqn.2026-01.example:stranger"), "memory:1M");
    assert!(matches!(stranger, Err(VolumeError::NotAdmitted { .. })), "{stranger:?}");
}

#[test]
fn what_is_being_wiped_stays() {
    on_each_transport(
        |_| {},
        |server| {
            let mut session = session(server);
            add(server, "memory:1M,delay=write:100ms");
            luns(&mut session);
            session.settle(LUN);
            let overwrite = [0x48, 0x81, 0, 0, 0, 0, 0, 0, 8, 0];
            let command = session.command(LUN, &overwrite);
            session.start(&ScsiCommand { write: true, expected_length: 8, ..command });
            let r2t = session.read_r2t();
            let out = session.data_out(&r2t);
            session.send(&Request::DataOut(out), &[1, 0, 0, 4, 0, 0, 0, 0]);
            assert_eq!(session.finish(command.itt).code, GOOD);
            let refused = server.target().remove_lun(TARGET, LUN.into());
            assert!(matches!(refused, Err(VolumeError::Wiping { .. })), "{refused:?}");
            let deadline = Instant::now() + Duration::from_secs(60);
            while ready(&mut session, LUN) != NOTHING {
                assert!(Instant::now() < deadline, "the wipe ends");
                std::thread::sleep(Duration::from_millis(10));
            }
            remove(server);
        },
    );
}

/// Commands for a unit that stays and one that may not be there; each end is a right one.
fn work(session: &mut Initiator) {
    for lun in [0, LUN] {
        let flush = session.command(lun, &cdb10(0x35, 0, 0));
        let code = session.run(&flush).sense_code();
        let known = [NOTHING, POWER_ON, LUNS_CHANGED, INQUIRY_CHANGED, NOT_SUPPORTED];
        assert!(known.contains(&code), "LUN {lun}: {code:?}");
    }
    let command = session.write_blocks(LUN, 0, 1);
    session.start(&command);
    match session.read().response() {
        Response::R2t(r2t) => {
            let out = session.data_out(&r2t);
            session.send(&Request::DataOut(out), &pattern(BLOCK_BYTES, 8));
            let code = session.finish(command.itt).code;
            assert!([GOOD, TASK_ABORTED].contains(&code), "{code}");
        }
        Response::Scsi(answer) => assert_eq!(answer.status, CHECK_CONDITION),
        other => panic!("{other:?}"),
    }
}

/// Says that it is over when it goes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Commands of several sessions all the time, while the unit comes and goes.
#[test]
fn nothing_is_lost_while_units_come_and_go() {
    on_each_transport(
        |_| {},
        |server| {
            let folder = tempfile::tempdir().expect("a folder");
            let mut sessions = [session(server), session(server)];
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for session in &mut sessions {
                    scope.spawn(|| {
                        while !over.load(Ordering::Relaxed) {
                            work(session);
                        }
                    });
                }
                // Also if this panics: the scope waits for the others.
                let _end = Ends(&over);
                for _ in 0..10 {
                    add(server, &file(folder.path()));
                    std::thread::sleep(Duration::from_millis(20));
                    remove(server);
                }
            });
            sessions[0].settle(0);
            assert_eq!(luns(&mut sessions[0]), [0, 1, FILE_LUN]);
        },
    );
}

/// What stands beside its blocks is in a file of its own, whatever files are served already.
#[test]
fn a_disk_with_protection_information_comes_beside_files() {
    on_each_transport(
        |_| {},
        |server| {
            let folder = tempfile::tempdir().expect("a folder");
            let added = |name: &str, kind: Option<ProtectionType>| {
                let spec = format!("file:{}/{name},size=1M", folder.path().display());
                let spec: Spec = spec.parse().expect("a store");
                let lun = server.target().add_lun(TARGET, NewLun::default(), |stores, number| {
                    let Some(kind) = kind else {
                        let store = stores.open(&spec).expect("it opens");
                        let unit = LogicalUnit::new(identity(number), store, BLOCK);
                        return Ok(unit.expect("a legal unit"));
                    };
                    let opened = stores.open_protected(&spec, BLOCK, kind);
                    let (store, format) = opened.expect("it opens");
                    let unit = LogicalUnit::protected(identity(number), store, format);
                    Ok::<_, VolumeError>(unit.expect("a legal unit"))
                });
                u8::try_from(lun.expect("a free number")).expect("few")
            };
            let luns = [FILE_LUN, added("a", None), added("b", None), added("c", None)];
            let protected = added("d", Some(ProtectionType::One));
            let side = folder.path().join("d.pi");
            let before = std::fs::read(&side).expect("a side file");
            let mut session = session(server);
            luns.iter().for_each(|lun| session.settle(*lun));
            session.settle(protected);
            for lun in luns {
                let data = pattern(BLOCK_BYTES, lun);
                let command = session.write_blocks(lun, 0, 1);
                session.start(&command);
                let r2t = session.read_r2t();
                let out = session.data_out(&r2t);
                session.send(&Request::DataOut(out), &data);
                assert_eq!(session.finish(command.itt).code, GOOD);
                let command = session.read_blocks(lun, 0, 1);
                assert_eq!(session.run(&command).data, data, "LUN {lun}");
            }
            assert!(std::fs::read(&side).expect("a side file") == before, "nobody wrote to it");
            let flush = session.command(protected, &cdb10(0x35, 0, 0));
            assert_eq!(session.run(&flush).code, GOOD);
        },
    );
}
