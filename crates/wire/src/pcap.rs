// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures: files of packets as tcpdump and Wireshark read them (draft-ietf-opsawg-pcap), with
//! nanoseconds, and the headers of IP and TCP that are made up for bytes of a stream.
//!
//! Read first: RFC 9293 §3.1 (TCP's header), RFC 7323 §2 (window scale), RFC 791 §3.1, RFC 8200 §3
//! and §8.1 (IP, and what the checksum covers).

use alloc::vec::Vec;
use core::net::IpAddr;
use core::net::SocketAddr;
use core::time::Duration;

/// Bytes before the first packet.
pub const FILE_HEADER_LEN: usize = 24;

/// Bytes before each packet.
pub const RECORD_HEADER_LEN: usize = 16;

/// Bytes of a stream that one segment takes at most: what fits into a packet of IPv4 with all
/// options that are used here.
pub const SEGMENT_LEN_MAX: usize = 65_480;

/// Says that times have nanoseconds, and in which order bytes stand.
const MAGIC: u32 = 0xa1b2_3c4d;

/// Longest packet that is kept whole: longer than all.
const SNAP_LEN: u32 = 262_144;

/// Packets begin with the header of IP, of version 4 or 6.
const LINKTYPE_RAW: u32 = 101;

const TCP: u8 = 6;
const HOPS: u8 = 64;

/// Window of each segment; with the largest scale it is 1 GiB, which no stream of ours fills.
const WINDOW: u16 = u16::MAX;

/// Maximum segment size, a filler, window scale 14.
const SYN_OPTIONS: [u8; 8] = [2, 4, 0xff, 0xc8, 1, 3, 3, 14];

/// What begins a file.
#[must_use]
pub fn file_header() -> [u8; FILE_HEADER_LEN] {
    let mut header = [0; FILE_HEADER_LEN];
    // Version 2.4, times in UTC.
    let version = u32::from_le_bytes([2, 0, 4, 0]);
    let words = [MAGIC, version, 0, 0, SNAP_LEN, LINKTYPE_RAW];
    for (place, word) in header.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    header
}

/// Whether a file begins as a capture does, of any of the usual kinds.
#[must_use]
pub fn is_capture(begins: &[u8]) -> bool {
    let Some(magic) = begins.first_chunk() else { return false };
    let known = [MAGIC, 0xa1b2_c3d4, 0x0a0d_0d0a];
    known.contains(&u32::from_le_bytes(*magic)) || known.contains(&u32::from_be_bytes(*magic))
}

/// Bytes of its packet behind the header of a record, as this machine writes it.
#[must_use]
pub const fn kept_len(header: &[u8; RECORD_HEADER_LEN]) -> u32 {
    let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *header;
    u32::from_le_bytes([a, b, c, d])
}

/// Whole records at the beginning of `records`: how many, and the bytes of all of them.
#[must_use]
pub fn whole_records(records: &[u8]) -> (u64, usize) {
    let (mut count, mut rest) = (0, records);
    while let Some((header, behind)) = rest.split_first_chunk::<RECORD_HEADER_LEN>() {
        let kept = usize::try_from(kept_len(header)).unwrap_or(usize::MAX);
        let Some(behind) = behind.get(kept..) else { break };
        (count, rest) = (count + 1, behind);
    }
    (count, records.len() - rest.len())
}

/// What a segment says besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a stream says nothing else
pub enum Flags {
    /// The first one of the initiator.
    Syn,
    /// The first one of the target.
    SynAck,
    /// That others have come; with bytes of its own or without.
    Ack,
    /// That no more bytes follow.
    Fin,
    /// That the stream is broken off.
    Reset,
}

impl Flags {
    const fn bits(self) -> u8 {
        match self {
            Self::Syn => 0x02,
            Self::SynAck => 0x12,
            Self::Ack => 0x10,
            Self::Fin => 0x11,
            Self::Reset => 0x14,
        }
    }

    const fn options(self) -> &'static [u8] {
        match self {
            Self::Syn | Self::SynAck => &SYN_OPTIONS,
            Self::Ack | Self::Fin | Self::Reset => &[],
        }
    }
}

/// One segment of TCP; addresses of one kind, else both are written as of IPv6.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Who sends it.
    pub from: SocketAddr,
    /// Who gets it.
    pub to: SocketAddr,
    /// Number of its first byte.
    pub sequence: u32,
    /// Number of the byte that is expected next.
    pub acknowledged: u32,
    /// What it says.
    pub flags: Flags,
    /// Bytes of the stream, [`SEGMENT_LEN_MAX`] at most; what is more is left out.
    pub payload: &'a [u8],
    /// Bytes of the stream behind those that the segment had, and that are not kept: the record is
    /// cut, and its checksum says nothing.
    pub missing: usize,
}

impl Segment<'_> {
    /// Bytes that [`emit`](Self::emit) appends.
    #[must_use]
    pub fn record_len(&self) -> usize {
        RECORD_HEADER_LEN + self.ip_len() + self.tcp_len() - self.missing()
    }

    /// Appends its record. `time`: since 1970.
    pub fn emit(&self, time: Duration, out: &mut Vec<u8>) {
        let length = self.ip_len() + self.tcp_len();
        // Until 2106.
        let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let kept = u32::try_from(length - self.missing()).unwrap_or(u32::MAX);
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        for word in [seconds, time.subsec_nanos(), kept, length] {
            out.extend(word.to_le_bytes());
        }
        let sum = self.emit_ip(out);
        self.emit_tcp(sum, out);
    }

    fn ip_len(&self) -> usize {
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(_), IpAddr::V4(_)) => 20,
            _ => 40,
        }
    }

    fn tcp_len(&self) -> usize {
        20 + self.flags.options().len() + self.payload().len() + self.missing()
    }

    fn missing(&self) -> usize {
        self.missing.min(SEGMENT_LEN_MAX - self.payload().len())
    }

    fn payload(&self) -> &[u8] {
        self.payload.get(..SEGMENT_LEN_MAX).unwrap_or(self.payload)
    }

    /// Appends the header of IP; gives the sum of the pseudo-header.
    fn emit_ip(&self, out: &mut Vec<u8>) -> Sum {
        let tcp_len = u16::try_from(self.tcp_len()).unwrap_or(u16::MAX);
        let mut pseudo = Sum::default();
        pseudo.add(&tcp_len.to_be_bytes());
        pseudo.add(&[0, TCP]);
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let [high, low] = tcp_len.saturating_add(20).to_be_bytes();
                let mut header = [0x45, 0, high, low, 0, 0, 0x40, 0, HOPS, TCP, 0, 0];
                let addresses = [from.octets(), to.octets()].concat();
                pseudo.add(&addresses);
                let mut sum = Sum::default();
                sum.add(&header);
                sum.add(&addresses);
                if let Some(place) = header.last_chunk_mut() {
                    *place = sum.complement();
                }
                out.extend(header);
                out.extend(addresses);
            }
            (from, to) => {
                let [high, low] = tcp_len.to_be_bytes();
                let addresses = [wide(from), wide(to)].concat();
                pseudo.add(&addresses);
                out.extend([0x60, 0, 0, 0, high, low, TCP, HOPS]);
                out.extend(addresses);
            }
        }
        pseudo
    }

    fn emit_tcp(&self, mut sum: Sum, out: &mut Vec<u8>) {
        let options = self.flags.options();
        let words = u8::try_from(5 + options.len() / 4).unwrap_or(u8::MAX);
        let begin = out.len();
        out.extend(self.from.port().to_be_bytes());
        out.extend(self.to.port().to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        out.extend(self.acknowledged.to_be_bytes());
        // Whoever sends bytes has them read soon.
        let carries = !self.payload.is_empty() || self.missing > 0;
        let push = if carries { 0x08 } else { 0 };
        out.extend([words << 4, self.flags.bits() | push]);
        out.extend(WINDOW.to_be_bytes());
        let checksum = out.len();
        out.extend([0; 4]);
        out.extend(options);
        out.extend(self.payload());
        sum.add(out.get(begin..).unwrap_or_default());
        if let Some(place) = out.get_mut(checksum..).and_then(|rest| rest.first_chunk_mut()) {
            *place = sum.complement();
        }
    }
}

fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The sum of RFC 1071, of pieces of even length but for the last one.
#[derive(Clone, Copy, Debug, Default)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let (words, odd) = bytes.as_chunks();
        self.0 += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        self.0 += odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    }

    fn complement(self) -> [u8; 2] {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let sum = u16::try_from(sum).unwrap_or_default();
        (!sum).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment<'a>(from: &str, to: &str, payload: &'a [u8]) -> Segment<'a> {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        Segment { from, to, sequence: 1, acknowledged: 2, flags: Flags::Ack, payload, missing: 0 }
    }

    /// As `tcpdump -w` writes it, with `--time-stamp-precision nano` and `-y RAW`.
    #[test]
    fn a_file_begins_with_its_kind() {
        let header = file_header();
        assert_eq!(header[..8], [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0]);
        assert_eq!(header[16..], [0, 0, 4, 0, 101, 0, 0, 0]);
        assert!(is_capture(&header) && is_capture(&[0xa1, 0xb2, 0xc3, 0xd4, 0]));
        assert!(is_capture(&[0x0a, 0x0d, 0x0d, 0x0a]));
        assert!(!is_capture(b"QFI\xfb") && !is_capture(b""));
    }

    #[test]
    fn a_record_has_time_lengths_and_headers() {
        let mut out = Vec::new();
        let sent = segment("10.0.0.1:3260", "10.0.0.2:40000", b"abc");
        sent.emit(Duration::new(0x0102_0304, 5), &mut out);
        assert_eq!(out.len(), sent.record_len());
        let expected = [
            4, 3, 2, 1, 5, 0, 0, 0, 43, 0, 0, 0, 43, 0, 0, 0, // record
            0x45, 0, 0, 43, 0, 0, 0x40, 0, 64, 6, 0x26, 0xcb, 10, 0, 0, 1, 10, 0, 0,
            2, // IPv4
            0x0c, 0xbc, 0x9c, 0x40, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 0xff, 0xff, // TCP
        ];
        assert_eq!(out[..expected.len()], expected);
        assert_eq!(out[out.len() - 3..], *b"abc");
    }

    /// Summed up with its checksum, what was summed up gives nothing.
    #[test]
    fn checksums_are_right() {
        for (from, to, ip_len) in
            [("192.0.2.7:3260", "198.51.100.9:1", 20), ("[2001:db8::1]:3260", "[::1]:9", 40)]
        {
            for length in [0, 1, 2, 77, SEGMENT_LEN_MAX] {
                let payload = alloc::vec![0x5a; length];
                for flags in [Flags::Syn, Flags::SynAck, Flags::Ack, Flags::Fin, Flags::Reset] {
                    let mut out = Vec::new();
                    let one = Segment { flags, ..segment(from, to, &payload) };
                    one.emit(Duration::ZERO, &mut out);
                    assert_eq!(out.len(), one.record_len());
                    let (ip, tcp) = out[RECORD_HEADER_LEN..].split_at(ip_len);
                    let mut sum = Sum::default();
                    if ip_len == 20 {
                        sum.add(ip);
                        assert_eq!(sum.complement(), [0, 0], "of IP");
                        sum = Sum::default();
                    }
                    let addresses = if ip_len == 20 { &ip[12..] } else { &ip[8..] };
                    sum.add(addresses);
                    sum.add(&u16::try_from(tcp.len()).unwrap().to_be_bytes());
                    sum.add(&[0, TCP]);
                    sum.add(tcp);
                    assert_eq!(sum.complement(), [0, 0], "{flags:?} of {length} bytes");
                }
            }
        }
    }

    #[test]
    fn records_are_whole_with_their_last_byte() {
        let mut out = Vec::new();
        segment("10.0.0.1:1", "10.0.0.2:2", b"abc").emit(Duration::ZERO, &mut out);
        let first = out.len();
        segment("[::1]:1", "[::2]:2", b"").emit(Duration::ZERO, &mut out);
        for length in 0..=out.len() {
            let wanted = match length {
                _ if length == out.len() => (2, out.len()),
                _ if length >= first => (1, first),
                _ => (0, 0),
            };
            assert_eq!(whole_records(&out[..length]), wanted, "{length}");
        }
        out[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(whole_records(&out), (0, 0));
    }

    #[test]
    fn a_record_may_be_cut() {
        let mut out = Vec::new();
        let cut = Segment { missing: 1000, ..segment("10.0.0.1:1", "10.0.0.2:2", b"abc") };
        cut.emit(Duration::ZERO, &mut out);
        assert_eq!(out.len(), cut.record_len());
        assert_eq!(out[8..16], [43, 0, 0, 0, 0x13, 4, 0, 0], "kept, and what there was");
        assert_eq!(out[18..20], 1043_u16.to_be_bytes(), "IP has what there was");
        let long = Segment { missing: usize::MAX, ..cut };
        assert_eq!(long.record_len(), cut.record_len());
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let payload = alloc::vec![1; SEGMENT_LEN_MAX + 1];
        let mut out = Vec::new();
        segment("10.0.0.1:1", "10.0.0.2:2", &payload).emit(Duration::MAX, &mut out);
        assert_eq!(out.len(), RECORD_HEADER_LEN + 40 + SEGMENT_LEN_MAX);
        assert_eq!(out[..4], [0xff; 4], "and so is a time that no file has");
    }
}
