// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::time::Duration;
use std::time::Instant;

use super::queue::Gathered;
use super::queue::Pieces;
use super::*;
use crate::limits::XDP_CHUNK_BYTES_MAX;
use crate::limits::XDP_CHUNK_BYTES_MIN;
use crate::limits::XDP_FRAME_BYTES_MAX;

/// Extended by an OUI, of which none is here: nobody else has it, nor other tests beside these.
const ETHERTYPE: u16 = 0x88B7;

#[test]
fn chunks_are_as_long_as_frames_need() {
    for (mtu, chunk_bytes, in_pieces) in [
        (1500, XDP_CHUNK_BYTES_MIN, false),
        (1778, XDP_CHUNK_BYTES_MIN, false),
        (1779, XDP_CHUNK_BYTES_MAX, false),
        (3826, XDP_CHUNK_BYTES_MAX, false),
        (3827, XDP_CHUNK_BYTES_MAX, true),
        (9000, XDP_CHUNK_BYTES_MAX, true),
        (usize::MAX, XDP_CHUNK_BYTES_MAX, true),
    ] {
        assert_eq!(Shape::of(mtu), Shape { chunk_bytes, in_pieces }, "{mtu}");
    }
}

#[test]
fn a_frame_in_pieces_is_whole_or_none() {
    let mut pieces = Pieces::default();
    let mut come: Vec<Vec<u8>> = Vec::new();
    let mut take = |frame: &[u8]| come.push(frame.to_vec());
    pieces.take(b"one", false, &mut take);
    pieces.take(b"tw", true, &mut take);
    pieces.take(b"", true, &mut take);
    pieces.take(b"o", false, &mut take);
    let long = vec![0; XDP_FRAME_BYTES_MAX];
    pieces.take(&long, true, &mut take);
    pieces.take(b"!", true, &mut take);
    pieces.take(b"!", false, &mut take);
    pieces.take(&long, true, &mut take);
    pieces.take(b"", false, &mut take);
    pieces.take(b"four", false, &mut take);
    assert_eq!(come, [b"one".to_vec(), b"two".to_vec(), long, b"four".to_vec()]);
}

#[test]
fn a_frame_that_lacks_a_piece_is_none() {
    let mut pieces = Pieces::default();
    let mut come: Vec<Vec<u8>> = Vec::new();
    // By what each piece is: known, and not the last one.
    for (bytes, goes_on) in [
        (Some("one"), false),
        (None, false),
        (Some("two"), true),
        (None, true),
        (Some("two"), false),
        (Some("three"), true),
        (None, false),
        (None, true),
        (Some("four"), false),
        (Some("fi"), true),
        (Some("ve"), false),
    ] {
        match bytes {
            Some(bytes) => {
                pieces.take(bytes.as_bytes(), goes_on, &mut |frame| come.push(frame.to_vec()));
            }
            None => pieces.lose(goes_on),
        }
    }
    assert_eq!(come, [b"one".to_vec(), b"five".to_vec()]);
}

#[test]
fn frames_are_no_longer_than_the_kernel_takes() {
    let most = |mtu| Shape::of(mtu).frame_bytes_max();
    assert_eq!([most(1500), most(3000), most(9000)], [2048, 4096, XDP_FRAME_BYTES_MAX]);
}

#[test]
fn what_lies_in_pieces_is_gathered_at_any_cut() {
    let bytes: Vec<u8> = (0..100).collect();
    for cut in 0..=bytes.len() {
        let (front, behind) = bytes.split_at(cut);
        let pieces = [front, &[], behind].map(IoSlice::new);
        let (mut to, mut source) = ([0; 100], Gathered::new(&pieces));
        to.chunks_mut(33).for_each(|place| source.copy_to(place));
        assert_eq!(to[..], bytes);
    }
}

#[test]
fn what_is_missing_is_said_with_what_helps() {
    let advice = Advice("eth1");
    for (errno, words) in [
        (libc::EPERM, "CAP_NET_ADMIN"),
        (libc::EBUSY, "ip link set dev eth1 xdp off"),
        (libc::EAFNOSUPPORT, "CONFIG_XDP_SOCKETS"),
        (libc::ENOBUFS, "ulimit -l"),
        (libc::EINVAL, "mtu 1500"),
    ] {
        let error = advice.of(QUEUE, io::Error::from_raw_os_error(errno)).to_string();
        assert!(error.starts_with("AF_XDP at eth1: ") && error.contains(words), "{error}");
    }
}

/// None, and a word about it, where this process may not, or another one is there.
fn open(matches: &[Match]) -> Option<XdpSocket> {
    match XdpSocket::open("lo", ETHERTYPE, matches, Copies::Allowed) {
        Ok(socket) => Some(socket),
        Err(error) => {
            println!("skipped: no AF_XDP on lo: {error}");
            None
        }
    }
}

/// One test, since an interface has one program: long frames and short ones, in order, more than
/// there are chunks; those that do not match go their way.
#[test]
fn frames_come_back_whole_and_in_order() {
    const NUMBER: u8 = 19;
    let only = Match { at: NUMBER, mask: 0x80, value: 0 };
    let Some(mut socket) = open(&[only]) else { return };
    assert_eq!((socket.mac(), socket.is_zero_copy()), ([0; 6], false));
    let other = XdpSocket::open("lo", ETHERTYPE, &[], Copies::Allowed).unwrap_err();
    assert!(other.to_string().contains("xdp off"), "{other}");
    let mut header = [0; 14];
    header[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
    let run = std::process::id().to_ne_bytes();
    let payload: Vec<u8> = (0..8000_u32).map(|at| at.to_le_bytes()[0]).collect();
    let (mut next, mut sent, begin) = (0_u16, 0_u16, Instant::now());
    while next < 3000 && begin.elapsed() < Duration::from_secs(20) {
        while sent < 3000 && sent < next + 100 {
            let number = sent.to_be_bytes();
            // One of the other kind for each: it is never taken.
            for flag in [0, 0x80] {
                let number = [number[0], number[1] & 0x7f | flag];
                let high = [sent.to_be_bytes()[1]];
                let len = if sent.is_multiple_of(3) { 8000 } else { usize::from(sent % 1000) };
                let pieces = [&header[..], &run, &number, &high, &payload[..len]];
                while let Err(error) = socket.send(&pieces.map(IoSlice::new)) {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                }
            }
            sent += 1;
        }
        socket.flush();
        socket.receive(64, |frame| {
            let (front, rest) = frame.split_at(14);
            assert_eq!(front[12..], header[12..]);
            if rest[..4] == run {
                let number = next.to_be_bytes();
                assert_eq!(rest[4..7], [number[0], number[1] & 0x7f, number[1]]);
                let len = if next.is_multiple_of(3) { 8000 } else { usize::from(next % 1000) };
                assert!(rest[7..].starts_with(&payload[..len]), "frame {next}");
                next += 1;
            }
        });
    }
    assert_eq!(next, 3000);
}

#[test]
fn what_is_no_interface_is_an_error() {
    let error = XdpSocket::open("nowhere0", ETHERTYPE, &[], Copies::Allowed).unwrap_err();
    assert!(error.to_string().contains("try: "), "{error}");
}
