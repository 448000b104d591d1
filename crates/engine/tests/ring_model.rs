// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ring in loom's model of memory: every order of the steps of two threads, and every value
//! that a processor may give them to see.

#![allow(dead_code)] // the model does not need all of the file
#![allow(clippy::unwrap_used)] // a test fails by panicking

#[path = "../src/ring.rs"]
mod ring;

mod sync {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::AtomicBool;
    pub(crate) use loom::sync::atomic::AtomicUsize;
    pub(crate) use loom::sync::atomic::Ordering;
    pub(crate) use loom::sync::atomic::fence;
}

use loom::sync::Arc;
use loom::sync::Notify;
use loom::thread;

use ring::ring;

/// More switches between the threads than a mistake of two threads needs.
const SWITCHES_MAX: usize = 3;

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(SWITCHES_MAX);
    builder.check(check);
}

#[test]
fn elements_arrive_whole_and_in_order() {
    model(|| {
        let (mut producer, mut consumer) = ring(2);
        let writer = thread::spawn(move || {
            for value in 1..=3 {
                let mut value = Box::new(value);
                while let Err(back) = producer.push(value) {
                    value = back;
                    thread::yield_now();
                }
            }
        });
        let mut seen = 0;
        while seen < 3 {
            match consumer.pop() {
                Some(value) => {
                    seen += 1;
                    assert_eq!(*value, seen);
                }
                None => thread::yield_now(),
            }
        }
        assert!(consumer.pop().is_none());
        writer.join().unwrap();
    });
}

#[test]
fn what_is_left_is_dropped_by_who_goes_last() {
    model(|| {
        let (mut producer, mut consumer) = ring(2);
        let counted = Arc::new(());
        let (first, second) = (Arc::clone(&counted), Arc::clone(&counted));
        let writer = thread::spawn(move || {
            let _ = producer.push(first);
            let _ = producer.push(second);
        });
        drop(consumer.pop());
        if consumer.is_closed() {
            // Who has gone wakes nobody.
            assert!(!consumer.sleep(3));
        }
        drop(consumer);
        writer.join().unwrap();
        assert_eq!(Arc::strong_count(&counted), 1);
    });
}

/// A wake-up that were lost would leave the reader asleep for ever, which loom reports.
fn sleeper(worth_waking: usize) {
    model(move || {
        let (mut producer, mut consumer) = ring(2);
        let bell = Arc::new(Notify::new());
        let ringer = Arc::clone(&bell);
        let writer = thread::spawn(move || {
            for value in 1..=2 {
                assert!(producer.push(value).is_ok());
                if producer.must_ring() {
                    ringer.notify();
                }
            }
        });
        let mut seen = 0;
        while seen < 2 {
            if consumer.sleep(worth_waking.min(2 - seen)) {
                bell.wait();
                consumer.awake();
            }
            while let Some(value) = consumer.pop() {
                seen += 1;
                assert_eq!(value, seen);
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_sleeper_is_never_forgotten() {
    sleeper(1);
}

#[test]
fn a_sleeper_that_waits_for_two_is_never_forgotten() {
    sleeper(2);
}
