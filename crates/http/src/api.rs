// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The API: what the control socket answers, at a path each. docs/openapi.json describes it, and a
//! test holds both to that.

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use control::admin::Reply;
use control::admin::Request;
use hyper::body::Bytes;
use tokio::sync::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::aside::Aside;
use crate::limits::ANSWER_BYTES_PER_SECOND;
use crate::limits::ANSWER_LEN_MAX;
use crate::limits::DIFFERENCE_FRESH;
use crate::limits::FRESH;

/// What all paths of the API begin with.
pub(crate) const ROOT: &str = "/api/";

/// Where it is described.
pub(crate) const DESCRIPTION_PATH: &str = "/api/v1/openapi.json";

/// The description, in OpenAPI 3.1.
pub(crate) const DESCRIPTION: &str = include_str!("../../../docs/openapi.json");

/// Who answers as the control socket does.
pub trait Desk: Send + Sync + 'static {
    /// The answer, which may take a while.
    fn answer(&self, request: &Request) -> Reply;

    /// What became of an order of `giver`, which may take a while.
    fn order(&self, order: &Request, giver: &Giver) -> Reply;
}

/// Who gives an order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Giver {
    /// From where.
    pub peer: Option<SocketAddr>,
    /// With which token: its right and its line in the file, and nothing of it.
    pub token: String,
}

// All that a daemon has is behind it, and nobody wants that written down.
impl fmt::Debug for dyn Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Status,
    Sessions,
    Load,
    Layers,
    PortGroups,
    Difference,
    Events,
}

impl Resource {
    pub(crate) const ALL: [Self; 7] = [
        Self::Status,
        Self::Sessions,
        Self::Load,
        Self::Layers,
        Self::PortGroups,
        Self::Difference,
        Self::Events,
    ];

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Status => "/api/v1/status",
            Self::Sessions => "/api/v1/sessions",
            Self::Load => "/api/v1/load",
            Self::Layers => "/api/v1/layers",
            Self::PortGroups => "/api/v1/port-groups",
            Self::Difference => "/api/v1/difference",
            Self::Events => "/api/v1/events",
        }
    }

    pub(crate) fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.path() == path)
    }

    /// What the daemon is asked, which changes nothing.
    /// Of events those behind the one with the number `after`.
    const fn request(self, after: u64) -> Request {
        match self {
            Self::Status => Request::Status,
            Self::Sessions => Request::Sessions,
            Self::Load => Request::Load,
            Self::Layers => Request::Layers,
            Self::PortGroups => Request::PortGroups,
            Self::Difference => Request::Reload { dry_run: true, destroy_data: false },
            Self::Events => Request::Events { after },
        }
    }

    /// How long an answer of so many bytes is told.
    fn fresh(self, len: usize) -> Duration {
        let least = match self {
            Self::Difference => DIFFERENCE_FRESH,
            _ => FRESH,
        };
        let milliseconds = len.saturating_mul(1000) / ANSWER_BYTES_PER_SECOND;
        least.max(Duration::from_millis(u64::try_from(milliseconds).unwrap_or(u64::MAX)))
    }
}

/// An answer, for all who ask at a time.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) how: How,
    /// JSON, in one line.
    pub(crate) text: Bytes,
}

/// What kind of an answer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Answered,
    /// As things are there is no answer.
    Refused,
    /// Nobody answers now.
    Nobody,
}

impl Told {
    /// Nobody answers, since the daemon does something else.
    pub(crate) fn nobody(why: &str) -> Self {
        Self { how: How::Nobody, text: Reply::Error { message: why.to_owned() }.line().into() }
    }

    fn of(reply: &Reply) -> Self {
        let text = Bytes::from(reply.line());
        if text.len() > ANSWER_LEN_MAX {
            return Self::nobody("the answer is too long for HTTP; try: the control socket");
        }
        let how = match reply {
            Reply::Error { .. } => How::Refused,
            _ => How::Answered,
        };
        Self { how, text }
    }
}

/// The last answers. One of each kind is made at a time, however many ask.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    last: [Last; Resource::ALL.len()],
    /// Held by the order that is carried out.
    orders: Arc<Mutex<()>>,
    /// When the last one was over: what was asked before is told no more.
    changed: Arc<std::sync::Mutex<Option<Instant>>>,
    aside: Aside,
}

/// Held by the order that is carried out.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// When it was asked, behind which event, and what was told. Held by who asks.
type Last = Arc<Mutex<Option<(Instant, u64, Told)>>>;

impl Answers {
    /// Where what waits is done.
    pub(crate) const fn aside(&self) -> &Aside {
        &self.aside
    }

    /// The answer of now. Who comes while somebody asks waits for him, and asks himself if that
    /// began before he came.
    pub(crate) async fn now(&self, resource: Resource, after: u64, desk: Arc<dyn Desk>) -> Told {
        let came = Instant::now();
        let Some(last) = self.last.get(resource as usize) else { return Told::nobody("") };
        let mut last = Arc::clone(last).lock_owned().await;
        let changed = *self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((begun, behind, told)) = &*last
            && *behind == after
            && changed.is_none_or(|changed| *begun > changed)
            && (*begun >= came || begun.elapsed() < resource.fresh(told.text.len()))
        {
            return told.clone();
        }
        // It goes on when its connection has ended: no second one waits for the same then.
        let asked = self.aside.run(move || {
            let begun = Instant::now();
            let told = Told::of(&desk.answer(&resource.request(after)));
            *last = Some((begun, after, told.clone()));
            told
        });
        asked.await.unwrap_or_else(|| Told::nobody("there is no answer"))
    }

    /// The turn of an order, which are carried out one at a time.
    pub(crate) async fn turn(&self) -> Turn {
        Arc::clone(&self.orders).lock_owned().await
    }

    /// Has an order carried out whose turn it is. It is, too, when who gave it has gone meanwhile.
    pub(crate) async fn order(
        &self,
        turn: Turn,
        (order, giver): (Request, Giver),
        desk: Arc<dyn Desk>,
    ) -> Told {
        let changed = Arc::clone(&self.changed);
        let done = self.aside.run(move || {
            let told = Told::of(&desk.order(&order, &giver));
            *changed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            drop(turn);
            told
        });
        done.await.unwrap_or_else(|| Told::nobody("there is no answer"))
    }
}
