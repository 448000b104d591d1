// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk of a target in this process, attached, and clients of all kinds.
#![allow(clippy::unwrap_used)] // a test that panics has failed

#[path = "nbd/losses.rs"]
mod losses;
#[path = "nbd/tls.rs"]
mod tls;

use std::io::Read;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use std::time::Instant;

use initiator::Choice;
use initiator::Config;
use initiator::Disk;
use initiator::Initiator;
use initiator::Options;
use initiator::Session;
use lunwire_attach::Address;
use lunwire_attach::NbdServer;
use lunwire_attach::News;
use lunwire_attach::Settings;

const IQN: &str = "iqn.2026-01.com.example:disks";
const BYTES: u64 = 32 << 20;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

/// NBD_CMD_FLAG_FUA.
const FUA: u16 = 1;

/// A target with one disk in memory.
fn target(listen: SocketAddr, block: u32) -> target::Target {
    serve(listen, block, &target::Spec::Memory { bytes: BYTES })
}

fn serve(listen: SocketAddr, block: u32, spec: &target::Spec) -> target::Target {
    let mut stores = target::Stores::new();
    let store = stores.open(spec).unwrap();
    let identity = target::Identity::derive(IQN, 0, "EXAMPLE", "MEMORY");
    let unit = target::LogicalUnit::new(identity, store, block).unwrap();
    let node = target::Node::new(IQN.to_owned(), vec![(0, Arc::new(unit))]);
    target::Target::start(target::Plan::new(vec![listen.into()], vec![node], stores)).unwrap()
}

struct Attached {
    server: Option<NbdServer>,
    news: Receiver<News>,
    session: Session,
    _initiator: Initiator,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

fn attach(portal: SocketAddr, engine: Choice, patience: Duration) -> Attached {
    attach_as(portal, patience, &Settings { engine, ..Settings::default() })
}

fn attach_as(portal: SocketAddr, patience: Duration, settings: &Settings) -> Attached {
    attach_with(portal, patience, settings, Config::default().pool_bytes_max)
}

fn attach_with(
    portal: SocketAddr,
    patience: Duration,
    settings: &Settings,
    pool_bytes_max: usize,
) -> Attached {
    let config = Config { engine: settings.engine, pool_bytes_max, ..Config::default() };
    let initiator = Initiator::start(&config).unwrap();
    let mut options = Options::new(portal.to_string(), Some(IQN.to_owned()));
    options.reconnect_patience = patience;
    let session = initiator.connect(options).unwrap();
    let disk = Disk::open(&session, 0).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nbd");
    let address = Address::Path(socket.clone());
    let pool = session.pool().clone();
    let (server, news) = NbdServer::start(disk, pool, "disk", "", &address, settings).unwrap();
    let server = Some(server);
    Attached { server, news, session, _initiator: initiator, socket, _folder: folder }
}

impl Attached {
    fn client(&self) -> Client {
        Client::new(UnixStream::connect(&self.socket).unwrap())
    }

    fn settle(&self) -> Result<(), lunwire_attach::Error> {
        self.server.as_ref().unwrap().settle(Duration::from_secs(1))
    }

    fn stop(&mut self) -> Result<(), lunwire_attach::Error> {
        self.server.take().unwrap().stop(Duration::from_secs(5))
    }

    fn hears(&self, is_it: impl Fn(&News) -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if self.news.recv_timeout(Duration::from_millis(50)).is_ok_and(|news| is_it(&news)) {
                return;
            }
        }
        panic!("nobody says it");
    }
}

/// A client that has negotiated simple replies.
struct Client(UnixStream);

#[derive(Clone, Copy)]
enum Kind {
    Read = 0,
    Write = 1,
    Leave = 2,
    Flush = 3,
    Trim = 4,
    Zero = 6,
}

impl Client {
    fn new(mut stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        let mut hello = 3_u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\0");
        stream.write_all(&hello).unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
        Self(stream)
    }

    fn send(&mut self, kind: Kind, flags: u16, offset: u64, length: u32, data: &[u8]) {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend((kind as u16).to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        self.0.write_all(&bytes).unwrap();
    }

    /// The error, and the cookie.
    fn reply(&mut self) -> (u32, u64) {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).unwrap();
        assert_eq!(head[..4], 0x6744_6698_u32.to_be_bytes());
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        (error, u64::from_be_bytes(head[8..].try_into().unwrap()))
    }

    fn ask(&mut self, kind: Kind, offset: u64, length: u32, data: &[u8]) -> u32 {
        self.send(kind, 0, offset, length, data);
        self.reply().0
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.ask(Kind::Write, offset, u32::try_from(data.len()).unwrap(), data)
    }

    fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        assert_eq!(self.ask(Kind::Read, offset, length, &[]), 0);
        let mut data = vec![0; length as usize];
        self.0.read_exact(&mut data).unwrap();
        data
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Bytes of any offset and length, by clients whose ranges meet within blocks, on both engines and
/// with both kinds of blocks: each byte is what its writer wrote last.
#[test]
fn bytes_are_what_was_written_last() {
    for (engine, block) in [(Choice::Auto, 512), (Choice::Epoll, 4096)] {
        let target = target(([127, 0, 0, 1], 0).into(), block);
        let mut attached = attach(target.portals()[0], engine, Duration::from_secs(5));
        let writers: Vec<_> = (0..4_u64)
            .map(|number| {
                let mut client = attached.client();
                std::thread::spawn(move || {
                    // Odd lengths: each writer's first and last block is another one's, too.
                    let span = 20_001;
                    let start = 777 + number * span;
                    let mut model = vec![0; usize::try_from(span).unwrap()];
                    let mut dice = Dice(number + 1);
                    for step in 0..150_u8 {
                        let at = dice.below(span);
                        let length = dice.below(span - at).min(9_000) + 1;
                        let here = usize::try_from(at).unwrap();
                        let range = here..here + usize::try_from(length).unwrap();
                        let count = u32::try_from(length).unwrap();
                        match dice.below(4) {
                            0 => {
                                assert_eq!(client.ask(Kind::Zero, start + at, count, &[]), 0);
                                model[range].fill(0);
                            }
                            1 => assert_eq!(client.read(start + at, count), model[range]),
                            _ => {
                                let data = vec![step | 1; range.len()];
                                assert_eq!(client.write(start + at, &data), 0);
                                model[range].copy_from_slice(&data);
                            }
                        }
                    }
                    (start, model)
                })
            })
            .collect();
        let mut reader = attached.client();
        for writer in writers {
            let (start, model) = writer.join().unwrap();
            let length = u32::try_from(model.len()).unwrap();
            assert!(reader.read(start, length) == model, "{engine:?}, {block}");
        }
        drop(reader);
        attached.stop().unwrap();
    }
}

/// Writes to one block that are under way together: the order is that of the connection, and
/// neither takes the other's bytes.
#[test]
fn pipelined_writes_within_a_block_keep_each_other() {
    let target = target(([127, 0, 0, 1], 0).into(), 4096);
    let mut attached = attach(target.portals()[0], Choice::Auto, Duration::from_secs(5));
    let mut client = attached.client();
    for round in 0..20_u8 {
        for at in 0..64_u8 {
            client.send(Kind::Write, 0, u64::from(at) * 50, 50, &[round ^ at; 50]);
        }
        client.send(Kind::Write, 0, 3200, 5000, &[round; 5000]);
        for _ in 0..65 {
            assert_eq!(client.reply().0, 0);
        }
        let read = client.read(0, 8200);
        for (at, here) in (0..64).zip(read.chunks(50)) {
            assert!(here.iter().all(|byte| *byte == round ^ at), "{round} {at}");
        }
        assert!(read[3200..].iter().all(|byte| *byte == round));
    }
    drop(client);
    attached.stop().unwrap();
}

#[test]
fn what_cannot_be_done_has_its_number() {
    let target = target(([127, 0, 0, 1], 0).into(), 512);
    let mut attached = attach(target.portals()[0], Choice::Auto, Duration::from_secs(5));
    let mut client = attached.client();
    assert_eq!(client.write(BYTES - 1, &[1, 2]), ENOSPC);
    assert_eq!(client.ask(Kind::Zero, BYTES - 1, 2, &[]), ENOSPC);
    assert_eq!(client.ask(Kind::Read, BYTES, 1, &[]), EINVAL);
    assert_eq!(client.ask(Kind::Read, 0, u32::MAX, &[]), EINVAL);
    assert_eq!(client.ask(Kind::Trim, BYTES, 1, &[]), EINVAL);
    client.send(Kind::Flush, 0x8000, 0, 0, &[]);
    assert_eq!(client.reply().0, EINVAL, "a flag that does not exist");
    // The longest requests.
    let long = u32::try_from(BYTES).unwrap();
    let data = vec![5; long as usize - 1];
    assert_eq!(client.write(1, &data), 0);
    assert!(client.read(0, long)[1..] == data);
    assert_eq!(client.ask(Kind::Zero, 0, long, &[]), 0);
    // The connection goes on, and requests of no bytes are requests.
    assert_eq!(client.write(0, &[]), 0);
    assert_eq!(client.read(0, 0), []);
    client.send(Kind::Write, 1, 100, 3, b"abc");
    assert_eq!(client.reply(), (0, 100));
    assert_eq!(client.ask(Kind::Trim, 4096, 8192, &[]), 0);
    assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), 0);
    assert_eq!(client.read(99, 5), b"\0abc\0");
    client.send(Kind::Leave, 0, 0, 0, &[]);
    assert_eq!(client.0.read_to_end(&mut Vec::new()).unwrap(), 0);
    attached.stop().unwrap();
}

#[test]
fn a_disk_that_cannot_be_written_says_so() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(BYTES).unwrap();
    let spec = format!("file:{},readonly", file.path().display()).parse().unwrap();
    let target = serve(([127, 0, 0, 1], 0).into(), 512, &spec);
    let mut attached = attach(target.portals()[0], Choice::Auto, Duration::from_secs(5));
    let mut client = attached.client();
    assert_eq!(client.write(0, &[1; 512]), EPERM);
    assert_eq!(client.ask(Kind::Zero, 0, 512, &[]), EPERM);
    assert_eq!(client.read(0, 512), [0; 512]);
    assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), 0);
    drop(client);
    attached.stop().unwrap();
}

/// Garbage, a negotiation that stops half way, one that asks and never reads, a reader that never
/// reads, a client that goes in the middle of a write: who behaves is served all the time.
#[test]
fn strangers_harm_nobody() {
    let target = target(([127, 0, 0, 1], 0).into(), 512);
    let mut attached = attach(target.portals()[0], Choice::Auto, Duration::from_secs(5));
    let connect = || UnixStream::connect(&attached.socket).unwrap();
    let mut garbage = connect();
    garbage.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let half_open = connect();
    let mut asks = connect();
    asks.write_all(&3_u32.to_be_bytes()).unwrap();
    asks.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let list = b"IHAVEOPT\0\0\0\x03\0\0\0\0".repeat(4096);
    while asks.write_all(&list).is_ok() {}
    let mut deaf = attached.client();
    deaf.0.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut read = 0x2560_9513_u32.to_be_bytes().to_vec();
    read.extend([0; 20]);
    read.extend((1_u32 << 20).to_be_bytes());
    let reads = read.repeat(4096);
    while deaf.0.write_all(&reads).is_ok() {}
    let mut leaves = attached.client();
    leaves.send(Kind::Write, 0, 0, 1 << 20, &[9; 1000]);
    drop(leaves);
    let mut good = attached.client();
    for at in 0..200_u8 {
        let offset = u64::from(at) * 1000;
        assert_eq!(good.write(offset, &[at; 1000]), 0);
        assert_eq!(good.read(offset, 1000), [at; 1000]);
    }
    assert_eq!(good.read(0, 1), [0], "half a write does nothing");
    garbage.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut all = Vec::new();
    garbage.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 18, "it was greeted, and closed");
    attached.hears(|news| matches!(news, News::Client(text) if text.contains("flags")));
    drop((good, half_open));
    attached.stop().unwrap();
}

/// Who does not come to an end with a negotiation is sent away, and nobody else is.
#[test]
fn a_negotiation_has_an_end() {
    let target = target(([127, 0, 0, 1], 0).into(), 512);
    let handshake_timeout = Duration::from_millis(400);
    for engine in [Choice::Auto, Choice::Epoll] {
        let settings = Settings { engine, handshake_timeout, ..Settings::default() };
        let mut attached = attach_as(target.portals()[0], Duration::from_secs(5), &settings);
        let mut good = attached.client();
        let begun = Instant::now();
        let mut silent = UnixStream::connect(&attached.socket).unwrap();
        let mut busy = UnixStream::connect(&attached.socket).unwrap();
        busy.write_all(&3_u32.to_be_bytes()).unwrap();
        // A list, again and again: it is never idle.
        while busy.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0").is_ok() {
            let mut told = [0; 64];
            if busy.read(&mut told).is_err() || begun.elapsed() > Duration::from_secs(10) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let took = begun.elapsed();
        assert!(took >= handshake_timeout && took < Duration::from_secs(5), "{took:?}");
        silent.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut all = Vec::new();
        silent.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 18, "it was greeted, and closed");
        for _ in 0..2 {
            attached.hears(|news| matches!(news, News::Client(text) if text.contains("too long")));
        }
        assert_eq!(good.write(0, b"x"), 0, "who has negotiated may be idle");
        drop(good);
        attached.stop().unwrap();
    }
}

/// Some ask for all that the pool has and read nothing: others wait for memory, and have it when
/// those have given way. Who reads slowly, and still reads, does not.
#[test]
fn who_never_reads_gives_way_to_others() {
    let target = target(([127, 0, 0, 1], 0).into(), 512);
    let slow_reader = Duration::from_millis(1500);
    for engine in [Choice::Auto, Choice::Epoll] {
        let settings = Settings { engine, slow_reader, ..Settings::default() };
        let portal = target.portals()[0];
        let mut attached = attach_with(portal, Duration::from_secs(5), &settings, 8 << 20);
        let mut deaf: Vec<Client> = (0..3).map(|_| attached.client()).collect();
        for client in &mut deaf {
            for _ in 0..8 {
                client.send(Kind::Read, 0, 0, 1 << 20, &[]);
            }
        }
        std::thread::sleep(Duration::from_millis(300));
        let begun = Instant::now();
        let mut reads = attached.client();
        let mut writes = attached.client();
        writes.send(Kind::Write, 0, 0, 1 << 20, &vec![7; 1 << 20]);
        reads.send(Kind::Read, 0, 4096, 1 << 20, &[]);
        assert_eq!(writes.reply().0, 0);
        assert_eq!(reads.reply().0, 0);
        let mut data = vec![0; 1 << 20];
        for piece in data.chunks_mut(64 << 10) {
            reads.0.read_exact(piece).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        attached.hears(|news| matches!(news, News::Client(text) if text.contains("reads nothing")));
        drop((deaf, reads, writes));
        attached.stop().unwrap();
    }
}

/// Some begin writes for all that the pool has and do not go on: others have memory when those have
/// given way. Who sends slowly, and still sends, does not.
#[test]
fn who_does_not_end_a_write_gives_way_to_others() {
    let target = target(([127, 0, 0, 1], 0).into(), 512);
    let slow_reader = Duration::from_millis(1500);
    for engine in [Choice::Auto, Choice::Epoll] {
        let settings = Settings { engine, slow_reader, ..Settings::default() };
        let portal = target.portals()[0];
        let mut attached = attach_with(portal, Duration::from_secs(5), &settings, 8 << 20);
        let mut slow = attached.client();
        slow.send(Kind::Write, 0, 0, 1 << 20, &[]);
        let mut stuck: Vec<Client> = (0..16).map(|_| attached.client()).collect();
        for client in &mut stuck {
            client.send(Kind::Write, 0, 0, 1 << 20, &[9; 1000]);
        }
        std::thread::sleep(Duration::from_millis(300));
        let mut good = attached.client();
        let waits = std::thread::spawn(move || {
            assert_eq!(good.write(1 << 20, &vec![7; 1 << 20]), 0);
            good
        });
        for piece in vec![5; 1 << 20].chunks(32 << 10) {
            slow.0.write_all(piece).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(slow.reply().0, 0, "{engine:?}");
        let mut good = waits.join().unwrap();
        assert_eq!(good.read(1 << 20, 512), [7; 512]);
        attached.hears(|news| matches!(news, News::Client(text) if text.contains("its write")));
        drop((slow, stuck, good));
        attached.stop().unwrap();
    }
}

/// More connections than there may be: the others go on, and there is room when one has gone.
#[test]
fn there_is_an_end_of_connections() {
    let target = target(([127, 0, 0, 1], 0).into(), 512);
    let mut attached = attach(target.portals()[0], Choice::Auto, Duration::from_secs(5));
    let mut clients: Vec<Client> = (0..64).map(|_| attached.client()).collect();
    let mut refused = UnixStream::connect(&attached.socket).unwrap();
    refused.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(refused.read_to_end(&mut Vec::new()).unwrap(), 0);
    attached.hears(|news| matches!(news, News::Client(text) if text.contains("64")));
    for client in &mut clients {
        assert_eq!(client.write(0, b"x"), 0);
    }
    clients.pop();
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let mut stream = UnixStream::connect(&attached.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        if stream.read_exact(&mut [0; 18]).is_ok() {
            break;
        }
        assert!(Instant::now() < until, "there is no room");
    }
    drop(clients);
    attached.stop().unwrap();
}

/// The target goes and comes back: requests wait, and are carried out. When it stays away they fail
/// after the time that was given, once and for all.
#[test]
fn requests_wait_for_the_target_and_not_for_ever() {
    let first = target(([127, 0, 0, 1], 0).into(), 512);
    let portal = first.portals()[0];
    let mut attached = attach(portal, Choice::Auto, Duration::from_secs(4));
    let mut client = attached.client();
    assert_eq!(client.write(0, &[1; 512]), 0);
    first.stop(Duration::ZERO).unwrap();
    client.send(Kind::Write, 0, 512, 512, &[2; 512]);
    attached.hears(|news| matches!(news, News::Disk(initiator::DiskEvent::Lost(_))));
    let second = target(portal, 512);
    assert_eq!(client.reply(), (0, 512));
    attached.hears(|news| matches!(news, News::Disk(initiator::DiskEvent::Back)));
    assert_eq!(client.read(512, 512), [2; 512]);
    second.stop(Duration::ZERO).unwrap();
    let begun = Instant::now();
    assert_eq!(client.write(0, &[3; 512]), EIO);
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    attached.hears(|news| matches!(news, News::Disk(initiator::DiskEvent::Ended(_))));
    let third = target(portal, 512);
    let begun = Instant::now();
    assert_eq!(client.write(0, &[4; 512]), EIO);
    assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), EIO);
    assert!(begun.elapsed() < Duration::from_secs(2), "it is known");
    drop(client);
    attached.stop().expect_err("what was written may be lost");
    third.stop(Duration::ZERO).unwrap();
}

/// Who has written nothing, or nothing that a flush has not covered, loses nothing.
#[test]
fn an_end_waits_for_the_target_only_if_something_was_written() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(BYTES).unwrap();
    let spec = format!("file:{}", file.path().display()).parse().unwrap();
    let target = serve(([127, 0, 0, 1], 0).into(), 512, &spec);
    let portal = target.portals()[0];
    let [mut reads, mut durable, mut flushed, mut writes] =
        [(); 4].map(|()| attach(portal, Choice::Auto, Duration::from_secs(600)));
    let mut clients = [&reads, &durable, &writes, &flushed].map(Attached::client);
    assert_eq!(clients[0].read(0, 512), [0; 512]);
    clients[1].send(Kind::Write, FUA, 512, 512, &[1; 512]);
    assert_eq!(clients[1].reply(), (0, 512));
    assert_eq!(clients[2].write(0, &[1]), 0);
    assert_eq!(clients[3].write(1024, &[1]), 0);
    assert_eq!(clients[3].ask(Kind::Flush, 0, 0, &[]), 0);
    drop(clients);
    target.stop(Duration::ZERO).unwrap();
    for attached in [&mut reads, &mut durable, &mut flushed, &mut writes] {
        attached.hears(|news| matches!(news, News::Disk(initiator::DiskEvent::Lost(_))));
    }
    let begun = Instant::now();
    for mut attached in [reads, durable, flushed] {
        attached.settle().unwrap();
        attached.stop().unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(8), "one has waited for the target");
    let silent = writes.settle();
    assert!(matches!(silent, Err(lunwire_attach::Error::Silent)), "{silent:?}");
    writes.stop().expect_err("what was written may be lost");
}

/// A disk that grows: who connects then sees it, and all can use what is new.
#[test]
fn another_size_is_told_to_who_connects() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(BYTES).unwrap();
    let spec = format!("file:{}", file.path().display()).parse().unwrap();
    let target = serve(([127, 0, 0, 1], 0).into(), 512, &spec);
    let mut attached = attach(target.portals()[0], Choice::Auto, Duration::from_secs(5));
    let mut old = attached.client();
    assert_eq!(old.write(BYTES, &[1]), ENOSPC);
    target.resize(IQN, 0, 2 * BYTES, target::Shrink::Refused).unwrap();
    // The unit tells of it in answer to the next command.
    assert_eq!(old.read(0, 1), [0]);
    let resized = |news: &News| matches!(news, News::Disk(initiator::DiskEvent::Resized { .. }));
    attached.hears(resized);
    let mut stream = UnixStream::connect(&attached.socket).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
    let mut size = [0; 8];
    stream.read_exact(&mut size).unwrap();
    assert_eq!(u64::from_be_bytes(size), 2 * BYTES);
    assert_eq!(old.write(BYTES, &[1]), 0);
    drop((old, stream));
    attached.stop().unwrap();
}

/// What is under way when it is stopped is answered; nobody comes in then, and the socket is gone.
#[test]
fn a_stop_answers_what_is_under_way() {
    let target = target(([127, 0, 0, 1], 0).into(), 512);
    let mut attached = attach(target.portals()[0], Choice::Auto, Duration::from_secs(5));
    let mut client = attached.client();
    for at in 0..100_u8 {
        client.send(Kind::Write, 0, u64::from(at) * 4096, 4096, &[at; 4096]);
    }
    let half_open = UnixStream::connect(&attached.socket).unwrap();
    // The server has them all when it answers one.
    assert_eq!(client.reply().0, 0);
    std::thread::sleep(Duration::from_millis(200));
    attached.stop().unwrap();
    for _ in 1..100 {
        assert_eq!(client.reply().0, 0);
    }
    assert_eq!(client.0.read_to_end(&mut Vec::new()).unwrap(), 0);
    UnixStream::connect(&attached.socket).expect_err("it is gone");
    let disk = Disk::open(&attached.session, 0).unwrap();
    let mut block = [0; 4096];
    disk.read_at(99 * 4096, &mut block).unwrap();
    assert_eq!(block, [99; 4096]);
    drop(half_open);
}

/// Whoever connects and says nothing keeps nobody out for long, and fills no log.
#[test]
fn who_only_connects_keeps_nobody_out() {
    let target = target(([127, 0, 0, 1], 0).into(), 512);
    let mut attached = attach(target.portals()[0], Choice::Auto, Duration::from_secs(5));
    let mut served = attached.client();
    let idle: Vec<UnixStream> =
        (0..200).map(|_| UnixStream::connect(&attached.socket).unwrap()).collect();
    // As a client does that was refused.
    let until = Instant::now() + Duration::from_secs(5);
    let greeted = loop {
        let mut stream = UnixStream::connect(&attached.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        if stream.read_exact(&mut [0; 18]).is_ok() {
            break stream;
        }
        assert!(Instant::now() < until, "there is no room");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(served.write(0, b"x"), 0, "who has negotiated stays");
    drop((greeted, served, idle));
    attached.stop().unwrap();
    let told = attached.news.try_iter().filter(|news| matches!(news, News::Client(_)));
    assert!(told.count() <= 21);
}
