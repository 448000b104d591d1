// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The newest ExpStatSN in requests (RFC 7143 §4.2.2.2).

use wire::iscsi::Request;
use wire::iscsi::StatSn;

/// The newest ExpStatSN goes into every request (RFC 7143 §4.2.2.2).
pub(crate) const fn stamp(request: &mut Request, exp_stat_sn: StatSn) {
    match request {
        Request::NopOut(pdu) => pdu.exp_stat_sn = exp_stat_sn,
        Request::Command(pdu) => pdu.exp_stat_sn = exp_stat_sn,
        Request::TaskManagement(pdu) => pdu.exp_stat_sn = exp_stat_sn,
        Request::Login(pdu) => pdu.exp_stat_sn = exp_stat_sn,
        Request::Text(pdu) => pdu.exp_stat_sn = exp_stat_sn,
        Request::DataOut(pdu) => pdu.exp_stat_sn = exp_stat_sn,
        // Of a single connection it is that of the one to be closed (RFC 7143 §11.14.4).
        Request::Logout(pdu) if pdu.reason == 0 => pdu.exp_stat_sn = exp_stat_sn,
        Request::Logout(_) => {}
        Request::Snack(pdu) => pdu.exp_stat_sn = exp_stat_sn,
    }
}
