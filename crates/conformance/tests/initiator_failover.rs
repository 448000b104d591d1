// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator at a target with several portal groups, whose sessions do not reinstate each other
//! (RFC 7143 §4.4.3.1, §6.3.5).
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
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
use initiator::SessionId;
use lunwire_conformance::mock;
use lunwire_conformance::mock::Answers;
use lunwire_conformance::mock::Mock;
use wire::iscsi::*;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::GOOD;

/// For how long the portal of the first group takes nobody.
const AWAY: Duration = Duration::from_millis(1500);

/// So long the first portal is tried alone.
const HEAD_START: Duration = Duration::from_millis(50);

/// Two portals of one target; the one that gets the first command breaks off, and takes nobody
/// then until it is opened.
struct Pair {
    mocks: [Mock; 2],
}

impl Pair {
    fn start() -> Self {
        Self::in_groups([Some(1), Some(2)])
    }

    fn in_groups(groups: [Option<u16>; 2]) -> Self {
        let taken: Arc<AtomicBool> = Arc::default();
        let mocks = groups.map(|group| {
            let taken = Arc::clone(&taken);
            let shutter: Arc<OnceLock<Arc<AtomicBool>>> = Arc::default();
            let own = Arc::clone(&shutter);
            let script = move |request: &Request, _: &[u8], numbers| {
                let first = !taken.swap(true, Ordering::SeqCst);
                if first && let Some(shut) = own.get() {
                    shut.store(true, Ordering::SeqCst);
                    return nonsense(numbers);
                }
                good(request, numbers)
            };
            let mock = match group {
                Some(group) => Mock::in_group(group, script),
                None => Mock::in_no_group(script),
            };
            shutter.set(mock.shutter()).unwrap();
            mock
        });
        Self { mocks }
    }

    fn options(&self) -> Options {
        let portals = self.mocks.iter().map(|mock| mock.portal().to_string()).collect();
        let target = Some("iqn.2026-01.example:t".to_owned());
        Options { portals, ..Options::new(String::new(), target) }
    }

    /// Commands that each portal got.
    fn commands(&self) -> [usize; 2] {
        let is_command = |(request, _): &(Request, Vec<u8>)| matches!(request, Request::Command(_));
        [0, 1].map(|at: usize| self.mocks[at].said().iter().filter(|said| is_command(said)).count())
    }
}

/// What ends a session of our initiator: it did not ask to log in.
fn nonsense(numbers: Numbers) -> Answers {
    let answer =
        LogoutResponse { response: 0, itt: Itt(0x0bad), numbers, time2wait: 0, time2retain: 0 };
    vec![(Response::Logout(answer), Vec::new())]
}

/// GOOD, and zeroes for who reads.
fn good(request: &Request, numbers: Numbers) -> Answers {
    let Request::Command(command) = request else { return Vec::new() };
    match command.read {
        true => mock::data(command, numbers, vec![0; 512]),
        false => mock::ended(command, numbers, GOOD, None),
    }
}

fn block(opcode: u8, data: Data, retry: Retry) -> Wish {
    let mut bytes = [0; 32];
    (bytes[0], bytes[8]) = (opcode, 1);
    Wish { lun: 0, cdb: Cdb { bytes, len: 16 }, data, retry }
}

fn write(retry: Retry) -> Wish {
    block(0x2a, Data::Out(vec![1; 512].into()), retry)
}

fn read() -> Wish {
    block(0x28, Data::In(512), Retry::Always)
}

/// Posts `wish`, waits for a while, and tells whether it has ended, and how.
fn run(queue: &mut Queue, id: SessionId, wish: Wish, time: Duration) -> Option<Result<(), Kind>> {
    queue.post(id, 1, wish).unwrap();
    ended(queue, time)
}

fn ended(queue: &mut Queue, time: Duration) -> Option<Result<(), Kind>> {
    let begun = Instant::now();
    while begun.elapsed() < time {
        queue.wait_n(1, Duration::from_millis(50));
        while let Some(event) = queue.reap() {
            if let Event::Done { tag: 1, result, .. } = event {
                return Some(result.map(drop).map_err(|error| error.kind().clone()));
            }
        }
    }
    None
}

/// A write whose end is not known may still be carried out. Only a login to its own portal group
/// rules that out; until then nothing is sent to another one.
#[test]
fn writes_are_not_sent_to_another_portal_group_while_old_ones_may_land() {
    wait_for_its_own_portal(&Pair::start());
}

/// Two portals that say nothing may be of two groups.
#[test]
fn a_portal_that_does_not_tell_its_group_ends_no_session_but_its_own() {
    wait_for_its_own_portal(&Pair::in_groups([None, None]));
}

/// A write ends only when the portal that was lost with one takes a login again.
fn wait_for_its_own_portal(pair: &Pair) {
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(pair.options()).unwrap();
    assert!(run(&mut queue, id, write(Retry::Always), AWAY).is_none(), "its group takes nobody");
    let commands = pair.commands();
    assert_eq!(commands[0] + commands[1], 1, "{commands:?}");
    pair.mocks.iter().for_each(|mock| mock.shut(false));
    let end = ended(&mut queue, Duration::from_secs(20));
    assert!(matches!(end, Some(Ok(()))), "{end:?}");
    let home = usize::from(commands[1] > 0);
    assert_eq!(pair.commands()[home], 2, "the write went there again");
    assert_eq!(pair.commands()[1 - home], 0, "the other group got nothing");
    queue.logout(id);
}

/// One that its caller does not want to be repeated may be carried out late just as well.
#[test]
fn a_write_that_was_given_up_keeps_its_session_at_its_portal_group() {
    let pair = Pair::start();
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(pair.options()).unwrap();
    let end = run(&mut queue, id, write(Retry::IfNotDone), Duration::from_secs(20));
    assert!(matches!(end, Some(Err(_))), "{end:?}");
    assert!(run(&mut queue, id, read(), AWAY).is_none(), "its group takes nobody");
    let commands = pair.commands();
    assert_eq!(commands[0] + commands[1], 1, "{commands:?}");
    queue.close(id);
}

/// Nothing can land late where nothing was written.
#[test]
fn a_session_without_doubtful_writes_goes_on_at_another_portal_group() {
    let pair = Pair::start();
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(pair.options()).unwrap();
    let end = run(&mut queue, id, read(), Duration::from_secs(20));
    assert!(matches!(end, Some(Ok(()))), "{end:?}");
    assert_eq!(pair.commands(), [1, 1], "the other portal was taken");
    queue.logout(id);
}

/// Two portals in two groups: each says of the way to its unit what `codes` has for it, or is
/// ready.
fn ways(codes: [Option<u8>; 2]) -> Pair {
    let mock = |group, code: Option<u8>| {
        Mock::in_group(group, move |request, _, numbers| match (request, code) {
            (Request::Command(command), Some(ascq)) => {
                mock::ended(command, numbers, CHECK_CONDITION, Some([2, 4, ascq]))
            }
            _ => good(request, numbers),
        })
    };
    Pair { mocks: [mock(1, codes[0]), mock(2, codes[1])] }
}

/// How a wish ends, and how many commands each portal got for it.
fn over_ways(pair: &Pair, wishes: Vec<Wish>) -> (Vec<Result<(), Kind>>, [usize; 2]) {
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(pair.options()).unwrap();
    let count = wishes.len();
    wishes.into_iter().for_each(|wish| queue.post(id, 1, wish).unwrap());
    let results = (0..count).map_while(|_| ended(&mut queue, Duration::from_secs(20))).collect();
    queue.logout(id);
    (results, pair.commands())
}

#[test]
fn a_unit_in_standby_is_used_over_its_other_portal() {
    for code in [0x0b, 0x0c] {
        for codes in [[Some(code), None], [None, Some(code)]] {
            for retry in [Retry::Always, Retry::IfNotDone] {
                let pair = ways(codes);
                let (ended, _) = over_ways(&pair, vec![write(retry), read(), read(), write(retry)]);
                assert_eq!(ended.len(), 4);
                assert!(ended.iter().all(Result::is_ok), "{codes:x?}: {ended:?}");
            }
        }
    }
}

#[test]
fn a_unit_that_no_portal_gives_access_to_fails_with_its_own_words() {
    let pair = ways([Some(0x0b), Some(0x0c)]);
    let (ended, commands) = over_ways(&pair, vec![read()]);
    assert!(matches!(&ended[..], [Err(Kind::Status { .. })]), "{ended:?}");
    assert_eq!(commands, [1, 1], "each is asked once");
    // The other one takes nobody: what the first one said is the reason.
    let pair = ways([Some(0x0b), Some(0x0b)]);
    pair.mocks[1].shut(true);
    let (ended, commands) = over_ways(&pair, vec![read()]);
    assert!(matches!(&ended[..], [Err(Kind::Status { .. })]), "{ended:?}");
    assert_eq!(commands, [2, 0]);
    // Whoever wants to hear what the target says hears it.
    let pair = ways([Some(0x0b), Some(0x0b)]);
    let (ended, _) = over_ways(&pair, vec![block(0x28, Data::In(512), Retry::Never)]);
    assert!(matches!(&ended[..], [Err(Kind::Status { .. })]), "{ended:?}");
    assert_eq!(pair.commands().iter().sum::<usize>(), 1);
}

#[test]
fn a_unit_between_two_states_is_waited_for() {
    let asked = AtomicUsize::new(0);
    let mock = Mock::start(move |request, _, numbers| match request {
        Request::Command(command) if asked.fetch_add(1, Ordering::SeqCst) < 3 => {
            mock::ended(command, numbers, CHECK_CONDITION, Some([2, 4, 0x0a]))
        }
        _ => good(request, numbers),
    });
    let mut queue = Queue::new(&Config::default()).unwrap();
    let target = Some("iqn.2026-01.example:t".to_owned());
    let id = queue.login(Options::new(mock.portal().to_string(), target)).unwrap();
    let result = run(&mut queue, id, read(), Duration::from_secs(5));
    assert!(matches!(result, Some(Ok(()))), "{result:?}");
}

/// On a busy machine it may answer too late to be the only one that is asked, which takes its time:
/// what was over before is what counts.
#[test]
fn the_portal_that_was_named_first_is_taken_when_it_answers() {
    let pair = ways([None, None]);
    let mut at_once = 0;
    for _ in 0..400 {
        let (before, begun) = (pair.commands(), Instant::now());
        let (ended, after) = over_ways(&pair, vec![read()]);
        assert!(matches!(&ended[..], [Ok(())]), "{ended:?}");
        if begun.elapsed() < HEAD_START {
            assert_eq!(after, [before[0] + 1, before[1]]);
            at_once += 1;
        }
        if at_once == 20 {
            return;
        }
    }
    assert!(at_once > 0, "it never answers");
}
