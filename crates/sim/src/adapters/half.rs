// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One end of a connection over adapters: as its pump sees it, and what the world does to it.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use buf::Buf;
use buf::Pool;
use rdma::adapter::Depths;
use rdma::adapter::Done;
use rdma::adapter::Post;
use rdma::adapter::Read;
use rdma::adapter::Registry;
use rdma::region::Memory;
use rdma::verbs::End;
use rdma::verbs::WorkId;
use verbs::Adapter;
use verbs::Asking;
use verbs::Facts;
use verbs::VerbsError;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

use crate::options::AdapterPlan;

/// Buffers for messages: as many as iSER wants of an adapter.
const RECEIVES: usize = 160;

/// What an end has.
#[derive(Debug)]
pub(crate) struct Half {
    plan: AdapterPlan,
    /// What wakes the port, while no port has it.
    pub(super) fd: Option<OwnedFd>,
    /// Was posted, and has not begun.
    pub(super) posts: Vec<Post>,
    /// What has come goes into these.
    pub(super) receives: VecDeque<Buf>,
    /// Is under way, the oldest first.
    flights: VecDeque<Flight>,
    /// Of those that were posted.
    numbers: u64,
    sinks: BTreeMap<u32, Sink>,
    keys: BTreeMap<u32, (Memory, u64)>,
    next_key: u32,
    /// Where the next memory seems to be.
    base: u64,
    /// Is done, and nobody was told.
    pub(super) hidden: VecDeque<Completion>,
    /// Somebody will be.
    pub(super) is_due: bool,
    /// What the pump finds when it looks.
    pub(super) visible: VecDeque<Completion>,
    /// What it has found.
    found: VecDeque<Done>,
    works: usize,
    pub(super) accepted: bool,
    /// Its owner ends it in good order.
    pub(super) parts: bool,
    pub(super) ended: bool,
}

/// What an adapter has done.
#[derive(Debug)]
pub(super) enum Completion {
    Received(Buf, usize),
    Sent(WorkId),
    Read(WorkId, Stag),
}

/// What is under way, and where it goes if it is a Read.
#[derive(Debug)]
struct Flight {
    number: u64,
    id: WorkId,
    sink: Option<(Stag, usize)>,
    is_done: bool,
}

/// Memory that Reads fill.
#[derive(Debug)]
struct Sink {
    buf: Buf,
    reads: usize,
}

/// An end in the hands of its pump.
#[derive(Debug)]
pub(crate) struct SimAdapter(Arc<Mutex<Half>>);

/// Somebody who asks for a connection.
#[derive(Debug)]
pub(crate) struct SimAsking {
    /// None: it is there.
    half: Option<Arc<Mutex<Half>>>,
    peer: SocketAddr,
    local: SocketAddr,
}

/// The keys of an end.
#[derive(Debug)]
struct Keys(Arc<Mutex<Half>>);

impl Half {
    pub(super) fn new(fd: OwnedFd, plan: AdapterPlan, base: u64) -> Self {
        Self {
            plan,
            fd: Some(fd),
            posts: Vec::new(),
            receives: VecDeque::new(),
            flights: VecDeque::new(),
            numbers: 0,
            sinks: BTreeMap::new(),
            keys: BTreeMap::new(),
            next_key: 1,
            base,
            hidden: VecDeque::new(),
            is_due: false,
            visible: VecDeque::new(),
            found: VecDeque::new(),
            works: 0,
            accepted: false,
            parts: false,
            ended: false,
        }
    }

    fn depths(&self) -> Depths {
        Depths { sends: self.plan.sends, reads: self.plan.reads, receives: RECEIVES }
    }

    /// A Read begins: its memory comes with the first one.
    fn take_sink(&mut self, read: &mut Read) {
        if let Some(buf) = read.buf.take() {
            self.sinks.insert(read.sink.0, Sink { buf, reads: 0 });
        }
        if let Some(sink) = self.sinks.get_mut(&read.sink.0) {
            sink.reads += 1;
        }
    }

    /// Something is under way from now on, under this number.
    pub(super) fn fly(&mut self, id: WorkId, sink: Option<(Stag, usize)>) -> u64 {
        self.numbers += 1;
        let number = self.numbers;
        self.flights.push_back(Flight { number, id, sink, is_done: false });
        number
    }

    /// A message comes; false if there is no room for it.
    pub(super) fn receive(&mut self, message: &[u8]) -> bool {
        let Some(mut buf) = self.receives.pop_front() else { return false };
        let Some(place) = buf.get_mut(..message.len()) else { return false };
        place.copy_from_slice(message);
        self.hidden.push_back(Completion::Received(buf, message.len()));
        true
    }

    /// The peer writes to memory; false if it may not.
    pub(super) fn write(&mut self, key: Stag, at: TaggedOffset, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let Some((Memory::Sink(buf), base)) = self.keys.get_mut(&key.0) else { return false };
        let Some(start) = at.0.checked_sub(*base).and_then(|at| usize::try_from(at).ok()) else {
            return false;
        };
        let end = start.saturating_add(bytes.len());
        let Some(place) = buf.get_mut(start..end) else { return false };
        place.copy_from_slice(bytes);
        true
    }

    /// The peer reads memory; None if it may not.
    pub(super) fn read(&self, (key, at): (Stag, TaggedOffset), length: u32) -> Option<Vec<u8>> {
        let Some((Memory::Source(slice), base)) = self.keys.get(&key.0) else { return None };
        let start = usize::try_from(at.0.checked_sub(*base)?).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        slice.bytes().get(start..end).map(<[u8]>::to_vec)
    }

    /// The bytes of a Read come; false if they have no place.
    pub(super) fn place(&mut self, number: u64, bytes: &[u8]) -> bool {
        let flight = self.flights.iter().find(|flight| flight.number == number);
        let Some((sink, at)) = flight.and_then(|flight| flight.sink) else { return false };
        let place = self.sinks.get_mut(&sink.0);
        let place = place.and_then(|sink| sink.buf.get_mut(at..at.saturating_add(bytes.len())));
        place.map(|place| place.copy_from_slice(bytes)).is_some()
    }

    /// Something is done, and with it what waited for it.
    pub(super) fn complete(&mut self, number: u64) {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.number == number) {
            flight.is_done = true;
        }
        while let Some(flight) = self.flights.pop_front_if(|flight| flight.is_done) {
            self.hidden.push_back(match flight.sink {
                Some((sink, _)) => Completion::Read(flight.id, sink),
                None => Completion::Sent(flight.id),
            });
        }
    }

    /// Whether there is one.
    pub(super) fn has_done(&self) -> bool {
        !self.visible.is_empty() || !self.found.is_empty()
    }

    /// The next thing that its pump finds.
    fn find(&mut self) -> Option<Done> {
        if let Some(found) = self.found.pop_front() {
            return Some(found);
        }
        Some(match self.visible.pop_front()? {
            Completion::Received(buf, length) => Done::Received { buf, length },
            Completion::Sent(id) => {
                self.works = self.works.saturating_sub(1);
                Done::Sent(id)
            }
            Completion::Read(id, sink) => {
                self.works = self.works.saturating_sub(1);
                let entry = self.sinks.get_mut(&sink.0);
                let reads = entry.map(|entry| {
                    entry.reads -= 1;
                    entry.reads
                });
                // Whoever posts the next Read has its memory, or the adapter does.
                if reads == Some(0)
                    && let Some(entry) = self.sinks.remove(&sink.0)
                {
                    self.found.push_back(Done::Read(id));
                    return Some(Done::Returned(sink, entry.buf));
                }
                Done::Read(id)
            }
        })
    }

    /// Whether an end takes away what was done or is under way, but for `told` of what was done.
    pub(super) fn flushes(&self, told: usize) -> bool {
        told < self.hidden.len() || !self.flights.is_empty()
    }

    /// All that is under way comes back; `told` of what was done is told before.
    pub(super) fn end(&mut self, end: End, told: usize) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut last = VecDeque::new();
        let hidden = std::mem::take(&mut self.hidden);
        self.visible.extend(hidden.into_iter().take(told));
        while let Some(found) = self.find() {
            last.push_back(found);
        }
        self.found = last;
        self.posts.clear();
        for (sink, entry) in std::mem::take(&mut self.sinks) {
            self.found.push_back(Done::Returned(Stag(sink), entry.buf));
        }
        self.flights.clear();
        self.receives.clear();
        self.works = 0;
        self.found.push_back(Done::Ended(end));
    }
}

impl SimAdapter {
    pub(crate) fn new(half: Arc<Mutex<Half>>) -> Self {
        Self(half)
    }

    fn half(&self) -> MutexGuard<'_, Half> {
        locked(&self.0)
    }
}

impl Adapter for SimAdapter {
    fn furnish(&mut self, _pool: &Pool) -> Result<(), VerbsError> {
        Ok(())
    }

    fn accept(&self, _private_data: &[u8]) -> Result<(), VerbsError> {
        self.half().accepted = true;
        Ok(())
    }

    fn post(&mut self, post: Post) {
        let mut half = self.half();
        if half.ended {
            return;
        }
        match post {
            Post::Disconnect => half.end(End::Closed, 0),
            Post::Receive(_) => half.posts.push(post),
            Post::Send(..) => {
                half.works += 1;
                half.posts.push(post);
            }
            Post::Read(id, mut read) => {
                half.works += 1;
                half.take_sink(&mut read);
                half.posts.push(Post::Read(id, read));
            }
        }
    }

    fn look(&mut self) {}

    fn poll(&mut self) -> Option<Done> {
        self.half().find()
    }

    fn has_done(&self) -> bool {
        self.half().has_done()
    }

    fn under_way(&self) -> usize {
        self.half().works
    }

    fn shutdown(&self) {
        let mut half = self.half();
        half.parts |= !half.ended;
    }

    fn watched(&self) -> io::Result<OwnedFd> {
        self.half().fd.take().ok_or_else(|| io::ErrorKind::ResourceBusy.into())
    }

    fn registry(&self) -> Box<dyn Registry> {
        Box::new(Keys(Arc::clone(&self.0)))
    }

    fn depths(&self) -> Depths {
        self.half().depths()
    }

    fn is_iwarp(&self) -> bool {
        false
    }

    fn take_failure(&self) -> Option<VerbsError> {
        None
    }

    fn facts(&self) -> Facts {
        let half = self.half();
        let buffers = half.receives.iter().map(|buf| buf.len());
        let sinks = half.sinks.values().map(|sink| sink.buf.len());
        Facts {
            device: "sim".to_owned(),
            ird: half.plan.reads,
            ord: half.plan.reads,
            keys: half.keys.len(),
            registered: buffers.chain(sinks).sum(),
        }
    }
}

impl Drop for SimAdapter {
    fn drop(&mut self) {
        self.half().end(End::Closed, 0);
    }
}

impl SimAsking {
    pub(super) fn new(half: Arc<Mutex<Half>>, (peer, local): (SocketAddr, SocketAddr)) -> Self {
        Self { half: Some(half), peer, local }
    }
}

impl Asking for SimAsking {
    fn private_data(&self) -> &[u8] {
        &mover::iser::Initiator::ASKED
    }

    fn depths(&self) -> Depths {
        let none = Depths { sends: 0, reads: 0, receives: 0 };
        self.half.as_ref().map_or(none, |half| locked(half).depths())
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn local(&self) -> SocketAddr {
        self.local
    }

    fn prepare(mut self: Box<Self>, _pool: &Pool) -> Result<Box<dyn Adapter>, VerbsError> {
        let half = self.half.take().ok_or(VerbsError::Rejected)?;
        Ok(Box::new(SimAdapter(half)))
    }
}

impl Drop for SimAsking {
    fn drop(&mut self) {
        if let Some(half) = &self.half {
            locked(half).end(End::Closed, 0);
        }
    }
}

impl Registry for Keys {
    fn show(&mut self, memory: Memory) -> Result<(Stag, TaggedOffset), Memory> {
        let mut half = locked(&self.0);
        if half.keys.len() >= half.plan.keys {
            return Err(memory);
        }
        let (key, base) = (half.next_key, half.base);
        let length = match &memory {
            Memory::Sink(buf) => buf.len(),
            Memory::Source(slice) => slice.len(),
        };
        half.next_key = half.next_key.wrapping_add(1).max(1);
        half.base = base.wrapping_add(length as u64 + 1);
        half.keys.insert(key, (memory, base));
        Ok((Stag(key), TaggedOffset(base)))
    }

    fn take_back(&mut self, key: Stag) -> Option<Memory> {
        locked(&self.0).keys.remove(&key.0).map(|(memory, _)| memory)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        locked(&self.0).keys.clear();
    }
}

fn locked(half: &Mutex<Half>) -> MutexGuard<'_, Half> {
    half.lock().unwrap_or_else(PoisonError::into_inner)
}
