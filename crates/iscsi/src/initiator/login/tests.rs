// SPDX-License-Identifier: Apache-2.0 OR MIT

mod agreed;
mod discovery;
mod rules;

use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use wire::iscsi::Cid;
use wire::iscsi::DataSn;
use wire::iscsi::Isid;
use wire::iscsi::LogoutResponse;
use wire::iscsi::NopIn;
use wire::iscsi::Numbers;
use wire::iscsi::Reject;
use wire::iscsi::Ttt;

use super::*;
use crate::chap::Account;
use crate::chap::Algorithm;
use crate::chap::Challenge;
use crate::chap::Credentials;
use crate::chap::Secret;
use crate::datamover::Capabilities;
use crate::datamover::Rdma;
use crate::initiator::DigestOffer;
use crate::initiator::datamover::Violation;

mod keys;

const START: Instant = Instant(5);
const ISID: Isid = Isid([0x80, 1, 2, 3, 4, 5]);

/// A login and a target that says what it is told to say.
struct Lab {
    login: Login,
    requests: Vec<(LoginRequest, String)>,
    ends: Vec<LoginOutput>,
    /// The connection was to be closed, and nothing was said after that.
    closes: bool,
    stat_sn: u32,
    /// What the mover was told to work with: after all requests, with the end.
    keys: Option<crate::initiator::datamover::Keys>,
}

fn identity() -> Identity {
    Identity {
        initiator: "iqn.2026-01.com.example:host".to_string(),
        initiator_alias: Some("a host".to_string()),
        target: Some("iqn.2026-01.com.example:disk".to_string()),
        discovery: false,
        isid: ISID,
        cid: Cid(0),
        portal_group_tag: None,
        reinstates: false,
    }
}

fn client(mutual: bool) -> Client {
    let credentials = |name: &str, secret: &[u8]| {
        Credentials::new(name.to_string(), Secret::new(secret).unwrap()).unwrap()
    };
    let target = mutual.then(|| credentials("disk", b"secret of disk"));
    let account = Account::new(credentials("host", b"secret of host"), target).unwrap();
    let challenge = Challenge::new(1, &[7; 16]).unwrap();
    Client::new(Arc::new(account), Algorithm::ALL.to_vec(), challenge)
}

impl Lab {
    fn with(settings: &Settings, client: Option<Client>) -> Self {
        Self::of(identity(), settings, client)
    }

    fn of(identity: Identity, settings: &Settings, client: Option<Client>) -> Self {
        Self::of_login(Login::new(identity, settings, client, CmdSn(40), START))
    }

    fn of_login(login: Login) -> Self {
        let (requests, ends) = (Vec::new(), Vec::new());
        let mut lab = Self { login, requests, ends, closes: false, stat_sn: 100, keys: None };
        lab.drain();
        lab
    }

    fn new() -> Self {
        Self::with(&Settings::default(), None)
    }

    fn drain(&mut self) {
        while let Some(output) = self.login.poll_output() {
            assert!(!self.closes || !matches!(output, LoginOutput::Op(_)), "the last op");
            match output {
                LoginOutput::Op(Op::SendControl { request: Request::Login(request), data }) => {
                    assert!(self.keys.is_none(), "requests go out under the old keys");
                    let text = String::from_utf8(data).unwrap().replace('\0', "\n");
                    self.requests.push((request, text));
                }
                LoginOutput::Op(Op::Terminate) => self.closes = true,
                LoginOutput::Op(Op::NoticeKeys(keys)) => {
                    assert!(self.keys.replace(keys).is_none(), "told once");
                }
                LoginOutput::Op(op) => panic!("{op:?}"),
                end => {
                    let goes_on = matches!(end, LoginOutput::Done(_));
                    assert_eq!(self.keys.is_some(), goes_on, "the mover hears of the keys first");
                    assert!(goes_on || self.closes, "the connection is closed first");
                    self.ends.push(end);
                }
            }
        }
    }

    fn response(&self, stages: (Stage, Option<Stage>)) -> LoginResponse {
        LoginResponse {
            transit: stages.1.is_some(),
            continue_: false,
            current: stages.0,
            next: stages.1,
            version_max: 0,
            version_active: 0,
            isid: ISID,
            tsih: Tsih(9),
            itt: control_itt(0),
            numbers: Numbers {
                stat_sn: StatSn(self.stat_sn),
                exp_cmd_sn: CmdSn(40),
                max_cmd_sn: CmdSn(71),
            },
            status: 0,
        }
    }

    fn feed(&mut self, response: LoginResponse, text: &str) {
        let event = Event::Control { response: Response::Login(response) };
        let data = text.replace('\n', "\0");
        self.login.handle_event(event, data.as_bytes(), START);
        self.stat_sn += 1;
        self.drain();
    }

    fn answer(&mut self, stages: (Stage, Option<Stage>), text: &str) {
        let response = self.response(stages);
        self.feed(response, text);
    }

    /// Through the security stage without authentication.
    fn operational() -> Self {
        let mut lab = Self::new();
        lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
        lab
    }

    fn error(&self) -> &LoginError {
        match self.ends.as_slice() {
            [LoginOutput::Failed(error)] => error,
            other => panic!("{other:?}"),
        }
    }

    fn done(&self) -> &LoggedIn {
        match self.ends.as_slice() {
            [LoginOutput::Done(login)] => login,
            other => panic!("{other:?}"),
        }
    }
}

/// The current stage, and the next one if the target agrees to leave it.
type Stages = (Stage, Option<Stage>);

const SECURED: Stages = (Stage::Security, Some(Stage::Operational));
const STAYS: Stages = (Stage::Security, None);
const DONE: Stages = (Stage::Operational, Some(Stage::FullFeature));
const MORE: Stages = (Stage::Operational, None);

/// Covers: LGN-01, LGN-07, LGN-29, KEY-09, SES-27, SES-33.
#[test]
fn the_first_request_says_who_and_whom() {
    assert_eq!(Lab::new().requests.len(), 1, "at once");
    let mut lab = Lab::operational();
    lab.answer(DONE, "");
    lab.answer(SECURED, "AuthMethod=None\n");
    assert_eq!((lab.requests.len(), lab.ends.len()), (2, 1), "what comes later is no login");
    let (first, text) = &lab.requests[0];
    assert_eq!(first.exp_stat_sn, StatSn(0));
    for key in [
        "InitiatorName=iqn.2026-01.com.example:host\n",
        "InitiatorAlias=a host\n",
        "TargetName=iqn.2026-01.com.example:disk\n",
        "SessionType=Normal\n",
        "AuthMethod=None\n",
    ] {
        assert!(text.contains(key), "{key} is not in {text}");
    }
    assert!(first.tsih == Tsih(0) && first.isid == ISID && first.isid.0[0] >> 6 != 3);
    let mut header = Vec::new();
    Request::Login(*first).emit(0, &mut header);
    assert_eq!(header[0], 0x43, "immediate");
    let all: String = lab.requests.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(all.matches("InitiatorName=").count(), 1);
    assert_eq!(all.matches("TargetName=").count(), 1);
    assert!(lab.requests.iter().all(|(request, _)| request.tsih == Tsih(0)));
    let discovery = Identity { target: None, discovery: true, ..identity() };
    for client in [None, Some(client(false)), Some(client(true))] {
        let lab = Lab::of(discovery.clone(), &Settings::default(), client);
        let text = &lab.requests[0].1;
        assert!(text.contains("SessionType=Discovery\n") && !text.contains("TargetName"));
    }
}

#[test]
fn what_a_mover_cannot_do_is_not_asked_for() {
    let wishes = Settings {
        header_digest: DigestOffer::Required,
        data_digest: DigestOffer::Preferred,
        error_recovery_level: 2,
        markers: true,
        ..Settings::default()
    };
    let nothing = Capabilities {
        collapses_status: false,
        recovery_level: 0,
        numbers_data: false,
        digests: false,
        markers: false,
        lands: false,
        rdma: Rdma::Never,
        buffers: None,
    };
    for (capabilities, wanted) in [(Capabilities::STREAM, true), (nothing, false)] {
        let mut lab = Lab::with(&wishes.clone().within(capabilities), None);
        lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
        let text = &lab.requests[1].1;
        for key in
            ["HeaderDigest=CRC32C", "DataDigest=CRC32C", "ErrorRecoveryLevel=2", "OFMarker=Yes"]
        {
            assert_eq!(text.contains(key), wanted, "{key} in {text}");
        }
    }
}

/// Each PDU that comes over an adapter needs a buffer.
#[test]
fn what_finds_no_buffer_is_not_asked_for() {
    let few = Capabilities { buffers: Some(160), ..Capabilities::RDMA };
    let settings = Settings::default().within(few);
    assert_eq!((settings.commands_max, settings.unexpected_pdus_max), (128, 16));
    let settings = Settings::default().within(Capabilities::RDMA);
    assert_eq!((settings.commands_max, settings.unexpected_pdus_max), (u32::MAX, 1024));
}

/// The gotgt target answers with zeroes.
#[test]
fn another_isid_fails_only_a_login_that_rests_on_it() {
    let foreign = Isid([0; 6]);
    for (reinstates, goes_on) in [(false, true), (true, false)] {
        let identity = Identity { reinstates, ..identity() };
        let mut lab = Lab::of(identity, &Settings::default(), None);
        for (stages, text) in [(SECURED, "AuthMethod=None\n"), (DONE, "")] {
            let response = LoginResponse { isid: foreign, ..lab.response(stages) };
            lab.feed(response, text);
        }
        if goes_on {
            assert_eq!(lab.done().foreign_isid, Some(foreign));
        } else {
            assert_eq!(*lab.error(), LoginError::Malformed("another ISID"));
        }
    }
    let mut lab = Lab::operational();
    lab.answer(DONE, "");
    assert_eq!(lab.done().foreign_isid, None);
}

#[test]
fn what_was_agreed_is_in_force() {
    let mut lab = Lab::operational();
    lab.answer(
        DONE,
        "MaxRecvDataSegmentLength=65536\nMaxBurstLength=32768\n\
        FirstBurstLength=16384\nInitialR2T=Yes\nImmediateData=No\nMaxOutstandingR2T=2\n\
        HeaderDigest=None\nDataDigest=CRC32C\nDefaultTime2Wait=3\nDefaultTime2Retain=0\n\
        ErrorRecoveryLevel=0\nMaxConnections=1\n\
        DataPDUInOrder=Yes\nDataSequenceInOrder=Yes\n",
    );
    let login = lab.done();
    let agreed = &login.parameters;
    assert_eq!((agreed.max_burst_length, agreed.first_burst_length), (32768, 16384));
    assert_eq!(agreed.max_send_data_segment_length, 65536);
    assert_eq!(agreed.max_recv_data_segment_length, 256 << 10);
    assert!(agreed.initial_r2t && !agreed.immediate_data && agreed.data_digest);
    assert!(!agreed.header_digest);
    assert_eq!((agreed.max_outstanding_r2t, agreed.time2wait), (2, 3));
    assert_eq!((login.tsih, login.cmd_sn, login.max_cmd_sn), (Tsih(9), CmdSn(40), CmdSn(71)));
    assert_eq!(login.exp_stat_sn, StatSn(102));
}

/// Covers: LGN-14.
#[test]
fn a_target_that_takes_its_time_is_asked_again() {
    let mut lab = Lab::operational();
    lab.answer(MORE, "MaxRecvDataSegmentLength=65536\n");
    lab.answer(MORE, "TaskReporting=FastAbort,RFC3720\nX-other=1\n");
    let (request, text) = lab.requests.last().unwrap();
    assert_eq!((request.transit, request.next), (true, Some(Stage::FullFeature)));
    assert_eq!(text, "TaskReporting=RFC3720\nX-other=NotUnderstood\n");
    lab.answer(DONE, "");
    assert_eq!(lab.done().parameters.max_send_data_segment_length, 65536);
}

/// Covers: LGN-36.
#[test]
fn a_text_in_pieces_is_asked_for_by_empty_requests() {
    let mut lab = Lab::operational();
    let piece = LoginResponse { continue_: true, ..lab.response(MORE) };
    lab.feed(piece, "MaxBurstLength=3");
    let (request, text) = lab.requests.last().unwrap();
    assert!(!request.transit && !request.continue_ && text.is_empty());
    lab.answer(DONE, "2768\n");
    assert_eq!(lab.done().parameters.max_burst_length, 32768);
}

/// Covers: LGN-18, LGN-49/I, NEG-31/I.
#[test]
fn inadmissible_keys_end_the_login() {
    let cases = [
        ("MaxBurstLength=2097152\n", "no result"),
        ("MaxBurstLength=1\n", "no result"),
        ("InitialR2T=Maybe\n", "no result"),
        ("ErrorRecoveryLevel=2\n", "no result"),
        ("MaxConnections=2\n", "no result"),
        ("HeaderDigest=MD5\n", "no result"),
        ("ImmediateData=NotUnderstood\n", "no result"),
        ("DataPDUInOrder=No\n", "no result"),
        ("DefaultTime2Wait=-1\n", "no result"),
        ("MaxRecvDataSegmentLength=5\n", "no result"),
        ("MaxBurstLength=32768\nMaxBurstLength=32768\n", "twice"),
        ("MaxRecvDataSegmentLength=512\nMaxRecvDataSegmentLength=512\n", "twice"),
        ("TargetAlias=a\nTargetAlias=b\n", "twice"),
        ("InitiatorName=iqn.2026-01.com.example:x\n", "only an initiator"),
        ("AuthMethod=None\n", "stage"),
        ("=x\n", "malformed"),
        ("MaxBurstLength", "malformed"),
    ];
    for (text, said) in cases {
        let mut lab = Lab::operational();
        lab.answer(DONE, text);
        assert!(lab.error().to_string().contains(said), "{text}: {}", lab.error());
        assert!(lab.closes);
    }
    // Twice in a login is twice, also in two responses.
    let mut lab = Lab::operational();
    lab.answer(MORE, "MaxBurstLength=32768\n");
    lab.answer(DONE, "MaxBurstLength=32768\n");
    assert_eq!(*lab.error(), LoginError::Repeated("MaxBurstLength".into()));
}

/// Covers: NEG-20/I, NEG-21/I.
#[test]
fn reserved_answers_leave_the_defaults() {
    let mut lab = Lab::operational();
    lab.answer(DONE, "MaxBurstLength=Reject\nMaxOutstandingR2T=Irrelevant\nImmediateData=Reject\n");
    let agreed = &lab.done().parameters;
    assert_eq!((agreed.max_burst_length, agreed.max_outstanding_r2t), (262_144, 1));
    assert!(agreed.immediate_data && agreed.initial_r2t);
}

/// Covers: CHP-03a.
#[test]
fn chap_begins_as_soon_as_it_is_chosen() {
    let mut lab = Lab::with(&Settings::default(), Some(client(false)));
    assert!(lab.requests[0].1.contains("AuthMethod=CHAP,None\n"));
    assert!(!lab.requests[0].0.transit);
    lab.answer(STAYS, "AuthMethod=CHAP\n");
    assert_eq!(lab.requests[1].1, "CHAP_A=8,7,6,5\n");
    lab.answer(STAYS, "CHAP_A=5\nCHAP_I=3\nCHAP_C=0x01020304\n");
    let (request, text) = &lab.requests[2];
    assert!(text.starts_with("CHAP_N=host\nCHAP_R=0x") && !text.contains("CHAP_C"));
    assert_eq!(request.next, Some(Stage::Operational));
    lab.answer(SECURED, "");
    lab.answer(DONE, "");
    assert_eq!(lab.done().authentication, Authenticated::Initiator);
}

/// Covers: LGN-27, LGN-51/I, CHP-10, CHP-12.
#[test]
fn a_login_that_is_not_secured_ends() {
    let steps: [&[(Stages, &str)]; 12] = [
        &[(SECURED, "")],
        &[(STAYS, "AuthMethod=None\n")],
        &[(STAYS, "AuthMethod=KRB5\n")],
        &[(STAYS, "AuthMethod=CHAP\n"), (SECURED, "")],
        // Keys of another step, too few of them, and values that are none.
        &[(STAYS, "AuthMethod=CHAP\nCHAP_A=5\nCHAP_I=3\nCHAP_C=0x01\n")],
        &[(STAYS, "AuthMethod=CHAP\n"), (STAYS, "CHAP_N=disk\nCHAP_R=0x00\n")],
        &[(STAYS, "AuthMethod=CHAP\n"), (STAYS, "CHAP_A=5\nCHAP_I=3\n")],
        &[(STAYS, "AuthMethod=CHAP\n"), (STAYS, "CHAP_A=9\nCHAP_I=3\nCHAP_C=0x01\n")],
        &[(STAYS, "AuthMethod=CHAP\n"), (STAYS, "CHAP_A=5\nCHAP_I=256\nCHAP_C=0x01\n")],
        &[
            (STAYS, "AuthMethod=CHAP\n"),
            (STAYS, "CHAP_A=5\nCHAP_I=3\nCHAP_C=0x01\n"),
            (STAYS, "CHAP_A=5\nCHAP_I=4\nCHAP_C=0x02\n"),
        ],
        &[
            (STAYS, "AuthMethod=CHAP\n"),
            (STAYS, "CHAP_A=5\nCHAP_I=3\nCHAP_C=0x01\n"),
            (SECURED, ""),
        ],
        &[
            (STAYS, "AuthMethod=CHAP\n"),
            (STAYS, "CHAP_A=5\nCHAP_I=3\nCHAP_C=0x01\n"),
            (SECURED, "CHAP_N=disk\nCHAP_R=0x00\n"),
        ],
    ];
    for script in steps {
        let mut lab = Lab::with(&Settings::default(), Some(client(true)));
        for (stages, text) in script {
            lab.answer(*stages, text);
        }
        assert!(
            matches!(
                lab.error(),
                LoginError::Chap(_) | LoginError::AuthMethod | LoginError::AuthenticationSkipped
            ),
            "{script:?}: {}",
            lab.error()
        );
        assert!(lab.closes, "{script:?}");
    }
}

/// Covers: NEG-22/I.
#[test]
fn digests_that_are_required_are_insisted_on() {
    let digest = DigestOffer::Required;
    let settings = Settings { data_digest: digest, ..Settings::default() };
    let mut lab = Lab::with(&settings, None);
    lab.answer(SECURED, "AuthMethod=None\n");
    assert!(lab.requests[1].1.contains("DataDigest=CRC32C\n"));
    lab.answer(DONE, "DataDigest=Reject\n");
    assert_eq!(*lab.error(), LoginError::DigestRequired("DataDigest"));
}

/// Covers: RDR-03, RDR-04, RDR-06/I.
#[test]
fn redirections_are_taken_in_each_stage() {
    let moved = |lab: &Lab, stages, status| LoginResponse {
        status,
        transit: false,
        next: None,
        ..lab.response(stages)
    };
    let mut lab = Lab::new();
    let response = moved(&lab, STAYS, 0x0101);
    lab.feed(response, "TargetAddress=[2001:db8::1]:3261,1\n");
    let [LoginOutput::Redirected { address, permanent: false }] = lab.ends.as_slice() else {
        panic!("{:?}", lab.ends);
    };
    assert_eq!(address, "[2001:db8::1]:3261");
    assert!(lab.closes, "this connection is of no use any more");
    let mut lab = Lab::operational();
    let response = moved(&lab, STAYS, 0x0102);
    lab.feed(response, "TargetAddress=other:3260\n");
    assert!(matches!(lab.ends.as_slice(), [LoginOutput::Redirected { permanent: true, .. }]));
    assert!(lab.closes);
    let mut lab = Lab::new();
    let response = moved(&lab, STAYS, 0x0101);
    lab.feed(response, "");
    assert_eq!(*lab.error(), LoginError::RedirectWithoutAddress);
}

/// No segment and no burst is shorter than 512 bytes: 2^32 bytes make less than 2^32 PDUs.
///
/// Covers: DSN-05/I.
#[test]
fn lengths_below_512_are_not_agreed_upon() {
    for key in ["MaxRecvDataSegmentLength", "MaxBurstLength", "FirstBurstLength"] {
        for (value, is_right) in [("0", false), ("1", false), ("511", false), ("512", true)] {
            let mut lab = Lab::operational();
            let text = format!("{key}={value}\n");
            lab.answer(DONE, &text);
            assert_eq!(matches!(lab.ends[..], [LoginOutput::Done(_)]), is_right, "{text}");
            if !is_right {
                let wrong = matches!(lab.error(), LoginError::Answer { key: of, .. } if *of == key);
                assert!(wrong, "{text}: {:?}", lab.error());
            }
        }
    }
}

/// Covers: LGN-46.
#[test]
fn only_class_3_may_succeed_later() {
    for (status, later) in [(0x0201, false), (0x0203, false), (0x0300, true), (0x0302, true)] {
        let mut lab = Lab::new();
        let response = LoginResponse { status, ..lab.response(STAYS) };
        lab.feed(response, "");
        assert_eq!(*lab.error(), LoginError::Refused(status));
        assert_eq!(lab.error().is_transient(), later);
    }
}

/// Covers: LGN-04, TMO-06, ERL-04/I.
#[test]
fn other_pdus_and_time_end_a_login() {
    let (itt, ttt) = (wire::iscsi::Itt::NONE, Ttt::NONE);
    let (lun, numbers) = (wire::iscsi::LunField::default(), Numbers::default());
    let (data_sn, time2wait, time2retain) = (DataSn(0), 0, 0);
    for response in [
        Response::NopIn(NopIn { lun, itt, ttt, numbers }),
        Response::Reject(Reject { reason: 4, numbers, data_sn }),
        Response::Logout(LogoutResponse { response: 0, itt, numbers, time2wait, time2retain }),
    ] {
        for mut lab in [Lab::new(), Lab::operational()] {
            let before = lab.requests.len();
            lab.login.handle_event(Event::Control { response }, &[0; 48], START);
            lab.drain();
            assert_eq!(*lab.error(), LoginError::OtherPdu, "{response:?}");
            assert!(lab.closes && lab.requests.len() == before, "nothing is asked for again");
        }
    }
    let mut lab = Lab::new();
    lab.login.handle_event(Event::Violation(Violation::HeaderDigest), &[], START);
    lab.drain();
    assert!(matches!(lab.error(), LoginError::Stream(_)));
    assert!(lab.closes && lab.requests.len() == 1);
    let mut lab = Lab::new();
    let at = lab.login.poll_timeout().unwrap();
    assert_eq!(at, START + Settings::default().login_timeout);
    lab.login.handle_timeout(at);
    lab.drain();
    assert_eq!(*lab.error(), LoginError::Timeout);
    assert_eq!(lab.login.poll_timeout(), None);
    let mut lab = Lab::new();
    lab.login.handle_disconnect();
    lab.drain();
    assert_eq!(*lab.error(), LoginError::Disconnected);
}

#[test]
fn what_every_response_repeats_is_checked() {
    let good = Lab::new().response(SECURED);
    let cases = [
        LoginResponse { itt: control_itt(5), ..good },
        LoginResponse { version_active: 1, ..good },
        LoginResponse { current: Stage::Operational, next: Some(Stage::FullFeature), ..good },
        LoginResponse { next: Some(Stage::FullFeature), ..good },
    ];
    for response in cases {
        let mut lab = Lab::new();
        lab.feed(response, "AuthMethod=None\n");
        assert!(matches!(lab.ends.as_slice(), [LoginOutput::Failed(_)]), "{response:?}");
    }
    let mut lab = Lab::operational();
    let response = LoginResponse { tsih: Tsih(0), ..lab.response(DONE) };
    lab.feed(response, "");
    assert!(matches!(lab.error(), LoginError::Malformed(_)));
    let mut lab = Lab::operational();
    lab.stat_sn += 1;
    lab.answer(DONE, "");
    assert!(matches!(lab.error(), LoginError::Malformed(_)));
}

/// Covers: LGN-21.
#[test]
fn another_portal_group_is_refused() {
    let identity = Identity { portal_group_tag: Some(2), ..identity() };
    let mut lab = Lab::of(identity, &Settings::default(), None);
    lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
    assert_eq!(*lab.error(), LoginError::PortalGroup { got: 1, expected: 2 });
    assert_eq!(lab.requests.len(), 1, "before the login takes effect there");
}

/// Covers: PER-05/I, LGN-48/I.
#[test]
fn a_target_that_never_ends_is_left() {
    let mut lab = Lab::operational();
    while lab.ends.is_empty() {
        lab.answer(MORE, "");
        assert!(lab.requests.len() < 100);
    }
    assert_eq!(*lab.error(), LoginError::Exchanges);
    let mut lab = Lab::operational();
    let long = "x".repeat(8000);
    while lab.ends.is_empty() {
        let piece = LoginResponse { continue_: true, ..lab.response(MORE) };
        lab.feed(piece, &long);
    }
    assert_eq!(*lab.error(), LoginError::TextTooLong);
}

/// A target of RFC 3720 may ask for markers that we did not ask for: it gets none.
///
/// Covers: OBS-04.
#[test]
fn markers_that_the_target_wants_are_refused() {
    let mut lab = Lab::operational();
    lab.answer(MORE, "OFMarker=Yes\nIFMarker=Yes\n");
    let (_, said) = lab.requests.last().unwrap();
    for key in ["OFMarker", "IFMarker"] {
        let refused = [alloc::format!("{key}=No\n"), alloc::format!("{key}=Reject\n")];
        assert!(refused.iter().any(|answer| said.contains(answer)), "{said}");
    }
    lab.answer(DONE, "");
    assert_eq!(lab.done().parameters.markers, crate::datamover::Markers::default());
}

/// FastAbort is wished for beside what every target knows, never alone.
///
/// Covers: KEY-36/I.
#[test]
fn task_reporting_is_proposed_with_what_every_target_knows() {
    for fast_abort in [false, true] {
        let mut lab = Lab::with(&Settings { fast_abort, ..Settings::default() }, None);
        lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
        let text = &lab.requests.last().unwrap().1;
        let offer = text.lines().find_map(|pair| pair.strip_prefix("TaskReporting="));
        assert_eq!(offer.is_some(), fast_abort, "{text}");
        let offered: Vec<&str> = offer.unwrap_or_default().split(',').collect();
        for known in ["RFC3720", "ResponseFence"] {
            assert!(offer.is_none() || offered.contains(&known), "{offer:?}");
        }
    }
}

#[path = "tests/obsolete.rs"]
mod obsolete;
mod rdma;

mod answers;
