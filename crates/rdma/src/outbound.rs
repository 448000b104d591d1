// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages that go out, cut into segments. Read first: RFC 5041 §5, RFC 5040 §5.
//!
//! Messages are not interleaved. Work goes out in the order in which it was posted; responses to
//! the peer's RDMA Reads in the order in which it asked, and one of each in turn, so that neither
//! side waits for the other for ever.

use crate::inbound::Outstanding;
use crate::inbound::Response;
use crate::inbound::next;
use crate::limits::HEAD_LEN_MAX;
use crate::limits::TRANSMIT_LEN_MAX;
use crate::limits::TRANSMIT_PIECES_MAX;
use crate::mpa::Framing;
use crate::mpa::ReadyType;
use crate::mpa::Sender;
use crate::verbs::Head;
use crate::verbs::Work;
use crate::verbs::WorkId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use buf::SgList;
use buf::Slice;
use wire::iwarp::MULPDU_MIN;
use wire::iwarp::Markers;
use wire::iwarp::Msn;
use wire::iwarp::Opcode;
use wire::iwarp::READ_QUEUE;
use wire::iwarp::READ_REQUEST_LEN;
use wire::iwarp::ReadRequest;
use wire::iwarp::SEND_QUEUE;
use wire::iwarp::Stag;
use wire::iwarp::TAGGED_LEN;
use wire::iwarp::TERMINATE_QUEUE;
use wire::iwarp::Tagged;
use wire::iwarp::TaggedOffset;
use wire::iwarp::Terminate;
use wire::iwarp::UNTAGGED_LEN;
use wire::iwarp::Untagged;
use wire::iwarp::mulpdu;

/// The sending half of a queue pair.
#[derive(Debug)]
pub(crate) struct Outbound {
    sender: Sender,
    markers: Markers,
    /// Longest segment.
    mulpdu: usize,
    works: VecDeque<(WorkId, Work)>,
    responses: VecDeque<Response>,
    current: Option<Message>,
    /// Whose turn it is next.
    turn: Turn,
    send_msn: Msn,
    read_msn: Msn,
    /// RDMA Reads that have gone out and that the other half has not been told of.
    asked: Vec<Outstanding>,
    /// Operations whose last byte is with the transport.
    handed: Vec<WorkId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Works,
    Responses,
}

/// A message that is being sent.
#[derive(Debug)]
struct Message {
    header: Header,
    /// How it begins: in its first segment.
    head: Head,
    payload: Slice,
    /// Bytes that have been cut off.
    sent: usize,
    /// Who is told of its end.
    id: Option<WorkId>,
}

#[derive(Debug)]
enum Header {
    Tagged(Tagged),
    Untagged(Untagged),
    /// With all of its message (RFC 5040 §5.2).
    Asking(Untagged, ReadRequest),
}

impl Outbound {
    pub(crate) fn new(framing: Framing, segment_len: usize) -> Self {
        Self {
            sender: Sender::new(framing),
            markers: framing.sent,
            mulpdu: mulpdu(segment_len, framing.sent),
            works: VecDeque::new(),
            responses: VecDeque::new(),
            current: None,
            turn: Turn::Works,
            send_msn: Msn(1),
            read_msn: Msn(1),
            asked: Vec::new(),
            handed: Vec::new(),
        }
    }

    pub(crate) fn set_segment_len(&mut self, segment_len: usize) {
        self.mulpdu = mulpdu(segment_len, self.markers);
    }

    /// Bytes of the longest FPDU, without markers: length, segment, filling and CRC.
    pub(crate) const fn fpdu_len(&self) -> usize {
        (2 + self.mulpdu).next_multiple_of(4) + 4
    }

    pub(crate) fn post(&mut self, id: WorkId, work: Work) {
        self.works.push_back((id, work));
    }

    pub(crate) fn works(&self) -> usize {
        self.works.len()
    }

    pub(crate) fn respond(&mut self, response: Response) {
        self.responses.push_back(response);
    }

    /// RDMA Reads of the peer that wait for their data.
    pub(crate) fn responses(&self) -> usize {
        self.responses.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.works.is_empty()
            && self.responses.is_empty()
            && self.current.is_none()
            && self.handed.is_empty()
    }

    /// The first message of a peer-to-peer connection (RFC 6581 §5).
    pub(crate) fn begin(&mut self, ready: ReadyType) {
        let (stag, offset) = (Stag(0), TaggedOffset(0));
        match ready {
            ReadyType::Send => {
                self.current = Some(self.send(Opcode::Send, stag, Head::EMPTY, Slice::empty()));
            }
            ReadyType::Write => {
                self.current = Some(tagged(Opcode::Write, stag, offset, Slice::empty()));
            }
            ReadyType::Read => {
                let request = ReadRequest {
                    sink_stag: stag,
                    sink_offset: offset,
                    length: 0,
                    source_stag: stag,
                    source_offset: offset,
                };
                self.current = Some(self.read(request));
                self.asked.push(Outstanding { id: None, sink: stag, offset, left: 0 });
            }
        }
    }

    /// The last message; what else was to be sent is dropped, and its posters are named.
    pub(crate) fn terminate(&mut self, terminate: Option<&Terminate>) -> Vec<WorkId> {
        let mut flushed = core::mem::take(&mut self.handed);
        flushed.extend(self.current.take().and_then(|message| message.id));
        flushed.extend(self.works.drain(..).map(|(id, _)| id));
        self.responses.clear();
        self.current = terminate.map(|terminate| Message {
            header: Header::Untagged(Untagged {
                last: true,
                control: Opcode::Terminate.control(),
                invalidate: Stag(0),
                queue: TERMINATE_QUEUE,
                msn: Msn(1),
                offset: 0,
            }),
            head: Head::EMPTY,
            payload: Slice::from(terminate.emit()),
            sent: 0,
            id: None,
        });
        flushed
    }

    /// Appends segments; `free_reads` more RDMA Reads may be under way.
    pub(crate) fn poll_transmit(&mut self, out: &mut SgList, free_reads: usize) {
        while out.len() < TRANSMIT_LEN_MAX && out.pieces() < TRANSMIT_PIECES_MAX {
            if self.current.is_none() && !self.next_message(free_reads) {
                return;
            }
            self.segment(out);
        }
    }

    /// The RDMA Reads that have gone out since it was asked last, in order.
    pub(crate) fn asked(&mut self) -> impl Iterator<Item = Outstanding> + '_ {
        self.asked.drain(..)
    }

    /// All that was appended has left: who is told.
    pub(crate) fn sent(&mut self) -> impl Iterator<Item = WorkId> + '_ {
        self.handed.drain(..)
    }

    /// Makes the message that is next the current one; false if there is none.
    fn next_message(&mut self, free_reads: usize) -> bool {
        let is_read = matches!(self.works.front(), Some((_, Work::Read { .. })));
        let blocked = is_read && self.asked.len() >= free_reads;
        let may_work = !blocked && !self.works.is_empty();
        let respond = !self.responses.is_empty() && (self.turn == Turn::Responses || !may_work);
        if respond {
            self.turn = Turn::Works;
            self.current = self.responses.pop_front().map(|Response { sink, offset, payload }| {
                tagged(Opcode::ReadResponse, sink, offset, payload)
            });
        } else if may_work {
            self.turn = Turn::Responses;
            let next = self.works.pop_front();
            self.current = next.map(|(id, work)| self.message(id, work));
        }
        self.current.is_some()
    }

    fn message(&mut self, id: WorkId, work: Work) -> Message {
        let opcode = work.opcode();
        let id = Some(id);
        match work {
            Work::Send { head, payload, invalidate, .. } => {
                Message { id, ..self.send(opcode, invalidate.unwrap_or_default(), head, payload) }
            }
            Work::Write { payload, stag, offset } => {
                Message { id, ..tagged(opcode, stag, offset, payload) }
            }
            Work::Read { sink, sink_offset, source, source_offset, length } => {
                let (offset, left) = (sink_offset, length);
                self.asked.push(Outstanding { id, sink, offset, left });
                self.read(ReadRequest {
                    sink_stag: sink,
                    sink_offset,
                    length,
                    source_stag: source,
                    source_offset,
                })
            }
        }
    }

    fn send(&mut self, opcode: Opcode, invalidate: Stag, head: Head, payload: Slice) -> Message {
        let msn = self.send_msn;
        self.send_msn = next(msn);
        let header = Untagged {
            last: false,
            control: opcode.control(),
            invalidate,
            queue: SEND_QUEUE,
            msn,
            offset: 0,
        };
        Message { header: Header::Untagged(header), head, payload, sent: 0, id: None }
    }

    fn read(&mut self, request: ReadRequest) -> Message {
        let msn = self.read_msn;
        self.read_msn = next(msn);
        let header = Untagged {
            last: true,
            control: Opcode::ReadRequest.control(),
            invalidate: Stag(0),
            queue: READ_QUEUE,
            msn,
            offset: 0,
        };
        let (header, payload) = (Header::Asking(header, request), Slice::empty());
        Message { header, head: Head::EMPTY, payload, sent: 0, id: None }
    }

    /// Appends the next segment of the current message.
    fn segment(&mut self, out: &mut SgList) {
        let Some(message) = &mut self.current else { return };
        let header_len = match message.header {
            Header::Tagged(_) => TAGGED_LEN,
            Header::Untagged(_) => UNTAGGED_LEN,
            Header::Asking(..) => REQUEST_LEN,
        };
        let head_len = message.head.bytes().len();
        let length = head_len + message.payload.len();
        let start = message.sent;
        let end = length.min(start + (self.mulpdu - header_len));
        let last = end == length;
        // The head lies in the first segment.
        let range = start.saturating_sub(head_len)..end - head_len;
        let payload = message.payload.part(range).expect("a part lies within its message");
        match &message.header {
            Header::Tagged(header) => {
                let into = u64::try_from(start).expect("a length fits 64 bits");
                let offset = TaggedOffset(header.offset.0.wrapping_add(into));
                let header = Tagged { last, offset, ..*header };
                self.sender.frame(&header.emit(), &payload, out);
            }
            Header::Untagged(header) => {
                let offset = u32::try_from(start).expect("messages are measured when posted");
                let header = Untagged { last, offset, ..*header }.emit();
                let mut bytes = [0; UNTAGGED_LEN + HEAD_LEN_MAX];
                let (front, back) = bytes.split_at_mut(UNTAGGED_LEN);
                front.copy_from_slice(&header);
                let head = if start == 0 { message.head.bytes() } else { &[] };
                let back = back.get_mut(..head.len()).expect("a head has its bound");
                back.copy_from_slice(head);
                let whole = bytes.get(..UNTAGGED_LEN + head.len()).expect("as above");
                self.sender.frame(whole, &payload, out);
            }
            Header::Asking(header, request) => {
                let mut bytes = [0; REQUEST_LEN];
                let (front, back) = bytes.split_at_mut(UNTAGGED_LEN);
                front.copy_from_slice(&header.emit());
                back.copy_from_slice(&request.emit());
                self.sender.frame(&bytes, &payload, out);
            }
        }
        message.sent = end;
        if last {
            self.handed.extend(message.id);
            self.current = None;
        }
    }
}

/// Bytes of a segment that is a Read Request.
const REQUEST_LEN: usize = UNTAGGED_LEN + READ_REQUEST_LEN;

const _: () = assert!(REQUEST_LEN <= MULPDU_MIN, "it is never cut");
const _: () = assert!(UNTAGGED_LEN + HEAD_LEN_MAX <= MULPDU_MIN, "nor is a head");

fn tagged(opcode: Opcode, stag: Stag, offset: TaggedOffset, payload: Slice) -> Message {
    let header = Tagged { last: false, control: opcode.control(), stag, offset };
    let head = Head::EMPTY;
    Message { header: Header::Tagged(header), head, payload, sent: 0, id: None }
}
