// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What RFC 7143 made obsolete, and what a login keeps or leaves behind.

use wire::iscsi::DataSn;
use wire::iscsi::Reject;

use super::*;
use crate::initiator::ConnectionId;

/// A target of RFC 3720 may name intervals of markers, too.
///
/// Covers: OBS-01/I, OBS-02/I, OBS-03/I.
#[test]
fn keys_of_markers_are_rejected_and_understood() {
    let mut lab = Lab::operational();
    lab.answer(MORE, "OFMarker=Yes\nIFMarker=Yes\nOFMarkInt=2048\nIFMarkInt=2048~8192\n");
    let (_, said) = lab.requests.last().unwrap();
    assert_eq!(said, "OFMarker=Reject\nIFMarker=Reject\nOFMarkInt=Reject\nIFMarkInt=Reject\n");
    lab.answer(DONE, "");
    assert_eq!(lab.done().parameters.markers, crate::datamover::Markers::default());
    let offered = lab.requests.iter().any(|(_, text)| text.contains("Mark"));
    assert!(!lab.requests[1].1.contains("Mark") && offered, "only as an answer");
}

/// Covers: OBS-05/I.
#[test]
fn spkm_is_neither_offered_nor_taken() {
    for client in [None, Some(client(false)), Some(client(true))] {
        let mut lab = Lab::with(&Settings::default(), client);
        assert!(!lab.requests[0].1.contains("SPKM"));
        lab.answer(STAYS, "AuthMethod=SPKM1\n");
        assert_eq!(*lab.error(), LoginError::AuthMethod);
    }
    let mut lab = Lab::new();
    lab.answer(STAYS, "SPKM_REQ=0x01\nSPKM_REP_TI=0x02\n");
    let answers = &lab.requests[1].1;
    assert_eq!(answers, "SPKM_REQ=NotUnderstood\nSPKM_REP_TI=NotUnderstood\n");
}

/// Covers: OBS-06/I.
#[test]
fn a_negotiation_that_the_target_resets_has_failed() {
    let mut lab = Lab::operational();
    let reject = Reject { reason: 0x0b, numbers: Numbers::default(), data_sn: DataSn(0) };
    let event = Event::Control { response: Response::Reject(reject) };
    lab.login.handle_event(event, &[0; 48], START);
    let mut closes = false;
    while let Some(output) = lab.login.poll_output() {
        closes |= matches!(output, LoginOutput::Op(Op::Terminate));
        if let LoginOutput::Failed(error) = output {
            assert!(closes, "first the connection");
            assert_eq!(error, LoginError::OtherPdu);
            return;
        }
    }
    panic!("the login goes on");
}

/// Covers: OBS-07/I.
#[test]
fn public_extensions_are_neither_understood_nor_made() {
    let mut lab = Lab::operational();
    lab.answer(MORE, "X#Foo=1\n");
    assert_eq!(lab.requests.last().unwrap().1, "X#Foo=NotUnderstood\n");
    let settings = Settings {
        markers: true,
        fast_abort: true,
        error_recovery_level: 2,
        connections: 4,
        ..Settings::default()
    };
    // In no stage, whatever it wishes for.
    for client in [None, Some(client(false)), Some(client(true))] {
        let lab = rules::whole(Lab::with(&settings, client));
        assert!(lab.requests.len() > 1);
        assert!(lab.requests.iter().all(|(_, text)| !text.contains("X#")));
    }
}

/// Covers: SES-28/I.
#[test]
fn all_requests_of_a_login_name_one_connection() {
    let identity = Identity { cid: Cid(7), ..identity() };
    let mut lab = Lab::of(identity, &Settings::default(), None);
    lab.answer(SECURED, "AuthMethod=None\n");
    lab.answer(MORE, "X-one=1\n");
    lab.answer(MORE, "X-two=1\n");
    lab.answer(DONE, "");
    assert_eq!(lab.requests.len(), 4);
    assert!(lab.requests.iter().all(|(request, _)| request.cid == Cid(7)));
    assert_eq!(lab.done().cid, Cid(7));
}

/// One more connection of a session whose first one agreed on all kinds of things: what is a
/// connection's own begins with the defaults, and what is the session's stays.
///
/// Covers: SES-30/I, MCS-04/I, SES-27.
#[test]
fn a_connection_begins_with_the_defaults_and_keeps_what_is_the_sessions() {
    let settings = Settings { error_recovery_level: 2, fast_abort: true, ..Settings::default() };
    let mut lab = Lab::with(&settings, None);
    lab.answer(SECURED, "AuthMethod=None\n");
    lab.answer(
        DONE,
        "MaxRecvDataSegmentLength=65536\nMaxBurstLength=32768\nFirstBurstLength=16384\n\
        InitialR2T=Yes\nHeaderDigest=CRC32C\nDataDigest=CRC32C\nErrorRecoveryLevel=1\n\
        TaskReporting=FastAbort\n",
    );
    let leading = lab.done().clone();
    assert!(leading.parameters.header_digest);
    let joining = Joining {
        connection: ConnectionId(1),
        tsih: leading.tsih,
        cid: Cid(1),
        cmd_sn: CmdSn(50),
        exp_stat_sn: StatSn(0),
        parameters: leading.parameters.clone(),
    };
    let login = Login::join(identity(), &settings, None, joining, START);
    let mut lab = Lab {
        login,
        requests: Vec::new(),
        ends: Vec::new(),
        closes: false,
        stat_sn: 7,
        keys: None,
    };
    lab.drain();
    lab.answer(SECURED, "AuthMethod=None\n");
    let offered = lab.requests[1].1.clone();
    let mut names: Vec<&str> = offered.lines().filter_map(|pair| pair.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["DataDigest", "HeaderDigest", "MaxRecvDataSegmentLength"]);
    lab.answer(DONE, "");
    let joined = lab.done();
    assert!(lab.requests.iter().all(|(request, _)| request.tsih == leading.tsih));
    let (own, session) = (&joined.parameters, &leading.parameters);
    assert_eq!(own.max_send_data_segment_length, 8192);
    assert!(!own.header_digest && !own.data_digest);
    assert_eq!(
        (own.max_burst_length, own.first_burst_length, own.error_recovery_level),
        (session.max_burst_length, session.first_burst_length, session.error_recovery_level)
    );
    assert_eq!((own.initial_r2t, own.task_reporting), (true, session.task_reporting));
    // A session that is no successor of it knows nothing of all that.
    let mut lab = Lab::operational();
    lab.answer(DONE, "");
    let own = &lab.done().parameters;
    assert_eq!((own.max_burst_length, own.max_send_data_segment_length), (262_144, 8192));
    assert!(!own.header_digest && own.error_recovery_level == 0);
}

/// A connection that would lead to another group of portals is given up before it is part of the
/// session.
///
/// Covers: MCS-03/I.
#[test]
fn a_session_spans_one_portal_group() {
    let leading = {
        let mut lab = Lab::operational();
        lab.answer(DONE, "");
        lab.done().clone()
    };
    for (group, fits) in [(1, true), (2, false)] {
        let joining = Joining {
            connection: ConnectionId(1),
            tsih: leading.tsih,
            cid: Cid(1),
            cmd_sn: CmdSn(50),
            exp_stat_sn: StatSn(0),
            parameters: leading.parameters.clone(),
        };
        let identity = Identity { portal_group_tag: leading.portal_group_tag, ..identity() };
        let login = Login::join(identity, &Settings::default(), None, joining, START);
        let mut lab = Lab {
            login,
            requests: Vec::new(),
            ends: Vec::new(),
            closes: false,
            stat_sn: 7,
            keys: None,
        };
        lab.drain();
        lab.answer(SECURED, &format!("AuthMethod=None\nTargetPortalGroupTag={group}\n"));
        if fits {
            lab.answer(DONE, "");
            assert_eq!(lab.done().cid, Cid(1));
        } else {
            assert_eq!(*lab.error(), LoginError::PortalGroup { got: 2, expected: 1 });
        }
    }
}

/// A session that may still be there at the target makes room for this one.
///
/// Covers: SES-20.
#[test]
fn a_session_is_reinstated_by_its_isid_without_a_tsih() {
    for reinstates in [false, true] {
        let mut lab = Lab::of(Identity { reinstates, ..identity() }, &Settings::default(), None);
        lab.answer(SECURED, "AuthMethod=None\n");
        lab.answer(DONE, "");
        let named = |(request, _): &(LoginRequest, String)| (request.tsih, request.isid);
        assert!(lab.requests.iter().map(named).all(|name| name == (Tsih(0), ISID)));
        assert_eq!(lab.done().tsih, Tsih(9));
    }
}
