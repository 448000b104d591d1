// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the initiator keeps of a task: its memory, here or named for the target.
//!
//! ```text
//!   here --command goes out--> named --status, abort, Send with Invalidate--> here
//! ```

use buf::Buf;
use buf::Slice;
use iscsi::initiator::datamover::TaskId;
use rdma::region::Memory;
use rdma::region::Withdrawn;
use wire::iscsi::ScsiCommand;
use wire::iser::Advertised;
use wire::iwarp::Stag;

use crate::iser::stream::Stream;

/// A task on its way from one connection to another: what is of this connection alone stays behind.
#[derive(Debug)]
pub struct Carried {
    id: TaskId,
    write: Option<Slice>,
    read: Option<Buf>,
    needs: Needs,
}

impl Carried {
    /// Of a task whose names the target has no more.
    pub(super) fn new(id: TaskId, task: Task) -> Self {
        let Task { write, read, needs, .. } = task;
        Self { id, write, read, needs }
    }

    pub(super) fn into_task(self) -> (TaskId, Task) {
        let Self { id, write, read, needs } = self;
        (id, Task { needs, ..Task::new(write, read) })
    }
}

/// What a command has the target do with its memory.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    /// Bytes that it wants.
    wanted: u32,
    /// From where on, and to where, the target fetches what it writes.
    fetched: (u32, u32),
    /// Bytes of immediate data.
    immediate: u32,
}

/// Which data the memory has that a write names (RFC 7145 §6.9).
#[derive(Clone, Copy, Debug)]
pub(super) enum Names {
    All,
    /// What the target fetches.
    Fetched,
}

/// One task.
#[derive(Debug, Default)]
pub(super) struct Task {
    /// Sent to the target; byte 0 is byte 0 of the command's buffer.
    write: Option<Slice>,
    /// What comes from it, while the target has no name for it.
    read: Option<Buf>,
    /// The names that the target has.
    write_stag: Option<Stag>,
    read_stag: Option<Stag>,
    needs: Needs,
    /// Bytes that the command may get, and that have come without a gap, as far as its memory was
    /// taken back.
    in_len: u32,
    came: u64,
    /// Where the data that was given out so far ends.
    given: u32,
    pub(super) begun: bool,
    /// Nothing more is sent for it.
    pub(super) quiet: bool,
}

impl Task {
    pub(super) fn new(write: Option<Slice>, read: Option<Buf>) -> Self {
        Self { write, read, ..Self::default() }
    }

    /// The command goes out, with so much immediate data: names what the target is to read, and
    /// what it may write to. What it sends unasked ends at `unsolicited_end`. None: there is no
    /// name to be had now, and nothing has changed.
    pub(super) fn begin(
        &mut self,
        command: &ScsiCommand,
        (immediate, unsolicited_end): (u32, u32),
        context: (Names, &mut Stream),
    ) -> Option<(Option<Advertised>, Option<Advertised>)> {
        let wanted = match command.bidi_read_length {
            Some(length) => length,
            None if command.read => command.expected_length,
            None => 0,
        };
        let all = if command.write { command.expected_length } else { 0 };
        self.needs = Needs { wanted, fetched: (unsolicited_end, all), immediate };
        self.name(context)
    }

    /// The task goes on here: the target may fetch what was sent unasked on the connection before,
    /// but for immediate data, which came with the command (RFC 7145 §10.2.2). What it has written
    /// before does not count: it is asked for all of it.
    pub(super) fn go_on(
        &mut self,
        context: (Names, &mut Stream),
    ) -> Option<(Option<Advertised>, Option<Advertised>)> {
        self.needs.fetched.0 = self.needs.immediate;
        self.name(context)
    }

    fn name(
        &mut self,
        (names, stream): (Names, &mut Stream),
    ) -> Option<(Option<Advertised>, Option<Advertised>)> {
        let Needs { wanted, fetched, .. } = self.needs;
        let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let room = self.read.as_ref().map_or(0, |buf| length(buf.len()));
        self.in_len = wanted.min(room);
        let (mut write, mut read) = (None, None);
        if wanted > 0
            && let Some(buf) = self.read.take()
        {
            match stream.name(Memory::Sink(buf)) {
                Ok(named) => read = Some(named),
                Err(memory) => {
                    self.take_back(memory);
                    return None;
                }
            }
        }
        self.read_stag = read.map(|named| named.stag);
        if fetched.0 < fetched.1
            && let Some(slice) = &self.write
        {
            let from = match names {
                Names::All => 0,
                // What has no name cannot be reached by an offset before it either.
                Names::Fetched => usize::try_from(fetched.0).ok()?,
            };
            let source = slice.part(from..slice.len())?;
            match stream.name(Memory::Source(source)) {
                Ok(named) => write = Some(named),
                Err(_) => {
                    self.end_memory(stream);
                    return None;
                }
            }
        }
        self.begun = true;
        self.write_stag = write.map(|named| named.stag);
        Some((write, read))
    }

    /// A part of what it sends.
    pub(super) fn part(&mut self, from: u32, to: u32) -> Option<Slice> {
        let range = usize::try_from(from).ok()?..usize::try_from(to).ok()?;
        let part = self.write.as_ref()?.part(range)?;
        self.given = self.given.max(to);
        Some(part)
    }

    pub(super) fn given(&self) -> u64 {
        self.given.into()
    }

    /// The names that the target has.
    pub(super) fn stags(&self) -> impl Iterator<Item = Stag> {
        self.write_stag.into_iter().chain(self.read_stag)
    }

    /// Bytes that have come, once all names have ended: what the target says of them has to fit.
    pub(super) fn received(&self) -> u32 {
        debug_assert!(self.read_stag.is_none(), "more may come");
        u32::try_from(self.came).map_or(self.in_len, |came| came.min(self.in_len))
    }

    /// The target has ended a name; false if it is none of this task's.
    pub(super) fn invalidated(&mut self, stag: Stag, withdrawn: Withdrawn) -> bool {
        let of = [&mut self.write_stag, &mut self.read_stag];
        let Some(name) = of.into_iter().find(|name| **name == Some(stag)) else { return false };
        *name = None;
        self.withdraw(withdrawn);
        true
    }

    /// Ends all names.
    pub(super) fn end_memory(&mut self, stream: &mut Stream) {
        for stag in self.write_stag.take().into_iter().chain(self.read_stag.take()) {
            if let Some(withdrawn) = stream.end_name(stag) {
                self.withdraw(withdrawn);
            }
        }
    }

    pub(super) fn take_read(&mut self) -> Option<Buf> {
        self.read.take()
    }

    fn withdraw(&mut self, Withdrawn { memory, filled }: Withdrawn) {
        if matches!(memory, Memory::Sink(_)) {
            self.came = filled;
        }
        self.take_back(memory);
    }

    fn take_back(&mut self, memory: Memory) {
        match memory {
            Memory::Sink(buf) => self.read = Some(buf),
            Memory::Source(_) => {}
        }
    }
}
