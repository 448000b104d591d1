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
    Authenticated, Command, ConnectionId, Indication, LoggedIn, Outcome, Output, Parameters,
    Session, Settings,
};
use iscsi::target_role::TaskReporting;
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

/// A session, its eight connections and what they share.
#[derive(Debug)]
pub(crate) struct Sandbox {
    session: Session,
    /// By the number of the connection.
    lanes: Vec<Lane>,
    /// What the target expects next.
    exp_cmd_sn: CmdSn,
    pool: Pool,
    digests: bool,
    list: SgList,
}

/// A connection.
#[derive(Debug)]
struct Lane {
    tcp: Tcp,
    /// Of its next status.
    stat_sn: StatSn,
}

/// What a command sends from and receives into.
type Buffers = (Option<Slice>, Option<Buf>);

/// A command whose bytes lie ready.
#[derive(Debug)]
struct Ready {
    lane: ConnectionId,
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
        let login = login(digests);
        let settings = Settings { connections: CONNECTIONS, ..Settings::default() };
        let mut session = Session::new(login.clone(), &settings, NOW);
        let mut lanes = vec![Lane::new(&login)];
        while let Some(id) = session.wanted(NOW) {
            session.begin_join(id);
            session.joined(id, &login, NOW);
            lanes.push(Lane::new(&login));
        }
        if session.connection_count() != usize::from(CONNECTIONS) {
            return Err(broken("a session without all of its connections"));
        }
        let exp_cmd_sn = login.cmd_sn;
        Ok(Self { session, lanes, exp_cmd_sn, pool, digests, list: SgList::new() })
    }

    /// Cycles for a data PDU: the mean over all of 40 commands.
    pub(crate) fn run(&mut self, load: Load, meter: &Meter) -> Result<f64, Error> {
        let ready: Vec<Ready> =
            (0..COMMANDS).map(|_| self.prepare(load)).collect::<Result<_, _>>()?;
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
    fn prepare(&mut self, load: Load) -> Result<Ready, Error> {
        let length = load.pdus * load.segment;
        let data = self.take(length as usize)?;
        if load.cold {
            buf::purge(&data);
        }
        let room = load.pdus as usize * (load.segment as usize + AROUND_MAX) + AROUND_MAX;
        let mut bytes = self.take(room)?;
        let read = load.direction == Direction::Read;
        let command = Command {
            lun: LunField::default(),
            cdb: Cdb { bytes: [0; 32], len: 16 },
            attribute: Attribute::Simple,
            data_out: if read { 0 } else { length },
            data_in: if read { length } else { 0 },
        };
        let task = self.session.command(command, NOW).map_err(broken)?;
        let buffers = if read { (None, Some(data)) } else { (Some(data.freeze()), None) };
        let lane = self.drain(Some(buffers))?.sent_by;
        let lane = lane.ok_or_else(|| broken("a command that was not sent"))?;
        while self.transmit(lane)? {}
        let digests = self.digests;
        let mut headers = Vec::new();
        let mut at = 0;
        if read {
            for pdu in 0..load.pdus {
                headers.push(at);
                let response = self.data_in(lane, task, pdu, load)?;
                at = put(&mut bytes, at, &response, load.segment as usize, digests)?;
            }
        } else {
            headers.push(at);
            at = put(&mut bytes, at, &self.r2t(task, length), 0, digests)?;
        }
        bytes.truncate(at);
        Ok(Ready { lane, task, bytes, headers })
    }

    fn take(&self, len: usize) -> Result<Buf, Error> {
        self.pool.take(len).ok_or(Error::Memory(len))
    }

    fn lane(&mut self, at: ConnectionId) -> Result<&mut Lane, Error> {
        let lane = self.lanes.get_mut(usize::from(at.0));
        lane.ok_or_else(|| broken("no such connection"))
    }

    /// The fast path of a read: from bytes to the end of the command.
    fn receive(&mut self, ready: &Ready) -> Result<(), Error> {
        if self.feed(ready.lane, &ready.bytes)? != Some(ready.task) {
            return Err(broken("a read did not end with its last Data-In"));
        }
        Ok(())
    }

    /// The fast path of a write: from the R2T to gather lists of all Data-Outs.
    fn send(&mut self, ready: &Ready) -> Result<(), Error> {
        self.feed(ready.lane, &ready.bytes)?;
        let mut any = false;
        while self.transmit(ready.lane)? {
            any = true;
        }
        if any { Ok(()) } else { Err(broken("an R2T was not answered")) }
    }

    /// The status of a write, so that it ends.
    fn answer(&mut self, ready: &Ready) -> Result<(), Error> {
        let mut bytes = self.take(AROUND_MAX)?;
        let response = self.status(ready.lane, ready.task)?;
        let len = put(&mut bytes, 0, &response, 0, self.digests)?;
        bytes.truncate(len);
        if self.feed(ready.lane, &bytes)? != Some(ready.task) {
            return Err(broken("a write did not end with its status"));
        }
        Ok(())
    }

    fn transmit(&mut self, at: ConnectionId) -> Result<bool, Error> {
        let exp_stat_sn = self.session.exp_stat_sn_at(at);
        let lane = self.lanes.get_mut(usize::from(at.0));
        let lane = lane.ok_or_else(|| broken("no such connection"))?;
        let any = lane.tcp.poll_transmit(&mut self.list, exp_stat_sn);
        if any {
            lane.tcp.handle_sent();
        }
        Ok(any)
    }

    /// Gives the bytes to the mover and what it tells to the session; the task that ended.
    fn feed(&mut self, at: ConnectionId, mut bytes: &[u8]) -> Result<Option<TaskId>, Error> {
        let mut ended = None;
        while !bytes.is_empty() {
            let lane = self.lanes.get_mut(usize::from(at.0));
            let lane = lane.ok_or_else(|| broken("no such connection"))?;
            let (taken, event) = lane.tcp.feed(bytes);
            bytes = bytes.get(taken..).unwrap_or_default();
            if let Some(event) = event {
                self.session.handle_event_at(at, event, lane.tcp.control_data(), NOW);
                ended = self.drain(None)?.ended.or(ended);
            }
        }
        Ok(ended)
    }

    /// Carries out what the session wants, as the initiator's pump does.
    fn drain(&mut self, mut buffers: Option<Buffers>) -> Result<Drained, Error> {
        let mut drained = Drained::default();
        let mut kept = None;
        while let Some((at, output)) = self.session.poll_output_at() {
            match output {
                Output::Op(op) => {
                    let tcp = &mut self.lane(at)?.tcp;
                    if let Op::SendCommand { task, .. } = &op {
                        let (write, read) = buffers.take().unwrap_or_default();
                        tcp.submit(Op::Attach { task: *task, write, read });
                        drained.sent_by = Some(at);
                    }
                    if let Op::Release { task } = &op {
                        kept = tcp.submit(Op::Detach { task: *task });
                    }
                    tcp.submit(op);
                }
                Output::Indication(Indication::Ended { task, outcome: Outcome::Done(done) }) => {
                    let expected = kept.take().map_or(0, |buf: Buf| buf.len());
                    if done.status != 0 || done.received as usize != expected {
                        return Err(broken(done));
                    }
                    drained.ended = Some(task);
                }
                other => return Err(broken(other)),
            }
        }
        Ok(drained)
    }

    fn numbers(&self) -> Numbers {
        let max_cmd_sn = CmdSn(self.exp_cmd_sn.0.wrapping_add(WINDOW));
        Numbers { stat_sn: StatSn(0), exp_cmd_sn: self.exp_cmd_sn, max_cmd_sn }
    }

    /// Numbers of a PDU that ends a command.
    fn ending(&mut self, at: ConnectionId) -> Result<Numbers, Error> {
        self.exp_cmd_sn = CmdSn(self.exp_cmd_sn.0.wrapping_add(1));
        let numbers = self.numbers();
        let lane = self.lane(at)?;
        let stat_sn = lane.stat_sn;
        lane.stat_sn = StatSn(stat_sn.0.wrapping_add(1));
        Ok(Numbers { stat_sn, ..numbers })
    }

    /// The last one carries the status. Each two of them change places.
    fn data_in(
        &mut self,
        at: ConnectionId,
        task: TaskId,
        pdu: u32,
        load: Load,
    ) -> Result<Response, Error> {
        let last = pdu + 1 == load.pdus;
        let place = if pdu ^ 1 < load.pdus { pdu ^ 1 } else { pdu };
        let numbers = if last { self.ending(at)? } else { self.numbers() };
        let good = CollapsedStatus { status: 0, residual: Residual::None };
        Ok(Response::DataIn(DataIn {
            final_: last,
            acknowledge: false,
            status: last.then_some(good),
            lun: LunField::default(),
            itt: itt(task),
            ttt: Ttt::NONE,
            numbers,
            data_sn: DataSn(pdu),
            offset: place * load.segment,
        }))
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

    fn status(&mut self, at: ConnectionId, task: TaskId) -> Result<Response, Error> {
        let numbers = self.ending(at)?;
        Ok(Response::Scsi(ScsiResponse {
            response: 0,
            status: 0,
            status_qualifier: 0,
            itt: itt(task),
            snack_tag: 0,
            numbers,
            exp_data_sn: DataSn(1),
            bidi_read_residual: Residual::None,
            residual: Residual::None,
        }))
    }
}

impl Lane {
    fn new(login: &LoggedIn) -> Self {
        let mut tcp = Tcp::new();
        tcp.submit(Op::NoticeKeys(login.keys()));
        Self { tcp, stat_sn: login.exp_stat_sn }
    }
}

/// What became of the outputs of the session.
#[derive(Debug, Default)]
struct Drained {
    sent_by: Option<ConnectionId>,
    ended: Option<TaskId>,
}

/// What each connection is told at its login.
fn login(digests: bool) -> LoggedIn {
    LoggedIn {
        tsih: Tsih(1),
        cid: Cid(0),
        discovery: false,
        target_alias: None,
        portal_group_tag: None,
        foreign_isid: None,
        authentication: Authenticated::Nobody,
        cmd_sn: CmdSn(1),
        exp_cmd_sn: CmdSn(1),
        max_cmd_sn: CmdSn(WINDOW),
        exp_stat_sn: StatSn(1),
        parameters: parameters(digests),
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

/// Table 2 of the study.
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
        max_connections: CONNECTIONS,
        error_recovery_level: 0,
        data_pdu_in_order: false,
        data_sequence_in_order: false,
        protocol_level: 1,
        markers: Markers::default(),
        rdma: None,
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
