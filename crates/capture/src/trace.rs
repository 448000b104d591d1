// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace: the PDUs of connections that somebody asks for while they are there, for a reader who
//! may be slow.
//!
//! A [`Follower`] is at one connection. What it gives waits in a bounded queue for whoever takes it
//! ([`Trace::take`]); what does not fit there is counted, and not waited for.

mod cutter;
mod follower;
mod mask;
mod tags;

use std::fmt;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use wire::pcap;
use wire::pcap::Flags;
use wire::pcap::SEGMENT_LEN_MAX;
use wire::pcap::Segment;

pub use cutter::Framing;
pub use follower::Follower;
pub use follower::Who;

/// What may wait to be taken, bytes: a tenth of a second of small commands at full speed, and no
/// more memory than a few sessions have.
const QUEUE_BYTES_MAX: usize = 16 << 20;

/// Bytes of each data segment of a user that may be kept: what a segment of TCP has room for.
pub const DATA_MAX: usize = 64_000;

/// Which PDUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // who asks says all of it
pub struct Filter {
    /// Of sessions with this target alone.
    pub target: Option<String>,
    /// Of this initiator alone.
    pub initiator: Option<String>,
    /// Of the session with this handle alone.
    pub tsih: Option<u16>,
    /// Of what is for a unit only those for this one.
    pub lun: Option<u16>,
}

/// What is kept, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // who asks says all of it
pub struct Terms {
    /// Which PDUs.
    pub filter: Filter,
    /// Bytes of each data segment of a user; [`DATA_MAX`] at most.
    pub data_max: usize,
    /// Bytes of the whole trace.
    pub limit: u64,
}

/// Why a trace takes nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEnd {
    /// It is as long as it may get.
    Limit,
    /// Its time is over.
    Time,
    /// Its reader wants no more, or has gone.
    Reader,
    /// Its reader has taken nothing for long.
    Stalled,
    /// The process ends.
    Process,
}

impl fmt::Display for TraceEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Limit => "limit",
            Self::Time => "time",
            Self::Reader => "reader",
            Self::Stalled => "stalled",
            Self::Process => "process",
        })
    }
}

/// How far a trace is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceFigures {
    /// PDUs that were recorded.
    pub pdus: u64,
    /// Bytes of all records and of what is before them.
    pub bytes: u64,
    /// PDUs that are missing between them: there was no room for them.
    pub lost: u64,
    /// Connections that something was recorded of, or would have been.
    pub connections: u64,
}

/// A trace; clones are the same one.
#[derive(Clone, Debug)]
pub struct Trace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    terms: Terms,
    is_open: AtomicBool,
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Debug)]
struct Queue {
    waiting: Vec<u8>,
    figures: TraceFigures,
    end: Option<TraceEnd>,
}

/// What is there to be taken.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // there is something, it is over, or neither
pub enum Taken {
    /// Whole records.
    Records(Vec<u8>),
    /// Nothing has come in that time.
    Nothing,
    /// Nothing more comes.
    Over(TraceEnd),
}

impl Trace {
    /// Takes PDUs until it is stopped or has enough.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        let begin = pcap::file_header();
        let figures = TraceFigures { bytes: begin.len() as u64, ..TraceFigures::default() };
        let queue = Queue { waiting: begin.to_vec(), figures, end: None };
        Self(Arc::new(Inner {
            terms,
            is_open: AtomicBool::new(true),
            queue: Mutex::new(queue),
            filled: Condvar::new(),
        }))
    }

    /// What it was asked for.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.0.terms
    }

    /// Whether more is taken.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.is_open.load(Ordering::Relaxed)
    }

    /// How far it is.
    #[must_use]
    pub fn figures(&self) -> TraceFigures {
        self.lock().figures
    }

    /// Whether both are the same one.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Takes nothing more, unless it did not before.
    pub fn stop(&self, why: TraceEnd) {
        let mut queue = self.lock();
        self.0.is_open.store(false, Ordering::Relaxed);
        queue.end.get_or_insert(why);
        drop(queue);
        self.0.filled.notify_all();
    }

    /// What there is; waits for it for so long at most.
    #[must_use]
    pub fn take(&self, patience: Duration) -> Taken {
        let queue = self.lock();
        let is_idle = |queue: &mut Queue| queue.waiting.is_empty() && queue.end.is_none();
        let waited = self.0.filled.wait_timeout_while(queue, patience, is_idle);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (mem::take(&mut queue.waiting), queue.end) {
            (records, _) if !records.is_empty() => Taken::Records(records),
            (_, Some(end)) => Taken::Over(end),
            _ => Taken::Nothing,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_connection(&self) {
        self.lock().figures.connections += 1;
    }

    fn count_lost(&self, pdus: u64) {
        self.lock().figures.lost += pdus;
    }

    /// Takes one PDU, or the first and last words of a connection, whole or not at all.
    fn push(&self, time: Duration, packet: &Packet<'_>) {
        if !self.is_open() {
            return;
        }
        let length = packet.segments().map(|segment| segment.record_len()).sum::<usize>();
        let is_pdu = u64::from(!packet.kept.is_empty());
        let mut queue = self.lock();
        if queue.end.is_some() {
            return;
        }
        if queue.figures.bytes + length as u64 > self.0.terms.limit {
            self.0.is_open.store(false, Ordering::Relaxed);
            queue.end = Some(TraceEnd::Limit);
        } else if queue.waiting.len() + length > QUEUE_BYTES_MAX {
            queue.figures.lost += is_pdu;
            return;
        } else {
            queue.figures.pdus += is_pdu;
            queue.figures.bytes += length as u64;
            packet.segments().for_each(|segment| segment.emit(time, &mut queue.waiting));
        }
        drop(queue);
        self.0.filled.notify_one();
    }
}

/// What is said at once in one direction of a connection.
#[derive(Clone, Copy, Debug)]
struct Packet<'a> {
    from: SocketAddr,
    to: SocketAddr,
    sequence: u32,
    acknowledged: u32,
    flags: Flags,
    /// The beginning of a PDU.
    kept: &'a [u8],
    /// Its whole length.
    length: usize,
}

impl<'a> Packet<'a> {
    /// The first one has all that is kept.
    fn segments(&self) -> impl Iterator<Item = Segment<'a>> {
        let Self { from, to, sequence, acknowledged, flags, kept, length } = *self;
        let starts = (0..length.max(1)).step_by(SEGMENT_LEN_MAX);
        starts.map(move |start| {
            let payload = if start == 0 { kept } else { &[] };
            let missing = (length - start).min(SEGMENT_LEN_MAX).saturating_sub(payload.len());
            let start = u32::try_from(start).unwrap_or_default();
            let sequence = sequence.wrapping_add(start);
            Segment { from, to, sequence, acknowledged, flags, payload, missing }
        })
    }
}

#[cfg(test)]
mod tests;
