// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Initiators on slow lines: they ask for much and take it without a pause, so slowly that a ping
//! stands behind it for longer than a ping may take.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use std::time::Duration;

use iscsi::target_role::DigestPolicy;

use crate::options::Class;
use crate::options::Hog;
use crate::options::Options;
use crate::options::Secrets;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 91;

/// Blocks of each unit.
const BLOCKS: usize = 256;

/// Command window: what it lets one ask for takes half a minute and more.
const WINDOW: u16 = 32;

/// Seconds of silence before a ping.
const PING: u64 = 2;

/// Slow readers at once, at most.
const READERS: u64 = 3;

/// Bytes a second. A list of PDUs takes a minute at the most.
const RATES: [usize; 3] = [16 << 10, 32 << 10, 64 << 10];

/// Long enough for a ping that is not waited for to end the connection.
const LENGTH: Duration = Duration::from_secs(60);

/// What others do beside them, as beside hogs.
const BLOCKS_MAX: usize = 4;
const DEPTH_MAX: usize = 8;
const PAUSE: u64 = 100_000;

impl Options {
    /// Puts some initiators on slow lines, in a quarter of the systems in which no request may fail
    /// or take long.
    pub(super) fn slow_readers(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        let free = self.hogs.is_empty() && self.resizes.is_empty();
        if self.class != Class::Calm || !free || !rng.chance(250) {
            return;
        }
        self.blocks = BLOCKS;
        self.length = self.length.max(LENGTH);
        for target in &mut self.targets {
            (target.window, target.ping) = (WINDOW, PING);
            target.memory = rng.chance(500);
            target.pool = rng.pick(&[2 << 20, 4 << 20]);
            // They come as anybody may.
            (target.secrets, target.optional) = (Secrets::None, false);
            target.digests = [DigestPolicy::Any; 2];
        }
        for session in self.hosts.iter_mut().flatten() {
            session.depth = session.depth.min(DEPTH_MAX);
            session.blocks_max = session.blocks_max.min(BLOCKS_MAX);
            session.pause = PAUSE;
        }
        self.hogs = (0..rng.within(1..=READERS))
            .map(|_| (rng.micros(0..=1_000_000), Hog::Takes(rng.pick(&RATES))))
            .collect();
        self.hogs.sort_by_key(|(at, _)| *at);
    }
}
