// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who comes while nobody serves, since another process takes long to take over, hears so at once.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use control::admin::Reply;
use control::admin::Request;
use http::Access;
use http::Http;
use http::Listener;

use super::sockets::Sockets;
use crate::daemon::clients::Clients;
use crate::daemon::clients::Questions;
use crate::daemon::clients::Stopper;
use crate::daemon::periodic::Periodic;

/// A take-over that goes well takes less: who comes meanwhile waits, and is served by the next
/// process.
const WAIT: Duration = Duration::from_secs(1);

/// Between two looks whether it has taken too long.
const LOOK: Duration = Duration::from_millis(100);

/// The doors of a daemon that serves nothing now, until it is dropped.
#[derive(Debug)]
pub(crate) struct Doors {
    /// Opens them in time, however long disks take to be closed or opened. Without a thread for
    /// that who comes waits.
    _opener: Option<Periodic>,
    _both: Arc<Mutex<Both>>,
}

#[derive(Debug)]
struct Both {
    begun: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    Closed { control: Option<OwnedFd>, http: Option<(OwnedFd, Access)>, why: String },
    Open { _control: Option<Keeper>, _http: Option<Http> },
}

/// Answers at the control socket.
#[derive(Debug)]
struct Keeper {
    stopper: Option<Stopper>,
    thread: Option<JoinHandle<()>>,
}

/// The same for all.
struct Nobody(String);

impl Questions for Nobody {
    fn answer(&self, _request: &Request) -> Option<Reply> {
        Some(Reply::Error { message: self.0.clone() })
    }
}

impl Doors {
    /// Those of `sockets`. `pid`: whom all wait for.
    pub(crate) fn of(sockets: &Sockets, access: &Access, pid: u32) -> Self {
        let both = Arc::new(Mutex::new(Both::of(sockets, access, pid)));
        let shared = Arc::clone(&both);
        let look = move || shared.lock().unwrap_or_else(PoisonError::into_inner).look();
        Self { _opener: Periodic::start("doors", LOOK, look).ok(), _both: both }
    }
}

impl Both {
    fn of(sockets: &Sockets, access: &Access, pid: u32) -> Self {
        // Without descriptors for it who comes waits, as before.
        let copy = |socket: &OwnedFd| socket.try_clone().ok();
        let control = sockets.control.as_ref().and_then(copy);
        let http = sockets.http.as_ref().and_then(|(_, socket)| copy(socket));
        let http = http.map(|socket| (socket, access.clone()));
        let why =
            format!("process {pid} takes over, and does not serve yet; try: again in a moment");
        Self { begun: Instant::now(), state: State::Closed { control, http, why } }
    }

    /// Opens them when it has taken too long.
    fn look(&mut self) {
        if self.begun.elapsed() < WAIT {
            return;
        }
        let State::Closed { control, http, why } = &mut self.state else { return };
        let control = control.take().map(|socket| Keeper::start(socket, std::mem::take(why)));
        let http = http.take().map(|(socket, access)| answering(socket, access));
        let told = |error: &anyhow::Error| tracing::warn!("nobody is told why he waits: {error:#}");
        let control = control.and_then(|control| control.inspect_err(told).ok());
        let http = http.and_then(|http| http.inspect_err(told).ok());
        self.state = State::Open { _control: control, _http: http };
    }
}

fn answering(socket: OwnedFd, access: Access) -> Result<Http> {
    let listener = Listener::at(socket).context("the socket for HTTP")?;
    Ok(Http::start(listener, env!("CARGO_PKG_VERSION"), access)?)
}

impl Keeper {
    fn start(socket: OwnedFd, why: String) -> Result<Self> {
        let what = "the control socket";
        let (mut clients, orders) =
            Clients::new(UnixListener::from(socket), Nobody(why)).context(what)?;
        let stopper = Some(clients.stopper(&orders).context(what)?);
        let thread = std::thread::Builder::new().name("door".into());
        // There are none, but who carries them out wakes the clients' thread.
        let serve = move || {
            let _orders = orders;
            while clients.turn() {}
        };
        let thread = Some(thread.spawn(serve).context(what)?);
        Ok(Self { stopper, thread })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(stopper) = self.stopper.take() {
            stopper.stop();
        }
        if let Some(thread) = self.thread.take() {
            // It has panicked at worst, and told so.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::io::BufReader;
    use std::io::Read;
    use std::io::Write;
    use std::net::SocketAddr;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn who_comes_is_told_why_he_is_not_served() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let control = UnixListener::bind(&path).expect("a socket");
        let http = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let address: SocketAddr = http.address();
        let http = Some((address, http.socket().expect("a socket")));
        let sockets = Sockets { portals: Vec::new(), http, control: Some(control.into()) };
        let mut both = Both::of(&sockets, &Access::default(), 77);
        both.look();
        assert!(matches!(both.state, State::Closed { .. }), "it may go well");
        drop(both);
        // Nobody looks but they themselves.
        let doors = Doors::of(&sockets, &Access::default(), 77);
        let mut asked = UnixStream::connect(&path).expect("somebody is there");
        asked.write_all(b"{\"request\":\"status\"}\n").expect("heard");
        let mut line = String::new();
        BufReader::new(asked).read_line(&mut line).expect("an answer");
        assert!(line.contains("process 77 takes over"), "{line}");
        let mut asked = TcpStream::connect(address).expect("somebody is there");
        asked.write_all(b"GET /readyz HTTP/1.1\r\nConnection: close\r\n\r\n").expect("heard");
        let mut answer = String::new();
        asked.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        drop(doors);
        let _waits = UnixStream::connect(&path).expect("it is listened at all the same");
    }
}
