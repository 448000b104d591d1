// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What clients send to a server of NBD.

use ::nbd::BlockSizes;
use ::nbd::Command;
use ::nbd::Errno;
use ::nbd::Export;
use ::nbd::Handshake;
use ::nbd::Item;
use ::nbd::Outcome;
use ::nbd::PAYLOAD_MAX;
use ::nbd::Receiver;
use ::nbd::Reply;

/// A whole connection. What it comes to does not depend on the pieces in which it comes; of a
/// write no more data is given than it has announced, and it announces no more than it may; each
/// reply is of one kind and short.
pub fn nbd_client(data: &[u8]) {
    let [flags, piece, stream @ ..] = data else { return };
    let export = Export {
        name: "disk".to_owned(),
        description: String::new(),
        bytes: 1 << 30,
        blocks: BlockSizes { least: 1, preferred: 4096, most: PAYLOAD_MAX },
        read_only: flags & 1 != 0,
        trim: flags & 2 != 0,
        fast_zero: flags & 4 != 0,
        allocation: flags & 8 != 0,
    };
    let piece = usize::from(*piece).max(1);
    let whole = conversation(stream, stream.len().max(1), nbd::Tls::Never, &export);
    let pieces = conversation(stream, piece, nbd::Tls::Never, &export);
    assert_eq!(whole, pieces);
    // Where TLS begins it matters what comes at once.
    conversation(stream, piece, nbd::Tls::Forced, &export);
}

/// What was answered, and what was asked for.
fn conversation(
    stream: &[u8],
    piece: usize,
    tls: nbd::Tls,
    export: &Export,
) -> (Vec<u8>, Vec<String>) {
    let (mut out, mut said) = (Vec::new(), Vec::new());
    let mut handshake = Handshake::begin(tls, &mut out);
    // Without it hardly anybody gets past the first four bytes.
    assert_eq!(handshake.receive(&3_u32.to_be_bytes(), export, &mut out), Ok(Outcome::More));
    let mut parts = stream.chunks(piece);
    let mut is_secure = tls == nbd::Tls::Never;
    let (agreed, rest) = loop {
        let Some(part) = parts.next() else { return (out, said) };
        match handshake.receive(part, export, &mut out) {
            Ok(Outcome::More) => {}
            Ok(Outcome::StartTls) => {
                assert!(!is_secure, "twice");
                is_secure = true;
            }
            Ok(Outcome::Begin { agreed, rest }) => {
                assert!(is_secure, "without TLS");
                break (agreed, rest);
            }
            Ok(Outcome::End) => return (out, said),
            Err(violation) => {
                said.push(violation.to_string());
                return (out, said);
            }
        }
    };
    let (mut receiver, mut left) = (Receiver::default(), 0);
    for mut bytes in std::iter::once(&rest[..]).chain(parts) {
        loop {
            match receiver.next(&mut bytes) {
                Ok(None) => break,
                Ok(Some(Item::Data(part))) => {
                    assert!(!part.is_empty() && part.len() <= left, "more than was announced");
                    left -= part.len();
                }
                Ok(Some(Item::Request(request))) => {
                    assert_eq!(left, 0, "a request within data");
                    if request.command == Command::Write {
                        assert!(request.length <= PAYLOAD_MAX);
                        left = request.length as usize;
                    }
                    said.push(format!("{request:?}"));
                    for reply in [
                        Reply::done(agreed, &request),
                        Reply::failed(agreed, &request, Errno::Invalid),
                    ] {
                        assert!(matches!(reply.bytes().len(), 16 | 20 | 26 | 28));
                    }
                }
                Err(violation) => {
                    said.push(violation.to_string());
                    return (out, said);
                }
            }
        }
    }
    (out, said)
}
