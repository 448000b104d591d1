// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions for any thread: one thread of ours runs a queue, calls wait or give futures.

pub(crate) mod mail;
mod running;
mod server;
mod slot;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::task::Context;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use buf::Pool;
use iscsi::initiator::discovery::Discovered;
use wire::iscsi::Cdb;

use self::mail::Ended;
use self::mail::Letter;
use self::mail::Mailbox;
use self::mail::Ticket;
use self::server::Server;
use self::slot::Slotted;
use self::slot::slot;
use crate::Config;
use crate::Data;
use crate::Done;
use crate::Error;
use crate::Kind;
use crate::Management;
use crate::Options;
use crate::PathChange;
use crate::Paths;
use crate::Queue;
use crate::Request;
use crate::Retry;
use crate::SessionId;
use crate::Stripe;
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
            let mail = Arc::new(Mailbox::new(queue.waker()));
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

    /// Logs in over several paths to one disk ([`Queue::open_paths`]).
    ///
    /// # Errors
    /// As for `open_paths`; whatever ends all logins.
    pub fn connect_paths(&self, paths: Paths) -> Result<Session, Error> {
        self.begin_paths(paths).wait()
    }

    /// As `connect_paths`; waits for nothing.
    #[must_use]
    pub fn begin_paths(&self, paths: Paths) -> Login {
        let (reply, pending) = slot();
        self.0.mail.send(Letter::OpenPaths(Box::new(paths), reply));
        Login { initiator: self.clone(), pending }
    }

    /// Logs in to several disks that are used as one ([`Queue::open_stripe`]).
    ///
    /// # Errors
    /// As for `open_stripe`; whatever ends one of the logins.
    pub fn connect_stripe(&self, stripe: Stripe) -> Result<Session, Error> {
        self.begin_stripe(stripe).wait()
    }

    /// As `connect_stripe`; waits for nothing.
    #[must_use]
    pub fn begin_stripe(&self, stripe: Stripe) -> Login {
        let (reply, pending) = slot();
        self.0.mail.send(Letter::OpenStripe(Box::new(stripe), reply));
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
        Pending(self.mail().ask(|owner| Letter::Command(self.0.id, request, owner)))
    }

    /// Sends a command and waits for its end.
    ///
    /// # Errors
    /// However it fails.
    pub fn execute(&self, request: Request) -> Result<Done, Error> {
        self.post(request).wait()
    }

    /// Declares the longest data segment that this side takes, bytes, anew, and waits for the
    /// answer; commands that are under way go on ([`Queue::declare_segment`]).
    ///
    /// # Errors
    /// However it fails; what held before holds on.
    pub fn resize_segments(&self, length: u32) -> Result<(), Error> {
        let (reply, pending) = slot();
        self.0.initiator.0.mail.send(Letter::Declare(self.0.id, length, reply));
        pending.wait().unwrap_or_else(|| Err(Error::new(Kind::Closed)))
    }

    /// Has the target carry out a task management function and waits for its end.
    ///
    /// # Errors
    /// [`Kind::Management`] if the target does not carry it out; whatever ends the session.
    pub fn manage(&self, management: Management) -> Result<(), Error> {
        let (reply, pending) = slot();
        self.0.initiator.0.mail.send(Letter::Manage(self.0.id, management, reply));
        pending.wait().unwrap_or_else(|| Err(Error::new(Kind::Closed)))
    }

    /// What was told last of each path that is not used as it should be: of a session over one path
    /// nothing.
    #[must_use]
    pub fn troubled_paths(&self) -> Vec<(usize, PathChange)> {
        let (reply, pending) = slot();
        self.0.initiator.0.mail.send(Letter::Troubles(self.0.id, reply));
        pending.wait().unwrap_or_default()
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

    pub(crate) fn mail(&self) -> &Arc<Mailbox> {
        &self.0.initiator.0.mail
    }

    pub(crate) fn id(&self) -> SessionId {
        self.0.id
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
pub struct Pending(Ticket);

impl Pending {
    /// Waits for its end.
    ///
    /// # Errors
    /// However it fails.
    pub fn wait(self) -> Result<Done, Error> {
        self.0.wait().map(done)
    }
}

impl Future for Pending {
    type Output = Result<Done, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context).map_ok(done)
    }
}

/// What one command brought.
fn done(ended: Ended) -> Done {
    Done { data: ended.data.first, generation: ended.generation }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
