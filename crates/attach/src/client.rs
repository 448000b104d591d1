// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection: what has come of it, and what is to be sent.

use std::time::Duration;

use buf::Buf;
use buf::SgList;
use clock::Instant;
use engine::Socket;
use initiator::Chunks;
use nbd::Agreed;
use nbd::Errno;
use nbd::Extent;
use nbd::Handshake;
use nbd::Receiver;
use nbd::Reply;
use nbd::Request;

use crate::limits;
use crate::tls::Peer;
use crate::tls::Secure;

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) socket: Socket,
    pub(crate) phase: Phase,
    /// What has come and is not looked at yet.
    pub(crate) held: Vec<u8>,
    /// The write whose data is coming.
    pub(crate) writing: Option<Writing>,
    /// A request that waits for memory.
    pub(crate) blocked: Option<Request>,
    /// The port is to receive nothing.
    pub(crate) paused: bool,
    /// The port has not given the last event of receiving.
    pub(crate) receiving: bool,
    /// Since when a send is under way.
    pub(crate) sending: Option<Instant>,
    /// Requests that are under way at the disk.
    pub(crate) at_disk: usize,
    pub(crate) end: End,
    /// None: what is sent and what comes is plain.
    tls: Option<Secure>,
    /// To be sent next.
    out: SgList,
    /// Before that, as it is.
    wire: SgList,
    /// What `out` answers, and what is being sent.
    gathered: Share,
    leaving: Share,
    /// Of all requests whose reply has not left.
    owed: Share,
}

/// Requests and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    requests: usize,
    bytes: u64,
}

/// Where a connection is.
#[derive(Debug)]
pub(crate) enum Phase {
    /// It must be over at that time.
    Handshake(Handshake, Instant),
    Serving(Receiver, Agreed),
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    /// Nothing more is taken; it is closed when all is answered.
    WhenAnswered,
    /// The port was told to close it.
    Closed,
}

/// A write whose data is coming.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(crate) request: Request,
    pub(crate) to: Destination,
    /// Bytes that have come.
    pub(crate) came: usize,
    /// How many had come when somebody lacked memory, and since when they are as many.
    looked: Option<(usize, Instant)>,
}

/// Where data of a write goes.
#[derive(Debug)]
pub(crate) enum Destination {
    /// Into whole blocks, with `lead` bytes before it.
    Buffer { buf: Buf, lead: usize },
    /// The same, of what is longer than a buffer.
    Buffers { bufs: Vec<Buf>, lead: usize },
    /// Nowhere: the request is refused.
    Nowhere(Errno),
}

impl Writing {
    pub(crate) const fn new(request: Request, to: Destination) -> Self {
        Self { request, to, came: 0, looked: None }
    }

    /// Since when nothing has come of it, as far as this was asked before; None: it holds no
    /// memory.
    fn silent_since(&mut self, now: Instant) -> Option<Instant> {
        if matches!(self.to, Destination::Nowhere(_)) {
            return None;
        }
        let looked = self.looked.filter(|(came, _)| *came == self.came);
        Some(self.looked.insert(looked.unwrap_or((self.came, now))).1)
    }

    /// Takes data; true: it is all there.
    pub(crate) fn take(&mut self, data: &[u8]) -> bool {
        match &mut self.to {
            Destination::Buffer { buf, lead } => {
                let start = *lead + self.came;
                if let Some(room) = buf.get_mut(start..start + data.len()) {
                    room.copy_from_slice(data);
                }
            }
            Destination::Buffers { bufs, lead } => {
                let (mut skip, mut rest) = (*lead + self.came, data);
                for buf in bufs {
                    let start = skip.min(buf.len());
                    let (here, after) = rest.split_at(rest.len().min(buf.len() - start));
                    if let Some(room) = buf.get_mut(start..start + here.len()) {
                        room.copy_from_slice(here);
                    }
                    (skip, rest) = (skip - start, after);
                }
            }
            Destination::Nowhere(_) => {}
        }
        self.came += data.len();
        u32::try_from(self.came).is_ok_and(|came| came >= self.request.length)
    }
}

impl Client {
    pub(crate) fn new(socket: Socket, handshake: Handshake, deadline: Instant) -> Self {
        Self {
            socket,
            phase: Phase::Handshake(handshake, deadline),
            held: Vec::new(),
            writing: None,
            blocked: None,
            paused: false,
            receiving: true,
            sending: None,
            at_disk: 0,
            end: End::Open,
            tls: None,
            out: SgList::new(),
            wire: SgList::new(),
            gathered: Share::default(),
            leaving: Share::default(),
            owed: Share::default(),
        }
    }

    pub(crate) const fn agreed(&self) -> Agreed {
        match &self.phase {
            Phase::Serving(_, agreed) => *agreed,
            Phase::Handshake(..) => Agreed::NOTHING,
        }
    }

    /// Whether it may give another request: it has few enough under way and unread.
    pub(crate) const fn may_ask(&self) -> bool {
        let answers_read = match &self.phase {
            // Answers of a negotiation are read before it goes on.
            Phase::Handshake(..) => self.sending.is_none(),
            Phase::Serving(..) => true,
        };
        answers_read
            && self.blocked.is_none()
            && self.owed.requests < limits::REQUESTS_MAX
            && self.owed.bytes < limits::BYTES_MAX
    }

    /// A request was taken.
    pub(crate) fn owes(&mut self, request: &Request) {
        self.owed.requests += 1;
        self.owed.bytes += data_bytes(request);
    }

    /// Bytes of a negotiation.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.out.push_bytes(bytes);
    }

    /// From now on all is inside of TLS, but for what was said until now.
    pub(crate) fn start_tls(&mut self, tls: Secure) {
        self.wire = std::mem::take(&mut self.out);
        self.tls = Some(tls);
    }

    pub(crate) const fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// What stands in bytes of TLS that have come.
    pub(crate) fn open(&mut self, bytes: &[u8]) -> Result<(Vec<u8>, Peer), rustls::Error> {
        let mut plain = Vec::new();
        let peer = self.tls.as_mut().map_or(Ok(Peer::Goes), |tls| tls.open(bytes, &mut plain))?;
        Ok((plain, peer))
    }

    /// The answer to a request that `owes` has counted.
    pub(crate) fn answer(&mut self, request: &Request, result: Result<Option<Data>, Errno>) {
        if self.end == End::Closed {
            return;
        }
        self.gathered.requests += 1;
        self.gathered.bytes += data_bytes(request);
        match result {
            Err(errno) => {
                self.out.push_bytes(Reply::failed(self.agreed(), request, errno).bytes());
            }
            Ok(data) => {
                self.out.push_bytes(Reply::done(self.agreed(), request).bytes());
                let Some(Data { chunks, lead }) = data else { return };
                let (mut skip, mut left) = (lead, request.length as usize);
                for buf in chunks {
                    let here = skip.min(buf.len());
                    skip -= here;
                    let end = buf.len().min(here + left);
                    left -= end - here;
                    self.out.push(buf.freeze().into_part(here..end).unwrap_or_default());
                }
            }
        }
    }

    /// The answer to a question for space.
    pub(crate) fn tell_space(&mut self, request: &Request, extents: &[Extent]) {
        self.gathered.requests += 1;
        self.out.push_bytes(&Reply::extents(request, extents));
    }

    /// Nobody hears it any more: what waits to be sent gives its memory back.
    pub(crate) fn close(&mut self) {
        self.end = End::Closed;
        (self.writing, self.blocked) = (None, None);
        (self.held, self.out, self.wire) = (Vec::new(), SgList::new(), SgList::new());
    }

    /// What is to be sent now; None: nothing, or something is being sent.
    pub(crate) fn next_send(&mut self, now: Instant) -> Option<SgList> {
        if self.sending.is_some() || self.end == End::Closed {
            return None;
        }
        let mut list = std::mem::take(&mut self.wire);
        let mut all = true;
        match &mut self.tls {
            None => list = std::mem::take(&mut self.out),
            Some(tls) => {
                if self.end == End::WhenAnswered && self.at_disk == 0 && self.out.is_empty() {
                    tls.leave();
                }
                all = tls.seal(&self.out, limits::SEAL_BYTES, &mut list);
                if all {
                    self.out.clear();
                }
            }
        }
        if list.is_empty() {
            return None;
        }
        self.sending = Some(now);
        if all {
            self.leaving = std::mem::take(&mut self.gathered);
        }
        Some(list)
    }

    /// It was sent, or is not sent any more.
    pub(crate) fn sent(&mut self, mut list: SgList) {
        self.sending = None;
        let leaving = std::mem::take(&mut self.leaving);
        self.owed.requests -= leaving.requests;
        self.owed.bytes -= leaving.bytes;
        list.clear();
        if self.tls.is_none() && self.out.is_empty() {
            // Its memory is used again.
            self.out = list;
        }
    }

    /// Why it is to give way to those who lack memory, which it has held for `patience` without
    /// taking its answers or going on with its write.
    pub(crate) fn is_stuck(&mut self, now: Instant, patience: Duration) -> Option<&'static str> {
        if self.end == End::Closed {
            return None;
        }
        if self.sending.is_some_and(|since| now >= since + patience) {
            return Some("it reads nothing");
        }
        let silent = self.writing.as_mut().and_then(|writing| writing.silent_since(now));
        silent
            .filter(|since| now >= *since + patience)
            .map(|_| "the data of its write does not come")
    }

    /// Nothing is owed to it any more.
    pub(crate) fn is_answered(&self) -> bool {
        self.at_disk == 0 && self.sending.is_none() && self.out.is_empty()
    }

    /// The port knows nothing of it any more, and neither does the disk.
    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.end, End::Closed)
            && !self.receiving
            && self.sending.is_none()
            && self.at_disk == 0
    }
}

/// What a read has brought.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) chunks: Chunks,
    /// Bytes at the start that were not asked for.
    pub(crate) lead: usize,
}

/// Data of a request, which memory is needed for.
fn data_bytes(request: &Request) -> u64 {
    match request.command {
        nbd::Command::Read | nbd::Command::Write => request.length.into(),
        _ => 0,
    }
}
