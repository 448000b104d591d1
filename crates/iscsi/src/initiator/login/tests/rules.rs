// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds for every request of a login, whichever way it takes, and for what a target offers.

use super::*;
use crate::initiator::ConnectionId;

/// Without a proof, with one of ours, with one of both sides.
fn clients() -> [Option<Client>; 3] {
    [None, Some(client(false)), Some(client(true))]
}

/// A login that adds a connection to a session, or replaces one of it.
fn joining(client: Option<Client>) -> Lab {
    joining_to(whole(Lab::new()).done().parameters.clone(), client)
}

fn joining_to(parameters: crate::initiator::Parameters, client: Option<Client>) -> Lab {
    let joining = Joining {
        connection: ConnectionId(1),
        tsih: Tsih(9),
        cid: Cid(3),
        cmd_sn: CmdSn(77),
        exp_stat_sn: StatSn(0),
        parameters,
    };
    Lab::of_login(Login::join(identity(), &Settings::default(), client, joining, START))
}

/// Every way in which a login begins.
fn beginnings() -> Vec<Lab> {
    let leading = clients().map(|client| Lab::with(&Settings::default(), client));
    leading.into_iter().chain(clients().map(joining)).collect()
}

/// The target's proof for the challenge of [`client`].
fn proof() -> String {
    let secret = Secret::new(b"secret of disk").unwrap();
    let response = Algorithm::Md5.response(1, &secret, &[7; 16]);
    let digits: String = response.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("CHAP_N=disk\nCHAP_R=0x{digits}\n")
}

/// Goes all the way, with a target that takes proofs and gives its own.
pub(super) fn whole(mut lab: Lab) -> Lab {
    let group = "TargetPortalGroupTag=1\n";
    let offer = lab.requests[0].1.clone();
    if offer.contains("AuthMethod=None") {
        lab.answer(SECURED, &format!("AuthMethod=None\n{group}"));
    } else {
        lab.answer(STAYS, &format!("AuthMethod=CHAP\n{group}"));
        lab.answer(STAYS, "CHAP_A=5\nCHAP_I=3\nCHAP_C=0x01020304\n");
        let mutual = !offer.contains("AuthMethod=CHAP,None");
        let answer = if mutual { proof() } else { String::new() };
        lab.answer(SECURED, &answer);
    }
    lab.answer(DONE, "");
    lab.done();
    assert!(!lab.closes);
    lab
}

fn has(text: &str, pair: &str) -> bool {
    text.lines().any(|line| line == pair)
}

fn keys(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.split_once('=')).map(|(key, _)| key).collect()
}

/// Covers: NAM-04, NAM-15, NAM-16.
#[test]
fn every_connection_says_who_and_whom_and_says_it_once() {
    for lab in beginnings() {
        let lab = whole(lab);
        let first = &lab.requests[0].1;
        assert!(has(first, "InitiatorName=iqn.2026-01.com.example:host"), "{first}");
        assert!(has(first, "TargetName=iqn.2026-01.com.example:disk"), "{first}");
        let all: Vec<&str> = lab.requests.iter().flat_map(|(_, text)| keys(text)).collect();
        for key in ["InitiatorName", "TargetName"] {
            assert_eq!(all.iter().filter(|one| **one == key).count(), 1, "{all:?}");
        }
    }
}

/// Covers: LGN-28/I, LGN-30/I, LGN-33.
#[test]
fn what_names_the_login_stays_the_same() {
    for lab in beginnings() {
        let lab = whole(lab);
        let first = lab.requests[0].0;
        assert!(lab.requests.len() > 1);
        for (request, _) in &lab.requests {
            assert_eq!(request.itt, first.itt);
            assert_eq!((request.version_min, request.version_max), (0, 0));
            assert_eq!((request.isid, request.tsih), (first.isid, first.tsih));
            assert_eq!((request.cid, request.cmd_sn), (first.cid, first.cmd_sn));
        }
        assert_eq!(lab.done().cmd_sn, first.cmd_sn, "that of the first command");
    }
}

/// Covers: LGN-05/I.
#[test]
fn each_response_is_followed_by_one_request() {
    for mut lab in beginnings() {
        let later = START + Settings::default().login_timeout / 2;
        lab.login.handle_timeout(later);
        lab.drain();
        assert_eq!(lab.requests.len(), 1, "nothing more before the answer");
        for (count, piece) in [(2, "X-a=1\n"), (3, ""), (4, "X-b=1\n")] {
            let response = LoginResponse { continue_: true, ..lab.response(STAYS) };
            lab.feed(response, piece);
            assert_eq!(lab.requests.len(), count);
        }
    }
    for lab in beginnings() {
        let steps = if has(&lab.requests[0].1, "AuthMethod=None") { 2 } else { 4 };
        assert_eq!(whole(lab).requests.len(), steps, "as many as responses");
    }
}

/// Covers: LGN-08/I, LGN-09/I.
#[test]
fn stages_come_in_their_order() {
    let stages = |lab: &Lab| -> Vec<(Stage, Option<Stage>)> {
        lab.requests.iter().map(|(request, _)| (request.current, request.next)).collect()
    };
    let (security, operational) = (Stage::Security, Stage::Operational);
    let last = (operational, Some(Stage::FullFeature));
    let plain = [(security, Some(operational)), last];
    let proved = [(security, None), (security, None), (security, Some(operational)), last];
    for lab in beginnings() {
        let lab = whole(lab);
        let expected = if lab.requests.len() == 2 { &plain[..] } else { &proved[..] };
        assert_eq!(stages(&lab), expected);
        assert!(lab.requests.iter().all(|(request, _)| request.transit == request.next.is_some()));
    }
    // A target that is not ready leaves it where it is.
    let mut lab = Lab::new();
    lab.answer(STAYS, "AuthMethod=None\n");
    lab.answer(SECURED, "");
    lab.answer(MORE, "");
    assert_eq!(stages(&lab), [plain[0], plain[0], last, last]);
    // Nor does it follow a target to where it did not ask to go.
    for next in [Stage::FullFeature, Stage::Security] {
        let mut lab = Lab::new();
        lab.answer((security, Some(next)), "AuthMethod=None\n");
        assert!(matches!(lab.error(), LoginError::Malformed(_)));
    }
}

/// Covers: LGN-13/I.
#[test]
fn a_transition_that_was_refused_is_asked_for_again() {
    let mut lab = Lab::new();
    assert!(lab.requests[0].0.transit);
    lab.answer(STAYS, "AuthMethod=None\n");
    lab.answer(STAYS, "");
    let (again, _) = lab.requests[2];
    assert_eq!((again.current, again.next), (Stage::Security, Some(Stage::Operational)));
    lab.answer(SECURED, "");
    lab.answer(MORE, "MaxRecvDataSegmentLength=65536\n");
    // A text in pieces is asked for with T=0, and after it T=1 again.
    let piece = LoginResponse { continue_: true, ..lab.response(MORE) };
    lab.feed(piece, "TargetAlias=a ");
    assert!(!lab.requests.last().unwrap().0.transit);
    lab.answer(MORE, "disk\n");
    assert!(lab.requests.last().unwrap().0.transit);
    lab.answer(DONE, "");
    assert_eq!(lab.done().target_alias.as_deref(), Some("a disk"));
}

/// Covers: LGN-38/I, LGN-01.
#[test]
fn a_status_other_than_success_closes_the_connection() {
    for status in [0x0101, 0x0102, 0x0200, 0x0203, 0x020b, 0x0300, 0x0302, 0x0401] {
        for stages in [STAYS, MORE] {
            let mut lab = if stages == STAYS { Lab::new() } else { Lab::operational() };
            let response = LoginResponse { status, ..lab.response(stages) };
            lab.feed(response, "TargetAddress=192.0.2.7:3260\n");
            assert!(lab.closes && lab.ends.len() == 1, "{status:04x}");
            let begins =
                |(request, _): &&(LoginRequest, String)| request.current == Stage::Security;
            assert_eq!(lab.requests.iter().filter(begins).count(), 1, "not once more, here");
            assert_eq!(lab.login.poll_timeout(), None);
        }
    }
}

/// Covers: LGN-47/I.
#[test]
fn seven_exchanges_are_no_reason_to_give_up() {
    let mut lab = Lab::operational();
    for _ in 0..7 {
        lab.answer(MORE, "");
    }
    lab.answer(DONE, "");
    lab.done();
}

/// Covers: CHP-04/I.
#[test]
fn the_security_stage_has_its_own_keys_only() {
    const ALLOWED: [&str; 10] = [
        "SessionType",
        "InitiatorName",
        "TargetName",
        "InitiatorAlias",
        "AuthMethod",
        "CHAP_A",
        "CHAP_N",
        "CHAP_R",
        "CHAP_I",
        "CHAP_C",
    ];
    for lab in beginnings() {
        let lab = whole(lab);
        let security = lab.requests.iter().filter(|(one, _)| one.current == Stage::Security);
        for (_, text) in security {
            assert!(keys(text).iter().all(|key| ALLOWED.contains(key)), "{text}");
        }
    }
    let of_connection =
        [("MaxRecvDataSegmentLength", "65536"), ("HeaderDigest", "None"), ("DataDigest", "None")];
    for (name, value) in of_connection.into_iter().chain(keys::OF_SESSION) {
        let mut lab = Lab::new();
        lab.answer(STAYS, &format!("{name}={value}\n"));
        assert!(matches!(lab.error(), LoginError::KeyStage { key, .. } if *key == name), "{name}");
    }
}

/// Covers: CHP-01/I, CHP-07, CHP-17.
#[test]
fn both_sides_prove_themselves() {
    let lab = whole(Lab::with(&Settings::default(), Some(client(true))));
    assert_eq!(lab.done().authentication, Authenticated::Both);
    let text = &lab.requests[2].1;
    assert_eq!(keys(text), ["CHAP_N", "CHAP_R", "CHAP_I", "CHAP_C"]);
    assert!(has(text, "CHAP_N=host") && has(text, "CHAP_I=1"), "{text}");
    let own = format!("CHAP_C=0x{}", "07".repeat(16));
    assert!(has(text, &own), "a challenge of its own, not the target's: {text}");
    let lab = whole(Lab::with(&Settings::default(), Some(client(false))));
    assert_eq!(lab.done().authentication, Authenticated::Initiator);
    assert_eq!(keys(&lab.requests[2].1), ["CHAP_N", "CHAP_R"]);
}

/// A secret is never in what is sent, nor in what is logged.
///
/// Covers: CHP-26/I.
#[test]
fn no_secret_is_sent_or_shown() {
    for mutual in [false, true] {
        let lab = whole(Lab::with(&Settings::default(), Some(client(mutual))));
        let sent: String = lab.requests.iter().map(|(_, text)| text.as_str()).collect();
        let shown = format!("{:?} {:?}", lab.login, client(mutual));
        let hex =
            |secret: &str| -> String { secret.bytes().map(|byte| format!("{byte:02x}")).collect() };
        for secret in ["secret of host", "secret of disk"] {
            for form in [secret.to_string(), hex(secret), format!("{:?}", secret.as_bytes())] {
                assert!(!sent.contains(&form) && !shown.contains(&form), "{form}");
            }
        }
    }
}

/// Covers: CHP-02/I, CHP-27/I.
#[test]
fn each_connection_offers_its_methods() {
    let offers = ["AuthMethod=None", "AuthMethod=CHAP,None", "AuthMethod=CHAP"];
    for (lab, offer) in beginnings().iter().zip(offers.iter().cycle()) {
        let (request, text) = &lab.requests[0];
        assert_eq!(request.current, Stage::Security);
        assert!(has(text, offer), "{offer}: {text}");
    }
    // One of the list, and no other.
    let mut lab = Lab::with(&Settings::default(), Some(client(false)));
    lab.answer(SECURED, "AuthMethod=None\n");
    assert!(lab.ends.is_empty());
    for other in ["KRB5", "CHAP,None", "chap", ""] {
        let mut lab = Lab::with(&Settings::default(), Some(client(false)));
        lab.answer(STAYS, &format!("AuthMethod={other}\n"));
        assert_eq!(*lab.error(), LoginError::AuthMethod, "{other}");
    }
}

/// A discovery login of an initiator that wishes for all that there is.
fn discovery() -> Lab {
    let identity = Identity { target: None, discovery: true, ..identity() };
    let settings = Settings { error_recovery_level: 2, connections: 4, ..Settings::default() };
    let mut lab = Lab::of(identity, &settings, None);
    lab.answer(SECURED, "AuthMethod=None\n");
    lab
}

/// Covers: DIS-13/I, DIS-14/I, P44-01c/I.
#[test]
fn a_discovery_session_is_a_plain_one() {
    let mut lab = discovery();
    let offers = lab.requests.iter().map(|(_, text)| &**text).collect::<String>();
    assert!(has(&offers, "ErrorRecoveryLevel=0"), "{offers}");
    for key in ["MaxConnections", "iSCSIProtocolLevel", "InitialR2T", "MaxBurstLength"] {
        assert!(!keys(&offers).contains(&key), "{offers}");
    }
    // Nor is more agreed to, and no level of the protocol is wrong.
    lab.answer(MORE, "MaxConnections=8\niSCSIProtocolLevel=2\n");
    let answers = &lab.requests[2].1;
    assert_eq!(answers, "MaxConnections=1\niSCSIProtocolLevel=1\n");
    lab.answer(DONE, "ErrorRecoveryLevel=0\n");
    let agreed = &lab.done().parameters;
    assert_eq!((agreed.error_recovery_level, agreed.max_connections), (0, 1));
}

/// Covers: P44-01a/I.
#[test]
fn a_protocol_level_is_answered_by_the_smaller_one() {
    let cases = [("0", "0", 0), ("1", "1", 1), ("2", "1", 1), ("3", "1", 1), ("31", "1", 1)];
    let wrong = ["32", "-1", "two", ""].map(|wrong| (wrong, "Reject", 1));
    for (offer, answer, agreed) in cases.into_iter().chain(wrong) {
        let mut lab = Lab::operational();
        lab.answer(MORE, &format!("iSCSIProtocolLevel={offer}\n"));
        assert_eq!(lab.requests[2].1, format!("iSCSIProtocolLevel={answer}\n"));
        lab.answer(DONE, "");
        assert_eq!(lab.done().parameters.protocol_level, agreed, "{offer}");
    }
}

/// Covers: P44-01b/I, P44-01d/I.
#[test]
fn the_protocol_level_is_the_sessions() {
    let session = whole(Lab::new());
    assert_eq!(session.done().parameters.protocol_level, 1, "where nobody speaks of it");
    // What a target says to a connection that joins changes nothing.
    for (leading, later) in [("", "0"), ("0", "1"), ("1", "0")] {
        let mut lead = Lab::operational();
        if !leading.is_empty() {
            lead.answer(MORE, &format!("iSCSIProtocolLevel={leading}\n"));
        }
        lead.answer(DONE, "");
        let session = lead.done().parameters.clone();
        let expected = if leading.is_empty() { "1" } else { leading };
        assert_eq!(session.protocol_level.to_string(), expected);
        let mut lab = joining_to(session.clone(), None);
        lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
        lab.answer(MORE, &format!("iSCSIProtocolLevel={later}\n"));
        assert_eq!(lab.requests[2].1, "iSCSIProtocolLevel=Reject\n");
        lab.answer(DONE, "");
        assert_eq!(lab.done().parameters.protocol_level, session.protocol_level);
    }
    for lab in beginnings() {
        let lab = whole(lab);
        assert!(lab.requests.iter().all(|(_, text)| !keys(text).contains(&"iSCSIProtocolLevel")));
    }
}

/// Covers: LGN-50/I, NEG-15/I.
#[test]
fn every_key_of_the_standard_is_understood() {
    let negotiated = [
        "HeaderDigest=None",
        "DataDigest=None",
        "MaxConnections=1",
        "InitialR2T=Yes",
        "ImmediateData=Yes",
        "MaxBurstLength=65536",
        "FirstBurstLength=65536",
        "DefaultTime2Wait=2",
        "DefaultTime2Retain=0",
        "MaxOutstandingR2T=1",
        "DataPDUInOrder=Yes",
        "DataSequenceInOrder=Yes",
        "ErrorRecoveryLevel=0",
        "TaskReporting=RFC3720",
        "iSCSIProtocolLevel=1",
        "IFMarker=No",
        "OFMarker=No",
        "IFMarkInt=2048",
        "OFMarkInt=2048",
    ];
    let declared = [
        "TargetAlias=a disk",
        "TargetAddress=192.0.2.7:3260,1",
        "MaxRecvDataSegmentLength=8192",
        "X#NodeArchitecture=a",
    ];
    let text: String = [&negotiated[..], &declared[..]].concat().join("\n") + "\n";
    for mut lab in [Lab::operational(), discovery()] {
        let offered = lab.requests[1].1.clone();
        lab.answer(MORE, &text);
        let answers = &lab.requests[2].1;
        assert!(!answers.contains("NotUnderstood"), "{answers}");
        for pair in negotiated {
            let key = pair.split('=').next().unwrap();
            let is_answer = keys(&offered).contains(&key);
            assert_ne!(keys(answers).contains(&key), is_answer, "{key}: {answers}");
        }
        lab.answer(DONE, "");
        lab.done();
    }
}
