// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes from the initiator.

use buf::SgList;
use buf::Slice;
use iscsi::initiator::datamover::Keys;
use iscsi::initiator::datamover::Op;
use iscsi::initiator::datamover::TaskId;
use iscsi::initiator::datamover::itt;
use rdma::limits::READS_MAX;
use wire::iscsi::DataOut;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Request;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;
use wire::iser::ISER_VERSION;
use wire::iser::IserHeader;
use wire::iwarp::Cause;

use super::Hello;
use super::Initiator;
use super::task::Names;
use crate::iser::message::head;
use crate::iser::message::padded;
use crate::iser::message::padded_vec;
use crate::iser::unexpected::Kind;
use crate::stamp::stamp;

/// What waits to be sent.
#[derive(Debug)]
pub(super) enum Item {
    Op(Op),
    Unasked(Unasked),
}

/// Data behind a command that the target has not asked for: the next PDU of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unasked {
    task: TaskId,
    lun: LunField,
    offset: u32,
    end: u32,
    data_sn: u32,
}

impl Initiator {
    /// Appends what is to be sent to `list`; false if there is nothing, or something is on its way.
    /// PDUs carry `exp_stat_sn`, the core's newest.
    pub fn poll_transmit(&mut self, list: &mut SgList, exp_stat_sn: StatSn) -> bool {
        if self.hello == Hello::Due && self.stream.takes_more() {
            self.say_hello();
        }
        while self.hello == Hello::Over
            && self.stream.takes_more()
            && let Some(item) = self.next_item()
        {
            match item {
                Item::Op(op) => {
                    if let Some(op) = self.send_op(op, exp_stat_sn) {
                        self.items.push_front(Item::Op(op));
                        if let Some(ping) = self.next_ping() {
                            self.send_op(ping, exp_stat_sn);
                        }
                        break;
                    }
                }
                Item::Unasked(data) => self.send_data(data, exp_stat_sn),
            }
        }
        self.stream.poll_transmit(list)
    }

    /// Answers to pings of the target that wait to be sent.
    #[must_use]
    pub fn echoes(&self) -> usize {
        self.items.iter().filter(|item| matches!(item, Item::Op(op) if op.is_echo())).count()
    }

    /// Appends why the connection is over, if that is so and the target is told.
    pub fn poll_last_word(&mut self, list: &mut SgList) -> bool {
        self.stream.is_over() && self.stream.poll_transmit(list)
    }

    /// What may be sent now: the first item, or a ping that it holds up.
    fn next_item(&mut self) -> Option<Item> {
        let first = self.items.front()?;
        if self.unexpected.may_send(kind(first)) {
            return self.items.pop_front();
        }
        self.next_ping().map(Item::Op)
    }

    /// A ping that others hold up, if it may be sent.
    fn next_ping(&mut self) -> Option<Op> {
        if !self.unexpected.may_send(Kind::Ping) {
            return None;
        }
        let at = self.items.iter().position(|item| kind(item) == Kind::Ping)?;
        let Item::Op(mut op) = self.items.remove(at)? else { return None };
        // What it overtakes has numbers behind it now.
        if let Op::SendControl { request: Request::NopOut(ping), .. } = &mut op {
            ping.cmd_sn = self.unexpected.next();
        }
        Some(op)
    }

    fn say_hello(&mut self) {
        let (max_version, min_version) = (ISER_VERSION, ISER_VERSION);
        let hello = IserHeader::Hello { max_version, min_version, ird: READS_MAX };
        if let Some(head) = head(hello, &[]) {
            self.stream.send(head, Slice::empty(), None);
            self.hello = Hello::Asked;
        }
    }

    /// Gives a command back whose memory finds no name before others have lost theirs.
    fn send_op(&mut self, op: Op, exp_stat_sn: StatSn) -> Option<Op> {
        match op {
            Op::SendControl { mut request, data } => {
                stamp(&mut request, exp_stat_sn);
                let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                self.send(IserHeader::PLAIN, &request, length, padded_vec(data));
            }
            Op::SendCommand { task: id, mut command, immediate, unsolicited_end } => {
                let task = self.tasks.get_mut(id)?;
                let context = (names(&self.keys), &mut self.stream);
                let begun = task.begin(&command, (immediate, unsolicited_end), context);
                let Some((write, read)) = begun else {
                    // Of our own there are more than tasks. An adapter may be full.
                    debug_assert!(self.stream.is_of_adapter(), "there are more names than tasks");
                    if self.stream.named().0 == 0 {
                        self.stream.terminate(Cause::CATASTROPHIC_STREAM);
                        return None;
                    }
                    return Some(Op::SendCommand { task: id, command, immediate, unsolicited_end });
                };
                command.exp_stat_sn = exp_stat_sn;
                let data = task.part(0, immediate).unwrap_or_default();
                if immediate < unsolicited_end {
                    let (lun, offset, end) = (command.lun, immediate, unsolicited_end);
                    let data = Unasked { task: id, lun, offset, end, data_sn: 0 };
                    self.items.push_front(Item::Unasked(data));
                }
                let header = IserHeader::Control { write, read };
                self.send(header, &Request::Command(command), immediate, padded(data));
            }
            Op::Reassign { task: id, mut request } => {
                (request.exp_stat_sn, request.exp_data_sn) = (exp_stat_sn, DataSn(0));
                let context = (names(&self.keys), &mut self.stream);
                // The request is answered even if nobody waits for the task any more.
                let named = self.tasks.get_mut(id).and_then(|task| task.go_on(context));
                let (write, read) = named.unwrap_or_default();
                let header = IserHeader::Control { write, read };
                self.send(header, &Request::TaskManagement(request), 0, Slice::empty());
            }
            _ => {}
        }
        None
    }

    /// Sends one PDU of unsolicited data. A task that has ended sends nothing more.
    fn send_data(&mut self, data: Unasked, exp_stat_sn: StatSn) {
        let Unasked { task: id, lun, offset, end, data_sn } = data;
        let Some(task) = self.tasks.get_mut(id).filter(|task| !task.quiet) else { return };
        let segment = self.keys.max_send_data_segment_length.max(1);
        let to = end.min(offset.saturating_add(segment));
        let Some(payload) = task.part(offset, to) else {
            debug_assert!(false, "unsolicited data lies in the buffer");
            return;
        };
        if to < end {
            let rest = Unasked { offset: to, data_sn: data_sn.wrapping_add(1), ..data };
            self.items.push_front(Item::Unasked(rest));
        }
        let pdu = DataOut {
            final_: to == end,
            lun,
            itt: itt(id),
            ttt: Ttt::NONE,
            exp_stat_sn,
            data_sn: DataSn(data_sn),
            offset,
        };
        self.send(IserHeader::PLAIN, &Request::DataOut(pdu), to - offset, padded(payload));
    }

    fn send(&mut self, iser: IserHeader, request: &Request, length: u32, data: Slice) {
        self.unexpected.note_sent(request);
        self.scratch.clear();
        request.emit(length, &mut self.scratch);
        let head = head(iser, &self.scratch);
        debug_assert!(head.is_some(), "no cdb of ours is that long");
        if let Some(head) = head {
            self.stream.send(head, data, None);
        }
    }
}

const fn names(keys: &Keys) -> Names {
    if keys.solicited_only { Names::Fetched } else { Names::All }
}

/// What it is to the target (RFC 7145 §8.1.1).
fn kind(item: &Item) -> Kind {
    let counted = match item {
        Item::Unasked(_) => false,
        Item::Op(Op::SendCommand { command, .. }) => !command.immediate,
        Item::Op(Op::SendControl { request, .. }) => match request {
            Request::NopOut(pdu) if pdu.itt == Itt::NONE => true,
            Request::NopOut(pdu) if pdu.immediate => return Kind::Ping,
            Request::NopOut(_) | Request::Login(_) => true,
            Request::Command(pdu) => !pdu.immediate,
            Request::Text(pdu) => !pdu.immediate,
            Request::Logout(pdu) => !pdu.immediate,
            Request::TaskManagement(pdu) => !pdu.immediate,
            Request::DataOut(_) | Request::Snack(_) => false,
        },
        Item::Op(Op::Reassign { request, .. }) => !request.immediate,
        Item::Op(_) => true,
    };
    if counted { Kind::Expected } else { Kind::Unexpected }
}
