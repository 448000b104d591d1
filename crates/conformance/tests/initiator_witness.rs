// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who remembers the sessions of our initiator hears of each before anything goes over it, and that
//! it is over when nothing of it can come about any more (RFC 7143 §6.3.5).
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

use initiator::Config;
use initiator::Data;
use initiator::Kind;
use initiator::Nexus;
use initiator::Options;
use initiator::Queue;
use initiator::Request as Wish;
use initiator::Retry;
use initiator::SessionId;
use initiator::Witness;
use lunwire_conformance::mock;
use lunwire_conformance::mock::Answers;
use lunwire_conformance::mock::Mock;
use wire::iscsi::*;
use wire::scsi::sam::GOOD;

const END: Duration = Duration::from_secs(30);

const TEST_UNIT_READY: u8 = 0;
const WRITE: u8 = 0x2a;
const FLUSH: u8 = 0x35;

/// What was heard, and what the target had been asked for by then.
#[derive(Debug, Default)]
struct Listener {
    heard: Mutex<Vec<(bool, Nexus, usize)>>,
    asked: Arc<Mutex<usize>>,
    /// Does not take sessions.
    refuses: bool,
}

impl Listener {
    fn hear(&self, begins: bool, nexus: &Nexus) {
        let asked = *self.asked.lock().unwrap();
        self.heard.lock().unwrap().push((begins, nexus.clone(), asked));
    }

    fn begun(&self) -> Vec<bool> {
        self.heard.lock().unwrap().iter().map(|(begins, ..)| *begins).collect()
    }
}

impl Witness for Listener {
    fn begins(&self, nexus: &Nexus) -> Result<(), String> {
        self.hear(true, nexus);
        if self.refuses { Err("the disk is full".to_owned()) } else { Ok(()) }
    }

    fn ends(&self, nexus: &Nexus) {
        self.hear(false, nexus);
    }
}

/// In group 7; answers no write, and breaks off when it is to flush.
fn target(asked: &Arc<Mutex<usize>>) -> Mock {
    let asked = Arc::clone(asked);
    Mock::in_group(7, move |request, _, numbers| {
        let Request::Command(command) = request else { return Answers::new() };
        *asked.lock().unwrap() += 1;
        match command.cdb.bytes.first() {
            Some(&WRITE) => Answers::new(),
            Some(&FLUSH) => {
                let (itt, time2wait, time2retain) = (Itt(0x0bad), 0, 0);
                let answer = LogoutResponse { response: 0, itt, numbers, time2wait, time2retain };
                vec![(Response::Logout(answer), Vec::new())]
            }
            _ => mock::ended(command, numbers, GOOD, None),
        }
    })
}

fn options(mock: &Mock, witness: &Arc<Listener>) -> Options {
    let target = Some("iqn.2026-01.example:t".to_owned());
    Options {
        witness: Some(Arc::clone(witness) as Arc<dyn Witness>),
        ..Options::new(mock.portal().to_string(), target)
    }
}

fn wish(opcode: u8, retry: Retry) -> Wish {
    let mut bytes = [0; 32];
    (bytes[0], bytes[8]) = (opcode, 1);
    let data = if opcode == WRITE { Data::Out(vec![1; 512].into()) } else { Data::None };
    Wish { lun: 0, cdb: Cdb { bytes, len: 10 }, data, retry }
}

fn run_until(queue: &mut Queue, what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < END, "it does not come about");
        queue.wait_n(1, Duration::from_millis(20));
        while queue.reap().is_some() {}
    }
}

fn logged_in(witness: &Arc<Listener>) -> (Mock, Queue, SessionId) {
    let mock = target(&witness.asked);
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options(&mock, witness)).unwrap();
    (mock, queue, id)
}

#[test]
fn a_session_is_heard_of_before_anything_goes_over_it_and_after_its_logout() {
    let witness = Arc::new(Listener::default());
    let (mock, mut queue, id) = logged_in(&witness);
    queue.execute(id, wish(TEST_UNIT_READY, Retry::Always)).unwrap();
    assert_eq!(witness.begun(), [true]);
    queue.logout(id);
    let heard = witness.heard.lock().unwrap();
    let [(true, nexus, 0), (false, last, 1)] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!(nexus, last);
    assert_eq!((&nexus.portal, nexus.group), (&mock.portal().to_string(), Some(7)));
}

#[test]
fn nothing_goes_over_a_session_that_cannot_be_remembered() {
    let witness = Arc::new(Listener { refuses: true, ..Listener::default() });
    let mock = target(&witness.asked);
    let mut queue = Queue::new(&Config::default()).unwrap();
    // However long it may try: it would be told the same.
    let options = Options { connect_patience: END, ..options(&mock, &witness) };
    let error = queue.login(options).unwrap_err();
    assert!(matches!(error.kind(), Kind::NotRemembered(_)), "{error}");
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert_eq!((witness.begun(), *witness.asked.lock().unwrap()), (vec![true], 0));
}

/// With a write under way it is left; without, nothing of it is.
#[test]
fn what_is_left_of_a_session_that_is_lost_depends_on_what_was_under_way() {
    let witness = Arc::new(Listener::default());
    let (mock, mut queue, id) = logged_in(&witness);
    mock.shut(true);
    queue.post(id, 1, wish(FLUSH, Retry::IfNotDone)).unwrap();
    run_until(&mut queue, || witness.begun() == [true, false]);
    mock.shut(false);
    run_until(&mut queue, || witness.begun() == [true, false, true]);
    // A flush is not answered here; the write is lost with the session.
    mock.shut(true);
    let asked = *witness.asked.lock().unwrap();
    queue.post(id, 2, wish(WRITE, Retry::IfNotDone)).unwrap();
    run_until(&mut queue, || *witness.asked.lock().unwrap() > asked);
    queue.post(id, 3, wish(FLUSH, Retry::IfNotDone)).unwrap();
    run_until(&mut queue, || *witness.asked.lock().unwrap() > asked + 1);
    let lost = Instant::now();
    while lost.elapsed() < Duration::from_millis(500) {
        queue.wait_n(1, Duration::from_millis(20));
    }
    assert_eq!(witness.begun(), [true, false, true], "the write may still come about");
    assert_eq!(queue.in_doubt(), [id]);
    // The next one takes its place.
    mock.shut(false);
    run_until(&mut queue, || witness.begun().len() == 4);
    queue.logout(id);
    assert_eq!(witness.begun(), [true, false, true, true, false]);
}
