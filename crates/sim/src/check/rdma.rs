// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The invariants over iSER: PDUs are those of a byte stream, but for what moves by RDMA.

use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iser::IserHeader;
use wire::iwarp::ReadRequest;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

use super::Checks;
use super::Told;
use crate::net::Side;

/// RFC 7143 §11.5.1.
const TASK_REASSIGN: u8 = 8;

impl Checks {
    /// From here on PDUs have as much data as RDMA has for them (RFC 7145 §6.2).
    pub(crate) fn go_over_rdma(&mut self) {
        self.keys.segment = self.keys.segment_rdma;
        self.keys.rdma = true;
    }

    /// A PDU over iSER, with what its header says of memory.
    pub(crate) fn message(&mut self, side: Side, iser: IserHeader, pdu: (&[u8], &[u8])) {
        let (header, data) = pdu;
        let rejected = matches!(Response::parse(header), Ok(Response::Reject(_)) if side == 1);
        self.pdu(side, header, data.len(), if rejected { data } else { &[] });
        let IserHeader::Control { write, read } = iser else { return };
        let of = match Request::parse(header) {
            Ok(Request::Command(pdu)) if side == 0 => Some((pdu.itt, pdu.expected_length)),
            Ok(Request::TaskManagement(pdu)) if pdu.function == TASK_REASSIGN => {
                self.heard.push(Told::Reassigned);
                let joint = self.joint.as_ref().map(|joint| joint.borrow());
                let length = joint.and_then(|joint| joint.length_of(pdu.referenced_task));
                length.map(|length| (pdu.referenced_task, length))
            }
            _ => None,
        };
        match of {
            Some((itt, length)) => {
                for (memory, is_source) in [(write, true), (read, false)] {
                    if let Some(memory) = memory {
                        self.memory.name(itt, memory, length, is_source);
                    }
                }
            }
            None if write.is_some() || read.is_some() => {
                self.broken.push(format!("side {side} names memory beside a command"));
            }
            _ => {}
        }
    }

    /// Bytes are written by RDMA.
    pub(crate) fn rdma_write(&mut self, side: Side, at: (Stag, TaggedOffset), length: usize) {
        // Of no bytes it means nothing.
        if length == 0 {
            return;
        }
        let judged = match side {
            0 => Err("an initiator writes".to_owned()),
            _ => self.memory.write(at, length).and_then(|(itt, at)| {
                let Some(task) = self.tasks.get_mut(&itt.0) else { return Ok(()) };
                task.written(at, u32::try_from(length).unwrap_or(u32::MAX))
            }),
        };
        self.note(judged);
    }

    /// Bytes are asked for by RDMA.
    pub(crate) fn rdma_read(&mut self, side: Side, request: &ReadRequest) {
        let judged = match side {
            0 => Err("an initiator reads".to_owned()),
            _ => self.memory.ask(request).and_then(|itt| {
                self.heard.push(Told::R2t(itt));
                let Some(task) = self.tasks.get_mut(&itt.0) else { return Ok(()) };
                task.asked(request.length, &self.keys)
            }),
        };
        self.note(judged.map_err(|why| format!("{why}: {request:?}")));
    }

    /// They come.
    pub(crate) fn rdma_response(&mut self, side: Side, length: usize, last: bool) {
        let judged = match side {
            0 => self.memory.answer(length, last).map(|(itt, length)| {
                self.heard.push(Told::DataOut(itt, length));
                if let Some(task) = self.tasks.get_mut(&itt.0).filter(|_| last) {
                    task.answered();
                }
            }),
            _ => Err("a target answers RDMA Reads".to_owned()),
        };
        self.note(judged);
    }
}
