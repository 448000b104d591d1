// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of a disk that can be formatted with protection information: those of any disk, but for
//! third-party copies, which would leave behind what stands beside the blocks.

use super::Entry;
use super::Flag;
use super::MERGED;
use super::copy;
use crate::protect;
use wire::scsi::opcode::Opcode;

const COUNT: usize = MERGED.len() - copy::COMMANDS.len();

/// Ascending by operation code.
pub(super) const COMMANDS: [Entry; COUNT] = {
    let mut all = [MERGED[0]; COUNT];
    let (mut from, mut to) = (0, 0);
    while from < MERGED.len() {
        if !is_copy(MERGED[from].opcode) {
            all[to] = protecting(MERGED[from]);
            to += 1;
        }
        from += 1;
    }
    assert!(to == COUNT);
    all
};

const fn is_copy(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::THIRD_PARTY_COPY_IN | Opcode::THIRD_PARTY_COPY_OUT)
}

/// The same, as such a disk does it.
const fn protecting(mut entry: Entry) -> Entry {
    if entry.has(Flag::Protect) {
        // RDPROTECT, WRPROTECT, VRPROTECT or ORPROTECT.
        entry.usage[entry.flags_at() as usize] |= 0xe0;
    }
    match entry.opcode {
        Opcode::UNMAP => entry.handler = protect::unmap::unmap,
        // FMTPINFO.
        Opcode::FORMAT_UNIT => entry.usage[1] |= 0xc0,
        Opcode::READ_6 | Opcode::WRITE_6 => entry.handler = protect::start,
        // No store of two parts promises whole writes.
        Opcode::WRITE_ATOMIC_16 => {}
        _ if entry.has(Flag::Protect) => entry.handler = protect::start,
        _ => {}
    }
    entry
}
