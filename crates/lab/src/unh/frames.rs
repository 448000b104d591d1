// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headers, counted in what our own stack puts on the wire: frames as Ethernet would have them, and
//! captures of sessions.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use buf::{SgList, Slice};
use capture::Capture;
use rdma::mpa::{Agreed, Depths, Framing, Receiver, Side};
use rdma::qp::QueuePair;
use rdma::region::{Regions, StreamId};
use rdma::verbs::{Work, WorkId};
use wire::iscsi::{BhsView, pad4};
use wire::iwarp::{CRC_LEN, Ddp, LENGTH_LEN, Opcode, START_LEN, Stag, Start, TaggedOffset};
use wire::pcap::{FILE_HEADER_LEN, RECORD_HEADER_LEN};

use super::rig::Rig;
use super::{Carrier, Load};
use crate::Error;

/// What a frame of Ethernet carries of a stream: 1,500 bytes without the headers of IP and TCP.
pub(super) const SEGMENT: usize = 1460;

/// Bytes of a basic header segment.
const BHS_LEN: usize = 48;

/// How long a capture may take to be written.
const PATIENCE: Duration = Duration::from_secs(10);

/// The transfer whose messages are counted.
pub(super) const BYTES: u32 = 1 << 20;

/// All that was counted.
#[derive(Debug)]
pub(super) struct Counted {
    /// Of a full frame of an RDMA Write: headers of MPA, DDP and RDMAP; payload; CRC.
    pub(super) rdma: [usize; 3],
    pub(super) transfers: Vec<Transfer>,
}

/// What one transfer put on the wire.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) load: Load,
    /// Messages by what they are.
    pub(super) messages: BTreeMap<String, i64>,
    /// Bytes of both streams.
    pub(super) stream: i64,
}

impl Counted {
    pub(super) fn take(rig: &Rig) -> Result<Self, Error> {
        let mut transfers = Vec::new();
        for write in [false, true] {
            for carrier in Carrier::BOTH {
                let load = Load::of(carrier, write, BYTES);
                transfers.push(Transfer::count(rig, load)?);
                transfers.push(Transfer::count(rig, load.in_pieces())?);
                if write {
                    transfers.push(Transfer::count(rig, load.unasked())?);
                }
            }
        }
        Ok(Self { rdma: full_frame()?, transfers })
    }

    pub(super) fn of(&self, load: Load) -> Option<&Transfer> {
        self.transfers.iter().find(|transfer| transfer.load == load)
    }
}

/// The parts of the first FPDU of a long RDMA Write, cut for Ethernet.
fn full_frame() -> Result<[usize; 3], Error> {
    let wrong = || Error::Sandbox("an RDMA Write has no full FPDU".into());
    let agreed = Agreed {
        side: Side::Initiator,
        framing: Framing::default(),
        depths: Depths::default(),
        ready: None,
    };
    let mut qp = QueuePair::new(StreamId(0), agreed);
    qp.set_segment_len(SEGMENT);
    let payload = Slice::from(vec![0; 64 << 10]);
    let work = Work::Write { payload, stag: Stag(1), offset: TaggedOffset(0) };
    qp.post_send(WorkId(0), work, &Regions::new(0)).map_err(|_| wrong())?;
    let mut list = SgList::new();
    qp.poll_transmit(&mut list);
    let bytes = list.to_vec();
    let mut receiver = Receiver::new(Framing::default());
    let (taken, segment) = receiver.feed(&bytes).map_err(|_| wrong())?;
    let segment = segment.ok_or_else(wrong)?;
    let header = Ddp::parse(segment).map_err(|_| wrong())?.len();
    let payload = segment.len() - header;
    let padding = taken - LENGTH_LEN - segment.len() - CRC_LEN;
    Ok([LENGTH_LEN + header + padding, payload, CRC_LEN])
}

impl Transfer {
    /// What a session has with it and has not without it.
    fn count(rig: &Rig, load: Load) -> Result<Self, Error> {
        let folder =
            crate::workplace::Workplace::new().map_err(|error| Error::Rig(error.to_string()))?;
        let mut seen = Vec::new();
        for once in [false, true] {
            let path = folder.path().join("session.pcap");
            let wrong = |error: String| Error::Rig(error);
            let capture = Capture::create(&path, capture::LIMIT_DEFAULT, |_| {});
            let capture = capture.map_err(|error| wrong(error.to_string()))?;
            rig.capture(load, once, &capture)?;
            capture.finish(PATIENCE);
            let bytes = fs::read(&path).map_err(|error| wrong(error.to_string()))?;
            seen.push(Seen::of(&bytes)?);
        }
        let [before, after] = &seen[..] else { return Err(Error::Sandbox("two sessions".into())) };
        let mut messages = after.messages.clone();
        for (name, count) in &before.messages {
            *messages.entry(name.clone()).or_default() -= count;
        }
        messages.retain(|_, count| *count != 0);
        Ok(Self { load, messages, stream: after.stream - before.stream })
    }

    /// In words.
    pub(super) fn told(&self) -> String {
        let each = self.messages.iter().map(|(name, count)| format!("{count} {name}"));
        each.collect::<Vec<_>>().join(", ")
    }

    /// Part of what Ethernet carries that is payload, in frames as full as they can be.
    pub(super) fn efficiency(&self) -> f64 {
        let stream = crate::measure::real(u64::try_from(self.stream).unwrap_or_default());
        let frames = (stream / crate::measure::real(SEGMENT as u64)).ceil();
        f64::from(self.load.bytes) / (stream + frames * FRAME_OVERHEAD)
    }
}

/// Bytes of a frame that are not of the stream: gap, preamble, Ethernet, IP, TCP and CRC.
pub(super) const FRAME_OVERHEAD: f64 = 78.0;

/// What is in a capture of one session.
#[derive(Debug, Default)]
struct Seen {
    messages: BTreeMap<String, i64>,
    stream: i64,
}

impl Seen {
    fn of(capture: &[u8]) -> Result<Self, Error> {
        let mut seen = Self::default();
        for stream in streams(capture) {
            seen.stream += i64::try_from(stream.len()).unwrap_or_default();
            let start =
                stream.first_chunk::<START_LEN>().and_then(|start| Start::parse(start).ok());
            match start {
                Some(start) => {
                    let begin = START_LEN + usize::from(start.private_data_length);
                    seen.take_fpdus(stream.get(begin..).unwrap_or_default())?;
                }
                None => seen.take_pdus(&stream)?,
            }
        }
        Ok(seen)
    }

    fn note(&mut self, name: String) {
        *self.messages.entry(name).or_default() += 1;
    }

    fn take_pdus(&mut self, mut stream: &[u8]) -> Result<(), Error> {
        let wrong = || Error::Sandbox("a stream that is none of iSCSI".into());
        while !stream.is_empty() {
            let (bhs, rest) = stream.split_at_checked(BHS_LEN).ok_or_else(wrong)?;
            let bhs = BhsView::new_checked(bhs).map_err(|_| wrong())?;
            let data = usize::try_from(bhs.data_segment_length()).map_err(|_| wrong())?;
            let more = bhs.total_ahs_length() + pad4(data);
            self.note(pdu_name(bhs.opcode()).to_owned());
            stream = rest.get(more..).ok_or_else(wrong)?;
        }
        Ok(())
    }

    fn take_fpdus(&mut self, mut stream: &[u8]) -> Result<(), Error> {
        let wrong = || Error::Sandbox("a stream that is none of iWARP".into());
        let mut receiver = Receiver::new(Framing::default());
        // Of a Send: its first segment says which PDU is in it.
        let mut is_first = true;
        while !stream.is_empty() {
            let (taken, segment) = receiver.feed(stream).map_err(|_| wrong())?;
            stream = stream.get(taken..).ok_or_else(wrong)?;
            let Some(segment) = segment else { continue };
            let header = Ddp::parse(segment).map_err(|_| wrong())?;
            let opcode = Opcode::parse(header.control()).map_err(|_| wrong())?;
            let moves = match opcode {
                Opcode::Write => Some("RDMA Write"),
                Opcode::ReadRequest => Some("RDMA Read Request"),
                Opcode::ReadResponse => Some("RDMA Read Response"),
                _ => None,
            };
            match moves {
                Some(name) if header.is_last() => self.note(name.to_owned()),
                Some(_) => {}
                None => {
                    let pdu = segment.get(header.len() + ISER_LEN..).unwrap_or_default();
                    if is_first {
                        let opcode = pdu.first().copied().unwrap_or_default() & 0x3f;
                        self.note(format!("Send with {}", pdu_name(opcode)));
                    }
                    is_first = header.is_last();
                }
            }
        }
        Ok(())
    }
}

/// The header of iSER before each PDU (RFC 7145 §9.2).
const ISER_LEN: usize = 28;

const fn pdu_name(opcode: u8) -> &'static str {
    match opcode {
        0x01 => "SCSI Command",
        0x05 => "Data-Out",
        0x21 => "SCSI Response",
        0x25 => "Data-In",
        0x31 => "R2T",
        _ => "other PDU",
    }
}

/// The bytes of each direction of a capture of one connection.
fn streams(capture: &[u8]) -> Vec<Vec<u8>> {
    let mut streams: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    let mut rest = capture.get(FILE_HEADER_LEN..).unwrap_or_default();
    while let Some((record, more)) = rest.split_at_checked(RECORD_HEADER_LEN) {
        let length = record.get(8..).and_then(|word| word.first_chunk().copied());
        let length = length.map_or(0, u32::from_le_bytes) as usize;
        let Some((packet, more)) = more.split_at_checked(length) else { break };
        rest = more;
        // IPv4 without options, as on loopback.
        let Some(tcp) = packet.get(20..) else { continue };
        let port = tcp.first_chunk().map_or(0, |port| u16::from_be_bytes(*port));
        let begin = tcp.get(12).map_or(0, |words| usize::from(words >> 4) * 4);
        let payload = tcp.get(begin..).unwrap_or_default();
        streams.entry(port).or_default().extend_from_slice(payload);
    }
    streams.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As table 4.2 has it.
    #[test]
    fn a_full_frame_of_iwarp_has_1440_bytes_of_payload() {
        assert_eq!(full_frame().unwrap(), [16, 1440, 4]);
    }
}
