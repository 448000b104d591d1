// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection over an adapter.
//!
//! ```text
//!   prepared --accept, or the peer does--> up --the peer's end, an error, Disconnect--> over
//! ```
//!
//! The adapter is given a number for each operation, and what it reads or writes lies in a table
//! here under that number until the operation is complete, or the queue pair is destroyed: then
//! the adapter touches no memory any more. A number that comes twice is nobody's.

use crate::abi;
use crate::abi::Sge;
use crate::abi::Wc;
use crate::adapter::Adapter;
use crate::api::Api;
use crate::domain::Domain;
use crate::domain::Region;
use crate::error::Doing;
use crate::error::VerbsError;
use crate::failure::Failure;
use crate::keys::Keys;
use crate::limits::COMPLETIONS;
use crate::limits::SLOT_LEN;
use crate::manager::Id;
use crate::manager::watch;
use crate::queue::Completions;
use crate::queue::Order;
use crate::queue::Pair;
use buf::Buf;
use buf::Pool;
use buf::Slice;
use rdma::adapter::Depths;
use rdma::adapter::Done;
use rdma::adapter::Post;
use rdma::adapter::Read;
use rdma::adapter::Registry;
use rdma::verbs::End;
use rdma::verbs::Work;
use rdma::verbs::WorkId;
use rdma::violation::Violation;
use slots::Slots;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use wire::iwarp::Stag;

/// One connection over an adapter: takes [`Post`]s, gives [`Done`]s.
pub struct Connection {
    api: &'static Api,
    /// None: all that was under way has come back.
    pair: Option<Pair>,
    completions: Completions,
    /// Can be read when there is something to be looked at.
    watched: OwnedFd,
    flights: Slots<FlightId, Flight>,
    sinks: BTreeMap<u32, Sink>,
    /// None: nothing is sent yet.
    slots: Option<SendSlots>,
    done: VecDeque<Done>,
    /// Something may have happened to the connection.
    stirred: bool,
    /// Of `flights`: those that are no buffers.
    works: usize,
    depths: Depths,
    reads: (u8, u8),
    failure: Failure,
    /// Behind all of this: it takes the memory from the device that this was in.
    domain: Arc<Domain>,
    /// Last: a device that was taken away is closed with the last identifier of it.
    pub(crate) id: Arc<Id>,
}

/// What a connection over an adapter is, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // whoever plays an adapter fills it in
pub struct Facts {
    /// The device.
    pub device: String,
    /// RDMA Reads of the peer that are served at once (IRD).
    pub ird: usize,
    /// RDMA Reads of ours that the peer serves at once (ORD).
    pub ord: usize,
    /// Keys that the peer may have been told, of what Reads fill.
    pub keys: usize,
    /// Bytes of the memory that the adapter has for it: for messages, and what Reads fill.
    pub registered: usize,
}

/// What is under way, and what it has.
enum Flight {
    Receive(Buf),
    Send {
        id: WorkId,
        slot: Option<u32>,
        #[expect(dead_code, reason = "held, not read")]
        payload: Payload,
    },
    Read {
        id: WorkId,
        sink: u32,
    },
}

/// What the adapter reads from memory that is not its own slot's.
#[derive(Default)]
struct Payload {
    /// Before the bytes: it ends first.
    #[expect(dead_code, reason = "held, not read")]
    region: Option<Region>,
    #[expect(dead_code, reason = "held, not read")]
    slice: Option<Slice>,
}

/// Memory that Reads fill.
struct Sink {
    /// Of this memory alone, where Reads name it on the wire.
    region: Option<Region>,
    buf: Buf,
    reads: usize,
}

/// Places for the heads of Sends.
struct SendSlots {
    buf: Buf,
    key: u32,
    free: Vec<u32>,
}

impl Connection {
    pub(crate) fn new(
        api: &'static Api,
        id: Id,
        (domain, depths, reads): (Arc<Domain>, Depths, (u8, u8)),
    ) -> Result<Self, VerbsError> {
        let works = depths.sends + depths.reads;
        let entries = (works + depths.receives).min(domain.facts.completions_max);
        let completions = Completions::new(api, &domain, entries)?;
        let watched = watch([id.channel.fd(), completions.fd()])
            .map_err(|errno| VerbsError::of(Doing::CompletionQueue, errno.raw_os_error()))?;
        let pair = Pair::new(api, (&id, &domain), &completions, (works, depths.receives))?;
        Ok(Self {
            api,
            pair: Some(pair),
            completions,
            watched,
            flights: Slots::default(),
            sinks: BTreeMap::new(),
            slots: None,
            done: VecDeque::new(),
            stirred: true,
            works: 0,
            depths,
            reads,
            failure: Failure::default(),
            domain,
            id: Arc::new(id),
        })
    }

    /// Takes what it needs itself from `pool`, before anything is posted.
    pub(crate) fn furnish(&mut self, pool: &Pool) -> Result<(), VerbsError> {
        self.slots = Some(SendSlots::new(&self.domain, self.depths.sends, pool)?);
        Ok(())
    }

    /// What both sides have agreed on: Reads that are served, and that are under way.
    pub(crate) fn agree(&mut self, reads: (u8, u8)) {
        self.reads = reads;
    }

    /// Lets the peer reach memory of ours.
    #[must_use]
    pub fn keys(&self) -> Keys {
        Keys::new((Arc::clone(&self.domain), Arc::clone(&self.id)), self.failure.clone())
    }

    /// Why it has ended, if something went wrong; once.
    #[must_use]
    pub fn take_failure(&self) -> Option<VerbsError> {
        self.failure.take()
    }

    /// What it is, for people. Looks at all that is under way.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let buffers = self.flights.values().map(|flight| match flight {
            Flight::Receive(buf) => buf.len(),
            Flight::Send { .. } | Flight::Read { .. } => 0,
        });
        let slots = self.slots.iter().map(|slots| slots.buf.len());
        let sinks = self.sinks.values().map(|sink| sink.buf.len());
        Facts {
            device: self.device().to_owned(),
            ird: self.reads.0.into(),
            ord: self.reads.1.into(),
            keys: self.sinks.values().filter(|sink| sink.region.is_some()).count(),
            registered: buffers.chain(slots).chain(sinks).sum(),
        }
    }

    /// Whether it goes over iWARP.
    #[must_use]
    pub fn is_iwarp(&self) -> bool {
        self.domain.facts.is_iwarp
    }

    /// Says yes to who asked for the connection, with these bytes. Buffers for what comes first
    /// were posted.
    ///
    /// # Errors
    /// It is gone.
    pub fn accept(&self, private_data: &[u8]) -> Result<(), VerbsError> {
        self.id.accept(private_data, self.reads)
    }

    /// A descriptor that can be read when there is something to be looked at.
    ///
    /// # Errors
    /// There are too many descriptors.
    pub fn watched(&self) -> io::Result<OwnedFd> {
        self.watched.try_clone()
    }

    /// The device that carries it.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.domain.facts.device
    }

    /// What may be under way.
    #[must_use]
    pub const fn depths(&self) -> Depths {
        self.depths
    }

    /// Sends, Writes and Reads that are under way.
    #[must_use]
    pub const fn under_way(&self) -> usize {
        self.works
    }

    /// Begins what is posted. What cannot be begun ends the connection.
    pub fn post(&mut self, post: Post) {
        let posted = match post {
            Post::Receive(buf) => self.receive(buf),
            Post::Send(id, work) => self.send(id, work),
            Post::Read(id, read) => self.read(id, read),
            Post::Disconnect => {
                self.end(End::Closed);
                Ok(())
            }
        };
        if let Err(error) = posted {
            self.fail(error);
        }
    }

    /// The descriptor can be read: what there is to be looked at, `poll` finds.
    pub fn look(&mut self) {
        self.stirred = true;
        if self.pair.is_some()
            && let Err(error) = self.completions.rearm()
        {
            self.fail(error);
        }
    }

    /// The next thing that the adapter has done.
    pub fn poll(&mut self) -> Option<Done> {
        if self.done.is_empty() && self.pair.is_some() && !self.gather() {
            self.hear();
        }
        self.done.pop_front()
    }

    /// Whether `poll` has something that it found already.
    #[must_use]
    pub fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Ends the connection in good order: nothing is under way.
    pub fn shutdown(&self) {
        if self.pair.is_some() {
            self.id.disconnect();
        }
    }

    /// Takes completions; false if there was none.
    fn gather(&mut self) -> bool {
        let mut all = [Wc::default(); COMPLETIONS];
        let count = match self.completions.take(&mut all) {
            Ok(count) => count,
            Err(error) => {
                self.fail(error);
                return true;
            }
        };
        for completion in all.iter().take(count) {
            self.completed(completion);
        }
        count > 0
    }

    fn completed(&mut self, completion: &Wc) {
        let Some(flight) = self.flights.remove(FlightId(completion.id)) else { return };
        if completion.status != abi::SUCCESS {
            if completion.status != abi::FLUSHED {
                let (status, vendor) = (completion.status, completion.vendor_error);
                tracing::info!(device = self.device(), status, vendor, "an RDMA operation failed");
                self.failure.note(VerbsError::Operation { status, vendor });
            }
            let is_read = matches!(flight, Flight::Read { .. });
            // What it has is the adapter's until the pair is destroyed.
            self.flights.insert(flight);
            let end = match completion.status {
                abi::FLUSHED if !is_read => End::Closed,
                _ => End::Violated(Violation::Lost),
            };
            return self.end(end);
        }
        match flight {
            Flight::Receive(buf) => {
                let length = usize::try_from(completion.byte_len).unwrap_or(usize::MAX);
                let length = length.min(buf.len());
                self.done.push_back(Done::Received { buf, length });
            }
            Flight::Send { id, slot, .. } => {
                self.works -= 1;
                self.slots.iter_mut().for_each(|slots| slots.free.extend(slot));
                self.done.push_back(Done::Sent(id));
            }
            Flight::Read { id, sink } => {
                self.works -= 1;
                self.leave_sink(sink);
                self.done.push_back(Done::Read(id));
            }
        }
    }

    /// One Read less fills this memory.
    fn leave_sink(&mut self, sink: u32) {
        let Some(entry) = self.sinks.get_mut(&sink) else { return };
        entry.reads = entry.reads.saturating_sub(1);
        if entry.reads == 0
            && let Some(entry) = self.sinks.remove(&sink)
        {
            self.done.push_back(Done::Returned(Stag(sink), entry.buf));
        }
    }

    /// What has happened to the connection.
    fn hear(&mut self) {
        if !std::mem::take(&mut self.stirred) {
            return;
        }
        while let Some(happened) = self.id.channel.next() {
            let (event, status) = (happened.event, happened.status);
            let end = match event {
                abi::ESTABLISHED => continue,
                abi::DISCONNECTED => End::Closed,
                abi::CONNECT_ERROR | abi::UNREACHABLE | abi::REJECTED | abi::DEVICE_REMOVAL => {
                    tracing::info!(device = self.device(), event, status, "no RDMA connection");
                    if event == abi::DEVICE_REMOVAL {
                        let device = self.device().to_owned();
                        self.failure.note(VerbsError::Removed { device });
                    }
                    End::Violated(Violation::Lost)
                }
                _ => continue,
            };
            // What came before the end is told before it.
            while self.pair.is_some() && self.gather() {}
            return self.end(end);
        }
    }

    /// Something cannot be done.
    fn fail(&mut self, error: VerbsError) {
        tracing::warn!(device = self.device(), %error, "an RDMA connection has failed");
        self.failure.note(error);
        self.end(End::Violated(Violation::Lost));
    }

    /// All that was under way comes back.
    fn end(&mut self, end: End) {
        let Some(pair) = self.pair.take() else { return };
        self.id.disconnect();
        pair.destroy(self.api, &self.id);
        self.flights = Slots::default();
        self.works = 0;
        for (stag, sink) in std::mem::take(&mut self.sinks) {
            self.done.push_back(Done::Returned(Stag(stag), sink.buf));
        }
        self.done.push_back(Done::Ended(end));
    }

    fn receive(&mut self, mut buf: Buf) -> Result<(), VerbsError> {
        let Some(pair) = &self.pair else { return Ok(()) };
        let lkey = self.domain.key(buf.ground())?;
        let piece = Sge { address: at(buf.as_mut_ptr()), length: len(buf.len())?, lkey };
        let id = self.flights.insert(Flight::Receive(buf));
        // SAFETY: the table has the buffer, and with it its bytes, until the operation is complete
        // or the pair is destroyed; nobody looks at them there.
        let posted = unsafe { pair.receive(id.0, piece) };
        self.settle(id, posted)
    }

    fn send(&mut self, id: WorkId, work: Work) -> Result<(), VerbsError> {
        let Some(pair) = &self.pair else { return Ok(()) };
        let mut order = Order {
            id: 0,
            opcode: abi::SEND,
            flags: abi::SIGNALED,
            invalidate: 0,
            remote_address: 0,
            rkey: 0,
        };
        let (mut pieces, mut count) = ([Sge::default(); 2], 0);
        let (mut slot, mut rest) = (None, Slice::empty());
        match work {
            Work::Send { head, payload, invalidate, .. } => {
                order.flags |= abi::SOLICITED;
                if let Some(stag) = invalidate.filter(|_| self.domain.facts.invalidates) {
                    // rdma-core's siw takes it from where a Write has its key.
                    (order.invalidate, order.rkey) = (stag.0, stag.0);
                    order.opcode = abi::SEND_INVALIDATE;
                }
                let short = head.bytes().len() + payload.len() <= SLOT_LEN;
                let behind: &[u8] = if short { payload.bytes() } else { &[] };
                let full = || VerbsError::of(Doing::QueuePair, NO_ROOM);
                let slots = self.slots.as_mut();
                let filled = slots.and_then(|slots| slots.fill(head.bytes(), behind));
                let (at, piece) = filled.ok_or_else(full)?;
                let length = usize::try_from(piece.length).unwrap_or(usize::MAX);
                if short && length <= pair.inline_max {
                    order.flags |= abi::INLINE;
                }
                (slot, pieces[0], count) = (Some(at), piece, 1);
                if !short {
                    rest = payload;
                }
            }
            Work::Write { payload, stag, offset } => {
                order.opcode = abi::WRITE;
                (order.remote_address, order.rkey) = (offset.0, stag.0);
                rest = payload;
            }
            // Of memory that nobody has named to the adapter.
            Work::Read { .. } => return Err(VerbsError::of(Doing::QueuePair, NO_ROOM)),
        }
        let mut payload = Payload::default();
        if !rest.is_empty() {
            let (piece, region) = self.show(&rest)?;
            pieces[count] = piece;
            count += 1;
            payload = Payload { region, slice: Some(rest) };
        }
        let flight = self.flights.insert(Flight::Send { id, slot, payload });
        order.id = flight.0;
        // SAFETY: the table has the slice, and the slot is nobody else's, until the operation is
        // complete or the pair is destroyed.
        let posted = unsafe { pair.send(order, &mut pieces[..count]) };
        self.works += 1;
        self.settle(flight, posted)
    }

    fn read(&mut self, id: WorkId, read: Read) -> Result<(), VerbsError> {
        let Some(pair) = &self.pair else { return Ok(()) };
        let Read { sink: Stag(name), buf, sink_offset, source, source_offset, length } = read;
        if let Some(buf) = buf {
            // Peers learn the name of what an iWARP adapter's Reads fill: of nothing else.
            let region = match self.domain.facts.is_iwarp {
                true => Some(self.domain.register(
                    buf.as_ptr().expose_provenance(),
                    buf.len(),
                    abi::LOCAL_WRITE | abi::REMOTE_WRITE,
                )?),
                false => None,
            };
            self.sinks.insert(name, Sink { region, buf, reads: 0 });
        }
        let unknown = || VerbsError::of(Doing::QueuePair, NO_ROOM);
        let sink = self.sinks.get_mut(&name).ok_or_else(unknown)?;
        let lkey = match &sink.region {
            Some(region) => region.key(),
            None => self.domain.key(sink.buf.ground())?,
        };
        let range = part(sink_offset, length, sink.buf.len()).ok_or_else(unknown)?;
        // The address alone: other parts of it are being written to.
        let start = sink.buf.as_mut_ptr().wrapping_add(range.start);
        let mut pieces = [Sge { address: at(start), length, lkey }];
        sink.reads += 1;
        let flight = self.flights.insert(Flight::Read { id, sink: name });
        let order = Order {
            id: flight.0,
            opcode: abi::READ,
            flags: abi::SIGNALED,
            invalidate: 0,
            remote_address: source_offset.0,
            rkey: source.0,
        };
        // SAFETY: the table has the buffer until all Reads into it are complete or the pair is
        // destroyed, and nobody looks at its bytes there.
        let posted = unsafe { pair.send(order, &mut pieces) };
        self.works += 1;
        self.settle(flight, posted)
    }

    /// What was not posted will not come back by itself.
    fn settle(&mut self, flight: FlightId, posted: Result<(), i32>) -> Result<(), VerbsError> {
        posted.map_err(|errno| {
            self.flights.discard(flight);
            VerbsError::of(Doing::QueuePair, errno)
        })
    }

    /// The piece that bytes are, in memory of a pool or in memory that is shown for this alone.
    fn show(&self, slice: &Slice) -> Result<(Sge, Option<Region>), VerbsError> {
        let (address, length) = (slice.as_ptr().expose_provenance(), len(slice.len())?);
        let region = match slice.ground() {
            Some(_) => None,
            None => Some(self.domain.register(address, slice.len(), 0)?),
        };
        let lkey = match (&region, slice.ground()) {
            (None, Some(ground)) => self.domain.key(ground)?,
            (Some(region), _) => region.key(),
            (None, None) => 0,
        };
        Ok((Sge { address: address as u64, length, lkey }, region))
    }
}

impl Adapter for Connection {
    fn furnish(&mut self, pool: &Pool) -> Result<(), VerbsError> {
        Self::furnish(self, pool)
    }

    fn accept(&self, private_data: &[u8]) -> Result<(), VerbsError> {
        Self::accept(self, private_data)
    }

    fn post(&mut self, post: Post) {
        Self::post(self, post);
    }

    fn look(&mut self) {
        Self::look(self);
    }

    fn poll(&mut self) -> Option<Done> {
        Self::poll(self)
    }

    fn has_done(&self) -> bool {
        Self::has_done(self)
    }

    fn under_way(&self) -> usize {
        Self::under_way(self)
    }

    fn shutdown(&self) {
        Self::shutdown(self);
    }

    fn watched(&self) -> io::Result<OwnedFd> {
        Self::watched(self)
    }

    fn registry(&self) -> Box<dyn Registry> {
        Box::new(self.keys())
    }

    fn depths(&self) -> Depths {
        Self::depths(self)
    }

    fn is_iwarp(&self) -> bool {
        Self::is_iwarp(self)
    }

    fn take_failure(&self) -> Option<VerbsError> {
        Self::take_failure(self)
    }

    fn facts(&self) -> Facts {
        Self::facts(self)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.end(End::Closed);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("domain", &self.domain)
            .field("under_way", &self.flights.len())
            .field("sinks", &self.sinks.len())
            .finish_non_exhaustive()
    }
}

impl SendSlots {
    fn new(domain: &Domain, count: usize, pool: &Pool) -> Result<Self, VerbsError> {
        let buf = pool.take(count * SLOT_LEN).ok_or(VerbsError::NoBuffers)?;
        let key = domain.key(buf.ground())?;
        Ok(Self { buf, key, free: (0..u32::try_from(count).unwrap_or(0)).collect() })
    }

    /// Puts bytes into a free slot: which, and where that is.
    fn fill(&mut self, head: &[u8], behind: &[u8]) -> Option<(u32, Sge)> {
        let length = head.len().checked_add(behind.len()).filter(|all| *all <= SLOT_LEN)?;
        let slot = self.free.pop()?;
        let start = usize::try_from(slot).ok()?.checked_mul(SLOT_LEN)?;
        if start.checked_add(SLOT_LEN)? > self.buf.len() {
            return None;
        }
        let base = self.buf.as_mut_ptr();
        for (bytes, at) in [(head, start), (behind, start + head.len())] {
            let place = base.wrapping_add(at);
            // SAFETY: the place is within the buffer, as was just seen, and within a slot that the
            // adapter has nothing of. No reference to the buffer's bytes exists: the adapter reads
            // other slots of it.
            unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        let address = at(base.wrapping_add(start));
        Some((slot, Sge { address, length: u32::try_from(length).ok()?, lkey: self.key }))
    }
}

/// The bytes of memory of this length that a Read fills.
fn part(offset: usize, length: u32, all: usize) -> Option<Range<usize>> {
    let end = offset.checked_add(usize::try_from(length).ok()?)?;
    (end <= all).then_some(offset..end)
}

fn at(pointer: *mut u8) -> u64 {
    pointer.expose_provenance() as u64
}

fn len(len: usize) -> Result<u32, VerbsError> {
    u32::try_from(len).map_err(|_| VerbsError::of(Doing::Register, NO_ROOM))
}

/// Names what is under way, for the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlightId(u64);

impl slots::Id for FlightId {
    fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << u32::BITS | u64::from(index))
    }

    fn index(self) -> u32 {
        u32::try_from(self.0 & u64::from(u32::MAX)).unwrap_or_default()
    }

    fn generation(self) -> u32 {
        u32::try_from(self.0 >> u32::BITS).unwrap_or_default()
    }
}

/// `ENOMEM`: as the functions of the library say that a queue is full.
const NO_ROOM: i32 = 12;
