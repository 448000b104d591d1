// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A few threads that wait for files, so that the reactor of a port need not: for all work on files
//! of an epoll port, for what is rare on every port.

use medium::Space;
use std::collections::VecDeque;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread::JoinHandle;

use crate::Chore;
use crate::Event;
use crate::Token;
use crate::files;
use crate::filework::FileWork;
use crate::filework::errno_of;
use crate::limits::CHORE_THREADS_MAX;
use crate::waker::Bell;
use crate::waker::Reason;

/// Work on its way to a thread. There are as many as the caller has work under way.
#[derive(Debug)]
pub(crate) enum Job {
    File { file: Arc<OwnedFd>, direct: bool, work: FileWork },
    Allocation { token: Token, file: Arc<OwnedFd>, offset: u64 },
    Chore { token: Token, chore: Box<dyn Chore> },
}

/// Finished work.
#[derive(Debug)]
pub(crate) enum Done {
    File(FileWork, Result<usize, i32>),
    Allocation(Token, Result<(Space, u64), i32>),
    Chore(Token, Result<(), i32>),
}

impl Job {
    /// A look at what is allocated of `file` from `offset` on; its end if there is no such file.
    pub(crate) fn allocation(
        token: Token,
        file: Option<Arc<OwnedFd>>,
        offset: u64,
    ) -> Result<Self, Done> {
        let file = file.ok_or(Done::Allocation(token, Err(libc::EBADF)))?;
        Ok(Self::Allocation { token, file, offset })
    }

    /// On the calling thread, however long it takes.
    pub(crate) fn run(self) -> Done {
        match self {
            Self::File { file, direct, mut work } => {
                let result = work.run(&file, direct);
                Done::File(work, result)
            }
            Self::Allocation { token, file, offset } => {
                let result = files::allocation(&file, offset);
                Done::Allocation(token, result.map_err(|error| errno_of(&error)))
            }
            Self::Chore { token, mut chore } => Done::Chore(token, chore.run()),
        }
    }
}

impl Done {
    pub(crate) fn into_event(self) -> (Token, Event) {
        match self {
            Self::File(work, result) => work.into_event(result),
            Self::Allocation(token, result) => (token, Event::Allocation { result }),
            Self::Chore(token, result) => (token, Event::Ran { result }),
        }
    }
}

/// Threads that start when they are first needed and end with the pool, after the job in hand.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    name: String,
    threads_max: usize,
    /// Emptied and given to the threads in turn: no allocation in steady state.
    spare: Vec<Done>,
}

#[derive(Debug)]
struct Shared {
    jobs: Mutex<Jobs>,
    arrived: Condvar,
    done: Mutex<Vec<Done>>,
    bell: Arc<Bell>,
}

#[derive(Debug, Default)]
struct Jobs {
    queue: VecDeque<Job>,
    idle: usize,
    stop: bool,
}

impl Pool {
    /// At most `threads_max` threads of this name that ring `bell` for each finished job.
    pub(crate) fn new(name: String, threads_max: usize, bell: Arc<Bell>) -> Self {
        let shared = Shared {
            jobs: Mutex::default(),
            arrived: Condvar::new(),
            done: Mutex::default(),
            bell,
        };
        Self { shared: Arc::new(shared), threads: Vec::new(), name, threads_max, spare: Vec::new() }
    }

    /// The threads for chores of the port `name`.
    pub(crate) fn of_chores(name: &str, bell: &Arc<Bell>) -> Self {
        Self::new(format!("{name}-chore"), CHORE_THREADS_MAX, Arc::clone(bell))
    }

    /// Hands `job` to a thread.
    ///
    /// # Errors
    ///
    /// The job, if there is no thread at all and none can be started: nothing is wrong with what it
    /// is about, and the caller does it.
    pub(crate) fn submit(&mut self, job: Job) -> Result<(), Job> {
        let mut jobs = lock(&self.shared.jobs);
        if jobs.idle <= jobs.queue.len() && self.threads.len() < self.threads_max {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name(self.name.clone());
            match builder.spawn(move || serve(&shared)) {
                Ok(thread) => self.threads.push(thread),
                Err(_) if self.threads.is_empty() => return Err(job),
                Err(_) => {}
            }
        }
        jobs.queue.push_back(job);
        drop(jobs);
        self.shared.arrived.notify_one();
        Ok(())
    }

    /// Takes all finished work.
    pub(crate) fn finished(&mut self) -> impl Iterator<Item = Done> + '_ {
        mem::swap(&mut self.spare, &mut *lock(&self.shared.done));
        self.spare.drain(..)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut jobs = lock(&self.shared.jobs);
        jobs.stop = true;
        jobs.queue.clear();
        drop(jobs);
        self.shared.arrived.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of a file thread was reported by its own message.
            let _ = thread.join();
        }
    }
}

fn serve(shared: &Shared) {
    let mut jobs = lock(&shared.jobs);
    while !jobs.stop {
        let Some(job) = jobs.queue.pop_front() else {
            jobs.idle += 1;
            jobs = shared.arrived.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            jobs.idle -= 1;
            continue;
        };
        drop(jobs);
        let done = job.run();
        lock(&shared.done).push(done);
        shared.bell.ring(Reason::Files);
        jobs = lock(&shared.jobs);
    }
}

/// What these locks guard is whole between any two statements, so poison says nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::FILE_THREADS_MAX;

    #[test]
    fn jobs_are_done_and_threads_are_few() {
        let bell = Bell::new().unwrap();
        let mut pool = Pool::new("test".into(), FILE_THREADS_MAX, Arc::clone(&bell));
        let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        for number in 0..100 {
            let work = FileWork::sync(Token(number));
            let job = Job::File { file: Arc::clone(&file), direct: false, work };
            assert!(pool.submit(job).is_ok());
        }
        let mut seen = Vec::new();
        while seen.len() < 100 {
            seen.extend(pool.finished().map(|done| done.into_event().0.0));
            std::thread::yield_now();
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<u64>>());
        assert!(bell.answer().has(Reason::Files));
        assert!(pool.threads.len() <= FILE_THREADS_MAX);
    }
}
