// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PDUs that no command window counts, and that the target has not shown to have received: an
//! initiator keeps as many of them outstanding as the target allows (RFC 7145 §8.1.1).

use alloc::collections::VecDeque;

use iscsi::serial::Serial;
use wire::iscsi::CmdSn;
use wire::iscsi::Itt;
use wire::iscsi::Request;
use wire::iscsi::Response;

/// Those that are outstanding, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Unexpected {
    /// The task tag of each, and the number of the next command.
    outstanding: VecDeque<(Itt, CmdSn)>,
    /// What the target allows; zero: it states no limit.
    max: u32,
    /// Of the next command that is counted by the window.
    next: CmdSn,
}

/// What a PDU is to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The command window counts it, or the target has asked for it.
    Expected,
    /// A question that is answered at once.
    Ping,
    Unexpected,
}

/// More than that are never outstanding where there is a limit.
const COUNT_MAX: u32 = 1024;

impl Unexpected {
    pub(super) fn set_max(&mut self, max: u32) {
        self.max = max.min(COUNT_MAX);
    }

    /// Whether a PDU of this kind may be sent now. The last one is a ping's: its answer shows what
    /// has come, where the target has nothing else to say.
    pub(super) fn may_send(&self, kind: Kind) -> bool {
        let outstanding = u32::try_from(self.outstanding.len()).unwrap_or(u32::MAX);
        let kept = match kind {
            Kind::Expected => return true,
            Kind::Ping => 0,
            Kind::Unexpected => 1,
        };
        self.max == 0 || outstanding + kept < self.max
    }

    /// CmdSN of what goes out now and has no number of its own.
    pub(super) const fn next(&self) -> CmdSn {
        self.next
    }

    /// A PDU goes out.
    pub(super) fn note_sent(&mut self, request: &Request) {
        let (itt, immediate) = match request {
            Request::Command(pdu) => (pdu.itt, (pdu.cmd_sn, pdu.immediate)),
            Request::Text(pdu) => (pdu.itt, (pdu.cmd_sn, pdu.immediate)),
            Request::Logout(pdu) => (pdu.itt, (pdu.cmd_sn, pdu.immediate)),
            // The target has asked for an echo.
            Request::NopOut(pdu) if pdu.itt == Itt::NONE => return,
            Request::NopOut(pdu) => (pdu.itt, (pdu.cmd_sn, pdu.immediate)),
            Request::TaskManagement(pdu) => (pdu.itt, (pdu.cmd_sn, pdu.immediate)),
            Request::Login(pdu) => {
                self.next = pdu.cmd_sn;
                return;
            }
            Request::DataOut(pdu) => (pdu.itt, (self.next, true)),
            Request::Snack(pdu) => (pdu.itt, (self.next, true)),
        };
        match immediate {
            (cmd_sn, false) => self.next = cmd_sn.plus(1),
            (cmd_sn, true) if self.max > 0 => self.outstanding.push_back((itt, cmd_sn)),
            (_, true) => {}
        }
    }

    /// A PDU of the target shows what it has received: an answer all that was sent before its
    /// request, ExpCmdSN all that was sent before a command.
    pub(super) fn note_received(&mut self, response: &Response) {
        if self.outstanding.is_empty() {
            return;
        }
        let (itt, numbers) = match response {
            Response::NopIn(pdu) => (pdu.itt, pdu.numbers),
            Response::Scsi(pdu) => (pdu.itt, pdu.numbers),
            Response::TaskManagement(pdu) => (pdu.itt, pdu.numbers),
            Response::Login(pdu) => (pdu.itt, pdu.numbers),
            Response::Text(pdu) => (pdu.itt, pdu.numbers),
            Response::Logout(pdu) => (pdu.itt, pdu.numbers),
            Response::Async(pdu) => (UNANSWERED, pdu.numbers),
            Response::Reject(pdu) => (UNANSWERED, pdu.numbers),
            Response::DataIn(_) | Response::R2t(_) => return,
        };
        let expected = numbers.exp_cmd_sn;
        let answered = self.outstanding.iter().rposition(|(tag, _)| *tag == itt);
        let counted = self.outstanding.iter().rposition(|(_, next)| next.is_before(expected));
        if let Some(last) = answered.max(counted) {
            self.outstanding.drain(..=last);
        }
    }
}

/// The tag of no PDU that is counted.
const UNANSWERED: Itt = Itt(0xffff_fffe);
