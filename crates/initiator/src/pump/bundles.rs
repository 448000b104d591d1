// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that are several paths to one disk: their events pass through a [`Bundle`] each, and
//! what it puts out goes to the sessions of its paths.

use engine::Port;

use super::Context;
use super::Pump;
use crate::Error;
use crate::Kind;
use crate::Options;
use crate::Paths;
use crate::Request;
use crate::SessionId;
use crate::limits;
use crate::link::SessionDriver;
use crate::multipath::Bundle;
use crate::multipath::Output;
use crate::multipath::Patience;

/// Bundles and stripes have numbers of sessions that no session has.
const BUNDLES: u32 = 1 << 31;

impl<P: Port> Pump<P> {
    /// Begins to log in over all paths; see [`crate::Queue::open_paths`].
    ///
    /// # Errors
    /// As for [`Pump::open`]; [`Kind::NoPath`].
    pub fn open_paths(&mut self, paths: Paths) -> Result<SessionId, Error> {
        let first = paths.paths.first().ok_or_else(|| Error::new(Kind::NoPath))?;
        let patience =
            Patience { connect: first.0.connect_patience, reconnect: first.0.reconnect_patience };
        let refuges: Vec<Vec<String>> =
            (0..paths.paths.len()).map(|at| refuges(&paths, at)).collect();
        let heirs: Vec<usize> = (0..)
            .zip(&paths.paths)
            .filter_map(|(at, (options, _))| options.takes_over.then_some(at))
            .collect();
        let target = first.0.target.clone();
        let spans_targets = paths.paths.iter().any(|(options, _)| options.target != target);
        let mut sessions = Vec::new();
        for ((options, lun), refuges) in paths.paths.into_iter().zip(refuges) {
            match self.open_link(of_path(options), Some(&refuges)) {
                Ok(session) => sessions.push((session, lun)),
                Err(error) => {
                    for (session, _) in sessions {
                        self.close(session);
                    }
                    return Err(error);
                }
            }
        }
        let id = self.next_bundle_id();
        let mut bundle = Bundle::new(id, &sessions, paths.policy, patience, self.port.now());
        heirs.into_iter().for_each(|path| bundle.take_over(path));
        if spans_targets {
            bundle.spans_targets();
        }
        self.bundles.push(bundle);
        self.carry_bundles();
        Ok(id)
    }

    pub(super) fn next_bundle_id(&mut self) -> SessionId {
        self.bundles_made = self.bundles_made.wrapping_add(1);
        SessionId { index: BUNDLES | self.bundles_made & !BUNDLES, generation: 0 }
    }

    pub(super) fn bundle(&self, id: SessionId) -> Option<&Bundle> {
        self.bundles.iter().find(|bundle| bundle.id() == id)
    }

    /// The session that the caller knows: of a path that of all paths, of a member that of the
    /// whole.
    pub(super) fn known_as(&self, session: SessionId) -> SessionId {
        let bundle = self.bundles.iter().find(|bundle| bundle.path_of(session).is_some());
        self.whole_of(bundle.map_or(session, Bundle::id))
    }

    fn place_of(&self, id: SessionId) -> Option<usize> {
        self.bundles.iter().position(|bundle| bundle.id() == id)
    }

    /// None: there is no such bundle.
    pub(super) fn post_to_bundle(
        &mut self,
        id: SessionId,
        tag: u64,
        request: Request,
    ) -> Result<(), (Error, Request)> {
        let now = self.port.now();
        let Some(place) = self.place_of(id) else {
            return Err((Error::new(Kind::Closed), request));
        };
        if let Some(bundle) = self.bundles.get_mut(place) {
            bundle.post(tag, request, now)?;
        }
        self.carry_outputs(place);
        let posted = self.bundles.get_mut(place).map_or(Ok(()), Bundle::posted);
        self.carry_bundles();
        posted
    }

    pub(super) fn close_bundle(&mut self, id: SessionId) {
        if let Some(bundle) = self.place_of(id).and_then(|place| self.bundles.get_mut(place)) {
            bundle.close();
        }
        self.carry_bundles();
    }

    pub(super) fn forget_bundle(&mut self, id: SessionId) {
        let Some(place) = self.place_of(id) else { return };
        if self.bundles.get(place).is_some_and(Bundle::is_over) {
            let bundle = self.bundles.remove(place);
            for session in bundle.sessions() {
                self.forget(session);
            }
        }
    }

    /// Does what is due for bundles.
    pub(super) fn expire_bundles(&mut self) {
        let now = self.port.now();
        for bundle in &mut self.bundles {
            if bundle.deadline().is_some_and(|at| at <= now) {
                bundle.expire(now);
            }
        }
        self.carry_bundles();
    }

    /// Gives bundles the events of their paths, and does what they want, until nothing is left.
    pub(super) fn carry_bundles(&mut self) {
        if self.bundles.is_empty() && self.stripes.is_empty() {
            return;
        }
        loop {
            for place in 0..self.bundles.len() {
                self.carry_outputs(place);
            }
            let Some(mut event) = self.events.pop_front() else { return };
            let session = *event.session_mut();
            let now = self.port.now();
            let found = self.bundles.iter_mut().find_map(|bundle| {
                let path = bundle.path_of(session)?;
                Some((bundle, path))
            });
            match found {
                Some((bundle, path)) => bundle.handle(path, event, now),
                None => self.tell_whole(event),
            }
        }
    }

    fn carry_outputs(&mut self, place: usize) {
        while let Some(output) = self.bundles.get_mut(place).and_then(Bundle::poll_output) {
            let path = match &output {
                Output::Post { path, .. } | Output::Revive(path) | Output::Close(path) => *path,
                Output::Tell(_) => 0,
            };
            let session = self.bundles.get(place).and_then(|bundle| bundle.session_of(path));
            let Some(session) = session else { continue };
            match output {
                Output::Tell(event) => self.tell_whole(event),
                Output::Post { path, tag, request } => {
                    let Err(refused) = self.post(session, tag, request) else { continue };
                    let now = self.port.now();
                    if let Some(bundle) = self.bundles.get_mut(place) {
                        bundle.refused(path, tag, refused, now);
                    }
                }
                Output::Revive(_) => {
                    self.with(session, |link, context| link.revive(context));
                }
                Output::Close(path) => {
                    if self.end_part(session)
                        && let Some(bundle) = self.bundles.get_mut(place)
                    {
                        bundle.closed(path);
                    }
                }
            }
        }
    }

    /// A session that is used as a part of another one is to end; true: it has already.
    pub(super) fn end_part(&mut self, session: SessionId) -> bool {
        let is_in_doubt = self.links.get(session).is_some_and(SessionDriver::is_in_doubt);
        let is_over = self.is_over(session) && !is_in_doubt;
        if !is_over {
            // One with nothing in doubt logs out, and sends nothing of what was posted before.
            self.abandon(session);
        }
        is_over
    }

    fn with(
        &mut self,
        session: SessionId,
        act: impl FnOnce(&mut SessionDriver, &mut Context<'_, P>),
    ) {
        let mut act = Some(act);
        super::with_link!(self, session, |link, context| {
            if let Some(act) = act.take() {
                act(link, &mut context);
            }
        });
    }
}

/// The session of a path: it is tried for ever, and soon known to be lost.
fn of_path(options: Options) -> Options {
    let mut settings = options.settings;
    let soon = |time: std::time::Duration| match time.is_zero() {
        true => limits::PATH_PING,
        false => time.min(limits::PATH_PING),
    };
    settings.ping_interval = soon(settings.ping_interval);
    settings.ping_timeout = soon(settings.ping_timeout);
    settings.login_timeout = settings.login_timeout.min(limits::PATH_LOGIN);
    Options {
        settings,
        connect_patience: limits::PATH_PATIENCE,
        reconnect_patience: limits::PATH_PATIENCE,
        ..options
    }
}

/// Where else the session of path `at` may be ended: portals of the same target as the same
/// initiator.
fn refuges(paths: &Paths, at: usize) -> Vec<String> {
    let Some((own, _)) = paths.paths.get(at) else { return Vec::new() };
    let others = paths.paths.iter().enumerate().filter(|(other, (options, _))| {
        *other != at
            && options.target == own.target
            && options.initiator == own.initiator
            && options.transport == own.transport
    });
    others.flat_map(|(_, (options, _))| options.portals.clone()).collect()
}
