// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk that is served: what its owner has of it.

mod gossip;
mod thread;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;

use engine::Choice;
use engine::Waker;
use engine::ublk::UblkError;
use initiator::Disk;
use initiator::DiskEvent;
use initiator::Pool;
use nbd::BlockSizes;
use nbd::Export;

use self::thread::Parts;
use crate::door::Address;
use crate::door::AddressError;
use crate::door::Door;
use crate::door::Listener;
use crate::fuse::MountError;
use crate::limits;
use crate::settling::Settling;
use crate::tls::Tls;

/// Why a disk is not served, or was not to the end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody can connect.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The disk is no file.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The disk is no block device.
    #[error(transparent)]
    Ublk(#[from] UblkError),
    /// A thread, an engine or a descriptor cannot be had.
    #[error("cannot serve: {0}")]
    System(#[from] std::io::Error),
    /// The disk.
    #[error(transparent)]
    Disk(#[from] initiator::Error),
    /// What may have been lost could not be written again.
    #[error("what clients wrote and did not flush may be lost: {0}")]
    Broken(String),
    /// The last flush.
    #[error(
        "the disk did not answer the last flush in time: what clients wrote and did not flush may \
         be lost"
    )]
    Silent,
}

/// What happens meanwhile.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum News {
    /// To the disk.
    Disk(DiskEvent),
    /// With a client, in a sentence.
    Client(String),
    /// The target may have lost what it had acknowledged and nobody had flushed: so many bytes are
    /// written again, and meanwhile requests wait.
    WritesAgain {
        /// Bytes.
        bytes: u64,
    },
    /// They are, and flushed.
    WrittenAgain,
    /// Requests fail from now on: what the target may have lost cannot be written again, or there
    /// is another disk in its place.
    Broken {
        /// Why.
        cause: String,
        /// Whether what was not flushed may be lost.
        may_be_lost: bool,
    },
    /// Flushes fail from now on, for this reason: what was written and not flushed may be lost, and
    /// nothing of it is kept.
    FlushesFail(String),
    /// The disk has a volatile cache that cannot be flushed: nothing is kept.
    KeepsNothing,
    /// Somebody has unmounted it; or nobody serves it any more.
    Unmounted,
}

/// How a disk is served.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs)] // whoever serves chooses all of it, or the defaults
pub struct Settings {
    /// How the system is asked.
    pub engine: Choice,
    /// Most that is kept of what clients have written and nobody has flushed, bytes, so that it is
    /// written again when a target with a volatile cache has lost it. It comes out of the pool.
    /// Zero: nothing; flushes fail then when something may be lost. Nothing is kept of a disk
    /// that has no volatile cache either.
    pub keep_bytes: u64,
    /// A negotiation that takes longer is closed.
    pub handshake_timeout: Duration,
    /// A client that has not read its answers, or sent nothing more of a write, for so long gives
    /// way when others lack memory.
    pub slow_reader: Duration,
    /// Clients must speak TLS; None: they cannot.
    pub tls: Option<Tls>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            engine: Choice::Auto,
            keep_bytes: limits::KEEP_BYTES,
            handshake_timeout: limits::HANDSHAKE_TIMEOUT,
            slow_reader: limits::SLOW_READER,
            tls: None,
        }
    }
}

/// News that nobody has fetched; more are dropped.
const NEWS_MAX: usize = 64;

/// A disk that is served to NBD clients.
#[derive(Debug)]
pub struct NbdServer {
    address: String,
    door: Door,
    thread: Thread,
}

/// The thread, which ends with this.
#[derive(Debug)]
struct Thread {
    stop: Arc<Stop>,
    waker: Waker,
    /// None: it has ended.
    handle: Option<JoinHandle<Result<(), Error>>>,
}

#[derive(Debug)]
struct Stop {
    wanted: AtomicBool,
    /// Connections that are open.
    clients: AtomicUsize,
    /// How long clients may take to get their answers.
    grace: Mutex<Duration>,
    settling: Arc<Settling>,
}

impl NbdServer {
    /// Serves `disk`, whose data buffers are of `pool`, as the export `name`. What happens to it
    /// can be received.
    ///
    /// # Errors
    /// [`Error::Address`] if nobody could connect; [`Error::System`].
    pub fn start(
        disk: Disk,
        pool: Pool,
        name: &str,
        description: &str,
        address: &Address,
        settings: &Settings,
    ) -> Result<(Self, Receiver<News>), Error> {
        let listener = Listener::open(address)?;
        let mut shown = listener.to_string();
        if settings.tls.is_some() {
            shown = shown.replacen("nbd", "nbds", 1);
        }
        let (ready, started) = mpsc::channel();
        let (connect, connections) = mpsc::channel();
        let (news_to, news) = mpsc::sync_channel(NEWS_MAX);
        let stop = Arc::new(Stop {
            wanted: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
            grace: Mutex::new(Duration::ZERO),
            settling: Arc::default(),
        });
        let parts = Parts {
            export: export(&disk, name, description),
            disk,
            pool,
            connections,
            news: news_to,
            stop: Arc::clone(&stop),
            settings: settings.clone(),
        };
        let engine = settings.engine;
        let builder = std::thread::Builder::new().name("nbd".into());
        let config = engine::Config {
            name: "nbd".into(),
            // The client, which is on this machine as a rule, needs the processor.
            spin_max: Duration::ZERO,
            ..engine::Config::default()
        };
        let thread = builder.spawn(move || match engine::choose(engine) {
            Choice::Epoll => parts.serve(engine::epoll::Epoll::new(&config), &ready),
            _ => parts.serve(engine::uring::Uring::new(&config), &ready),
        })?;
        let gone = || std::io::Error::other("its thread stopped");
        let waker = started.recv().map_err(|_| gone())??;
        let thread = Thread { stop, waker: waker.clone(), handle: Some(thread) };
        // Without a door the thread ends with its handle.
        let door = Door::open(listener, connect, waker)?;
        Ok((Self { address: shown, door, thread }, news))
    }

    /// Where it is served, as NBD clients write it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How many connections are open.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.thread.stop.clients.load(Ordering::Acquire)
    }

    /// Flushes what has ended, well or not: [`stop`](Self::stop) tells whether something may be
    /// lost.
    ///
    /// # Errors
    /// [`Error::Silent`] if the disk does not answer within `patience`.
    pub fn settle(&self, patience: Duration) -> Result<(), Error> {
        self.thread.stop.settling.ask(patience, || self.thread.waker.wake())
    }

    /// Takes no more connections and requests; what is under way is answered, for which clients
    /// get `grace`; then all that was written is flushed.
    ///
    /// # Errors
    /// If that is not certain to be on stable storage.
    pub fn stop(mut self, grace: Duration) -> Result<(), Error> {
        self.door.close();
        self.thread.end(grace)
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.door.close();
    }
}

impl Thread {
    fn end(&mut self, grace: Duration) -> Result<(), Error> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        *self.stop.grace.lock().unwrap_or_else(PoisonError::into_inner) = grace;
        self.stop.wanted.store(true, Ordering::Release);
        self.waker.wake();
        handle.join().unwrap_or_else(|_| Err(std::io::Error::other("its thread panicked").into()))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let _ = self.end(Duration::ZERO);
    }
}

fn export(disk: &Disk, name: &str, description: &str) -> Export {
    let geometry = disk.geometry();
    let preferred = geometry.physical.max(limits::PREFERRED_MIN).max(geometry.block);
    Export {
        name: name.to_owned(),
        description: description.to_owned(),
        bytes: geometry.bytes(),
        blocks: BlockSizes {
            least: 1,
            preferred: preferred.checked_next_power_of_two().unwrap_or(limits::PREFERRED_MIN),
            most: limits::REQUEST_BYTES_MAX,
        },
        read_only: geometry.read_only,
        trim: geometry.unmap_max > 0,
        fast_zero: geometry.same_max > 0,
        allocation: geometry.unmap_max > 0 || geometry.same_max > 0,
    }
}
