// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's side: a port whose work another core does.

use std::collections::HashSet;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clock::Instant;
use slab::Slab;

use super::Seat;
use super::Thread;
use super::message::Order;
use super::message::Report;
use crate::Event;
use crate::FileRefused;
use crate::Port;
use crate::Socket;
use crate::Token;
use crate::Waker;
use crate::Work;
use crate::limits::FILES_MAX;
use crate::monotonic;
use crate::receive::Lender;
use crate::ring::Consumer;
use crate::ring::Producer;
use crate::spin::Spin;
use crate::spin::Waited;
use crate::waker::Bell;
use crate::waker::Reason;

/// A port that is served by a polling core.
///
/// Dropping it ends its work and waits until the core has given everything back; the last one to
/// go ends the core.
pub struct Ppe {
    /// None only while being dropped.
    orders: Option<Producer<Order>>,
    /// Orders for which there was no room, in their order.
    overflow: VecDeque<Order>,
    events: Consumer<Report>,
    /// Events of our own.
    ready: VecDeque<(Token, Event)>,
    lender: Rc<Lender>,
    /// Numbers in use.
    sockets: Slab<()>,
    /// Sockets that are to be given back, and under which token.
    detaching: Vec<(Token, Socket)>,
    /// Numbers of files that the core was told of.
    files: HashSet<u32>,
    bell: Arc<Bell>,
    core: Arc<Thread>,
    spin: Spin,
    name: &'static str,
}

/// Looks at the ring between two looks at the clock.
const SPINS_PER_LOOK: u32 = 8;

/// How long a host that leaves sleeps before it looks again, should nobody wake it.
const FAREWELL_LOOK: Duration = Duration::from_millis(10);

impl From<Seat> for Ppe {
    /// The port, for the thread that is going to use it.
    fn from(seat: Seat) -> Self {
        Self {
            orders: Some(seat.orders),
            overflow: VecDeque::new(),
            events: seat.events,
            ready: VecDeque::new(),
            lender: Rc::new(seat.lender),
            sockets: Slab::new(),
            detaching: Vec::new(),
            files: HashSet::new(),
            bell: seat.bell,
            core: seat.core,
            spin: Spin::new(seat.spin_max),
            name: seat.name,
        }
    }
}

impl Ppe {
    fn order(&mut self, order: Order) {
        let Some(orders) = &mut self.orders else { return };
        if !self.overflow.is_empty() {
            return self.overflow.push_back(order);
        }
        if let Err(order) = orders.push(order) {
            self.overflow.push_back(order);
        }
    }

    /// Posts what found no room, and wakes the core if it sleeps and has got something to do.
    fn post(&mut self) {
        loop {
            while let Some(order) = self.overflow.pop_front() {
                if let Some(Err(order)) = self.orders.as_mut().map(|orders| orders.push(order)) {
                    self.overflow.push_front(order);
                    break;
                }
            }
            self.ring_core();
            if self.overflow.is_empty() || self.events.is_closed() {
                return;
            }
            // The core takes orders whatever else it does; it may need our CPU for that.
            std::thread::yield_now();
        }
    }

    /// Wakes the core if it sleeps and has got what it waits for.
    fn ring_core(&self) {
        let ordered = self.orders.as_ref().is_some_and(Producer::must_ring);
        // Both are asked, since each is told but once.
        if self.lender.must_ring() | ordered {
            self.core.waker.wake();
        }
    }

    fn answer_bell(&mut self) {
        if self.bell.answer().has(Reason::Wake) {
            self.ready.push_back((Token(0), Event::Woken));
        }
    }

    /// True if `next_event` has one.
    fn has_event(&mut self) -> bool {
        !self.ready.is_empty() || !self.events.is_empty()
    }

    /// Looks at the ring without sleeping; true if something came.
    fn spin(&mut self, from: Instant, deadline: Option<Instant>) -> bool {
        let budget = self.spin.budget_ns();
        if budget == 0 {
            return false;
        }
        let whole = from + Duration::from_nanos(budget);
        let end = deadline.map_or(whole, |deadline| whole.min(deadline));
        loop {
            for _ in 0..SPINS_PER_LOOK {
                if !self.events.is_empty() || self.bell.is_rung() {
                    self.spin.observe(from, monotonic(), Waited::Spinning);
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

    /// Sleeps until there are `count` events, somebody calls our waker, or `deadline`.
    fn sleep(&mut self, from: Instant, deadline: Option<Instant>, count: usize) {
        if !self.bell.fall_asleep() {
            return;
        }
        if self.events.sleep(count) {
            let timeout = deadline.map(|deadline| deadline.since(monotonic()));
            self.bell.sleep(timeout);
            self.events.awake();
        }
        self.bell.wake_up();
        self.spin.observe(from, monotonic(), Waited::Sleeping);
        assert!(!self.events.is_closed(), "the polling core has stopped");
    }

    /// An event of the core as one of ours.
    fn arrived(&mut self, (token, event): Report) -> (Token, Event) {
        if let Event::Detached { connection } = &event
            && let Some(at) = self.detaching.iter().position(|(of, _)| *of == token)
        {
            let (_, socket) = self.detaching.swap_remove(at);
            if connection.is_some() {
                self.sockets.try_remove(socket.0 as usize);
            }
        }
        (token, event.map(|lent| self.lender.chunk(lent)))
    }
}

impl Port for Ppe {
    fn add_socket(&mut self, fd: OwnedFd) -> Socket {
        let number = self.sockets.insert(());
        let socket = Socket(u32::try_from(number).expect("descriptors are fewer than 2^32"));
        self.order(Order::AddSocket(socket, fd));
        socket
    }

    fn add_file(&mut self, id: u32, file: Arc<OwnedFd>, direct: bool) -> Result<(), FileRefused> {
        if id >= FILES_MAX {
            return Err(FileRefused::TooMany(id));
        }
        if !self.files.insert(id) {
            return Err(FileRefused::Taken(id));
        }
        self.order(Order::AddFile { id, file, direct });
        Ok(())
    }

    fn remove_file(&mut self, id: u32) {
        if self.files.remove(&id) {
            self.order(Order::RemoveFile(id));
        }
    }

    fn submit(&mut self, token: Token, work: Work) {
        if let Work::Detach { socket } = &work {
            self.detaching.push((token, *socket));
        }
        self.order(Order::Work(token, work));
    }

    fn pause(&mut self, socket: Socket) {
        self.order(Order::Pause(socket));
    }

    fn resume(&mut self, socket: Socket) {
        self.order(Order::Resume(socket));
    }

    fn shutdown(&mut self, socket: Socket) {
        self.order(Order::Shutdown(socket));
        self.ring_core();
    }

    fn close(&mut self, socket: Socket) {
        self.detaching.retain(|(_, other)| *other != socket);
        // Orders come in turn: whoever gets the number next is meant by those that follow.
        if self.sockets.try_remove(socket.0 as usize).is_some() {
            self.order(Order::Close(socket));
            // The caller may not wait any more.
            self.ring_core();
        }
    }

    fn next_event(&mut self) -> Option<(Token, Event)> {
        if let Some(event) = self.ready.pop_front() {
            return Some(event);
        }
        let report = self.events.pop()?;
        Some(self.arrived(report))
    }

    fn wait(&mut self, deadline: Option<Instant>) {
        self.post();
        self.answer_bell();
        if self.has_event() {
            return;
        }
        let from = monotonic();
        loop {
            if deadline.is_some_and(|deadline| monotonic() >= deadline) {
                return;
            }
            if !self.spin(from, deadline) {
                self.sleep(from, deadline, 1);
            }
            self.answer_bell();
            if self.has_event() {
                return;
            }
        }
    }

    fn wait_n(&mut self, count: usize, deadline: Instant) {
        self.post();
        self.answer_bell();
        if self.has_event() {
            return;
        }
        let from = monotonic();
        if from < deadline {
            self.sleep(from, Some(deadline), count);
            self.answer_bell();
        }
    }

    fn now(&self) -> Instant {
        monotonic()
    }

    fn waker(&self) -> Waker {
        self.bell.waker()
    }

    fn name(&self) -> &'static str {
        self.name
    }
}

impl Drop for Ppe {
    fn drop(&mut self) {
        self.post();
        // The core sees that no more will come, and ends what is under way.
        self.orders = None;
        loop {
            // Nothing is added once it is closed.
            let closed = self.events.is_closed();
            self.core.waker.wake();
            while let Some(report) = self.events.pop() {
                drop(self.arrived(report));
            }
            if closed {
                return;
            }
            if self.bell.fall_asleep() {
                if self.events.sleep(1) {
                    self.bell.sleep(Some(FAREWELL_LOOK));
                    self.events.awake();
                }
                self.bell.wake_up();
            }
            self.bell.answer();
        }
    }
}

impl fmt::Debug for Ppe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ppe").field("sockets", &self.sockets.len()).finish_non_exhaustive()
    }
}
