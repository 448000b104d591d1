// SPDX-License-Identifier: Apache-2.0 OR MIT
//! EXTENDED COPY (SPC-4 §6.4, §6.5) from blocks to blocks, and COPY OPERATION ABORT (SPC-4 §6.3).

use super::machine::Copy;
use super::machine::Leg;
use super::place;
use super::records::Ground;
use super::refused;
use crate::limits;
use crate::lun::Context;
use crate::nexus::Mapped;
use crate::sense;
use crate::sense::Fault;
use crate::spc::parameters;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wire::scsi::copy;
use wire::scsi::copy::CSCD_LEN;
use wire::scsi::copy::Cscd;
use wire::scsi::copy::List;
use wire::scsi::copy::ListIdUsage;
use wire::scsi::copy::OffsetSegment;
use wire::scsi::copy::Segment;
use wire::scsi::copy::SegmentKind;
use wire::scsi::inquiry;

/// EXTENDED COPY(LID1), (LID4).
pub(crate) fn extended_copy(context: &Context<'_>) -> Result<Started, Fault> {
    let length = context.cdb.u32_at(10);
    if length == 0 {
        return Ok(task::good(0));
    }
    if length > limits::COPY_LIST_LEN_MAX {
        return Err(sense::PARAMETER_LIST_LENGTH.into());
    }
    parameters::receive(context, length, begin)
}

/// The whole list is checked before anything is copied.
fn begin(context: &Context<'_>, bytes: &[u8]) -> Result<Started, Fault> {
    let service_action = context.cdb.service_action();
    let list = match service_action {
        copy::EXTENDED_COPY_LID1 => List::lid1(bytes),
        _ => List::lid4(bytes),
    };
    let list = list.map_err(refused)?;
    let cscds = cscds(context, &list)?;
    let legs = legs(context, &list, &cscds)?;
    let record = match list.usage {
        ListIdUsage::None if list.id != 0 => {
            let at = if service_action == copy::EXTENDED_COPY_LID1 { 0 } else { 20 };
            return Err(sense::invalid_parameter(at).into());
        }
        ListIdUsage::None if list.immediate => return Err(sense::invalid_parameter(1).into()),
        ListIdUsage::None => None,
        ListIdUsage::Hold | ListIdUsage::Discard => {
            let ground = if list.immediate { Ground::Back } else { Ground::Fore };
            Some(context.nexus_state.copies.begin(list.id, service_action, ground)?)
        }
    };
    let presented = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let relative_port = context.nexus.names().relative_port;
    let copy = Copy::new(legs, record, None, relative_port, presented);
    start(context, copy, list.immediate, presented)
}

/// Lets a copy run within its command or, if `immediate`, after it.
pub(super) fn start(
    context: &Context<'_>,
    mut copy: Copy,
    immediate: bool,
    presented: u64,
) -> Result<Started, Fault> {
    if !immediate {
        let step = copy.resume(Input::Turn)?;
        return Ok((Machine::Copy(Box::new(copy)), step));
    }
    let machine = Machine::Copy(Box::new(copy));
    let own = context.nexus.mapped_unit(context.unit).ok_or(sense::UNIT_NOT_SUPPORTED)?;
    let job = task::Task::job(Arc::clone(own), machine);
    let completion = sense::good(presented);
    Ok((Machine::Done, Step::Spawn { job: Box::new(job), completion: Some(completion) }))
}

/// The copy sources and destinations; None for one that this nexus cannot reach.
fn cscds(context: &Context<'_>, list: &List<'_>) -> Result<Vec<Option<Arc<Mapped>>>, Fault> {
    let descriptors = list.cscds.chunks_exact(CSCD_LEN);
    let length = list.cscds.len() + list.segments.len();
    if u32::try_from(length).map_or(true, |length| length > limits::COPY_DESCRIPTORS_LEN_MAX) {
        return Err(sense::PARAMETER_LIST_LENGTH.into());
    }
    if descriptors.len() > usize::from(limits::CSCDS_MAX) {
        return Err(sense::TOO_MANY_CSCDS.into());
    }
    if list.inline_len > 0 {
        return Err(sense::INLINE_DATA_LENGTH_EXCEEDED.into());
    }
    descriptors
        .zip((list.cscds_at..).step_by(CSCD_LEN))
        .map(|(bytes, at)| {
            let cscd = Cscd::parse(bytes).ok_or(sense::UNSUPPORTED_CSCD)?;
            if cscd.device_type != inquiry::TYPE_DISK {
                return Err(sense::invalid_parameter_bit(place(at + 1), 4).into());
            }
            let found = context.nexus.unit_named(&cscd.naa);
            if found.is_some_and(|mapped| mapped.unit.block() != cscd.block) {
                return Err(sense::invalid_parameter(place(at + 29)).into());
            }
            Ok(found.cloned())
        })
        .collect()
}

fn legs(
    context: &Context<'_>,
    list: &List<'_>,
    cscds: &[Option<Arc<Mapped>>],
) -> Result<Vec<Leg>, Fault> {
    let mut legs = Vec::new();
    let segments = copy::segments(list.segments);
    if segments.count() > usize::from(limits::COPY_SEGMENTS_MAX) {
        return Err(sense::TOO_MANY_SEGMENTS.into());
    }
    for (at, kind) in copy::segments(list.segments) {
        match kind {
            SegmentKind::BlockToBlock(segment) => {
                let at = list.segments_at() + at;
                legs.push(leg(context, &segment, cscds, at)?);
            }
            SegmentKind::WithOffset(segment) => {
                let at = list.segments_at() + at;
                legs.push(leg_with_offset(context, &segment, cscds, at)?);
            }
            SegmentKind::Unsupported => return Err(sense::UNSUPPORTED_SEGMENT.into()),
            SegmentKind::Cut => return Err(sense::PARAMETER_LIST_LENGTH.into()),
        }
    }
    Ok(legs)
}

/// What a segment asks for, if both ends are there.
fn leg(
    context: &Context<'_>,
    segment: &Segment,
    cscds: &[Option<Arc<Mapped>>],
    at: usize,
) -> Result<Leg, Fault> {
    let find = |id| find(context, cscds, id);
    let (source, destination) = (find(segment.source)?, find(segment.destination)?);
    let counting = if segment.in_destination_blocks { &destination } else { &source };
    let length = u64::from(segment.blocks) * u64::from(counting.unit.block());
    if length > u64::from(limits::COPY_SEGMENT_MAX) {
        return Err(sense::invalid_parameter(place(at + 10)).into());
    }
    let from = start_of(&source, segment.source_lba, length)?;
    let to = start_of(&destination, segment.destination_lba, length)?;
    Ok(Leg { source: Some(source), from, destination, to, length })
}

/// The same for one that counts bytes. Only whole blocks are copied: the granularity that RECEIVE
/// COPY OPERATING PARAMETERS tells.
fn leg_with_offset(
    context: &Context<'_>,
    segment: &OffsetSegment,
    cscds: &[Option<Arc<Mapped>>],
    at: usize,
) -> Result<Leg, Fault> {
    let find = |id| find(context, cscds, id);
    let (source, destination) = (find(segment.source)?, find(segment.destination)?);
    if segment.bytes > limits::COPY_SEGMENT_MAX {
        return Err(sense::invalid_parameter(place(at + 8)).into());
    }
    let length = u64::from(segment.bytes);
    let start = |mapped: &Mapped, lba: u64, offset: u16, field: usize| {
        let blocks = mapped.unit.lba_of(u64::from(offset));
        if blocks * u64::from(mapped.unit.block()) != u64::from(offset) {
            return Err(sense::invalid_parameter(place(at + field)).into());
        }
        let lba = lba.checked_add(blocks).ok_or(sense::COPY_ABORTED)?;
        start_of(mapped, lba, length)
    };
    let from = start(&source, segment.source_lba, segment.source_offset, 28)?;
    let to = start(&destination, segment.destination_lba, segment.destination_offset, 30)?;
    Ok(Leg { source: Some(source), from, destination, to, length })
}

/// The copy source or destination with this index.
fn find(
    context: &Context<'_>,
    cscds: &[Option<Arc<Mapped>>],
    id: u16,
) -> Result<Arc<Mapped>, Fault> {
    if id == copy::CSCD_SELF {
        let own = context.nexus.mapped_unit(context.unit).ok_or(sense::UNIT_NOT_SUPPORTED)?;
        return Ok(Arc::clone(own));
    }
    let listed = cscds.get(usize::from(id)).ok_or(sense::UNREACHABLE_COPY_TARGET)?;
    listed.clone().ok_or_else(|| sense::COPY_TARGET_NOT_REACHABLE.into())
}

/// The first byte of `length` bytes from `lba` on, which are whole blocks and all there.
fn start_of(mapped: &Mapped, lba: u64, length: u64) -> Result<u64, Fault> {
    let blocks = mapped.unit.lba_of(length);
    if blocks * u64::from(mapped.unit.block()) != length {
        return Err(sense::COPY_SEGMENT_INEXACT.into());
    }
    let extent = mapped.unit.extent(lba, blocks).map_err(|_| Fault::from(sense::COPY_ABORTED))?;
    Ok(extent.offset)
}

/// COPY OPERATION ABORT: it ends with its next step; RECEIVE COPY STATUS tells when.
pub(crate) fn abort(context: &Context<'_>) -> Result<Started, Fault> {
    let record = context.nexus_state.copies.find(context.cdb.u32_at(2));
    let record = record.ok_or_else(|| sense::invalid_field(2))?;
    record.cancel();
    Ok(task::good(0))
}
