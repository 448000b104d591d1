// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clients of the control socket: one thread serves all of them, and waits for none.
//!
//! ```text
//!            line, end             order            carried out
//! Asking ----------------> look -----------> Waiting ----------> Answered --taken--> gone
//!    | deadline               \ question                            ^  | deadline
//!    v                         `------------------------------------'  v
//!   gone                                                              gone
//! ```
//!
//! A question is answered at once. An order may take long, so other threads carry orders out: those
//! that are about one LUN one after the other, and so those that are about none; who has an order
//! for another LUN waits for neither, nor does who adds one, whose store may take long to open. An
//! order whose client is gone when its turn comes is dropped: whoever interrupts a command does not
//! want it any more. Who carries one out can ask whether that is so, and the log tells what became
//! of one whose client has gone meanwhile.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::io;
use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::time::Instant;

use control::admin::REQUEST_LEN_MAX;
use control::admin::Reply;
use control::admin::Request;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;

/// Clients at a time. With one more the oldest of those goes that have not asked, or do not read:
/// whoever means it asks at once.
const CLIENTS_MAX: usize = 64;

/// Orders that are carried out or wait for their turn: they are people's, one at a time.
const ORDERS_MAX: usize = 16;

/// How long a whole request may take, and how long the taking of an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long those are waited for at the end who have come in and said nothing yet: whoever comes
/// says what he wants at once.
const LAST_REQUESTS: Duration = Duration::from_millis(100);

/// How long those are waited for at the end who carry out orders.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Bytes of answers that were not taken yet, in all: the longest one that a client takes. Beyond it
/// the oldest of them go.
const ANSWERS_BYTES_MAX: usize = 64 << 20;

/// Connections that are accepted before others are looked after again.
const ACCEPTS_MAX: usize = 64;

/// After a connection that could not be accepted: without descriptors the next attempt would fail
/// at once, too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What is said to who has ordered nothing that is carried out.
pub(crate) const TAKEN_OVER: &str = "another process takes over; try: again in a moment";

const _: () = assert!(ORDERS_MAX + 1 < CLIENTS_MAX);

/// What is asked, and ordered.
pub(crate) trait Questions: Send + 'static {
    /// The answer to a question; None: it is an order.
    fn answer(&self, request: &Request) -> Option<Reply>;

    /// Whether somebody else speaks with the client from now on, at this socket.
    fn converse(&self, request: &Request, stream: &UnixStream) -> bool {
        let _ = (request, stream);
        false
    }
}

/// Ends the serving of clients.
#[derive(Debug)]
pub(crate) struct Stopper {
    is_over: Arc<AtomicBool>,
    waker: UnixStream,
}

impl Stopper {
    pub(crate) fn stop(self) {
        self.is_over.store(true, Ordering::SeqCst);
        // If there is no room, they are awake already.
        let _ = (&self.waker).write(&[0]);
    }
}

/// What a client wants done.
#[derive(Debug)]
struct Order {
    client: u64,
    /// By which its client waits for the answer.
    stream: Weak<UnixStream>,
    request: Request,
}

impl Order {
    /// Whether somebody still waits for it.
    fn is_wanted(&self) -> bool {
        let Some(stream) = self.stream.upgrade() else { return false };
        // Who has said all, and listens, has not hung up.
        let mut fds = [PollFd::new(&stream, PollFlags::empty())];
        let known = rustix::event::poll(&mut fds, Some(&Timespec::default()));
        let gone = PollFlags::HUP | PollFlags::ERR;
        known.is_err() || !fds.iter().any(|fd| fd.revents().intersects(gone))
    }
}

/// Orders that are to be carried out.
#[derive(Debug)]
pub(crate) struct Orders {
    orders: Receiver<Order>,
    open: Arc<AtomicUsize>,
    done: Sender<(u64, Reply)>,
    waker: UnixStream,
}

/// What an order is about: others about the same wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Lun(Option<String>, u16),
    /// One that is to come, by who asks for it.
    New(u64),
    All,
}

impl Subject {
    fn of(client: u64, request: &Request) -> Self {
        match request {
            Request::ResizeLun { target, lun, .. }
            | Request::RemoveLun { target, lun, .. }
            | Request::SnapshotLun { target, lun, .. } => Self::Lun(target.clone(), *lun),
            Request::AddLun { .. } => Self::New(client),
            _ => Self::All,
        }
    }
}

/// What waits behind the order that is carried out, by what they are about.
type Lines = Mutex<HashMap<Subject, VecDeque<Order>>>;

impl Orders {
    /// Carries out what comes, until there is nobody any more whom it could come from.
    pub(crate) fn run(self, carry_out: impl Fn(&Request, &dyn Fn() -> bool) -> Reply + Sync) {
        let Self { orders, open, done, waker } = self;
        let lines = Lines::default();
        let carry_out = |order: &Order| {
            let reply = if order.is_wanted() {
                let reply = carry_out(&order.request, &|| order.is_wanted());
                if !order.is_wanted() {
                    tell_log(&order.request, &reply);
                }
                reply
            } else {
                let order = words(&order.request);
                tracing::info!(order, "dropped an order before its turn: its client is gone");
                Reply::Error { message: "the order was dropped: its client is gone".to_owned() }
            };
            open.fetch_sub(1, Ordering::SeqCst);
            // Without clients nobody wants to know. If there is no room, they are awake already.
            let _ = done.send((order.client, reply));
            let _ = (&waker).write(&[0]);
        };
        std::thread::scope(|scope| {
            for order in orders {
                let subject = Subject::of(order.client, &order.request);
                match lines_of(&lines).entry(subject.clone()) {
                    Entry::Occupied(mut line) => {
                        line.get_mut().push_back(order);
                        continue;
                    }
                    Entry::Vacant(place) => drop(place.insert(VecDeque::from([order]))),
                }
                let (lines, carry_out) = (&lines, &carry_out);
                let serve = move || {
                    while let Some(order) = next(lines, &subject) {
                        carry_out(&order);
                    }
                };
                let thread = std::thread::Builder::new().name("order".into());
                if let Err(error) = thread.spawn_scoped(scope, serve.clone()) {
                    tracing::warn!("no thread for an order, others wait for it: {error}");
                    serve();
                }
            }
        });
    }
}

/// What became of an order whose client has gone meanwhile.
fn tell_log(request: &Request, reply: &Reply) {
    let order = words(request);
    match reply {
        Reply::Error { message } => {
            tracing::warn!(order, "an order whose client is gone was not done: {message}");
        }
        _ => tracing::warn!(order, "an order whose client is gone is done: it had begun before"),
    }
}

/// An order as it is given.
fn words(request: &Request) -> String {
    match request {
        Request::AddLun { lun, .. } => format!("lun add {}", lun.store),
        Request::RemoveLun { lun, .. } => format!("lun remove {lun}"),
        Request::ResizeLun { lun, bytes, .. } => format!("lun resize {lun} {bytes}"),
        Request::SnapshotLun { lun, path, name, .. } => {
            format!("lun snapshot {lun} {}", name.as_deref().unwrap_or(path))
        }
        Request::RescanLuns => "lun rescan".to_owned(),
        Request::Detach { .. } => "detach".to_owned(),
        _ => "another one".to_owned(),
    }
}

/// The order whose turn it is; None: no other one waits, and the next one finds nobody.
fn next(lines: &Lines, subject: &Subject) -> Option<Order> {
    let mut lines = lines_of(lines);
    let order = lines.get_mut(subject)?.pop_front();
    if order.is_none() {
        lines.remove(subject);
    }
    order
}

fn lines_of(lines: &Lines) -> MutexGuard<'_, HashMap<Subject, VecDeque<Order>>> {
    // What the lock guards is whole between any two statements.
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where orders go.
#[derive(Debug)]
struct Sending {
    orders: Sender<Order>,
    /// Orders that are not done.
    open: Arc<AtomicUsize>,
}

impl Sending {
    /// False: there are too many already, or nobody carries them out.
    fn send(&self, order: Order) -> bool {
        if self.open.fetch_add(1, Ordering::SeqCst) < ORDERS_MAX && self.orders.send(order).is_ok()
        {
            return true;
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
        false
    }
}

/// All clients.
#[derive(Debug)]
pub(crate) struct Clients<Q> {
    listener: UnixListener,
    questions: Q,
    /// The oldest first.
    clients: Vec<Client>,
    next: u64,
    orders: Sending,
    done: Receiver<(u64, Reply)>,
    woken: UnixStream,
    is_over: Arc<AtomicBool>,
    /// No connections are accepted before.
    accepts_at: Option<Instant>,
}

impl<Q: Questions> Clients<Q> {
    /// Serves those who come to `listener`.
    pub(crate) fn new(listener: UnixListener, questions: Q) -> io::Result<(Self, Orders)> {
        listener.set_nonblocking(true)?;
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let (orders, ordered) = mpsc::channel();
        let open = Arc::new(AtomicUsize::new(0));
        let (sender, done) = mpsc::channel();
        let clients = Self {
            listener,
            questions,
            clients: Vec::new(),
            next: 0,
            orders: Sending { orders, open: Arc::clone(&open) },
            done,
            woken,
            is_over: Arc::default(),
            accepts_at: None,
        };
        Ok((clients, Orders { orders: ordered, open, done: sender, waker }))
    }

    /// Ends [`Clients::turn`].
    pub(crate) fn stopper(&self, orders: &Orders) -> io::Result<Stopper> {
        let (is_over, waker) = (Arc::clone(&self.is_over), orders.waker.try_clone()?);
        Ok(Stopper { is_over, waker })
    }

    /// Nobody is here.
    pub(crate) const fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Waits until there is something to do, and does it. False: somebody has stopped it.
    pub(crate) fn turn(&mut self) -> bool {
        self.wait();
        if self.is_over.load(Ordering::SeqCst) {
            self.end();
            return false;
        }
        let now = Instant::now();
        self.take_replies(now);
        for client in &mut self.clients {
            client.go_on(now, &self.questions, &self.orders);
        }
        self.accept(now);
        self.clients.retain(|client| client.is_there(now));
        self.bound_answers();
        true
    }

    /// Who is here is told what has become of his order: nothing, where nobody carries out any more
    /// by now. Who has not come in yet is for the next one to listen.
    fn end(&mut self) {
        let now = Instant::now();
        while let Some(rest) = LAST_REQUESTS.checked_sub(now.elapsed()) {
            for client in &mut self.clients {
                client.go_on(now, &self.questions, &self.orders);
            }
            let asking = self.clients.iter().filter(|one| matches!(one.state, State::Asking(..)));
            let mut fds: Vec<_> =
                asking.map(|client| PollFd::new(&*client.stream, PollFlags::IN)).collect();
            let pause = Timespec::try_from(rest).ok();
            if fds.is_empty() || rustix::event::poll(&mut fds, pause.as_ref()).is_err() {
                break;
            }
        }
        // Nothing of what they want has begun.
        for client in &mut self.clients {
            if matches!(client.state, State::Asking(..)) {
                client.refuse(TAKEN_OVER.to_owned(), now);
            }
        }
        let is_waiting = |client: &Client| matches!(client.state, State::Waiting);
        while self.clients.iter().any(is_waiting) {
            let most = LAST_REQUESTS + LAST_WORDS;
            let Some(rest) = most.checked_sub(now.elapsed()) else { return };
            let Ok((number, reply)) = self.done.recv_timeout(rest) else { return };
            if let Some(client) = self.clients.iter_mut().find(|client| client.number == number) {
                client.tell(&reply, now);
            }
        }
    }

    /// Until somebody has something for us, or takes something, or is too late.
    fn wait(&mut self) {
        let now = Instant::now();
        self.accepts_at.take_if(|at| *at <= now);
        let mut until = self.accepts_at;
        let mut fds = vec![PollFd::new(&self.woken, PollFlags::IN)];
        if self.accepts_at.is_none() {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        for client in &self.clients {
            let Some((flags, deadline)) = client.awaits() else { continue };
            until = Some(until.map_or(deadline, |until| until.min(deadline)));
            fds.push(PollFd::new(&*client.stream, flags));
        }
        // A moment more, so that the deadline has passed then.
        let pause = until.map(|at| at.saturating_duration_since(now) + Duration::from_millis(1));
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        if let Err(error) = rustix::event::poll(&mut fds, pause.as_ref())
            && error != rustix::io::Errno::INTR
        {
            tracing::debug!("cannot wait for control connections: {error}");
            std::thread::sleep(ACCEPT_PAUSE);
        }
    }

    fn take_replies(&mut self, now: Instant) {
        let mut bytes = [0; 64];
        while matches!(self.woken.read(&mut bytes), Ok(1..)) {}
        while let Ok((number, reply)) = self.done.try_recv() {
            if let Some(client) = self.clients.iter_mut().find(|client| client.number == number) {
                client.tell(&reply, now);
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_MAX {
            if self.accepts_at.is_some() {
                return;
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::debug!("no control connection: {error}");
                    self.accepts_at = Some(now + ACCEPT_PAUSE);
                    return;
                }
            };
            if !is_for(&stream) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.next += 1;
            let mut client = Client::new(self.next, stream, now);
            // What it asks is there as a rule, so it has its turn before it can have to go.
            client.go_on(now, &self.questions, &self.orders);
            if client.is_there(now) {
                self.make_room();
                self.clients.push(client);
            }
        }
    }

    fn make_room(&mut self) {
        if self.clients.len() >= CLIENTS_MAX
            && let Some(oldest) = self.clients.iter().position(|one| one.awaits().is_some())
        {
            tracing::debug!("closed a control connection: too many that ask nothing");
            self.clients.remove(oldest);
        }
    }

    fn bound_answers(&mut self) {
        let mut bytes: usize = self.clients.iter().map(Client::answer_len).sum();
        let mut answered = self.clients.iter().filter(|client| client.answer_len() > 0).count();
        self.clients.retain(|client| {
            let length = client.answer_len();
            // The newest may be as long as it likes.
            let stays = length == 0 || bytes <= ANSWERS_BYTES_MAX || answered == 1;
            if !stays {
                bytes -= length;
                answered -= 1;
            }
            stays
        });
    }
}

/// Whether the peer may ask us: root, or who we are.
fn is_for(stream: &UnixStream) -> bool {
    let Ok(peer) = rustix::net::sockopt::socket_peercred(stream) else { return false };
    let may = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
    if !may {
        tracing::debug!("refused user {} on the control socket", peer.uid.as_raw());
    }
    may
}

#[derive(Debug)]
struct Client {
    number: u64,
    stream: Arc<UnixStream>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It has said so much, and has so long for the rest.
    Asking(Vec<u8>, Instant),
    /// Its order is being carried out.
    Waiting,
    /// It has not taken this of its answer yet, and has so long for it.
    Answered(Vec<u8>, usize, Instant),
    Gone,
}

impl Client {
    fn new(number: u64, stream: UnixStream, now: Instant) -> Self {
        let stream = Arc::new(stream);
        Self { number, stream, state: State::Asking(Vec::new(), now + TIMEOUT) }
    }

    /// What it has to do next, and until when; None: it is our turn.
    fn awaits(&self) -> Option<(PollFlags, Instant)> {
        match &self.state {
            State::Asking(_, deadline) => Some((PollFlags::IN, *deadline)),
            State::Answered(_, _, deadline) => Some((PollFlags::OUT, *deadline)),
            State::Waiting | State::Gone => None,
        }
    }

    fn is_there(&self, now: Instant) -> bool {
        match self.state {
            State::Asking(_, deadline) | State::Answered(_, _, deadline) => now < deadline,
            State::Waiting => true,
            State::Gone => false,
        }
    }

    fn answer_len(&self) -> usize {
        match &self.state {
            State::Answered(text, ..) => text.len(),
            _ => 0,
        }
    }

    fn go_on(&mut self, now: Instant, questions: &impl Questions, orders: &Sending) {
        match self.state {
            State::Asking(..) => self.listen(now, questions, orders),
            State::Answered(..) => self.send(),
            State::Waiting | State::Gone => {}
        }
    }

    /// Takes what is there of its request, without waiting.
    fn listen(&mut self, now: Instant, questions: &impl Questions, orders: &Sending) {
        let State::Asking(line, _) = &mut self.state else { return };
        loop {
            let mut bytes = [0; 4096];
            let room = bytes.len().min(REQUEST_LEN_MAX.saturating_sub(line.len()));
            let Some(part) = bytes.get_mut(..room) else { return };
            match (&*self.stream).read(part) {
                // It has said all, or more than any request.
                Ok(0) => break,
                Ok(length) => line.extend(bytes.iter().take(length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.state = State::Gone,
            }
            if line.contains(&b'\n') {
                break;
            }
        }
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let request = match Request::of_line(line) {
            Ok(request) => request,
            Err(error) => return self.refuse(format!("request not understood: {error}"), now),
        };
        if let Some(reply) = questions.answer(&request) {
            return self.tell(&reply, now);
        }
        if questions.converse(&request, &self.stream) {
            return self.state = State::Gone;
        }
        let stream = Arc::downgrade(&self.stream);
        if orders.send(Order { client: self.number, stream, request }) {
            self.state = State::Waiting;
        } else {
            let busy = "the daemon is busy with other orders; try: again later";
            self.refuse(busy.to_owned(), now);
        }
    }

    fn refuse(&mut self, message: String, now: Instant) {
        self.tell(&Reply::Error { message }, now);
    }

    fn tell(&mut self, reply: &Reply, now: Instant) {
        self.state = State::Answered(reply.line(), 0, now + TIMEOUT);
        self.send();
    }

    /// Gives it as much as it takes.
    fn send(&mut self) {
        let State::Answered(text, sent, _) = &mut self.state else { return };
        while let Some(rest) = text.get(*sent..).filter(|rest| !rest.is_empty()) {
            match (&*self.stream).write(rest) {
                Ok(length @ 1..) => *sent += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
        self.state = State::Gone;
    }
}
