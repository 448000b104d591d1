// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk as a file: `DIR/disk`, by FUSE.
//!
//! ```text
//! the system --requests--> threads "fuse" (files.rs) --operations--> carrier.rs --> the disk
//!     ^                                                                                 |
//!     `-------replies--------- thread "fuse-ends" <------------- CompletionQueue <------'
//! ```
//!
//! Requests are taken by a few threads and answered by another one, when the disk has ended them.
//! Where data and holes are is asked by a thread that waits for the unit (`fuse-seek`). Who is
//! killed while he waits is let go by another (`interrupts.rs`).

mod device;
mod files;
mod holes;
mod interrupts;
mod message;
mod mount;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;

use buf::Buf;
use initiator::CompletionQueue;
use initiator::Disk;
use initiator::DiskEvent;
use initiator::Pool;
use initiator::Retry;
use initiator::scsi;
use initiator::scsi::command;
use initiator::scsi::lba_status;
use rustix::event::EventfdFlags;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::io::Errno;

use self::device::Device;
use self::files::Files;
use self::files::Reply;
use self::files::Seek;
use self::holes::Step;
use self::holes::Wanted;
use self::message::Answer;
use self::mount::Mount;
pub use self::mount::MountError;
use self::mount::Unmount;
pub use self::mount::forget;
pub use self::mount::is_served;
use crate::carrier::Carrier;
use crate::carrier::Ended;
use crate::client::Data;
use crate::keep::Footing;
use crate::limits;
use crate::server::Error;
use crate::server::News;
use crate::settling::Settling;

/// Between two tries to take away a mount that is in use.
const LOOK: Duration = Duration::from_millis(50);

/// Between two looks whether the last flush has ended.
const FLUSH_LOOK: Duration = Duration::from_millis(2);

/// News that nobody has fetched; more are dropped.
const NEWS_MAX: usize = 64;

/// A disk that is a file.
#[derive(Debug)]
pub struct FuseServer {
    mount: Mount,
    shared: Arc<Shared>,
    completions: CompletionQueue,
    /// Readable: its threads end.
    ending: Arc<OwnedFd>,
    ends: Option<JoinHandle<()>>,
}

/// What its threads share.
#[derive(Debug)]
pub(super) struct Shared {
    disk: Disk,
    pool: Pool,
    carrier: Mutex<Carrier<Reply>>,
    settling: Arc<Settling>,
    device: Arc<Device>,
    /// Bytes of buffers of writes that are under way.
    writing: AtomicUsize,
    /// The system serves nobody any more.
    unmounted: AtomicBool,
    /// Why requests are not taken any more.
    failure: Mutex<Option<io::Error>>,
    /// Nothing more is taken.
    closing: AtomicBool,
    /// None: whoever listened has heard all.
    news: Mutex<Option<SyncSender<News>>>,
}

/// How it was left by who used it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // there is no third
pub enum Left {
    /// Nobody did any more.
    Unused,
    /// Somebody did, and gets errors from now on.
    InUse,
}

impl Shared {
    /// Has something done, and tells what comes of it at once.
    fn carry<R>(&self, what: impl FnOnce(&mut Carrier<Reply>) -> R) -> R {
        let (result, ended, news) = {
            let mut carrier = self.carrier();
            let result = what(&mut carrier);
            carrier.advance();
            (result, carrier.ended(), carrier.news())
        };
        for Ended { owner, result } in ended {
            if let Reply::Write { room, .. } = &owner {
                self.writing.fetch_sub(*room, Ordering::AcqRel);
            }
            answer(owner, result);
        }
        for news in news {
            if let News::Disk(DiskEvent::Resized { .. }) = &news {
                // The system asks for the size again.
                self.device.changed(files::DISK);
            }
            self.tell(news);
        }
        result
    }

    fn news(&self) -> MutexGuard<'_, Option<SyncSender<News>>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self) -> MutexGuard<'_, Option<io::Error>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, news: News) {
        if let Some(to) = &*self.news() {
            // Who does not listen does not want to know.
            let _ = to.try_send(news);
        }
    }

    fn carrier(&self) -> MutexGuard<'_, Carrier<Reply>> {
        self.carrier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for a write of a thread. Without any ours waits: the memory comes back when writes
    /// end, which needs it not.
    ///
    /// # Errors
    /// Nothing more is taken, or the other thread is being killed.
    fn room(&self, bytes: usize, thread: u32) -> Result<Buf, Errno> {
        let mut look_at = Instant::now() + interrupts::LOOK;
        loop {
            if self.closing.load(Ordering::Acquire) {
                return Err(Errno::IO);
            }
            let others = self.writing.fetch_add(bytes, Ordering::AcqRel);
            let taken = match others < limits::FUSE_WRITES_MAX {
                true => self.pool.take(bytes),
                // What is left is for reads: writes of parts of blocks end after some.
                false => None,
            };
            if let Some(taken) = taken {
                return Ok(taken);
            }
            self.writing.fetch_sub(bytes, Ordering::AcqRel);
            if Instant::now() >= look_at {
                // All that take what is told of signals may wait here.
                interrupts::let_go(self);
                if interrupts::is_killed(thread) {
                    return Err(Errno::INTR);
                }
                look_at = Instant::now() + interrupts::LOOK;
            }
            std::thread::sleep(limits::ROOM_INTERVAL);
        }
    }
}

impl FuseServer {
    /// Makes `disk`, whose data buffers are of `pool`, a file in the directory `folder`; most that
    /// is kept is `keep_bytes`, see [`Settings`](crate::Settings). What happens to it can be
    /// received.
    ///
    /// # Errors
    /// [`Error::Mount`], [`Error::System`].
    pub fn start(
        disk: Disk,
        pool: Pool,
        folder: &Path,
        keep_bytes: u64,
    ) -> Result<(Self, Receiver<News>), Error> {
        let (news_to, news) = mpsc::sync_channel(NEWS_MAX);
        let (seeks, asked) = mpsc::channel();
        let completions = CompletionQueue::new()?;
        let ending =
            Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?);
        let (mount, device) = Mount::new(folder, disk.geometry().read_only)?;
        let device = match Device::begin(device) {
            Ok(device) => Arc::new(device),
            Err(error) => {
                // The error is what counts.
                let _ = mount.remove(Unmount::Detach);
                return Err(error.into());
            }
        };
        let settling = Arc::new(Settling::default());
        let of_carrier = Arc::clone(&settling);
        let carrier = Carrier::new(disk.clone(), completions.clone(), keep_bytes, of_carrier);
        let shared = Arc::new(Shared {
            disk,
            pool,
            settling,
            carrier: Mutex::new(carrier),
            device,
            writing: AtomicUsize::new(0),
            unmounted: AtomicBool::new(false),
            failure: Mutex::new(None),
            closing: AtomicBool::new(false),
            news: Mutex::new(Some(news_to)),
        });
        let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (interrupts, interrupted) = mpsc::channel();
        let files = Files { shared: Arc::clone(&shared), seeks, interrupts, begun };
        let mut server = Self { mount, shared, completions, ending, ends: None };
        server.spawn(&files, asked, interrupted)?;
        Ok((server, news))
    }

    fn spawn(
        &mut self,
        files: &Files,
        asked: Receiver<Seek>,
        interrupted: Receiver<u64>,
    ) -> io::Result<()> {
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let ends = Ends {
            shared: Arc::clone(&self.shared),
            completions: self.completions.clone(),
            ending: Arc::clone(&self.ending),
        };
        self.ends = Some(named("fuse-ends").spawn(move || ends.run())?);
        let shared = Arc::clone(&self.shared);
        named("fuse-seek").spawn(move || {
            for seek in asked {
                shared.seek(seek);
            }
        })?;
        let shared = Arc::clone(&self.shared);
        named("fuse-interrupts").spawn(move || interrupts::run(&shared, &interrupted))?;
        for number in 0..limits::FUSE_THREADS {
            let files = files.clone();
            named(&format!("fuse-{number}")).spawn(move || files.run())?;
        }
        Ok(())
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.mount.path().join(files::NAME)
    }

    /// The disk has so many bytes now: the system reads up to there, if that is more than it knew
    /// of. This may wait for reads that the system does.
    pub fn resized(&self, bytes: u64) {
        self.shared.device.grown(files::DISK, bytes);
    }

    /// Flushes what has ended, well or not: [`stop`](Self::stop) tells whether something may be
    /// lost.
    ///
    /// # Errors
    /// [`Error::Silent`] if the disk does not answer within `patience`.
    pub fn settle(&self, patience: Duration) -> Result<(), Error> {
        self.shared.settling.ask(patience, || self.shared.carry(|_| ()))
    }

    /// Takes the file away, if nobody has it open.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if somebody has.
    pub fn unmount(&self) -> io::Result<()> {
        match self.is_unmounted() {
            true => Ok(()),
            false => self.mount.remove(Unmount::Unused),
        }
    }

    /// Somebody took it away.
    #[must_use]
    pub fn is_unmounted(&self) -> bool {
        self.shared.unmounted.load(Ordering::Acquire)
    }

    /// Takes the file away at once: whoever waits for something gets an error.
    ///
    /// # Errors
    /// If the system says no.
    pub fn cut(&self) -> io::Result<()> {
        self.mount.remove(Unmount::Cut)
    }

    /// Takes the file away, for which those who have it open get `grace`; then all that was
    /// written is flushed.
    ///
    /// # Errors
    /// If that is not certain to be on stable storage; [`Error::System`] if requests were not taken
    /// any more.
    pub fn stop(mut self, grace: Duration) -> Result<Left, Error> {
        let until = Instant::now() + grace;
        let mut left = Left::Unused;
        while let Err(error) = self.unmount() {
            // Somebody else was quicker.
            if self.is_unmounted() || error.raw_os_error() == Some(EINVAL) {
                break;
            }
            if Instant::now() >= until {
                left = Left::InUse;
                match self.mount.remove(Unmount::Detach) {
                    // What is mounted over it is not ours.
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                    removed => removed?,
                }
                break;
            }
            std::thread::sleep(LOOK);
        }
        self.shared.closing.store(true, Ordering::Release);
        let flushed = self.last_flush();
        self.end();
        flushed?;
        match self.shared.failure().take() {
            Some(error) => Err(error.into()),
            None => Ok(left),
        }
    }

    /// Waits for all that is under way at the disk for some time, and flushes it.
    fn last_flush(&self) -> Result<(), Error> {
        let until = Instant::now() + limits::LAST_FLUSH;
        self.shared.carry(Carrier::finish);
        loop {
            if let Some(result) = self.shared.carrier().finished() {
                return result;
            }
            if Instant::now() >= until {
                return self.shared.carrier().unfinished();
            }
            std::thread::sleep(FLUSH_LOOK);
        }
    }

    fn end(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        // Its counter is far from full.
        let _ = rustix::io::write(&*self.ending, &1u64.to_ne_bytes());
        if let Some(ends) = self.ends.take() {
            let _ = ends.join();
        }
        // Threads that take requests last as long as somebody has the file open.
        self.shared.news().take();
    }
}

impl Drop for FuseServer {
    fn drop(&mut self) {
        if !self.is_unmounted() {
            // Nobody is left who could be told.
            let _ = self.mount.remove(Unmount::Detach);
        }
        self.end();
    }
}

/// The thread that tells the ends.
struct Ends {
    shared: Arc<Shared>,
    completions: CompletionQueue,
    ending: Arc<OwnedFd>,
}

impl Ends {
    fn run(self) {
        loop {
            self.shared.carry(Carrier::reap);
            let wants_turn = self.shared.carrier().wants_turn();
            if wants_turn {
                std::thread::sleep(limits::ROOM_INTERVAL);
                self.shared.carry(Carrier::feed);
            }
            let at_once = wants_turn.then(Timespec::default);
            let mut both = [&self.completions as &dyn std::os::fd::AsFd, &*self.ending]
                .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
            // It fails when a signal comes.
            let _ = rustix::event::poll(&mut both, at_once.as_ref());
            let [_, ending] = &both;
            if !ending.revents().is_empty() {
                return;
            }
        }
    }
}

/// Tells the system how a request has ended.
fn answer(owner: Reply, result: Result<Option<Data>, nbd::Errno>) {
    match (owner, result) {
        (
            Reply::Read(ticket, _) | Reply::Write { ticket, .. } | Reply::Done(ticket),
            Err(error),
        ) => {
            ticket.error(errno(error));
        }
        (Reply::Done(ticket), Ok(_)) | (Reply::Read(ticket, _), Ok(None)) => ticket.done(),
        (Reply::Write { ticket, bytes, .. }, Ok(_)) => ticket.answer(&Answer::written(bytes)),
        (Reply::Read(ticket, bytes), Ok(Some(Data { chunks, lead }))) => {
            match lead + bytes <= chunks.bytes() {
                true => {
                    ticket.parts(device::within(chunks.iter().map(|chunk| &**chunk), lead, bytes))
                }
                false => ticket.error(Errno::IO),
            }
        }
    }
}

impl Shared {
    /// Answers where data or a hole is.
    fn seek(&self, seek: Seek) {
        let Seek { ticket, wanted, offset } = seek;
        match self.find(wanted, offset) {
            Ok(found) => ticket.answer(&Answer::offset(found)),
            Err(error) => ticket.error(error),
        }
    }

    fn find(&self, wanted: Wanted, offset: u64) -> Result<u64, Errno> {
        let mut at = offset;
        loop {
            let geometry = self.disk.geometry();
            let bytes = geometry.bytes();
            if at >= bytes {
                // There is a hole behind the end, unless the question begins there.
                let is_found = wanted == Wanted::Hole && offset < bytes;
                return if is_found { Ok(bytes) } else { Err(Errno::NXIO) };
            }
            let is_thin = geometry.unmap_max > 0 || geometry.same_max > 0;
            let told = match is_thin {
                true => self.ask(at / u64::from(geometry.block.max(1)))?,
                false => Vec::new(),
            };
            match holes::look(&told, &geometry, wanted, at) {
                Step::Found(found) => return Ok(found),
                Step::On(next) => at = next,
            }
            if self.closing.load(Ordering::Acquire) {
                return Err(Errno::IO);
            }
        }
    }

    /// Which blocks have space, from `first` on? Nothing if the unit does not know.
    fn ask(&self, first: u64) -> Result<Vec<lba_status::Descriptor>, Errno> {
        loop {
            let Some(footing) = self.footing()? else {
                // All is written again.
                std::thread::sleep(LOOK);
                continue;
            };
            let cdb = command::get_lba_status(first, limits::STATUS_BYTES);
            let room = initiator::Data::In(limits::STATUS_BYTES);
            let answer = self.disk.post(cdb, room, Retry::Always).wait();
            // A loss was told before it, over another way.
            self.carry(Carrier::reap);
            if self.footing()? != Some(footing) {
                continue;
            }
            return match answer {
                Ok(done) => {
                    let told = done.data.as_deref().and_then(lba_status::parse);
                    Ok(told.unwrap_or_default())
                }
                Err(error) if scsi::is_unsupported(&error) => Ok(Vec::new()),
                Err(error) => Err(errno(crate::split::errno(error.kind(), false))),
            };
        }
    }

    /// As [`Carrier::footing`].
    ///
    /// # Errors
    /// There will be none any more.
    fn footing(&self) -> Result<Option<Footing>, Errno> {
        let carrier = self.carrier();
        match carrier.is_broken() || self.closing.load(Ordering::Acquire) {
            true => Err(Errno::IO),
            false => Ok(carrier.footing()),
        }
    }
}

/// Not a mount any more.
const EINVAL: i32 = 22;

/// As the system knows it.
fn errno(error: nbd::Errno) -> Errno {
    // They have the numbers of Linux; a disk that is read-only is more than a lack of rights.
    match error {
        nbd::Errno::Permission => Errno::ROFS,
        other => i32::try_from(other.number()).map_or(Errno::IO, Errno::from_raw_os_error),
    }
}
