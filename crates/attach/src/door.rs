// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where clients come in: a listening socket, and the thread that takes connections.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::net::ToSocketAddrs;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::AddressFamily;
use rustix::net::Shutdown;
use rustix::net::SocketAddrUnix;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use rustix::net::sockopt;

use crate::limits;

/// Connections that the system keeps for us.
const BACKLOG: i32 = 128;

/// Pause after a connection that could not be taken: descriptors come back.
const PAUSE: Duration = Duration::from_millis(100);

/// Where clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // NBD knows these two
pub enum Address {
    /// A socket in the file system, for the user alone.
    Path(PathBuf),
    /// `HOST:PORT`; anybody who can reach it may use the disk.
    Tcp(String),
}

impl Address {
    /// What holds a `/`, or no `:`, is a path; the rest is `HOST:PORT`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.rsplit_once(':') {
            Some((host, port)) if !text.contains('/') && !host.is_empty() => {
                match port.parse::<u16>() {
                    Ok(_) => Self::Tcp(text.to_owned()),
                    Err(_) => Self::Path(text.into()),
                }
            }
            _ => Self::Path(text.into()),
        }
    }
}

/// Why nobody can connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Something else has the name.
    #[error("{0} is there and is no socket; try: another name")]
    NoSocket(String),
    /// Another process listens.
    #[error("{0} is in use by another process; try: another one")]
    InUse(String),
    /// The system says no.
    #[error("cannot listen on {0}: {1}; try: {way}", way = way_around(.1))]
    System(String, io::Error),
}

fn way_around(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "a directory that is there, or a name that resolves",
        io::ErrorKind::PermissionDenied => "a directory of yours, or a port above 1023",
        io::ErrorKind::AddrNotAvailable => "an address of this machine",
        _ => "another one",
    }
}

/// A socket that listens. Its file goes with it.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    /// The file, and its number.
    file: Option<(PathBuf, u64)>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener, SocketAddr),
}

impl Listener {
    pub(crate) fn open(address: &Address) -> Result<Self, AddressError> {
        match address {
            Address::Path(path) => Self::at_path(path),
            Address::Tcp(text) => {
                let failed = |error: io::Error| match error.kind() {
                    io::ErrorKind::AddrInUse => AddressError::InUse(text.clone()),
                    _ => AddressError::System(text.clone(), error),
                };
                let addresses: Vec<SocketAddr> = text.to_socket_addrs().map_err(failed)?.collect();
                let listener = TcpListener::bind(&addresses[..]).map_err(failed)?;
                let local = listener.local_addr().map_err(failed)?;
                Ok(Self { socket: Socket::Tcp(listener, local), file: None })
            }
        }
    }

    fn at_path(path: &Path) -> Result<Self, AddressError> {
        let shown = path.display().to_string();
        let failed = |error: io::Error| AddressError::System(shown.clone(), error);
        if let Ok(there) = std::fs::symlink_metadata(path) {
            if !there.file_type().is_socket() {
                return Err(AddressError::NoSocket(shown));
            }
            if !forget_socket(path).map_err(failed)? {
                return Err(AddressError::InUse(shown));
            }
        }
        let listen = || -> io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC;
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
            // Nobody can connect before it listens.
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::chmod(path, mode)?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        let socket = listen().map_err(failed)?;
        let number = std::fs::symlink_metadata(path).map_err(failed)?.ino();
        let socket = Socket::Unix(UnixListener::from(socket));
        Ok(Self { socket, file: Some((path.to_owned(), number)) })
    }

    fn accept(&self) -> io::Result<OwnedFd> {
        match &self.socket {
            Socket::Unix(socket) => socket.accept().map(|(stream, _)| stream.into()),
            Socket::Tcp(socket, _) => socket.accept().map(|(stream, _)| {
                watch_peer(&stream);
                stream.into()
            }),
        }
    }

    /// From now on nobody can connect, and the thread that waits for connections ends.
    fn close(&self) {
        let socket = match &self.socket {
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Tcp(socket, _) => socket.as_fd(),
        };
        // It fails when that was done before.
        let _ = rustix::net::shutdown(socket, Shutdown::Both);
    }
}

/// A client whose machine has gone without a word keeps no place for ever.
fn watch_peer(stream: &TcpStream) {
    // Without that the connection is as good.
    let _ = sockopt::set_tcp_keepidle(stream, limits::PEER_SILENCE);
    let _ = sockopt::set_tcp_keepintvl(stream, limits::PEER_QUESTION);
    let _ = sockopt::set_tcp_keepcnt(stream, limits::PEER_QUESTIONS);
    let _ = sockopt::set_socket_keepalive(stream, true);
}

impl fmt::Display for Listener {
    /// As NBD clients write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.socket, &self.file) {
            (Socket::Tcp(_, local), _) => write!(f, "nbd://{local}"),
            (Socket::Unix(_), Some((path, _))) => {
                write!(f, "nbd+unix:///?socket={}", path.display())
            }
            (Socket::Unix(_), None) => f.write_str("nbd+unix:///"),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some((path, number)) = &self.file else { return };
        // Somebody else's by now is left alone.
        if std::fs::symlink_metadata(path).is_ok_and(|there| there.ino() == *number) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Takes a socket away that nobody listens on: a process that was killed has left it behind. False:
/// somebody does, or it is none.
///
/// # Errors
/// What the system says.
pub fn forget_socket(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => return Ok(false),
        Ok(_) if UnixStream::connect(path).is_ok() => return Ok(false),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(true),
    }
}

/// The thread that takes connections.
#[derive(Debug)]
pub(crate) struct Door {
    listener: std::sync::Arc<Listener>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Connections go to `to`; `told` is called behind each.
    pub(crate) fn open(
        listener: Listener,
        to: Sender<OwnedFd>,
        told: engine::Waker,
    ) -> io::Result<Self> {
        let listener = std::sync::Arc::new(listener);
        let taken = std::sync::Arc::clone(&listener);
        let thread = std::thread::Builder::new().name("nbd-door".into()).spawn(move || {
            loop {
                match taken.accept() {
                    Ok(connection) => {
                        if to.send(connection).is_err() {
                            return;
                        }
                        told.wake();
                    }
                    // It was closed.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                    Err(error) => {
                        tracing::warn!(%error, "cannot take a connection");
                        std::thread::sleep(PAUSE);
                    }
                }
            }
        })?;
        Ok(Self { listener, thread: Some(thread) })
    }

    /// Nobody comes in any more.
    pub(crate) fn close(&mut self) {
        self.listener.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc;

    #[test]
    fn a_path_is_told_from_a_port() {
        for (text, tcp) in [
            ("127.0.0.1:10809", true),
            ("[::1]:10809", true),
            ("host:1", true),
            ("/run/nbd:1", false),
            ("disk.sock", false),
            ("disk:sock", false),
            (":10809", false),
        ] {
            let tcp_address = matches!(Address::parse(text), Address::Tcp(_));
            assert_eq!(tcp_address, tcp, "{text}");
        }
    }

    #[test]
    fn a_socket_is_its_owners_and_goes_with_its_door() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = Address::Path(path.clone());
        let listener = Listener::open(&address).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(Listener::open(&address), Err(AddressError::InUse(_))));
        let (to, came) = mpsc::channel();
        let mut door = Door::open(listener, to, engine::Waker::new().unwrap()).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        came.recv_timeout(Duration::from_secs(5)).unwrap();
        door.close();
        drop(door);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_stays_and_what_was_left_behind_goes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, b"precious").unwrap();
        let refused = Listener::open(&Address::Path(file.clone()));
        assert!(matches!(refused, Err(AddressError::NoSocket(_))));
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
        let left = folder.path().join("left");
        drop(UnixListener::bind(&left).unwrap());
        assert!(left.exists());
        Listener::open(&Address::Path(left)).unwrap();
    }

    #[test]
    fn a_port_ends_its_door_too() {
        let listener = Listener::open(&Address::Tcp("127.0.0.1:0".into())).unwrap();
        let Socket::Tcp(_, local) = listener.socket else { panic!("{listener}") };
        assert_eq!(listener.to_string(), format!("nbd://{local}"));
        let (to, came) = mpsc::channel();
        let mut door = Door::open(listener, to, engine::Waker::new().unwrap()).unwrap();
        let _client = TcpStream::connect(local).unwrap();
        let taken = came.recv_timeout(Duration::from_secs(5)).unwrap();
        assert!(sockopt::socket_keepalive(&taken).unwrap(), "its machine may go without a word");
        assert_eq!(sockopt::tcp_keepidle(&taken).unwrap(), limits::PEER_SILENCE);
        door.close();
    }
}
