// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of a CD or DVD drive that only reads (MMC-6 §6).

use super::Entry;
use super::Flag;
use crate::mmc::medium;
use crate::mmc::mode;
use crate::mmc::read;
use crate::mmc::report;
use crate::sbc::capacity;
use crate::sbc::rw;
use crate::spc::inquiry;
use crate::spc::misc;
use crate::spc::persistent::rights::Guard;
use wire::scsi::opcode::Opcode;

/// Each usage starts at byte 1 and ends with CONTROL. Of READ TOC/PMA/ATIP the two highest bits of
/// CONTROL are the format, as hosts have sent it since before there was a field for it.
pub(super) const COMMANDS: &[Entry] = &[
    Entry::new(Opcode::TEST_UNIT_READY, &[0, 0, 0, 0, 0], misc::test_unit_ready)
        .with(Flag::Medium)
        .guarded(Guard::Open),
    Entry::new(Opcode::REQUEST_SENSE, &[0x01, 0, 0, 0xff, 0], misc::request_sense)
        .with(Flag::Informative),
    Entry::new(Opcode::INQUIRY, &[0x01, 0xff, 0xff, 0xff, 0], inquiry::inquiry)
        .with(Flag::Informative),
    Entry::new(Opcode::MODE_SENSE_6, &[0x08, 0xff, 0xff, 0xff, 0], mode::mode_sense)
        .guarded(Guard::Open),
    Entry::new(Opcode::START_STOP_UNIT, &[0x01, 0, 0, 0xf3, 0], medium::start_stop)
        .guarded(Guard::Starts),
    Entry::new(Opcode::PREVENT_ALLOW_MEDIUM_REMOVAL, &[0, 0, 0, 0x03, 0], medium::prevent_allow)
        .guarded(Guard::Writes),
    Entry::new(Opcode::READ_CAPACITY_10, &[0, 0, 0, 0, 0, 0, 0, 0, 0], capacity::capacity_10)
        .with(Flag::Medium)
        .guarded(Guard::Open),
    Entry::new(Opcode::READ_10, &[0x18, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0], rw::read)
        .with(Flag::Medium),
    Entry::new(
        Opcode::READ_TOC,
        &[0x02, 0x0f, 0, 0, 0, 0xff, 0xff, 0xff, 0xc0],
        report::table_of_contents,
    )
    .with(Flag::Medium)
    .guarded(Guard::Open),
    Entry::new(
        Opcode::GET_CONFIGURATION,
        &[0x03, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0],
        report::configuration,
    )
    .with(Flag::Informative),
    Entry::new(
        Opcode::GET_EVENT_STATUS_NOTIFICATION,
        &[0x01, 0, 0, 0xff, 0, 0, 0xff, 0xff, 0],
        medium::event_status,
    )
    .with(Flag::Informative),
    Entry::new(
        Opcode::READ_DISC_INFORMATION,
        &[0x07, 0, 0, 0, 0, 0, 0xff, 0xff, 0],
        report::disc_information,
    )
    .with(Flag::Medium)
    .guarded(Guard::Open),
    Entry::new(
        Opcode::READ_TRACK_INFORMATION,
        &[0x03, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0],
        report::track_information,
    )
    .with(Flag::Medium)
    .guarded(Guard::Open),
    Entry::new(
        Opcode::MODE_SENSE_10,
        &[0x08, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0],
        mode::mode_sense,
    )
    .guarded(Guard::Open),
    Entry::new(
        Opcode::REPORT_LUNS,
        &[0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        misc::report_luns_of_unit,
    )
    .with(Flag::Informative),
    Entry::new(
        Opcode::READ_12,
        &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x80, 0],
        rw::read,
    )
    .with(Flag::Medium),
    Entry::new(
        Opcode::READ_DISC_STRUCTURE,
        &[0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xc0, 0],
        report::disc_structure,
    )
    .with(Flag::Medium)
    .guarded(Guard::Open),
    Entry::new(
        Opcode::SET_CD_SPEED,
        &[0x03, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0],
        report::set_speed,
    )
    .guarded(Guard::Open),
    Entry::new(
        Opcode::MECHANISM_STATUS,
        &[0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0],
        medium::mechanism_status,
    )
    .guarded(Guard::Open),
    Entry::new(
        Opcode::READ_CD,
        &[0x1e, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x07, 0],
        read::read_cd,
    )
    .with(Flag::Medium),
];
