// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that serves: connections on one side, the disk on the other.

use std::future::Future;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::SyncSender;
use std::task::Context;
use std::task::Poll;
use std::task::Wake;
use std::thread::JoinHandle;
use std::time::Duration;

use buf::Buf;
use buf::Slice;
use clock::Instant;
use engine::Choice;
use engine::Event;
use engine::Port;
use engine::Token;
use engine::Waker;
use engine::Work;
use initiator::Chunks;
use initiator::Completion;
use initiator::CompletionQueue;
use initiator::Disk;
use initiator::DiskEvent;
use initiator::Operation;
use initiator::Pending;
use initiator::Pool;
use initiator::Retry;
use initiator::Space;
use initiator::scsi;
use initiator::scsi::command;
use initiator::scsi::lba_status;
use nbd::BlockSizes;
use nbd::Command;
use nbd::Errno;
use nbd::Export;
use nbd::Handshake;
use nbd::Item;
use nbd::Outcome;
use nbd::Request;
use nbd::Violation;
use slab::Slab;

use crate::client::Client;
use crate::client::Data;
use crate::client::Destination;
use crate::client::End;
use crate::client::Phase;
use crate::client::Writing;
use crate::door::Address;
use crate::door::AddressError;
use crate::door::Door;
use crate::door::Listener;
use crate::limits;
use crate::split;
use crate::split::Part;
use crate::work::Job;
use crate::work::Jobs;

/// Why a disk is not served, or was not to the end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody can connect.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A thread, an engine or a descriptor cannot be had.
    #[error("cannot serve: {0}")]
    System(#[from] std::io::Error),
    /// The disk.
    #[error(transparent)]
    Disk(#[from] initiator::Error),
    /// The last flush.
    #[error(
        "the disk did not answer the last flush in time: what clients wrote and did not flush may \
         be lost"
    )]
    Silent,
}

/// What happens meanwhile.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum News {
    /// To the disk.
    Disk(DiskEvent),
    /// With a client, in a sentence.
    Client(String),
}

/// News that nobody has fetched; more are dropped.
const NEWS_MAX: usize = 64;

/// A disk that is served to NBD clients.
#[derive(Debug)]
pub struct NbdServer {
    address: String,
    door: Door,
    stop: Arc<Stop>,
    waker: Waker,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

#[derive(Debug)]
struct Stop {
    wanted: AtomicBool,
    /// How long clients may take to get their answers.
    grace: std::sync::Mutex<Duration>,
}

impl NbdServer {
    /// Serves `disk`, whose data buffers are of `pool`, as the export `name`. What happens to it
    /// can be received.
    ///
    /// # Errors
    /// [`Error::Address`] if nobody could connect; [`Error::System`].
    pub fn start(
        disk: Disk,
        pool: Pool,
        name: &str,
        description: &str,
        address: &Address,
        engine: Choice,
    ) -> Result<(Self, Receiver<News>), Error> {
        let listener = Listener::open(address)?;
        let shown = listener.to_string();
        let (ready, started) = mpsc::channel();
        let (connect, connections) = mpsc::channel();
        let (news_to, news) = mpsc::sync_channel(NEWS_MAX);
        let stop = Arc::new(Stop {
            wanted: AtomicBool::new(false),
            grace: std::sync::Mutex::new(Duration::ZERO),
        });
        let parts = Parts {
            export: export(&disk, name, description),
            disk,
            pool,
            connections,
            news: news_to,
            stop: Arc::clone(&stop),
        };
        let builder = std::thread::Builder::new().name("nbd".into());
        let config = engine::Config {
            name: "nbd".into(),
            // The client, which is on this machine as a rule, needs the processor.
            spin_max: Duration::ZERO,
            ..engine::Config::default()
        };
        let thread = builder.spawn(move || match engine::choose(engine) {
            Choice::Epoll => parts.serve(engine::epoll::Epoll::new(&config), &ready),
            _ => parts.serve(engine::uring::Uring::new(&config), &ready),
        })?;
        let gone = || std::io::Error::other("its thread stopped");
        let waker = started.recv().map_err(|_| gone())??;
        let door = Door::open(listener, connect, waker.clone())?;
        Ok((Self { address: shown, door, stop, waker, thread: Some(thread) }, news))
    }

    /// Where it is served, as NBD clients write it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Takes no more connections and requests; what is under way is answered, for which clients
    /// get `grace`; then all that was written is flushed.
    ///
    /// # Errors
    /// If that is not certain to be on stable storage.
    pub fn stop(mut self, grace: Duration) -> Result<(), Error> {
        self.end(grace)
    }

    fn end(&mut self, grace: Duration) -> Result<(), Error> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.door.close();
        *self.stop.grace.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = grace;
        self.stop.wanted.store(true, Ordering::Release);
        self.waker.wake();
        thread.join().unwrap_or_else(|_| Err(std::io::Error::other("its thread panicked").into()))
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        let _ = self.end(Duration::ZERO);
    }
}

fn export(disk: &Disk, name: &str, description: &str) -> Export {
    let geometry = disk.geometry();
    let preferred = geometry.physical.max(limits::PREFERRED_MIN).max(geometry.block);
    Export {
        name: name.to_owned(),
        description: description.to_owned(),
        bytes: geometry.bytes(),
        blocks: BlockSizes {
            least: 1,
            preferred: preferred.checked_next_power_of_two().unwrap_or(limits::PREFERRED_MIN),
            most: limits::REQUEST_BYTES_MAX,
        },
        read_only: geometry.read_only,
        trim: geometry.unmap_max > 0,
        fast_zero: geometry.same_max > 0,
        allocation: geometry.unmap_max > 0 || geometry.same_max > 0,
    }
}

/// What the thread is made of.
struct Parts {
    export: Export,
    disk: Disk,
    pool: Pool,
    connections: Receiver<OwnedFd>,
    news: SyncSender<News>,
    stop: Arc<Stop>,
}

impl Parts {
    fn serve<P: Port>(
        self,
        port: std::io::Result<P>,
        ready: &mpsc::Sender<std::io::Result<Waker>>,
    ) -> Result<(), Error> {
        let port = match port {
            Ok(port) => port,
            Err(error) => {
                // The starter waits for it.
                let _ = ready.send(Err(error));
                return Ok(());
            }
        };
        let completions = CompletionQueue::waking(port.waker())?;
        self.disk.watch(&completions, NEWS);
        let _ = ready.send(Ok(port.waker()));
        let server = Server {
            port,
            export: self.export,
            disk: self.disk,
            pool: self.pool,
            connections: self.connections,
            news: self.news,
            stop: self.stop,
            completions,
            clients: Slab::new(),
            entries: Slab::new(),
            jobs: Jobs::default(),
            questions: Vec::new(),
            touched: Vec::new(),
            blocked: false,
            last_flush: None,
        };
        server.run()
    }
}

/// Tags of operations that are no jobs'.
const NEWS: u64 = u64::MAX;
const LAST_FLUSH: u64 = u64::MAX - 1;

/// What a tag says besides the number of a job.
const MAIN: u64 = 0;
const HEAD: u64 = 1;
const TAIL: u64 = 2;
const STEPS: u64 = 4;

struct Server<P> {
    port: P,
    export: Export,
    disk: Disk,
    pool: Pool,
    connections: Receiver<OwnedFd>,
    news: SyncSender<News>,
    stop: Arc<Stop>,
    completions: CompletionQueue,
    clients: Slab<Client>,
    /// Requests under way at the disk.
    entries: Slab<Entry>,
    jobs: Jobs<Task>,
    questions: Vec<Question>,
    /// Clients that something has happened to since the last look.
    touched: Vec<usize>,
    /// A request waits for memory.
    blocked: bool,
    last_flush: Option<Result<(), Error>>,
}

/// A request under way.
#[derive(Debug)]
struct Entry {
    client: usize,
    request: Request,
    parts_left: usize,
    failed: Option<Errno>,
    data: Option<Data>,
}

/// GET LBA STATUS under way.
#[derive(Debug)]
struct Question {
    client: usize,
    request: Request,
    answer: Pending,
}

/// Wakes the port when an answer has come.
struct Awake(Waker);

impl Wake for Awake {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

/// A part of a request, under way or waiting.
#[derive(Debug)]
struct Task {
    entry: usize,
    /// To be submitted when it begins.
    operation: Option<Operation>,
    /// Of a read: bytes at the start that were not asked for.
    lead: Option<usize>,
    /// What has to be read before the write.
    edges: Option<Edges>,
}

/// Whole blocks that are to be written, of which some bytes are still to be read.
#[derive(Debug)]
struct Edges {
    bytes: Bytes,
    blocks: Range<u64>,
    /// What is the client's, and not read.
    new: Range<usize>,
    durable: bool,
    reads_left: usize,
    failed: Option<Errno>,
}

/// Bytes that are being put together.
#[derive(Debug)]
enum Bytes {
    Buffer(Buf),
    /// A few.
    Heap(Vec<u8>),
}

impl Bytes {
    fn get(&mut self) -> &mut [u8] {
        match self {
            Self::Buffer(buf) => buf,
            Self::Heap(bytes) => bytes,
        }
    }

    fn freeze(self) -> Slice {
        match self {
            Self::Buffer(buf) => buf.freeze(),
            Self::Heap(bytes) => Slice::from(bytes),
        }
    }
}

impl<P: Port> Server<P> {
    fn run(mut self) -> Result<(), Error> {
        let mut stopping: Option<Instant> = None;
        loop {
            while let Some((token, event)) = self.port.next_event() {
                self.on_event(token, event);
            }
            while let Ok(connection) = self.connections.try_recv() {
                self.welcome(connection);
            }
            self.reap();
            self.hear();
            let now = self.port.now();
            if stopping.is_none() && self.stop.wanted.load(Ordering::Acquire) {
                let grace = self.stop.grace.lock();
                let grace = *grace.unwrap_or_else(std::sync::PoisonError::into_inner);
                stopping = Some(now + grace);
                self.dismiss();
            }
            if stopping.is_some_and(|until| now >= until) {
                let open: Vec<usize> = self.clients.iter().map(|(key, _)| key).collect();
                open.into_iter().for_each(|key| self.close(key));
            }
            self.look_at_clocks(now);
            self.look_at_touched(now);
            let served = self.clients.iter().all(|(_, client)| client.end == End::Closed);
            if stopping.is_some() && served {
                return self.leave();
            }
            let deadline = self.next_deadline(now, stopping);
            self.port.wait(deadline);
        }
    }

    fn next_deadline(&self, now: Instant, stopping: Option<Instant>) -> Option<Instant> {
        let handshakes = self.clients.iter().filter_map(|(_, client)| match client.phase {
            Phase::Handshake(_, until) if client.end != End::Closed => Some(until),
            _ => None,
        });
        let room = self.blocked.then(|| now + limits::ROOM_INTERVAL);
        handshakes.chain(stopping).chain(room).min()
    }

    fn on_event(&mut self, token: Token, event: Event) {
        let Some(key) = key_of(token) else { return };
        match event {
            Event::Received { bytes } => self.take_in(key, &bytes),
            Event::ReceiveEnded { .. } => {
                let Some(client) = self.clients.get_mut(key) else { return };
                client.receiving = false;
                // What it has asked for is carried out, though it may not hear of it.
                if client.end == End::Open {
                    client.end = End::WhenAnswered;
                    client.writing = None;
                }
                self.touched.push(key);
            }
            Event::Sent { list, result } => {
                let Some(client) = self.clients.get_mut(key) else { return };
                client.sent(list);
                if result.is_err() {
                    self.close(key);
                }
                self.touched.push(key);
            }
            _ => {}
        }
    }

    fn welcome(&mut self, connection: OwnedFd) {
        let open = self.clients.iter().filter(|(_, client)| client.end != End::Closed).count();
        if open >= limits::CLIENTS_MAX {
            let text = format!("a connection was refused: there are {open}, as many as may be");
            self.tell(News::Client(text));
            return;
        }
        let socket = self.port.add_socket(connection);
        let mut greeting = Vec::new();
        let handshake = Handshake::begin(&mut greeting);
        let deadline = self.port.now() + limits::HANDSHAKE_TIMEOUT;
        let mut client = Client::new(socket, handshake, deadline);
        client.say(&greeting);
        let key = self.clients.insert(client);
        self.port.submit(token_of(key), Work::Receive { socket });
        self.touched.push(key);
    }

    /// Bytes of a client have come.
    fn take_in(&mut self, key: usize, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if client.end != End::Open {
            return;
        }
        if client.held.is_empty() {
            let rest = self.understand(key, bytes);
            if let Some(client) = self.clients.get_mut(key) {
                client.held.extend_from_slice(rest);
            }
        } else {
            client.held.extend_from_slice(bytes);
        }
        self.touched.push(key);
    }

    /// Looks again at what a client has sent and was not looked at.
    fn take_up(&mut self, key: usize) {
        loop {
            let Some(client) = self.clients.get_mut(key) else { return };
            if client.held.is_empty() || client.end != End::Open {
                return;
            }
            let held = std::mem::take(&mut client.held);
            let rest = self.understand(key, &held);
            let done = rest.len() == held.len();
            let rest = rest.to_vec();
            let Some(client) = self.clients.get_mut(key) else { return };
            // A negotiation that has ended has put back what came behind it.
            client.held.splice(0..0, rest);
            if done {
                return;
            }
        }
    }

    /// Carries out what stands in `bytes`, as far as the client may ask; gives the rest.
    fn understand<'a>(&mut self, key: usize, mut bytes: &'a [u8]) -> &'a [u8] {
        while let Some(client) = self.clients.get_mut(key) {
            if client.end != End::Open {
                return &[];
            }
            if client.blocked.is_some() || client.writing.is_none() && !client.may_ask() {
                return bytes;
            }
            let item = match &mut client.phase {
                Phase::Handshake(handshake, _) => {
                    if bytes.is_empty() {
                        return bytes;
                    }
                    let mut out = Vec::new();
                    let outcome = handshake.receive(bytes, &self.export, &mut out);
                    bytes = &[];
                    client.say(&out);
                    match outcome {
                        Ok(Outcome::More) => {}
                        Ok(Outcome::End) => client.end = End::WhenAnswered,
                        Ok(Outcome::Begin { agreed, rest }) => {
                            client.phase = Phase::Serving(nbd::Receiver::default(), agreed);
                            client.held = rest;
                        }
                        Err(violation) => self.send_away(key, violation),
                    }
                    continue;
                }
                Phase::Serving(receiver, _) => receiver.next(&mut bytes),
            };
            match item {
                Ok(None) => return bytes,
                Ok(Some(Item::Request(request))) => self.accept(key, request),
                Ok(Some(Item::Data(data))) => {
                    let Some(writing) = &mut client.writing else { continue };
                    if writing.take(data)
                        && let Some(Writing { request, to, .. }) = client.writing.take()
                    {
                        self.write(key, request, to);
                    }
                }
                Err(violation) => self.send_away(key, violation),
            }
        }
        &[]
    }

    fn send_away(&mut self, key: usize, violation: Violation) {
        self.tell(News::Client(format!("a connection was closed: {violation}")));
        match self.clients.get_mut(key) {
            // What it has asked for in order is answered.
            Some(client) => client.end = End::WhenAnswered,
            None => return,
        }
        self.touched.push(key);
    }

    /// A request has come.
    fn accept(&mut self, key: usize, request: Request) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if request.command == Command::Disconnect {
            client.end = End::WhenAnswered;
            return;
        }
        client.owes(&request);
        self.begin(key, request);
    }

    /// Begins a request that is counted, unless there is no memory for it now.
    fn begin(&mut self, key: usize, request: Request) {
        let parts = split::parts(&request, &self.disk.geometry());
        let Some(client) = self.clients.get_mut(key) else { return };
        let has_data = request.command == Command::Write && request.length > 0;
        match parts {
            Err(errno) if has_data => {
                client.writing =
                    Some(Writing { request, to: Destination::Nowhere(errno), came: 0 });
            }
            Err(errno) => client.answer(&request, Err(errno)),
            Ok(parts) if parts.is_empty() => client.answer(&request, Ok(None)),
            Ok(parts) => {
                if let [Part::Status { first }] = parts[..] {
                    return self.ask(key, request, first);
                }
                if let [Part::Write { blocks, lead }] = &parts[..] {
                    let Some(buf) = self.pool.take(split::length(blocks.clone())) else {
                        client.blocked = Some(request);
                        self.blocked = true;
                        return;
                    };
                    let to = Destination::Buffer { buf, lead: *lead };
                    client.writing = Some(Writing { request, to, came: 0 });
                    return;
                }
                let entry = self.enter(key, request, parts.len());
                for part in parts {
                    self.begin_part(entry, part, request);
                }
            }
        }
    }

    /// What has space, from the block `first` on?
    fn ask(&mut self, key: usize, request: Request, first: u64) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if !client.agreed().allocation {
            return client.answer(&request, Err(Errno::Invalid));
        }
        client.at_disk += 1;
        let cdb = command::get_lba_status(first, limits::STATUS_BYTES);
        let room = initiator::Data::In(limits::STATUS_BYTES);
        let answer = self.disk.post(cdb, room, Retry::Always);
        self.questions.push(Question { client: key, request, answer });
        self.hear();
    }

    /// Looks which questions have their answers.
    fn hear(&mut self) {
        if self.questions.is_empty() {
            return;
        }
        let awake = std::task::Waker::from(Arc::new(Awake(self.port.waker())));
        let mut context = Context::from_waker(&awake);
        let mut heard = Vec::new();
        self.questions.retain_mut(|question| {
            let answer = Pin::new(&mut question.answer).poll(&mut context);
            let Poll::Ready(result) = answer else { return true };
            heard.push((question.client, question.request, result));
            false
        });
        for (key, request, result) in heard {
            let geometry = self.disk.geometry();
            let Some(client) = self.clients.get_mut(key) else { continue };
            client.at_disk -= 1;
            self.touched.push(key);
            match result {
                Ok(done) => {
                    let told = done.data.as_deref().and_then(lba_status::parse);
                    let told = told.unwrap_or_default();
                    client.tell_space(&request, &split::extents(&request, &geometry, &told));
                }
                Err(error) if scsi::is_unsupported(&error) => {
                    client.tell_space(&request, &split::extents(&request, &geometry, &[]));
                }
                Err(error) => {
                    client.answer(&request, Err(split::errno(error.kind(), false)));
                }
            }
        }
    }

    /// All data of a write is there.
    fn write(&mut self, key: usize, request: Request, to: Destination) {
        let Some(client) = self.clients.get_mut(key) else { return };
        match to {
            Destination::Nowhere(errno) => client.answer(&request, Err(errno)),
            Destination::Buffer { buf, lead } => {
                let block = u64::from(self.disk.geometry().block.max(1));
                let start = request.offset - request.offset % block;
                let blocks = start..start + buf.len() as u64;
                let new = lead..lead + request.length as usize;
                let entry = self.enter(key, request, 1);
                self.begin_write(entry, blocks, Bytes::Buffer(buf), new, request.durable);
            }
        }
    }

    fn enter(&mut self, key: usize, request: Request, parts: usize) -> usize {
        if let Some(client) = self.clients.get_mut(key) {
            client.at_disk += 1;
        }
        let entry = Entry { client: key, request, parts_left: parts, failed: None, data: None };
        self.entries.insert(entry)
    }

    fn begin_part(&mut self, entry: usize, part: Part, request: Request) {
        let durable = |operation: Operation| match request.durable {
            true => operation.durable(),
            false => operation,
        };
        let (operation, lead, blocks) = match part {
            Part::ZeroBytes { blocks, lead, bytes } => {
                let zeroes = Bytes::Heap(vec![0; split::length(blocks.clone())]);
                let new = lead..lead + bytes;
                return self.begin_write(entry, blocks, zeroes, new, request.durable);
            }
            // Its data came before; it is no operation.
            Part::Write { .. } | Part::Status { .. } => return,
            Part::Read { blocks, lead } => {
                let length = blocks.end - blocks.start;
                (Operation::read(blocks.start, length), Some(lead), 0..0)
            }
            Part::Zero { blocks } => {
                let space = match request.command {
                    Command::WriteZeroes { keep_space: true, .. } => Space::Keep,
                    _ => Space::GiveBack,
                };
                let mut zero = Operation::zero(blocks.start, blocks.end - blocks.start);
                if let Operation::Zero { space: to, .. } = &mut zero {
                    *to = space;
                }
                (durable(zero), None, blocks)
            }
            Part::Discard { blocks } => {
                let discard = Operation::discard(blocks.start, blocks.end - blocks.start);
                (durable(discard), None, blocks)
            }
            Part::Flush => (Operation::Flush, None, 0..0),
        };
        let what = Task { entry, operation: Some(operation), lead, edges: None };
        self.start(Job { blocks, alone: false, what });
    }

    fn begin_write(
        &mut self,
        entry: usize,
        blocks: Range<u64>,
        mut bytes: Bytes,
        new: Range<usize>,
        durable: bool,
    ) {
        let whole = new == (0..bytes.get().len());
        let what = if whole {
            let write = Operation::write(blocks.start, bytes.freeze());
            let write = if durable { write.durable() } else { write };
            Task { entry, operation: Some(write), lead: None, edges: None }
        } else {
            let blocks = blocks.clone();
            let edges = Edges { bytes, blocks, new, durable, reads_left: 0, failed: None };
            Task { entry, operation: None, lead: None, edges: Some(edges) }
        };
        self.start(Job { blocks, alone: !whole, what });
    }

    fn start(&mut self, job: Job<Task>) {
        if let Some(number) = self.jobs.begin(job) {
            self.launch(number);
        }
    }

    /// A job may begin.
    fn launch(&mut self, number: usize) {
        let Some(task) = self.jobs.get_mut(number) else { return };
        if let Some(operation) = task.operation.take() {
            return self.submit(number, MAIN, operation);
        }
        let Some(edges) = &mut task.edges else { return };
        let block = u64::from(self.disk.geometry().block.max(1));
        let last = edges.blocks.end - block;
        let head = edges.new.start > 0 || last == edges.blocks.start;
        let tail = last > edges.blocks.start && edges.new.end < edges.bytes.get().len();
        let (first, reads) = (edges.blocks.start, usize::from(head) + usize::from(tail));
        edges.reads_left = reads;
        if head {
            self.submit(number, HEAD, Operation::read(first, block));
        }
        if tail {
            self.submit(number, TAIL, Operation::read(last, block));
        }
    }

    fn submit(&mut self, number: usize, step: u64, operation: Operation) {
        let tag = number as u64 * STEPS + step;
        if let Err(error) = self.disk.submit(&self.completions, tag, operation) {
            self.on_end(tag, Err(error));
        }
    }

    fn reap(&mut self) {
        let mut ended = Vec::new();
        while self.completions.reap_all(&mut ended) > 0 {
            for completion in ended.drain(..) {
                match completion {
                    Completion::Ended { tag: LAST_FLUSH, result } => {
                        self.last_flush = Some(result.map(drop).map_err(Error::Disk));
                    }
                    Completion::Ended { tag, result } => self.on_end(tag, result),
                    Completion::Event { event, .. } => {
                        if let DiskEvent::Resized { now, .. } = event {
                            self.export.bytes = now;
                        }
                        self.tell(News::Disk(event));
                    }
                    _ => {}
                }
            }
        }
    }

    /// An operation has ended.
    fn on_end(&mut self, tag: u64, result: Result<Chunks, initiator::Error>) {
        let Ok(number) = usize::try_from(tag / STEPS) else { return };
        let step = tag % STEPS;
        if step == MAIN {
            let Some(task) = self.jobs.end(number) else { return };
            let is_write = task.lead.is_none();
            let result = result.map_err(|error| split::errno(error.kind(), is_write));
            self.part_ended(&task, result);
            while let Some(next) = self.jobs.next() {
                self.launch(next);
            }
            return;
        }
        let Some(task) = self.jobs.get_mut(number) else { return };
        let Some(edges) = &mut task.edges else { return };
        edges.reads_left -= 1;
        match result {
            Ok(chunks) => {
                let mut data = vec![0; chunks.bytes()];
                chunks.copy_to(&mut data);
                let at = if step == HEAD {
                    0
                } else {
                    split::length(edges.blocks.clone()).saturating_sub(data.len())
                };
                fill_around(edges.bytes.get(), at, &data, &edges.new);
            }
            Err(error) => edges.failed = Some(split::errno(error.kind(), true)),
        }
        if edges.reads_left > 0 {
            return;
        }
        let Some(edges) = task.edges.take() else { return };
        if let Some(errno) = edges.failed {
            let Some(task) = self.jobs.end(number) else { return };
            self.part_ended(&task, Err(errno));
            while let Some(next) = self.jobs.next() {
                self.launch(next);
            }
            return;
        }
        let write = Operation::write(edges.blocks.start, edges.bytes.freeze());
        self.submit(number, MAIN, if edges.durable { write.durable() } else { write });
    }

    fn part_ended(&mut self, task: &Task, result: Result<Chunks, Errno>) {
        let Some(entry) = self.entries.get_mut(task.entry) else { return };
        entry.parts_left -= 1;
        match result {
            Err(errno) => entry.failed = Some(entry.failed.unwrap_or(errno)),
            Ok(chunks) => entry.data = task.lead.map(|lead| Data { chunks, lead }),
        }
        if entry.parts_left > 0 {
            return;
        }
        let Entry { client: key, request, failed, data, .. } = self.entries.remove(task.entry);
        let Some(client) = self.clients.get_mut(key) else { return };
        client.at_disk -= 1;
        match failed {
            Some(errno) => client.answer(&request, Err(errno)),
            None => client.answer(&request, Ok(data)),
        }
        self.touched.push(key);
    }

    /// Time-outs, and requests that wait for memory.
    fn look_at_clocks(&mut self, now: Instant) {
        let late: Vec<usize> = self
            .clients
            .iter()
            .filter(|(_, client)| match client.phase {
                Phase::Handshake(_, until) => client.end != End::Closed && now >= until,
                Phase::Serving(..) => false,
            })
            .map(|(key, _)| key)
            .collect();
        for key in late {
            self.tell(News::Client(
                "a connection was closed: its negotiation took too long".into(),
            ));
            self.close(key);
        }
        if !std::mem::take(&mut self.blocked) {
            return;
        }
        self.make_room(now);
        let waiting: Vec<usize> = self
            .clients
            .iter()
            .filter(|(_, client)| client.blocked.is_some())
            .map(|(key, _)| key)
            .collect();
        for key in waiting {
            let Some(client) = self.clients.get_mut(key) else { continue };
            if let Some(request) = client.blocked.take() {
                self.begin(key, request);
                self.touched.push(key);
            }
        }
    }

    /// Who does not read holds memory that others wait for.
    fn make_room(&mut self, now: Instant) {
        let is_slow = |client: &Client| {
            client.end != End::Closed
                && client.sending.is_some_and(|since| now >= since + limits::SLOW_READER)
        };
        let slow = self.clients.iter().find(|(_, client)| is_slow(client)).map(|(key, _)| key);
        if let Some(key) = slow {
            let text = "a connection was closed: it reads nothing, and others lack memory";
            self.tell(News::Client(text.into()));
            self.close(key);
        }
    }

    /// Goes on with clients that something has happened to: takes what they have sent, sends what
    /// is for them, and forgets those that are gone.
    fn look_at_touched(&mut self, now: Instant) {
        while let Some(key) = self.touched.pop() {
            self.take_up(key);
            let Some(client) = self.clients.get_mut(key) else { continue };
            if client.end == End::Open {
                let socket = client.socket;
                let pause = !client.held.is_empty();
                if pause != client.paused {
                    client.paused = pause;
                    match pause {
                        true => self.port.pause(socket),
                        false => self.port.resume(socket),
                    }
                }
            }
            if let Some(list) = client.next_send(now) {
                let socket = client.socket;
                self.port.submit(token_of(key), Work::Send { socket, list });
            } else if client.end == End::WhenAnswered && client.is_answered() {
                self.close(key);
            }
            if self.clients.get(key).is_some_and(Client::is_gone) {
                self.clients.remove(key);
            }
        }
    }

    fn close(&mut self, key: usize) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if client.end == End::Closed {
            return;
        }
        client.end = End::Closed;
        client.writing = None;
        client.blocked = None;
        client.held = Vec::new();
        let socket = client.socket;
        self.port.shutdown(socket);
        self.port.close(socket);
        self.touched.push(key);
    }

    /// Nothing more is taken from clients.
    fn dismiss(&mut self) {
        for (key, client) in &mut self.clients {
            if client.end == End::Open {
                client.end = End::WhenAnswered;
                client.writing = None;
                client.blocked = None;
            }
            self.touched.push(key);
        }
    }

    /// Flushes, and waits for all that is under way at the disk for some time.
    fn leave(mut self) -> Result<(), Error> {
        let until = self.port.now() + limits::LAST_FLUSH;
        if self.export.read_only {
            self.last_flush = Some(Ok(()));
        } else {
            self.disk.submit(&self.completions, LAST_FLUSH, Operation::Flush)?;
        }
        loop {
            self.reap();
            while let Some((token, event)) = self.port.next_event() {
                self.on_event(token, event);
            }
            if self.jobs.is_empty()
                && let Some(result) = self.last_flush.take()
            {
                return result;
            }
            if self.port.now() >= until {
                return Err(Error::Silent);
            }
            self.port.wait(Some(until));
        }
    }

    fn tell(&self, news: News) {
        // Who does not listen does not want to know.
        let _ = self.news.try_send(news);
    }
}

/// Copies `data`, which was read, to `at` in `bytes`, but for the range that is `new`.
fn fill_around(bytes: &mut [u8], at: usize, data: &[u8], new: &Range<usize>) {
    let end = at + data.len();
    for part in [at..new.start.min(end), new.end.max(at)..end] {
        if let (Some(to), Some(from)) = (
            bytes.get_mut(part.clone()),
            data.get(part.start.wrapping_sub(at)..part.end.wrapping_sub(at)),
        ) {
            to.copy_from_slice(from);
        }
    }
}

fn token_of(key: usize) -> Token {
    Token(key as u64 + 1)
}

fn key_of(token: Token) -> Option<usize> {
    usize::try_from(token.0.checked_sub(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_goes_around_what_is_new() {
        let filled = |at, data: &[u8], new: Range<usize>| {
            let mut bytes = *b"........";
            fill_around(&mut bytes, at, data, &new);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        assert_eq!(filled(0, b"abcd", 2..3), "ab.d....");
        assert_eq!(filled(0, b"abcd", 2..7), "ab......");
        assert_eq!(filled(4, b"abcd", 2..7), ".......d");
        assert_eq!(filled(0, b"abcdefgh", 0..8), "........");
    }
}
