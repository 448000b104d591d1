// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of another half that does as it likes.

use proptest::prelude::*;

use super::*;
use initiator::Violation;

fn a_read() -> Pair {
    let mut pair = Pair::new();
    pair.read(1000);
    pair
}

fn a_write(asked: u32) -> Pair {
    let mut pair = Pair::new();
    pair.write(&bytes(1, 4000), 0, 0);
    let buf = pair.pool.take(4000).unwrap();
    pair.far.submit(target::Op::Attach { task: TASK, buf });
    if asked > 0 {
        pair.far.submit(get(TASK, 0, asked));
    }
    pair
}

fn a_put(offset: u32, length: u32) -> ToInitiator {
    let (itt, data) = (itt(TASK), Slice::from(bytes(0, length)));
    ToInitiator::Put(Put { itt, offset, data, numbers: numbers(9), status: None })
}

fn a_get(ttt: u32, offset: u32, length: u32) -> Get {
    Get { itt: itt(TASK), ttt: Ttt(ttt), lun: UNIT, offset, length, numbers: numbers(9) }
}

fn violation(pair: &mut Pair, message: ToInitiator) -> Violation {
    match pair.near.receive(message) {
        Some(initiator::Event::Violation(violation)) => {
            let again = pair.near.receive(a_put(0, 1));
            assert!(matches!(again, Some(initiator::Event::Violation(of)) if of == violation));
            pair.near.check();
            violation
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn data_of_a_target_lies_in_the_buffer_and_in_order() {
    let beyond = violation(&mut a_read(), a_put(0, 1001));
    assert_eq!(beyond, Violation::Range { offset: 0, length: 1001, buffer: 1000 });
    let around = violation(&mut a_read(), a_put(u32::MAX, 2));
    assert_eq!(around, Violation::Range { offset: u32::MAX, length: 2, buffer: 1000 });
    let gap = violation(&mut a_read(), a_put(10, 10));
    assert_eq!(gap, Violation::Offset { offset: 10, expected: 0 });
    let write = violation(&mut a_write(0), a_put(0, 1));
    assert_eq!(write, Violation::Range { offset: 0, length: 1, buffer: 0 });
}

#[test]
fn a_task_that_does_not_exist_is_known_only_among_strays() {
    let mut pair = a_read();
    let other = Itt(0x77);
    let stray = || {
        let data = Slice::empty();
        let put = Put { itt: other, offset: 0, data, numbers: numbers(9), status: Some(GOOD) };
        ToInitiator::Put(put)
    };
    pair.near.submit(initiator::Op::NoticeKeys(initiator::Keys {
        strays: true,
        ..initiator::Keys::LOGIN
    }));
    assert!(matches!(pair.near.receive(stray()), Some(initiator::Event::Stray(_))));
    pair.near.submit(initiator::Op::NoticeKeys(initiator::Keys::LOGIN));
    assert_eq!(violation(&mut pair, stray()), Violation::UnknownTask(other));
}

#[test]
fn a_target_asks_for_what_there_is_and_no_more_at_once_than_agreed() {
    let ask = |get| violation(&mut a_write(0), ToInitiator::Get(get));
    let range = |offset, length| Violation::R2tRange { offset, length, buffer: 4000 };
    assert_eq!(ask(a_get(1, 3999, 2)), range(3999, 2));
    assert_eq!(ask(a_get(1, u32::MAX, 2)), range(u32::MAX, 2));
    assert_eq!(ask(a_get(1, 0, 0)), range(0, 0));
    assert_eq!(ask(a_get(u32::MAX, 0, 1)), range(0, 1), "no tag would name the answer");
    assert_eq!(ask(Get { lun: LunField([9; 8]), ..a_get(1, 0, 1) }), Violation::R2tUnit);
    let mut pair = a_write(0);
    for ttt in [1, 2] {
        assert!(
            pair.near
                .receive(ToInitiator::Get(a_get(ttt, ttt * 10, 10)))
                .is_none_or(|event| matches!(event, initiator::Event::Window(_)))
        );
    }
    let third = ToInitiator::Get(a_get(3, 100, 10));
    assert_eq!(violation(&mut pair, third), Violation::TooManyR2ts(2));
    let mut pair = a_write(0);
    pair.near.receive(ToInitiator::Get(a_get(1, 100, 10)));
    let backwards = ToInitiator::Get(a_get(2, 0, 10));
    assert_eq!(violation(&mut pair, backwards), range(0, 10));
}

#[test]
fn control_messages_are_those_that_a_pdu_could_have_brought() {
    let data_in = Response::R2t(R2t {
        lun: UNIT,
        itt: itt(TASK),
        ttt: Ttt(1),
        numbers: numbers(9),
        r2t_sn: R2tSn(0),
        offset: 0,
        desired_length: 1,
    });
    let control = |response, data| ToInitiator::Control { response, data };
    assert!(matches!(
        violation(&mut a_read(), control(data_in, Vec::new())),
        Violation::Malformed { opcode: 0x31 }
    ));
    let text = |final_, continue_| {
        let (itt, ttt, lun) = (Itt(1), Ttt::NONE, LunField::default());
        Response::Text(TextResponse { final_, continue_, lun, itt, ttt, numbers: numbers(9) })
    };
    let contradiction = violation(&mut a_read(), control(text(true, true), Vec::new()));
    assert_eq!(contradiction, Violation::Malformed { opcode: 0x24 });
    let ping = Response::NopIn(NopIn {
        lun: LunField::default(),
        itt: Itt::NONE,
        ttt: Ttt(5),
        numbers: numbers(9),
    });
    let limit = 4096;
    assert_eq!(
        violation(&mut a_read(), control(ping, vec![0; 4097])),
        Violation::SegmentTooLong { length: 4097, limit }
    );
    let event = a_read().near.receive(control(ping, vec![0; 4096]));
    assert!(matches!(event, Some(initiator::Event::Control { response }) if response == ping));
}

#[test]
fn an_initiators_command_is_one_that_a_pdu_could_have_brought() {
    let good = command(TASK, false, 4000);
    let wrong = [
        ScsiCommand { itt: Itt::NONE, ..good },
        ScsiCommand { write: false, ..good },
        ScsiCommand { final_: false, write: false, expected_length: 0, ..good },
        ScsiCommand { bidi_read_length: Some(1), ..good },
        ScsiCommand { cdb: Cdb { bytes: [0; 32], len: u16::MAX }, ..good },
    ];
    for command in wrong {
        let mut pair = Pair::new();
        let message = ToTarget::Command { command, data: Slice::empty() };
        let event = pair.far.receive(message, &pair.pool);
        assert!(matches!(event, Some(target::Event::Rejected { .. })), "{command:?}: {event:?}");
        assert!(pair.far.header().len() >= BHS_LEN);
    }
    let mut pair = Pair::new();
    let Request::Login(good_login) = login() else { panic!("no login") };
    let contradictions = [
        Request::Login(LoginRequest { transit: true, ..good_login }),
        Request::Login(LoginRequest { transit: true, continue_: true, ..good_login }),
        Request::Command(ScsiCommand { cdb: Cdb { bytes: [0; 32], len: u16::MAX }, ..good }),
        Request::Command(good),
        a_data_out(),
    ];
    for request in contradictions {
        let message = ToTarget::Control { request, data: Vec::new() };
        let event = pair.far.receive(message, &pair.pool);
        assert!(matches!(event, Some(target::Event::Rejected { reason: 4 })), "{event:?}");
    }
    let message = ToTarget::Command { command: good, data: Slice::from(vec![0; 4097]) };
    let event = pair.far.receive(message, &pair.pool);
    let too_long = StreamViolation::SegmentTooLong { length: 4097, limit: 4096 };
    assert!(matches!(event, Some(target::Event::Violation(of)) if of == too_long));
}

fn a_data_out() -> Request {
    Request::DataOut(DataOut {
        final_: true,
        lun: UNIT,
        itt: itt(TASK),
        ttt: Ttt(0),
        exp_stat_sn: StatSn(0),
        data_sn: DataSn(0),
        offset: 0,
    })
}

#[test]
fn data_of_an_initiator_is_what_was_asked_for() {
    let data = |ttt, offset, length| Data {
        itt: itt(TASK),
        ttt,
        exp_stat_sn: StatSn(0),
        offset,
        data: Slice::from(bytes(0, length)),
    };
    let tell = |change: &dyn Fn(Ttt) -> Data| {
        let mut pair = a_write(1000);
        let Some(ToInitiator::Get(Get { ttt, .. })) = pair.far.poll_message() else {
            panic!("nothing is asked for")
        };
        let event = pair.far.receive(ToTarget::Data(change(ttt)), &pair.pool);
        pair.far.check();
        event
    };
    let failed = |event, wanted| {
        matches!(event, Some(target::Event::DataFailed { offset: 0, length: 1000, error, .. })
            if error == wanted)
    };
    assert!(failed(tell(&|ttt| data(ttt, 0, 999)), DataError::Amount));
    assert!(failed(tell(&|ttt| data(ttt, 0, 1001)), DataError::Amount));
    assert!(failed(tell(&|ttt| data(ttt, 1, 1000)), DataError::Sequence));
    let refused = |event| matches!(event, Some(target::Event::Rejected { reason: 9 }));
    assert!(refused(tell(&|ttt| data(Ttt(ttt.0 + 1), 0, 1000))));
    assert!(refused(tell(&|ttt| data(Ttt(ttt.0 ^ 1 << 20), 0, 1000))), "of an earlier use");
    assert!(refused(tell(&|_| data(Ttt::NONE, 0, 1000))), "nothing comes unasked");
    assert!(refused(tell(&|ttt| Data { itt: Itt(5), ..data(ttt, 0, 1000) })));
}

#[test]
fn data_without_a_buffer_or_with_a_short_one_fails() {
    for room in [None, Some(999)] {
        let mut pair = a_write(1000);
        pair.far.submit(target::Op::Detach { task: TASK });
        if let Some(room) = room {
            let buf = pair.pool.take(room).unwrap();
            pair.far.submit(target::Op::Attach { task: TASK, buf });
        }
        pair.bring();
        assert!(matches!(
            pair.carry()[..],
            [target::Event::DataFailed { error: DataError::Amount, .. }]
        ));
    }
}

fn any_to_initiator() -> impl Strategy<Value = ToInitiator> {
    let tag = prop_oneof![3 => Just(itt(TASK)), 1 => any::<u32>().prop_map(Itt)];
    (tag, 0_u8..4, any::<u32>(), 0_u32..5000, 0_u32..5000, any::<bool>()).prop_map(
        |(itt, kind, tag, offset, length, flag)| match kind {
            0 => ToInitiator::Put(Put {
                itt,
                offset: if flag { 0 } else { offset },
                data: Slice::from(bytes(0, length % 700)),
                numbers: numbers(tag),
                status: (length % 7 == 0).then_some(GOOD),
            }),
            1 => ToInitiator::Get(Get { itt, ttt: Ttt(tag), ..a_get(0, offset, length) }),
            2 => ToInitiator::Status {
                response: ScsiResponse {
                    response: 0,
                    status: 0,
                    status_qualifier: 0,
                    itt,
                    snack_tag: 0,
                    numbers: numbers(tag),
                    exp_data_sn: DataSn(tag),
                    bidi_read_residual: Residual::None,
                    residual: Residual::None,
                },
                sense: bytes(0, length % 20),
            },
            _ => ToInitiator::Control {
                response: Response::NopIn(NopIn {
                    lun: UNIT,
                    itt,
                    ttt: Ttt(tag),
                    numbers: numbers(offset),
                }),
                data: bytes(0, length),
            },
        },
    )
}

fn any_to_target() -> impl Strategy<Value = ToTarget> {
    let tag = prop_oneof![3 => Just(itt(TASK)), 1 => any::<u32>().prop_map(Itt)];
    let ttt = prop_oneof![3 => 0_u32..4, 1 => any::<u32>(), 1 => Just(u32::MAX)];
    (tag, ttt, 0_u8..3, 0_u32..5000, 0_u32..5000, any::<[bool; 3]>()).prop_map(
        |(itt, ttt, kind, offset, length, [read, write, final_])| match kind {
            0 => ToTarget::Data(Data {
                itt,
                ttt: Ttt(ttt),
                exp_stat_sn: StatSn(ttt),
                offset: offset / 100 * 100,
                data: Slice::from(bytes(0, length / 100 * 100)),
            }),
            1 => ToTarget::Command {
                command: ScsiCommand {
                    read,
                    write,
                    final_,
                    itt,
                    expected_length: offset,
                    ..command(TASK, true, 0)
                },
                data: Slice::from(bytes(0, length)),
            },
            _ => ToTarget::Control { request: login(), data: bytes(0, length) },
        },
    )
}

proptest! {
    #[test]
    fn no_message_of_a_target_breaks_the_initiators_half(
        messages in prop::collection::vec(any_to_initiator(), 1..20),
        read in any::<bool>(),
    ) {
        let mut pair = if read { a_read() } else { a_write(0) };
        for message in messages {
            pair.near.receive(message);
            pair.near.check();
            while pair.near.poll_message(StatSn(0)).is_some() {}
            pair.near.check();
        }
    }

    #[test]
    fn no_message_of_an_initiator_breaks_the_targets_half(
        messages in prop::collection::vec(any_to_target(), 1..20),
        asked in prop::collection::vec((0_u32..40, 1_u32..20), 0..4),
    ) {
        let mut pair = a_write(0);
        for (at, count) in asked {
            pair.far.submit(get(TASK, at * 100, count * 100));
        }
        while pair.far.poll_message().is_some() {}
        for message in messages {
            let mut event = pair.far.receive(message, &pair.pool);
            while event.is_some() {
                event = pair.far.resume(&pair.pool);
            }
            pair.far.check();
        }
    }
}
