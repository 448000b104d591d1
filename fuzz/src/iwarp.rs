// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iWARP: every header of a peer's bytes, and the machines that take them.

use clock::Instant;
use rdma::mpa::Checks;
use rdma::mpa::Framing;
use rdma::mpa::Initiator;
use rdma::mpa::Offer;
use rdma::mpa::Receiver;
use rdma::mpa::Responder;
use rdma::violation::Violation;
use wire::iser::IserHeader;
use wire::iwarp::Ddp;
use wire::iwarp::ENHANCED_LEN;
use wire::iwarp::Enhanced;
use wire::iwarp::Markers;
use wire::iwarp::Opcode;
use wire::iwarp::PRIVATE_DATA_LEN_MAX;
use wire::iwarp::READ_REQUEST_LEN;
use wire::iwarp::ReadRequest;
use wire::iwarp::START_LEN;
use wire::iwarp::Start;
use wire::iwarp::TERMINATE_LEN_MAX;
use wire::iwarp::Terminate;

/// Headers of MPA, DDP and RDMAP: what can be taken apart can be put together again.
pub fn iwarp_headers(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else { return };
    match kind % 3 {
        0 => start(bytes),
        1 => segment(bytes),
        _ => terminate(bytes),
    }
}

fn start(bytes: &[u8]) {
    let Some((frame, rest)) = bytes.split_first_chunk::<START_LEN>() else { return };
    // Nothing but luck finds a key of 16 bytes.
    let mut frame = *frame;
    let key: &[u8; 16] = if frame[0] & 1 == 0 { b"MPA ID Req Frame" } else { b"MPA ID Rep Frame" };
    frame[..16].copy_from_slice(key);
    if let Ok(start) = Start::parse(&frame) {
        assert!(usize::from(start.private_data_length) <= PRIVATE_DATA_LEN_MAX);
        assert_eq!(Start::parse(&start.emit()), Ok(start));
    }
    if let Some(depths) = rest.first_chunk::<ENHANCED_LEN>() {
        assert_eq!(Enhanced::parse(*depths).emit(), *depths);
    }
}

fn segment(bytes: &[u8]) {
    let Ok(header) = Ddp::parse(bytes) else { return };
    let emitted = match header {
        Ddp::Tagged(header) => header.emit().to_vec(),
        Ddp::Untagged(header) => header.emit().to_vec(),
    };
    assert_eq!(Ddp::parse(&emitted), Ok(header));
    if let Ok(opcode) = Opcode::parse(header.control()) {
        assert_eq!(Opcode::parse(opcode.control()), Ok(opcode));
    }
    let payload = bytes.get(header.len()..).expect("a header lies within its segment");
    if let Some(request) = payload.first_chunk::<READ_REQUEST_LEN>() {
        assert_eq!(ReadRequest::parse(request).emit(), *request);
    }
}

fn terminate(bytes: &[u8]) {
    let Ok(terminate) = Terminate::parse(bytes) else { return };
    let emitted = terminate.emit();
    assert!(emitted.len() <= TERMINATE_LEN_MAX);
    assert_eq!(Terminate::parse(&emitted), Ok(terminate));
}

/// The header of iSER: what can be taken apart can be put together again.
pub fn iser_header(data: &[u8]) {
    if let Ok(header) = IserHeader::parse(data) {
        assert_eq!(IserHeader::parse(&header.emit()), Ok(header));
    }
}

/// A request, a reply or FPDUs: whole and in pieces they must mean the same.
pub fn mpa_stream(data: &[u8]) {
    let Some(([flags, piece], stream)) = data.split_first_chunk() else { return };
    let piece = usize::from(*piece) + 1;
    let framing = Framing {
        checks: if flags & 1 == 0 { Checks::None } else { Checks::Crc },
        received: if flags & 2 == 0 { Markers::None } else { Markers::Sent },
        ..Framing::default()
    };
    let whole = usize::MAX;
    assert_eq!(fpdus(framing, stream, piece), fpdus(framing, stream, whole));
    let key: &[u8] = if flags & 4 == 0 { b"MPA ID Req Frame" } else { b"MPA ID Rep Frame" };
    let frame = [key, stream].concat();
    assert_eq!(asked(&frame, piece), asked(&frame, whole));
    assert_eq!(answered(&frame, piece), answered(&frame, whole));
}

/// The segments of a stream, up to what is wrong with it.
fn fpdus(framing: Framing, stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<Violation>) {
    let (mut receiver, mut found) = (Receiver::new(framing), Vec::new());
    for mut bytes in stream.chunks(piece.min(stream.len().max(1))) {
        while !bytes.is_empty() {
            match receiver.feed(bytes) {
                Ok((taken, segment)) => {
                    assert!(taken > 0, "it goes on");
                    found.extend(segment.map(<[u8]>::to_vec));
                    bytes = bytes.get(taken..).expect("no more is taken than is given");
                }
                Err(violation) => return (found, Some(violation)),
            }
        }
    }
    (found, None)
}

/// What a request says, and what is answered.
fn asked(frame: &[u8], piece: usize) -> Result<String, Violation> {
    let mut responder = Responder::new(Instant(0));
    for bytes in frame.chunks(piece.min(frame.len())) {
        if let (_, Some(request)) = responder.handle_bytes(bytes)? {
            let answer = request.accept(&Offer::default());
            return Ok(format!("{:?} {answer:?}", request.private_data()));
        }
    }
    Ok(String::new())
}

/// What a reply says.
fn answered(frame: &[u8], piece: usize) -> Result<String, Violation> {
    let (mut initiator, _) = Initiator::new(Offer::default(), Instant(0));
    for bytes in frame.chunks(piece.min(frame.len())) {
        if let (_, Some(reply)) = initiator.handle_bytes(bytes)? {
            return Ok(format!("{reply:?}"));
        }
    }
    assert!(initiator.terminate().is_none());
    Ok(String::new())
}
