// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions over raw Ethernet: class `ether`, or `--transport ether` in all others.
//!
//! A class of its own leaves what was drawn for the others as it was.

use ether::limits::PAYLOAD_STANDARD;
use initiator::Transport;

use crate::options::Class;
use crate::options::Options;
use crate::options::Usual;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 106;

/// One way at the most, microseconds: such a wire is one's own, so no world is between its ends.
const LATENCY_MAX: u64 = 2000;

/// Payload of a jumbo frame.
const JUMBO: usize = 8832;

/// What a wire does to frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // all that is drawn of it
pub struct FramePlan {
    /// So many of a thousand are lost,
    pub lost: u64,
    /// come twice,
    pub doubled: u64,
    /// come later than others that were sent behind them,
    pub late: u64,
    /// or come damaged in a way that shows.
    pub damaged: u64,
    /// How much later, microseconds.
    pub late_us: u64,
    /// Longest payload that the interfaces take.
    pub payload_max: usize,
}

impl FramePlan {
    /// A wire that does nothing to them.
    pub const GOOD: Self =
        Self { lost: 0, doubled: 0, late: 0, damaged: 0, late_us: 0, payload_max: 1332 };
}

impl Options {
    /// In class `ether` all sessions go over raw Ethernet, or some over TCP beside it.
    pub(super) fn go_by_frames(&mut self) {
        if self.class != Class::Ether {
            return;
        }
        self.set_transport(Transport::Ether, Usual::No);
        let mut rng = Rng::stream(self.seed, STREAM + 1);
        if rng.chance(250) {
            self.carry_by(|| rng.pick(&[Transport::Ether, Transport::Ether, Transport::Tcp]));
        }
    }

    /// What its wire does.
    pub(super) fn draw_frames(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        self.frames = FramePlan {
            lost: rng.pick(&[0, 5, 20, 60]),
            doubled: rng.pick(&[0, 10, 50]),
            late: rng.pick(&[0, 20, 100]),
            damaged: rng.pick(&[0, 5]),
            late_us: rng.pick(&[100, 1000, 5000]),
            payload_max: rng.pick(&[PAYLOAD_STANDARD, PAYLOAD_STANDARD, JUMBO]),
        };
        let (low, high) = self.latency;
        self.latency = (low.min(LATENCY_MAX / 10), high.min(LATENCY_MAX));
    }
}
