// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receiving side of an initiator: Data-In into the buffers of its commands, and what else the
//! PDUs of a target mean to the core.
//!
//! Read first: RFC 7143 §7.7 to §7.9 (errors), §11.7 (Data-In), §11.8 (R2T). How bytes become PDUs:
//! [`frame`](super::super::frame). `ending`: what a PDU means that is whole.

mod ending;

use buf::Buf;
use iscsi::initiator::datamover::Event;
use iscsi::initiator::datamover::Keys;
use iscsi::initiator::datamover::TaskId;
use iscsi::initiator::datamover::Violation;
use wire::iscsi::BhsView;
use wire::iscsi::CmdSn;
use wire::iscsi::DataIn;
use wire::iscsi::Itt;
use wire::iscsi::Numbers;
use wire::iscsi::OPCODE_LOGIN_RESPONSE;
use wire::iscsi::Response;
use wire::iscsi::StatSn;

use super::super::frame::Begun;
use super::super::frame::Breach;
use super::super::frame::Frame;
use super::super::frame::Integrity;
use super::super::frame::Pdu;
use super::super::frame::Role;
use super::super::frame::Rules;
use super::super::frame::Segment;
use super::super::marker::Digests;
use super::ByteCounters;
use super::task::Placement;
use super::task::Tasks;
use super::tx::Burst;
use super::tx::Tx;

/// The receiving side of a connection.
#[derive(Debug)]
pub(super) struct Rx {
    frame: Frame<InitiatorRole>,
    /// Bytes of the stream that were taken.
    position: u64,
}

#[derive(Debug)]
struct InitiatorRole {
    keys: Keys,
    /// The header of a PDU has come.
    has_begun: bool,
    sink: Sink,
    /// Of the last PDU that told it.
    max_cmd_sn: CmdSn,
    byte_counters: ByteCounters,
}

/// What else is needed besides the receiver itself.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) tasks: &'a mut Tasks,
    pub(super) tx: &'a mut Tx,
}

/// Where data goes and what is told at the end.
#[derive(Clone, Copy, Debug)]
enum Sink {
    /// Kept as control data.
    Control(Response),
    /// Into the buffer of the task, from `at` on; `odd`: not in order, or to be
    /// acknowledged.
    Data { task: TaskId, pdu: DataIn, at: usize, odd: bool },
    /// Nowhere: it came before, or belongs to a task that has ended.
    Nowhere(Response),
}

impl Default for Rx {
    fn default() -> Self {
        let role = InitiatorRole {
            keys: Keys::LOGIN,
            has_begun: false,
            sink: NOTHING,
            max_cmd_sn: CmdSn(0),
            byte_counters: ByteCounters::default(),
        };
        Self { frame: Frame::new(role, rules(&Keys::LOGIN)), position: 0 }
    }
}

impl Rx {
    pub(super) fn set_keys(&mut self, keys: Keys) {
        self.frame.set_rules(rules(&keys), self.position);
        let role = self.frame.role_mut();
        // They were agreed on in a login.
        (role.keys, role.has_begun) = (keys, true);
    }

    pub(super) const fn byte_counters(&self) -> ByteCounters {
        self.frame.role().byte_counters
    }

    pub(super) fn control_data(&self) -> &[u8] {
        self.frame.control_data()
    }

    /// Bytes of the PDU under way that have not come. None while its lengths have not come.
    pub(super) fn left_of_pdu(&self) -> Option<usize> {
        self.frame.left_of_pdu()
    }

    /// Whether a Data-In of the task is under way: counted, but not here.
    pub(super) fn is_receiving(&self, task: TaskId) -> bool {
        self.frame.is_within_data()
            && matches!(self.frame.role().sink, Sink::Data { task: of, .. } if of == task)
    }

    /// See `Tcp::feed`.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut context: Context<'_>,
    ) -> (usize, Option<Event>) {
        let (taken, event) = self.frame.feed(bytes, &mut context);
        self.position += taken as u64;
        (taken, event)
    }

    /// See `Tcp::landing`.
    pub(super) fn landing(&mut self, tasks: &mut Tasks) -> Option<(Buf, usize, usize)> {
        self.frame.landing(tasks)
    }

    /// See `Tcp::landed`.
    pub(super) fn landed(
        &mut self,
        buf: Buf,
        bytes: usize,
        mut context: Context<'_>,
    ) -> Option<Event> {
        self.position += bytes as u64;
        self.frame.landed(buf, bytes, &mut context)
    }
}

const fn rules(keys: &Keys) -> Rules {
    Rules {
        digests: Digests { header: keys.header_digest, data: keys.data_digest },
        segment_max: keys.max_recv_data_segment_length,
        markers: keys.markers.receive,
    }
}

/// Whether the first bytes of a stream may be those of a target. Servers of other protocols begin
/// with a line of text, often before they are asked anything: "SSH-", "HTTP/", "220 ".
fn may_be_of_target(header: &[u8]) -> bool {
    let Some(first) = header.first() else { return true };
    let is_text = || header.get(1).is_some_and(|second| (b' '..=b'~').contains(second));
    match first & OPCODE_MASK {
        OPCODE_LOGIN_RESPONSE => true,
        opcode => opcode == *first && is_target_opcode(opcode) && !is_text(),
    }
}

/// RFC 7143 §11.2.1.2.
const fn is_target_opcode(opcode: u8) -> bool {
    matches!(opcode, 0x20..=0x26 | 0x31 | 0x32 | 0x3f)
}

/// Of the first byte (RFC 7143 §11.2.1).
const OPCODE_MASK: u8 = 0x3f;

impl Role for InitiatorRole {
    type Event = Event;
    type Violation = Violation;
    type Tasks = Tasks;
    type Context<'a> = Context<'a>;

    const AHS_LEN_MAX: usize = 0;

    fn violated(violation: Violation) -> Event {
        Event::Violation(violation)
    }

    fn breach(breach: Breach) -> Violation {
        match breach {
            Breach::HeaderDigest => Violation::HeaderDigest,
            Breach::SegmentTooLong { length, limit } => Violation::SegmentTooLong { length, limit },
            Breach::Marker => Violation::Marker,
        }
    }

    #[inline]
    fn check_start(&self, header: &[u8]) -> Result<(), Violation> {
        match self.has_begun || may_be_of_target(header) {
            true => Ok(()),
            false => Err(Violation::NotIscsi),
        }
    }

    #[inline]
    fn begin(
        &mut self,
        pdu: Pdu<'_>,
        context: &mut Context<'_>,
    ) -> Result<Begun<Event>, Violation> {
        self.has_begun = true;
        let response = Response::parse(pdu.header).map_err(|_| {
            let opcode = BhsView::new_checked(pdu.header).map_or(0, |bhs| bhs.opcode());
            Violation::Malformed { opcode }
        })?;
        self.sink = self.sink_of(response, pdu.length, context)?;
        match pdu.length {
            0 => Ok(Begun::Whole(self.complete(pdu.control, context.tasks)?)),
            _ => Ok(Begun::Data),
        }
    }

    #[inline]
    fn place(&mut self, part: &[u8], segment: &mut Segment, context: &mut Context<'_>) {
        if segment.has_digest() {
            self.byte_counters.digested += part.len() as u64;
        }
        match &mut self.sink {
            Sink::Control(_) => segment.keep(part),
            Sink::Data { task, at, .. } => {
                let buf = context.tasks.get_mut(*task).and_then(|task| task.read.as_mut());
                let place = buf.and_then(|buf| buf.get_mut(*at..*at + part.len()));
                *at += part.len();
                self.byte_counters.copied += segment.deposit(place, part) as u64;
            }
            Sink::Nowhere(_) => segment.digest(part),
        }
    }

    /// None above ErrorRecoveryLevel 0: a task may leave for another connection meanwhile, and
    /// takes its buffer with it.
    fn lend(&mut self, length: usize, tasks: &mut Tasks) -> Option<(Buf, usize)> {
        if self.keys.recovery {
            return None;
        }
        let Sink::Data { task, at, .. } = self.sink else { return None };
        let end = at.checked_add(length)?;
        let buf = tasks.get_mut(task)?.read.take_if(|buf| end <= buf.len())?;
        Some((buf, at))
    }

    fn landed(&mut self, buf: Buf, bytes: usize, segment: &mut Segment, context: &mut Context<'_>) {
        let Sink::Data { task, at, .. } = &mut self.sink else {
            debug_assert!(false, "no buffer was given out");
            return;
        };
        segment.digest(buf.get(*at..*at + bytes).unwrap_or_default());
        *at += bytes;
        if let Some(task) = context.tasks.get_mut(*task) {
            task.read.get_or_insert(buf);
        }
        if segment.has_digest() {
            self.byte_counters.digested += bytes as u64;
        }
    }

    #[inline]
    fn end(
        &mut self,
        integrity: Integrity,
        pdu: Pdu<'_>,
        context: &mut Context<'_>,
    ) -> Result<Option<Event>, Violation> {
        match integrity {
            Integrity::Good => self.complete(pdu.control, context.tasks),
            Integrity::Corrupt => self.damage(pdu.length, context.tasks),
        }
    }
}

impl InitiatorRole {
    #[inline]
    fn sink_of(
        &self,
        response: Response,
        length: u32,
        context: &mut Context<'_>,
    ) -> Result<Sink, Violation> {
        let tag = match &response {
            Response::DataIn(pdu) => pdu.itt,
            Response::R2t(pdu) => pdu.itt,
            Response::Scsi(pdu) => pdu.itt,
            _ => return Ok(Sink::Control(response)),
        };
        let (task, entry) = match context.tasks.find(tag) {
            Ok(found) => found,
            Err(_) if self.keys.strays => return Ok(Sink::Nowhere(response)),
            Err(unknown) => return Err(unknown),
        };
        match response {
            Response::DataIn(pdu) => match entry.admit(&pdu, length, &self.keys)? {
                Placement::At(at) => {
                    let odd = entry.reassembly.is_some() || pdu.acknowledge && self.keys.recovery;
                    Ok(Sink::Data { task, pdu, at: at as usize, odd })
                }
                Placement::Nowhere => Ok(Sink::Nowhere(response)),
            },
            Response::R2t(pdu) => {
                if entry.ask(&pdu, &self.keys)? {
                    context.tx.burst(Burst::solicited(task, &pdu));
                }
                Ok(Sink::Control(response))
            }
            _ => Ok(Sink::Control(response)),
        }
    }
}

/// Before the first PDU.
const NOTHING: Sink = Sink::Control(Response::NopIn(wire::iscsi::NopIn {
    lun: wire::iscsi::LunField([0; 8]),
    itt: Itt::NONE,
    ttt: wire::iscsi::Ttt::NONE,
    numbers: Numbers { stat_sn: StatSn(0), exp_cmd_sn: CmdSn(0), max_cmd_sn: CmdSn(0) },
}));
