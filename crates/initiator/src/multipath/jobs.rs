// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests from their post to their end, over as many paths as it takes.

use clock::Instant;
use iscsi::initiator::Ending;

use super::Bundle;
use super::Output;
use super::Question;
use super::doubt::Extent;
use super::path;
use super::path::Path;
use crate::Data;
use crate::Done;
use crate::Error;
use crate::Event;
use crate::Kind;
use crate::Request;
use crate::Retry;
use crate::limits;
use crate::modes::asks_modes;

/// A request that has not ended.
#[derive(Debug)]
pub(super) struct Job {
    tag: u64,
    pub(super) request: Request,
    serial: u64,
    /// What it may change.
    extent: Option<Extent>,
    /// Since when it waits for a path, or for what is in doubt.
    pub(super) since: Option<Instant>,
    /// How it has ended, when that cannot be told yet.
    end: Option<Result<Done, Error>>,
    /// Why it was not carried out when it was tried last.
    error: Option<Error>,
    losses: u32,
    /// Since when paths refuse it that say that they take commands.
    refused: Option<Instant>,
}

impl Job {
    pub(super) fn new(tag: u64, request: Request, serial: u64) -> Self {
        let extent = Extent::of(&request);
        Self {
            tag,
            request,
            serial,
            extent,
            since: None,
            end: None,
            error: None,
            losses: 0,
            refused: None,
        }
    }

    /// The caller's.
    pub(super) const fn tag(&self) -> u64 {
        self.tag
    }

    /// The request for the unit `lun` of a path.
    fn copy(&self, lun: u16) -> Request {
        let data = match &self.request.data {
            Data::None => Data::None,
            Data::Out(data) => Data::Out(data.clone()),
            Data::In(length) => Data::In(*length),
        };
        Request { lun, cdb: self.request.cdb, data, retry: self.request.retry }
    }
}

/// Whether a command was lost with its path, and may have been carried out there.
pub(super) fn is_lost(error: &Error) -> Option<bool> {
    match error.kind() {
        Kind::Ending(Ending::Lost { sent }) => Some(*sent),
        _ => None,
    }
}

impl Bundle {
    /// Puts a request out for a path, if there is one and nothing is in its way.
    pub(super) fn send(&mut self, place: usize, now: Instant) -> bool {
        let Some(job) = self.jobs.get_mut(place) else { return true };
        let is_in_the_way =
            job.extent.is_some_and(|extent| self.doubts.concern(job.serial, extent));
        // What all say is not known before they have said it.
        let is_early = asks_modes(&job.request.cdb) && self.paths.iter().any(Path::is_to_tell);
        if is_in_the_way || is_early || self.room_at.is_some_and(|at| at > now) {
            return false;
        }
        let Some(at) = self.turn.choose(&self.paths) else { return false };
        let Some(path) = self.paths.get_mut(at) else { return false };
        path.under_way += 1;
        job.since = None;
        let lun = if job.request.lun == self.lun { path.lun } else { job.request.lun };
        let request = job.copy(lun);
        self.outputs.push_back(Output::Post { path: at, tag: place as u64, request });
        true
    }

    /// A request waits for a path, or for what is in doubt.
    pub(super) fn wait(&mut self, place: usize, now: Instant) {
        let Some(job) = self.jobs.get_mut(place) else { return };
        job.since.get_or_insert(now);
        self.waiting.push_back(place);
    }

    /// Those that wait are tried, in their order.
    pub(super) fn send_waiting(&mut self, now: Instant) {
        for _ in 0..self.waiting.len() {
            let Some(place) = self.waiting.pop_front() else { return };
            if !self.send(place, now) {
                self.waiting.push_back(place);
            }
        }
    }

    /// A request has ended on its path.
    pub(super) fn ended(
        &mut self,
        at: usize,
        place: usize,
        result: Result<Done, Error>,
        now: Instant,
    ) {
        if let Some(path) = self.paths.get_mut(at) {
            path.under_way = path.under_way.saturating_sub(1);
        }
        let error = match result {
            Ok(done) => return self.done(at, place, done, now),
            Err(error) => error,
        };
        let Some(job) = self.jobs.get_mut(place) else { return };
        let (retry, extent, serial) = (job.request.retry, job.extent, job.serial);
        job.error = Some(error.clone());
        let refused = *job.refused.get_or_insert(now);
        let may_be_refused = retry != Retry::Never
            && now.since(refused) < self.patience.reconnect
            && !self.stage.is_ending();
        if let Some(sent) = is_lost(&error) {
            job.losses += 1;
            let is_enough = job.losses > limits::LOSSES_MAX;
            if let Some(extent) = extent.filter(|_| sent) {
                self.doubts.add(at, serial, extent);
            }
            self.lose(at, error.clone(), now);
            let may_go = retry == Retry::Always || !sent;
            if may_go && !is_enough && !self.stage.is_ending() {
                return self.wait(place, now);
            }
        } else if may_be_refused && matches!(error.kind(), Kind::OtherDisk { .. }) {
            self.refuse(at, error, now);
            return self.wait(place, now);
        } else if may_be_refused && path::is_gone(&error) {
            if self.paths.get(at).is_some_and(|path| path.rank().is_some()) {
                self.vanish(at, error, now);
            }
            return self.wait(place, now);
        } else if may_be_refused && path::is_busy(&error, retry) {
            if self.paths.get(at).is_some_and(|path| path.rank().is_some()) {
                self.hold_back(at, error, now);
            }
            return self.wait(place, now);
        } else if let Some(access) = path::access_of(&error).filter(|_| may_be_refused) {
            if let Some(path) = self.paths.get_mut(at).filter(|path| path.rank().is_some()) {
                path.access = access;
                match path.has_groups() {
                    true => path.ask(Question::Groups, now + limits::PATH_ASK_AGAIN),
                    false => path.ask(Question::Ready, now + limits::PATH_ACCESS_AGAIN),
                }
            }
            self.note_use(now);
            return self.wait(place, now);
        }
        self.finish(place, Err(error), now);
    }

    fn done(&mut self, at: usize, place: usize, done: Done, now: Instant) {
        let Some(path) = self.paths.get_mut(at) else { return };
        let before = std::mem::replace(&mut path.seen, done.generation);
        if done.generation != before {
            self.note_generation(before, done.generation);
            self.ask_others(at, Question::Ready, now);
        }
        let mut done = Done { generation: self.generation, ..done };
        if let Some(job) = self.jobs.get(place).filter(|job| asks_modes(&job.request.cdb))
            && let Some(data) = &mut done.data
        {
            self.mode().weaken(&job.request.cdb, data);
        }
        self.finish(place, Ok(done), now);
    }

    /// A request has its last word, which is told when nothing that is in doubt can change it.
    fn finish(&mut self, place: usize, result: Result<Done, Error>, now: Instant) {
        let Some(job) = self.jobs.get(place) else { return };
        let serial = job.serial;
        // Another one that has been sent to the same blocks, and is not told yet.
        let is_met = |extent: Extent| {
            self.jobs.iter().any(|(at, other)| {
                let was_sent = other.since.is_none() || other.end.is_some();
                at != place && was_sent && other.extent.is_some_and(|of| of.meets(extent))
            })
        };
        let is_open = job.extent.is_some_and(|extent| {
            let own = self.doubts.hold(serial);
            self.doubts.concern(serial, extent) || own && (result.is_err() || is_met(extent))
        });
        if is_open && !self.stage.is_ending() {
            if let Some(job) = self.jobs.get_mut(place) {
                (job.end, job.since) = (Some(result), Some(now));
            }
            return;
        }
        self.tell_end(place, result);
    }

    fn tell_end(&mut self, place: usize, result: Result<Done, Error>) {
        let Some(job) = self.jobs.try_remove(place) else { return };
        self.tell(Event::Done { session: self.id, tag: job.tag, result });
    }

    /// Something is not in doubt any more: what was held for it is told.
    pub(super) fn release(&mut self, now: Instant) {
        let held = self.jobs.iter().filter(|(_, job)| job.end.is_some());
        let held: Vec<usize> = held.map(|(place, _)| place).collect();
        for place in held {
            let end = self.jobs.get_mut(place).and_then(|job| job.end.take());
            if let Some(end) = end {
                self.finish(place, end, now);
            }
        }
    }

    /// Ends what has waited for too long.
    pub(super) fn end_late(&mut self, now: Instant) {
        let patience = self.patience.reconnect;
        let is_late = |since: Instant| now.since(since) >= patience;
        let late = self.jobs.iter().filter(|(_, job)| job.since.is_some_and(is_late));
        let late: Vec<usize> = late.map(|(place, _)| place).collect();
        for place in late {
            let Some(job) = self.jobs.get_mut(place) else { continue };
            let is_in_doubt = job.end.is_some()
                || job.extent.is_some_and(|extent| self.doubts.concern(job.serial, extent));
            let error = match (is_in_doubt, job.error.take()) {
                (true, _) => Error::new(Kind::InDoubt),
                (false, Some(error)) => error,
                (false, None) => self.first_error(),
            };
            self.waiting.retain(|other| *other != place);
            self.tell_end(place, Err(error));
        }
    }

    /// Ends what is on no path.
    pub(super) fn end_waiting(&mut self, last: &Error) {
        self.waiting.clear();
        let idle = self.jobs.iter().filter(|(_, job)| job.since.is_some());
        let idle: Vec<usize> = idle.map(|(place, _)| place).collect();
        for place in idle {
            self.tell_end(place, Err(last.clone()));
        }
    }
}
