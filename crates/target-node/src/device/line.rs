// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of one device that wait for a thread, and the threads. A thread is begun when a command
//! finds none that is idle, up to as many as the device takes commands at a time, and ends when it
//! has been idle for some time.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use engine::sg::Data;
use store::Error;
use store::Outcome;
use store::device::Command;
use store::device::Failure;
use store::device::Transfer;
use store::foreign::Completer;

use super::carrier::Carrier;
use super::carrier::Times;
use super::carrier::judged;
use super::probe;

/// Commands that wait for one device: some sessions with a full command window each. One more is
/// answered with BUSY.
const WAITING_MAX: usize = 1024;

/// A thread that has had nothing to do for so long ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Commands that are under way when a device is closed get so long.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// All of one device.
#[derive(Debug)]
pub(super) struct Line<C> {
    path: String,
    carrier: C,
    times: Times,
    at_a_time: u32,
    state: Mutex<State>,
    /// Something waits, or nothing will any more.
    news: Condvar,
    /// A thread has ended, or a reset.
    quiet: Condvar,
    /// What only whoever runs the daemon can mend has been told.
    told_gone: AtomicBool,
    told_permission: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    threads: u32,
    idle: u32,
    /// Who waits for the reset that is under way.
    resets: Vec<Completer>,
    resetting: bool,
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    command: Arc<Command>,
    /// None: nobody waits for it.
    completer: Option<Completer>,
}

impl<C: Carrier> Line<C> {
    pub(super) fn new(path: &str, carrier: C, times: Times, at_a_time: u32) -> Arc<Self> {
        Arc::new(Self {
            path: path.to_owned(),
            carrier,
            times,
            at_a_time,
            state: Mutex::default(),
            news: Condvar::new(),
            quiet: Condvar::new(),
            told_gone: AtomicBool::new(false),
            told_permission: AtomicBool::new(false),
        })
    }

    /// A command comes, which is answered by `completer`. Takes a moment.
    pub(super) fn push(self: &Arc<Self>, command: Arc<Command>, completer: Option<Completer>) {
        let refused = {
            let mut state = self.state();
            if state.closed {
                Some((completer, Failure::Gone))
            } else if state.waiting.len() >= WAITING_MAX {
                Some((completer, Failure::Busy))
            } else {
                state.waiting.push_back(Waiting { command, completer });
                self.have_it_taken(&mut state)
            }
        };
        match refused {
            // Answers go out without the lock.
            Some((Some(completer), failure)) => completer.fail_command(failure),
            Some((None, _)) => {}
            None => self.news.notify_one(),
        }
    }

    /// Sees to it that a thread takes what waits. Gives the last command back where there can be
    /// none.
    fn have_it_taken(self: &Arc<Self>, state: &mut State) -> Option<(Option<Completer>, Failure)> {
        let waiting = u32::try_from(state.waiting.len()).unwrap_or(u32::MAX);
        if waiting <= state.idle || state.threads >= self.at_a_time {
            return None;
        }
        let line = Arc::clone(self);
        match thread::Builder::new().name("scsi".into()).spawn(move || line.serve()) {
            Ok(_) => state.threads += 1,
            Err(error) if state.threads == 0 => {
                tracing::error!(path = self.path, %error, "cannot begin a thread for a device");
                let last = state.waiting.pop_back()?;
                return Some((last.completer, Failure::Busy));
            }
            // Those that are there come to it.
            Err(_) => {}
        }
        None
    }

    /// A command is of no use any more: one that still waits ends at once.
    pub(super) fn take_back(&self, command: &Arc<Command>) {
        let taken = {
            let mut state = self.state();
            let at = state.waiting.iter().position(|one| Arc::ptr_eq(&one.command, command));
            at.and_then(|at| state.waiting.remove(at))
        };
        if let Some(completer) = taken.and_then(|taken| taken.completer) {
            completer.fail_command(Failure::Aborted);
        }
    }

    /// The device is reset once for all who ask until that is done.
    pub(super) fn reset(self: &Arc<Self>, completer: Completer) {
        {
            let mut state = self.state();
            state.resets.push(completer);
            if mem::replace(&mut state.resetting, true) {
                return;
            }
        }
        let line = Arc::clone(self);
        let thread = thread::Builder::new().name("scsi-reset".into()).spawn(move || {
            line.carrier.begin_thread();
            let result = line.carrier.reset();
            if result.is_ok() {
                // What the device has to tell of it, its hosts are told by their unit.
                probe::hear_attentions(&line.carrier);
            }
            line.end_reset(&result);
        });
        if let Err(error) = thread {
            self.end_reset(&Err(error));
        }
    }

    fn end_reset(&self, result: &io::Result<()>) {
        match result {
            Ok(()) => tracing::info!(path = self.path, "a host has reset the device"),
            Err(error) => tracing::warn!(
                path = self.path,
                %error,
                "the device was not reset, as a host wants: its commands end by themselves, or \
                 when their time is over; try: run as root, or with CAP_SYS_ADMIN and \
                 CAP_SYS_RAWIO, if permission is what lacks"
            ),
        }
        let waiting = {
            let mut state = self.state();
            state.resetting = false;
            mem::take(&mut state.resets)
        };
        self.quiet.notify_all();
        waiting.into_iter().for_each(|completer| completer.complete_with(Outcome::Done));
    }

    /// Nothing more is taken; what waits is not sent.
    pub(super) fn end(&self) {
        let waiting = {
            let mut state = self.state();
            state.closed = true;
            mem::take(&mut state.waiting)
        };
        self.news.notify_all();
        for completer in waiting.into_iter().filter_map(|one| one.completer) {
            completer.fail_command(Failure::Gone);
        }
    }

    /// The same, and waits for what is under way.
    pub(super) fn close(&self) -> Result<(), Error> {
        self.end();
        let deadline = Instant::now() + CLOSE_MAX;
        let mut state = self.state();
        while state.threads > 0 || state.resetting {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Silent);
            }
            let waited = self.quiet.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// A thread of the device.
    fn serve(&self) {
        self.carrier.begin_thread();
        while let Some(Waiting { command, completer }) = self.next() {
            self.run(&command, completer);
        }
    }

    fn next(&self) -> Option<Waiting> {
        let mut state = self.state();
        loop {
            if let Some(next) = state.waiting.pop_front() {
                return Some(next);
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let waited = self.news.wait_timeout(state, IDLE_MAX);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if timeout.timed_out() && state.waiting.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        drop(state);
        self.quiet.notify_all();
        None
    }

    fn run(&self, command: &Command, mut completer: Option<Completer>) {
        let timeout = self.times.of(command.pace);
        let cdb = command.cdb.get(..usize::from(command.cdb_len)).unwrap_or(&command.cdb);
        let data = match (&command.transfer, &mut completer) {
            (Transfer::Out(data), _) => Data::Out(data.bytes()),
            (Transfer::In(_), Some(completer)) => {
                // Drivers that tell no residual say that all has come: what had these pages before
                // is of another command, maybe of another initiator.
                let room = completer.room();
                room.fill(0);
                Data::In(room)
            }
            (Transfer::In(_), None) | (Transfer::Nothing, _) => Data::Nothing,
        };
        let result = judged(self.carrier.carry_out(cdb, data, timeout));
        if let Err(failure) = &result {
            self.tell(command.cdb[0], *failure);
        }
        let Some(completer) = completer else { return };
        match result {
            Ok(reply) => completer.answer_command(reply.status, reply.sense, reply.moved),
            Err(failure) => completer.fail_command(failure),
        }
    }

    /// For the log: what its hosts cannot mend.
    fn tell(&self, opcode: u8, failure: Failure) {
        let (path, opcode) = (&*self.path, format_args!("{opcode:#04x}"));
        match failure {
            Failure::Gone if !self.told_gone.swap(true, Ordering::Relaxed) => tracing::error!(
                path,
                "the device is gone: its hosts are told that it does not answer; try: connect it \
                 again, then lunwire lun remove and lun add, or restart the daemon"
            ),
            Failure::NotPermitted if !self.told_permission.swap(true, Ordering::Relaxed) => {
                tracing::warn!(
                    path,
                    %opcode,
                    "the system lets this user not send a command to the device, which a host is \
                     told as one that the device has not; try: run as root, or with CAP_SYS_RAWIO"
                );
            }
            Failure::TimedOut => tracing::warn!(
                path,
                %opcode,
                "the device did not answer in time, and the system has given the command up; try: \
                 the option timeout= with a longer time"
            ),
            _ => {}
        }
    }

    /// What this lock guards is whole between any two statements, so poison says nothing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
