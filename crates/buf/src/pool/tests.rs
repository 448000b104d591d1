// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a pool promises.

use super::{Claim, Pool, Trimmed};
use crate::limits::{BUF_LEN_MAX, CLASS_SIZES, PAGE};
use crate::{Buf, Slice};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

const BOUND: usize = 20 << 20;

#[derive(Clone, Debug)]
enum Step {
    Take(usize),
    Drop(usize),
    Freeze(usize),
    Share(usize),
    Unshare(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![0..70_000_usize, 0..BUF_LEN_MAX + 2];
    prop_oneof![
        4 => len.prop_map(Step::Take),
        2 => any::<usize>().prop_map(Step::Drop),
        2 => any::<usize>().prop_map(Step::Freeze),
        2 => any::<usize>().prop_map(Step::Share),
        3 => any::<usize>().prop_map(Step::Unshare),
    ]
}

fn class_size(len: usize) -> Option<usize> {
    CLASS_SIZES.into_iter().find(|size| len <= *size)
}

/// What was written into a buffer: its number at both ends.
fn mark(buf: &mut [u8], number: u8) {
    if let Some(first) = buf.first_mut() {
        *first = number;
    }
    if let Some(last) = buf.last_mut() {
        *last = number;
    }
}

fn is_marked(bytes: &[u8], number: u8) -> bool {
    [bytes.first(), bytes.last()].into_iter().flatten().all(|byte| *byte == number)
}

proptest! {
    #[test]
    fn never_gives_the_same_memory_twice(steps in proptest::collection::vec(step(), 1..120)) {
        let pool = Pool::new(BOUND).expect("room");
        let mut bufs: VecDeque<(u8, Buf)> = VecDeque::new();
        let mut slices: VecDeque<(u8, usize, Vec<Slice>)> = VecDeque::new();
        let (mut in_use, mut number) = (0, 0_u8);
        for step in steps {
            match step {
                Step::Take(len) => {
                    let size = class_size(len);
                    let fits = size.is_some_and(|size| in_use + size <= BOUND);
                    let taken = pool.take(len);
                    prop_assert_eq!(taken.is_some(), fits);
                    if let (Some(mut buf), Some(size)) = (taken, size) {
                        prop_assert_eq!(buf.len(), len);
                        prop_assert!(buf.as_ptr().addr().is_multiple_of(PAGE));
                        number = number.wrapping_add(1);
                        mark(&mut buf, number);
                        in_use += size;
                        bufs.push_back((number, buf));
                    }
                }
                Step::Drop(at) if !bufs.is_empty() => {
                    let (number, buf) = bufs.remove(at % bufs.len()).expect("within");
                    prop_assert!(is_marked(&buf, number));
                    in_use -= class_size(buf.len()).expect("was taken");
                }
                Step::Freeze(at) if !bufs.is_empty() => {
                    let (number, buf) = bufs.remove(at % bufs.len()).expect("within");
                    let size = class_size(buf.len()).expect("was taken");
                    slices.push_back((number, size, vec![buf.freeze()]));
                }
                Step::Share(at) if !slices.is_empty() => {
                    let at = at % slices.len();
                    let (_, _, shared) = &mut slices[at];
                    let clone = shared[0].clone();
                    shared.push(clone);
                }
                Step::Unshare(at) if !slices.is_empty() => {
                    let at = at % slices.len();
                    let (number, size, shared) = &mut slices[at];
                    let slice = shared.pop().expect("at least one");
                    prop_assert!(is_marked(slice.bytes(), *number));
                    drop(slice);
                    if shared.is_empty() {
                        in_use -= *size;
                        slices.remove(at);
                    }
                }
                Step::Drop(_) | Step::Freeze(_) | Step::Share(_) | Step::Unshare(_) => {}
            }
            prop_assert_eq!(pool.bytes_in_use(), in_use);
            prop_assert!(pool.shared.lists().bytes_resident <= BOUND);
        }
        drop((bufs, slices));
        prop_assert_eq!(pool.bytes_in_use(), 0);
        let mut counts = pool.shared.references.iter();
        let free = counts.all(|count| count.load(Ordering::Relaxed) == 0);
        prop_assert!(free);
    }
}

#[test]
fn the_last_one_back_is_the_first_one_out() {
    let pool = Pool::new(1 << 20).expect("room");
    let (first, second) = (pool.take(9).expect("room"), pool.take(9).expect("room"));
    let (hot, cold) = (second.as_ptr(), first.as_ptr());
    drop(first);
    drop(second);
    let again = pool.take(4096).expect("room");
    assert_eq!(again.as_ptr(), hot);
    assert_eq!(pool.take(1).expect("room").as_ptr(), cold);
}

#[test]
fn a_change_of_sizes_stays_within_the_bound() {
    let pool = Pool::new(1 << 20).expect("room");
    for _ in 0..3 {
        let mut small: Vec<Buf> = std::iter::from_fn(|| pool.take(4096)).collect();
        assert_eq!(small.len(), 256);
        small.iter_mut().for_each(|buf| buf.fill(1));
        assert!(pool.take(1 << 20).is_none());
        drop(small);
        let mut large = pool.take(1 << 20).expect("all came back");
        large.fill(2);
        assert!(pool.take(0).is_none());
        assert_eq!(pool.shared.lists().bytes_resident, 1 << 20);
    }
}

#[test]
fn sizes_out_of_bounds_are_refused() {
    assert!(Pool::new(usize::MAX).is_err());
    let pool = Pool::new(0).expect("an empty pool");
    assert!(pool.take(0).is_none());
    let pool = Pool::new(64 << 20).expect("room");
    assert!(pool.take(BUF_LEN_MAX + 1).is_none());
    assert!(pool.take(usize::MAX).is_none());
    let mut buf = pool.take(BUF_LEN_MAX).expect("room");
    buf.truncate(usize::MAX);
    assert_eq!(buf.len(), BUF_LEN_MAX);
    buf.truncate(3);
    assert_eq!(buf.freeze().len(), 3);
}

#[test]
fn buffers_cross_threads_and_outlive_the_pool() {
    let pool = Pool::new(1 << 20).expect("room");
    let (to, from) = std::sync::mpsc::sync_channel::<(u8, Slice)>(8);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (number, slice) in from {
                assert!(is_marked(slice.bytes(), number));
            }
        });
        let pool = &pool;
        for thread in 0..3_u8 {
            let to = to.clone();
            scope.spawn(move || {
                for round in 0..2000_u16 {
                    let len = 1 + usize::from(round) * 7;
                    let Some(mut buf) = pool.take(len) else { continue };
                    mark(&mut buf, thread);
                    to.send((thread, buf.freeze())).expect("the reader lives");
                }
            });
        }
        drop(to);
    });
    assert_eq!(pool.bytes_in_use(), 0);
    let last = pool.take(1).expect("room");
    drop(pool);
    drop(last);
}

/// All that a view may take in buffers of `len` bytes.
fn take_all(pool: &Pool, len: usize) -> Vec<Buf> {
    std::iter::from_fn(|| pool.take(len)).collect()
}

#[test]
fn who_is_alone_has_much_and_who_comes_later_has_a_share() {
    let pool = Pool::new(512 << 20).expect("room");
    let hogs: Vec<Pool> = (0..100).map(|_| pool.share()).collect();
    let mut held: Vec<Vec<Buf>> = Vec::new();
    for hog in &hogs {
        let mut all = take_all(hog, 1 << 20);
        all.extend(take_all(hog, 64 << 10));
        held.push(all);
        let modest = pool.share();
        let wanted = match held.len() {
            0..=10 => 1 << 20,
            11..=30 => 64 << 10,
            _ => 16 << 10,
        };
        assert!(modest.take(wanted).is_some(), "behind {} that take all they can", held.len());
    }
    assert!((300..320).contains(&(hogs[0].bytes_taken() >> 20)), "three fifths");
    // What has memory already may use up the rest.
    assert!(hogs[0].take(4 << 10).is_none());
    assert!(hogs[0].take_as(4 << 10, Claim::Completion).is_some());
    // What came back is for whoever has less.
    held[0].truncate(280);
    assert!(hogs[0].take(1 << 20).is_none());
    assert!(hogs[99].take(1 << 20).is_some());
}

#[test]
fn what_is_only_convenient_leaves_some_of_the_share() {
    let pool = Pool::new(64 << 20).expect("room");
    let taker = pool.share();
    let convenient: Vec<Buf> =
        std::iter::from_fn(|| taker.take_as(1 << 20, Claim::Convenience)).collect();
    assert_eq!(convenient.len(), 32);
    let needed = take_all(&taker, 1 << 20);
    assert_eq!(needed.len(), 7);
    assert_eq!(taker.bytes_taken(), 39 << 20);
}

/// What has no share may be there for as long as who asks.
#[test]
fn one_buffer_is_not_too_much_beside_what_has_no_share() {
    let pool = Pool::new(384 << 10).expect("room");
    let messages = pool.take(16 << 10).expect("nobody has anything");
    let (one, other) = (pool.share(), pool.share());
    let taken = one.take(256 << 10).expect("nobody with a share has anything");
    assert!(other.take(64 << 10).is_none() && one.take(64 << 10).is_none());
    drop(taken);
    let few = other.take(4 << 10).expect("it has a share");
    assert!(one.take(256 << 10).is_none(), "another one has something");
    drop((few, messages));
}

#[test]
fn a_pool_of_one_buffer_gives_it_to_whoever_comes_first() {
    let pool = Pool::new(1 << 20).expect("room");
    let (one, other) = (pool.share(), pool.share());
    let taken = one.take(1 << 20).expect("nobody has anything");
    assert!(other.take(1).is_none());
    assert!(pool.could_take([1 << 20]) && !pool.could_take([(1 << 20) + 1]));
    assert!(!pool.could_take([1 << 20, 1]), "not beside another one");
    assert!(pool.could_take([256 << 10, 1]));
    let returned = pool.returned();
    drop(taken);
    assert_ne!(pool.returned(), returned);
    assert!(other.take(1 << 20).is_some());
}

#[test]
fn books_are_closed_when_the_last_buffer_is_back() {
    let pool = Pool::new(1 << 20).expect("room");
    let view = pool.share();
    let other = view.clone();
    let buf = view.take(1).expect("room");
    drop(view);
    assert_eq!(other.bytes_taken(), 4096);
    drop(other);
    let next = pool.share();
    assert_eq!(next.bytes_taken(), 0, "the books of the first one are still open");
    drop(buf);
    assert_eq!(pool.share().bytes_taken(), 0);
    assert_eq!(pool.bytes_in_use(), 0);
}

#[test]
fn memory_that_nobody_needs_goes_back() {
    let pool = Pool::new(64 << 20).expect("room");
    let resident = |pool: &Pool| pool.shared.lists().bytes_resident;
    let many: Vec<Buf> = (0..40).map(|_| pool.take(1 << 20).expect("room")).collect();
    drop(many);
    assert_eq!(pool.trim(8 << 20), Trimmed::ForNow, "all of it was in use a moment ago");
    assert_eq!(resident(&pool), 40 << 20);
    // Ten of them were enough since then.
    for _ in 0..3 {
        let some: Vec<Buf> = (0..10).map(|_| pool.take(1 << 20).expect("room")).collect();
        drop(some);
    }
    let mut steps = 1;
    while pool.trim(8 << 20) == Trimmed::InPart {
        steps += 1;
    }
    assert_eq!(resident(&pool), 10 << 20);
    assert!((3..=5).contains(&steps), "{steps}: little at a time");
    while pool.trim(8 << 20) != Trimmed::All {}
    assert_eq!(resident(&pool), 0);
    let all: Vec<Buf> = (0..64).map(|_| pool.take(1 << 20).expect("room")).collect();
    assert_eq!(all.len(), 64);
}

#[test]
fn memory_that_is_in_use_is_looked_at_again() {
    let pool = Pool::new(1 << 20).expect("room");
    let held = pool.take(1).expect("room");
    assert_eq!(pool.trim(8 << 20), Trimmed::ForNow, "it comes back some day");
    drop(held);
    assert_eq!(pool.trim(8 << 20), Trimmed::ForNow, "it was in use a moment ago");
    assert_eq!(pool.trim(8 << 20), Trimmed::All);
    assert_eq!(pool.bytes_resident(), 0);
}
