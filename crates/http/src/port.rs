// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The port: where it listens, and the thread behind it.

use std::io;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::thread::JoinHandle;

use target::Target;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time;

use crate::access::Access;
use crate::access::Gate;
use crate::api::Desk;
use crate::connections;
use crate::connections::Limits;
use crate::limits::END_WAIT;
use crate::limits::NICE;
use crate::looks::Looks;
use crate::streams;

/// Why there is no port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// Others would reach it, and hear what is told.
    #[error(
        "other machines can reach it, and so it takes TLS: http-certificate and http-key \
         (--http-certificate, --http-key) beside it, or an address of this machine alone, as \
         127.0.0.1:{port} or [::1]:{port}", port = .0.port()
    )]
    Public(SocketAddr),
    /// Others would reach it, and none of them could show that he may.
    #[error(
        "other machines can reach it, whose people need a token to read: http-token-file \
         (--http-token-file) with a line `read TOKEN` is right beside it"
    )]
    Tokenless(SocketAddr),
    /// There is no thread for it.
    #[error("cannot start the thread for HTTP: {0}")]
    Start(io::Error),
    /// It cannot be listened on.
    #[error(transparent)]
    Listen(target::Error),
}

/// A socket that listens, before anybody is answered.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens; port 0 is a free one.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn bind(address: SocketAddr) -> Result<Self, HttpError> {
        let bound = || {
            let socket = TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            Ok(Self { socket, address })
        };
        bound().map_err(|source| HttpError::Listen(target::Error::Listen { address, source }))
    }

    /// One that somebody has bound.
    ///
    /// # Errors
    /// It is no socket that listens over TCP.
    pub fn at(socket: OwnedFd) -> io::Result<Self> {
        let socket = TcpListener::from(socket);
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Another descriptor of the same socket.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.try_clone()?.into())
    }
}

/// Answers until it is dropped.
#[derive(Debug)]
pub struct Http {
    address: SocketAddr,
    looks: Arc<Looks>,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Http {
    /// Answers who connects. `version`: of the program; `access`: of those who may. Until
    /// [`Http::serves`] disks are being opened.
    ///
    /// # Errors
    /// There is no thread, or no epoll instance; `access` is not enough for where it listens.
    pub fn start(
        listener: Listener,
        version: &'static str,
        access: Access,
    ) -> Result<Self, HttpError> {
        let gate = Gate::of(access, listener.address)?;
        let started = Self::within(Limits::default(), listener, Looks::new(version, gate));
        started.map_err(HttpError::Start)
    }

    pub(crate) fn within(limits: Limits, listener: Listener, looks: Looks) -> io::Result<Self> {
        let looks = Arc::new(looks);
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let socket = {
            let _of_it = runtime.enter();
            tokio::net::TcpListener::from_std(listener.socket)?
        };
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&looks);
        let serve = move || {
            // Linux has it for each thread. Who may not be nice serves all the same.
            let _ = rustix::process::setpriority_process(None, NICE);
            let tasks = LocalSet::new();
            tasks.spawn_local(streams::tell(Arc::clone(&shared)));
            let accepting = connections::accept(socket, Arc::clone(&shared), limits);
            let accepting = tasks.spawn_local(accepting);
            tasks.block_on(&runtime, async {
                let _ = stopped.await;
                // Who comes now comes to the process that listens there next.
                accepting.abort();
                let _ = time::timeout(END_WAIT, shared.streams().ended()).await;
            });
            drop(tasks);
        };
        let thread = thread::Builder::new().name("http".into()).spawn(serve)?;
        Ok(Self { address: listener.address, looks, thread: Some((stop, thread)) })
    }

    /// How a browser gets there: `http`, or `https`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.looks.gate().tls().is_some() { "https" } else { "http" }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// All disks are open, `target` serves them, and `desk` answers what is asked of it.
    pub fn serves(&self, target: Arc<Target>, desk: Arc<dyn Desk>) {
        self.looks.serves(target, desk);
    }

    /// Initiators are asked to log out.
    pub fn stops(&self) {
        self.looks.stops();
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.looks.stops();
        if let Some((stop, thread)) = self.thread.take() {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::tests::CHANGE;

    #[test]
    fn only_this_machine_reaches_it_without_tls_and_tokens() {
        let tls = Some(crate::tests::tls::shown());
        let file = crate::tokens::tests::file(&format!("read {CHANGE}"), 0o600);
        let tokens = Some(crate::Tokens::of(file.path()).unwrap());
        for public in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9260"] {
            let address = public.parse().unwrap();
            let check = |tls: &Option<crate::Tls>, tokens: &Option<crate::Tokens>| {
                Access { tokens: tokens.clone(), tls: tls.clone() }.check(address)
            };
            let error = check(&None, &tokens).unwrap_err();
            assert!(matches!(error, HttpError::Public(_)), "{public}: {error}");
            for word in ["127.0.0.1:", "--http-certificate", "--http-key"] {
                assert!(error.to_string().contains(word), "{error}");
            }
            let error = check(&tls, &None).unwrap_err();
            assert!(matches!(error, HttpError::Tokenless(_)), "{public}: {error}");
            assert!(error.to_string().contains("--http-token-file"), "{error}");
            check(&tls, &tokens).unwrap();
        }
        for local in ["127.0.0.1:1", "[::1]:0", "127.9.9.9:9260"] {
            Access::default().check(local.parse().unwrap()).unwrap();
        }
        let all = Listener::bind("0.0.0.0:0".parse().unwrap()).unwrap();
        let error = Http::start(all, "1", Access::default()).unwrap_err();
        assert!(matches!(error, HttpError::Public(_)), "{error}");
        let one = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_ne!(one.address.port(), 0, "a free one was picked");
        let taken = Listener::bind(one.address).unwrap_err().to_string();
        assert!(taken.contains(&format!("cannot listen on {}", one.address)), "{taken}");
        assert!(taken.contains("try: another port"), "{taken}");
    }
}
