// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long segments are, and which PDUs have digests.

use super::*;

/// Covers: KEY-21a/I.
#[test]
fn no_segment_is_longer_than_the_target_takes() {
    for max_send_data_segment_length in [512, 513, 1000, 16_777_215] {
        let limit = max_send_data_segment_length;
        let keys = Keys { max_send_data_segment_length, max_burst_length: 1 << 20, ..KEYS };
        let (mut tcp, mut sent_pdus) = writing(keys, 600_001, 512, 100_000);
        events(&mut tcp, &pdu(keys, Response::R2t(r2t(0, 100_000, 500_001)), &[]));
        sent_pdus.extend(split(keys, &sent(&mut tcp)));
        assert!(sent_pdus.iter().all(|(_, data)| data.len() <= limit as usize), "{limit}");
        let all: usize = sent_pdus.iter().map(|(_, data)| data.len()).sum();
        assert_eq!(all, 600_001);
    }
}

fn login() -> Request {
    Request::Login(LoginRequest {
        transit: true,
        continue_: false,
        current: Stage::Operational,
        next: Some(Stage::FullFeature),
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 1, 2, 3, 4, 5]),
        tsih: Tsih(0),
        itt: Itt(1),
        cid: Cid(0),
        cmd_sn: CmdSn(1),
        exp_stat_sn: StatSn(0),
    })
}

/// Commands, data, pings, text and task management; the last request of the login has none.
///
/// Covers: KEY-03/I.
#[test]
fn every_pdu_after_the_login_has_its_digests() {
    for (header_digest, data_digest) in [(true, true), (true, false), (false, true)] {
        let keys = Keys { header_digest, data_digest, ..KEYS };
        let mut tcp = Tcp::new();
        tcp.submit(Op::SendControl { request: login(), data: b"DataDigest=CRC32C\0".to_vec() });
        let bytes = sent(&mut tcp);
        assert_eq!(bytes.len(), BHS_LEN + 20);
        assert_eq!(split(Keys::LOGIN, &bytes).len(), 1);
        tcp.submit(Op::NoticeKeys(keys));
        let write = Some(Slice::from(vec![7; 4096]));
        tcp.submit(Op::Attach { task: TASK, write, read: None });
        let command = ScsiCommand { final_: false, ..command(false, 4096) };
        let (immediate, unsolicited_end) = (512, 1024);
        tcp.submit(Op::SendCommand { task: TASK, command, immediate, unsolicited_end });
        let (lun, cmd_sn, exp_stat_sn) = (UNIT, CmdSn(2), StatSn(0));
        let (itt, ttt) = (Itt(2), Ttt::NONE);
        let nop = NopOut { immediate: true, lun, itt, ttt, cmd_sn, exp_stat_sn };
        let (final_, continue_, immediate) = (true, false, true);
        let text = TextRequest { immediate, final_, continue_, lun, itt, ttt, cmd_sn, exp_stat_sn };
        for (request, data) in [
            (Request::NopOut(nop), &b"ping"[..]),
            (Request::NopOut(nop), b""),
            (Request::Text(text), b"SendTargets=\0"),
        ] {
            tcp.submit(Op::SendControl { request, data: data.to_vec() });
        }
        let mut told = sent(&mut tcp);
        events(&mut tcp, &pdu(keys, Response::R2t(r2t(0, 1024, 3072)), &[]));
        told.extend(sent(&mut tcp));
        // Each digest is where it belongs, or this cannot be taken apart.
        let pdus = split(keys, &told);
        assert_eq!(pdus.len(), 8);
        let length: usize = pdus.iter().map(|(_, data)| BHS_LEN + pad4(data.len())).sum();
        let with_data = pdus.iter().filter(|(_, data)| !data.is_empty()).count();
        let digests = usize::from(header_digest) * 8 + usize::from(data_digest) * with_data;
        assert_eq!(told.len(), length + 4 * digests);
    }
}
