// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;

const NOW: Duration = Duration::from_secs(1_700_000_000);

pub(super) fn terms(limit: u64) -> Terms {
    Terms { filter: Filter::default(), data_max: 0, limit }
}

pub(super) fn ends() -> (SocketAddr, SocketAddr) {
    (SocketAddr::from(([10, 0, 0, 1], 3260)), SocketAddr::from(([10, 0, 0, 2], 40_000)))
}

/// A packet as a reader finds it: by whom, where in the stream, kept bytes, whole length.
pub(super) type Seen = (u16, u32, Vec<u8>, usize);

/// All that a trace gives, whose records are whole.
pub(super) fn read(trace: &Trace) -> Vec<Seen> {
    let mut bytes = Vec::new();
    while let Taken::Records(records) = trace.take(Duration::ZERO) {
        bytes.extend(records);
    }
    assert_eq!(bytes.len() as u64, trace.figures().bytes);
    let mut rest = bytes.strip_prefix(&pcap::file_header()[..]).expect("the beginning of a file");
    let mut seen = Vec::new();
    let word = |bytes: &[u8]| u32::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    while !rest.is_empty() {
        let (kept, length) = (word(&rest[8..]), word(&rest[12..]));
        let packet = &rest[pcap::RECORD_HEADER_LEN..][..kept];
        let tcp = &packet[20..];
        let head = usize::from(tcp[12] >> 4) * 4;
        let port = u16::from_be_bytes([tcp[0], tcp[1]]);
        let sequence = u32::from_be_bytes(*tcp[4..].first_chunk().unwrap());
        seen.push((port, sequence, tcp[head..].to_vec(), length - 20 - head));
        rest = &rest[pcap::RECORD_HEADER_LEN + kept..];
    }
    seen
}

fn say(trace: &Trace, length: usize) {
    let (from, to) = ends();
    let kept = &[7; 48][..];
    let packet = Packet { from, to, sequence: 5, acknowledged: 0, flags: Flags::Ack, kept, length };
    trace.push(NOW, &packet);
}

#[test]
fn a_long_pdu_takes_its_room_in_the_stream() {
    let trace = Trace::new(terms(u64::MAX));
    say(&trace, 2 * SEGMENT_LEN_MAX + 1);
    let most = u32::try_from(SEGMENT_LEN_MAX).unwrap();
    let expected = [
        (3260, 5, vec![7; 48], SEGMENT_LEN_MAX),
        (3260, 5 + most, vec![], SEGMENT_LEN_MAX),
        (3260, 5 + 2 * most, vec![], 1),
    ];
    assert_eq!(read(&trace), expected);
    assert_eq!(trace.figures().pdus, 1);
}

#[test]
fn a_trace_gets_as_long_as_it_may() {
    let trace = Trace::new(terms(24 + 3 * (16 + 40 + 48) + 1));
    (0..10).for_each(|_| say(&trace, 48));
    assert!(!trace.is_open());
    assert_eq!(read(&trace).len(), 3);
    assert_eq!(trace.take(Duration::ZERO), Taken::Over(TraceEnd::Limit));
    let figures = trace.figures();
    assert_eq!((figures.pdus, figures.lost), (3, 0), "what comes then is not missing");
}

#[test]
fn what_nobody_takes_is_counted_and_not_kept() {
    let trace = Trace::new(terms(u64::MAX));
    let record = 16 + 40 + 48;
    let most = (QUEUE_BYTES_MAX - 24) / record;
    (0..most + 7).for_each(|_| say(&trace, 48));
    let figures = trace.figures();
    assert_eq!((figures.pdus, figures.lost), (most as u64, 7));
    assert_eq!(read(&trace).len(), most);
    say(&trace, 48);
    assert_eq!(trace.figures().pdus, most as u64 + 1, "there is room again");
}

#[test]
fn what_waits_when_it_is_over_is_given_first() {
    let trace = Trace::new(terms(u64::MAX));
    say(&trace, 48);
    trace.stop(TraceEnd::Time);
    trace.stop(TraceEnd::Reader);
    say(&trace, 48);
    assert_eq!(read(&trace).len(), 1);
    assert_eq!(trace.take(Duration::from_secs(60)), Taken::Over(TraceEnd::Time), "the first one");
}
