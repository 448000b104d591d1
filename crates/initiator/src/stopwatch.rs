// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of a queue goes, layer by layer, and which bytes it has touched.
//!
//! The pump alone crosses borders, so it alone stamps them ([`engine::laps`]).

use engine::laps;
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

/// The layers in their order, by the names that users see.
const NAMES: [&str; COUNT] =
    ["post", "send", "kernel", "idle", "receive", "copy", "protocol", "caller"];

/// Data taken from a stream at once that is more than a few headers: the time went into copying.
const COPY_MIN: usize = 1024;

/// The stop-watch of one pump.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    laps: Laps<COUNT>,
    /// Requests of turns that were timed.
    requests: u64,
}

impl Stopwatch {
    /// A turn begins, and with it the one before ends.
    pub(crate) fn begin(&mut self) {
        self.lap(Layer::Caller);
        self.laps.begin();
    }

    /// The time since the lap before went into `layer`.
    pub(crate) fn lap(&mut self, layer: Layer) {
        self.laps.lap(layer as usize);
    }

    /// The mover took so many bytes.
    pub(crate) fn fed(&mut self, bytes: usize) {
        self.lap(if bytes < COPY_MIN { Layer::Receive } else { Layer::Copy });
    }

    /// The port has waited, of that so long in system calls.
    pub(crate) fn waited(&mut self, kernel_cycles: u64) {
        self.laps.lap_of_two(Layer::Idle as usize, Layer::Kernel as usize, kernel_cycles);
    }

    /// A request was posted.
    pub(crate) fn posted(&mut self) {
        self.requests += u64::from(self.laps.is_on());
        self.lap(Layer::Post);
    }

    /// What was counted so far. What the caller does with it is not timed.
    pub(crate) fn times(&mut self) -> Times {
        self.laps.stop();
        let layers = NAMES.into_iter().zip(self.laps.layers().iter().cloned()).collect();
        Times { requests: self.requests, layers, copied: 0, digested: 0 }
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
    /// Payload bytes copied, by the connections that are there.
    pub copied: u64,
    /// Payload bytes run through CRC32C.
    pub digested: u64,
}
