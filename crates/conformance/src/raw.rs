// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A blocking connection that sends any bytes and reads one PDU at a time; or any requests, over a
//! local connection.

use std::io;
use std::io::Read;
use std::io::Write;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::time::Duration;
use std::time::Instant;

use target::LocalEnd;
use wire::iscsi::BHS_LEN;
use wire::iscsi::BhsView;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::pad4;

use crate::local::Local;

/// What has not come after this time does not come. Over frames a reset may be lost: the next one
/// comes when the peer is asked whether it is there, every 5 s.
pub const PATIENCE: Duration = Duration::from_secs(12);

/// Length of a digest, bytes.
const DIGEST_LEN: usize = 4;

/// A PDU as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// BHS and AHS.
    pub header: Vec<u8>,
    /// The data segment without padding.
    pub data: Vec<u8>,
    /// What filled the data segment up to whole words.
    pub padding: Vec<u8>,
}

/// What came within some time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // there is nothing else to hear
pub enum Heard {
    /// A PDU.
    Pdu(Pdu),
    /// The end of the stream, or a reset.
    Closed,
    /// Not a byte.
    Nothing,
}

/// One connection to a target.
#[derive(Debug)]
pub struct Raw {
    line: Line,
    /// Header digests are on in both directions.
    pub header_digest: bool,
    /// Data digests are on in both directions.
    pub data_digest: bool,
}

/// What carries it.
#[derive(Debug)]
enum Line {
    Stream(TcpStream),
    Local(Local),
}

impl Pdu {
    /// The opcode, without the I bit.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.byte(0) & 0x3f
    }

    /// The byte of the header at `at`.
    #[must_use]
    pub fn byte(&self, at: usize) -> u8 {
        *self.header.get(at).expect("a header byte")
    }

    /// Four bytes of the header as a number.
    #[must_use]
    pub fn word(&self, at: usize) -> u32 {
        let bytes = self.header.get(at..at + 4).expect("four header bytes");
        u32::from_be_bytes(bytes.try_into().expect("four bytes"))
    }

    /// The header taken apart. Panics if it is none that a target may send.
    #[must_use]
    pub fn response(&self) -> Response {
        match Response::parse(&self.header) {
            Ok(response) => response,
            Err(error) => panic!("the target sent an illegal header: {error}: {self:x?}"),
        }
    }

    /// The key=value pairs of the data segment.
    #[must_use]
    pub fn pairs(&self) -> Vec<(String, String)> {
        pairs(&self.data)
    }
}

/// Splits null-terminated text; panics if it is not written as RFC 7143 §6.1 wants it.
#[must_use]
pub fn pairs(text: &[u8]) -> Vec<(String, String)> {
    let pairs = wire::iscsi::keys::Pairs::new(text);
    pairs
        .map(|pair| pair.expect("the target writes legal text"))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Text as RFC 7143 §6.1 wants it.
#[must_use]
pub fn text(pairs: &[(&str, &str)]) -> Vec<u8> {
    pairs.iter().flat_map(|(key, value)| format!("{key}={value}\0").into_bytes()).collect()
}

/// BHS and AHS of a request whose data segment has `data_length` bytes.
#[must_use]
pub fn header(request: &Request, data_length: usize) -> Vec<u8> {
    let length = u32::try_from(data_length).expect("24 bits");
    let mut header = Vec::new();
    request.emit(length, &mut header);
    header
}

impl Raw {
    /// The connection itself, for who writes bytes without any help.
    ///
    /// # Panics
    /// If it is a local one.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        match self.line {
            Line::Stream(stream) => stream,
            Line::Local(_) => panic!("a local connection has no bytes"),
        }
    }

    /// A connection within this process.
    #[must_use]
    pub fn local(end: LocalEnd) -> Self {
        let line = Line::Local(Local::from(end));
        Self { line, header_digest: false, data_digest: false }
    }

    /// Connects.
    ///
    /// # Errors
    /// What the system says.
    pub fn connect(portal: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&portal, PATIENCE)?;
        stream.set_nodelay(true)?;
        Ok(Self { line: Line::Stream(stream), header_digest: false, data_digest: false })
    }

    /// Connects over raw Ethernet.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn over_frames(place: &station::Place) -> io::Result<Self> {
        let line = Line::Stream(TcpStream::from(station::connect(place)?));
        Ok(Self { line, header_digest: false, data_digest: false })
    }

    /// Sends bytes as they are; a connection that the target has closed takes them in vain.
    pub fn write(&mut self, bytes: &[u8]) {
        let stream = match &mut self.line {
            Line::Stream(stream) => stream,
            Line::Local(local) => return local.write(bytes),
        };
        if let Err(error) = stream.write_all(bytes) {
            let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
            assert!(gone.contains(&error.kind()), "cannot send: {error}");
        }
    }

    /// Sends a request with its data segment, padding and digests.
    pub fn send(&mut self, request: &Request, data: &[u8]) {
        self.send_header(&header(request, data.len()), data);
    }

    /// Sends a header as it is, and a data segment with padding and digests.
    pub fn send_header(&mut self, header: &[u8], data: &[u8]) {
        if let Line::Local(local) = &mut self.line {
            return local.send(header, data);
        }
        let bytes = self.assemble(header, data);
        self.write(&bytes);
    }

    /// The bytes of a PDU: header, digest, data, padding, digest.
    #[must_use]
    pub fn assemble(&self, header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = header.to_vec();
        if self.header_digest {
            bytes.extend_from_slice(&crc::crc32c(header).to_le_bytes());
        }
        let mut segment = data.to_vec();
        segment.resize(pad4(data.len()), 0);
        bytes.extend_from_slice(&segment);
        if self.data_digest && !segment.is_empty() {
            bytes.extend_from_slice(&crc::crc32c(&segment).to_le_bytes());
        }
        bytes
    }

    /// Waits for a PDU.
    pub fn hear(&mut self, patience: Duration) -> Heard {
        if let Line::Local(local) = &mut self.line {
            return local.hear(patience);
        }
        let deadline = Instant::now() + patience;
        let mut header = vec![0; BHS_LEN];
        match self.fill(&mut header, deadline) {
            Filled::Whole => {}
            Filled::Closed(0) => return Heard::Closed,
            Filled::Late(0) => return Heard::Nothing,
            cut => panic!("a header was cut: {cut:?}: {header:x?}"),
        }
        let deadline = Instant::now() + PATIENCE;
        let (ahs_length, data_length) = {
            let bhs = BhsView::new_checked(&header).expect("48 bytes");
            (bhs.total_ahs_length(), bhs.data_segment_length() as usize)
        };
        header.extend(self.must_fill(ahs_length, deadline));
        if self.header_digest {
            let digest = self.must_fill(DIGEST_LEN, deadline);
            assert_eq!(digest, crc::crc32c(&header).to_le_bytes(), "header digest: {header:x?}");
        }
        let mut data = self.must_fill(pad4(data_length), deadline);
        if self.data_digest && data_length > 0 {
            let digest = self.must_fill(DIGEST_LEN, deadline);
            assert_eq!(digest, crc::crc32c(&data).to_le_bytes(), "data digest: {header:x?}");
        }
        let padding = data.split_off(data_length);
        Heard::Pdu(Pdu { header, data, padding })
    }

    /// The next `length` bytes of the stream, whatever they are; panics if they do not come.
    pub fn read_bytes(&mut self, length: usize) -> Vec<u8> {
        self.must_fill(length, Instant::now() + PATIENCE)
    }

    /// The next PDU; panics if none comes.
    pub fn read(&mut self) -> Pdu {
        match self.hear(PATIENCE) {
            Heard::Pdu(pdu) => pdu,
            other => panic!("a PDU was due: {other:?}"),
        }
    }

    /// Whether the other side still takes bytes: one that has closed its socket whole answers with
    /// a reset, and then nothing more can be sent.
    ///
    /// # Panics
    /// On a local connection, which has no halves.
    pub fn takes(&mut self, bytes: &[u8]) -> bool {
        let Line::Stream(stream) = &mut self.line else {
            panic!("a local connection has no bytes")
        };
        let first = stream.write_all(bytes).is_ok();
        std::thread::sleep(Duration::from_millis(100));
        first && stream.write_all(bytes).is_ok()
    }

    /// Panics unless the stream ends here, without another PDU.
    pub fn expect_closed(&mut self) {
        let heard = self.hear(PATIENCE);
        assert_eq!(heard, Heard::Closed, "the connection must be closed");
    }

    /// Half-closes: the target sees the end of the stream. A local connection is gone then.
    pub fn finish(&mut self) {
        match &mut self.line {
            // A connection that is gone already needs no end.
            Line::Stream(stream) => drop(stream.shutdown(std::net::Shutdown::Write)),
            Line::Local(local) => local.close(),
        }
    }

    fn must_fill(&mut self, length: usize, deadline: Instant) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let filled = self.fill(&mut bytes, deadline);
        assert!(matches!(filled, Filled::Whole), "a PDU was cut: {filled:?} of {length} bytes");
        bytes
    }

    fn fill(&mut self, bytes: &mut [u8], deadline: Instant) -> Filled {
        let Line::Stream(stream) = &mut self.line else {
            panic!("a local connection has no bytes")
        };
        let mut have = 0;
        while have < bytes.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Filled::Late(have);
            }
            stream.set_read_timeout(Some(left)).expect("a time above zero");
            match stream.read(bytes.get_mut(have..).unwrap_or_default()) {
                Ok(0) => return Filled::Closed(have),
                Ok(count) => have += count,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {}
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::ConnectionReset => return Filled::Closed(have),
                    _ => panic!("cannot read: {error}"),
                },
            }
        }
        Filled::Whole
    }
}

/// How far reading came.
#[derive(Clone, Copy, Debug)]
enum Filled {
    Whole,
    Closed(usize),
    Late(usize),
}
