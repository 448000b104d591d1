// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is seen of the daemon, at one moment, for all who ask then.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::time::Instant;
use std::time::UNIX_EPOCH;

use control::admin::Events;
use control::admin::Reply;
use control::admin::Request;
use hyper::body::Bytes;
use target::Figures;
use target::LimitSnapshot;
use target::Target;
use target::TargetSnapshot;

use crate::Desk;
use crate::access::Denied;
use crate::access::Gate;
use crate::access::Pass;
use crate::api::Answers;
use crate::api::Giver;
use crate::api::Resource;
use crate::api::Told;
use crate::health::OPENING;
use crate::health::STOPPING;
use crate::limits::ANSWER_WAIT;
use crate::limits::FRESH;
use crate::metrics;
use crate::metrics::Format;
use crate::streams::Place;
use crate::streams::Said;
use crate::streams::Streams;
use crate::streams::Wanted;
use crate::tls::Tls;

/// Looks at the daemon, one at a time.
#[derive(Debug)]
pub(crate) struct Looks {
    about: About,
    stage: Mutex<Stage>,
    answers: Answers,
    gate: Gate,
    streams: Streams,
    /// Held by who looks.
    last: tokio::sync::Mutex<Option<(Instant, Arc<Look>)>>,
}

/// What never changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) version: &'static str,
    /// Counts of the time-stamp counter in a second.
    pub(crate) cycles_per_second: f64,
}

/// How far the daemon is.
#[derive(Clone, Debug)]
enum Stage {
    Opening,
    Serving(Arc<Target>, Arc<dyn Desk>),
    Stopping,
}

/// What was seen.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) about: About,
    pub(crate) seen: Seen,
    pub(crate) port: Port,
    pages: [OnceLock<Option<Bytes>>; 2],
}

/// What there is to tell of the port for HTTP itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    /// When its certificate ends, in seconds since 1970.
    pub(crate) certificate_end: Option<u64>,
    /// Those who were refused for want of a token; None: nobody has one.
    pub(crate) denied: Option<[(Denied, u64); Denied::ALL.len()]>,
}

#[derive(Debug)]
pub(crate) enum Seen {
    /// Disks are being opened.
    Opening,
    Serving(Box<Serving>),
    /// Initiators are asked to log out.
    Stopping,
}

/// What a daemon that serves is and has.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) engine: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) crc32c: &'static str,
    /// Where connections are taken, or interfaces.
    pub(crate) portals: Vec<SocketAddr>,
    pub(crate) stations: usize,
    /// Of the reactors that have answered.
    pub(crate) figures: Vec<Figures>,
    /// Those that have not.
    pub(crate) silent: Vec<usize>,
    pub(crate) targets: Vec<TargetSnapshot>,
    pub(crate) limits: Vec<LimitSnapshot>,
}

impl Looks {
    pub(crate) fn new(version: &'static str, gate: Gate) -> Self {
        let cycles_per_second = target::engine::cycles::per_second();
        let about = About { version, cycles_per_second };
        let (stage, last) = (Mutex::new(Stage::Opening), tokio::sync::Mutex::default());
        Self { about, stage, answers: Answers::default(), gate, streams: Streams::default(), last }
    }

    pub(crate) fn serves(&self, target: Arc<Target>, desk: Arc<dyn Desk>) {
        self.reaches(Stage::Serving(target, desk));
    }

    pub(crate) fn stops(&self) {
        self.reaches(Stage::Stopping);
        self.streams.end();
    }

    fn reaches(&self, stage: Stage) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    fn stage(&self) -> Stage {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The answer of the daemon; of events those behind the one with the number `after`.
    pub(crate) async fn answer(&self, resource: Resource, after: u64) -> Told {
        match self.stage() {
            Stage::Opening => Told::nobody(OPENING),
            Stage::Stopping => Told::nobody(STOPPING),
            Stage::Serving(_, desk) => self.answers.now(resource, after, desk).await,
        }
    }

    /// Events behind the one with this number; None while nothing is served.
    pub(crate) async fn events(&self, after: u64) -> Option<Events> {
        let Stage::Serving(_, desk) = self.stage() else { return None };
        let asked = self.answers.aside().run(move || desk.answer(&Request::Events { after }));
        match asked.await {
            Some(Reply::Events(events)) => Some(events),
            _ => None,
        }
    }

    /// Of those who are told what is new.
    pub(crate) const fn streams(&self) -> &Streams {
        &self.streams
    }

    /// One more of them; None: there are enough, or the daemon stops.
    pub(crate) fn stream(&self, wanted: Wanted, place: Place, pass: Option<Pass>) -> Option<Said> {
        match self.stage() {
            Stage::Stopping => None,
            Stage::Opening | Stage::Serving(..) => self.streams.begin(wanted, place, pass),
        }
    }

    /// What became of an order.
    pub(crate) async fn order(&self, order: Request, giver: Giver) -> Told {
        // The daemon may begin to stop while it waits.
        let turn = self.answers.turn().await;
        match self.stage() {
            Stage::Opening => Told::nobody(OPENING),
            Stage::Stopping => Told::nobody(STOPPING),
            Stage::Serving(_, desk) => self.answers.order(turn, (order, giver), desk).await,
        }
    }

    /// Of those who are let in.
    pub(crate) const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What there is to see now. Who comes while somebody looks waits for him, and looks himself if
    /// that began before he came.
    pub(crate) async fn now(&self) -> Arc<Look> {
        let came = Instant::now();
        let mut last = self.last.lock().await;
        let stage = self.stage();
        if let Some((begun, look)) = &*last
            && (*begun >= came || begun.elapsed() < FRESH)
            && look.seen.is_of(&stage)
        {
            return Arc::clone(look);
        }
        let begun = Instant::now();
        let seen = match stage {
            Stage::Opening => Seen::Opening,
            Stage::Stopping => Seen::Stopping,
            // It waits for reactors: other connections do not.
            Stage::Serving(target, _) => {
                match self.answers.aside().run(move || serving(&target)).await {
                    Some(seen) => Seen::Serving(Box::new(seen)),
                    None => Seen::Stopping,
                }
            }
        };
        let look = Arc::new(self.look(seen));
        *last = Some((begun, Arc::clone(&look)));
        look
    }

    pub(crate) fn look(&self, seen: Seen) -> Look {
        let end = self.gate.tls().and_then(Tls::end);
        let end = end.and_then(|end| end.duration_since(UNIX_EPOCH).ok());
        let denied = self.gate.tokens().map(|_| self.gate.denied());
        let port = Port { certificate_end: end.map(|end| end.as_secs()), denied };
        Look { about: self.about, seen, port, pages: Default::default() }
    }
}

impl Seen {
    const fn is_of(&self, stage: &Stage) -> bool {
        matches!(
            (self, stage),
            (Self::Opening, Stage::Opening)
                | (Self::Serving(_), Stage::Serving(..))
                | (Self::Stopping, Stage::Stopping)
        )
    }
}

/// Asks all reactors, which may take a while.
pub(crate) fn serving(target: &Target) -> Serving {
    let answered = target.figures(ANSWER_WAIT);
    Serving {
        engine: target.engine(),
        mode: target.mode().name(),
        crc32c: crc::tier().name(),
        portals: target.portals(),
        stations: target.stations().len(),
        figures: answered.answers,
        silent: answered.silent,
        targets: target.targets(),
        limits: target.limits(),
    }
}

impl Look {
    /// All metrics, made once for all who want them. None: the encoder has failed.
    pub(crate) fn page(self: &Arc<Self>, format: Format) -> Option<Bytes> {
        let page = match format {
            Format::OpenMetrics => &self.pages[0],
            Format::Prometheus => &self.pages[1],
        };
        page.get_or_init(|| metrics::page(self, format).ok().map(Bytes::from)).clone()
    }
}
