// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread behind an initiator: letters in, results out.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use iscsi::initiator::discovery::Discovered;

use super::FAREWELL;
use super::Letter;
use super::Mailbox;
use super::lock;
use super::slot::Reply;
use crate::Done;
use crate::Error;
use crate::Event;
use crate::Kind;
use crate::Options;
use crate::Queue;
use crate::Request;
use crate::SessionId;

/// Who waits for a command.
type CommandReply = Reply<Result<Done, Error>>;

/// The thread behind an initiator.
pub(super) struct Server {
    queue: Queue,
    mail: Arc<Mailbox>,
    opening: HashMap<SessionId, Opening>,
    commands: HashMap<u64, CommandReply>,
    closing: HashMap<SessionId, Vec<Reply<()>>>,
    declaring: HashMap<SessionId, VecDeque<Reply<Result<(), Error>>>>,
    managing: HashMap<u64, Reply<Result<(), Error>>>,
    open: Vec<SessionId>,
    /// Commands for whose data there was no room.
    backlog: VecDeque<(SessionId, Request, CommandReply)>,
    next_tag: u64,
    stop_by: Option<Instant>,
}

/// Who waits for a login.
enum Opening {
    Session(Reply<Result<SessionId, Error>>),
    Discovery(Reply<Result<Vec<Discovered>, Error>>),
}

impl Server {
    pub(super) fn new(queue: Queue, mail: Arc<Mailbox>) -> Self {
        Self {
            queue,
            mail,
            opening: HashMap::new(),
            commands: HashMap::new(),
            closing: HashMap::new(),
            declaring: HashMap::new(),
            managing: HashMap::new(),
            open: Vec::new(),
            backlog: VecDeque::new(),
            next_tag: 0,
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

    fn read_mail(&mut self) {
        loop {
            let letter = lock(&self.mail.letters).pop_front();
            match letter {
                None => return,
                Some(Letter::Open(options, reply)) => match self.queue.open(*options) {
                    Ok(id) => {
                        self.open.push(id);
                        self.opening.insert(id, Opening::Session(reply));
                    }
                    Err(error) => reply.send(Err(error)),
                },
                Some(Letter::Discover(options, reply)) => {
                    match self.queue.open(Options { target: None, ..*options }) {
                        Ok(id) => {
                            self.open.push(id);
                            self.opening.insert(id, Opening::Discovery(reply));
                        }
                        Err(error) => reply.send(Err(error)),
                    }
                }
                Some(Letter::Post(id, request, reply)) if self.backlog.is_empty() => {
                    self.post(id, request, reply);
                }
                Some(Letter::Post(id, request, reply)) => {
                    self.backlog.push_back((id, request, reply));
                }
                Some(Letter::Declare(id, length, reply)) => {
                    match self.queue.declare_segment(id, length) {
                        Ok(()) => {
                            self.declaring.entry(id).or_default().push_back(reply);
                        }
                        Err(error) => reply.send(Err(error)),
                    }
                }
                Some(Letter::Manage(id, management, reply)) => {
                    let tag = self.next_tag;
                    match self.queue.post_management(id, tag, management) {
                        Ok(()) => {
                            self.next_tag = (tag + 1) & (u64::MAX >> 1);
                            self.managing.insert(tag, reply);
                        }
                        Err(error) => reply.send(Err(error)),
                    }
                }
                Some(Letter::Close(id, reply)) => {
                    if self.open.contains(&id) {
                        self.closing.entry(id).or_default().push(reply);
                        self.queue.close(id);
                    } else {
                        self.queue.forget(id);
                    }
                }
                Some(Letter::Stop) => {
                    self.stop_by = Some(Instant::now() + FAREWELL);
                    for id in self.open.clone() {
                        self.queue.close(id);
                    }
                }
            }
        }
    }

    fn post(&mut self, id: SessionId, request: Request, reply: CommandReply) {
        let tag = self.next_tag;
        match self.queue.post(id, tag, request) {
            Ok(()) => {
                self.next_tag = (tag + 1) & (u64::MAX >> 1);
                self.commands.insert(tag, reply);
            }
            // With nothing under way no room will come: the request is larger than the pool.
            Err((error, request)) if matches!(error.kind(), Kind::Full) => {
                if self.commands.is_empty() {
                    return reply.send(Err(error));
                }
                self.backlog.push_front((id, request, reply));
            }
            Err((error, _)) => reply.send(Err(error)),
        }
    }

    fn try_backlog(&mut self) {
        for _ in 0..self.backlog.len() {
            let Some((id, request, reply)) = self.backlog.pop_front() else { return };
            let before = self.backlog.len();
            self.post(id, request, reply);
            if self.backlog.len() > before {
                return;
            }
        }
    }

    fn deliver(&mut self, event: Event) {
        match event {
            Event::Done { tag, result, .. } => {
                if let Some(reply) = self.commands.remove(&tag) {
                    reply.send(result);
                }
            }
            Event::Managed { tag, result, .. } => {
                if let Some(reply) = self.managing.remove(&tag) {
                    reply.send(result);
                }
            }
            Event::Up { session, .. } => {
                if matches!(self.opening.get(&session), Some(Opening::Session(_)))
                    && let Some(Opening::Session(reply)) = self.opening.remove(&session)
                {
                    reply.send(Ok(session));
                }
            }
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
            Event::Ended { session, error } => {
                self.declaring.remove(&session);
                let error = error.unwrap_or_else(|| Error::new(Kind::Closed));
                let unwanted = self.closing.remove(&session).is_some();
                self.open.retain(|open| *open != session);
                match self.opening.remove(&session) {
                    Some(Opening::Session(reply)) => reply.send(Err(error)),
                    Some(Opening::Discovery(reply)) => reply.send(Err(error)),
                    // One that ended by itself is remembered until its owner lets it go, so that
                    // requests are told why they fail.
                    None if !unwanted => return,
                    None => {}
                }
                self.queue.forget(session);
            }
            Event::Down { .. }
            | Event::Asynchronous { .. }
            | Event::Deferred { .. }
            | Event::Oddity { .. }
            | Event::Again { .. }
            | Event::Elsewhere { .. }
            | Event::Overdue { .. } => {}
        }
    }
}
