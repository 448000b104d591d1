// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A polling core: a thread that owns a port of the kernel and serves it to other threads over
//! one-way rings (a "packet processing engine", PPE).
//!
//! ```text
//!  host: pump             core: "ppe-0"
//!  submit, close ..  --orders-->   epoll or io_uring: accepts, receives, sends, files
//!  next_event        <--events--
//!  drop of a Chunk   --returns-->  receive buffers
//! ```
//!
//! The host has a [`Ppe`], a [`Port`](crate::Port) like any other. Buffers change their owner with
//! the message that they travel in, and nothing is copied on the way: what is to be sent goes to
//! the core in its gather list, what was received comes as a view of the core's receive buffers.
//! Receives are always posted: the core asks for whatever arrives before anybody waits for it.
//!
//! While both sides are awake they make no system call for each other and share no lock. A side
//! that finds nothing for a while sleeps, unless it is told to poll for ever, and is rung for.
//! One core serves one host or several; each host has rings of its own.
//!
//! Sockets have the host's numbers, and orders are carried out in turn, so a number can be used
//! again at once. The core takes orders even when a ring of events is full, so neither side waits
//! for the other in a circle. A port that is dropped waits until the core has ended its work and
//! given all back; the last one ends the thread.

mod core;
mod host;
mod message;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Choice;
use crate::Config;
use crate::Waker;
use crate::affinity;
use crate::epoll::Epoll;
use crate::limits::EVENTS;
use crate::limits::ORDERS;
use crate::memory::Mapping;
use crate::receive::Lender;
use crate::ring::Consumer;
use crate::ring::Producer;
use crate::ring::ring;
use crate::uring::Uring;
use crate::waker::Bell;

pub use host::Ppe;

use self::core::Core;
use self::core::Guest;
pub(crate) use self::core::Kernel;
use message::Order;
use message::Report;

/// How a polling core is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What it runs on.
    pub engine: Choice,
    /// Receive buffers, name of the thread, and how long each side polls before it sleeps.
    pub port: Config,
    /// The CPU that it runs on; None: as the scheduler likes.
    pub cpu: Option<usize>,
    /// What it does with nothing to do.
    pub idle: Idle,
}

/// What a core does with nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // there is no third way
pub enum Idle {
    /// Sleeps after it has polled for as long as pays.
    #[default]
    Sleep,
    /// Polls for ever, and uses all of its CPU.
    Poll,
}

/// Starts a core that serves `hosts` threads, each of which turns its seat into a [`Ppe`].
///
/// The core ends when the last of them is dropped.
///
/// # Errors
/// Those of the engine, see [`Uring::new`] and [`Epoll::new`]; or there is no thread, no
/// descriptor or no memory. A core that cannot be pinned runs where the scheduler likes.
pub fn start(settings: &Settings, hosts: usize) -> io::Result<Vec<Seat>> {
    let mut guests = Vec::new();
    let mut places = Vec::new();
    for _ in 0..hosts {
        let (orders_to, orders) = ring(ORDERS);
        let (events_to, events) = ring(EVENTS);
        let (returns_to, returns) = ring(usize::from(settings.port.receive_buffers));
        let bell = Bell::new()?;
        guests.push(Guest::new(orders, events_to, returns, Arc::clone(&bell)));
        places.push((orders_to, events, returns_to, bell));
    }
    let (tell, told) = mpsc::channel();
    let settings = Settings { engine: crate::choose(settings.engine), ..settings.clone() };
    let of_core = settings.clone();
    let builder = thread::Builder::new().name(settings.port.name.clone());
    let thread = builder.spawn(move || run(&of_core, guests, &tell))?;
    let started = told.recv().unwrap_or_else(|_| Err(io::Error::other("its thread stopped")));
    let Started { waker, memory } = match started {
        Ok(started) => started,
        Err(error) => {
            let _ = thread.join();
            return Err(error);
        }
    };
    let thread = Arc::new(Thread { waker, handle: Mutex::new(Some(thread)) });
    let seat = |(orders, events, returns, bell)| Seat {
        orders,
        events,
        lender: Lender::new(Arc::clone(&memory), settings.port.receive_buffer_bytes, returns),
        bell,
        core: Arc::clone(&thread),
        spin_max: settings.port.spin_max,
        name: match settings.engine {
            Choice::Epoll => "amp over epoll",
            _ => "amp over uring",
        },
    };
    Ok(places.into_iter().map(seat).collect())
}

/// A host's place at a core, for the thread that makes a [`Ppe`] of it.
pub struct Seat {
    orders: Producer<Order>,
    events: Consumer<Report>,
    lender: Lender,
    bell: Arc<Bell>,
    core: Arc<Thread>,
    spin_max: Duration,
    name: &'static str,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The core's thread; joined by the last host.
#[derive(Debug)]
struct Thread {
    waker: Waker,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        // Its last guest may have left without a word.
        self.waker.wake();
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic was reported when it happened; the hosts have noticed.
        let _ = handle.map(JoinHandle::join);
    }
}

/// What hosts need to know of a core.
struct Started {
    waker: Waker,
    memory: Arc<Mapping>,
}

/// The core's thread.
fn run(settings: &Settings, guests: Vec<Guest>, tell: &mpsc::Sender<io::Result<Started>>) {
    if let Some(cpu) = settings.cpu {
        // Slower at worst.
        let _ = affinity::pin(cpu);
    }
    // The core itself decides how long to poll.
    let config = Config { spin_max: Duration::ZERO, ..settings.port.clone() };
    match settings.engine {
        Choice::Epoll => serve(Epoll::new(&config), settings, guests, tell),
        _ => serve(Uring::new(&config), settings, guests, tell),
    }
}

fn serve<P: Kernel>(
    port: io::Result<P>,
    settings: &Settings,
    guests: Vec<Guest>,
    tell: &mpsc::Sender<io::Result<Started>>,
) {
    match port {
        Ok(port) => {
            let started = Started { waker: port.waker(), memory: port.buffers().memory() };
            if tell.send(Ok(started)).is_ok() {
                Core::new(port, guests, settings).serve();
            }
        }
        // Who started us waits for this.
        Err(error) => drop(tell.send(Err(error))),
    }
}
