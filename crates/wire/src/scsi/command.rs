// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Command descriptor blocks that an application client sends, besides the block commands of
//! [`super::cdb::BlockCommand`] (SPC-4 §6, SBC-3 §5).

use super::cdb::CDB_LEN_MAX;
use super::field::put;
use super::opcode;
use super::opcode::Opcode;
use super::persistent::BASIC_LIST_LEN;
use super::persistent::Type;
use crate::iscsi::Cdb;

/// A CDB of the group of `opcode` whose other bytes are zero, as TEST UNIT READY is.
#[must_use]
pub const fn plain(opcode: Opcode) -> Cdb {
    let mut bytes = [0; CDB_LEN_MAX];
    bytes[0] = opcode.0;
    Cdb { bytes, len: 16 }
}

fn filled(opcode: Opcode, fill: impl FnOnce(&mut [u8; CDB_LEN_MAX])) -> Cdb {
    let mut cdb = plain(opcode);
    fill(&mut cdb.bytes);
    cdb
}

/// INQUIRY (SPC-4 §6.6): the standard data, or a VPD page.
#[must_use]
pub fn inquiry(page: Option<u8>, allocation: u16) -> Cdb {
    filled(Opcode::INQUIRY, |bytes| {
        bytes[1] = u8::from(page.is_some());
        bytes[2] = page.unwrap_or(0);
        put(bytes, 3, allocation.to_be_bytes());
    })
}

/// READ CAPACITY(16) (SBC-3 §5.16).
#[must_use]
pub fn read_capacity_16(allocation: u32) -> Cdb {
    filled(Opcode::SERVICE_ACTION_IN_16, |bytes| {
        bytes[1] = service_action(opcode::READ_CAPACITY_16);
        put(bytes, 10, allocation.to_be_bytes());
    })
}

/// GET LBA STATUS (SBC-3 §5.4) from `lba` on.
#[must_use]
pub fn get_lba_status(lba: u64, allocation: u32) -> Cdb {
    filled(Opcode::SERVICE_ACTION_IN_16, |bytes| {
        bytes[1] = service_action(opcode::GET_LBA_STATUS_16);
        put(bytes, 2, lba.to_be_bytes());
        put(bytes, 10, allocation.to_be_bytes());
    })
}

/// REPORT LUNS (SPC-4 §6.33) of all ordinary units.
#[must_use]
pub fn report_luns(allocation: u32) -> Cdb {
    filled(Opcode::REPORT_LUNS, |bytes| put(bytes, 6, allocation.to_be_bytes()))
}

/// MODE SENSE(6) (SPC-4 §6.11) of the current values of a page, without block descriptors.
#[must_use]
pub fn mode_sense_6(page: u8, allocation: u8) -> Cdb {
    filled(Opcode::MODE_SENSE_6, |bytes| {
        bytes[1] = 0x08;
        bytes[2] = page & 0x3f;
        bytes[4] = allocation;
    })
}

/// REPORT SUPPORTED OPERATION CODES (SPC-4 §6.35): all commands, without timeouts.
#[must_use]
pub fn supported_operation_codes(allocation: u32) -> Cdb {
    filled(Opcode::MAINTENANCE_IN, |bytes| {
        bytes[1] = service_action(opcode::REPORT_SUPPORTED_OPERATION_CODES);
        put(bytes, 6, allocation.to_be_bytes());
    })
}

/// REPORT TARGET PORT GROUPS (SPC-4 §6.37), length only header.
#[must_use]
pub fn report_target_port_groups(allocation: u32) -> Cdb {
    filled(Opcode::MAINTENANCE_IN, |bytes| {
        bytes[1] = service_action(opcode::REPORT_TARGET_PORT_GROUPS);
        put(bytes, 6, allocation.to_be_bytes());
    })
}

/// PERSISTENT RESERVE IN (SPC-4 §6.15).
#[must_use]
pub fn persistent_reserve_in(action: u16, allocation: u16) -> Cdb {
    filled(Opcode::PERSISTENT_RESERVE_IN, |bytes| {
        bytes[1] = service_action(action);
        put(bytes, 7, allocation.to_be_bytes());
    })
}

/// PERSISTENT RESERVE OUT (SPC-4 §6.16) with the basic parameter list; the scope is the logical
/// unit. Actions that have no type ignore it.
#[must_use]
pub fn persistent_reserve_out(action: u16, kind: Type) -> Cdb {
    filled(Opcode::PERSISTENT_RESERVE_OUT, |bytes| {
        (bytes[1], bytes[2]) = (service_action(action), kind as u8);
        put(bytes, 5, [0, 0, 0, BASIC_LIST_LEN]);
    })
}

/// UNMAP (SBC-3 §5.28) with a parameter list of `length` bytes.
#[must_use]
pub fn unmap(length: u16) -> Cdb {
    filled(Opcode::UNMAP, |bytes| put(bytes, 7, length.to_be_bytes()))
}

/// SYNCHRONIZE CACHE(10) (SBC-3 §5.22) of all blocks.
#[must_use]
pub const fn synchronize_cache() -> Cdb {
    plain(Opcode::SYNCHRONIZE_CACHE_10)
}

/// The five bits that the field has in byte 1.
fn service_action(action: u16) -> u8 {
    let [_, low] = action.to_be_bytes();
    low & 0x1f
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::cdb::CdbView;

    #[test]
    fn literal_vectors() {
        let cases: [(Cdb, &[u8]); 9] = [
            (plain(Opcode::TEST_UNIT_READY), &[0; 6]),
            (inquiry(None, 96), &[0x12, 0, 0, 0, 96, 0]),
            (inquiry(Some(0xb0), 0x1234), &[0x12, 1, 0xb0, 0x12, 0x34, 0]),
            (read_capacity_16(32), &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0]),
            (report_luns(16), &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0]),
            (mode_sense_6(0x08, 255), &[0x1a, 8, 8, 0, 255, 0]),
            (persistent_reserve_in(1, 8), &[0x5e, 1, 0, 0, 0, 0, 0, 0, 8, 0]),
            (unmap(24), &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0]),
            (synchronize_cache(), &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (cdb, expected) in cases {
            assert_eq!(&cdb.bytes[..expected.len()], expected);
            assert!(cdb.bytes[expected.len()..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn fields_read_back() {
        let cdb = get_lba_status(0x0102_0304_0506_0708, 4096);
        let view = CdbView::new(&cdb);
        assert_eq!(view.service_action(), opcode::GET_LBA_STATUS_16);
        assert_eq!((view.u64_at(2), view.u32_at(10)), (0x0102_0304_0506_0708, 4096));
        let cdb = supported_operation_codes(65536);
        let view = CdbView::new(&cdb);
        assert_eq!(view.service_action(), opcode::REPORT_SUPPORTED_OPERATION_CODES);
        assert_eq!(view.u32_at(6), 65536);
    }
}
