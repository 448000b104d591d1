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

use crate::api::Desk;
use crate::connections;
use crate::connections::Limits;
use crate::limits::BLOCKING_MAX;
use crate::limits::END_WAIT;
use crate::limits::NICE;
use crate::looks::Looks;
use crate::streams;
use crate::tokens::Tokens;

/// Why there is no port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// Others would reach it.
    #[error(
        "{0} can be reached from other machines, and there is no TLS yet that would keep them out; \
         an address of this machine alone is right, as 127.0.0.1:{port} or \
         [::1]:{port}", port = .0.port()
    )]
    Public(SocketAddr),
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
    /// Whether `address` is one that may be listened on.
    ///
    /// # Errors
    /// [`HttpError::Public`]: it is no loopback address.
    pub const fn check(address: SocketAddr) -> Result<SocketAddr, HttpError> {
        match address.ip().is_loopback() {
            true => Ok(address),
            false => Err(HttpError::Public(address)),
        }
    }

    /// Listens; port 0 is a free one.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn bind(address: SocketAddr) -> Result<Self, HttpError> {
        let address = Self::check(address)?;
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
    /// Answers who connects. `version`: of the program; `tokens`: of those who may change what is
    /// served, which nobody may without. Until [`Http::serves`] disks are being opened.
    ///
    /// # Errors
    /// There is no thread, or no epoll instance.
    pub fn start(
        listener: Listener,
        version: &'static str,
        tokens: Option<Tokens>,
    ) -> io::Result<Self> {
        Self::within(Limits::default(), listener, Looks::new(version, tokens))
    }

    pub(crate) fn within(limits: Limits, listener: Listener, looks: Looks) -> io::Result<Self> {
        let looks = Arc::new(looks);
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(BLOCKING_MAX)
            .thread_name("http-looks")
            .build()?;
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
            // Who waits for a reactor is not waited for.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("http".into()).spawn(serve)?;
        Ok(Self { address: listener.address, looks, thread: Some((stop, thread)) })
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

    #[test]
    fn only_this_machine_reaches_it() {
        for public in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9260"] {
            let error = Listener::bind(public.parse().unwrap()).unwrap_err();
            assert!(matches!(error, HttpError::Public(_)), "{public}: {error}");
            assert!(error.to_string().contains("127.0.0.1:"), "{error}");
        }
        let one = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_ne!(one.address.port(), 0, "a free one was picked");
        let taken = Listener::bind(one.address).unwrap_err().to_string();
        assert!(taken.contains(&format!("cannot listen on {}", one.address)), "{taken}");
        assert!(taken.contains("try: another port"), "{taken}");
    }
}
