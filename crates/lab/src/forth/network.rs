// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP alone, as `ttcp` measures it: a stream of packets, and one that goes to and fro.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::Error;
use crate::measure::real;

/// Packets of one size.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) bytes: u32,
    /// Of each run.
    pub(super) megabits: Vec<f64>,
    /// To the other side and halfway through it, microseconds: half of the time to and fro.
    pub(super) latency_us: Vec<f64>,
}

impl Packet {
    pub(super) const fn new(bytes: u32) -> Self {
        Self { bytes, megabits: Vec::new(), latency_us: Vec::new() }
    }

    pub(super) fn measure(&mut self, time: Duration) -> Result<(), Error> {
        let (sent, seconds) = converse(self.bytes, time, Answer::AtTheEnd)?;
        self.megabits.push(8.0 * real(sent) * f64::from(self.bytes) / seconds / 1e6);
        let (sent, seconds) = converse(self.bytes, time, Answer::Each)?;
        self.latency_us.push(seconds * 1e6 / real(sent) / 2.0);
        Ok(())
    }
}

/// What the other side sends back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Each,
    /// A byte, when all is there.
    AtTheEnd,
}

/// Sends packets for so long; gives their number, and the seconds until all were there.
fn converse(bytes: u32, time: Duration, answer: Answer) -> Result<(u64, f64), Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::rig)?;
    let address = listener.local_addr().map_err(Error::rig)?;
    let length = bytes as usize;
    let other = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut packet = vec![0; length];
        while read_whole(&mut stream, &mut packet)? {
            if answer == Answer::Each {
                stream.write_all(&packet)?;
            }
        }
        stream.write_all(&[0])
    });
    let sent = send(TcpStream::connect(address).map_err(Error::rig)?, length, time, answer);
    let ended = other.join().map_err(|_| Error::rig("the other side of TCP has panicked"))?;
    ended.map_err(Error::rig)?;
    sent.map_err(Error::rig)
}

fn send(
    mut stream: TcpStream,
    length: usize,
    time: Duration,
    answer: Answer,
) -> std::io::Result<(u64, f64)> {
    stream.set_nodelay(true)?;
    let mut packet = vec![0; length];
    let begun = Instant::now();
    let mut sent = 0;
    while begun.elapsed() < time {
        stream.write_all(&packet)?;
        if answer == Answer::Each {
            stream.read_exact(&mut packet)?;
        }
        sent += 1;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read_exact(&mut [0])?;
    Ok((sent, begun.elapsed().as_secs_f64()))
}

/// Fills `packet`; false: the stream is at its end.
fn read_whole(stream: &mut TcpStream, packet: &mut [u8]) -> std::io::Result<bool> {
    let mut filled = 0;
    while let Some(rest) = packet.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest)? {
            0 if filled == 0 => return Ok(false),
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_packets_carry_more() {
        let [small, large] = [64, 64 << 10].map(|bytes| {
            let mut packet = Packet::new(bytes);
            packet.measure(Duration::from_millis(5)).expect("loopback");
            packet
        });
        assert!(large.megabits[0] > small.megabits[0] && small.latency_us[0] > 0.0);
    }
}
