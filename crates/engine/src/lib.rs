// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs work on the kernel and waits for it; the pumps call it.
//!
//! Border 3: a [`Port`] is the work queue and the event queue of one thread. [`uring::Uring`]
//! and [`epoll::Epoll`] serve it; [`choose`] says which of them this machine allows.
//!
//! Every [`Work`] has exactly one last [`Event`]; `Accept` and `Receive` have others before it.
//! A buffer belongs to the port from `submit` to that event, also when the socket is closed
//! meanwhile: the kernel may be writing to it.

pub mod affinity;
mod apart;
pub mod children;
pub mod counters;
pub mod cycles;
pub mod duplex;
pub mod epoll;
pub mod files;
mod filework;
mod gather;
pub mod laps;
mod left_open;
pub mod limits;
pub mod links;
pub mod loops;
mod memory;
mod netdevice;
pub mod network;
pub mod packet;
mod pool;
pub mod ppe;
mod probe;
mod receive;
mod ring;
#[cfg(test)]
#[path = "ring/tests.rs"]
mod ring_tests; // not in `ring`, which the model test takes whole
pub mod sg;
mod signal;
mod sockets;
mod spin;
pub mod standard;
mod sync;
pub mod ublk;
pub mod uring;
mod waker;
pub mod wheel;
pub mod xdp;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use buf::Buf;
use buf::SgList;
use buf::Slice;
use clock::Instant;

pub use left_open::left_open;
pub use medium::Space;
pub use probe::Choice;
pub use probe::Refusal;
pub use probe::Report;
pub use probe::choose;
pub use probe::probe;
pub use receive::Chunk;
pub use signal::Signal;
pub use sockets::examine_address;
pub use sockets::forget_unsent_at_close;
pub use sockets::listen;
pub use waker::Waker;

/// Chosen by the caller, given back with every event of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// A socket that belongs to a port. The number is used again after the last event of a closed
/// socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Socket(pub u32);

/// Work to be done. Owns its buffers until its event gives them back.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // every port must do every work
pub enum Work {
    /// Until the port is told `close`: an `Accepted` for each connection.
    Accept {
        /// A listening socket.
        socket: Socket,
    },
    /// Until end of stream, error or `close`: a `Received` for each piece that arrives, then
    /// `ReceiveEnded`.
    Receive {
        /// A connected socket.
        socket: Socket,
    },
    /// Until error or `close`: a `Ready` when there is something to be read, and again when there
    /// is more; then `ReceiveEnded`. Whoever is told reads until nothing is left. For descriptors
    /// that are no connections, and have no other work: one end of a device's queue.
    Watch {
        /// The descriptor, by `add_socket`.
        socket: Socket,
    },
    /// Sends all of `list`; one per socket at a time. Partial sends are continued by the port.
    Send {
        /// A connected socket.
        socket: Socket,
        /// What to send; comes back with `Sent`.
        list: SgList,
    },
    /// Gives the connection back without touching it: receiving ends, a send under way is finished,
    /// then `Detached` comes, after the `Received` of all that was taken from the stream.
    Detach {
        /// A connected socket; its number is used again after the event.
        socket: Socket,
    },
    /// Fills `buf` from `offset` on, or up to the end of the file.
    Read {
        /// Id of `add_file`.
        file: u32,
        /// Bytes from the start; for a direct file a multiple of 512, as is the length of `buf`.
        offset: u64,
        /// Where to; comes back with `Read`.
        buf: Buf,
    },
    /// Writes all of `data`.
    Write {
        /// Id of `add_file`.
        file: u32,
        /// Bytes from the start; for a direct file a multiple of 512, as is the length of `data`.
        offset: u64,
        /// What to write.
        data: Slice,
        /// On stable storage before the event.
        durable: bool,
    },
    /// Brings what was written (before this was submitted) to stable storage.
    Sync {
        /// Id of `add_file`.
        file: u32,
    },
    /// Reads as zero afterwards; the size of the file stays.
    Clear {
        /// Id of `add_file`.
        file: u32,
        /// Bytes from the start.
        offset: u64,
        /// Bytes.
        length: u64,
        /// What is to stand behind the bytes: space that is taken already, where the file system
        /// can do that; space that is set aside, so that a later write does not lack it; or none.
        leave: Space,
    },
    /// Asks what the file has at `offset`, and where that ends: on another thread, for the answer
    /// may need the disk.
    Allocation {
        /// Id of `add_file`.
        file: u32,
        /// Bytes from the start.
        offset: u64,
    },
    /// Does what the port knows nothing of, on another thread. Chores of one port may overtake each
    /// other.
    Chore {
        /// What to do.
        chore: Box<dyn Chore>,
    },
}

/// Rare work that may wait for the system as long as it likes.
pub trait Chore: Send + fmt::Debug {
    /// Does it, once.
    ///
    /// # Errors
    /// Errno.
    fn run(&mut self) -> Result<(), i32>;
}

/// Why a port does not take a file: work for one file must not meet another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileRefused {
    /// Another file has the id.
    #[error("another file has the number {0}")]
    Taken(u32),
    /// More files than [`limits::FILES_MAX`].
    #[error("{0} is no number for a file: {max} files can be served", max = limits::FILES_MAX)]
    TooMany(u32),
}

/// A place for bytes that will arrive.
#[derive(Debug)]
pub struct Landing {
    /// Belongs to the port until it comes back.
    pub buf: Buf,
    /// Where in `buf` the next byte goes.
    pub at: usize,
    /// How far it may be filled.
    pub end: usize,
}

/// What became of work. Errors are errno values of the kernel. `B` are received bytes.
///
/// Work of a closed socket ends with `ECANCELED` unless it was faster.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // a pump must treat every event
pub enum Event<B = Chunk> {
    /// A connection has come; it is not yet a socket of this port.
    Accepted {
        /// The connection.
        connection: OwnedFd,
        /// Who it comes from.
        peer: SocketAddr,
        /// Where it arrived: one of the addresses of this machine.
        local: SocketAddr,
    },
    /// A connection could not be accepted (no descriptors, no memory). The port tries again after
    /// a pause, unless the errno is `ECANCELED` (the socket was closed), or `EBADF`, `EINVAL`,
    /// `EOPNOTSUPP`, `ENOTSOCK` (it does not listen).
    AcceptFailed {
        /// Why.
        errno: i32,
    },
    /// Bytes have arrived.
    Received {
        /// They, until the chunk is dropped.
        bytes: B,
    },
    /// Bytes have arrived where [`Port::land`] said, under the token of the socket's Receive.
    Landed {
        /// The buffer.
        buf: Buf,
        /// How many; fewer than there was room for, or none, if something else came between.
        bytes: usize,
    },
    /// A watched descriptor has something to be read.
    Ready,
    /// End of stream (None) or error (errno): nothing more will be received.
    ReceiveEnded {
        /// Errno; None: the peer sends no more.
        error: Option<i32>,
    },
    /// All was handed to the kernel, or an error stopped it.
    Sent {
        /// The list of the work, unchanged.
        list: SgList,
        /// Errno.
        result: Result<(), i32>,
    },
    /// The connection is no longer a socket of this port. None if it was closed meanwhile.
    Detached {
        /// The connection.
        connection: Option<OwnedFd>,
    },
    /// `buf` is truncated to what was read.
    Read {
        /// The buffer of the work.
        buf: Buf,
        /// Bytes read: fewer than asked only at the end of the file.
        result: Result<usize, i32>,
    },
    /// All was written, or nothing can be said of what is there.
    Wrote {
        /// Errno.
        result: Result<(), i32>,
    },
    /// What had been written is on stable storage.
    Synced {
        /// Errno.
        result: Result<(), i32>,
    },
    /// The range reads as zero.
    Cleared {
        /// Errno; `EOPNOTSUPP`: the file cannot do it and is unchanged, or reads as zero.
        result: Result<(), i32>,
    },
    /// What the file has, and the byte where that ends; what follows may be the same.
    Allocation {
        /// Errno.
        result: Result<(Space, u64), i32>,
    },
    /// A chore is done.
    Ran {
        /// What it said; or why it was not begun.
        result: Result<(), i32>,
    },
    /// Somebody called `Waker::wake`. The token is zero.
    Woken,
}

impl<B> Event<B> {
    /// The same event with received bytes of another kind.
    fn map<C>(self, bytes_of: impl FnOnce(B) -> C) -> Event<C> {
        match self {
            Self::Received { bytes } => Event::Received { bytes: bytes_of(bytes) },
            Self::Landed { buf, bytes } => Event::Landed { buf, bytes },
            Self::Sent { list, result } => Event::Sent { list, result },
            Self::Read { buf, result } => Event::Read { buf, result },
            Self::Wrote { result } => Event::Wrote { result },
            Self::Synced { result } => Event::Synced { result },
            Self::Cleared { result } => Event::Cleared { result },
            Self::Accepted { connection, peer, local } => {
                Event::Accepted { connection, peer, local }
            }
            Self::AcceptFailed { errno } => Event::AcceptFailed { errno },
            Self::Ready => Event::Ready,
            Self::ReceiveEnded { error } => Event::ReceiveEnded { error },
            Self::Detached { connection } => Event::Detached { connection },
            Self::Allocation { result } => Event::Allocation { result },
            Self::Ran { result } => Event::Ran { result },
            Self::Woken => Event::Woken,
        }
    }
}

/// How a port is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Longest time to spin before sleeping; zero: never spin.
    pub spin_max: Duration,
    /// Number of receive buffers; a power of two, at most 32,768.
    pub receive_buffers: u16,
    /// Size of each receive buffer, bytes.
    pub receive_buffer_bytes: usize,
    /// Names the threads that the port starts.
    pub name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            spin_max: limits::SPIN_MAX,
            receive_buffers: limits::RECEIVE_BUFFERS,
            receive_buffer_bytes: limits::RECEIVE_BUFFER_BYTES,
            name: String::from("port"),
        }
    }
}

/// The work and event queue of one thread, which made it and alone uses it.
///
/// Order of calls: `next_event` until it gives None, `submit` what follows, then `wait`.
pub trait Port {
    /// Makes a socket (listening or connected) the port's own; whether it blocks is the port's
    /// business, streams get TCP_NODELAY.
    fn add_socket(&mut self, fd: OwnedFd) -> Socket;

    /// Makes `file` known under `id` (same id on every port; below [`limits::FILES_MAX`]).
    /// `direct` says that it was opened with `O_DIRECT`.
    ///
    /// # Errors
    /// If the id is taken, or too large; the file that has it keeps it.
    fn add_file(&mut self, id: u32, file: Arc<OwnedFd>, direct: bool) -> Result<(), FileRefused>;

    /// Forgets a file; work under way on it goes on.
    fn remove_file(&mut self, id: u32);

    /// Queues; may start the work at once. Never fails: an error is an event.
    fn submit(&mut self, token: Token, work: Work);

    /// Stops receiving until `resume`: back-pressure. What has arrived may still be given.
    fn pause(&mut self, socket: Socket);

    /// Receives again.
    fn resume(&mut self, socket: Socket);

    /// Says where the next bytes of a socket go, when all that it has received is taken: straight
    /// from the kernel, which saves a copy. Comes back where the port cannot do that, or not just
    /// now; else a `Landed` follows before anything else that arrives, unless the socket is closed.
    fn land(&mut self, socket: Socket, landing: Landing) -> Option<Landing> {
        let _ = socket;
        Some(landing)
    }

    /// Bytes of a connection that the peer's system has acknowledged since it was made; None from a
    /// port that does not know. A system call: for what is rare.
    fn acknowledged(&self, socket: Socket) -> Option<u64> {
        let _ = socket;
        None
    }

    /// Bytes that have come on a connection since it was made, those of a landing under way
    /// included; None from a port that does not know. A system call: for what is rare.
    fn arrived(&self, socket: Socket) -> Option<u64> {
        let _ = socket;
        None
    }

    /// Longest segment of TCP that is sent on a connection now, in bytes without headers; None from
    /// a port that does not know. A system call: for what is rare.
    fn segment_len(&self, socket: Socket) -> Option<usize> {
        let _ = socket;
        None
    }

    /// Half-close: no more sends; the peer sees end of stream after a send under way.
    fn shutdown(&mut self, socket: Socket);

    /// Cancels the socket's work and gives the socket up; the last events of its work still come,
    /// and with them the buffers, then never again. Nothing is received any more. Takes effect
    /// with the next `wait`, at the latest.
    fn close(&mut self, socket: Socket);

    /// The next event, without waiting and without a system call when the queue holds one.
    fn next_event(&mut self) -> Option<(Token, Event)>;

    /// Hands queued work to the kernel and gathers events; waits until there is one or `deadline`
    /// (None: for ever); a deadline in the past polls. Spins first, adaptively, up to the
    /// configured time.
    fn wait(&mut self, deadline: Option<Instant>);
    /// As `wait`, but asleep until there are `count` events (AMP study: wait_N) or until
    /// `deadline`: for a caller that has more to gain from many events at once, or from a processor
    /// for others, than from the first one soon. A port that cannot count wakes for the first.
    fn wait_n(&mut self, count: usize, deadline: Instant);

    /// The time of `CLOCK_MONOTONIC`, the same on every port.
    fn now(&self) -> Instant;

    /// Time since 1970, UTC; it may jump.
    fn wall_clock(&self) -> Duration {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.unwrap_or_default()
    }

    /// Fills `bytes` from the system's generator of random numbers, fit for secrets.
    ///
    /// # Errors
    /// If the system has no randomness for us.
    fn random(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Counts of [`cycles::glance`] that `wait` has spent in system calls other than to sleep:
    /// there the kernel sends and receives. Zero from a port that does not know.
    fn kernel_cycles(&self) -> u64 {
        0
    }

    /// Wakes this port from other threads.
    fn waker(&self) -> Waker;

    /// `uring` or `epoll`, or what serves it over which of them.
    fn name(&self) -> &'static str;
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
fn monotonic() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant(seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds))
}
