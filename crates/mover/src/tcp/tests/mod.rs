// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stand-in for initiator, pump and core, and the tests that use it.

mod bursts;
mod disorder;
mod hostile;
mod landing;
mod markers;
mod receive;
mod recovery;
mod send;

use alloc::vec;
use alloc::vec::Vec;

use buf::{Pool, SgList, Slice};
use iscsi::datamover::{DataError, Event, Immediate, Keys, Op, StreamViolation, TaskId};
use wire::iscsi::{
    Attribute, BHS_LEN, BhsView, Cdb, Cid, CmdSn, CollapsedStatus, DataOut, DataSn, Isid, Itt,
    LoginRequest, LunField, NopOut, Numbers, Request, Residual, Response, ScsiCommand, Stage,
    StatSn, Tsih, Ttt, pad4,
};

use super::Tcp;

/// Both digests on, segments of 8192 bytes each way.
pub(super) const DIGESTS: Keys = Keys { header_digest: true, data_digest: true, ..PLAIN };

/// No digests, segments of 8192 bytes each way, first bursts of 1024.
pub(super) const PLAIN: Keys = Keys { first_burst_length: 1024, ..Keys::LOGIN };

pub(super) const LUN: LunField = LunField([0, 1, 0, 0, 0, 0, 0, 0]);

/// What was told, in a form that can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Note {
    Control(Request, Vec<u8>),
    NoBuffer,
    Exhausted(u32),
    Written(Vec<u8>),
    Done(TaskId, u32, u32),
    Failed(TaskId, DataError),
    Rejected(u8, Vec<u8>),
    DigestError(Vec<u8>),
    Released(TaskId),
    Violation(StreamViolation),
}

/// A mover with a core that serves every write command: unsolicited data up to 1024 bytes, then one
/// R2T.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) tcp: Tcp,
    pub(super) pool: Pool,
    pub(super) notes: Vec<Note>,
    pub(super) keys: Keys,
    /// Bytes that were sent.
    pub(super) sent: Vec<u8>,
    tasks: Vec<(TaskId, ScsiCommand)>,
}

impl Host {
    /// With these keys after its first Login Request.
    pub(super) fn new(keys: Keys) -> Self {
        Self {
            tcp: Tcp::new(),
            pool: Pool::new(64 << 20).expect("memory for a pool"),
            notes: Vec::new(),
            keys,
            sent: Vec::new(),
            tasks: Vec::new(),
        }
    }

    /// Logged in, with nothing told.
    pub(super) fn logged_in(keys: Keys) -> Self {
        let mut host = Self::new(keys);
        host.feed(&login());
        host.notes.clear();
        host
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (taken, event) = self.tcp.feed(rest, &self.pool);
            assert!(taken > 0 || event.is_some(), "feed always goes on");
            rest = &rest[taken..];
            if let Some(event) = event {
                self.handle(event);
            }
            self.tcp.check();
        }
    }

    pub(super) fn submit(&mut self, op: Op) {
        self.tcp.submit(op);
        self.tcp.check();
        self.poll_events();
    }

    /// Sends all there is and returns it.
    pub(super) fn drain(&mut self) -> Vec<u8> {
        let mut list = SgList::new();
        let mut bytes = Vec::new();
        while self.tcp.poll_transmit(&mut list) {
            bytes.extend_from_slice(&list.to_vec());
            self.tcp.handle_sent();
            self.poll_events();
        }
        self.sent.extend_from_slice(&bytes);
        bytes
    }

    pub(super) fn take_notes(&mut self) -> Vec<Note> {
        core::mem::take(&mut self.notes)
    }

    fn poll_events(&mut self) {
        while let Some(event) = self.tcp.poll_event() {
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        let note = match event {
            Event::Control { request: Request::Command(command), immediate } => {
                return self.command(command, immediate);
            }
            Event::Control { request, .. } => {
                if matches!(request, Request::Login(_)) {
                    self.tcp.submit(Op::NoticeKeys(self.keys));
                }
                Note::Control(request, self.tcp.control_data().to_vec())
            }
            Event::DataDone { task, offset, length } => {
                self.notes.push(Note::Done(task, offset, length));
                return self.data_done(task, offset + length);
            }
            Event::DataFailed { task, error, .. } => {
                self.notes.push(Note::Failed(task, error));
                return self.submit(Op::Release { task });
            }
            Event::Rejected { reason } => Note::Rejected(reason, self.tcp.header().to_vec()),
            Event::NoBuffer => Note::NoBuffer,
            Event::DigestError => Note::DigestError(self.tcp.header().to_vec()),
            Event::Released { task } => Note::Released(task),
            Event::Violation(violation) => {
                if self.notes.last() == Some(&Note::Violation(violation)) {
                    return;
                }
                Note::Violation(violation)
            }
        };
        self.notes.push(note);
    }

    /// The task's id is its ITT.
    fn command(&mut self, command: ScsiCommand, immediate: Immediate) {
        let task = TaskId { index: command.itt.0, generation: 1 };
        let (data, length) = match immediate {
            Immediate::None => (None, 0),
            Immediate::Staged { data, length } => (Some(data), length),
            Immediate::Exhausted { length } => return self.notes.push(Note::Exhausted(length)),
        };
        let staged = data.as_ref().map_or(&[][..], |data| &data[..length as usize]).to_vec();
        self.notes.push(Note::Control(Request::Command(command), staged));
        if !command.write {
            return;
        }
        let mut buf = data.unwrap_or_else(|| {
            self.pool.take(command.expected_length as usize).expect("a buffer for the transfer")
        });
        buf[length as usize..].fill(0xee);
        self.tcp.submit(Op::Attach { task, buf });
        self.tasks.push((task, command));
        if command.final_ {
            return self.data_done(task, length);
        }
        let first = command.expected_length.min(PLAIN.first_burst_length);
        self.submit(Op::ExpectUnsolicited {
            task,
            itt: command.itt,
            lun: command.lun,
            offset: length,
            length: first - length,
            discard: false,
        });
    }

    fn data_done(&mut self, task: TaskId, end: u32) {
        let Some((_, command)) = self.tasks.iter().find(|(id, _)| *id == task).copied() else {
            return;
        };
        let left = command.expected_length - end;
        if left > 0 {
            self.submit(Op::GetData {
                task,
                itt: command.itt,
                lun: command.lun,
                offset: end,
                length: left,
                numbers: numbers(1),
            });
            self.drain();
            return;
        }
        let buf = self.tcp.submit(Op::Detach { task }).expect("the buffer is still there");
        self.notes.push(Note::Written(buf.to_vec()));
        self.submit(Op::Release { task });
    }
}

pub(super) fn task(index: u32) -> TaskId {
    TaskId { index, generation: 1 }
}

pub(super) fn numbers(stat_sn: u32) -> Numbers {
    Numbers { stat_sn: StatSn(stat_sn), exp_cmd_sn: CmdSn(6), max_cmd_sn: CmdSn(37) }
}

/// Bytes that differ from place to place, with a period that is no power of two.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).expect("below 251")).collect()
}

/// A whole PDU as an initiator sends it; `padding` fills up the data segment.
pub(super) fn pdu_padded(request: &Request, data: &[u8], keys: Keys, padding: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.emit(u32::try_from(data.len()).expect("a short segment"), &mut bytes);
    frame(bytes, data, keys, padding)
}

pub(super) fn pdu(request: &Request, data: &[u8], keys: Keys) -> Vec<u8> {
    pdu_padded(request, data, keys, 0)
}

/// Header with digest, data with padding and digest.
pub(super) fn frame(header: Vec<u8>, data: &[u8], keys: Keys, padding: u8) -> Vec<u8> {
    let mut bytes = header;
    if keys.header_digest {
        let digest = crc::crc32c(&bytes);
        bytes.extend_from_slice(&digest.to_le_bytes());
    }
    let mut segment = data.to_vec();
    segment.resize(pad4(data.len()), padding);
    bytes.extend_from_slice(&segment);
    if keys.data_digest && !data.is_empty() {
        bytes.extend_from_slice(&crc::crc32c(&segment).to_le_bytes());
    }
    bytes
}

/// Takes sent bytes apart; every digest and every padding byte is checked.
pub(super) fn responses(bytes: &[u8], keys: Keys) -> Vec<(Response, Vec<u8>)> {
    let mut rest = bytes;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (header, tail) = rest.split_at(BHS_LEN);
        rest = tail;
        let view = BhsView::new_checked(header).expect("48 bytes");
        assert_eq!(view.total_ahs_length(), 0, "targets send no AHS");
        if keys.header_digest {
            let (digest, tail) = rest.split_at(4);
            assert_eq!(digest, crc::crc32c(header).to_le_bytes(), "header digest");
            rest = tail;
        }
        let length = view.data_segment_length() as usize;
        assert!(length <= keys.max_send_data_segment_length as usize, "longest segment");
        let (segment, tail) = rest.split_at(pad4(length));
        rest = tail;
        assert!(segment[length..].iter().all(|byte| *byte == 0), "padding is zero");
        if keys.data_digest && length > 0 {
            let (digest, tail) = rest.split_at(4);
            assert_eq!(digest, crc::crc32c(segment).to_le_bytes(), "data digest");
            rest = tail;
        }
        let response = Response::parse(header).expect("a legal response");
        assert_eq!(response.emit(view.data_segment_length()), header, "reserved bits are zero");
        found.push((response, segment[..length].to_vec()));
    }
    found
}

pub(super) fn login() -> Vec<u8> {
    let request = LoginRequest {
        transit: true,
        continue_: false,
        current: Stage::Operational,
        next: Some(Stage::FullFeature),
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 1, 0x23, 0x45, 0, 1]),
        tsih: Tsih(0),
        itt: Itt(0x10),
        cid: Cid(1),
        cmd_sn: CmdSn(5),
        exp_stat_sn: StatSn(0),
    };
    pdu(&Request::Login(request), b"InitiatorName=iqn.2001-04.com.example:host\0", Keys::LOGIN)
}

pub(super) fn nop_out(itt: u32) -> NopOut {
    NopOut {
        immediate: true,
        lun: LunField::default(),
        itt: Itt(itt),
        ttt: Ttt::NONE,
        cmd_sn: CmdSn(6),
        exp_stat_sn: StatSn(1),
    }
}

/// A write of `expected` bytes; its CDB is READ or WRITE only in name.
pub(super) fn write(itt: u32, expected: u32) -> ScsiCommand {
    ScsiCommand {
        immediate: false,
        final_: true,
        read: false,
        write: true,
        attribute: Attribute::Simple,
        priority: 0,
        lun: LUN,
        itt: Itt(itt),
        expected_length: expected,
        cmd_sn: CmdSn(7),
        exp_stat_sn: StatSn(1),
        cdb: Cdb { bytes: [0; 32], len: 16 },
        bidi_read_length: None,
    }
}

pub(super) fn data_out(itt: u32, ttt: u32, data_sn: u32, offset: u32) -> DataOut {
    DataOut {
        final_: false,
        lun: LUN,
        itt: Itt(itt),
        ttt: Ttt(ttt),
        exp_stat_sn: StatSn(1),
        data_sn: DataSn(data_sn),
        offset,
    }
}

pub(super) fn put(index: u32, data: Slice, offset: u32, good: Option<u32>) -> Op {
    Op::PutData {
        task: task(index),
        itt: Itt(index),
        data,
        offset,
        burst: 1 << 24,
        numbers: numbers(good.unwrap_or(0xaaaa)),
        status: good.map(|_| CollapsedStatus { status: 0, residual: Residual::None }),
    }
}

pub(super) fn zeros(length: usize) -> Vec<u8> {
    vec![0; length]
}
