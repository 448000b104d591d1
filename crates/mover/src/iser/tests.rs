// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both ends of a connection over iSER, without anybody between them, and what each test needs.

mod adapter;
mod adapters;
mod beginning;
mod credits;
mod headers;
mod hostile;
mod moving;
mod names;
mod raw;
mod services;
mod tasks;

use alloc::vec::Vec;

use buf::Pool;
use buf::SgList;
use buf::Slice;
use iscsi::datamover as target;
use iscsi::datamover::Immediate;
use iscsi::datamover::TaskId;
use iscsi::initiator::datamover as initiator;
use iscsi::initiator::datamover::Ended;
use iscsi::initiator::datamover::itt;
use wire::iscsi::*;

use super::*;

const TASK: TaskId = TaskId { index: 3, generation: 2 };
const UNIT: LunField = LunField([0, 1, 0, 0, 0, 0, 0, 0]);

fn numbers() -> Numbers {
    Numbers { stat_sn: StatSn(5), exp_cmd_sn: CmdSn(2), max_cmd_sn: CmdSn(9) }
}

fn command(task: TaskId, read: bool, length: u32) -> ScsiCommand {
    ScsiCommand {
        immediate: false,
        final_: true,
        read,
        write: !read,
        attribute: Attribute::Simple,
        priority: 0,
        lun: UNIT,
        itt: itt(task),
        expected_length: length,
        cmd_sn: CmdSn(1),
        exp_stat_sn: StatSn(0),
        cdb: Cdb { bytes: [0; 32], len: 16 },
        bidi_read_length: None,
    }
}

fn login() -> Request {
    Request::Login(LoginRequest {
        transit: false,
        continue_: false,
        current: Stage::Operational,
        next: None,
        version_max: 0,
        version_min: 0,
        isid: Isid([0; 6]),
        tsih: Tsih(0),
        itt: Itt(1),
        cid: Cid(0),
        cmd_sn: CmdSn(1),
        exp_stat_sn: StatSn(0),
    })
}

fn ping(itt: Itt, ttt: Ttt) -> Request {
    let (immediate, lun) = (true, LunField::default());
    let (cmd_sn, exp_stat_sn) = (CmdSn(1), StatSn(0));
    Request::NopOut(NopOut { immediate, lun, itt, ttt, cmd_sn, exp_stat_sn })
}

fn pong(itt: Itt) -> Response {
    let (lun, ttt) = (LunField::default(), Ttt::NONE);
    Response::NopIn(NopIn { lun, itt, ttt, numbers: numbers() })
}

fn status(task: TaskId) -> Response {
    Response::Scsi(ScsiResponse {
        response: 0,
        status: 0,
        status_qualifier: 0,
        itt: itt(task),
        snack_tag: 0,
        numbers: numbers(),
        exp_data_sn: DataSn(4),
        bidi_read_residual: Residual::None,
        residual: Residual::None,
    })
}

fn bytes(seed: u32, length: u32) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) + seed).to_le_bytes()[0]).collect()
}

fn control(response: Response, data: &[u8]) -> target::Op {
    let task = match response {
        Response::Scsi(_) => Some(TASK),
        _ => None,
    };
    target::Op::SendControl { response, data: data.to_vec(), task }
}

fn put(data: &[u8], offset: u32) -> target::Op {
    let (data, numbers) = (Slice::from(data.to_vec()), numbers());
    target::Op::PutData {
        task: TASK,
        itt: itt(TASK),
        data,
        offset,
        burst: 512,
        numbers,
        status: None,
    }
}

fn get(offset: u32, length: u32) -> target::Op {
    let (task, itt, lun, numbers) = (TASK, itt(TASK), UNIT, numbers());
    target::Op::GetData { task, itt, lun, offset, length, numbers }
}

/// Both ends.
struct Pair {
    pool: Pool,
    near: Initiator,
    far: Target,
    /// Bytes that are carried at once.
    piece: usize,
}

impl Pair {
    /// Before the first byte.
    fn begin(piece: usize) -> Self {
        let pool = Pool::new(16 << 20).unwrap();
        let (near, far) = (Initiator::new(&pool, 1).unwrap(), Target::of_stranger(2));
        Self { pool, near, far, piece }
    }

    /// In full feature phase.
    fn new() -> Self {
        Self::in_pieces(usize::MAX)
    }

    fn in_pieces(piece: usize) -> Self {
        let mut pair = Self::begin(piece);
        pair.near.submit(initiator::Op::SendControl { request: login(), data: b"a=b\0".to_vec() });
        assert!(matches!(
            pair.exchange().0[..],
            [target::Event::Control { request: Request::Login(_), immediate: Immediate::None }]
        ));
        assert_eq!(pair.far.control_data(), b"a=b\0");
        assert_eq!(pair.far.header().len(), BHS_LEN);
        pair.near.submit(initiator::Op::NoticeKeys(initiator::Keys {
            max_burst_length: 4096,
            max_outstanding_r2t: 2,
            ..initiator::Keys::LOGIN
        }));
        pair.far.submit(target::Op::NoticeKeys(target::Keys {
            first_burst_length: 4096,
            ..target::Keys::LOGIN
        }));
        pair
    }

    /// Bytes of the initiator's end.
    fn near_bytes(&mut self) -> Vec<u8> {
        let (mut bytes, mut list) = (Vec::new(), SgList::new());
        while self.near.poll_transmit(&mut list, StatSn(9)) {
            bytes.extend(list.to_vec());
            list.clear();
            self.near.handle_sent();
        }
        bytes
    }

    /// Bytes of the target's end.
    fn far_bytes(&mut self) -> Vec<u8> {
        let (mut bytes, mut list) = (Vec::new(), SgList::new());
        while self.far.poll_transmit(&mut list) {
            bytes.extend(list.to_vec());
            list.clear();
            self.far.handle_sent();
        }
        bytes
    }

    fn feed_far(&mut self, bytes: &[u8]) -> Vec<target::Event> {
        let mut events = Vec::new();
        for piece in bytes.chunks(self.piece.min(bytes.len().max(1))) {
            let mut rest = piece;
            while !rest.is_empty() || self.far.has_more() {
                let (taken, event) = self.far.feed(rest, &self.pool);
                rest = &rest[taken..];
                events.extend(event);
                self.far.check();
            }
        }
        events
    }

    fn feed_near(&mut self, bytes: &[u8]) -> Vec<initiator::Event> {
        let mut events = Vec::new();
        for piece in bytes.chunks(self.piece.min(bytes.len().max(1))) {
            let mut rest = piece;
            while !rest.is_empty() || self.near.has_more() {
                let (taken, event) = self.near.feed(rest);
                rest = &rest[taken..];
                events.extend(event);
                self.near.check();
            }
        }
        events
    }

    /// Carries bytes both ways until there are none.
    fn exchange(&mut self) -> (Vec<target::Event>, Vec<initiator::Event>) {
        let (mut at_far, mut at_near) = (Vec::new(), Vec::new());
        loop {
            let (to_far, to_near) = (self.near_bytes(), self.far_bytes());
            if to_far.is_empty() && to_near.is_empty() {
                at_far.extend(core::iter::from_fn(|| self.far.poll_event()));
                return (at_far, at_near);
            }
            at_far.extend(self.feed_far(&to_far));
            at_near.extend(self.feed_near(&to_near));
        }
    }

    fn command(
        &mut self,
        command: ScsiCommand,
        (write, read): (Option<&[u8]>, usize),
        (immediate, unsolicited_end): (u32, u32),
    ) {
        let write = write.map(|bytes| Slice::from(bytes.to_vec()));
        let read = (read > 0).then(|| {
            let mut buf = self.pool.take(read).unwrap();
            buf.fill(0);
            buf
        });
        self.near.submit(initiator::Op::Attach { task: TASK, write, read });
        let op = initiator::Op::SendCommand { task: TASK, command, immediate, unsolicited_end };
        self.near.submit(op);
    }

    /// A READ has come to the target.
    fn read(&mut self, length: u32) {
        self.command(command(TASK, true, length), (None, length as usize), (0, 0));
        let (events, _) = self.exchange();
        assert!(matches!(events[..], [target::Event::Control { .. }]), "{events:?}");
    }

    /// A WRITE has come to the target.
    fn write(&mut self, data: &[u8], immediate: u32, unsolicited_end: u32) -> Vec<target::Event> {
        let length = u32::try_from(data.len()).unwrap();
        let final_ = immediate == unsolicited_end;
        let command = ScsiCommand { final_, ..command(TASK, false, length) };
        self.command(command, (Some(data), 0), (immediate, unsolicited_end));
        self.exchange().0
    }

    fn attach(&mut self, length: usize) {
        let mut buf = self.pool.take(length).unwrap();
        buf.fill(0);
        self.far.submit(target::Op::Attach { task: TASK, buf });
    }
}
