// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixed interval markers on the wire (RFC 3720 appendix A), and their keys where nobody wants
//! them (RFC 7143 §13.25).

use lunwire_conformance::initiator::BLOCK_BYTES;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::pattern;

use lunwire_conformance::raw::header;
use lunwire_conformance::*;
use target::TraceFilter;
use target::TraceTerms;
use wire::iscsi::*;

fn word(length: usize) -> u32 {
    u32::try_from(length).expect("a short length")
}

/// One direction of a marked stream.
struct Marked {
    position: usize,
    interval: usize,
}

impl Marked {
    /// How many payload bytes come before the next marker.
    fn until(&self) -> usize {
        let at = self.position % (self.interval + MARKER_LEN);
        if at <= self.interval { self.interval - at } else { 2 * self.interval + MARKER_LEN - at }
    }

    /// A PDU with markers in it.
    fn mark(&mut self, pdu: &[u8]) -> Vec<u8> {
        let mut marked = Vec::new();
        let mut rest = pdu;
        while !rest.is_empty() {
            if self.until() == 0 {
                let next = if rest.len() == pdu.len() { 0 } else { rest.len() };
                marked.extend(Marker::new(word(next)).emit());
                self.position += MARKER_LEN;
            }
            let (part, tail) = rest.split_at(self.until().min(rest.len()));
            marked.extend_from_slice(part);
            self.position += part.len();
            rest = tail;
        }
        marked
    }

    /// The next payload bytes of a stream; `left`: those of the PDU that they are the front of.
    fn take(&mut self, raw: &mut Raw, length: usize, left: Option<usize>) -> Vec<u8> {
        let mut payload = Vec::new();
        while payload.len() < length {
            if self.until() == 0 {
                let bytes = raw.read_bytes(MARKER_LEN);
                let marker = Marker::parse(bytes.try_into().expect("a marker"));
                let pointer = marker.pointer().expect("two equal copies");
                self.position += MARKER_LEN;
                if let Some(left) = left {
                    assert_eq!(pointer as usize, left - payload.len(), "it points to the next PDU");
                }
            }
            let part = raw.read_bytes(self.until().min(length - payload.len()));
            self.position += part.len();
            payload.extend(part);
        }
        payload
    }

    fn read(&mut self, raw: &mut Raw) -> Pdu {
        let header = self.take(raw, BHS_LEN, None);
        let length =
            BhsView::new_checked(&header).expect("48 bytes").data_segment_length() as usize;
        let mut data = self.take(raw, pad4(length), Some(pad4(length)));
        let padding = data.split_off(length);
        Pdu { header, data, padding }
    }
}

/// Words between markers, and whether they are in what the initiator and in what the target sends.
const MARKED: [(usize, bool, bool); 4] =
    [(1, true, true), (13, true, true), (128, true, false), (2048, false, true)];

/// A write and a read of 8 KiB with markers of many intervals, in one direction and in both.
#[test]
fn data_goes_both_ways_with_markers() {
    on_each_engine(
        |settings| settings.markers = true,
        |server| {
            for marked in MARKED {
                let (mut raw, plan, mut to, mut from) = log_in(server, marked);
                check_io(&mut raw, &plan, &mut to, &mut from);
            }
        },
    );
}

/// A trace does not take them apart.
#[test]
fn a_trace_ends_where_markers_begin() {
    on_each_engine(
        |settings| settings.markers = true,
        |server| {
            for marked in MARKED {
                let filter = TraceFilter::default();
                let terms = TraceTerms { filter, data_max: 0, limit: u64::MAX };
                let tracing = server.target().trace(terms);
                // Reactors answer when they know of it.
                assert!(server.target().figures(raw::PATIENCE).silent.is_empty());
                let (mut raw, plan, mut to, mut from) = log_in(server, marked);
                check_io(&mut raw, &plan, &mut to, &mut from);
                let figures = tracing.trace().figures();
                assert_eq!((figures.pdus, figures.connections), (2, 1), "{marked:?}: the login");
            }
        },
    );
}

fn log_in(
    server: &Server,
    (words, out, in_): (usize, bool, bool),
) -> (Raw, LoginPlan, Marked, Marked) {
    let yes = |on| if on { "Yes" } else { "No" };
    let interval = words.to_string();
    let mut keys = vec![("OFMarker", yes(out)), ("IFMarker", yes(in_))];
    keys.extend(out.then_some(("OFMarkInt", interval.as_str())));
    keys.extend(in_.then_some(("IFMarkInt", interval.as_str())));
    let plan = LoginPlan::new().with(&keys);
    let sent = header(&Request::Login(plan.request()), 0).len() + pad4(plan.text().len());
    let mut raw = server.connect();
    let (response, pdu) = plan.begin(&mut raw);
    assert_eq!((response.status, response.transit), (0, true));
    for (key, value) in keys {
        assert!(pdu.pairs().contains(&(key.into(), value.into())), "{key}={value}");
    }
    let heard = BHS_LEN + pad4(pdu.data.len());
    let never = usize::MAX / 4;
    let interval = |on| if on { words * 4 } else { never };
    let to = Marked { position: sent, interval: interval(out) };
    let from = Marked { position: heard, interval: interval(in_) };
    (raw, plan, to, from)
}

fn check_io(raw: &mut Raw, plan: &LoginPlan, to: &mut Marked, from: &mut Marked) {
    let data = pattern(16 * BLOCK_BYTES, 3);
    let mut sequence = 0;
    let mut command = |opcode: u8, write: bool, length: usize| {
        sequence += 1;
        let mut bytes = [0; 32];
        bytes[0] = opcode;
        bytes[8] = u8::try_from(length / BLOCK_BYTES).expect("few blocks");
        ScsiCommand {
            immediate: false,
            final_: true,
            read: !write && length > 0,
            write,
            attribute: Attribute::Simple,
            priority: 0,
            lun: LunField([0; 8]),
            itt: Itt(sequence),
            expected_length: word(length),
            cmd_sn: CmdSn(plan.cmd_sn.0 + sequence - 1),
            exp_stat_sn: StatSn(0),
            cdb: Cdb { bytes, len: 16 },
            bidi_read_length: None,
        }
    };
    let send = |raw: &mut Raw, to: &mut Marked, request: &Request, data: &[u8]| {
        let bytes = raw.assemble(&header(request, data.len()), data);
        let marked = to.mark(&bytes);
        raw.write(&marked);
    };
    for _ in 0..2 {
        // Unit attentions of a new session, then GOOD.
        send(raw, to, &Request::Command(command(0, false, 0)), &[]);
        from.read(raw);
    }
    let write = command(0x2a, true, data.len());
    send(raw, to, &Request::Command(write), &[]);
    loop {
        match from.read(raw).response() {
            Response::R2t(r2t) => {
                let (start, length) = (r2t.offset as usize, r2t.desired_length as usize);
                let out = DataOut {
                    final_: true,
                    lun: r2t.lun,
                    itt: r2t.itt,
                    ttt: r2t.ttt,
                    exp_stat_sn: StatSn(0),
                    data_sn: DataSn(0),
                    offset: r2t.offset,
                };
                send(raw, to, &Request::DataOut(out), &data[start..start + length]);
            }
            Response::Scsi(answer) => break assert_eq!(answer.status, GOOD),
            other => panic!("R2T or status was due: {other:?}"),
        }
    }
    send(raw, to, &Request::Command(command(0x28, false, data.len())), &[]);
    let mut read = Vec::new();
    while read.len() < data.len() {
        let pdu = from.read(raw);
        assert!(matches!(pdu.response(), Response::DataIn(_)));
        read.extend(pdu.data);
    }
    assert_eq!(read, data);
}

#[test]
fn a_wrong_marker_closes_the_connection() {
    on_each_engine(
        |settings| settings.markers = true,
        |server| {
            let plan = LoginPlan::new().with(&[("OFMarker", "Yes"), ("OFMarkInt", "1")]);
            let mut raw = server.connect();
            plan.begin(&mut raw);
            // Pointers into the void, wherever a marker may be.
            raw.write(&[0x7f; 96]);
            loop {
                match raw.hear(raw::PATIENCE) {
                    Heard::Pdu(pdu) => assert_eq!(pdu.opcode(), OPCODE_ASYNC_MESSAGE),
                    heard => break assert_eq!(heard, Heard::Closed),
                }
            }
        },
    );
}

/// Covers: OBS-01/T, OBS-02/T.
#[test]
fn without_a_wish_for_markers_their_keys_are_rejected() {
    on_each_engine(
        |_| {},
        |server| {
            let keys = [
                ("OFMarker", "Yes"),
                ("IFMarker", "No"),
                ("OFMarkInt", "2048"),
                ("IFMarkInt", "1~65535"),
            ];
            let mut session = server.login_with(&LoginPlan::new().with(&keys));
            for (key, _) in keys {
                assert_eq!(session.answer(key), Some("Reject"), "{key}");
            }
            session.settle(0);
            session.expect_quiet();
        },
    );
}
