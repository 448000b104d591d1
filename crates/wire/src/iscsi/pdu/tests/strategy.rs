// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every legal PDU.

use super::*;
use proptest::option;
use proptest::sample::select;

prop_compose! {
    fn lun()(bytes: [u8; 8]) -> LunField { LunField(bytes) }
}

prop_compose! {
    fn itt()(tag in 0..u32::MAX) -> Itt { Itt(tag) }
}

prop_compose! {
    fn ttt()(tag in prop_oneof![Just(u32::MAX), any::<u32>()]) -> Ttt { Ttt(tag) }
}

prop_compose! {
    fn numbers()(a: u32, b: u32, c: u32) -> Numbers {
        Numbers { stat_sn: StatSn(a), exp_cmd_sn: CmdSn(b), max_cmd_sn: CmdSn(c) }
    }
}

fn residual() -> impl Strategy<Value = Residual> {
    prop_oneof![
        Just(Residual::None),
        any::<u32>().prop_map(Residual::Overflow),
        any::<u32>().prop_map(Residual::Underflow),
    ]
}

prop_compose! {
    fn cdb()(
        mut bytes: [u8; 32],
        len in prop_oneof![Just(16_u16), 16..=32_u16, 16..=Cdb::LEN_MAX],
    ) -> Cdb {
        bytes.iter_mut().skip(len.into()).for_each(|byte| *byte = 0);
        Cdb { bytes, len }
    }
}

prop_compose! {
    fn command()(
        immediate: bool,
        final_: bool,
        (read, write) in any::<(bool, bool)>(),
        attribute in select(alloc::vec![
            Attribute::Untagged,
            Attribute::Simple,
            Attribute::Ordered,
            Attribute::HeadOfQueue,
            Attribute::Aca,
        ]),
        priority in 0_u8..16,
        lun in lun(),
        itt in itt(),
        expected_length: u32,
        (cmd_sn, exp_stat_sn, bidi) in any::<(u32, u32, u32)>(),
        cdb in cdb(),
    ) -> ScsiCommand {
        ScsiCommand {
            immediate,
            final_: final_ || !write,
            read,
            write,
            attribute,
            priority,
            lun,
            itt,
            expected_length: if read || write { expected_length } else { 0 },
            cmd_sn: CmdSn(cmd_sn),
            exp_stat_sn: StatSn(exp_stat_sn),
            cdb,
            bidi_read_length: (read && write).then_some(bidi),
        }
    }
}

prop_compose! {
    fn nop_out()(
        immediate: bool, ping: bool, lun in lun(), itt in itt(), ttt in ttt(), sn: [u32; 2],
    ) -> NopOut {
        NopOut {
            immediate: immediate || !ping,
            lun,
            itt: if ping { itt } else { Itt::NONE },
            ttt: if ping { Ttt::NONE } else { ttt },
            cmd_sn: CmdSn(sn[0]),
            exp_stat_sn: StatSn(sn[1]),
        }
    }
}

prop_compose! {
    fn task_management_request()(
        immediate: bool, function in 0_u8..128, lun in lun(), itt in itt(), referenced: u32,
        sn: [u32; 4],
    ) -> TaskManagementRequest {
        TaskManagementRequest {
            immediate,
            function,
            lun,
            itt,
            referenced_task: Itt(referenced),
            cmd_sn: CmdSn(sn[0]),
            exp_stat_sn: StatSn(sn[1]),
            ref_cmd_sn: CmdSn(sn[2]),
            exp_data_sn: DataSn(sn[3]),
        }
    }
}

/// T, C, CSG, NSG.
fn step() -> impl Strategy<Value = (bool, bool, Stage, Option<Stage>)> {
    use Stage::{FullFeature, Operational, Security};
    select(alloc::vec![
        (false, false, Security, None),
        (false, true, Security, None),
        (false, false, Operational, None),
        (false, true, Operational, None),
        (true, false, Security, Some(Operational)),
        (true, false, Security, Some(FullFeature)),
        (true, false, Operational, Some(FullFeature)),
    ])
}

prop_compose! {
    fn login_request()(
        step in step(), versions: [u8; 2], isid: [u8; 6], tsih: u16, itt in itt(), cid: u16,
        sn: [u32; 2],
    ) -> LoginRequest {
        let (transit, continue_, current, next) = step;
        LoginRequest {
            transit,
            continue_,
            current,
            next,
            version_max: versions[0],
            version_min: versions[1],
            isid: Isid(isid),
            tsih: Tsih(tsih),
            itt,
            cid: Cid(cid),
            cmd_sn: CmdSn(sn[0]),
            exp_stat_sn: StatSn(sn[1]),
        }
    }
}

prop_compose! {
    fn text_request()(
        immediate: bool, final_: bool, more: bool, lun in lun(), itt in itt(), ttt in ttt(),
        sn: [u32; 2],
    ) -> TextRequest {
        TextRequest {
            immediate,
            final_,
            continue_: more && !final_,
            lun,
            itt,
            ttt,
            cmd_sn: CmdSn(sn[0]),
            exp_stat_sn: StatSn(sn[1]),
        }
    }
}

prop_compose! {
    fn data_out()(
        final_: bool, lun in lun(), itt in itt(), ttt in ttt(), sn: [u32; 2], offset: u32,
    ) -> DataOut {
        let (exp_stat_sn, data_sn) = (StatSn(sn[0]), DataSn(sn[1]));
        DataOut { final_, lun, itt, ttt, exp_stat_sn, data_sn, offset }
    }
}

prop_compose! {
    fn logout_request()(
        immediate: bool, reason in 0_u8..128, itt in itt(), cid: u16, sn: [u32; 2],
    ) -> LogoutRequest {
        LogoutRequest {
            immediate,
            reason,
            itt,
            cid: Cid(cid),
            cmd_sn: CmdSn(sn[0]),
            exp_stat_sn: StatSn(sn[1]),
        }
    }
}

prop_compose! {
    fn snack()(kind in 0_u8..16, lun in lun(), words: [u32; 5]) -> Snack {
        let [itt, tag, exp_stat_sn, beg_run, run_length] = words;
        let (itt, exp_stat_sn) = (Itt(itt), StatSn(exp_stat_sn));
        Snack { kind, lun, itt, tag, exp_stat_sn, beg_run, run_length }
    }
}

/// Any request.
pub(super) fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        nop_out().prop_map(Request::NopOut),
        command().prop_map(Request::Command),
        task_management_request().prop_map(Request::TaskManagement),
        login_request().prop_map(Request::Login),
        text_request().prop_map(Request::Text),
        data_out().prop_map(Request::DataOut),
        logout_request().prop_map(Request::Logout),
        snack().prop_map(Request::Snack),
    ]
}

prop_compose! {
    fn nop_in()(
        echo: bool, lun in lun(), itt in itt(), ttt in ttt(), numbers in numbers(),
    ) -> NopIn {
        NopIn {
            lun,
            itt: if echo { itt } else { Itt::NONE },
            ttt: if echo { Ttt::NONE } else { ttt },
            numbers,
        }
    }
}

prop_compose! {
    fn scsi_response()(
        response in prop_oneof![Just(0_u8), any::<u8>()],
        statuses: (u8, u16),
        itt in itt(),
        snack_tag: u32,
        numbers in numbers(),
        exp_data_sn: u32,
        residuals in (residual(), residual()),
    ) -> ScsiResponse {
        let nothing = ((0, 0), (Residual::None, Residual::None));
        let ((status, status_qualifier), (bidi_read_residual, residual)) =
            if response == 0 { (statuses, residuals) } else { nothing };
        ScsiResponse {
            response,
            status,
            status_qualifier,
            itt,
            snack_tag,
            numbers,
            exp_data_sn: DataSn(exp_data_sn),
            bidi_read_residual,
            residual,
        }
    }
}

prop_compose! {
    fn task_management_response()(
        response: u8, additional in 0_u32..1 << 24, itt in itt(), numbers in numbers(),
    ) -> TaskManagementResponse {
        TaskManagementResponse { response, additional, itt, numbers }
    }
}

prop_compose! {
    fn login_response()(
        step in step(), versions: [u8; 2], isid: [u8; 6], tsih: u16, itt in itt(),
        numbers in numbers(),
        status in prop_oneof![Just(0_u16), any::<u16>()],
    ) -> LoginResponse {
        let (transit, continue_, current, next) =
            if status < 0x100 { step } else { (false, false, Stage::Security, None) };
        LoginResponse {
            transit,
            continue_,
            current,
            next,
            version_max: versions[0],
            version_active: versions[1],
            isid: Isid(isid),
            tsih: Tsih(tsih),
            itt,
            numbers,
            status,
        }
    }
}

prop_compose! {
    fn text_response()(
        final_: bool, more: bool, lun in lun(), itt in itt(), tag in 0..u32::MAX,
        numbers in numbers(),
    ) -> TextResponse {
        TextResponse {
            final_,
            continue_: more && !final_,
            lun,
            itt,
            ttt: if final_ { Ttt::NONE } else { Ttt(tag) },
            numbers,
        }
    }
}

prop_compose! {
    fn data_in()(
        (final_, acknowledge) in any::<(bool, bool)>(),
        status in option::of((select(&[0x00_u8, 0x04, 0x10, 0x14][..]), residual())),
        lun in lun(),
        itt in itt(),
        ttt in ttt(),
        numbers in numbers(),
        words: [u32; 2],
    ) -> DataIn {
        let stat_sn = if status.is_some() { numbers.stat_sn } else { StatSn(0) };
        DataIn {
            final_: final_ || status.is_some(),
            acknowledge,
            status: status.map(|(status, residual)| CollapsedStatus { status, residual }),
            lun,
            itt,
            ttt,
            numbers: Numbers { stat_sn, ..numbers },
            data_sn: DataSn(words[0]),
            offset: words[1],
        }
    }
}

prop_compose! {
    fn logout_response()(
        response: u8, itt in itt(), numbers in numbers(), times: [u16; 2],
    ) -> LogoutResponse {
        LogoutResponse { response, itt, numbers, time2wait: times[0], time2retain: times[1] }
    }
}

prop_compose! {
    fn r2t()(
        lun in lun(), itt in itt(), tag in 0..u32::MAX, numbers in numbers(), words: [u32; 2],
        desired_length in 1..=u32::MAX,
    ) -> R2t {
        let (ttt, r2t_sn, offset) = (Ttt(tag), R2tSn(words[0]), words[1]);
        R2t { lun, itt, ttt, numbers, r2t_sn, offset, desired_length }
    }
}

prop_compose! {
    fn async_message()(
        lun in lun(), numbers in numbers(), codes: [u8; 2], parameters: [u16; 3],
    ) -> AsyncMessage {
        let [event, vcode] = codes;
        let [parameter1, parameter2, parameter3] = parameters;
        AsyncMessage { lun, numbers, event, vcode, parameter1, parameter2, parameter3 }
    }
}

prop_compose! {
    fn reject()(reason: u8, numbers in numbers(), data_sn: u32) -> Reject {
        Reject { reason, numbers, data_sn: DataSn(data_sn) }
    }
}

/// Any response.
pub(super) fn response() -> impl Strategy<Value = Response> {
    prop_oneof![
        nop_in().prop_map(Response::NopIn),
        scsi_response().prop_map(Response::Scsi),
        task_management_response().prop_map(Response::TaskManagement),
        login_response().prop_map(Response::Login),
        text_response().prop_map(Response::Text),
        data_in().prop_map(Response::DataIn),
        logout_response().prop_map(Response::Logout),
        r2t().prop_map(Response::R2t),
        async_message().prop_map(Response::Async),
        reject().prop_map(Response::Reject),
    ]
}
