// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use crate::nexus::Nexus;
use crate::testing::Bench;
use crate::testing::Disk;
use crate::testing::codes;
use crate::testing::geometry;
use crate::testing::request;
use crate::testing::run;
use crate::testing::sense_of;
use alloc::string::ToString;
use core::sync::atomic::Ordering;
use wire::scsi::Lun;

fn unit(geometry: Geometry, block: u32, edit: fn(&mut Identity)) -> Option<UnitError> {
    let mut identity = Identity::derive("iqn.a", 0, "v", "p");
    edit(&mut identity);
    LogicalUnit::new(identity, Disk::new(geometry), block).err()
}

#[test]
fn a_store_must_hold_whole_blocks() {
    let sized = |bytes| Geometry { bytes, ..geometry() };
    let keep = |_: &mut Identity| {};
    assert_eq!(unit(sized(512), 512, keep), None);
    assert_eq!(unit(sized(512), 1024, keep), Some(UnitError::BlockLength(1024)));
    assert_eq!(unit(sized(0), 512, keep), Some(UnitError::Empty { bytes: 0, block: 512 }));
    let partial = UnitError::PartialBlock { bytes: 4608, block: 4096 };
    assert_eq!(unit(sized(4608), 4096, keep), Some(partial));
    assert_eq!(
        partial.to_string(),
        "store of 4608 bytes is not a multiple of the block length 4096: 4096 and 8192 are the \
         nearest sizes"
    );
}

#[test]
fn an_identity_must_be_one_that_hosts_accept() {
    assert_eq!(unit(geometry(), 512, |id| id.serial.clear()), Some(UnitError::Serial));
    assert_eq!(unit(geometry(), 512, |id| id.serial.push('\n')), Some(UnitError::Serial));
    assert_eq!(unit(geometry(), 512, |id| id.naa.truncate(4)), Some(UnitError::Naa));
    assert_eq!(unit(geometry(), 512, |id| id.naa[0] = 0x60), Some(UnitError::Naa));
}

#[test]
fn attentions_stop_all_but_informative_commands() {
    let bench = Bench::new();
    bench.unit.logical_unit_reset();
    assert_eq!(bench.sense(&[0x12, 0, 0, 0, 36, 0]), None);
    assert_eq!(bench.sense(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0]), None);
    assert_eq!(codes(bench.sense(&[0xff; 16])), (6, 0x29, 3), "before the operation code");
    assert_eq!(codes(bench.sense(&[0xff; 16])), (5, 0x20, 0));
    bench.unit.logical_unit_reset();
    let data = bench.data(&[3, 0, 0, 0, 18, 0]);
    assert_eq!(codes(Sense::parse(&data)), (6, 0x29, 3));
    assert_eq!(bench.sense(&[0; 6]), None, "REQUEST SENSE has cleared it");
}

#[test]
fn naca_is_understood_and_the_aca_attribute_needs_a_condition() {
    let bench = Bench::new();
    assert_eq!(bench.sense(&[0, 0, 0, 0, 0, 4]), None);
    let mut aca = request(Lun::Unit(0), &[0; 6], &[], 0);
    aca.attribute = wire::iscsi::Attribute::Aca;
    assert_eq!(codes(sense_of(&run(&bench.nexus, aca, &[]))), (5, 0x49, 0));
}

#[test]
fn ranges_do_not_overflow() {
    let bench = Bench::new();
    for (lba, blocks) in [(u64::MAX, 1), (u64::MAX, u64::from(u32::MAX)), (4096, 1), (4097, 0)] {
        let fault = bench.unit.extent(lba, blocks).expect_err("out of range");
        assert_eq!(fault.sense.asc, 0x21);
        assert_eq!(fault.sense.information, Some(lba.max(4096)));
    }
    let end = bench.unit.extent(4096, 0).expect("zero blocks at the end");
    assert_eq!((end.offset, end.length), (4096 * 512, 0));
}

/// A disk of some size.
#[derive(Debug)]
struct Elastic(AtomicU64);

impl Store for Elastic {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.0.load(Ordering::Relaxed), ..geometry() }
    }

    fn submit(&self, _: &store::Op) -> store::Submitted {
        store::Submitted::Done(store::Outcome::Failed(store::Error::Range))
    }

    fn complete(&self, op: &store::Op, _: &store::Io, _: store::IoResult) -> store::Submitted {
        self.submit(op)
    }
}

#[test]
fn another_size_is_seen_at_once_and_told_to_all() {
    let store = Arc::new(Elastic(AtomicU64::new(1 << 20)));
    let identity = Identity::derive("iqn.a", 0, "v", "p");
    let unit = LogicalUnit::new(identity, Arc::<Elastic>::clone(&store), 4096).expect("legal");
    let unit = Arc::new(unit);
    let nexuses = ["iqn.a,i,0x1", "iqn.b,i,0x1"]
        .map(|name| Nexus::new(crate::testing::names(name), alloc::vec![(0, Arc::clone(&unit))]));
    let at = |nexus: &Nexus, cdb: &[u8]| run(nexus, request(Lun::Unit(0), cdb, &[], 4096), &[]);
    let capacity = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for nexus in &nexuses {
        assert_eq!(codes(sense_of(&at(nexus, &capacity))), (6, 0x29, 0));
    }
    assert_eq!(unit.resized(), Ok(false));
    // What is left of a last block is not used.
    store.0.store((2 << 20) + 512, Ordering::Relaxed);
    assert_eq!(unit.resized(), Ok(true));
    for nexus in &nexuses {
        assert_eq!(codes(sense_of(&at(nexus, &capacity))), (6, 0x2a, 9));
        let data = at(nexus, &capacity).data_in.expect("data").to_vec();
        assert_eq!(data, [0, 0, 1, 0xff, 0, 0, 0x10, 0]);
    }
    store.0.store(512, Ordering::Relaxed);
    assert_eq!(unit.resized(), Err(UnitError::Empty { bytes: 512, block: 4096 }));
    assert_eq!(unit.blocks(), 512, "as it was");
    // The store has become smaller on the way of the command.
    let late = at(&nexuses[0], &[0x28, 0, 0, 0, 0, 7, 0, 0, 1, 0]);
    let sense = sense_of(&late).expect("out of range");
    assert_eq!((codes(Some(sense)), sense.information), ((5, 0x21, 0), Some(7)));
}
