// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random legal and illegal events: the driver's watch and the session's own check find what breaks
//! a rule.

use super::driver::*;
use core::time::Duration;
use iscsi::datamover::{Capabilities, DataError, Event, Immediate, StreamViolation, TaskId};
use iscsi::service::{Indication, ServiceResponse};
use iscsi::target_role::{Output, Room, TargetRecord, TargetReset, TaskReporting};
use proptest::prelude::*;
use wire::iscsi::{
    Cid, CmdSn, Itt, LogoutRequest, LunField, NopOut, Request, ScsiCommand, Snack, StatSn,
    TextRequest, Ttt,
};

#[derive(Clone, Debug)]
enum Step {
    Command { flags: u8, length: u32, immediate: u32, skew: i8, tag: u8 },
    Done { task: usize, fails: bool },
    Complete { task: usize, bytes: usize, status: u8 },
    Receive { task: usize, length: u32 },
    Abort { task: usize },
    Manage { function: u8, tag: u8, skew: i8, immediate: bool },
    Managed { which: usize, response: u8 },
    Terminate { task: usize, which: Option<usize> },
    Nop { tags: u8, immediate: bool, skew: i8 },
    Text { flags: u8, ttt: u32, data: Vec<u8> },
    Targets { count: usize },
    Logout { reason: u8 },
    Acknowledge { skew: i8 },
    Rejected { reason: u8 },
    Released { task: usize },
    Wait { millis: u64 },
    End { how: u8 },
    On { which: usize },
    Join { cid: u16 },
    Lose { which: usize },
    LogoutOf { reason: u8, cid: u16 },
    Snack { kind: u8, tag: u8, number: u32, run_length: u32 },
    Quiesced,
    Room { is_some: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let skew = prop_oneof![10 => Just(0_i8), 2 => -2_i8..6];
    let text = prop_oneof![
        Just(b"SendTargets=All\0".to_vec()),
        Just(b"SendTargets=\0".to_vec()),
        Just(b"MaxRecvDataSegmentLength=512\0".to_vec()),
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    let length = prop_oneof![Just(0_u32), 1_u32..3000, 60_000_u32..70_000];
    prop_oneof![
        12 => (any::<u8>(), length.clone(), 0_u32..1500, skew.clone(), 0_u8..12).prop_map(
            |(flags, length, immediate, skew, tag)| Step::Command {
                flags, length, immediate, skew, tag
            }
        ),
        10 => (0_usize..32, prop::bool::weighted(0.1))
            .prop_map(|(task, fails)| Step::Done { task, fails }),
        6 => (0_usize..32, 0_usize..3000, 0_u8..12)
            .prop_map(|(task, bytes, status)| Step::Complete { task, bytes, status }),
        3 => (0_usize..32, length).prop_map(|(task, length)| Step::Receive { task, length }),
        1 => (0_usize..32).prop_map(|task| Step::Abort { task }),
        2 => (0_u8..14, 0_u8..12, skew.clone(), any::<bool>()).prop_map(
            |(function, tag, skew, immediate)| Step::Manage { function, tag, skew, immediate }
        ),
        3 => (0_usize..4, 0_u8..5).prop_map(|(which, response)| Step::Managed { which, response }),
        1 => (0_usize..32, prop::option::of(0_usize..4))
            .prop_map(|(task, which)| Step::Terminate { task, which }),
        2 => (0_u8..4, any::<bool>(), skew.clone())
            .prop_map(|(tags, immediate, skew)| Step::Nop { tags, immediate, skew }),
        2 => (any::<u8>(), 0_u32..4, text)
            .prop_map(|(flags, ttt, data)| Step::Text { flags, ttt, data }),
        1 => (0_usize..30).prop_map(|count| Step::Targets { count }),
        1 => (1_u8..6).prop_map(|reason| Step::Logout { reason }),
        2 => prop_oneof![9 => Just(0_i8), 1 => -3_i8..1]
            .prop_map(|skew| Step::Acknowledge { skew }),
        1 => any::<u8>().prop_map(|reason| Step::Rejected { reason }),
        1 => prop::bool::weighted(0.8).prop_map(|is_some| Step::Room { is_some }),
        4 => (0_usize..32).prop_map(|task| Step::Released { task }),
        1 => (0_u64..4000).prop_map(|millis| Step::Wait { millis }),
        3 => (0_u8..5, 0_u8..14, 0_u32..6, 0_u32..4).prop_map(
            |(kind, tag, number, run_length)| Step::Snack { kind, tag, number, run_length }
        ),
    ]
}

/// What happens with several connections, besides.
fn step_of_several() -> impl Strategy<Value = Step> {
    prop_oneof![
        14 => step(),
        4 => (0_usize..4).prop_map(|which| Step::On { which }),
        2 => (CID..CID + 4).prop_map(|cid| Step::Join { cid }),
        1 => (0_usize..4).prop_map(|which| Step::Lose { which }),
        1 => (1_u8..3, CID..CID + 4).prop_map(|(reason, cid)| Step::LogoutOf { reason, cid }),
        1 => Just(Step::Quiesced),
    ]
}

fn end() -> impl Strategy<Value = Step> {
    (0_u8..6).prop_map(|how| Step::End { how })
}

/// What the test itself must remember.
#[derive(Default)]
struct World {
    released: Vec<TaskId>,
    functions: Vec<u32>,
    quiesces: Vec<u32>,
}

impl World {
    fn see(&mut self, outputs: &[Output]) {
        for output in outputs {
            match output {
                Output::Op(_, iscsi::datamover::Op::Release { task }) => self.released.push(*task),
                Output::Indication(Indication::Management(asked)) => self.functions.push(asked.id),
                Output::Indication(Indication::Quiesce { id }) => self.quiesces.push(*id),
                _ => {}
            }
        }
    }
}

fn lun(number: u8) -> LunField {
    LunField([0, number % 2, 0, 0, 0, 0, 0, 0])
}

fn skewed(driver: &mut Driver, skew: i8) -> CmdSn {
    if skew == 0 {
        return driver.take_cmd_sn();
    }
    CmdSn(driver.cmd_sn.wrapping_add_signed(i32::from(skew)))
}

fn play(driver: &mut Driver, world: &mut World, step: Step) {
    let task_at = |driver: &Driver, n: usize| {
        let count = driver.commands.len().max(1);
        driver.commands.get(n % count).map(|command| command.task)
    };
    let outputs = match step {
        Step::Command { flags, length, immediate, skew, tag } => {
            let bit = |n: u8| flags >> n & 1 == 1;
            let command = ScsiCommand {
                immediate: flags & 0xe0 == 0xe0,
                final_: bit(0) || bit(1),
                read: bit(2),
                write: !bit(2) || flags & 0x18 == 0x18,
                lun: lun(tag),
                itt: Itt(u32::from(tag)),
                expected_length: length,
                cmd_sn: skewed(driver, skew),
                ..driver.command()
            };
            driver.cmd_sn = driver.cmd_sn.wrapping_sub(1);
            let staged = match flags & 0x30 {
                0x10 => driver.staged(immediate.max(1), immediate.max(length).max(1)),
                0x20 => Immediate::Exhausted { length: immediate.max(1) },
                _ => Immediate::None,
            };
            driver.send_with(command, staged)
        }
        Step::Done { task, fails } => {
            let open = driver.tasks_with_bursts();
            let Some(task) = open.get(task % open.len().max(1)).copied() else { return };
            let Some((offset, length)) = driver.open_burst(task) else { return };
            if fails {
                let errors = [DataError::Amount, DataError::Digest, DataError::Overdue];
                driver.failed(task, errors[length as usize % errors.len()])
            } else {
                driver.done(task, offset, length)
            }
        }
        Step::Complete { task, bytes, status } => {
            let Some(task) = task_at(driver, task) else { return };
            let status = [0, 2, 4, 8, 0x28].get(usize::from(status)).copied().unwrap_or(0);
            let fence = bytes % 5 == 0;
            driver.complete(task, iscsi::service::Completion { status, fence, ..data(bytes) })
        }
        Step::Receive { task, length } => {
            let Some(task) = task_at(driver, task) else { return };
            driver.receive(task, length)
        }
        Step::Abort { task } => {
            let Some(task) = task_at(driver, task) else { return };
            driver.abort(task)
        }
        Step::Manage { function, tag, skew, immediate } => {
            let mut request = driver.management(function);
            request.lun = lun(tag);
            request.referenced_task = Itt(u32::from(tag));
            request.ref_cmd_sn = CmdSn(driver.cmd_sn.wrapping_add_signed(i32::from(skew) - 2));
            request.immediate = immediate;
            if !immediate {
                request.cmd_sn = skewed(driver, skew);
            }
            driver.manage(request)
        }
        Step::Managed { which, response } => {
            let Some(id) = world.functions.get(which).copied() else { return };
            let response = match response {
                0 => ServiceResponse::LunDoesNotExist,
                1 => ServiceResponse::Rejected,
                2 => ServiceResponse::Succeeded { additional: 1 },
                _ => ServiceResponse::Complete,
            };
            driver.session.task_management_done(id, response);
            world.functions.remove(which);
            driver.drain()
        }
        Step::Terminate { task, which } => {
            let answered = task % 3 == 0;
            let Some(task) = task_at(driver, task) else { return };
            if answered {
                driver.session.terminate_with(&[task], 0x40);
            }
            let issuer = which.and_then(|which| world.functions.get(which)).copied();
            driver.session.terminate(&[task], issuer);
            driver.drain()
        }
        Step::Nop { tags, immediate, skew } => {
            let itt = if tags & 1 == 0 { driver.next_itt() } else { Itt::NONE };
            let ttt = if tags & 2 == 0 { Ttt::NONE } else { Ttt(1) };
            let cmd_sn = if immediate { CmdSn(driver.cmd_sn) } else { skewed(driver, skew) };
            let nop = NopOut { immediate, cmd_sn, ..driver.nop(itt, ttt) };
            driver.request(Request::NopOut(nop), &[7; 100])
        }
        Step::Text { flags, ttt, data } => {
            let text = TextRequest {
                final_: flags & 1 == 0,
                continue_: flags & 6 == 6,
                immediate: flags & 24 == 24,
                itt: Itt(0x500),
                ttt: if ttt == 0 { Ttt::NONE } else { Ttt(ttt) },
                ..driver.text()
            };
            driver.ask(text, &data)
        }
        Step::Targets { count } => {
            let record = |n| TargetRecord { name: format!("disk{n}"), addresses: Vec::new() };
            driver.targets((0..count).map(record).collect())
        }
        Step::Logout { reason } => {
            let request = driver.logout(if reason < 4 { reason + 1 } else { reason });
            driver.log_out(request)
        }
        Step::Acknowledge { skew } => {
            let nop = driver.nop(Itt::NONE, Ttt::NONE);
            let exp_stat_sn = StatSn(nop.exp_stat_sn.0.wrapping_add_signed(i32::from(skew)));
            driver.request(Request::NopOut(NopOut { exp_stat_sn, ..nop }), &[])
        }
        Step::Rejected { reason: 0 } => driver.event(Event::DigestError, &[]),
        Step::Rejected { reason } => driver.event(Event::Rejected { reason }, &[]),
        Step::Released { task } => {
            let count = world.released.len();
            if count == 0 {
                return;
            }
            let task = world.released.remove(task % count);
            driver.released(task)
        }
        Step::Wait { millis } => driver.wait(Duration::from_millis(millis)),
        Step::On { which } => {
            let open = driver.open();
            let Some(id) = open.get(which % open.len().max(1)).copied() else { return };
            driver.on(id);
            return;
        }
        Step::Join { cid } => {
            if driver.session.admits(Cid(cid), Capabilities::STREAM).is_err() {
                return;
            }
            driver.session.replace_connection(Cid(cid), driver.now);
            world.see(&driver.drain());
            driver.join(cid, 0xffff_fff8).1
        }
        Step::Lose { which } => {
            let open = driver.open();
            let Some(id) = open.get(which % open.len().max(1)).copied() else { return };
            driver.lose(id)
        }
        Step::LogoutOf { reason, cid } => {
            let request = LogoutRequest { cid: Cid(cid), ..driver.logout(reason) };
            driver.log_out(request)
        }
        Step::Snack { kind, tag, number, run_length } => {
            let (itt, beg_run) = match kind {
                1 => (Itt::NONE, driver.exp_stat_sn.wrapping_sub(number)),
                2 => (Itt::NONE, number),
                _ => (Itt(u32::from(tag)), number),
            };
            let snack = Snack {
                kind,
                lun: lun(tag),
                itt,
                tag: if kind < 2 { u32::MAX } else { u32::from(tag) },
                exp_stat_sn: StatSn(driver.exp_stat_sn.wrapping_sub(number)),
                beg_run,
                run_length,
            };
            driver.request(Request::Snack(snack), &[])
        }
        Step::Room { is_some } => {
            driver.room = if is_some { Room::Attached } else { Room::None };
            return;
        }
        Step::Quiesced => {
            let Some(id) = world.quiesces.pop() else { return };
            driver.session.quiesced(id);
            driver.drain()
        }
        Step::End { how } => {
            match how {
                0 => driver.session.handle_disconnect(OWN, driver.now),
                1 => driver.session.drop_session(),
                2 => {
                    let request = driver.logout(0);
                    let outputs = driver.log_out(request);
                    if let Some(id) = outputs.iter().find_map(quiesce_id) {
                        driver.session.quiesced(id);
                    }
                }
                3 => {
                    let violation = StreamViolation::HeaderDigest;
                    driver.event(Event::Violation(violation), &[]);
                }
                4 => {
                    driver.session.request_logout(1);
                    driver.drain();
                    driver.wait(Duration::from_secs(2));
                }
                _ => driver.session.drop_session(),
            }
            // Whoever waits for the end of some work hears of it.
            for id in core::mem::take(&mut world.quiesces) {
                driver.session.quiesced(id);
            }
            driver.drain()
        }
    };
    world.see(&outputs);
}

fn setup(kind: u8) -> Setup {
    let base = if kind & 0x60 == 0x60 { Setup::discovery() } else { Setup::new() };
    let mut setup = base.depth(1 + u16::from(kind & 7)).keys(|keys| {
        keys.initial_r2t = kind & 8 != 0;
        keys.immediate_data = kind & 16 == 0;
        keys.max_outstanding_r2t = 1 + u16::from(kind & 3);
        keys.max_burst_length = 1024;
        keys.first_burst_length = 1024;
        keys.max_send_data_segment_length = 512;
        keys.task_reporting = match kind % 3 {
            0 => TaskReporting::Rfc3720,
            1 => TaskReporting::ResponseFence,
            _ => TaskReporting::FastAbort,
        };
        keys.protocol_level = 1 + kind % 2;
    });
    setup.cmd_sn = 0xffff_fffa;
    setup.stat_sn = 0xffff_fff0;
    setup.settings.ping_interval = Duration::from_secs(2);
    setup.settings.target_reset = TargetReset::Cold;
    setup
}

/// Discovery sessions, and sessions that are not told of it, are at level 0.
fn at_level(setup: Setup, level: u8) -> Setup {
    let level = if setup.discovery { 0 } else { level };
    setup.keys(|keys| {
        keys.error_recovery_level = level;
        if level > 0 {
            keys.max_outstanding_r2t = 1;
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever happens, the rules hold, and afterwards the session ends and nothing is left.
    #[test]
    fn no_sequence_of_events_breaks_a_rule(
        kind in any::<u8>(),
        level in 0_u8..3,
        silent in any::<bool>(),
        steps in prop::collection::vec(step(), 0..120),
        end in end(),
    ) {
        let mut driver = at_level(setup(kind), level).start();
        driver.silent = silent && level > 0;
        driver.releases = kind & 0x80 == 0;
        driver.answer = Box::new(|command| match command.task.index % 3 {
            0 => Answer::Later,
            1 if command.expected_out > 0 => Answer::Receive(command.expected_out / 2 + 700),
            1 => Answer::Complete(data(600)),
            _ => Answer::Complete(good()),
        });
        let mut world = World::default();
        for step in steps {
            play(&mut driver, &mut world, step);
        }
        play(&mut driver, &mut world, end);
        prop_assert!(driver.closed.is_some());
        prop_assert!(driver.session.tasks(None).is_empty());
    }

    /// The same with connections that come and go.
    #[test]
    fn no_sequence_of_events_over_several_connections_breaks_a_rule(
        kind in 0_u8..0x60,
        level in 0_u8..3,
        steps in prop::collection::vec(step_of_several(), 0..160),
        dropped in any::<bool>(),
    ) {
        let setup = at_level(setup(kind), level).keys(|keys| {
            keys.max_connections = 3;
            keys.time2retain = 3 * u16::from(kind & 1);
        });
        let mut driver = setup.start();
        driver.releases = kind & 2 == 0;
        driver.answer = Box::new(|command| match command.task.index % 3 {
            0 => Answer::Later,
            1 if command.expected_out > 0 => Answer::Receive(command.expected_out / 2 + 700),
            _ => Answer::Complete(data(600)),
        });
        let mut world = World::default();
        for step in steps {
            play(&mut driver, &mut world, step);
        }
        if dropped {
            driver.session.drop_session();
            driver.drain();
        } else {
            for id in driver.open() {
                driver.lose(id);
            }
            driver.wait(Duration::from_secs(10));
        }
        prop_assert!(driver.closed.is_some());
        prop_assert!(driver.session.tasks(None).is_empty());
    }
}
