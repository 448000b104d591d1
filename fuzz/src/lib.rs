// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The harnesses: bytes in, no panic out. libFuzzer drives them (`fuzz_targets/`), and so does a
//! seeded generator where there is no nightly compiler (`tests/seeded.rs`).
#![forbid(unsafe_code)]

mod authentication;
mod device;
mod disk;
mod ether_frames;
mod http;
mod initiator;
mod input;
mod iser;
mod iser_initiator;
mod iwarp;
mod machine;
mod nbd;
mod nbd_server;
mod pdu;
mod queue_pair;
mod target;

use crate::authentication::authentication;
use crate::disk::Disk;
pub use crate::ether_frames::ether_frames;
pub use crate::http::http;
pub use crate::initiator::initiator_machine;
use crate::input::Input;
pub use crate::iser::Reached;
pub use crate::iser::iser_target;
pub use crate::iser::iser_target_reaches;
pub use crate::iser_initiator::InitiatorReached;
pub use crate::iser_initiator::iser_initiator;
pub use crate::iser_initiator::iser_initiator_reaches;
pub use crate::iwarp::iser_header;
pub use crate::iwarp::iwarp_headers;
pub use crate::iwarp::mpa_stream;
pub use crate::machine::target_machine;
pub use crate::nbd::nbd_client;
pub use crate::nbd_server::nbd_server;
pub use crate::queue_pair::queue_pair;
use crate::target::Target;
use buf::Pool;
use clock::Instant;
use iscsi::datamover::Capabilities;
use iscsi::datamover::Event;
use iscsi::datamover::Immediate;
use iscsi::datamover::Keys;
use iscsi::datamover::Op;
use iscsi::negotiate;
use iscsi::params;
use iscsi::target_role::Admission;
use iscsi::target_role::Authentication;
use iscsi::target_role::Login;
use iscsi::target_role::LoginOutput;
use iscsi::target_role::Settings;
use mover::tcp::Tcp;
use std::time::Duration;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;
use wire::iscsi::keys::Pairs;

/// Bytes that all buffers of one harness run may take.
const POOL_BYTES: usize = 64 << 20;

thread_local! {
    static POOL: Pool = Pool::new(POOL_BYTES).expect("address space for a small pool");
}

/// Runs `body` with a pool and proves that every buffer came back.
fn with_pool(body: impl FnOnce(&Pool)) {
    POOL.with(|pool| {
        body(pool);
        assert_eq!(pool.bytes_in_use(), 0, "a buffer was not given back");
    });
}

/// A connection from its first byte to the end of its login, and on into full feature phase.
pub fn login(data: &[u8]) {
    with_pool(|pool| {
        let mut input = Input::new(data);
        let now = Instant(0);
        let mut machine = Login::new(now, StatSn(1), Duration::from_secs(15), Capabilities::STREAM);
        let mut mover = Tcp::new();
        let demand = authentication(input.byte());
        while !input.is_empty() {
            let stream = input.login_pdu();
            let done = feed(&mut mover, &stream, pool, |mover, event| {
                let (header, data) = (mover.header().to_vec(), mover.control_data().to_vec());
                machine.handle_event(event, &header, &data, now);
                drain_login(&mut machine, mover, &demand)
            });
            transmit(&mut mover);
            mover.check();
            match done {
                Some(Over::Failed) => return,
                Some(Over::LoggedIn(logged_in)) => {
                    let mut target = Target::new(*logged_in, mover, pool, now);
                    return target.run(&mut input);
                }
                None => {}
            }
        }
    });
}

enum Over {
    Failed,
    LoggedIn(Box<iscsi::target_role::LoggedIn>),
}

fn drain_login(machine: &mut Login, mover: &mut Tcp, demand: &Authentication) -> Option<Over> {
    let mut over = None;
    while let Some(output) = machine.poll_output() {
        match output {
            LoginOutput::Op(op) => drop(mover.submit(op)),
            LoginOutput::Admit(request) => {
                assert!(request.discovery || request.target.is_some(), "a session with nobody");
                machine.admit(Admission::Granted {
                    portal_group_tag: 1,
                    target_alias: Some("disk".to_owned()),
                    settings: Settings::default(),
                    authentication: demand.clone(),
                });
            }
            LoginOutput::Establish => {
                let proved = machine.authenticated() == Some("hostuser");
                let required = matches!(demand, Authentication::Required(_));
                assert!(proved || !required, "a login without the proof that it owes");
                machine.establish(Ok(Tsih(1)));
            }
            LoginOutput::Done(logged_in) => over = Some(Over::LoggedIn(Box::new(logged_in))),
            LoginOutput::Failed { .. } => over = Some(Over::Failed),
        }
    }
    over
}

/// Feeds all bytes; stops when `handle` gives something.
fn feed<T>(
    mover: &mut Tcp,
    mut bytes: &[u8],
    pool: &Pool,
    mut handle: impl FnMut(&mut Tcp, Event) -> Option<T>,
) -> Option<T> {
    loop {
        let (taken, event) = mover.feed(bytes, pool);
        bytes = bytes.get(taken..).expect("a mover takes no more than it is given");
        let over = event.is_none() && bytes.is_empty();
        let violated = matches!(event, Some(Event::Violation(_)));
        if let Some(result) = event.and_then(|event| handle(mover, event)) {
            return Some(result);
        }
        if over || violated {
            return None;
        }
    }
}

/// Sends everything that waits.
fn transmit(mover: &mut Tcp) {
    let mut list = buf::SgList::new();
    while mover.poll_transmit(&mut list) {
        mover.handle_sent();
    }
}

/// A session in full feature phase: PDUs that are mostly well formed, in any order, against a disk.
pub fn full_feature(data: &[u8]) {
    with_pool(|pool| {
        let mut input = Input::new(data);
        let (logged_in, keys) = input.parameters();
        let mut mover = Tcp::new();
        mover.submit(Op::NoticeKeys(keys));
        let mut target = Target::new(logged_in, mover, pool, Instant(0));
        target.run(&mut input);
    });
}

/// Text segments, and every key that is found in them negotiated.
pub fn text_keys(data: &[u8]) {
    let (wish, text) = data.split_at(data.len().min(4));
    let wish = wish.iter().fold(0, |wish, byte| wish << 8 | u32::from(*byte));
    for (name, value) in Pairs::new(text).map_while(Result::ok) {
        let Some(key) = params::find(name) else { continue };
        if let negotiate::Answer::Agreed(result) = negotiate::answer(key, value, wish) {
            let told = negotiate::text(key, result);
            assert!(!negotiate::RESERVED.contains(&told.as_str()), "{name}={told}");
        }
    }
    for value in text.split(|byte| *byte == 0).filter_map(|part| str::from_utf8(part).ok()) {
        let _ = wire::iscsi::keys::numeric(value);
        let _ = wire::iscsi::keys::boolean(value);
        assert!(wire::iscsi::keys::list(value).count() <= value.len() + 1);
    }
}

/// Any CDB with any data against a disk, a drive, or a device that answers with anything.
pub fn every_cdb(data: &[u8]) {
    with_pool(|pool| {
        let mut input = Input::new(data);
        let mut disk = match input.byte() {
            kind if kind & 3 == 0 => Disk::drive(),
            kind if kind & 3 == 1 => Disk::device(kind >> 3),
            _ => Disk::new(),
        };
        while !input.is_empty() {
            let request = input.scsi_request();
            let bytes = input.take(usize::from(input.peek()) * 16);
            disk.run(&request, bytes, pool);
        }
    });
}

/// The answer of a name server, and the attributes in it.
pub fn isns_reply(data: &[u8]) {
    let (header, payload) = data.split_at(data.len().min(wire::isns::HEADER_LEN));
    if let Ok(header) = header.try_into().map(wire::isns::Header::parse) {
        let _ =
            header.map(|header| assert!(usize::from(header.length) <= wire::isns::PAYLOAD_LEN_MAX));
    }
    let Ok((_, attributes)) = wire::isns::response(payload) else { return };
    let mut bytes = 4;
    for attribute in attributes.map_while(Result::ok) {
        bytes += 8 + attribute.value.len();
        let text = attribute.text().unwrap_or_default();
        assert!(text.len() < attribute.value.len().max(1) && !text.contains('\0'));
        let _ = attribute.number();
    }
    assert!(bytes <= payload.len(), "attributes beyond the message");
}

/// A byte stream into the mover: whole and in pieces it must mean the same.
pub fn mover_stream(data: &[u8]) {
    with_pool(|pool| {
        let mut input = Input::new(data);
        let flags = input.byte();
        let piece = usize::from(input.byte()) + 1;
        let keys = Keys {
            header_digest: flags & 1 != 0,
            data_digest: flags & 2 != 0,
            first_burst_length: 65536,
            ..Keys::LOGIN
        };
        // The first PDU of a connection is a Login Request, or nothing else would be seen.
        let mut stream = if flags & 4 == 0 { input::empty_login().to_vec() } else { Vec::new() };
        stream.extend_from_slice(input.rest());
        let whole = events(&stream, stream.len().max(1), keys, pool);
        let pieces = events(&stream, piece, keys, pool);
        assert_eq!(whole, pieces, "a split of the stream changed its meaning");
    });
}

/// What a stream that comes in pieces makes the mover tell.
fn events(stream: &[u8], piece: usize, keys: Keys, pool: &Pool) -> Vec<String> {
    let mut mover = Tcp::new();
    let mut told = Vec::new();
    let mut noticed = false;
    for bytes in stream.chunks(piece) {
        let violated = feed(&mut mover, bytes, pool, |mover, event| {
            told.push(describe(mover, &event));
            if !noticed {
                noticed = true;
                mover.submit(Op::NoticeKeys(keys));
            }
            matches!(event, Event::Violation(_)).then_some(())
        });
        mover.check();
        if violated.is_some() {
            break;
        }
    }
    told
}

/// An event without addresses of memory.
fn describe(mover: &Tcp, event: &Event) -> String {
    match event {
        Event::Control { request, immediate } => {
            let data = match immediate {
                Immediate::Staged { data, length } => {
                    let valid = usize::try_from(*length).unwrap_or(usize::MAX);
                    format!("{:?}", data.get(..valid).expect("valid bytes are in the buffer"))
                }
                other => format!("{other:?}"),
            };
            format!("{request:?} {data} {:?} {:?}", mover.header(), mover.control_data())
        }
        other => format!("{other:?}"),
    }
}
