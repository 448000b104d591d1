// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The load: asks for blocks, or gives them, so many at once.

use std::io;
use std::net::TcpStream;
use std::time::Duration;
use std::time::Instant;

use buf::Buf;
use buf::Pool;
use buf::SgList;
use buf::Slice;
use engine::Event;
use engine::Port;
use engine::Socket;
use engine::Token;
use engine::Work;
use serde_json::Value;
use serde_json::json;

use crate::frame::DISK;
use crate::frame::Frame;
use crate::frame::Piece;
use crate::frame::Reader;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) block: u32,
    /// Requests at once on each connection.
    pub(crate) depth: usize,
    pub(crate) connections: usize,
    pub(crate) write: bool,
    pub(crate) sequential: bool,
    pub(crate) time: Duration,
}

#[derive(Debug)]
struct Connection {
    socket: Socket,
    reader: Reader,
    filling: SgList,
    /// None while it is under way.
    idle: Option<SgList>,
    /// Where the data of each request goes.
    places: Vec<Buf>,
    under_way: usize,
}

/// Which block comes next.
#[derive(Debug)]
struct Places {
    load: Load,
    at: u64,
    random: u64,
}

impl Places {
    const fn next(&mut self) -> u64 {
        let blocks = DISK / self.load.block as u64;
        self.at = self.at.wrapping_add(1);
        if self.load.sequential {
            return self.at % blocks * self.load.block as u64;
        }
        // xorshift64*, as `lunwire bench` draws.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % blocks * self.load.block as u64
    }
}

impl Connection {
    fn ask(&mut self, slot: u32, places: &mut Places, data: &Slice) {
        let Load { write, block: length, .. } = places.load;
        let offset = places.next();
        self.filling.push_bytes(&Frame { write, slot, length, offset }.emit());
        if write {
            self.filling.push(data.clone());
        }
        self.under_way += 1;
    }

    /// Takes what came; returns how many requests have ended.
    fn received(&mut self, mut rest: &[u8], ended: &mut Vec<u32>) {
        while let Some(piece) = self.reader.next(&mut rest, |frame| !frame.write) {
            match piece {
                Piece::Frame(frame) if frame.write => ended.push(frame.slot),
                Piece::Frame(_) => {}
                Piece::Data { frame, at, bytes, last } => {
                    let place = self.places.get_mut(frame.slot as usize);
                    if let Some(place) = place.and_then(|buf| buf.get_mut(at..at + bytes.len())) {
                        buf::copy(place, bytes);
                    }
                    if last {
                        ended.push(frame.slot);
                    }
                }
            }
        }
        self.under_way -= ended.len();
    }
}

/// Puts `load` on the server at `address`.
pub(crate) fn run<P: Port>(mut port: P, load: Load, address: &str) -> io::Result<Value> {
    let pool = Pool::new(2 << 30)?;
    let block = load.block as usize;
    let take = || pool.take(block).ok_or(io::ErrorKind::OutOfMemory);
    let mut data = take()?;
    data.iter_mut().for_each(|byte| *byte = 0x5a);
    let data = data.freeze();
    let mut places = Places { load, at: 0, random: 0x9e37_79b9_7f4a_7c15 };
    let mut connections = Vec::new();
    for at in 0..load.connections as u64 {
        let socket = port.add_socket(TcpStream::connect(address)?.into());
        port.submit(Token(at * 2), Work::Receive { socket });
        let places = (0..load.depth).map(|_| take()).collect::<Result<_, _>>()?;
        let (filling, idle) = (SgList::new(), Some(SgList::new()));
        let reader = Reader::new();
        connections.push(Connection { socket, reader, filling, idle, places, under_way: 0 });
    }
    let (begin, cpu) = (Instant::now(), cpu_time());
    for connection in &mut connections {
        (0..load.depth).for_each(|slot| connection.ask(slot as u32, &mut places, &data));
    }
    let (mut requests, mut ended) = (0, Vec::new());
    while connections.iter().any(|connection| connection.under_way > 0) {
        for (at, connection) in (0_u64..).zip(&mut connections) {
            if !connection.filling.is_empty()
                && let Some(idle) = connection.idle.take()
            {
                let list = std::mem::replace(&mut connection.filling, idle);
                port.submit(Token(at * 2 + 1), Work::Send { socket: connection.socket, list });
            }
        }
        port.wait(None);
        let going = begin.elapsed() < load.time;
        while let Some((token, event)) = port.next_event() {
            let place = usize::try_from(token.0 / 2).unwrap_or(usize::MAX);
            let Some(connection) = connections.get_mut(place) else { continue };
            match event {
                Event::Received { bytes } => {
                    connection.received(&bytes, &mut ended);
                    requests += ended.len();
                    for slot in ended.drain(..) {
                        if going {
                            connection.ask(slot, &mut places, &data);
                        }
                    }
                }
                Event::Sent { mut list, result } => {
                    result.map_err(io::Error::from_raw_os_error)?;
                    list.clear();
                    connection.idle = Some(list);
                }
                Event::ReceiveEnded { .. } => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let rate = requests as f64 / seconds;
    Ok(json!({
        "requests": requests,
        "seconds": seconds,
        "requests_per_second": rate,
        "bytes_per_second": rate * f64::from(load.block),
        "cpu_seconds": (cpu_time() - cpu).as_secs_f64(),
        "latency_ns": { "mean": 1e9 * (load.depth * load.connections) as f64 / rate },
    }))
}

/// Processor time of this thread, which does all the work.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
