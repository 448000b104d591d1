// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One command and its data, in both directions.

use iscsi::serial::Serial;
use wire::iscsi::CmdSn;
use wire::iscsi::DataIn;
use wire::iscsi::DataOut;
use wire::iscsi::LunField;
use wire::iscsi::R2t;
use wire::iscsi::Residual;
use wire::iscsi::ScsiCommand;
use wire::iscsi::Ttt;

use super::Judgement;
use super::demand;
use super::keys::Keys;
use super::ranges::Ranges;

/// A run of Data-Outs: unsolicited, or what one R2T asked for.
#[derive(Debug)]
struct Burst {
    ttt: Ttt,
    offset: u32,
    length: u32,
    sent: u32,
    data_sn: u32,
    /// What has come, where it may come in any order.
    came: Ranges,
}

impl Burst {
    fn new(ttt: Ttt, offset: u32, length: u32) -> Self {
        Self { ttt, offset, length, sent: 0, data_sn: 0, came: Ranges::default() }
    }
}

/// A command that has no response yet.
#[derive(Debug)]
pub(super) struct Task {
    lun: LunField,
    cmd_sn: CmdSn,
    expected: u32,
    write: bool,
    /// Immediate and unsolicited data, bytes.
    unasked: u32,
    /// The unsolicited burst, until its last PDU.
    unsolicited: Option<Burst>,
    bursts: Vec<Burst>,
    r2t_sn: u32,
    /// Bytes that came by R2T.
    asked: u32,
    data_sn: u32,
    /// Bytes of Data-In, and those of the sequence that is not ended.
    received: u32,
    sequence: u32,
    /// What has come, where it may come in any order.
    came: Ranges,
    /// RDMA Reads whose data has not come.
    open: u32,
    /// PDUs may come twice: only bounds are looked at.
    lenient: bool,
    /// The target was told what is not so.
    pub(super) distrusted: bool,
}

impl Task {
    pub(super) fn begin(pdu: &ScsiCommand, length: u32, keys: &Keys) -> Result<Self, String> {
        demand(length == 0 || pdu.write, || "immediate data of a command that writes none".into())?;
        demand(length == 0 || keys.immediate_data, || "immediate data was not agreed on".into())?;
        demand(length <= keys.first_burst, || "more than FirstBurstLength".into())?;
        demand(length <= pdu.expected_length, || "more than is to be written".into())?;
        let follows = pdu.write && !pdu.final_;
        demand(!follows || !keys.initial_r2t, || "unsolicited data though InitialR2T=Yes".into())?;
        let limit = keys.first_burst.min(pdu.expected_length);
        let left = limit.saturating_sub(length);
        let burst = Burst::new(Ttt::NONE, length, left);
        Ok(Self {
            lun: pdu.lun,
            cmd_sn: pdu.cmd_sn,
            expected: pdu.expected_length,
            write: pdu.write,
            unasked: length,
            unsolicited: follows.then_some(burst),
            bursts: Vec::new(),
            r2t_sn: 0,
            asked: 0,
            data_sn: 0,
            received: 0,
            sequence: 0,
            came: Ranges::default(),
            open: 0,
            lenient: keys.recovers(),
            distrusted: false,
        })
    }

    /// Whether it was sent for the unit before `cmd_sn`.
    pub(super) fn is_older(&self, lun: LunField, cmd_sn: CmdSn) -> bool {
        self.lun == lun && self.cmd_sn.is_before(cmd_sn)
    }

    pub(super) fn data_out(&mut self, pdu: &DataOut, length: u32, keys: &Keys) -> Judgement {
        if self.lenient {
            let end = pdu.offset.saturating_add(length);
            return demand(end <= self.expected, || format!("of {} bytes", self.expected));
        }
        let solicited = pdu.ttt != Ttt::NONE;
        let burst = if solicited {
            self.bursts.iter_mut().find(|burst| burst.ttt == pdu.ttt)
        } else {
            self.unsolicited.as_mut()
        };
        let burst = burst.ok_or("data that nobody asked for")?;
        let (data_sn, at) = (burst.data_sn, burst.offset + burst.sent);
        demand(pdu.data_sn.0 == data_sn, || format!("DataSN is not {data_sn}"))?;
        if keys.in_order[0] {
            demand(pdu.offset == at, || format!("the offset is not {at}"))?;
        } else {
            let (begin, end) = (burst.offset, burst.offset + burst.length);
            burst.came.insert(pdu.offset, length, (begin, end))?;
        }
        burst.data_sn += 1;
        burst.sent = burst.sent.saturating_add(length);
        demand(burst.sent <= burst.length, || format!("more than {} bytes", burst.length))?;
        let complete = burst.sent == burst.length;
        if solicited {
            demand(pdu.final_ == complete, || "F is not where its R2T ends".to_owned())?;
            self.asked += length;
            if complete {
                self.bursts.retain(|burst| burst.ttt != pdu.ttt);
            }
            return Ok(());
        }
        demand(pdu.final_ || !complete, || "F is missing at the end".to_owned())?;
        self.unasked += length;
        if pdu.final_ {
            self.unsolicited = None;
        }
        let limit = keys.first_burst;
        demand(self.unasked <= limit, || format!("FirstBurstLength is {limit}"))
    }

    pub(super) fn r2t(&mut self, pdu: &R2t, keys: &Keys) -> Judgement {
        demand(self.write, || "for a command that writes nothing".to_owned())?;
        let fits = (1..=keys.max_burst).contains(&pdu.desired_length);
        demand(fits, || format!("MaxBurstLength is {}", keys.max_burst))?;
        let inside = pdu.offset.checked_add(pdu.desired_length);
        let inside = inside.is_some_and(|end| end <= self.expected);
        demand(inside, || format!("of {} bytes", self.expected))?;
        if self.lenient {
            return Ok(());
        }
        let next = self.r2t_sn;
        demand(pdu.r2t_sn.0 == next, || format!("R2TSN is not {next}"))?;
        self.r2t_sn += 1;
        let known = self.bursts.iter().any(|burst| burst.ttt == pdu.ttt);
        demand(!known && pdu.ttt != Ttt::NONE, || "its transfer tag is in use".to_owned())?;
        self.bursts.push(Burst::new(pdu.ttt, pdu.offset, pdu.desired_length));
        let open = u32::try_from(self.bursts.len()).unwrap_or(u32::MAX);
        demand(open <= keys.outstanding_r2t, || format!("{open} are outstanding"))
    }

    pub(super) fn data_in(&mut self, pdu: &DataIn, length: u32, keys: &Keys) -> Judgement {
        if self.lenient {
            let end = pdu.offset.saturating_add(length);
            return demand(end <= self.expected, || format!("of {} bytes", self.expected));
        }
        let (next, at) = (self.data_sn, self.received);
        demand(pdu.data_sn.0 == next, || format!("DataSN is not {next}"))?;
        if keys.in_order == [true; 2] {
            demand(length == 0 || pdu.offset == at, || format!("the offset is not {at}"))?;
        } else {
            self.came.insert(pdu.offset, length, (0, self.expected))?;
        }
        self.data_sn += 1;
        self.received = self.received.saturating_add(length);
        self.sequence = self.sequence.saturating_add(length);
        demand(!self.write, || "for a command that writes".to_owned())?;
        demand(self.received <= self.expected, || format!("of {} bytes", self.expected))?;
        let limit = keys.max_burst;
        demand(self.sequence <= limit, || format!("MaxBurstLength is {limit}"))?;
        if pdu.final_ {
            self.sequence = 0;
        }
        Ok(())
    }

    /// The target writes to the memory of the command.
    pub(super) fn written(&mut self, offset: u32, length: u32) -> Judgement {
        demand(!self.write, || "for a command that writes".to_owned())?;
        self.came.insert(offset, length, (0, self.expected))?;
        self.received = self.received.saturating_add(length);
        Ok(())
    }

    /// The target reads from the memory of the command: an R2T and its data.
    pub(super) fn asked(&mut self, length: u32, keys: &Keys) -> Judgement {
        demand(self.write, || "for a command that writes nothing".to_owned())?;
        let fits = (1..=keys.max_burst).contains(&length);
        demand(fits, || format!("MaxBurstLength is {}", keys.max_burst))?;
        self.asked = self.asked.saturating_add(length);
        self.open += 1;
        let open = self.open;
        demand(open <= keys.outstanding_r2t, || format!("{open} are outstanding"))
    }

    /// All data of the oldest of these has come.
    pub(super) fn answered(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// The sum of all data is the expected length, but for the residual.
    pub(super) fn end(self, status: u8, residual: Residual) -> Judgement {
        if status != 0 || self.lenient {
            return Ok(());
        }
        demand(!self.distrusted, || "the target believed a wrong Data-Out".to_owned())?;
        let moved = if self.write { self.unasked + self.asked } else { self.received };
        let expected = match residual {
            Residual::None | Residual::Overflow(_) => self.expected,
            Residual::Underflow(count) => self.expected.saturating_sub(count),
        };
        demand(moved == expected, || format!("{moved} bytes were moved, told are {expected}"))
    }
}
