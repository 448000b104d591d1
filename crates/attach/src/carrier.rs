// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests on their way through the disk, from their parts to their ends.
//!
//! It waits for nothing: operations end in the [`CompletionQueue`], whose owner tells their ends to
//! [`Carrier::on_end`]; then requests have ended, and are taken from [`Carrier::ended`].

use std::ops::Range;

use buf::Buf;
use initiator::Chunks;
use initiator::CompletionQueue;
use initiator::Disk;
use initiator::Kind;
use initiator::Operation;
use initiator::Space;
use nbd::Command;
use nbd::Errno;
use nbd::Request;
use slab::Slab;

use crate::client::Data;
use crate::edges::Bytes;
use crate::edges::Edges;
use crate::edges::fill_around;
use crate::split;
use crate::split::Part;
use crate::work::Job;
use crate::work::Jobs;

/// What a tag says besides the number of a job.
const MAIN: u64 = 0;
const HEAD: u64 = 1;
const TAIL: u64 = 2;
const STEPS: u64 = 4;

/// Tags from here on are no jobs'.
pub(crate) const TAGS_END: u64 = u64::MAX - 15;

/// What is under way for owners of the kind `O`.
#[derive(Debug)]
pub(crate) struct Carrier<O> {
    disk: Disk,
    completions: CompletionQueue,
    entries: Slab<Entry<O>>,
    jobs: Jobs<Task>,
    ended: Vec<Ended<O>>,
    /// Tags of reads that found no memory.
    hungry: Vec<u64>,
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
    owner: O,
    parts_left: usize,
    failed: Option<Errno>,
    data: Option<Data>,
}

/// A part of a request, under way or waiting.
#[derive(Debug)]
struct Task {
    entry: usize,
    /// To be submitted when it begins.
    operation: Option<Operation>,
    /// Of a read: its blocks, and how many bytes at the start were not asked for.
    read: Option<(Range<u64>, usize)>,
    /// What has to be read before the write.
    edges: Option<Edges>,
}

impl<O> Carrier<O> {
    pub(crate) fn new(disk: Disk, completions: CompletionQueue) -> Self {
        let (entries, jobs) = (Slab::new(), Jobs::default());
        Self { disk, completions, entries, jobs, ended: Vec::new(), hungry: Vec::new() }
    }

    /// Begins what has its data, or needs none: several requests that end as one.
    pub(crate) fn begin(&mut self, owner: O, requests: &[(Request, Vec<Part>)]) {
        let parts_left = requests.iter().map(|(_, parts)| parts.len()).sum();
        if parts_left == 0 {
            self.ended.push(Ended { owner, result: Ok(None) });
            return;
        }
        let entry = Entry { owner, parts_left, failed: None, data: None };
        let entry = self.entries.insert(entry);
        for (request, parts) in requests {
            for part in parts {
                self.begin_part(entry, part.clone(), *request);
            }
        }
    }

    /// Begins a write: its data stands in `buf` behind `lead` bytes, which is as long as the blocks
    /// that it goes to.
    pub(crate) fn write(&mut self, owner: O, request: Request, buf: Buf, lead: usize) {
        let block = u64::from(self.disk.geometry().block.max(1));
        let start = request.offset - request.offset % block;
        let blocks = start..start + buf.len() as u64;
        let new = lead..lead + request.length as usize;
        let entry = Entry { owner, parts_left: 1, failed: None, data: None };
        let entry = self.entries.insert(entry);
        self.begin_write(entry, blocks, Bytes::Buffer(buf), new, request.durable);
    }

    /// Requests that have ended since the last call.
    pub(crate) fn ended(&mut self) -> Vec<Ended<O>> {
        std::mem::take(&mut self.ended)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    fn begin_part(&mut self, entry: usize, part: Part, request: Request) {
        let durable = |operation: Operation| match request.durable {
            true => operation.durable(),
            false => operation,
        };
        let mut read = None;
        let (operation, blocks) = match part {
            Part::ZeroBytes { blocks, lead, bytes } => {
                let zeroes = Bytes::Heap(vec![0; split::length(blocks.clone())]);
                let new = lead..lead + bytes;
                return self.begin_write(entry, blocks, zeroes, new, request.durable);
            }
            // Their owners do them otherwise.
            Part::Write { .. } | Part::Status { .. } => {
                return self.part_ended(entry, None, Err(Errno::Invalid));
            }
            Part::Read { blocks, lead } => {
                let operation = read_of(&blocks);
                read = Some((blocks, lead));
                (operation, 0..0)
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
                (durable(zero), blocks)
            }
            Part::Discard { blocks } => {
                let discard = Operation::discard(blocks.start, blocks.end - blocks.start);
                (durable(discard), blocks)
            }
            Part::Flush => (Operation::Flush, 0..0),
        };
        let what = Task { entry, operation: Some(operation), read, edges: None };
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
            Task { entry, operation: Some(write), read: None, edges: None }
        } else {
            let blocks = blocks.clone();
            let edges = Edges { bytes, blocks, new, durable, reads_left: 0, failed: None };
            Task { entry, operation: None, read: None, edges: Some(edges) }
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
        edges.reads_left = usize::from(head) + usize::from(tail);
        for (step, is_wanted) in [(HEAD, head), (TAIL, tail)] {
            if is_wanted && let Some(blocks) = self.blocks_read(number, step) {
                self.submit(number, step, read_of(&blocks));
            }
        }
    }

    fn submit(&mut self, number: usize, step: u64, operation: Operation) {
        let tag = number as u64 * STEPS + step;
        if let Err(error) = self.disk.submit(&self.completions, tag, operation) {
            self.on_end(tag, Err(error));
        }
    }

    /// Whether reads wait for memory, which comes back from any thread and tells nobody.
    pub(crate) fn is_hungry(&self) -> bool {
        !self.hungry.is_empty()
    }

    /// Tries again what waits for memory.
    pub(crate) fn feed(&mut self) {
        for tag in std::mem::take(&mut self.hungry) {
            let (Ok(number), step) = (usize::try_from(tag / STEPS), tag % STEPS) else { continue };
            if let Some(blocks) = self.blocks_read(number, step) {
                self.submit(number, step, read_of(&blocks));
            }
        }
    }

    /// What a step of a job reads, if it does.
    fn blocks_read(&mut self, number: usize, step: u64) -> Option<Range<u64>> {
        let block = u64::from(self.disk.geometry().block.max(1));
        let task = self.jobs.get_mut(number)?;
        let blocks = task.edges.as_ref().map(|edges| edges.blocks.clone());
        match step {
            HEAD => blocks.map(|blocks| blocks.start..blocks.start + block),
            TAIL => blocks.map(|blocks| blocks.end - block..blocks.end),
            _ => task.read.as_ref().map(|(blocks, _)| blocks.clone()),
        }
    }

    /// An operation has ended.
    pub(crate) fn on_end(&mut self, tag: u64, result: Result<Chunks, initiator::Error>) {
        let Ok(number) = usize::try_from(tag / STEPS) else { return };
        let step = tag % STEPS;
        let is_full = matches!(&result, Err(error) if matches!(error.kind(), Kind::Full));
        if is_full && self.blocks_read(number, step).is_some() {
            self.hungry.push(tag);
            return;
        }
        if step == MAIN {
            let Some(task) = self.jobs.end(number) else { return };
            let is_write = task.read.is_none();
            let result = result.map_err(|error| split::errno(error.kind(), is_write));
            self.part_ended(task.entry, task.read.map(|(_, lead)| lead), result);
            return self.launch_next();
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
            Err(error) => edges.failed = Some(error),
        }
        if edges.reads_left > 0 {
            return;
        }
        let Some(edges) = task.edges.take() else { return };
        if let Some(error) = edges.failed {
            let Some(task) = self.jobs.end(number) else { return };
            self.part_ended(task.entry, None, Err(split::errno(error.kind(), true)));
            return self.launch_next();
        }
        let write = Operation::write(edges.blocks.start, edges.bytes.freeze());
        self.submit(number, MAIN, if edges.durable { write.durable() } else { write });
    }

    /// What has waited for a job that has ended.
    fn launch_next(&mut self) {
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
        let result = failed.map_or(Ok(data), Err);
        self.ended.push(Ended { owner, result });
    }
}

fn read_of(blocks: &Range<u64>) -> Operation {
    Operation::read(blocks.start, blocks.end - blocks.start)
}
