// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PDUs as steps of a fuzzer: what an initiator would send that knows what it was told, with
//! whatever is to be wrong with it.

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use iscsi::target_role::LoggedIn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Numbers;
use wire::iscsi::R2t;
use wire::iscsi::R2tSn;
use wire::iscsi::Response;
use wire::iscsi::Tsih;
use wire::iscsi::Ttt;
use wire::iscsi::pad4;

use crate::input::CHAP;
use crate::input::LOGIN;
use crate::input::pdu;

/// What the initiator side has learnt.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    r2ts: VecDeque<R2t>,
    cmd_sn: u32,
    exp_stat_sn: u32,
    last_ttt: u32,
    tsih: u16,
}

impl Knowledge {
    pub(crate) fn next_tsih(&mut self) -> u16 {
        self.tsih = self.tsih.checked_add(1).unwrap_or(1);
        self.tsih
    }

    pub(crate) fn tsih(&self) -> Tsih {
        Tsih(self.tsih)
    }

    pub(crate) fn begin(&mut self, logged_in: &LoggedIn) {
        self.cmd_sn = logged_in.exp_cmd_sn.0;
        self.r2ts.clear();
    }

    /// Remembers R2Ts and numbers of what was sent without digests and markers; of the rest,
    /// nothing.
    pub(crate) fn hear(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((header, tail)) = rest.split_first_chunk::<BHS>() {
            let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
            match Response::parse(header) {
                Ok(Response::R2t(r2t)) => self.asked(r2t),
                Ok(response) => self.told(&response),
                Err(_) => return,
            }
            rest = tail.get(pad4(length)..).unwrap_or_default();
        }
    }

    fn asked(&mut self, r2t: R2t) {
        self.window(r2t.numbers);
        self.r2ts.push_back(r2t);
        self.r2ts.truncate(16);
    }

    fn window(&mut self, numbers: Numbers) {
        self.exp_stat_sn = numbers.stat_sn.0;
    }

    fn told(&mut self, response: &Response) {
        match response {
            Response::NopIn(nop) => self.last_ttt = nop.ttt.0,
            Response::Text(text) => self.last_ttt = text.ttt.0,
            Response::Scsi(answer) => self.exp_stat_sn = answer.numbers.stat_sn.0.wrapping_add(1),
            _ => {}
        }
    }
}

/// A Login Request.
#[derive(Arbitrary, Debug)]
pub(crate) struct LoginStep {
    /// Bits: names, target, discovery, CHAP and its steps, keys.
    text: u16,
    keys: [u8; 3],
    flags: Stages,
    joins: bool,
    cid: u8,
    spoilt: Spoilt,
}

/// CSG, NSG, T and C of a Login Request.
#[derive(Arbitrary, Debug)]
enum Stages {
    Security,
    SecurityToOperational,
    SecurityToFull,
    Operational,
    OperationalToFull,
    /// Most of all: nearly every login shall come through.
    AtOnce,
    Other(u8),
}

/// A bit of the header that is not as it should be.
#[derive(Arbitrary, Debug)]
pub(crate) enum Spoilt {
    No,
    NotAtAll,
    NotAgain,
    At(u8, u8),
}

/// A PDU of full feature phase.
#[derive(Arbitrary, Debug)]
pub(crate) struct PduStep {
    kind: Kind,
    immediate: bool,
    itt: u8,
    number: Number,
    /// The last StatSN is acknowledged.
    acknowledges: bool,
    spoilt: Spoilt,
}

/// CmdSN in terms of the next one.
#[derive(Arbitrary, Debug)]
enum Number {
    Next,
    InTurn,
    Ahead(u8),
    Behind(u8),
}

#[derive(Arbitrary, Debug)]
enum Kind {
    Read {
        block: u8,
        blocks: u8,
    },
    Write {
        block: u8,
        blocks: u8,
        immediate: u8,
        more: bool,
    },
    Command {
        flags: u8,
        expected: u16,
        cdb: [u8; 16],
        data: u8,
    },
    /// The answer to an R2T that was heard, or a part of it: from there, so long, F.
    DataOut {
        which: u8,
        from: u8,
        length: u8,
        data_sn: u8,
        last: bool,
    },
    /// The whole answer to an R2T.
    Answer {
        which: u8,
        backwards: bool,
    },
    Unsolicited {
        offset: u8,
        length: u8,
        data_sn: u8,
        last: bool,
    },
    Nop {
        answers: bool,
        data: u8,
    },
    Management {
        function: u8,
        task: u8,
        lun: u8,
    },
    Text {
        flags: u8,
        continues: bool,
        what: u8,
    },
    Logout {
        reason: u8,
        cid: u8,
    },
    Snack {
        kind: u8,
        tag: u8,
        begin: u8,
        run: u8,
    },
    Login,
}

const BLOCK: u32 = 512;
const BHS: usize = 48;

impl LoginStep {
    pub(crate) fn emit(&self, known: &Knowledge) -> Vec<u8> {
        let mut text: Vec<u8> = Vec::new();
        let has = |bit: u16| self.text >> bit & 1 == 0;
        if has(0) {
            text.extend_from_slice(b"InitiatorName=iqn.2026-01.test.lunwire:fuzz\0");
        }
        if has(1) {
            text.extend_from_slice(b"TargetName=iqn.2026-01.test.lunwire:disk\0");
        }
        if !has(2) {
            text.extend_from_slice(b"SessionType=Discovery\0");
        }
        for (bit, step) in (3..).zip(CHAP) {
            if !has(bit) {
                text.extend_from_slice(step);
            }
        }
        for key in self.keys {
            if let Some(pair) = KEYS.get(usize::from(key)) {
                text.extend_from_slice(pair.as_bytes());
                text.push(0);
            }
        }
        let mut bhs = [0; BHS];
        bhs[0] = LOGIN;
        bhs[1] = match self.flags {
            Stages::Security => 0x00,
            Stages::SecurityToOperational => 0x81,
            Stages::SecurityToFull => 0x83,
            Stages::Operational => 0x04,
            Stages::OperationalToFull | Stages::AtOnce => 0x87,
            Stages::Other(flags) => flags,
        };
        bhs[8..14].copy_from_slice(&[0x80, 0, 0, 0, 0, 1]);
        if self.joins {
            bhs[14..16].copy_from_slice(&known.tsih.to_be_bytes());
        }
        bhs[21] = self.cid & 3;
        bhs[27] = 1;
        self.spoilt.spoil(&mut bhs);
        pdu(bhs, &text)
    }
}

/// Keys that change what a session does.
const KEYS: [&str; 24] = [
    "InitialR2T=No",
    "InitialR2T=Yes",
    "ImmediateData=No",
    "MaxConnections=4",
    "MaxBurstLength=1024",
    "MaxBurstLength=4096",
    "FirstBurstLength=512",
    "FirstBurstLength=2048",
    "MaxOutstandingR2T=4",
    "MaxOutstandingR2T=65535",
    "DataPDUInOrder=No",
    "DataSequenceInOrder=No",
    "MaxRecvDataSegmentLength=512",
    "MaxRecvDataSegmentLength=65536",
    "DefaultTime2Retain=20",
    "DefaultTime2Wait=0",
    "ErrorRecoveryLevel=1",
    "ErrorRecoveryLevel=2",
    "HeaderDigest=CRC32C",
    "DataDigest=CRC32C,None",
    "TaskReporting=FastAbort,ResponseFence,RFC3720",
    "iSCSIProtocolLevel=2",
    "OFMarker=Yes",
    "IFMarker=Yes",
];

impl Spoilt {
    fn spoil(&self, bhs: &mut [u8; BHS]) {
        if let Self::At(place, value) = self {
            bhs[usize::from(*place) % BHS] ^= *value;
        }
    }
}

impl PduStep {
    /// The bytes, of one PDU or of several.
    pub(crate) fn emit(&self, known: &mut Knowledge) -> Vec<u8> {
        let mut bhs = [0; BHS];
        bhs[19] = self.itt & 7;
        put(&mut bhs, 20, u32::MAX);
        let number = match self.number {
            Number::Next | Number::InTurn => known.cmd_sn,
            Number::Ahead(by) => known.cmd_sn.wrapping_add(by.into()),
            Number::Behind(by) => known.cmd_sn.wrapping_sub(by.into()),
        };
        put(&mut bhs, 24, number);
        let acknowledged = if self.acknowledges { known.exp_stat_sn } else { 1 };
        put(&mut bhs, 28, acknowledged);
        let data = match &self.kind {
            Kind::Answer { which, backwards } => return self.answer(known, *which, *backwards),
            kind => kind.fill(&mut bhs, known),
        };
        let numbered = !matches!(bhs[0], 5 | 0x10);
        if numbered && self.immediate {
            bhs[0] |= 0x40;
        } else if numbered && matches!(self.number, Number::Next | Number::InTurn) {
            known.cmd_sn = known.cmd_sn.wrapping_add(1);
        }
        self.spoilt.spoil(&mut bhs);
        pdu(bhs, &data)
    }

    /// All of an R2T in PDUs of a block.
    fn answer(&self, known: &mut Knowledge, which: u8, backwards: bool) -> Vec<u8> {
        if known.r2ts.is_empty() {
            return Vec::new();
        }
        let which = usize::from(which) % known.r2ts.len();
        let Some(r2t) = known.r2ts.remove(which) else { return Vec::new() };
        let pieces = r2t.desired_length.div_ceil(BLOCK).clamp(1, 64);
        let mut bytes = Vec::new();
        for sn in 0..pieces {
            let place = if backwards { pieces - 1 - sn } else { sn };
            let from = place * BLOCK;
            let last = place + 1 == pieces;
            let end = if last { r2t.desired_length } else { from + BLOCK };
            let mut bhs = data_out(&r2t, sn, from);
            bhs[1] = if sn + 1 == pieces { 0x80 } else { 0 };
            if sn == 0 {
                self.spoilt.spoil(&mut bhs);
            }
            let length = usize::try_from(end.saturating_sub(from)).expect("64-bit").min(65536);
            bytes.extend(pdu(bhs, &vec![0xa5; length]));
        }
        bytes
    }
}

/// What a Data-Out answers that nobody asked for.
fn nothing_asked() -> R2t {
    R2t {
        lun: LunField::default(),
        itt: Itt(1),
        ttt: Ttt(7),
        numbers: Numbers::default(),
        r2t_sn: R2tSn(0),
        offset: 0,
        desired_length: BLOCK,
    }
}

fn data_out(r2t: &R2t, data_sn: u32, from: u32) -> [u8; BHS] {
    let mut bhs = [0; BHS];
    bhs[0] = 5;
    bhs[8..16].copy_from_slice(&r2t.lun.0);
    put(&mut bhs, 16, r2t.itt.0);
    put(&mut bhs, 20, r2t.ttt.0);
    put(&mut bhs, 36, data_sn);
    put(&mut bhs, 40, r2t.offset.wrapping_add(from));
    bhs
}

fn put(bhs: &mut [u8; BHS], at: usize, value: u32) {
    bhs[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

impl Kind {
    /// Fills the header; gives the data.
    fn fill(&self, bhs: &mut [u8; BHS], known: &Knowledge) -> Vec<u8> {
        match *self {
            Self::Read { block, blocks } => {
                bhs[..2].copy_from_slice(&[1, 0xc1]);
                put(bhs, 20, u32::from(blocks) * BLOCK);
                bhs[32] = 0x28;
                bhs[37] = block;
                bhs[40] = blocks;
                Vec::new()
            }
            Self::Write { block, blocks, immediate, more } => {
                bhs[..2].copy_from_slice(&[1, if more { 0x21 } else { 0xa1 }]);
                let expected = u32::from(blocks) * BLOCK;
                put(bhs, 20, expected);
                bhs[32] = 0x2a;
                bhs[37] = block;
                bhs[40] = blocks;
                vec![0x5a; usize::from(immediate) * 128]
            }
            Self::Command { flags, expected, cdb, data } => {
                bhs[..2].copy_from_slice(&[1, flags]);
                put(bhs, 20, expected.into());
                bhs[32..48].copy_from_slice(&cdb);
                vec![0x5a; data.into()]
            }
            Self::DataOut { which, from, length, data_sn, last } => {
                let fallback = nothing_asked();
                let which = usize::from(which) % known.r2ts.len().max(1);
                let r2t = known.r2ts.get(which).unwrap_or(&fallback);
                *bhs = data_out(r2t, (data_sn & 7).into(), u32::from(from) * 64);
                bhs[1] = if last { 0x80 } else { 0 };
                vec![0x5a; usize::from(length) * 64]
            }
            Self::Unsolicited { offset, length, data_sn, last } => {
                bhs[..2].copy_from_slice(&[5, if last { 0x80 } else { 0 }]);
                put(bhs, 24, 0);
                put(bhs, 36, (data_sn & 7).into());
                put(bhs, 40, u32::from(offset) * 64);
                vec![0x5a; usize::from(length) * 64]
            }
            Self::Nop { answers, data } => {
                bhs[1] = 0x80;
                if answers {
                    put(bhs, 16, u32::MAX);
                    put(bhs, 20, known.last_ttt);
                }
                vec![b'p'; data.into()]
            }
            Self::Management { function, task, lun } => {
                bhs[..2].copy_from_slice(&[2, 0x80 | function & 15]);
                bhs[9] = lun & 1;
                put(bhs, 20, (task & 7).into());
                put(bhs, 32, known.cmd_sn.wrapping_sub(u32::from(task >> 3)));
                Vec::new()
            }
            Self::Text { flags, continues, what } => {
                bhs[..2].copy_from_slice(&[4, flags]);
                if continues {
                    put(bhs, 20, known.last_ttt);
                }
                let texts = [
                    &b"SendTargets=All\0"[..],
                    b"SendTargets=\0",
                    b"MaxRecvDataSegmentLength=512\0",
                    b"SendTar",
                    b"gets=All\0",
                    b"",
                ];
                texts.get(usize::from(what) % 8).copied().unwrap_or_default().to_vec()
            }
            Self::Logout { reason, cid } => {
                bhs[..2].copy_from_slice(&[6, 0x80 | reason & 3]);
                put(bhs, 20, u32::from(cid & 3) << 16);
                Vec::new()
            }
            Self::Snack { kind, tag, begin, run } => {
                bhs[..2].copy_from_slice(&[0x10, 0x80 | kind & 15]);
                put(bhs, 20, if tag & 1 == 0 { u32::MAX } else { known.last_ttt });
                put(bhs, 24, 0);
                put(bhs, 40, begin.into());
                put(bhs, 44, run.into());
                Vec::new()
            }
            Self::Answer { .. } | Self::Login => {
                bhs[..2].copy_from_slice(&[LOGIN, 0x87]);
                Vec::new()
            }
        }
    }
}
