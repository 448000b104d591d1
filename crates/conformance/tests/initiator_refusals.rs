// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator whose login is refused: what may pass is tried again for a bounded time, what will
//! not ends at once (RFC 7143 §11.13.5).
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::io::Read;
use std::io::Write;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use initiator::Config;
use initiator::Kind;
use initiator::Options;
use initiator::Queue;
use iscsi::initiator::LoginError;
use wire::iscsi::*;

/// How long the initiator goes on.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a target tells that refuses every login.
struct Refusing {
    portal: SocketAddr,
    logins: Arc<AtomicUsize>,
    /// Each connection that the initiator has closed.
    closed: Receiver<()>,
}

/// A target that refuses every login with `status`, and closes no connection before the initiator.
fn refusing(status: u16, text: &'static [u8]) -> Refusing {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let portal = listener.local_addr().unwrap();
    let logins: Arc<AtomicUsize> = Arc::default();
    let count = Arc::clone(&logins);
    let (ends, closed) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut header = [0; BHS_LEN];
            if stream.read_exact(&mut header).is_err() {
                continue;
            }
            let Ok(Request::Login(login)) = Request::parse(&header) else { return };
            count.fetch_add(1, Ordering::SeqCst);
            let exp_cmd_sn = login.cmd_sn;
            let numbers = Numbers { stat_sn: StatSn(0), exp_cmd_sn, max_cmd_sn: exp_cmd_sn };
            let response = LoginResponse {
                transit: false,
                continue_: false,
                current: login.current,
                next: login.next,
                version_max: 0,
                version_active: 0,
                isid: login.isid,
                tsih: login.tsih,
                itt: login.itt,
                numbers,
                status,
            };
            let length = u32::try_from(text.len()).unwrap();
            let mut bytes = Response::Login(response).emit(length).to_vec();
            bytes.extend_from_slice(text);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            stream.write_all(&bytes).unwrap();
            // Up to its end: a reset would overtake the answer.
            let _ = stream.read_to_end(&mut Vec::new());
            let _ = ends.send(());
        }
    });
    Refusing { portal, logins, closed }
}

/// Whatever becomes of the session: the connection with the refusal is closed, not kept.
///
/// Covers: LGN-38/I.
#[test]
fn the_connection_of_a_refusal_is_closed() {
    let redirection = b"TargetAddress=127.0.0.1:9\0";
    for (status, text) in [
        (0x0101, &redirection[..]),
        (0x0102, redirection),
        (0x0201, b""),
        (0x0203, b""),
        (0x0301, b""),
        (0x0402, b""),
    ] {
        let Refusing { portal, closed, .. } = refusing(status, text);
        let target = Some("iqn.2026-01.example:t".to_owned());
        let mut options = Options::new(portal.to_string(), target);
        options.connect_patience = PATIENCE / 4;
        let mut queue = Queue::new(&Config::default()).unwrap();
        let refused = queue.login(options);
        assert!(refused.is_err(), "{status:#06x}");
        // The queue is there: it goes on with other sessions.
        closed.recv_timeout(PATIENCE * 5).unwrap_or_else(|_| panic!("{status:#06x}: it stays"));
        drop(queue);
    }
}

/// How often somebody with patience tries, how long, and that `status` is what he is told then.
fn tries(status: u16) -> (usize, Duration) {
    let Refusing { portal, logins, .. } = refusing(status, b"");
    let mut options = Options::new(portal.to_string(), Some("iqn.2026-01.example:t".to_owned()));
    options.connect_patience = PATIENCE;
    let mut queue = Queue::new(&Config::default()).unwrap();
    let begun = Instant::now();
    let error = queue.login(options).expect_err("it is refused");
    let told = matches!(error.kind(), Kind::Login(LoginError::Refused(of)) if *of == status);
    assert!(told, "{error:?}");
    (logins.load(Ordering::SeqCst), begun.elapsed())
}

#[test]
fn a_target_that_cannot_serve_now_is_tried_again_for_a_while() {
    // Target error, service unavailable, out of resources.
    for status in [0x0300, 0x0301, 0x0302] {
        let (logins, time) = tries(status);
        assert!((3..=12).contains(&logins), "{logins} logins after {status:#06x}");
        assert!(time >= PATIENCE && time < PATIENCE * 4, "{time:?} after {status:#06x}");
    }
}

#[test]
fn a_refusal_that_will_not_pass_ends_at_once() {
    // Authentication, authorization, not found, removed, too many connections.
    for status in [0x0201, 0x0202, 0x0203, 0x0204, 0x0206] {
        let (logins, time) = tries(status);
        assert_eq!(logins, 1, "after {status:#06x}");
        assert!(time < PATIENCE, "{time:?} after {status:#06x}");
    }
}
