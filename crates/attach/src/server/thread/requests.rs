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
use initiator::Operation;
use initiator::Pending;
use initiator::Retry;
use initiator::Space;
use initiator::scsi;
use initiator::scsi::command;
use initiator::scsi::lba_status;
use nbd::Command;
use nbd::Errno;
use nbd::Request;

use super::Error;
use super::LAST_FLUSH;
use super::News;
use super::Server;
use crate::client::Data;
use crate::client::Destination;
use crate::client::End;
use crate::client::Writing;
use crate::edges::Bytes;
use crate::edges::Edges;
use crate::edges::fill_around;
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
pub(super) struct Task {
    entry: usize,
    /// To be submitted when it begins.
    operation: Option<Operation>,
    /// Of a read: bytes at the start that were not asked for.
    lead: Option<usize>,
    /// What has to be read before the write.
    edges: Option<Edges>,
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
    pub(super) fn hear(&mut self) {
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

    pub(super) fn reap(&mut self) {
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
}
