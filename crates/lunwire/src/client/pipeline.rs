// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves bytes from one place to another, many pieces at once.
//!
//! ```text
//! fetch --READ--> deliver --WRITE--> finished     disk to disk
//!   |                ^   `--------> finished      to files and streams, which are written at once
//!   +----------------+  files and streams are read at once
//! ```

mod durable;
mod journal;
mod verify;
mod window;

pub(crate) use journal::Journal;
use journal::Pace;
pub(crate) use window::Wanted;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use buf::Buf;
use buf::Slice;
use control::units;
use initiator::Done;
use initiator::Event;
use initiator::Queue;
use initiator::Request;
use initiator::SessionId;
use initiator::scsi;

use self::durable::Durable;
use self::verify::Compared;
use self::window::Begun;
use self::window::PIECE;
use self::window::Window;
use crate::client;
use crate::client::place;
use crate::client::place::Disk;
use crate::client::place::Durability;
use crate::client::place::Place;
use crate::client::progress::Progress;
use crate::client::progress::Wait;
use crate::client::same;

/// What is to be moved.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) from: Place,
    pub(crate) from_offset: u64,
    pub(crate) to: Place,
    pub(crate) to_offset: u64,
    /// Bytes; None: up to the end of a stream.
    pub(crate) length: Option<u64>,
    /// For progress: `copied`.
    pub(crate) what: &'static str,
    pub(crate) quiet: bool,
    /// How much may be under way.
    pub(crate) wanted: Wanted,
    pub(crate) verify: bool,
    /// A file that has something in it may be written to.
    pub(crate) overwrite: bool,
    /// Disks with one name are two, says the user.
    pub(crate) different: bool,
    pub(crate) journal: Option<Journal>,
}

/// A copy under way.
#[derive(Debug)]
struct Copy<'a> {
    queue: &'a mut Queue,
    plan: Plan,
    /// Bytes of the longest piece.
    piece: u32,
    window: Window,
    /// Where the next piece begins.
    next: u64,
    /// Nothing more comes from the source.
    ended: bool,
    /// By tag.
    under_way: HashMap<u64, Moving>,
    next_tag: u64,
    /// Pieces that wait for those before them, where order matters.
    held: BTreeMap<u64, Buf>,
    /// Finished pieces behind a gap: their ends.
    finished: BTreeMap<u64, u64>,
    /// Everything before is done.
    done: u64,
    durable: Durable,
    /// The destination announces WRITE SAME but does not take it.
    same_refused: bool,
    /// What does not read back as it was written: everything before does.
    doubted: Option<u64>,
    /// The user has ended it before all was copied.
    interrupted: bool,
    /// What reads back as it was written.
    compared: Compared,
    /// Length and CRC32C of each piece, by its offset, for `--verify`.
    digests: BTreeMap<u64, (u64, u32)>,
}

/// A piece on its way.
#[derive(Clone, Copy, Debug)]
struct Moving {
    session: SessionId,
    offset: u64,
    length: u64,
    reading: bool,
    /// By WRITE SAME.
    zeroing: bool,
    /// When the piece began; None: what it takes says nothing of the line.
    begun: Option<Begun>,
}

impl Moving {
    /// Bytes that the line carries for it, but for some.
    const fn weight(&self) -> u64 {
        if self.zeroing { 0 } else { self.length }
    }
}

/// Moves everything; gives the number of bytes.
pub(crate) fn run(queue: &mut Queue, mut plan: Plan) -> Result<u64> {
    let begin = plan.journal.as_ref().map_or(0, Journal::done);
    let mut allowed = same::refuse(queue, &plan.from, &plan.to, plan.different);
    let begun = plan.journal.as_ref().is_some_and(|journal| journal.has_begun_with(&plan.to));
    if !plan.overwrite && begin == 0 && !begun {
        allowed = allowed.and_then(|()| plan.to.expect_empty());
    }
    let taken = allowed.and_then(|()| plan.check_room()).and_then(|()| plan.to.take_alone());
    let ready = taken.and_then(|taken| plan.to.find_durability(queue).map(|()| taken));
    let _taken = ready?;
    if let Place::Disk(disk) = &plan.to {
        client::leaving::set_in_doubt(vec![disk.url.to_string()]);
    }
    let longest = plan.wanted.block.unwrap_or(PIECE);
    let most = [&plan.from, &plan.to].into_iter().fold(longest, |piece, place| match place {
        Place::Disk(disk) => piece.min(disk.geometry.transfer_bytes()),
        Place::File(_) | Place::Stream => piece,
    });
    let piece = plan.cut(most.into());
    let mut copy = Copy {
        queue,
        piece,
        window: Window::new(piece, plan.wanted.depth, Instant::now()),
        next: begin,
        ended: false,
        under_way: HashMap::new(),
        next_tag: 0,
        held: BTreeMap::new(),
        finished: BTreeMap::new(),
        done: begin,
        durable: Durable::new(begin),
        same_refused: false,
        doubted: None,
        interrupted: false,
        compared: Compared::default(),
        digests: BTreeMap::new(),
        plan,
    };
    let result = copy.carry_on(begin);
    let total = copy.done;
    let journal = copy.plan.journal.take();
    let result = match (result, journal) {
        (Ok(()), Some(journal)) => journal.remove(),
        (Ok(()), None) => Ok(()),
        (Err(error), None) => Err(error),
        (Err(error), Some(journal)) => Err(copy.halt(error, journal)),
    };
    result.map(|()| total)
}

impl Plan {
    /// The disk that a session is logged in to.
    fn disk_of(&self, session: SessionId) -> Option<&Disk> {
        [&self.from, &self.to].into_iter().find_map(|place| match place {
            Place::Disk(disk) if disk.session == session => Some(disk),
            _ => None,
        })
    }

    /// The length of a piece: whole blocks of both ends, at least one.
    fn cut(&self, length: u64) -> u32 {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let piece = [&self.from, &self.to].into_iter().fold(length, |piece, place| match place {
            Place::Disk(disk) => {
                let block = disk.geometry.block;
                piece.max(block) / block * block
            }
            Place::File(_) | Place::Stream => piece,
        });
        piece.max(512)
    }

    fn check_room(&self) -> Result<()> {
        if let (Some(room), Some(length)) = (self.to.room(), self.length) {
            let (to, needed) = (self.to.name(), self.to_offset.saturating_add(length));
            if needed > room {
                bail!("{to}: the destination has room for {room} bytes, {needed} are needed");
            }
        }
        Ok(())
    }
}

impl Copy<'_> {
    fn carry_on(&mut self, begin: u64) -> Result<()> {
        let moved = self.move_all(begin);
        // Whatever waited when the user wanted an end has failed by that.
        if moved.is_err() && client::is_interrupted() {
            self.interrupted = true;
            return Err(self.interruption());
        }
        moved?;
        if self.plan.verify {
            self.verify()?;
        }
        Ok(())
    }

    fn move_all(&mut self, begin: u64) -> Result<()> {
        // That the state can be kept shows before anything is copied.
        self.plan.journal.as_mut().map_or(Ok(()), |journal| journal.keep(begin, Pace::Going))?;
        if begin == 0 {
            self.plan.to.clear()?;
            // A file that cannot be emptied has its room.
            self.plan.check_room()?;
        }
        let (what, quiet) = (self.plan.what, self.plan.quiet);
        let mut progress = Progress::new(what, begin, self.plan.length, quiet);
        loop {
            if client::is_interrupted() {
                return Err(self.interruption());
            }
            while !self.is_full() && self.fetch().with_context(|| self.so_far())? {}
            if self.ended && self.under_way.is_empty() && self.held.is_empty() {
                if let Place::File(file) = &mut self.plan.to {
                    file.set_size(self.plan.to_offset + self.done)?;
                }
                if self.flush()? {
                    break;
                }
                self.rewind()?;
                continue;
            }
            self.wait()?;
            progress.show(self.done, || self.waits_for());
            self.flush_in_time()?;
        }
        progress.finish(self.done);
        Ok(())
    }

    /// Waits for a while, and takes what has come.
    fn wait(&mut self) -> Result<()> {
        if !self.under_way.is_empty() {
            self.queue.wait_n(1, client::LOOK);
        }
        while let Some(event) = self.queue.reap() {
            self.handle(event).with_context(|| self.so_far())?;
        }
        Ok(())
    }

    /// Who is to answer next.
    fn waits_for(&self) -> Option<Wait> {
        let (_, first) = self.under_way.iter().min_by_key(|(tag, _)| **tag)?;
        let place = if first.reading { &self.plan.from } else { &self.plan.to };
        Some(Wait { who: place.name(), busy: self.queue.busy_for(first.session) })
    }

    fn interruption(&self) -> anyhow::Error {
        anyhow!("interrupted after {} were {}", units::bytes(self.done), self.plan.what)
    }

    fn so_far(&self) -> String {
        match self.done {
            0 => format!("before anything was {}", self.plan.what),
            done => format!("{} were {}, then", units::bytes(done), self.plan.what),
        }
    }

    /// Begins with the next piece; false if there is none now.
    fn fetch(&mut self) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let offset = self.next;
        let left = self.plan.length.map_or(u64::MAX, |total| total - offset);
        if left == 0 {
            self.ended = true;
            return Ok(false);
        }
        let length = self.piece_at(offset).min(left);
        let begun = self.begin(length);
        match &self.plan.from {
            Place::Disk(disk) => {
                let request = disk.read(self.plan.from_offset + offset, narrow(length));
                let session = disk.session;
                self.next += length;
                let moving =
                    Moving { session, offset, length, reading: true, zeroing: false, begun };
                self.post(moving, request)?;
            }
            Place::File(file) => {
                let at = self.plan.from_offset + offset;
                if let Some(length) = self.hole_at(file, offset, length) {
                    self.next += length;
                    self.deliver_zeroes(offset, length)?;
                    return Ok(true);
                }
                let mut buf = self.take(length)?;
                file.read(at, &mut buf)?;
                self.next += length;
                self.deliver(offset, buf, None)?;
            }
            Place::Stream => {
                let mut buf = self.take(length)?;
                let have = place::read_stdin(&mut buf)?;
                self.ended = have < buf.len();
                buf.truncate(have);
                self.next += have as u64;
                if have > 0 {
                    self.deliver(offset, buf, None)?;
                }
            }
        }
        Ok(true)
    }

    fn take(&self, length: u64) -> Result<Buf> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.queue.pool().take(length).context("no memory for another piece")
    }

    fn post(&mut self, moving: Moving, request: Request) -> Result<()> {
        let tag = self.next_tag;
        self.next_tag += 1;
        if let Err((error, _)) = self.queue.post(moving.session, tag, request) {
            return Err(self.explain(moving.session, error));
        }
        self.under_way.insert(tag, moving);
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Done { tag, result, .. } => {
                let Some(moving) = self.under_way.remove(&tag) else { return Ok(()) };
                match result {
                    Err(error) if moving.zeroing && scsi::is_unsupported(&error) => {
                        self.write_zeroes(moving)
                    }
                    Err(error) => Err(self.explain(moving.session, error)),
                    Ok(done) if moving.reading => {
                        let at = self.plan.from_offset + moving.offset;
                        let data = match self.plan.disk_of(moving.session) {
                            Some(disk) => disk.whole(done, at, narrow(moving.length))?,
                            None => return Ok(()),
                        };
                        self.deliver(moving.offset, data, moving.begun)
                    }
                    Ok(done) => {
                        self.note_write(moving.session, &done);
                        self.note_time(moving.begun, moving.length);
                        self.finish(moving.offset, moving.length);
                        Ok(())
                    }
                }
            }
            event => {
                client::tell(&event);
                Ok(())
            }
        }
    }

    fn note_write(&mut self, session: SessionId, done: &Done) {
        let ledger = &mut self.durable.ledger;
        match self.plan.disk_of(session).map(|disk| disk.durability) {
            Some(Durability::Fua) => ledger.wrote_durably(done.generation),
            _ => ledger.wrote(done.generation),
        }
    }

    fn explain(&mut self, session: SessionId, error: initiator::Error) -> anyhow::Error {
        match self.plan.disk_of(session) {
            Some(disk) => disk.explain(self.queue, error),
            None => error.into(),
        }
    }

    /// A piece of the source is there. `begun`: when it was asked for, where it had to come.
    fn deliver(&mut self, offset: u64, data: Buf, begun: Option<Begun>) -> Result<()> {
        let length = data.len() as u64;
        if self.plan.verify {
            self.digests.insert(offset, (length, crc::crc32c(&data)));
        }
        if !matches!(self.plan.to, Place::Disk(_)) {
            self.note_time(begun, length);
        }
        let at = self.plan.to_offset + offset;
        let zero = is_zero(&data);
        match &self.plan.to {
            Place::Disk(disk) => {
                let room = disk.geometry.bytes();
                if at + length > room {
                    bail!("{}: the disk is full: it has {room} bytes", disk.url);
                }
                let block = u64::from(disk.geometry.block);
                let session = disk.session;
                let same = zero && !self.same_refused && length.is_multiple_of(block);
                let same = same.then(|| disk.zero(at, narrow(length))).flatten();
                let zeroing = same.is_some();
                let request = match same {
                    Some(request) => request,
                    _ if length.is_multiple_of(block) => disk.write(at, data.freeze()),
                    _ => {
                        let whole = merged_tail(self.queue, disk, at, &data)?;
                        disk.write(at, Slice::from(whole))
                    }
                };
                let begun = if zeroing { begun } else { begun.or_else(|| self.begin(length)) };
                let reading = false;
                self.post(Moving { session, offset, length, reading, zeroing, begun }, request)
            }
            Place::File(file) => {
                if !(zero && file.skips_zeroes()) {
                    file.write(at, &data)?;
                }
                self.finish(offset, length);
                Ok(())
            }
            Place::Stream => {
                self.held.insert(offset, data);
                self.write_stream()
            }
        }
    }

    /// A disk that announces WRITE SAME and does not take it gets the zeroes one by one.
    fn write_zeroes(&mut self, moving: Moving) -> Result<()> {
        self.same_refused = true;
        let mut buf = self.take(moving.length)?;
        buf.fill(0);
        let at = self.plan.to_offset + moving.offset;
        let Some(disk) = self.plan.disk_of(moving.session) else { return Ok(()) };
        let request = disk.write(at, buf.freeze());
        let begun = moving.begun.or_else(|| self.begin(moving.length));
        self.post(Moving { zeroing: false, begun, ..moving }, request)
    }

    /// A piece of the source that is known to be zeroes.
    fn deliver_zeroes(&mut self, offset: u64, length: u64) -> Result<()> {
        if let Place::File(file) = &self.plan.to
            && file.skips_zeroes()
            && !self.plan.verify
        {
            self.finish(offset, length);
            return Ok(());
        }
        let mut buf = self.take(length)?;
        buf.fill(0);
        self.deliver(offset, buf, None)
    }

    /// Standard output gets pieces in order.
    fn write_stream(&mut self) -> Result<()> {
        while let Some(entry) = self.held.first_entry()
            && *entry.key() == self.done
        {
            let (offset, data) = entry.remove_entry();
            place::write_stdout(&data)?;
            self.finish(offset, data.len() as u64);
        }
        Ok(())
    }

    fn finish(&mut self, offset: u64, length: u64) {
        self.finished.insert(offset, offset + length);
        while let Some(end) = self.finished.remove(&self.done) {
            self.done = end;
        }
    }
}

/// A last piece that is no whole number of blocks: the rest of its last block stays as it is.
fn merged_tail(queue: &mut Queue, disk: &Disk, at: u64, data: &[u8]) -> Result<Vec<u8>> {
    let block = disk.geometry.block as usize;
    let whole = data.len() / block * block;
    let last = disk.read_now(queue, at + whole as u64, disk.geometry.block)?;
    let mut merged = data.to_vec();
    merged.extend_from_slice(last.get(data.len() - whole..).unwrap_or_default());
    Ok(merged)
}

fn is_zero(data: &[u8]) -> bool {
    const ZEROES: [u8; 4096] = [0; 4096];
    data.chunks(ZEROES.len()).all(|chunk| ZEROES.starts_with(chunk))
}

/// Pieces are short.
fn narrow(length: u64) -> u32 {
    u32::try_from(length).expect("a piece is at most some megabytes")
}
