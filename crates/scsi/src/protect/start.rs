// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that a protected unit does in its own way: ranges, lengths and first steps.

use super::machine::Against;
use super::machine::Fua;
use super::machine::Protected;
use super::machine::Work;
use super::machine::Zeros;
use super::terms::Terms;
use crate::lun::Context;
use crate::lun::Extent;
use crate::sbc::compare;
use crate::sbc::rw;
use crate::sbc::same;
use crate::sbc::verify;
use crate::sbc::write_verify;
use crate::sense;
use crate::sense::Fault;
use crate::table::Handler;
use crate::task;
use crate::task::Machine;
use crate::task::Started;
use alloc::boxed::Box;
use wire::scsi::cdb::CdbView;
use wire::scsi::opcode;
use wire::scsi::opcode::Opcode;
use wire::scsi::protection::INFORMATION_LEN;

/// A command of a unit that is formatted with protection information.
type Protecting = fn(&Context<'_>, Terms) -> Result<Started, Fault>;

/// READ, WRITE, VERIFY, WRITE AND VERIFY, WRITE SAME, COMPARE AND WRITE and ORWRITE.
pub(crate) fn start(context: &Context<'_>) -> Result<Started, Fault> {
    let (plain, protecting) = command(&context.cdb).ok_or(sense::INTERNAL)?;
    match context.unit.protection_type() {
        Some(kind) => protecting(context, Terms::of(context, kind)?),
        None if context.cdb.protect() != 0 => Err(context.flag_field(7).into()),
        None => plain(context),
    }
}

/// How the unit does a command while it is formatted without protection information, and with.
fn command(cdb: &CdbView<'_>) -> Option<(Handler, Protecting)> {
    Some(match (cdb.opcode(), cdb.service_action()) {
        (Opcode::READ_6 | Opcode::READ_10 | Opcode::READ_12 | Opcode::READ_16, _)
        | (Opcode::VARIABLE_LENGTH, opcode::READ_32) => (rw::read, read),
        (Opcode::WRITE_6 | Opcode::WRITE_10 | Opcode::WRITE_12 | Opcode::WRITE_16, _)
        | (Opcode::VARIABLE_LENGTH, opcode::WRITE_32) => (rw::write, write),
        (Opcode::VERIFY_10 | Opcode::VERIFY_12 | Opcode::VERIFY_16, _)
        | (Opcode::VARIABLE_LENGTH, opcode::VERIFY_32) => (verify::verify, verify),
        (
            Opcode::WRITE_AND_VERIFY_10 | Opcode::WRITE_AND_VERIFY_12 | Opcode::WRITE_AND_VERIFY_16,
            _,
        )
        | (Opcode::VARIABLE_LENGTH, opcode::WRITE_AND_VERIFY_32) => {
            (write_verify::write_and_verify, write_and_verify)
        }
        (Opcode::WRITE_SAME_10 | Opcode::WRITE_SAME_16, _)
        | (Opcode::VARIABLE_LENGTH, opcode::WRITE_SAME_32) => (same::write_same, write_same),
        (Opcode::COMPARE_AND_WRITE, _) => (compare::compare_and_write, compare_and_write),
        (Opcode::ORWRITE_16, _) => (compare::or_write, or_write),
        _ => return None,
    })
}

/// Bytes behind each block.
const INFORMATION: u32 = 8;
const _: () = assert!(INFORMATION as usize == INFORMATION_LEN);

/// What travels for `extent`, bytes, in all and of each block.
fn travels(context: &Context<'_>, terms: &Terms, extent: Extent) -> (u64, u32) {
    let each = context.unit.block() + if terms.travels() { INFORMATION } else { 0 };
    (context.unit.lba_of(extent.length) * u64::from(each), each)
}

fn started(machine: Protected, step: task::Step) -> Started {
    (Machine::Protected(Box::new(machine)), step)
}

/// Blocks for which the initiator has no room are not read.
fn read(context: &Context<'_>, terms: Terms) -> Result<Started, Fault> {
    let (unit, (extent, _)) = (context.unit, context.transfer()?);
    let (presented, each) = travels(context, &terms, extent);
    let room = presented.min(u64::from(context.request.expected_in));
    let length = room.div_ceil(u64::from(each)) * u64::from(unit.block());
    if length == 0 {
        return Ok(task::good(presented));
    }
    let flush = context.cdb.fua() && unit.geometry().volatile_cache;
    let work = Work::Read(if flush { Fua::Flush } else { Fua::No });
    let mut machine = Protected::new(work, terms, Extent { length, ..extent }, presented);
    let step = machine.begin(unit)?;
    Ok(started(machine, step))
}

fn write(context: &Context<'_>, terms: Terms) -> Result<Started, Fault> {
    write_as(context, terms, Work::Write, context.cdb.fua())
}

fn write_and_verify(context: &Context<'_>, terms: Terms) -> Result<Started, Fault> {
    let against = match context.cdb.byte_check() {
        0 => Against::Nothing,
        1 => Against::Sent,
        _ => return Err(context.flag_field(2).into()),
    };
    write_as(context, terms, Work::WriteVerify(against), true)
}

/// Blocks that the initiator does not mean to send stay as they are; a part of one cannot be
/// written, as what stands beside it is that of the whole.
fn write_as(
    context: &Context<'_>,
    terms: Terms,
    work: Work,
    durable: bool,
) -> Result<Started, Fault> {
    let (extent, _) = context.transfer()?;
    let (presented, each) = travels(context, &terms, extent);
    let all = u32::try_from(presented).map_err(|_| sense::INTERNAL)?;
    let sent = all.min(context.request.expected_out);
    if !sent.is_multiple_of(each) {
        return Err(sense::short_data_out(presented));
    }
    if sent == 0 {
        return Ok(task::good(presented));
    }
    let length = u64::from(sent / each) * u64::from(context.unit.block());
    let machine = Protected::new(work, terms, Extent { length, ..extent }, presented);
    let mut machine = machine.durable(durable);
    let step = machine.receive(sent);
    Ok(started(machine, step))
}

fn verify(context: &Context<'_>, terms: Terms) -> Result<Started, Fault> {
    let against = match context.cdb.byte_check() {
        0 => Against::Nothing,
        1 => Against::Sent,
        3 => Against::One,
        _ => return Err(context.flag_field(2).into()),
    };
    let (extent, _) = context.transfer()?;
    let (all, each) = travels(context, &terms, extent);
    if all == 0 {
        return Ok(task::good(0));
    }
    let needed = match against {
        Against::Nothing => 0,
        Against::Sent => u32::try_from(all).map_err(|_| sense::INTERNAL)?,
        Against::One => each,
    };
    if context.request.expected_out < needed {
        return Err(sense::short_data_out(u64::from(needed)));
    }
    let mut machine = Protected::new(Work::Verify(against), terms, extent, u64::from(needed));
    let step = if needed == 0 { machine.begin(context.unit)? } else { machine.receive(needed) };
    Ok(started(machine, step))
}

fn write_same(context: &Context<'_>, terms: Terms) -> Result<Started, Fault> {
    let (cdb, unit) = (&context.cdb, context.unit);
    let (unmap, extent) = (same::leave_of(context)?, same::extent_of(context)?);
    if cdb.opcode() != Opcode::WRITE_SAME_10 && cdb.flag(0) {
        let work = unmap.map_or(Work::Same(Zeros::Written), Work::Clear);
        let mut machine = Protected::new(work, terms, extent, 0).with_zeros(unit);
        let step = machine.begin(unit)?;
        return Ok(started(machine, step));
    }
    let (_, each) = travels(context, &terms, extent);
    if context.request.expected_out != each {
        return Err(sense::short_data_out(u64::from(each)));
    }
    let zeros = unmap.map_or(Zeros::Written, Zeros::Unmapped);
    let mut machine = Protected::new(Work::Same(zeros), terms, extent, u64::from(each));
    let step = machine.receive(each);
    Ok(started(machine, step))
}

/// Of both halves of what is sent each block has its own protection information.
fn compare_and_write(context: &Context<'_>, terms: Terms) -> Result<Started, Fault> {
    let blocks = u32::from(context.cdb.byte(13));
    let extent = context.unit.extent(context.cdb.lba(), u64::from(blocks))?;
    let unheard = blocks == 0 && context.request.expected_out > 0;
    if unheard || blocks > u32::from(context.unit.compare_max()) {
        return Err(sense::invalid_field(13).into());
    }
    let (half, _) = travels(context, &terms, extent);
    let all = u32::try_from(half * 2).map_err(|_| sense::INTERNAL)?;
    if context.request.expected_out != all {
        return Err(sense::short_data_out(u64::from(all)));
    }
    decides(context, terms, Work::Compare, extent, all)
}

fn or_write(context: &Context<'_>, terms: Terms) -> Result<Started, Fault> {
    let (extent, _) = context.transfer()?;
    let (all, _) = travels(context, &terms, extent);
    let all = u32::try_from(all).map_err(|_| sense::INTERNAL)?;
    if context.request.expected_out < all {
        return Err(sense::short_data_out(u64::from(all)));
    }
    decides(context, terms, Work::Or, extent, all)
}

/// A command that reads, decides and writes.
fn decides(
    context: &Context<'_>,
    terms: Terms,
    work: Work,
    extent: Extent,
    all: u32,
) -> Result<Started, Fault> {
    if all == 0 {
        return Ok(task::good(0));
    }
    let machine = Protected::new(work, terms, extent, u64::from(all));
    let mut machine = machine.durable(context.cdb.fua());
    let step = machine.receive(all);
    Ok(started(machine, step))
}
