// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk as a block device of the system, by ublk.
//!
//! ```text
//! the system --requests--> engine::ublk::Queue --> this thread --> carrier.rs --> the disk
//!     ^                         |                     ^                            |
//!     `--------answers----------'                     `---- CompletionQueue <------'
//! ```
//!
//! One thread has the queue and the carrier. When the process is gone the system keeps the device
//! and what was asked of it for the next process that [takes it over](UblkServer::start).

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use engine::Signal;
use engine::ublk;
use engine::ublk::Action;
use engine::ublk::Coming;
use engine::ublk::Discard;
use engine::ublk::Queue;
use engine::ublk::UblkDevice;
use engine::ublk::UblkOptions;
use initiator::CompletionQueue;
use initiator::Disk;
use initiator::Geometry;
use initiator::Pool;
use nbd::Command;
use nbd::Errno;

use crate::carrier::Carrier;
use crate::carrier::Ended;
use crate::client::Data;
use crate::limits;
use crate::server::Error;
use crate::server::News;
use crate::settling::Settling;
use crate::split;

const _: () = assert!(ublk::IO_BYTES_MAX as usize <= limits::BUFFER_BYTES_MAX);

/// News that nobody has fetched; more are dropped.
const NEWS_MAX: usize = 64;

/// Numbers of errors that the system tells users of block devices apart.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EOPNOTSUPP: i32 = 95;

/// Which device it is to be.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // there is no third
pub enum Device {
    /// A new one, with a [mark](UblkOptions::mark).
    New(u64),
    /// One whose process is gone, and of which [`UblkDevice::begin_recovery`] has succeeded.
    Orphan(UblkDevice),
}

/// A disk that is a block device.
#[derive(Debug)]
pub struct UblkServer {
    device: UblkDevice,
    is_new: bool,
    shared: Arc<Shared>,
    /// None: it has ended.
    thread: Option<JoinHandle<Result<(), Error>>>,
}

/// What its threads share.
#[derive(Debug)]
struct Shared {
    /// Raised when one of the others is set.
    signal: Signal,
    /// Requests fail from now on.
    failing: AtomicBool,
    /// No more requests are begun; the device stays.
    leaving: AtomicBool,
    settling: Arc<Settling>,
}

impl Shared {
    fn set(&self, flag: &AtomicBool) {
        flag.store(true, Ordering::Release);
        self.signal.raise();
    }
}

impl UblkServer {
    /// Serves `disk`, whose data buffers are of `pool`; most that is kept is `keep_bytes`, see
    /// [`Settings`](crate::Settings). What happens to it can be received. Users see it when
    /// [`begin`](Self::begin) has succeeded.
    ///
    /// # Errors
    /// [`Error::Ublk`], [`Error::System`].
    pub fn start(
        disk: Disk,
        pool: Pool,
        device: Device,
        keep_bytes: u64,
    ) -> Result<(Self, Receiver<News>), Error> {
        let (device, is_new) = match device {
            Device::New(mark) => (UblkDevice::add(&options(&disk.geometry(), mark))?, true),
            Device::Orphan(device) => (device, false),
        };
        let served = Self::serve(device.clone(), is_new, disk, pool, keep_bytes);
        if served.is_err() && is_new {
            // The error is what counts.
            let _ = device.delete();
        }
        served
    }

    fn serve(
        device: UblkDevice,
        is_new: bool,
        disk: Disk,
        pool: Pool,
        keep_bytes: u64,
    ) -> Result<(Self, Receiver<News>), Error> {
        let (news_to, news) = mpsc::sync_channel(NEWS_MAX);
        let completions = CompletionQueue::new()?;
        let shared = Arc::new(Shared {
            signal: Signal::new()?,
            failing: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            settling: Arc::default(),
        });
        let (ready, started) = mpsc::channel();
        let (of_thread, of_device) = (Arc::clone(&shared), device.clone());
        let thread = std::thread::Builder::new().name("ublk".into()).spawn(move || {
            let watched = [completions.as_fd(), of_thread.signal.as_fd()];
            let queue = match of_device.queue(&watched) {
                Ok(queue) => queue,
                Err(error) => {
                    // Who has started it waits for a word.
                    let _ = ready.send(Err(error));
                    return Ok(());
                }
            };
            let _ = ready.send(Ok(()));
            let settling = Arc::clone(&of_thread.settling);
            let mut carrier = Carrier::new(disk.clone(), completions.clone(), keep_bytes, settling);
            if !is_new {
                carrier.takes_over();
            }
            let tags = usize::from(ublk::DEPTH);
            let under_way = (0..tags).map(|_| None).collect();
            let server = Server {
                queue,
                carrier,
                pool,
                under_way,
                leave_until: None,
                waiting: Vec::new(),
                shared: of_thread,
            };
            let result = server.run(&news_to);
            // What nobody waits for nobody needs to know.
            let _ = news_to.try_send(News::Unmounted);
            result
        })?;
        started.recv().unwrap_or_else(|_| Err(io::Error::other("its thread stopped")))?;
        Ok((Self { device, is_new, shared, thread: Some(thread) }, news))
    }

    /// Shows the device to its users, which may read from it.
    ///
    /// # Errors
    /// [`Error::Ublk`].
    pub fn begin(&self) -> Result<(), Error> {
        match self.is_new {
            true => Ok(self.device.start()?),
            false => Ok(self.device.recover()?),
        }
    }

    /// The device.
    #[must_use]
    pub const fn device(&self) -> &UblkDevice {
        &self.device
    }

    /// Whoever waits for something gets an error, from now on.
    pub fn fail(&self) {
        self.shared.set(&self.shared.failing);
    }

    /// Flushes what has ended, well or not: [`stop`](Self::stop) tells whether something may be
    /// lost.
    ///
    /// # Errors
    /// [`Error::Silent`] if the disk does not answer within `patience`.
    pub fn settle(&self, patience: Duration) -> Result<(), Error> {
        self.shared.settling.ask(patience, || self.shared.signal.raise())
    }

    /// Takes the device away, for which those who have it open get `grace`; then all that was
    /// written is flushed.
    ///
    /// # Errors
    /// If that is not certain to be on stable storage.
    pub fn stop(mut self, grace: Duration) -> Result<(), Error> {
        let (tell, told) = mpsc::channel();
        let device = self.device.clone();
        // Who has gone needs no word.
        std::thread::Builder::new()
            .name("ublk-stop".into())
            .spawn(move || drop(tell.send(device.stop())))?;
        let stopped = match told.recv_timeout(grace) {
            Ok(stopped) => stopped,
            Err(_) => {
                self.fail();
                told.recv().unwrap_or_else(|_| Err(io::Error::other("its thread stopped")))
            }
        };
        if let Err(error) = stopped {
            self.fail();
            return Err(error.into());
        }
        // It goes when nobody has it open any more.
        let deleted = self.device.delete();
        let flushed = self.join();
        deleted?;
        flushed
    }

    /// Takes a device away that nobody has used.
    ///
    /// # Errors
    /// If the system says no.
    pub fn abandon(self) -> io::Result<()> {
        self.fail();
        self.device.stop().and_then(|()| self.device.delete())
    }

    /// Serves it no more: what is under way is ended and flushed, and the device waits for the next
    /// process with all that its users ask from now on.
    ///
    /// # Errors
    /// If what was written is not certain to be on stable storage.
    pub fn leave(mut self) -> Result<(), Error> {
        self.shared.set(&self.shared.leaving);
        self.join()
    }

    fn join(&mut self) -> Result<(), Error> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked").into()))
    }
}

/// Users of a device whose server is dropped wait for the next one. Its thread ends when what is
/// under way has.
impl Drop for UblkServer {
    fn drop(&mut self) {
        self.shared.set(&self.shared.leaving);
    }
}

/// The device that a disk is.
fn options(geometry: &Geometry, mark: u64) -> UblkOptions {
    let bytes = |blocks: u32| blocks.saturating_mul(geometry.block);
    let discard = (geometry.unmap_max > 0).then(|| Discard {
        granularity: bytes(geometry.unmap_granularity),
        alignment: bytes(geometry.unmap_alignment),
        bytes_max: limits::ZERO_BYTES_MAX,
    });
    UblkOptions {
        block: geometry.block,
        physical: geometry.physical,
        bytes: geometry.bytes(),
        read_only: geometry.read_only,
        discard,
        zero_bytes_max: if geometry.same_max > 0 { limits::ZERO_BYTES_MAX } else { 0 },
        mark,
    }
}

/// The thread.
struct Server {
    queue: Queue,
    carrier: Carrier<u16>,
    pool: Pool,
    /// What is asked for under each tag and was not answered.
    under_way: Vec<Option<ublk::Request>>,
    /// How long those who leave wait for it.
    leave_until: Option<Instant>,
    /// Writes that have found no memory.
    waiting: Vec<ublk::Request>,
    shared: Arc<Shared>,
}

impl Server {
    fn run(mut self, news: &SyncSender<News>) -> Result<(), Error> {
        // When the last flush has to have ended.
        let mut until = None;
        loop {
            self.carrier.reap();
            self.take_requests();
            self.answer_ended();
            for news_item in self.carrier.news() {
                // Who does not listen does not want to know.
                let _ = news.try_send(news_item);
            }
            match until {
                None if self.is_over() => {
                    until = Some(Instant::now() + limits::LAST_FLUSH);
                    self.carrier.finish();
                    continue;
                }
                None => {}
                Some(until) => {
                    if let Some(result) = self.carrier.finished() {
                        return result;
                    }
                    if Instant::now() >= until {
                        return self.carrier.unfinished();
                    }
                }
            }
            let hungry = self.carrier.wants_turn() || !self.waiting.is_empty();
            let left = |until: Instant| until.saturating_duration_since(Instant::now());
            let timeout = match hungry {
                true => Some(limits::ROOM_INTERVAL),
                false => until.or(self.leave_until).map(left),
            };
            self.queue.wait(timeout)?;
            if hungry {
                self.carrier.feed();
                for request in std::mem::take(&mut self.waiting) {
                    self.write(request);
                }
            }
        }
    }

    /// Whether nothing more is to be done for users.
    fn is_over(&mut self) -> bool {
        if !self.is_set(&self.shared.leaving) {
            return self.queue.is_over();
        }
        // What lasts longer is asked of the next process again.
        let until = *self.leave_until.get_or_insert_with(|| Instant::now() + limits::LEAVING);
        self.queue.is_over()
            || self.under_way.iter().all(Option::is_none)
            || Instant::now() >= until
    }

    fn is_set(&self, flag: &AtomicBool) -> bool {
        flag.load(Ordering::Acquire)
    }

    fn take_requests(&mut self) {
        while let Some(coming) = self.queue.take() {
            match coming {
                Coming::Request(request) if self.is_set(&self.shared.failing) => {
                    self.queue.answer(&request, Some(EIO));
                }
                // The next process is asked again.
                Coming::Request(_) if self.is_set(&self.shared.leaving) => {}
                Coming::Request(request) => self.begin(request),
                Coming::Watched => self.shared.signal.lower(),
                Coming::Ended => {}
            }
        }
        if self.is_set(&self.shared.failing) {
            self.waiting.clear();
            for request in self.under_way.iter_mut().filter_map(Option::take) {
                self.queue.answer(&request, Some(EIO));
            }
        }
    }

    fn begin(&mut self, request: ublk::Request) {
        let command = match request.action {
            Some(Action::Read) => Command::Read,
            Some(Action::Write) => return self.write(request),
            Some(Action::Flush) => Command::Flush,
            Some(Action::Discard) => Command::Trim,
            Some(Action::Zero { keep_space }) => Command::WriteZeroes { keep_space, fast: false },
            None => return self.queue.answer(&request, Some(EOPNOTSUPP)),
        };
        let wanted = wanted(&request, command);
        match split::parts(&wanted, &self.carrier.geometry()) {
            Err(error) => self.queue.answer(&request, Some(errno(error))),
            Ok(parts) => {
                self.enter(request);
                self.carrier.begin(request.tag, &[(wanted, parts)]);
            }
        }
    }

    fn write(&mut self, request: ublk::Request) {
        let wanted = wanted(&request, Command::Write);
        if let Err(error) = split::parts(&wanted, &self.carrier.geometry()) {
            self.leave(request.tag);
            return self.queue.answer(&request, Some(errno(error)));
        }
        self.enter(request);
        let length = usize::try_from(request.length).unwrap_or(usize::MAX);
        // What others hold comes back without this thread, and its own when it reaps.
        let Some(mut buf) = self.pool.take(length) else { return self.waiting.push(request) };
        if self.queue.fetch(request.tag, &mut buf).is_err() {
            self.leave(request.tag);
            return self.queue.answer(&request, Some(EIO));
        }
        self.carrier.write(request.tag, wanted, vec![buf], 0);
    }

    fn enter(&mut self, request: ublk::Request) {
        if let Some(place) = self.under_way.get_mut(usize::from(request.tag)) {
            *place = Some(request);
        }
    }

    fn leave(&mut self, tag: u16) -> Option<ublk::Request> {
        self.under_way.get_mut(usize::from(tag))?.take()
    }

    fn answer_ended(&mut self) {
        self.carrier.advance();
        for Ended { owner, result } in self.carrier.ended() {
            // None: it was answered when all began to fail.
            let Some(request) = self.leave(owner) else { continue };
            let error = match result {
                Err(error) => Some(errno(error)),
                Ok(None) => None,
                Ok(Some(data)) => self.bring(owner, data).err().map(|_| EIO),
            };
            self.queue.answer(&request, error);
        }
    }

    fn bring(&self, tag: u16, data: Data) -> io::Result<()> {
        let mut at = 0;
        for chunk in data.chunks.iter() {
            self.queue.bring(tag, at, chunk)?;
            at += chunk.len() as u64;
        }
        Ok(())
    }
}

/// A request as the disk is asked; ranges without data are as long as [`options`] says at most.
fn wanted(request: &ublk::Request, command: Command) -> nbd::Request {
    nbd::Request {
        command,
        durable: request.durable,
        cookie: 0,
        offset: request.offset,
        length: u32::try_from(request.length).unwrap_or(u32::MAX),
    }
}

fn errno(error: Errno) -> i32 {
    match error {
        Errno::NoSpace => ENOSPC,
        Errno::NotSupported => EOPNOTSUPP,
        _ => EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry {
        block: 4096,
        blocks: 100,
        transfer_max: 64,
        unmap_max: 64,
        unmap_granularity: 4,
        unmap_alignment: 1,
        same_max: 64,
        compare_max: 0,
        unmap_zeros: true,
        physical: 8192,
        read_only: false,
        volatile_cache: false,
        write_through: true,
        protection: None,
    };

    #[test]
    fn a_device_is_what_its_disk_is() {
        let made = options(&GEOMETRY, 7);
        assert_eq!((made.block, made.physical, made.bytes, made.mark), (4096, 8192, 409_600, 7));
        let discard = made.discard.expect("the disk has UNMAP");
        assert_eq!((discard.granularity, discard.alignment), (16384, 4096));
        assert_eq!(made.zero_bytes_max, limits::ZERO_BYTES_MAX);
        let plain = Geometry { unmap_max: 0, same_max: 0, read_only: true, ..GEOMETRY };
        let made = options(&plain, 0);
        assert_eq!((made.discard, made.zero_bytes_max, made.read_only), (None, 0, true));
    }

    #[test]
    fn longest_ranges_are_requests() {
        let length = u64::from(limits::ZERO_BYTES_MAX);
        let action = Some(Action::Discard);
        let request = ublk::Request { tag: 1, action, offset: 4096, length, durable: true };
        let asked = wanted(&request, Command::Trim);
        assert_eq!((asked.offset, u64::from(asked.length)), (4096, length));
        assert!(asked.durable);
    }

    #[test]
    fn users_are_told_what_they_can_use() {
        assert_eq!(errno(Errno::NoSpace), ENOSPC);
        assert_eq!(errno(Errno::NotSupported), EOPNOTSUPP);
        for other in [Errno::InputOutput, Errno::Permission, Errno::NoMemory, Errno::Invalid] {
            assert_eq!(errno(other), EIO);
        }
    }
}
