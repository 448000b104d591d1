// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several disks as one: RAID-0 over targets. To its user it is one session.
//!
//! A member is a session, or several paths. Each is asked what it is like, by the questions that
//! any disk is asked (`survey.rs`), before anything is sent. What the stripe is like, it says
//! itself (`stripe/volume.rs`); a request becomes commands to the members that have a part of it
//! (`stripe/split.rs`), whose answers become one (`stripe/gather.rs`), and ends with the last of
//! these (`stripe/jobs.rs`).
//!
//! ```text
//!                          +--> member 1 --ends--+
//! post --split-> parts ----+--> member 2 --ends--+-> gathered --> told
//!                  ^       |
//!                  +-held--+  (no room for the data of a later part)
//! ```
//!
//! It has no redundancy: what a member has lost is lost. A part that waits for its member lets its
//! request wait, and no other. This machine does no I/O: the pump gives it the events of its
//! members, and carries out what it puts out.

mod gather;
mod jobs;
mod split;
#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)] // a test that panics has failed
mod tests;
mod volume;

use std::collections::VecDeque;
use std::net::SocketAddr;

use buf::Pool;
use clock::Instant;
use medium::stripe::Layout;
use medium::stripe::MEMBERS_MAX;
use medium::stripe::Misfit;
use slab::Slab;

use self::jobs::Job;
use self::split::Command;
use self::volume::Volume;
use crate::Done;
use crate::Error;
use crate::Event;
use crate::Generation;
use crate::Kind;
use crate::Paths;
use crate::Request;
use crate::Retry;
use crate::SessionId;
use crate::stage::Stage;
use crate::survey::Survey;

/// Several disks side by side ([`crate::Queue::open_stripe`]).
#[derive(Clone, Debug)]
pub struct Stripe {
    /// Bytes that lie together in one member: a power of two from 4 KiB to 4 MiB.
    pub chunk: u64,
    /// The disks, each over one path or several.
    pub members: Vec<Paths>,
}

/// Why disks are no stripe, or what one does not do. Members are counted from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StripeError {
    /// One, or too many.
    #[error("a stripe has 2 to {MEMBERS_MAX} disks, not {0}")]
    Members(usize),
    /// Not a power of two, too small or too large.
    #[error("{0} bytes is no chunk of a stripe: a power of two from 4K to 4M is right")]
    Chunk(u64),
    /// Offsets would be those of other blocks.
    #[error("disk {member} of the stripe has blocks of {bytes} bytes, and disk 1 of {first}")]
    Blocks {
        /// Which.
        member: usize,
        /// In a block of it.
        bytes: u32,
        /// In a block of the first one.
        first: u32,
    },
    /// A block does not fit a chunk.
    #[error("a chunk of {chunk} bytes is less than a block of {block}")]
    Coarse {
        /// Bytes.
        chunk: u64,
        /// Bytes.
        block: u32,
    },
    /// There is no room for one chunk.
    #[error("disk {member} of the stripe has {bytes} bytes, less than a chunk of {chunk}")]
    Small {
        /// Which.
        member: usize,
        /// Its size.
        bytes: u64,
        /// A chunk.
        chunk: u64,
    },
    /// More than can be counted.
    #[error("a stripe of these disks would have more bytes than can be counted")]
    TooLarge,
    /// What is written to one would be written over what the other has.
    #[error("disks {first} and {second} of the stripe are the same one, {name}")]
    Same {
        /// Which.
        first: usize,
        /// Which other.
        second: usize,
        /// How it names itself, or where it is.
        name: String,
    },
    /// What is one operation would be one of several disks.
    #[error(
        "a COMPARE AND WRITE across the border of chunks of {chunk} bytes would not be one \
         operation, and is refused"
    )]
    Across {
        /// A chunk.
        chunk: u64,
    },
    /// Writes would reach a part of the members.
    #[error("disk {member} of the stripe is write protected, so nothing is written to any")]
    ReadOnly {
        /// Which.
        member: usize,
    },
}

impl From<Misfit> for StripeError {
    fn from(misfit: Misfit) -> Self {
        match misfit {
            Misfit::Members(members) => Self::Members(members),
            Misfit::Chunk(chunk) => Self::Chunk(chunk),
        }
    }
}

impl StripeError {
    pub(crate) fn error(self) -> Error {
        Error::new(Kind::Stripe(self))
    }
}

/// The tag of a question of ours; those of parts are their places.
const QUESTION: u64 = u64::MAX;

/// What the pump is to do.
#[derive(Debug)]
pub(crate) enum Output {
    /// Give this to a member; what it refuses comes back ([`Array::refused`]).
    Post { member: usize, tag: u64, request: Request },
    /// Tell the caller.
    Tell(Event),
    /// Log out of a member.
    Close(usize),
}

/// One member, from outside.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) session: SessionId,
    pub(crate) lun: u16,
    /// Name of the target.
    pub(crate) target: Option<String>,
    /// How many lead to it.
    pub(crate) paths: usize,
}

#[derive(Debug)]
struct Member {
    part: Part,
    /// It is logged in.
    is_up: bool,
    /// Its session has ended for good.
    is_over: bool,
    survey: Survey,
    /// A question is under way.
    is_asked: bool,
    /// Its unit's, as it was told last.
    seen: Generation,
}

/// Disks side by side.
#[derive(Debug)]
pub(crate) struct Array {
    id: SessionId,
    layout: Layout,
    members: Vec<Member>,
    /// Up: all members are known.
    stage: Stage<Volume>,
    /// Where one of them is.
    peer: Option<SocketAddr>,
    /// What was posted before the members were known, in order.
    early: VecDeque<(u64, Request)>,
    jobs: Slab<Job>,
    /// Those of the request that is being split; empty but for its memory.
    commands: Vec<Command>,
    /// Parts that found no room: all of the same request.
    held: VecDeque<(usize, u64, Request)>,
    /// When they are tried again.
    room_at: Option<Instant>,
    /// Of all units together.
    generation: Generation,
    /// The request that is being posted, which goes back if there is no room for it.
    posting: Option<usize>,
    returned: Option<(Error, Request)>,
    outputs: VecDeque<Output>,
}

impl Array {
    /// Over `members`, whose sessions have begun to log in.
    pub(crate) fn new(id: SessionId, layout: Layout, members: Vec<Part>) -> Self {
        let members = members.into_iter().map(|part| Member {
            part,
            is_up: false,
            is_over: false,
            survey: Survey::default(),
            is_asked: false,
            seen: Generation::default(),
        });
        Self {
            id,
            layout,
            members: members.collect(),
            stage: Stage::Opening,
            peer: None,
            early: VecDeque::new(),
            jobs: Slab::new(),
            commands: Vec::new(),
            held: VecDeque::new(),
            room_at: None,
            generation: Generation::default(),
            posting: None,
            returned: None,
            outputs: VecDeque::new(),
        }
    }

    pub(crate) const fn id(&self) -> SessionId {
        self.id
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.members.iter().map(|member| member.part.session)
    }

    pub(crate) fn session_of(&self, member: usize) -> Option<SessionId> {
        self.members.get(member).map(|member| member.part.session)
    }

    pub(crate) fn member_of(&self, session: SessionId) -> Option<usize> {
        self.members.iter().position(|member| member.part.session == session)
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.stage.is_over()
    }

    /// Whether commands leave at once, to all members.
    pub(crate) fn is_up(&self) -> bool {
        self.stage.is_up() && self.members.iter().all(|member| member.is_up)
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When something is due.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.room_at
    }

    /// Does what is due.
    pub(crate) fn expire(&mut self, pool: &Pool, now: Instant) {
        if self.room_at.is_none_or(|at| at > now) {
            return;
        }
        self.room_at = None;
        for (member, tag, request) in std::mem::take(&mut self.held) {
            self.outputs.push_back(Output::Post { member, tag, request });
        }
        for at in 0..self.members.len() {
            self.ask(at);
        }
        self.post_early(pool, now);
    }

    /// All sessions end.
    pub(crate) fn close(&mut self) {
        self.end_all(None);
    }

    /// Something has happened to a member.
    pub(crate) fn handle(&mut self, at: usize, event: Event, pool: &Pool, now: Instant) {
        let (own_lun, first_path) = (self.lun(), self.first_path_of(at));
        let Some(member) = self.members.get_mut(at) else { return };
        let lun = member.part.lun;
        match event {
            Event::Up { peer, .. } => {
                member.is_up = true;
                self.peer = Some(peer);
                self.ask(at);
                if self.is_up() {
                    self.tell(Event::Up { session: self.id, peer });
                }
            }
            Event::Down { error, .. } => {
                member.is_up = false;
                self.tell(Event::Down { session: self.id, error: error.of_member(at) });
            }
            Event::Ended { error, .. } => {
                member.is_over = true;
                self.member_ended(error.map(|error| error.of_member(at)));
            }
            Event::Done { tag: QUESTION, result, .. } => self.answered(at, result, pool, now),
            Event::Done { tag, result, .. } => self.part_ended(at, tag, result),
            // Of another unit of a member's target nobody knows here.
            Event::Attention { lun: of, .. } | Event::MayHaveLost { lun: of, .. } if of != lun => {}
            Event::Attention { sense, .. } => {
                self.tell(Event::Attention { session: self.id, lun: own_lun, sense });
            }
            Event::MayHaveLost { fate, .. } => {
                self.tell(Event::MayHaveLost { session: self.id, lun: own_lun, fate });
            }
            Event::Path { path, change, .. } => {
                let path = first_path + path;
                self.tell(Event::Path { session: self.id, path, change });
            }
            mut event => {
                *event.session_mut() = self.id;
                match &mut event {
                    Event::Overdue { tag, error, .. }
                    | Event::Again { tag, error, .. }
                    | Event::Elsewhere { tag, error, .. } => {
                        let Some(of) = self.tag_of(*tag) else { return };
                        (*tag, *error) = (of, error.clone().of_member(at));
                    }
                    Event::Deferred { error, .. } => *error = error.clone().of_member(at),
                    _ => {}
                }
                self.tell(event);
            }
        }
    }

    /// The session of a member that is to end has nothing to tell any more.
    pub(crate) fn closed(&mut self, member: usize) {
        if let Some(member) = self.members.get_mut(member) {
            member.is_over = true;
        }
        self.look_whether_over();
    }

    /// That of the whole: as that of the first member.
    fn lun(&self) -> u16 {
        self.members.first().map_or(0, |member| member.part.lun)
    }

    /// Paths are counted through all members.
    fn first_path_of(&self, at: usize) -> usize {
        self.members.iter().take(at).map(|member| member.part.paths).sum()
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Tell(event));
    }

    /// A member is asked the next question, if there is one.
    fn ask(&mut self, at: usize) {
        let Some(member) = self.members.get_mut(at) else { return };
        let Some((cdb, data)) = member.survey.question() else { return };
        if !self.stage.is_opening() || std::mem::replace(&mut member.is_asked, true) {
            return;
        }
        let request = Request { lun: member.part.lun, cdb, data, retry: Retry::Always };
        self.outputs.push_back(Output::Post { member: at, tag: QUESTION, request });
    }

    fn answered(&mut self, at: usize, result: Result<Done, Error>, pool: &Pool, now: Instant) {
        let Some(member) = self.members.get_mut(at) else { return };
        member.is_asked = false;
        if !self.stage.is_opening() {
            return;
        }
        if let Ok(done) = &result {
            member.seen = done.generation;
        }
        let lun = member.part.lun;
        if let Err(error) = member.survey.answer(result) {
            return self.end_all(Some(error.at_lun(lun).of_member(at)));
        }
        self.ask(at);
        if self.members.iter().all(|member| member.survey.question().is_none()) {
            self.begin(pool, now);
        }
    }

    /// All is known of all members.
    fn begin(&mut self, pool: &Pool, now: Instant) {
        let known: Vec<(&Part, &Survey)> =
            self.members.iter().map(|member| (&member.part, &member.survey)).collect();
        match Volume::new(self.layout, &known) {
            Ok(volume) => self.stage = Stage::Up(volume),
            Err(error) => return self.end_all(Some(error)),
        }
        if let Some(peer) = self.peer.filter(|_| self.is_up()) {
            self.tell(Event::Up { session: self.id, peer });
        }
        self.post_early(pool, now);
    }

    fn member_ended(&mut self, error: Option<Error>) {
        if self.stage.note_end(error.as_ref()) {
            return self.look_whether_over();
        }
        self.end_all(Some(error.unwrap_or_else(|| Error::new(Kind::Closed))));
    }

    /// What has not left gets its last word, and all sessions end.
    fn end_all(&mut self, error: Option<Error>) {
        let Some(last) = self.stage.close(error) else { return };
        for (tag, _) in std::mem::take(&mut self.early) {
            self.tell(Event::Done { session: self.id, tag, result: Err(last.clone()) });
        }
        for (member, tag, _) in std::mem::take(&mut self.held) {
            self.part_ended(member, tag, Err(last.clone()));
        }
        for at in 0..self.members.len() {
            self.outputs.push_back(Output::Close(at));
        }
        self.look_whether_over();
    }

    fn look_whether_over(&mut self) {
        let is_closing = matches!(self.stage, Stage::Closing(_));
        let are_over = self.members.iter().all(|member| member.is_over);
        if is_closing && are_over && self.jobs.is_empty() {
            let error = self.stage.finish();
            self.tell(Event::Ended { session: self.id, error });
        }
    }
}
