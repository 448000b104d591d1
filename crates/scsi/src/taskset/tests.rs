// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task attributes, ACA, QERR and TST among several nexuses.

use crate::AcaCleared;
use crate::Completion;
use crate::Input;
use crate::Nexus;
use crate::Step;
use crate::Task;
use crate::Victims;
use crate::limits;
use crate::lun::Special;
use crate::testing::Bench;
use crate::testing::codes;
use crate::testing::names;
use crate::testing::request;
use crate::testing::sense_of;
use crate::testing::submit;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use buf::Slice;
use proptest::prelude::*;
use wire::iscsi::Attribute;
use wire::scsi::Lun;
use wire::scsi::sam::ACA_ACTIVE;
use wire::scsi::sam::BUSY;
use wire::scsi::sam::GOOD;

const READY: [u8; 6] = [0; 6];
const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
/// Beyond the end: CHECK CONDITION, with NACA.
const WRONG_NACA: [u8; 10] = [0x28, 0, 0xff, 0, 0, 0, 0, 0, 1, 4];
const WRONG: [u8; 10] = [0x28, 0, 0xff, 0, 0, 0, 0, 0, 1, 0];

const CHECK: u8 = 2;

/// A second nexus to the disk, its first unit attention reported.
fn second(bench: &Bench) -> Nexus {
    let nexus = Nexus::new(names("iqn.b,i,0x2"), vec![(0, Arc::clone(&bench.unit))]);
    let first = crate::testing::run(&nexus, request(Lun::Unit(0), &READY, &[], 0), &[]);
    assert_eq!(codes(sense_of(&first)), (6, 0x29, 0));
    nexus
}

fn start(nexus: &Nexus, attribute: Attribute, cdb: &[u8]) -> (Task, Step) {
    let out = if cdb[0] == 0x2a { vec![1; 512] } else { Vec::new() };
    let mut request = request(Lun::Unit(0), cdb, &out, 512);
    request.attribute = attribute;
    nexus.start(&request)
}

/// Gives a command what it asks for until it waits or ends.
fn go_on(nexus: &Nexus, task: &mut Task, mut step: Step) -> Step {
    loop {
        let input = match step {
            Step::Complete(_) | Step::Wait | Step::Abort { .. } => return step,
            Step::ReceiveDataOut { length } => {
                Input::DataOut(Slice::from(vec![1; length as usize]))
            }
            Step::Store(op) => Input::Store(submit(task, &op)),
            Step::Clock => Input::Clock(0),
            Step::Device(_) | Step::Draw | Step::Keep(_) | Step::Spawn { .. } => {
                unreachable!("nothing here asks for it")
            }
        };
        step = task.resume(nexus, input);
    }
}

fn status_of(step: Step) -> u8 {
    match step {
        Step::Complete(Completion { status, .. }) => status,
        other => panic!("should have ended: {other:?}"),
    }
}

/// Runs a command that ends at once.
fn run(nexus: &Nexus, attribute: Attribute, cdb: &[u8]) -> u8 {
    let (mut task, step) = start(nexus, attribute, cdb);
    status_of(go_on(nexus, &mut task, step))
}

fn waits(step: &Step) -> bool {
    matches!(step, Step::Wait)
}

/// MODE SELECT of the control page: bytes 2, 3 and 5.
fn select(bench: &Bench, two: u8, three: u8, five: u8) {
    let list = [0, 0, 0, 0, 0x0a, 10, two, 0x10 | three, 0, five, 0, 0, 0xff, 0xff, 0, 0];
    assert_eq!(bench.sense_out(&[0x15, 0x10, 0, 0, 16, 0], &list), None);
}

#[test]
fn simple_tasks_leave_no_trace() {
    let bench = Bench::new();
    let (open, _) = start(&bench.nexus, Attribute::Simple, &WRITE);
    assert_eq!(run(&bench.nexus, Attribute::Simple, &READY), GOOD);
    assert_eq!(run(&bench.nexus, Attribute::Untagged, &READY), GOOD);
    assert!(!bench.unit.is_special(Special::Queued));
    assert!(bench.unit.any_nexus(|nexus_state| nexus_state.running.any()));
    drop(open);
    assert!(!bench.unit.any_nexus(|nexus_state| nexus_state.running.any()));
}

#[test]
fn an_ordered_task_waits_for_all_before_it_and_all_after_it_wait() {
    let bench = Bench::new();
    let other = second(&bench);
    let (mut before, step) = start(&other, Attribute::Simple, &WRITE);
    let (mut ordered, waiting) = start(&bench.nexus, Attribute::Ordered, &READY);
    assert!(waits(&waiting));
    let (mut after, waiting) = start(&other, Attribute::Simple, &READY);
    assert!(waits(&waiting));
    assert!(waits(&after.resume(&other, Input::Turn)));
    assert!(waits(&ordered.resume(&bench.nexus, Input::Turn)));
    assert_eq!(status_of(go_on(&other, &mut before, step)), GOOD);
    assert!(waits(&after.resume(&other, Input::Turn)), "behind the ordered one");
    assert_eq!(status_of(ordered.resume(&bench.nexus, Input::Turn)), GOOD);
    assert_eq!(status_of(after.resume(&other, Input::Turn)), GOOD);
    assert!(!bench.unit.is_special(Special::Queued));
}

#[test]
fn ordered_tasks_keep_their_order() {
    let bench = Bench::new();
    let (first, _) = start(&bench.nexus, Attribute::Ordered, &WRITE);
    let (mut second, waiting) = start(&bench.nexus, Attribute::Ordered, &READY);
    assert!(waits(&waiting));
    let (mut third, waiting) = start(&bench.nexus, Attribute::Ordered, &READY);
    assert!(waits(&waiting));
    drop(first);
    assert!(waits(&third.resume(&bench.nexus, Input::Turn)));
    assert_eq!(status_of(second.resume(&bench.nexus, Input::Turn)), GOOD);
    assert_eq!(status_of(third.resume(&bench.nexus, Input::Turn)), GOOD);
}

#[test]
fn the_head_of_the_queue_runs_at_once_and_before_those_that_wait() {
    let bench = Bench::new();
    let (open, _) = start(&bench.nexus, Attribute::Simple, &WRITE);
    let (mut ordered, waiting) = start(&bench.nexus, Attribute::Ordered, &READY);
    assert!(waits(&waiting));
    let (mut head, step) = start(&bench.nexus, Attribute::HeadOfQueue, &WRITE);
    assert!(matches!(step, Step::ReceiveDataOut { .. }));
    drop(open);
    assert!(waits(&ordered.resume(&bench.nexus, Input::Turn)), "behind the head");
    assert_eq!(run(&bench.nexus, Attribute::HeadOfQueue, &READY), GOOD);
    let (mut simple, waiting) = start(&bench.nexus, Attribute::Simple, &READY);
    assert!(waits(&waiting));
    assert_eq!(status_of(go_on(&bench.nexus, &mut head, step)), GOOD);
    assert!(waits(&simple.resume(&bench.nexus, Input::Turn)), "behind the ordered one");
    assert_eq!(status_of(ordered.resume(&bench.nexus, Input::Turn)), GOOD);
    assert_eq!(status_of(simple.resume(&bench.nexus, Input::Turn)), GOOD);
}

#[test]
fn with_tst_each_nexus_is_ordered_for_itself() {
    let bench = Bench::new();
    let other = second(&bench);
    select(&bench, 0x20, 0, 0);
    assert_eq!(run(&other, Attribute::Simple, &READY), CHECK, "mode parameters changed");
    let (_open, _) = start(&other, Attribute::Simple, &WRITE);
    let (_ordered, step) = start(&bench.nexus, Attribute::Ordered, &WRITE);
    assert!(matches!(step, Step::ReceiveDataOut { .. }), "nothing of its own is before it");
    assert_eq!(run(&other, Attribute::Simple, &READY), GOOD);
    assert!(waits(&start(&bench.nexus, Attribute::Simple, &READY).1));
    assert!(waits(&start(&other, Attribute::Ordered, &READY).1));
}

#[test]
fn more_tasks_than_can_be_listed_find_the_set_full() {
    let bench = Bench::new();
    let mut tasks = vec![start(&bench.nexus, Attribute::Ordered, &WRITE).0];
    while tasks.len() < limits::LISTED_TASKS_MAX {
        let (task, step) = start(&bench.nexus, Attribute::Simple, &READY);
        assert!(waits(&step));
        tasks.push(task);
    }
    assert_eq!(run(&bench.nexus, Attribute::Simple, &READY), 0x28);
    assert_eq!(run(&bench.nexus, Attribute::HeadOfQueue, &READY), 0x28);
    drop(tasks);
    assert_eq!(run(&bench.nexus, Attribute::Simple, &READY), GOOD);
    assert!(!bench.unit.is_special(Special::Queued));
}

#[test]
fn an_aca_condition_lets_only_its_own_through() {
    let bench = Bench::new();
    let other = second(&bench);
    let (mut open, step) = start(&other, Attribute::Simple, &WRITE);
    assert_eq!(run(&bench.nexus, Attribute::Aca, &READY), CHECK, "there is no such condition");
    assert_eq!(run(&bench.nexus, Attribute::Simple, &WRONG_NACA), CHECK);
    let Step::ReceiveDataOut { .. } = step else { panic!("{step:?}") };
    let held = open.resume(&other, Input::DataOut(Slice::from(vec![1; 512])));
    assert!(waits(&held), "what runs is held up");
    assert_eq!(bench.log(), [], "nothing reaches the medium");
    let naca = [0, 0, 0, 0, 0, 4];
    assert_eq!(run(&bench.nexus, Attribute::Simple, &READY), ACA_ACTIVE);
    assert_eq!(run(&bench.nexus, Attribute::HeadOfQueue, &READY), ACA_ACTIVE);
    assert_eq!(run(&other, Attribute::Simple, &READY), BUSY);
    assert_eq!(run(&other, Attribute::Simple, &naca), ACA_ACTIVE);
    assert_eq!(run(&other, Attribute::Aca, &READY), BUSY);
    let (aca, step) = start(&bench.nexus, Attribute::Aca, &WRITE);
    assert!(matches!(step, Step::ReceiveDataOut { .. }));
    assert_eq!(run(&bench.nexus, Attribute::Aca, &READY), ACA_ACTIVE, "one at a time");
    drop(aca);
    assert_eq!(run(&bench.nexus, Attribute::Aca, &READY), GOOD);
    assert_eq!(other.clear_aca(&bench.unit), AcaCleared::OfAnother);
    assert_eq!(bench.nexus.clear_aca(&bench.unit), AcaCleared::Done);
    assert_eq!(bench.nexus.clear_aca(&bench.unit), AcaCleared::Nothing);
    let resumed = open.resume(&other, Input::Turn);
    assert_eq!(status_of(go_on(&other, &mut open, resumed)), GOOD);
    assert_eq!(run(&bench.nexus, Attribute::Simple, &READY), GOOD);
    assert!(!bench.unit.is_special(Special::Queued) && !bench.unit.is_special(Special::Aca));
}

#[test]
fn an_aca_command_that_fails_ends_the_condition_or_begins_a_new_one() {
    let bench = Bench::new();
    assert_eq!(run(&bench.nexus, Attribute::Simple, &WRONG_NACA), CHECK);
    assert_eq!(run(&bench.nexus, Attribute::Aca, &WRONG_NACA), CHECK);
    assert_eq!(run(&bench.nexus, Attribute::Simple, &READY), ACA_ACTIVE);
    assert_eq!(run(&bench.nexus, Attribute::Aca, &WRONG), CHECK);
    assert_eq!(run(&bench.nexus, Attribute::Simple, &READY), GOOD);
}

#[test]
fn resets_and_nexus_loss_end_an_aca_condition() {
    let bench = Bench::new();
    let other = second(&bench);
    assert_eq!(run(&bench.nexus, Attribute::Simple, &WRONG_NACA), CHECK);
    bench.unit.logical_unit_reset();
    assert_eq!(run(&bench.nexus, Attribute::Simple, &READY), CHECK, "the reset");
    assert_eq!(run(&bench.nexus, Attribute::Simple, &READY), GOOD);
    assert_eq!(run(&other, Attribute::Simple, &READY), CHECK);
    assert_eq!(run(&other, Attribute::Simple, &WRONG_NACA), CHECK);
    assert_eq!(run(&bench.nexus, Attribute::Simple, &READY), BUSY);
    other.lost();
    assert_eq!(run(&bench.nexus, Attribute::Simple, &READY), GOOD);
}

#[test]
fn with_tst_an_aca_condition_is_of_one_nexus() {
    let bench = Bench::new();
    let other = second(&bench);
    select(&bench, 0x20, 0, 0);
    assert_eq!(run(&other, Attribute::Simple, &READY), CHECK, "mode parameters changed");
    assert_eq!(run(&bench.nexus, Attribute::Simple, &WRONG_NACA), CHECK);
    assert_eq!(run(&other, Attribute::Simple, &READY), GOOD);
    assert_eq!(run(&other, Attribute::Simple, &WRONG_NACA), CHECK);
    assert_eq!(other.clear_aca(&bench.unit), AcaCleared::Done);
    assert_eq!(run(&bench.nexus, Attribute::Simple, &READY), ACA_ACTIVE);
    assert_eq!(bench.nexus.clear_aca(&bench.unit), AcaCleared::Done);
}

#[test]
fn preempt_and_abort_gets_past_the_condition_of_another_and_ends_it() {
    let bench = Bench::new();
    let other = second(&bench);
    let out = |action: u8, key: u8, action_key: u8| {
        let mut list = [0; 24];
        (list[7], list[15]) = (key, action_key);
        let cdb = [0x5f, action, 1, 0, 0, 0, 0, 0, 24, 0];
        (cdb, list)
    };
    for (nexus, key) in [(&bench.nexus, 1), (&other, 2)] {
        let (cdb, list) = out(0, 0, key);
        let done = crate::testing::run(nexus, request(Lun::Unit(0), &cdb, &list, 0), &list);
        assert_eq!(done.status, GOOD);
    }
    assert_eq!(run(&bench.nexus, Attribute::Simple, &WRONG_NACA), CHECK);
    let (cdb, list) = out(5, 2, 1);
    let done = crate::testing::run(&other, request(Lun::Unit(0), &cdb, &list, 0), &list);
    assert_eq!(done.status, GOOD);
    assert_eq!(run(&other, Attribute::Simple, &READY), GOOD);
}

#[test]
fn qerr_says_whose_tasks_are_aborted() {
    let bench = Bench::new();
    for (tst, qerr, expected) in [
        (0, 0x02, Victims::Everybody),
        (0, 0x06, Victims::OwnNexus),
        (0x20, 0x02, Victims::OwnNexus),
    ] {
        select(&bench, tst, qerr, 0);
        let (mut task, step) = start(&bench.nexus, Attribute::Simple, &WRONG);
        let Step::Abort { victims } = step else { panic!("{step:?}") };
        assert_eq!(victims, expected);
        let Step::Complete(done) = task.resume(&bench.nexus, Input::Turn) else {
            panic!("should have ended")
        };
        assert_eq!(codes(sense_of(&done)), (5, 0x21, 0));
    }
    select(&bench, 0, 0, 0);
    assert_eq!(run(&bench.nexus, Attribute::Simple, &WRONG), CHECK);
}

/// What a model of SAM-5 §8.6 knows of a task.
#[derive(Debug)]
struct Modelled {
    attribute: Attribute,
    began: bool,
    task: Task,
    step: Step,
}

fn may_begin(before: &[Modelled], after: &[Modelled], attribute: Attribute) -> bool {
    let is = |wanted: Attribute| move |task: &Modelled| task.attribute == wanted;
    let head = is(Attribute::HeadOfQueue);
    let heads = before.iter().chain(after).any(head);
    match attribute {
        Attribute::HeadOfQueue => true,
        Attribute::Ordered => before.is_empty() && !heads,
        _ => !before.iter().any(is(Attribute::Ordered)) && !heads,
    }
}

proptest! {
    /// Any tasks of two nexuses, ending in any order: each begins exactly when the standard lets
    /// it.
    #[test]
    fn tasks_begin_as_the_standard_says(
        script in proptest::collection::vec((0_u8..6, any::<prop::sample::Index>()), 1..60),
    ) {
        let bench = Bench::new();
        let other = second(&bench);
        let nexuses = [&bench.nexus, &other];
        let mut tasks: Vec<(usize, Modelled)> = Vec::new();
        for (what, index) in script {
            let attribute = match what {
                0 | 1 => Some(Attribute::Simple),
                2 => Some(Attribute::Ordered),
                3 => Some(Attribute::HeadOfQueue),
                _ => None,
            };
            if let Some(attribute) = attribute {
                let of = index.index(2);
                let (task, step) = start(nexuses[of], attribute, &WRITE);
                let began = !waits(&step);
                tasks.push((of, Modelled { attribute, began, task, step }));
            } else {
                let all = 0..tasks.len();
                let running: Vec<usize> = all.filter(|at| tasks[*at].1.began).collect();
                if !running.is_empty() {
                    let (of, mut gone) = tasks.remove(running[index.index(running.len())]);
                    let status = status_of(go_on(nexuses[of], &mut gone.task, gone.step));
                    prop_assert_eq!(status, GOOD);
                }
            }
            // Each that waits tries again.
            for (of, task) in &mut tasks {
                if !task.began {
                    task.step = task.task.resume(nexuses[*of], Input::Turn);
                    task.began = !waits(&task.step);
                }
            }
            let mut list: Vec<Modelled> = Vec::new();
            let owners: Vec<usize> = tasks.iter().map(|(of, _)| *of).collect();
            list.extend(tasks.drain(..).map(|(_, task)| task));
            for at in 0..list.len() {
                let (before, rest) = list.split_at(at);
                let (one, after) = rest.split_first().expect("there is one");
                // What has begun stays so, whatever comes after it.
                let may = may_begin(before, after, one.attribute);
                prop_assert!(one.began || !may, "task {} should have begun", at);
                if one.began && one.attribute == Attribute::Ordered {
                    prop_assert!(before.is_empty(), "an ordered task began too early");
                }
                if one.began && one.attribute == Attribute::Simple {
                    prop_assert!(!before.iter().any(|task| task.attribute == Attribute::Ordered));
                }
            }
            tasks.extend(owners.into_iter().zip(list));
        }
        drop(tasks);
        prop_assert!(!bench.unit.is_special(Special::Queued));
        prop_assert!(!bench.unit.any_nexus(|nexus_state| nexus_state.running.any()));
    }
}

/// Starts a command and waits for its turn.
fn patient(nexus: &Nexus, attribute: Attribute, cdb: &[u8]) -> (Task, Step) {
    let (mut task, mut step) = start(nexus, attribute, cdb);
    while waits(&step) {
        std::thread::yield_now();
        step = task.resume(nexus, Input::Turn);
    }
    (task, step)
}

/// Tasks of many threads, each with a nexus of its own: nothing runs beside an ordered task.
#[test]
fn an_ordered_task_is_alone_among_threads() {
    use core::sync::atomic::AtomicI32;
    use core::sync::atomic::Ordering;
    const THREADS: u64 = 4;
    const EACH: u32 = 400;
    let bench = Bench::new();
    // Simple tasks that run; far below zero while an ordered one does.
    let running = AtomicI32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (unit, running) = (&bench.unit, &running);
            scope.spawn(move || {
                let name = alloc::format!("iqn.t,i,0x{thread:012x}");
                let nexus = Nexus::new(names(&name), vec![(0, Arc::clone(unit))]);
                patient(&nexus, Attribute::Simple, &READY);
                for turn in 0..EACH {
                    let ordered = (turn + u32::try_from(thread).expect("few")) % 7 == 0;
                    let attribute = if ordered { Attribute::Ordered } else { Attribute::Simple };
                    let (mut task, step) = patient(&nexus, attribute, &WRITE);
                    let enter = if ordered { -1000 } else { 1 };
                    let before = running.fetch_add(enter, Ordering::SeqCst);
                    assert!(before >= 0 && (!ordered || before == 0), "{before} beside {enter}");
                    std::thread::yield_now();
                    let after = running.fetch_sub(enter, Ordering::SeqCst);
                    assert!(!ordered || after == enter, "{after} beside an ordered task");
                    // Ends by being dropped, as by task management, or as usual.
                    if turn % 5 != 0 {
                        assert_eq!(status_of(go_on(&nexus, &mut task, step)), GOOD);
                    }
                }
            });
        }
    });
    assert_eq!(running.load(Ordering::SeqCst), 0);
    assert!(!bench.unit.is_special(Special::Queued));
    assert!(!bench.unit.any_nexus(|nexus_state| nexus_state.running.any()));
}
