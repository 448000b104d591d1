// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Login Request and Response (RFC 7143 §11.12, §11.13).

use super::bhs::{BHS_LEN, CMD_SN, EXP_STAT_SN, IMMEDIATE, ITT, NUMBERS};
use super::field::Bits;
use super::field::Field;
use super::field::Flag;
use super::field::Header;
use super::text::CONTINUE;
use super::view::view;
use super::{Cid, CmdSn, Isid, Itt, Numbers, ParseError, StatSn, Tsih};

/// Opcode of a Login Request.
pub const OPCODE_LOGIN_REQUEST: u8 = 0x03;

/// Opcode of a Login Response.
pub const OPCODE_LOGIN_RESPONSE: u8 = 0x23;

const TRANSIT: Flag = Flag { at: 1, mask: 0x80 };
const CSG: Bits = Bits { at: 1, mask: 0x0c };
const NSG: Bits = Bits { at: 1, mask: 0x03 };
const VERSION_MAX: Field<u8> = Field::at(2);
const VERSION_MIN: Field<u8> = Field::at(3);
const VERSION_ACTIVE: Field<u8> = Field::at(3);
const ISID: Field<Isid> = Field::at(8);
const TSIH: Field<Tsih> = Field::at(14);
const CID: Field<Cid> = Field::at(20);
const STATUS: Field<u16> = Field::at(36);

view! {
    /// The header of a Login Request (RFC 7143 §11.12).
    pub struct LoginRequestView("Login Request", OPCODE_LOGIN_REQUEST) {
        /// T: ready for the next stage.
        "T" transit: bool = TRANSIT;
        /// C: the text goes on in the next PDU.
        "C" continue_: bool = CONTINUE;
        /// Current stage.
        "CSG" current: u8 = CSG;
        /// Next stage; means something only with T.
        "NSG" next: u8 = NSG;
        /// Version-max.
        "VersionMax" version_max: u8 = VERSION_MAX;
        /// Version-min.
        "VersionMin" version_min: u8 = VERSION_MIN;
        /// The initiator's part of the session id.
        "ISID" isid: Isid = ISID;
        /// Target session identifying handle.
        "TSIH" tsih: Tsih = TSIH;
        /// Initiator Task Tag.
        "ITT" itt: Itt = ITT;
        /// Connection id.
        "CID" cid: Cid = CID;
        /// CmdSN.
        "CmdSN" cmd_sn: CmdSn = CMD_SN;
        /// ExpStatSN.
        "ExpStatSN" exp_stat_sn: StatSn = EXP_STAT_SN;
    }
}

view! {
    /// The header of a Login Response (RFC 7143 §11.13).
    pub struct LoginResponseView("Login Response", OPCODE_LOGIN_RESPONSE) {
        /// T: the target is ready for the next stage too.
        "T" transit: bool = TRANSIT;
        /// C: the text goes on in the next PDU.
        "C" continue_: bool = CONTINUE;
        /// Current stage.
        "CSG" current: u8 = CSG;
        /// Next stage; means something only with T.
        "NSG" next: u8 = NSG;
        /// Version-max.
        "VersionMax" version_max: u8 = VERSION_MAX;
        /// Version-active.
        "VersionActive" version_active: u8 = VERSION_ACTIVE;
        /// The initiator's part of the session id.
        "ISID" isid: Isid = ISID;
        /// Target session identifying handle.
        "TSIH" tsih: Tsih = TSIH;
        /// Initiator Task Tag.
        "ITT" itt: Itt = ITT;
        /// StatSN, ExpCmdSN and MaxCmdSN.
        "StatSN/ExpCmdSN/MaxCmdSN" numbers: Numbers = NUMBERS;
        /// Status-Class in the high byte, Status-Detail in the low byte.
        "Status" status: u16 = STATUS;
    }
}

/// Stage of the login phase; codes 0, 1 and 3 (2 is reserved).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // those of the standard
pub enum Stage {
    /// SecurityNegotiation, code 0.
    Security,
    /// LoginOperationalNegotiation, code 1.
    Operational,
    /// FullFeaturePhase, code 3; only as next stage.
    FullFeature,
}

impl Stage {
    /// The code on the wire (RFC 7143 §11.12.3).
    pub const fn code(self) -> u8 {
        match self {
            Self::Security => 0,
            Self::Operational => 1,
            Self::FullFeature => 3,
        }
    }

    fn from_code(field: &'static str, code: u8) -> Result<Self, ParseError> {
        match code {
            0 => Ok(Self::Security),
            1 => Ok(Self::Operational),
            3 => Ok(Self::FullFeature),
            _ => Err(ParseError::ReservedValue { field, value: code.into() }),
        }
    }
}

/// T, C, CSG and NSG, which request and response share (RFC 7143 §11.12.1 to §11.12.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    transit: bool,
    continue_: bool,
    current: Stage,
    next: Option<Stage>,
}

impl Step {
    fn parse(flags: (bool, bool), csg: u8, nsg: u8) -> Result<Self, ParseError> {
        let (transit, continue_) = flags;
        let current = Stage::from_code("CSG", csg)?;
        let inconsistent = |what| Err(ParseError::Inconsistent { what });
        if transit && continue_ {
            return inconsistent("login with T and C");
        }
        if current == Stage::FullFeature {
            return inconsistent("login in full feature phase");
        }
        if !transit {
            return Ok(Self { transit, continue_, current, next: None });
        }
        let next = Stage::from_code("NSG", nsg)?;
        if next.code() <= current.code() {
            return inconsistent("login with a next stage that is not after the current one");
        }
        Ok(Self { transit, continue_, current, next: Some(next) })
    }

    fn emit(self, header: Header) -> Header {
        debug_assert!(!(self.transit && self.continue_), "C needs T clear");
        debug_assert!(self.transit == self.next.is_some(), "a next stage comes with T");
        header
            .with(TRANSIT, self.transit)
            .with(CONTINUE, self.continue_)
            .with(CSG, self.current.code())
            .with(NSG, self.next.map_or(0, Stage::code))
    }
}

/// A step of a login (RFC 7143 §11.12). It is always immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    /// T: ready for `next`.
    pub transit: bool,
    /// C: the text goes on in the next PDU. Not with `transit`.
    pub continue_: bool,
    /// CSG.
    pub current: Stage,
    /// NSG: Some exactly with `transit`, and after `current`.
    pub next: Option<Stage>,
    /// Version-max.
    pub version_max: u8,
    /// Version-min.
    pub version_min: u8,
    /// ISID.
    pub isid: Isid,
    /// TSIH; zero asks for a new session.
    pub tsih: Tsih,
    /// The same in the whole login phase.
    pub itt: Itt,
    /// Connection id.
    pub cid: Cid,
    /// CmdSN; the initial one in a leading login.
    pub cmd_sn: CmdSn,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
}

impl LoginRequest {
    /// Takes the header apart.
    ///
    /// # Errors
    /// [`ParseError::ReservedValue`] for stage 2; [`ParseError::Inconsistent`] for T with C, for a
    /// current stage of full feature phase, for a next stage that is not after the current one.
    pub fn parse<T: AsRef<[u8]>>(view: &LoginRequestView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_plain(OPCODE_LOGIN_REQUEST)?;
        let flags = (view.transit(), view.continue_());
        let Step { transit, continue_, current, next } =
            Step::parse(flags, view.current(), view.next())?;
        Ok(Self {
            transit,
            continue_,
            current,
            next,
            version_max: view.version_max(),
            version_min: view.version_min(),
            isid: view.isid(),
            tsih: view.tsih(),
            itt: view.bhs().task_tag()?,
            cid: view.cid(),
            cmd_sn: view.cmd_sn(),
            exp_stat_sn: view.exp_stat_sn(),
        })
    }

    /// The BHS.
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        let Self { transit, continue_, current, next, .. } = *self;
        let header = Header::new(OPCODE_LOGIN_REQUEST, data_segment_length);
        Step { transit, continue_, current, next }
            .emit(header)
            .with(IMMEDIATE, true)
            .with(VERSION_MAX, self.version_max)
            .with(VERSION_MIN, self.version_min)
            .with(ISID, self.isid)
            .with(TSIH, self.tsih)
            .with(ITT, self.itt)
            .with(CID, self.cid)
            .with(CMD_SN, self.cmd_sn)
            .with(EXP_STAT_SN, self.exp_stat_sn)
            .done()
    }
}

/// The answer to a step of a login (RFC 7143 §11.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginResponse {
    /// T: the target is ready for `next` too.
    pub transit: bool,
    /// C: the text goes on in the next PDU. Not with `transit`.
    pub continue_: bool,
    /// CSG of the request. Reserved, like `transit`, `continue_` and `next`, when the status class
    /// is not 0: such a response reads as [`Stage::Security`].
    pub current: Stage,
    /// NSG: Some exactly with `transit`, and after `current`.
    pub next: Option<Stage>,
    /// Version-max.
    pub version_max: u8,
    /// Version-active.
    pub version_active: u8,
    /// ISID of the request.
    pub isid: Isid,
    /// TSIH; a new one in the final response of a leading login.
    pub tsih: Tsih,
    /// Initiator Task Tag of the request.
    pub itt: Itt,
    /// StatSN, ExpCmdSN and MaxCmdSN; count only when the status class is 0.
    pub numbers: Numbers,
    /// Class in the high byte, detail in the low byte: 0x0203 is "not found".
    pub status: u16,
}

impl LoginResponse {
    /// Takes the header apart.
    ///
    /// # Errors
    /// With status class 0 as [`LoginRequest::parse`].
    pub fn parse<T: AsRef<[u8]>>(view: &LoginResponseView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_plain(OPCODE_LOGIN_RESPONSE)?;
        let flags = (view.transit(), view.continue_());
        let Step { transit, continue_, current, next } = if is_success(view.status()) {
            Step::parse(flags, view.current(), view.next())?
        } else {
            FAILED
        };
        Ok(Self {
            transit,
            continue_,
            current,
            next,
            version_max: view.version_max(),
            version_active: view.version_active(),
            isid: view.isid(),
            tsih: view.tsih(),
            itt: view.bhs().task_tag()?,
            numbers: view.numbers(),
            status: view.status(),
        })
    }

    /// The BHS.
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        let Self { transit, continue_, current, next, .. } = *self;
        let step = Step { transit, continue_, current, next };
        let header = Header::new(OPCODE_LOGIN_RESPONSE, data_segment_length);
        if is_success(self.status) { step } else { FAILED }
            .emit(header)
            .with(VERSION_MAX, self.version_max)
            .with(VERSION_ACTIVE, self.version_active)
            .with(ISID, self.isid)
            .with(TSIH, self.tsih)
            .with(ITT, self.itt)
            .with(NUMBERS, self.numbers)
            .with(STATUS, self.status)
            .done()
    }
}

/// Status class 0.
fn is_success(status: u16) -> bool {
    status >> 8 == 0
}

/// What stands in the reserved flags of a response that ends the login.
const FAILED: Step =
    Step { transit: false, continue_: false, current: Stage::Security, next: None };

#[cfg(test)]
mod tests {
    use super::super::testing::{hex, line, reject_reason_with, request_vector, response_vector};
    use super::super::*;
    use super::*;

    #[test]
    fn request() {
        let request = LoginRequest {
            transit: true,
            continue_: false,
            current: Stage::Operational,
            next: Some(Stage::FullFeature),
            version_max: 0,
            version_min: 0,
            isid: Isid([0x80, 0x01, 0x23, 0x45, 0x00, 0x01]),
            tsih: Tsih(0),
            itt: Itt(0x10),
            cid: Cid(1),
            cmd_sn: CmdSn(5),
            exp_stat_sn: StatSn(0),
        };
        let bytes = request_vector(
            Request::Login(request),
            0xa7,
            "43 87 00 00 00 00 00 a7 80 01 23 45 00 01 00 00
             00 00 00 10 00 01 00 00 00 00 00 05 00 00 00 00
             00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
        );
        assert_eq!(
            line(&bytes),
            "Login Request Data=167 T CSG=0x01 NSG=0x03 ISID=0x800123450001 TSIH=0 ITT=0x00000010 \
             CID=1 CmdSN=5 ExpStatSN=0"
        );
    }

    #[test]
    fn response() {
        let response = LoginResponse {
            transit: true,
            continue_: false,
            current: Stage::Operational,
            next: Some(Stage::FullFeature),
            version_max: 0,
            version_active: 0,
            isid: Isid([0x80, 0x01, 0x23, 0x45, 0x00, 0x01]),
            tsih: Tsih(1),
            itt: Itt(0x10),
            numbers: Numbers { stat_sn: StatSn(100), exp_cmd_sn: CmdSn(5), max_cmd_sn: CmdSn(36) },
            status: 0,
        };
        let bytes = response_vector(
            Response::Login(response),
            0x59,
            "23 87 00 00 00 00 00 59 80 01 23 45 00 01 00 01
             00 00 00 10 00 00 00 00 00 00 00 64 00 00 00 05
             00 00 00 24 00 00 00 00 00 00 00 00 00 00 00 00",
        );
        assert_eq!(
            line(&bytes),
            "Login Response Data=89 T CSG=0x01 NSG=0x03 ISID=0x800123450001 TSIH=1 ITT=0x00000010 \
             StatSN/ExpCmdSN/MaxCmdSN=100/5/36"
        );
    }

    #[test]
    fn failed_login_has_no_stage() {
        let failed = LoginResponse {
            transit: false,
            continue_: false,
            current: Stage::Security,
            next: None,
            version_max: 3,
            version_active: 2,
            isid: Isid([0x40, 0x00, 0x01, 0x37, 0x00, 0x00]),
            tsih: Tsih(0),
            itt: Itt(1),
            numbers: Numbers::default(),
            status: 0x0203,
        };
        let mut bytes = response_vector(
            Response::Login(failed),
            0,
            "23 00 03 02 00 00 00 00 40 00 01 37 00 00 00 00
             00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00
             00 00 00 00 02 03 00 00 00 00 00 00 00 00 00 00",
        );
        bytes[1] = 0xff;
        assert_eq!(Response::parse(&bytes), Ok(Response::Login(failed)));
    }

    #[test]
    fn split_text() {
        let request = LoginRequest {
            transit: false,
            continue_: true,
            current: Stage::Security,
            next: None,
            version_max: 2,
            version_min: 1,
            isid: Isid([0x00, 0x02, 0x3d, 0x00, 0x00, 0x01]),
            tsih: Tsih(0x0908),
            itt: Itt(0x10),
            cid: Cid(0x0a0b),
            cmd_sn: CmdSn(0xffff_fff0),
            exp_stat_sn: StatSn(0x64),
        };
        request_vector(
            Request::Login(request),
            8192,
            "43 40 02 01 00 00 20 00 00 02 3d 00 00 01 09 08
             00 00 00 10 0a 0b 00 00 ff ff ff f0 00 00 00 64
             00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
        );
    }

    /// A target refuses the header of each bad step; the login machine then ends the login.
    #[test]
    fn bad_steps() {
        let good = hex("43 00 00 00 00 00 00 00 80 01 23 45 00 01 00 00
                        00 00 00 10 00 01 00 00 00 00 00 05 00 00 00 00
                        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00");
        let cases = [
            (0x00, None),
            (0x04, None),
            (0x40, None),
            (0x44, None),
            (0x81, None),
            (0x83, None),
            (0x87, None),
            // NSG counts for nothing without T.
            (0x02, None),
            (0x05, None),
            // Stage 2.
            (0x08, Some(0x09)),
            (0x82, Some(0x09)),
            (0x8b, Some(0x09)),
            // T with C; not forward; in full feature phase.
            (0xc1, Some(0x04)),
            (0x80, Some(0x04)),
            (0x84, Some(0x04)),
            (0x85, Some(0x04)),
            (0x0c, Some(0x04)),
            (0x8f, Some(0x04)),
        ];
        for (byte, reason) in cases {
            assert_eq!(reject_reason_with(&good, 1, byte), reason, "0x{byte:02x}");
        }
    }

    /// A response, too: stage 2 is reserved, and counts for nothing only where NSG does.
    ///
    /// Covers: LGN-10/S.
    #[test]
    fn the_reserved_stage_is_an_error_either_way() {
        let reserved = |field| Err(ParseError::ReservedValue { field, value: 2 });
        for (byte, field) in [(0x08, "CSG"), (0x82, "NSG"), (0x86, "NSG"), (0x8b, "CSG")] {
            let mut bytes = [0; 48];
            bytes[1] = byte;
            bytes[0] = 0x43;
            assert_eq!(Request::parse(&bytes), reserved(field), "0x{byte:02x}");
            bytes[0] = 0x23;
            assert_eq!(
                Response::parse(&bytes).map(drop),
                reserved(field).map(drop),
                "0x{byte:02x}"
            );
        }
        for first in [0x43, 0x23] {
            let mut bytes = [0; 48];
            (bytes[0], bytes[1]) = (first, 0x02);
            assert!(Request::parse(&bytes).is_ok() || Response::parse(&bytes).is_ok());
        }
    }

    #[test]
    fn isid_kinds() {
        let kind = |first| Isid([first, 0, 0, 0, 0, 0]).kind();
        assert_eq!(kind(0x3f), IsidKind::Oui);
        assert_eq!(kind(0x40), IsidKind::EnterpriseNumber);
        assert_eq!(kind(0x80), IsidKind::Random);
        assert_eq!(kind(0xc0), IsidKind::Reserved);
        for (first, proper) in [(0, true), (0x3f, true), (0x40, true), (0x41, false), (0x60, false)]
            .into_iter()
            .chain([(0x80, true), (0x81, false), (0xa0, false), (0xc0, false), (0xff, false)])
        {
            assert_eq!(Isid([first, 1, 2, 3, 4, 5]).is_proper(), proper, "{first:#x}");
        }
    }
}
