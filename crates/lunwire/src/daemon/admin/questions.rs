// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is answered at once: questions, and orders that end a session.

use std::time::Duration;

use control::admin;
use control::admin::Reply;
use control::admin::Request;
use target::Answered;
use target::Found;
use target::Times;

use super::Shared;
use crate::client::layers;
use crate::daemon::limits;
use crate::daemon::load;
use crate::daemon::shown;
use crate::ports;

/// Reactors that do not answer for so long are named instead: nobody is to wait for them.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

impl Shared {
    /// The answer to a question, or to an order that is done at once.
    pub(super) fn answer(&self, request: &Request) -> Option<Reply> {
        Some(match request {
            Request::Status => {
                let Answered { answers, silent, .. } = self.target.figures(ANSWER_WAIT);
                let waits = answers.iter().flat_map(|figures| &figures.waits);
                let waits = shown::by_disk(waits);
                let targets = self.target.targets().into_iter();
                let sessions = answers.iter().flat_map(|figures| &figures.sessions);
                Reply::Status(admin::Status {
                    version: env!("CARGO_PKG_VERSION").into(),
                    pid: std::process::id(),
                    uptime_s: self.begun.elapsed().as_secs(),
                    engine: self.target.engine().into(),
                    mode: self.target.mode().name().into(),
                    crc32c: crc::tier().name().into(),
                    reactors: self.target.reactors(),
                    iser: shown::iser(&self.target, sessions),
                    stations: shown::stations(&self.target, ANSWER_WAIT),
                    portals: self.target.portals().iter().map(ToString::to_string).collect(),
                    targets: targets.map(|target| shown::target(target, &waits)).collect(),
                    sessions: answers.iter().map(|figures| figures.sessions.len()).sum(),
                    silent_reactors: silent,
                    limits: limits::shown(&self.target, &answers),
                    http: self.beside.http.map(|address| address.to_string()),
                    http_tls: self.beside.http_tls,
                    capture: self.beside.capture.as_ref().map(shown::capture),
                    sandbox: self.beside.sandbox.held().map(str::to_owned).collect(),
                })
            }
            Request::Layers => {
                let Answered { answers, silent, .. } = self.target.figures(ANSWER_WAIT);
                let mut times = Times::default();
                answers.into_iter().for_each(|figures| times.join(figures.times));
                match &silent[..] {
                    [] => Reply::Layers(layers::told(&times)),
                    // What is missing would look like time that was not spent.
                    silent => Reply::Error { message: shown::silent(silent) },
                }
            }
            Request::Load => {
                Reply::Load(load::of(&self.target, ANSWER_WAIT, || self.begun.elapsed()))
            }
            Request::Sessions => {
                let Answered { answers, silent, .. } = self.target.figures(ANSWER_WAIT);
                let mut sessions: Vec<_> = answers
                    .into_iter()
                    .flat_map(|figures| figures.sessions)
                    .map(shown::session)
                    .collect();
                sessions.sort_by_key(|session| session.tsih);
                Reply::Sessions { sessions, silent_reactors: silent }
            }
            Request::Events { after } => Reply::Events(self.beside.events.after(*after)),
            Request::PortGroups => Reply::PortGroups { groups: ports::shown(&self.target) },
            Request::LogoutSession { tsih, timeout_s } => {
                of_session(*tsih, self.target.logout_session(*tsih, *timeout_s))
            }
            Request::DropSession { tsih } => of_session(*tsih, self.target.drop_session(*tsih)),
            _ => return None,
        })
    }
}

fn of_session(tsih: u16, found: Found) -> Reply {
    let message = match found {
        Found::Here => return Reply::Done,
        Found::Nowhere => format!("no session {tsih}; try: lunwire sessions"),
        Found::Unknown(reactors) => format!(
            "{}; if session {tsih} is there, it ends when that goes on",
            shown::silent(&reactors)
        ),
    };
    Reply::Error { message }
}
