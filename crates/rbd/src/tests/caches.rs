// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an acknowledged write and a flush mean.

use super::Driver;
use super::PATIENCE;
use super::data;
use super::fails;
use super::nothing_was_misused;
use super::open;
use super::opened;
use super::write;
use crate::fake::Fake;
use std::time::Duration;
use std::time::Instant;
use store::Error;
use store::Op;
use store::Outcome;
use store::Space;
use store::Store;
use store::Submitted;

#[test]
fn what_must_last_is_flushed_unless_all_lasts() {
    let driver = Driver::new();
    let durable = Op::Write { offset: 0, data: data(1, 512), durable: true };
    let (cached, fake) = open("caches.cached");
    assert!(cached.geometry().volatile_cache);
    assert!(matches!(driver.run(&cached, &durable), Outcome::Done));
    assert_eq!(fake.done(), ["write", "flush"]);
    let (safe, fake) = open("safe.through");
    assert!(!safe.geometry().volatile_cache);
    assert!(matches!(driver.run(&safe, &durable), Outcome::Done));
    assert_eq!(fake.done(), ["write"]);
    nothing_was_misused();
}

#[test]
fn a_failed_flush_is_for_everybody_until_all_is_written_again() {
    let driver = Driver::new();
    let durable = |offset| Op::Write { offset, data: data(3, 8192), durable: true };
    let (store, fake) = open("caches.lost");
    let done = |op: &Op| assert!(matches!(driver.run(&store, op), Outcome::Done), "{op:?}");
    done(&write(8192, data(1, 4096)));
    done(&write(65_536, data(1, 4096)));
    fake.fail_flush(5);
    fails(&driver.run(&store, &Op::Flush), Error::Write);
    // The library has told it, and knows nothing of it any more.
    fails(&driver.run(&store, &Op::Flush), Error::Write);
    fails(&driver.run(&store, &durable(8192)), Error::Write);
    assert!(matches!(driver.run(&store, &Op::Read { offset: 0, length: 512 }), Outcome::Data(_)));
    done(&write(65_536, data(2, 4096)));
    done(&Op::Flush);
    done(&durable(0));
    // Zeroes count as written, and a second failure as another one.
    done(&write(0, data(1, 65_536)));
    fake.fail_flush(28);
    fails(&driver.run(&store, &Op::Flush), Error::Space);
    done(&Op::Clear { offset: 0, length: 65_536, leave: Space::Mapped });
    fake.fail_flush(5);
    fails(&driver.run(&store, &Op::Flush), Error::Write);
    fails(&driver.run(&store, &Op::Flush), Error::Write);
    nothing_was_misused();
}

/// The end of the image goes well; what a flush could not write is lost all the same.
#[test]
fn an_end_tells_what_a_flush_has_lost_unless_that_was_written_again() {
    let driver = Driver::new();
    for (name, is_repaired) in [("caches.end-lost", false), ("caches.end-whole", true)] {
        let (store, fake) = open(name);
        let done = |op: &Op| assert!(matches!(driver.run(&store, op), Outcome::Done), "{op:?}");
        done(&write(8192, data(1, 4096)));
        fake.fail_flush(5);
        fails(&driver.run(&store, &Op::Flush), Error::Write);
        if is_repaired {
            done(&write(8192, data(1, 4096)));
            done(&Op::Flush);
        }
        let expected = if is_repaired { Ok(()) } else { Err(Error::Write) };
        assert_eq!((store.finish(), store.finish()), (expected, expected), "{name}");
        assert!(!fake.is_open(), "{name}");
    }
    nothing_was_misused();
}

#[test]
fn who_was_shut_out_by_the_cluster_flushes_nothing_any_more() {
    let driver = Driver::new();
    for name in ["caches.shut-out", "safe.shut-out"] {
        let (store, fake) = open(name);
        let outcome = driver.run(&store, &write(0, data(1, 4096)));
        assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
        fake.fail_flush(108);
        fails(&driver.run(&store, &Op::Flush), Error::Internal);
        fails(&driver.run(&store, &Op::Flush), Error::Write);
        // The library keeps such a write for ever.
        let begun = fake.done().len();
        fails(&driver.run(&store, &write(0, data(1, 4096))), Error::Internal);
        fails(&driver.run(&store, &Op::Read { offset: 0, length: 512 }), Error::Internal);
        fails(&driver.run(&store, &Op::Flush), Error::Write);
        assert_eq!(fake.done().len(), begun, "the library is not asked");
        assert_eq!(store.may_have_lost(), name == "caches.shut-out");
        drop(store);
        // Whoever opens it again knows nothing that could be lost.
        let (store, _) = open(name);
        assert!(matches!(driver.run(&store, &Op::Flush), Outcome::Done));
    }
    nothing_was_misused();
}

#[test]
fn whoever_hears_first_that_the_cluster_has_shut_us_out_tells_all() {
    let driver = Driver::new();
    let status = Op::ProvisioningStatus { offset: 0, length: 4096 };
    for name in ["resize", "snapshot", "status"] {
        let (store, fake) = open(&format!("blocked.{name}"));
        match name {
            "resize" => assert!(matches!(store.resize_behind(2 << 20, &|| true), Some(Err(_)))),
            "snapshot" => {
                assert!(matches!(store.snapshot_behind("monday", &|| true), Some(Err(_))))
            }
            _ => fails(&driver.run(&store, &status), Error::Internal),
        }
        fails(&driver.run(&store, &write(0, data(1, 512))), Error::Internal);
        assert!(fake.done().is_empty(), "{name}");
    }
    // What nobody writes to has lost nothing, though the options of its image are for a cache.
    let snapshot = opened("rbd:pool/blocked.read@monday").expect("opens");
    fails(&driver.run(&snapshot, &status), Error::Internal);
    assert!(!snapshot.may_have_lost());
    nothing_was_misused();
}

/// Hosts may be quiet, and people ask: what they are told is no number of an error.
#[test]
fn who_was_shut_out_says_so_to_whoever_asks() {
    let driver = Driver::new();
    let (store, fake) = open("caches.quiet");
    assert_eq!(store.elsewhere().map(|told| told.shut_out), Some(false));
    assert_eq!(store.look_behind(), Some(Ok(())));
    assert!(matches!(driver.run(&store, &write(0, data(1, 4096))), Outcome::Done));
    fake.set_fate("blocked");
    let begin = Instant::now();
    while store.elsewhere().map(|told| told.shut_out) != Some(true) {
        assert!(begin.elapsed() < PATIENCE, "nobody looks");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(store.may_have_lost());
    let said = [
        store.look_behind().expect("it can"),
        store.resize_behind(2 << 20, &|| true).expect("it can"),
        store.snapshot_behind("monday", &|| true).expect("it can").map(|_| ()),
        open("blocked.first").0.resize_behind(2 << 20, &|| true).expect("it can"),
    ];
    for said in said {
        let said = said.expect_err("shut out");
        assert!(said.contains("shut this client out") && said.contains("lun add"), "{said}");
        assert!(!said.contains("os error"), "{said}");
    }
    assert_eq!(store.finish(), Err(Error::Write), "what was acknowledged is lost");
    nothing_was_misused();
}

#[test]
fn who_asks_a_silent_cluster_for_a_size_hears_that_it_is_silent() {
    let (store, fake) = open("never.size");
    let driver = Driver::new();
    let Submitted::Io(io) = store.submit(&Op::Flush) else { panic!("done") };
    driver.begin(&io, 1);
    for _ in 0..2 {
        let said = store.look_behind().expect("it can").expect_err("nobody answers");
        assert!(said.contains("does not answer"), "{said}");
    }
    fake.end_all();
    let begin = Instant::now();
    while store.look_behind() != Some(Ok(())) {
        assert!(begin.elapsed() < PATIENCE, "it answers again");
    }
    nothing_was_misused();
}

#[test]
fn flushes_go_one_after_the_other_and_those_that_wait_go_together() {
    let (store, fake) = open("never.flushes");
    let driver = Driver::new();
    let begin = |ticket| {
        let Submitted::Io(io) = store.submit(&Op::Flush) else { panic!("done") };
        driver.begin(&io, ticket);
    };
    (0..4).for_each(begin);
    assert_eq!((fake.held(), fake.done().len()), (1, 1));
    let ended = || driver.answers.try_iter().map(|(ticket, _)| ticket).collect::<Vec<_>>();
    assert!(ended().is_empty());
    fake.end_all();
    assert_eq!(ended(), [0]);
    assert_eq!((fake.held(), fake.done().len()), (1, 2), "one for the three others");
    begin(4);
    fake.end_all();
    assert_eq!(ended(), [1, 2, 3]);
    fake.end_all();
    assert_eq!(ended(), [4]);
    nothing_was_misused();
}

#[test]
fn a_cache_that_forgets_what_it_could_not_write_is_not_used() {
    for (image, volatile) in
        [("well.policy", false), ("safe.policy", false), ("caches.policy", true)]
    {
        assert_eq!(open(image).0.geometry().volatile_cache, volatile, "{image}");
    }
    let error = opened("rbd:pool/insists").expect_err("it would lose what is flushed").to_string();
    assert!(error.contains("writearound") && error.contains("rbd config image"), "{error}");
    assert!(!Fake::of("insists").is_open());
    let error = opened("rbd:pool/lends").expect_err("some writes would never end").to_string();
    assert!(error.contains("rbd config image rm POOL/IMAGE rbd_disable_zero"), "{error}");
    assert!(!Fake::of("lends").is_open());
    nothing_was_misused();
}
