// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread behind an initiator: letters in, outcomes out.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Weak;
use std::time::Instant;

use iscsi::initiator::discovery::Discovered;
use slab::Slab;
use wire::scsi::Lun;
use wire::scsi::Sense;
use wire::scsi::alua::AccessState;

use super::FAREWELL;
use super::mail::Letter;
use super::mail::Mailbox;
use super::mail::Outcome;
use super::mail::Owner;
use super::mail::Sleeper;
use super::running::Next;
use super::running::Running;
use super::slot::Reply;
use crate::Completion;
use crate::DiskEvent;
use crate::Error;
use crate::Event;
use crate::Fate;
use crate::Kind;
use crate::Options;
use crate::PathChange;
use crate::Queue;
use crate::SessionId;
use crate::completions::Shared;
use crate::disk::DiskState;

/// The thread behind an initiator.
pub(super) struct Server {
    queue: Queue,
    mail: Arc<Mailbox>,
    /// Letters that are being read; it keeps its memory.
    letters: Vec<Letter>,
    opening: HashMap<SessionId, Opening>,
    running: Slab<Running>,
    /// Commands under way, of all that is running.
    under_way: usize,
    /// What is running and found no room, or came after such.
    backlog: VecDeque<usize>,
    /// Outcomes to leave in the mailbox, and whom that wakes.
    ended: Vec<(usize, Outcome)>,
    sleepers: Vec<Sleeper>,
    /// Completion queues that were told something.
    told: Vec<Arc<Shared>>,
    disks: Vec<Weak<DiskState>>,
    /// What was told last of each path that is of no use.
    troubles: HashMap<SessionId, BTreeMap<usize, PathChange>>,
    closing: HashMap<SessionId, Vec<Reply<()>>>,
    declaring: HashMap<SessionId, VecDeque<Reply<Result<(), Error>>>>,
    managing: Slab<Reply<Result<(), Error>>>,
    open: Vec<SessionId>,
    stop_by: Option<Instant>,
}

/// Who waits for a login.
enum Opening {
    Session(Reply<Result<SessionId, Error>>),
    Discovery(Reply<Result<Vec<Discovered>, Error>>),
}

/// Where in a tag the place of an operation begins; below is which of its commands it is.
const PLACE_SHIFT: u32 = 32;

impl Server {
    pub(super) fn new(queue: Queue, mail: Arc<Mailbox>) -> Self {
        Self {
            queue,
            mail,
            letters: Vec::new(),
            opening: HashMap::new(),
            running: Slab::new(),
            under_way: 0,
            backlog: VecDeque::new(),
            ended: Vec::new(),
            sleepers: Vec::new(),
            told: Vec::new(),
            disks: Vec::new(),
            troubles: HashMap::new(),
            closing: HashMap::new(),
            declaring: HashMap::new(),
            managing: Slab::new(),
            open: Vec::new(),
            stop_by: None,
        }
    }

    pub(super) fn serve(mut self) {
        loop {
            self.read_mail();
            self.try_backlog();
            while let Some(event) = self.queue.reap() {
                self.deliver(event);
            }
            self.hand_out();
            match self.stop_by {
                Some(_) if self.open.is_empty() => return,
                Some(by) if Instant::now() >= by => return,
                Some(by) => {
                    self.queue.wait_n(1, by.saturating_duration_since(Instant::now()));
                }
                None => self.queue.wait(),
            }
        }
    }

    /// Tells what has ended in this turn.
    fn hand_out(&mut self) {
        self.mail.leave(&mut self.ended, &mut self.sleepers);
        for queue in self.told.drain(..) {
            queue.raise();
        }
    }

    fn read_mail(&mut self) {
        let mut letters = std::mem::take(&mut self.letters);
        self.mail.collect(&mut letters);
        for letter in letters.drain(..) {
            self.read(letter);
        }
        self.letters = letters;
    }

    fn read(&mut self, letter: Letter) {
        match letter {
            Letter::Command(session, request, owner) => {
                self.begin(Running::command(session, request, owner));
            }
            Letter::Operation(disk, geometry, operation, owner) => {
                self.begin(Running::operation(disk, geometry, operation, owner));
            }
            Letter::Watch(disk) => {
                self.disks.retain(|disk| disk.strong_count() > 0);
                self.disks.push(disk);
            }
            Letter::Open(options, reply) => {
                let opened = self.queue.open(*options);
                self.opened(opened, reply);
            }
            Letter::OpenPaths(paths, reply) => {
                let opened = self.queue.open_paths(*paths);
                self.opened(opened, reply);
            }
            Letter::OpenStripe(stripe, reply) => {
                let opened = self.queue.open_stripe(*stripe);
                self.opened(opened, reply);
            }
            Letter::Discover(options, reply) => {
                match self.queue.open(Options { target: None, ..*options }) {
                    Ok(id) => {
                        self.open.push(id);
                        self.opening.insert(id, Opening::Discovery(reply));
                    }
                    Err(error) => reply.send(Err(error)),
                }
            }
            Letter::Declare(id, length, reply) => match self.queue.declare_segment(id, length) {
                Ok(()) => self.declaring.entry(id).or_default().push_back(reply),
                Err(error) => reply.send(Err(error)),
            },
            Letter::Manage(id, management, reply) => {
                let entry = self.managing.vacant_entry();
                match self.queue.post_management(id, entry.key() as u64, management) {
                    Ok(()) => {
                        entry.insert(reply);
                    }
                    Err(error) => reply.send(Err(error)),
                }
            }
            Letter::Troubles(id, reply) => {
                let told = self.troubles.get(&id).into_iter().flatten();
                reply.send(told.map(|(path, change)| (*path, change.clone())).collect());
            }
            Letter::Close(id, reply) => {
                if self.open.contains(&id) {
                    self.closing.entry(id).or_default().push(reply);
                    self.queue.close(id);
                } else {
                    self.queue.forget(id);
                }
            }
            Letter::Stop => {
                self.stop_by = Some(Instant::now() + FAREWELL);
                let left = self.queue.in_doubt().into_iter();
                let left: Vec<_> = left.filter(|id| !self.open.contains(id)).collect();
                self.open.extend(left);
                for id in self.open.clone() {
                    self.queue.abandon(id);
                }
            }
        }
    }

    fn opened(&mut self, opened: Result<SessionId, Error>, reply: Reply<Result<SessionId, Error>>) {
        match opened {
            Ok(id) => {
                self.open.push(id);
                self.opening.insert(id, Opening::Session(reply));
            }
            Err(error) => reply.send(Err(error)),
        }
    }

    /// Who waits for room already comes first.
    fn begin(&mut self, running: Running) {
        let place = self.running.insert(running);
        match self.backlog.is_empty() {
            true => self.advance(place),
            false => self.backlog.push_back(place),
        }
    }

    /// Sends what an operation has to send, up to what finds no room; ends it when all has ended.
    fn advance(&mut self, place: usize) {
        while let Some(running) = self.running.get_mut(place) {
            let Some((part, request)) = running.take() else {
                match running.is_idle() {
                    true if self.step(place) => continue,
                    _ => return,
                }
            };
            let tag = (place as u64) << PLACE_SHIFT | u64::from(part);
            match self.queue.post(running.session, tag, request) {
                Ok(()) => self.under_way += 1,
                // With nothing under way no room will come: the request is larger than the pool.
                Err((error, request))
                    if matches!(error.kind(), Kind::Full) && self.under_way > 0 =>
                {
                    running.give_back(request);
                    return self.backlog.push_front(place);
                }
                Err((error, _)) => running.ended(part, Err(error)),
            }
        }
    }

    fn try_backlog(&mut self) {
        for _ in 0..self.backlog.len() {
            let Some(place) = self.backlog.pop_front() else { return };
            let before = self.backlog.len();
            self.advance(place);
            if self.backlog.len() > before {
                return;
            }
        }
    }

    /// A command has ended.
    fn command_ended(&mut self, tag: u64, result: Result<crate::Done, Error>) {
        let place = usize::try_from(tag >> PLACE_SHIFT).unwrap_or(usize::MAX);
        let part = u32::try_from(tag & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        self.under_way = self.under_way.saturating_sub(1);
        let Some(running) = self.running.get_mut(place) else { return };
        let waited = running.waits_for_room();
        running.ended(part, result);
        if waited && !running.waits_for_room() {
            self.backlog.retain(|other| *other != place);
        }
        if self.step(place) {
            self.advance(place);
        }
    }

    /// True if an operation has more to send, now that all that was sent has ended.
    fn step(&mut self, place: usize) -> bool {
        let Some(running) = self.running.get_mut(place) else { return false };
        let next = match running.next() {
            Next::Wait => return false,
            Next::Send => return true,
            next => next,
        };
        let running = self.running.remove(place);
        match (next, running.owner) {
            (Next::End(outcome), Owner::Ticket(number)) => self.ended.push((number, outcome)),
            (Next::End(outcome), Owner::Queue(queue, tag)) => {
                let result = outcome.map(|ended| ended.data);
                self.tell(&queue, Completion::Ended { tag, result });
            }
            (Next::Looked(disk, capacity, cache), _) => {
                disk.inner().learned(capacity.as_ref(), cache);
                self.tell_news(&disk);
                self.ask_again(&disk);
            }
            (_, Owner::Server) | (Next::Wait | Next::Send, _) => {}
        }
        false
    }

    fn tell(&mut self, queue: &Arc<Shared>, entry: Completion) {
        queue.push(entry);
        if !self.told.iter().any(|told| Arc::ptr_eq(told, queue)) {
            self.told.push(Arc::clone(queue));
        }
    }

    fn deliver(&mut self, event: Event) {
        match event {
            Event::Done { tag, result, .. } => self.command_ended(tag, result),
            Event::Managed { tag, result, .. } => {
                let place = usize::try_from(tag).unwrap_or(usize::MAX);
                if let Some(reply) = self.managing.try_remove(place) {
                    reply.send(result);
                }
            }
            Event::Up { session, .. } => match self.opening.remove(&session) {
                Some(Opening::Session(reply)) => reply.send(Ok(session)),
                Some(discovery) => {
                    self.opening.insert(session, discovery);
                }
                None => self.is_back(session),
            },
            Event::Targets { session, result } => {
                if let Some(Opening::Discovery(reply)) = self.opening.remove(&session) {
                    reply.send(result);
                }
                self.queue.close(session);
            }
            Event::Declared { session, result } => {
                let waiting = self.declaring.get_mut(&session);
                if let Some(reply) = waiting.and_then(VecDeque::pop_front) {
                    reply.send(result);
                }
            }
            Event::Attention { session, lun, sense } => self.attention(session, lun, sense),
            Event::Asynchronous { session, lun, sense } => {
                if let (Some(Lun::Unit(lun)), Some(sense)) = (Lun::parse(lun), Sense::parse(&sense))
                {
                    self.attention(session, lun, sense);
                }
            }
            Event::MayHaveLost { session, lun, fate } => {
                self.tell_disks(session, Some(lun), &DiskEvent::MayHaveLost(fate));
                // What begins anew may have another cache than before, and so may one whose mode
                // parameters have changed (SPC-4 §5.13.3).
                if fate == Fate::Reset {
                    for disk in self.disks_of(session, Some(lun)) {
                        self.look_at(&disk);
                    }
                }
            }
            Event::Path { session, path, change } => {
                self.note_trouble(session, path, &change);
                self.tell_disks(session, None, &DiskEvent::Path { path, change });
            }
            Event::Down { session, error } => {
                self.tell_disks(session, None, &DiskEvent::Lost(error));
            }
            Event::Ended { session, error } => {
                let error = error.unwrap_or_else(|| Error::new(Kind::Closed));
                self.tell_disks(session, None, &DiskEvent::Ended(error.clone()));
                self.session_ended(session, error);
            }
            Event::Deferred { .. }
            | Event::Oddity { .. }
            | Event::Adapter { .. }
            | Event::Settled { .. }
            | Event::Again { .. }
            | Event::Elsewhere { .. }
            | Event::Overdue { .. } => {}
        }
    }

    fn note_trouble(&mut self, session: SessionId, path: usize, change: &PathChange) {
        let troubles = self.troubles.entry(session).or_default();
        match change {
            PathChange::Back | PathChange::Access(AccessState::ActiveOptimized) => {
                troubles.remove(&path);
            }
            _ => {
                troubles.insert(path, change.clone());
            }
        }
    }

    fn session_ended(&mut self, session: SessionId, error: Error) {
        self.declaring.remove(&session);
        self.troubles.remove(&session);
        let unwanted = self.closing.remove(&session).is_some();
        self.open.retain(|open| *open != session);
        match self.opening.remove(&session) {
            Some(Opening::Session(reply)) => reply.send(Err(error)),
            Some(Opening::Discovery(reply)) => reply.send(Err(error)),
            // One that ended by itself is remembered until its owner lets it go, so that requests
            // are told why they fail.
            None if !unwanted => return,
            None => {}
        }
        self.queue.forget(session);
    }
}

/// Disks and whoever watches them.
impl Server {
    /// A session has begun in the place of a lost one: what its units had to tell went with that.
    fn is_back(&mut self, session: SessionId) {
        self.tell_disks(session, None, &DiskEvent::Back);
        for disk in self.disks_of(session, None) {
            self.look_at(&disk);
        }
    }

    fn attention(&mut self, session: SessionId, lun: u16, sense: Sense) {
        self.tell_disks(session, Some(lun), &DiskEvent::Attention(sense));
        // CAPACITY DATA HAS CHANGED.
        if (sense.asc, sense.ascq) == (0x2a, 0x09) {
            for disk in self.disks_of(session, Some(lun)) {
                self.look_at(&disk);
            }
        }
    }

    fn disks_of(&self, session: SessionId, lun: Option<u16>) -> Vec<Arc<DiskState>> {
        let disks = self.disks.iter().filter_map(Weak::upgrade);
        let is_meant = |disk: &Arc<DiskState>| {
            disk.session == session && lun.is_none_or(|lun| disk.lun == lun)
        };
        disks.filter(is_meant).collect()
    }

    fn tell_disks(&mut self, session: SessionId, lun: Option<u16>, event: &DiskEvent) {
        for disk in self.disks_of(session, lun) {
            disk.inner().happened(event.clone());
            self.tell_news(&disk);
        }
    }

    /// Passes on what has happened to a disk.
    fn tell_news(&mut self, disk: &Arc<DiskState>) {
        let news = disk.inner().take_news();
        for (queue, tag, event) in news {
            self.tell(&queue, Completion::Event { tag, event });
        }
    }

    /// Asks for what may have changed.
    fn look_at(&mut self, disk: &Arc<DiskState>) {
        let geometry = disk.inner().begin_question();
        if let Some(geometry) = geometry {
            self.begin(Running::look(Arc::clone(disk), geometry));
        }
    }

    /// It may have changed again while it was asked for.
    fn ask_again(&mut self, disk: &Arc<DiskState>) {
        if disk.inner().end_question() {
            self.look_at(disk);
        }
    }
}

/// However the thread ends, nobody waits for it.
impl Drop for Server {
    fn drop(&mut self) {
        self.hand_out();
        let letters = self.mail.end();
        let owners = letters.into_iter().filter_map(|letter| match letter {
            Letter::Command(_, _, owner) | Letter::Operation(_, _, _, owner) => Some(owner),
            _ => None,
        });
        let running = std::mem::take(&mut self.running);
        let owners: Vec<Owner> =
            owners.chain(running.into_iter().map(|(_, running)| running.owner)).collect();
        for owner in owners {
            if let Owner::Queue(queue, tag) = owner {
                let result = Err(Error::new(Kind::Closed));
                self.tell(&queue, Completion::Ended { tag, result });
            }
        }
        self.hand_out();
    }
}
