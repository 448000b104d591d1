// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator at a target that forgets commands (RFC 7143 §7.11).
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use initiator::Config;
use initiator::Data;
use initiator::Event;
use initiator::Kind;
use initiator::Options;
use initiator::Queue;
use initiator::Request as Wish;
use initiator::Retry;
use initiator::Step;
use lunwire_conformance::mock;
use lunwire_conformance::mock::Mock;
use wire::iscsi::*;
use wire::scsi::sam::GOOD;

/// How long a command may take.
const LIMIT: Duration = Duration::from_millis(200);

/// What came of a WRITE that the target forgets `times` times: how it ended, what was said about
/// it, and what the target was asked for.
struct Story {
    end: Result<(), Kind>,
    steps: Vec<Step>,
    functions: Vec<u8>,
    writes: usize,
    sessions: usize,
}

fn forget(times: usize, retry: Retry) -> Story {
    let writes: Arc<AtomicUsize> = Arc::default();
    let count = Arc::clone(&writes);
    let mock = Mock::start(move |request, _, numbers| match request {
        Request::Command(command) => {
            let before = count.fetch_add(1, Ordering::SeqCst);
            if before < times { Vec::new() } else { mock::ended(command, numbers, GOOD, None) }
        }
        Request::TaskManagement(pdu) => {
            // It knows nothing of the task that is to be aborted.
            let response = u8::from(pdu.function == 1);
            let answer = TaskManagementResponse { response, additional: 0, itt: pdu.itt, numbers };
            vec![(Response::TaskManagement(answer), Vec::new())]
        }
        _ => Vec::new(),
    });
    let target = Some("iqn.2026-01.example:t".to_owned());
    let mut options = Options::new(mock.portal().to_string(), target);
    options.settings.command_timeout = LIMIT;
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options).unwrap();
    let mut bytes = [0; 32];
    (bytes[0], bytes[8]) = (0x2a, 1);
    let data = Data::Out(vec![1; 512].into());
    let cdb = Cdb { bytes, len: 16 };
    queue.post(id, 1, Wish { lun: 3, cdb, data, retry }).unwrap();
    let (mut steps, mut sessions, mut end) = (Vec::new(), 1, None);
    let begun = Instant::now();
    while end.is_none() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not end: {steps:?}");
        queue.wait_n(1, LIMIT);
        while let Some(event) = queue.reap() {
            match event {
                Event::Done { tag: 1, result, .. } => {
                    end = Some(result.map(drop).map_err(|error| error.kind().clone()));
                }
                Event::Overdue { tag: 1, error, .. } => {
                    let Kind::Overdue { after, step } = error.kind() else { panic!("{error}") };
                    assert_eq!(*after, LIMIT);
                    let text = error.to_string();
                    assert!(text.contains("LUN 3: WRITE(10)"), "{text}");
                    assert!(text.contains("no answer for 0.2 s; "), "{text}");
                    steps.push(*step);
                }
                Event::Up { .. } => sessions += 1,
                _ => {}
            }
        }
    }
    queue.logout(id);
    let functions = mock.said().into_iter().filter_map(|(request, _)| match request {
        Request::TaskManagement(pdu) => Some(pdu.function),
        _ => None,
    });
    let (functions, writes) = (functions.collect(), writes.load(Ordering::SeqCst));
    Story { end: end.unwrap(), steps, functions, writes, sessions }
}

/// Each time more is done before it is sent again: an abort, a reset of its unit, a new session.
#[test]
fn a_forgotten_write_is_sent_again_after_more_and_more() {
    use Step as S;
    let whole = [S::Abort, S::Abort, S::Reset, S::Abort, S::Session];
    for (times, steps, functions, sessions) in [
        (1, &whole[..1], &[1][..], 1),
        (2, &whole[..3], &[1, 1, 5], 1),
        (3, &whole, &[1, 1, 5, 1], 2),
    ] {
        let story = forget(times, Retry::Always);
        assert!(story.end.is_ok(), "forgotten {times} times: {:?}", story.end);
        assert_eq!(story.steps, steps);
        assert_eq!(story.functions, functions);
        assert_eq!((story.writes, story.sessions), (times + 1, sessions));
    }
}

#[test]
fn a_write_that_is_always_forgotten_fails() {
    let story = forget(usize::MAX, Retry::Always);
    assert!(matches!(story.end, Err(Kind::Ending(_))), "{:?}", story.end);
    assert_eq!((story.writes, story.sessions), (4, 2));
}

/// What must not be done twice is told instead.
#[test]
fn a_forgotten_write_that_may_not_be_repeated_fails() {
    let story = forget(1, Retry::IfNotDone);
    assert!(matches!(story.end, Err(Kind::Ending(_))), "{:?}", story.end);
    assert_eq!((story.writes, story.functions.as_slice()), (1, &[1][..]));
}
