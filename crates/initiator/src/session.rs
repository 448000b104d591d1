// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions for any thread: one thread of ours runs a queue, calls wait or give futures.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use buf::Pool;
use iscsi::initiator::discovery::Discovered;
use wire::iscsi::Cdb;

use crate::Config;
use crate::Data;
use crate::Done;
use crate::Error;
use crate::Event;
use crate::Kind;
use crate::Options;
use crate::Queue;
use crate::Request;
use crate::Retry;
use crate::SessionId;
use crate::scsi::Execute;

/// How long logouts may take when an initiator is dropped.
const FAREWELL: Duration = Duration::from_secs(6);

/// Runs sessions in a thread of its own. Sessions end when the last handle to it is dropped.
#[derive(Clone, Debug)]
pub struct Initiator(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    mail: Arc<Mailbox>,
    pool: Pool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Mailbox {
    letters: Mutex<VecDeque<Letter>>,
    waker: engine::Waker,
}

#[derive(Debug)]
enum Letter {
    Open(Box<Options>, Reply<Result<SessionId, Error>>),
    Discover(Box<Options>, Reply<Result<Vec<Discovered>, Error>>),
    Post(SessionId, Request, Reply<Result<Done, Error>>),
    Close(SessionId, Reply<()>),
    Stop,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl Mailbox {
    fn send(&self, letter: Letter) {
        lock(&self.letters).push_back(letter);
        self.waker.wake();
    }
}

impl Initiator {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Kind::System`] if a thread, an engine or buffers cannot be had.
    pub fn start(config: &Config) -> Result<Self, Error> {
        let config = config.clone();
        let (ready, started) = mpsc::channel();
        let thread = std::thread::Builder::new().name("initiator".into()).spawn(move || {
            let queue = match Queue::new(&config) {
                Ok(queue) => queue,
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            let letters = Mutex::new(VecDeque::new());
            let mail = Arc::new(Mailbox { letters, waker: queue.waker() });
            if ready.send(Ok((Arc::clone(&mail), queue.pool().clone()))).is_ok() {
                Server::new(queue, mail).serve();
            }
        })?;
        let (mail, pool) = started.recv().map_err(|_| Error::new(Kind::Closed))??;
        Ok(Self(Arc::new(Inner { mail, pool, thread: Mutex::new(Some(thread)) })))
    }

    /// Logs in.
    ///
    /// # Errors
    /// Whatever ends the login.
    pub fn connect(&self, options: Options) -> Result<Session, Error> {
        self.begin(options).wait()
    }

    /// Logs in; waits for nothing.
    #[must_use]
    pub fn begin(&self, options: Options) -> Login {
        let (reply, pending) = slot();
        self.0.mail.send(Letter::Open(Box::new(options), reply));
        Login { initiator: self.clone(), pending }
    }

    /// What targets there are.
    ///
    /// # Errors
    /// Whatever ends the login or the answer.
    pub fn discover(&self, options: Options) -> Result<Vec<Discovered>, Error> {
        let (reply, pending) = slot();
        self.0.mail.send(Letter::Discover(Box::new(options), reply));
        pending.wait().unwrap_or_else(|| Err(Error::new(Kind::Closed)))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.mail.send(Letter::Stop);
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

/// A login under way.
#[derive(Debug)]
pub struct Login {
    initiator: Initiator,
    pending: Slotted<Result<SessionId, Error>>,
}

impl Login {
    /// Waits for its end.
    ///
    /// # Errors
    /// Whatever ends it.
    pub fn wait(self) -> Result<Session, Error> {
        let result = self.pending.wait();
        Self::session(&self.initiator, result)
    }

    fn session(
        initiator: &Initiator,
        result: Option<Result<SessionId, Error>>,
    ) -> Result<Session, Error> {
        let id = result.unwrap_or_else(|| Err(Error::new(Kind::Closed)))?;
        Ok(Session(Arc::new(Handle { initiator: initiator.clone(), id })))
    }
}

impl Future for Login {
    type Output = Result<Session, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = self.pending.poll(context);
        result.map(|result| Self::session(&self.initiator, result))
    }
}

/// A session with a target; cheap to clone. It logs out when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Session(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    initiator: Initiator,
    id: SessionId,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let (reply, _) = slot();
        self.initiator.0.mail.send(Letter::Close(self.id, reply));
    }
}

impl Session {
    /// Sends a command; waits for nothing.
    #[must_use]
    pub fn post(&self, request: Request) -> Pending {
        let (reply, pending) = slot();
        self.0.initiator.0.mail.send(Letter::Post(self.0.id, request, reply));
        Pending(pending)
    }

    /// Sends a command and waits for its end.
    ///
    /// # Errors
    /// However it fails.
    pub fn execute(&self, request: Request) -> Result<Done, Error> {
        self.post(request).wait()
    }

    /// Logs out and waits for it; commands that have not ended fail.
    pub fn logout(&self) {
        let (reply, pending) = slot();
        self.0.initiator.0.mail.send(Letter::Close(self.0.id, reply));
        pending.wait();
    }

    /// Where data buffers come from.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.0.initiator.0.pool
    }

    /// Logical unit `lun`, for the functions of [`crate::scsi`].
    #[must_use]
    pub fn unit(&self, lun: u16) -> Unit {
        Unit { session: self.clone(), lun }
    }
}

/// One logical unit over a session.
#[derive(Clone, Debug)]
pub struct Unit {
    session: Session,
    lun: u16,
}

impl Execute for Unit {
    fn execute(&mut self, cdb: Cdb, data: Data, retry: Retry) -> Result<Done, Error> {
        self.session.execute(Request { lun: self.lun, cdb, data, retry })
    }
}

/// A command under way: wait for it, or poll it as a future. Dropping it does not end it.
#[derive(Debug)]
pub struct Pending(Slotted<Result<Done, Error>>);

impl Pending {
    /// Waits for its end.
    ///
    /// # Errors
    /// However it fails.
    pub fn wait(self) -> Result<Done, Error> {
        self.0.wait().unwrap_or_else(|| Err(Error::new(Kind::Closed)))
    }
}

impl Future for Pending {
    type Output = Result<Done, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = self.0.poll(context);
        result.map(|result| result.unwrap_or_else(|| Err(Error::new(Kind::Closed))))
    }
}

/// Where one result is handed over.
#[derive(Debug)]
struct Slot<T> {
    state: Mutex<SlotState<T>>,
    filled: Condvar,
}

#[derive(Debug)]
struct SlotState<T> {
    value: Option<T>,
    /// Nobody will fill it any more.
    over: bool,
    waker: Option<Waker>,
}

/// The side that fills a slot; a slot that nobody filled is over when it is dropped.
#[derive(Debug)]
struct Reply<T>(Arc<Slot<T>>);

/// Who waits for a command.
type CommandReply = Reply<Result<Done, Error>>;

/// The side that waits.
#[derive(Debug)]
struct Slotted<T>(Arc<Slot<T>>);

fn slot<T>() -> (Reply<T>, Slotted<T>) {
    let state = Mutex::new(SlotState { value: None, over: false, waker: None });
    let slot = Arc::new(Slot { state, filled: Condvar::new() });
    (Reply(Arc::clone(&slot)), Slotted(slot))
}

impl<T> Reply<T> {
    fn send(self, value: T) {
        lock(&self.0.state).value = Some(value);
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.over = true;
        let waker = state.waker.take();
        drop(state);
        self.0.filled.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Slotted<T> {
    /// None if nobody filled it.
    fn wait(&self) -> Option<T> {
        let mut state = lock(&self.0.state);
        while !state.over {
            state = self.0.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.value.take()
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.0.state);
        if state.over {
            return Poll::Ready(state.value.take());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The thread behind an initiator.
struct Server {
    queue: Queue,
    mail: Arc<Mailbox>,
    opening: HashMap<SessionId, Opening>,
    commands: HashMap<u64, CommandReply>,
    closing: HashMap<SessionId, Vec<Reply<()>>>,
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
    fn new(queue: Queue, mail: Arc<Mailbox>) -> Self {
        Self {
            queue,
            mail,
            opening: HashMap::new(),
            commands: HashMap::new(),
            closing: HashMap::new(),
            open: Vec::new(),
            backlog: VecDeque::new(),
            next_tag: 0,
            stop_by: None,
        }
    }

    fn serve(mut self) {
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
            Event::Ended { session, error } => {
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
            Event::Down { .. } | Event::Asynchronous { .. } => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
