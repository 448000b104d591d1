// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that must outlive a loss of power (APTPL, saved mode parameters, identifying information)
//! on a medium that takes its time, fails, or is still at it when the session is over.

use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use lunwire_conformance::host::reserve_out;
use lunwire_conformance::initiator::Status;
use lunwire_conformance::server::BLOCK;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::tasks::LOGICAL_UNIT_RESET;
use lunwire_conformance::tasks::PATIENCE;
use lunwire_conformance::*;
use scsi::Identity;
use scsi::KeepFailed;
use scsi::Keeper;
use scsi::Kept;
use scsi::LogicalUnit;
use store::spec::Spec;
use target::Plan;
use wire::iscsi::*;
use wire::scsi::sam::GOOD;

/// The number of the unit whose state is kept.
const LUN: u8 = 9;

/// A medium whose door a test shuts and opens.
#[derive(Debug, Default)]
struct Shelf {
    facts: Mutex<Facts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Facts {
    is_shut: bool,
    is_broken: bool,
    /// Who stands before the door or has gone through it.
    came: usize,
    kept: Vec<Vec<u8>>,
}

impl Shelf {
    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.facts());
        self.changed.notify_all();
    }

    /// Waits until so many states have come.
    fn expect(&self, count: usize) {
        let facts = self.facts();
        let wait = self.changed.wait_timeout_while(facts, PATIENCE, |facts| facts.came < count);
        let (facts, late) = wait.unwrap_or_else(PoisonError::into_inner);
        assert!(!late.timed_out(), "{} of {count} have come", facts.came);
    }
}

impl Keeper for Shelf {
    fn keep(&self, state: &[u8]) -> Result<(), KeepFailed> {
        let mut facts = self.facts();
        facts.came += 1;
        self.changed.notify_all();
        let open = self.changed.wait_timeout_while(facts, PATIENCE * 2, |facts| facts.is_shut);
        let (mut facts, _) = open.unwrap_or_else(PoisonError::into_inner);
        if facts.is_broken {
            return Err(KeepFailed);
        }
        facts.kept.push(state.to_vec());
        Ok(())
    }
}

/// Runs `check` on each engine with a unit of which `kept` is kept on the shelf.
fn with_shelf(kept: Kept, check: impl Fn(&Server, &Shelf)) {
    let shelf: Mutex<Arc<Shelf>> = Mutex::default();
    let current = || Arc::clone(&shelf.lock().unwrap_or_else(PoisonError::into_inner));
    let widen = |plan: &mut Plan| {
        *shelf.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        let store = plan.stores.open(&Spec::Memory { bytes: 1 << 20 }).expect("memory");
        let identity = Identity::derive(TARGET, LUN.into(), "LUNWIRE", "VIRTUAL DISK");
        let unit = LogicalUnit::new(identity, store, BLOCK).expect("a legal unit");
        let unit = unit.with_keeper(kept, current(), None).expect("nothing to restore");
        let node = plan.nodes.iter_mut().find(|node| node.name == TARGET).expect("the target");
        node.luns.push((LUN.into(), Arc::new(unit)));
    };
    on_each_plan(
        |_| {},
        widen,
        |server| {
            let shelf = current();
            check(server, &shelf);
            // A stop waits for what is under way.
            shelf.set(|facts| facts.is_shut = false);
        },
    );
}

fn session(server: &Server) -> Initiator {
    let mut session = server.login();
    session.settle(0);
    session.settle(LUN);
    session
}

/// Begins a command with all its data immediate.
fn start(session: &mut Initiator, (cdb, list): (impl AsRef<[u8]>, Vec<u8>)) -> Itt {
    let command = session.command(LUN, cdb.as_ref());
    let expected_length = u32::try_from(list.len()).expect("a short list");
    let command = ScsiCommand { write: true, expected_length, ..command };
    session.send(&Request::Command(command), &list);
    command.itt
}

fn run(session: &mut Initiator, order: (impl AsRef<[u8]>, Vec<u8>)) -> Status {
    let itt = start(session, order);
    session.finish(itt)
}

/// PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY, with APTPL.
fn register(key: u64) -> ([u8; 10], Vec<u8>) {
    let (cdb, mut list) = reserve_out(6, 0, 0, key);
    list[20] |= 1;
    (cdb, list)
}

/// MODE SELECT(6) with SP of the control page with SWP.
fn protect() -> ([u8; 6], Vec<u8>) {
    let list = vec![0, 0, 0, 0, 0x0a, 10, 0, 0x10, 8, 0x40, 0, 0, 0xff, 0xff, 0, 0];
    ([0x15, 0x11, 0, 0, 16, 0], list)
}

/// SET IDENTIFYING INFORMATION.
fn name(text: &[u8]) -> ([u8; 12], Vec<u8>) {
    let length = u8::try_from(text.len()).expect("short");
    ([0xa4, 6, 0, 0, 0, 0, 0, 0, 0, length, 0, 0], text.to_vec())
}

fn keys(session: &mut Initiator) -> Vec<u64> {
    let command = session.command(LUN, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 200, 0]);
    let data = session.run(&ScsiCommand { read: true, expected_length: 200, ..command }).data;
    let keys = data[8..].chunks_exact(8);
    keys.map(|key| u64::from_be_bytes(key.try_into().expect("8 bytes"))).collect()
}

fn ready(session: &mut Initiator, lun: u8) -> (u8, u8, u8) {
    let command = session.test_unit_ready(lun);
    session.run(&command).sense_code()
}

/// Whether the initiator gets GOOD for a write: it does unless SWP is in force.
fn write(session: &mut Initiator) -> (u8, u8, u8) {
    let command = session.write_blocks(LUN, 0, 1);
    session.send(&Request::Command(command), &[7; 512]);
    session.finish(command.itt).sense_code()
}

#[test]
fn others_go_on_while_a_state_is_being_kept() {
    with_shelf(Kept::Reservations, |server, shelf| {
        shelf.set(|facts| facts.is_shut = true);
        let mut first = session(server);
        let itt = start(&mut first, register(1));
        shelf.expect(1);
        // The same session, then sessions on each reactor.
        assert_eq!(ready(&mut first, 0), (0, 0, 0));
        assert_eq!(ready(&mut first, LUN), (0, 0, 0), "the same unit, too");
        for _ in 0..3 {
            let mut other = session(server);
            assert_eq!(ready(&mut other, LUN), (0, 0, 0));
            assert_eq!(keys(&mut other), [], "it has not happened yet");
            other.leave();
        }
        first.expect_quiet();
        shelf.set(|facts| facts.is_shut = false);
        assert_eq!(first.finish(itt).code, GOOD);
        assert_eq!(keys(&mut first), [1]);
    });
}

#[test]
fn changes_at_the_same_time_happen_one_after_the_other() {
    with_shelf(Kept::Reservations, |server, shelf| {
        let mut sessions: Vec<Initiator> = (0..4).map(|_| session(server)).collect();
        shelf.set(|facts| facts.is_shut = true);
        let keys_of = 1..;
        let started: Vec<Itt> =
            sessions.iter_mut().zip(keys_of).map(|(of, key)| start(of, register(key))).collect();
        shelf.expect(1);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(shelf.facts().came, 1, "the others wait for their turn");
        shelf.set(|facts| facts.is_shut = false);
        for (session, itt) in sessions.iter_mut().zip(started) {
            assert_eq!(session.finish(itt).code, GOOD);
        }
        let mut all = keys(&mut sessions[0]);
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4]);
        let facts = shelf.facts();
        let lengths: Vec<usize> = facts.kept.iter().map(Vec::len).collect();
        assert_eq!(lengths.len(), 4);
        assert!(lengths.is_sorted_by(|one, next| one < next), "each has what was there before");
    });
}

#[test]
fn what_cannot_be_kept_has_not_happened() {
    let failed = (4, 0x44, 0);
    with_shelf(Kept::Reservations, |server, shelf| {
        let mut session = session(server);
        shelf.set(|facts| facts.is_broken = true);
        assert_eq!(run(&mut session, register(1)).sense_code(), failed);
        assert_eq!(keys(&mut session), []);
        shelf.set(|facts| facts.is_broken = false);
        assert_eq!(run(&mut session, register(1)).code, GOOD);
        assert_eq!(keys(&mut session), [1]);
    });
    with_shelf(Kept::ModeParameters, |server, shelf| {
        let mut session = session(server);
        shelf.set(|facts| facts.is_broken = true);
        assert_eq!(run(&mut session, protect()).sense_code(), failed);
        assert_eq!(write(&mut session), (0, 0, 0));
        shelf.set(|facts| facts.is_broken = false);
        assert_eq!(run(&mut session, protect()).code, GOOD);
        assert_eq!(write(&mut session), (7, 0x27, 2));
    });
    with_shelf(Kept::Identification, |server, shelf| {
        let mut session = session(server);
        shelf.set(|facts| facts.is_broken = true);
        assert_eq!(run(&mut session, name(b"disk")).sense_code(), failed);
        shelf.set(|facts| facts.is_broken = false);
        assert_eq!(run(&mut session, name(b"disk")).code, GOOD);
        assert_eq!(shelf.facts().kept.len(), 1);
    });
}

/// The command is not answered, but what is on stable storage is what is in force.
#[test]
fn a_session_that_ends_meanwhile_leaves_one_truth() {
    for is_broken in [false, true] {
        with_shelf(Kept::Reservations, |server, shelf| {
            shelf.set(|facts| (facts.is_shut, facts.is_broken) = (true, is_broken));
            let mut first = session(server);
            let mut other = session(server);
            start(&mut first, register(1));
            shelf.expect(1);
            drop(first);
            // This waits behind the change.
            let itt = start(&mut other, register(2));
            assert_eq!(ready(&mut other, LUN), (0, 0, 0));
            shelf.set(|facts| (facts.is_shut, facts.is_broken) = (false, is_broken));
            let expected = if is_broken { &[][..] } else { &[1, 2] };
            let status = other.finish(itt).sense_code();
            assert_eq!(status, if is_broken { (4, 0x44, 0) } else { (0, 0, 0) });
            assert_eq!(keys(&mut other), expected);
        });
    }
}

/// The answer to a reset comes when the state is kept, or not; after it nothing of it changes.
#[test]
fn a_reset_waits_for_what_is_being_kept() {
    with_shelf(Kept::Reservations, |server, shelf| {
        let (mut first, mut other) = (session(server), session(server));
        shelf.set(|facts| facts.is_shut = true);
        start(&mut first, register(1));
        shelf.expect(1);
        let request = other.management(LOGICAL_UNIT_RESET, LUN, Itt::NONE);
        other.send(&Request::TaskManagement(request), &[]);
        other.expect_quiet();
        shelf.set(|facts| facts.is_shut = false);
        assert_eq!(other.read_management(), 0);
        other.settle(LUN);
        assert_eq!(keys(&mut other), [1], "what was kept is in force");
        assert_eq!(shelf.facts().kept.len(), 1);
    });
}

#[test]
fn a_reset_while_mode_parameters_are_being_saved() {
    with_shelf(Kept::ModeParameters, |server, shelf| {
        let (mut first, mut other) = (session(server), session(server));
        shelf.set(|facts| facts.is_shut = true);
        start(&mut first, protect());
        shelf.expect(1);
        assert_eq!(write(&mut other), (0, 0, 0), "not yet in force");
        let request = other.management(LOGICAL_UNIT_RESET, LUN, Itt::NONE);
        other.send(&Request::TaskManagement(request), &[]);
        other.expect_quiet();
        shelf.set(|facts| facts.is_shut = false);
        assert_eq!(other.read_management(), 0);
        other.settle(LUN);
        assert_eq!(write(&mut other), (7, 0x27, 2), "saved, so it is in force after the reset");
    });
}
