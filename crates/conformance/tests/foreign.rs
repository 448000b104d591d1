// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store whose work is done elsewhere, in threads that are not the target's: answers come at
//! once, late, in any order, or not at all.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use lunwire_conformance::elsewhere::Elsewhere;
use lunwire_conformance::elsewhere::LUN;
use lunwire_conformance::elsewhere::Remote;
use lunwire_conformance::elsewhere::with_remote;
use lunwire_conformance::elsewhere::with_store;
use lunwire_conformance::initiator::BLOCK_BYTES;
use lunwire_conformance::initiator::CHECK_CONDITION;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::cdb10;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::tasks::ABORT_TASK;
use lunwire_conformance::tasks::LOGICAL_UNIT_RESET;
use lunwire_conformance::tasks::PATIENCE;
use lunwire_conformance::*;
use store::Error;
use store::FilterIndex;
use store::Geometry;
use store::Io;
use store::IoResult;
use store::Op;
use store::Outcome;
use store::Store;
use store::Submitted;
use store::filter::Delay;
use store::filter::Delayed;
use store::foreign::Completer;
use store::stripe::Stripe;
use target::Found;
use target::Shrink;
use target::VolumeError;
use wire::iscsi::*;

fn session(server: &Server) -> Initiator {
    let mut session = server.login();
    session.settle(0);
    session.settle(LUN);
    session
}

/// Begins a write of one block with immediate data.
fn start_write(session: &mut Initiator, block: u32, data: &[u8]) -> Itt {
    let command = session.write_blocks(LUN, block, 1);
    session.send(&Request::Command(command), data);
    command.itt
}

fn start_read(session: &mut Initiator, block: u32, count: u16) -> Itt {
    let command = session.read_blocks(LUN, block, count);
    session.send(&Request::Command(command), &[]);
    command.itt
}

fn ready(session: &mut Initiator, lun: u8) -> (u8, u8, u8) {
    let command = session.test_unit_ready(lun);
    session.run(&command).sense_code()
}

fn block(seed: u32) -> Vec<u8> {
    pattern(BLOCK_BYTES, u8::try_from(seed).expect("few"))
}

/// All that waits is answered by two threads, the last one first.
fn answer_backwards(elsewhere: &Arc<Elsewhere>, count: usize) {
    let mut works = elsewhere.take(count);
    let other = works.split_off(count / 2);
    std::thread::scope(|scope| {
        for half in [works, other] {
            scope.spawn(|| half.into_iter().rev().for_each(|work| elsewhere.carry_out(work)));
        }
    });
}

/// So many commands end, in whatever order: status, and a block if one was read.
fn ends(session: &mut Initiator, count: usize) -> Vec<(Itt, u8, Vec<u8>)> {
    let next = |_| {
        let pdu = session.read();
        match pdu.response() {
            Response::DataIn(data) => {
                let status = data.status.expect("one PDU for one block").status;
                (data.itt, status, pdu.data)
            }
            Response::Scsi(answer) => (answer.itt, answer.status, Vec::new()),
            other => panic!("the end of a command was due: {other:?}"),
        }
    };
    (0..count).map(next).collect()
}

#[test]
fn answers_in_any_order_find_their_commands() {
    with_remote(|server, elsewhere| {
        let mut session = session(server);
        for number in 0..16 {
            start_write(&mut session, number, &block(number));
        }
        answer_backwards(elsewhere, 16);
        assert!(ends(&mut session, 16).iter().all(|(_, status, _)| *status == GOOD));
        let reads: Vec<Itt> = (0..16).map(|at| start_read(&mut session, at, 1)).collect();
        answer_backwards(elsewhere, 16);
        for (itt, status, data) in ends(&mut session, 16) {
            let number = reads.iter().position(|read| *read == itt).expect("one of ours");
            let number = u32::try_from(number).expect("few");
            assert_eq!((status, data), (GOOD, block(number)), "block {number}");
        }
    });
}

#[test]
fn answers_within_the_call_are_taken() {
    with_remote(|server, elsewhere| {
        elsewhere.state().is_eager = true;
        let mut session = session(server);
        for number in 0..100 {
            let itt = start_write(&mut session, number, &block(number));
            assert_eq!(session.finish(itt).code, GOOD);
        }
        let command = session.read_blocks(LUN, 0, 100);
        let data = session.run(&command).data;
        let expected: Vec<u8> = (0..100).flat_map(block).collect();
        assert!(data == expected);
        let command = session.command(LUN, &cdb10(0x35, 0, 0));
        assert_eq!(session.run(&command).code, GOOD, "SYNCHRONIZE CACHE");
    });
}

#[test]
fn others_go_on_while_nobody_answers() {
    with_remote(|server, elsewhere| {
        let mut first = session(server);
        let itt = start_read(&mut first, 3, 8);
        let works = elsewhere.take(1);
        assert_eq!(ready(&mut first, 0), (0, 0, 0));
        for _ in 0..3 {
            let mut other = session(server);
            assert_eq!(ready(&mut other, LUN), (0, 0, 0));
            other.leave();
        }
        assert!(server.target().sessions().iter().any(|session| session.tasks == 1));
        first.expect_quiet();
        works.into_iter().for_each(|work| elsewhere.carry_out(work));
        let status = first.finish(itt);
        assert_eq!((status.code, status.data), (GOOD, vec![0; 8 * BLOCK_BYTES]));
    });
}

#[test]
fn work_that_fails_or_is_dropped_ends_its_command() {
    with_remote(|server, elsewhere| {
        let mut session = session(server);
        let mut fails = |way: fn(Completer)| {
            let itt = start_read(&mut session, 0, 1);
            elsewhere.take(1).into_iter().for_each(|work| way(work.completer));
            let status = session.finish(itt);
            assert_eq!(status.code, CHECK_CONDITION);
            status.sense_code()
        };
        assert_eq!(fails(drop), (4, 0x44, 0));
        assert_eq!(fails(|completer| completer.complete(Err(Error::Read))), (3, 0x11, 0));
        // Not what was asked for.
        assert_eq!(fails(|completer| completer.complete_with(Outcome::Done)), (4, 0x44, 0));
        let itt = start_write(&mut session, 0, &block(1));
        for work in elsewhere.take(1) {
            work.completer.complete(Err(Error::Space));
        }
        assert_eq!(session.finish(itt).sense_code(), (7, 0x27, 7));
    });
}

/// What was asked for may still come about, so nothing that comes later does before.
#[test]
fn an_aborted_command_is_over_when_its_answer_is_here() {
    with_remote(|server, elsewhere| {
        let mut session = session(server);
        let itt = start_write(&mut session, 5, &block(1));
        let works = elsewhere.take(1);
        let request = session.management(ABORT_TASK, LUN, itt);
        session.send(&Request::TaskManagement(request), &[]);
        drop(elsewhere.expect(|state| state.cancelled == 1));
        session.expect_quiet();
        let after = start_write(&mut session, 5, &block(2));
        session.expect_quiet();
        assert!(elsewhere.state().waiting.is_empty(), "it waits for what is under way");
        works.into_iter().for_each(|work| elsewhere.carry_out(work));
        assert_eq!(session.read_management(), 0);
        elsewhere.take(1).into_iter().for_each(|work| elsewhere.carry_out(work));
        assert_eq!(session.finish(after).code, GOOD);
        assert_eq!(elsewhere.state().bytes[5 * BLOCK_BYTES..6 * BLOCK_BYTES], block(2));
    });
}

#[test]
fn a_reset_and_the_end_of_a_session_wait_for_the_answer() {
    with_remote(|server, elsewhere| {
        let (mut first, mut other) = (session(server), session(server));
        start_read(&mut first, 0, 8);
        let works = elsewhere.take(1);
        let request = other.management(LOGICAL_UNIT_RESET, LUN, Itt::NONE);
        other.send(&Request::TaskManagement(request), &[]);
        drop(elsewhere.expect(|state| state.cancelled == 1));
        other.expect_quiet();
        // Its session goes, too.
        drop(first);
        other.expect_quiet();
        // Who is told that nobody waits may just drop it.
        drop(works);
        assert_eq!(other.read_management(), 0);
        other.settle(LUN);
        assert_eq!(ready(&mut other, LUN), (0, 0, 0));
        other.leave();
    });
}

/// What stands in front of it, or joins it with others, knows nothing of it.
#[test]
fn filters_and_stripes_are_built_on_it() {
    let striped = |elsewhere: &Arc<Elsewhere>| -> Arc<dyn Store> {
        let delayed = |index| -> Arc<dyn Store> {
            let remote = Arc::new(Remote(Arc::clone(elsewhere)));
            let length = Duration::from_millis(1);
            Arc::new(Delay::new(remote, FilterIndex(index), Delayed::Writes, length))
        };
        // Twice the same place: what is written to one part is seen in the other.
        let whole = Stripe::new(64 << 10, vec![delayed(0), delayed(0)]).expect("a legal stripe");
        Arc::new(Delay::new(
            Arc::new(whole),
            FilterIndex(1),
            Delayed::Reads,
            Duration::from_millis(1),
        ))
    };
    with_store(striped, |server, elsewhere| {
        elsewhere.state().is_eager = true;
        let mut session = session(server);
        let data: Vec<u8> = (0..128).flat_map(|number| block(number % 7)).collect();
        // The second chunk of 64 KiB, of the other part.
        for (number, piece) in (128..).zip(data.chunks_exact(BLOCK_BYTES)) {
            let itt = start_write(&mut session, number, piece);
            assert_eq!(session.finish(itt).code, GOOD);
        }
        // One read over both parts.
        let command = session.read_blocks(LUN, 0, 256);
        let read = session.run(&command);
        assert_eq!(read.code, GOOD);
        assert!(read.data == [data.clone(), data].concat());
        // Aborted in the middle of what a part does.
        elsewhere.state().is_eager = false;
        let itt = start_read(&mut session, 0, 1);
        let works = elsewhere.take(1);
        let request = session.management(ABORT_TASK, LUN, itt);
        session.send(&Request::TaskManagement(request), &[]);
        drop(elsewhere.expect(|state| state.cancelled == 1));
        drop(works);
        assert_eq!(session.read_management(), 0);
    });
}

/// Whoever asks for figures has those of the others in time, and hears who is silent.
#[test]
fn a_reactor_that_hangs_holds_up_nobody_who_asks() {
    with_remote(|server, elsewhere| {
        let mut first = session(server);
        let sessions = server.target().sessions();
        let home = sessions.iter().find(|one| one.tsih == first.tsih.0).expect("it is there");
        // Its reactor waits for this lock.
        let hold = elsewhere.state();
        let itt = start_read(&mut first, 0, 1);
        let begun = Instant::now();
        let silent = loop {
            let figures = server.target().figures(Duration::from_millis(100));
            let mut all: Vec<usize> = figures.answers.iter().map(|one| one.reactor).collect();
            all.extend(&figures.silent);
            all.sort_unstable();
            assert!(all.into_iter().eq(0..server.target().reactors()), "each answers or is named");
            if !figures.silent.is_empty() {
                break figures.silent;
            }
            assert!(begun.elapsed() < PATIENCE, "it has not begun to hang");
        };
        assert_eq!(silent, [home.reactor]);
        let begun = Instant::now();
        let nobody = server.target().drop_session(0x7777);
        assert_eq!(nobody, Found::Unknown(silent), "it may have such a session");
        assert!(begun.elapsed() < PATIENCE, "it is not waited for any longer than for figures");
        drop(hold);
        elsewhere.take(1).into_iter().for_each(|work| elsewhere.carry_out(work));
        assert_eq!(first.finish(itt).code, GOOD);
        assert_eq!(server.target().figures(PATIENCE).silent, [0_usize; 0]);
    });
}

/// What waits is told to who asks, without a new command, and so is that it waits no more.
#[test]
fn what_waits_for_its_store_is_shown() {
    with_remote(|server, elsewhere| {
        let mut session = session(server);
        let waits = || {
            let figures = server.target().figures(PATIENCE).answers;
            figures.into_iter().flat_map(|one| one.waits).collect::<Vec<_>>()
        };
        let reads = [0, 1].map(|block| start_read(&mut session, block, 1));
        let mut works = elsewhere.take(2);
        assert_eq!(waits(), [], "it has just begun");
        let begun = Instant::now();
        let waiting = loop {
            let waiting = waits();
            // On a busy machine the second one may begin some time after the first.
            if waiting.iter().any(|wait| wait.commands == 2) {
                break waiting;
            }
            assert!(begun.elapsed() < PATIENCE, "nobody is told of both: {waiting:?}");
            std::thread::sleep(Duration::from_millis(20));
        };
        let [wait] = &waiting[..] else { panic!("{waiting:?}") };
        let luns = server.target().targets().into_iter().flat_map(|target| target.luns);
        let disk = luns.into_iter().find(|lun| lun.number == LUN.into()).expect("it is there");
        assert_eq!(wait.disk, disk.serial);
        assert!(wait.oldest >= Duration::from_secs(1) && wait.oldest < PATIENCE, "{wait:?}");
        // One that was aborted waits as well.
        let request = session.management(ABORT_TASK, LUN, reads[0]);
        session.send(&Request::TaskManagement(request), &[]);
        drop(elsewhere.expect(|state| state.cancelled == 1));
        assert_eq!(waits().iter().map(|wait| wait.commands).sum::<usize>(), 2);
        works.drain(..1).for_each(|work| elsewhere.carry_out(work));
        assert_eq!(session.read_management(), 0);
        assert_eq!(waits().iter().map(|wait| wait.commands).sum::<usize>(), 1);
        works.into_iter().for_each(|work| elsewhere.carry_out(work));
        assert_eq!(session.finish(reads[1]).code, GOOD);
        assert_eq!(waits(), []);
    });
}

/// What keeps orders from being done, and how many of them have come so far.
#[derive(Debug, Default)]
struct Gate {
    lock: Mutex<()>,
    come: AtomicU64,
}

/// A store with somebody behind it who takes his time, and gives the half of it to another one.
#[derive(Debug)]
struct Slow {
    remote: Remote,
    gate: Arc<Gate>,
    /// What hosts see.
    bytes: AtomicU64,
    bytes_behind: u64,
}

impl Store for Slow {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes.load(Ordering::SeqCst), ..self.remote.geometry() }
    }

    fn submit(&self, op: &Op) -> Submitted {
        self.remote.submit(op)
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        self.remote.complete(op, io, result)
    }

    fn set_bytes(&self, bytes: u64) -> bool {
        self.bytes.store(bytes, Ordering::SeqCst);
        true
    }

    fn bytes_behind(&self) -> Option<u64> {
        Some(self.bytes_behind)
    }

    fn resize_behind(&self, _bytes: u64, _: &dyn Fn() -> bool) -> Option<Result<(), String>> {
        self.gate.come.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.lock.lock());
        Some(Ok(()))
    }
}

fn slow(elsewhere: &Arc<Elsewhere>, gate: &Arc<Gate>) -> Slow {
    let remote = Remote(Arc::clone(elsewhere));
    let bytes = remote.geometry().bytes;
    Slow { remote, gate: Arc::clone(gate), bytes: bytes.into(), bytes_behind: bytes / 2 }
}

/// Nobody else waits for a disk that takes its time for another size: orders for other disks, and
/// who looks at all of them.
#[test]
fn an_order_that_hangs_holds_up_its_disk_alone() {
    let gate = Arc::new(Gate::default());
    with_store(
        |elsewhere| Arc::new(slow(elsewhere, &gate)),
        |server, _| {
            let target = server.target();
            let (hold, come) = (gate.lock.lock(), gate.come.load(Ordering::SeqCst));
            std::thread::scope(|scope| {
                let hung = scope.spawn(|| target.resize(TARGET, LUN.into(), 2 << 20, REFUSED));
                let begun = Instant::now();
                while gate.come.load(Ordering::SeqCst) == come {
                    assert!(begun.elapsed() < PATIENCE, "it does not come");
                    std::thread::sleep(Duration::from_millis(1));
                }
                let begun = Instant::now();
                let other = target.resize(TARGET, 0, 32 << 20, REFUSED);
                assert!(matches!(other, Err(VolumeError::NotAFile { lun: 0 })), "{other:?}");
                assert_eq!(target.rescan(), [], "the one that hangs is left out");
                assert_eq!(target.note_sizes(), []);
                assert!(begun.elapsed() < PATIENCE && !hung.is_finished());
                drop(hold);
                assert!(hung.join().expect("no panic").is_ok());
            });
        },
    );
}

/// A disk that somebody else has made smaller is shown as long as it is so.
#[test]
fn a_disk_that_has_become_smaller_is_shown() {
    let gate = Arc::default();
    with_store(
        |elsewhere| Arc::new(slow(elsewhere, &gate)),
        |server, _| {
            let target = server.target();
            let shrunk = || {
                let luns = target.targets().into_iter().flat_map(|target| target.luns);
                luns.filter_map(|lun| Some((lun.number, lun.shrunk?))).collect::<Vec<_>>()
            };
            assert_eq!(shrunk(), [], "nobody has looked");
            for _ in 0..2 {
                let found = target.note_sizes();
                let told: Vec<_> = found.iter().map(|one| (one.lun, one.now)).collect();
                assert_eq!(told, [(LUN.into(), 512 << 10)]);
                assert_eq!(shrunk(), told);
            }
            let made = target.resize(TARGET, LUN.into(), 512 << 10, Shrink::Allowed);
            assert!(made.is_ok(), "{made:?}");
            assert_eq!(shrunk(), []);
        },
    );
}

const REFUSED: Shrink = Shrink::Refused;
