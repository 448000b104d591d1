// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What only recovery asks for: runs and R2Ts that the core has numbered, tasks that leave, bursts
//! to which nothing comes.

use super::*;
use alloc::boxed::Box;
use iscsi::datamover::{NumberedGet, NumberedPut};
use wire::iscsi::{R2t, R2tSn, ScsiResponse};

fn put(index: u32, data: Slice, data_sn: u32, segment: u32) -> NumberedPut {
    NumberedPut {
        task: task(index),
        itt: Itt(index),
        data,
        offset: 1000,
        numbers: numbers(9),
        data_sn: DataSn(data_sn),
        segment,
        burst_at: 1000,
        burst: u32::MAX,
        final_: true,
        acknowledge: None,
        status: None,
    }
}

fn get(index: u32, offset: u32, r2t_sn: u32) -> NumberedGet {
    NumberedGet {
        task: task(index),
        itt: Itt(index),
        lun: LUN,
        offset,
        length: 4096,
        numbers: numbers(9),
        r2t_sn: R2tSn(r2t_sn),
        solicited_from: 0,
    }
}

fn r2t(host: &mut Host) -> Option<R2t> {
    let sent = responses(&host.drain(), PLAIN);
    match sent.as_slice() {
        [] => None,
        [(Response::R2t(r2t), _)] => Some(*r2t),
        other => panic!("{other:?}"),
    }
}

/// Covers: DIN-07b, DIN-10a, DIN-10b, DIN-02, DIN-03a, DIN-11, DSN-01, DIN-12, FMT-10/T.
#[test]
fn a_run_goes_out_under_its_numbers() {
    for keys in [PLAIN, DIGESTS] {
        let mut host = Host::logged_in(keys);
        let data = Slice::from(pattern(9_999));
        let tag = (Ttt(77), LUN);
        let run = NumberedPut { acknowledge: Some(tag), ..put(1, data.clone(), 5, 4096) };
        host.submit(Op::PutNumbered(Box::new(run.clone())));
        let status = CollapsedStatus { status: 0, residual: Residual::None };
        let run = NumberedPut { status: Some(status), acknowledge: None, ..run };
        host.submit(Op::PutNumbered(Box::new(run)));
        let front = data.part(0..4096).expect("within");
        host.submit(Op::PutNumbered(Box::new(NumberedPut {
            final_: false,
            ..put(1, front, 5, 4096)
        })));
        let sent = responses(&host.drain(), keys);
        assert_eq!(sent.len(), 7);
        for (index, (response, bytes)) in (0_u32..).zip(&sent) {
            let Response::DataIn(part) = response else { panic!("{response:?}") };
            let at = 4096 * (index % 3);
            assert_eq!((part.data_sn, part.offset), (DataSn(5 + index % 3), 1000 + at));
            assert_eq!(bytes[..], pattern(9_999)[at as usize..][..bytes.len()]);
            assert_eq!((part.final_, part.acknowledge), (index % 3 == 2, index == 2));
            assert_eq!((part.ttt == Ttt(77), part.lun == LUN), (index == 2, index == 2));
            assert_eq!(part.status, (index == 5).then_some(status));
            assert_eq!(part.numbers.stat_sn, StatSn(if index == 5 { 9 } else { 0 }));
        }
    }
}

/// A run of several bursts, and a part of it that is sent again: F stands where it stood.
#[test]
fn a_run_may_have_several_bursts() {
    for (from, to) in [(0, 10_000), (1536, 5120), (512, 1024)] {
        let mut host = Host::logged_in(PLAIN);
        let data = Slice::from(pattern(10_000)).part(from..to).expect("within");
        let offset = 1000 + u32::try_from(from).expect("short");
        let run = NumberedPut { offset, burst: 2048, final_: false, ..put(1, data, 0, 512) };
        host.submit(Op::PutNumbered(Box::new(run)));
        let mut at = from;
        for (response, bytes) in responses(&host.drain(), PLAIN) {
            let Response::DataIn(part) = response else { panic!("{response:?}") };
            at += bytes.len();
            assert_eq!(part.final_, at.is_multiple_of(2048), "at {at}");
        }
        assert_eq!(at, to);
    }
}

/// Lent memory and a pool without a buffer: the numbers hold all the same.
#[test]
fn a_run_is_never_cut_otherwise_than_it_was_numbered() {
    let region = buf::Region::new(1 << 20).expect("memory");
    let data = region.lend(0, 20_000).expect("within");
    let keys = Keys { max_send_data_segment_length: 65_536, ..DIGESTS };
    let mut host = Host::logged_in(keys);
    host.pool = Pool::new(4096).expect("memory for a pool");
    host.submit(Op::PutNumbered(Box::new(put(1, data, 0, 16_384))));
    let sent = responses(&host.drain(), keys);
    let lengths: Vec<usize> = sent.iter().map(|(_, data)| data.len()).collect();
    assert_eq!(lengths, [16_384, 3616]);
}

#[test]
fn an_r2t_is_sent_again_as_it_was_while_its_burst_is_open() {
    let mut host = Host::logged_in(PLAIN);
    host.tcp.submit(Op::Attach { task: task(1), buf: host.pool.take(8192).expect("a buffer") });
    host.submit(Op::GetNumbered(get(1, 0, 3)));
    let first = r2t(&mut host).expect("an R2T");
    assert_eq!((first.r2t_sn, first.offset, first.desired_length), (R2tSn(3), 0, 4096));
    host.submit(Op::AskAgain(NumberedGet { numbers: numbers(12), ..get(1, 0, 3) }));
    let again = r2t(&mut host).expect("the same R2T");
    assert_eq!(again, R2t { numbers: numbers(12), ..first });
    // Of another range, and after its end.
    host.submit(Op::AskAgain(get(1, 4096, 3)));
    assert_eq!(r2t(&mut host), None);
    let out = DataOut { final_: true, ..data_out(1, first.ttt.0, 0, 0) };
    host.feed(&pdu(&Request::DataOut(out), &pattern(4096), PLAIN));
    assert_eq!(host.take_notes(), [Note::Done(task(1), 0, 4096)]);
    host.submit(Op::AskAgain(get(1, 0, 3)));
    assert_eq!(r2t(&mut host), None);
}

/// Covers: R2T-09, FMT-10/T.
#[test]
fn an_r2t_of_a_number_has_neither_ahs_nor_data() {
    for (keys, length) in [(PLAIN, BHS_LEN), (DIGESTS, BHS_LEN + 4)] {
        let mut host = Host::logged_in(keys);
        host.tcp.submit(Op::Attach { task: task(1), buf: host.pool.take(8192).expect("a buffer") });
        for op in [Op::GetNumbered, Op::AskAgain] {
            host.submit(op(get(1, 0, 3)));
            let sent = host.drain();
            assert_eq!((sent.len(), &sent[4..8]), (length, &[0; 4][..]));
        }
    }
}

#[test]
fn a_burst_is_overdue_when_nothing_came_between_two_looks() {
    let mut host = Host::logged_in(PLAIN);
    host.tcp.submit(Op::Attach { task: task(1), buf: host.pool.take(8192).expect("a buffer") });
    host.submit(Op::GetNumbered(get(1, 0, 0)));
    let asked = r2t(&mut host).expect("an R2T");
    let look = |host: &mut Host| {
        host.tcp.submit(Op::Overdue { task: task(1) });
        host.tcp.check();
        host.tcp.poll_event()
    };
    assert!(look(&mut host).is_none(), "it has just been asked for");
    let out = |sn: u32, offset| Request::DataOut(data_out(1, asked.ttt.0, sn, offset));
    host.feed(&pdu(&out(0, 0), &pattern(1000), PLAIN));
    assert!(look(&mut host).is_none(), "something came");
    let event = look(&mut host);
    let Some(Event::DataFailed { offset: 0, length: 4096, error, .. }) = event else {
        panic!("{event:?}")
    };
    assert_eq!(error, DataError::Overdue);
    assert!(look(&mut host).is_none(), "told once");
    // What comes late is dropped without a word.
    host.feed(&pdu(&out(1, 1000), &pattern(1000), PLAIN));
    assert_eq!(host.take_notes(), []);
    assert!(host.tcp.submit(Op::Detach { task: task(1) }).is_some(), "the buffer is still there");
}

#[test]
fn nothing_more_leaves_of_a_task_that_leaves() {
    let mut host = Host::logged_in(PLAIN);
    host.tcp.submit(Op::Attach { task: task(1), buf: host.pool.take(8192).expect("a buffer") });
    host.submit(Op::GetNumbered(get(1, 0, 0)));
    let asked = r2t(&mut host).expect("an R2T");
    let data = Slice::from(pattern(3 << 20));
    host.submit(Op::PutNumbered(Box::new(put(1, data.clone(), 0, 65_536))));
    let mut list = SgList::new();
    assert!(host.tcp.poll_transmit(&mut list), "a part of it is on its way");
    host.submit(Op::PutNumbered(Box::new(put(1, data, 48, 65_536))));
    host.submit(Op::GetNumbered(get(1, 4096, 1)));
    let response = |itt| {
        let response = Response::Scsi(ScsiResponse {
            response: 0,
            status: 0,
            status_qualifier: 0,
            itt: Itt(itt),
            snack_tag: 0,
            numbers: numbers(50),
            exp_data_sn: DataSn(0),
            bidi_read_residual: Residual::None,
            residual: Residual::None,
        });
        Op::SendControl { response, data: vec![], task: None }
    };
    host.submit(response(1));
    host.submit(response(2));
    host.submit(Op::Suspend { task: task(1), itt: Itt(1) });
    host.tcp.handle_sent();
    let sent = responses(&host.drain(), PLAIN);
    assert!(matches!(sent.as_slice(), [(Response::Scsi(other), _)] if other.itt == Itt(2)));
    assert_eq!(host.tcp.backlog(), 0);
    let out = Request::DataOut(data_out(1, asked.ttt.0, 0, 0));
    host.feed(&pdu(&out, &pattern(1000), PLAIN));
    assert_eq!(host.take_notes(), [], "what was under way is dropped");
    assert_eq!(host.tcp.submit(Op::Detach { task: task(1) }).map(|buf| buf.len()), Some(8192));
}
