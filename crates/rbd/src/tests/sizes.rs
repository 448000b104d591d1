// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images that get another size.

use super::Driver;
use super::PATIENCE;
use super::data;
use super::fails;
use super::nothing_was_misused;
use super::open;
use super::whole::compare;
use super::write;
use crate::disk::Rbd;
use std::time::Duration;
use std::time::Instant;
use store::Error;
use store::IoResult;
use store::Op;
use store::Outcome;
use store::Space;
use store::Store;
use store::Submitted;

#[test]
fn another_size_is_heard_and_a_watch_that_is_late_harms_nobody() {
    let (store, fake) = open("well.resized");
    assert_eq!(store.bytes_behind(), None);
    fake.resize(2 << 20);
    hears_of(&store, 2 << 20);
    assert_eq!(store.geometry().bytes, 1 << 20, "until somebody has told the hosts");
    assert!(store.set_bytes(2 << 20));
    assert_eq!(store.geometry().bytes, 2 << 20);
    drop(store);
    fake.resize(1 << 20);
    nothing_was_misused();
}

#[track_caller]
fn hears_of(store: &Rbd, bytes: u64) {
    let begin = Instant::now();
    while store.bytes_behind() != Some(bytes) {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn nothing_is_written_behind_the_end_that_somebody_else_has_moved() {
    let (store, fake) = open("well.shrunk");
    let driver = Driver::new();
    fake.resize(512 << 10);
    let end = 512 << 10;
    hears_of(&store, end);
    let leave = Space::Deallocated;
    for op in [
        write(end - 4096, data(7, 8192)),
        write(end, data(7, 4096)),
        Op::Read { offset: end - 4096, length: 8192 },
        Op::Clear { offset: end - 4096, length: 8192, leave },
        Op::WriteSame { offset: end - 4096, length: 8192, data: data(7, 512) },
        compare(end, data(0, 512), data(7, 512)),
        Op::ProvisioningStatus { offset: end, length: 4096 },
    ] {
        fails(&driver.run(&store, &op), Error::Range);
    }
    assert!(fake.done().is_empty(), "{:?}", fake.done());
    let outcome = driver.run(&store, &write(end - 4096, data(7, 4096)));
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    nothing_was_misused();
}

#[test]
fn who_wrote_when_the_end_moved_is_told() {
    let (store, fake) = open("never.shrunk");
    let end = 512 << 10;
    for op in [
        write(end - 4096, data(7, 8192)),
        Op::Clear { offset: end - 4096, length: 8192, leave: Space::Deallocated },
        Op::WriteSame { offset: end - 4096, length: 8192, data: data(7, 512) },
    ] {
        let Submitted::Io(io) = store.submit(&op) else { panic!("{op:?}") };
        let driver = Driver::new();
        driver.begin(&io, 1);
        fake.resize(512 << 10);
        hears_of(&store, end);
        fake.end_all();
        let (_, outcome) = driver.answers.recv_timeout(PATIENCE).expect("an end");
        let Submitted::Done(outcome) = store.complete(&op, &io, IoResult::Foreign(outcome)) else {
            panic!("goes on behind the end: {op:?}");
        };
        fails(&outcome, Error::Range);
        fake.resize(1 << 20);
        hears_of(&store, 1 << 20);
    }
    nothing_was_misused();
}

#[test]
fn an_image_gets_another_size_and_snapshots_of_its_own_kind() {
    let (store, fake) = open("other.orders");
    assert_eq!(store.resize_behind(3 << 20, &|| true), Some(Ok(())));
    assert_eq!((fake.bytes().len(), store.bytes_behind()), (3 << 20, Some(3 << 20)));
    assert_eq!(store.geometry().bytes, 1 << 20, "until somebody has told the hosts");
    let made = store.snapshot_behind("monday", &|| true).expect("it can");
    assert_eq!(made.as_deref(), Ok("pool/other.orders@monday"));
    assert_eq!(fake.done(), ["snapshot"]);
    for (name, said) in [
        ("there", "cannot make the snapshot: File exists"),
        ("a/b", "no name for a snapshot"),
        ("a@b", "no name for a snapshot"),
        ("", "no name for a snapshot"),
    ] {
        let error = store.snapshot_behind(name, &|| true).expect("it can").expect_err(name);
        assert!(error.starts_with("rbd:pool/other.orders: ") && error.contains(said), "{error}");
    }
    let (fixed, _) = open("forbidden.orders");
    let error = fixed.resize_behind(512, &|| true).expect("it can").expect_err("not allowed");
    assert!(error.contains("cannot give the image another size: Operation not"), "{error}");
    nothing_was_misused();
}
