// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session as a well-behaved initiator has it. Requests are built as values, so that a test can
//! bend any field before it sends them.

pub use wire::scsi::sam::CHECK_CONDITION;
pub use wire::scsi::sam::GOOD;

use std::time::Duration;

use wire::iscsi::*;

use crate::login::LoginPlan;
use crate::raw::Heard;
use crate::raw::PATIENCE;
use crate::raw::Pdu;
use crate::raw::Raw;
use crate::server::BLOCK;

/// Bytes in a block, as a length.
pub const BLOCK_BYTES: usize = BLOCK as usize;

/// A session with one connection in full feature phase.
#[derive(Debug)]
pub struct Initiator {
    /// The connection.
    pub raw: Raw,
    /// Of the next non-immediate command.
    pub cmd_sn: CmdSn,
    /// Of the next response.
    pub exp_stat_sn: StatSn,
    /// What the login gave.
    pub tsih: Tsih,
    /// The keys of all Login Responses.
    pub answers: Vec<(String, String)>,
    next_itt: u32,
}

/// A SCSI Response, or the status in a Data-In.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// SCSI status.
    pub code: u8,
    /// Its residual.
    pub residual: Residual,
    /// The sense data without its length.
    pub sense: Vec<u8>,
    /// Data that came before, by ascending offset.
    pub data: Vec<u8>,
}

impl Initiator {
    /// Logs in.
    #[must_use]
    pub fn login(mut raw: Raw, plan: &LoginPlan) -> Self {
        let (response, pdu) = plan.begin(&mut raw);
        assert_eq!(response.status, 0, "login status {:04x}", response.status);
        assert!(response.transit && response.next == Some(Stage::FullFeature), "{response:?}");
        let answers = pdu.pairs();
        let is_on =
            |name: &str| answers.iter().any(|(key, value)| key == name && value == "CRC32C");
        raw.header_digest = is_on("HeaderDigest");
        raw.data_digest = is_on("DataDigest");
        Self {
            raw,
            cmd_sn: plan.cmd_sn,
            exp_stat_sn: StatSn(response.numbers.stat_sn.0.wrapping_add(1)),
            tsih: response.tsih,
            answers,
            // Unlike those of the other connections of the session.
            next_itt: u32::from(plan.cid.0) << 16,
        }
    }

    /// Goes on with the session of `old` over another connection, which acknowledges for the old
    /// one what that had acknowledged in its last command.
    #[must_use]
    pub fn rejoin(old: &Self, raw: Raw, plan: &LoginPlan) -> Self {
        let plan =
            LoginPlan { tsih: old.tsih, cmd_sn: old.cmd_sn, keys: Vec::new(), ..plan.clone() };
        Self { next_itt: old.next_itt, ..Self::login(raw, &plan) }
    }

    /// The value that the target gave a key in the login.
    #[must_use]
    pub fn answer(&self, key: &str) -> Option<&str> {
        self.answers.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// A task tag that was not used yet.
    pub fn itt(&mut self) -> Itt {
        self.next_itt += 1;
        Itt(self.next_itt)
    }

    /// The CmdSN of the next command, which is thereby used.
    pub fn take_cmd_sn(&mut self) -> CmdSn {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = CmdSn(cmd_sn.0.wrapping_add(1));
        cmd_sn
    }

    /// A command without data.
    pub fn command(&mut self, lun: u8, cdb: &[u8]) -> ScsiCommand {
        let mut bytes = [0; 32];
        let len = if cdb.len() > 16 { 32 } else { 16 };
        bytes.get_mut(..cdb.len()).expect("a short CDB").copy_from_slice(cdb);
        ScsiCommand {
            immediate: false,
            final_: true,
            read: false,
            write: false,
            attribute: Attribute::Simple,
            priority: 0,
            lun: lun_field(lun),
            itt: self.itt(),
            expected_length: 0,
            cmd_sn: self.take_cmd_sn(),
            exp_stat_sn: self.exp_stat_sn,
            cdb: Cdb { bytes, len },
            bidi_read_length: None,
        }
    }

    /// TEST UNIT READY.
    pub fn test_unit_ready(&mut self, lun: u8) -> ScsiCommand {
        self.command(lun, &[0; 6])
    }

    /// READ(10).
    pub fn read_blocks(&mut self, lun: u8, block: u32, count: u16) -> ScsiCommand {
        let command = self.command(lun, &cdb10(0x28, block, count));
        ScsiCommand { read: true, expected_length: u32::from(count) * BLOCK, ..command }
    }

    /// WRITE(10).
    pub fn write_blocks(&mut self, lun: u8, block: u32, count: u16) -> ScsiCommand {
        let command = self.command(lun, &cdb10(0x2a, block, count));
        ScsiCommand { write: true, expected_length: u32::from(count) * BLOCK, ..command }
    }

    /// A ping with its own CmdSN.
    pub fn ping(&mut self) -> NopOut {
        NopOut {
            immediate: false,
            lun: lun_field(0),
            itt: self.itt(),
            ttt: Ttt::NONE,
            cmd_sn: self.take_cmd_sn(),
            exp_stat_sn: self.exp_stat_sn,
        }
    }

    /// An immediate task management request.
    pub fn management(&mut self, function: u8, lun: u8, task: Itt) -> TaskManagementRequest {
        TaskManagementRequest {
            immediate: true,
            function,
            lun: lun_field(lun),
            itt: self.itt(),
            referenced_task: task,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ref_cmd_sn: CmdSn(0),
            exp_data_sn: DataSn(0),
        }
    }

    /// An immediate, final text request that begins an exchange.
    pub fn text(&mut self) -> TextRequest {
        TextRequest {
            immediate: true,
            final_: true,
            continue_: false,
            lun: lun_field(0),
            itt: self.itt(),
            ttt: Ttt::NONE,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        }
    }

    /// An immediate logout request.
    pub fn logout(&mut self, reason: u8) -> LogoutRequest {
        LogoutRequest {
            immediate: true,
            reason,
            itt: self.itt(),
            cid: Cid(1),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        }
    }

    /// A SNACK Request that acknowledges nothing new: of everything, for no task.
    #[must_use]
    pub fn snack(&self, kind: u8, exp_stat_sn: StatSn) -> Snack {
        Snack {
            kind,
            lun: lun_field(0),
            itt: Itt::NONE,
            tag: u32::MAX,
            exp_stat_sn,
            beg_run: 0,
            run_length: 0,
        }
    }

    /// The whole answer to an R2T in one PDU with F.
    #[must_use]
    pub fn data_out(&self, r2t: &R2t) -> DataOut {
        DataOut {
            final_: true,
            lun: r2t.lun,
            itt: r2t.itt,
            ttt: r2t.ttt,
            exp_stat_sn: self.exp_stat_sn,
            data_sn: DataSn(0),
            offset: r2t.offset,
        }
    }

    /// Sends a request.
    pub fn send(&mut self, request: &Request, data: &[u8]) {
        self.raw.send(request, data);
    }

    /// Sends a command without data.
    pub fn start(&mut self, command: &ScsiCommand) {
        self.raw.send(&Request::Command(*command), &[]);
    }

    /// Takes notice of the number of a PDU that came.
    fn count(&mut self, pdu: &Pdu) {
        let (response, stat_sn) = (pdu.response(), StatSn(pdu.word(24)));
        let counts = match &response {
            Response::NopIn(nop) => nop.itt != Itt::NONE,
            Response::DataIn(data) => data.status.is_some(),
            Response::R2t(_) => false,
            _ => true,
        };
        let valid = !matches!(&response, Response::DataIn(data) if data.status.is_none());
        if valid {
            assert_eq!(stat_sn, self.exp_stat_sn, "StatSN of {response:?}");
        }
        if counts {
            self.exp_stat_sn = StatSn(stat_sn.0.wrapping_add(1));
        }
    }

    /// The next PDU, whose StatSN must be the right one.
    pub fn read(&mut self) -> Pdu {
        let pdu = self.raw.read();
        self.count(&pdu);
        pdu
    }

    /// What comes within some time.
    pub fn hear(&mut self, patience: Duration) -> Heard {
        let heard = self.raw.hear(patience);
        if let Heard::Pdu(pdu) = &heard {
            self.count(pdu);
        }
        heard
    }

    /// The next PDU, which must be an R2T.
    pub fn read_r2t(&mut self) -> R2t {
        match self.read().response() {
            Response::R2t(r2t) => r2t,
            other => panic!("an R2T was due: {other:?}"),
        }
    }

    /// The next PDU, which must be a Reject for `reason`.
    pub fn expect_reject(&mut self, reason: u8) -> Pdu {
        let pdu = self.read();
        match pdu.response() {
            Response::Reject(reject) if reject.reason == reason => pdu,
            other => panic!("a Reject for {reason:#04x} was due: {other:x?}"),
        }
    }

    /// The next PDU, which must be a Task Management Function Response; gives its code.
    pub fn read_management(&mut self) -> u8 {
        match self.read().response() {
            Response::TaskManagement(answer) => answer.response,
            other => panic!("a Task Management Function Response was due: {other:?}"),
        }
    }

    /// The rest of a command: data and status, and nothing of another one.
    pub fn finish(&mut self, itt: Itt) -> Status {
        let mut data = Vec::new();
        loop {
            let pdu = self.read();
            match pdu.response() {
                Response::DataIn(part) if part.itt == itt => {
                    assert_eq!(part.offset as usize, data.len(), "data in order");
                    data.extend_from_slice(&pdu.data);
                    if let Some(CollapsedStatus { status, residual }) = part.status {
                        return Status { code: status, residual, sense: Vec::new(), data };
                    }
                }
                Response::Scsi(answer) if answer.itt == itt => {
                    assert_eq!(answer.response, 0, "{answer:?}");
                    let sense = pdu.data.get(2..).unwrap_or_default().to_vec();
                    return Status { code: answer.status, residual: answer.residual, sense, data };
                }
                other => panic!("data or status of {itt:?} was due: {other:?}"),
            }
        }
    }

    /// Sends a command without data and waits for its end.
    pub fn run(&mut self, command: &ScsiCommand) -> Status {
        self.start(command);
        self.finish(command.itt)
    }

    /// Takes all unit attentions of a unit, so that the next command runs.
    pub fn settle(&mut self, lun: u8) {
        for _ in 0..8 {
            let command = self.test_unit_ready(lun);
            if self.run(&command).code == GOOD {
                return;
            }
        }
        panic!("unit {lun} does not become ready");
    }

    /// Pings; panics if anything but the answer comes. What was sent before is then dealt with.
    pub fn expect_quiet(&mut self) {
        let mut ping = self.ping();
        // Immediate, so that a closed window does not matter.
        ping.immediate = true;
        self.cmd_sn = ping.cmd_sn;
        self.send(&Request::NopOut(ping), b"quiet");
        let pdu = self.read();
        match pdu.response() {
            Response::NopIn(answer) if answer.itt == ping.itt => assert_eq!(pdu.data, b"quiet"),
            other => panic!("nothing but the answer to a ping was due: {other:?}"),
        }
    }

    /// Panics unless the connection is closed now, without another PDU.
    pub fn expect_closed(&mut self) {
        self.raw.expect_closed();
    }

    /// Panics unless the target says that it drops the connection, and then closes it.
    pub fn expect_dropped(&mut self) -> AsyncMessage {
        match self.read().response() {
            Response::Async(message) if matches!(message.event, 2 | 3) => {
                self.raw.expect_closed();
                message
            }
            other => panic!("news of the end was due: {other:?}"),
        }
    }

    /// Panics unless a close-session logout succeeds and the connection closes.
    pub fn leave(mut self) {
        let request = self.logout(0);
        self.send(&Request::Logout(request), &[]);
        match self.read().response() {
            Response::Logout(answer) => assert_eq!(answer.response, 0, "{answer:?}"),
            other => panic!("a Logout Response was due: {other:?}"),
        }
        let heard = self.raw.hear(PATIENCE);
        assert_eq!(heard, Heard::Closed);
    }
}

impl Status {
    /// Sense key, additional sense code and qualifier of fixed-format sense.
    #[must_use]
    pub fn sense_code(&self) -> (u8, u8, u8) {
        let at = |index: usize| self.sense.get(index).copied().unwrap_or_default();
        (at(2) & 0x0f, at(12), at(13))
    }
}

/// The LUN field of a small number: peripheral device addressing (SAM-5 §4.7).
#[must_use]
pub fn lun_field(lun: u8) -> LunField {
    LunField([0, lun, 0, 0, 0, 0, 0, 0])
}

/// A CDB of 10 bytes with an address and a count.
#[must_use]
pub fn cdb10(opcode: u8, block: u32, count: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&block.to_be_bytes());
    cdb[7..9].copy_from_slice(&count.to_be_bytes());
    cdb
}

/// Bytes in which every block differs from the others.
#[must_use]
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0u8..251).cycle().map(|byte| byte.wrapping_add(seed)).take(length).collect()
}
