// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port on epoll, for machines where io_uring is forbidden.
//!
//! Level-triggered: a report is a hint, and acting on a stale one does no harm. Reports are worked
//! on one by one in `next_event`, so that the buffer of one chunk serves the next while it is in
//! the cache. Files are tried at once with `RWF_NOWAIT`; what would wait goes to a few threads.

mod socket;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clock::Instant;
use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::event::epoll::EventFlags;
use slab::Slab;

use crate::Config;
use crate::Event;
use crate::FileRefused;
use crate::Port;
use crate::Socket;
use crate::Token;
use crate::Waker;
use crate::Work;
use crate::filework::FileWork;
use crate::filework::Files;
use crate::filework::Kind;
use crate::filework::Step;
use crate::limits::FILE_THREADS_MAX;
use crate::limits::READY_MAX;
use crate::monotonic;
use crate::pool::Done;
use crate::pool::Job;
use crate::pool::Pool;
use crate::ppe::Kernel;
use crate::receive::ReceiveBuffers;
use crate::sockets;
use crate::spin::Spin;
use crate::spin::Waited;
use crate::waker::Bell;
use crate::waker::Reason;

use socket::Sock;

/// A port on epoll.
///
/// Dropping it waits for file work that a thread has begun.
pub struct Epoll {
    epoll: OwnedFd,
    sockets: Slab<Sock>,
    files: Files,
    buffers: Rc<ReceiveBuffers>,
    ready: VecDeque<(Token, Event)>,
    /// What epoll reported and `next_event` has not worked on, from `next_report` on.
    reports: Vec<epoll::Event>,
    next_report: usize,
    /// `wait` calls since epoll was last asked.
    unasked: u32,
    /// Sockets that were readable when there was no buffer.
    starved: VecDeque<usize>,
    /// Listening sockets that ran out of descriptors, and when to try again.
    resting: VecDeque<(Instant, usize)>,
    pool: Pool,
    /// Apart from `pool`: chores may wait for a disk that the files are not on.
    chores: Pool,
    bell: Arc<Bell>,
    spin: Spin,
}

/// What the bell's descriptor is registered under.
const BELL: u64 = u64::MAX;

/// Events that the port made itself may keep it from asking epoll this many times.
const UNASKED_MAX: u32 = 8;

impl Epoll {
    /// A port for the calling thread.
    ///
    /// # Errors
    ///
    /// No descriptors or no memory; `InvalidInput` if `config` asks for no buffers.
    pub fn new(config: &Config) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Bell::new()?;
        // Edge-triggered: the counter of the bell is never read.
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &*bell, epoll::EventData::new_u64(BELL), flags)?;
        Ok(Self {
            epoll,
            sockets: Slab::new(),
            files: Files::default(),
            buffers: ReceiveBuffers::stack(config.receive_buffers, config.receive_buffer_bytes)?,
            ready: VecDeque::new(),
            reports: Vec::with_capacity(READY_MAX),
            next_report: 0,
            unasked: 0,
            starved: VecDeque::new(),
            resting: VecDeque::new(),
            pool: Pool::new(format!("{}-file", config.name), FILE_THREADS_MAX, Arc::clone(&bell)),
            chores: Pool::of_chores(&config.name, &bell),
            bell,
            spin: Spin::new(config.spin_max),
        })
    }

    fn has_reports(&self) -> bool {
        self.next_report < self.reports.len()
    }

    /// Works on reports until there is an event; false if there is none.
    fn fill(&mut self) -> bool {
        while self.ready.is_empty() {
            let Some(report) = self.reports.get(self.next_report).copied() else { return false };
            self.next_report += 1;
            let data = report.data.u64();
            if data != BELL {
                let index = usize::try_from(data).expect("it was made from an usize");
                self.reported(index, report.flags);
            }
        }
        true
    }

    /// Starts again what waited, and sees whether there is an event.
    fn gather(&mut self) -> bool {
        self.restart();
        self.answer_bell();
        let is_there = self.fill();
        if is_there && self.unasked > UNASKED_MAX && !self.has_reports() {
            self.ask(Some(Duration::ZERO));
        }
        is_there
    }

    /// Asks epoll, which waits at most `timeout` (None: for ever).
    fn ask(&mut self, timeout: Option<Duration>) {
        self.unasked = 0;
        self.next_report = 0;
        self.reports.clear();
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let room = rustix::buffer::spare_capacity(&mut self.reports);
        // A signal or an error leaves no reports, and the caller looks again.
        let _ = epoll::wait(&self.epoll, room, timeout.as_ref());
    }

    fn answer_bell(&mut self) {
        let rung = self.bell.answer();
        if rung.has(Reason::Files) {
            let done = self.pool.finished().chain(self.chores.finished());
            self.ready.extend(done.map(Done::into_event));
        }
        if rung.has(Reason::Wake) {
            self.ready.push_back((Token(0), Event::Woken));
        }
    }

    /// Starts again what waited for a buffer or for a moment.
    fn restart(&mut self) {
        for _ in 0..self.buffers.available() {
            let Some(index) = self.starved.pop_front() else { break };
            self.feed(index);
        }
        while let Some((at, index)) = self.resting.front().copied()
            && at <= monotonic()
        {
            self.resting.pop_front();
            self.rested(index);
        }
    }

    /// Asks again and again without sleeping; true if something came.
    fn spin(&mut self, from: Instant, deadline: Option<Instant>) -> bool {
        let budget = self.spin.budget_ns();
        if budget == 0 {
            return false;
        }
        let whole = from + Duration::from_nanos(budget);
        let end = deadline.map_or(whole, |deadline| whole.min(deadline));
        loop {
            self.ask(Some(Duration::ZERO));
            let now = monotonic();
            if self.has_reports() || self.bell.is_rung() {
                self.spin.observe(from, now, Waited::Spinning);
                return true;
            }
            if now >= end {
                if end == whole {
                    self.spin.lose();
                }
                return false;
            }
            std::hint::spin_loop();
        }
    }

    fn sleep(&mut self, from: Instant, deadline: Option<Instant>) {
        if !self.bell.fall_asleep() {
            return;
        }
        let rested = self.resting.front().map(|(at, _)| *at);
        let until = match (deadline, rested) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let now = monotonic();
        self.ask(until.map(|until| until.since(now)));
        self.bell.wake_up();
        self.spin.observe(from, monotonic(), Waited::Sleeping);
    }

    /// Work for the threads of rare work.
    #[cold]
    fn submit_rare(&mut self, job: Job) {
        if let Err(job) = self.chores.submit(job) {
            self.ready.push_back(job.run().into_event());
        }
    }

    fn submit_file(&mut self, id: u32, mut work: FileWork) {
        let Some(file) = self.files.get(id) else {
            return self.ready.push_back(work.into_event(Err(libc::EBADF)));
        };
        if let Err(errno) = work.prepare(file.direct) {
            return self.ready.push_back(work.into_event(Err(errno)));
        }
        let Some(call) = work.call() else {
            return self.ready.push_back(work.into_event(Ok(0)));
        };
        if !file.direct && matches!(work.kind(), Kind::Read | Kind::Write) {
            match call.perform(&file.fd, libc::RWF_NOWAIT) {
                // It would wait, or the file system cannot tell: a thread finds out.
                Err(libc::EAGAIN | libc::EINTR | libc::EOPNOTSUPP) => {}
                result => {
                    if let Step::Done(result) = work.step(result, false) {
                        return self.ready.push_back(work.into_event(result));
                    }
                }
            }
        }
        let job = Job::File { file: Arc::clone(&file.fd), direct: file.direct, work };
        if let Err(job) = self.pool.submit(job) {
            // Nothing is wrong with the file, of which hosts would hear: the reactor waits.
            self.ready.push_back(job.run().into_event());
        }
    }
}

impl fmt::Debug for Epoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoll").field("sockets", &self.sockets.len()).finish_non_exhaustive()
    }
}

impl Kernel for Epoll {
    fn buffers(&self) -> &Rc<ReceiveBuffers> {
        &self.buffers
    }
}

impl Port for Epoll {
    fn add_socket(&mut self, fd: OwnedFd) -> Socket {
        sockets::prepare(&fd, sockets::Mode::NonBlocking);
        let key = self.sockets.insert(Sock::new(fd));
        Socket(u32::try_from(key).expect("descriptors are fewer than 2^32"))
    }

    fn add_file(&mut self, id: u32, file: Arc<OwnedFd>, direct: bool) -> Result<(), FileRefused> {
        self.files.add(id, file, direct)
    }

    fn remove_file(&mut self, id: u32) {
        self.files.remove(id);
    }

    fn submit(&mut self, token: Token, work: Work) {
        match work {
            Work::Accept { socket } => self.submit_accept(token, socket),
            Work::Receive { socket } => self.submit_receive(token, socket),
            Work::Watch { socket } => self.submit_watch(token, socket),
            Work::Send { socket, list } => self.submit_send(token, socket, list),
            Work::Detach { socket } => self.submit_detach(token, socket),
            Work::Read { file, offset, buf } => {
                self.submit_file(file, FileWork::read(token, offset, buf));
            }
            Work::Write { file, offset, data, durable } => {
                self.submit_file(file, FileWork::write(token, offset, data, durable));
            }
            Work::Sync { file } => self.submit_file(file, FileWork::sync(token)),
            Work::Clear { file, offset, length, leave } => {
                self.submit_file(file, FileWork::clear(token, offset, length, leave));
            }
            Work::Allocation { file, offset } => {
                let file = self.files.get(file).map(|file| Arc::clone(&file.fd));
                match Job::allocation(token, file, offset) {
                    Ok(job) => self.submit_rare(job),
                    Err(done) => self.ready.push_back(done.into_event()),
                }
            }
            Work::Chore { chore } => self.submit_rare(Job::Chore { token, chore }),
        }
    }

    fn pause(&mut self, socket: Socket) {
        self.pause_socket(socket.0 as usize);
    }

    fn resume(&mut self, socket: Socket) {
        self.resume_socket(socket.0 as usize);
    }

    fn acknowledged(&self, socket: Socket) -> Option<u64> {
        self.sockets.get(socket.0 as usize).and_then(Sock::acknowledged)
    }

    fn arrived(&self, socket: Socket) -> Option<u64> {
        self.sockets.get(socket.0 as usize).and_then(Sock::arrived)
    }

    fn segment_len(&self, socket: Socket) -> Option<usize> {
        self.sockets.get(socket.0 as usize).and_then(Sock::segment_len)
    }

    fn shutdown(&mut self, socket: Socket) {
        self.shutdown_socket(socket.0 as usize);
    }

    fn close(&mut self, socket: Socket) {
        self.close_socket(socket.0 as usize);
    }

    fn next_event(&mut self) -> Option<(Token, Event)> {
        self.fill();
        self.ready.pop_front()
    }

    fn wait(&mut self, deadline: Option<Instant>) {
        let from = monotonic();
        self.unasked += 1;
        while !self.gather() {
            if deadline.is_some_and(|deadline| monotonic() >= deadline) {
                return self.ask(Some(Duration::ZERO));
            }
            if !self.spin(from, deadline) {
                self.sleep(from, deadline);
            }
        }
    }

    fn wait_n(&mut self, _count: usize, deadline: Instant) {
        let from = monotonic();
        self.unasked += 1;
        if !self.gather() {
            match from < deadline {
                true => self.sleep(from, Some(deadline)),
                false => self.ask(Some(Duration::ZERO)),
            }
        }
    }

    fn now(&self) -> Instant {
        monotonic()
    }

    fn waker(&self) -> Waker {
        self.bell.waker()
    }

    fn name(&self) -> &'static str {
        "epoll"
    }
}
