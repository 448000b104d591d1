// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue pair against a peer that sends what it likes: good FPDUs with any segments in them, and
//! now and then any bytes.

use crate::input::Input;
use crate::with_pool;
use buf::Pool;
use buf::SgList;
use buf::Slice;
use rdma::mpa::Agreed;
use rdma::mpa::Depths;
use rdma::mpa::Framing;
use rdma::mpa::ReadyType;
use rdma::mpa::Sender;
use rdma::mpa::Side;
use rdma::qp::QueuePair;
use rdma::region::Memory;
use rdma::region::Regions;
use rdma::region::StreamId;
use rdma::verbs::Event;
use rdma::verbs::Head;
use rdma::verbs::Notify;
use rdma::verbs::Work;
use rdma::verbs::WorkId;
use wire::iwarp::Msn;
use wire::iwarp::QueueNumber;
use wire::iwarp::READ_REQUEST_LEN;
use wire::iwarp::ReadRequest;
use wire::iwarp::Stag;
use wire::iwarp::Tagged;
use wire::iwarp::TaggedOffset;
use wire::iwarp::Untagged;

const OURS: StreamId = StreamId(1);
const OTHER: StreamId = StreamId(2);
const LEN: usize = 64;
/// RDMA Reads at once, each way.
const DEPTH: u16 = 2;

/// Work, segments and bytes in any order: no panic, nothing placed where it may not be, and no more
/// kept than agreed.
pub fn queue_pair(data: &[u8]) {
    with_pool(|pool| {
        let mut input = Input::new(data);
        let mut run = Run::new(input.byte(), pool);
        while !input.is_empty() {
            run.step(&mut input);
            run.qp.check();
            assert!(run.qp.bytes_held() <= 2 * 65_544, "an FPDU at most is kept");
        }
        run.guards_hold();
    });
}

struct Run<'a> {
    qp: QueuePair,
    regions: Regions,
    pool: &'a Pool,
    /// Makes the peer's FPDUs.
    peer: Sender,
    stags: [Stag; 4],
    /// Memory of another stream.
    guard: Stag,
    /// Numbers that are due on queues 0 and 1, as far as the peer's Sends are good.
    msn: [u32; 2],
}

impl<'a> Run<'a> {
    fn new(flags: u8, pool: &'a Pool) -> Self {
        let ready = [None, Some(ReadyType::Send), Some(ReadyType::Write), Some(ReadyType::Read)];
        let agreed = Agreed {
            side: if flags & 1 == 0 { Side::Initiator } else { Side::Responder },
            framing: Framing::default(),
            depths: Depths { ird: DEPTH, ord: DEPTH },
            ready: ready.into_iter().nth(usize::from(flags >> 1 & 3)).flatten(),
        };
        let mut regions = Regions::new(0x5eed);
        let mut advertise = |stream, memory| {
            regions.advertise(stream, TaggedOffset(0), memory).expect("the table has room")
        };
        let guard = advertise(OTHER, sink(pool));
        let source = || Memory::Source(Slice::from(vec![1; LEN]));
        let stags = [
            advertise(OURS, sink(pool)),
            advertise(OURS, source()),
            advertise(OURS, sink(pool)),
            guard,
        ];
        let mut qp = QueuePair::new(OURS, agreed);
        if flags & 8 != 0 {
            qp.lend_messages(LEN);
        }
        let peer = Sender::new(Framing::default());
        Self { qp, regions, pool, peer, stags, guard, msn: [1; 2] }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() & 15 {
            0 => self.post_receive(input),
            1 | 2 => self.post(input),
            3..=7 => self.untagged(input),
            8..=11 => self.tagged(input),
            12 => {
                let bytes = input.take(usize::from(input.peek() & 31));
                self.qp.handle_bytes(bytes, &mut self.regions);
            }
            13 => self.transmit(),
            14 => drop(self.qp.close()),
            _ => self.drain(),
        }
        if input.is_empty() {
            self.transmit();
            self.drain();
        }
    }

    fn post_receive(&mut self, input: &mut Input<'_>) {
        let buf = self.pool.take(usize::from(input.byte()) + 1).expect("the pool is large");
        drop(self.qp.post_receive(WorkId(0), buf));
    }

    fn post(&mut self, input: &mut Input<'_>) {
        let (kind, stag) = (input.byte(), self.stag(input));
        let payload = Slice::from(vec![2; usize::from(input.byte()) * 16]);
        let work = match kind & 3 {
            0 => {
                Work::Send { head: Head::EMPTY, payload, invalidate: None, notify: Notify::Quietly }
            }
            1 => Work::Send {
                head: Head::EMPTY,
                payload,
                invalidate: Some(stag),
                notify: Notify::Solicited,
            },
            2 => Work::Write { payload, stag, offset: TaggedOffset(0) },
            _ => Work::Read {
                sink: stag,
                sink_offset: TaggedOffset(0),
                source: stag,
                source_offset: TaggedOffset(0),
                length: input.byte().into(),
            },
        };
        drop(self.qp.post_send(WorkId(1), work, &self.regions));
    }

    /// A segment of a Send, a Read Request or a Terminate, or nearly one.
    fn untagged(&mut self, input: &mut Input<'_>) {
        let (kind, flags) = (input.byte(), input.byte());
        let queue = match kind & 7 {
            1 => 1,
            7 => 2,
            _ => 0,
        };
        let msn = self.msn.get(queue).copied().unwrap_or(1);
        let header = Untagged {
            last: flags & 1 == 0,
            control: 0x40 | kind & if flags & 0xc0 == 0 { 15 } else { 7 },
            invalidate: self.stag(input),
            queue: QueueNumber(u32::try_from(queue).unwrap_or(0) + u32::from(flags >> 6 == 1)),
            msn: Msn(msn.wrapping_add(u32::from(flags >> 3 & 7 == 7))),
            offset: if flags & 2 == 0 { 0 } else { input.byte().into() },
        };
        let payload = if queue == 1 {
            let request = ReadRequest {
                sink_stag: self.stag(input),
                sink_offset: TaggedOffset(0),
                length: input.byte().into(),
                source_stag: self.stag(input),
                source_offset: TaggedOffset(input.byte().into()),
            };
            let len = if flags & 0x30 == 0x30 { input.byte().into() } else { READ_REQUEST_LEN };
            request.emit().into_iter().chain([0; 4]).take(len).collect()
        } else {
            vec![3; usize::from(input.byte() & 63)]
        };
        if header.last
            && let Some(msn) = self.msn.get_mut(queue)
        {
            *msn = msn.wrapping_add(1);
        }
        self.frame(&header.emit(), payload);
    }

    /// A segment of a Write or a Read Response, or nearly one.
    fn tagged(&mut self, input: &mut Input<'_>) {
        let (kind, flags) = (input.byte(), input.byte());
        let far = u64::from(input.byte()).wrapping_sub(16);
        let header = Tagged {
            last: flags & 1 == 0,
            control: 0x40 | if flags & 6 == 6 { kind & 15 } else { kind & 2 },
            stag: self.stag(input),
            offset: TaggedOffset(if flags & 8 == 0 { 0 } else { far }),
        };
        let payload = vec![4; usize::from(input.byte() & 127)];
        self.frame(&header.emit(), payload);
    }

    fn frame(&mut self, header: &[u8], payload: Vec<u8>) {
        let mut list = SgList::new();
        self.peer.frame(header, &Slice::from(payload), &mut list);
        let bytes = list.to_vec();
        let (first, second) = bytes.split_at(bytes.len() / 3);
        self.qp.handle_bytes(first, &mut self.regions);
        self.qp.handle_bytes(second, &mut self.regions);
    }

    fn stag(&self, input: &mut Input<'_>) -> Stag {
        let byte = input.byte();
        let known = self.stags.get(usize::from(byte & 7)).copied();
        known.unwrap_or(Stag(u32::from(byte) << 5))
    }

    fn transmit(&mut self) {
        let mut list = SgList::new();
        while self.qp.poll_transmit(&mut list) {
            list.clear();
            self.qp.handle_sent();
        }
    }

    fn drain(&mut self) {
        let mut ended = 0;
        while let Some(event) = self.qp.poll_event() {
            match event {
                Event::Received(one) => {
                    assert!(one.length <= one.buf.len());
                    assert!(one.invalidated.is_none_or(|(stag, _)| stag != self.guard));
                }
                Event::Lent(one) => {
                    assert!(one.at.len() <= LEN);
                    assert!(one.invalidated.is_none_or(|(stag, _)| stag != self.guard));
                }
                Event::Ended(_) => ended += 1,
                Event::Sent(_) | Event::Read(_) | Event::Shutdown | Event::Flushed(_) => {}
            }
        }
        assert!(ended <= 1, "a connection ends once");
    }

    fn guards_hold(&mut self) {
        let guard = self.regions.invalidate(self.guard).map(|withdrawn| withdrawn.memory);
        let Some(Memory::Sink(buf)) = guard else { panic!("nobody else may end it") };
        assert!(buf.iter().all(|byte| *byte == 0), "a byte went to another stream's memory");
    }
}

fn sink(pool: &Pool) -> Memory {
    let mut buf = pool.take(LEN).expect("the pool is large");
    buf.fill(0);
    Memory::Sink(buf)
}
