// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often commands try that cannot go on, and in which order.

use std::sync::Arc;
use std::time::Duration;

use clock::Instant;
use iscsi::datamover::TaskId;
use scsi::Identity;
use scsi::LogicalUnit;
use store::null::Null;

use super::Waiting;
use crate::table::Key;

const SESSIONS: u32 = 9;
const DEPTH: u32 = 120;
const BEGIN: Instant = Instant(1_000_000_000);

fn unit() -> Arc<LogicalUnit> {
    let identity = Identity::derive("iqn.2026-01.local.test", 0, "LUNWIRE", "VIRTUAL DISK");
    let store = Arc::new(Null::new(1 << 20).expect("room"));
    Arc::new(LogicalUnit::new(identity, store, 512).expect("a legal unit"))
}

fn session(number: u32) -> Key {
    Key::from_parts((number, 1))
}

fn task(index: u32) -> TaskId {
    TaskId { index, generation: 1 }
}

/// A window full of commands of each session.
fn crowd(unit: &Arc<LogicalUnit>) -> Waiting {
    let mut waiting = Waiting::default();
    for index in 0..DEPTH {
        for number in 0..SESSIONS {
            waiting.add((session(number), task(index)), Arc::clone(unit), false, BEGIN);
        }
    }
    waiting
}

/// Tries that come to nothing in a round; `goes` says who can go on.
fn round(
    waiting: &mut Waiting,
    unit: &Arc<LogicalUnit>,
    now: Instant,
    goes: impl Fn(Key, TaskId) -> bool,
) -> (usize, Vec<(Key, TaskId)>) {
    let (mut idle, mut gone) = (0, Vec::new());
    if waiting.begin(now) {
        while let Some((key, id)) = waiting.next() {
            if goes(key, id) {
                gone.push((key, id));
            } else {
                idle += 1;
                waiting.add((key, id), Arc::clone(unit), false, now);
            }
        }
        waiting.end();
    }
    (idle, gone)
}

/// A WRITE that never sends its data holds them all up for a second.
#[test]
fn those_that_cannot_go_on_cost_next_to_nothing() {
    let unit = unit();
    let mut waiting = crowd(&unit);
    let mut idle = 0;
    for step in 1..=10_000_u64 {
        let now = BEGIN + Duration::from_micros(100 * step);
        idle += round(&mut waiting, &unit, now, |_, _| false).0;
    }
    assert_eq!(waiting.len(), (SESSIONS * DEPTH) as usize);
    assert!(idle < 10_000, "{idle} tries in a second");
}

/// What ends lets one of each line try, and the next one only if that one could.
#[test]
fn the_first_in_line_tries_and_keeps_its_place() {
    let unit = unit();
    let mut waiting = crowd(&unit);
    let later = BEGIN + Duration::from_millis(1);
    assert_eq!(round(&mut waiting, &unit, later, |_, _| true), (0, Vec::new()), "no reason");
    waiting.somebody_ended();
    assert_eq!(waiting.next_try(later), Some(later));
    let (idle, gone) =
        round(&mut waiting, &unit, later, |key, id| key == session(3) && id.index < 2);
    assert_eq!(gone, [(session(3), task(0)), (session(3), task(1))]);
    assert_eq!(idle, SESSIONS as usize);
    waiting.somebody_ended();
    let (_, gone) = round(&mut waiting, &unit, later, |_, _| true);
    assert_eq!(gone.len(), (SESSIONS * DEPTH) as usize - 2);
    for number in 0..SESSIONS {
        let of = gone.iter().filter(|(key, _)| *key == session(number));
        assert!(of.map(|(_, id)| id.index).is_sorted(), "in the order in which they came");
    }
    assert!(waiting.is_empty() && waiting.next_try(later).is_none());
}

/// HEAD OF QUEUE may go before what waits for it.
#[test]
fn those_that_overtake_try_behind_one_that_cannot() {
    let unit = unit();
    let mut waiting = crowd(&unit);
    let head = (session(5), task(DEPTH));
    waiting.add(head, Arc::clone(&unit), true, BEGIN);
    waiting.somebody_ended();
    let later = BEGIN + Duration::from_millis(1);
    let (_, gone) = round(&mut waiting, &unit, later, |_, id| id.index == DEPTH);
    assert_eq!(gone, [head]);
}

/// Nobody waits for ever for what stands behind it.
#[test]
fn all_try_now_and_then() {
    let unit = unit();
    let mut waiting = crowd(&unit);
    let last = |_: Key, id: TaskId| id.index == DEPTH - 1;
    let later = BEGIN + Duration::from_millis(260);
    let (_, gone) = round(&mut waiting, &unit, later, last);
    assert_eq!(gone.len(), SESSIONS as usize);
}

#[test]
fn who_is_gone_does_not_try() {
    let unit = unit();
    let mut waiting = crowd(&unit);
    for number in 0..SESSIONS - 1 {
        waiting.forget_session(session(number));
    }
    waiting.forget(session(SESSIONS - 1), task(0));
    assert_eq!(waiting.len(), DEPTH as usize - 1);
    waiting.somebody_ended();
    assert!(waiting.begin(BEGIN));
    let mut tried = 0;
    while let Some((key, id)) = waiting.next() {
        assert_eq!((key, id), (session(SESSIONS - 1), task(tried + 1)));
        tried += 1;
        if tried == 3 {
            waiting.forget_session(key);
        }
    }
    assert_eq!(waiting.end().len(), 1);
    assert!(waiting.is_empty());
}
