// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;

fn model() -> Model {
    Model::new(1, 8, 512, Instant(0))
}

fn found(model: &mut Model, version: Version, asked: u64, now: u64) -> bool {
    let content = model.content(2, 1, version);
    model.check(2, &content, Instant(asked), Instant(now)).is_ok()
}

fn write(model: &mut Model, version: Version, at: u64, durable: bool) {
    model.begin(2, 1, version, Instant(at));
    model.acknowledge(2, 1, version, durable, Instant(at + 5));
}

#[test]
fn an_acknowledged_write_hides_what_was_before() {
    let mut model = model();
    model.begin(2, 1, 1, Instant(10));
    assert!(found(&mut model, 0, 11, 12));
    assert!(found(&mut model, 1, 11, 12));
    model.acknowledge(2, 1, 1, false, Instant(20));
    assert!(found(&mut model, 0, 15, 30), "it was asked before the end of the write");
    assert!(!found(&mut model, 0, 21, 30));
    assert!(found(&mut model, 1, 21, 30));
    assert!(!found(&mut model, 2, 21, 30), "nobody wrote that");
}

#[test]
fn foreign_and_torn_blocks_are_found() {
    let mut model = model();
    write(&mut model, 1, 10, false);
    let mut content = model.content(2, 1, 1);
    assert!(model.check(3, &content, Instant(20), Instant(21)).is_err(), "of another block");
    content[511] ^= 1;
    assert!(model.check(2, &content, Instant(20), Instant(21)).is_err());
}

#[test]
fn power_brings_back_only_what_was_not_flushed() {
    let mut model = model();
    write(&mut model, 1, 10, false);
    model.flushed(Instant(20));
    write(&mut model, 2, 30, false);
    write(&mut model, 3, 40, false);
    model.power_lost(Instant(50));
    assert!(!found(&mut model, 0, 60, 61));
    assert!(found(&mut model, 2, 60, 61));
    assert!(!found(&mut model, 3, 62, 63), "it was seen to be the other one");
    model.power_lost(Instant(70));
    assert!(found(&mut model, 2, 80, 81), "a second loss of power takes no more");
}

#[test]
fn what_a_killed_process_left_behind_is_not_stable_because_it_was_read() {
    let mut model = model();
    write(&mut model, 1, 10, true);
    write(&mut model, 2, 20, false);
    model.pages_lost(Instant(30));
    assert!(found(&mut model, 2, 40, 41), "the system had it still");
    assert!(!found(&mut model, 1, 42, 43));
    model.power_lost(Instant(50));
    assert!(found(&mut model, 1, 60, 61), "nobody has flushed the other one");
}

#[test]
fn what_is_flushed_after_a_process_was_killed_stays() {
    let mut model = model();
    write(&mut model, 1, 10, true);
    write(&mut model, 2, 20, false);
    model.pages_lost(Instant(30));
    assert!(found(&mut model, 1, 40, 41), "writing it back had failed");
    model.flushed(Instant(42));
    model.power_lost(Instant(50));
    assert!(!found(&mut model, 2, 60, 61));
    assert!(found(&mut model, 1, 62, 63));
}

#[test]
fn a_flush_covers_only_what_was_acknowledged_before_it() {
    let mut model = model();
    model.begin(2, 1, 1, Instant(10));
    model.acknowledge(2, 1, 1, false, Instant(30));
    model.flushed(Instant(20));
    model.power_lost(Instant(50));
    assert!(found(&mut model, 0, 60, 61));
}

#[test]
fn a_durable_write_stays() {
    let mut model = model();
    write(&mut model, 1, 10, false);
    write(&mut model, 2, 20, true);
    model.power_lost(Instant(50));
    assert!(!found(&mut model, 1, 60, 61));
    assert!(found(&mut model, 2, 60, 61));
}

#[test]
fn a_doubtful_write_may_come_until_it_is_settled() {
    let mut model = model();
    model.begin(2, 1, 1, Instant(10));
    model.doubt(2, 1);
    assert!(!model.is_free(2, 1));
    assert!(found(&mut model, 0, 20, 21));
    assert!(found(&mut model, 1, 30, 31));
    model.exorcise(2, 1, Instant(40));
    assert!(model.is_free(2, 1));
    assert!(found(&mut model, 1, 50, 51));
    assert!(!found(&mut model, 0, 60, 61), "the other one was seen when all was settled");
}

#[test]
fn blocks_of_one_content_look_alike_wherever_they_are() {
    let mut model = Model::new(1, 4, 4096, Instant(0));
    let version = ALIKE | 7;
    model.begin(1, 2, version, Instant(10));
    model.acknowledge(1, 2, version, false, Instant(15));
    let one = model.content(0, 1, version);
    let both = [one.clone(), one.clone()].concat();
    assert!(model.check(1, &both, Instant(20), Instant(21)).is_ok());
    assert!(model.check(3, &one, Instant(20), Instant(21)).is_err(), "nobody wrote it there");
}

#[test]
fn what_a_block_has_is_certain_only_if_nothing_else_can_be_there() {
    let mut model = model();
    assert_eq!(model.certain(2), Some(0));
    model.begin(2, 1, 1, Instant(10));
    assert_eq!(model.certain(2), None, "a write is under way");
    assert!(model.was(2, 0, 1, (Instant(10), Instant(12))));
    model.retract(2, 1, 1);
    assert_eq!(model.certain(2), Some(0), "it never was");
    model.begin(2, 1, 0, Instant(20));
    model.retract(2, 1, 0);
    assert_eq!(model.certain(2), Some(0), "the older zeroes stay");
    write(&mut model, 2, 30, false);
    model.power_lost(Instant(50));
    assert_eq!(model.certain(2), None, "either of two");
    assert!(!model.was(2, 2, 3, (Instant(40), Instant(60))));
}

#[test]
fn zeroes_that_a_loss_of_power_brought_are_not_those_that_were_refused() {
    let mut model = Model::new(1, 1, SECTOR, Instant(0));
    model.exchange(Instant(10));
    model.power_lost(Instant(20));
    model.begin(0, 1, 0, Instant(30));
    model.refused(0, 1, 0);
    assert!(model.check(0, &[0; SECTOR], Instant(40), Instant(50)).is_ok());
}

#[test]
fn what_is_written_behind_an_end_that_nobody_knows_may_be_dropped() {
    let mut model = model();
    write(&mut model, 1, 10, false);
    model.cut(2, Instant(20));
    model.set_end(2);
    write(&mut model, 2, 30, true);
    assert!(found(&mut model, 0, 40, 41), "the client has cut it off");
    model.set_end(8);
    write(&mut model, 3, 50, false);
    assert!(!found(&mut model, 0, 60, 61), "all of it is there again");
    assert!(found(&mut model, 3, 62, 63));
}

#[test]
fn zeroes_behind_an_end_that_nobody_knows_stay_for_a_token() {
    let mut model = model();
    model.cut(2, Instant(20));
    model.set_end(2);
    write(&mut model, 1, 30, false);
    model.cut(2, Instant(50));
    model.set_end(8);
    let origins = model.origins(2, 1, (Instant(40), Instant(60)));
    let Origins::Among(origins) = &origins[0] else { panic!("{origins:?}") };
    assert!(origins.contains(&model.home(2, 0)), "{origins:?}");
    assert!(!origins.contains(&model.home(2, 1)), "it is cut off at the latest by now");
}

#[test]
fn work_that_was_left_behind_may_reach_what_it_was_for_when_that_is_there_again() {
    let mut model = model();
    model.begin(2, 2, 1, Instant(10));
    model.doubt(2, 2);
    model.exorcise(2, 2, Instant(12));
    model.cut_beside(2, Instant(20), std::slice::from_ref(&(2..3)));
    assert!(found(&mut model, 1, 30, 31), "it is for this one");
    let content = model.content(3, 1, 1);
    assert!(model.check(3, &content, Instant(30), Instant(31)).is_err(), "not for that one");
}
