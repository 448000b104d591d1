// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams: who holds one is told what is new, as server-sent events (HTML, section 9.2), each
//! second.
//!
//! One task asks the daemon for all of them. Nobody who does not read is waited for: what is told
//! goes into a bounded queue of each stream, and one whose queue is full ends. Its connection does
//! so when nothing was taken for as long as one may ask nothing.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::task::ready;

use control::admin::Events;
use control::admin::Reply;
use http_body_util::Full;
use hyper::body::Body;
use hyper::body::Bytes;
use hyper::body::Frame;
use hyper::body::SizeHint;
use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::Sender;
use tokio::time;
use tokio::time::Instant;

use crate::access::Pass;
use crate::api::How;
use crate::api::Resource;
use crate::limits::STREAM_KEEP_ALIVE;
use crate::limits::STREAM_MESSAGES_MAX;
use crate::limits::STREAM_TICK;
use crate::limits::STREAMS_MAX;
use crate::looks::Looks;

/// Where they are.
pub(crate) const PATH: &str = "/api/v1/stream";

/// A browser that has lost its stream asks for another one after so many milliseconds.
const FIRST: &[u8] = b"retry: 2000\n\n";

const KEEP_ALIVE: &[u8] = b": still there\n\n";

/// What a stream begins with, and where that ends: the daemon stops.
const END: &[u8] = b"event: end\ndata: {}\n\n";

/// What somebody wants to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Events and load.
    All,
    /// Events alone.
    Events,
}

/// The last event that somebody has been told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Since when the daemon counts: another one counts anew.
    since_ms: u64,
    number: u64,
}

impl Place {
    /// As `Last-Event-ID` has it; from the beginning if it is none.
    pub(crate) fn of(id: &[u8]) -> Self {
        let parsed = || {
            let (since, number) = std::str::from_utf8(id).ok()?.split_once('-')?;
            Some(Self { since_ms: since.parse().ok()?, number: number.parse().ok()? })
        };
        parsed().unwrap_or_default()
    }
}

/// All that there are.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    open: Mutex<Vec<Stream>>,
    /// One more is there.
    came: Notify,
    bodies: Arc<Bodies>,
}

/// Answers that have not ended.
#[derive(Debug, Default)]
struct Bodies {
    count: AtomicUsize,
    left: Notify,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Bodies>);

impl Counted {
    fn new(bodies: &Arc<Bodies>) -> Self {
        bodies.count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(bodies))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.left.notify_one();
    }
}

#[derive(Debug)]
struct Stream {
    to: Sender<Bytes>,
    wanted: Wanted,
    /// None: nothing was told yet.
    told: Option<Place>,
    asked: Place,
    said: Instant,
    /// Without it everybody may read.
    pass: Option<Pass>,
}

impl Stream {
    /// False: it takes nothing any more.
    fn say(&mut self, what: Bytes) -> bool {
        self.said = Instant::now();
        self.to.try_send(what).is_ok()
    }
}

impl Streams {
    fn open(&self) -> MutexGuard<'_, Vec<Stream>> {
        // Whole between any two statements.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more, for somebody who was told of events up to `asked`. None: there are enough.
    pub(crate) fn begin(&self, wanted: Wanted, asked: Place, pass: Option<Pass>) -> Option<Said> {
        let (to, from) = mpsc::channel(STREAM_MESSAGES_MAX);
        let mut open = self.open();
        open.retain(|stream| !stream.to.is_closed());
        if open.len() >= STREAMS_MAX {
            return None;
        }
        let mut stream = Stream { to, wanted, told: None, asked, said: Instant::now(), pass };
        stream.say(Bytes::from_static(FIRST));
        open.push(stream);
        self.came.notify_one();
        Some(Said::Parts { from, taken: None, _counted: Counted::new(&self.bodies) })
    }

    /// All of them end.
    pub(crate) fn end(&self) {
        for mut stream in self.open().drain(..) {
            stream.say(Bytes::from_static(END));
        }
    }

    /// Waits until all have been told so, or have gone.
    pub(crate) async fn ended(&self) {
        while self.bodies.count.load(Ordering::Relaxed) > 0 {
            self.bodies.left.notified().await;
        }
    }

    /// Behind which events somebody wants to hear.
    fn places(&self) -> Vec<(Option<Place>, Place)> {
        let mut open = self.open();
        open.retain(|stream| !stream.to.is_closed());
        let mut places: Vec<_> = open.iter().map(|one| (one.told, one.asked)).collect();
        places.sort_unstable_by_key(|(told, asked)| {
            let number = |place: Place| (place.since_ms, place.number);
            (told.map(number), number(*asked))
        });
        places.dedup();
        places
    }

    /// Who was told as far as `place` hears of these.
    fn tell_events(&self, place: (Option<Place>, Place), events: Events) {
        let last = Place { since_ms: events.since_ms, number: events.last };
        let is_new = place.0.is_none() || !events.events.is_empty();
        let text = Reply::Events(events).line();
        let mut message = format!("id: {}-{}\nevent: events\ndata: ", last.since_ms, last.number);
        message.push_str(&String::from_utf8_lossy(&text));
        message.push('\n');
        let message = Bytes::from(message);
        self.open().retain_mut(|stream| {
            if (stream.told, stream.asked) != place {
                return true;
            }
            stream.told = Some(last);
            !is_new || stream.say(message.clone())
        });
    }

    fn tell_load(&self, text: &[u8]) {
        // A line has its end.
        let message = Bytes::from([b"event: load\ndata: ", text, b"\n"].concat());
        self.open()
            .retain_mut(|stream| stream.wanted != Wanted::All || stream.say(message.clone()));
    }

    fn keep_alive(&self) {
        self.open().retain_mut(|stream| {
            stream.said.elapsed() < STREAM_KEEP_ALIVE || stream.say(Bytes::from_static(KEEP_ALIVE))
        });
    }

    /// Those whose token is good for nothing any more end.
    fn look_at_passes(&self) {
        self.open().retain(|stream| stream.pass.as_ref().is_none_or(Pass::holds));
    }

    fn wants_load(&self) -> bool {
        self.open().iter().any(|stream| stream.wanted == Wanted::All)
    }
}

/// Tells them what is new, as long as the task is there. The daemon is asked for nothing while
/// there are none.
pub(crate) async fn tell(looks: Arc<Looks>) {
    let streams = looks.streams();
    let mut last = Bytes::new();
    loop {
        if streams.places().is_empty() {
            streams.came.notified().await;
        }
        streams.look_at_passes();
        for place in streams.places() {
            let (told, asked) = place;
            let from = told.unwrap_or(asked);
            let Some(mut events) = looks.events(from.number).await else { break };
            if events.since_ms != from.since_ms && from.number > 0 {
                // Another daemon has counted so far.
                let Some(all) = looks.events(0).await else { break };
                events = all;
            }
            streams.tell_events(place, events);
        }
        if streams.wants_load() {
            let load = looks.answer(Resource::Load, 0).await;
            // A long one is told for longer.
            let is_new = load.text.as_ptr() != last.as_ptr();
            if load.how == How::Answered && is_new {
                streams.tell_load(&load.text);
                last = load.text;
            }
        }
        streams.keep_alive();
        time::sleep(STREAM_TICK).await;
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Said {
    /// All of it.
    Whole(Full<Bytes>),
    /// What comes.
    Parts {
        from: Receiver<Bytes>,
        /// When a part was taken.
        taken: Option<Rc<Cell<Instant>>>,
        _counted: Counted,
    },
}

impl Said {
    pub(crate) fn whole(text: Bytes) -> Self {
        Self::Whole(Full::new(text))
    }

    /// From now on `taken` has when the last part was taken, if it comes in parts.
    pub(crate) fn is_timed_by(&mut self, by: &Rc<Cell<Instant>>) {
        if let Self::Parts { taken, .. } = self {
            *taken = Some(Rc::clone(by));
        }
    }
}

impl Body for Said {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(whole) => Pin::new(whole).poll_frame(context),
            Self::Parts { from, taken, .. } => {
                let part = ready!(from.poll_recv(context));
                if let Some(taken) = taken {
                    taken.set(Instant::now());
                }
                Poll::Ready(part.map(|part| Ok(Frame::data(part))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Parts { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Parts { .. } => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_id() {
        assert_eq!(Place::of(b"17-4"), Place { since_ms: 17, number: 4 });
        for none in [&b""[..], b"17", b"-", b"a-1", b"1-", b"1-99999999999999999999", b"\xff-1"] {
            assert_eq!(Place::of(none), Place::default(), "{none:?}");
        }
    }

    #[test]
    fn who_does_not_read_is_not_waited_for() {
        let streams = Streams::default();
        let all: Vec<_> =
            (0..STREAMS_MAX).map(|_| streams.begin(Wanted::All, Place::default(), None)).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(streams.begin(Wanted::All, Place::default(), None).is_none(), "there are enough");
        for _ in 0..STREAM_MESSAGES_MAX - 1 {
            streams.tell_load(b"{}\n");
        }
        assert_eq!(streams.open().len(), STREAMS_MAX);
        streams.tell_load(b"{}\n");
        assert_eq!(streams.open().len(), 0, "their queues are full");
        assert!(streams.begin(Wanted::Events, Place::default(), None).is_some());
        assert!(!streams.wants_load());
        drop(all);
        let _ = streams.places();
        assert!(streams.places().is_empty(), "who has gone is forgotten");
    }
}
