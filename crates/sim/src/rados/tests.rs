// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One image by itself, from its client to its objects.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use buf::Slice;
use engine::Token;

use super::*;
use crate::disk::Abilities;
use crate::disk::EILSEQ;
use crate::disk::ENOSPC;
use crate::disk::SECTOR;

/// Sectors of an object, and objects of the image.
const EACH: u64 = 8;
const OBJECTS: u64 = 4;
const WIDTH: usize = 8;

const _: () = assert!(WIDTH as u64 == EACH);

struct Bench {
    plan: Rados,
    troubles: Troubles,
    rng: Rng,
    disk: Disk,
    image: Image,
    now: Instant,
    order: u64,
    wanted: BTreeMap<(Instant, u64), Step>,
    ended: Vec<(u64, Option<i32>)>,
}

impl Bench {
    fn new(seed: u64, cache: bool) -> Self {
        let object = EACH * SECTOR as u64;
        let plan = Rados { object, groups: 1 << 20, delay: (100, 20_000), cache, busy: 5 };
        let image = Image::open(&plan, object * OBJECTS, Instant(0));
        let abilities = Abilities { punch: true, zero: true, elsewhere: true };
        Self {
            plan,
            troubles: Troubles::default(),
            rng: Rng::new(seed),
            disk: Disk::new(abilities),
            image,
            now: Instant(0),
            order: 0,
            wanted: BTreeMap::new(),
            ended: Vec::new(),
        }
    }

    fn on<T>(&mut self, deed: impl FnOnce(&mut Image, &mut Ground<'_>) -> T) -> T {
        let mut ground = Ground {
            plan: self.plan,
            troubles: &self.troubles,
            rng: &mut self.rng,
            disk: &mut self.disk,
            number: 0,
            now: self.now,
            wanted: Vec::new(),
            ended: Vec::new(),
            marks: Vec::new(),
            broken: Vec::new(),
        };
        let result = deed(&mut self.image, &mut ground);
        assert!(ground.broken.is_empty(), "{:?}", ground.broken);
        let (wanted, ended) = (ground.wanted, ground.ended);
        for (at, step) in wanted {
            self.order += 1;
            self.wanted.insert((at, self.order), step);
        }
        for (id, errno) in ended {
            self.disk.works.remove(&id);
            self.ended.push((id, errno));
        }
        result
    }

    fn begin(&mut self, what: What) -> u64 {
        let id = self.disk.submit(0, Owner::Port(0, Token(0)), what);
        self.on(|image, ground| image.begin(id, ground));
        id
    }

    /// Sectors are filled with a byte.
    fn write(&mut self, sectors: std::ops::Range<u64>, byte: u8) -> u64 {
        let count = usize::try_from(sectors.end - sectors.start).expect("small");
        let data = Slice::from(vec![byte; count * SECTOR]);
        self.begin(What::Write { offset: sectors.start * SECTOR as u64, data, durable: false })
    }

    /// Goes on for so long, or until nothing is left to do.
    fn go_on(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(((at, _), step)) = self.wanted.pop_first() {
            if at > until {
                self.wanted.insert((at, 0), step);
                break;
            }
            self.now = at;
            self.on(|image, ground| image.step(step, ground));
        }
    }

    fn end(&mut self, id: u64) -> Option<i32> {
        self.go_on(Duration::from_secs(3600));
        self.ended.iter().find(|(ended, _)| *ended == id).expect("it has ended").1
    }

    /// What an object has in each of its sectors.
    fn object(&self, object: u64) -> Vec<u8> {
        let sectors = object * EACH..(object + 1) * EACH;
        sectors.map(|at| self.disk.sector(at).map_or(0, |content| content[0])).collect()
    }

    fn is_whole(&self, object: u64) -> bool {
        let bytes = self.object(object);
        bytes.iter().all(|byte| *byte == bytes[0])
    }
}

#[test]
fn one_object_answers_in_order_and_several_do_not() {
    let mut overtaken = 0;
    for seed in 0..50 {
        let mut bench = Bench::new(seed, false);
        let same = [bench.write(0..1, 1), bench.write(0..1, 2), bench.write(1..3, 3)];
        let other = bench.write(EACH..EACH + 1, 4);
        bench.go_on(Duration::from_secs(10));
        let ends: Vec<u64> = bench.ended.iter().map(|(id, _)| *id).collect();
        let own: Vec<u64> = ends.iter().copied().filter(|id| *id != other).collect();
        assert_eq!(own, same);
        assert_eq!(bench.object(0)[..3], [2, 3, 3]);
        overtaken += usize::from(ends.first() == Some(&other));
    }
    assert!(overtaken > 5, "{overtaken}");
}

/// Several compare the same sector at once: exactly one finds what it expects.
#[test]
fn one_of_those_who_compare_wins() {
    let mut winners = BTreeSet::new();
    for seed in 0..50 {
        let mut bench = Bench::new(seed, false);
        let sector = |byte| Slice::from(vec![byte; SECTOR]);
        let compare = |old: u8, new: u8| What::Compare {
            offset: SECTOR as u64,
            old: sector(old),
            new: sector(new),
            differs: None,
        };
        let rivals: Vec<(u64, u8)> =
            (1..5).map(|byte| (bench.begin(compare(0, byte)), byte)).collect();
        bench.go_on(Duration::from_secs(10));
        let ends = bench.ended.clone();
        let (won, lost): (Vec<_>, Vec<_>) = ends.iter().partition(|(_, end)| end.is_none());
        assert_eq!((won.len(), lost.len()), (1, 3));
        assert!(lost.iter().all(|(_, end)| *end == Some(EILSEQ)));
        let (_, byte) = rivals.iter().find(|(id, _)| *id == won[0].0).expect("one of them");
        assert_eq!(bench.object(0)[..3], [0, *byte, 0]);
        winners.insert(*byte);
    }
    assert_eq!(winners.len(), 1, "an object serves in order: the first one wins");
}

#[test]
fn a_sector_is_repeated_over_objects_and_lost_with_the_cache_alone() {
    for (seed, cache) in [(1, false), (2, true)] {
        let mut bench = Bench::new(seed, cache);
        let (offset, length) = (SECTOR as u64, 2 * EACH * SECTOR as u64);
        let data = Slice::from(vec![7; SECTOR]);
        let id = bench.begin(What::Same { offset, length, data });
        assert_eq!(bench.end(id), None);
        let flush = bench.begin(What::Sync);
        assert_eq!(bench.end(flush), None);
        assert_eq!(bench.object(0), [0, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!(bench.object(1), [7; WIDTH]);
        assert_eq!(bench.object(2), [7, 0, 0, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn a_crash_tears_a_write_between_objects_alone() {
    let mut torn = 0;
    for seed in 0..100 {
        let mut bench = Bench::new(seed, false);
        let before = bench.write(0..EACH * OBJECTS, 1);
        assert_eq!(bench.end(before), None);
        bench.write(0..EACH * OBJECTS, 2);
        bench.go_on(Duration::from_millis(seed % 20));
        assert!(!bench.on(Image::crash), "there is no cache");
        assert!((0..OBJECTS).all(|object| bench.is_whole(object)));
        let found: Vec<u8> = (0..OBJECTS).map(|object| bench.object(object)[0]).collect();
        torn += usize::from(found.contains(&1) && found.contains(&2));
    }
    assert!(torn > 20, "{torn}");
}

#[test]
fn a_write_is_answered_when_all_its_objects_have_it() {
    for seed in 0..50 {
        let mut bench = Bench::new(seed, false);
        let id = bench.write(0..EACH * OBJECTS, 1);
        while bench.ended.is_empty() {
            bench.go_on(Duration::from_micros(50));
            bench.now = bench.now + Duration::from_micros(50);
        }
        assert_eq!(bench.ended, [(id, None)]);
        assert!((0..OBJECTS).all(|object| bench.object(object) == [1; WIDTH]));
    }
}

#[test]
fn a_cache_loses_what_was_not_flushed() {
    let mut lost = 0;
    for seed in 0..50 {
        let mut bench = Bench::new(seed, true);
        let write = bench.write(0..EACH, 1);
        assert_eq!(bench.end(write), None);
        let flush = bench.begin(What::Sync);
        assert_eq!(bench.end(flush), None);
        assert_eq!(bench.object(0), [1; WIDTH]);
        bench.write(0..EACH, 2);
        bench.go_on(Duration::from_micros(200));
        assert_eq!(bench.ended.len(), 3, "it is acknowledged by the cache");
        lost += usize::from(bench.on(Image::crash));
        assert!(bench.is_whole(0));
    }
    assert!(lost > 20, "{lost}");
}

#[test]
fn a_flush_that_fails_is_told_until_all_is_written_again() {
    let mut bench = Bench::new(3, true);
    bench.troubles.full = Instant(u64::MAX);
    let write = bench.write(0..EACH, 1);
    assert_eq!(bench.end(write), None);
    let first = bench.begin(What::Sync);
    assert_eq!(bench.end(first), Some(ENOSPC));
    bench.troubles.full = Instant(0);
    let second = bench.begin(What::Sync);
    assert!(bench.end(second).is_some(), "what was acknowledged may be lost");
    let again = bench.write(0..EACH, 2);
    assert_eq!(bench.end(again), None);
    let third = bench.begin(What::Sync);
    assert_eq!(bench.end(third), None);
    assert_eq!(bench.object(0), [2; WIDTH]);
}

#[test]
fn a_silent_group_keeps_its_objects_alone() {
    let mut bench = Bench::new(4, false);
    let group = group_of(0, 1, &bench.plan);
    bench.troubles.inactive.insert(group, Instant(0) + Duration::from_secs(60));
    let (silent, other) = (bench.write(EACH..EACH + 1, 1), bench.write(0..1, 2));
    bench.go_on(Duration::from_secs(30));
    assert_eq!(bench.ended, [(other, None)]);
    bench.now = Instant(0) + Duration::from_secs(30);
    let limit = Duration::from_secs(5);
    assert!(bench.image.look(true, bench.now, limit), "it is told to be silent, once");
    assert!(!bench.image.look(true, bench.now, limit));
    assert_eq!(bench.end(silent), None);
    assert!(bench.now >= Instant(0) + Duration::from_secs(60));
}

#[test]
fn what_is_behind_a_new_end_is_cut_off_or_refused() {
    let mut bench = Bench::new(5, true);
    bench.image.resize(2 * EACH * SECTOR as u64);
    let across = bench.write(EACH..3 * EACH, 1);
    let behind = bench.write(2 * EACH..3 * EACH, 2);
    assert_eq!(bench.end(behind), Some(EINVAL));
    assert_eq!(bench.end(across), None, "as librbd does");
    let flush = bench.begin(What::Sync);
    assert_eq!(bench.end(flush), None);
    assert_eq!(bench.object(2), [0; WIDTH]);
}

#[test]
fn a_blocklisted_client_gets_nothing_done_and_its_flushes_fail_for_good() {
    let mut bench = Bench::new(6, true);
    let before = bench.write(0..1, 1);
    assert_eq!(bench.end(before), None);
    bench.image.fails = Some(ESHUTDOWN);
    let after = bench.write(1..2, 2);
    assert_eq!(bench.end(after), Some(ESHUTDOWN));
    bench.image.fails = None;
    let again = bench.write(0..2, 3);
    assert_eq!(bench.end(again), None);
    let flush = bench.begin(What::Sync);
    assert!(bench.end(flush).is_some());
}
