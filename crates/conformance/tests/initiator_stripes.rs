// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several disks as one: where bytes are, what a lost one holds up, and what is refused.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::net::SocketAddr;
use std::time::Duration;

use initiator::Completion;
use initiator::CompletionQueue;
use initiator::Config;
use initiator::Disk;
use initiator::DiskEvent;
use initiator::Durability;
use initiator::Initiator as Client;
use initiator::Kind;
use initiator::Operation;
use initiator::Options;
use initiator::Paths;
use initiator::Session;
use initiator::Slice;
use initiator::Stripe;
use initiator::StripeError;
use lunwire_conformance::Server;
use lunwire_conformance::proxy::Digests;
use lunwire_conformance::proxy::Fate;
use lunwire_conformance::proxy::Proxy;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::UNIT_BYTES;
use lunwire_conformance::server::plan;

const CHUNK: u64 = 4096;

const PLAIN: Digests = Digests { header: false, data: false };

fn server() -> Server {
    Server::start(plan(engine::Choice::Epoll, iscsi::target_role::Settings::default()))
}

/// One path for each portal.
fn member(portals: &[SocketAddr], lun: u16) -> Paths {
    let options = |portal: &SocketAddr| Options::new(portal.to_string(), Some(TARGET.to_owned()));
    Paths::new(portals.iter().map(|portal| (options(portal), lun)).collect())
}

fn session(client: &Client, members: Vec<Paths>) -> Session {
    client.connect_stripe(Stripe { chunk: CHUNK, members }).unwrap()
}

fn client() -> Client {
    Client::start(&Config::default()).unwrap()
}

/// The third disk is a file, and the second one has two paths.
#[test]
fn what_is_written_is_read_again_by_whole_and_by_part() {
    let (server, client) = (server(), client());
    let portal = server.portal();
    let members = vec![member(&[portal], 0), member(&[portal, portal], 1), member(&[portal], 2)];
    let session = session(&client, members);
    let disk = Disk::open(&session, 0).unwrap();
    assert_eq!(disk.size(), 3 * UNIT_BYTES);
    let length = 1 << 20;
    let bytes: Vec<u8> =
        (0..length).map(|at: usize| (at / 512).to_le_bytes()[0] ^ at.to_le_bytes()[0]).collect();
    disk.write_at(CHUNK / 2, &bytes).unwrap();
    disk.start(Operation::Write {
        offset: 2 * CHUNK - 512,
        data: Slice::from(vec![7; 1024]),
        durability: Durability::Stable,
    })
    .unwrap()
    .wait()
    .unwrap();
    disk.zero(20 * CHUNK, 5 * CHUNK).unwrap();
    disk.flush().unwrap();
    let mut expected = vec![0; length + 4096];
    expected[2048..2048 + length].copy_from_slice(&bytes);
    expected[8192 - 512..8192 + 512].fill(7);
    expected[20 * 4096..25 * 4096].fill(0);
    let mut found = vec![1; expected.len()];
    disk.read_at(0, &mut found).unwrap();
    assert!(found == expected);
    // Each one by itself has each third chunk.
    for lun in 0..3 {
        let alone = client.connect_paths(member(&[portal], lun)).unwrap();
        let alone = Disk::open(&alone, lun).unwrap();
        let mut found = vec![1; 80 * 4096];
        alone.read_at(0, &mut found).unwrap();
        let chunks = expected.chunks(4096).skip(usize::from(lun)).step_by(3);
        assert!(found.chunks(4096).zip(chunks).all(|(found, expected)| found == expected));
    }
    disk.compare_and_write(512, &expected[512..1024], &[9; 512]).unwrap();
    let across = disk.compare_and_write(4096 - 512, &[0; 1024], &[9; 1024]).unwrap_err();
    assert!(matches!(across.kind(), Kind::Stripe(StripeError::Across { .. })), "{across}");
    let beyond = disk.write_at(disk.size(), &[0; 512]).unwrap_err();
    assert!(matches!(beyond.kind(), Kind::Range { .. }));
    session.logout();
}

/// Of long chunks each is read by a command of its own, also over paths and at both ends in part.
#[test]
fn long_chunks_are_read_in_their_order() {
    let (server, client) = (server(), client());
    let portal = server.portal();
    let members = vec![member(&[portal], 0), member(&[portal, portal], 1), member(&[portal], 2)];
    let session = client.connect_stripe(Stripe { chunk: 64 << 10, members }).unwrap();
    let disk = Disk::open(&session, 0).unwrap();
    let bytes: Vec<u8> =
        (0..1 << 20).map(|at: u32| (at >> 9).to_le_bytes()[0] ^ at.to_le_bytes()[0]).collect();
    for (offset, length) in [(0, 1 << 20), (512, 1 << 20), (65_024, 1024), (130_560, 200_704)] {
        disk.write_at(offset, &bytes[..length]).unwrap();
        let mut found = vec![1; length];
        disk.read_at(offset, &mut found).unwrap();
        assert!(found == bytes[..length], "{offset} {length}");
    }
    session.logout();
}

fn wait_for(queue: &CompletionQueue, what: impl Fn(&Completion) -> bool) -> Completion {
    let until = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        while let Some(entry) = queue.reap() {
            if what(&entry) {
                return entry;
            }
        }
        assert!(std::time::Instant::now() < until, "it does not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_disk_that_is_lost_holds_up_what_needs_it_and_no_more() {
    let (server, client) = (server(), client());
    let portal = server.portal();
    let proxy = Proxy::start(portal, PLAIN, |_| Fate::Pass);
    let members = vec![member(&[portal], 0), member(&[proxy.portal()], 1)];
    let session = session(&client, members);
    let disk = Disk::open(&session, 0).unwrap();
    let queue = CompletionQueue::new().unwrap();
    disk.watch(&queue, 99);
    proxy.shut();
    let lost = wait_for(&queue, |entry| matches!(entry, Completion::Event { .. }));
    let Completion::Event { event: DiskEvent::Lost(error), .. } = lost else { panic!("{lost:?}") };
    assert_eq!(error.member(), Some(1));
    assert!(error.to_string().starts_with("disk 2 of the stripe"), "{error}");
    let write = |offset, length| Operation::write(offset, Slice::from(vec![3; length]));
    disk.submit(&queue, 1, write(0, 8192)).unwrap();
    disk.submit(&queue, 2, write(2 * CHUNK, 512)).unwrap();
    let first = wait_for(&queue, |entry| matches!(entry, Completion::Ended { .. }));
    assert!(matches!(first, Completion::Ended { tag: 2, result: Ok(_) }), "{first:?}");
    std::thread::sleep(Duration::from_millis(300));
    // That it is lost is told again with each try.
    while let Some(entry) = queue.reap() {
        assert!(matches!(entry, Completion::Event { event: DiskEvent::Lost(_), .. }), "{entry:?}");
    }
    proxy.open();
    wait_for(&queue, |entry| matches!(entry, Completion::Event { event: DiskEvent::Back, .. }));
    let second = wait_for(&queue, |entry| matches!(entry, Completion::Ended { .. }));
    assert!(matches!(second, Completion::Ended { tag: 1, result: Ok(_) }), "{second:?}");
    disk.flush().unwrap();
    session.logout();
}

#[test]
fn a_disk_that_does_not_come_back_ends_all_with_its_name() {
    let (server, client) = (server(), client());
    let portal = server.portal();
    let proxy = Proxy::start(portal, PLAIN, |_| Fate::Pass);
    let mut members = vec![member(&[portal], 0), member(&[proxy.portal()], 1)];
    members[1].paths[0].0.reconnect_patience = Duration::from_secs(1);
    let session = session(&client, members);
    let disk = Disk::open(&session, 0).unwrap();
    disk.write_at(0, &[1; 8192]).unwrap();
    proxy.shut();
    let error = disk.write_at(0, &[2; 8192]).unwrap_err();
    assert!(error.to_string().starts_with("disk 2 of the stripe"), "{error}");
    let error = disk.write_at(0, &[2; 512]).unwrap_err();
    assert!(error.to_string().starts_with("disk 2 of the stripe"), "{error}");
}

#[test]
fn what_is_no_stripe_is_told() {
    let (server, client) = (server(), client());
    let portal = server.portal();
    let refused = |chunk, luns: &[u16]| {
        let members = luns.iter().map(|lun| member(&[portal], *lun)).collect();
        let error = client.connect_stripe(Stripe { chunk, members }).unwrap_err();
        match error.kind() {
            Kind::Stripe(error) => error.clone(),
            _ => panic!("{error}"),
        }
    };
    assert_eq!(refused(CHUNK, &[0]), StripeError::Members(1));
    assert_eq!(refused(CHUNK + 512, &[0, 1]), StripeError::Chunk(CHUNK + 512));
    let same = refused(CHUNK, &[0, 1, 0]);
    assert!(matches!(same, StripeError::Same { first: 1, second: 3, .. }), "{same}");
}
