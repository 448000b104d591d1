// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSER on the wire (RFC 7145 §5): when a byte stream becomes an RDMA stream, with our roles and
//! with others that do it in their own way.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::io::Read;
use std::io::Write;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use initiator::Begin;
use initiator::Checks;
use initiator::Data;
use initiator::Initiator;
use initiator::Kind;
use initiator::Options;
use initiator::Request as Post;
use initiator::Retry;
use initiator::Transport;
use iscsi::initiator::LoginError;
use iscsi::target_role::Settings;
use lunwire_conformance::Server;
use lunwire_conformance::initiator::cdb10;
use lunwire_conformance::login::LoginPlan;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::plan;
use target::Plan;
use target::Rdma;
use wire::iscsi::*;

const REQUEST: &[u8] = b"MPA ID Req Frame";
const REPLY: &[u8] = b"MPA ID Rep Frame";
const PATIENCE: Duration = Duration::from_secs(10);

/// By connection: who said what, in order; 0 is who connected.
type Said = Arc<Mutex<Vec<Vec<(usize, Vec<u8>)>>>>;

/// Passes bytes on, and keeps them.
struct Line {
    portal: SocketAddr,
    said: Said,
}

impl Line {
    fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let portal = listener.local_addr().unwrap();
        let said = Said::default();
        let kept = Arc::clone(&said);
        thread::spawn(move || {
            for (index, near) in listener.incoming().flatten().enumerate() {
                kept.lock().unwrap().push(Vec::new());
                let far = TcpStream::connect(target).unwrap();
                for (side, (from, to)) in [(&near, &far), (&far, &near)].into_iter().enumerate() {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let kept = Arc::clone(&kept);
                    thread::spawn(move || {
                        pass(from, to, |bytes| {
                            kept.lock().unwrap()[index].push((side, bytes.to_vec()));
                        })
                    });
                }
            }
        });
        Self { portal, said }
    }

    /// What `side` of a connection has said before the other one said `until`, or at all.
    fn before(&self, connection: usize, side: usize, until: &[u8]) -> Vec<u8> {
        let said = self.said.lock().unwrap();
        let before = said[connection].iter().take_while(|(who, bytes)| {
            *who == side || until.is_empty() || !bytes.starts_with(until)
        });
        before.filter(|(who, _)| *who == side).flat_map(|(_, bytes)| bytes.clone()).collect()
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut keep: impl FnMut(&[u8])) {
    let mut bytes = [0; 64 << 10];
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 {
            break;
        }
        // Kept before anybody can answer it.
        keep(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// Takes the login PDUs off the front: how many, and what is behind them.
fn logins(mut bytes: &[u8]) -> (usize, &[u8]) {
    let mut count = 0;
    while let Some(header) = bytes.first_chunk::<BHS_LEN>().filter(|one| one[0] & 0x1f == 3) {
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]);
        bytes = &bytes[BHS_LEN + pad4(length as usize)..];
        count += 1;
    }
    (count, bytes)
}

fn speaking(settings: Settings) -> Plan {
    Plan { rdma: Rdma::Iwarp, ..plan(engine::Choice::Epoll, settings) }
}

fn options(portal: SocketAddr, begin: Begin) -> Options {
    let transport = Transport::Iser(begin, Checks::Crc);
    let patience = Duration::ZERO;
    Options {
        transport,
        connect_patience: patience,
        reconnect_patience: patience,
        ..Options::new(portal.to_string(), Some(TARGET.to_owned()))
    }
}

/// Covers: ISC-01/S, ISC-07, DAP-06/I.
#[test]
fn a_byte_stream_becomes_rdma_behind_the_last_response_of_its_login() {
    let server = Server::start(speaking(Settings::default()));
    let line = Line::to(server.portal());
    let node = Initiator::start(&initiator::Config::default()).unwrap();
    let session = node.connect(options(line.portal, Begin::Login)).unwrap();
    session.logout();
    let said = line.before(0, 0, b"");
    let (requests, behind) = logins(&said);
    assert!(requests > 1 && behind.starts_with(REQUEST), "plain, and then MPA");
    // All that the target says of the login has come when MPA begins.
    let said = line.before(0, 1, REQUEST);
    let (responses, behind) = logins(&said);
    assert_eq!((responses, behind.len()), (requests, 0));
    let said = line.before(0, 1, b"");
    assert!(logins(&said).1.starts_with(REPLY), "its answer is the first thing behind the login");
}

/// Covers: ISK-03/I.
#[test]
fn all_connections_of_a_session_are_of_one_kind() {
    let server = Server::start(speaking(Settings::default()));
    for begin in [Begin::Rdma, Begin::Login] {
        let line = Line::to(server.portal());
        let node = Initiator::start(&initiator::Config::default()).unwrap();
        let mut options = options(line.portal, begin);
        options.settings.connections = 3;
        let session = node.connect(options).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let begun = |connection| {
            let said = line.before(connection, 0, b"");
            let (logins, behind) = logins(&said);
            // One that joins hears of it from its session: no key of its login says so.
            assert!(connection == 0 || !said.windows(14).any(|key| key == b"RDMAExtensions"));
            assert_eq!(logins > 0, begin == Begin::Login);
            behind.starts_with(REQUEST)
        };
        while line.said.lock().unwrap().iter().filter(|said| said.len() > 4).count() < 3
            || !(0..3).all(begun)
        {
            assert!(Instant::now() < deadline, "three connections");
            thread::sleep(Duration::from_millis(5));
        }
        session.logout();
    }
}

/// What comes behind the last response, with it, is of the RDMA stream.
///
/// Covers: MPA-27.
#[test]
fn an_initiator_keeps_what_comes_with_the_last_response() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let portal = listener.local_addr().unwrap();
    let target = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stat_sn = 1;
        loop {
            let mut header = [0; BHS_LEN];
            stream.read_exact(&mut header).unwrap();
            let length = u32::from_be_bytes([0, header[5], header[6], header[7]]);
            stream.read_exact(&mut vec![0; pad4(length as usize)]).unwrap();
            let Ok(Request::Login(login)) = Request::parse(&header) else { panic!("no login") };
            let is_last = login.next == Some(Stage::FullFeature);
            let text: &[u8] = match login.current {
                Stage::Operational => b"RDMAExtensions=Yes\0",
                _ => b"AuthMethod=None\0TargetPortalGroupTag=1\0",
            };
            let response = LoginResponse {
                transit: true,
                continue_: false,
                current: login.current,
                next: login.next,
                version_max: 0,
                version_active: 0,
                isid: login.isid,
                tsih: Tsih(u16::from(is_last)),
                itt: login.itt,
                numbers: Numbers {
                    stat_sn: StatSn(stat_sn),
                    exp_cmd_sn: login.cmd_sn,
                    max_cmd_sn: login.cmd_sn,
                },
                status: 0,
            };
            stat_sn += 1;
            let mut said = response.emit(u32::try_from(text.len()).unwrap()).to_vec();
            said.extend(text);
            said.resize(BHS_LEN + pad4(text.len()), 0);
            if is_last {
                said.extend(REPLY);
                said.extend([0x50, 2, 0, 4, 0, 4, 0, 4]);
            }
            stream.write_all(&said).unwrap();
            if is_last {
                break;
            }
        }
        // Its request, and then what it could not say without the reply.
        let mut request = [0; 20 + 8];
        stream.read_exact(&mut request).unwrap();
        assert!(request.starts_with(REQUEST));
        let mut head = [0; 4];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(head[2..], [0x41, 0x45], "a Send that wakes");
    });
    let node = Initiator::start(&initiator::Config::default()).unwrap();
    let session = node.connect(options(portal, Begin::Login));
    target.join().unwrap();
    drop(session);
}

/// What a connection needs there is before its login, which is not finished without it.
///
/// Covers: ISC-03.
#[test]
fn an_initiator_without_memory_for_rdma_does_not_log_in() {
    let server = Server::start(speaking(Settings::default()));
    for (bytes, is_enough) in [(1 << 20, true), (4096, false)] {
        for begin in [Begin::Rdma, Begin::Login] {
            let line = Line::to(server.portal());
            let config = initiator::Config { pool_bytes_max: bytes, ..Default::default() };
            let node = Initiator::start(&config).unwrap();
            let session = node.connect(options(line.portal, begin));
            assert_eq!(session.is_ok(), is_enough, "{begin:?}");
            if !is_enough {
                let said = line.said.lock().unwrap().concat();
                assert!(said.iter().all(|(_, bytes)| bytes.is_empty()), "no login");
            }
        }
    }
}

/// Covers: ISC-04, ISE-04/T.
#[test]
fn without_memory_for_rdma_a_login_that_agrees_on_it_is_refused() {
    let pairs = [("RDMAExtensions", "Yes")];
    for (bytes, status) in [(64 << 20, 0), (4096, 0x0302)] {
        let plan = Plan { pool_bytes_max: bytes, ..speaking(Settings::default()) };
        let server = Server::start(plan);
        let mut raw = server.connect();
        let (response, pdu) = LoginPlan::new().with(&pairs).begin(&mut raw);
        assert_eq!(response.status, status, "{pdu:x?}");
        match status {
            0 => {
                let agreed = ("RDMAExtensions".to_owned(), "Yes".to_owned());
                assert!(pdu.pairs().contains(&agreed));
                raw.write(&[REQUEST, &[0x50, 2, 0, 4, 0, 4, 0, 4]].concat());
                assert_eq!(raw.read_bytes(REPLY.len()), REPLY);
            }
            _ => raw.expect_closed(),
        }
        // A byte stream needs none.
        let (response, _) = LoginPlan::new().begin(&mut server.connect());
        assert_eq!(response.status, 0);
    }
}

/// Nor is one whose connection began with RDMA; and one that was refused keeps nothing from who
/// comes when there is memory again.
///
/// Covers: ISC-04, ISE-04/T.
#[test]
fn memory_that_others_have_is_there_for_a_login_when_they_have_gone() {
    let plan = Plan { pool_bytes_max: 256 << 10, ..speaking(Settings::default()) };
    let server = Server::start(plan);
    let node = Initiator::start(&initiator::Config::default()).unwrap();
    for begin in [Begin::Rdma, Begin::Login] {
        let mut there = Vec::new();
        let refused = loop {
            assert!(there.len() < 64, "{begin:?}: memory has no end");
            match node.connect(options(server.portal(), begin)) {
                Ok(session) => there.push(session),
                Err(error) => break error,
            }
        };
        let told = matches!(refused.kind(), Kind::Login(LoginError::Refused(0x0302)));
        assert!(told && !there.is_empty(), "{begin:?}: {refused:?}");
        there.into_iter().for_each(|session| session.logout());
    }
}

/// What connections have for their messages is no reason to refuse a command for ever; nor is one
/// told to come again that does not fit beside it.
#[test]
fn a_command_has_what_the_messages_of_its_connection_leave() {
    for (pool, kind) in [(384 << 10, None), (256 << 10, Some((0x55, 0x03)))] {
        let plan = Plan { pool_bytes_max: pool, ..speaking(Settings::default()) };
        let server = Server::start(plan);
        for begin in [Begin::Rdma, Begin::Login] {
            let node = Initiator::start(&initiator::Config::default()).unwrap();
            let session = node.connect(options(server.portal(), begin)).unwrap();
            let asked = Instant::now();
            let mut bytes = [0; 32];
            bytes[..10].copy_from_slice(&cdb10(0x2a, 0, 512));
            let data = Data::Out(buf::Slice::from(vec![7; 256 << 10]));
            let (cdb, retry) = (Cdb { bytes, len: 10 }, Retry::Always);
            let ended = session.post(Post { lun: 0, cdb, data, retry }).wait();
            match (&ended, kind) {
                (Ok(_), None) => {}
                (Err(error), Some(code)) => match error.kind() {
                    Kind::Status { sense: Some(sense), .. } => {
                        assert_eq!((sense.asc, sense.ascq), code);
                    }
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
            // Who waits for memory is refused after that.
            assert!(asked.elapsed() < Duration::from_secs(2), "at once");
            session.logout();
        }
    }
}

/// The answer to a logout comes before the end of the stream.
///
/// Covers: ISC-15.
#[test]
fn a_logout_is_answered_and_the_stream_ends_in_good_order() {
    let server = Server::start(speaking(Settings::default()));
    for begin in [Begin::Rdma, Begin::Login] {
        let line = Line::to(server.portal());
        let node = Initiator::start(&initiator::Config::default()).unwrap();
        let session = node.connect(options(line.portal, begin)).unwrap();
        session.logout();
        let said = line.before(0, 1, b"");
        let behind = logins(&said).1;
        let length = usize::from(u16::from_be_bytes([behind[18], behind[19]]));
        let segments = segments(&behind[20 + length..]);
        let last = segments.last().unwrap();
        // A Send with the response to a logout, and no Terminate behind it.
        assert_eq!((last[1] & 0x0f, last[18 + 28]), (5, 0x26), "{last:x?}");
    }
}

/// What FPDUs carry.
fn segments(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut segments = Vec::new();
    while let Some([high, low]) = bytes.first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        segments.push(bytes[2..2 + length].to_vec());
        bytes = &bytes[(2 + length).next_multiple_of(4) + 4..];
    }
    segments
}
