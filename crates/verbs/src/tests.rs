// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections over an adapter that a test plays.

use crate::abi;
use crate::abi::Wc;
use crate::connection::Connection;
use crate::error::Doing;
use crate::error::VerbsError;
use crate::fake::API;
use crate::fake::happen;
use crate::fake::happen_to_listener;
use crate::fake::knock;
use crate::fake::remote_key;
use crate::fake::world;
use crate::listener::Incoming;
use crate::listener::Listener;
use crate::outgoing::Outgoing;
use buf::Buf;
use buf::Pool;
use buf::Slice;
use buf::Trimmed;
use rdma::adapter::Done;
use rdma::adapter::Post;
use rdma::adapter::Read;
use rdma::adapter::Registry;
use rdma::region::Memory;
use rdma::verbs::End;
use rdma::verbs::Head;
use rdma::verbs::Notify;
use rdma::verbs::Work;
use rdma::verbs::WorkId;
use rdma::violation::Violation;
use std::net::SocketAddr;
use std::time::Duration;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

const LOST: End = End::Violated(Violation::Lost);

fn listen() -> Listener {
    Listener::with(&API, SocketAddr::from(([192, 0, 2, 1], 3260))).expect("it listens")
}

fn incoming(listener: &Listener) -> Incoming {
    knock(&[0x80, 0, 0, 0], 4);
    listener.next().expect("it can be served").expect("somebody asks")
}

fn pool() -> Pool {
    Pool::new(8 << 20).expect("memory")
}

/// A connection that has begun.
fn connect(pool: &Pool) -> Connection {
    let listener = listen();
    let connection = incoming(&listener).prepare(pool).expect("it can be had");
    connection.accept(&[1, 2, 3, 4]).expect("it is there");
    connection
}

fn filled(pool: &Pool, bytes: &[u8]) -> Slice {
    let mut buf = pool.take(bytes.len()).expect("room");
    buf.copy_from_slice(bytes);
    buf.freeze()
}

fn zeroed(pool: &Pool, len: usize) -> Buf {
    let mut buf = pool.take(len).expect("room");
    buf.fill(0);
    buf
}

fn send(id: u64, payload: Slice, invalidate: Option<Stag>) -> Post {
    let head = Head::of(&[b"head"]).expect("short");
    Post::Send(WorkId(id), Work::Send { head, payload, invalidate, notify: Notify::Solicited })
}

fn write(id: u64, payload: Slice) -> Post {
    let (stag, offset) = (Stag(77), TaggedOffset(0x1000));
    Post::Send(WorkId(id), Work::Write { payload, stag, offset })
}

fn read(id: u64, buf: Option<Buf>, sink_offset: usize, length: u32) -> Post {
    let (source, source_offset) = (Stag(78), TaggedOffset(0x2000));
    let sink = Stag(5);
    Post::Read(WorkId(id), Read { sink, buf, sink_offset, source, source_offset, length })
}

/// All that it has done, in short.
fn told(connection: &mut Connection) -> Vec<String> {
    connection.look();
    let all = std::iter::from_fn(|| connection.poll());
    all.map(|done| match done {
        Done::Received { buf, length } => {
            format!("received {}", String::from_utf8_lossy(&buf[..length]))
        }
        Done::Sent(id) => format!("sent {}", id.0),
        Done::Read(id) => format!("read {}", id.0),
        Done::Returned(stag, buf) => format!("returned {} {:?}", stag.0, &buf[..4]),
        Done::Ended(end) => format!("ended {end:?}"),
    })
    .collect()
}

/// Nothing is left in the libraries.
fn must_be_gone() {
    world(|world| assert!(world.is_empty(), "{world:?}"));
}

#[test]
fn a_connection_begins_and_ends() {
    let pool = pool();
    let listener = listen();
    let incoming = incoming(&listener);
    assert_eq!(incoming.private_data(), [0x80, 0, 0, 0]);
    assert_eq!(incoming.peer(), "192.0.2.9:9999".parse().expect("one"));
    let depths = incoming.depths();
    assert_eq!((depths.sends, depths.reads, depths.receives), (256, 4, 160));
    let mut connection = incoming.prepare(&pool).expect("it can be had");
    assert_eq!(connection.device(), "fake0");
    connection.post(Post::Receive(zeroed(&pool, 5000)));
    connection.accept(&[0xc0, 0, 0, 0]).expect("it is there");
    // It serves as many Reads as the peer asks for, and has as many as that serves.
    assert_eq!(world(|world| world.accepted.clone()), Some((vec![0xc0, 0, 0, 0], 3, 4)));
    happen(abi::ESTABLISHED);
    assert!(told(&mut connection).is_empty());
    world(|world| world.deliver(b"hello"));
    happen(abi::DISCONNECTED);
    assert_eq!(told(&mut connection), ["received hello", "ended Closed"]);
    assert!(told(&mut connection).is_empty());
    drop(connection);
    assert!(listener.next().expect("nothing is wrong").is_none());
    drop(listener);
    must_be_gone();
    assert_eq!(pool.bytes_in_use(), 0);
}

#[test]
fn who_is_not_let_in_is_told() {
    let listener = listen();
    drop(incoming(&listener));
    assert!(world(|world| world.rejected));
    drop(listener);
    must_be_gone();
}

#[test]
fn sends_go_by_value_by_slot_and_by_reference() {
    let pool = pool();
    let mut connection = connect(&pool);
    connection.post(send(1, Slice::from(b"short".to_vec()), Some(Stag(9))));
    let posted = world(|world| world.work());
    assert_eq!((posted.opcode, posted.invalidate), (Some(abi::SEND_INVALIDATE), 9));
    assert_eq!(posted.flags, abi::SIGNALED | abi::SOLICITED | abi::INLINE);
    world(|world| {
        assert_eq!(world.bytes(posted.pieces[0], 0), b"headshort");
        assert_eq!(posted.pieces.len(), 1);
        world.finish(&posted, abi::SUCCESS);
    });
    connection.post(send(2, Slice::from(vec![7; 4000]), None));
    let posted = world(|world| world.work());
    assert_eq!((posted.opcode, posted.flags), (Some(abi::SEND), abi::SIGNALED | abi::SOLICITED));
    let key = posted.pieces[1].2;
    world(|world| {
        assert_eq!(world.bytes(posted.pieces[0], 0), b"head");
        assert_eq!(world.bytes(posted.pieces[1], 0), [7; 4000]);
        world.finish(&posted, abi::SUCCESS);
    });
    connection.post(write(3, filled(&pool, &[8; 9000])));
    connection.post(write(4, Slice::empty()));
    world(|world| {
        let posted = world.work();
        assert_eq!((posted.opcode, posted.remote), (Some(abi::WRITE), (0x1000, 77)));
        assert_eq!(world.bytes(posted.pieces[0], 0), [8; 9000]);
        let empty = world.work();
        assert!(empty.pieces.is_empty());
        world.finish(&posted, abi::SUCCESS);
        world.finish(&empty, abi::SUCCESS);
    });
    assert_eq!(connection.under_way(), 4);
    assert_eq!(told(&mut connection), ["sent 1", "sent 2", "sent 3", "sent 4"]);
    assert_eq!(connection.under_way(), 0);
    assert!(world(|world| !world.shown.contains_key(&key)), "it was shown for that alone");
    drop(connection);
    must_be_gone();
    assert_eq!(pool.bytes_in_use(), 0);
}

#[test]
fn devices_that_take_nothing_by_value_get_slots() {
    world(|world| world.inline_max = 0);
    let pool = pool();
    let mut connection = connect(&pool);
    for id in 0..256 {
        connection.post(send(id, Slice::empty(), None));
    }
    assert_eq!(connection.under_way(), 256);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..256 {
        let posted = world(|world| world.work());
        assert_eq!(posted.flags & abi::INLINE, 0);
        assert!(seen.insert(posted.pieces[0].0), "no slot is used twice at once");
        world(|world| world.finish(&posted, abi::SUCCESS));
    }
    assert_eq!(told(&mut connection).len(), 256);
    connection.post(send(256, Slice::empty(), None));
    assert_eq!(connection.under_way(), 1);
}

#[test]
fn reads_fill_memory_that_comes_back_behind_the_last_one() {
    let pool = pool();
    let mut connection = connect(&pool);
    connection.post(read(1, Some(zeroed(&pool, 4)), 0, 2));
    connection.post(read(2, None, 2, 2));
    let posted = [world(|world| world.work()), world(|world| world.work())];
    for (fill, posted) in (1..).zip(&posted) {
        assert_eq!((posted.opcode, posted.remote), (Some(abi::READ), (0x2000, 78)));
        world(|world| {
            world.bytes(posted.pieces[0], abi::LOCAL_WRITE).fill(fill);
            world.finish(posted, abi::SUCCESS);
        });
    }
    assert_eq!(told(&mut connection), ["read 1", "returned 5 [1, 1, 2, 2]", "read 2"]);
    // Beyond its end, or into nothing.
    connection.post(read(3, Some(zeroed(&pool, 4)), 3, 2));
    assert_eq!(told(&mut connection), ["returned 5 [0, 0, 0, 0]", &format!("ended {LOST:?}")]);
}

#[test]
fn peers_learn_no_key_but_that_of_what_an_iwarp_adapter_fills() {
    world(|world| world.is_iwarp = true);
    let pool = pool();
    let mut connection = connect(&pool);
    connection.post(Post::Receive(zeroed(&pool, 5000)));
    connection.post(write(1, filled(&pool, &[8; 9000])));
    let is_remote = |access: i32| access & abi::REMOTE_WRITE != 0;
    assert!(world(|world| world.shown.values().all(|shown| !is_remote(shown.2))));
    connection.post(read(2, Some(zeroed(&pool, 4096)), 0, 4096));
    let remote = || {
        world(|world| {
            let shown = world.shown.values().filter(|shown| is_remote(shown.2));
            shown.map(|shown| shown.1).collect::<Vec<_>>()
        })
    };
    assert_eq!(remote(), [4096]);
    let facts = connection.facts();
    assert_eq!((facts.keys, facts.registered), (1, 256 * 256 + 5000 + 4096));
    world(|world| {
        let (written, filled) = (world.work(), world.work());
        world.bytes(filled.pieces[0], abi::REMOTE_WRITE).fill(1);
        world.finish(&written, abi::SUCCESS);
        world.finish(&filled, abi::SUCCESS);
    });
    assert_eq!(told(&mut connection), ["sent 1", "returned 5 [1, 1, 1, 1]", "read 2"]);
    assert!(remote().is_empty());
    assert_eq!(connection.facts().keys, 0);
}

#[test]
fn ends_that_are_late_doubled_or_nobodys_harm_nobody() {
    let pool = pool();
    let mut connection = connect(&pool);
    connection.post(Post::Receive(zeroed(&pool, 100)));
    connection.post(write(1, filled(&pool, &[1; 9000])));
    connection.post(write(2, filled(&pool, &[2; 9000])));
    let (first, second) = world(|world| (world.work(), world.work()));
    // Out of order, and again, and of something that was never posted.
    world(|world| {
        world.finish(&second, abi::SUCCESS);
        world.finish(&second, abi::SUCCESS);
        world.complete(Wc { id: u64::MAX, ..Wc::default() });
        world.complete(Wc { id: 1 << 40, status: 4, ..Wc::default() });
        world.finish(&first, abi::SUCCESS);
    });
    assert_eq!(told(&mut connection), ["sent 2", "sent 1"]);
    // A length that is none.
    let posted = world(|world| world.posted.remove(0));
    world(|world| {
        world.complete(Wc { id: posted.id, byte_len: u32::MAX, ..Wc::default() });
    });
    assert!(matches!(connection.poll(), Some(Done::Received { length: 100, .. })));
    // The number of what has ended is that of nothing that follows.
    connection.post(write(3, filled(&pool, &[3; 9000])));
    world(|world| world.finish(&first, abi::SUCCESS));
    assert!(told(&mut connection).is_empty());
    assert_eq!(connection.under_way(), 1);
    drop(connection);
    must_be_gone();
    assert_eq!(pool.bytes_in_use(), 0);
}

#[test]
fn an_error_ends_the_connection_and_brings_everything_back() {
    for (status, end) in [(abi::FLUSHED, End::Closed), (10, LOST), (12, LOST)] {
        let pool = pool();
        let mut connection = connect(&pool);
        connection.post(Post::Receive(zeroed(&pool, 5000)));
        connection.post(send(1, Slice::from(vec![7; 4000]), None));
        connection.post(read(2, Some(zeroed(&pool, 4)), 0, 4));
        world(|world| {
            world.deliver(b"last");
            let posted = world.work();
            world.finish(&posted, status);
        });
        let all = told(&mut connection);
        assert_eq!(all, ["received last", "returned 5 [0, 0, 0, 0]", &format!("ended {end:?}")]);
        assert_eq!(world(|world| world.live["qp"]), 0, "the adapter has no memory of ours");
        assert!(world(|world| world.disconnected));
        // Whoever has not heard yet goes on.
        connection.post(send(3, Slice::empty(), None));
        connection.post(Post::Receive(zeroed(&pool, 5000)));
        connection.post(read(4, None, 0, 4));
        connection.shutdown();
        assert!(told(&mut connection).is_empty());
        drop(connection);
        must_be_gone();
        assert_eq!(pool.bytes_in_use(), 0);
    }
}

#[test]
fn the_end_is_what_the_manager_says() {
    for (event, end) in [
        (abi::DISCONNECTED, End::Closed),
        (abi::DEVICE_REMOVAL, LOST),
        (abi::CONNECT_ERROR, LOST),
        (abi::UNREACHABLE, LOST),
        (abi::REJECTED, LOST),
    ] {
        let mut connection = connect(&pool());
        // Of a kind that nobody knows.
        happen(99);
        happen(event);
        assert_eq!(told(&mut connection), [format!("ended {end:?}")]);
        drop(connection);
        must_be_gone();
    }
}

#[test]
fn who_ends_it_gets_everything_back() {
    let pool = pool();
    let mut connection = connect(&pool);
    connection.post(read(1, Some(zeroed(&pool, 4)), 0, 4));
    connection.shutdown();
    assert!(world(|world| world.disconnected));
    connection.post(Post::Disconnect);
    assert!(connection.has_done());
    assert_eq!(told(&mut connection), ["returned 5 [0, 0, 0, 0]", "ended Closed"]);
}

#[test]
fn what_cannot_be_posted_ends_the_connection() {
    for fails in ["post_send", "post_recv", "mr", "poll"] {
        let pool = pool();
        let mut connection = connect(&pool);
        world(|world| world.fails = vec![fails]);
        connection.post(Post::Receive(zeroed(&pool, 5000)));
        connection.post(write(1, Slice::from(vec![1; 9000])));
        assert_eq!(told(&mut connection), [format!("ended {LOST:?}")], "{fails}");
        drop(connection);
        world(|world| world.fails.clear());
        must_be_gone();
        assert_eq!(pool.bytes_in_use(), 0);
    }
}

#[test]
fn memory_of_a_pool_is_shown_once_until_it_is_other_memory() {
    let pool = pool();
    let mut connection = connect(&pool);
    let shown = || world(|world| world.shown_ever);
    let before = shown();
    for _ in 0..10 {
        connection.post(write(1, filled(&pool, &[1; 9000])));
        world(|world| {
            let posted = world.work();
            world.finish(&posted, abi::SUCCESS);
        });
        assert_eq!(told(&mut connection), ["sent 1"]);
    }
    assert_eq!(shown(), before + 1);
    let mut other = Vec::new();
    while pool.trim(1 << 20) != Trimmed::ForNow {
        other.push(());
    }
    pool.trim(1 << 20);
    connection.post(write(2, filled(&pool, &[1; 9000])));
    assert_eq!(shown(), before + 2, "the system has taken those pages");
}

#[test]
fn devices_that_are_too_small_are_told() {
    world(|world| world.works_max = 100);
    let listener = listen();
    knock(&[0x80], 4);
    let error = listener.next().expect_err("it is too small");
    assert!(matches!(error, VerbsError::TooFew { has: 100, wanted: 160, .. }), "{error}");
    drop(listener);
    must_be_gone();
}

/// The kernel takes `[::]` for both families otherwise, and `0.0.0.0` cannot be beside it.
#[test]
fn listeners_keep_to_their_family() {
    for (address, keeps) in [("[::]:3260", true), ("0.0.0.0:3260", false)] {
        world(|world| world.keeps_to_family = false);
        drop(Listener::with(&API, address.parse().expect("an address")).expect("it listens"));
        assert_eq!(world(|world| world.keeps_to_family), keeps, "{address}");
    }
    must_be_gone();
}

#[test]
fn whatever_fails_leaves_nothing_behind() {
    for fails in ["channel", "id", "option", "bind", "listen"] {
        world(|world| world.fails = vec![fails]);
        let error = Listener::with(&API, "[::]:3260".parse().expect("an address"));
        assert!(error.is_err(), "{fails}");
        must_be_gone();
    }
    world(|world| world.fails.clear());
    let pool = pool();
    for fails in ["channel", "migrate", "query", "pd", "mr", "comp", "cq", "qp", "accept"] {
        let listener = listen();
        knock(&[0x80], 4);
        world(|world| world.fails = vec![fails]);
        let begun = listener.next().and_then(|incoming| {
            let connection = incoming.expect("somebody asks").prepare(&pool)?;
            connection.accept(&[])?;
            Ok(connection)
        });
        assert!(begun.is_err(), "{fails}");
        drop((begun, listener));
        must_be_gone();
        world(|world| world.fails.clear());
        assert_eq!(pool.bytes_in_use(), 0);
    }
    let listener = listen();
    let full = Pool::new(4096).expect("memory");
    let error = incoming(&listener).prepare(&full).expect_err("it is full");
    assert!(matches!(error, VerbsError::NoBuffers));
}

#[test]
fn a_device_that_goes_ends_its_listener() {
    let listener = listen();
    happen_to_listener(abi::DEVICE_REMOVAL);
    assert!(matches!(listener.next(), Err(VerbsError::Gone { .. })));
}

/// librdmacm closes it with the last identifier of it (`ucma_put_device`), and what is done with a
/// device that is closed is done with memory that is free.
#[test]
fn a_device_that_is_gone_is_left_before_it_is_closed() {
    let pool = pool();
    world(|world| world.is_device_dead = true);
    let connection = asked(&pool);
    let mut keys = connection.keys();
    assert!(keys.show(Memory::Sink(zeroed(&pool, 64))).is_ok());
    drop(connection);
    // As the mover does, which has them, when its tasks go on elsewhere.
    drop(keys);
    must_be_gone();
    let listener = listen();
    let other = incoming(&listener);
    drop(listener);
    drop(other);
    must_be_gone();
    drop(connect(&pool));
    must_be_gone();
    let (listener, none) = (listen(), Pool::new(0).expect("memory"));
    let other = incoming(&listener);
    drop(listener);
    assert!(matches!(other.prepare(&none), Err(VerbsError::NoBuffers)));
    must_be_gone();
    let mut connection = ask().expect("it stands").into_connection();
    assert!(connection.furnish(&none).is_err());
    drop(connection);
    must_be_gone();
}

/// Each thread has a device of its own. Who looks for the domain of one must not be the last to
/// have another's.
#[test]
fn a_device_is_left_in_time_while_others_are_looked_for() {
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                world(|world| world.is_device_dead = true);
                for _ in 0..ROUNDS {
                    drop(incoming(&listen()));
                    must_be_gone();
                }
            });
        }
    });
}

/// It was seen within some hundreds.
const ROUNDS: usize = 5000;

#[test]
fn devices_have_names_and_kinds() {
    let all = crate::device::look(&API);
    assert_eq!(all.len(), 1);
    assert_eq!((&*all[0].name, all[0].kind), ("fake0", crate::Kind::Infiniband));
}

#[test]
fn who_has_an_address_is_told_with_what_it_can() {
    let address = SocketAddr::from(([192, 0, 2, 1], 3260));
    let found = crate::device::look_at(&API, address).expect("it has it").expect("one alone");
    assert_eq!((&*found.device.name, found.ird, found.ord), ("fake0", 16, 8));
    assert_eq!(found.buffers, 160);
    world(|world| world.fails = vec!["bind"]);
    let error = crate::device::look_at(&API, address).expect_err("nobody has it").to_string();
    assert!(error.contains("192.0.2.1:3260") && error.contains("try:"), "{error}");
}

const TARGET: ([u8; 4], u16) = ([192, 0, 2, 7], 3260);

fn ask() -> Result<Outgoing, VerbsError> {
    let timeout = Duration::from_millis(20);
    Outgoing::with(&API, SocketAddr::from(TARGET), &[0xc0, 0, 0, 0], timeout)
}

/// A connection that we asked for.
fn asked(pool: &Pool) -> Connection {
    let mut connection = ask().expect("it stands").into_connection();
    connection.furnish(pool).expect("there is room");
    connection
}

#[test]
fn a_connection_is_asked_for() {
    let pool = pool();
    let mut connection = asked(&pool);
    // It serves as many Reads as the device can, and asks for the one that some devices want.
    assert_eq!(world(|world| world.asked.clone()), Some((vec![0xc0, 0, 0, 0], 16, 1)));
    let facts = connection.facts();
    assert_eq!((facts.ird, facts.ord), (12, 1), "as the peer says");
    assert_eq!((&*facts.device, facts.keys, facts.registered), ("fake0", 0, 256 * 256));
    let depths = connection.depths();
    assert_eq!((depths.sends, depths.reads, depths.receives), (256, 1, 160));
    assert!(!connection.is_iwarp());
    connection.post(Post::Receive(zeroed(&pool, 5000)));
    connection.post(send(1, Slice::empty(), None));
    world(|world| {
        let posted = world.work();
        world.finish(&posted, abi::SUCCESS);
        world.deliver(b"hello");
    });
    happen(abi::DISCONNECTED);
    assert_eq!(told(&mut connection), ["sent 1", "received hello", "ended Closed"]);
    assert!(connection.take_failure().is_none());
    drop(connection);
    must_be_gone();
    assert_eq!(pool.bytes_in_use(), 0);
}

#[test]
fn why_there_is_no_connection_is_said() {
    let refused = Some((abi::REJECTED, 28));
    for (step, ends, word) in [
        ("resolve", Some((abi::ADDRESS_ERROR, -19)), "no RDMA device of this machine leads there"),
        ("resolve", Some((abi::ADDRESS_ERROR, -110)), "no RDMA device of this machine"),
        ("route", Some((abi::ROUTE_ERROR, -113)), "there is no way there over RDMA"),
        ("route", None, "no answer within 0 s"),
        ("connect", refused, "the connection was refused"),
        ("connect", Some((abi::UNREACHABLE, -110)), "no answer"),
        ("connect", Some((abi::CONNECT_ERROR, -22)), "no connection: Invalid argument"),
        ("connect", Some((abi::DEVICE_REMOVAL, 0)), "no connection"),
        ("connect", None, "no answer"),
    ] {
        world(|world| world.steps = [(step, ends)].into());
        let error = ask().expect_err("it does not stand").to_string();
        assert!(error.contains(word), "{step} {ends:?}: {error}");
        must_be_gone();
    }
}

#[test]
fn whatever_fails_before_a_connection_stands_leaves_nothing_behind() {
    let all = ["channel", "id", "resolve", "route", "query", "pd", "comp", "cq", "qp", "connect"];
    for fails in all {
        world(|world| world.fails = vec![fails]);
        assert!(ask().is_err(), "{fails}");
        world(|world| world.fails.clear());
        must_be_gone();
    }
    world(|world| world.works_max = 100);
    let error = ask().expect_err("it is too small");
    assert!(matches!(error, VerbsError::TooFew { has: 100, wanted: 160, .. }), "{error}");
    world(|world| world.works_max = 1024);
    let full = Pool::new(4096).expect("memory");
    let mut connection = ask().expect("it stands").into_connection();
    let error = connection.furnish(&full).expect_err("it is full");
    drop(connection);
    assert!(matches!(error, VerbsError::NoBuffers));
    must_be_gone();
    drop(ask().expect("it stands"));
    assert!(world(|world| world.disconnected));
    must_be_gone();
}

#[test]
fn memory_of_a_task_has_a_key_of_its_own() {
    let pool = pool();
    let connection = asked(&pool);
    let mut keys = connection.keys();
    let newest = || world(|world| *world.shown.last_key_value().expect("it was shown").0);
    let sink = zeroed(&pool, 4096);
    let address = sink.as_ptr().addr() as u64;
    let (stag, base) = keys.show(Memory::Sink(sink)).expect("there is room");
    assert_eq!((stag, base), (Stag(remote_key(newest())), TaggedOffset(address)));
    let rights = || {
        let key = newest();
        world(|world| world.shown[&key])
    };
    let (_, length, access) = rights();
    assert_eq!((length, access), (4096, abi::LOCAL_WRITE | abi::REMOTE_WRITE), "no more than that");
    let source = Slice::from(vec![7; 100]);
    let address = source.as_ptr().addr() as u64;
    let (other, base) = keys.show(Memory::Source(source)).expect("there is room");
    assert_eq!(base, TaggedOffset(address));
    assert_eq!((rights().1, rights().2), (100, abi::REMOTE_READ), "nobody writes to it");
    // The peer writes; what it wrote is there when it cannot any more.
    world(|world| {
        let piece = (keys_place(stag, world), 4, stag.0 & !(1 << 30));
        world.bytes(piece, abi::REMOTE_WRITE).copy_from_slice(b"peer");
    });
    let Some(Memory::Sink(buf)) = keys.take_back(stag) else { panic!("it was there") };
    assert_eq!(&buf[..4], b"peer");
    assert!(keys.take_back(stag).is_none() && keys.take_back(Stag(1)).is_none());
    assert!(matches!(keys.take_back(other), Some(Memory::Source(_))));
    // What nobody has taken back ends with the connection's mover.
    assert!(keys.show(Memory::Sink(buf)).is_ok());
    drop(connection);
    drop(keys);
    must_be_gone();
    assert_eq!(pool.bytes_in_use(), 0);
}

/// Where the memory of a key begins.
fn keys_place(stag: Stag, world: &crate::fake::World) -> u64 {
    world.shown[&(stag.0 & !(1 << 30))].0 as u64
}

#[test]
fn memory_that_a_device_keeps_is_nobodys() {
    let pool = pool();
    let connection = asked(&pool);
    let mut keys = connection.keys();
    world(|world| world.fails = vec!["mr"]);
    assert!(matches!(keys.show(Memory::Sink(zeroed(&pool, 64))), Err(Memory::Sink(_))));
    let why = connection.take_failure().expect("it is known");
    assert!(matches!(why, VerbsError::Failed { doing: Doing::Register, .. }), "{why}");
    world(|world| world.fails.clear());
    let (stag, _) = keys.show(Memory::Sink(zeroed(&pool, 64))).expect("there is room");
    // With another one under way there may be room later.
    world(|world| world.fails = vec!["mr", "dereg"]);
    assert!(keys.show(Memory::Sink(zeroed(&pool, 64))).is_err());
    assert!(connection.take_failure().is_none());
    let before = pool.bytes_in_use();
    assert!(keys.take_back(stag).is_none(), "the peer may reach it");
    assert_eq!(pool.bytes_in_use(), before, "so nobody gets it");
    let why = connection.take_failure().expect("it is known");
    assert!(matches!(why, VerbsError::Failed { doing: Doing::Deregister, .. }), "{why}");
    world(|world| {
        world.fails.clear();
        world.shown.remove(&(stag.0 & !(1 << 30))).expect("the device has it");
    });
}

#[test]
fn why_a_connection_has_ended_is_said_once() {
    let pool = pool();
    for (status, word) in [(12, "does not answer"), (10, "does not let us reach its memory")] {
        let mut connection = asked(&pool);
        connection.post(send(1, Slice::empty(), None));
        world(|world| {
            let posted = world.work();
            world.finish(&posted, status);
        });
        assert_eq!(told(&mut connection), [format!("ended {LOST:?}")]);
        let why = connection.take_failure().expect("it is known").to_string();
        assert!(why.contains(word), "{why}");
        assert!(connection.take_failure().is_none());
    }
    let mut connection = asked(&pool);
    happen(abi::DEVICE_REMOVAL);
    assert_eq!(told(&mut connection).len(), 1);
    let why = connection.take_failure().expect("it is known").to_string();
    assert!(why.contains("fake0 is taken away"), "{why}");
}
