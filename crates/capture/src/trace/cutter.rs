// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stream of iSCSI, cut into PDUs, of which as much is kept as may be.
//!
//! Read first: RFC 7143 §11.2 (segments and digests).

use wire::iscsi::BHS_LEN;
use wire::iscsi::BhsView;
use wire::iscsi::OPCODE_ASYNC_MESSAGE;
use wire::iscsi::OPCODE_LOGIN_REQUEST;
use wire::iscsi::OPCODE_LOGIN_RESPONSE;
use wire::iscsi::OPCODE_NOP_IN;
use wire::iscsi::OPCODE_NOP_OUT;
use wire::iscsi::OPCODE_REJECT;
use wire::iscsi::OPCODE_SCSI_RESPONSE;
use wire::iscsi::OPCODE_TEXT_REQUEST;
use wire::iscsi::OPCODE_TEXT_RESPONSE;
use wire::iscsi::pad4;
use wire::pcap::SEGMENT_LEN_MAX;

/// Length of either digest, bytes.
const DIGEST_LEN: usize = 4;

/// What was negotiated about the framing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // there are two digests
pub struct Framing {
    /// Headers have a digest.
    pub header_digest: bool,
    /// Data segments have one.
    pub data_digest: bool,
}

/// The next bytes of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece<'a> {
    Seen(&'a [u8]),
    /// So many that only somebody else has seen.
    Unseen(usize),
}

/// A whole PDU.
#[derive(Debug)]
pub(super) struct Pdu<'a> {
    /// What is kept of it, from its first byte on: at least the BHS.
    pub(super) kept: &'a mut [u8],
    /// Where its data segment begins.
    pub(super) head: usize,
    /// Bytes of its data segment.
    pub(super) data: usize,
    /// Its length on the wire.
    pub(super) length: usize,
}

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Cutter {
    /// Of the PDU under way.
    kept: Vec<u8>,
    /// How much of it is kept at most.
    keep: usize,
    /// Bytes of it that have come.
    seen: usize,
    head: usize,
    data: usize,
    /// 0 as long as its header is not there.
    length: usize,
    /// Bytes to the next PDU.
    skip: usize,
}

impl Cutter {
    /// `skip`: bytes of a PDU under way that are yet to come.
    pub(super) const fn new(skip: usize) -> Self {
        Self { kept: Vec::new(), keep: 0, seen: 0, head: 0, data: 0, length: 0, skip }
    }

    /// Takes what comes next; `data_max`: bytes that are kept of each data segment of a user.
    pub(super) fn take(
        &mut self,
        mut piece: Piece<'_>,
        framing: Framing,
        data_max: usize,
        mut tell: impl FnMut(Pdu<'_>),
    ) {
        while piece.len() > 0 {
            if self.skip > 0 {
                self.skip -= piece.split_off(self.skip).len();
            } else if self.length == 0 {
                let part = piece.split_off(BHS_LEN - self.seen);
                self.seen += part.len();
                match part {
                    Piece::Seen(bytes) => self.kept.extend_from_slice(bytes),
                    // Nobody leaves out a header; what follows cannot be told then.
                    Piece::Unseen(_) => self.kept.resize(self.seen, 0),
                }
                if self.seen == BHS_LEN {
                    self.measure(framing, data_max);
                }
            } else {
                let part = piece.split_off(self.length - self.seen);
                self.seen += part.len();
                let room = self.keep.saturating_sub(self.kept.len());
                match part {
                    Piece::Seen(bytes) => {
                        self.kept.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
                    }
                    // What is behind a hole is not kept.
                    Piece::Unseen(_) => self.keep = self.kept.len(),
                }
            }
            if self.length > 0 && self.seen == self.length {
                let (head, data, length) = (self.head, self.data, self.length);
                tell(Pdu { kept: &mut self.kept, head, data, length });
                self.kept.clear();
                (self.seen, self.length) = (0, 0);
            }
        }
    }

    /// How long the PDU is that begins so, and what is kept of it.
    fn measure(&mut self, framing: Framing, data_max: usize) {
        let Ok(bhs) = BhsView::new_checked(self.kept.as_slice()) else { return };
        let opcode = bhs.opcode();
        let is_login = matches!(opcode, OPCODE_LOGIN_REQUEST | OPCODE_LOGIN_RESPONSE);
        let digest = |is_there: bool| if is_there && !is_login { DIGEST_LEN } else { 0 };
        self.data = bhs.data_segment_length() as usize;
        let ahs_len = bhs.total_ahs_length();
        self.head = BHS_LEN + ahs_len + digest(framing.header_digest);
        let trailer = digest(framing.data_digest && self.data > 0);
        self.length = self.head + pad4(self.data) + trailer;
        self.keep = kept_of(opcode, (self.head, self.data, self.length), data_max);
    }
}

impl<'a> Piece<'a> {
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Seen(bytes) => bytes.len(),
            Self::Unseen(count) => *count,
        }
    }

    /// Cuts up to `count` bytes off its front.
    fn split_off(&mut self, count: usize) -> Self {
        match self {
            Self::Seen(bytes) => {
                let (part, rest) = bytes.split_at(count.min(bytes.len()));
                *bytes = rest;
                Self::Seen(part)
            }
            Self::Unseen(left) => {
                let part = count.min(*left);
                *left -= part;
                Self::Unseen(part)
            }
        }
    }
}

/// What is kept of a PDU with this header, data and length.
pub(super) fn kept_of(
    opcode: u8,
    (head, data, length): (usize, usize, usize),
    data_max: usize,
) -> usize {
    // What is cut fills no segment: who reads it would wait for the next one.
    let most = SEGMENT_LEN_MAX - 1;
    if length <= most && (data <= data_max || !is_of_user(opcode)) {
        return length;
    }
    let data_max = if is_of_user(opcode) { data_max } else { most };
    (head + data.min(data_max)).min(most)
}

/// Whether data segments of these PDUs belong to users; none is known for others that are to come.
const fn is_of_user(opcode: u8) -> bool {
    !matches!(
        opcode,
        OPCODE_NOP_OUT
            | OPCODE_NOP_IN
            | OPCODE_LOGIN_REQUEST
            | OPCODE_LOGIN_RESPONSE
            | OPCODE_TEXT_REQUEST
            | OPCODE_TEXT_RESPONSE
            | OPCODE_SCSI_RESPONSE
            | OPCODE_ASYNC_MESSAGE
            | OPCODE_REJECT
    )
}

#[cfg(test)]
mod tests;
