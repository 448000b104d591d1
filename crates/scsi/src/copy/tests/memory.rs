// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies that find no memory for what they would read.

use super::READY;
use super::cscd;
use super::data;
use super::hosts;
use super::out;
use super::pattern;
use super::results;
use super::segment;
use super::sense;
use crate::Identity;
use crate::LogicalUnit;
use crate::Nexus;
use crate::task::Input;
use crate::task::Step;
use crate::task::Task;
use crate::testing::Disk;
use crate::testing::codes;
use crate::testing::geometry;
use crate::testing::names;
use crate::testing::request;
use crate::testing::submit;
use alloc::sync::Arc;
use alloc::vec;
use store::Op;
use store::filter::Atomic;
use wire::scsi::Lun;
use wire::scsi::copy;
use wire::scsi::copy::CopyStatus;
use wire::scsi::copy::Segment;

/// A copy within the first disk of `nexus`, which goes on after its command.
fn job_of(nexus: &Nexus, unit: &LogicalUnit, segment: Segment) -> Task {
    let list = copy::emit_lid4(7, true, &[cscd(unit)], &[segment]).expect("small");
    let cdb = out(copy::EXTENDED_COPY_LID4, list.len());
    let (mut task, _) = nexus.start(&request(Lun::Unit(0), &cdb, &list, 0));
    match task.resume(nexus, Input::DataOut(list.into())) {
        Step::Spawn { job, .. } => *job,
        other => panic!("no job but {other:?}"),
    }
}

#[test]
fn pieces_for_which_there_is_no_memory_become_shorter() {
    for (from, to) in [(0_u64, 3_u64), (3, 0), (0, 2000), (5, 5)] {
        let hosts = hosts();
        let bytes = pattern(512 * 1501);
        let at = |lba: u64| usize::try_from(lba * 512).expect("small");
        hosts.fill(0, at(from), &bytes);
        let mut job = job_of(&hosts.all, &hosts.units[0], segment(0, 0, 1501, from, to));
        let mut step = job.work(Input::Turn);
        for most in [600, 4096, 30_000, 512, 9000].into_iter().cycle() {
            let op = match step {
                Step::Store(op) => op,
                Step::Complete(_) => break,
                other => panic!("{other:?}"),
            };
            step = match op {
                Op::Read { length, .. } if length > most => job.shorten().expect("more than one"),
                op => job.work(Input::Store(submit(&job, &op))),
            };
        }
        assert!(hosts.bytes(0, at(to), bytes.len()) == bytes, "{from} to {to}");
    }
}

/// One block is the least.
#[test]
fn a_copy_that_waits_for_memory_holds_nothing_and_can_be_aborted() {
    let disk = Disk::new(geometry());
    let identity = Identity::derive("iqn.a", 0, "LUNWIRE", "disk");
    // Readers of such a disk keep COMPARE AND WRITE waiting.
    let store = Arc::new(Atomic::new(disk));
    let unit = Arc::new(LogicalUnit::new(identity, store, 512).expect("a good disk"));
    let nexus = Nexus::new(names("iqn.all,i,0x1"), vec![(0, Arc::clone(&unit))]);
    assert_eq!(codes(sense(&nexus, 0, &READY, &[])), (6, 0x29, 0));
    let mut job = job_of(&nexus, &unit, segment(0, 0, 1, 0, 9));
    let Step::Store(read) = job.work(Input::Turn) else { panic!("it reads") };
    let compare = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0];
    let (mut waits, _) = nexus.start(&request(Lun::Unit(0), &compare, &[0; 1024], 0));
    assert!(matches!(waits.resume(&nexus, Input::DataOut(vec![0; 1024].into())), Step::Wait));
    assert!(job.shorten().is_none());
    job.postpone(read);
    let step = waits.resume(&nexus, Input::Turn);
    assert!(matches!(step, Step::Store(Op::Read { .. })), "{step:?}");
    drop(waits);
    assert!(matches!(job.work(Input::Turn), Step::Store(Op::Read { length: 512, .. })));
    job.postpone(Op::Read { offset: 0, length: 512 });
    let mut abort = [0; 16];
    abort[..2].copy_from_slice(&[0x83, 0x1c]);
    abort[5] = 7;
    assert_eq!(sense(&nexus, 0, &abort, &[]), None);
    assert!(matches!(job.work(Input::Turn), Step::Complete(_)), "it is over");
    let status = data(&nexus, 0, &results(copy::COPY_STATUS_LID4, 7));
    assert_eq!(status[5], CopyStatus::Terminated as u8);
}
