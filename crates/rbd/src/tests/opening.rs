// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images that are opened, made and let go.

use super::Driver;
use super::PATIENCE;
use super::data;
use super::fails;
use super::gone;
use super::nothing_was_misused;
use super::open;
use super::opened;
use super::spec;
use super::write;
use crate::claims::Claim;
use crate::claims::Claimed;
use crate::claims::Owner;
use crate::disk::Rbd;
use crate::disk::Seen;
use crate::disk::Use;
use crate::fake;
use crate::fake::Fake;
use crate::limits::CLOSE_MAX;
use crate::limits::CLOSE_WELL_MAX;
use crate::limits::LINGER_MAX;
use crate::limits::LOOK_MAX;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;
use store::Error;
use store::Io;
use store::Op;
use store::Outcome;
use store::Store;
use store::Submitted;
use store::stripe::Stripe;

#[test]
fn an_image_that_is_let_go_is_closed_whoever_still_has_the_store() {
    let (store, fake) = open("late.finished");
    let driver = Driver::new();
    let write = write(0, data(1, 4096));
    let Submitted::Io(io) = store.submit(&write) else { panic!("done") };
    driver.begin(&io, 1);
    assert_eq!(store.finish(), Ok(()));
    assert!(!fake.is_open());
    let (_, outcome) = driver.answers.recv_timeout(PATIENCE).expect("an end");
    assert!(matches!(outcome, Outcome::Done), "it waits for what is under way: {outcome:?}");
    fails(&driver.run(&store, &Op::Flush), Error::Internal);
    assert_eq!(store.finish(), Ok(()), "again");
    let (stuck, fake) = open("never.finished");
    let Submitted::Io(io) = stuck.submit(&Op::Flush) else { panic!("done") };
    driver.begin(&io, 2);
    let begin = Instant::now();
    assert_eq!(stuck.finish(), Err(Error::Silent), "nothing that was acknowledged is lost");
    assert!(fake.is_open(), "the library has it still");
    drop(stuck);
    assert!(begin.elapsed() < 2 * CLOSE_WELL_MAX, "it is waited for once");
    fake.end_all();
    nothing_was_misused();
}

/// Whoever has several of them waits for them once.
#[test]
fn images_that_do_not_answer_are_let_go_side_by_side() {
    let driver = Driver::new();
    let names = ["never.part-a", "never.part-b", "never.part-c", "never.part-d"];
    let opened: Vec<_> = names.map(open).into();
    let (stores, fakes): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
    for (store, number) in stores.iter().zip(1..) {
        let Submitted::Io(io) = store.submit(&Op::Flush) else { panic!("done") };
        driver.begin(&io, number);
    }
    let stores = stores.into_iter().map(|store| Arc::new(store) as Arc<dyn Store>).collect();
    let stripe = Stripe::new(4096, stores).expect("they fit");
    let begin = Instant::now();
    assert_eq!(stripe.finish(), Err(Error::Silent));
    drop(stripe);
    assert!(begin.elapsed() < 2 * CLOSE_WELL_MAX, "{:?}", begin.elapsed());
    fakes.iter().for_each(|fake| fake.end_all());
    nothing_was_misused();
}

/// The same of what is asked of them.
#[test]
fn images_that_do_not_answer_are_looked_at_side_by_side() {
    let names = ["well.look-a", "well.look-b", "well.look-c", "well.look-d"];
    let (stores, fakes): (Vec<_>, Vec<_>) = names.map(open).into_iter().unzip();
    let stores = stores.into_iter().map(|store| Arc::new(store) as Arc<dyn Store>).collect();
    let stripe = Stripe::new(4096, stores).expect("they fit");
    assert_eq!(stripe.look_behind(), Some(Ok(())));
    let told = stripe.elsewhere().expect("the cluster");
    assert_eq!((told.who, told.cache, told.lost), ("cluster", "none", None));
    let gates: Vec<_> = fakes.iter().map(|fake| fake.hold_orders()).collect();
    for store in 0..fakes.len() as u64 {
        let status = Op::ProvisioningStatus { offset: store * 4096, length: 512 };
        let Submitted::Io(Io::Part(part)) = stripe.submit(&status) else { panic!("done") };
        Driver::new().begin(part.io(), store);
    }
    let begin = Instant::now();
    let said = stripe.look_behind().expect("they are asked").expect_err("they hang");
    assert!(said.contains("pool/well.look-a: the cluster does not answer"), "{said}");
    assert!(begin.elapsed() < 2 * LOOK_MAX, "{:?}", begin.elapsed());
    drop(gates);
    drop(stripe);
    fakes.iter().for_each(|fake| gone(fake));
    nothing_was_misused();
}

/// That may be a reactor, which has others to serve.
#[test]
fn who_has_the_last_of_an_image_does_not_wait_for_its_end() {
    let (store, fake) = open("never.last");
    let driver = Driver::new();
    let Submitted::Io(io) = store.submit(&write(0, data(1, 4096))) else { panic!("done") };
    driver.begin(&io, 1);
    drop(store);
    let begin = Instant::now();
    drop(io);
    assert!(begin.elapsed() < CLOSE_MAX / 2);
    fake.end_all();
    gone(&fake);
    nothing_was_misused();
}

#[test]
fn an_image_says_what_it_is() {
    let (store, _) = open("well.facts");
    let geometry = store.geometry();
    assert_eq!((geometry.bytes, geometry.discard_granularity), (fake::BYTES, Some(65_536)));
    assert_eq!(store.optimal_io(), Some(131_072), "a row of objects");
    assert!(store.identity().starts_with("f51d/3//0x"), "{}", store.identity());
    let again = opened("rbd:pool/well.facts").expect_err("served already").to_string();
    assert!(again.contains("given twice"), "{again}");
    let word = "rbd:pool/well.facts@monday";
    let snapshot = opened(word).expect("another disk");
    let again = opened(word).expect_err("served already").to_string();
    assert!(again.contains("well.facts@monday is given twice"), "{again}");
    drop(snapshot);
    assert!(opened(word).is_ok(), "let go");
    let word = "rbd:pool/well.facts";
    let looked_at = Rbd::open_by(&fake::API, &spec(word), Use::Look).expect("looking is no harm");
    let made_of = Seen::of(&looked_at).made_of.expect("it is there");
    assert_eq!(made_of.object_bytes, fake::OBJECT);
    assert_eq!(made_of.features, ["layering", "exclusive-lock", "bit 40"]);
    assert_eq!(made_of.cache, "none");
}

/// What the old one has not written yet would come behind what the new one writes.
#[test]
fn an_image_that_is_not_closed_is_not_served_again() {
    let word = "rbd:pool/well.closes.bare";
    let (store, fake) = open("well.closes.bare");
    let gate = fake.hold_orders();
    assert_eq!(store.finish(), Err(Error::Silent));
    drop(store);
    let said = opened(word).expect_err("not closed").to_string();
    assert!(said.contains("is not closed yet") && said.contains("try: again later"), "{said}");
    drop(gate);
    drop(opened(word).expect("it waits until that is over"));
    // One that cannot be closed is not served again at all.
    let (store, fake) = open("never.closes");
    let driver = Driver::new();
    let Submitted::Io(io) = store.submit(&write(0, data(1, 512))) else { panic!("done") };
    driver.begin(&io, 1);
    let identity = store.identity().to_owned();
    drop((io, store));
    std::thread::sleep(2 * LINGER_MAX);
    let claim = Claim::of(&identity, Claimed::new(String::new(), false), Duration::ZERO);
    assert_eq!(claim.err(), Some(Owner::Closing));
    fake.end_all();
    nothing_was_misused();
}

#[test]
fn an_image_that_is_missing_is_made_if_that_is_asked_for() {
    let (store, made) = (opened("rbd:pool/missing.new,create,size=4M").expect("made"), true);
    assert_eq!((store.geometry().bytes, store.was_made()), (4 << 20, made));
    drop(store);
    let again = opened("rbd:pool/missing.new,create,size=8M").expect("there");
    assert_eq!((again.geometry().bytes, again.was_made()), (4 << 20, false));
    let empty = opened("rbd:pool/missing.small,create,size=4M").expect("made");
    drop(empty);
    Fake::of("missing.small").resize(100);
    let error = opened("rbd:pool/missing.small").expect_err("no disk").to_string();
    assert!(error.contains("100 bytes is no size"), "{error}");
}

#[test]
fn what_does_not_open_says_why() {
    let name = format!("lunwire-{}-refused", std::process::id());
    let keyring = std::env::temp_dir().join(name);
    std::fs::write(&keyring, "[client.admin]\nkey = AQ==\n").expect("written");
    let refused = format!("rbd:pool/disk,keyring={}", keyring.display());
    for (word, said) in [
        ("rbd:missing/disk", "rbd:missing/disk: cannot use the pool: No such file"),
        ("rbd:forbidden/disk", "cannot use the pool: Operation not permitted"),
        ("rbd:pool/missing.disk", "cannot open the image: No such file"),
        ("rbd:pool/missing.disk", "there is no such image; try: rbd ls"),
        ("rbd:pool/missing.disk@s", "there is no such image; try: rbd ls"),
        ("rbd:pool/missing/missing.disk", "there is no such namespace; try: rbd namespace ls"),
        ("rbd:pool/missing/missing.disk,create,size=1M", "there is no such namespace"),
        ("rbd:pool/apart/missing.disk", "there is no such image"),
        ("rbd:pool/well.there@missing", "the image is there, and has no such snapshot; try: rbd"),
        ("rbd:pool/disk,conf=missing.conf", "(missing.conf); try: put that of the cluster there"),
        ("rbd:pool/disk,keyring=missing.key", "cannot read missing.key: No such file"),
        (refused.as_str(), "cannot set keyring: Invalid argument"),
        ("rbd:pool/disk,id=nobody", "cannot set up librados: Invalid argument"),
        ("rbd:pool/disk,id=stranger", "no file has the key of client.stranger"),
        ("rbd:pool/disk,id=stranger-with-key", "the key is not that of client.stranger-with-key"),
    ] {
        let error = opened(word).expect_err(word).to_string();
        assert!(error.contains(said), "{error}");
    }
    std::fs::remove_file(keyring).expect("removed");
    assert!(!Fake::of("well.there").is_open(), "looked at, and closed again");
    nothing_was_misused();
}
