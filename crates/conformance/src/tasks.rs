// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks that stay open, and the functions that end them.

pub use wire::scsi::sam::TASK_ABORTED;

use std::time::Duration;

use wire::iscsi::*;

use crate::initiator::Initiator;
use crate::login::LoginPlan;
use crate::server::Server;

/// Function codes (RFC 7143 §11.5.1).
pub const ABORT_TASK: u8 = 1;
/// Of this nexus.
pub const ABORT_TASK_SET: u8 = 2;
/// Of everybody.
pub const CLEAR_TASK_SET: u8 = 4;
/// For everybody.
pub const LOGICAL_UNIT_RESET: u8 = 5;
/// All units.
pub const TARGET_WARM_RESET: u8 = 6;
/// As by power.
pub const TARGET_COLD_RESET: u8 = 7;
/// As if the session had been lost (RFC 7144).
pub const I_T_NEXUS_RESET: u8 = 11;

/// What is awaited of other threads is there long before.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// COMMANDS CLEARED BY ANOTHER INITIATOR.
pub const COMMANDS_CLEARED: (u8, u8, u8) = (0x06, 0x2f, 0x00);

/// A session whose writes need an R2T for each block, on units without attentions.
#[must_use]
pub fn session_with(server: &Server, keys: &[(&str, &str)]) -> Initiator {
    let bursts = [("MaxBurstLength", "512"), ("FirstBurstLength", "512")];
    let mut session = server.login_with(&LoginPlan::new().with(&bursts).with(keys));
    session.settle(0);
    session.settle(1);
    session
}

/// A WRITE of two blocks; the data of the first was asked for and not sent.
pub fn open_write(session: &mut Initiator, lun: u8, block: u32) -> R2t {
    let command = session.write_blocks(lun, block, 2);
    session.start(&command);
    session.read_r2t()
}

/// Sends the block that an R2T asks for.
pub fn answer(session: &mut Initiator, r2t: &R2t) {
    let data = session.data_out(r2t);
    session.send(&Request::DataOut(data), &[1; 512]);
}

/// Sends all that an open WRITE still wants.
pub fn complete(session: &mut Initiator, first: &R2t) {
    answer(session, first);
    let second = session.read_r2t();
    assert_eq!(second.itt, first.itt);
    answer(session, &second);
    assert_eq!(session.finish(first.itt).code, 0);
}

/// Sends the block that an R2T asks for; the command was ended by another session, which its own
/// hears as TAS says by default (SPC-4 §7.5.8).
pub fn expect_aborted(session: &mut Initiator, r2t: &R2t) {
    answer(session, r2t);
    assert_eq!(session.finish(r2t.itt).code, TASK_ABORTED);
}

/// Sends an immediate task management request.
pub fn manage(session: &mut Initiator, function: u8, lun: u8, task: Itt) {
    let request = session.management(function, lun, task);
    session.send(&Request::TaskManagement(request), &[]);
}

/// Acknowledges all that came, without asking for anything.
pub fn acknowledge(session: &mut Initiator) {
    let nop = NopOut { immediate: true, itt: Itt::NONE, ..session.ping() };
    session.cmd_sn = nop.cmd_sn;
    session.send(&Request::NopOut(nop), &[]);
}

/// The answer to task management; a NOP-In that asks for ExpStatSN is answered on the way.
pub fn managed(session: &mut Initiator) -> u8 {
    loop {
        match session.read().response() {
            Response::TaskManagement(answer) => return answer.response,
            Response::NopIn(ping) if ping.itt == Itt::NONE && ping.ttt != Ttt::NONE => {
                let pong =
                    NopOut { ttt: ping.ttt, lun: ping.lun, itt: Itt::NONE, ..session.ping() };
                session.cmd_sn = pong.cmd_sn;
                let pong = NopOut { immediate: true, ..pong };
                session.send(&Request::NopOut(pong), &[]);
            }
            other => panic!("an answer to task management was due: {other:?}"),
        }
    }
}

/// The sense of the next command on `lun`; zeros if it is GOOD.
pub fn attention(session: &mut Initiator, lun: u8) -> (u8, u8, u8) {
    let command = session.test_unit_ready(lun);
    let status = session.run(&command);
    if status.code == 0 { (0, 0, 0) } else { status.sense_code() }
}

/// Panics unless a block was never written.
pub fn expect_untouched(session: &mut Initiator, lun: u8, block: u32) {
    let read = session.read_blocks(lun, block, 1);
    assert_eq!(session.run(&read).data, [0; 512], "the aborted write must not happen");
}

/// The control mode page with its header.
fn control_page(session: &mut Initiator, lun: u8) -> Vec<u8> {
    let command = session.command(lun, &[0x1a, 0x08, 0x0a, 0, 64, 0]);
    let status = session.run(&ScsiCommand { read: true, expected_length: 64, ..command });
    assert_eq!((status.code, status.data[4] & 0x3f), (0, 0x0a));
    status.data
}

/// Protects unit 0 against writing (SWP), which changes its mode parameters.
pub fn protect(session: &mut Initiator) {
    change_control(session, 0, |page| page[4] |= 0x08);
}

/// Unit 0 does not answer commands that another session ends (TAS is 0).
pub fn leave_aborted_unanswered(session: &mut Initiator) {
    change_control(session, 0, |page| page[5] &= !0x40);
}

/// Each nexus has a task set of its own there, or all share one (TST, SPC-4 §7.5.8).
pub fn part_task_sets(session: &mut Initiator, lun: u8, parted: bool) {
    change_control(session, lun, |page| page[2] = page[2] & !0xe0 | u8::from(parted) << 5);
}

fn change_control(session: &mut Initiator, lun: u8, change: impl Fn(&mut [u8])) {
    let mut list = control_page(session, lun);
    list[..4].fill(0);
    change(&mut list[4..]);
    let length = u8::try_from(list.len()).expect("a short page");
    let command = session.command(lun, &[0x15, 0x10, 0, 0, length, 0]);
    let command = ScsiCommand { write: true, expected_length: length.into(), ..command };
    session.send(&Request::Command(command), &list);
    assert_eq!(session.finish(command.itt).code, 0, "MODE SELECT");
}

/// Whether unit 0 is protected.
pub fn is_protected(session: &mut Initiator) -> bool {
    control_page(session, 0)[8] & 0x08 != 0
}
