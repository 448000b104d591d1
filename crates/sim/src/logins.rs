// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Login requests of those who are no initiator of ours: hogs, impostors, hasty ones.

use wire::iscsi::BHS_LEN;
use wire::iscsi::Cid;
use wire::iscsi::CmdSn;
use wire::iscsi::Isid;
use wire::iscsi::Itt;
use wire::iscsi::LoginRequest;
use wire::iscsi::Request;
use wire::iscsi::Stage;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;
use wire::iscsi::pad4;

/// One that asks for full feature phase at once.
pub(crate) const fn straight(isid: Isid, tsih: Tsih, cid: Cid) -> LoginRequest {
    LoginRequest {
        transit: true,
        continue_: false,
        current: Stage::Operational,
        next: Some(Stage::FullFeature),
        version_max: 0,
        version_min: 0,
        isid,
        tsih,
        itt: Itt(0),
        cid,
        cmd_sn: CmdSn(1),
        exp_stat_sn: StatSn(0),
    }
}

/// The PDU, with its keys.
pub(crate) fn pdu(login: LoginRequest, text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    Request::Login(login).emit(u32::try_from(text.len()).unwrap_or(0), &mut bytes);
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(BHS_LEN + pad4(text.len()), 0);
    bytes
}
