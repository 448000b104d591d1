// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests from their post to their end, in as many commands to members as it takes: parts.

use buf::Buf;
use buf::Pool;
use clock::Instant;

use super::Array;
use super::Output;
use super::QUESTION;
use super::gather::Gather;
use super::gather::filled;
use super::split::Command;
use super::split::Split;
use super::split::split;
use super::volume::INVALID_COMMAND;
use super::volume::Volume;
use super::volume::illegal;
use crate::Data;
use crate::Done;
use crate::Error;
use crate::Event;
use crate::Generation;
use crate::Kind;
use crate::Request;
use crate::limits;
use crate::scsi;
use crate::stage::Stage;

/// A request that has not ended.
#[derive(Debug)]
pub(super) struct Job {
    tag: u64,
    gather: Gather,
    /// As it was posted, until it is known that there is room for it.
    request: Option<Request>,
    /// Parts that have not ended.
    left: usize,
    /// What went wrong first, in the order of the parts.
    error: Option<(usize, Error)>,
    /// Of the stripe when the first part had ended.
    generation: Option<Generation>,
}

/// Where in a tag the place of a request begins; below is which of its parts it is.
const PLACE_SHIFT: u32 = 32;

fn tag_of(place: usize, part: usize) -> u64 {
    (place as u64) << PLACE_SHIFT | part as u64
}

fn place_of(tag: u64) -> (usize, usize) {
    let number = |bits: u64| usize::try_from(bits).unwrap_or(usize::MAX);
    (number(tag >> PLACE_SHIFT), number(tag & u64::from(u32::MAX)))
}

impl Array {
    /// Takes a request. What it gives is asked for by [`Array::posted`] when outputs are carried
    /// out.
    pub(crate) fn post(
        &mut self,
        tag: u64,
        request: Request,
        pool: &Pool,
    ) -> Result<(), (Error, Request)> {
        if let Some(error) = self.stage.refusal() {
            return Err((error, request));
        }
        if self.stage.is_opening() {
            self.early.push_back((tag, request));
            return Ok(());
        }
        // What has begun gets the next room, or requests would wait for each other.
        if !self.held.is_empty() {
            return Err((Error::new(Kind::Full), request));
        }
        self.start(tag, request, pool)
    }

    /// What was posted has left, waits, or comes back for want of room.
    pub(crate) fn posted(&mut self) -> Result<(), (Error, Request)> {
        if let Some(job) = self.posting.take().and_then(|place| self.jobs.get_mut(place)) {
            job.request = None;
        }
        self.returned.take().map_or(Ok(()), Err)
    }

    /// A member did not take what was put out for it.
    pub(crate) fn refused(
        &mut self,
        member: usize,
        tag: u64,
        (error, request): (Error, Request),
        now: Instant,
    ) {
        let is_full = matches!(error.kind(), Kind::Full);
        if is_full {
            self.room_at.get_or_insert(now + limits::ROOM_INTERVAL);
        }
        if tag == QUESTION {
            if let Some(member) = self.members.get_mut(member) {
                member.is_asked = false;
            }
            return;
        }
        if !is_full {
            return self.part_ended(member, tag, Err(error));
        }
        let (place, part) = place_of(tag);
        if part > 0 || self.posting != Some(place) {
            return self.held.push_back((member, tag, request));
        }
        // Nothing of it has left yet.
        self.room_at = None;
        self.outputs.retain(
            |output| !matches!(output, Output::Post { tag, .. } if place_of(*tag).0 == place),
        );
        let job = self.jobs.try_remove(place);
        if let Some(request) = job.and_then(|job| job.request) {
            self.returned = Some((error, request));
        }
    }

    /// Those that were posted too early are posted now, as long as there is room.
    pub(super) fn post_early(&mut self, pool: &Pool, now: Instant) {
        while self.stage.is_up() && self.held.is_empty() {
            let Some((tag, request)) = self.early.pop_front() else { return };
            let started = self.start(tag, request, pool);
            self.posting = None;
            if let Err((error, request)) = started {
                if !matches!(error.kind(), Kind::Full) {
                    self.tell(Event::Done { session: self.id, tag, result: Err(error) });
                    continue;
                }
                self.early.push_front((tag, request));
                self.room_at.get_or_insert(now + limits::ROOM_INTERVAL);
                return;
            }
        }
    }

    /// The caller's tag of a part.
    pub(super) fn tag_of(&self, tag: u64) -> Option<u64> {
        self.jobs.get(place_of(tag).0).map(|job| job.tag)
    }

    fn start(&mut self, tag: u64, request: Request, pool: &Pool) -> Result<(), (Error, Request)> {
        let Stage::Up(volume) = &self.stage else {
            return Err((Error::new(Kind::Closed), request));
        };
        let split = match request.lun == self.lun() {
            true => split(volume, &request, pool, &mut self.commands),
            false => Err(illegal(INVALID_COMMAND)),
        };
        if split.is_err() {
            // Some may hold data.
            self.commands.clear();
        }
        let result = match split {
            Ok(Split::Commands(gather)) if !self.commands.is_empty() => {
                self.send(tag, request, gather);
                return Ok(());
            }
            Ok(Split::Commands(_)) => Ok(Done { data: None, generation: self.generation }),
            Ok(Split::Answer(bytes)) => match answer(&bytes, &request, pool) {
                Some(data) => Ok(Done { data: Some(data), generation: self.generation }),
                None => return Err((Error::new(Kind::Full), request)),
            },
            Err(error) if matches!(error.kind(), Kind::Full) => return Err((error, request)),
            Err(error) => Err(error.at_lun(request.lun).during(&request.cdb)),
        };
        self.tell(Event::Done { session: self.id, tag, result });
        Ok(())
    }

    /// Puts out the commands that a request was split into.
    fn send(&mut self, tag: u64, request: Request, gather: Gather) {
        let (retry, left) = (request.retry, self.commands.len());
        let job = Job { tag, gather, request: Some(request), left, error: None, generation: None };
        let place = self.jobs.insert(job);
        self.posting = Some(place);
        for (part, Command { member, cdb, data }) in self.commands.drain(..).enumerate() {
            let lun = self.members.get(member).map_or(0, |member| member.part.lun);
            let request = Request { lun, cdb, data, retry };
            self.outputs.push_back(Output::Post { member, tag: tag_of(place, part), request });
        }
    }

    /// A part has ended in its member.
    pub(super) fn part_ended(&mut self, at: usize, tag: u64, result: Result<Done, Error>) {
        let (place, part) = place_of(tag);
        if let (Ok(done), Some(member)) = (&result, self.members.get_mut(at)) {
            let before = std::mem::replace(&mut member.seen, done.generation);
            if done.generation.is_reset_since(before) {
                self.generation.reset();
            }
            if done.generation.has_failed_since(before) {
                self.generation.failed();
            }
        }
        let Some(job) = self.jobs.get_mut(place) else { return };
        job.left = job.left.saturating_sub(1);
        let outcome = match (&mut job.gather, result) {
            (gather, Ok(done)) => gather.take(self.layout, (part, at), done.data),
            // Nothing is in a cache there.
            (Gather::Flush, Err(error))
                if scsi::is_unsupported(&error) && is_through(&self.stage, at) =>
            {
                Ok(())
            }
            // It has no modes to tell, or tells none to whom a reservation keeps out.
            (Gather::Modes(..), Err(error))
                if scsi::is_unsupported(&error) || scsi::is_conflict(&error) =>
            {
                Ok(())
            }
            (_, Err(error)) => Err(error),
        };
        job.generation.get_or_insert(self.generation);
        if let Err(error) = outcome
            && job.error.as_ref().is_none_or(|(first, _)| part < *first)
        {
            job.error = Some((part, error.of_member(at)));
        }
        if job.left > 0 {
            return;
        }
        let Job { tag, gather, error, generation, .. } = self.jobs.remove(place);
        // What was written counts from its first part; what a flush stands for, up to its last.
        let generation = match gather {
            Gather::Flush => self.generation,
            _ => generation.unwrap_or(self.generation),
        };
        let result = match (error, &mut self.stage) {
            (Some((_, error)), _) => Err(error),
            (None, Stage::Up(volume)) => gather.answer(Some(volume)),
            (None, _) => gather.answer(None),
        };
        let result = result.map(|data| Done { data, generation });
        self.tell(Event::Done { session: self.id, tag, result });
        self.look_whether_over();
    }
}

/// Whether a member is known to have nothing in a volatile cache.
fn is_through(stage: &Stage<Volume>, member: usize) -> bool {
    match stage {
        Stage::Up(volume) => volume.parts.get(member).is_some_and(|part| !part.volatile_cache),
        _ => false,
    }
}

/// As much of an answer as there is room for.
fn answer(bytes: &[u8], request: &Request, pool: &Pool) -> Option<Buf> {
    let Data::In(room) = request.data else { return None };
    let length = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
    pool.take(length).map(|buf| filled(buf, bytes))
}
