// SPDX-License-Identifier: Apache-2.0 OR MIT

mod hostile;
mod random;

use alloc::vec;
use alloc::vec::Vec;

use buf::Pool;
use buf::Slice;
use iscsi::datamover as target;
use iscsi::datamover::DataError;
use iscsi::datamover::Immediate;
use iscsi::datamover::StreamViolation;
use iscsi::datamover::TaskId;
use iscsi::initiator::datamover as initiator;
use iscsi::initiator::datamover::Ended;
use iscsi::initiator::datamover::itt;
use wire::iscsi::*;

use super::*;

pub(super) const TASK: TaskId = TaskId { index: 3, generation: 2 };
pub(super) const UNIT: LunField = LunField([0, 1, 0, 0, 0, 0, 0, 0]);
pub(super) const GOOD: CollapsedStatus = CollapsedStatus { status: 0, residual: Residual::None };

pub(super) fn numbers(max: u32) -> Numbers {
    Numbers { stat_sn: StatSn(5), exp_cmd_sn: CmdSn(2), max_cmd_sn: CmdSn(max) }
}

pub(super) fn command(task: TaskId, read: bool, length: u32) -> ScsiCommand {
    ScsiCommand {
        immediate: false,
        final_: true,
        read,
        write: !read,
        attribute: Attribute::Simple,
        priority: 0,
        lun: UNIT,
        itt: itt(task),
        expected_length: length,
        cmd_sn: CmdSn(1),
        exp_stat_sn: StatSn(0),
        cdb: Cdb { bytes: [0; 32], len: 16 },
        bidi_read_length: None,
    }
}

pub(super) fn login() -> Request {
    Request::Login(LoginRequest {
        transit: false,
        continue_: false,
        current: Stage::Operational,
        next: None,
        version_max: 0,
        version_min: 0,
        isid: Isid([0; 6]),
        tsih: Tsih(0),
        itt: Itt(1),
        cid: Cid(0),
        cmd_sn: CmdSn(1),
        exp_stat_sn: StatSn(0),
    })
}

pub(super) fn bytes(seed: u32, length: u32) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) + seed).to_le_bytes()[0]).collect()
}

/// Both halves, logged in, without anybody between them.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) pool: Pool,
    pub(super) near: Initiator,
    pub(super) far: Target,
}

impl Pair {
    pub(super) fn new() -> Self {
        let mut pair =
            Self { pool: Pool::new(8 << 20).unwrap(), near: Initiator::new(), far: Target::new() };
        pair.near.submit(initiator::Op::SendControl { request: login(), data: b"a=b\0".to_vec() });
        let got = pair.carry();
        assert!(matches!(
            got[..],
            [target::Event::Control { request: Request::Login(_), immediate: Immediate::None }]
        ));
        assert_eq!(pair.far.control_data(), b"a=b\0");
        pair.near.submit(initiator::Op::NoticeKeys(initiator::Keys {
            max_recv_data_segment_length: 4096,
            max_burst_length: 4096,
            max_outstanding_r2t: 2,
            ..initiator::Keys::LOGIN
        }));
        pair.far.submit(target::Op::NoticeKeys(target::Keys {
            max_recv_data_segment_length: 4096,
            first_burst_length: 4096,
            ..target::Keys::LOGIN
        }));
        pair
    }

    /// Brings all that the initiator has to say to the target.
    pub(super) fn carry(&mut self) -> Vec<target::Event> {
        let mut events = Vec::new();
        while let Some(message) = self.near.poll_message(StatSn(9)) {
            let mut event = self.far.receive(message, &self.pool);
            while let Some(told) = event {
                events.push(told);
                event = self.far.resume(&self.pool);
            }
            self.far.check();
        }
        self.near.check();
        events
    }

    /// The other way.
    pub(super) fn bring(&mut self) -> Vec<initiator::Event> {
        let mut events = Vec::new();
        while let Some(message) = self.far.poll_message() {
            events.extend(self.near.receive(message));
            self.near.check();
        }
        self.far.check();
        events
    }

    pub(super) fn released(&mut self) -> Vec<TaskId> {
        let mut released = Vec::new();
        while let Some(event) = self.far.poll_event() {
            match event {
                target::Event::Released { task } => released.push(task),
                other => panic!("unexpected {other:?}"),
            }
        }
        released
    }

    /// A WRITE is on its way.
    fn write(&mut self, data: &[u8], immediate: u32, unsolicited_end: u32) -> Vec<target::Event> {
        let write = Some(Slice::from(data.to_vec()));
        self.near.submit(initiator::Op::Attach { task: TASK, write, read: None });
        let length = u32::try_from(data.len()).unwrap();
        let final_ = immediate == unsolicited_end;
        let command = ScsiCommand { final_, ..command(TASK, false, length) };
        let op = initiator::Op::SendCommand { task: TASK, command, immediate, unsolicited_end };
        self.near.submit(op);
        self.carry()
    }

    /// A READ is on its way.
    fn read(&mut self, length: u32) {
        let read = self.pool.take(length as usize);
        self.near.submit(initiator::Op::Attach { task: TASK, write: None, read });
        let command = command(TASK, true, length);
        let (immediate, unsolicited_end) = (0, 0);
        let op = initiator::Op::SendCommand { task: TASK, command, immediate, unsolicited_end };
        self.near.submit(op);
        assert_eq!(self.carry().len(), 1);
    }
}

pub(super) fn put(
    task: TaskId,
    data: Vec<u8>,
    offset: u32,
    status: Option<CollapsedStatus>,
) -> target::Op {
    let (data, numbers) = (Slice::from(data), numbers(9));
    target::Op::PutData { task, itt: itt(task), data, offset, burst: 512, numbers, status }
}

pub(super) fn get(task: TaskId, offset: u32, length: u32) -> target::Op {
    let (itt, numbers) = (itt(task), numbers(9));
    target::Op::GetData { task, itt, lun: UNIT, offset, length, numbers }
}

fn expect(offset: u32, length: u32, discard: bool) -> target::Op {
    let (task, itt, lun) = (TASK, itt(TASK), UNIT);
    target::Op::ExpectUnsolicited { task, itt, lun, offset, length, discard }
}

#[test]
fn a_read_is_placed_and_ends_with_its_last_data() {
    let mut pair = Pair::new();
    pair.read(6000);
    let all = bytes(1, 6000);
    pair.far.submit(put(TASK, all[..5000].to_vec(), 0, None));
    pair.far.submit(put(TASK, all[5000..].to_vec(), 5000, Some(GOOD)));
    pair.far.submit(target::Op::Release { task: TASK });
    assert!(pair.released().is_empty(), "its data has not left");
    assert!(pair.far.backlog() > 6000);
    let events = pair.bring();
    assert!(
        matches!(
            events[..],
            [
                initiator::Event::Window(_),
                initiator::Event::Ended(Ended { task: TASK, received: 6000, damaged: false, .. })
            ]
        ),
        "the window is told once, and no single data: {events:?}"
    );
    assert_eq!((pair.released(), pair.far.backlog()), (vec![TASK], 0));
    let buf = pair.near.submit(initiator::Op::Detach { task: TASK }).unwrap();
    assert_eq!(buf[..], all[..]);
    pair.near.submit(initiator::Op::Release { task: TASK });
    assert_eq!((pair.near.task_count(), pair.far.task_count()), (0, 0));
    assert_eq!((pair.near.copied(), pair.far.counters().bytes_copied), (6000, 0));
}

#[test]
fn a_write_comes_with_its_command_unasked_and_asked_for() {
    let mut pair = Pair::new();
    let all = bytes(2, 9000);
    let mut events = pair.write(&all, 1000, 1000);
    let Some(target::Event::Control { immediate: Immediate::Staged { data, length }, .. }) =
        events.pop()
    else {
        panic!("no immediate data")
    };
    assert_eq!((length, data.len()), (1000, 9000), "there is room for all that comes");
    pair.far.submit(target::Op::Attach { task: TASK, buf: data });
    pair.far.submit(get(TASK, 1000, 4000));
    pair.far.submit(get(TASK, 5000, 4000));
    pair.bring();
    assert_eq!(pair.far.open_bursts(), 2);
    let done = pair.carry();
    assert!(matches!(
        done[..],
        [
            target::Event::DataDone { task: TASK, offset: 1000, length: 4000 },
            target::Event::DataDone { task: TASK, offset: 5000, length: 4000 }
        ]
    ));
    assert_eq!(pair.far.take_acknowledged(), Some(StatSn(9)));
    let buf = pair.far.submit(target::Op::Detach { task: TASK }).unwrap();
    assert_eq!(buf[..], all[..]);
    assert_eq!((pair.far.counters().bytes_copied, pair.near.copied()), (9000, 0));
}

#[test]
fn unsolicited_data_is_one_message_behind_its_command() {
    for discard in [false, true] {
        let mut pair = Pair::new();
        let all = bytes(3, 3000);
        let write = Some(Slice::from(all.clone()));
        pair.near.submit(initiator::Op::Attach { task: TASK, write, read: None });
        let command = ScsiCommand { final_: false, ..command(TASK, false, 3000) };
        let (immediate, unsolicited_end) = (500, 3000);
        let op = initiator::Op::SendCommand { task: TASK, command, immediate, unsolicited_end };
        pair.near.submit(op);
        let message = pair.near.poll_message(StatSn(0)).unwrap();
        let event = pair.far.receive(message, &pair.pool);
        let Some(target::Event::Control {
            immediate: Immediate::Staged { data, length: 500 }, ..
        }) = event
        else {
            panic!("no immediate data")
        };
        if !discard {
            pair.far.submit(target::Op::Attach { task: TASK, buf: data });
        }
        pair.far.submit(expect(500, 2500, discard));
        assert!(matches!(
            pair.carry()[..],
            [target::Event::DataDone { task: TASK, offset: 500, length: 2500 }]
        ));
        let buf = pair.far.submit(target::Op::Detach { task: TASK });
        assert!(discard || buf.unwrap()[..] == all[..]);
    }
}

#[test]
fn without_memory_immediate_data_is_told_then_asked_for_again_then_dropped() {
    let mut pair = Pair::new();
    pair.pool = Pool::new(0).unwrap();
    let events = pair.write(&bytes(4, 100), 100, 100);
    assert!(matches!(
        events[..],
        [
            target::Event::NoBuffer,
            target::Event::Control { immediate: Immediate::Exhausted { length: 100 }, .. }
        ]
    ));
}

#[test]
fn status_and_sense_travel_alone_too() {
    let mut pair = Pair::new();
    pair.read(512);
    let response = Response::Scsi(ScsiResponse {
        response: 0,
        status: 2,
        status_qualifier: 0,
        itt: itt(TASK),
        snack_tag: 0,
        numbers: numbers(9),
        exp_data_sn: DataSn(4),
        bidi_read_residual: Residual::None,
        residual: Residual::Underflow(512),
    });
    let data = vec![0, 18, 0x70];
    pair.far.submit(target::Op::SendControl { response, data: data.clone(), task: Some(TASK) });
    let events = pair.bring();
    let [initiator::Event::Ended(Ended { response, received: 0, .. })] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((response.status, response.exp_data_sn), (2, DataSn(0)));
    assert_eq!(pair.near.control_data(), data);
}

#[test]
fn an_abandoned_task_gets_its_data_silently_and_asks_for_no_more() {
    let mut pair = Pair::new();
    pair.write(&bytes(5, 8000), 0, 0);
    let buf = pair.pool.take(8000).unwrap();
    pair.far.submit(target::Op::Attach { task: TASK, buf });
    pair.far.submit(get(TASK, 0, 4000));
    pair.bring();
    pair.far.submit(get(TASK, 4000, 4000));
    pair.far.submit(target::Op::Abandon { task: TASK });
    assert_eq!((pair.far.abandoned_bursts(), pair.far.backlog()), (1, 0));
    assert!(pair.far.poll_message().is_none(), "nothing is asked for any more");
    assert!(pair.carry().is_empty(), "nothing is told");
    assert_eq!(pair.far.abandoned_bursts(), 0);
    pair.far.submit(target::Op::Release { task: TASK });
    assert_eq!((pair.released(), pair.far.task_count()), (vec![TASK], 0));
}

#[test]
fn what_is_forgotten_is_refused_when_it_comes() {
    let mut pair = Pair::new();
    pair.write(&bytes(6, 4000), 0, 0);
    pair.far.submit(get(TASK, 0, 4000));
    pair.bring();
    pair.far.submit(target::Op::Abandon { task: TASK });
    pair.far.submit(target::Op::Forget { task: TASK });
    let events = pair.carry();
    assert!(matches!(events[..], [target::Event::Rejected { reason: 9 }]), "{events:?}");
    assert_eq!(pair.far.header().len(), BHS_LEN);
}

#[test]
fn data_that_does_not_come_is_overdue_at_the_second_look() {
    let mut pair = Pair::new();
    pair.write(&bytes(7, 4000), 0, 0);
    pair.far.submit(get(TASK, 0, 4000));
    pair.bring();
    pair.far.submit(target::Op::Overdue { task: TASK });
    assert!(pair.far.poll_event().is_none());
    pair.far.submit(target::Op::Overdue { task: TASK });
    assert!(matches!(
        pair.far.poll_event(),
        Some(target::Event::DataFailed { task: TASK, error: DataError::Overdue, .. })
    ));
    assert!(pair.carry().is_empty(), "what comes later is dropped");
}

#[test]
fn a_suspended_task_leaves_nothing_queued_and_keeps_its_buffer() {
    let mut pair = Pair::new();
    pair.read(100);
    pair.far.submit(target::Op::Attach { task: TASK, buf: pair.pool.take(10).unwrap() });
    pair.far.submit(put(TASK, bytes(8, 100), 0, Some(GOOD)));
    pair.far.submit(target::Op::Suspend { task: TASK, itt: itt(TASK) });
    assert!(pair.far.poll_message().is_none() && pair.far.backlog() == 0);
    assert!(pair.far.submit(target::Op::Detach { task: TASK }).is_some());
}

#[test]
fn a_quiet_or_released_task_sends_nothing_more() {
    for release in [false, true] {
        let mut pair = Pair::new();
        pair.write(&bytes(9, 4000), 0, 0);
        pair.far.submit(get(TASK, 0, 4000));
        pair.bring();
        pair.near.submit(match release {
            false => initiator::Op::Quiet { task: TASK },
            true => initiator::Op::Release { task: TASK },
        });
        assert!(pair.near.poll_message(StatSn(0)).is_none());
    }
}

#[test]
fn terminate_comes_after_all_that_was_queued_before() {
    let mut pair = Pair::new();
    pair.read(100);
    pair.far.submit(put(TASK, bytes(8, 100), 0, Some(GOOD)));
    pair.far.submit(target::Op::Terminate);
    pair.far.submit(put(TASK, bytes(8, 100), 0, Some(GOOD)));
    assert!(!pair.far.is_terminated());
    assert_eq!(pair.bring().len(), 1);
    assert!(pair.far.is_terminated());
    pair.far.submit(target::Op::Release { task: TASK });
    assert_eq!(pair.released(), [TASK], "tasks are released all the same");
    pair.near.submit(initiator::Op::SendControl { request: login(), data: Vec::new() });
    pair.near.submit(initiator::Op::Terminate);
    assert!(!pair.near.is_terminated());
    assert_eq!(pair.carry().len(), 1);
    assert!(pair.near.is_terminated());
}

#[test]
fn only_a_login_begins_a_connection() {
    let pool = Pool::new(1 << 20).unwrap();
    let mut far = Target::new();
    let ping = ToTarget::Command { command: command(TASK, true, 0), data: Slice::empty() };
    for message in [ping, ToTarget::Control { request: login(), data: Vec::new() }] {
        let event = far.receive(message, &pool);
        assert!(
            matches!(event, Some(target::Event::Violation(StreamViolation::NotLogin))),
            "the same one for ever"
        );
    }
}
