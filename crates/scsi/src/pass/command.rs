// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command as the device gets it: how long its CDB is, and how long it may take.

use store::device::CDB_LEN_MAX;
use store::device::Command;
use store::device::Pace;
use store::device::Transfer;
use wire::iscsi::Cdb;
use wire::scsi::cdb::CdbView;
use wire::scsi::cdb::Group;
use wire::scsi::opcode::Opcode;

/// NACA of CONTROL (SAM-5 §5.2): the task set of the unit keeps ACA conditions, and a device that
/// had one would keep it against all initiators.
const NACA: u8 = 0x04;

/// Bytes of a variable length CDB before what ADDITIONAL CDB LENGTH counts.
const VARIABLE_HEAD_LEN: u8 = 8;

/// PERIPHERAL DEVICE TYPE of a tape drive.
const TYPE_TAPE: u8 = 0x01;
/// PERIPHERAL DEVICE TYPE of a medium changer.
const TYPE_CHANGER: u8 = 0x08;
/// First operation code that is vendor specific.
const VENDOR_SPECIFIC: u8 = 0xc0;

/// Operation codes that ask every kind of device for what it knows, and that it ends soon: TEST
/// UNIT READY, REQUEST SENSE, READ BLOCK LIMITS, INQUIRY, MODE SENSE, RECEIVE DIAGNOSTIC RESULTS,
/// READ CAPACITY(10), REPORT DENSITY SUPPORT and LOG SENSE.
const QUESTIONS: [u8; 10] = [0x00, 0x03, 0x05, 0x12, 0x1a, 0x1c, 0x25, 0x44, 0x4d, 0x5a];

/// Operation codes that may take minutes to hours on a disk or a CD or DVD drive: FORMAT UNIT,
/// REASSIGN BLOCKS, START STOP UNIT, SEND DIAGNOSTIC, ERASE, the three of VERIFY, SYNCHRONIZE
/// CACHE, WRITE BUFFER (a microcode), WRITE SAME, UNMAP, SANITIZE, RESERVE TRACK, SEND OPC
/// INFORMATION, REPAIR TRACK, CLOSE TRACK SESSION, MAINTENANCE OUT, LOAD/UNLOAD MEDIUM, and those
/// that carry commands of other standards, some of which erase: variable length, ATA PASS-THROUGH
/// (one shares its code with BLANK), SECURITY PROTOCOL OUT.
const LONG: [u8; 27] = [
    0x04, 0x07, 0x1b, 0x1d, 0x2c, 0x2f, 0x35, 0x3b, 0x41, 0x42, 0x48, 0x53, 0x54, 0x58, 0x5b, 0x7f,
    0x85, 0x8f, 0x91, 0x93, 0x9f, 0xa1, 0xa4, 0xa6, 0xac, 0xaf, 0xb5,
];

/// The command that `cdb` is for a device of type `kind`. None if it is longer than any that is
/// passed on, or says so of itself.
pub(crate) fn command(cdb: &Cdb, kind: u8, transfer: Transfer) -> Option<Command> {
    let cdb_len = length(cdb)?;
    let mut bytes = cdb.bytes;
    let kept = usize::from(cdb_len);
    bytes.iter_mut().skip(kept).for_each(|byte| *byte = 0);
    if let Some(group) = Group::of(CdbView::new(cdb).opcode())
        && let Some(control) = bytes.get_mut(usize::from(group.control_at()))
    {
        *control &= !NACA;
    }
    Some(Command { cdb: bytes, cdb_len, transfer, pace: pace(kind, cdb.bytes[0]) })
}

/// iSCSI carries 16 bytes of a CDB whatever its length is. The group says that; where it does not,
/// the CDB ends in the shortest usual length behind which nothing stands.
fn length(cdb: &Cdb) -> Option<u8> {
    let view = CdbView::new(cdb);
    match Group::of(view.opcode()) {
        Some(Group::ThirtyTwo) => {
            let length = view.byte(7).checked_add(VARIABLE_HEAD_LEN)?;
            let fits = usize::from(length) <= CDB_LEN_MAX && u16::from(length) <= cdb.len;
            fits.then_some(length)
        }
        Some(_) if cdb.len > 16 => None,
        Some(group) => Some(group.cdb_len()),
        None => {
            let ends = |length: &u8| cdb.bytes.iter().skip(usize::from(*length)).all(|b| *b == 0);
            [10, 12, 16].into_iter().find(ends)
        }
    }
}

/// True for a command that changes nothing and is not about the medium.
pub(super) fn only_asks(opcode: u8) -> bool {
    QUESTIONS.contains(&opcode)
}

fn pace(kind: u8, opcode: u8) -> Pace {
    let long = match kind {
        // Winding may come before anything that a tape does.
        TYPE_TAPE | TYPE_CHANGER => !only_asks(opcode),
        _ => LONG.contains(&opcode) || opcode >= VENDOR_SPECIFIC,
    };
    if long { Pace::Long } else { Pace::Usual }
}

/// PREVENT ALLOW MEDIUM REMOVAL that allows.
pub(crate) fn allow_removal() -> Command {
    let mut cdb = [0; CDB_LEN_MAX];
    cdb[0] = Opcode::PREVENT_ALLOW_MEDIUM_REMOVAL.0;
    Command { cdb, cdb_len: 6, transfer: Transfer::Nothing, pace: Pace::Usual }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(bytes: &[u8], kind: u8) -> Option<Command> {
        command(&Cdb::new(bytes).expect("32 bytes at most"), kind, Transfer::Nothing)
    }

    #[test]
    fn the_group_says_how_long_a_cdb_is() {
        for (opcode, length) in
            [(0x12, 6), (0x28, 10), (0x5a, 10), (0x88, 16), (0xa0, 12), (0xbe, 12)]
        {
            assert_eq!(made(&[opcode; 16], 0).map(|made| made.cdb_len), Some(length), "{opcode:x}");
        }
        let vendor = |last: usize| {
            let mut bytes = [0; 16];
            (bytes[0], bytes[last]) = (0xc5, 1);
            made(&bytes, 0).map(|made| made.cdb_len)
        };
        assert_eq!([1, 9, 10, 11, 12, 15].map(vendor), [10, 10, 12, 12, 16, 16].map(Some));
    }

    #[test]
    fn a_variable_length_cdb_says_its_length_and_has_it() {
        let read_32 = |additional, len: usize| {
            let mut bytes = [0; 32];
            (bytes[0], bytes[7]) = (0x7f, additional);
            made(&bytes[..len], 0).map(|made| made.cdb_len)
        };
        assert_eq!(read_32(0x18, 32), Some(32));
        assert_eq!(read_32(0x18, 16), None, "less came than it says");
        assert_eq!([0x19, 0xff].map(|additional| read_32(additional, 32)), [None; 2]);
        let mut long = Cdb::new(&[0x28; 16]).expect("a CDB");
        long.len = 100;
        assert!(command(&long, 0, Transfer::Nothing).is_none());
    }

    #[test]
    fn a_device_never_keeps_an_aca_condition() {
        let tested = made(&[0, 0, 0, 0, 0, 0x84], 0).expect("a command");
        assert_eq!(tested.cdb[..6], [0, 0, 0, 0, 0, 0x80]);
    }

    #[test]
    fn what_winds_formats_or_is_unknown_takes_long() {
        let pace = |opcode, kind| made(&[opcode], kind).expect("a command").pace;
        for (opcode, kind, expected) in [
            (0x28, 0, Pace::Usual),
            (0x04, 0, Pace::Long),
            (0x07, 0, Pace::Long),
            // SECURITY ERASE UNIT comes in ATA PASS-THROUGH, a revert in SECURITY PROTOCOL OUT.
            (0x85, 0, Pace::Long),
            (0xb5, 0, Pace::Long),
            (0x2c, 7, Pace::Long),
            (0xc0, 0, Pace::Long),
            (0x12, TYPE_TAPE, Pace::Usual),
            (0x08, TYPE_TAPE, Pace::Long),
            (0xa5, TYPE_CHANGER, Pace::Long),
        ] {
            assert_eq!(pace(opcode, kind), expected, "{opcode:x} of {kind}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_passed_whole_or_not_at_all(
            bytes in prop::collection::vec(any::<u8>(), 1..=32), kind in 0..32_u8,
        ) {
            if let Some(command) = made(&bytes, kind) {
                let length = usize::from(command.cdb_len);
                prop_assert!((6..=CDB_LEN_MAX).contains(&length) || bytes[0] == 0x7f);
                prop_assert_eq!(command.cdb[0], bytes[0]);
                prop_assert!(command.cdb[length..].iter().all(|byte| *byte == 0));
            }
        }
    }
}
