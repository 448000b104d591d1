// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Segments that come in: checked, placed, and told when a message is whole. Read first:
//! RFC 5041 §5 and §7, RFC 5040 §5.
//!
//! TCP keeps the order, so what comes is either next or wrong. A message is told when its last
//! segment is in place, and so are all bytes that came before it (RFC 5040 §5.5).

use crate::mpa::ReadyType;
use crate::region::Denied;
use crate::region::Place;
use crate::region::Regions;
use crate::region::StreamId;
use crate::region::Withdrawn;
use crate::verbs::Notify;
use crate::verbs::Received;
use crate::verbs::WorkId;
use crate::violation::Violation;
use alloc::collections::VecDeque;
use buf::Buf;
use buf::Slice;
use wire::iwarp::Cause;
use wire::iwarp::Ddp;
use wire::iwarp::IwarpError;
use wire::iwarp::Msn;
use wire::iwarp::Opcode;
use wire::iwarp::READ_QUEUE;
use wire::iwarp::READ_REQUEST_LEN;
use wire::iwarp::ReadRequest;
use wire::iwarp::SEND_QUEUE;
use wire::iwarp::Stag;
use wire::iwarp::TERMINATE_QUEUE;
use wire::iwarp::Tagged;
use wire::iwarp::TaggedOffset;
use wire::iwarp::Terminate;
use wire::iwarp::Untagged;

/// The receiving half of a queue pair.
#[derive(Debug)]
pub(crate) struct Inbound {
    stream: StreamId,
    /// What the first message may be, of which nobody is told (RFC 6581 §5).
    ready: Option<ReadyType>,
    /// Buffers for Sends, in the order in which they are used.
    receives: VecDeque<(WorkId, Buf)>,
    /// Number of the Send that is due, or has begun.
    send_msn: Msn,
    /// The Send that has begun.
    send: Option<Begun>,
    /// Longest message that is lent if it comes in one segment; None: none is.
    lends: Option<usize>,
    read_msn: Msn,
    /// Where an RDMA Write that has begun goes on.
    write: Option<(Stag, TaggedOffset)>,
    /// Our RDMA Reads under way, the oldest first.
    reads: VecDeque<Outstanding>,
}

/// A message of several segments that has begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    /// What all its segments have in common.
    control: u8,
    invalidate: Stag,
    /// Bytes so far.
    offset: u32,
}

/// An RDMA Read of ours under way.
#[derive(Debug)]
pub(crate) struct Outstanding {
    /// Who posted it; None: nobody did.
    pub(crate) id: Option<WorkId>,
    pub(crate) sink: Stag,
    /// Where the next byte goes.
    pub(crate) offset: TaggedOffset,
    /// Bytes to come.
    pub(crate) left: u32,
}

/// What is to be sent for an RDMA Read of the peer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) sink: Stag,
    pub(crate) offset: TaggedOffset,
    pub(crate) payload: Slice,
}

/// What a segment completed.
#[derive(Debug)]
pub(crate) enum Arrival {
    Received(Received),
    /// A message of so many bytes, the end of its segment.
    Lent(usize, Option<(Stag, Withdrawn)>),
    Asked(Response),
    Read(Option<WorkId>),
    Terminated(Option<Cause>),
}

impl Inbound {
    pub(crate) const fn new(stream: StreamId, ready: Option<ReadyType>) -> Self {
        Self {
            stream,
            ready,
            receives: VecDeque::new(),
            send_msn: Msn(1),
            send: None,
            lends: None,
            read_msn: Msn(1),
            write: None,
            reads: VecDeque::new(),
        }
    }

    pub(crate) fn post(&mut self, id: WorkId, buf: Buf) {
        self.receives.push_back((id, buf));
    }

    pub(crate) const fn lend(&mut self, length_max: usize) {
        self.lends = Some(length_max);
    }

    pub(crate) fn receives(&self) -> usize {
        self.receives.len()
    }

    pub(crate) fn expect(&mut self, read: Outstanding) {
        self.reads.push_back(read);
    }

    pub(crate) fn reads(&self) -> usize {
        self.reads.len()
    }

    /// Whether no message has begun and not ended, and no data is owed to us.
    pub(crate) fn is_idle(&self) -> bool {
        self.send.is_none() && self.write.is_none() && self.reads.is_empty()
    }

    /// All that was to be told and will not be.
    pub(crate) fn flush(&mut self) -> impl Iterator<Item = WorkId> + '_ {
        let reads = self.reads.drain(..).filter_map(|read| read.id);
        reads.chain(self.receives.drain(..).map(|(id, _)| id))
    }

    /// Takes a segment; `free_reads` more RDMA Reads of the peer can be served.
    pub(crate) fn handle_segment(
        &mut self,
        segment: &[u8],
        regions: &mut Regions,
        free_reads: usize,
    ) -> Result<Option<Arrival>, Violation> {
        let header = Ddp::parse(segment).map_err(|error| of_segment(error, segment.len()))?;
        let payload = segment.get(header.len()..).unwrap_or_default();
        let ready = self.ready.take();
        match header {
            Ddp::Tagged(header) => self.tagged(header, payload, regions),
            Ddp::Untagged(header) => {
                if header.queue > TERMINATE_QUEUE {
                    return Err(Violation::Queue(header.queue));
                }
                let opcode = opcode(header.control)?;
                if opcode.queue() != Some(header.queue) {
                    return Err(Violation::Opcode(header.control));
                }
                if header.queue == SEND_QUEUE {
                    return self.send(opcode, header, payload, regions, ready);
                }
                if header.queue == READ_QUEUE {
                    let free = if ready == Some(ReadyType::Read) { 1 } else { free_reads };
                    let response = self.asked(header, payload, regions, free)?;
                    return Ok(Some(Arrival::Asked(response)));
                }
                // Whatever is wrong with a Terminate, it ends the stream (RFC 5040 §5.4).
                let cause = Terminate::parse(payload).ok().map(|terminate| terminate.cause);
                Ok(Some(Arrival::Terminated(cause)))
            }
        }
    }

    /// A tagged segment that is whole.
    fn tagged(
        &mut self,
        header: Tagged,
        payload: &[u8],
        regions: &mut Regions,
    ) -> Result<Option<Arrival>, Violation> {
        self.admit(header, payload.len(), regions)?;
        let place = Place { stream: self.stream, stag: header.stag, offset: header.offset };
        regions.place(place, payload).map_err(Violation::Placing)?;
        Ok(self.placed(header, payload.len()))
    }

    /// Whether a tagged segment may come now, an RDMA Write (RFC 5040 §5.1) or a part of what
    /// answers the oldest RDMA Read (§5.2), and whether its payload fits where it says.
    pub(crate) fn admit(
        &self,
        header: Tagged,
        length: usize,
        regions: &Regions,
    ) -> Result<(), Violation> {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        match (opcode(header.control)?, self.reads.front()) {
            (Opcode::Write, _) => {
                if let Some((stag, offset)) = self.write {
                    goes_on(header, stag, offset)?;
                }
            }
            (Opcode::ReadResponse, Some(read)) => {
                goes_on(header, read.sink, read.offset)?;
                let left = read.left.checked_sub(length);
                let left = left.filter(|left| !header.last || *left == 0);
                left.ok_or(Violation::Placing(Denied::Bounds))?;
            }
            _ => return Err(Violation::Opcode(header.control)),
        }
        let place = Place { stream: self.stream, stag: header.stag, offset: header.offset };
        regions.may_place(place, length).map_err(Violation::Placing)
    }

    /// The payload of a segment that was admitted is in place. Nobody is told of an RDMA Write.
    pub(crate) fn placed(&mut self, header: Tagged, length: usize) -> Option<Arrival> {
        self.ready = None;
        let end = behind(header.offset, length);
        if Opcode::parse(header.control) == Ok(Opcode::Write) {
            self.write = (!header.last).then_some((header.stag, end));
            return None;
        }
        let read = self.reads.front_mut()?;
        read.left = read.left.saturating_sub(u32::try_from(length).unwrap_or(u32::MAX));
        read.offset = end;
        if !header.last {
            return None;
        }
        self.reads.pop_front().map(|read| Arrival::Read(read.id))
    }

    /// A segment of a Send (RFC 5040 §5.3).
    fn send(
        &mut self,
        opcode: Opcode,
        header: Untagged,
        payload: &[u8],
        regions: &mut Regions,
        ready: Option<ReadyType>,
    ) -> Result<Option<Arrival>, Violation> {
        let Untagged { last, control, invalidate, msn, offset, .. } = header;
        due(self.send_msn, msn)?;
        let is_ready_message = ready == Some(ReadyType::Send) && payload.is_empty() && last;
        if is_ready_message && offset == 0 {
            self.send_msn = next(msn);
            return Ok(None);
        }
        let begun = self.send.unwrap_or(Begun { control, invalidate, offset: 0 });
        if (begun.control, begun.invalidate) != (control, invalidate) {
            return Err(Violation::Opcode(control));
        }
        if begun.offset != offset {
            return Err(Violation::Offset { wanted: begun.offset, found: offset });
        }
        if let Some(length_max) = self.lends
            && last
            && self.send.is_none()
        {
            if payload.len() > length_max {
                return Err(Violation::TooLong(length_max));
            }
            let invalidated = self.invalidated(opcode, invalidate, regions)?;
            self.send_msn = next(msn);
            return Ok(Some(Arrival::Lent(payload.len(), invalidated)));
        }
        let Some((_, buf)) = self.receives.front_mut() else {
            return Err(Violation::NoBuffer(SEND_QUEUE));
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(payload.len());
        let capacity = buf.len();
        let to = buf.get_mut(start..end).ok_or(Violation::TooLong(capacity))?;
        to.copy_from_slice(payload);
        let length = u32::try_from(end).map_err(|_| Violation::TooLong(capacity))?;
        if !last {
            self.send = Some(Begun { offset: length, ..begun });
            return Ok(None);
        }
        let invalidated = self.invalidated(opcode, invalidate, regions)?;
        self.send = None;
        self.send_msn = next(msn);
        let notify = if opcode.is_solicited() { Notify::Solicited } else { Notify::Quietly };
        Ok(self.receives.pop_front().map(|(id, buf)| {
            Arrival::Received(Received { id, buf, length: end, invalidated, notify })
        }))
    }

    /// The STag that a Send ends (RFC 5040 §5.3), and what it named.
    fn invalidated(
        &self,
        opcode: Opcode,
        invalidate: Stag,
        regions: &mut Regions,
    ) -> Result<Option<(Stag, Withdrawn)>, Violation> {
        if !opcode.invalidates() {
            return Ok(None);
        }
        let withdrawn = regions.invalidate_for(self.stream, invalidate);
        let withdrawn = withdrawn.map_err(|_| Violation::NotInvalidated(invalidate))?;
        Ok(Some((invalidate, withdrawn)))
    }

    /// An RDMA Read Request (RFC 5040 §5.2).
    fn asked(
        &mut self,
        header: Untagged,
        payload: &[u8],
        regions: &mut Regions,
        free: usize,
    ) -> Result<Response, Violation> {
        due(self.read_msn, header.msn)?;
        if free == 0 {
            return Err(Violation::NoBuffer(READ_QUEUE));
        }
        if header.offset != 0 {
            return Err(Violation::Offset { wanted: 0, found: header.offset });
        }
        if payload.len() > READ_REQUEST_LEN || !header.last {
            return Err(Violation::TooLong(READ_REQUEST_LEN));
        }
        let request = payload.first_chunk().map(ReadRequest::parse);
        let request = request.ok_or(Violation::ReadRequestLength(payload.len()))?;
        let (stag, offset) = (request.source_stag, request.source_offset);
        let place = Place { stream: self.stream, stag, offset };
        let payload = regions.fetch(place, request.length).map_err(Violation::Reading)?;
        self.read_msn = next(header.msn);
        Ok(Response { sink: request.sink_stag, offset: request.sink_offset, payload })
    }
}

/// A segment of a tagged message goes on where the one before it ended (RFC 5041 §5.1).
fn goes_on(header: Tagged, stag: Stag, offset: TaggedOffset) -> Result<(), Violation> {
    if header.stag != stag {
        return Err(Violation::Placing(Denied::Stag));
    }
    if header.offset != offset {
        return Err(Violation::Placing(Denied::Bounds));
    }
    Ok(())
}

fn due(wanted: Msn, found: Msn) -> Result<(), Violation> {
    if wanted == found {
        return Ok(());
    }
    Err(Violation::Msn { wanted: wanted.0, found: found.0 })
}

/// Modulo 2^32 (RFC 5041 §5.3).
pub(crate) const fn next(msn: Msn) -> Msn {
    Msn(msn.0.wrapping_add(1))
}

pub(crate) fn behind(offset: TaggedOffset, length: usize) -> TaggedOffset {
    let length = u64::try_from(length).unwrap_or(u64::MAX);
    TaggedOffset(offset.0.wrapping_add(length))
}

fn opcode(control: u8) -> Result<Opcode, Violation> {
    match Opcode::parse(control) {
        Ok(Opcode::Unknown(_)) => Err(Violation::Opcode(control)),
        Ok(opcode) => Ok(opcode),
        Err(_) => Err(Violation::RdmapVersion(control >> 6)),
    }
}

fn of_segment(error: IwarpError, length: usize) -> Violation {
    match error {
        IwarpError::DdpVersion { version, tagged } => Violation::DdpVersion { version, tagged },
        _ => Violation::UlpduLength(u16::try_from(length).unwrap_or(u16::MAX)),
    }
}
