// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timers of a reactor: one deadline per key, cheap to postpone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use clock::Instant;

use crate::limits::TIMERS_MAX;

/// One deadline per key; keys are small dense numbers, such as slab keys.
///
/// Setting a deadline later than the one before (what traffic does to a ping timer) is one store:
/// the entry in the heap stays early and is moved when it comes up. So `next_deadline` may be
/// earlier than any deadline; `pop_expired` then gives nothing and the next one is right.
#[derive(Debug, Default)]
pub struct Timers {
    slots: Vec<Slot>,
    heap: BinaryHeap<Reverse<(Instant, u64)>>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// When the key expires; NEVER if it does not.
    wanted: Instant,
    /// The earliest entry of the key in the heap; NEVER if there is none.
    queued: Instant,
}

const NEVER: Instant = Instant(u64::MAX);

/// The heap is rebuilt when it holds this many entries more than twice the keys.
const SLACK: usize = 64;

impl Timers {
    /// Without any deadline.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets or moves the deadline of `key`.
    ///
    /// # Panics
    ///
    /// If `key` is not below [`TIMERS_MAX`]: keys are chosen by the caller, not by a peer.
    pub fn set(&mut self, key: u64, deadline: Instant) {
        assert!(key < TIMERS_MAX, "keys of timers are dense");
        let index = usize::try_from(key).expect("below TIMERS_MAX");
        if index >= self.slots.len() {
            self.slots.resize(index + 1, Slot { wanted: NEVER, queued: NEVER });
        }
        let Some(slot) = self.slots.get_mut(index) else { return };
        slot.wanted = deadline;
        if deadline < slot.queued {
            slot.queued = deadline;
            self.heap.push(Reverse((deadline, key)));
            if self.heap.len() > 2 * self.slots.len() + SLACK {
                self.rebuild();
            }
        }
    }

    /// Takes the deadline of `key` away.
    pub fn clear(&mut self, key: u64) {
        if let Some(slot) = self.slot(key) {
            slot.wanted = NEVER;
        }
    }

    /// A key whose deadline is not after `now`; its deadline is taken away.
    pub fn pop_expired(&mut self, now: Instant) -> Option<u64> {
        while let Some(Reverse((at, key))) = self.heap.peek().copied() {
            if at > now {
                return None;
            }
            self.heap.pop();
            let Some(slot) = self.slot(key) else { continue };
            if slot.queued != at {
                continue;
            }
            slot.queued = NEVER;
            if slot.wanted <= now {
                slot.wanted = NEVER;
                return Some(key);
            }
            if slot.wanted != NEVER {
                slot.queued = slot.wanted;
                let entry = Reverse((slot.wanted, key));
                self.heap.push(entry);
            }
        }
        None
    }

    /// When to call `pop_expired` next; None if no deadline is set.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    fn slot(&mut self, key: u64) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(key).ok()?)
    }

    /// Drops entries that were overtaken by earlier ones.
    fn rebuild(&mut self) {
        self.heap.clear();
        for (key, slot) in (0u64..).zip(&mut self.slots) {
            slot.queued = slot.wanted;
            if slot.wanted != NEVER {
                self.heap.push(Reverse((slot.wanted, key)));
            }
        }
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
            assert!(timers.heap.len() <= 2 + SLACK);
        }
        assert_eq!(drain(&mut timers, 1), [0]);
        assert_eq!(drain(&mut timers, 100_000), []);
    }

    #[test]
    fn cleared_keys_do_not_expire() {
        let mut timers = Timers::new();
        timers.set(0, Instant(5));
        timers.set(1, Instant(6));
        timers.clear(0);
        timers.clear(77);
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
                    timers.clear(key);
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
