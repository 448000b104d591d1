// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port on io_uring: one ring per thread, multishot receive into provided buffers.
//!
//! Read io_uring(7) first. What the ring owns: every submission has an index into `sockets` or
//! `works`, whose entry keeps buffers and descriptor until its last completion has come, also
//! after `close`. So nothing that the kernel may touch is ever freed under it.

mod file;
mod ring;
mod socket;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clock::Instant;
use io_uring::cqueue;
use io_uring::opcode;
use io_uring::types::Fd;
use slab::Slab;

use crate::Config;
use crate::Event;
use crate::FileRefused;
use crate::Landing;
use crate::Port;
use crate::Socket;
use crate::Token;
use crate::Waker;
use crate::Work;
use crate::filework::File;
use crate::filework::FileWork;
use crate::filework::Files;
use crate::limits::ASKED_MAX;
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

use ring::Key;
use ring::Kind;
use ring::Ring;
use socket::Sock;

/// A port on io_uring.
///
/// Dropping it cancels what is under way and waits for the kernel to let go of all buffers: file
/// work that has begun is finished.
#[derive(Debug)]
pub struct Uring {
    ring: Ring,
    sockets: Slab<Sock>,
    works: Slab<(Rc<File>, FileWork)>,
    files: Files,
    buffers: Rc<ReceiveBuffers>,
    /// Events that did not come from the ring.
    ready: VecDeque<(Token, Event)>,
    /// Sockets whose receive found no buffer, in that order.
    starved: VecDeque<usize>,
    /// Sockets whose next receive waits until what the last one brought has been looked at.
    single: Vec<usize>,
    /// Sockets that the port asks itself. One that is asked no more goes at the next look.
    asked: Vec<usize>,
    /// Listening sockets that ran out of descriptors, and when to try again.
    resting: VecDeque<(Instant, usize)>,
    chores: Pool,
    bell: Arc<Bell>,
    spin: Spin,
}

impl Uring {
    /// A ring for the calling thread, which alone may use it.
    ///
    /// # Errors
    ///
    /// What io_uring_setup(2) says: `EPERM` where a sandbox or `kernel.io_uring_disabled` forbids
    /// it, `ENOSYS` on old kernels, `ENOMEM`; `EINVAL` if the kernel lacks buffer rings (5.19) or
    /// `config` asks for a number of buffers that is no power of two.
    pub fn new(config: &Config) -> io::Result<Self> {
        let buffers = ReceiveBuffers::ring(config.receive_buffers, config.receive_buffer_bytes)?;
        let bell = Bell::new()?;
        let mut port = Self {
            ring: Ring::new(&buffers, config.receive_buffers)?,
            sockets: Slab::new(),
            works: Slab::new(),
            files: Files::default(),
            buffers,
            ready: VecDeque::new(),
            starved: VecDeque::new(),
            single: Vec::new(),
            asked: Vec::with_capacity(ASKED_MAX),
            resting: VecDeque::new(),
            chores: Pool::of_chores(&config.name, &bell),
            bell,
            spin: Spin::new(config.spin_max),
        };
        port.arm_bell();
        port.ring.submit();
        Ok(port)
    }

    /// Which ring was made, for `explain`.
    #[must_use]
    pub const fn features(&self) -> &'static str {
        self.ring.flavour()
    }

    /// The counter is never read: each write to it makes one completion.
    fn arm_bell(&mut self) {
        let fd = Fd(self.bell.as_fd().as_raw_fd());
        let flags = u32::from(libc::POLLIN.unsigned_abs());
        let poll = opcode::PollAdd::new(fd, flags).multi(true).build();
        self.ring.push(Key::new(Kind::Bell, 0), poll);
    }

    /// Turns completions into events until there is one; false if there is none.
    fn fill(&mut self) -> bool {
        while self.ready.is_empty() {
            let Some(done) = self.ring.pop() else { return false };
            if let Some(event) = self.completed(&done) {
                self.ready.push_back(event);
            }
        }
        true
    }

    fn completed(&mut self, done: &cqueue::Entry) -> Option<(Token, Event)> {
        let key = Key::of(done.user_data());
        let last = !cqueue::more(done.flags());
        let result = usize::try_from(done.result()).map_err(|_| done.result().wrapping_neg());
        match key.kind() {
            Kind::Receive => self.receive_completed(key.index(), result, done.flags()),
            Kind::Send => self.send_completed(key.index(), result),
            Kind::Accept => self.accept_completed(key.index(), result, last),
            Kind::Cancel => {
                self.cancel_completed(key.index(), result.unwrap_or(0));
                None
            }
            Kind::File => self.file_completed(key.index(), result),
            Kind::Bell => {
                if last {
                    self.arm_bell();
                }
                None
            }
            Kind::Watch => self.watch_completed(key.index(), result, last),
            Kind::Pause => None,
        }
    }

    /// Asks sockets, behind all that the ring has told: a list that has left is known before the
    /// answer to it.
    fn ask_after_all(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        while let Some(done) = self.ring.pop() {
            let event = self.completed(&done);
            self.ready.extend(event);
        }
        self.ask();
    }

    /// Starts again what waited for a buffer or for a moment.
    fn restart(&mut self) {
        // All of them: one that has nothing to receive takes no buffer and must not keep the turn
        // from those that have. Who finds none left comes back to this queue, at its end.
        if !self.starved.is_empty() {
            self.buffers.want(self.starved.len());
        }
        if self.buffers.available() > 0 {
            while let Some(index) = self.starved.pop_front() {
                self.arm_receive(index);
            }
        }
        while let Some(index) = self.single.pop() {
            self.receive_next(index);
        }
        while let Some((at, index)) = self.resting.front().copied()
            && at <= monotonic()
        {
            self.resting.pop_front();
            self.arm_accept(index);
        }
    }

    fn answer_bell(&mut self) {
        let rung = self.bell.answer();
        if rung.has(Reason::Files) {
            self.ready.extend(self.chores.finished().map(Done::into_event));
        }
        if rung.has(Reason::Wake) {
            self.ready.push_back((Token(0), Event::Woken));
        }
    }

    /// Watches the completion queue and asks sockets without sleeping; true if something came.
    fn spin(&mut self, from: Instant, deadline: Option<Instant>) -> bool {
        let budget = self.spin.budget_ns();
        if budget == 0 {
            return false;
        }
        let whole = from + Duration::from_nanos(budget);
        let end = deadline.map_or(whole, |deadline| whole.min(deadline));
        loop {
            self.ask();
            if !self.ready.is_empty() {
                self.spin.observe(from, monotonic(), Waited::Spinning);
                return true;
            }
            for _ in 0..SPINS_PER_LOOK {
                if self.ring.has_completions() || self.bell.is_rung() {
                    let now = monotonic();
                    self.spin.observe(from, now, Waited::Spinning);
                    return true;
                }
                std::hint::spin_loop();
            }
            if monotonic() >= end {
                if end == whole {
                    self.spin.lose();
                }
                return false;
            }
        }
    }

    /// Sleeps in the kernel until a completion, a ring of the bell, or `deadline`.
    fn sleep(&mut self, from: Instant, deadline: Option<Instant>, count: usize) {
        if !self.bell.fall_asleep() {
            return;
        }
        self.stop_asking();
        let rested = self.resting.front().map(|(at, _)| *at);
        let until = match (deadline, rested) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let now = monotonic();
        self.ring.sleep(until.map(|until| until.since(now)), count);
        self.bell.wake_up();
        self.spin.observe(from, monotonic(), Waited::Sleeping);
    }
}

/// Looks at the queue between two looks at the clock.
const SPINS_PER_LOOK: u32 = 8;

impl Kernel for Uring {
    fn buffers(&self) -> &Rc<ReceiveBuffers> {
        &self.buffers
    }
}

impl Port for Uring {
    fn add_socket(&mut self, fd: OwnedFd) -> Socket {
        sockets::prepare(&fd, sockets::Mode::Blocking);
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

    fn land(&mut self, socket: Socket, landing: Landing) -> Option<Landing> {
        self.land_on(socket.0 as usize, landing)
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
        self.restart();
        self.ring.submit();
        self.ask_after_all();
        loop {
            self.answer_bell();
            if self.fill() {
                self.count_misses();
                return;
            }
            if deadline.is_some_and(|deadline| monotonic() >= deadline) {
                self.ring.has_completions();
                return;
            }
            // Completions that were only ours may have left new work.
            self.restart();
            self.ring.submit();
            if !self.ring.has_completions() && !self.spin(from, deadline) {
                self.sleep(from, deadline, 1);
            }
        }
    }

    fn wait_n(&mut self, count: usize, deadline: Instant) {
        let from = monotonic();
        self.restart();
        self.ring.submit();
        self.ask_after_all();
        self.answer_bell();
        if self.fill() || from >= deadline {
            return;
        }
        let left = deadline.since(from).as_nanos();
        if self.asked.is_empty() || left > u128::from(self.spin.budget_ns()) {
            self.sleep(from, Some(deadline), count);
            self.ring.has_completions();
        } else {
            self.spin(from, Some(deadline));
        }
    }

    fn now(&self) -> Instant {
        monotonic()
    }

    fn kernel_cycles(&self) -> u64 {
        self.ring.cycles()
    }

    fn waker(&self) -> Waker {
        self.bell.waker()
    }

    fn name(&self) -> &'static str {
        "uring"
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        for (_, sock) in &mut self.sockets {
            sock.abort();
        }
        if self.ring.quiesce().is_err() {
            // The kernel did not say that it is done with these: better lost than reused.
            std::mem::forget(std::mem::take(&mut self.sockets));
            std::mem::forget(std::mem::take(&mut self.works));
            std::mem::forget(Rc::clone(&self.buffers));
        }
    }
}

impl Uring {
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
        let index = self.works.insert((file, work));
        if let Some(event) = self.continue_file(index) {
            self.ready.push_back(event);
        }
    }
}
