// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the target says without being asked, and of which the initiator has not shown that it has
//! it: Async Messages, Rejects and pings. There are as many of them as the initiator allows (RFC
//! 7145 §8.1.2).

use alloc::collections::VecDeque;

use iscsi::datamover::Op;
use iscsi::serial::Serial;
use wire::iscsi::Itt;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;

/// Those that are outstanding, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Unasked {
    outstanding: VecDeque<Seen>,
    /// What the initiator allows; zero: it states no limit.
    max: u32,
}

/// What shows that the initiator has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// An ExpStatSN behind this number.
    After(StatSn),
    /// The answer to a ping.
    Answered,
}

/// More than that are never outstanding where there is a limit.
const COUNT_MAX: u32 = 1024;

impl Unasked {
    pub(super) fn set_max(&mut self, max: u32) {
        self.max = max.min(COUNT_MAX);
    }

    /// Whether an op may be carried out now.
    pub(super) fn may_send(&self, op: &Op) -> bool {
        let outstanding = u32::try_from(self.outstanding.len()).unwrap_or(u32::MAX);
        let is_asked = !matches!(op, Op::SendControl { response, .. } if seen(response).is_some());
        self.max == 0 || is_asked || outstanding < self.max
    }

    pub(super) fn note_sent(&mut self, response: &Response) {
        self.outstanding.extend(seen(response).filter(|_| self.max > 0));
    }

    pub(super) fn note_received(&mut self, request: &Request) {
        if self.outstanding.is_empty() {
            return;
        }
        let expected = match request {
            Request::NopOut(pdu) => pdu.exp_stat_sn,
            Request::Command(pdu) => pdu.exp_stat_sn,
            Request::TaskManagement(pdu) => pdu.exp_stat_sn,
            Request::Text(pdu) => pdu.exp_stat_sn,
            Request::Logout(pdu) => pdu.exp_stat_sn,
            Request::DataOut(pdu) => pdu.exp_stat_sn,
            Request::Login(_) | Request::Snack(_) => return,
        };
        let is_there = |seen: &Seen| matches!(seen, Seen::After(sn) if sn.is_before(expected));
        self.outstanding.retain(|seen| !is_there(seen));
        if let Request::NopOut(pdu) = request
            && pdu.ttt != Ttt::NONE
            && let Some(ping) = self.outstanding.iter().position(|seen| *seen == Seen::Answered)
        {
            self.outstanding.remove(ping);
        }
    }
}

/// None: it answers a request.
fn seen(response: &Response) -> Option<Seen> {
    match response {
        Response::Async(pdu) => Some(Seen::After(pdu.numbers.stat_sn)),
        Response::Reject(pdu) => Some(Seen::After(pdu.numbers.stat_sn)),
        Response::NopIn(pdu) if pdu.itt == Itt::NONE && pdu.ttt != Ttt::NONE => {
            Some(Seen::Answered)
        }
        // It has the number of what comes next.
        Response::NopIn(pdu) if pdu.itt == Itt::NONE => Some(Seen::After(pdu.numbers.stat_sn)),
        _ => None,
    }
}
