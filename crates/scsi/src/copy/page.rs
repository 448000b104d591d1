// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the copy manager says of itself: page 8F.

use crate::limits;
use crate::lun::LogicalUnit;
use crate::table;
use alloc::vec::Vec;
use wire::scsi::opcode::Opcode;
use wire::scsi::third_party::ThirdPartyCopy;

/// The content of page 8F, with the commands that the table has.
pub(crate) fn content(unit: &LogicalUnit) -> Vec<u8> {
    let [out, results] = [Opcode::THIRD_PARTY_COPY_OUT, Opcode::THIRD_PARTY_COPY_IN].map(actions);
    let blocks = |bytes: u64| unit.lba_of(bytes);
    ThirdPartyCopy {
        commands: &[
            (Opcode::THIRD_PARTY_COPY_OUT.0, &out),
            (Opcode::THIRD_PARTY_COPY_IN.0, &results),
        ],
        cscds_max: limits::CSCDS_MAX,
        segments_max: limits::COPY_SEGMENTS_MAX,
        descriptors_len_max: limits::COPY_DESCRIPTORS_LEN_MAX,
        copies_max: u32::try_from(limits::COPIES_MAX).unwrap_or(u32::MAX),
        segment_max: limits::COPY_SEGMENT_MAX,
        granularity: u8::try_from(unit.block().ilog2()).unwrap_or(0),
        ranges_max: limits::TOKEN_RANGES_MAX,
        inactivity_max_s: seconds(limits::TOKEN_INACTIVITY_MAX),
        inactivity_s: seconds(limits::TOKEN_INACTIVITY),
        lifetime_s: seconds(limits::TOKEN_LIFETIME),
        transfer_max: blocks(limits::TOKEN_BYTES_MAX),
        transfer_optimal: blocks(limits::TOKEN_BYTES_OPTIMAL),
    }
    .emit()
}

fn actions(opcode: Opcode) -> Vec<u8> {
    let actions = table::DISK.of_opcode(opcode).filter_map(|entry| entry.service_action);
    actions.filter_map(|action| u8::try_from(action).ok()).collect()
}

fn seconds(time: core::time::Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}
