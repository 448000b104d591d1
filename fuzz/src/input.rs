// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes PDUs and commands of fuzzer's bytes: few bytes give much, and every bit can still be set.

use iscsi::datamover::Capabilities;
use iscsi::datamover::Keys;
use iscsi::datamover::Markers;
use iscsi::target_role::LoggedIn;
use iscsi::target_role::Parameters;
use iscsi::target_role::TaskReporting;
use wire::iscsi::Attribute;
use wire::iscsi::Cdb;
use wire::iscsi::Cid;
use wire::iscsi::CmdSn;
use wire::iscsi::Isid;
use wire::iscsi::LunField;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;

/// Basic header segment, bytes.
const BHS: usize = 48;
pub(crate) const LOGIN: u8 = 0x43;
const COMMAND: u8 = 0x01;
/// Opcodes that an initiator uses.
const OPCODES: [u8; 8] = [0, 1, 2, 4, 5, 6, 0x10, 3];

/// The steps of an authentication; the response is the right one.
pub(crate) const CHAP: [&[u8]; 6] = [
    b"AuthMethod=CHAP,None\0",
    b"CHAP_A=7,5\0",
    b"CHAP_N=hostuser\0",
    b"CHAP_R=0xb2646b71529fe738d17b66d5baad4a2aafe06150d842bb92ff92ff56a743f83e\0",
    b"CHAP_I=42\0",
    b"CHAP_C=0b8PHy8/T19vf4+fr7/P3+/w==\0",
];

/// What is left of the fuzzer's bytes.
#[derive(Debug)]
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn peek(&self) -> u8 {
        self.0.first().copied().unwrap_or(0)
    }

    /// Zero when nothing is left.
    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// At most `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        head
    }

    fn word(&mut self) -> u32 {
        self.take(4).iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
    }

    /// A Login Request with text, mostly; noise where the first byte says so.
    pub(crate) fn login_pdu(&mut self) -> Vec<u8> {
        let kind = self.byte();
        if kind >= 0xF0 {
            return self.take(usize::from(kind & 15) * 16).to_vec();
        }
        let mut bhs = empty_login();
        bhs[1] = self.byte();
        let mut text = Vec::new();
        if kind & 1 != 0 {
            text.extend_from_slice(b"InitiatorName=iqn.2026-01.test.lunwire:fuzz\0");
        }
        if kind & 2 != 0 {
            text.extend_from_slice(b"TargetName=iqn.2026-01.test.lunwire:disk\0");
        }
        if kind & 4 != 0 {
            text.extend_from_slice(b"SessionType=Discovery\0");
        }
        if kind & 16 != 0 {
            let steps = self.byte();
            for (bit, step) in CHAP.iter().enumerate() {
                if steps >> bit & 1 != 0 {
                    text.extend_from_slice(step);
                }
            }
        }
        let length = usize::from(self.byte());
        text.extend_from_slice(self.take(length));
        if kind & 8 != 0 {
            bhs[usize::from(self.byte()) % BHS] ^= self.byte();
        }
        pdu(bhs, &text)
    }

    /// Values that a negotiation can give, and the keys of the mover that belong to them.
    pub(crate) fn parameters(&mut self) -> (LoggedIn, Keys) {
        let flags = self.byte();
        let burst = 512 << (self.byte() % 12);
        let first = (512 << (self.byte() % 12)).min(burst);
        let parameters = Parameters {
            header_digest: false,
            data_digest: false,
            max_send_data_segment_length: 512 << (self.byte() % 12),
            max_recv_data_segment_length: 65536,
            max_burst_length: burst,
            first_burst_length: first,
            initial_r2t: flags & 1 != 0,
            immediate_data: flags & 2 != 0,
            max_outstanding_r2t: u16::from(flags >> 4) + 1,
            time2wait: 2,
            time2retain: 0,
            max_connections: 1,
            error_recovery_level: 0,
            data_pdu_in_order: flags & 8 == 0,
            data_sequence_in_order: flags & 8 == 0,
            protocol_level: 1,
            markers: Markers::default(),
            rdma: None,
            task_reporting: TaskReporting::Rfc3720,
        };
        let keys = Keys {
            header_digest: false,
            data_digest: false,
            max_send_data_segment_length: parameters.max_send_data_segment_length,
            max_recv_data_segment_length: parameters.max_recv_data_segment_length,
            first_burst_length: if parameters.immediate_data { first } else { 0 },
            data_pdu_in_order: parameters.data_pdu_in_order,
            markers: parameters.markers,
            solicited_only: false,
            unexpected_max: 0,
            own_unexpected_max: 0,
            hello: false,
        };
        let logged_in = LoggedIn {
            initiator: "iqn.2026-01.test.lunwire:fuzz".to_owned(),
            initiator_alias: None,
            target: Some("iqn.2026-01.test.lunwire:disk".to_owned()),
            discovery: flags & 4 != 0,
            proved: false,
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
            cid: Cid(0),
            tsih: Tsih(1),
            exp_cmd_sn: CmdSn(1),
            stat_sn: StatSn(1),
            exp_stat_sn: StatSn(1),
            parameters,
            capabilities: Capabilities::STREAM,
        };
        (logged_in, keys)
    }

    /// A PDU of full feature phase. `cmd_sn`: that of the next command.
    pub(crate) fn pdu(&mut self, cmd_sn: &mut u32) -> Vec<u8> {
        let kind = self.byte();
        let opcode = OPCODES[usize::from(kind & 7)];
        let mut bhs = [0; BHS];
        bhs[0] = opcode | kind & 0x40;
        bhs[1] = self.byte();
        if opcode != 3 {
            bhs[1] |= 0x80;
        }
        // Few tags, so that PDUs meet.
        bhs[19] = self.byte() & 7;
        bhs[20..24].copy_from_slice(&u32::MAX.to_be_bytes());
        let number =
            if kind & 0x20 == 0 { *cmd_sn } else { cmd_sn.wrapping_add(self.word() & 255) };
        bhs[24..28].copy_from_slice(&number.to_be_bytes());
        if kind & 0x60 == 0 && opcode != 5 && opcode != 0x10 {
            *cmd_sn = cmd_sn.wrapping_add(1);
        }
        let mut length = usize::from(self.byte()) * usize::from(self.byte() & 15);
        match opcode {
            COMMAND => {
                // Expected length: about what the data is.
                let expected = u32::from(self.byte()) << (self.byte() & 11);
                bhs[20..24].copy_from_slice(&expected.to_be_bytes());
                let cdb = self.take(16);
                bhs[32..32 + cdb.len()].copy_from_slice(cdb);
            }
            5 => {
                bhs[20..24].copy_from_slice(&u32::from(self.byte()).to_be_bytes());
                bhs[39] = self.byte() & 3;
                bhs[40..44].copy_from_slice(&(u32::from(self.byte()) * 512).to_be_bytes());
                length = length.min(8192);
            }
            2 => bhs[20..24].copy_from_slice(&u32::from(self.byte() & 7).to_be_bytes()),
            _ => {}
        }
        if kind & 0x10 != 0 {
            bhs[usize::from(self.byte()) % BHS] ^= self.byte();
        }
        let mut data = self.take(length).to_vec();
        data.resize(length, 0x5A);
        pdu(bhs, &data)
    }

    pub(crate) fn scsi_request(&mut self) -> scsi::Request {
        let (out, in_) = (self.word(), self.word());
        let mut bytes = [0; 32];
        let cdb = self.take(16);
        bytes[..cdb.len()].copy_from_slice(cdb);
        let mut lun = [0; 8];
        lun[usize::from(self.peek() & 7)] = self.byte() >> 6;
        scsi::Request {
            lun: LunField(lun),
            cdb: Cdb { bytes, len: 16 },
            attribute: Attribute::Simple,
            expected_out: out & 0xF_FFFF,
            expected_in: in_ & 0xF_FFFF,
            unaware: false,
        }
    }
}

/// The header of a Login Request without text.
pub(crate) fn empty_login() -> [u8; BHS] {
    let mut bhs = [0; BHS];
    bhs[0] = LOGIN;
    bhs[1] = 0x87;
    bhs[8] = 0x80;
    bhs
}

pub(crate) fn pdu(mut bhs: [u8; BHS], data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("the fuzzer's data is small").to_be_bytes();
    bhs[5..8].copy_from_slice(&length[1..]);
    let mut bytes = bhs.to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
