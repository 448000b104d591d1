// SPDX-License-Identifier: Apache-2.0 OR MIT
//! WRITE ATOMIC(16): whole for every reader and writer.

use crate::Identity;
use crate::LogicalUnit;
use crate::Nexus;
use crate::Step;
use crate::task::Input;
use crate::testing::Bench;
use crate::testing::Disk;
use crate::testing::codes;
use crate::testing::geometry;
use crate::testing::names;
use crate::testing::request;
use crate::testing::run;
use crate::testing::sense_of;
use crate::testing::submit;
use alloc::sync::Arc;
use alloc::vec;
use buf::Slice;
use wire::scsi::Lun;
use wire::scsi::Sense;

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0];

fn nexus() -> Nexus {
    let store = Arc::new(store::filter::Atomic::new(Disk::new(geometry())));
    let identity = Identity::derive("iqn.a", 0, "LUNWIRE", "disk");
    let unit = Arc::new(LogicalUnit::new(identity, store, 512).expect("a good disk"));
    let nexus = Nexus::new(names("iqn.a,i,0x1"), vec![(0, unit)]);
    assert_eq!(codes(sense(&nexus, &[0; 6], &[])), (6, 0x29, 0));
    nexus
}

fn sense(nexus: &Nexus, cdb: &[u8], out: &[u8]) -> Option<Sense> {
    sense_of(&run(nexus, request(Lun::Unit(0), cdb, out, 4096), out))
}

fn write_atomic(lba: u8, blocks: u16) -> [u8; 16] {
    let [high, low] = blocks.to_be_bytes();
    [0x9c, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, high, low, 0, 0]
}

/// Covers-scsi: 9C.
#[test]
fn it_exists_where_the_store_promises_it() {
    let bench = Bench::new();
    assert_eq!(codes(bench.sense_out(&write_atomic(0, 1), &[1; 512])), (5, 0x20, 0));
    assert_eq!(bench.data(&[0x12, 1, 0xb0, 0, 64, 0])[44..48], [0; 4]);
    let nexus = nexus();
    let limits = request(Lun::Unit(0), &[0x12, 1, 0xb0, 0, 64, 0], &[], 64);
    let page = run(&nexus, limits, &[]).data_in.expect("a page").to_vec();
    assert_eq!(page[44..48], [0, 0, 8, 0], "2048 blocks");
    assert_eq!(page[48..64], [0; 16], "no alignment, no granularity, no boundaries");
    assert_eq!(sense(&nexus, &write_atomic(0, 8), &[1; 4096]), None);
    assert_eq!(sense(&nexus, &write_atomic(0, 0), &[]), None);
    assert_eq!(codes(sense(&nexus, &write_atomic(0, 2049), &[])), (5, 0x24, 0));
    let mut boundary = write_atomic(0, 8);
    boundary[11] = 8;
    assert_eq!(codes(sense(&nexus, &boundary, &[1; 4096])), (5, 0x24, 0));
}

/// Covers-scsi: 9C.
#[test]
fn it_waits_for_readers_and_they_for_it() {
    let nexus = nexus();
    let out = vec![7; 1024];
    let (mut reader, step) = nexus.start(&request(Lun::Unit(0), &READ, &[], 1024));
    let Step::Store(reading) = step else { panic!("{step:?}") };
    let (mut writer, step) = nexus.start(&request(Lun::Unit(0), &write_atomic(0, 2), &out, 0));
    assert!(matches!(step, Step::ReceiveDataOut { .. }));
    let step = writer.resume(&nexus, Input::DataOut(Slice::from(out.clone())));
    assert!(matches!(step, Step::Wait), "a reader is under way");
    let (mut late, step) = nexus.start(&request(Lun::Unit(0), &READ, &[], 1024));
    assert!(matches!(step, Step::Wait), "the write comes first");
    let outcome = submit(&reader, &reading);
    let Step::Complete(done) = reader.resume(&nexus, Input::Store(outcome)) else {
        panic!("a READ has one step")
    };
    let Step::Store(writing) = writer.resume(&nexus, Input::Turn) else {
        panic!("nobody else is there")
    };
    assert!(matches!(late.resume(&nexus, Input::Turn), Step::Wait));
    let outcome = submit(&writer, &writing);
    assert!(matches!(writer.resume(&nexus, Input::Store(outcome)), Step::Complete(_)));
    let Step::Store(reading) = late.resume(&nexus, Input::Turn) else { panic!("its turn") };
    let outcome = submit(&late, &reading);
    let Step::Complete(seen) = late.resume(&nexus, Input::Store(outcome)) else {
        panic!("a READ has one step")
    };
    assert_eq!(done.data_in.expect("data").to_vec(), [0; 1024], "as it was, for good");
    assert_eq!(seen.data_in.expect("data").to_vec(), out);
}
