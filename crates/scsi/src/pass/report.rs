// SPDX-License-Identifier: Apache-2.0 OR MIT
//! REPORT SUPPORTED OPERATION CODES (SPC-4 §6.35) of a unit that is a device: of what is answered
//! or refused here the table tells, of the rest the device.

use super::After;
use super::pass;
use crate::lun::Context;
use crate::sense::Fault;
use crate::spc::rsoc;
use crate::table::Flag;
use crate::table::PASSED_DISK;
use crate::task::Started;
use alloc::vec::Vec;
use wire::scsi::opcode::Opcode;

/// Length of a command descriptor, and of its timeouts descriptor.
const DESCRIPTOR_LEN: usize = 8;
const TIMEOUTS_LEN: usize = 12;
/// Length of what stands before the descriptors.
const HEADER_LEN: usize = 4;

/// REPORT SUPPORTED OPERATION CODES.
pub(crate) fn supported_commands(context: &Context<'_>) -> Result<Started, Fault> {
    let cdb = &context.cdb;
    let one = cdb.byte(2) & 7 != 0;
    let opcode = Opcode(cdb.byte(3));
    if one && (is_refused(opcode) || is_ours(context, opcode)) {
        return rsoc::report(context);
    }
    let after = if one { After::Nothing } else { After::SupportedCommands };
    pass(context, context.request.cdb, context.request.expected_in, after)
}

/// The list of a device without what is refused here, as far as it is whole.
pub(crate) fn without_refused(list: Vec<u8>) -> Vec<u8> {
    let Some((head, mut rest)) = list.split_first_chunk::<HEADER_LEN>() else { return list };
    let mut announced = u32::from_be_bytes(*head);
    let mut kept = head.to_vec();
    while let Some(descriptor) = rest.get(..DESCRIPTOR_LEN) {
        let has_timeouts = descriptor.get(5).is_some_and(|flags| flags & 2 != 0);
        let length = DESCRIPTOR_LEN + if has_timeouts { TIMEOUTS_LEN } else { 0 };
        let Some((descriptor, after)) = rest.split_at_checked(length) else { break };
        if descriptor.first().is_some_and(|opcode| is_refused(Opcode(*opcode))) {
            announced = announced.saturating_sub(u32::try_from(length).unwrap_or(0));
        } else {
            kept.extend_from_slice(descriptor);
        }
        rest = after;
    }
    kept.extend_from_slice(rest);
    if let Some(head) = kept.first_chunk_mut::<HEADER_LEN>() {
        *head = announced.to_be_bytes();
    }
    kept
}

fn is_ours(context: &Context<'_>, opcode: Opcode) -> bool {
    let mut known = context.unit.commands().of_opcode(opcode);
    known.any(|entry| !entry.has(Flag::Passed)) && opcode != Opcode::MAINTENANCE_IN
}

fn is_refused(opcode: Opcode) -> bool {
    PASSED_DISK.of_opcode(opcode).any(|entry| entry.has(Flag::Refused))
}
