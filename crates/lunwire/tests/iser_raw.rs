// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSER by hand: peers that break off anywhere, that read nothing, and that say what they may not.
#![allow(clippy::unwrap_used)] // a test that panics has failed

mod support;

use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::net::TcpListener;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use support::Daemon;
use support::Files;
use support::TARGET;
use support::fails;
use support::good;
use support::stdout;

const REQUEST: &[u8] = b"MPA ID Req Frame\x50\x02\x00\x08\x00\x10\x00\x10\x00\x00\x00\x00";
const REPLY: &[u8] = b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x10\x00\x10";
const RDMA: [&str; 2] = ["--rdma", "iwarp"];

/// Bit by bit (RFC 3385).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    })
}

fn fpdu(segment: &[u8]) -> Vec<u8> {
    let mut fpdu = u16::try_from(segment.len()).unwrap().to_be_bytes().to_vec();
    fpdu.extend(segment);
    fpdu.resize(fpdu.len().next_multiple_of(4), 0);
    fpdu.extend(crc32c(&fpdu).to_le_bytes());
    fpdu
}

/// A Send with a PDU in it, behind a header of iSER that begins with `front`.
fn message(msn: u32, front: &[u8], pdu: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0];
    segment.extend(msn.to_be_bytes());
    segment.extend([0; 4]);
    segment.extend(front);
    segment.resize(18 + 28, 0);
    segment.extend(pdu);
    fpdu(&segment)
}

fn login_pdu(pairs: &[&str]) -> Vec<u8> {
    let mut text = pairs.join("\0").into_bytes();
    text.push(0);
    let length = u32::try_from(text.len()).unwrap();
    let mut pdu = vec![0x43, 0x87, 0, 0];
    pdu.extend(length.to_be_bytes());
    pdu.extend([0x80, 1, 2, 3, 4, 5, 0, 0]);
    pdu.resize(48, 0);
    pdu[27] = 1;
    pdu.extend(text);
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    pdu
}

fn names() -> [String; 3] {
    let target = format!("TargetName={TARGET}");
    ["InitiatorName=iqn.2026-01.local.raw:x".to_owned(), target, "SessionType=Normal".to_owned()]
}

fn login(more: &[&str]) -> Vec<u8> {
    let names = names();
    let all: Vec<&str> = names.iter().map(String::as_str).chain(more.iter().copied()).collect();
    login_pdu(&all)
}

/// A SCSI command; `first`: flags of byte 1.
fn command(tag: u32, cmd_sn: u32, first: u8, length: u32, cdb: &[u8]) -> Vec<u8> {
    let mut pdu = vec![0x01, first];
    pdu.resize(16, 0);
    pdu.extend(tag.to_be_bytes());
    pdu.extend(length.to_be_bytes());
    pdu.extend(cmd_sn.to_be_bytes());
    pdu.extend([0; 4]);
    pdu.extend(cdb);
    pdu.resize(48, 0);
    pdu
}

fn ping(tag: u32, data: usize) -> Vec<u8> {
    let mut pdu = vec![0x40, 0x80, 0, 0];
    pdu.extend(u32::try_from(data).unwrap().to_be_bytes());
    pdu.resize(16, 0);
    pdu.extend(tag.to_be_bytes());
    pdu.extend([0xff; 4]);
    pdu.extend([0, 0, 0, 2]);
    pdu.resize(48, 0);
    pdu.resize(48 + data, 7);
    pdu
}

struct Peer {
    stream: TcpStream,
    msn: u32,
}

impl Peer {
    fn connect(portal: &str) -> Self {
        let stream = TcpStream::connect(portal).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, msn: 0 }
    }

    /// MPA is done.
    fn begin(portal: &str) -> Self {
        let mut peer = Self::connect(portal);
        peer.write(REQUEST);
        let reply = peer.take(28);
        assert!(reply.starts_with(b"MPA ID Rep Frame\x50\x02"), "{reply:?}");
        peer
    }

    fn logged_in(portal: &str) -> Self {
        let mut peer = Self::begin(portal);
        peer.say(&[0x10], &login(&["RDMAExtensions=Yes"]));
        let answer = peer.hear();
        assert_eq!((answer[18 + 28], &answer[18 + 28 + 36..][..2]), (0x23, &[0, 0][..]));
        peer
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn say(&mut self, front: &[u8], pdu: &[u8]) {
        self.msn += 1;
        let bytes = message(self.msn, front, pdu);
        self.write(&bytes);
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The next segment.
    fn hear(&mut self) -> Vec<u8> {
        let front = self.take(2);
        let length = usize::from(u16::from_be_bytes([front[0], front[1]]));
        let mut rest = self.take((2 + length).next_multiple_of(4) - 2 + 4);
        rest.truncate(length);
        rest
    }

    /// It says this in a Terminate, and hangs up.
    fn assert_terminated(&mut self, wanted: [u8; 2]) {
        loop {
            let segment = self.hear();
            if segment[1] == 0x47 {
                assert_eq!(segment[18..20], wanted);
                break;
            }
        }
        self.assert_closed();
    }

    fn assert_closed(&mut self) {
        match self.stream.read(&mut [0; 64]) {
            Ok(0) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            Ok(_) => panic!("nothing follows"),
        }
    }
}

/// Connections of sessions, and commands under way.
fn busy(daemon: &Daemon) -> u64 {
    let shown = good(&["sessions", "--json", "--control-socket", &daemon.socket]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let sessions = shown["sessions"].as_array().unwrap().iter();
    let of = |session: &serde_json::Value| {
        let connections = session["connections"].as_array().unwrap().len() as u64;
        connections + session["tasks"].as_u64().unwrap()
    };
    sessions.map(of).sum()
}

fn read_cdb(blocks: u16) -> Vec<u8> {
    let mut cdb = vec![0x28, 0, 0, 0, 0, 0, 0];
    cdb.extend(blocks.to_be_bytes());
    cdb.resize(16, 0);
    cdb
}

/// Kilobytes that a daemon has in memory.
fn resident(daemon: &Daemon) -> u64 {
    let path = format!("/proc/{}/status", daemon.child.id());
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn who_breaks_off_anywhere_leaves_nothing_behind() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:16M"], &RDMA);
    let mut all = REQUEST.to_vec();
    all.extend(message(1, &[0x10], &login(&["RDMAExtensions=Yes"])));
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 16, 0];
    let read = [0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    all.extend(message(2, &read, &command(1, 1, 0xc1, 8192, &read_cdb(16))));
    all.extend(message(3, &[0x18, 0, 0, 0, 0, 0, 0, 9], &command(2, 2, 0xa1, 8192, &write)));
    let stops = (0..all.len()).step_by(7).chain([REQUEST.len(), all.len()]);
    for (round, stop) in stops.enumerate() {
        let mut peer = Peer::connect(daemon.portal());
        // One piece, and single bytes.
        match round % 2 {
            0 => peer.write(&all[..stop]),
            _ => all[..stop].iter().for_each(|byte| peer.write(&[*byte])),
        }
    }
    let begin = Instant::now();
    while busy(&daemon) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "peers that have gone");
        thread::sleep(Duration::from_millis(20));
    }
    good(&["inspect", &daemon.urls[0].replace("iscsi://", "iser://")]);
}

#[test]
fn who_reads_nothing_costs_little() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:16M"], &RDMA);
    good(&["inspect", &daemon.urls[0].replace("iscsi://", "iser://")]);
    let before = resident(&daemon);
    let mut peer = Peer::logged_in(daemon.portal());
    peer.stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let front = [0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    for number in 1..=16 {
        peer.say(&front, &command(number, number, 0xc1, 1 << 20, &read_cdb(2048)));
    }
    // Each of these is answered by as much.
    for number in 0..20_000 {
        peer.msn += 1;
        let bytes = message(peer.msn, &[0x10], &ping(number, 8192));
        if peer.stream.write_all(&bytes).is_err() {
            break;
        }
    }
    let more = resident(&daemon).saturating_sub(before);
    assert!(more < 64 << 10, "{more} KiB");
    drop(peer);
    good(&["inspect", &daemon.urls[0].replace("iscsi://", "iser://")]);
}

/// What an initiator is told unasked waits for its acknowledgement, and so does what is behind.
#[test]
fn who_has_much_to_come_is_heard_all_the_same() {
    const READS: u32 = 24;
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:16M"], &RDMA);
    let mut peer = Peer::begin(daemon.portal());
    peer.say(&[0x10], &login(&["RDMAExtensions=Yes", "MaxOutstandingUnexpectedPDUs=2"]));
    assert_eq!(peer.hear()[46 + 36], 0);
    // It tells once that it is new.
    peer.say(&[0x10], &command(1, 1, 0x81, 0, &[0; 16]));
    let answer = peer.hear();
    let stat_sn = u32::from_be_bytes(*answer[46 + 24..].first_chunk().unwrap());
    let mut unknown = vec![0x05, 0x80, 0, 0];
    unknown.resize(16, 0);
    unknown.extend([0, 0, 0, 99, 0, 0, 0, 77]);
    unknown.resize(48, 0);
    (0..3).for_each(|_| peer.say(&[0x10], &unknown));
    let front = [0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    for number in 2..2 + READS {
        peer.say(&front, &command(number, number, 0xc1, 1 << 20, &read_cdb(2048)));
    }
    let rejects = [peer.hear(), peer.hear()];
    assert!(rejects.iter().all(|reject| reject[46] == 0x3f), "{rejects:?}");
    thread::sleep(Duration::from_millis(200));
    let mut ping = ping(50, 0);
    ping[28..32].copy_from_slice(&(stat_sn + 3).to_be_bytes());
    peer.say(&[0x10], &ping);
    let mut ended = 0;
    while ended < READS {
        let segment = peer.hear();
        ended += u32::from(segment[0] & 0x80 == 0 && segment[46] == 0x21);
    }
}

#[test]
fn a_login_by_rdma_is_one_of_iser() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &RDMA);
    let status = |more: &[&str]| {
        let mut peer = Peer::begin(daemon.portal());
        peer.say(&[0x10], &login(more));
        let answer = peer.hear();
        let pdu = answer[46..].to_vec();
        (u16::from_be_bytes([pdu[36], pdu[37]]), String::from_utf8_lossy(&pdu[48..]).into_owned())
    };
    assert_eq!(status(&[]).0, 0x0207, "without its key");
    assert_eq!(status(&["RDMAExtensions=No"]).0, 0x0207);
    let digests = ["RDMAExtensions=Yes", "HeaderDigest=CRC32C,None", "DataDigest=CRC32C,None"];
    let (good, answer) = status(&digests);
    assert_eq!(good, 0);
    assert!(!answer.contains("Digest=CRC32C"), "{answer}");
    // Two PDUs of a login at once find no buffer for the second one.
    let mut peer = Peer::begin(daemon.portal());
    let mut both = message(1, &[0x10], &login(&["RDMAExtensions=Yes"]));
    both[2 + 18 + 28 + 1] = 0x05; // not yet the end of its stage
    let end = both.len() - 4;
    let crc = crc32c(&both[..end]).to_le_bytes();
    both[end..].copy_from_slice(&crc);
    let mut again = both.clone();
    again[2 + 13] = 2;
    let crc = crc32c(&again[..end]).to_le_bytes();
    again[end..].copy_from_slice(&crc);
    both.extend(again);
    peer.write(&both);
    drop(peer);
    // A message that is longer than a login has.
    let mut peer = Peer::begin(daemon.portal());
    peer.write(&[0xff, 0xfc, 0x41, 0x43]);
    peer.assert_terminated([0x12, 5]);
    let mut peer = Peer::begin(daemon.portal());
    peer.say(&[0x10], &ping(1, 0));
    peer.assert_closed();
}

#[test]
fn rules_that_are_broken_in_a_session_are_told() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:16M"], &RDMA);
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 16, 0];
    let wsv = [0x18, 0, 0, 0, 0, 0, 0, 9];
    let asked = || {
        let mut peer = Peer::logged_in(daemon.portal());
        // The first ones hear of what has happened to the unit.
        let mut number = 0;
        loop {
            number += 1;
            peer.say(&[0x10], &command(number, number, 0x81, 0, &[0; 16]));
            let answer = peer.hear();
            if answer[46 + 3] == 0 {
                break;
            }
        }
        peer.say(&wsv, &command(99, number + 1, 0xa1, 8192, &write));
        let request = peer.hear();
        assert_eq!((request[1], request.len()), (0x41, 46), "a Read Request");
        assert_eq!(request[34..38], [0, 0, 0, 9], "of what was named");
        (peer, request[18..30].to_vec())
    };
    let response = |sink: &[u8], control: u8, length: usize| {
        [&[0xc1, control][..], sink, &vec![5; length]].concat()
    };
    let (mut peer, sink) = asked();
    peer.write(&fpdu(&response(&sink, 0x42, 8193)));
    peer.assert_terminated([0x11, 1]);
    let (mut peer, sink) = asked();
    peer.write(&fpdu(&response(&sink, 0x42, 8191)));
    peer.assert_terminated([0x11, 1]);
    let (mut peer, mut sink) = asked();
    sink[3] ^= 1;
    peer.write(&fpdu(&response(&sink, 0x40, 16)));
    peer.assert_terminated([0x11, 0]);
    let (mut peer, _) = asked();
    peer.msn += 1;
    peer.say(&[0x10], &ping(1, 0));
    peer.assert_terminated([0x12, 3]);
    let (mut peer, _) = asked();
    peer.say(&[0x40], &ping(1, 0));
    peer.assert_terminated([0x02, 6]);
    let (mut peer, sink) = asked();
    let mut bytes = fpdu(&response(&sink, 0x42, 8192));
    bytes[100] ^= 1;
    peer.write(&bytes);
    peer.assert_terminated([0x20, 2]);
    // A name of one connection is none of another one.
    let (_other, sink) = asked();
    let (mut peer, own) = asked();
    assert_ne!(sink[..4], own[..4]);
    peer.write(&fpdu(&response(&sink, 0x40, 16)));
    peer.assert_terminated([0x11, 0]);
    // Nothing of all that was written.
    let back = files.path("back");
    good(&["read", &daemon.urls[0], &back, "--length", "64K", "--quiet"]);
    assert!(std::fs::read(back).unwrap().iter().all(|byte| *byte == 0));
    let (mut peer, sink) = asked();
    peer.write(&fpdu(&response(&sink, 0x42, 8192)));
    let status = peer.hear();
    assert_eq!((status[46], status[48], status[49]), (0x21, 0, 0), "{status:x?}");
}

/// A target that says what it likes: what the initiator says to that at last.
fn last_word_to(said: &'static [u8]) -> [u8; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("iser://{}/{TARGET}", listener.local_addr().unwrap());
    let target = thread::spawn(move || {
        let mut peer = Peer { stream: listener.accept().unwrap().0, msn: 0 };
        peer.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let request = peer.take(28);
        assert!(request.starts_with(b"MPA ID Req Frame\x50\x02"), "{request:?}");
        peer.write(said);
        loop {
            let segment = peer.hear();
            if segment[1] == 0x47 {
                peer.assert_closed();
                return [segment[18], segment[19]];
            }
        }
    });
    fails(1, &["inspect", &url, "--patience", "0s"], &["iser://"]);
    target.join().unwrap()
}

/// Covers: MPE-06.
#[test]
fn a_target_is_told_why_its_initiator_leaves() {
    assert_eq!(last_word_to(b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x10\x3f\x00"), [0x20, 6]);
    // An RDMA Write to an STag that it was not given, and an RDMA Read of it.
    let write = [&[0xc1, 0x40][..], &[0, 0, 1, 0], &[0; 8], b"data"].concat();
    let read =
        [&[0x41, 0x41][..], &[0; 7], &[1, 0, 0, 0, 1], &[0; 16], &[0, 0, 0, 8], &[0; 12]].concat();
    for (segment, wanted) in [(write, [0x11, 0]), (read, [0x01, 0])] {
        let said = [REPLY, &fpdu(&segment)].concat();
        assert_eq!(last_word_to(said.leak()), wanted);
    }
}

#[test]
fn mpa_may_follow_a_login_in_any_pieces() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &RDMA);
    for piece in [1, 5, 1000] {
        let mut peer = Peer::connect(daemon.portal());
        peer.write(&login(&["RDMAExtensions=Yes"]));
        let front = peer.take(48);
        assert_eq!(front[36..38], [0, 0]);
        let length = usize::from(u16::from_be_bytes([front[6], front[7]]));
        peer.take(length.next_multiple_of(4));
        let bytes = [REQUEST, &message(1, &[0x10], &ping(3, 100))].concat();
        bytes.chunks(piece).for_each(|piece| peer.write(piece));
        assert!(peer.take(28).starts_with(b"MPA ID Rep Frame"));
        let pong = peer.hear();
        assert_eq!((pong[46], pong.len()), (0x20, 46 + 48 + 100));
    }
    // What is no MPA ends it.
    let mut peer = Peer::connect(daemon.portal());
    peer.write(&login(&["RDMAExtensions=Yes"]));
    let front = peer.take(48);
    peer.take(usize::from(u16::from_be_bytes([front[6], front[7]])).next_multiple_of(4));
    peer.write(&ping(3, 0));
    peer.assert_closed();
    let text = stdout(&good(&["inspect", &daemon.urls[0]]));
    assert!(text.contains("1 MiB"), "{text}");
}
