// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks that go on on another connection: their memory has other names there (RFC 7145 §7.3.3,
//! §10.2.2).

use super::*;
use iscsi::datamover::NumberedGet;
use iscsi::datamover::NumberedPut;
use wire::iwarp::Cause;

fn request() -> TaskManagementRequest {
    TaskManagementRequest {
        immediate: true,
        function: 8,
        lun: LunField::default(),
        itt: Itt(0x77),
        referenced_task: itt(TASK),
        cmd_sn: CmdSn(2),
        exp_stat_sn: StatSn(0),
        ref_cmd_sn: CmdSn(0),
        exp_data_sn: DataSn(7),
    }
}

fn granted() -> Response {
    let (response, itt) = (0, Itt(0x77));
    Response::TaskManagement(TaskManagementResponse {
        response,
        additional: 0,
        itt,
        numbers: numbers(),
    })
}

fn numbered_put(data: &[u8], offset: u32) -> target::Op {
    target::Op::PutNumbered(alloc::boxed::Box::new(NumberedPut {
        task: TASK,
        itt: itt(TASK),
        data: Slice::from(data.to_vec()),
        offset,
        numbers: numbers(),
        data_sn: DataSn(0),
        segment: 512,
        burst_at: 0,
        burst: 512,
        final_: true,
        acknowledge: None,
        status: None,
    }))
}

fn numbered_get((offset, length): (u32, u32), solicited_from: u32) -> target::Op {
    target::Op::GetNumbered(NumberedGet {
        task: TASK,
        itt: itt(TASK),
        lun: UNIT,
        offset,
        length,
        numbers: numbers(),
        r2t_sn: R2tSn(0),
        solicited_from,
    })
}

/// All tasks of `lost` are asked for on `pair`.
fn reassign(lost: &mut Pair, pair: &mut Pair) {
    let carried = lost.near.carry_all();
    assert_eq!((carried.len(), lost.near.advertised()), (1, 0), "the old names mean nothing");
    carried.into_iter().for_each(|task| pair.near.adopt(task));
    pair.near.submit(initiator::Op::Reassign { task: TASK, request: request() });
    let (at_far, _) = pair.exchange();
    let [target::Event::Control { request: Request::TaskManagement(found), .. }] = at_far[..]
    else {
        panic!("{at_far:?}")
    };
    let whole = TaskManagementRequest { exp_stat_sn: StatSn(9), ..request() };
    assert_eq!(found, TaskManagementRequest { exp_data_sn: DataSn(0), ..whole });
    pair.far.submit(control(granted(), &[]));
    assert!(matches!(pair.exchange().1[..], [initiator::Event::Control { .. }]));
}

/// What was written there before is not counted: the target says so of what it writes here.
///
/// Covers: ISP-22, ISE-07/I, ISP-14.
#[test]
fn a_read_names_its_memory_anew_and_gets_all_of_it() {
    let all = bytes(1, 6000);
    for sent in [6000, 5000] {
        let (mut lost, mut pair) = (Pair::new(), Pair::new());
        lost.read(6000);
        lost.far.submit(put(&bytes(9, 3000), 0));
        lost.exchange();
        reassign(&mut lost, &mut pair);
        assert_eq!((pair.near.advertised(), lost.near.advertised()), (1, 0));
        pair.far.submit(numbered_put(&all[..4000], 0));
        pair.far.submit(numbered_put(&all[4000..sent], 4000));
        pair.far.submit(control(status(TASK), &[]));
        let (_, at_near) = pair.exchange();
        let [initiator::Event::Ended(ended)] = &at_near[..] else { panic!("{at_near:?}") };
        assert_eq!(ended.received as usize, sent);
        let buf = pair.near.submit(initiator::Op::Detach { task: TASK }).unwrap();
        assert_eq!(buf[..sent], all[..sent]);
        assert_eq!(pair.near.advertised(), 0);
    }
}

/// What came with the command stays with it; what was to come unasked is fetched.
///
/// Covers: ISP-22, ISE-07/T, ISE-07/I, ISP-13.
#[test]
fn a_write_names_all_but_its_immediate_data_anew() {
    let all = bytes(2, 9000);
    for solicited_only in [false, true] {
        let mut pairs = [Pair::new(), Pair::new()];
        for pair in &mut pairs {
            let keys = initiator::Keys { solicited_only, ..initiator::Keys::LOGIN };
            pair.near.submit(initiator::Op::NoticeKeys(keys));
            let keys = target::Keys { first_burst_length: 4096, ..target::Keys::LOGIN };
            pair.far.submit(target::Op::NoticeKeys(target::Keys { solicited_only, ..keys }));
        }
        let [mut lost, mut pair] = pairs;
        let mut events = lost.write(&all, 1000, 3000);
        let target::Event::Control { immediate: Immediate::Staged { data, .. }, .. } =
            events.remove(0)
        else {
            panic!("no immediate data")
        };
        lost.far.submit(target::Op::Attach { task: TASK, buf: data });
        lost.far.submit(numbered_get((3000, 4000), 3000));
        let (done, _) = lost.exchange();
        assert!(matches!(done[..], [target::Event::DataDone { offset: 3000, length: 4000, .. }]));
        lost.far.submit(target::Op::Suspend { task: TASK, itt: itt(TASK) });
        let buf = lost.far.submit(target::Op::Detach { task: TASK }).unwrap();
        assert_eq!(buf[3000..7000], all[3000..7000]);
        reassign(&mut lost, &mut pair);
        pair.far.submit(target::Op::Attach { task: TASK, buf });
        for burst in [(1000, 2000), (7000, 2000)] {
            pair.far.submit(numbered_get(burst, 1000));
            let (done, _) = pair.exchange();
            let [target::Event::DataDone { offset, length, .. }] = done[..] else {
                panic!("{done:?}")
            };
            assert_eq!((offset, length), burst);
        }
        let buf = pair.far.submit(target::Op::Detach { task: TASK }).unwrap();
        assert_eq!(buf[..], all[..]);
    }
}

/// Its end is none of a connection that has not asked for it yet.
#[test]
fn a_task_that_is_not_asked_for_yet_has_no_end() {
    let (mut lost, mut pair) = (Pair::new(), Pair::new());
    lost.read(100);
    lost.near.carry_all().into_iter().for_each(|task| pair.near.adopt(task));
    pair.far.submit(control(status(TASK), &[]));
    let (_, at_near) = pair.exchange();
    let unknown = initiator::Violation::UnknownTask(itt(TASK));
    assert!(matches!(at_near[..], [initiator::Event::Violation(found)] if found == unknown));
}

/// A task that has ended meanwhile has no memory; the request is answered all the same.
#[test]
fn who_waits_for_nothing_names_nothing() {
    let mut pair = Pair::new();
    pair.near.submit(initiator::Op::Reassign { task: TASK, request: request() });
    assert_eq!(pair.exchange().0.len(), 1);
    pair.far.submit(numbered_put(&[1; 100], 0));
    let (_, at_near) = pair.exchange();
    let told = initiator::Violation::Rdma(Some(Cause::CATASTROPHIC_STREAM));
    assert!(matches!(at_near[..], [initiator::Event::Violation(found)] if found == told));
}

/// A task leaves a connection that is not over yet: what still comes for it finds no memory.
#[test]
fn a_buffer_is_had_back_while_it_is_read_into() {
    let all = bytes(3, 8000);
    let mut pair = Pair::new();
    pair.write(&all, 0, 0);
    pair.attach(8000);
    pair.far.submit(numbered_get((0, 8000), 0));
    let to_near = pair.far_bytes();
    pair.feed_near(&to_near);
    let to_far = pair.near_bytes();
    pair.far.submit(target::Op::Suspend { task: TASK, itt: itt(TASK) });
    let buf = pair.far.submit(target::Op::Detach { task: TASK }).unwrap();
    assert_eq!(buf[..], [0; 8000]);
    let events = pair.feed_far(&to_far);
    assert!(matches!(events[0], target::Event::Violation(_)), "{events:?}");
    assert_eq!(buf[..], [0; 8000], "nothing is placed");
    pair.far.submit(target::Op::Release { task: TASK });
    assert!(matches!(pair.far.poll_event(), Some(target::Event::Released { .. })));
}

/// They come beyond the command window.
#[test]
fn requests_to_reassign_keep_within_what_the_target_takes() {
    let mut pair = Pair::new();
    let keys = initiator::Keys { unexpected_max: 3, ..initiator::Keys::LOGIN };
    pair.near.submit(initiator::Op::NoticeKeys(keys));
    for count in 0..4 {
        let request = TaskManagementRequest { itt: Itt(0x77 + count), ..request() };
        pair.near.submit(initiator::Op::Reassign { task: TASK, request });
    }
    assert_eq!(pair.exchange().0.len(), 2, "and a ping could follow");
    pair.far.submit(control(granted(), &[]));
    assert_eq!(pair.exchange().0.len(), 1);
}
