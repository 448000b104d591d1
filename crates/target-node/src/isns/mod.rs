// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client of a name server (iSNS, RFC 4171): a thread of its own, so that no command ever waits
//! for it.
//!
//! All targets are registered with all portals; who may see which of them is decided by the
//! server's discovery domains. Each exchange has a connection of its own.

mod inquiry;
mod machine;
mod registration;

use std::io;
use std::io::Read;
use std::io::Write;
use std::net::IpAddr;
use std::net::TcpStream;
use std::net::ToSocketAddrs;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use clock::Instant;

pub(crate) use registration::Registration;

use inquiry::Posts;
use machine::Entity;
use machine::News;
use machine::Next;
use machine::Registrar;

/// The name server of a daemon, and what it is told, which may become something else.
#[derive(Debug)]
pub(crate) struct NameService {
    /// `HOST:PORT`; None: there is none.
    server: Option<String>,
    /// None: there is nothing to register, or no more.
    client: Mutex<Option<Client>>,
}

impl NameService {
    pub(crate) const fn new(server: Option<String>) -> Self {
        Self { server, client: Mutex::new(None) }
    }

    /// What is registered from now on.
    ///
    /// # Errors
    /// If no thread can be had.
    pub(crate) fn tell(&self, registration: Option<Registration>) -> io::Result<()> {
        let Some(server) = &self.server else { return Ok(()) };
        let mut client = self.client();
        match (registration, &*client) {
            (Some(registration), Some(client)) => client.update(registration),
            (Some(registration), None) => {
                *client = Some(Client::start(server.clone(), registration)?);
            }
            (None, _) => {
                // The next registration must not meet the end of this one.
                if let Some(client) = client.take() {
                    client.leave().wait();
                }
            }
        }
        Ok(())
    }

    /// Begins to deregister, if there is something registered.
    pub(crate) fn leave(&self) -> Option<Leaving> {
        self.client().take().map(Client::leave)
    }

    fn client(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running client. Dropping it deregisters, without waiting for that.
#[derive(Debug)]
struct Client {
    /// What is to be registered instead; its end is that of the client.
    updates: mpsc::Sender<Registration>,
    done: mpsc::Receiver<()>,
}

impl Client {
    /// Starts the client of `server`, `HOST:PORT`. A server that cannot be reached is tried again
    /// for ever.
    ///
    /// # Errors
    /// If no thread can be had.
    fn start(server: String, registration: Registration) -> io::Result<Self> {
        let (updates, updated) = mpsc::channel();
        let (finish, done) = mpsc::channel();
        let builder = std::thread::Builder::new().name("isns".into());
        builder.spawn(move || {
            let thread = Thread { server, begun: std::time::Instant::now(), updated };
            thread.run(registration);
            // Whoever waited may have gone.
            let _ = finish.send(());
        })?;
        Ok(Self { updates, done })
    }

    fn update(&self, registration: Registration) {
        // A thread that has ended has panicked, and the daemon with it.
        let _ = self.updates.send(registration);
    }

    /// Begins to deregister.
    fn leave(self) -> Leaving {
        let Self { updates, done } = self;
        drop(updates);
        Leaving(done)
    }
}

/// A client that deregisters.
#[derive(Debug)]
pub(crate) struct Leaving(mpsc::Receiver<()>);

impl Leaving {
    /// Waits for the end, but not for long: a server that has vanished must not hold up the end of
    /// the daemon.
    pub(crate) fn wait(self) {
        if self.0.recv_timeout(STOP_WAIT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the name server does not answer; it will forget us by itself");
        }
    }
}

struct Thread {
    server: String,
    begun: std::time::Instant,
    updated: mpsc::Receiver<Registration>,
}

impl Thread {
    fn run(&self, registration: Registration) {
        let mut posts = Posts::new(registration.entity.clone(), self.begun);
        let mut registrar = Registrar::new(registration, self.now());
        // What came while the server was talked to.
        let mut next = None;
        loop {
            if let Some(registration) = next.take() {
                posts = self.replace(&mut registrar, registration, posts);
            }
            self.tell(&mut registrar);
            if let Some(at) = posts.asked() {
                registrar.inquired(at);
            }
            match registrar.next(self.now()) {
                Next::Over => return,
                Next::Connect => next = self.talk(&mut registrar, &mut posts),
                Next::Rest(pause) => match self.updated.recv_timeout(pause) {
                    Ok(registration) => next = Some(registration),
                    Err(RecvTimeoutError::Disconnected) => registrar.leave(self.now()),
                    Err(RecvTimeoutError::Timeout) => {}
                },
            }
        }
    }

    /// Registers something else. Inquiries are answered in the name of one entity.
    fn replace(&self, registrar: &mut Registrar, next: Registration, posts: Posts) -> Posts {
        let entity = next.entity.clone();
        match registrar.replace(next, self.now()) {
            Entity::Same => posts,
            Entity::Another => Posts::new(entity, self.begun),
        }
    }

    /// One connection, from its beginning to its end. Gives what is to be registered next.
    fn talk(&self, registrar: &mut Registrar, posts: &mut Posts) -> Option<Registration> {
        let mut next = None;
        if let Err(error) = self.try_talk(registrar, posts, &mut next) {
            registrar.failed(error.to_string(), self.now());
        }
        next
    }

    fn try_talk(
        &self,
        registrar: &mut Registrar,
        posts: &mut Posts,
        next: &mut Option<Registration>,
    ) -> io::Result<()> {
        let (mut stream, local) = self.connect()?;
        let server = stream.peer_addr()?.ip();
        registrar.listens(posts.open(&registrar.addresses(local), server));
        stream.set_read_timeout(Some(POLL))?;
        stream.set_write_timeout(Some(WRITE_WAIT))?;
        registrar.connected(local, self.now());
        let mut bytes = vec![0; READ_LEN];
        while registrar.is_talking() {
            if let Some(request) = registrar.transmit(self.now()) {
                stream.write_all(&request)?;
            }
            match stream.read(&mut bytes) {
                Ok(0) => return Err(io::Error::other("it closed the connection")),
                Ok(count) => registrar.received(&bytes[..count], self.now()),
                Err(error) if is_silence(&error) => {}
                Err(error) => return Err(error),
            }
            registrar.handle_timeout(self.now());
            match self.updated.try_recv() {
                Ok(registration) => *next = Some(registration),
                Err(mpsc::TryRecvError::Disconnected) => registrar.leave(self.now()),
                Err(mpsc::TryRecvError::Empty) => {}
            }
        }
        Ok(())
    }

    /// Tries the addresses of the server in turn; gives our own address too.
    fn connect(&self) -> io::Result<(TcpStream, IpAddr)> {
        let mut last = io::Error::other("it has no address");
        for address in self.server.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_WAIT) {
                Ok(stream) => {
                    let local = stream.local_addr()?.ip();
                    return Ok((stream, local));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn tell(&self, registrar: &mut Registrar) {
        let server = &self.server;
        while let Some(news) = registrar.poll_news() {
            match news {
                News::Registered => tracing::info!(server, "registered with the name server"),
                News::Silent => {
                    tracing::warn!(server, "no inquiries of the name server arrive; we ask it");
                }
                News::Forgotten => tracing::warn!(server, "the name server had forgotten us"),
                News::Deregistered => tracing::info!(server, "left the name server"),
                News::Failed { reason, retry } => {
                    let seconds = retry.map(|retry| retry.as_secs());
                    tracing::warn!(server, reason, seconds, "no help from the name server");
                }
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::default() + self.begun.elapsed()
    }
}

fn is_silence(error: &io::Error) -> bool {
    use io::ErrorKind::Interrupted;
    use io::ErrorKind::TimedOut;
    use io::ErrorKind::WouldBlock;
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// A server that cannot be reached in this time counts as down.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// A server that does not take a request in this time counts as down.
const WRITE_WAIT: Duration = Duration::from_secs(2);

/// How often a silent server is looked away from, to see whether the daemon stops.
const POLL: Duration = Duration::from_millis(100);

/// How long the end of the daemon waits: for an answer that is open, and one exchange more.
const STOP_WAIT: Duration = Duration::from_secs(4);

/// Bytes that are read at once.
const READ_LEN: usize = 16 << 10;

#[cfg(test)]
mod tests;
