// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Third-party copies (SPC-4 §5.16).

use super::Entry;
use super::Flag;
use super::Handler;
use crate::copy::extended;
use crate::copy::results;
use crate::copy::using;
use crate::spc::persistent::rights::Guard;
use wire::scsi::copy as actions;
use wire::scsi::opcode::Opcode;

/// Each usage starts at byte 1 and ends with CONTROL. Sorted by operation code.
pub(super) const COMMANDS: &[Entry] = &[
    out(actions::EXTENDED_COPY_LID1, [0; 8], extended::extended_copy),
    out(actions::EXTENDED_COPY_LID4, [0; 8], extended::extended_copy),
    out(actions::POPULATE_TOKEN, [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], using::populate_token)
        .with(Flag::Medium)
        .guarded(Guard::Reads),
    out(actions::WRITE_USING_TOKEN, [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], using::write_using_token)
        .with(Flag::Medium)
        .with(Flag::Writes),
    Entry::new(
        Opcode::THIRD_PARTY_COPY_OUT,
        &[0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        extended::abort,
    )
    .service(actions::COPY_OPERATION_ABORT)
    .guarded(Guard::Writes),
    results(actions::COPY_STATUS_LID1, [0xff, 0, 0, 0], results::lid1),
    results(actions::COPY_DATA_LID1, [0xff, 0, 0, 0], results::lid1),
    results(actions::OPERATING_PARAMETERS, [0xff, 0, 0, 0], results::operating_parameters),
    results(actions::COPY_STATUS_LID4, [0xff; 4], results::lid4),
    results(actions::COPY_DATA_LID4, [0xff; 4], results::lid4),
    results(actions::ROD_TOKEN_INFORMATION, [0xff; 4], results::token_information),
];

/// `usage`: of bytes 2 to 9; bytes 10 to 13 are the length of the list.
const fn out(action: u16, usage: [u8; 8], handler: Handler) -> Entry {
    let [a, b, c, d, e, f, g, h] = usage;
    let usage = [0, a, b, c, d, e, f, g, h, 0xff, 0xff, 0xff, 0xff, 0, 0];
    Entry::new(Opcode::THIRD_PARTY_COPY_OUT, &usage, handler).service(action).guarded(Guard::Writes)
}

/// `usage`: of the list identifier in bytes 2 to 5.
const fn results(action: u16, usage: [u8; 4], handler: Handler) -> Entry {
    let [a, b, c, d] = usage;
    let usage = [0, a, b, c, d, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
    Entry::new(Opcode::THIRD_PARTY_COPY_IN, &usage, handler).service(action).guarded(Guard::Writes)
}
