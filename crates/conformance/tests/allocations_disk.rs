// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An operation on a disk allocates nothing once its kind has been seen: counted over all threads
//! of a process that has both roles.

use std::alloc::System;
use std::sync::Mutex;

use buf::Slice;
use initiator::Begin;
use initiator::Checks;
use initiator::Completion;
use initiator::CompletionQueue;
use initiator::Config;
use initiator::Disk;
use initiator::Initiator;
use initiator::LocalTarget;
use initiator::Operation;
use initiator::Options;
use initiator::Paths;
use initiator::Session;
use initiator::Stripe;
use initiator::Transport;
use lunwire_conformance::server::Server;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::on_each_plan;
use stats_alloc::INSTRUMENTED_SYSTEM;
use stats_alloc::Region;
use stats_alloc::StatsAlloc;
use target::Rdma;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WARM: u32 = 400;
const COUNTED: u32 = 200;
const DEPTH: u32 = 8;

/// A queue may still meet a depth that it has not seen and grow once; an operation that allocates
/// would do it [`COUNTED`] times.
const GROWTH_MAX: usize = 64;

static DATA: [u8; 4096] = [0x5a; 4096];
static WIDE: [u8; 8192] = [0x5a; 8192];
static LONG: [u8; 65_536] = [0x5a; 65_536];

/// What is counted; each alone, since a store in memory that lends its pages to a read takes others
/// for a write.
const KINDS: [fn(u64) -> Operation; 4] = [
    |offset| Operation::read(offset, 4096),
    |offset| Operation::write(offset, Slice::from_static(&DATA)),
    |offset| Operation::write(offset, Slice::from_static(&DATA)).durable(),
    |_| Operation::Flush,
];

/// What else is counted over iSER: an RDMA Write of the target, and an RDMA Read, of several
/// segments each.
const LONG_KINDS: [fn(u64) -> Operation; 2] = [
    |offset| Operation::read(offset * 16, 65_536),
    |offset| Operation::write(offset * 16, Slice::from_static(&LONG)),
];

/// What else is counted over a stripe with chunks of 4 KiB: what goes to two disks.
const WIDE_KINDS: [fn(u64) -> Operation; 2] = [
    |offset| Operation::read(offset * 2, 8192),
    |offset| Operation::write(offset * 2, Slice::from_static(&WIDE)),
];

/// Runs `count` operations over a completion queue, [`DEPTH`] at a time.
fn submit(
    disk: &Disk,
    queue: &CompletionQueue,
    entries: &mut Vec<Completion>,
    kind: fn(u64) -> Operation,
    count: u32,
) {
    for _ in 0..count / DEPTH {
        for tag in 0..u64::from(DEPTH) {
            disk.submit(queue, tag, kind(tag * 4096)).expect("it fits");
        }
        let mut under_way = DEPTH as usize;
        while under_way > 0 {
            under_way -= queue.reap_all(entries);
            for entry in entries.drain(..) {
                let Completion::Ended { result, .. } = entry else { panic!("{entry:?}") };
                result.expect("it is carried out");
            }
            let _ = under_way > 0 && queue.wait(None);
        }
    }
}

/// The same one after the other, each waited for.
fn wait(disk: &Disk, kind: fn(u64) -> Operation, count: u32) {
    for _ in 0..count {
        disk.start(kind(0)).expect("it fits").wait().expect("it is carried out");
    }
}

fn counted(what: &str, mut run: impl FnMut(u32)) {
    run(WARM);
    let region = Region::new(HEAP);
    run(COUNTED);
    let change = region.change();
    assert!(change.allocations + change.reallocations <= GROWTH_MAX, "{what}: {change:?}");
}

/// The way to a target in this process, for one session.
fn within_process(server: &Server) -> Options {
    let end = Mutex::new(Some(server.target().connect_local()));
    let connect = move || {
        let end = end.lock().expect("nobody panics").take();
        end.ok_or_else(|| std::io::Error::other("the session was lost"))
    };
    Options::within_process(LocalTarget::new(connect), Some(TARGET.to_owned()))
}

/// Counts all kinds of operations, and `more`, over a session.
fn count(way: &str, session: &Session, more: &[fn(u64) -> Operation]) {
    let disk = Disk::open(session, 0).expect("a disk");
    let queue = CompletionQueue::new().expect("a descriptor");
    let mut entries = Vec::with_capacity(DEPTH as usize);
    for kind in KINDS.iter().chain(more).copied() {
        let what = format!("{:?} over {way}", kind(0));
        counted(&what, |count| submit(&disk, &queue, &mut entries, kind, count));
        counted(&what, |count| wait(&disk, kind, count));
    }
}

#[test]
fn an_operation_on_a_disk_allocates_nothing() {
    on_each_plan(
        |_| {},
        |plan| plan.rdma = Rdma::Iwarp,
        |server| {
            let initiator = Initiator::start(&Config::default()).expect("a thread");
            let tcp = Options::new(server.portal().to_string(), Some(TARGET.to_owned()));
            let iser =
                |checks| Options { transport: Transport::Iser(Begin::Rdma, checks), ..tcp.clone() };
            let (checked, bare) = (iser(Checks::Crc), iser(Checks::None));
            for (way, options) in [
                // First: the target waits for its login from now on.
                ("messages", within_process(server)),
                ("TCP", tcp.clone()),
                ("iSER", checked),
                ("bare iSER", bare),
            ] {
                let is_iser = matches!(options.transport, Transport::Iser(..));
                let session = initiator.connect(options).expect("a session");
                let more: &[_] = if is_iser { &LONG_KINDS } else { &[] };
                count(way, &session, more);
            }
            let members = [0, 1].map(|lun| Paths::new(vec![(tcp.clone(), lun)])).to_vec();
            let session = initiator.connect_stripe(Stripe { chunk: 4096, members });
            count("a stripe", &session.expect("a session"), &WIDE_KINDS);
        },
    );
}
