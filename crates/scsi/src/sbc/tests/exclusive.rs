// SPDX-License-Identifier: Apache-2.0 OR MIT
//! COMPARE AND WRITE and ORWRITE, alone and among writers.

use super::*;
use crate::Nexus;
use crate::Request;
use crate::Task;
use crate::testing::names;
use crate::testing::submit;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

fn compare_cdb(lba: u64, blocks: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = 0x89;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[13] = blocks;
    cdb
}

fn halves(old: &[u8], new: &[u8]) -> Vec<u8> {
    [old, new].concat()
}

/// Covers-scsi: 89.
#[test]
fn compare_and_write_writes_only_what_matched() {
    let bench = Bench::new();
    let (old, new) = (vec![0; 1024], pattern(1024));
    let done = bench.run(&compare_cdb(7, 2), &halves(&old, &new), 0);
    assert_eq!((done.status, done.presented), (0, 2048));
    assert_eq!(bench.log(), [Seen::Read(3584, 1024), Seen::Write(3584, 1024)]);
    let again = bench.sense_out(&compare_cdb(7, 2), &halves(&old, &new)).expect("a miscompare");
    assert_eq!(codes(Some(again)), (0xe, 0x1d, 0));
    let first = new.iter().position(|byte| *byte != 0).expect("a byte");
    assert_eq!(again.information, Some(first as u64));
    assert_eq!(bench.log(), [Seen::Read(3584, 1024)], "nothing is written");
    let mut late = new.clone();
    late[1023] ^= 1;
    let late = bench.sense_out(&compare_cdb(7, 2), &halves(&late, &old)).expect("a miscompare");
    assert_eq!(late.information, Some(1023));
    let mut durable = compare_cdb(7, 2);
    durable[1] = FUA;
    bench.log();
    assert_eq!(bench.sense_out(&durable, &halves(&new, &old)), None);
    assert_eq!(bench.log(), [Seen::Read(3584, 1024), Seen::Durable(3584, 1024)]);
}

/// Covers-scsi: 89.
#[test]
fn compare_and_write_checks_its_length() {
    let bench = Bench::new();
    assert_eq!(bench.sense(&compare_cdb(BLOCKS, 0)), None);
    let max = u8::try_from(limits::COMPARE_MAX / 512).expect("a byte");
    let longer = bench.sense_out(&compare_cdb(0, max + 1), &[0; 1 << 18]).expect("refused");
    assert_eq!(longer.field.map(|field| field.byte), Some(13));
    assert_eq!(bench.sense_out(&compare_cdb(0, max), &vec![0; 2 * max as usize * 512]), None);
    bench.log();
    let short = bench.run(&compare_cdb(0, 2), &[0; 2047], 0);
    assert_eq!(codes(sense_of(&short)), (5, 0x0e, 3));
    assert_eq!(short.presented, 2048);
    let long = bench.run(&compare_cdb(0, 1), &[0; 2048], 0);
    assert_eq!((codes(sense_of(&long)), long.presented), ((5, 0x0e, 3), 1024));
    assert_eq!(codes(bench.sense_out(&compare_cdb(0, 0), &[0; 1024])), (5, 0x24, 0));
    let beyond = bench.sense_out(&compare_cdb(BLOCKS - 1, 2), &[0; 2048]);
    assert_eq!(codes(beyond), (5, 0x21, 0));
    assert_eq!(bench.log(), []);
}

/// Covers-scsi: 8B.
#[test]
fn or_write_sets_bits() {
    let bench = Bench::new();
    let cdb = block_cdb(Opcode::ORWRITE_16, 3, 1, 0);
    assert_eq!(bench.sense_out(&cdb, &[0x0f; 512]), None);
    assert_eq!(bench.sense_out(&cdb, &[0x81; 512]), None);
    assert_eq!(bytes_of(bench.run(&block_cdb(Opcode::READ_16, 3, 1, 0), &[], 512)), [0x8f; 512]);
}

/// Starts a command and gives it its data; the step after that.
fn begin(nexus: &Nexus, cdb: &[u8], out: &[u8]) -> (Task, Step) {
    let (mut task, step) = nexus.start(&request(Lun::Unit(0), cdb, out, 0));
    assert!(matches!(step, Step::ReceiveDataOut { .. }));
    let step = task.resume(nexus, Input::DataOut(Slice::from(out.to_vec())));
    (task, step)
}

/// Covers-scsi: 89.
#[test]
fn nobody_writes_between_compare_and_write() {
    let bench = Bench::new();
    let other = Nexus::new(names("iqn.b,i,0x2"), vec![(0, Arc::clone(&bench.unit))]);
    crate::testing::run(&other, request(Lun::Unit(0), &[0; 6], &[], 0), &[]);
    let write = block_cdb(Opcode::WRITE_10, 0, 1, 0);
    // A write under way keeps the comparison waiting, and that the next write.
    let (mut first, step) = begin(&other, &write, &[1; 512]);
    let Step::Store(op) = step else { panic!("{step:?}") };
    let data = halves(&[0; 512], &[2; 512]);
    let (mut compare, step) = begin(&bench.nexus, &compare_cdb(0, 1), &data);
    assert!(matches!(step, Step::Wait));
    let (mut second, step) = begin(&other, &write, &[3; 512]);
    assert!(matches!(step, Step::Wait));
    assert!(matches!(compare.resume(&bench.nexus, Input::Turn), Step::Wait));
    assert!(matches!(second.resume(&other, Input::Turn), Step::Wait));
    // A reader and a second comparison: the one goes on, the other waits.
    let read = request(Lun::Unit(0), &block_cdb(Opcode::READ_10, 0, 1, 0), &[], 512);
    assert!(matches!(other.start(&read).1, Step::Store(_)));
    let (rival, step) = begin(&other, &compare_cdb(0, 1), &data);
    assert!(matches!(step, Step::Wait));
    drop(rival);
    let outcome = submit(&first, &op);
    let Step::Complete(_) = first.resume(&other, Input::Store(outcome)) else { panic!("no end") };
    let step = compare.resume(&bench.nexus, Input::Turn);
    let Step::Store(op) = step else { panic!("{step:?}") };
    let outcome = submit(&compare, &op);
    assert!(matches!(second.resume(&other, Input::Turn), Step::Wait));
    let step = compare.resume(&bench.nexus, Input::Store(outcome));
    let Step::Complete(completion) = step else { panic!("{step:?}") };
    assert_eq!(codes(sense_of(&completion)), (0xe, 0x1d, 0), "the write came first");
    assert!(matches!(second.resume(&other, Input::Turn), Step::Store(_)));
}

/// Two initiators compare and write without a pause: before one of them ends, the next command of
/// the other waits, and whoever ends comes again before anybody else tries. Somebody else's write
/// must get its turn all the same, and so must its comparison.
#[test]
fn comparisons_without_end_starve_nobody() {
    let bench = Bench::new();
    let ports = ["iqn.b,i,0x2", "iqn.c,i,0x3", "iqn.d,i,0x4"];
    let [first, second, victim] =
        ports.map(|port| Nexus::new(names(port), vec![(0, Arc::clone(&bench.unit))]));
    for nexus in [&first, &second, &victim] {
        crate::testing::run(nexus, request(Lun::Unit(0), &[0; 6], &[], 0), &[]);
    }
    let same = halves(&[0; 512], &[0; 512]);
    let compare = || compare_cdb(0, 1);
    for (cdb, out) in
        [(&block_cdb(Opcode::WRITE_10, 0, 1, 0)[..], &[0; 512][..]), (&compare(), &same)]
    {
        let mut flood: VecDeque<_> =
            [&first, &second].map(|nexus| (nexus, begin(nexus, &compare(), &same))).into();
        let (mut late, step) = begin(&victim, cdb, out);
        assert!(matches!(step, Step::Wait));
        let mut claims = 0;
        while !matches!(late.resume(&victim, Input::Turn), Step::Store(_)) {
            claims += 1;
            assert!(claims < 4, "it waits for comparisons that came later");
            let (nexus, (mut running, mut step)) = flood.pop_front().expect("one of two");
            if matches!(step, Step::Wait) {
                step = running.resume(nexus, Input::Turn);
            }
            while let Step::Store(op) = step {
                step = running.resume(nexus, Input::Store(submit(&running, &op)));
            }
            assert!(matches!(step, Step::Complete(Completion { status: 0, .. })), "{step:?}");
            // Its next command claims the unit, or waits behind the other's.
            match begin(nexus, &compare(), &same) {
                (task, Step::Wait) => flood.push_back((nexus, (task, Step::Wait))),
                begun => flood.push_front((nexus, begun)),
            }
        }
    }
}

#[test]
fn a_dropped_task_holds_nothing() {
    let bench = Bench::new();
    let write = block_cdb(Opcode::WRITE_10, 0, 1, 0);
    let data = halves(&[0; 512], &[2; 512]);
    let (writer, step) = begin(&bench.nexus, &write, &[1; 512]);
    assert!(matches!(step, Step::Store(_)));
    let (compare, step) = begin(&bench.nexus, &compare_cdb(0, 1), &data);
    assert!(matches!(step, Step::Wait));
    drop(compare);
    let (_, step) = begin(&bench.nexus, &write, &[1; 512]);
    assert!(matches!(step, Step::Store(_)));
    drop(writer);
    let (mut compare, step) = begin(&bench.nexus, &compare_cdb(0, 1), &data);
    assert!(matches!(step, Step::Store(_)));
    let end = compare.resume(&bench.nexus, Input::Turn);
    assert!(matches!(end, Step::Complete(Completion { status: 2, .. })), "not asked for");
    assert!(matches!(begin(&bench.nexus, &write, &[1; 512]).1, Step::Store(_)));
}

/// A connection is lost, its write is still with the store, and the host does it again elsewhere.
#[test]
fn nothing_overtakes_the_work_of_a_task_that_has_ended() {
    let bench = Bench::new();
    let other = Nexus::new(names("iqn.b,i,0x2"), vec![(0, Arc::clone(&bench.unit))]);
    crate::testing::run(&other, request(Lun::Unit(0), &[0; 6], &[], 0), &[]);
    let write = block_cdb(Opcode::WRITE_10, 0, 1, 0);
    let read = request(Lun::Unit(0), &block_cdb(Opcode::READ_10, 0, 1, 0), &[], 512);
    let (mut running, step) = begin(&bench.nexus, &write, &[1; 512]);
    assert!(matches!(step, Step::Store(_)));
    let (mut ended, step) = begin(&bench.nexus, &write, &[2; 512]);
    let Step::Store(late) = step else { panic!("{step:?}") };
    ended.outlast();
    let (mut again, step) = begin(&bench.nexus, &write, &[3; 512]);
    assert!(matches!(step, Step::Wait));
    let (mut reader, step) = other.start(&read);
    assert!(matches!(step, Step::Wait));
    // What was under way before goes on.
    let outcome = submit(&running, &late);
    assert!(matches!(running.resume(&bench.nexus, Input::Store(outcome)), Step::Complete(_)));
    assert!(matches!(again.resume(&bench.nexus, Input::Turn), Step::Wait));
    let outcome = submit(&ended, &late);
    assert!(matches!(outcome, Outcome::Done));
    drop(ended);
    assert!(matches!(again.resume(&bench.nexus, Input::Turn), Step::Store(_)));
    assert!(matches!(reader.resume(&other, Input::Turn), Step::Store(_)));
    // One that only reads keeps nobody waiting, nor does one that was not with the store.
    reader.outlast();
    let (mut waits, step) = begin(&bench.nexus, &compare_cdb(0, 1), &[0; 1024]);
    assert!(matches!(step, Step::Wait));
    waits.outlast();
    drop((again, waits));
    assert!(matches!(begin(&other, &write, &[4; 512]).1, Step::Store(_)));
}

/// The store does not answer: what has ended keeps nobody waiting, and nothing gets past it.
#[test]
fn what_is_not_waited_for_fences_its_unit() {
    const BUSY: u8 = wire::scsi::sam::BUSY;
    let bench = Bench::new();
    let other = Nexus::new(names("iqn.b,i,0x2"), vec![(0, Arc::clone(&bench.unit))]);
    crate::testing::run(&other, request(Lun::Unit(0), &[0; 6], &[], 0), &[]);
    let write = block_cdb(Opcode::WRITE_10, 0, 1, 0);
    let read = request(Lun::Unit(0), &block_cdb(Opcode::READ_10, 9, 1, 0), &[], 512);
    let flush = request(Lun::Unit(0), &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[], 0);
    let ready = Request {
        attribute: wire::iscsi::Attribute::Ordered,
        ..request(Lun::Unit(0), &[0; 6], &[], 0)
    };
    let (mut running, step) = begin(&other, &write, &[1; 512]);
    let Step::Store(early) = step else { panic!("{step:?}") };
    // The one holds the unit shared, the other one alone.
    for alone in [false, true] {
        if alone {
            let outcome = submit(&running, &early);
            let end = running.resume(&other, Input::Store(outcome));
            assert!(matches!(end, Step::Complete(Completion { status: 0, .. })));
        }
        let (mut ended, step) = match alone {
            false => begin(&bench.nexus, &write, &[2; 512]),
            true => begin(&bench.nexus, &compare_cdb(0, 1), &[0; 1024]),
        };
        assert!(matches!(step, Step::Store(_)), "{step:?}");
        ended.outlast();
        let (mut waits, step) = begin(&other, &write, &[3; 512]);
        assert!(matches!(step, Step::Wait));
        let (mut compares, step) = begin(&other, &compare_cdb(0, 1), &[0; 1024]);
        assert!(matches!(step, Step::Wait));
        assert!(!bench.unit.is_fenced() && !bench.unit.has_left_work());
        assert!(ended.fence(), "it was not fenced before");
        assert!(!ended.fence() && bench.unit.is_fenced() && bench.unit.has_left_work());
        let busy = |step: Step| matches!(step, Step::Complete(Completion { status: BUSY, .. }));
        assert!(busy(waits.resume(&other, Input::Turn)));
        assert!(busy(compares.resume(&other, Input::Turn)));
        for nexus in [&bench.nexus, &other] {
            assert!(busy(begin(nexus, &write, &[3; 512]).1));
            assert!(busy(begin(nexus, &compare_cdb(7, 1), &[0; 1024]).1));
            assert!(busy(nexus.start(&read).1) && busy(nexus.start(&flush).1));
        }
        drop((waits, compares));
        if alone {
            // It has no place in the task set: what asks for nothing of the store runs.
            let (_, step) = other.start(&ready);
            assert!(matches!(step, Step::Complete(Completion { status: 0, .. })), "{step:?}");
        }
        drop(ended);
        assert!(!bench.unit.is_fenced() && !bench.unit.has_left_work());
        assert!(matches!(begin(&other, &write, &[4; 512]).1, Step::Store(_)));
    }
    assert!(matches!(begin(&bench.nexus, &compare_cdb(0, 1), &[0; 1024]).1, Step::Store(_)));
}

/// What changes nothing keeps nobody out, as long as it is little.
#[test]
fn many_reads_that_are_left_fence_their_unit() {
    let bench = Bench::new();
    let write = block_cdb(Opcode::WRITE_10, 0, 1, 0);
    let read = request(Lun::Unit(0), &block_cdb(Opcode::READ_10, 0, 1, 0), &[], 512);
    let mut left: Vec<Task> = Vec::new();
    for _ in 0..limits::LEFT_READS_MAX {
        let (mut task, step) = bench.nexus.start(&read);
        assert!(matches!(step, Step::Store(_)));
        task.outlast();
        assert!(!task.fence());
        left.push(task);
    }
    assert!(bench.unit.has_left_work() && !bench.unit.is_fenced());
    assert!(matches!(begin(&bench.nexus, &write, &[1; 512]).1, Step::Store(_)));
    let (mut last, _) = bench.nexus.start(&read);
    assert!(last.fence() && bench.unit.is_fenced());
    assert!(matches!(begin(&bench.nexus, &write, &[1; 512]).1, Step::Complete(_)));
    assert!(matches!(begin(&bench.nexus, &compare_cdb(0, 1), &[0; 1024]).1, Step::Complete(_)));
    drop(last);
    assert!(matches!(begin(&bench.nexus, &write, &[1; 512]).1, Step::Store(_)));
    drop(left);
    assert!(!bench.unit.has_left_work());
}

/// Many threads count up one block with COMPARE AND WRITE while others write over another one: no
/// count is lost.
#[test]
fn counting_from_many_threads_loses_nothing() {
    const THREADS: u64 = 4;
    const EACH: u64 = 200;
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let unit = Arc::clone(&bench.unit);
            scope.spawn(move || {
                let port = alloc::format!("iqn.t,i,0x{thread}");
                let nexus = Nexus::new(names(&port), vec![(0, unit)]);
                patient(&nexus, &[0; 6], &[]);
                let mut known = [0; 512];
                for _ in 0..EACH {
                    loop {
                        let next = u64::from_be_bytes(*known.first_chunk().expect("long")) + 1;
                        let mut new = [0; 512];
                        new[..8].copy_from_slice(&next.to_be_bytes());
                        let out = halves(&known, &new);
                        if patient(&nexus, &compare_cdb(0, 1), &out).status == 0 {
                            break;
                        }
                        let read = patient(&nexus, &block_cdb(Opcode::READ_10, 0, 1, 0), &[]);
                        known.copy_from_slice(&bytes_of(read));
                        patient(&nexus, &block_cdb(Opcode::WRITE_10, 9, 1, 0), &[7; 512]);
                    }
                }
            });
        }
    });
    let count = bytes_of(bench.run(&block_cdb(Opcode::READ_10, 0, 1, 0), &[], 512));
    assert_eq!(u64::from_be_bytes(*count.first_chunk().expect("long")), THREADS * EACH);
}

/// Runs a command to its end, waiting where it must.
fn patient(nexus: &Nexus, cdb: &[u8], out: &[u8]) -> Completion {
    let (mut task, mut step) = nexus.start(&request(Lun::Unit(0), cdb, out, 512));
    loop {
        let input = match step {
            Step::Complete(completion) => return completion,
            Step::ReceiveDataOut { .. } => Input::DataOut(Slice::from(out.to_vec())),
            Step::Store(op) => Input::Store(submit(&task, &op)),
            Step::Abort { .. } | Step::Clock | Step::Draw | Step::Keep(_) | Step::Spawn { .. } => {
                unreachable!("nothing here asks for it")
            }
            Step::Wait => {
                std::thread::yield_now();
                Input::Turn
            }
        };
        step = task.resume(nexus, input);
    }
}
