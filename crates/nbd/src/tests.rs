// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Negotiation and requests, byte by byte.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use alloc::borrow::ToOwned;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use crate::*;

fn export() -> Export {
    Export {
        name: "disk".to_owned(),
        description: "for people".to_owned(),
        bytes: 1 << 30,
        blocks: BlockSizes { least: 1, preferred: 4096, most: 32 << 20 },
        read_only: false,
        trim: true,
        fast_zero: false,
        allocation: true,
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    bytes
}

/// A handshake that has got `flags`, and what it has answered so far.
fn flagged(flags: u32) -> Handshake {
    let mut out = Vec::new();
    let mut handshake = Handshake::begin(Tls::Never, &mut out);
    assert_eq!(out, b"NBDMAGICIHAVEOPT\0\x03");
    out.clear();
    let outcome = handshake.receive(&flags.to_be_bytes(), &export(), &mut out);
    assert_eq!((outcome, out.len()), (Ok(Outcome::More), 0));
    handshake
}

/// Kind and data of each answer to an option.
fn answers(mut out: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut all = Vec::new();
    while !out.is_empty() {
        assert_eq!(out[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        let kind = u32::from_be_bytes(out[12..16].try_into().unwrap());
        let length = u32::from_be_bytes(out[16..20].try_into().unwrap()) as usize;
        all.push((kind, out[20..20 + length].to_vec()));
        out = &out[20 + length..];
    }
    all
}

fn go(name: &[u8], infos: &[u16]) -> Vec<u8> {
    let mut data = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
    data.extend(name);
    data.extend(u16::try_from(infos.len()).unwrap().to_be_bytes());
    infos.iter().for_each(|info| data.extend(info.to_be_bytes()));
    data
}

#[test]
fn a_client_asks_and_goes() {
    let mut handshake = flagged(3);
    let mut out = Vec::new();
    let mut bytes = option(8, &[]);
    bytes.extend(option(3, &[]));
    bytes.extend(option(6, &go(b"disk", &[1, 2])));
    assert_eq!(handshake.receive(&bytes, &export(), &mut out), Ok(Outcome::More));
    let told = answers(&out);
    let kinds: Vec<u32> = told.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [1, 2, 1, 3, 3, 3, 3, 1]);
    assert_eq!(told[1].1, b"\0\0\0\x04disk");
    // Flush, FUA, trim, zeroes, DF, several connections.
    assert_eq!(told[3].1, b"\0\0\0\0\0\0\x40\0\0\0\x01\xed");
    assert_eq!(told[4].1, b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0");
    assert_eq!((&told[5].1[2..], &told[6].1[2..]), (&b"disk"[..], &b"for people"[..]));
    let mut bytes = option(7, &go(b"", &[]));
    bytes.extend(b"more");
    let outcome = handshake.receive(&bytes, &export(), &mut out).unwrap();
    let Outcome::Begin { agreed, rest } = outcome else { panic!("{outcome:?}") };
    assert!(agreed.structured && !agreed.allocation);
    assert_eq!(rest, b"more");
}

fn contexts(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
    let string =
        |text: &[u8]| [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat();
    let mut data = string(name);
    data.extend(u32::try_from(queries.len()).unwrap().to_be_bytes());
    queries.iter().for_each(|query| data.extend(string(query)));
    data
}

#[test]
fn a_client_may_ask_what_has_space() {
    let allocation = &b"base:allocation"[..];
    // Option, queries, and whether it is told, and chosen.
    for (number, queries, told, chosen) in [
        (9, &[][..], true, false),
        (9, &[&b"base:"[..]], true, false),
        (9, &[allocation], true, false),
        (9, &[&b"qemu:dirty-bitmap:"[..]], false, false),
        (10, &[][..], false, false),
        (10, &[&b"base:"[..]], false, false),
        (10, &[&b"x:y"[..], allocation], true, true),
    ] {
        let (mut handshake, mut out) = (flagged(3), Vec::new());
        handshake.receive(&option(8, &[]), &export(), &mut out).unwrap();
        out.clear();
        let bytes = option(number, &contexts(b"disk", queries));
        handshake.receive(&bytes, &export(), &mut out).unwrap();
        let all = answers(&out);
        assert_eq!(all.len(), 1 + usize::from(told), "{number} {queries:?}");
        assert_eq!(all.last().unwrap().0, 1);
        if told {
            let id = u32::from(chosen);
            assert_eq!(all[0], (4, [&id.to_be_bytes()[..], allocation].concat()));
        }
        let bytes = option(7, &go(b"", &[]));
        let outcome = handshake.receive(&bytes, &export(), &mut out).unwrap();
        let Outcome::Begin { agreed, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(agreed.allocation, chosen);
    }
    let chosen = contexts(b"disk", &[allocation]);
    let mut handshake = flagged(3);
    for (bytes, kind) in [
        (option(10, &chosen), 1 << 31 | 3),
        (option(8, &[]), 1),
        (option(10, &chosen), 4),
        (option(10, &contexts(b"other", &[allocation])), 1 << 31 | 6),
        (option(10, &chosen[..chosen.len() - 1]), 1 << 31 | 3),
        (option(10, &contexts(b"disk", &[])), 1),
    ] {
        let mut out = Vec::new();
        handshake.receive(&bytes, &export(), &mut out).unwrap();
        assert_eq!(answers(&out)[0].0, kind, "{bytes:?}");
    }
    let end = handshake.receive(&option(7, &go(b"", &[])), &export(), &mut Vec::new());
    let Ok(Outcome::Begin { agreed, .. }) = end else { panic!("{end:?}") };
    assert!(!agreed.allocation, "the last choice counts");
}

#[test]
fn extents_are_told_in_one_chunk() {
    let request = received(&request(8, 7, 4096, 1024), 28).unwrap().0[0];
    assert_eq!(request.command, Command::BlockStatus { one: true });
    let extents = [
        Extent { length: 512, hole: true, zero: true },
        Extent { length: 512, hole: false, zero: false },
    ];
    let bytes = Reply::extents(&request, &extents);
    let mut expected =
        vec![0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 20];
    expected.extend([0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 2, 0, 0, 0, 0, 0]);
    assert_eq!(bytes, expected);
    let agreed = Agreed { structured: true, allocation: true };
    let failed = Reply::failed(agreed, &request, Errno::Invalid);
    assert_eq!(failed.bytes()[..4], [0x66, 0x8e, 0x33, 0xef]);
}

#[test]
fn old_clients_name_their_export() {
    for (flags, bytes) in [(3, 10), (1, 134)] {
        let (mut handshake, mut out) = (flagged(flags), Vec::new());
        let outcome = handshake.receive(&option(1, b"disk"), &export(), &mut out).unwrap();
        assert!(matches!(outcome, Outcome::Begin { .. }));
        assert_eq!(out.len(), bytes);
        assert_eq!(out[..10], *b"\0\0\0\0\x40\0\0\0\x01\x6d");
    }
    let outcome = flagged(3).receive(&option(1, b"other"), &export(), &mut Vec::new());
    assert_eq!(outcome, Err(Violation::NoExport));
}

#[test]
fn what_is_not_offered_is_refused() {
    let (mut handshake, mut out) = (flagged(3), Vec::new());
    // TLS, extended headers, an unknown one; data where there is none; a wrong name.
    for number in [5, 11, 77] {
        handshake.receive(&option(number, b"abc"), &export(), &mut out).unwrap();
    }
    assert!(answers(&out).iter().all(|(kind, _)| *kind == 1 << 31 | 1));
    for (bytes, kind) in [
        (option(3, b"x"), 1 << 31 | 3),
        (option(8, b"x"), 1 << 31 | 3),
        (option(7, b"\0\0\0\x09x"), 1 << 31 | 3),
        (option(7, &[&go(b"disk", &[1])[..], b"\0"].concat()), 1 << 31 | 3),
        (option(7, &go(b"other", &[])), 1 << 31 | 6),
    ] {
        out.clear();
        assert_eq!(handshake.receive(&bytes, &export(), &mut out), Ok(Outcome::More));
        assert_eq!(answers(&out)[0].0, kind, "{bytes:?}");
    }
    assert_eq!(handshake.receive(&option(2, &[]), &export(), &mut out), Ok(Outcome::End));
}

#[test]
fn who_speaks_another_protocol_is_left() {
    let mut out = Vec::new();
    let receive = |handshake: &mut Handshake, bytes: &[u8]| {
        handshake.receive(bytes, &export(), &mut Vec::new())
    };
    let mut handshake = Handshake::begin(Tls::Never, &mut out);
    assert_eq!(receive(&mut handshake, b"GET "), Err(Violation::ClientFlags(0x4745_5420)));
    let magic = u64::from_be_bytes(*b"HAVEOPTx");
    assert_eq!(receive(&mut flagged(3), b"HAVEOPTx"), Err(Violation::OptionMagic(magic)));
    let mut long = option(3, &[]);
    long.splice(12..16, 65_537_u32.to_be_bytes());
    assert_eq!(receive(&mut flagged(3), &long), Err(Violation::OptionLength(65_537)));
}

#[test]
fn a_read_only_disk_says_so() {
    let export = Export { read_only: true, ..export() };
    let (mut handshake, mut out) = (flagged(3), Vec::new());
    handshake.receive(&option(1, b""), &export, &mut out).unwrap();
    assert_eq!(out[8..10], [0x01, 0x07]);
}

fn request(flags: u16, kind: u16, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(0x0102_0304_0506_0708_u64.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// All that comes out of `stream`, which arrives in pieces of `piece` bytes.
fn received(stream: &[u8], piece: usize) -> Result<(Vec<Request>, Vec<u8>), Violation> {
    let (mut receiver, mut requests, mut data) = (Receiver::default(), Vec::new(), Vec::new());
    for mut bytes in stream.chunks(piece) {
        while let Some(item) = receiver.next(&mut bytes)? {
            match item {
                Item::Request(request) => requests.push(request),
                Item::Data(part) => data.extend(part),
            }
        }
    }
    Ok((requests, data))
}

#[test]
fn requests_come_in_any_pieces() {
    let mut stream = request(1, 1, 4096, 5);
    stream.extend(b"hello");
    stream.extend(request(4, 0, 0, 512));
    stream.extend(request(1 | 2 | 16, 6, 0, 512));
    stream.extend(request(0, 3, 0, 0));
    stream.extend(request(0, 4, 0, 8));
    stream.extend(request(2, 4, 0, 8));
    stream.extend(request(0, 5, 0, 8));
    stream.extend(request(0, 2, 0, 0));
    let whole = received(&stream, stream.len()).unwrap();
    assert_eq!(whole.1, b"hello");
    let commands: Vec<Command> = whole.0.iter().map(|request| request.command).collect();
    let zeroes = Command::WriteZeroes { keep_space: true, fast: true };
    let Command::WriteZeroes { .. } = zeroes else { unreachable!() };
    assert_eq!(
        commands,
        [
            Command::Write,
            Command::Read,
            zeroes,
            Command::Flush,
            Command::Trim,
            Command::Unknown,
            Command::Unknown,
            Command::Disconnect
        ]
    );
    assert!(whole.0[0].durable && !whole.0[1].durable && whole.0[2].durable);
    for piece in 1..40 {
        assert_eq!(received(&stream, piece).unwrap(), whole, "{piece}");
    }
}

#[test]
fn what_is_no_request_ends_it() {
    assert_eq!(received(&[0; 28], 28), Err(Violation::RequestMagic(0)));
    let long = request(0, 1, 0, PAYLOAD_MAX + 1);
    assert_eq!(received(&long, 28), Err(Violation::Payload(PAYLOAD_MAX + 1)));
    assert_eq!(received(&request(0, 0, 0, u32::MAX), 28).unwrap().0[0].length, u32::MAX);
}

#[test]
fn replies_are_of_the_agreed_kind() {
    let read = received(&request(0, 0, 4096, 512), 28).unwrap().0[0];
    let write = Request { command: Command::Write, ..read };
    let (plain, structured) = (Agreed::default(), Agreed { structured: true, allocation: false });
    let cookie = [1, 2, 3, 4, 5, 6, 7, 8];
    let simple = |error: u8| [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, error][..], &cookie].concat();
    assert_eq!(Reply::done(plain, &read).bytes(), simple(0));
    assert_eq!(Reply::failed(plain, &read, Errno::Invalid).bytes(), simple(22));
    for agreed in [plain, structured] {
        assert_eq!(Reply::done(agreed, &write).bytes(), simple(0));
        for (errno, number) in [
            (Errno::Permission, 1),
            (Errno::InputOutput, 5),
            (Errno::NoMemory, 12),
            (Errno::NoSpace, 28),
            (Errno::NotSupported, 95),
            (Errno::Shutdown, 108),
        ] {
            assert_eq!(Reply::failed(agreed, &write, errno).bytes(), simple(number));
        }
    }
    let chunk = |kind: u16, length: u32, rest: &[u8]| {
        let mut bytes = vec![0x66, 0x8e, 0x33, 0xef, 0, 1];
        bytes.extend(kind.to_be_bytes());
        bytes.extend(cookie);
        bytes.extend(length.to_be_bytes());
        bytes.extend(rest);
        bytes
    };
    let data = chunk(1, 520, &4096_u64.to_be_bytes());
    assert_eq!(Reply::done(structured, &read).bytes(), data);
    assert_eq!(Reply::done(structured, &Request { length: 0, ..read }).bytes(), chunk(0, 0, &[]));
    let failed = Reply::failed(structured, &read, Errno::InputOutput);
    assert_eq!(failed.bytes(), chunk(0x8001, 6, &[0, 0, 0, 5, 0, 0]));
}

proptest! {
    /// Whatever comes, in whatever pieces: no panic, and little is kept.
    #[test]
    fn a_stranger_is_harmless(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        piece in 1..50_usize,
    ) {
        let mut out = Vec::new();
        let mut handshake = Handshake::begin(Tls::Never, &mut out);
        let mut stream = 3_u32.to_be_bytes().to_vec();
        stream.extend(b"IHAVEOPT");
        stream.extend(&bytes);
        for part in stream.chunks(piece) {
            if handshake.receive(part, &export(), &mut out) != Ok(Outcome::More) {
                break;
            }
        }
        let mut stream = 0x2560_9513_u32.to_be_bytes().to_vec();
        stream.extend(&bytes);
        let _ = received(&stream, piece);
    }

    /// A negotiation ends the same whatever its pieces are.
    #[test]
    fn pieces_of_a_negotiation_do_not_matter(piece in 1..60_usize) {
        let (mut handshake, mut out) = (flagged(1), Vec::new());
        let mut stream = option(8, &[]);
        stream.extend(option(9, b"what"));
        stream.extend(option(7, &go(b"disk", &[3])));
        let mut outcome = Outcome::More;
        for part in stream.chunks(piece) {
            prop_assert_eq!(&outcome, &Outcome::More);
            outcome = handshake.receive(part, &export(), &mut out).unwrap();
        }
        let agreed = Agreed { structured: true, allocation: false };
        prop_assert_eq!(outcome, Outcome::Begin { agreed, rest: Vec::new() });
        prop_assert_eq!(answers(&out).len(), 5);
    }
}

#[test]
fn tls_comes_first_where_it_is_forced() {
    let forced = || {
        let mut handshake = Handshake::begin(Tls::Forced, &mut Vec::new());
        assert_eq!(handshake.receive(b"\0\0\0\x03", &export(), &mut Vec::new()), Ok(Outcome::More));
        handshake
    };
    let (mut handshake, mut out) = (forced(), Vec::new());
    for bytes in [option(3, &[]), option(8, &[]), option(7, &go(b"disk", &[])), option(77, b"x")] {
        out.clear();
        assert_eq!(handshake.receive(&bytes, &export(), &mut out), Ok(Outcome::More));
        assert_eq!(answers(&out)[0].0, 1 << 31 | 5);
    }
    out.clear();
    handshake.receive(&option(5, b"x"), &export(), &mut out).unwrap();
    assert_eq!(answers(&out)[0].0, 1 << 31 | 3);
    out.clear();
    assert_eq!(handshake.receive(&option(5, &[]), &export(), &mut out), Ok(Outcome::StartTls));
    assert_eq!(answers(&out)[0].0, 1);
    // Inside: all as without, and not once more. What was asked for outside counts for nothing.
    out.clear();
    handshake.receive(&option(5, &[]), &export(), &mut out).unwrap();
    assert_eq!(answers(&out)[0].0, 1 << 31 | 3);
    let outcome = handshake.receive(&option(7, &go(b"disk", &[])), &export(), &mut out).unwrap();
    let Outcome::Begin { agreed, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(agreed, Agreed::NOTHING);
    // Somebody between both puts options in, or a part of one, or leaves TLS out.
    let inject = [option(5, &[]), option(8, &[])].concat();
    for length in 17..=inject.len() {
        let outcome = forced().receive(&inject[..length], &export(), &mut Vec::new());
        assert_eq!(outcome, Err(Violation::BeforeTls));
    }
    let outcome = forced().receive(&option(1, b"disk"), &export(), &mut Vec::new());
    assert_eq!(outcome, Err(Violation::NoTls));
    let outcome = forced().receive(&option(2, &[]), &export(), &mut Vec::new());
    assert_eq!(outcome, Ok(Outcome::End));
}
