// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iWARP: every header of a peer's bytes.

use wire::iwarp::Ddp;
use wire::iwarp::ENHANCED_LEN;
use wire::iwarp::Enhanced;
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
