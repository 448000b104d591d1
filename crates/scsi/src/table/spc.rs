// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Primary commands of any device (SPC-4 §6).

use super::Entry;
use super::Flag;
use crate::spc::alua;
use crate::spc::buffer;
use crate::spc::diagnostic;
use crate::spc::identification;
use crate::spc::inquiry;
use crate::spc::log;
use crate::spc::misc;
use crate::spc::mode;
use crate::spc::mode_select;
use crate::spc::persistent;
use crate::spc::persistent::rights::Guard;
use crate::spc::rsoc;
use crate::spc::timestamp;
use wire::scsi::opcode;
use wire::scsi::opcode::Opcode;
use wire::scsi::persistent as actions;

/// Each usage starts at byte 1 and ends with CONTROL. Sorted by operation code.
pub(super) const COMMANDS: &[Entry] = &[
    Entry::new(Opcode::TEST_UNIT_READY, &[0, 0, 0, 0, 0], misc::test_unit_ready)
        .with(Flag::Medium)
        .guarded(Guard::Open),
    Entry::new(Opcode::REQUEST_SENSE, &[0x01, 0, 0, 0xff, 0], misc::request_sense)
        .with(Flag::Informative),
    Entry::new(Opcode::INQUIRY, &[0x01, 0xff, 0xff, 0xff, 0], inquiry::inquiry)
        .with(Flag::Informative),
    Entry::new(Opcode::MODE_SELECT_6, &[0x11, 0, 0, 0xff, 0], mode_select::select)
        .guarded(Guard::Writes),
    Entry::new(Opcode::RESERVE_6, &[0, 0, 0, 0, 0], persistent::reserve).guarded(Guard::Decides),
    Entry::new(Opcode::RELEASE_6, &[0, 0, 0, 0, 0], persistent::release).guarded(Guard::Always),
    Entry::new(Opcode::MODE_SENSE_6, &[0x08, 0xff, 0xff, 0xff, 0], mode::mode_sense)
        .guarded(Guard::Reads),
    Entry::new(
        Opcode::RECEIVE_DIAGNOSTIC_RESULTS,
        &[0x01, 0xff, 0xff, 0xff, 0],
        diagnostic::receive,
    )
    .guarded(Guard::Reads),
    Entry::new(Opcode::SEND_DIAGNOSTIC, &[0xf4, 0, 0xff, 0xff, 0], diagnostic::send)
        .guarded(Guard::Writes),
    Entry::new(
        Opcode::WRITE_BUFFER,
        &[0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0],
        buffer::write,
    )
    .guarded(Guard::Writes),
    Entry::new(
        Opcode::READ_BUFFER_10,
        &[0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0],
        buffer::read,
    )
    .guarded(Guard::Reads),
    Entry::new(Opcode::LOG_SELECT, &[0x02, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0], log::log_select)
        .guarded(Guard::Writes),
    Entry::new(Opcode::LOG_SENSE, &[0, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0], log::log_sense)
        .guarded(Guard::Open),
    Entry::new(Opcode::MODE_SELECT_10, &[0x11, 0, 0, 0, 0, 0, 0xff, 0xff, 0], mode_select::select)
        .guarded(Guard::Writes),
    Entry::new(Opcode::RESERVE_10, &[0; 9], persistent::reserve).guarded(Guard::Decides),
    Entry::new(Opcode::RELEASE_10, &[0; 9], persistent::release).guarded(Guard::Always),
    Entry::new(
        Opcode::MODE_SENSE_10,
        &[0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0],
        mode::mode_sense,
    )
    .guarded(Guard::Reads),
    Entry::reserve_in(actions::READ_KEYS),
    Entry::reserve_in(actions::READ_RESERVATION),
    Entry::reserve_in(actions::REPORT_CAPABILITIES),
    Entry::reserve_in(actions::READ_FULL_STATUS),
    Entry::reserve_out(actions::REGISTER),
    Entry::reserve_out(actions::RESERVE),
    Entry::reserve_out(actions::RELEASE),
    Entry::reserve_out(actions::CLEAR),
    Entry::reserve_out(actions::PREEMPT),
    Entry::reserve_out(actions::PREEMPT_AND_ABORT),
    Entry::reserve_out(actions::REGISTER_AND_IGNORE_EXISTING_KEY),
    Entry::reserve_out(actions::REGISTER_AND_MOVE),
    Entry::new(
        Opcode::REPORT_LUNS,
        &[0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        misc::report_luns_of_unit,
    )
    .with(Flag::Informative),
    Entry::new(
        Opcode::MAINTENANCE_IN,
        &[0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xfe, 0],
        identification::report,
    )
    .service(opcode::REPORT_IDENTIFYING_INFORMATION)
    .with(Flag::Kept)
    .guarded(Guard::Open),
    Entry::new(
        Opcode::MAINTENANCE_IN,
        &[0xe0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        alua::report_groups,
    )
    .service(opcode::REPORT_TARGET_PORT_GROUPS)
    .guarded(Guard::Open),
    Entry::new(
        Opcode::MAINTENANCE_IN,
        &[0, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
        rsoc::report,
    )
    .service(opcode::REPORT_SUPPORTED_OPERATION_CODES)
    .guarded(Guard::Reads),
    Entry::new(
        Opcode::MAINTENANCE_IN,
        &[0, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        rsoc::report_task_management,
    )
    .service(opcode::REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS)
    .guarded(Guard::Reads),
    Entry::new(
        Opcode::MAINTENANCE_IN,
        &[0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        timestamp::report,
    )
    .service(opcode::REPORT_TIMESTAMP)
    .guarded(Guard::Open),
    Entry::new(
        Opcode::MAINTENANCE_OUT,
        &[0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xfe, 0],
        identification::set,
    )
    .service(opcode::SET_IDENTIFYING_INFORMATION)
    .with(Flag::Kept)
    .guarded(Guard::Writes),
    Entry::new(
        Opcode::MAINTENANCE_OUT,
        &[0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        alua::set_groups,
    )
    .service(opcode::SET_TARGET_PORT_GROUPS)
    .with(Flag::Explicit)
    .guarded(Guard::Writes),
    Entry::new(
        Opcode::MAINTENANCE_OUT,
        &[0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        timestamp::set,
    )
    .service(opcode::SET_TIMESTAMP)
    .guarded(Guard::Writes),
];
