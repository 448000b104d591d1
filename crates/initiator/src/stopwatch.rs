// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of a queue goes, layer by layer, and which bytes it has touched.
//!
//! The pump alone crosses borders, so it alone stamps them ([`engine::laps`]).

use engine::laps;
use engine::laps::Border;
use engine::laps::Laps;

/// What a pump leaves when it crosses a border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// A request becomes a command.
    Post,
    /// The mover: operations to gather lists, with digests, and handing them to the port.
    Send,
    /// The kernel: sending and receiving.
    Kernel,
    /// Spinning and sleeping, with what the kernel does meanwhile.
    Idle,
    /// The mover: bytes to events.
    Receive,
    /// The mover: received data into its buffer, with the digest.
    Copy,
    /// The iSCSI machines, and the end of requests.
    Protocol,
    /// Whoever uses the queue.
    Caller,
}

const COUNT: usize = 8;

impl Border<COUNT> for Layer {
    const NAMES: [&'static str; COUNT] =
        ["post", "send", "kernel", "idle", "receive", "copy", "protocol", "caller"];
    const RECEIVE: Self = Self::Receive;
    const COPY: Self = Self::Copy;
    const KERNEL: Self = Self::Kernel;
    const IDLE: Self = Self::Idle;

    fn number(self) -> usize {
        self as usize
    }
}

/// The stop-watch of one pump, and what it counts beside it.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    pub(crate) laps: Laps<Layer, COUNT>,
    /// Requests of turns that were timed.
    requests: u64,
}

impl Stopwatch {
    /// A turn begins, and with it the one before ends.
    pub(crate) fn begin(&mut self) {
        self.laps.lap(Layer::Caller);
        self.laps.begin();
    }

    /// A request was posted.
    pub(crate) fn posted(&mut self) {
        self.requests += u64::from(self.laps.is_on());
        self.laps.lap(Layer::Post);
    }

    /// What was counted so far. What the caller does with it is not timed.
    pub(crate) fn times(&mut self) -> Times {
        self.laps.stop();
        Times { requests: self.requests, layers: self.laps.layers(), copied: 0, digested: 0 }
    }
}

/// Where the time of a queue went, and which bytes it touched, since it was made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Times {
    /// Requests that were timed: one in a few.
    pub requests: u64,
    /// Their layers by name, in the order in which a request passes them.
    pub layers: Vec<(&'static str, laps::Layer)>,
    /// Payload bytes copied, by all connections that there were.
    pub copied: u64,
    /// Payload bytes run through CRC32C.
    pub digested: u64,
}
