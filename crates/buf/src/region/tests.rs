// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::groups::GROUP;
use super::spare::Spare;
use super::{Region, RegionError};
use crate::Slice;
use crate::limits::PAGE;
use proptest::prelude::*;

/// Of two groups.
const LEN: usize = GROUP + 5 * 4096 + 100;

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    Copy { from: usize, to: usize, len: usize },
    Zero(usize, usize),
    Discard(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..LEN + 50, 0..LEN);
    prop_oneof![
        (0..LEN + 50, 0..20_000_usize, 1..255_u8)
            .prop_map(|(at, len, byte)| Step::Write(at, vec![byte; len])),
        (0..LEN, 0..LEN, 0..30_000_usize).prop_map(|(from, to, len)| Step::Copy { from, to, len }),
        range().prop_map(|(at, len)| Step::Zero(at, len)),
        range().prop_map(|(at, len)| Step::Discard(at, len)),
    ]
}

proptest! {
    #[test]
    fn behaves_as_bytes_do(steps in proptest::collection::vec(step(), 1..40)) {
        let region = Region::new(LEN as u64).expect("room");
        let mut model = vec![0_u8; LEN];
        for step in steps {
            match step {
                Step::Write(at, bytes) => {
                    let place = model.get_mut(at..at + bytes.len());
                    prop_assert_eq!(region.write(at as u64, &bytes).is_ok(), place.is_some());
                    if let Some(place) = place {
                        place.copy_from_slice(&bytes);
                    }
                }
                Step::Copy { from, to, len } => {
                    let Ok(slice) = region.lend(from as u64, len) else {
                        prop_assert!(from + len > LEN);
                        continue;
                    };
                    let fits = to + len <= LEN;
                    prop_assert_eq!(region.write_slice(to as u64, &slice).is_ok(), fits);
                    if fits {
                        model.copy_within(from..from + len, to);
                    }
                }
                Step::Zero(at, len) => {
                    let place = model.get_mut(at..at + len);
                    let done = region.fill_zero(at as u64, len as u64);
                    prop_assert_eq!(done.is_ok(), place.is_some());
                    if let Some(place) = place {
                        place.fill(0);
                    }
                }
                Step::Discard(at, len) => {
                    let place = model.get_mut(at..at + len);
                    let done = region.discard(at as u64, len as u64);
                    prop_assert_eq!(done.is_ok(), place.is_some());
                    if let Some(place) = place {
                        place.fill(0);
                    }
                }
            }
        }
        let mut bytes = vec![0xee; LEN];
        region.read(0, &mut bytes).expect("within");
        prop_assert!(bytes == model);
    }
}

#[test]
fn ranges_that_overflow_are_refused() {
    let region = Region::new(4096).expect("room");
    assert_eq!(region.read(u64::MAX, &mut [0; 2]), Err(RegionError::OutOfRange));
    assert_eq!(region.write(u64::MAX, &[0; 2]), Err(RegionError::OutOfRange));
    assert_eq!(region.discard(1, u64::MAX), Err(RegionError::OutOfRange));
    assert_eq!(region.fill_zero(4096, 1), Err(RegionError::OutOfRange));
    assert_eq!(region.fill_zero(4096, 0), Ok(()));
    assert!(region.lend(4096, 1).is_err());
    assert!(region.lend(u64::MAX, usize::MAX).is_err());
}

#[test]
fn a_prefetch_changes_nothing_and_goes_nowhere_else() {
    let region = Region::new(1 << 20).expect("room");
    region.write(4090, b"0123456789").expect("within");
    for (offset, len) in [(4090, 10), (0, 1 << 20), (1 << 20, 1), (u64::MAX, usize::MAX)] {
        region.prefetch(offset, len);
    }
    let mut bytes = [0; 12];
    region.read(4089, &mut bytes).expect("within");
    assert_eq!(&bytes, b"\x000123456789\0");
}

#[test]
fn a_large_region_costs_nothing_until_written() {
    let region = Region::new(1 << 40).expect("address space");
    region.write((1 << 40) - 3, b"end").expect("within");
    let mut end = [0; 4];
    region.read((1 << 40) - 4, &mut end).expect("within");
    assert_eq!(&end, b"\0end");
    region.discard((1 << 40) - (1 << 34), 1 << 34).expect("within");
    region.read((1 << 40) - 4, &mut end).expect("within");
    assert_eq!(&end, b"\0\0\0\0");
    assert!(Region::new(u64::MAX).is_err());
    assert!(Region::new(0).is_ok_and(|region| region.is_empty()));
}

#[test]
fn threads_see_whole_bytes_of_each_other() {
    let region = Region::new(1 << 16).expect("room");
    std::thread::scope(|scope| {
        for byte in 1..4_u8 {
            let region = &region;
            scope.spawn(move || {
                for _ in 0..200 {
                    region.write(100, &[byte; 10_000]).expect("within");
                    let mut bytes = [0; 10_000];
                    region.read(100, &mut bytes).expect("within");
                    assert!(bytes.iter().all(|byte| (1..4).contains(byte)));
                }
            });
        }
    });
}

#[test]
fn new_pages_are_counted_and_come_home() {
    let region = Region::new(1 << 20).expect("room");
    region.write(0, &[1; 100_000]).expect("within");
    let lent = region.lend(10_000, 50_000).expect("within");
    assert_eq!(region.spare_bytes(), 0);
    region.write(20_000, &[2; 5000]).expect("room");
    assert_eq!(region.spare_bytes(), 3 * PAGE as u64);
    region.write(20_001, &[3; 10]).expect("room");
    assert_eq!(region.spare_bytes(), 3 * PAGE as u64, "a page is moved once");
    // Not lent, since the newest bytes are on pages of their own.
    let copy = region.lend(20_000, 100).expect("room");
    assert_eq!(region.spare_bytes(), 4 * PAGE as u64);
    assert_eq!((copy.bytes()[0], copy.bytes()[1], copy.bytes()[11]), (2, 3, 2));
    drop(copy);
    drop(lent);
    assert_eq!(region.spare_bytes(), 0);
    let mut bytes = [0; 5002];
    region.read(19_999, &mut bytes).expect("within");
    assert_eq!((bytes[0], bytes[1], bytes[2], bytes[5001]), (1, 2, 3, 1));
}

#[test]
fn what_lent_pages_can_cost_is_bounded() {
    let region = Region::with(1 << 20, Spare::new(2 * PAGE)).expect("room");
    region.write(0, &[1; 1 << 20]).expect("within");
    let lent: Vec<Slice> =
        (0..8).map(|at| region.lend(at * GROUP as u64, 512).expect("within")).collect();
    let write = |group: u64| region.write(group * GROUP as u64, &[2; 512]);
    assert_eq!((write(0), write(1)), (Ok(()), Ok(())));
    assert_eq!(write(2), Err(RegionError::Full));
    assert_eq!(region.fill_zero(2 * GROUP as u64, 512), Err(RegionError::Full));
    assert_eq!(region.discard(2 * GROUP as u64, 512), Err(RegionError::Full));
    assert_eq!(region.lend(0, 512).err(), Some(RegionError::Full), "a copy has no room either");
    assert_eq!(write(0), Ok(()), "it has its page");
    assert_eq!(write(9), Ok(()), "nobody has borrowed it");
    assert!(lent.iter().all(|slice| slice.bytes() == [1; 512]));
    drop(lent);
    assert_eq!(region.spare_bytes(), 0);
    assert_eq!(write(2), Ok(()));
    let mut bytes = vec![0; 3 * GROUP];
    region.read(0, &mut bytes).expect("within");
    assert_eq!((bytes[0], bytes[512], bytes[GROUP], bytes[2 * GROUP]), (2, 1, 2, 2));
}

#[test]
fn lent_pages_stay_as_they_are_while_threads_write_discard_and_lend() {
    let region = Region::new(1 << 17).expect("room");
    std::thread::scope(|scope| {
        for byte in 1..3_u8 {
            let region = &region;
            scope.spawn(move || {
                for round in 0..3000_u64 {
                    let at = round * 7919 % 90_000 / 512 * 512;
                    region.write(at, &[byte; 6 * 512]).expect("room");
                    region.discard(at + 4096, 9000 / 512 * 512).expect("room");
                }
            });
        }
        for _ in 0..2 {
            let region = &region;
            scope.spawn(move || {
                for round in 0..3000_u64 {
                    let at = round * 104_729 % 90_000 / 512 * 512;
                    let slice = region.lend(at, 20_480).expect("room");
                    let first = slice.to_vec();
                    let part = slice.part(5000..6000).expect("within");
                    std::thread::yield_now();
                    assert!(slice.bytes() == first, "round {round}");
                    drop(slice);
                    assert!(part.bytes() == &first[5000..6000], "round {round}");
                    for block in first.chunks(512) {
                        assert!(block.iter().all(|byte| *byte == block[0]), "round {round}");
                    }
                }
            });
        }
    });
    assert_eq!(region.spare_bytes(), 0, "all came home");
}
