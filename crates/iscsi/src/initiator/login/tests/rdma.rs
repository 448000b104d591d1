// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of iSER (RFC 7145 §6), from the initiator's side.

use super::*;

const POSSIBLE: Capabilities = Capabilities { rdma: Rdma::Possible, ..Capabilities::STREAM };

fn offered(capabilities: Capabilities) -> Lab {
    let wishes = Settings {
        header_digest: DigestOffer::Required,
        error_recovery_level: 2,
        connections: 4,
        markers: true,
        ..Settings::default()
    };
    let mut lab = Lab::with(&wishes.within(capabilities), None);
    lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
    lab
}

/// Covers: ISK-01/I, ISK-09/I, ISK-12.
#[test]
fn it_is_asked_for_where_it_is_wanted_and_nothing_goes_on_without() {
    for capabilities in [Capabilities::RDMA, POSSIBLE] {
        let mut lab = offered(capabilities);
        let text = lab.requests[1].1.clone();
        for pair in [
            "RDMAExtensions=Yes\n",
            "TargetRecvDataSegmentLength=8192\n",
            "InitiatorRecvDataSegmentLength=8192\n",
            "HeaderDigest=None\n",
            "ErrorRecoveryLevel=2\n",
            "MaxOutstandingUnexpectedPDUs=1024\n",
            "DataPDUInOrder=Yes\n",
            "MaxConnections=4\n",
        ] {
            assert!(text.contains(pair), "{pair} in {text}");
        }
        assert!(!text.contains("Marker"), "{text}");
        let is_said = text.contains("TaggedBufferForSolicitedDataOnly=Yes\n");
        assert_eq!(is_said, capabilities == Capabilities::RDMA);
        lab.answer(DONE, "RDMAExtensions=No\n");
        assert_eq!(*lab.error(), LoginError::NoRdma);
        for answers in ["", "RDMAExtensions=NotUnderstood\n"] {
            let mut lab = offered(capabilities);
            lab.answer(DONE, answers);
            assert_eq!(*lab.error(), LoginError::NoRdma);
        }
    }
    let lab = offered(Capabilities::STREAM);
    assert!(!lab.requests[1].1.contains("RDMA"));
}

/// Covers: ISK-05/I, ISK-06/I, ISK-07/I.
#[test]
fn the_targets_limits_hold() {
    for capabilities in [Capabilities::RDMA, POSSIBLE] {
        let mut lab = offered(capabilities);
        lab.answer(
            DONE,
            "RDMAExtensions=Yes\nTargetRecvDataSegmentLength=4096\n\
             InitiatorRecvDataSegmentLength=512\nMaxRecvDataSegmentLength=65536\n\
             MaxOutstandingUnexpectedPDUs=2\nMaxAHSLength=28\n",
        );
        let agreed = &lab.done().parameters;
        assert_eq!(agreed.max_send_data_segment_length, 4096);
        assert_eq!(agreed.max_recv_data_segment_length, 512);
        let keys = lab.keys.unwrap();
        assert_eq!((keys.max_send_data_segment_length, keys.unexpected_max), (4096, 2));
        let mut lab = offered(capabilities);
        // As LIO, which does not know these keys.
        let unknown = match capabilities {
            Capabilities::RDMA => "TaggedBufferForSolicitedDataOnly=NotUnderstood\n",
            _ => "",
        };
        let limit = "MaxOutstandingUnexpectedPDUs=NotUnderstood\n";
        lab.answer(DONE, &format!("RDMAExtensions=Yes\n{unknown}{limit}"));
        assert_eq!(lab.keys.unwrap().solicited_only, capabilities == Capabilities::RDMA);
        let agreed = &lab.done().parameters;
        assert_eq!(agreed.max_send_data_segment_length, 8192);
        assert_eq!(lab.keys.unwrap().unexpected_max, 0);
        let mut lab = offered(capabilities);
        lab.answer(DONE, "RDMAExtensions=Yes\nTargetRecvDataSegmentLength=16384\n");
        assert!(matches!(lab.error(), LoginError::Answer { .. }), "more than was offered");
    }
}

/// Covers: ISK-11/I.
#[test]
fn a_target_that_takes_no_long_commands_will_not_do() {
    for (told, goes_on) in [(2, false), (16, false), (27, false), (28, true), (0, true)] {
        let mut lab = offered(Capabilities::RDMA);
        lab.answer(DONE, &format!("RDMAExtensions=Yes\nMaxAHSLength={told}\n"));
        match goes_on {
            true => assert!(lab.done().parameters.rdma.is_some()),
            false => assert_eq!(*lab.error(), LoginError::AdditionalHeaders(told)),
        }
    }
}

/// Covers: ISC-17/I, ISK-01/I.
#[test]
fn discovery_does_not_ask_for_it() {
    let identity = Identity { discovery: true, target: None, ..identity() };
    for (capabilities, has_rdma) in [(Capabilities::RDMA, true), (POSSIBLE, false)] {
        let settings = Settings::default().within(capabilities);
        let mut lab = Lab::of(identity.clone(), &settings, None);
        lab.answer(SECURED, "AuthMethod=None\n");
        assert!(!lab.requests[1].1.contains("RDMA"));
        lab.answer(DONE, "");
        assert_eq!(lab.done().parameters.rdma.is_some(), has_rdma, "where it began with RDMA");
    }
}

/// Whatever was asked for and answered.
///
/// Covers: ISK-04/I, ISK-08/I.
#[test]
fn nothing_guards_bytes_on_their_way_and_nothing_marks_them() {
    let wishes = Settings {
        header_digest: DigestOffer::Preferred,
        data_digest: DigestOffer::Preferred,
        markers: true,
        rdma: Rdma::Always,
        ..Settings::default()
    };
    let mut lab = Lab::with(&wishes, None);
    lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
    let digests = "HeaderDigest=CRC32C\nDataDigest=CRC32C\n";
    lab.answer(DONE, &format!("RDMAExtensions=Yes\n{digests}OFMarker=Yes\nIFMarker=Yes\n"));
    let (agreed, keys) = (&lab.done().parameters, lab.keys.unwrap());
    assert_eq!((agreed.header_digest, agreed.data_digest), (false, false));
    assert_eq!((keys.header_digest, keys.data_digest), (false, false));
    assert_eq!(keys.markers, crate::datamover::Markers::default());
}

/// Covers: ISK-01/I, ISK-02/I, ISK-09/I.
#[test]
fn a_connection_that_joins_has_what_its_session_has() {
    for capabilities in [Capabilities::RDMA, POSSIBLE] {
        joins(capabilities);
    }
}

fn joins(capabilities: Capabilities) {
    let mut lab = offered(capabilities);
    assert!(!lab.requests[0].1.contains("RDMA"), "{}", lab.requests[0].1);
    assert!(lab.requests[1].1.contains("RDMAExtensions=Yes\n"));
    lab.answer(DONE, "RDMAExtensions=Yes\nMaxConnections=2\n");
    let joining = Joining {
        connection: crate::initiator::ConnectionId(1),
        tsih: Tsih(9),
        cid: Cid(1),
        cmd_sn: CmdSn(40),
        exp_stat_sn: StatSn(0),
        parameters: lab.done().parameters.clone(),
    };
    let settings = Settings::default().within(capabilities);
    let mut lab = Lab::of_login(Login::join(identity(), &settings, None, joining, START));
    lab.answer(SECURED, "AuthMethod=None\n");
    let text: String = lab.requests.iter().map(|(_, text)| text.as_str()).collect();
    assert!(!text.contains("RDMAExtensions") && text.contains("TargetRecvDataSegmentLength=8192"));
    assert!(!text.contains("MaxOutstandingUnexpectedPDUs"), "the session has its limit");
    lab.answer(MORE, "RDMAExtensions=Yes\n");
    let refused = lab.requests.last().map(|(_, text)| text.as_str());
    assert_eq!(refused, Some("RDMAExtensions=Reject\n"), "it was agreed on for the session");
    lab.answer(DONE, "TargetRecvDataSegmentLength=512\nMaxRecvDataSegmentLength=65536\n");
    let agreed = &lab.done().parameters;
    assert!(agreed.rdma.is_some() && agreed.max_send_data_segment_length == 512);
    assert_eq!(agreed.max_recv_data_segment_length, 8192);
}

/// Covers: ISK-13, ISC-08.
#[test]
fn whoever_wants_a_hello_says_so() {
    for (hello, begins) in [(false, false), (true, true)] {
        for capabilities in [Capabilities::RDMA, POSSIBLE] {
            let settings = Settings { hello, ..Settings::default() };
            let mut lab = Lab::with(&settings.within(capabilities), None);
            lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
            assert_eq!(lab.requests[1].1.contains("iSERHelloRequired=Yes\n"), hello);
            lab.answer(DONE, "RDMAExtensions=Yes\n");
            assert_eq!(lab.keys.unwrap().hello, begins);
        }
        let mut lab = Lab::with(&Settings { hello, ..Settings::default() }, None);
        lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
        assert!(!lab.requests[1].1.contains("iSER"), "a byte stream has none");
    }
}

/// Covers: ISK-10/I, ISK-09/I.
#[test]
fn a_limit_is_none_or_begins_with_two() {
    for (pair, unexpected_max) in [
        ("MaxAHSLength=1", None),
        ("MaxOutstandingUnexpectedPDUs=1", None),
        ("MaxOutstandingUnexpectedPDUs=4294967296", None),
        ("MaxAHSLength=0", Some(0)),
        ("MaxAHSLength=4294967295", Some(0)),
        ("MaxOutstandingUnexpectedPDUs=0", Some(0)),
        ("MaxOutstandingUnexpectedPDUs=2", Some(2)),
        ("MaxOutstandingUnexpectedPDUs=4294967295", Some(u32::MAX)),
    ] {
        let mut lab = offered(Capabilities::RDMA);
        lab.answer(DONE, &format!("RDMAExtensions=Yes\n{pair}\n"));
        match unexpected_max {
            None => assert!(matches!(lab.error(), LoginError::Answer { .. }), "{pair}"),
            max => {
                let agreed = lab.done().parameters.rdma.map(|rdma| rdma.unexpected_max);
                assert_eq!(agreed, max, "{pair}");
            }
        }
    }
}
