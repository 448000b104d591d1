// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests on their way through the disk: parts, questions, ends.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Wake;

use engine::Port;
use engine::Waker;
use initiator::Chunks;
use initiator::Completion;
use initiator::DiskEvent;
use initiator::Kind;
use initiator::Operation;
use initiator::Pending;
use initiator::Pool;
use initiator::Retry;
use initiator::Space;
use initiator::scsi;
use initiator::scsi::command;
use initiator::scsi::lba_status;
use nbd::Command;
use nbd::Errno;
use nbd::Request;

use super::LAST_FLUSH;
use super::News;
use super::OWN_FLUSH;
use super::REWRITE;
use super::Server;
use super::keeping;
use super::keeping::Ended;
use super::keeping::Verdict;
use crate::client::Data;
use crate::client::Destination;
use crate::client::End;
use crate::client::Writing;
use crate::edges::Bytes;
use crate::edges::Edges;
use crate::edges::fill_around;
use crate::keep;
use crate::keep::Stamp;
use crate::limits;
use crate::split;
use crate::split::Part;
use crate::work::Job;

/// What a tag says besides the number of a job.
const MAIN: u64 = 0;
const HEAD: u64 = 1;
const TAIL: u64 = 2;
const STEPS: u64 = 4;

/// A request under way.
#[derive(Debug)]
pub(super) struct Entry {
    client: usize,
    request: Request,
    parts_left: usize,
    failed: Option<Errno>,
    data: Option<Data>,
}

/// GET LBA STATUS under way.
#[derive(Debug)]
pub(super) struct Question {
    client: usize,
    request: Request,
    first: u64,
    /// None: it is asked when all is written again.
    answer: Option<Pending>,
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
pub(super) struct Task {
    entry: usize,
    /// To be submitted when it begins; where something is kept it stays here.
    pub(super) operation: Option<Operation>,
    /// Of a read: bytes at the start that were not asked for.
    lead: Option<usize>,
    /// What has to be read before the write.
    edges: Option<Edges>,
    /// What is set aside to keep it.
    pub(super) cost: u64,
    /// What is covered, if it is a flush.
    pub(super) mark: Stamp,
}

impl Task {
    fn new(entry: usize, operation: Option<Operation>) -> Self {
        let mark = Stamp::default();
        Self { entry, operation, lead: None, edges: None, cost: 0, mark }
    }

    /// What it costs to keep what it writes; None: it changes nothing.
    pub(super) fn keeping_cost(&mut self) -> Option<u64> {
        match (&self.operation, &mut self.edges) {
            (Some(operation), _) => keeping::cost_of(operation),
            (None, Some(edges)) => Some(keep::data_cost(edges.bytes.get().len())),
            (None, None) => None,
        }
    }
}

impl<P: Port> Server<P> {
    /// A request has come.
    pub(super) fn accept(&mut self, key: usize, request: Request) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if request.command == Command::Disconnect {
            client.end = End::WhenAnswered;
            return;
        }
        client.owes(&request);
        self.begin(key, request);
    }

    /// Begins a request that is counted, unless there is no memory for it now.
    pub(super) fn begin(&mut self, key: usize, request: Request) {
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
                    match destination(&self.pool, split::length(blocks.clone()), *lead) {
                        Some(to) => client.writing = Some(Writing { request, to, came: 0 }),
                        None => {
                            client.blocked = Some(request);
                            self.blocked = true;
                        }
                    }
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
        let answer = self.is_steady().then(|| self.post_question(first));
        self.questions.push(Question { client: key, request, first, answer });
        self.hear();
    }

    fn post_question(&self, first: u64) -> Pending {
        let cdb = command::get_lba_status(first, limits::STATUS_BYTES);
        let room = initiator::Data::In(limits::STATUS_BYTES);
        self.disk.post(cdb, room, Retry::Always)
    }

    /// Asks what has waited until all was written again.
    pub(super) fn ask_again(&mut self) {
        let mut questions = std::mem::take(&mut self.questions);
        if self.is_broken() {
            for question in questions.extract_if(.., |question| question.answer.is_none()) {
                let Some(client) = self.clients.get_mut(question.client) else { continue };
                client.at_disk -= 1;
                client.answer(&question.request, Err(Errno::InputOutput));
                self.touched.push(question.client);
            }
        }
        let mut posted = false;
        for question in questions.iter_mut().filter(|question| question.answer.is_none()) {
            question.answer = Some(self.post_question(question.first));
            posted = true;
        }
        self.questions = questions;
        if posted {
            self.hear();
        }
    }

    /// Looks which questions have their answers.
    pub(super) fn hear(&mut self) {
        if self.questions.is_empty() {
            return;
        }
        let awake = std::task::Waker::from(Arc::new(Awake(self.port.waker())));
        let mut context = Context::from_waker(&awake);
        let mut heard = Vec::new();
        self.questions.retain_mut(|question| {
            let Some(answer) = &mut question.answer else { return true };
            let Poll::Ready(result) = Pin::new(answer).poll(&mut context) else { return true };
            heard.push((question.client, question.request, question.first, result));
            false
        });
        // A loss was told before them, over another way.
        if !heard.is_empty() {
            self.reap();
        }
        for (key, request, first, result) in heard {
            if !self.is_steady() && !self.is_broken() {
                self.questions.push(Question { client: key, request, first, answer: None });
                continue;
            }
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
    pub(super) fn write(&mut self, key: usize, request: Request, to: Destination) {
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
            Destination::Buffers { bufs, lead } => {
                let block = u64::from(self.disk.geometry().block.max(1));
                let mut start = request.offset - request.offset % block;
                let new = lead..lead + request.length as usize;
                let entry = self.enter(key, request, bufs.len());
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
        job.alone |= self.keeping.is_some();
        if let Some(number) = self.jobs.begin(job) {
            self.launch(number);
        }
    }

    /// A job may begin.
    pub(super) fn launch(&mut self, number: usize) {
        if !self.may_begin(number) {
            return;
        }
        let Some(task) = self.jobs.get_mut(number) else { return };
        let operation = match &self.keeping {
            Some(keeping) => {
                task.mark = keeping.keep.mark();
                task.operation.clone()
            }
            // One that finds no memory is tried again.
            None if task.lead.is_some() => task.operation.clone(),
            None => task.operation.take(),
        };
        if let Some(operation) = operation {
            return self.submit(number, MAIN, operation);
        }
        let Some(edges) = &mut task.edges else { return };
        let block = u64::from(self.disk.geometry().block.max(1));
        let last = edges.blocks.end - block;
        let head = edges.new.start > 0 || last == edges.blocks.start;
        let tail = last > edges.blocks.start && edges.new.end < edges.bytes.get().len();
        let (first, reads) = (edges.blocks.start, usize::from(head) + usize::from(tail));
        (edges.reads_left, edges.failed) = (reads, None);
        if head {
            self.submit(number, HEAD, Operation::read(first, block));
        }
        if tail {
            self.submit(number, TAIL, Operation::read(last, block));
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
    pub(super) fn refuse(&mut self, number: usize) {
        self.at_disk += 1;
        self.refused.push_back((number as u64 * STEPS + MAIN, None));
    }

    pub(super) fn reap(&mut self) {
        let mut ended = Vec::new();
        while self.completions.reap_all(&mut ended) > 0 {
            for completion in ended.drain(..) {
                match completion {
                    Completion::Ended { tag: LAST_FLUSH, result } => {
                        self.on_last_flush(result.map(drop));
                    }
                    Completion::Ended { tag: OWN_FLUSH, result } => {
                        self.on_own_flush(result.map(drop));
                    }
                    Completion::Ended { tag: REWRITE, result } => {
                        self.on_rewritten(result.map(drop));
                    }
                    Completion::Ended { tag, result } => self.on_end(tag, result.map_err(Some)),
                    Completion::Event { event: DiskEvent::MayHaveLost(fate), .. }
                        if self.keeping.is_some() =>
                    {
                        self.doubt(fate);
                    }
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
        while let Some((tag, error)) = self.refused.pop_front() {
            self.on_end(tag, Err(error));
        }
    }

    /// An operation has ended.
    fn on_end(&mut self, tag: u64, result: Ended) {
        self.at_disk -= 1;
        if let Err(Some(error)) = &result
            && matches!(error.kind(), Kind::OtherDisk { .. })
        {
            self.on_other_disk(error);
        }
        let Ok(number) = usize::try_from(tag / STEPS) else { return };
        let step = tag % STEPS;
        if step == MAIN {
            if is_full(&result) && self.jobs.get_mut(number).is_some_and(|task| task.lead.is_some())
            {
                return self.is_hungry(number);
            }
            if let Some(keeping) = &mut self.keeping
                && let Some(task) = self.jobs.get_mut(number)
                && keeping.judge(task, &result) == Verdict::Again
            {
                return keeping.again.push(number);
            }
            return self.end_job(number, result);
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
            Err(error) => edges.failed = error,
        }
        if edges.reads_left > 0 {
            return;
        }
        if let Some(error) = edges.failed.take() {
            if matches!(error.kind(), Kind::Full) {
                return self.is_hungry(number);
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
        if self.keeping.is_some() {
            task.operation = Some(write.clone());
        }
        self.submit(number, MAIN, write);
    }

    /// What was to be read finds no memory: it is tried again, and who reads nothing gives way.
    fn is_hungry(&mut self, number: usize) {
        self.hungry.push_back(number);
        self.blocked = true;
    }

    /// Tries again what found no memory.
    pub(super) fn feed(&mut self) {
        for _ in 0..self.hungry.len().min(limits::HUNGRY_AT_ONCE) {
            if let Some(number) = self.hungry.pop_front() {
                self.launch(number);
            }
        }
        self.blocked |= !self.hungry.is_empty();
    }

    fn end_job(&mut self, number: usize, result: Ended) {
        let Some(task) = self.jobs.end(number) else { return };
        let is_write = task.lead.is_none();
        let result = result.map_err(|error| {
            error.map_or(Errno::InputOutput, |error| split::errno(error.kind(), is_write))
        });
        self.part_ended(&task, result);
        while let Some(next) = self.jobs.next() {
            self.launch(next);
        }
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
}

/// Where the data of a write goes that is so many bytes in whole blocks; None: there is no memory
/// for it now.
fn destination(pool: &Pool, length: usize, lead: usize) -> Option<Destination> {
    if length <= limits::BUFFER_BYTES_MAX {
        return Some(Destination::Buffer { buf: pool.take(length)?, lead });
    }
    let starts = (0..length).step_by(limits::BUFFER_BYTES_MAX);
    let lengths = starts.map(|start| limits::BUFFER_BYTES_MAX.min(length - start));
    if !pool.could_take(lengths.clone()) {
        return Some(Destination::Nowhere(Errno::NoMemory));
    }
    let bufs = lengths.map(|length| pool.take(length)).collect::<Option<_>>()?;
    Some(Destination::Buffers { bufs, lead })
}

fn is_full(result: &Ended) -> bool {
    matches!(result, Err(Some(error)) if matches!(error.kind(), Kind::Full))
}
