// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames of our own byte-stream transport over raw Ethernet. There is no standard for it; the
//! EtherType is one of those for experiments on a network that one owns (IEEE 802, RFC 9542 §3).
//!
//! ```text
//!  Ethernet  destination (6), source (6), EtherType 88 B5 (2)
//!  byte   0  version 1        to whom: the connection's id at the receiver (8 to 15)
//!         1  kind             8: zero in an Open, and in a Reset to one whose id is not known
//!         2  flags           16: Open, Accept, Reset: the sender's id; Data: offset of the payload
//!         3  SACK ranges     24: Open, Accept: longest payload taken; Data: next byte expected
//!         4  payload length  32: window, in bytes behind what is acknowledged
//!         6  zero            36: zero
//!                            40: SACK ranges, first byte and byte behind the last, 16 each
//! ```
//!
//! No checksum is here: a frame has Ethernet's own (FCS), of 32 bits. Who wants more between the
//! ends has the digests of iSCSI.

use core::fmt;
use core::net::Ipv6Addr;
use core::str::FromStr;

use crate::iwarp::field::Reader;
use crate::iwarp::field::Writer;

/// EtherType: local experimental (IEEE Std 802).
pub const ETHERTYPE: u16 = 0x88B5;

/// Length of Ethernet's own header, bytes.
pub const ETHERNET_LEN: usize = 14;

/// Length of a header without SACK ranges.
pub const HEADER_LEN: usize = 40;

/// SACK ranges that fit into a header.
pub const SACKS_MAX: usize = 8;

/// The longest header.
pub const HEADER_LEN_MAX: usize = HEADER_LEN + SACKS_MAX * SACK_LEN;

/// The longest payload that a header can tell.
pub const PAYLOAD_LEN_MAX: usize = u16::MAX as usize;

/// Where a frame, Ethernet's header included, says that it is for the end that has accepted: a byte
/// and the bit in it. For what sorts frames before they are parsed.
pub const TO_ACCEPTOR_BYTE: (u8, u8) = (16, TO_ACCEPTOR);

/// Where the first byte of the receiver's id is, Ethernet's header included.
pub const TO_BYTE: u8 = 22;

const SACK_LEN: usize = 16;
const VERSION: u8 = 1;
const OPEN: u8 = 1;
const ACCEPT: u8 = 2;
const DATA: u8 = 3;
const RESET: u8 = 4;
const TO_ACCEPTOR: u8 = 0x80;
const FIN: u8 = 0x40;
const PROBE: u8 = 0x20;

/// The address of a station on an Ethernet.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

/// What one end calls a connection: random, so that who does not hear it cannot name it. Zero is
/// none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Bytes from `start` on, before `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // a range has two ends
pub struct Range {
    /// The first one.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
}

/// A bounded list of ranges.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Sacks {
    ranges: [Range; SACKS_MAX],
    count: usize,
}

/// A frame behind Ethernet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // what every frame has
pub struct Frame<'a> {
    /// The connection at the receiver.
    pub to: ConnectionId,
    /// The receiver is the end that has accepted, or is to; else the one that has opened.
    pub to_acceptor: bool,
    /// What it says.
    pub body: Body<'a>,
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // all that version 1 has
pub enum Body<'a> {
    /// A connection is asked for.
    Open(Start),
    /// It stands.
    Accept(Start),
    /// Bytes of the stream, what has come of the other direction, or only the latter.
    Data(Data<'a>),
    /// The connection is over, or there is none.
    Reset {
        /// The connection at the sender, as the receiver has called it.
        from: ConnectionId,
    },
}

/// How an end begins. Zeros may follow, which show that frames of that length pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // what version 1 has
pub struct Start {
    /// The connection at the sender.
    pub from: ConnectionId,
    /// The longest payload that it takes.
    pub payload_max: u16,
    /// Bytes that it takes at first.
    pub window: u32,
    /// Bytes of zero behind the header.
    pub padding: u16,
}

/// A piece of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // what version 1 has
pub struct Data<'a> {
    /// Offset of the first byte of the payload, in the stream.
    pub sequence: u64,
    /// All before this offset has come. The end of the stream counts as one byte.
    pub acknowledged: u64,
    /// Bytes from there on for which there is room.
    pub window: u32,
    /// The stream ends behind the payload.
    pub fin: bool,
    /// An answer is wanted.
    pub probe: bool,
    /// What has come beyond a gap.
    pub sacks: Sacks,
    /// The bytes.
    pub payload: &'a [u8],
}

/// A header that is to be sent.
#[derive(Clone, Copy)]
pub struct Header {
    bytes: [u8; HEADER_LEN_MAX],
    len: usize,
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // nothing else can be wrong with one
pub enum FrameError {
    /// It ends before its header or its payload does.
    Truncated(usize),
    /// A version that is not this one.
    Version(u8),
    /// A kind that version 1 does not have.
    Kind(u8),
    /// More SACK ranges than there may be, or one that is empty.
    Sack,
    /// A stream ends before its offsets do.
    Sequence,
}

impl<'a> Frame<'a> {
    /// Takes the bytes behind Ethernet's header apart. What Ethernet has put behind the payload is
    /// left out.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let truncated = |_| FrameError::Truncated(bytes.len());
        let mut fields = Reader::of(bytes, HEADER_LEN).map_err(truncated)?;
        let (version, kind, flags, count) = (fields.u8(), fields.u8(), fields.u8(), fields.u8());
        let (length, _zero) = (fields.u16(), fields.u16());
        let (to, first, second) = (ConnectionId(fields.u64()), fields.u64(), fields.u64());
        let window = fields.u32();
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        let sacks_len = usize::from(count) * SACK_LEN;
        let behind = bytes.get(HEADER_LEN..).unwrap_or_default();
        let (ranges, rest) =
            behind.split_at_checked(sacks_len).ok_or(FrameError::Truncated(bytes.len()))?;
        let payload = rest.get(..usize::from(length)).ok_or(FrameError::Truncated(bytes.len()))?;
        let start = || Start {
            from: ConnectionId(first),
            payload_max: u16::try_from(second).unwrap_or(u16::MAX),
            window,
            padding: length,
        };
        let body = match kind {
            OPEN => Body::Open(start()),
            ACCEPT => Body::Accept(start()),
            DATA => {
                first
                    .checked_add(u64::from(length))
                    .and_then(|end| end.checked_add(1))
                    .ok_or(FrameError::Sequence)?;
                let sacks = Sacks::parse(ranges)?;
                let (fin, probe) = (flags & FIN != 0, flags & PROBE != 0);
                let (sequence, acknowledged) = (first, second);
                Body::Data(Data { sequence, acknowledged, window, fin, probe, sacks, payload })
            }
            RESET => Body::Reset { from: ConnectionId(first) },
            kind => return Err(FrameError::Kind(kind)),
        };
        Ok(Self { to, to_acceptor: flags & TO_ACCEPTOR != 0, body })
    }

    /// The header; the payload follows it, or as many zeros as an Open or Accept says.
    #[must_use]
    pub fn header(&self) -> Header {
        let payload_len = if let Body::Data(data) = &self.body { data.payload.len() } else { 0 };
        self.header_before(payload_len)
    }

    /// The header before a payload of so many bytes, which lies elsewhere.
    #[must_use]
    pub fn header_before(&self, payload_len: usize) -> Header {
        let direction = if self.to_acceptor { TO_ACCEPTOR } else { 0 };
        let none = Sacks::default();
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let (kind, flags, sacks, length, first, second, window) = match &self.body {
            Body::Open(start) | Body::Accept(start) => {
                let kind = if matches!(self.body, Body::Open(_)) { OPEN } else { ACCEPT };
                let payload_max = u64::from(start.payload_max);
                (kind, 0, &none, start.padding, start.from.0, payload_max, start.window)
            }
            Body::Data(data) => {
                let length = u16::try_from(payload_len);
                let length = length.expect("a payload has the length that was agreed on");
                let flags = flag(data.fin, FIN) | flag(data.probe, PROBE);
                let Data { sequence, acknowledged, window, sacks, .. } = data;
                (DATA, flags, sacks, length, *sequence, *acknowledged, *window)
            }
            Body::Reset { from } => (RESET, 0, &none, 0, from.0, 0, 0),
        };
        let count = u8::try_from(sacks.count).unwrap_or(0);
        let front: [u8; HEADER_LEN] = Writer::new()
            .put(&[VERSION, kind, flags | direction, count])
            .put(&length.to_be_bytes())
            .put(&[0; 2])
            .put(&self.to.0.to_be_bytes())
            .put(&first.to_be_bytes())
            .put(&second.to_be_bytes())
            .put(&window.to_be_bytes())
            .put(&[0; 4])
            .done();
        let mut header = Header { bytes: [0; HEADER_LEN_MAX], len: 0 };
        header.append(&front);
        for range in sacks.iter() {
            header.append(&range.start.to_be_bytes());
            header.append(&range.end.to_be_bytes());
        }
        header
    }
}

impl Header {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn append(&mut self, field: &[u8]) {
        let to = self.bytes.get_mut(self.len..self.len + field.len());
        to.expect("the longest header has room").copy_from_slice(field);
        self.len += field.len();
    }
}

impl Sacks {
    /// One more; false if there is no room for it.
    pub fn push(&mut self, range: Range) -> bool {
        let Some(place) = self.ranges.get_mut(self.count) else { return false };
        *place = range;
        self.count += 1;
        true
    }

    /// The ranges, in the order in which they were told.
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.ranges.iter().take(self.count).copied()
    }

    fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        let mut sacks = Self::default();
        for bytes in bytes.chunks(SACK_LEN) {
            let mut fields = Reader::of(bytes, SACK_LEN).map_err(|_| FrameError::Sack)?;
            let range = Range { start: fields.u64(), end: fields.u64() };
            if range.start >= range.end || !sacks.push(range) {
                return Err(FrameError::Sack);
            }
        }
        Ok(sacks)
    }
}

/// Ethernet's header: to whom, from whom, and that a frame of ours follows.
#[must_use]
pub fn ethernet_header(to: Mac, from: Mac) -> [u8; ETHERNET_LEN] {
    Writer::new().put(&to.0).put(&from.0).put(&ETHERTYPE.to_be_bytes()).done()
}

/// Takes Ethernet's header off: to whom, from whom, and the frame. None: it is none of ours.
#[must_use]
pub fn behind_ethernet(bytes: &[u8]) -> Option<(Mac, Mac, &[u8])> {
    let mut fields = Reader::of(bytes, ETHERNET_LEN).ok()?;
    let (to, from, ethertype) = (Mac(fields.take()), Mac(fields.take()), fields.u16());
    (ethertype == ETHERTYPE).then(|| (to, from, bytes.get(ETHERNET_LEN..).unwrap_or_default()))
}

impl Mac {
    /// Of one station: no group, to which nobody connects.
    #[must_use]
    pub const fn is_of_one(self) -> bool {
        self.0[0] & 1 == 0
    }

    /// What IPv6 calls it on its own link (RFC 4291 §2.5.6, appendix A): for what knows addresses
    /// of IP alone.
    #[must_use]
    pub const fn link_local(self) -> Ipv6Addr {
        let Self([a, b, c, d, e, f]) = self;
        Ipv6Addr::from_bits(u128::from_be_bytes([
            0xfe,
            0x80,
            0,
            0,
            0,
            0,
            0,
            0,
            a ^ 2,
            b,
            c,
            0xff,
            0xfe,
            d,
            e,
            f,
        ]))
    }
}

/// Why a text is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMac;

impl FromStr for Mac {
    type Err = NoMac;

    /// Six numbers of two hexadecimal digits between colons or hyphens.
    fn from_str(text: &str) -> Result<Self, NoMac> {
        let mut parts = text.split([':', '-']);
        let mut mac = [0; 6];
        for byte in &mut mac {
            let part = parts.next().filter(|part| part.len() == 2).ok_or(NoMac)?;
            if !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(NoMac);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| NoMac)?;
        }
        if parts.next().is_some() { Err(NoMac) } else { Ok(Self(mac)) }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NoMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not six numbers of two hexadecimal digits, as in 02:00:5e:10:00:01")
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.bytes(), f)
    }
}

impl fmt::Debug for Sacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|range| range.start..range.end)).finish()
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(length) => write!(f, "a frame is cut short at {length} bytes"),
            Self::Version(version) => write!(f, "version {version} of a frame"),
            Self::Kind(kind) => write!(f, "kind {kind} of a frame"),
            Self::Sack => f.write_str("a SACK range is empty, or one too many"),
            Self::Sequence => f.write_str("a frame goes beyond the end of all streams"),
        }
    }
}

impl core::error::Error for FrameError {}

impl core::error::Error for NoMac {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const PAYLOAD: [u8; 5] = [1, 2, 3, 4, 5];

    fn data(ranges: &[Range]) -> Frame<'static> {
        let mut sacks = Sacks::default();
        ranges.iter().for_each(|range| assert!(sacks.push(*range)));
        let data = Data {
            sequence: 0x0102_0304_0506_0708,
            acknowledged: 0x1112_1314_1516_1718,
            window: 0x2122_2324,
            fin: true,
            probe: false,
            sacks,
            payload: &PAYLOAD,
        };
        Frame { to: ConnectionId(0xa1a2_a3a4_a5a6_a7a8), to_acceptor: true, body: Body::Data(data) }
    }

    fn emitted(frame: &Frame<'_>) -> Vec<u8> {
        let mut bytes = frame.header().bytes().to_vec();
        match frame.body {
            Body::Data(data) => bytes.extend_from_slice(data.payload),
            Body::Open(start) | Body::Accept(start) => {
                bytes.resize(bytes.len() + usize::from(start.padding), 0);
            }
            Body::Reset { .. } => {}
        }
        bytes
    }

    #[test]
    fn what_sorts_frames_finds_their_ends() {
        for to_acceptor in [true, false] {
            let frame = Frame { to_acceptor, ..data(&[]) };
            let bytes = [&ethernet_header(Mac([2; 6]), Mac([4; 6]))[..], &emitted(&frame)].concat();
            let (at, mask) = TO_ACCEPTOR_BYTE;
            assert_eq!(bytes[usize::from(at)] & mask != 0, to_acceptor);
            let id = bytes[usize::from(TO_BYTE)..].first_chunk().copied().map(u64::from_be_bytes);
            assert_eq!(id.map(ConnectionId), Some(frame.to));
        }
    }

    #[test]
    fn a_frame_has_these_bytes() {
        let frame = data(&[Range { start: 1, end: 0x0100 }]);
        let vector = [
            1, 3, 0xc0, 1, 0, 5, 0, 0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 1, 2, 3, 4,
            5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 2, 3, 4, 5,
        ];
        assert_eq!(emitted(&frame), vector);
        // Ethernet fills short frames up.
        let mut padded = vector.to_vec();
        padded.extend_from_slice(&[0; 7]);
        assert_eq!(Frame::parse(&padded), Ok(frame));
    }

    #[test]
    fn what_is_no_frame_is_told() {
        let good = emitted(&data(&[Range { start: 1, end: 2 }]));
        for length in 0..good.len() {
            assert_eq!(Frame::parse(&good[..length]), Err(FrameError::Truncated(length)));
        }
        let broken = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            Frame::parse(&bytes).unwrap_err()
        };
        assert_eq!(broken(0, 2), FrameError::Version(2));
        assert_eq!(broken(1, 9), FrameError::Kind(9));
        assert_eq!(broken(55, 1), FrameError::Sack, "from 1 to 1");
        let mut last = data(&[]);
        let Body::Data(data) = &mut last.body else { unreachable!() };
        data.sequence = u64::MAX - 5;
        assert_eq!(Frame::parse(&emitted(&last)), Err(FrameError::Sequence));
        let mut many = good;
        many[3] = 9;
        many.resize(HEADER_LEN + 9 * SACK_LEN + 5, 1);
        assert_eq!(Frame::parse(&many), Err(FrameError::Sack));
    }

    #[test]
    fn addresses_are_read_and_shown() {
        let mac = Mac([2, 0, 0x5e, 0x10, 0, 0xff]);
        assert_eq!("02:00:5e:10:00:ff".parse(), Ok(mac));
        assert_eq!("02-00-5E-10-00-FF".parse(), Ok(mac));
        assert_eq!(mac.to_string(), "02:00:5e:10:00:ff");
        for text in
            ["", "02:00:5e:10:00", "02:00:5e:10:00:ff:1", "2:0:5e:10:0:ff", "02:00:5e:10:00:+f"]
        {
            assert_eq!(text.parse::<Mac>(), Err(NoMac), "{text}");
        }
        assert!(mac.is_of_one() && !Mac([0xff; 6]).is_of_one());
        assert_eq!(mac.link_local().to_string(), "fe80::5eff:fe10:ff");
        let from = Mac([4; 6]);
        let mut bytes = ethernet_header(mac, from).to_vec();
        bytes.push(7);
        assert_eq!(behind_ethernet(&bytes), Some((mac, from, &[7][..])));
        bytes[13] = 0;
        assert_eq!(behind_ethernet(&bytes), None);
        assert_eq!(behind_ethernet(&bytes[..13]), None);
    }

    fn bodies() -> impl Strategy<Value = Body<'static>> {
        let start = (any::<u64>(), any::<u16>(), any::<u32>(), 0..2000_u16).prop_map(
            |(from, payload_max, window, padding)| Start {
                from: ConnectionId(from),
                payload_max,
                window,
                padding,
            },
        );
        let ranges = proptest::collection::vec((0..1000_u64, 1..1000_u64), 0..=SACKS_MAX);
        let data = (any::<u32>(), any::<u64>(), any::<u32>(), any::<[bool; 2]>(), ranges).prop_map(
            |(sequence, acknowledged, window, [fin, probe], ranges)| {
                let mut sacks = Sacks::default();
                for (start, len) in ranges {
                    sacks.push(Range { start, end: start + len });
                }
                let sequence = u64::from(sequence);
                Data { sequence, acknowledged, window, fin, probe, sacks, payload: &PAYLOAD }
            },
        );
        prop_oneof![
            start.clone().prop_map(Body::Open),
            start.prop_map(Body::Accept),
            data.prop_map(Body::Data),
            any::<u64>().prop_map(|from| Body::Reset { from: ConnectionId(from) }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(to: u64, to_acceptor: bool, body in bodies()) {
            let frame = Frame { to: ConnectionId(to), to_acceptor, body };
            let bytes = emitted(&frame);
            prop_assert_eq!(Frame::parse(&bytes), Ok(frame));
        }

        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Frame::parse(&bytes);
            let _ = behind_ethernet(&bytes);
        }
    }
}
