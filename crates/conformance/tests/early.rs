// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands whose data comes before their turn: behind a hole in CmdSN, behind other tasks, over
//! several connections of which one is cut (RFC 7143 §4.2.2.1, §4.2.5.2, §7.2.2).

use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::*;
use std::time::Duration;
use wire::iscsi::*;

const SHORT: Duration = Duration::from_millis(100);

/// Bytes of a WRITE here, all of which may come unasked.
const LENGTH: usize = 8192;
const BLOCKS: u16 = 16;

/// A session that may have four connections and send data unasked, and the plan to join it.
fn leading(server: &Server, keys: &[(&str, &str)]) -> (Initiator, LoginPlan) {
    let mut plan = LoginPlan::new()
        .with(&[("MaxConnections", "4"), ("InitialR2T", "No"), ("DefaultTime2Retain", "20")])
        .with(keys);
    let mut first = server.login_with(&plan);
    assert_eq!(first.answer("InitialR2T"), Some("No"));
    first.settle(0);
    plan.tsih = first.tsih;
    plan.keys.clear();
    (first, plan)
}

fn join(server: &Server, plan: &LoginPlan, cid: u16, first: &Initiator) -> Initiator {
    let plan = LoginPlan { cid: Cid(cid), cmd_sn: first.cmd_sn, ..plan.clone() };
    server.login_with(&plan)
}

/// A WRITE that announces unsolicited data and sends the first `immediate` bytes with it.
fn announce(session: &mut Initiator, block: u32, data: &[u8], immediate: usize) -> ScsiCommand {
    let command = ScsiCommand { final_: false, ..session.write_blocks(0, block, BLOCKS) };
    session.send(&Request::Command(command), &data[..immediate]);
    command
}

/// The unsolicited data of a WRITE from the offset `from` on, in two PDUs.
fn give(session: &mut Initiator, command: &ScsiCommand, data: &[u8], from: usize) {
    let half = from + (data.len() - from) / 8 * 4;
    for (number, (from, to)) in (0..).zip([(from, half), (half, data.len())]) {
        let part = DataOut {
            final_: to == data.len(),
            lun: command.lun,
            itt: command.itt,
            ttt: Ttt::NONE,
            exp_stat_sn: session.exp_stat_sn,
            data_sn: DataSn(number),
            offset: u32::try_from(from).expect("short"),
        };
        session.send(&Request::DataOut(part), &data[from..to]);
    }
}

fn read(session: &mut Initiator, block: u32) -> Vec<u8> {
    let command = session.read_blocks(0, block, BLOCKS);
    session.run(&command).data
}

/// The data of a command that waits for those before it is not lost.
///
/// Covers: CMD-05.
#[test]
fn unsolicited_data_of_a_command_behind_a_hole_is_kept() {
    on_each_engine(
        |_| {},
        |server| {
            let (mut first, plan) = leading(server, &[]);
            let mut second = join(server, &plan, 2, &first);
            for (block, immediate, whole) in
                [(0, 0, true), (16, 512, true), (32, 0, false), (48, 512, false)]
            {
                let data = pattern(LENGTH, u8::try_from(block).expect("small"));
                let before = first.test_unit_ready(0);
                second.cmd_sn = first.cmd_sn;
                let write = announce(&mut second, block, &data, immediate);
                // The rest comes before the command's turn, or after it has come.
                if whole {
                    give(&mut second, &write, &data, immediate);
                }
                assert_eq!(second.hear(SHORT), Heard::Nothing);
                assert_eq!(first.run(&before).code, GOOD);
                if !whole {
                    give(&mut second, &write, &data, immediate);
                }
                assert_eq!(second.finish(write.itt).code, GOOD, "block {block}");
                first.cmd_sn = second.cmd_sn;
                assert!(read(&mut first, block) == data);
            }
        },
    );
}

/// The command has its turn in the middle of a data segment, which the kernel puts in place.
///
/// Covers: CMD-05.
#[test]
fn data_that_is_arriving_when_its_command_has_its_turn_is_kept() {
    const LONG: usize = 65_536;
    on_each_engine(
        |_| {},
        |server| {
            let (mut first, plan) = leading(server, &[]);
            let mut second = join(server, &plan, 2, &first);
            for (seed, there) in [(1, 500), (2, 5000), (3, 30_001)] {
                let data = pattern(LONG, seed);
                let before = first.test_unit_ready(0);
                second.cmd_sn = first.cmd_sn;
                let command = second.write_blocks(0, 0, 128);
                let write = ScsiCommand { final_: false, ..command };
                second.send(&Request::Command(write), &[]);
                let all = DataOut {
                    final_: true,
                    lun: write.lun,
                    itt: write.itt,
                    ttt: Ttt::NONE,
                    exp_stat_sn: second.exp_stat_sn,
                    data_sn: DataSn(0),
                    offset: 0,
                };
                let header = raw::header(&Request::DataOut(all), LONG);
                let bytes = second.raw.assemble(&header, &data);
                second.raw.write(&bytes[..there]);
                assert_eq!(second.hear(SHORT), Heard::Nothing);
                assert_eq!(first.run(&before).code, GOOD);
                second.raw.write(&bytes[there..]);
                assert_eq!(second.finish(write.itt).code, GOOD, "{there} bytes were there");
                first.cmd_sn = second.cmd_sn;
                let command = first.read_blocks(0, 0, 128);
                assert!(first.run(&command).data == data, "{there} bytes were there");
            }
        },
    );
}

/// A connection is cut, so that there are holes in CmdSN; the others are far ahead. What was lost
/// comes over another one, and every command of the window ends well.
///
/// Covers: MCS-06.
#[test]
fn a_cut_connection_does_not_cost_the_others_their_data() {
    on_each_engine(
        |settings| settings.queue_depth = 24,
        |server| {
            let (mut first, plan) = leading(server, &[("ErrorRecoveryLevel", "2")]);
            let mut others = [join(server, &plan, 2, &first), join(server, &plan, 3, &first)];
            let mut cut = join(server, &plan, 4, &first);
            let data = pattern(LENGTH, 7);
            // Data of these was asked for or announced, and never comes over this connection.
            cut.cmd_sn = first.cmd_sn;
            let begun: Vec<_> = (0..8).map(|at| announce(&mut cut, at * 16, &data, 0)).collect();
            cut.expect_quiet();
            let missing: Vec<_> = (8..10).map(|at| (at, cut.take_cmd_sn())).collect();
            first.cmd_sn = cut.cmd_sn;
            let mut sent = Vec::new();
            for at in 10..24 {
                let session = &mut others[at as usize % 2];
                session.cmd_sn = first.cmd_sn;
                let write = announce(session, at * 16, &data, 0);
                give(session, &write, &data, 0);
                first.cmd_sn = session.cmd_sn;
                sent.push((at as usize % 2, write));
            }
            cut.raw.finish();
            for session in &mut others {
                assert!(matches!(session.hear(SHORT), Heard::Pdu(_) | Heard::Nothing));
            }
            for (at, cmd_sn) in missing {
                let write = first.write_blocks(0, at * 16, BLOCKS);
                first.cmd_sn = write.cmd_sn;
                let write = ScsiCommand { cmd_sn, final_: false, ..write };
                first.send(&Request::Command(write), &[]);
                give(&mut first, &write, &data, 0);
                status(&mut first, write.itt);
            }
            for (which, write) in sent {
                status(&mut others[which], write.itt);
            }
            cut.cmd_sn = first.cmd_sn;
            let plan = LoginPlan { cid: Cid(4), exp_stat_sn: cut.exp_stat_sn, ..plan };
            let mut again = Initiator::rejoin(&cut, server.connect(), &plan);
            for write in begun {
                let request = again.management(8, 0, write.itt);
                again.send(&Request::TaskManagement(request), &[]);
                assert_eq!(again.read_management(), 0);
                let r2t = again.read_r2t();
                let out = again.data_out(&r2t);
                again.send(&Request::DataOut(out), &data);
                assert_eq!(again.finish(write.itt).code, GOOD);
            }
            for at in 0..24 {
                assert!(read(&mut first, at * 16) == data, "write {at}");
            }
        },
    );
}

/// Waits for a status, which must be good, and hears of the lost connection meanwhile.
fn status(session: &mut Initiator, itt: Itt) {
    loop {
        match session.read().response() {
            Response::Async(message) => assert_eq!(message.event, 2),
            Response::Scsi(answer) => {
                assert_eq!((answer.itt, answer.status), (itt, GOOD));
                return;
            }
            other => panic!("a status was due: {other:?}"),
        }
    }
}

#[test]
fn unsolicited_data_of_a_command_that_waits_for_other_tasks_is_kept() {
    on_each_engine(
        |_| {},
        |server| {
            let (mut session, _) = leading(server, &[]);
            for immediate in [0, 512] {
                let (one, two) = (pattern(LENGTH, 1), pattern(LENGTH, 2));
                let open = announce(&mut session, 0, &one, immediate);
                let ordered = session.write_blocks(0, 0, BLOCKS);
                let ordered =
                    ScsiCommand { attribute: Attribute::Ordered, final_: false, ..ordered };
                session.send(&Request::Command(ordered), &two[..immediate]);
                give(&mut session, &ordered, &two, immediate);
                session.expect_quiet();
                give(&mut session, &open, &one, immediate);
                assert_eq!(session.finish(open.itt).code, GOOD);
                assert_eq!(session.finish(ordered.itt).code, GOOD);
                assert!(read(&mut session, 0) == two);
            }
        },
    );
}

/// Read data that is kept to be sent again makes room for write data that comes unasked.
#[test]
fn kept_read_data_makes_room_for_immediate_data() {
    on_each_plan(
        |_| {},
        |plan| plan.pool_bytes_max = 8 << 20,
        |server| {
            let (mut session, _) = leading(server, &[("ErrorRecoveryLevel", "1")]);
            session.expect_quiet();
            let acknowledged = session.exp_stat_sn;
            let mut full = false;
            for _ in 0..64 {
                let read = session.read_blocks(0, 0, 1024);
                session.start(&ScsiCommand { exp_stat_sn: acknowledged, ..read });
                full |= session.finish(read.itt).code != GOOD;
            }
            assert!(!full, "reads make room themselves");
            for blocks in [1, 64] {
                let write = session.write_blocks(0, 0, blocks);
                let write = ScsiCommand { exp_stat_sn: acknowledged, ..write };
                let data = pattern(usize::from(blocks) * 512, 3);
                session.send(&Request::Command(write), &data[..data.len().min(8192)]);
                let r2t = (data.len() > 8192).then(|| session.read_r2t());
                if let Some(r2t) = r2t {
                    let out = session.data_out(&r2t);
                    session.send(&Request::DataOut(out), &data[8192..]);
                }
                assert_eq!(session.finish(write.itt).code, GOOD, "{blocks} blocks");
            }
        },
    );
}
