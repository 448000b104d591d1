// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ring between threads of this machine; `tests/ring_model.rs` goes through all orders.

use std::sync::Arc;
use std::thread;

use crate::ring::ring;
use crate::waker::Bell;
use crate::waker::Reason;

#[test]
fn elements_keep_their_order_and_a_full_ring_gives_back() {
    let (mut producer, mut consumer) = ring(3);
    for round in 0..10 {
        for value in 0..4 {
            producer.push(round * 4 + value).unwrap();
        }
        assert!(producer.is_full());
        assert_eq!(producer.push(99), Err(99));
        for value in 0..4 {
            assert_eq!(consumer.pop(), Some(round * 4 + value));
        }
        assert_eq!(consumer.pop(), None);
    }
}

#[test]
fn what_nobody_took_is_dropped_once() {
    let counted = Arc::new(());
    let (mut producer, mut consumer) = ring(8);
    for _ in 0..5 {
        producer.push(Arc::clone(&counted)).unwrap();
    }
    drop(consumer.pop());
    assert_eq!(Arc::strong_count(&counted), 5);
    assert!(!consumer.is_closed());
    drop(producer);
    assert!(consumer.is_closed() && !consumer.is_empty());
    drop(consumer);
    assert_eq!(Arc::strong_count(&counted), 1);
}

#[test]
fn a_sleeper_is_woken_once_and_for_what_it_wants() {
    let (mut producer, mut consumer) = ring(8);
    producer.push(1).unwrap();
    assert!(!producer.must_ring());
    assert!(!consumer.sleep(1));
    assert!(consumer.sleep(3));
    assert!(!producer.must_ring());
    producer.push(2).unwrap();
    assert!(!producer.must_ring());
    producer.push(3).unwrap();
    assert!(producer.must_ring());
    assert!(!producer.must_ring());
    consumer.awake();
    drop(producer);
    assert!(!consumer.sleep(9));
}

/// Two threads, a small ring, and a reader that sleeps whenever it finds nothing.
#[test]
fn nothing_is_lost_between_threads_and_no_sleeper_forgotten() {
    const COUNT: u64 = 100_000;
    let (mut producer, mut consumer) = ring(16);
    let bell = Bell::new().unwrap();
    let waker = Arc::clone(&bell);
    let writer = thread::spawn(move || {
        for value in 0..COUNT {
            let mut value = Box::new(value);
            while let Err(back) = producer.push(value) {
                value = back;
                thread::yield_now();
            }
            if producer.must_ring() {
                waker.ring(Reason::Ring);
            }
        }
    });
    for expected in 0..COUNT {
        let value = loop {
            if let Some(value) = consumer.pop() {
                break value;
            }
            bell.answer();
            if bell.fall_asleep() {
                if consumer.sleep(1) {
                    bell.sleep(None);
                }
                consumer.awake();
                bell.wake_up();
            }
        };
        assert_eq!(*value, expected);
    }
    writer.join().unwrap();
    assert_eq!(consumer.pop(), None);
}
