// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions after what is served has become another.

use engine::Port;

use super::Pump;
use super::Session;
use super::view::SessionView;
use crate::catalogue::Nodes;
use crate::catalogue::Outdated;
use crate::catalogue::OutdatedSession;
use crate::catalogue::Terms;
use crate::events::Event;
use crate::served::Served;
use crate::table::Key;

impl<P: Port> Pump<P> {
    /// Which sessions `nodes` would not let in. `ending`: they are ended, within so many seconds,
    /// and the others have their terms and units from it.
    pub(super) fn review(&mut self, nodes: &Nodes, ending: Option<u16>) -> Vec<OutdatedSession> {
        let live = self.sessions.iter().filter(|(_, session)| !session.closed);
        let reviewed: Vec<(Key, Result<Terms, Outdated>)> =
            live.map(|(key, session)| (key, session.reviewed(nodes))).collect();
        let mut outdated = Vec::new();
        for (key, reviewed) in reviewed {
            let Some(SessionView { session, .. }) = self.session(key) else { continue };
            match (reviewed, ending) {
                (Ok(terms), Some(_)) => session.take_terms(terms),
                (Ok(_), None) => {}
                (Err(why), ending) => {
                    outdated.push(session.outdated(why));
                    if let Some(seconds) = ending {
                        self.end_outdated(key, why, seconds);
                    }
                }
            }
        }
        outdated
    }

    /// Ends a session that would not be let in now: its initiator gets so many seconds to log out.
    pub(super) fn end_outdated(&mut self, key: Key, why: Outdated, seconds: u16) {
        let Some(SessionView { session, context, .. }) = self.session(key) else { return };
        tracing::info!(
            name: Event::Logout.name(),
            peer = %session.peer,
            initiator = session.login.initiator,
            target = session.login.target.as_deref().unwrap_or("(discovery)"),
            tsih = session.tsih.0,
            seconds,
            reason = why.reason(),
            "session ends: what is served was changed"
        );
        match seconds {
            0 => session.machine.drop_session(),
            _ => {
                session.machine.set_now(context.port.now());
                session.machine.request_logout(seconds);
            }
        }
        self.settle(key);
    }
}

impl Session {
    fn reviewed(&self, nodes: &Nodes) -> Result<Terms, Outdated> {
        let login = &self.login;
        let target = login.target.as_deref();
        let has_proved = self.user.is_some();
        nodes.review(&self.terms, &login.initiator, target, login.discovery, has_proved)
    }

    fn take_terms(&mut self, terms: Terms) {
        if let Some(served) = terms.served() {
            self.remap(served);
        }
        self.terms = terms;
    }

    /// Sees the units that its target has now.
    pub(super) fn remap(&mut self, served: &Served) {
        let is_of = |own: &Served| own.is_same_as(served);
        if self.terms.served().is_some_and(is_of)
            && let Some(nexus) = &mut self.nexus
        {
            nexus.remap(served.lun_map(&self.login.initiator));
            let exchanged = nexus.take_exchanged();
            self.begin_exchanges(exchanged);
        }
    }

    fn outdated(&self, why: Outdated) -> OutdatedSession {
        OutdatedSession {
            tsih: self.tsih.0,
            initiator: self.login.initiator.clone(),
            target: self.login.target.clone(),
            why,
        }
    }
}
