// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of a reactor goes, layer by layer, and which bytes it has touched.
//!
//! The pump alone crosses borders, so it alone stamps them ([`engine::laps`]).

use engine::laps;
use engine::laps::Border;
use engine::laps::Laps;

/// What a pump leaves when it crosses a border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// The mover: bytes to events.
    Receive,
    /// The mover: received data into its buffer, with the digest.
    Copy,
    /// The iSCSI machines.
    Protocol,
    /// The device server.
    Scsi,
    /// A store, as far as it works at once.
    Store,
    /// The mover: operations to gather lists, with digests, and handing them to the port.
    Send,
    /// The kernel: sending and receiving.
    Kernel,
    /// Spinning and sleeping, with what the kernel does meanwhile.
    Idle,
    /// Letters, timers and jobs.
    Other,
    /// From a store's work to its end: not time of this thread.
    StoreWait,
}

const COUNT: usize = 10;

impl Border<COUNT> for Layer {
    const NAMES: [&'static str; COUNT] = [
        "receive",
        "copy",
        "protocol",
        "scsi",
        "store",
        "send",
        "kernel",
        "idle",
        "other",
        "store-wait",
    ];
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
    /// Commands of turns that were timed.
    commands: u64,
    /// Bytes that the pump itself has copied.
    pub(crate) copied: u64,
    /// Bytes of writes that a store took at once.
    pub(crate) stored: u64,
}

impl Stopwatch {
    /// A command has come.
    pub(crate) fn command(&mut self) {
        self.laps.lap(Layer::Protocol);
        self.commands += u64::from(self.laps.is_on());
    }

    /// A store has done `op` at once.
    pub(crate) fn stored(&mut self, op: &store::Op) {
        if let store::Op::Write { data, .. } = op {
            self.stored += data.len() as u64;
        }
        self.laps.lap(Layer::Store);
    }

    /// What was counted so far.
    pub(crate) fn times(&self) -> Times {
        let (copied, stored) = (self.copied, self.stored);
        let layers = self.laps.layers();
        Times { commands: self.commands, layers, copied, stored, ..Times::default() }
    }
}

/// Where the time of reactors went, and which bytes they touched, since they began.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Times {
    /// Commands that were timed: one in a few.
    pub commands: u64,
    /// Their layers by name, in the order in which a command passes them.
    pub layers: Vec<(&'static str, laps::Layer)>,
    /// Bytes of data taken from and given to initiators.
    pub payload: u64,
    /// Payload bytes copied by movers and pumps.
    pub copied: u64,
    /// Payload bytes that stores took at once, which is a copy if they keep them in memory.
    pub stored: u64,
    /// Payload bytes run through CRC32C.
    pub digested: u64,
}

impl Times {
    /// Those of another reactor join these.
    pub fn join(&mut self, other: Self) {
        self.commands += other.commands;
        self.payload += other.payload;
        self.copied += other.copied;
        self.stored += other.stored;
        self.digested += other.digested;
        if self.layers.is_empty() {
            self.layers = other.layers;
            return;
        }
        for ((_, own), (_, other)) in self.layers.iter_mut().zip(&other.layers) {
            own.join(other);
        }
    }
}
