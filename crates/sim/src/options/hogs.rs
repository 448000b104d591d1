// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Initiators that ask for much: some stay and give nothing back, some leave what they asked for.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use std::time::Duration;

use iscsi::target_role::DigestPolicy;

use crate::options::Class;
use crate::options::Options;
use crate::options::Secrets;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 81;

/// Blocks of each unit: a command for all of them is what a hog asks for.
const BLOCKS: usize = 256;

/// Command window: so many of these are several times the pool.
const WINDOW: u16 = 32;

/// Hogs that do not stay, one a second. Each asks for eight seconds of the limit.
const LEAVERS: u64 = 12;

/// Hogs that stay, at once.
const STAYERS: u64 = 3;

/// Longest request of others, blocks: it fits what hogs leave of the smallest pool.
const BLOCKS_MAX: usize = 4;

/// Requests of others outstanding.
const DEPTH_MAX: usize = 8;

/// Longest pause between requests of others, microseconds: they are still there when hogs are.
const PAUSE: u64 = 100_000;

/// What a hog does with what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hog {
    /// Stays: sends no data and takes none.
    Stays,
    /// Leaves soon.
    Leaves,
    /// Aborts all of it soon.
    Aborts,
    /// Reads, takes what comes at so many bytes a second, and answers pings when it sees them.
    Takes(usize),
}

impl Options {
    /// Sends hogs, in a third of the systems in which no request may fail or take long.
    pub(super) fn invite_hogs(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        if self.class != Class::Calm || !rng.chance(330) {
            return;
        }
        let limited = rng.chance(500);
        self.blocks = BLOCKS;
        for target in &mut self.targets {
            (target.memory, target.window) = (false, WINDOW);
            target.ping = 30;
            // Hogs come as anybody may.
            (target.secrets, target.optional) = (Secrets::None, false);
            target.digests = [DigestPolicy::Any; 2];
            match limited {
                true => target.limit = 4 * (BLOCKS * target.block_len) as u64,
                false => target.pool = rng.pick(&[2 << 20, 4 << 20]),
            }
        }
        for session in self.hosts.iter_mut().flatten() {
            session.depth = session.depth.min(DEPTH_MAX);
            session.blocks_max = session.blocks_max.min(BLOCKS_MAX);
            session.pause = PAUSE;
        }
        self.hogs = match limited {
            true => (0..LEAVERS)
                .map(|second| {
                    let at = Duration::from_secs(second) + rng.micros(0..=1_000_000);
                    (at, rng.pick(&[Hog::Leaves, Hog::Aborts]))
                })
                .collect(),
            false => (0..STAYERS).map(|_| (rng.micros(0..=1_000_000), Hog::Stays)).collect(),
        };
        self.hogs.sort_by_key(|(at, _)| *at);
    }
}
