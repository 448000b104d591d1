// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator at a target that answers, and never does what it is asked: the limits that the
//! user gave hold, and the error says what was seen.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
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
use lunwire_conformance::initiator::cdb10;
use lunwire_conformance::mock;
use lunwire_conformance::mock::Mock;
use lunwire_conformance::proxy::Digests;
use lunwire_conformance::proxy::Fate;
use lunwire_conformance::proxy::Proxy;
use lunwire_conformance::server::Server;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::plan;
use wire::iscsi::*;
use wire::scsi::sam::BUSY;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::GOOD;
use wire::scsi::sam::TASK_ABORTED;
use wire::scsi::sam::TASK_SET_FULL;

/// What the user allows.
const LIMIT: Duration = Duration::from_millis(1500);

/// What a command may take on a line that is slow; a busy machine may stand still for most of it.
const SHORT: Duration = Duration::from_secs(1);

/// Far less than what holds without it, and time enough on a machine with much to do.
const END: Duration = Duration::from_secs(10);

/// How a READ ends, after how long, and what was told meanwhile.
fn read(
    mock: &Mock,
    set: impl FnOnce(&mut Options),
) -> (Result<(), initiator::Error>, Duration, Vec<String>) {
    let target = Some("iqn.2026-01.example:t".to_owned());
    let mut options = Options::new(mock.portal().to_string(), target);
    set(&mut options);
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options).unwrap();
    let mut bytes = [0; 32];
    (bytes[0], bytes[8]) = (0x28, 1);
    let cdb = Cdb { bytes, len: 16 };
    let wish = Wish { lun: 3, cdb, data: Data::In(512), retry: Retry::Always };
    queue.post(id, 1, wish).unwrap();
    let (begun, mut told) = (Instant::now(), Vec::new());
    loop {
        assert!(begun.elapsed() < END, "it goes on: {told:?}");
        queue.wait_n(1, Duration::from_millis(100));
        while let Some(event) = queue.reap() {
            match event {
                Event::Done { tag: 1, result, .. } => {
                    return (result.map(drop), begun.elapsed(), told);
                }
                Event::Again { tag: 1, error, .. } => told.push(error.to_string()),
                _ => {}
            }
        }
    }
}

#[test]
fn a_target_that_is_busy_for_ever_is_asked_as_long_as_the_user_says() {
    let statuses =
        [(BUSY, "BUSY"), (TASK_SET_FULL, "TASK SET FULL"), (TASK_ABORTED, "TASK ABORTED")];
    for (status, word) in statuses {
        for command_timeout in [SHORT, Duration::ZERO] {
            let mock = Mock::start(move |request, _, numbers| match request {
                Request::Command(command) => mock::ended(command, numbers, status, None),
                _ => Vec::new(),
            });
            let (end, time, told) = read(&mock, |options| {
                options.reconnect_patience = LIMIT;
                // It answers in time, whatever it answers.
                options.settings.command_timeout = command_timeout;
            });
            let error = end.unwrap_err();
            assert!(matches!(error.kind(), Kind::Status { status: of, .. } if *of == status));
            assert!(error.busy_for().unwrap() >= LIMIT, "{error}");
            let text = error.to_string();
            let said = format!(": the target has answered {word} for ");
            assert!(
                text.contains(&said) && text.contains("iqn.2026-01.example:t, LUN 3"),
                "{text}"
            );
            assert!(time >= LIMIT, "it was tried again: {time:?}");
            assert!(told.len() == 1 && told[0].contains(word), "told once: {told:?}");
        }
    }
}

/// It says so for seconds, or minutes, after it has begun. One that wants to be started waits for
/// somebody.
#[test]
fn a_unit_that_is_becoming_ready_is_waited_for() {
    for (ascq, waits) in [(0x01, true), (0x02, false)] {
        let mock = Mock::start(move |request, _, numbers| match request {
            Request::Command(command) => {
                mock::ended(command, numbers, CHECK_CONDITION, Some([2, 0x04, ascq]))
            }
            _ => Vec::new(),
        });
        let (end, time, told) = read(&mock, |options| options.reconnect_patience = LIMIT);
        let sense = end.unwrap_err().sense().map(|sense| (sense.asc, sense.ascq));
        assert_eq!(sense, Some((0x04, ascq)));
        assert_eq!((time >= LIMIT, told.len() == 1), (waits, waits), "{time:?}, {told:?}");
    }
}

/// Another host resets the unit, or takes it.
#[test]
fn what_another_host_aborts_is_sent_again_where_that_does_no_harm() {
    for (retry, sent) in [(Retry::Always, 3), (Retry::IfNotDone, 1), (Retry::Never, 1)] {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        let mock = Mock::start(move |request, _, numbers| match request {
            Request::Command(command) => match seen.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => mock::ended(command, numbers, TASK_ABORTED, None),
                _ => mock::ended(command, numbers, GOOD, None),
            },
            _ => Vec::new(),
        });
        let mut queue = Queue::new(&Config::default()).unwrap();
        let target = Some("iqn.2026-01.example:t".to_owned());
        let id = queue.login(Options::new(mock.portal().to_string(), target)).unwrap();
        let cdb = Cdb { bytes: [0; 32], len: 6 };
        queue.post(id, 1, Wish { lun: 0, cdb, data: Data::None, retry }).unwrap();
        let result = loop {
            queue.wait_n(1, END);
            match queue.reap() {
                Some(Event::Done { tag: 1, result, .. }) => break result,
                Some(_) => {}
                None => panic!("it does not end"),
            }
        };
        assert_eq!(result.is_ok(), retry == Retry::Always, "{result:?}");
        assert_eq!(count.load(Ordering::Relaxed), sent, "{retry:?}");
    }
}

#[test]
fn a_target_that_is_never_ready_is_not_asked_for_ever() {
    for (sense, word) in [([6, 0x29, 0], "UNIT ATTENTION"), ([2, 4, 1], "becoming ready")] {
        let mock = Mock::start(move |request, _, numbers| match request {
            Request::Command(command) => {
                mock::ended(command, numbers, CHECK_CONDITION, Some(sense))
            }
            _ => Vec::new(),
        });
        let (end, ..) = read(&mock, |options| options.reconnect_patience = LIMIT);
        let error = end.unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

/// Each login succeeds, and the first command ends the session.
#[test]
fn a_target_that_drops_the_session_at_each_command_is_left_in_time() {
    let mock = Mock::start(|request, _, numbers| match request {
        Request::Command(command) => {
            // The answer to nothing that was asked: the session cannot go on.
            let other = ScsiCommand { itt: Itt(command.itt.0 ^ 0x00ff_0000), ..*command };
            mock::ended(&other, numbers, GOOD, None)
        }
        _ => Vec::new(),
    });
    let (end, time, _) = read(&mock, |options| options.reconnect_patience = LIMIT);
    let error = end.unwrap_err();
    assert!(matches!(error.kind(), Kind::Session(_) | Kind::Ending(_)), "{error:?}");
    assert!(time < LIMIT * 4, "{time:?}");
}

/// The pauses between two tries grow: the try after 6.3 s is followed by one after 11.3 s.
#[test]
fn a_session_is_given_up_when_the_patience_ends_and_not_at_the_next_try() {
    let shutter: Arc<OnceLock<Arc<AtomicBool>>> = Arc::default();
    let own = Arc::clone(&shutter);
    let mock = Mock::start(move |_, _, numbers| {
        if let Some(shut) = own.get() {
            shut.store(true, Ordering::SeqCst);
        }
        // It did not ask to log out.
        let (itt, time2wait, time2retain) = (Itt(0x0bad), 0, 0);
        let answer = LogoutResponse { response: 0, itt, numbers, time2wait, time2retain };
        vec![(Response::Logout(answer), Vec::new())]
    });
    shutter.set(mock.shutter()).unwrap();
    let patience = Duration::from_millis(6500);
    let (result, took, told) = read(&mock, |options| options.reconnect_patience = patience);
    assert!(result.is_err() && took >= patience, "{took:?}: {told:?}");
}

/// Each login succeeds, and then the target hangs up: a session that carries nothing is none.
#[test]
fn a_target_that_hangs_up_after_each_login_is_left_in_time() {
    let mock = Mock::that_hangs_up();
    let target = Some("iqn.2026-01.example:t".to_owned());
    let mut options = Options::new(mock.portal().to_string(), target);
    options.reconnect_patience = LIMIT;
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options).unwrap();
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < END, "it logs in for ever");
        queue.wait_n(1, Duration::from_millis(100));
        while let Some(event) = queue.reap() {
            match event {
                Event::Ended { session, error } if session == id => {
                    let error = error.unwrap();
                    assert!(matches!(error.kind(), Kind::Session(_)), "{error:?}");
                    return;
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_target_that_does_not_say_its_targets_is_left_in_time() {
    let mock = Mock::start(|_, _, _| Vec::new());
    let mut options = Options::new(mock.portal().to_string(), None);
    options.settings.command_timeout = LIMIT;
    let begun = Instant::now();
    let (found, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let mut queue = Queue::new(&Config::default()).unwrap();
        found.send(queue.discover(options)).unwrap();
    });
    let error = ended.recv_timeout(END).expect("it asks for ever").unwrap_err();
    assert!(error.to_string().contains("SendTargets"), "{error}");
    assert!(begun.elapsed() >= LIMIT, "it had its time");
}

/// Nothing answers a login, or bytes of the answer come one by one.
#[test]
fn a_login_takes_no_longer_than_there_is_patience() {
    for drips in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Some("iqn.2026-01.example:t".to_owned());
        let mut options = Options::new(listener.local_addr().unwrap().to_string(), target);
        options.connect_patience = LIMIT;
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                std::thread::spawn(move || {
                    while !drips || stream.write_all(&[0x23]).is_ok() {
                        std::thread::sleep(Duration::from_millis(300));
                    }
                });
            }
        });
        let mut queue = Queue::new(&Config::default()).unwrap();
        let begun = Instant::now();
        let error = queue.login(options).expect_err("nobody logs us in");
        let time = begun.elapsed();
        assert!(matches!(error.kind(), Kind::Login(_)), "{error:?}");
        assert!(time >= LIMIT && time < END, "{time:?}");
    }
}

/// Commands that are under way at once.
const DEPTH: u64 = 12;

/// What each of them moves, bytes.
const LENGTH: u32 = 64 << 10;

/// On a line that carries a command in a quarter of what one may take, twelve of them at once.
fn on_a_slow_line(writes: bool, set: impl Fn(&mut Options)) {
    let engine = engine::choose(engine::Choice::Auto);
    let server = Server::start(plan(engine, iscsi::target_role::Settings::default()));
    let proxy = Proxy::start(server.portal(), Digests::default(), |pdu| {
        let bytes = u32::try_from(pdu.data.len()).unwrap();
        std::thread::sleep(SHORT * bytes / (4 * LENGTH));
        Fate::Pass
    });
    let mut options = Options::new(proxy.portal().to_string(), Some(TARGET.to_owned()));
    options.settings.command_timeout = SHORT;
    options.settings.max_recv_data_segment_length = 8192;
    set(&mut options);
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options).unwrap();
    for tag in 1..=DEPTH {
        let block = u32::try_from(tag).unwrap() * LENGTH / 512;
        let opcode = if writes { 0x2a } else { 0x28 };
        let mut cdb = Cdb { bytes: [0; 32], len: 16 };
        let blocks = u16::try_from(LENGTH / 512).unwrap();
        cdb.bytes[..10].copy_from_slice(&cdb10(opcode, block, blocks));
        let data = match writes {
            true => Data::Out(vec![7; LENGTH as usize].into()),
            false => Data::In(LENGTH),
        };
        queue.post(id, tag, Wish { lun: 0, cdb, data, retry: Retry::Always }).unwrap();
    }
    let (begun, mut done) = (Instant::now(), 0);
    while done < DEPTH {
        queue.wait_n(1, SHORT);
        while let Some(event) = queue.reap() {
            match event {
                Event::Done { result, .. } => {
                    result.map(drop).unwrap();
                    done += 1;
                }
                Event::Overdue { error, .. } | Event::Down { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
        assert!(begun.elapsed() < END, "{done} have ended");
    }
    assert!(begun.elapsed() > SHORT * 2, "the line is slow");
}

#[test]
fn reads_may_take_as_long_as_their_line_needs() {
    on_a_slow_line(false, |_| {});
}

#[test]
fn writes_may_take_as_long_as_their_line_needs() {
    for initial_r2t in [true, false] {
        on_a_slow_line(true, |options| options.settings.initial_r2t = initial_r2t);
    }
}
