// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests on their way through the disk, from their parts to their ends; as long as the disk has,
//! or may have, a volatile cache, what they wrote is kept until it is flushed
//! (`carrier/keeping.rs`).
//!
//! It waits for nothing: operations end in the [`CompletionQueue`]. Its owner calls
//! [`Carrier::reap`] when something is there, [`Carrier::advance`] when it has asked for something,
//! and takes from [`Carrier::ended`] and [`Carrier::news`] what came of it.

mod keeping;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use buf::Buf;
use initiator::Chunks;
use initiator::Completion;
use initiator::CompletionQueue;
use initiator::Disk;
use initiator::DiskEvent;
use initiator::Fate;
use initiator::Geometry;
use initiator::Kind;
use initiator::Operation;
use initiator::Space;
use nbd::Command;
use nbd::Errno;
use nbd::Request;
use slab::Slab;

use self::keeping::Keeping;
use self::keeping::Outcome;
use self::keeping::Verdict;
use crate::client::Data;
use crate::edges::Bytes;
use crate::edges::Edges;
use crate::edges::fill_around;
use crate::keep;
use crate::keep::Footing;
use crate::keep::Stamp;
use crate::limits;
use crate::server::Error;
use crate::server::News;
use crate::settling::Settling;
use crate::split;
use crate::split::Part;
use crate::work::Job;
use crate::work::Jobs;

/// What a tag says besides the number of a job.
const MAIN: u64 = 0;
const HEAD: u64 = 1;
const TAIL: u64 = 2;
const STEPS: u64 = 4;

/// Tags of operations that are no jobs'.
const NEWS: u64 = u64::MAX;
const LAST_FLUSH: u64 = u64::MAX - 1;
const OWN_FLUSH: u64 = u64::MAX - 2;
const REWRITE: u64 = u64::MAX - 3;

/// What is under way for owners of the kind `O`.
#[derive(Debug)]
pub(crate) struct Carrier<O> {
    disk: Disk,
    completions: CompletionQueue,
    entries: Slab<Entry<O>>,
    jobs: Jobs<Task>,
    /// Most that is kept when the disk has a volatile cache; zero: nothing, whatever it has.
    keep_bytes: u64,
    /// What the disk has told of its cache last.
    is_volatile: bool,
    /// None: nothing is kept now.
    keeping: Option<Keeping>,
    /// Where the footing of the next one begins.
    footing: Footing,
    /// Operations under way, but for what is written again.
    at_disk: usize,
    /// Who had the device before may have written, and not flushed.
    takes_over: bool,
    settling: Arc<Settling>,
    /// Operations that fail without being sent, by their tags.
    refused: VecDeque<(u64, Option<initiator::Error>)>,
    /// Jobs whose reads found no memory.
    hungry: VecDeque<usize>,
    ended: Vec<Ended<O>>,
    news: Vec<News>,
    last_flush: LastFlush,
    /// Nothing goes well any more.
    gone: Option<Gone>,
    /// That flushes fail was told.
    flushes_fail: bool,
}

/// Why nothing goes well any more.
#[derive(Clone, Debug)]
struct Gone {
    cause: String,
    /// Whether what was not flushed may be lost.
    may_be_lost: bool,
}

/// A request has ended.
#[derive(Debug)]
pub(crate) struct Ended<O> {
    pub(crate) owner: O,
    /// With the data of a read.
    pub(crate) result: Result<Option<Data>, Errno>,
}

/// A request under way.
#[derive(Debug)]
struct Entry<O> {
    /// None: whoever serves the disk.
    owner: Option<O>,
    parts_left: usize,
    failed: Option<Errno>,
    data: Option<Data>,
}

/// A part of a request, under way or waiting.
#[derive(Debug)]
struct Task {
    entry: usize,
    /// To be submitted when it begins; it stays here until it has ended, since it may have to be
    /// kept.
    operation: Option<Operation>,
    /// Of a read: bytes at the start that were not asked for.
    lead: Option<usize>,
    /// What has to be read before the write.
    edges: Option<Edges>,
    /// What is set aside to keep it.
    cost: u64,
    /// What is covered, if it is a flush.
    mark: Stamp,
}

/// The flush at the end.
#[derive(Debug)]
enum LastFlush {
    Unwanted,
    Wanted,
    UnderWay,
    Over(Result<(), initiator::Error>),
}

impl Task {
    fn new(entry: usize, operation: Option<Operation>) -> Self {
        let mark = Stamp::default();
        Self { entry, operation, lead: None, edges: None, cost: 0, mark }
    }

    /// What it costs to keep what it writes; None: it changes nothing.
    fn keeping_cost(&mut self) -> Option<u64> {
        match (&self.operation, &mut self.edges) {
            (Some(operation), _) => keeping::cost_of(operation),
            (None, Some(edges)) => Some(keep::data_cost(edges.bytes.get().len())),
            (None, None) => None,
        }
    }
}

impl<O> Carrier<O> {
    /// Of `disk`, whose operations end in `completions`; most that is kept is `keep_bytes`. Who has
    /// `settling` may ask for a flush.
    pub(crate) fn new(
        disk: Disk,
        completions: CompletionQueue,
        keep_bytes: u64,
        settling: Arc<Settling>,
    ) -> Self {
        disk.watch(&completions, NEWS);
        let geometry = disk.geometry();
        let keep_bytes = if geometry.read_only { 0 } else { keep_bytes };
        let footing = Footing::default();
        // What is on stable storage when it is acknowledged is lost by nobody.
        let keeps = keep_bytes > 0 && geometry.volatile_cache;
        Self {
            disk,
            completions,
            entries: Slab::new(),
            jobs: Jobs::default(),
            keep_bytes,
            is_volatile: geometry.volatile_cache,
            keeping: keeps.then(|| Keeping::new(keep_bytes, footing)),
            footing,
            at_disk: 0,
            takes_over: false,
            settling,
            refused: VecDeque::new(),
            hungry: VecDeque::new(),
            ended: Vec::new(),
            news: Vec::new(),
            last_flush: LastFlush::Unwanted,
            gone: None,
            flushes_fail: false,
        }
    }

    /// Begins what has its data, or needs none: several requests that end as one.
    pub(crate) fn begin(&mut self, owner: O, requests: &[(Request, Vec<Part>)]) {
        let parts = requests.iter().map(|(_, parts)| parts.len()).sum();
        let Some(entry) = self.enter(Some(owner), parts) else { return };
        for (request, parts) in requests {
            for part in parts {
                self.begin_part(entry, part.clone(), *request);
            }
        }
    }

    /// Begins a write: its data stands in `bufs`, one behind the other, behind `lead` bytes; they
    /// are as long as the blocks that it goes to.
    pub(crate) fn write(&mut self, owner: O, request: Request, bufs: Vec<Buf>, lead: usize) {
        let Some(entry) = self.enter(Some(owner), bufs.len()) else { return };
        let block = u64::from(self.geometry().block.max(1));
        let mut start = request.offset - request.offset % block;
        let new = lead..lead + request.length as usize;
        let mut at = 0;
        for buf in bufs {
            let here = at..at + buf.len();
            let blocks = start..start + buf.len() as u64;
            let new = new.start.clamp(here.start, here.end) - at
                ..new.end.clamp(here.start, here.end) - at;
            (at, start) = (here.end, blocks.end);
            self.begin_write(entry, blocks, Bytes::Buffer(buf), new, request.durable);
        }
    }

    /// Takes what has ended, or happened to the disk.
    pub(crate) fn reap(&mut self) {
        let mut entries = Vec::new();
        while self.completions.reap_all(&mut entries) > 0 {
            for entry in entries.drain(..) {
                self.take(entry);
            }
        }
        self.advance();
    }

    /// Goes on with what waits for nobody but this.
    pub(crate) fn advance(&mut self) {
        loop {
            while let Some((tag, error)) = self.refused.pop_front() {
                self.on_end(tag, Err(error));
            }
            self.go_on();
            if self.settling.is_asked() {
                self.settle();
            }
            if self.refused.is_empty() {
                return self.flush_at_last();
            }
        }
    }

    /// Of all requests under way.
    pub(crate) fn owners(&mut self) -> impl Iterator<Item = &mut O> {
        self.entries.iter_mut().filter_map(|(_, entry)| entry.owner.as_mut())
    }

    /// Requests that have ended since the last call.
    pub(crate) fn ended(&mut self) -> Vec<Ended<O>> {
        std::mem::take(&mut self.ended)
    }

    /// What has happened since the last call.
    pub(crate) fn news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Tries again some of the reads that found no memory.
    pub(crate) fn feed(&mut self) {
        for _ in 0..self.hungry.len().min(limits::HUNGRY_AT_ONCE) {
            if let Some(number) = self.hungry.pop_front() {
                self.launch(number);
            }
        }
        self.advance();
    }

    /// Somebody else may have written, and not flushed.
    pub(crate) const fn takes_over(&mut self) {
        self.takes_over = true;
    }

    /// Nothing more is asked for: when all has ended what was written is flushed, see
    /// [`Carrier::finished`].
    pub(crate) fn finish(&mut self) {
        self.last_flush = LastFlush::Wanted;
        self.advance();
    }

    /// How that has ended; None: it has not.
    pub(crate) fn finished(&self) -> Option<Result<(), Error>> {
        if let Some(Gone { cause, may_be_lost }) = &self.gone {
            return Some(if *may_be_lost { Err(Error::Broken(cause.clone())) } else { Ok(()) });
        }
        match &self.last_flush {
            LastFlush::Over(result) => Some(result.clone().map_err(Error::Disk)),
            _ => None,
        }
    }

    /// The same for who waits no longer.
    pub(crate) fn unfinished(&self) -> Result<(), Error> {
        if self.is_at_risk() { Err(Error::Silent) } else { Ok(()) }
    }

    /// Whether something that was acknowledged may not be on stable storage.
    fn is_at_risk(&self) -> bool {
        (self.is_volatile || self.keeping.is_some()) && self.has_unflushed()
    }

    /// Whether a flush has something to do, as far as the disk has a volatile cache.
    fn has_unflushed(&self) -> bool {
        let holds_some = self.keeping.as_ref().is_some_and(|keeping| keeping.keep.holds_some());
        self.takes_over || holds_some || self.disk.has_unflushed()
    }

    /// Flushes what has ended.
    fn settle(&mut self) {
        if !self.is_at_risk() {
            return self.settling.ended();
        }
        if let Some(entry) = self.enter(None, 1) {
            let what = Task::new(entry, Some(Operation::Flush));
            self.start(Job { blocks: 0..0, alone: false, what });
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    /// Whether reads wait for memory, which comes back from any thread and tells nobody.
    pub(crate) fn is_hungry(&self) -> bool {
        !self.hungry.is_empty()
    }

    /// Whether [`Carrier::feed`] is to be called soon, whatever else happens: for memory, or as a
    /// flush waits for its time.
    pub(crate) fn wants_turn(&self) -> bool {
        self.is_hungry() || self.keeping.as_ref().is_some_and(Keeping::has_paused)
    }

    /// On what an answer of the disk stands: it is right if this is the same when it has come as
    /// when it was asked for. None: on nothing now, something is written again.
    pub(crate) fn footing(&self) -> Option<Footing> {
        match &self.keeping {
            Some(keeping) => keeping.keep.footing(),
            None => Some(self.footing),
        }
    }

    /// Nothing goes on any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.keeping.as_ref().is_some_and(|keeping| keeping.keep.is_broken())
    }

    /// None: there is nothing to do, and that has ended.
    fn enter(&mut self, owner: Option<O>, parts: usize) -> Option<usize> {
        if parts == 0 {
            self.tell_end(owner, Ok(None));
            return None;
        }
        let entry = Entry { owner, parts_left: parts, failed: None, data: None };
        Some(self.entries.insert(entry))
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
            // Their owners do them otherwise.
            Part::Write { .. } | Part::Status { .. } => {
                return self.part_ended(entry, None, Err(Errno::Invalid));
            }
            Part::Read { blocks, lead } => (read_of(&blocks), Some(lead), 0..0),
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
        let what = Task { lead, ..Task::new(entry, Some(operation)) };
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
            Task::new(entry, Some(write))
        } else {
            let blocks = blocks.clone();
            let edges = Edges { bytes, blocks, new, durable, reads_left: 0, failed: None };
            Task { edges: Some(edges), ..Task::new(entry, None) }
        };
        self.start(Job { blocks, alone: !whole, what });
    }

    fn start(&mut self, mut job: Job<Task>) {
        // What is kept is what the disk has: of two that overlap the later one.
        job.alone |= self.keep_bytes > 0;
        if let Some(number) = self.jobs.begin(job) {
            self.launch(number);
        }
    }

    /// A job may begin.
    fn launch(&mut self, number: usize) {
        if !self.may_begin(number) {
            return;
        }
        let Some(task) = self.jobs.get_mut(number) else { return };
        if let Some(keeping) = &self.keeping {
            task.mark = keeping.keep.mark();
        }
        if let Some(operation) = task.operation.clone() {
            return self.submit(number, MAIN, operation);
        }
        let Some(edges) = &mut task.edges else { return };
        let block = u64::from(self.disk.geometry().block.max(1));
        let (first, last) = (edges.blocks.start, edges.blocks.end - block);
        let head = edges.new.start > 0 || last == first;
        let tail = last > first && edges.new.end < edges.bytes.get().len();
        (edges.reads_left, edges.failed) = (usize::from(head) + usize::from(tail), None);
        for (step, is_wanted, at) in [(HEAD, head, first), (TAIL, tail, last)] {
            if is_wanted {
                self.submit(number, step, read_of(&(at..at + block)));
            }
        }
    }

    fn submit(&mut self, number: usize, step: u64, operation: Operation) {
        let tag = number as u64 * STEPS + step;
        self.at_disk += 1;
        if let Err(error) = self.disk.submit(&self.completions, tag, operation) {
            // Not at once: others may wait for its end, and others for theirs.
            self.refused.push_back((tag, Some(error)));
        }
    }

    /// A job fails, and nothing of it was sent.
    fn refuse(&mut self, number: usize) {
        self.at_disk += 1;
        self.refused.push_back((number as u64 * STEPS + MAIN, None));
    }

    fn take(&mut self, completion: Completion) {
        match completion {
            Completion::Ended { tag: LAST_FLUSH, result } => self.on_last_flush(result.map(drop)),
            Completion::Ended { tag: OWN_FLUSH, result } => self.on_own_flush(result.map(drop)),
            Completion::Ended { tag: REWRITE, result } => self.on_rewritten(result.map(drop)),
            Completion::Ended { tag, result } => self.on_end(tag, result.map_err(Some)),
            Completion::Event { event: DiskEvent::MayHaveLost(fate), .. } => self.on_loss(fate),
            Completion::Event { event: DiskEvent::Cache { volatile }, .. } => {
                self.on_cache(volatile);
            }
            Completion::Event { event, .. } => self.news.push(News::Disk(event)),
            _ => {}
        }
    }

    /// An operation has ended.
    fn on_end(&mut self, tag: u64, result: Outcome) {
        self.at_disk -= 1;
        if let Err(Some(error)) = &result {
            match error.kind() {
                Kind::OtherDisk { .. } => self.on_other_disk(error),
                // What is kept is written again.
                Kind::WritesLost if self.keeping.is_none() && !self.flushes_fail => {
                    self.flushes_fail = true;
                    self.news.push(News::FlushesFail(error.to_string()));
                }
                _ => {}
            }
        }
        let Ok(number) = usize::try_from(tag / STEPS) else { return };
        match tag % STEPS {
            MAIN => self.on_main_end(number, result),
            step => self.on_edge(number, step, result),
        }
    }

    fn on_main_end(&mut self, number: usize, result: Outcome) {
        let Some(task) = self.jobs.get_mut(number) else { return };
        if task.lead.is_some() && is_full(&result) {
            return self.hungry.push_back(number);
        }
        let is_flush = matches!(task.operation, Some(Operation::Flush));
        if let Some(keeping) = &mut self.keeping
            && keeping.judge(task, &result) == Verdict::Again
        {
            return keeping.again.push(number);
        }
        self.takes_over &= !(is_flush && result.is_ok());
        self.end_job(number, result);
    }

    /// What is around new bytes has been read.
    fn on_edge(&mut self, number: usize, step: u64, result: Outcome) {
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
            Err(error) => edges.failed = error,
        }
        if edges.reads_left > 0 {
            return;
        }
        if let Some(error) = edges.failed.take() {
            if matches!(error.kind(), Kind::Full) {
                return self.hungry.push_back(number);
            }
            if let Some(keeping) = &mut self.keeping {
                keeping.keep.release(task.cost);
            }
            return self.end_job(number, Err(Some(error)));
        }
        if let Some(keeping) = &mut self.keeping
            && !keeping.keep.is_steady()
        {
            // What was read may be what was lost.
            return keeping.again.push(number);
        }
        let Some(edges) = task.edges.take() else { return };
        let write = Operation::write(edges.blocks.start, edges.bytes.freeze());
        let write = if edges.durable { write.durable() } else { write };
        task.operation = Some(write.clone());
        self.submit(number, MAIN, write);
    }

    fn end_job(&mut self, number: usize, result: Outcome) {
        let Some(task) = self.jobs.end(number) else { return };
        let is_write = task.lead.is_none();
        let result = result.map_err(|error| {
            error.map_or(Errno::InputOutput, |error| split::errno(error.kind(), is_write))
        });
        self.part_ended(task.entry, task.lead, result);
        while let Some(next) = self.jobs.next() {
            self.launch(next);
        }
    }

    fn part_ended(&mut self, key: usize, lead: Option<usize>, result: Result<Chunks, Errno>) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.parts_left -= 1;
        match result {
            Err(errno) => entry.failed = Some(entry.failed.unwrap_or(errno)),
            Ok(chunks) => entry.data = lead.map(|lead| Data { chunks, lead }),
        }
        if entry.parts_left > 0 {
            return;
        }
        let Entry { owner, failed, data, .. } = self.entries.remove(key);
        self.tell_end(owner, failed.map_or(Ok(data), Err));
    }

    fn tell_end(&mut self, owner: Option<O>, result: Result<Option<Data>, Errno>) {
        match owner {
            Some(owner) => self.ended.push(Ended { owner, result }),
            None => self.settling.ended(),
        }
    }

    fn flush_at_last(&mut self) {
        let is_time = matches!(self.last_flush, LastFlush::Wanted)
            && self.jobs.is_empty()
            && self.footing().is_some();
        if !is_time {
            return;
        }
        if !self.has_unflushed() {
            self.last_flush = LastFlush::Over(Ok(()));
            return;
        }
        match self.disk.submit(&self.completions, LAST_FLUSH, Operation::Flush) {
            Ok(()) => {
                self.last_flush = LastFlush::UnderWay;
                self.at_disk += 1;
            }
            Err(error) => self.last_flush = LastFlush::Over(Err(error)),
        }
    }

    fn on_last_flush(&mut self, result: Result<(), initiator::Error>) {
        self.at_disk -= 1;
        let is_lost = matches!(&result, Err(error) if matches!(error.kind(), Kind::WritesLost));
        if is_lost && self.keeping.is_some() && self.footing().is_some() {
            self.doubt(Fate::Reset);
        }
        self.last_flush = match self.footing() {
            Some(_) => LastFlush::Over(result),
            None => LastFlush::Wanted,
        };
    }
}

fn read_of(blocks: &Range<u64>) -> Operation {
    Operation::read(blocks.start, blocks.end - blocks.start)
}

fn is_full(result: &Outcome) -> bool {
    matches!(result, Err(Some(error)) if matches!(error.kind(), Kind::Full))
}
