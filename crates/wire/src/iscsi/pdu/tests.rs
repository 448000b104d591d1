// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use alloc::string::ToString;

/// The bytes of a hex dump.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|d| u8::try_from(d).unwrap()).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[test]
fn login_request() {
    let bytes = hex("43 87 00 00 00 00 00 a7 80 01 23 45 00 01 00 00
                     00 00 00 10 00 01 00 00 00 00 00 05 00 00 00 00
                     00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00");
    let request = Request::Login(LoginRequest {
        transit: true,
        continue_: false,
        current: Stage::Operational,
        next: Some(Stage::FullFeature),
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 1, 0x23, 0x45, 0, 1]),
        tsih: Tsih(0),
        itt: Itt(0x10),
        cid: Cid(1),
        cmd_sn: CmdSn(5),
        exp_stat_sn: StatSn(0),
    });
    assert_eq!(Request::parse(&bytes), Ok(request));
    let mut out = Vec::new();
    request.emit(0xa7, &mut out);
    assert_eq!(out, bytes);
    assert_eq!(
        Pretty(&bytes).to_string(),
        "Login Request Data=167 T CSG=0x01 NSG=0x03 ISID=0x800123450001 TSIH=0 ITT=0x00000010 CID=1 CmdSN=5 \
         ExpStatSN=0"
    );
}
