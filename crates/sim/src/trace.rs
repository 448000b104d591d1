// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happened, as one number: equal seeds must give equal traces.

use std::fmt;

use clock::Instant;

use crate::rng::mix;

/// A hash over every step, and the steps themselves on demand.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    steps: u64,
    pub(crate) print: bool,
}

impl Trace {
    /// Notes a step; `parts` are what makes it different from others of the same kind.
    pub(crate) fn step(&mut self, now: Instant, parts: &[u64], text: impl FnOnce() -> String) {
        self.steps += 1;
        let mut hash = self.hash ^ now.0;
        for part in parts {
            hash = mix(hash.wrapping_add(*part));
        }
        self.hash = mix(hash);
        if self.print {
            println!("{:>14.6} {}", seconds(now), text());
        }
    }

    /// Notes a text alone.
    pub(crate) fn note(&mut self, now: Instant, text: impl FnOnce() -> String) {
        if self.print {
            println!("{:>14.6} {}", seconds(now), text());
        }
    }

    pub(crate) const fn digest(&self) -> Digest {
        Digest { hash: self.hash, steps: self.steps }
    }
}

/// The trace of a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Over every step.
    pub hash: u64,
    /// How many there were.
    pub steps: u64,
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} of {} steps", self.hash, self.steps)
    }
}

/// Seconds since the start, for people.
pub(crate) fn seconds(now: Instant) -> f64 {
    now.since(START).as_secs_f64()
}

/// The first moment of a run: not zero, so that what was never set does not look like it.
pub(crate) const START: Instant = Instant(1_000_000_000_000);

/// A number that depends on each of `bytes`.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(bytes.len() as u64, |hash, word| {
        (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    rest.iter().fold(hash, |hash, byte| mix(hash ^ u64::from(*byte)))
}
