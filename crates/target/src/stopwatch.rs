// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of a reactor goes, layer by layer, and which bytes it has touched.
//!
//! The pump alone crosses borders, so it alone stamps them ([`engine::laps`]).

use engine::laps;
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

/// The layers in their order, by the names that users see.
const NAMES: [&str; COUNT] = [
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

/// Data taken from a stream at once that is more than a few headers: the time went into copying.
const COPY_MIN: usize = 1024;

/// The stop-watch of one pump.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    laps: Laps<COUNT>,
    /// Commands of turns that were timed.
    commands: u64,
    /// Bytes that the pump itself has copied.
    pub(crate) copied: u64,
    /// Bytes of writes that a store took at once.
    pub(crate) stored: u64,
}

impl Stopwatch {
    /// A turn begins.
    pub(crate) fn begin(&mut self) {
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

    /// A command has come.
    pub(crate) fn command(&mut self) {
        self.lap(Layer::Protocol);
        self.commands += u64::from(self.laps.is_on());
    }

    /// A store's work goes to the port: when, or zero.
    pub(crate) fn stamp(&self) -> u64 {
        if self.laps.is_on() { engine::cycles::glance() } else { 0 }
    }

    /// A store's work that began at `stamp` is done.
    pub(crate) fn store_done(&mut self, stamp: u64) {
        if stamp != 0 {
            let waited = engine::cycles::glance().wrapping_sub(stamp);
            self.laps.add(Layer::StoreWait as usize, waited);
        }
    }

    /// A store has done `op` at once.
    pub(crate) fn stored(&mut self, op: &store::Op) {
        if let store::Op::Write { data, .. } = op {
            self.stored += data.len() as u64;
        }
        self.lap(Layer::Store);
    }

    /// What was counted so far.
    pub(crate) fn times(&self) -> Times {
        let layers = NAMES.into_iter().zip(self.laps.layers().iter().cloned()).collect();
        let (copied, stored) = (self.copied, self.stored);
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
    /// Bytes of data taken from and given to initiators by the sessions that are there.
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
    pub(crate) fn join(&mut self, other: Self) {
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
