// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a request becomes: commands to members, and how their answers are gathered.
//!
//! A read has one command for each chunk, or where chunks are short one for each member, since
//! what it has there lies together; its data is put in order in a buffer that is taken before
//! anything is sent. A write has one for each chunk, whose data is not copied. What is one
//! operation of a disk is one of a member, or refused.

use buf::Buf;
use buf::Pool;
use buf::Slice;
use medium::stripe::Piece;
use wire::iscsi::Cdb;
use wire::scsi::cdb::BlockCommand;
use wire::scsi::cdb::CdbView;
use wire::scsi::command;
use wire::scsi::mode;
use wire::scsi::opcode;
use wire::scsi::opcode::Opcode;
use wire::scsi::unmap;
use wire::scsi::unmap::Range;

use super::StripeError;
use super::gather::Extent;
use super::gather::Form;
use super::gather::Gather;
use super::gather::is_by_chunk;
use super::volume::INVALID_COMMAND;
use super::volume::INVALID_FIELD;
use super::volume::OUT_OF_RANGE;
use super::volume::Volume;
use super::volume::illegal;
use crate::Data;
use crate::Error;
use crate::Kind;
use crate::Request;

/// One command to a member.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) member: usize,
    pub(super) cdb: Cdb,
    pub(super) data: Data,
}

/// What is to be done for a request.
pub(super) enum Split {
    /// What is in `commands`: all of it, or nothing.
    Commands(Gather),
    /// This is the answer.
    Answer(Vec<u8>),
}

/// Splits a request. Commands are put into `commands`, which is empty.
pub(super) fn split(
    volume: &Volume,
    request: &Request,
    pool: &Pool,
    commands: &mut Vec<Command>,
) -> Result<Split, Error> {
    let view = CdbView::new(&request.cdb);
    let room = match request.data {
        Data::In(room) => room,
        Data::None | Data::Out(_) => 0,
    };
    let gather = match view.opcode() {
        Opcode::READ_6 | Opcode::READ_10 | Opcode::READ_12 | Opcode::READ_16 => {
            read(volume, request, room, pool, commands)
        }
        Opcode::WRITE_6 | Opcode::WRITE_10 | Opcode::WRITE_12 | Opcode::WRITE_16 => {
            write(volume, request, commands)
        }
        Opcode::TEST_UNIT_READY => {
            ask_all(volume, request.cdb, 0, commands);
            Ok(Gather::All)
        }
        Opcode::SYNCHRONIZE_CACHE_10 | Opcode::SYNCHRONIZE_CACHE_16 => {
            ask_all(volume, command::synchronize_cache(), 0, commands);
            Ok(Gather::Flush)
        }
        Opcode::INQUIRY if room > 0 => return volume.inquiry(&view).map(Split::Answer),
        Opcode::MODE_SENSE_6 if room > 0 => modes(volume, request.cdb, room, pool, commands),
        Opcode::READ_CAPACITY_10 if room > 0 => {
            capacities(volume, Form::Short, room, pool, commands)
        }
        Opcode::SERVICE_ACTION_IN_16 if room > 0 => match view.service_action() {
            opcode::READ_CAPACITY_16 => capacities(volume, Form::Long, room, pool, commands),
            opcode::GET_LBA_STATUS_16 => ask_status(volume, view.u64_at(2), room, pool, commands),
            _ => Err(illegal(INVALID_COMMAND)),
        },
        Opcode::WRITE_SAME_10 | Opcode::WRITE_SAME_16 => write_same(volume, request, commands),
        Opcode::COMPARE_AND_WRITE => compare_and_write(volume, request, commands),
        Opcode::UNMAP => unmap(volume, request, commands),
        Opcode::INQUIRY | Opcode::MODE_SENSE_6 | Opcode::READ_CAPACITY_10 => {
            Err(illegal(INVALID_FIELD))
        }
        _ => Err(illegal(INVALID_COMMAND)),
    };
    gather.map(Split::Commands)
}

/// The same to all members; `room` is zero where there is no answer.
fn ask_all(volume: &Volume, cdb: Cdb, room: u32, commands: &mut Vec<Command>) {
    for member in 0..volume.parts.len() {
        let data = if room > 0 { Data::In(room) } else { Data::None };
        commands.push(Command { member, cdb, data });
    }
}

fn capacities(
    volume: &Volume,
    form: Form,
    room: u32,
    pool: &Pool,
    commands: &mut Vec<Command>,
) -> Result<Gather, Error> {
    let buf = take(pool, room.min(CAPACITY_ROOM).into())?;
    for (member, is_short) in volume.shorts.iter().enumerate() {
        let (cdb, room) = match is_short {
            true => (command::plain(Opcode::READ_CAPACITY_10), 8),
            false => (command::read_capacity_16(CAPACITY_ROOM), CAPACITY_ROOM),
        };
        commands.push(Command { member, cdb, data: Data::In(room) });
    }
    Ok(Gather::Capacity(vec![None; volume.parts.len()], form, buf))
}

fn modes(
    volume: &Volume,
    cdb: Cdb,
    room: u32,
    pool: &Pool,
    commands: &mut Vec<Command>,
) -> Result<Gather, Error> {
    let length = volume.mode_sense(&CdbView::new(&cdb))?.len() as u64;
    let buf = take(pool, length.min(room.into()))?;
    let ask = command::mode_sense_6(mode::ALL_PAGES, MODE_ROOM);
    ask_all(volume, ask, MODE_ROOM.into(), commands);
    Ok(Gather::Modes(vec![None; volume.parts.len()], cdb, buf))
}

fn ask_status(
    volume: &Volume,
    lba: u64,
    room: u32,
    pool: &Pool,
    commands: &mut Vec<Command>,
) -> Result<Gather, Error> {
    let left = volume.geometry.blocks.checked_sub(lba).filter(|left| *left > 0);
    let left = left.ok_or_else(|| illegal(OUT_OF_RANGE))?;
    let block = u64::from(volume.geometry.block);
    let extent = Extent { offset: lba * block, length: left * block };
    let buf = take(pool, room.min(STATUS_ROOM_MAX).into())?;
    for Piece { member, offset, .. } in shares(volume, extent) {
        let cdb = command::get_lba_status(offset / block, room);
        commands.push(Command { member, cdb, data: Data::In(room) });
    }
    Ok(Gather::Status(vec![Vec::new(); volume.parts.len()], extent, buf))
}

/// The bytes of so many blocks, all of which are there.
fn extent_of(volume: &Volume, lba: u64, blocks: u64) -> Result<Extent, Error> {
    volume.expect_fit()?;
    let block = u64::from(volume.geometry.block);
    match lba.checked_add(blocks).filter(|end| *end <= volume.geometry.blocks) {
        Some(_) => Ok(Extent { offset: lba * block, length: blocks * block }),
        None => Err(illegal(OUT_OF_RANGE)),
    }
}

/// The command of a request as one for a part of its blocks.
fn part_of(volume: &Volume, command: BlockCommand, piece: Piece) -> Result<Cdb, Error> {
    let block = u64::from(volume.geometry.block);
    let length = u32::try_from(piece.length / block).ok();
    let lba = piece.offset / block;
    let cdb = length.and_then(|length| BlockCommand { lba, length, ..command }.emit());
    cdb.ok_or_else(|| illegal(INVALID_FIELD))
}

/// What a request says of blocks, and where these are.
fn block_command(volume: &Volume, request: &Request) -> Result<(BlockCommand, Extent), Error> {
    let command = BlockCommand::parse(&request.cdb).ok_or_else(|| illegal(INVALID_COMMAND))?;
    Ok((command, extent_of(volume, command.lba, command.length.into())?))
}

/// What each member has of a range, in the order in which these begin there.
fn shares(volume: &Volume, extent: Extent) -> impl Iterator<Item = Piece> {
    let (layout, count) = (volume.layout, volume.parts.len());
    let first = layout.first(extent.offset, extent.length).member;
    let order = (0..count).map(move |step| (first + step) % count);
    order.filter_map(move |at| layout.share(at, extent.offset, extent.length))
}

fn read(
    volume: &Volume,
    request: &Request,
    room: u32,
    pool: &Pool,
    commands: &mut Vec<Command>,
) -> Result<Gather, Error> {
    let (command, extent) = block_command(volume, request)?;
    if extent.length > 0 && volume.layout.is_whole(extent.offset, extent.length) {
        let piece = volume.layout.first(extent.offset, extent.length);
        let cdb = part_of(volume, command, piece)?;
        commands.push(Command { member: piece.member, cdb, data: Data::In(room) });
        return Ok(Gather::Sole(None));
    }
    if u64::from(room) != extent.length {
        return Err(illegal(INVALID_FIELD));
    }
    if extent.length == 0 {
        return Ok(Gather::All);
    }
    let is_by_chunk = is_by_chunk(volume.layout);
    // Parts come one by one at the least, into what is left beside the buffer of the whole.
    let longest = match is_by_chunk {
        true => Some(extent.length.min(volume.layout.chunk())),
        false => shares(volume, extent).map(|share| share.length).max(),
    };
    let lengths = [Some(extent.length), longest].into_iter().flatten();
    if !pool.could_take(lengths.map(|length| usize::try_from(length).unwrap_or(usize::MAX))) {
        return Err(Error::new(Kind::Full));
    }
    let buf = take(pool, extent.length)?;
    let mut ask = |piece: Piece| {
        let data = Data::In(u32::try_from(piece.length).unwrap_or(u32::MAX));
        let cdb = part_of(volume, command, piece)?;
        commands.push(Command { member: piece.member, cdb, data });
        Ok::<_, Error>(())
    };
    match is_by_chunk {
        true => volume.layout.pieces(extent.offset, extent.length).try_for_each(&mut ask)?,
        false => shares(volume, extent).try_for_each(&mut ask)?,
    }
    Ok(Gather::Read(buf, extent))
}

fn write(volume: &Volume, request: &Request, commands: &mut Vec<Command>) -> Result<Gather, Error> {
    volume.expect_writable()?;
    let (command, extent) = block_command(volume, request)?;
    let Data::Out(data) = &request.data else { return Err(illegal(INVALID_FIELD)) };
    if data.len() as u64 != extent.length {
        return Err(illegal(INVALID_FIELD));
    }
    let mut at = 0;
    for piece in volume.layout.pieces(extent.offset, extent.length) {
        let end = at + usize::try_from(piece.length).unwrap_or(usize::MAX);
        let data = data.part(at..end).ok_or_else(|| illegal(INVALID_FIELD))?;
        let cdb = part_of(volume, command, piece)?;
        commands.push(Command { member: piece.member, cdb, data: Data::Out(data) });
        at = end;
    }
    Ok(if commands.len() == 1 { Gather::Sole(None) } else { Gather::All })
}

fn write_same(
    volume: &Volume,
    request: &Request,
    commands: &mut Vec<Command>,
) -> Result<Gather, Error> {
    volume.expect_writable()?;
    let (command, extent) = block_command(volume, request)?;
    // No blocks would be all up to the end, which differs from member to member.
    let Data::Out(data) = &request.data else { return Err(illegal(INVALID_FIELD)) };
    if extent.length == 0 {
        return Err(illegal(INVALID_FIELD));
    }
    for share in shares(volume, extent) {
        let cdb = part_of(volume, command, share)?;
        let data = Data::Out(data.clone());
        commands.push(Command { member: share.member, cdb, data });
    }
    Ok(Gather::All)
}

fn compare_and_write(
    volume: &Volume,
    request: &Request,
    commands: &mut Vec<Command>,
) -> Result<Gather, Error> {
    volume.expect_writable()?;
    let (command, extent) = block_command(volume, request)?;
    let Data::Out(data) = &request.data else { return Err(illegal(INVALID_FIELD)) };
    if !volume.layout.is_whole(extent.offset, extent.length) {
        return Err(StripeError::Across { chunk: volume.layout.chunk() }.error());
    }
    let piece = volume.layout.first(extent.offset, extent.length);
    let cdb = part_of(volume, command, piece)?;
    commands.push(Command { member: piece.member, cdb, data: Data::Out(data.clone()) });
    Ok(Gather::Sole(None))
}

fn unmap(volume: &Volume, request: &Request, commands: &mut Vec<Command>) -> Result<Gather, Error> {
    volume.expect_writable()?;
    let Data::Out(data) = &request.data else { return Err(illegal(INVALID_FIELD)) };
    let bytes = data.to_vec();
    let list = unmap::View::new(&bytes).map_err(|_| illegal(INVALID_FIELD))?;
    let block = u64::from(volume.geometry.block);
    let mut lists: Vec<Vec<Range>> = vec![Vec::new(); volume.parts.len()];
    for Range { lba, blocks } in list.ranges() {
        for share in shares(volume, extent_of(volume, lba, blocks.into())?) {
            let blocks = u32::try_from(share.length / block).unwrap_or(u32::MAX);
            if let Some(list) = lists.get_mut(share.member) {
                list.push(Range { lba: share.offset / block, blocks });
            }
        }
    }
    for (member, list) in lists.into_iter().enumerate().filter(|(_, list)| !list.is_empty()) {
        let list = unmap::emit(&list).ok_or_else(|| illegal(INVALID_FIELD))?;
        let length = u16::try_from(list.len()).map_err(|_| illegal(INVALID_FIELD))?;
        let mut cdb = command::unmap(length);
        cdb.bytes[1] = request.cdb.bytes[1]; // ANCHOR
        commands.push(Command { member, cdb, data: Data::Out(Slice::from(list)) });
    }
    Ok(Gather::All)
}

/// A buffer of the pool.
fn take(pool: &Pool, length: u64) -> Result<Buf, Error> {
    let buf = usize::try_from(length).ok().and_then(|length| pool.take(length));
    buf.ok_or_else(|| Error::new(Kind::Full))
}

/// Bytes of an answer to READ CAPACITY(16).
const CAPACITY_ROOM: u32 = 32;

/// Most bytes of an answer to MODE SENSE(6).
const MODE_ROOM: u8 = 255;

/// Most bytes of an answer about the status of blocks: more than anybody asks for at once.
const STATUS_ROOM_MAX: u32 = 64 << 10;
