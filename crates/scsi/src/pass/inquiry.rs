// SPDX-License-Identifier: Apache-2.0 OR MIT
//! INQUIRY (SPC-4 §6.6) of a unit that is a device. Who the unit is, the device says, so that a
//! host that has another way to it knows it again. What it says of its own ports and of what its
//! one nexus may do is of no use to those who come through this target, and is made to say what is
//! true for them.

use super::After;
use super::command;
use super::pass;
use super::transfer_max;
use super::with_data;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::nexus::Nexus;
use crate::sense;
use crate::sense::Fault;
use crate::spc::inquiry::designators;
use crate::spc::inquiry::designators_of_ports;
use crate::task::CHECK_CONDITION;
use crate::task::Completion;
use crate::task::GOOD;
use crate::task::Started;
use alloc::vec::Vec;
use buf::Slice;
use wire::iscsi::Cdb;
use wire::scsi::inquiry;
use wire::scsi::inquiry::PortGroups;
use wire::scsi::opcode::Opcode;
use wire::scsi::vpd;

/// What an initiator has asked for, as far as the device alone does not know it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    /// Standard data.
    Standard,
    /// A page, of which so many bytes may be given.
    Page {
        /// Its code.
        code: u8,
        /// ALLOCATION LENGTH.
        allocation: u16,
    },
}

/// SCSI ports.
const SCSI_PORTS: u8 = 0x88;
/// Protocol specific logical unit and port information.
const UNIT_BY_PROTOCOL: u8 = 0x90;
const PORT_BY_PROTOCOL: u8 = 0x91;

/// Pages that tell of the ports of the device, or of copies that are refused here.
const HIDDEN: [u8; 4] = [SCSI_PORTS, vpd::THIRD_PARTY_COPY, UNIT_BY_PROTOCOL, PORT_BY_PROTOCOL];

/// Bytes of a page that is changed: as many as devices understand that know one byte of length.
const PAGE_MAX: u16 = 255;

/// Block length that is assumed of a disk that has not said it, bytes: with a shorter one its
/// longest transfer is longer than what is said.
const BLOCK_ASSUMED: u32 = 4096;

/// INQUIRY.
pub(crate) fn inquiry(context: &Context<'_>) -> Result<Started, Fault> {
    let (cdb, room) = (&context.cdb, context.request.expected_in);
    if !cdb.bit(1, 0) {
        return pass(context, context.request.cdb, room, After::Inquiry(Asked::Standard));
    }
    let (code, allocation) = (cdb.byte(2), cdb.u16_at(3));
    if HIDDEN.contains(&code) {
        return Err(sense::invalid_field(2).into());
    }
    if !is_changed(code) {
        return command(context);
    }
    // All of it, whatever the initiator takes: the changes are to the whole.
    let [high, low] = PAGE_MAX.to_be_bytes();
    let whole = Cdb::new(&[Opcode::INQUIRY.0, 1, code, high, low, 0]);
    let whole = whole.ok_or(sense::INTERNAL)?;
    let asked = Asked::Page { code, allocation };
    pass(context, whole, u32::from(PAGE_MAX), After::Inquiry(asked))
}

/// What the initiator is told of what the device has answered.
pub(super) fn edited(
    asked: &Asked,
    nexus: &Nexus,
    unit: &LogicalUnit,
    completion: Completion,
) -> Result<Completion, Fault> {
    let Asked::Page { code, allocation } = *asked else {
        return Ok(match completion.status {
            GOOD => with_data(completion, |data| standard(unit, data)),
            _ => completion,
        });
    };
    let page = match (completion.status, &completion.data_in) {
        (GOOD, Some(data)) => data.to_vec(),
        // The device has no such page.
        (CHECK_CONDITION, _) if is_ours(unit, code) => Vec::new(),
        _ => return Ok(Completion { data_in: None, presented: 0, ..completion }),
    };
    let peripheral = page.first().copied().or_else(|| Some(unit.device()?.facts().kind));
    let content = vpd::content(&page, code).unwrap_or_default();
    let content = match code {
        vpd::SUPPORTED_PAGES => pages(unit, content),
        vpd::DEVICE_IDENTIFICATION => identification(nexus, unit, content),
        _ => block_limits(unit, content),
    };
    let mut page = vpd::page(peripheral.unwrap_or(inquiry::NOT_SUPPORTED), code, &content);
    page.truncate(usize::from(allocation));
    let presented = u64::try_from(page.len()).unwrap_or(u64::MAX);
    let data_in = (!page.is_empty()).then(|| Slice::from(page));
    Ok(Completion { data_in, ..sense::good(presented) })
}

const fn is_changed(code: u8) -> bool {
    matches!(code, vpd::SUPPORTED_PAGES | vpd::DEVICE_IDENTIFICATION | vpd::BLOCK_LIMITS)
}

/// Whether there is a page whether the device has it or not.
fn is_ours(unit: &LogicalUnit, code: u8) -> bool {
    match code {
        vpd::SUPPORTED_PAGES | vpd::DEVICE_IDENTIFICATION => true,
        vpd::BLOCK_LIMITS => is_disk(unit),
        _ => false,
    }
}

/// Standard data: NACA is understood and commands are queued, whatever the device does; there are
/// no copies by others (3PC), and the target port groups are those of this target.
fn standard(unit: &LogicalUnit, mut data: Vec<u8>) -> Vec<u8> {
    let groups = match unit.is_optical() {
        true => PortGroups::None,
        false => unit.access().who_changes(),
    };
    let changes: [(usize, u8, u8); 3] = [
        (3, 0x20, 0x20),
        // ACC, too: rights of the one nexus of the system.
        (5, 0x78, (groups as u8) << 4),
        (7, 0x02, 0x02),
    ];
    for (at, mask, value) in changes {
        if let Some(byte) = data.get_mut(at) {
            *byte = *byte & !mask | value;
        }
    }
    data
}

fn pages(unit: &LogicalUnit, content: &[u8]) -> Vec<u8> {
    let own = [vpd::SUPPORTED_PAGES, vpd::DEVICE_IDENTIFICATION, vpd::BLOCK_LIMITS];
    let own = own.into_iter().filter(|code| is_ours(unit, *code));
    let mut pages: Vec<u8> = content.iter().copied().chain(own).collect();
    pages.retain(|code| !HIDDEN.contains(code));
    pages.sort_unstable();
    pages.dedup();
    pages
}

/// Page 83: the unit as the device names it, the ports and the target as they are here. A device
/// that does not name its unit gets a name.
fn identification(nexus: &Nexus, unit: &LogicalUnit, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = content;
    while let Some([_, flags, _, length]) = rest.first_chunk::<4>() {
        let Some((descriptor, after)) = rest.split_at_checked(4 + usize::from(*length)) else {
            break;
        };
        if flags >> 4 & 3 == 0 {
            bytes.extend_from_slice(descriptor);
        }
        rest = after;
    }
    if bytes.is_empty() {
        return designators(nexus, unit);
    }
    designators_of_ports(nexus, unit, &mut bytes);
    bytes
}

/// Page B0 with no more than what the host adapter of the device and this target take.
fn block_limits(unit: &LogicalUnit, content: &[u8]) -> Vec<u8> {
    let block = unit.device().and_then(|device| device.facts().capacity);
    let block = block.map_or(BLOCK_ASSUMED, |(block, _)| block).max(1);
    let max = unit.device().map_or(0, |device| transfer_max(device.facts())) / block;
    let mut content = content.to_vec();
    if content.len() < 12 {
        content.resize(0x3c, 0);
    }
    // MAXIMUM and OPTIMAL TRANSFER LENGTH; zero: no limit, not reported.
    for (at, none) in [(4, max), (8, 0)] {
        if let Some(field) = content.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
            let said = u32::from_be_bytes(*field);
            *field = if said == 0 { none } else { said.min(max) }.to_be_bytes();
        }
    }
    content
}

fn is_disk(unit: &LogicalUnit) -> bool {
    unit.device().is_some_and(|device| device.facts().kind == inquiry::TYPE_DISK)
}
