// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A station of raw Ethernet against a peer that sends what it likes: good frames with any numbers
//! in them, and now and then any bytes.

use crate::input::Input;
use clock::Instant;
use ether::Endpoint;
use ether::Event;
use std::time::Duration;
use wire::ether::Body;
use wire::ether::ConnectionId;
use wire::ether::Data;
use wire::ether::Frame;
use wire::ether::Mac;
use wire::ether::Range;
use wire::ether::Sacks;
use wire::ether::Start;

const PEER: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// Frames, bytes of ours and time in any order: no panic, and no more kept than there may be.
pub fn ether_frames(data: &[u8]) {
    let mut input = Input::new(data);
    let mut run = Run {
        endpoint: Endpoint::new(1400).accepting(),
        now: Instant(1),
        next: 1,
        known: vec![ConnectionId(0)],
    };
    while !input.is_empty() {
        run.step(&mut input);
        run.endpoint.check();
    }
}

struct Run {
    endpoint: Endpoint,
    now: Instant,
    /// The id of the next connection.
    next: u64,
    /// Ids that frames have told, and those that we gave out.
    known: Vec<ConnectionId>,
}

impl Run {
    fn step(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let id = self.known[usize::from(input.byte()) % self.known.len()];
        match kind & 15 {
            0 => {
                let id = ConnectionId(self.next);
                self.next += 1;
                if self.endpoint.open(PEER, id, self.now) {
                    self.known.push(id);
                }
            }
            1 => {
                let len = self.endpoint.room(id).len().min(usize::from(input.byte()) * 64);
                self.endpoint.filled(id, len);
            }
            2 => {
                let len = usize::from(input.byte()) * 64;
                self.endpoint.consume(id, len, self.now);
            }
            3 => self.endpoint.finish(id, self.now),
            4 => self.endpoint.leave(id, self.now),
            5 => self.endpoint.abort(id, self.now),
            6 => {
                self.now = self.now + Duration::from_millis(u64::from(input.byte()) * 32);
                self.endpoint.handle_timeout(self.now);
            }
            7 => {
                let len = usize::from(input.byte());
                let bytes = input.take(len);
                self.endpoint.handle_frame(PEER, bytes, self.now);
            }
            kind => self.frame(kind, id, input),
        }
        while let Some(due) = self.endpoint.poll_transmit(self.now) {
            let len: usize = due.payload.iter().map(|piece| piece.len()).sum();
            assert!(len <= 1400, "no payload is longer than was agreed on");
        }
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::Accepted(_, peer) = event {
                assert_eq!(peer, PEER);
            }
        }
    }

    fn frame(&mut self, kind: u8, to: ConnectionId, input: &mut Input<'_>) {
        let flags = input.byte();
        let payload = [0x5a; 1400];
        let mut offset =
            || u64::from(input.byte()) * [1, 100, 1400, 1 << 56][usize::from(input.byte() & 3)];
        let (first, second, length) = (offset(), offset(), offset());
        let window = u32::try_from(offset() & 0xffff_ffff).unwrap_or(0);
        let mut sacks = Sacks::default();
        for _ in 0..flags & 3 {
            let (start, len) = (offset(), offset());
            sacks
                .push(Range { start, end: start.saturating_add(len).max(start.saturating_add(1)) });
        }
        let payload_max = u16::try_from(second & 0x7ff).unwrap_or(0);
        let padding = u16::try_from(length % 1401).unwrap_or(0);
        let start = Start { from: ConnectionId(first), payload_max, window, padding };
        let payload = &payload[..usize::try_from(length % 1401).unwrap_or(0)];
        let body = match kind {
            8 => Body::Open(start),
            9 => Body::Accept(start),
            10 => Body::Reset { from: ConnectionId(first) },
            _ => Body::Data(Data {
                sequence: first,
                acknowledged: second,
                window,
                fin: flags & 4 != 0,
                probe: flags & 8 != 0,
                sacks,
                payload,
            }),
        };
        let to = if kind == 8 { ConnectionId(0) } else { to };
        let frame = Frame { to, to_acceptor: flags & 16 == 0, body };
        let mut bytes = frame.header().bytes().to_vec();
        match &frame.body {
            Body::Data(data) => bytes.extend_from_slice(data.payload),
            Body::Open(_) | Body::Accept(_) => bytes.extend_from_slice(payload),
            Body::Reset { .. } => {}
        }
        if let Some(asked) = self.endpoint.handle_frame(PEER, &bytes, self.now) {
            let id = ConnectionId(self.next);
            self.next += 1;
            self.endpoint.accept(asked, id, self.now);
            self.known.push(id);
        }
    }
}
