// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator leaves while something is under way: another session takes the place of the one
//! that is left (RFC 7143 §6.3.5), or it says that none could be had.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::io;
use std::net::Shutdown;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use initiator::Config;
use initiator::Data;
use initiator::Disk;
use initiator::Error;
use initiator::Event;
use initiator::Initiator;
use initiator::Kind;
use initiator::Management;
use initiator::Options;
use initiator::Paths;
use initiator::Queue;
use initiator::Request as Wish;
use initiator::Retry;
use initiator::SessionId;
use initiator::Slice;
use lunwire_conformance::Line;
use lunwire_conformance::Server;
use lunwire_conformance::mock;
use lunwire_conformance::mock::Answers;
use lunwire_conformance::mock::Mock;
use lunwire_conformance::on_each_engine;
use lunwire_conformance::server::TARGET;
use wire::iscsi::*;
use wire::scsi::sam::GOOD;

/// Until what was posted is at the target, and far less than anything here takes in vain.
const PAUSE: Duration = Duration::from_secs(1);

/// Long for what is done at once, and then heard of by another thread.
const SOON: Duration = Duration::from_secs(3);

/// Longer than a session is tried to be had in the place of another one.
const END: Duration = Duration::from_secs(30);

fn options(portals: &[SocketAddr]) -> Options {
    let portals = portals.iter().map(SocketAddr::to_string).collect();
    let target = Some("iqn.2026-01.example:t".to_owned());
    Options { portals, connect_patience: END, ..Options::new(String::new(), target) }
}

fn wish(opcode: u8, data: Data) -> Wish {
    let mut bytes = [0; 32];
    (bytes[0], bytes[8]) = (opcode, 1);
    Wish { lun: 0, cdb: Cdb { bytes, len: 10 }, data, retry: Retry::Always }
}

fn write() -> Wish {
    wish(0x2a, Data::Out(vec![1; 512].into()))
}

fn flush() -> Wish {
    wish(0x35, Data::None)
}

/// GOOD for what asks; nothing for READ, and for WRITE.
fn lazy(request: &Request, numbers: Numbers) -> Answers {
    let Request::Command(command) = request else { return Vec::new() };
    match command.cdb.bytes.first() {
        Some(0x28 | 0x2a) => Vec::new(),
        _ if command.read => mock::data(command, numbers, vec![0; 512]),
        _ => mock::ended(command, numbers, GOOD, None),
    }
}

/// The same, but at the first command with this operation code it breaks off, and takes nobody then
/// until it is opened.
fn breaking_at(opcode: u8) -> Mock {
    let shutter: Arc<OnceLock<Arc<AtomicBool>>> = Arc::default();
    let own = Arc::clone(&shutter);
    let mut broken = false;
    let mock = Mock::start(move |request, _, numbers| {
        let is_it = matches!(request, Request::Command(it) if it.cdb.bytes[0] == opcode);
        if !is_it || std::mem::replace(&mut broken, true) {
            return lazy(request, numbers);
        }
        if let Some(shut) = own.get() {
            shut.store(true, Ordering::SeqCst);
        }
        // It did not ask to log out.
        let (itt, time2wait, time2retain) = (Itt(0x0bad), 0, 0);
        let answer = LogoutResponse { response: 0, itt, numbers, time2wait, time2retain };
        vec![(Response::Logout(answer), Vec::new())]
    });
    shutter.set(mock.shutter()).unwrap();
    mock
}

fn lazy_in(group: u16) -> Mock {
    Mock::in_group(group, |request, _, numbers| lazy(request, numbers))
}

/// How `session` ends.
fn end_of(queue: &mut Queue, session: SessionId) -> Option<Error> {
    let begun = Instant::now();
    while begun.elapsed() < END {
        queue.wait_n(1, Duration::from_millis(50));
        while let Some(event) = queue.reap() {
            match event {
                Event::Ended { session: of, error } if of == session => return error,
                _ => {}
            }
        }
    }
    panic!("it does not end");
}

/// Posts a write that is not answered.
fn begin_write(queue: &mut Queue, session: SessionId) {
    queue.post(session, 1, write()).unwrap();
    queue.wait_n(1, PAUSE);
    assert!(queue.in_doubt().contains(&session));
}

/// Stands before `target`. When the second connection speaks, it waits for the end of the first,
/// and tells whether that came.
fn witness(target: SocketAddr) -> (SocketAddr, Receiver<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let portal = listener.local_addr().unwrap();
    let (tell, told) = channel();
    let gone = Arc::new(AtomicBool::new(false));
    thread::spawn(move || {
        for (count, client) in listener.incoming().map_while(Result::ok).enumerate() {
            let (gone, tell) = (Arc::clone(&gone), tell.clone());
            let server = TcpStream::connect(target).unwrap();
            let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut &back.0, &mut &back.1));
            thread::spawn(move || {
                if count == 1 {
                    drop(client.peek(&mut [0]));
                    let until = Instant::now() + 2 * PAUSE;
                    while !gone.load(Ordering::SeqCst) && Instant::now() < until {
                        thread::sleep(Duration::from_millis(5));
                    }
                    let _ = tell.send(gone.load(Ordering::SeqCst));
                }
                drop(io::copy(&mut &client, &mut &server));
                gone.store(true, Ordering::SeqCst);
                drop(server.shutdown(Shutdown::Both));
            });
        }
    });
    (portal, told)
}

/// Covers: SES-20.
#[test]
fn a_session_has_failed_before_another_one_takes_its_place() {
    let mock = lazy_in(1);
    let (portal, told) = witness(mock.portal());
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options(&[portal])).unwrap();
    begin_write(&mut queue, id);
    queue.abandon(id);
    let error = end_of(&mut queue, id);
    assert!(error.is_none(), "{error:?}");
    assert!(told.recv_timeout(END).unwrap(), "its connection is still there");
}

/// What was posted, and has not left, does not leave any more.
#[test]
fn nothing_leaves_a_session_that_is_abandoned() {
    let mock = Mock::start(|request, _, numbers| lazy(request, numbers));
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options(&[mock.portal()])).unwrap();
    queue.post(id, 1, write()).unwrap();
    assert!(queue.in_doubt().is_empty());
    queue.abandon(id);
    assert!(end_of(&mut queue, id).is_none());
    let is_command = |(request, ..): &mock::Said| matches!(request, Request::Command(_));
    assert!(!mock.said().iter().any(is_command), "the write has left");
}

/// The same, where the session is one path or more.
#[test]
fn nothing_leaves_paths_that_are_abandoned() {
    on_each_engine(
        |_| {},
        |server: &Server| {
            let options = Options::new(server.portal().to_string(), Some(TARGET.to_owned()));
            let mut queue = Queue::new(&Config::default()).unwrap();
            let id = queue.login_paths(Paths::new(vec![(options.clone(), 0)])).unwrap();
            queue.post(id, 1, write()).unwrap();
            queue.abandon(id);
            assert!(end_of(&mut queue, id).is_none());
            let initiator = Initiator::start(&Config::default()).unwrap();
            let disk = Disk::open(&initiator.connect(options).unwrap(), 0).unwrap();
            let mut found = [2; 512];
            disk.read_at(0, &mut found).unwrap();
            assert_eq!(found, [0; 512], "the write has left");
        },
    );
}

/// The target has answered the logout and keeps its half open.
///
/// Covers: LGO-04b.
#[test]
fn a_connection_is_closed_both_ways_after_the_logout() {
    let mock = Mock::that_stays(|request, _, numbers| lazy(request, numbers));
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options(&[mock.portal()])).unwrap();
    queue.post(id, 1, flush()).unwrap();
    let begun = Instant::now();
    while mock.said().is_empty() && begun.elapsed() < END {
        queue.wait_n(1, Duration::from_millis(50));
    }
    queue.logout(id);
    assert!(end_of(&mut queue, id).is_none(), "it ends as it was asked to");
    // The queue lives on: it is not its end that closes the connection.
    let begun = Instant::now();
    while !mock.was_closed() && begun.elapsed() < SOON {
        queue.wait_n(1, Duration::from_millis(20));
    }
    assert!(mock.was_closed(), "the connection is still open");
}

/// A login to another portal group would be another session beside it.
#[test]
fn a_session_is_replaced_in_its_own_portal_group() {
    let (first, home) = (lazy_in(1), lazy_in(2));
    first.shut(true);
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options(&[first.portal(), home.portal()])).unwrap();
    begin_write(&mut queue, id);
    first.shut(false);
    queue.abandon(id);
    let error = end_of(&mut queue, id);
    assert!(error.is_none() && queue.in_doubt().is_empty(), "{error:?}");
    assert_eq!(home.names().len(), 2, "another session in the place of the first one");
}

#[test]
fn a_try_that_fails_is_followed_by_another_one() {
    let mock = lazy_in(1);
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options(&[mock.portal()])).unwrap();
    begin_write(&mut queue, id);
    mock.shut(true);
    queue.abandon(id);
    let shutter = mock.shutter();
    let opener = thread::spawn(move || {
        thread::sleep(PAUSE * 2);
        shutter.store(false, Ordering::SeqCst);
    });
    let error = end_of(&mut queue, id);
    assert!(error.is_none() && queue.in_doubt().is_empty(), "{error:?}");
    opener.join().unwrap();
}

#[test]
fn a_session_that_nobody_replaces_stays_in_doubt() {
    let mock = lazy_in(1);
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options(&[mock.portal()])).unwrap();
    begin_write(&mut queue, id);
    mock.shut(true);
    queue.abandon(id);
    let error = end_of(&mut queue, id).unwrap();
    assert!(matches!(error.kind(), Kind::NotReplaced), "{error}");
    assert_eq!(queue.leave(PAUSE, PAUSE), [id]);
    // It can be tried again.
    mock.shut(false);
    assert_eq!(queue.leave(PAUSE, END), []);
}

/// Also one that was given up before, with its patience at an end.
#[test]
fn a_session_that_has_ended_in_doubt_is_replaced() {
    let mock = breaking_at(0);
    let mut queue = Queue::new(&Config::default()).unwrap();
    let reconnect_patience = Duration::from_millis(300);
    let given = Options { reconnect_patience, ..options(&[mock.portal()]) };
    let id = queue.login(given).unwrap();
    begin_write(&mut queue, id);
    queue.post(id, 2, wish(0, Data::None)).unwrap();
    assert!(end_of(&mut queue, id).is_some());
    assert_eq!(queue.in_doubt(), [id]);
    mock.shut(false);
    assert_eq!(queue.leave(PAUSE, END), []);
}

/// Nothing can come late where nothing was written.
#[test]
fn a_session_that_only_reads_just_logs_out() {
    let mock = lazy_in(1);
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options(&[mock.portal()])).unwrap();
    queue.post(id, 1, wish(0x28, Data::In(512))).unwrap();
    queue.wait_n(1, PAUSE);
    assert_eq!(queue.in_doubt(), []);
    assert_eq!(queue.leave(END, END), []);
    assert_eq!(mock.names().len(), 1);
}

#[test]
fn a_call_that_waits_ends_when_its_program_wants_that() {
    let mock = lazy_in(1);
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options(&[mock.portal()])).unwrap();
    let handle = queue.interrupt_handle();
    let other = thread::spawn(move || {
        thread::sleep(PAUSE);
        handle.interrupt();
    });
    for _ in 0..2 {
        let error = queue.execute(id, write()).unwrap_err();
        assert!(matches!(error.kind(), Kind::Interrupted), "{error}");
    }
    other.join().unwrap();
    let begun = Instant::now();
    queue.resume_for(END);
    queue.execute(id, flush()).expect("it waits again");
    queue.resume_for(PAUSE);
    let error = queue.execute(id, write()).unwrap_err();
    assert!(matches!(error.kind(), Kind::Interrupted), "{error}");
    assert!(begun.elapsed() >= PAUSE, "{:?}", begun.elapsed());
    assert_eq!(queue.leave(PAUSE, END), []);
    let own = |event: &Event| matches!(event, Event::Done { .. });
    let left: Vec<Event> = std::iter::from_fn(|| queue.reap()).filter(own).collect();
    assert!(left.is_empty(), "answers that nobody waits for: {left:?}");
}

/// Without that a user sees nothing for as long as a lost session takes to come back.
#[test]
fn what_happens_while_a_call_waits_is_told_at_once() {
    static DOWN: AtomicUsize = AtomicUsize::new(0);
    fn listen(event: &Event) -> bool {
        let is_down = matches!(event, Event::Down { .. });
        DOWN.fetch_add(usize::from(is_down), Ordering::SeqCst);
        is_down
    }
    let mock = breaking_at(0x35);
    let mut queue = Queue::new(&Config::default()).unwrap();
    queue.listen(listen);
    let id = queue.login(options(&[mock.portal()])).unwrap();
    // The target takes nobody before it was told.
    let open = mock.shutter();
    let opener = thread::spawn(move || {
        let begun = Instant::now();
        while DOWN.load(Ordering::SeqCst) == 0 && begun.elapsed() < END {
            thread::sleep(Duration::from_millis(20));
        }
        open.store(false, Ordering::SeqCst);
        begun.elapsed()
    });
    queue.execute(id, flush()).unwrap();
    assert!(opener.join().unwrap() < END, "nobody was told");
    queue.logout(id);
}

/// A slow line in front of a server, on which `client` leaves a write behind. What is written
/// later must stay.
fn behind_a_slow_line(client: impl Fn(&Line, Options)) {
    on_each_engine(
        |_| {},
        |server: &Server| {
            let line = Line::start(server.portal(), u64::MAX);
            let given = |portal: SocketAddr| Options {
                portals: vec![portal.to_string()],
                ..Options::new(String::new(), Some(TARGET.to_owned()))
            };
            client(&line, given(line.portal()));
            let other = Initiator::start(&Config::default()).unwrap();
            let disk = Disk::open(&other.connect(given(server.portal())).unwrap(), 0).unwrap();
            disk.write_at(0, &vec![2; LEFT]).unwrap();
            line.slow(0, u64::MAX);
            let begun = Instant::now();
            while line.held() > 0 && begun.elapsed() < END {
                thread::sleep(Duration::from_millis(20));
            }
            thread::sleep(PAUSE);
            let mut read = vec![0; LEFT];
            disk.read_at(0, &mut read).unwrap();
            assert_eq!(read.iter().filter(|byte| **byte == 1).count(), 0, "old bytes");
        },
    );
}

/// Bytes of a write that is left behind, and how many of them the line carries in a second.
const LEFT: usize = 512 << 10;
const SLOW: u64 = 20_000;

#[test]
fn a_disk_that_is_dropped_leaves_nothing_under_way() {
    behind_a_slow_line(|line, given| {
        let initiator = Initiator::start(&Config::default()).unwrap();
        let disk = Disk::open(&initiator.connect(given).unwrap(), 0).unwrap();
        line.slow(0, SLOW);
        drop(disk.write(0, &Slice::from(vec![1; LEFT])).unwrap());
        thread::sleep(PAUSE);
        drop((disk, initiator));
    });
}

/// A logout waits behind what is on the line, and not for ever.
#[test]
fn a_logout_that_is_not_answered_leaves_nothing_under_way() {
    behind_a_slow_line(|line, given| {
        let mut queue = Queue::new(&Config::default()).unwrap();
        let id = queue.login(given).unwrap();
        line.slow(0, SLOW);
        let mut bytes = [0; 32];
        (bytes[0], bytes[7], bytes[8]) = (0x2a, 4, 0);
        let (cdb, retry) = (Cdb { bytes, len: 10 }, Retry::Always);
        let data = Data::Out(vec![1; LEFT].into());
        queue.post(id, 1, Wish { lun: 0, cdb, data, retry }).unwrap();
        queue.wait_n(1, PAUSE);
        queue.logout(id);
        assert_eq!(queue.in_doubt(), []);
    });
}

/// Without FastAbort a target waits for all the data that it asks for until it answers (RFC 7143
/// §4.2.3.3), also what it asks for when it has the function already.
///
/// Covers: TMF-12.
#[test]
fn what_is_asked_for_is_sent_while_a_reset_is_under_way() {
    const LENGTH: u32 = 1 << 20;
    const PART: u32 = 8192;
    const TAG: Ttt = Ttt(0x77);
    let mut write = None;
    let mut reset: Option<(Itt, Numbers)> = None;
    let mock = Mock::start(move |request, _, numbers| match request {
        Request::Command(command) => {
            write = Some(*command);
            Vec::new()
        }
        Request::TaskManagement(function) => {
            reset = Some((function.itt, numbers));
            let ScsiCommand { lun, itt, .. } = write.expect("a WRITE is under way");
            let (offset, desired_length) = (LENGTH - PART, PART);
            let r2t_sn = R2tSn(0);
            let r2t = R2t { lun, itt, ttt: TAG, numbers, r2t_sn, offset, desired_length };
            vec![(Response::R2t(r2t), Vec::new())]
        }
        Request::DataOut(data) if data.ttt == TAG && data.final_ => {
            // The R2T has used up no number.
            let (itt, numbers) = reset.expect("it was asked for then");
            let answer = TaskManagementResponse { response: 0, additional: 0, itt, numbers };
            vec![(Response::TaskManagement(answer), Vec::new())]
        }
        _ => Vec::new(),
    });
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(options(&[mock.portal()])).unwrap();
    let data: Vec<u8> = (0..LENGTH).map(|at| at.to_le_bytes()[1] ^ at.to_le_bytes()[0]).collect();
    let mut write = wish(0x2a, Data::Out(data.clone().into()));
    (write.cdb.bytes[7], write.cdb.bytes[8], write.retry) = (8, 0, Retry::Never);
    queue.post(id, 1, write).unwrap();
    queue.manage(id, Management::LogicalUnitReset(0)).unwrap();
    let mut next = LENGTH - PART;
    for (request, part) in mock.said() {
        let Request::DataOut(out) = request else { continue };
        if out.ttt == TAG {
            assert_eq!(out.offset, next);
            let at = next as usize;
            assert!(part == data[at..at + part.len()]);
            next += u32::try_from(part.len()).unwrap();
        }
    }
    assert_eq!(next, LENGTH, "all of it, and the answer came after");
    queue.logout(id);
}
