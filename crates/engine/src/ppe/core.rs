// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The core's side: takes orders, gives events, polls the kernel.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use clock::Instant;
use slab::Slab;

use super::Idle;
use super::Settings;
use super::message::Order;
use super::message::Report;
use crate::Chunk;
use crate::Event;
use crate::Port;
use crate::Socket;
use crate::Token;
use crate::Work;
use crate::receive::ReceiveBuffers;
use crate::ring::Consumer;
use crate::ring::Producer;
use crate::spin::Spin;
use crate::spin::Waited;
use crate::waker::Bell;
use crate::waker::Reason;

/// A port of the kernel, whose receive buffers can be lent to other threads.
pub(crate) trait Kernel: Port {
    /// The buffers that its chunks are in.
    fn buffers(&self) -> &Rc<ReceiveBuffers>;
}

/// A port and those that it is served to.
pub(super) struct Core<P> {
    port: P,
    /// By number; None: has left.
    guests: Vec<Option<Guest>>,
    /// Where buffers still come back from that were with guests when they left.
    stragglers: Vec<Consumer<u16>>,
    /// Work under way, by token of the port.
    works: Slab<Entry>,
    /// Each file, and how many guests know it.
    files: HashMap<u32, (Arc<OwnedFd>, usize)>,
    idle: Idle,
    spin: Spin,
    /// Since when there has been nothing to do.
    idle_since: Option<Instant>,
}

/// A host, seen from the core.
pub(super) struct Guest {
    orders: Consumer<Order>,
    events: Producer<Report>,
    returns: Consumer<u16>,
    /// By the host's number; None: given up.
    sockets: Vec<Option<GuestSocket>>,
    files: Vec<u32>,
    /// Work under way that owns buffers or connections.
    under_way: usize,
    leaving: bool,
    /// Events for which its ring has no room, in order: as many as it has work under way and
    /// receive buffers, for it is not received for while there are many.
    held: VecDeque<Report>,
    /// Its connections are not read, since too much is held.
    congested: bool,
    /// Dropped last: tells the host that its rings are closed.
    farewell: Farewell,
}

/// A socket of a guest.
#[derive(Clone, Copy)]
struct GuestSocket {
    /// The port's number.
    socket: Socket,
    /// Receiving under way, by token of the port: it ends without a word of its own when the
    /// connection is given back.
    receive: Option<usize>,
    /// The host does not want it to be read.
    paused: bool,
}

/// Whose the work is.
#[derive(Clone, Copy)]
struct Entry {
    guest: usize,
    token: Token,
    what: What,
}

/// What must be known of work at its end. Sockets are the host's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// Owns nothing, and nobody waits for its end.
    Accept,
    /// As `Accept`.
    Watch,
    Receive(Socket),
    Detach(Socket),
    Other,
}

impl What {
    /// A host that leaves waits for its end.
    fn is_owed(self) -> bool {
        !matches!(self, Self::Accept | Self::Watch)
    }
}

/// Rings when it is dropped, on a panic too: the host must not sleep for ever.
struct Farewell(Arc<Bell>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.ring(Reason::Ring);
    }
}

impl Guest {
    pub(super) const fn new(
        orders: Consumer<Order>,
        events: Producer<Report>,
        returns: Consumer<u16>,
        bell: Arc<Bell>,
    ) -> Self {
        Self {
            orders,
            events,
            returns,
            sockets: Vec::new(),
            files: Vec::new(),
            under_way: 0,
            leaving: false,
            held: VecDeque::new(),
            congested: false,
            farewell: Farewell(bell),
        }
    }

    /// The port's number of a socket; one that no port has if it is not there.
    fn socket(&self, socket: Socket) -> Socket {
        let known = self.sockets.get(socket.0 as usize).copied().flatten();
        known.map_or(NO_SOCKET, |place| place.socket)
    }

    fn place(&mut self, socket: Socket) -> Option<&mut GuestSocket> {
        self.sockets.get_mut(socket.0 as usize)?.as_mut()
    }

    fn add_socket(&mut self, socket: Socket, inner: Socket) {
        let index = socket.0 as usize;
        if self.sockets.len() <= index {
            self.sockets.resize(index + 1, None);
        }
        if let Some(place) = self.sockets.get_mut(index) {
            *place = Some(GuestSocket { socket: inner, receive: None, paused: false });
        }
    }

    fn mark_paused(&mut self, socket: Socket, paused: bool) {
        if let Some(place) = self.place(socket) {
            place.paused = paused;
        }
    }

    /// The socket is the port's no more; gives the receiving that was under way.
    fn remove_socket(&mut self, socket: Socket) -> Option<usize> {
        self.sockets.get_mut(socket.0 as usize)?.take()?.receive
    }
}

/// A number that ports do not reach.
const NO_SOCKET: Socket = Socket(u32::MAX);

/// Orders of one guest before the port and the others have their turn.
const ORDERS_PER_TURN: usize = 64;

/// Events before orders are looked at again, and before hosts are told.
const EVENTS_PER_TURN: usize = 64;

/// Events held for one guest before its connections are not read any more: what others receive into
/// must not lie with one that takes nothing.
const HELD_MAX: usize = 16;

/// A time that is over.
const PAST: Instant = Instant(0);

impl<P: Kernel> Core<P> {
    pub(super) fn new(port: P, guests: Vec<Guest>, settings: &Settings) -> Self {
        Self {
            port,
            guests: guests.into_iter().map(Some).collect(),
            stragglers: Vec::new(),
            works: Slab::new(),
            files: HashMap::new(),
            idle: settings.idle,
            spin: Spin::new(settings.port.spin_max),
            idle_since: None,
        }
    }

    /// Serves until the last guest has left.
    pub(super) fn serve(&mut self) {
        while self.guests.iter().any(Option::is_some) {
            let mut busy = false;
            for index in 0..self.guests.len() {
                busy |= self.take_orders(index);
                busy |= self.take_returns(index);
            }
            busy |= self.give_held();
            busy |= self.give_events();
            self.let_go();
            if busy || self.holds() {
                self.worked();
            } else {
                self.rest();
            }
        }
    }

    /// Hands over what is new to the kernel and looks for what has come.
    fn worked(&mut self) {
        if let Some(since) = self.idle_since.take() {
            self.spin.observe(since, self.port.now(), Waited::Spinning);
        }
        self.port.wait(Some(PAST));
        if self.holds() {
            // The host needs its CPU, which may be ours.
            std::thread::yield_now();
        }
    }

    /// Nothing to do: polls, and sleeps when that has not paid for long enough.
    fn rest(&mut self) {
        let now = self.port.now();
        let since = *self.idle_since.get_or_insert(now);
        let spun = now.since(since).as_nanos() >= u128::from(self.spin.budget_ns());
        if self.idle == Idle::Poll || !spun {
            std::hint::spin_loop();
            return self.port.wait(Some(PAST));
        }
        if self.spin.budget_ns() > 0 {
            self.spin.lose();
        }
        if self.fall_asleep() {
            self.port.wait(None);
        }
        for guest in self.guests.iter().flatten() {
            guest.orders.awake();
            guest.returns.awake();
        }
        self.spin.observe(since, self.port.now(), Waited::Sleeping);
        self.idle_since = None;
    }

    /// Asks all guests to wake us; false if one has something for us already.
    fn fall_asleep(&mut self) -> bool {
        // With a buffer left, the next bytes to arrive wake us.
        let starved = self.port.buffers().available() == 0;
        self.guests
            .iter_mut()
            .flatten()
            .all(|guest| guest.orders.sleep(1) && (!starved || guest.returns.sleep(1)))
    }

    fn take_orders(&mut self, index: usize) -> bool {
        for count in 0..ORDERS_PER_TURN {
            let Some(guest) = self.guests.get_mut(index).and_then(Option::as_mut) else {
                return count > 0;
            };
            let Some(order) = guest.orders.pop() else { return count > 0 };
            self.carry_out(index, order);
        }
        true
    }

    fn carry_out(&mut self, index: usize, order: Order) {
        let Some(guest) = self.guests.get_mut(index).and_then(Option::as_mut) else { return };
        match order {
            Order::Work(token, work) => self.submit(index, token, work),
            Order::AddSocket(socket, fd) => {
                let inner = self.port.add_socket(fd);
                guest.add_socket(socket, inner);
                if guest.congested {
                    self.port.pause(inner);
                }
            }
            Order::AddFile { id, file, direct } => {
                guest.files.push(id);
                self.add_file(id, file, direct);
            }
            Order::RemoveFile(id) => {
                guest.files.retain(|other| *other != id);
                self.forget_file(id);
            }
            Order::Pause(socket) => {
                self.port.pause(guest.socket(socket));
                guest.mark_paused(socket, true);
            }
            Order::Resume(socket) => {
                guest.mark_paused(socket, false);
                if !guest.congested {
                    self.port.resume(guest.socket(socket));
                }
            }
            Order::Shutdown(socket) => self.port.shutdown(guest.socket(socket)),
            Order::Close(socket) => {
                self.port.close(guest.socket(socket));
                guest.remove_socket(socket);
            }
        }
    }

    /// A guest tells of a file, which others may have told of before. If it is another one than
    /// theirs, then that was taken from all of them, and some have not got round to it.
    fn add_file(&mut self, id: u32, file: Arc<OwnedFd>, direct: bool) {
        if let Some((known, count)) = self.files.get_mut(&id) {
            *count += 1;
            if Arc::ptr_eq(known, &file) {
                return;
            }
            self.port.remove_file(id);
            *known = Arc::clone(&file);
        } else {
            self.files.insert(id, (Arc::clone(&file), 1));
        }
        let added = self.port.add_file(id, file, direct);
        debug_assert_eq!(added, Ok(()), "guests ask for numbers that are free");
    }

    /// A file that no guest knows any more is none of the port's either.
    fn forget_file(&mut self, id: u32) {
        if let Some((_, count)) = self.files.get_mut(&id) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.files.remove(&id);
                self.port.remove_file(id);
            }
        }
    }

    fn submit(&mut self, index: usize, token: Token, mut work: Work) {
        let Some(guest) = self.guests.get_mut(index).and_then(Option::as_mut) else { return };
        let mut what = What::Other;
        if let Work::Accept { socket }
        | Work::Receive { socket }
        | Work::Watch { socket }
        | Work::Send { socket, .. }
        | Work::Detach { socket } = &mut work
        {
            let hosts = std::mem::replace(socket, guest.socket(*socket));
            what = match &work {
                Work::Accept { .. } => What::Accept,
                Work::Watch { .. } => What::Watch,
                Work::Receive { .. } => What::Receive(hosts),
                Work::Detach { .. } => What::Detach(hosts),
                _ => What::Other,
            };
        }
        guest.under_way += usize::from(what.is_owed());
        let entry = self.works.insert(Entry { guest: index, token, what });
        if let What::Receive(socket) = what
            && let Some(place) = guest.place(socket)
        {
            place.receive.get_or_insert(entry);
        }
        self.port.submit(Token(entry as u64), work);
    }

    /// Takes back receive buffers that a guest is done with.
    fn take_returns(&mut self, index: usize) -> bool {
        let Some(guest) = self.guests.get_mut(index).and_then(Option::as_mut) else { return false };
        take_back(&self.port, &mut guest.returns)
    }

    /// Hands events to their guests; false if there were none.
    fn give_events(&mut self) -> bool {
        let mut any = false;
        for _ in 0..EVENTS_PER_TURN {
            let Some((token, event)) = self.port.next_event() else { break };
            if let Some((index, report)) = self.address(token, event) {
                self.give(index, report);
            }
            any = true;
        }
        if any {
            self.ring();
        }
        any
    }

    /// Hands over what rings had no room for; false if nothing went.
    fn give_held(&mut self) -> bool {
        let mut any = false;
        for guest in self.guests.iter_mut().flatten() {
            while let Some(report) = guest.held.pop_front() {
                if let Err(report) = guest.events.push(report) {
                    guest.held.push_front(report);
                    break;
                }
                any = true;
            }
            if guest.congested && guest.held.is_empty() {
                guest.congested = false;
                for place in guest.sockets.iter().flatten().filter(|place| !place.paused) {
                    self.port.resume(place.socket);
                }
            }
        }
        if any {
            self.ring();
        }
        any
    }

    /// True if a guest's ring is full.
    fn holds(&self) -> bool {
        self.guests.iter().flatten().any(|guest| !guest.held.is_empty())
    }

    /// Wakes those who want to know.
    fn ring(&self) {
        for guest in self.guests.iter().flatten().filter(|guest| guest.events.must_ring()) {
            guest.farewell.0.ring(Reason::Ring);
        }
    }

    /// Whom an event is for, under which token.
    fn address(&mut self, token: Token, event: Event) -> Option<(usize, Report)> {
        if matches!(event, Event::Woken) {
            return None;
        }
        let index = usize::try_from(token.0).ok()?;
        let Entry { guest: number, token, what } = *self.works.get(index)?;
        if is_last(&event) {
            self.works.remove(index);
            self.ended(
                index,
                number,
                what,
                matches!(event, Event::Detached { connection: Some(_) }),
            );
        }
        Some((number, (token, event.map(Chunk::lend))))
    }

    /// Work of a guest has ended; `gone`: its socket is no longer the port's.
    fn ended(&mut self, index: usize, number: usize, what: What, gone: bool) {
        let Some(guest) = self.guests.get_mut(number).and_then(Option::as_mut) else { return };
        guest.under_way -= usize::from(what.is_owed());
        match what {
            What::Receive(socket) => {
                if let Some(place) = guest.place(socket) {
                    place.receive.take_if(|receive| *receive == index);
                }
            }
            What::Detach(socket) if gone => {
                if let Some(receive) = guest.remove_socket(socket) {
                    self.works.try_remove(receive);
                    guest.under_way -= 1;
                }
            }
            _ => {}
        }
    }

    /// Puts a report into its guest's ring, or behind those that are held for it. Others go on: a
    /// host that stands still must not stop them.
    fn give(&mut self, index: usize, report: Report) {
        let Some(guest) = self.guests.get_mut(index).and_then(Option::as_mut) else { return };
        let report = match guest.held.is_empty() {
            true => guest.events.push(report).err(),
            false => Some(report),
        };
        let Some(report) = report else { return };
        guest.held.push_back(report);
        if guest.held.len() >= HELD_MAX && !guest.congested {
            guest.congested = true;
            for place in guest.sockets.iter().flatten() {
                self.port.pause(place.socket);
            }
        }
    }

    /// Lets guests go whose hosts have left, once nothing of theirs is under way.
    fn let_go(&mut self) {
        for index in 0..self.guests.len() {
            let Some(guest) = self.guests.get_mut(index).and_then(Option::as_mut) else { continue };
            // In this order: nothing is added once it is closed.
            if guest.orders.is_closed() && guest.orders.is_empty() && !guest.leaving {
                guest.leaving = true;
                for place in guest.sockets.drain(..).flatten() {
                    self.port.close(place.socket);
                }
            }
            if guest.leaving && guest.under_way == 0 && guest.held.is_empty() {
                let gone = self.guests.get_mut(index).and_then(Option::take);
                if let Some(Guest { files, returns, .. }) = gone {
                    self.stragglers.push(returns);
                    files.into_iter().for_each(|id| self.forget_file(id));
                }
            }
        }
        let port = &self.port;
        self.stragglers.retain_mut(|returns| {
            // In this order: nothing is added once it is closed.
            let closed = returns.is_closed();
            take_back(port, returns);
            !closed
        });
    }
}

/// Gives what has come back to the port's buffers; false if there was nothing.
fn take_back<P: Kernel>(port: &P, returns: &mut Consumer<u16>) -> bool {
    let mut any = false;
    while let Some(id) = returns.pop() {
        port.buffers().give_back(id);
        any = true;
    }
    any
}

/// Whether no other event of the same work follows.
const fn is_last<B>(event: &Event<B>) -> bool {
    match event {
        Event::Accepted { .. }
        | Event::Received { .. }
        | Event::Landed { .. }
        | Event::Ready
        | Event::Woken => false,
        Event::AcceptFailed { errno } => matches!(
            *errno,
            libc::ECANCELED | libc::EBADF | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOTSOCK
        ),
        _ => true,
    }
}
