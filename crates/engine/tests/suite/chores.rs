// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chores: what takes its time takes none of the port's.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use engine::Chore;
use engine::Config;
use engine::Event;
use engine::Port;
use engine::Token;
use engine::Work;

use crate::rig::next;

/// Waits until a test has sent its result.
#[derive(Debug)]
struct Errand {
    result: mpsc::Receiver<Result<(), i32>>,
    course: Arc<Course>,
}

#[derive(Debug, Default)]
struct Course {
    begun: AtomicBool,
    done: AtomicBool,
}

impl Chore for Errand {
    fn run(&mut self) -> Result<(), i32> {
        self.course.begun.store(true, Ordering::SeqCst);
        let result = self.result.recv().unwrap_or(Err(1));
        self.course.done.store(true, Ordering::SeqCst);
        result
    }
}

fn errand() -> (mpsc::Sender<Result<(), i32>>, Arc<Course>, Work) {
    let (sender, result) = mpsc::channel();
    let course = Arc::new(Course::default());
    let chore = Box::new(Errand { result, course: Arc::clone(&course) });
    (sender, course, Work::Chore { chore })
}

pub(crate) fn they_run_beside_the_port<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let (one, _, first) = errand();
    let (other, _, second) = errand();
    port.submit(Token(1), first);
    port.submit(Token(2), second);
    // The port goes on meanwhile.
    port.wait(Some(port.now() + Duration::from_millis(20)));
    assert!(port.next_event().is_none());
    other.send(Err(28)).unwrap();
    assert!(matches!(next(&mut port), (Token(2), Event::Ran { result: Err(28) })));
    one.send(Ok(())).unwrap();
    assert!(matches!(next(&mut port), (Token(1), Event::Ran { result: Ok(()) })));
    // More than there are threads.
    let errands: Vec<_> = (0..20).map(|_| errand()).collect();
    let mut senders = Vec::new();
    for (number, (sender, _, work)) in (0..).zip(errands) {
        port.submit(Token(number), work);
        senders.push(sender);
    }
    senders.iter().for_each(|sender| sender.send(Ok(())).unwrap());
    let mut seen: Vec<u64> = (0..20).map(|_| next(&mut port).0.0).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
}

pub(crate) fn dropping_the_port_waits_for_a_chore<P: Port>(make: impl Fn(&Config) -> P) {
    let mut port = make(&Config::default());
    let (sender, course, work) = errand();
    port.submit(Token(1), work);
    // On a busy machine its thread may take a while to come.
    while !course.begun.load(Ordering::SeqCst) {
        port.wait(Some(port.now() + Duration::from_millis(1)));
    }
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        sender.send(Ok(())).unwrap();
    });
    drop(port);
    assert!(course.done.load(Ordering::SeqCst), "what has begun is finished");
    late.join().unwrap();
}
