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

/// A target that refuses every login with `status`; how often it did.
fn refusing(status: u16) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let portal = listener.local_addr().unwrap();
    let logins: Arc<AtomicUsize> = Arc::default();
    let count = Arc::clone(&logins);
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
            stream.write_all(&Response::Login(response).emit(0)).unwrap();
            // Up to its end: a reset would overtake the answer.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    (portal, logins)
}

/// How often somebody with patience tries, how long, and that `status` is what he is told then.
fn tries(status: u16) -> (usize, Duration) {
    let (portal, logins) = refusing(status);
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
