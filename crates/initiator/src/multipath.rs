// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One disk over several paths: to its user it is one session.
//!
//! A path is a session of its own, with its own ISID, which hands back what is lost with it
//! (`link.rs`). Each path is asked which disk it leads to before it carries anything
//! (`multipath/path.rs`), and a request goes over one that the policy chooses among the best. What
//! comes back lost is sent over another path, as far as nothing that is in doubt stands against it
//! (`multipath/doubt.rs`).
//!
//! ```text
//! post --> waiting --choose--> on a path --ends--> told
//!             ^                   |  |
//!             |                   |  +--ends while something is in doubt there--> held --> told
//!             +--lost, no access--+
//! ```
//!
//! This machine does no I/O: the pump gives it the events of its paths, and carries out what it
//! puts out.

mod doubt;
mod jobs;
mod names;
mod opening;
mod path;
mod policy;
mod questions;
#[cfg(test)]
#[allow(clippy::indexing_slicing)] // a test that panics has failed
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use clock::Instant;
use slab::Slab;
use wire::scsi::alua::AccessState;

use self::doubt::Doubts;
use self::jobs::Job;
use self::path::Path;
use self::path::Question;
use self::path::Size;
use self::path::State;
use self::policy::Turn;
use crate::Error;
use crate::Event;
use crate::Generation;
use crate::Kind;
use crate::Options;
use crate::Request;
use crate::SessionId;
use crate::limits;
use crate::stage::Stage;

pub(crate) use self::names::Name;
pub use self::policy::PathPolicy;

/// Several paths to one disk ([`crate::Queue::open_paths`]).
#[derive(Clone, Debug)]
pub struct Paths {
    /// The session of each path, and the number of the unit behind it. That of the first one is the
    /// number under which requests are posted.
    pub paths: Vec<(Options, u16)>,
    /// Which path a request goes over.
    pub policy: PathPolicy,
}

impl Paths {
    /// Over these paths, with the default policy.
    #[must_use]
    pub fn new(paths: Vec<(Options, u16)>) -> Self {
        Self { paths, policy: PathPolicy::default() }
    }
}

/// What happens to a path.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PathChange {
    /// It is lost; others carry on, and it is tried again.
    Lost(Error),
    /// It is used.
    Back,
    /// It leads to another disk, or to one that cannot be told from others: it is not used.
    Refused(Error),
    /// The unit says that its port is in this state (SPC-4 §5.15.2.4).
    Access(AccessState),
}

/// The tag of a question of ours; those of requests are their places.
pub(crate) const QUESTION: u64 = u64::MAX;

/// What the pump is to do.
#[derive(Debug)]
pub(crate) enum Output {
    /// Give this to the session of a path; what it refuses comes back ([`Bundle::refused`]).
    Post { path: usize, tag: u64, request: Request },
    /// Tell the caller.
    Tell(Event),
    /// Try the session of a path again, which was given up.
    Revive(usize),
    /// Log out of it.
    Close(usize),
}

/// How long nothing may go on, at first and later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) connect: Duration,
    pub(crate) reconnect: Duration,
}

/// Paths to one disk.
#[derive(Debug)]
pub(crate) struct Bundle {
    id: SessionId,
    lun: u16,
    paths: Vec<Path>,
    turn: Turn,
    patience: Patience,
    stage: Stage,
    name: Option<Name>,
    /// Paths are by several targets.
    spans_targets: bool,
    /// As the last path has told it.
    size: Option<Size>,
    jobs: Slab<Job>,
    waiting: VecDeque<usize>,
    doubts: Doubts,
    /// The last number of a request.
    serial: u64,
    /// Of the unit, as all paths together have heard.
    generation: Generation,
    /// No path has been there all the time, so what the next one tells of the unit is news.
    has_gap: bool,
    /// Since when no path carries anything.
    none_since: Option<Instant>,
    /// When it was looked at last whether all goes its way.
    looked: Instant,
    /// The caller knows that none carries anything.
    is_down: bool,
    /// When those that found no room are tried again.
    room_at: Option<Instant>,
    /// The request that is being posted, which goes back if there is no room for it.
    posting: Option<usize>,
    returned: Option<(Error, Request)>,
    outputs: VecDeque<Output>,
}

impl Bundle {
    /// Over `paths`, whose sessions have begun to log in.
    pub(crate) fn new(
        id: SessionId,
        paths: &[(SessionId, u16)],
        policy: PathPolicy,
        patience: Patience,
        now: Instant,
    ) -> Self {
        Self {
            id,
            lun: paths.first().map_or(0, |(_, lun)| *lun),
            paths: paths.iter().map(|(session, lun)| Path::new(*session, *lun)).collect(),
            turn: Turn::new(policy),
            patience,
            stage: Stage::Opening,
            name: None,
            spans_targets: false,
            size: None,
            jobs: Slab::new(),
            waiting: VecDeque::new(),
            doubts: Doubts::default(),
            serial: 0,
            generation: Generation::default(),
            has_gap: false,
            none_since: Some(now),
            looked: now,
            is_down: false,
            room_at: None,
            posting: None,
            returned: None,
            outputs: VecDeque::new(),
        }
    }

    pub(crate) const fn id(&self) -> SessionId {
        self.id
    }

    /// Nothing begins before there is a session over `path` ([`Options::takes_over`]).
    pub(crate) fn take_over(&mut self, path: usize) {
        if let Some(path) = self.paths.get_mut(path) {
            path.takes_over = true;
        }
    }

    /// Paths are by several targets: names that are given within one do not count.
    pub(crate) const fn spans_targets(&mut self) {
        self.spans_targets = true;
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.paths.iter().map(|path| path.session)
    }

    pub(crate) fn session_of(&self, path: usize) -> Option<SessionId> {
        self.paths.get(path).map(|path| path.session)
    }

    pub(crate) fn path_of(&self, session: SessionId) -> Option<usize> {
        self.paths.iter().position(|path| path.session == session)
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.stage.is_over()
    }

    /// Whether commands leave at once.
    pub(crate) fn is_up(&self) -> bool {
        self.stage.is_up() && self.paths.iter().any(|path| path.rank().is_some())
    }

    /// A path that carries commands now.
    pub(crate) fn usable(&self) -> Option<&SessionId> {
        let usable = self.paths.iter().find(|path| path.rank().is_some());
        usable.map(|path| &path.session)
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes a request. What it gives is asked for by [`Bundle::posted`] when outputs are carried
    /// out.
    pub(crate) fn post(
        &mut self,
        tag: u64,
        request: Request,
        now: Instant,
    ) -> Result<(), (Error, Request)> {
        if let Some(error) = self.stage.refusal() {
            return Err((error, request));
        }
        self.serial += 1;
        let place = self.jobs.insert(Job::new(tag, request, self.serial));
        self.posting = Some(place);
        if !self.send(place, now) {
            self.wait(place, now);
        }
        Ok(())
    }

    /// What was posted has left, waits, or comes back for want of room.
    pub(crate) fn posted(&mut self) -> Result<(), (Error, Request)> {
        self.posting = None;
        self.returned.take().map_or(Ok(()), Err)
    }

    /// The session of a path did not take what was put out for it.
    pub(crate) fn refused(
        &mut self,
        path: usize,
        tag: u64,
        (error, request): (Error, Request),
        now: Instant,
    ) {
        let is_full = matches!(error.kind(), Kind::Full);
        if !is_full {
            self.lose(path, error.clone(), now);
        }
        if tag == QUESTION {
            if let Some(path) = self.paths.get_mut(path).filter(|_| is_full) {
                path.is_asked = false;
                path.due = Some(now + limits::PATH_ASK_AGAIN);
            }
            return;
        }
        let place = usize::try_from(tag).unwrap_or(usize::MAX);
        if let Some(path) = self.paths.get_mut(path) {
            path.under_way = path.under_way.saturating_sub(1);
        }
        if is_full && self.posting == Some(place) {
            if let Some(job) = self.jobs.try_remove(place) {
                let request = Request { lun: job.request.lun, ..request };
                self.returned = Some((error, request));
            }
            return;
        }
        if is_full {
            self.room_at.get_or_insert(now + limits::ROOM_INTERVAL);
        }
        self.wait(place, now);
    }

    /// Something has happened to a path.
    pub(crate) fn handle(&mut self, path: usize, event: Event, now: Instant) {
        match event {
            Event::Up { peer, .. } => {
                self.settle(path, now);
                if let Some(path) = self.paths.get_mut(path) {
                    path.peer = Some(peer);
                    path.begin(now);
                }
                // What has been done to the unit meanwhile they are the ones to tell.
                self.ask_others(path, Question::Ready, now);
            }
            Event::Settled { .. } => self.settle(path, now),
            Event::Down { error, .. } => self.lose(path, error, now),
            Event::Ended { error, .. } => self.path_ended(path, error, now),
            Event::Done { tag: QUESTION, result, .. } => self.answered(path, result, now),
            Event::Done { tag, result, .. } => {
                let place = usize::try_from(tag).unwrap_or(usize::MAX);
                self.ended(path, place, result, now);
            }
            Event::Attention { lun, sense, .. } => {
                let Some(of) = self.paths.get_mut(path) else { return };
                if path::is_of_access(sense) && of.has_groups() && matches!(of.state, State::Usable)
                {
                    of.ask(Question::Groups, now);
                }
                if path::is_of_modes(sense) && lun == of.lun {
                    of.is_measured = false;
                    if matches!(of.state, State::Usable) {
                        of.ask(Question::Ready, now);
                    }
                }
                let lun = if lun == of.lun { self.lun } else { lun };
                self.tell(Event::Attention { session: self.id, lun, sense });
            }
            Event::MayHaveLost { lun, fate, .. } => {
                let Some(of) = self.paths.get(path) else { return };
                let lun = if lun == of.lun { self.lun } else { lun };
                // Those that have been there all the time know better than one that comes back.
                if of.was_usable || self.has_gap {
                    self.tell(Event::MayHaveLost { session: self.id, lun, fate });
                }
            }
            mut event => {
                *event.session_mut() = self.id;
                if let Event::Overdue { tag, .. } | Event::Again { tag, .. } = &mut event {
                    let job = usize::try_from(*tag).ok().and_then(|place| self.jobs.get(place));
                    // Of a question of ours nobody knows.
                    let Some(job) = job else { return };
                    *tag = job.tag();
                }
                self.tell(event);
            }
        }
        self.look(now);
    }

    /// Does what is due.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.room_at.is_some_and(|at| at <= now) {
            self.room_at = None;
        }
        for at in 0..self.paths.len() {
            let Some(path) = self.paths.get_mut(at) else { continue };
            if path.due.is_none_or(|due| due > now) {
                continue;
            }
            path.due = None;
            match path.state {
                State::Usable if path.has_groups() => path.ask(Question::Groups, now),
                State::Usable => path.ask(Question::Ready, now),
                State::Lost if path.is_over => {
                    path.is_over = false;
                    self.outputs.push_back(Output::Revive(at));
                }
                State::Asking(_) => self.put_question(at),
                State::Lost | State::Refused => {}
            }
        }
        self.end_late(now);
        self.look(now);
    }

    /// When something is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let paths = self.paths.iter().filter_map(|path| path.due);
        let jobs = self.jobs.iter().filter_map(|(_, job)| job.since);
        let late = jobs.min().map(|since| since + self.patience.reconnect);
        let whole = match &self.stage {
            Stage::Opening => {
                let ends = [self.patience.connect, limits::PATHS_OPEN_PATIENCE];
                let ends = ends.into_iter().filter_map(|wait| Some(self.none_since? + wait));
                // Behind them events alone decide.
                ends.filter(|at| *at > self.looked).min()
            }
            Stage::Up(()) => {
                let patience = self.patience.reconnect;
                let until =
                    if self.is_down { patience } else { patience.min(limits::PATHS_DOWN_AFTER) };
                self.none_since.map(|since| since + until)
            }
            Stage::Closing(_) | Stage::Over(_) => return None,
        };
        paths.chain(late).chain(whole).chain(self.room_at).min()
    }

    /// All sessions end. What waits for a path, or for what is in doubt, ends now.
    pub(crate) fn close(&mut self) {
        self.end_all(None);
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Tell(event));
    }

    fn tell_of(&mut self, path: usize, change: PathChange) {
        self.tell(Event::Path { session: self.id, path, change });
    }

    /// Whether all goes its way: the beginning is over, nothing lasts too long, and what can go
    /// goes.
    fn look(&mut self, now: Instant) {
        self.looked = now;
        match &self.stage {
            Stage::Opening => self.look_whether_open(now),
            Stage::Up(()) => {
                let over = |after| self.none_since.is_some_and(|since| now.since(since) >= after);
                if over(self.patience.reconnect) {
                    let error = self.first_error();
                    self.end_all(Some(error));
                } else if over(limits::PATHS_DOWN_AFTER) {
                    let error = self.first_error();
                    self.tell_down(error);
                }
            }
            Stage::Closing(_) | Stage::Over(_) => return,
        }
        self.send_waiting(now);
        for at in 0..self.paths.len() {
            let due = self.paths.get(at).is_some_and(|path| {
                matches!(path.state, State::Asking(_)) && path.due.is_some_and(|due| due <= now)
            });
            if due {
                self.put_question(at);
            }
        }
    }

    /// All requests get their last word, and all sessions end.
    fn end_all(&mut self, error: Option<Error>) {
        let Some(last) = self.stage.close(error) else { return };
        self.end_waiting(&last);
        for at in 0..self.paths.len() {
            self.outputs.push_back(Output::Close(at));
        }
        self.look_whether_over();
    }

    fn look_whether_over(&mut self) {
        let is_closing = matches!(self.stage, Stage::Closing(_));
        if is_closing && self.paths.iter().all(|path| path.is_over) {
            let error = self.stage.finish();
            self.tell(Event::Ended { session: self.id, error });
        }
    }

    /// The session of a path that is to end has nothing to tell any more.
    pub(crate) fn closed(&mut self, path: usize) {
        if let Some(path) = self.paths.get_mut(path) {
            path.is_over = true;
        }
        self.look_whether_over();
    }

    fn path_ended(&mut self, path: usize, error: Option<Error>, now: Instant) {
        let Some(of) = self.paths.get_mut(path) else { return };
        of.is_over = true;
        if self.stage.note_end(error.as_ref()) {
            return self.look_whether_over();
        }
        let why = error.unwrap_or_else(|| Error::new(Kind::Closed));
        self.lose(path, why, now);
        if let Some(path) = self.paths.get_mut(path) {
            path.due = Some(now + limits::PATH_TRY_AGAIN);
        }
    }

    /// A path is lost; what was on it comes back by itself.
    fn lose(&mut self, path: usize, error: Error, now: Instant) {
        let Some(of) = self.paths.get_mut(path) else { return };
        let was_used = std::mem::take(&mut of.was_usable);
        of.lose(error.clone());
        if self.stage.is_ending() {
            return;
        }
        self.tell_loss(path, was_used, &error);
        self.note_use(now);
        self.note_gap();
        let all_lost = self.paths.iter().all(|path| matches!(path.state, State::Lost));
        if all_lost && self.stage.is_up() {
            self.tell_down(error);
        }
    }

    /// The caller hears once that a path is of no use, also of one that never was.
    fn tell_loss(&mut self, path: usize, was_used: bool, error: &Error) {
        let Some(of) = self.paths.get_mut(path) else { return };
        if self.stage.is_up() && (was_used || !of.is_told) {
            of.is_told = true;
            self.tell_of(path, PathChange::Lost(error.clone()));
        }
    }

    /// The caller hears once that no path carries anything.
    fn tell_down(&mut self, error: Error) {
        if !std::mem::replace(&mut self.is_down, true) {
            self.tell(Event::Down { session: self.id, error });
        }
    }

    /// Whether any path carries commands now.
    fn note_use(&mut self, now: Instant) {
        match self.paths.iter().any(|path| path.rank().is_some()) {
            // The beginning is counted from, until it is over.
            true if self.stage.is_opening() => {}
            true => self.none_since = None,
            false => {
                self.none_since.get_or_insert(now);
            }
        }
    }

    /// Nobody is left who would hear of what happens to the unit.
    fn note_gap(&mut self) {
        self.has_gap |= self.paths.iter().all(|path| !path.was_usable);
    }

    /// There is no unit behind a path any more: it is asked from the beginning until there is.
    fn vanish(&mut self, path: usize, error: Error, now: Instant) {
        let Some(of) = self.paths.get_mut(path) else { return };
        of.is_gone = true;
        self.ask_again(path, Question::Make, error, now);
    }

    /// The unit does not say over a path what it is like now: it is asked until it does.
    fn hold_back(&mut self, path: usize, error: Error, now: Instant) {
        self.ask_again(path, Question::Ready, error, now);
    }

    /// A path is not used before it has answered `question`, some time later.
    fn ask_again(&mut self, path: usize, question: Question, error: Error, now: Instant) {
        let Some(of) = self.paths.get_mut(path) else { return };
        of.error = Some(error.clone());
        of.ask(question, now + limits::PATH_ACCESS_AGAIN);
        let was_used = std::mem::take(&mut of.was_usable);
        self.tell_loss(path, was_used, &error);
        self.note_gap();
        self.note_use(now);
    }

    /// It leads to another disk.
    fn refuse(&mut self, path: usize, error: Error, now: Instant) {
        let Some(of) = self.paths.get_mut(path) else { return };
        if matches!(of.state, State::Refused) {
            return;
        }
        (of.state, of.due, of.was_usable) = (State::Refused, None, false);
        (of.error, of.mode) = (Some(error.clone()), None);
        self.note_gap();
        self.note_use(now);
        // One that leads to another disk does so until it is lost.
        let are_all = self.paths.iter().all(|path| matches!(path.state, State::Refused));
        if !self.stage.is_opening() {
            self.tell_of(path, PathChange::Refused(error.clone()));
        }
        if are_all || self.stage.is_opening() {
            self.end_all(Some(error));
        }
    }

    fn settle(&mut self, path: usize, now: Instant) {
        if self.doubts.settle(path) {
            self.release(now);
        }
    }
}
