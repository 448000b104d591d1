// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timers of a reactor: one deadline per key, cheap to postpone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::hash::Hasher;

use clock::Instant;

/// One deadline per key.
///
/// Setting a deadline later than the one before (what traffic does to a ping timer) is one store:
/// the entry in the heap stays early and is moved when it comes up. So `next_deadline` may be
/// earlier than any deadline; `pop_expired` then gives nothing and the next one is right.
#[derive(Debug, Default)]
pub struct Timers {
    slots: HashMap<u64, Slot, BuildHasherDefault<Mix>>,
    heap: BinaryHeap<Reverse<(Instant, u64)>>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// When the key expires.
    wanted: Instant,
    /// The entry of the key in the heap, not later than `wanted`.
    queued: Instant,
}

/// The heap is rebuilt when it holds this many entries more than twice the keys.
const SLACK: usize = 64;

impl Timers {
    /// Without any deadline.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets or moves the deadline of `key`.
    pub fn set(&mut self, key: u64, deadline: Instant) {
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.wanted = deadline;
            if slot.queued <= deadline {
                return;
            }
            slot.queued = deadline;
        } else {
            self.slots.insert(key, Slot { wanted: deadline, queued: deadline });
        }
        self.heap.push(Reverse((deadline, key)));
        self.bound();
    }

    /// Takes the deadline of `key` away.
    pub fn cancel(&mut self, key: u64) {
        if self.slots.remove(&key).is_some() {
            self.bound();
        }
    }

    /// A key whose deadline is not after `now`; its deadline is taken away.
    pub fn pop_expired(&mut self, now: Instant) -> Option<u64> {
        while let Some(Reverse((at, key))) = self.heap.peek().copied() {
            if at > now {
                return None;
            }
            self.heap.pop();
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            if slot.queued != at {
                continue;
            }
            if slot.wanted <= now {
                self.slots.remove(&key);
                return Some(key);
            }
            slot.queued = slot.wanted;
            let entry = Reverse((slot.wanted, key));
            self.heap.push(entry);
        }
        None
    }

    /// When to call `pop_expired` next; None if no deadline is set.
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<Instant> {
        while let Some(Reverse((at, key))) = self.heap.peek().copied() {
            if self.slots.get(&key).is_some_and(|slot| slot.queued == at) {
                return Some(at);
            }
            self.heap.pop();
        }
        None
    }

    /// Keeps the heap in proportion to the keys: drops entries that were overtaken.
    fn bound(&mut self) {
        if self.heap.len() <= 2 * self.slots.len() + SLACK {
            return;
        }
        self.heap.clear();
        for (key, slot) in &mut self.slots {
            slot.queued = slot.wanted;
            self.heap.push(Reverse((slot.wanted, *key)));
        }
    }
}

/// Spreads keys that the caller chose; nobody can attack them.
#[derive(Debug, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        // Multiplication by an odd constant (2^64 / golden ratio) carries low bits up, the
        // rotation brings them to where the table looks.
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(timers: &mut Timers, now: u64) -> Vec<u64> {
        std::iter::from_fn(|| timers.pop_expired(Instant(now))).collect()
    }

    #[test]
    fn expires_in_order_and_once() {
        let mut timers = Timers::new();
        timers.set(3, Instant(30));
        timers.set(1, Instant(10));
        timers.set(2, Instant(20));
        assert_eq!(timers.next_deadline(), Some(Instant(10)));
        assert_eq!(drain(&mut timers, 9), []);
        assert_eq!(drain(&mut timers, 25), [1, 2]);
        assert_eq!(drain(&mut timers, 100), [3]);
        assert_eq!(timers.next_deadline(), None);
    }

    #[test]
    fn postponing_leaves_one_entry() {
        let mut timers = Timers::new();
        for at in 1..10_000 {
            timers.set(0, Instant(at));
        }
        assert_eq!(timers.heap.len(), 1);
        assert_eq!(drain(&mut timers, 5000), []);
        assert_eq!(timers.next_deadline(), Some(Instant(9999)));
        assert_eq!(drain(&mut timers, 9999), [0]);
    }

    #[test]
    fn bringing_forward_is_bounded_and_right() {
        let mut timers = Timers::new();
        for at in (1..10_000).rev() {
            timers.set(0, Instant(at));
            timers.set(1, Instant(20_000));
            timers.cancel(1);
            assert!(timers.heap.len() <= 4 + SLACK);
        }
        assert_eq!(drain(&mut timers, 1), [0]);
        assert_eq!(drain(&mut timers, 100_000), []);
    }

    #[test]
    fn cleared_keys_do_not_expire() {
        let mut timers = Timers::new();
        timers.set(0, Instant(5));
        timers.set(1, Instant(6));
        timers.cancel(0);
        timers.cancel(77);
        assert_eq!(drain(&mut timers, 10), [1]);
        timers.set(0, Instant(12));
        assert_eq!(drain(&mut timers, 12), [0]);
    }

    #[test]
    fn agrees_with_a_plain_map() {
        let mut timers = Timers::new();
        let mut plain = std::collections::BTreeMap::new();
        let mut seed = 1u64;
        for now in 0..5000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (seed >> 33) % 20;
            match (seed >> 40) % 4 {
                0 => {
                    timers.cancel(key);
                    plain.remove(&key);
                }
                _ => {
                    let at = now + (seed >> 50) % 50;
                    timers.set(key, Instant(at));
                    plain.insert(key, at);
                }
            }
            let mut got = drain(&mut timers, now);
            got.sort_unstable();
            let want: Vec<u64> = plain.iter().filter(|e| *e.1 <= now).map(|e| *e.0).collect();
            plain.retain(|_, at| *at > now);
            assert_eq!(got, want);
        }
    }
}
