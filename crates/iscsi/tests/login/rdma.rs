// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of iSER (RFC 7145 §6), on connections that begin with RDMA and on those that can go on
//! with it.

use iscsi::datamover::Capabilities;
use iscsi::datamover::Markers;
use iscsi::datamover::Rdma;
use iscsi::target_role::DigestPolicy;
use iscsi::target_role::RdmaParameters;
use iscsi::target_role::Settings;
use wire::iscsi::LoginRequest;
use wire::iscsi::Tsih;

use crate::driver::Driver;
use crate::driver::Step;
use crate::driver::last;
use crate::driver::operational;
use crate::driver::settings;

const POSSIBLE: Capabilities = Capabilities { rdma: Rdma::Possible, ..Capabilities::STREAM };

fn wide() -> Settings {
    Settings {
        header_digest: DigestPolicy::Any,
        data_digest: DigestPolicy::Any,
        error_recovery_level: 2,
        max_connections: 4,
        markers: true,
        ..settings()
    }
}

fn over(capabilities: Capabilities, pairs: &[&str]) -> Step {
    Driver::over(capabilities, wide()).named(last(), pairs)
}

const PLAIN: RdmaParameters = RdmaParameters {
    unexpected_max: 0,
    own_unexpected_max: 0,
    solicited_only: false,
    hello: false,
};

/// Covers: ISK-01/T.
#[test]
fn both_sides_must_say_yes() {
    for (capabilities, offer, answer) in [
        (Capabilities::STREAM, "Yes", "No"),
        (POSSIBLE, "Yes", "Yes"),
        (POSSIBLE, "No", "No"),
        (Capabilities::RDMA, "Yes", "Yes"),
    ] {
        let offer = format!("RDMAExtensions={offer}");
        let step = over(capabilities, &[&offer]);
        assert_eq!(step.answer("RDMAExtensions").as_deref(), Some(answer));
        let agreed = answer == "Yes";
        let solicited_only = capabilities == Capabilities::RDMA;
        let rdma = agreed.then_some(RdmaParameters { solicited_only, ..PLAIN });
        assert_eq!(step.done().parameters.rdma, rdma);
        let goes_on = if agreed { Capabilities::RDMA } else { capabilities };
        assert_eq!(step.done().capabilities, goes_on);
    }
    over(Capabilities::RDMA, &["RDMAExtensions=No"]).assert_failed_for(0x0207, "RDMAExtensions");
    over(Capabilities::RDMA, &[]).assert_failed_for(0x0207, "RDMAExtensions");
}

/// Covers: ISK-05/T, ISK-06/T, ISK-07/T.
#[test]
fn other_keys_say_how_much_data_a_pdu_has() {
    let lengths = |target: u32, initiator: u32| {
        [
            format!("TargetRecvDataSegmentLength={target}"),
            format!("InitiatorRecvDataSegmentLength={initiator}"),
            "MaxRecvDataSegmentLength=512".to_owned(),
        ]
    };
    for (capabilities, is_last) in [(Capabilities::RDMA, true), (POSSIBLE, true), (POSSIBLE, false)]
    {
        for ((target, initiator), (takes, sends)) in [
            ((512, 16_777_215), (512, 8192)),
            ((16_777_215, 512), (8192, 512)),
            ((4096, 8192), (4096, 8192)),
        ] {
            let lengths = lengths(target, initiator);
            let mut pairs: Vec<&str> = lengths.iter().map(String::as_str).collect();
            // Wherever it stands in the text.
            pairs.insert(if is_last { pairs.len() } else { 0 }, "RDMAExtensions=Yes");
            let step = over(capabilities, &pairs);
            let answer = |key| step.answer(key).expect("an answer").parse::<u32>().expect("one");
            assert_eq!(answer("TargetRecvDataSegmentLength"), takes);
            assert_eq!(answer("InitiatorRecvDataSegmentLength"), sends);
            let agreed = &step.done().parameters;
            assert_eq!(agreed.max_recv_data_segment_length, takes);
            assert_eq!(agreed.max_send_data_segment_length, sends);
            let keys = step.keys.expect("told");
            assert_eq!(keys.max_recv_data_segment_length, takes);
        }
        for length in ["511", "16777216"] {
            let pair = format!("TargetRecvDataSegmentLength={length}");
            let step = over(capabilities, &["RDMAExtensions=Yes", &pair]);
            assert_eq!(step.answer("TargetRecvDataSegmentLength").as_deref(), Some("Reject"));
            assert_eq!(step.done().parameters.max_recv_data_segment_length, 8192);
        }
    }
    let step = over(POSSIBLE, &["RDMAExtensions=No", "TargetRecvDataSegmentLength=4096"]);
    assert_eq!(step.answer("TargetRecvDataSegmentLength").as_deref(), Some("Irrelevant"));
}

/// Covers: ISK-04/T, ISK-08/T.
#[test]
fn there_are_no_digests_and_no_markers_and_each_level_may_be_agreed_on() {
    let offers = [
        "HeaderDigest=CRC32C,None",
        "DataDigest=CRC32C,None",
        "OFMarker=Yes",
        "IFMarker=Yes",
        "ErrorRecoveryLevel=2",
        "DataPDUInOrder=No",
        "RDMAExtensions=Yes",
    ];
    for capabilities in [POSSIBLE, Capabilities::RDMA] {
        let step = over(capabilities, &offers);
        let (agreed, keys) = (&step.done().parameters, step.keys.expect("told"));
        assert_eq!((agreed.header_digest, agreed.data_digest), (false, false));
        assert_eq!((keys.header_digest, keys.data_digest), (false, false));
        assert_eq!((agreed.markers, keys.markers), (Markers::default(), Markers::default()));
        assert_eq!((agreed.error_recovery_level, agreed.data_pdu_in_order), (2, true));
    }
    // An adapter has memory until it says that it is done.
    let adapter = Capabilities { recovery_level: 1, buffers: Some(160), ..Capabilities::RDMA };
    assert_eq!(over(adapter, &offers).done().parameters.error_recovery_level, 1);
    let required = Settings {
        header_digest: DigestPolicy::Required,
        data_digest: DigestPolicy::Required,
        ..settings()
    };
    let step = Driver::over(POSSIBLE, required).named(last(), &["RDMAExtensions=Yes"]);
    assert!(!step.done().parameters.header_digest, "others guard what is on its way");
}

#[test]
fn what_was_agreed_on_before_stays_and_then_there_is_no_rdma() {
    for (before, answer) in
        [("DataPDUInOrder=No", "No"), ("ErrorRecoveryLevel=2", "Yes"), ("MaxConnections=2", "Yes")]
    {
        let mut driver = Driver::over(POSSIBLE, wide());
        driver.named(operational(), &[before]);
        let step = driver.keys(last(), &["RDMAExtensions=Yes"]);
        assert_eq!(step.answer("RDMAExtensions").as_deref(), Some(answer), "{before}");
        assert_eq!(step.done().parameters.rdma.is_some(), answer == "Yes");
    }
    let step = over(POSSIBLE, &["DataPDUInOrder=No", "RDMAExtensions=Yes"]);
    assert_eq!(step.answer("DataPDUInOrder").as_deref(), Some("Yes"));
    for with in ["RDMAExtensions=Yes", "RDMAExtensions=No"] {
        let step = over(POSSIBLE, &["MaxConnections=4", "ErrorRecoveryLevel=2", with]);
        assert_eq!(step.answer("MaxConnections").as_deref(), Some("4"));
        assert_eq!(step.answer("ErrorRecoveryLevel").as_deref(), Some("2"));
    }
}

/// Covers: ISK-09/T, ISK-10/T.
#[test]
fn limits_are_declared() {
    let pairs = [
        "RDMAExtensions=Yes",
        "MaxOutstandingUnexpectedPDUs=2",
        "MaxAHSLength=32",
        "TaggedBufferForSolicitedDataOnly=Yes",
    ];
    for capabilities in [POSSIBLE, Capabilities::RDMA] {
        let step = over(capabilities, &pairs);
        assert_eq!(step.answer("MaxOutstandingUnexpectedPDUs").as_deref(), Some("1024"));
        assert_eq!(step.answer("MaxAHSLength"), None, "the default stands");
        let keys = step.keys.expect("told");
        assert_eq!((keys.unexpected_max, keys.solicited_only, keys.hello), (2, true, false));
    }
    let step = over(Capabilities::STREAM, &pairs);
    assert_eq!(step.answer("MaxOutstandingUnexpectedPDUs"), None);
    for (capabilities, offer, solicited_only) in [
        (POSSIBLE, None, false),
        (POSSIBLE, Some("No"), false),
        // As ib_iser and libiscsi, which do so and do not say it.
        (Capabilities::RDMA, None, true),
        (Capabilities::RDMA, Some("No"), false),
    ] {
        let offer = offer.map(|yes| format!("TaggedBufferForSolicitedDataOnly={yes}"));
        let pairs: Vec<&str> = ["RDMAExtensions=Yes"].into_iter().chain(offer.as_deref()).collect();
        let keys = over(capabilities, &pairs).keys.expect("told");
        assert_eq!(keys.solicited_only, solicited_only, "{pairs:?}");
    }
    // As open-iscsi, which takes no other key than those that it offers.
    let step = over(Capabilities::RDMA, &["RDMAExtensions=Yes"]);
    assert_eq!(step.answer("MaxOutstandingUnexpectedPDUs"), None, "the default stands");
    for pair in [
        "TaggedBufferForSolicitedDataOnly=Maybe",
        "MaxOutstandingUnexpectedPDUs=1",
        "MaxAHSLength=1",
    ] {
        over(Capabilities::RDMA, &["RDMAExtensions=Yes", pair]).assert_failed(0x0200);
    }
    for (pair, unexpected_max) in [
        ("MaxOutstandingUnexpectedPDUs=0", 0),
        ("MaxOutstandingUnexpectedPDUs=4294967295", u32::MAX),
        ("MaxAHSLength=0", 0),
        ("MaxAHSLength=4294967295", 0),
    ] {
        let step = over(Capabilities::RDMA, &["RDMAExtensions=Yes", pair]);
        let agreed = step.done().parameters.rdma.map(|rdma| rdma.unexpected_max);
        assert_eq!(agreed, Some(unexpected_max), "{pair}");
    }
    // A limit of ours is told to whoever has one, and is in force where it was.
    let few = Settings { unexpected_pdus_max: 2, ..wide() };
    for (pair, told) in [("MaxOutstandingUnexpectedPDUs=9", 2), ("MaxAHSLength=0", 0)] {
        let mut driver = Driver::over(Capabilities::RDMA, few.clone());
        let keys = driver.named(last(), &["RDMAExtensions=Yes", pair]).keys.expect("told");
        assert_eq!(keys.own_unexpected_max, told);
    }
}

/// Each PDU needs a buffer of its own over an adapter: nothing comes that has none.
#[test]
fn buffers_bound_what_may_come() {
    for (buffers, unexpected, depth) in [(160, "32", 128), (48, "32", 16), (8, "8", 1)] {
        let capabilities = Capabilities { buffers: Some(buffers), ..Capabilities::RDMA };
        let pairs = ["RDMAExtensions=Yes", "InitialR2T=No", "MaxOutstandingUnexpectedPDUs=2"];
        let step = over(capabilities, &pairs);
        assert_eq!(step.answer("InitialR2T").as_deref(), Some("Yes"));
        assert_eq!(step.answer("MaxOutstandingUnexpectedPDUs").as_deref(), Some(unexpected));
        let header = &step.reply().header.numbers;
        let window = header.max_cmd_sn.0.wrapping_sub(header.exp_cmd_sn.0) + 1;
        assert!(window <= depth, "{window}");
        assert_eq!(step.done().capabilities, capabilities, "as of all connections of the session");
    }
}

#[test]
fn a_hello_may_follow_however_the_connection_began() {
    let pairs = ["RDMAExtensions=Yes", "iSERHelloRequired=Yes"];
    for capabilities in [POSSIBLE, Capabilities::RDMA] {
        assert!(over(capabilities, &pairs).keys.expect("told").hello);
    }
}

/// Whoever knows them says so, whether they mean anything or not (RFC 7143 §6.2).
///
/// Covers: ISK-14.
#[test]
fn keys_of_iser_are_understood() {
    let others = [
        "TargetRecvDataSegmentLength=4096",
        "InitiatorRecvDataSegmentLength=4096",
        "MaxOutstandingUnexpectedPDUs=2",
        "MaxAHSLength=32",
        "TaggedBufferForSolicitedDataOnly=Yes",
        "iSERHelloRequired=Yes",
    ];
    for capabilities in [POSSIBLE, Capabilities::RDMA] {
        for wish in ["Yes", "No"] {
            if wish == "No" && capabilities == Capabilities::RDMA {
                continue;
            }
            let wish = format!("RDMAExtensions={wish}");
            let pairs = [&[wish.as_str()], &others[..]].concat();
            let step = over(capabilities, &pairs);
            for pair in pairs {
                let (key, _) = pair.split_once('=').expect("a pair");
                assert_ne!(step.answer(key).as_deref(), Some("NotUnderstood"), "{pair}");
            }
        }
    }
}

/// Covers: ISK-01/T, ISK-02/T, ISK-09/T, ISK-10/T.
#[test]
fn a_connection_that_joins_has_what_its_session_has() {
    let request = LoginRequest { tsih: Tsih(7), ..last() };
    let text = ["TargetRecvDataSegmentLength=4096", "MaxRecvDataSegmentLength=512"];
    for capabilities in [Capabilities::RDMA, POSSIBLE] {
        let mut driver = Driver::over(capabilities, wide());
        driver.login.join_rdma();
        let step = driver.named(request, &text);
        let agreed = &step.done().parameters;
        assert_eq!(agreed.max_recv_data_segment_length, 4096);
        assert_eq!(agreed.max_send_data_segment_length, 8192, "other keys say so");
        assert!(agreed.rdma.is_some() && step.done().capabilities == Capabilities::RDMA);
        let mut driver = Driver::over(capabilities, wide());
        driver.login.join_rdma();
        driver.named(request, &["RDMAExtensions=Yes"]).assert_failed(0x0200);
        for key in ["MaxOutstandingUnexpectedPDUs", "MaxAHSLength"] {
            let mut driver = Driver::over(capabilities, wide());
            driver.login.join_rdma();
            driver.named(request, &[&format!("{key}=32")]).assert_failed_for(0x0200, key);
        }
    }
    // A byte stream stays one where its session is none of RDMA, and what has none gets none.
    for (capabilities, joins_rdma) in [(POSSIBLE, false), (Capabilities::STREAM, true)] {
        let mut driver = Driver::over(capabilities, wide());
        if joins_rdma {
            driver.login.join_rdma();
        }
        let step = driver.named(request, &text);
        assert!(step.done().parameters.rdma.is_none() && step.done().capabilities == capabilities);
    }
}

/// Covers: ISC-17/T, ISK-01/T.
#[test]
fn discovery_has_no_use_for_it() {
    let discovery = ["SessionType=Discovery", "RDMAExtensions=Yes"];
    for (capabilities, has_rdma) in [(POSSIBLE, false), (Capabilities::RDMA, true)] {
        let mut driver = Driver::over(capabilities, wide());
        let text = [&[crate::driver::INITIATOR], &discovery[..]].concat();
        let step = driver.keys(last(), &text);
        assert_eq!(step.answer("RDMAExtensions").as_deref(), Some("No"));
        assert_eq!(step.done().parameters.rdma.is_some(), has_rdma, "where it began with RDMA");
    }
}
