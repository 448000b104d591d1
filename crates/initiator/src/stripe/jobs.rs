// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests from their post to their end, in as many parts as it takes.
//!
//! A read has one part in each member, since what it has there lies together, and is put in order
//! in a buffer that is taken before anything is sent. A write has one for each chunk, whose data is
//! not copied. What is one operation of a disk is one of a member, or refused.

use buf::Buf;
use buf::Pool;
use buf::Slice;
use clock::Instant;
use medium::stripe::Layout;
use medium::stripe::Piece;
use wire::iscsi::Cdb;
use wire::scsi::capacity::Capacity;
use wire::scsi::cdb::BlockCommand;
use wire::scsi::cdb::CdbView;
use wire::scsi::command;
use wire::scsi::mode;
use wire::scsi::opcode;
use wire::scsi::opcode::Opcode;
use wire::scsi::status;
use wire::scsi::status::Descriptor;
use wire::scsi::unmap;
use wire::scsi::unmap::Range;

use super::Array;
use super::Output;
use super::QUESTION;
use super::Stage;
use super::StripeError;
use super::whole::INVALID_COMMAND;
use super::whole::INVALID_FIELD;
use super::whole::Mode;
use super::whole::OUT_OF_RANGE;
use super::whole::Whole;
use super::whole::illegal;
use crate::Data;
use crate::Done;
use crate::Error;
use crate::Event;
use crate::Generation;
use crate::Kind;
use crate::Request;
use crate::limits;
use crate::scsi;

/// A request that has not ended.
#[derive(Debug)]
pub(super) struct Job {
    tag: u64,
    joint: Joint,
    /// As it was posted, until it is known that there is room for it.
    request: Option<Request>,
    /// Parts that have not ended.
    left: usize,
    /// What went wrong first, in the order of the parts.
    error: Option<(usize, Error)>,
    /// Of the stripe when the first part had ended.
    generation: Option<Generation>,
}

/// What becomes of the answers of the parts.
#[derive(Debug)]
enum Joint {
    /// There is one part, and its answer is that of the whole.
    Sole,
    /// All have the same data for it, or none has.
    All,
    /// All have brought to stable storage what they have.
    Flush,
    /// Their data is put in order.
    Read(Buf, Pieces),
    /// Their sizes are that of the whole. The buffer is for the answer.
    Capacity(Vec<Option<Capacity>>, Form, Buf),
    /// What they say of their caches is said of that of the whole; None: nothing new.
    Modes(Vec<Option<Mode>>, Cdb, Buf),
    /// What they say of their blocks is said of those of the whole.
    Status(Vec<Vec<Descriptor>>, Pieces, Buf),
}

/// A range of the whole, bytes.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    offset: u64,
    length: u64,
}

/// READ CAPACITY (16) and (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Long,
    Short,
}

/// What is to be done for a request.
enum Plan {
    Parts(Joint, Vec<(usize, Cdb, Data)>),
    /// This is the answer.
    Answer(Vec<u8>),
}

/// Where in a tag the place of a request begins; below is which of its parts it is.
const PLACE_SHIFT: u32 = 32;

fn tag_of(place: usize, part: usize) -> u64 {
    (place as u64) << PLACE_SHIFT | part as u64
}

fn place_of(tag: u64) -> (usize, usize) {
    let number = |bits: u64| usize::try_from(bits).unwrap_or(usize::MAX);
    (number(tag >> PLACE_SHIFT), number(tag & u64::from(u32::MAX)))
}

impl Array {
    /// Takes a request. What it gives is asked for by [`Array::posted`] when outputs are carried
    /// out.
    pub(crate) fn post(
        &mut self,
        tag: u64,
        request: Request,
        pool: &Pool,
    ) -> Result<(), (Error, Request)> {
        let error = match &self.stage {
            Stage::Opening => {
                self.early.push_back((tag, request));
                return Ok(());
            }
            // What has begun gets the next room, or requests would wait for each other.
            Stage::Up(_) if !self.held.is_empty() => Error::new(Kind::Full),
            Stage::Up(_) => return self.start(tag, request, pool),
            Stage::Closing(error) => error.clone().unwrap_or_else(|| Error::new(Kind::Closed)),
            Stage::Over(error) => error.clone(),
        };
        Err((error, request))
    }

    /// What was posted has left, waits, or comes back for want of room.
    pub(crate) fn posted(&mut self) -> Result<(), (Error, Request)> {
        if let Some(job) = self.posting.take().and_then(|place| self.jobs.get_mut(place)) {
            job.request = None;
        }
        self.returned.take().map_or(Ok(()), Err)
    }

    /// A member did not take what was put out for it.
    pub(crate) fn refused(
        &mut self,
        member: usize,
        tag: u64,
        (error, request): (Error, Request),
        now: Instant,
    ) {
        let is_full = matches!(error.kind(), Kind::Full);
        if is_full {
            self.room_at.get_or_insert(now + limits::ROOM_INTERVAL);
        }
        if tag == QUESTION {
            if let Some(member) = self.members.get_mut(member) {
                member.is_asked = false;
            }
            return;
        }
        if !is_full {
            return self.part_ended(member, tag, Err(error));
        }
        let (place, part) = place_of(tag);
        if part > 0 || self.posting != Some(place) {
            return self.held.push_back((member, tag, request));
        }
        // Nothing of it has left yet.
        self.room_at = None;
        self.outputs.retain(
            |output| !matches!(output, Output::Post { tag, .. } if place_of(*tag).0 == place),
        );
        let job = self.jobs.try_remove(place);
        if let Some(request) = job.and_then(|job| job.request) {
            self.returned = Some((error, request));
        }
    }

    /// Those that were posted too early are posted now, as long as there is room.
    pub(super) fn post_early(&mut self, pool: &Pool, now: Instant) {
        while matches!(self.stage, Stage::Up(_)) && self.held.is_empty() {
            let Some((tag, request)) = self.early.pop_front() else { return };
            let started = self.start(tag, request, pool);
            self.posting = None;
            if let Err((error, request)) = started {
                if !matches!(error.kind(), Kind::Full) {
                    self.tell(Event::Done { session: self.id, tag, result: Err(error) });
                    continue;
                }
                self.early.push_front((tag, request));
                self.room_at.get_or_insert(now + limits::ROOM_INTERVAL);
                return;
            }
        }
    }

    /// The caller's tag of a part.
    pub(super) fn tag_of(&self, tag: u64) -> Option<u64> {
        self.jobs.get(place_of(tag).0).map(|job| job.tag)
    }

    fn start(&mut self, tag: u64, request: Request, pool: &Pool) -> Result<(), (Error, Request)> {
        let Stage::Up(whole) = &self.stage else {
            return Err((Error::new(Kind::Closed), request));
        };
        let plan = match request.lun == self.lun() {
            true => plan(whole, &request, pool),
            false => Err(illegal(INVALID_COMMAND)),
        };
        let told = |error: Error| error.at_lun(request.lun).during(&request.cdb);
        let result = match plan {
            Ok(Plan::Parts(joint, parts)) if !parts.is_empty() => {
                self.send(tag, request, joint, parts);
                return Ok(());
            }
            Ok(Plan::Parts(..)) => Ok(Done { data: None, generation: self.generation }),
            Ok(Plan::Answer(bytes)) => match answer(&bytes, &request, pool) {
                Some(data) => Ok(Done { data: Some(data), generation: self.generation }),
                None => return Err((Error::new(Kind::Full), request)),
            },
            Err(error) if matches!(error.kind(), Kind::Full) => return Err((error, request)),
            Err(error) => Err(told(error)),
        };
        self.tell(Event::Done { session: self.id, tag, result });
        Ok(())
    }

    fn send(&mut self, tag: u64, request: Request, joint: Joint, parts: Vec<(usize, Cdb, Data)>) {
        let (retry, left) = (request.retry, parts.len());
        let job = Job { tag, joint, request: Some(request), left, error: None, generation: None };
        let place = self.jobs.insert(job);
        self.posting = Some(place);
        for (part, (member, cdb, data)) in parts.into_iter().enumerate() {
            let lun = self.members.get(member).map_or(0, |member| member.part.lun);
            let request = Request { lun, cdb, data, retry };
            self.outputs.push_back(Output::Post { member, tag: tag_of(place, part), request });
        }
    }

    /// A part has ended in its member.
    pub(super) fn part_ended(&mut self, at: usize, tag: u64, result: Result<Done, Error>) {
        let (place, part) = place_of(tag);
        if let (Ok(done), Some(member)) = (&result, self.members.get_mut(at)) {
            let before = std::mem::replace(&mut member.seen, done.generation);
            if done.generation.is_reset_since(before) {
                self.generation.reset();
            }
            if done.generation.has_failed_since(before) {
                self.generation.failed();
            }
        }
        let is_through = match &self.stage {
            Stage::Up(whole) => whole.parts.get(at).is_some_and(|part| !part.volatile_cache),
            _ => false,
        };
        let Some(job) = self.jobs.get_mut(place) else { return };
        job.left = job.left.saturating_sub(1);
        let mut sole = None;
        let outcome = match (&mut job.joint, result) {
            (Joint::Sole, Ok(done)) => {
                sole = done.data;
                Ok(())
            }
            (joint, Ok(done)) => joint.take(self.layout, at, done.data),
            // Nothing is in a cache there.
            (Joint::Flush, Err(error)) if is_through && scsi::is_unsupported(&error) => Ok(()),
            // It has no modes to tell, or tells none to whom a reservation keeps out.
            (Joint::Modes(..), Err(error))
                if scsi::is_unsupported(&error) || scsi::is_conflict(&error) =>
            {
                Ok(())
            }
            (_, Err(error)) => Err(error),
        };
        job.generation.get_or_insert(self.generation);
        if let Err(error) = outcome
            && job.error.as_ref().is_none_or(|(first, _)| part < *first)
        {
            job.error = Some((part, error.of_member(at)));
        }
        if job.left > 0 {
            return;
        }
        let Job { tag, joint, error, generation, .. } = self.jobs.remove(place);
        let result = match error {
            Some((_, error)) => Err(error),
            None => self.joined(joint, sole, generation.unwrap_or(self.generation)),
        };
        self.tell(Event::Done { session: self.id, tag, result });
        self.look_whether_over();
    }

    /// All parts have ended well.
    fn joined(
        &mut self,
        joint: Joint,
        sole: Option<Buf>,
        first: Generation,
    ) -> Result<Done, Error> {
        // What was written counts from its first part; what a flush stands for, up to its last.
        let (data, generation) = match joint {
            Joint::Sole => (sole, first),
            Joint::All => (None, first),
            Joint::Flush => (None, self.generation),
            Joint::Read(buf, _) => (Some(buf), first),
            Joint::Capacity(told, form, buf) => {
                let Stage::Up(whole) = &mut self.stage else {
                    return Err(Error::new(Kind::Closed));
                };
                let told: Option<Vec<Capacity>> = told.into_iter().collect();
                let told = told.ok_or_else(|| Error::new(Kind::Malformed("capacity")))?;
                let capacity = whole.measured(&told)?;
                let bytes = match form {
                    Form::Long => capacity.emit_16().to_vec(),
                    Form::Short => capacity.emit_10().to_vec(),
                };
                (Some(filled(buf, &bytes)), first)
            }
            Joint::Modes(told, cdb, buf) => {
                let Stage::Up(whole) = &mut self.stage else {
                    return Err(Error::new(Kind::Closed));
                };
                let bytes = whole.moded(&told, &CdbView::new(&cdb))?;
                (Some(filled(buf, &bytes)), first)
            }
            Joint::Status(told, range, buf) => {
                let Stage::Up(whole) = &self.stage else {
                    return Err(Error::new(Kind::Closed));
                };
                let most = buf.len().saturating_sub(status::HEADER_LEN) / status::DESCRIPTOR_LEN;
                let list = status::emit(&statuses(whole, &told, range, most));
                (Some(filled(buf, &list)), first)
            }
        };
        Ok(Done { data, generation })
    }
}

impl Joint {
    /// Takes what a part has brought.
    fn take(&mut self, layout: Layout, member: usize, data: Option<Buf>) -> Result<(), Error> {
        let bytes = data.as_deref().unwrap_or_default();
        match self {
            Self::Sole | Self::All | Self::Flush => {}
            Self::Read(buf, range) => {
                let Some(share) = layout.share(member, range.offset, range.length) else {
                    return Ok(());
                };
                let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
                let (received, expected) = (bytes.len() as u64, share.length);
                if received != expected {
                    let (received, expected) = (number(received), number(expected));
                    return Err(Error::new(Kind::Short { received, expected }));
                }
                let (mut from, mut rest) = (bytes, &mut buf[..]);
                for piece in layout.pieces(range.offset, range.length) {
                    let length = usize::try_from(piece.length).unwrap_or(usize::MAX);
                    let (here, after) = rest.split_at_mut(length.min(rest.len()));
                    if piece.member == member {
                        let (own, others) = from.split_at(here.len().min(from.len()));
                        here.copy_from_slice(own);
                        from = others;
                    }
                    rest = after;
                }
            }
            Self::Capacity(told, ..) => {
                let capacity = Capacity::parse_16(bytes).or_else(|| {
                    let (last, block) = Capacity::parse_10(bytes)?;
                    Some(scsi::capacity_of_10(last, block))
                });
                if let Some(place) = told.get_mut(member) {
                    *place = capacity;
                }
            }
            Self::Modes(told, ..) => {
                if let Some(place) = told.get_mut(member) {
                    *place = Some(Mode::of(bytes));
                }
            }
            Self::Status(told, ..) => {
                if let Some(place) = told.get_mut(member) {
                    *place = status::parse(bytes).unwrap_or_default();
                }
            }
        }
        Ok(())
    }
}

/// What a request becomes.
fn plan(whole: &Whole, request: &Request, pool: &Pool) -> Result<Plan, Error> {
    let view = CdbView::new(&request.cdb);
    let room = match request.data {
        Data::In(room) => room,
        Data::None | Data::Out(_) => 0,
    };
    let members = 0..whole.parts.len();
    match view.opcode() {
        Opcode::TEST_UNIT_READY => {
            Ok(Plan::Parts(Joint::All, members.map(|at| (at, request.cdb, Data::None)).collect()))
        }
        Opcode::SYNCHRONIZE_CACHE_10 | Opcode::SYNCHRONIZE_CACHE_16 => {
            let all = members.map(|at| (at, command::synchronize_cache(), Data::None));
            Ok(Plan::Parts(Joint::Flush, all.collect()))
        }
        Opcode::INQUIRY if room > 0 => whole.inquiry(&view).map(Plan::Answer),
        Opcode::MODE_SENSE_6 if room > 0 => modes(whole, request.cdb, room, pool),
        Opcode::READ_CAPACITY_10 if room > 0 => capacities(whole, Form::Short, room, pool),
        Opcode::SERVICE_ACTION_IN_16 if room > 0 => match view.service_action() {
            opcode::READ_CAPACITY_16 => capacities(whole, Form::Long, room, pool),
            opcode::GET_LBA_STATUS_16 => ask_status(whole, view.u64_at(2), room, pool),
            _ => Err(illegal(INVALID_COMMAND)),
        },
        Opcode::READ_6 | Opcode::READ_10 | Opcode::READ_12 | Opcode::READ_16 => {
            read(whole, request, room, pool)
        }
        Opcode::WRITE_6 | Opcode::WRITE_10 | Opcode::WRITE_12 | Opcode::WRITE_16 => {
            write(whole, request)
        }
        Opcode::WRITE_SAME_10 | Opcode::WRITE_SAME_16 => write_same(whole, request),
        Opcode::COMPARE_AND_WRITE => compare_and_write(whole, request),
        Opcode::UNMAP => unmap(whole, request),
        Opcode::INQUIRY | Opcode::MODE_SENSE_6 | Opcode::READ_CAPACITY_10 => {
            Err(illegal(INVALID_FIELD))
        }
        _ => Err(illegal(INVALID_COMMAND)),
    }
}

fn capacities(whole: &Whole, form: Form, room: u32, pool: &Pool) -> Result<Plan, Error> {
    let buf = take(pool, room.min(CAPACITY_ROOM).into())?;
    let told = vec![None; whole.parts.len()];
    let parts = whole.shorts.iter().enumerate().map(|(at, is_short)| match is_short {
        true => (at, command::plain(Opcode::READ_CAPACITY_10), Data::In(8)),
        false => (at, command::read_capacity_16(CAPACITY_ROOM), Data::In(CAPACITY_ROOM)),
    });
    Ok(Plan::Parts(Joint::Capacity(told, form, buf), parts.collect()))
}

fn modes(whole: &Whole, cdb: Cdb, room: u32, pool: &Pool) -> Result<Plan, Error> {
    let length = whole.mode_sense(&CdbView::new(&cdb))?.len() as u64;
    let buf = take(pool, length.min(room.into()))?;
    let told = vec![None; whole.parts.len()];
    let ask = command::mode_sense_6(mode::ALL_PAGES, MODE_ROOM);
    let parts = (0..whole.parts.len()).map(|at| (at, ask, Data::In(MODE_ROOM.into())));
    Ok(Plan::Parts(Joint::Modes(told, cdb, buf), parts.collect()))
}

fn ask_status(whole: &Whole, lba: u64, room: u32, pool: &Pool) -> Result<Plan, Error> {
    let left = whole.geometry.blocks.checked_sub(lba).filter(|left| *left > 0);
    let left = left.ok_or_else(|| illegal(OUT_OF_RANGE))?;
    let block = u64::from(whole.geometry.block);
    let range = Pieces { offset: lba * block, length: left * block };
    let buf = take(pool, room.min(STATUS_ROOM_MAX).into())?;
    let shares =
        (0..whole.parts.len()).filter_map(|at| whole.layout.share(at, range.offset, range.length));
    let parts = shares.map(|Piece { member, offset, .. }| {
        (member, command::get_lba_status(offset / block, room), Data::In(room))
    });
    let told = vec![Vec::new(); whole.parts.len()];
    Ok(Plan::Parts(Joint::Status(told, range, buf), parts.collect()))
}

/// The bytes of so many blocks, all of which are there.
fn range_of(whole: &Whole, lba: u64, blocks: u64) -> Result<Pieces, Error> {
    whole.expect_fit()?;
    let block = u64::from(whole.geometry.block);
    match lba.checked_add(blocks).filter(|end| *end <= whole.geometry.blocks) {
        Some(_) => Ok(Pieces { offset: lba * block, length: blocks * block }),
        None => Err(illegal(OUT_OF_RANGE)),
    }
}

/// The command of a request as one for a part of its blocks.
fn part_of(whole: &Whole, command: BlockCommand, piece: Piece) -> Result<Cdb, Error> {
    let block = u64::from(whole.geometry.block);
    let length = u32::try_from(piece.length / block).ok();
    let lba = piece.offset / block;
    let cdb = length.and_then(|length| BlockCommand { lba, length, ..command }.emit());
    cdb.ok_or_else(|| illegal(INVALID_FIELD))
}

fn block_command(request: &Request) -> Result<BlockCommand, Error> {
    BlockCommand::parse(&request.cdb).ok_or_else(|| illegal(INVALID_COMMAND))
}

fn shares(whole: &Whole, range: Pieces) -> impl Iterator<Item = Piece> {
    let layout = whole.layout;
    (0..whole.parts.len()).filter_map(move |at| layout.share(at, range.offset, range.length))
}

fn read(whole: &Whole, request: &Request, room: u32, pool: &Pool) -> Result<Plan, Error> {
    let command = block_command(request)?;
    let range = range_of(whole, command.lba, command.length.into())?;
    if shares(whole, range).count() == 1 {
        let parts = shares(whole, range)
            .map(|share| Ok((share.member, part_of(whole, command, share)?, Data::In(room))));
        return Ok(Plan::Parts(Joint::Sole, parts.collect::<Result<_, Error>>()?));
    }
    if u64::from(room) != range.length {
        return Err(illegal(INVALID_FIELD));
    }
    if range.length == 0 {
        return Ok(Plan::Parts(Joint::All, Vec::new()));
    }
    // Parts come one by one at the least, into what is left beside the buffer of the whole.
    let longest = shares(whole, range).map(|share| share.length).max();
    let lengths = [Some(range.length), longest].into_iter().flatten();
    if !pool.could_take(lengths.map(|length| usize::try_from(length).unwrap_or(usize::MAX))) {
        return Err(Error::new(Kind::Full));
    }
    let buf = take(pool, range.length)?;
    let parts = shares(whole, range).map(|share| {
        let length = u32::try_from(share.length).unwrap_or(u32::MAX);
        Ok((share.member, part_of(whole, command, share)?, Data::In(length)))
    });
    Ok(Plan::Parts(Joint::Read(buf, range), parts.collect::<Result<_, Error>>()?))
}

fn write(whole: &Whole, request: &Request) -> Result<Plan, Error> {
    whole.expect_writable()?;
    let command = block_command(request)?;
    let range = range_of(whole, command.lba, command.length.into())?;
    let Data::Out(data) = &request.data else { return Err(illegal(INVALID_FIELD)) };
    if data.len() as u64 != range.length {
        return Err(illegal(INVALID_FIELD));
    }
    let mut parts = Vec::new();
    let mut at = 0;
    for piece in whole.layout.pieces(range.offset, range.length) {
        let end = at + usize::try_from(piece.length).unwrap_or(usize::MAX);
        let data = data.part(at..end).ok_or_else(|| illegal(INVALID_FIELD))?;
        parts.push((piece.member, part_of(whole, command, piece)?, Data::Out(data)));
        at = end;
    }
    let joint = if parts.len() == 1 { Joint::Sole } else { Joint::All };
    Ok(Plan::Parts(joint, parts))
}

fn write_same(whole: &Whole, request: &Request) -> Result<Plan, Error> {
    whole.expect_writable()?;
    let command = block_command(request)?;
    let range = range_of(whole, command.lba, command.length.into())?;
    // No blocks would be all up to the end, which differs from member to member.
    let Data::Out(data) = &request.data else { return Err(illegal(INVALID_FIELD)) };
    if range.length == 0 {
        return Err(illegal(INVALID_FIELD));
    }
    let parts = shares(whole, range)
        .map(|share| Ok((share.member, part_of(whole, command, share)?, Data::Out(data.clone()))));
    Ok(Plan::Parts(Joint::All, parts.collect::<Result<_, Error>>()?))
}

fn compare_and_write(whole: &Whole, request: &Request) -> Result<Plan, Error> {
    whole.expect_writable()?;
    let command = block_command(request)?;
    let range = range_of(whole, command.lba, command.length.into())?;
    let Data::Out(data) = &request.data else { return Err(illegal(INVALID_FIELD)) };
    if !whole.layout.is_whole(range.offset, range.length) {
        return Err(StripeError::Across { chunk: whole.layout.chunk() }.error());
    }
    let piece = whole.layout.first(range.offset, range.length);
    let cdb = part_of(whole, command, piece)?;
    Ok(Plan::Parts(Joint::Sole, vec![(piece.member, cdb, Data::Out(data.clone()))]))
}

fn unmap(whole: &Whole, request: &Request) -> Result<Plan, Error> {
    whole.expect_writable()?;
    let Data::Out(data) = &request.data else { return Err(illegal(INVALID_FIELD)) };
    let bytes = data.to_vec();
    let list = unmap::View::new(&bytes).map_err(|_| illegal(INVALID_FIELD))?;
    let block = u64::from(whole.geometry.block);
    let mut lists: Vec<Vec<Range>> = vec![Vec::new(); whole.parts.len()];
    for Range { lba, blocks } in list.ranges() {
        for share in shares(whole, range_of(whole, lba, blocks.into())?) {
            let blocks = u32::try_from(share.length / block).unwrap_or(u32::MAX);
            if let Some(list) = lists.get_mut(share.member) {
                list.push(Range { lba: share.offset / block, blocks });
            }
        }
    }
    let lists = lists.into_iter().enumerate().filter(|(_, list)| !list.is_empty());
    let parts = lists.map(|(at, list)| {
        let list = unmap::emit(&list).ok_or_else(|| illegal(INVALID_FIELD))?;
        let length = u16::try_from(list.len()).map_err(|_| illegal(INVALID_FIELD))?;
        let mut cdb = command::unmap(length);
        cdb.bytes[1] = request.cdb.bytes[1]; // ANCHOR
        Ok((at, cdb, Data::Out(Slice::from(list))))
    });
    Ok(Plan::Parts(Joint::All, parts.collect::<Result<_, Error>>()?))
}

/// What is said of the blocks of the whole from the start of `range` on, as far as all members
/// tell.
fn statuses(
    whole: &Whole,
    told: &[Vec<Descriptor>],
    range: Pieces,
    most: usize,
) -> Vec<Descriptor> {
    let block = u64::from(whole.geometry.block);
    let mut list: Vec<Descriptor> = Vec::new();
    let mut lba = range.offset / block;
    for piece in whole.layout.pieces(range.offset, range.length).take(STATUS_PIECES_MAX) {
        let (mut at, end) = (piece.offset / block, (piece.offset + piece.length) / block);
        while at < end {
            let lists = told.get(piece.member).into_iter().flatten();
            let behind = |one: &Descriptor| one.lba.saturating_add(one.blocks.into());
            let mut found = lists.filter(|one| one.lba <= at && at < behind(one));
            let Some(found) = found.next() else { return list };
            let blocks = u32::try_from(behind(found).min(end) - at).unwrap_or(u32::MAX);
            let (provisioning, is_last) = (found.provisioning, list.len() >= most);
            match list.last_mut().filter(|last| last.provisioning == provisioning) {
                Some(last) if last.blocks.checked_add(blocks).is_some() => last.blocks += blocks,
                _ if is_last => return list,
                _ => list.push(Descriptor { lba, blocks, provisioning }),
            }
            at += u64::from(blocks);
            lba += u64::from(blocks);
        }
    }
    list
}

/// A buffer of the pool.
fn take(pool: &Pool, length: u64) -> Result<Buf, Error> {
    let buf = usize::try_from(length).ok().and_then(|length| pool.take(length));
    buf.ok_or_else(|| Error::new(Kind::Full))
}

/// As much of an answer as there is room for.
fn answer(bytes: &[u8], request: &Request, pool: &Pool) -> Option<Buf> {
    let Data::In(room) = request.data else { return None };
    let length = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
    pool.take(length).map(|buf| filled(buf, bytes))
}

fn filled(mut buf: Buf, bytes: &[u8]) -> Buf {
    let length = buf.len().min(bytes.len());
    buf.truncate(length);
    buf.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    buf
}

/// Bytes of an answer to READ CAPACITY(16).
const CAPACITY_ROOM: u32 = 32;

/// Most bytes of an answer to MODE SENSE(6).
const MODE_ROOM: u8 = 255;

/// Most bytes of an answer about the status of blocks: more than anybody asks for at once.
const STATUS_ROOM_MAX: u32 = 64 << 10;

/// Most chunks that one such answer is about: little work, and much of a disk.
const STATUS_PIECES_MAX: usize = 16_384;
