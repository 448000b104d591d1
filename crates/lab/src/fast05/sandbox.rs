// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initiator's fast path without an engine: `iscsi` and `mover` between bytes that have
//! arrived and buffers of commands.
//!
//! As in the study the state of the commands is made first, and the bytes that a target would send
//! lie ready as TCP would have left them. Then caches are purged, the headers are brought back, as
//! TCP has just looked at them, and the clock starts.

use std::fmt::Debug;

use buf::{Buf, Pool, SgList, Slice};
use clock::Instant;
use crc::crc32c;
use iscsi::datamover::Markers;
use iscsi::initiator::datamover::{Op, TaskId, itt};
use iscsi::initiator::{
    Authenticated, Command, Indication, LoggedIn, Outcome, Output, Parameters, Session, Settings,
};
use iscsi::target::TaskReporting;
use mover::tcp::initiator::Tcp;
use wire::iscsi::{
    Attribute, Cdb, Cid, CmdSn, CollapsedStatus, DataIn, DataSn, LunField, Numbers, R2t, R2tSn,
    Residual, Response, ScsiResponse, StatSn, Tsih, Ttt,
};

use super::theirs::{BURST, COMMANDS, CONNECTIONS, SEGMENT};
use crate::Error;
use crate::measure::{Meter, real, touch};

/// Time stands still: no timer of the session runs off.
const NOW: Instant = Instant(1_000_000_000);

/// Commands that a target takes beyond those that it has.
const WINDOW: u32 = 128;

/// Bytes of header, digests and padding of a PDU at most.
const AROUND_MAX: usize = 64;

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// What a run is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) direction: Direction,
    /// Data PDUs of a command.
    pub(crate) pdus: u32,
    /// Bytes of each.
    pub(crate) segment: u32,
    /// Whether the caches are purged before.
    pub(crate) cold: bool,
}

/// Eight connections and what they share.
#[derive(Debug)]
pub(crate) struct Sandbox {
    lanes: Vec<Lane>,
    pool: Pool,
    digests: bool,
    list: SgList,
}

/// A connection. Our initiator has one in a session.
#[derive(Debug)]
struct Lane {
    session: Session,
    tcp: Tcp,
    stat_sn: StatSn,
    exp_cmd_sn: CmdSn,
}

/// A command whose bytes lie ready.
#[derive(Debug)]
struct Ready {
    lane: usize,
    task: TaskId,
    /// What the target sends: Data-Ins, or an R2T.
    bytes: Buf,
    /// Where its PDUs begin.
    headers: Vec<usize>,
}

impl Sandbox {
    pub(crate) fn new(digests: bool) -> Result<Self, Error> {
        let bytes = COMMANDS * 2 * (BURST as usize);
        let pool = Pool::new(bytes).map_err(|_| Error::Memory(bytes))?;
        let lanes = (0..CONNECTIONS).map(|cid| Lane::new(digests, cid)).collect();
        Ok(Self { lanes, pool, digests, list: SgList::new() })
    }

    /// Cycles for a data PDU: the mean over all of 40 commands.
    pub(crate) fn run(&mut self, load: Load, meter: &Meter) -> Result<f64, Error> {
        let ready: Vec<Ready> = (0..COMMANDS)
            .map(|at| self.prepare(at % CONNECTIONS, load))
            .collect::<Result<_, _>>()?;
        if load.cold {
            meter.evict();
            for one in &ready {
                buf::purge(&one.bytes);
            }
        }
        for one in &ready {
            for header in &one.headers {
                let end = one.bytes.len().min(header + AROUND_MAX);
                touch(one.bytes.get(*header..end).unwrap_or_default());
            }
        }
        let mut cycles = 0;
        for one in &ready {
            let (taken, result) = match load.direction {
                Direction::Read => meter.time(|| self.receive(one)),
                Direction::Write => meter.time(|| self.send(one)),
            };
            result?;
            cycles += taken;
        }
        if load.direction == Direction::Write {
            ready.iter().try_for_each(|one| self.answer(one))?;
        }
        let pdus = u64::from(load.pdus) * COMMANDS as u64;
        Ok(real(cycles) / real(pdus))
    }

    /// A command on its way, and what the target sends for it.
    fn prepare(&mut self, lane: usize, load: Load) -> Result<Ready, Error> {
        let length = load.pdus * load.segment;
        let data = self.take(length as usize)?;
        if load.cold {
            buf::purge(&data);
        }
        let room = load.pdus as usize * (load.segment as usize + AROUND_MAX) + AROUND_MAX;
        let mut bytes = self.take(room)?;
        let digests = self.digests;
        let list = &mut self.list;
        let lane_of = lane;
        let lane = self.lanes.get_mut(lane).ok_or_else(|| broken("no such connection"))?;
        let read = load.direction == Direction::Read;
        let command = Command {
            lun: LunField::default(),
            cdb: Cdb { bytes: [0; 32], len: 16 },
            attribute: Attribute::Simple,
            data_out: if read { 0 } else { length },
            data_in: if read { length } else { 0 },
        };
        let task = lane.session.command(command, NOW).map_err(broken)?;
        let (write, read) = if read { (None, Some(data)) } else { (Some(data.freeze()), None) };
        lane.attach(task, write, read);
        lane.drain()?;
        while lane.transmit(list) {}
        let mut headers = Vec::new();
        let mut at = 0;
        match load.direction {
            Direction::Read => {
                for pdu in 0..load.pdus {
                    headers.push(at);
                    let response = lane.data_in(task, pdu, load);
                    at = put(&mut bytes, at, &response, load.segment as usize, digests)?;
                }
            }
            Direction::Write => {
                headers.push(at);
                at = put(&mut bytes, at, &lane.r2t(task, length), 0, digests)?;
            }
        }
        bytes.truncate(at);
        Ok(Ready { lane: lane_of, task, bytes, headers })
    }

    fn take(&self, len: usize) -> Result<Buf, Error> {
        self.pool.take(len).ok_or(Error::Memory(len))
    }

    fn lane(&mut self, ready: &Ready) -> Result<(&mut Lane, &mut SgList), Error> {
        let lane = self.lanes.get_mut(ready.lane).ok_or_else(|| broken("no such connection"))?;
        Ok((lane, &mut self.list))
    }

    /// The fast path of a read: from bytes to the end of the command.
    fn receive(&mut self, ready: &Ready) -> Result<(), Error> {
        let (lane, _) = self.lane(ready)?;
        if lane.feed(&ready.bytes)? != Some(ready.task) {
            return Err(broken("a read did not end with its last Data-In"));
        }
        Ok(())
    }

    /// The fast path of a write: from the R2T to gather lists of all Data-Outs.
    fn send(&mut self, ready: &Ready) -> Result<(), Error> {
        let (lane, list) = self.lane(ready)?;
        lane.feed(&ready.bytes)?;
        let mut any = false;
        while lane.transmit(list) {
            any = true;
        }
        if any { Ok(()) } else { Err(broken("an R2T was not answered")) }
    }

    /// The status of a write, so that it ends.
    fn answer(&mut self, ready: &Ready) -> Result<(), Error> {
        let digests = self.digests;
        let mut bytes = self.take(AROUND_MAX)?;
        let (lane, _) = self.lane(ready)?;
        let response = lane.status(ready.task);
        let len = put(&mut bytes, 0, &response, 0, digests)?;
        bytes.truncate(len);
        if lane.feed(&bytes)? != Some(ready.task) {
            return Err(broken("a write did not end with its status"));
        }
        Ok(())
    }
}

impl Lane {
    fn new(digests: bool, cid: usize) -> Self {
        let login = LoggedIn {
            tsih: Tsih(1),
            cid: Cid(u16::try_from(cid).unwrap_or(0)),
            discovery: false,
            target_alias: None,
            portal_group_tag: None,
            authentication: Authenticated::Nobody,
            cmd_sn: CmdSn(1),
            exp_cmd_sn: CmdSn(1),
            max_cmd_sn: CmdSn(WINDOW),
            exp_stat_sn: StatSn(1),
            parameters: parameters(digests),
        };
        let mut tcp = Tcp::new();
        tcp.submit(Op::NoticeKeys(login.keys()));
        let session = Session::new(login, &Settings::default(), NOW);
        Self { session, tcp, stat_sn: StatSn(1), exp_cmd_sn: CmdSn(1) }
    }

    fn attach(&mut self, task: TaskId, write: Option<Slice>, read: Option<Buf>) {
        self.tcp.attach(task, write, read);
    }

    fn transmit(&mut self, list: &mut SgList) -> bool {
        let any = self.tcp.poll_transmit(list, self.session.exp_stat_sn());
        if any {
            self.tcp.handle_sent();
        }
        any
    }

    /// Gives the bytes to the mover and what it tells to the session; the task that ended.
    fn feed(&mut self, mut bytes: &[u8]) -> Result<Option<TaskId>, Error> {
        let mut ended = None;
        while !bytes.is_empty() {
            let (taken, event) = self.tcp.feed(bytes);
            bytes = bytes.get(taken..).unwrap_or_default();
            if let Some(event) = event {
                self.session.handle_event(event, self.tcp.control_data(), NOW);
                ended = self.drain()?.or(ended);
            }
        }
        Ok(ended)
    }

    /// Carries out what the session wants, as the initiator's pump does.
    fn drain(&mut self) -> Result<Option<TaskId>, Error> {
        let mut last = None;
        let mut kept = None;
        while let Some(output) = self.session.poll_output() {
            match output {
                Output::Op(Op::Release { task }) => {
                    kept = self.tcp.detach(task);
                    self.tcp.submit(Op::Release { task });
                }
                Output::Op(op) => self.tcp.submit(op),
                Output::Indication(Indication::Ended { task, outcome: Outcome::Done(done) }) => {
                    let expected = kept.take().map_or(0, |buf: Buf| buf.len());
                    if done.status != 0 || done.received as usize != expected {
                        return Err(broken(done));
                    }
                    last = Some(task);
                }
                Output::Indication(other) => return Err(broken(other)),
                Output::Closed { error, .. } => return Err(broken(error)),
            }
        }
        Ok(last)
    }

    fn numbers(&self) -> Numbers {
        let max_cmd_sn = CmdSn(self.exp_cmd_sn.0.wrapping_add(WINDOW));
        Numbers { stat_sn: StatSn(0), exp_cmd_sn: self.exp_cmd_sn, max_cmd_sn }
    }

    /// Numbers of a PDU that ends a command.
    fn ending(&mut self) -> Numbers {
        self.exp_cmd_sn = CmdSn(self.exp_cmd_sn.0.wrapping_add(1));
        let stat_sn = self.stat_sn;
        self.stat_sn = StatSn(stat_sn.0.wrapping_add(1));
        Numbers { stat_sn, ..self.numbers() }
    }

    /// The last one carries the status.
    fn data_in(&mut self, task: TaskId, pdu: u32, load: Load) -> Response {
        let last = pdu + 1 == load.pdus;
        let good = CollapsedStatus { status: 0, residual: Residual::None };
        Response::DataIn(DataIn {
            final_: last,
            acknowledge: false,
            status: last.then_some(good),
            lun: LunField::default(),
            itt: itt(task),
            ttt: Ttt::NONE,
            numbers: if last { self.ending() } else { self.numbers() },
            data_sn: DataSn(pdu),
            offset: pdu * load.segment,
        })
    }

    fn r2t(&self, task: TaskId, length: u32) -> Response {
        Response::R2t(R2t {
            lun: LunField::default(),
            itt: itt(task),
            ttt: Ttt(task.index),
            numbers: self.numbers(),
            r2t_sn: R2tSn(0),
            offset: 0,
            desired_length: length,
        })
    }

    fn status(&mut self, task: TaskId) -> Response {
        Response::Scsi(ScsiResponse {
            response: 0,
            status: 0,
            status_qualifier: 0,
            itt: itt(task),
            snack_tag: 0,
            numbers: self.ending(),
            exp_data_sn: DataSn(1),
            bidi_read_residual: Residual::None,
            residual: Residual::None,
        })
    }
}

/// Puts a PDU with `length` bytes of data, which are there already, at `at`; where it ends.
fn put(
    bytes: &mut [u8],
    at: usize,
    pdu: &Response,
    length: usize,
    digests: bool,
) -> Result<usize, Error> {
    let header = pdu.emit(u32::try_from(length).unwrap_or(0));
    let mut end = at;
    let mut push = |part: &[u8]| -> Result<(), Error> {
        let room = bytes.get_mut(end..end + part.len());
        room.ok_or_else(|| broken("no room for a PDU"))?.copy_from_slice(part);
        end += part.len();
        Ok(())
    };
    push(&header)?;
    if digests {
        push(&crc32c(&header).to_le_bytes())?;
    }
    let data: Vec<u8> = (0_u8..=255).cycle().take(length).collect();
    push(&data)?;
    if digests && length > 0 {
        push(&crc32c(&data).to_le_bytes())?;
    }
    Ok(end)
}

fn broken(what: impl Debug) -> Error {
    Error::Sandbox(format!("{what:?}"))
}

/// Table 2 of the study, as far as our initiator has it: it takes data in order.
fn parameters(digests: bool) -> Parameters {
    Parameters {
        header_digest: digests,
        data_digest: digests,
        max_send_data_segment_length: SEGMENT,
        max_recv_data_segment_length: SEGMENT,
        max_burst_length: BURST,
        first_burst_length: SEGMENT,
        initial_r2t: true,
        immediate_data: false,
        max_outstanding_r2t: 1,
        time2wait: 2,
        time2retain: 0,
        max_connections: 8,
        error_recovery_level: 0,
        data_pdu_in_order: true,
        data_sequence_in_order: true,
        protocol_level: 1,
        markers: Markers::default(),
        task_reporting: TaskReporting::Rfc3720,
    }
}

#[cfg(test)]
mod tests {
    use super::{Direction, Load, Sandbox};
    use crate::measure::Meter;

    #[test]
    fn both_directions_end_again_and_again() {
        let meter = Meter::new();
        for digests in [false, true] {
            let mut sandbox = Sandbox::new(digests).expect("memory");
            for direction in [Direction::Read, Direction::Write] {
                for (pdus, segment, cold) in [(1, 512, false), (8, 8192, true), (2, 4, true)] {
                    let load = Load { direction, pdus, segment, cold };
                    for _ in 0..3 {
                        assert!(sandbox.run(load, &meter).expect("a good run") > 0.0);
                    }
                }
            }
        }
    }
}
