// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSER by software iWARP (RFC 7145): our daemon and our commands over it, however it begins, and
//! strangers who begin it.
#![allow(clippy::unwrap_used)] // a test that panics has failed

mod support;

use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use support::Daemon;
use support::Files;
use support::fails;
use support::good;
use support::pattern;
use support::stdout;

const RDMA: [&str; 2] = ["--rdma", "iwarp"];

/// A URL over iSER for one over TCP, in each way in which it begins.
fn over_iser(url: &str) -> [String; 3] {
    let iser = url.replace("iscsi://", "iser://");
    [format!("{url}?transport=iser"), format!("{iser}?iser_start=login"), iser]
}

/// Covers: ISC-01/S, ISC-02/S, ISC-06, ISC-07.
#[test]
fn copies_keep_every_byte_in_both_ways_to_begin() {
    let files = Files::new();
    let folder = files.folder.path();
    let daemon = Daemon::start(folder, &["memory:24M", "memory:24M"], &RDMA);
    let bytes = pattern(20_000_001);
    let image = files.with("image", &bytes);
    for (round, (a, b)) in
        over_iser(&daemon.urls[0]).iter().zip(over_iser(&daemon.urls[1])).enumerate()
    {
        good(&["write", a, &image, "--verify", "--quiet"]);
        good(&["copy", a, &b, "--verify", "--quiet"]);
        // What came over iSER is what a byte stream shows.
        for url in [&b, &daemon.urls[1]] {
            let back = files.path(&format!("back{round}{}", url.len()));
            good(&["read", url, &back, "--length", "20000256", "--quiet"]);
            let read = std::fs::read(&back).unwrap();
            assert!(read[..bytes.len()] == bytes[..], "{url}");
        }
    }
}

/// Reads and writes at random, of which each tells which write it is of.
#[test]
fn many_commands_of_all_sizes_are_under_way_at_once() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:64M"], &RDMA);
    for url in over_iser(&daemon.urls[0]) {
        for block in ["512", "4K", "100K", "1M"] {
            let more = ["--destroy-data", "--verify", "--reads", "50", "--time", "300ms"];
            let words = ["bench", &url, "--block", block, "--depth", "32"];
            good(&[&words[..], &more].concat());
        }
    }
}

/// The commands that were under way are done again, and what was written is there.
#[test]
fn a_session_that_is_dropped_comes_back() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:64M"], &RDMA);
    let socket = ["--control-socket", &daemon.socket];
    for url in over_iser(&daemon.urls[0]) {
        let load = thread::spawn(move || {
            let words = ["bench", &url, "--block", "64K", "--depth", "16", "--destroy-data"];
            let more = ["--verify", "--reads", "50", "--time", "1s"];
            stdout(&good(&[&words[..], &more].concat()))
        });
        let tsih = loop {
            let shown = good(&[&["sessions", "--json"], &socket[..]].concat());
            let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
            let session = &shown["sessions"][0];
            if session["commands"].as_u64().is_some_and(|commands| commands > 50) {
                assert_eq!(session["connections"][0]["transport"], "iser");
                break session["tsih"].to_string();
            }
            thread::sleep(Duration::from_millis(10));
        };
        good(&[&["session", "drop", &tsih], &socket[..]].concat());
        let told = load.join().unwrap();
        assert!(told.contains("made again: 1"), "{told}");
    }
}

#[test]
fn whoever_speaks_iser_is_shown() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &RDMA);
    let text = stdout(&good(&["inspect", &over_iser(&daemon.urls[0])[2]]));
    assert!(text.contains("1 MiB"), "{text}");
    let portal = daemon.portal();
    let text = stdout(&good(&["discover", &format!("iser://{portal}")]));
    assert!(text.contains(portal), "{text}");
}

/// Covers: ISK-14, ISK-01/S.
#[test]
fn a_target_without_it_says_so() {
    let files = Files::new();
    for options in [&[][..], &["--rdma", "off"]] {
        let daemon = Daemon::start(files.folder.path(), &["memory:1M"], options);
        let [_, login, rdma] = over_iser(&daemon.urls[0]);
        fails(1, &["inspect", &login], &["does not speak iSER"]);
        fails(1, &["inspect", &rdma, "--patience", "0s"], &["iser://"]);
        good(&["inspect", &daemon.urls[0]]);
    }
    fails(2, &["serve", "--rdma", "infiniband"], &["--rdma", "iwarp, verbs, auto or off"]);
    let listen = ["--listen", "127.0.0.1:0", "--rdma-listen", "127.0.0.1:0"];
    fails(2, &[&["serve"][..], &listen].concat(), &["--rdma-listen", "--rdma verbs"]);
}

/// Here: no machine has an adapter for its loopback.
#[test]
fn adapters_that_are_not_there_are_told_with_what_to_try() {
    let words = ["serve", "--listen", "127.0.0.1:0", "--rdma", "verbs", "--lun", "memory:1M"];
    fails(1, &words, &["RDMA", "try:"]);
    // Where they may be, and are not, everything else works.
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &["--rdma", "auto"]);
    for url in over_iser(&daemon.urls[0]) {
        good(&["inspect", &url]);
    }
    let told = stdout(&good(&["explain"]));
    assert!(told.contains("software iWARP; "), "{told}");
}

/// What a daemon says to these bytes, until it closes.
fn said_to(portal: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(portal).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut said = Vec::new();
    // It may cut the connection.
    let _ = stream.read_to_end(&mut said);
    said
}

#[test]
fn strangers_are_told_by_a_terminate_and_the_others_go_on() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &RDMA);
    let mut request = b"MPA ID Req Frame\x40\x01\x00\x00".to_vec();
    // An FPDU with an RDMA Write to an STag that nobody has given.
    let segment = [&[0xc1, 0x40][..], &[0, 0, 1, 0], &[0; 8], b"data"].concat();
    let mut fpdu = vec![0, 18];
    fpdu.extend(&segment);
    fpdu.extend(crc32c(&fpdu).to_le_bytes());
    request.extend(&fpdu);
    let said = said_to(daemon.portal(), &request);
    assert!(said.starts_with(b"MPA ID Rep Frame"), "{said:?}");
    // Behind reply and private data: length, DDP header of queue 2, and why.
    let terminate = &said[24..];
    assert_eq!(terminate[2..4], [0x41, 0x47], "{terminate:x?}");
    assert_eq!(terminate[20..22], [0x11, 0x00], "DDP: invalid STag");
    for bytes in [&b"MPA ID Rep Frame\x40\x01\x00\x00"[..], b"MPA, or so it seems: it is not", b"M"]
    {
        let mut stream = TcpStream::connect(daemon.portal()).unwrap();
        stream.write_all(bytes).unwrap();
    }
    good(&["inspect", &over_iser(&daemon.urls[0])[2]]);
}

/// Bit by bit (RFC 3385).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    })
}
