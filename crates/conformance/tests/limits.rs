// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of units and initiators: what they hold, what ends it, and what frees it.

use std::num::NonZeroU64;
use std::time::Duration;
use std::time::Instant;

use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::server::LUNS;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::tasks::ABORT_TASK;
use lunwire_conformance::tasks::LOGICAL_UNIT_RESET;
use lunwire_conformance::tasks::manage;
use lunwire_conformance::tasks::managed;
use lunwire_conformance::*;
use target::Limit;
use target::Limited;
use wire::iscsi::*;

/// Long for what happens at once.
const SOON: Duration = Duration::from_secs(3);

fn of(of: Limited, operations: u64, bytes: u64) -> Limit {
    let (operations, bytes) = (NonZeroU64::new(operations), NonZeroU64::new(bytes));
    Limit { of, operations, bytes, sessions: None }
}

fn limit(server: &Server, limits: &[Limit]) {
    server.target().limit(vec![(TARGET.to_owned(), limits.to_vec())]);
}

fn held(server: &Server) -> usize {
    let figures = server.target().figures(SOON);
    figures.answers.iter().map(|figures| figures.holdings.held).sum()
}

fn session(server: &Server) -> Initiator {
    let mut session = server.login();
    (0..LUNS).for_each(|lun| session.settle(u8::try_from(lun).expect("few")));
    session
}

/// Begins so many reads of a block.
fn begin(session: &mut Initiator, lun: u8, count: usize) -> Vec<Itt> {
    (0..count)
        .map(|_| {
            let command = session.read_blocks(lun, 8, 1);
            session.start(&command);
            command.itt
        })
        .collect()
}

fn finish(session: &mut Initiator, all: &[Itt]) {
    for itt in all {
        assert_eq!(session.finish(*itt).code, GOOD);
    }
}

#[test]
fn a_unit_has_what_it_may_have_and_others_do_not_wait() {
    on_each_transport(
        |_| {},
        |server| {
            let [mut one, mut other, mut third] = [(); 3].map(|()| session(server));
            limit(server, &[of(Limited::Lun(0), 100, 0)]);
            let begun = Instant::now();
            let of_one = begin(&mut one, 0, 20);
            let of_other = begin(&mut other, 0, 20);
            let free = begin(&mut third, 1, 20);
            finish(&mut third, &free);
            let rest = begun.elapsed();
            assert!(held(server) > 0 || rest > Duration::from_millis(200), "{rest:?}");
            finish(&mut one, &of_one);
            finish(&mut other, &of_other);
            // A tenth of a second's worth is free.
            assert!(begun.elapsed() >= Duration::from_millis(290), "{:?}", begun.elapsed());
            assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
            let all = server.target().limits();
            assert!(all[0].begun == 40 && all[0].held > 20, "{all:?}");
            // Those that only ask are free.
            limit(server, &[of(Limited::Lun(0), 1, 0)]);
            let begun = Instant::now();
            for _ in 0..10 {
                let ask = one.test_unit_ready(0);
                assert_eq!(one.run(&ask).code, GOOD);
            }
            // One in a second, else.
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        },
    );
}

#[test]
fn an_initiator_has_what_it_may_have_of_all_its_units() {
    on_each_transport(
        |_| {},
        |server| {
            let mut one = session(server);
            limit(server, &[of(Limited::EachInitiator, 0, 1 << 20)]);
            let begun = Instant::now();
            for lun in [0, 1, 2, 0, 1, 2, 0, 1] {
                let read = one.read_blocks(lun, 0, 128);
                assert_eq!(one.run(&read).code, GOOD);
            }
            // 512 KiB, of which a tenth of a second's worth is free.
            assert!(begun.elapsed() >= Duration::from_millis(330), "{:?}", begun.elapsed());
        },
    );
}

#[test]
fn held_commands_end_at_once() {
    on_each_transport(
        |_| {},
        |server| {
            let mut one = session(server);
            limit(server, &[of(Limited::Lun(0), 1, 0), of(Limited::EachInitiator, 1, 0)]);
            let all = begin(&mut one, 0, 20);
            let began = Instant::now();
            finish(&mut one, &all[..1]);
            // One of them, then all of them.
            manage(&mut one, ABORT_TASK, 0, all[5]);
            assert_eq!(managed(&mut one), 0);
            manage(&mut one, LOGICAL_UNIT_RESET, 0, Itt::NONE);
            assert_eq!(managed(&mut one), 0);
            assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
            assert_eq!(held(server), 0);
            one.settle(0);
            // So they do with their session, in good order or not.
            begin(&mut one, 0, 20);
            one.leave();
            let mut other = session(server);
            begin(&mut other, 0, 20);
            drop(other);
            let since = Instant::now();
            while held(server) > 0 {
                assert!(since.elapsed() < SOON, "{} are left", held(server));
                std::thread::sleep(Duration::from_millis(1));
            }
            // Nobody waits for what they would have had.
            let mut patient = session(server);
            let last = begin(&mut patient, 0, 1);
            finish(&mut patient, &last);
            assert!(began.elapsed() < 3 * SOON, "{:?}", began.elapsed());
        },
    );
}

#[test]
fn what_is_held_goes_on_when_its_limit_is_lifted() {
    on_each_transport(
        |_| {},
        |server| {
            for (first, then) in [
                (vec![of(Limited::Lun(0), 1, 0)], Vec::new()),
                (vec![of(Limited::EachInitiator, 1, 0)], vec![of(Limited::Lun(0), 10_000, 0)]),
                (vec![of(Limited::Lun(0), 1, 0)], vec![of(Limited::Lun(0), 10_000, 0)]),
            ] {
                let mut one = session(server);
                limit(server, &first);
                let all = begin(&mut one, 0, 30);
                finish(&mut one, &all[..1]);
                let since = Instant::now();
                while held(server) < 29 {
                    assert!(since.elapsed() < SOON, "{} are held", held(server));
                }
                limit(server, &then);
                finish(&mut one, &all[1..]);
                assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
                one.leave();
            }
        },
    );
}

#[test]
fn a_limited_unit_can_be_removed() {
    on_each_transport(
        |_| {},
        |server| {
            let mut one = session(server);
            limit(server, &[of(Limited::Lun(1), 1, 0), of(Limited::Lun(2), 100, 0)]);
            let read = begin(&mut one, 2, 1);
            finish(&mut one, &read);
            let since = Instant::now();
            server.target().remove_lun(TARGET, 2).expect("nothing of it is under way");
            // With commands that are held; the list of units has changed.
            one.settle(1);
            let read = begin(&mut one, 1, 20);
            finish(&mut one, &read[..1]);
            server.target().remove_lun(TARGET, 1).expect("what is held ends");
            assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
            assert_eq!(held(server), 0);
        },
    );
}

/// A command that waits for others while it is to be limited, and the other way round.
#[test]
fn order_is_kept_while_commands_are_held() {
    on_each_transport(
        |_| {},
        |server| {
            let mut one = session(server);
            limit(server, &[of(Limited::Lun(0), 100, 0)]);
            let mut all = Vec::new();
            for round in 0..5 {
                for at in 0..4 {
                    let mut command = one.read_blocks(0, 8, 1);
                    if at == 3 {
                        command.attribute = Attribute::Ordered;
                    }
                    if at == 2 && round % 2 == 0 {
                        command.attribute = Attribute::HeadOfQueue;
                    }
                    one.start(&command);
                    all.push(command.itt);
                }
            }
            let mut last = 0;
            let mut left = all.len();
            while left > 0 {
                let itt = match one.read().response() {
                    Response::DataIn(DataIn { status: Some(_), itt, .. }) => itt,
                    Response::DataIn(_) => continue,
                    other => panic!("data was due: {other:?}"),
                };
                let at = all.iter().position(|known| *known == itt).expect("it was asked for");
                if at % 4 == 3 {
                    let done = all.len() - left;
                    assert!(done >= at, "an ORDERED command comes behind all before it");
                    last = at;
                }
                assert!(at >= last || at % 4 == 2, "nothing before it comes later");
                left -= 1;
            }
        },
    );
}

#[test]
fn an_initiator_has_as_many_sessions_as_it_may_have() {
    on_each_transport(
        |_| {},
        |server| {
            let sessions = NonZeroU64::new(2);
            let both = Limit { sessions, ..of(Limited::EachInitiator, 0, 0) };
            limit(server, &[both]);
            let first = session(server);
            let _second = session(server);
            LoginPlan::new().expect_refused(server.connect(), 0x0302);
            let answers = server.target().figures(SOON).answers;
            let limited: u64 = answers.iter().map(|figures| figures.visits.limited).sum();
            let refused = answers.iter().filter_map(|figures| figures.visits.refused.get(&0x0302));
            assert_eq!((limited, refused.sum::<u64>()), (1, 1), "not for want of room");
            first.leave();
            let since = Instant::now();
            while server.target().sessions().len() > 1 {
                assert!(since.elapsed() < SOON);
            }
            session(server);
        },
    );
}
