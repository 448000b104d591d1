// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection, from Open to its end.
//!
//! ```text
//!  Opening ----Accept----> Open ----both directions have ended----> Over
//!  HalfOpen ----Data-----> Open        reset, silence ------------> Over
//! ```

use core::fmt;

use clock::Instant;
use wire::ether::Body;
use wire::ether::ConnectionId;
use wire::ether::Data;
use wire::ether::Frame;
use wire::ether::Header;
use wire::ether::Mac;
use wire::ether::Sacks;
use wire::ether::Start;

use crate::limits::ANSWERS_MAX;
use crate::limits::ASK_PAUSE;
use crate::limits::FULL_ASKS;
use crate::limits::HALF_OPEN_PATIENCE;
use crate::limits::KEEP_ALIVE;
use crate::limits::LAST_WORDS;
use crate::limits::LINGER;
use crate::limits::OPEN_PATIENCE;
use crate::limits::PAYLOAD_MAX;
use crate::limits::PAYLOAD_MIN;
use crate::limits::PAYLOAD_STANDARD;
use crate::limits::RING_BYTES;
use crate::limits::SILENCE_MAX;
use crate::receiver::Receiver;
use crate::sender::Piece;
use crate::sender::Sender;

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // whoever owns one treats them all
pub enum Ended {
    /// Both directions have ended, and all has come.
    InOrder,
    /// The peer has reset it, or knows nothing of it.
    Reset,
    /// The peer does not take connections.
    Refused,
    /// The peer does not answer.
    Silent,
    /// The peer has broken the rules.
    Violation,
    /// We have reset it.
    Aborted,
}

/// A frame that is to be sent: header, and bytes in two pieces.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs)] // what a frame has
pub struct Outgoing<'a> {
    /// To whom.
    pub to: Mac,
    /// The first bytes behind Ethernet's header.
    pub header: Header,
    /// What follows.
    pub payload: [&'a [u8]; 2],
}

/// Who is at which end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) peer: Mac,
    /// What we call it.
    pub(crate) ours: ConnectionId,
    /// What the peer calls it; zero while it is not known.
    pub(crate) theirs: ConnectionId,
    pub(crate) we_opened: bool,
}

pub(crate) struct Connection {
    pub(crate) ends: Ends,
    state: State,
    /// When it was made, or has ended.
    since: Instant,
    /// When something came, last.
    heard: Instant,
    /// When a peer that is silent was asked, or something came.
    asked: Instant,
    /// A frame without bytes is due, and wants an answer.
    asking: bool,
    /// A reset is due.
    resetting: bool,
    /// Nobody reads any more: all is to be over by then.
    last_words: Option<Instant>,
    /// What the last frame of a connection that has ended in order tells.
    last: (u64, u64),
    /// Frames that were sent once more, when it has ended.
    pub(crate) resent: u64,
    /// Its owner knows of it.
    pub(crate) is_known: bool,
    /// Its owner was told that it is over.
    pub(crate) is_told: bool,
}

enum State {
    /// `asks`: how often it was asked for. `due`: when again.
    Opening {
        payload_max: u16,
        asks: u32,
        due: Instant,
    },
    /// `answers`: so many more to what was asked.
    HalfOpen {
        start: Start,
        due: Instant,
        answers: u32,
    },
    Open(alloc::boxed::Box<Stream>),
    Over(Ended),
}

/// Both directions.
pub(crate) struct Stream {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
}

static ZEROS: [u8; PAYLOAD_MAX] = [0; PAYLOAD_MAX];

/// A frame that is due.
pub(crate) struct Due {
    pub(crate) to: Mac,
    pub(crate) header: Header,
    pub(crate) filling: Filling,
}

/// What follows its header.
pub(crate) enum Filling {
    Nothing,
    /// So many, so that a path that does not carry such frames shows.
    Zeros(u16),
    Piece(Piece),
}

impl Connection {
    /// Asks `peer` for one.
    pub(crate) fn open(peer: Mac, ours: ConnectionId, payload_max: usize, now: Instant) -> Self {
        let ends = Ends { peer, ours, theirs: ConnectionId(0), we_opened: true };
        let payload_max = u16::try_from(payload_max.min(PAYLOAD_MAX)).unwrap_or(0);
        Self::new(ends, State::Opening { payload_max, asks: 0, due: now }, now)
    }

    /// Accepts what was asked for.
    pub(crate) fn accept(
        peer: Mac,
        ours: ConnectionId,
        asked: Start,
        payload_max: usize,
        now: Instant,
    ) -> Self {
        let ends = Ends { peer, ours, theirs: asked.from, we_opened: false };
        let start = agreed(asked, payload_max);
        Self::new(ends, State::HalfOpen { start, due: now, answers: ANSWERS_MAX }, now)
    }

    const fn new(ends: Ends, state: State, now: Instant) -> Self {
        Self {
            is_known: ends.we_opened,
            is_told: false,
            resent: 0,
            last: (0, 0),
            ends,
            state,
            since: now,
            heard: now,
            asked: now,
            asking: false,
            resetting: false,
            last_words: None,
        }
    }

    pub(crate) const fn since(&self) -> Instant {
        self.since
    }

    pub(crate) const fn is_opening(&self) -> bool {
        matches!(self.state, State::Opening { .. })
    }

    pub(crate) const fn is_half_open(&self) -> bool {
        matches!(self.state, State::HalfOpen { .. })
    }

    pub(crate) const fn stream(&self) -> Option<&Stream> {
        match &self.state {
            State::Open(stream) => Some(stream),
            _ => None,
        }
    }

    pub(crate) const fn stream_mut(&mut self) -> Option<&mut Stream> {
        match &mut self.state {
            State::Open(stream) => Some(stream),
            _ => None,
        }
    }

    /// Why it is over, if it is.
    pub(crate) const fn ended(&self) -> Option<Ended> {
        match self.state {
            State::Over(why) => Some(why),
            _ => None,
        }
    }

    /// The peer asks once more, perhaps with shorter frames.
    pub(crate) fn handle_open(&mut self, asked: Start, now: Instant) {
        if let State::HalfOpen { start, due, answers } = &mut self.state {
            *start = agreed(asked, usize::from(start.payload_max));
            (*due, *answers) = (now, ANSWERS_MAX);
        }
    }

    /// The peer has accepted. True if the connection stands now.
    pub(crate) fn handle_accept(&mut self, accepted: Start, now: Instant) -> bool {
        match &self.state {
            State::Opening { payload_max, .. } => {
                if accepted.from == ConnectionId(0)
                    || usize::from(accepted.payload_max) < PAYLOAD_MIN
                {
                    self.end(Ended::Violation, now);
                    return false;
                }
                let payload_max = accepted.payload_max.min(*payload_max);
                self.ends.theirs = accepted.from;
                self.stand(accepted.window, payload_max, now);
                // The peer waits for a word of ours.
                self.asking = true;
                true
            }
            // It has not heard us.
            State::Open(_) if self.ends.theirs == accepted.from => {
                self.asking = true;
                false
            }
            _ => false,
        }
    }

    /// A piece of the stream has come. True if the connection stands now.
    pub(crate) fn handle_data(&mut self, data: &Data<'_>, now: Instant) -> bool {
        (self.heard, self.asked) = (now, now);
        let stands = match &self.state {
            State::HalfOpen { start, .. } => {
                let Start { window, payload_max, .. } = *start;
                self.stand(window, payload_max, now);
                true
            }
            _ => false,
        };
        let State::Open(stream) = &mut self.state else {
            // It is over, and the peer does not know.
            match self.state {
                State::Over(Ended::InOrder) => self.asking |= data.fin || data.probe,
                State::Over(_) => self.resetting = true,
                _ => {}
            }
            return false;
        };
        let Stream { sender, receiver } = &mut **stream;
        let told = sender.acknowledge(data.acknowledged, data.window, &data.sacks, now);
        if told.is_err() || receiver.take(data).is_err() {
            self.end(Ended::Violation, now);
        }
        self.settle(now);
        stands
    }

    pub(crate) fn handle_reset(&mut self, now: Instant) {
        if self.ended().is_none() {
            let refused = matches!(self.state, State::Opening { .. });
            self.end(if refused { Ended::Refused } else { Ended::Reset }, now);
            self.resetting = false;
        }
    }

    /// Ends both directions at once.
    pub(crate) fn abort(&mut self, now: Instant) {
        if self.ended().is_none() {
            self.end(Ended::Aborted, now);
        }
    }

    /// Nobody reads any more; what was to be sent still is, for some time.
    pub(crate) fn leave(&mut self, now: Instant) {
        match &mut self.state {
            State::Open(stream) => {
                stream.sender.finish();
                stream.receiver.drop_all();
                self.last_words.get_or_insert(now + LAST_WORDS);
                self.settle(now);
            }
            State::Over(_) => {}
            _ => self.abort(now),
        }
    }

    /// Both directions have ended?
    pub(crate) fn settle(&mut self, now: Instant) {
        if let State::Open(stream) = &self.state
            && stream.sender.is_over()
            && stream.receiver.is_over()
        {
            // That the peer's stream has ended is told now, and again while we linger.
            self.last = (stream.sender.position(), stream.receiver.acknowledged());
            self.asking |= stream.receiver.is_due();
            self.end(Ended::InOrder, now);
        }
    }

    fn stand(&mut self, window: u32, payload_max: u16, now: Instant) {
        let sender = Sender::new(window, usize::from(payload_max), now);
        let stream = Stream { sender, receiver: Receiver::new() };
        self.state = State::Open(alloc::boxed::Box::new(stream));
        (self.heard, self.asked) = (now, now);
    }

    fn end(&mut self, why: Ended, now: Instant) {
        self.resent = self.stream().map_or(0, |stream| stream.sender.resent);
        self.resetting = !matches!(why, Ended::InOrder);
        self.state = State::Over(why);
        self.since = now;
    }

    /// When something is to be done though nothing comes.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Opening { due, .. } => Some((*due).min(self.since + OPEN_PATIENCE)),
            State::HalfOpen { answers: 0, .. } => Some(self.since + HALF_OPEN_PATIENCE),
            State::HalfOpen { due, .. } => Some((*due).min(self.since + HALF_OPEN_PATIENCE)),
            State::Open(stream) => {
                let idle = (self.asked + KEEP_ALIVE).min(self.heard + SILENCE_MAX);
                let others = [stream.sender.poll_timeout(), self.last_words];
                Some(others.into_iter().flatten().fold(idle, Instant::min))
            }
            State::Over(_) => Some(self.since + LINGER),
        }
    }

    /// False: nothing is left of it.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        match &mut self.state {
            State::Opening { .. } => {
                if now >= self.since + OPEN_PATIENCE {
                    self.end(Ended::Silent, now);
                }
            }
            State::HalfOpen { .. } => return now < self.since + HALF_OPEN_PATIENCE,
            State::Open(stream) => {
                let silent = stream.sender.handle_timeout(now).is_err();
                if silent || now >= self.heard + SILENCE_MAX {
                    self.end(Ended::Silent, now);
                } else if self.last_words.is_some_and(|until| now >= until) {
                    self.abort(now);
                } else if now >= self.asked + KEEP_ALIVE {
                    (self.asked, self.asking) = (now, true);
                }
            }
            State::Over(_) => return now < self.since + LINGER || self.resetting,
        }
        true
    }

    /// The next frame, if one is due.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Due> {
        let Ends { peer, ours, theirs, we_opened } = self.ends;
        let frame = |body| Frame { to: theirs, to_acceptor: we_opened, body };
        if core::mem::take(&mut self.resetting) {
            let header = frame(Body::Reset { from: ours }).header();
            return Some(Due { to: peer, header, filling: Filling::Nothing });
        }
        match &mut self.state {
            State::Opening { payload_max, asks, due } => {
                if now < *due {
                    return None;
                }
                (*asks, *due) = (*asks + 1, now + ASK_PAUSE);
                if *asks > FULL_ASKS {
                    let standard = u16::try_from(PAYLOAD_STANDARD).unwrap_or(u16::MAX);
                    *payload_max = (*payload_max).min(standard);
                }
                let payload_max = *payload_max;
                let start = Start { from: ours, payload_max, window: WINDOW, padding: payload_max };
                let header = frame(Body::Open(start)).header();
                Some(Due { to: peer, header, filling: Filling::Zeros(payload_max) })
            }
            State::HalfOpen { start, due, answers } => {
                if now < *due || *answers == 0 {
                    return None;
                }
                (*due, *answers) = (now + ASK_PAUSE, *answers - 1);
                let payload_max = start.payload_max;
                let start = Start { from: ours, payload_max, window: WINDOW, padding: payload_max };
                let header = frame(Body::Accept(start)).header();
                Some(Due { to: peer, header, filling: Filling::Zeros(payload_max) })
            }
            State::Open(stream) => {
                let Stream { sender, receiver } = &mut **stream;
                let piece = sender.poll_transmit(now);
                let asking = core::mem::take(&mut self.asking);
                if piece.is_none() && !asking && !receiver.is_due() {
                    return None;
                }
                let (acknowledged, window, sacks) = receiver.tell();
                let data = Data {
                    sequence: piece.map_or_else(|| sender.position(), |piece| piece.sequence),
                    acknowledged,
                    window,
                    fin: piece.is_some_and(|piece| piece.fin),
                    probe: asking || piece.is_some_and(|piece| piece.probe),
                    sacks,
                    payload: &[],
                };
                let len = piece.map_or(0, |piece| piece.len);
                let header = frame(Body::Data(data)).header_before(len);
                let filling = piece.map_or(Filling::Nothing, Filling::Piece);
                Some(Due { to: peer, header, filling })
            }
            State::Over(Ended::InOrder) if core::mem::take(&mut self.asking) => {
                let (sequence, acknowledged) = self.last;
                let (sacks, payload) = (Sacks::default(), &[][..]);
                let (fin, probe, window) = (false, false, 0);
                let data = Data { sequence, acknowledged, window, fin, probe, sacks, payload };
                let header = frame(Body::Data(data)).header();
                Some(Due { to: peer, header, filling: Filling::Nothing })
            }
            State::Over(_) => None,
        }
    }

    /// What follows a header.
    pub(crate) fn payload(&self, filling: &Filling) -> [&[u8]; 2] {
        match (filling, &self.state) {
            (Filling::Zeros(len), _) => [ZEROS.get(..usize::from(*len)).unwrap_or_default(), &[]],
            (Filling::Piece(piece), State::Open(stream)) => stream.sender.bytes(piece),
            _ => [&[]; 2],
        }
    }

    /// Its invariants hold.
    pub(crate) fn check(&self) {
        if let State::Open(stream) = &self.state {
            stream.sender.check();
            stream.receiver.check();
        }
    }
}

/// Bytes that are taken at first.
#[expect(clippy::cast_possible_truncation)] // a mebibyte
const WINDOW: u32 = RING_BYTES as u32;

/// What an acceptor answers to who asks.
fn agreed(asked: Start, payload_max: usize) -> Start {
    let ours = u16::try_from(payload_max.min(PAYLOAD_MAX)).unwrap_or(0);
    Start { payload_max: asked.payload_max.min(ours), ..asked }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("ends", &self.ends).finish_non_exhaustive()
    }
}
