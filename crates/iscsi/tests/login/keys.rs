// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result of every negotiation.

use iscsi::datamover::Capabilities;
use iscsi::datamover::Markers;
use iscsi::datamover::Rdma;
use iscsi::target_role::DigestPolicy;
use iscsi::target_role::Parameters;
use iscsi::target_role::Settings;
use iscsi::target_role::TaskReporting;
use wire::iscsi::LoginRequest;
use wire::iscsi::Stage;
use wire::iscsi::Tsih;

use crate::driver::Driver;
use crate::driver::INITIATOR;
use crate::driver::last;
use crate::driver::operational;
use crate::driver::request;
use crate::driver::security;
use crate::driver::settings;

/// The answer to one offer in the operational stage.
#[track_caller]
fn offer(settings: &Settings, pair: &str) -> Option<String> {
    let key = pair.split('=').next().expect("a key");
    let step = Driver::with(settings.clone()).named(last(), &[pair]);
    step.done();
    step.answer(key)
}

#[track_caller]
fn assert_offers(cases: &[(&str, &str)]) {
    for (pair, expected) in cases {
        let step = Driver::with(settings()).named(last(), &[pair]);
        let (key, _) = pair.split_once('=').expect("a pair");
        assert_eq!(step.answer(key).as_deref(), Some(*expected), "{pair}");
        if let Ok(number) = expected.parse() {
            assert_eq!(in_force(&step.done().parameters, key), number, "{pair}");
        }
    }
}

/// What came of a key that has a number.
fn in_force(agreed: &Parameters, key: &str) -> u32 {
    match key {
        "MaxBurstLength" => agreed.max_burst_length,
        "FirstBurstLength" => agreed.first_burst_length,
        "DefaultTime2Wait" => agreed.time2wait.into(),
        "DefaultTime2Retain" => agreed.time2retain.into(),
        "MaxOutstandingR2T" => agreed.max_outstanding_r2t.into(),
        "MaxConnections" => agreed.max_connections.into(),
        "ErrorRecoveryLevel" => agreed.error_recovery_level.into(),
        "iSCSIProtocolLevel" => agreed.protocol_level.into(),
        other => panic!("{other} has no number"),
    }
}

/// Covers: NEG-33/T, KEY-14a/T, KEY-15a/T.
#[test]
fn booleans_are_combined() {
    for ours in [true, false] {
        for (theirs, word) in [(true, "Yes"), (false, "No")] {
            let settings = Settings { initial_r2t: ours, immediate_data: ours, ..settings() };
            let (r2t, immediate) = (format!("InitialR2T={word}"), format!("ImmediateData={word}"));
            let step = Driver::with(settings).named(last(), &[&r2t, &immediate]);
            let say = |yes: bool| Some(if yes { "Yes".to_string() } else { "No".to_string() });
            assert_eq!(step.answer("InitialR2T"), say(ours || theirs));
            assert_eq!(step.answer("ImmediateData"), say(ours && theirs));
            assert_eq!(step.done().parameters.initial_r2t, ours || theirs);
            assert_eq!(step.done().parameters.immediate_data, ours && theirs);
            let first_burst = step.keys.expect("told").first_burst_length;
            assert_eq!(first_burst, if ours && theirs { 65536 } else { 0 });
        }
    }
}

/// Covers: NEG-29/T, KEY-05a/T, KEY-23a/T, KEY-24a/T, KEY-26a/T, KEY-27a/T, KEY-28a/T, KEY-32a/T.
#[test]
fn numbers_are_combined() {
    assert_offers(&[
        ("MaxBurstLength=262144", "262144"),
        ("MaxBurstLength=1048576", "1048576"),
        ("MaxBurstLength=1048580", "1048576"),
        ("MaxBurstLength=512", "512"),
        ("MaxBurstLength=513", "513"),
        ("MaxBurstLength=1048575", "1048575"),
        ("MaxBurstLength=16777215", "1048576"),
        ("FirstBurstLength=512", "512"),
        ("FirstBurstLength=16777215", "131072"),
        ("DefaultTime2Wait=0", "2"),
        ("DefaultTime2Wait=5", "5"),
        ("DefaultTime2Wait=3600", "3600"),
        ("DefaultTime2Retain=60", "20"),
        ("DefaultTime2Retain=3600", "20"),
        ("DefaultTime2Retain=0", "0"),
        ("MaxOutstandingR2T=1", "1"),
        ("MaxOutstandingR2T=4", "4"),
        ("MaxOutstandingR2T=65535", "8"),
        ("MaxConnections=1", "1"),
        ("MaxConnections=4", "4"),
        ("MaxConnections=65535", "4"),
        ("ErrorRecoveryLevel=0", "0"),
        ("ErrorRecoveryLevel=2", "0"),
    ]);
    let settings = Settings { error_recovery_level: 1, ..settings() };
    for (pair, result) in [("0", "0"), ("1", "1"), ("2", "1")] {
        let pair = format!("ErrorRecoveryLevel={pair}");
        let step = Driver::with(settings.clone()).named(last(), &[&pair]);
        assert_eq!(step.answer("ErrorRecoveryLevel").as_deref(), Some(result));
        assert_eq!(step.done().parameters.error_recovery_level.to_string(), result);
    }
    // Without a word there are the defaults.
    let silent = Driver::with(settings).named(last(), &[]);
    let agreed = &silent.done().parameters;
    assert_eq!((agreed.max_burst_length, agreed.first_burst_length), (262_144, 65536));
    assert_eq!((agreed.time2wait, agreed.time2retain), (2, 20));
    assert_eq!((agreed.max_connections, agreed.max_outstanding_r2t), (1, 1));
    assert_eq!(agreed.error_recovery_level, 0);
}

/// Covers: NEG-30/T, NEG-21/T, NEG-32/T, KEY-05a/T, KEY-14a/T, KEY-15a/T, KEY-23a/T, KEY-24a/T,
/// KEY-26a/T, KEY-27a/T, KEY-28a/T, KEY-29a/T, KEY-32a/T.
#[test]
fn inadmissible_offers_are_rejected_and_change_nothing() {
    assert_offers(&[
        ("MaxConnections=0", "Reject"),
        ("MaxConnections=65536", "Reject"),
        ("MaxBurstLength=511", "Reject"),
        ("MaxBurstLength=16777216", "Reject"),
        ("MaxBurstLength=-1", "Reject"),
        ("MaxBurstLength=", "Reject"),
        ("MaxBurstLength=many", "Reject"),
        ("MaxBurstLength=1024~2048", "Reject"),
        ("FirstBurstLength=511", "Reject"),
        ("FirstBurstLength=16777216", "Reject"),
        ("DefaultTime2Wait=3601", "Reject"),
        ("DefaultTime2Retain=3601", "Reject"),
        ("MaxOutstandingR2T=0", "Reject"),
        ("MaxOutstandingR2T=65536", "Reject"),
        ("ErrorRecoveryLevel=3", "Reject"),
        ("InitialR2T=yes", "Reject"),
        ("ImmediateData=1", "Reject"),
        ("DataPDUInOrder=", "Reject"),
        ("iSCSIProtocolLevel=32", "Reject"),
    ]);
    let step = Driver::new().named(last(), &["MaxOutstandingR2T=0", "MaxBurstLength=511"]);
    assert_eq!(step.done().parameters.max_outstanding_r2t, 1);
    assert_eq!(step.done().parameters.max_burst_length, 262_144);
}

/// Covers: NEG-06/T, NEG-07/T.
#[test]
fn numbers_are_decimal_or_hexadecimal() {
    assert_offers(&[
        ("MaxBurstLength=262144", "262144"),
        ("MaxBurstLength=0x40000", "262144"),
        ("MaxBurstLength=0X40000", "262144"),
        ("MaxBurstLength=0x3FfFf", "262143"),
        ("MaxBurstLength=0262144", "Reject"),
        ("MaxBurstLength=+262144", "Reject"),
        ("MaxBurstLength=18446744073709551616", "Reject"),
        ("MaxBurstLength=18446744073709813760", "Reject"),
    ]);
}

/// Covers: NEG-25/T, NEG-26/T, NEG-27/T, KEY-02/T.
#[test]
fn digests_are_chosen_from_the_offer() {
    for key in ["HeaderDigest", "DataDigest"] {
        let ask = |policy, list: &str| {
            let settings = Settings { header_digest: policy, data_digest: policy, ..settings() };
            offer(&settings, &format!("{key}={list}"))
        };
        let any = DigestPolicy::Any;
        assert_eq!(ask(any, "CRC32C,None").as_deref(), Some("CRC32C"));
        assert_eq!(ask(any, "None,CRC32C").as_deref(), Some("None"));
        assert_eq!(ask(any, "FOO,CRC32C").as_deref(), Some("CRC32C"));
        assert_eq!(ask(any, "FOO").as_deref(), Some("Reject"));
        assert_eq!(ask(any, "").as_deref(), Some("Reject"));
        assert_eq!(ask(any, "crc32c").as_deref(), Some("Reject"));
        assert_eq!(ask(DigestPolicy::Off, "CRC32C,None").as_deref(), Some("None"));
        assert_eq!(ask(DigestPolicy::Off, "CRC32C").as_deref(), Some("Reject"));
    }
    for header in ["None", "CRC32C"] {
        for data in ["None", "CRC32C"] {
            let offers = [&*format!("HeaderDigest={header}"), &*format!("DataDigest={data}")];
            let step = Driver::new().named(last(), &offers);
            let keys = step.keys.expect("told");
            assert_eq!(
                (keys.header_digest, keys.data_digest),
                (header == "CRC32C", data == "CRC32C")
            );
        }
    }
}

/// Covers: NEG-22/T.
#[test]
fn a_required_digest_is_required() {
    let required = DigestPolicy::Required;
    let settings = Settings { header_digest: required, data_digest: required, ..settings() };
    let both = ["HeaderDigest=None,CRC32C", "DataDigest=CRC32C"];
    let step = Driver::with(settings.clone()).named(last(), &both);
    assert_eq!(step.answer("HeaderDigest").as_deref(), Some("CRC32C"));
    step.done();
    let step = Driver::with(settings.clone()).named(last(), &["HeaderDigest=CRC32C"]);
    step.assert_failed_for(0x0200, "DataDigest");
    let mut driver = Driver::with(settings);
    let step = driver.named(operational(), &["HeaderDigest=None"]);
    assert_eq!(step.answer("HeaderDigest").as_deref(), Some("Reject"));
    driver.keys(last(), &["DataDigest=CRC32C"]).assert_failed_for(0x0200, "HeaderDigest");
}

/// Covers: KEY-20a/T, KEY-20b/T, KEY-20c/T, NEG-36/T.
#[test]
fn each_side_declares_its_segment_length() {
    for (declared, length) in [("512", 512), ("16777215", 16_777_215), ("0x200", 512)] {
        let pair = format!("MaxRecvDataSegmentLength={declared}");
        let step = Driver::new().named(last(), &[&pair]);
        let keys = step.keys.expect("told");
        assert_eq!(keys.max_send_data_segment_length, length);
        assert_eq!(keys.max_recv_data_segment_length, 262_144);
        assert_eq!(step.answer("MaxRecvDataSegmentLength").as_deref(), Some("262144"));
    }
    // Without a word of theirs, and with a wish of ours that is no value.
    let keys = Driver::new().named(last(), &[]).keys.expect("told");
    assert_eq!(keys.max_send_data_segment_length, 8192, "the default");
    let unsaid = Driver::new().named(request(Stage::Security, Some(Stage::FullFeature)), &[]);
    assert_eq!(unsaid.answer("MaxRecvDataSegmentLength"), None);
    let keys = unsaid.keys.expect("told");
    assert_eq!(keys.max_send_data_segment_length, 8192);
    assert_eq!(keys.max_recv_data_segment_length, 8192, "ours, which was not declared");
    for (wish, declared) in [(0, 512), (512, 512), (16_777_215, 16_777_215), (u32::MAX, 16_777_215)]
    {
        let settings = Settings { max_recv_data_segment_length: wish, ..settings() };
        let step = Driver::with(settings).named(last(), &[]);
        assert_eq!(step.answer("MaxRecvDataSegmentLength"), Some(declared.to_string()));
        assert_eq!(step.keys.expect("told").max_recv_data_segment_length, declared);
    }
    // Ours is declared once, and unasked.
    let mut driver = Driver::new();
    let step = driver.named(operational(), &[]);
    assert_eq!(step.answer("MaxRecvDataSegmentLength").as_deref(), Some("262144"));
    let step = driver.keys(last(), &["MaxRecvDataSegmentLength=4096"]);
    assert_eq!(step.answer("MaxRecvDataSegmentLength"), None);
    for bad in ["511", "16777216", "x", "-5"] {
        let pair = format!("MaxRecvDataSegmentLength={bad}");
        Driver::new().named(last(), &[&pair]).assert_failed_for(0x0200, &pair);
    }
}

#[test]
fn wishes_beyond_the_range_of_a_key_are_cut() {
    let settings = Settings {
        max_recv_data_segment_length: u32::MAX,
        max_burst_length: 1,
        first_burst_length: 0,
        max_outstanding_r2t: 0,
        time2wait: u16::MAX,
        ..settings()
    };
    let step = Driver::with(settings).named(
        last(),
        &[
            "MaxBurstLength=65536",
            "FirstBurstLength=65536",
            "MaxOutstandingR2T=5",
            "DefaultTime2Wait=0",
        ],
    );
    assert_eq!(step.answer("MaxRecvDataSegmentLength").as_deref(), Some("16777215"));
    assert_eq!(step.answer("MaxBurstLength").as_deref(), Some("512"));
    assert_eq!(step.answer("FirstBurstLength").as_deref(), Some("512"));
    assert_eq!(step.answer("MaxOutstandingR2T").as_deref(), Some("1"));
    assert_eq!(step.answer("DefaultTime2Wait").as_deref(), Some("3600"));
}

/// Covers: KEY-25/T, NEG-24.
#[test]
fn the_first_burst_is_no_longer_than_a_burst() {
    // In either order within one text it is corrected.
    for offers in [
        ["MaxBurstLength=16384", "FirstBurstLength=65536"],
        ["FirstBurstLength=65536", "MaxBurstLength=16384"],
    ] {
        let step = Driver::new().named(last(), &offers);
        assert_eq!(step.answer("FirstBurstLength").as_deref(), Some("16384"));
        assert_eq!(step.done().parameters.first_burst_length, 16384);
    }
    // So is the default that nobody mentioned.
    let step = Driver::new().named(last(), &["MaxBurstLength=16384"]);
    assert_eq!(step.done().parameters.first_burst_length, 16384);
    // What was agreed and cannot be any more ends the login.
    let mut driver = Driver::new();
    driver.named(operational(), &["FirstBurstLength=65536"]);
    driver.keys(last(), &["MaxBurstLength=16384"]).assert_failed_for(0x0200, "65536");
}

/// FirstBurstLength means nothing where no data may come unasked: it is answered by its value and
/// ends no login.
///
/// Covers: KEY-24d/T.
#[test]
fn the_first_burst_is_irrelevant_without_unsolicited_data() {
    let alone = ["InitialR2T=Yes", "ImmediateData=No"];
    for value in ["512", "16777215"] {
        let offer = format!("FirstBurstLength={value}");
        let step = Driver::new().named(last(), &[alone[0], alone[1], &offer, "MaxBurstLength=512"]);
        assert_eq!(step.answer("FirstBurstLength").as_deref(), Some("512"));
        step.done();
    }
    let mut driver = Driver::new();
    driver.named(operational(), &["FirstBurstLength=65536"]);
    let step = driver.keys(last(), &["MaxBurstLength=16384", alone[0], alone[1]]);
    let parameters = &step.done().parameters;
    assert_eq!((parameters.initial_r2t, parameters.immediate_data), (true, false));
    assert_eq!(parameters.first_burst_length, 16384);
    // One of the two is enough to make it matter.
    for matters in [["InitialR2T=No", "ImmediateData=No"], ["InitialR2T=Yes", "ImmediateData=Yes"]]
    {
        let mut driver = Driver::new();
        driver.named(operational(), &["FirstBurstLength=65536"]);
        let step = driver.keys(last(), &["MaxBurstLength=16384", matters[0], matters[1]]);
        step.assert_failed_for(0x0200, "65536");
    }
}

/// Covers: KEY-29a/T, KEY-30a/T.
#[test]
fn the_order_of_data_is_combined() {
    for ours in [true, false] {
        for (theirs, word) in [(true, "Yes"), (false, "No")] {
            let settings =
                Settings { data_pdu_in_order: ours, data_sequence_in_order: ours, ..settings() };
            let pair = |key| format!("{key}={word}");
            let offers = [pair("DataPDUInOrder"), pair("DataSequenceInOrder")];
            let step = Driver::with(settings).named(last(), &[&offers[0], &offers[1]]);
            let result = if ours || theirs { "Yes" } else { "No" };
            let parameters = &step.done().parameters;
            assert_eq!(step.answer("DataPDUInOrder").as_deref(), Some(result));
            assert_eq!(step.answer("DataSequenceInOrder").as_deref(), Some(result));
            assert_eq!(parameters.data_pdu_in_order, ours || theirs);
            assert_eq!(parameters.data_sequence_in_order, ours || theirs);
            assert_eq!(step.keys.expect("told").data_pdu_in_order, ours || theirs);
        }
    }
}

/// The keys of RFC 3720, where the node wants markers.
#[test]
fn markers_are_agreed_to_where_they_are_wanted() {
    let settings = Settings { markers: true, ..settings() };
    let agreed = |offers: &[&str]| {
        let step = Driver::with(settings.clone()).named(last(), offers);
        let markers = step.done().parameters.markers;
        assert_eq!(step.keys.expect("told").markers, markers);
        let told = |key: &str| step.answer(key).unwrap_or_default();
        let answers = ["OFMarker", "OFMarkInt", "IFMarker", "IFMarkInt"].map(told).join(" ");
        (answers, markers.receive, markers.send)
    };
    type Case<'a> = (&'a [&'a str], &'a str, Option<u32>, Option<u32>);
    let cases: &[Case<'_>] = &[
        (&[], "   ", None, None),
        (&["OFMarker=No", "IFMarker=No"], "No  No ", None, None),
        (&["OFMarker=Yes"], "Yes   ", Some(8192), None),
        (&["IFMarker=Yes"], "  Yes ", None, Some(8192)),
        // The interval may come before what it belongs to.
        (&["OFMarkInt=16", "OFMarker=Yes"], "Yes 16  ", Some(64), None),
        (&["IFMarker=Yes", "IFMarkInt=1~65535"], "  Yes 2048", None, Some(8192)),
        (&["IFMarker=Yes", "IFMarkInt=3~7"], "  Yes 7", None, Some(28)),
        (&["IFMarker=Yes", "IFMarkInt=4096~8192"], "  Yes 4096", None, Some(16384)),
        // An interval that cannot be leaves the direction without markers.
        (&["IFMarker=Yes", "IFMarkInt=0"], "  Yes Reject", None, None),
        (&["OFMarker=Yes", "OFMarkInt=9~5"], "Yes Reject  ", None, None),
        (&["OFMarkInt=2048"], " Irrelevant  ", None, None),
        (&["OFMarker=No", "OFMarkInt=2048"], "No Irrelevant  ", None, None),
        (&["OFMarker=Maybe"], "Reject   ", None, None),
    ];
    for (offers, answers, receive, send) in cases {
        assert_eq!(agreed(offers), ((*answers).to_string(), *receive, *send), "{offers:?}");
    }
}

/// Covers: KEY-35a/T, KEY-38/T.
#[test]
fn newer_behaviour_is_agreed_to() {
    assert_offers(&[
        ("TaskReporting=FastAbort,ResponseFence,RFC3720", "FastAbort"),
        ("TaskReporting=ResponseFence,FastAbort,RFC3720", "ResponseFence"),
        ("TaskReporting=RFC3720,ResponseFence", "RFC3720"),
        ("TaskReporting=RFC3720", "RFC3720"),
        ("TaskReporting=FastAbort", "FastAbort"),
        ("TaskReporting=Slow", "Reject"),
        ("iSCSIProtocolLevel=31", "2"),
        ("iSCSIProtocolLevel=3", "2"),
        ("iSCSIProtocolLevel=2", "2"),
        ("iSCSIProtocolLevel=1", "1"),
        ("iSCSIProtocolLevel=0", "0"),
    ]);
}

/// Covers: KEY-35a/T, KEY-38/T.
#[test]
fn what_was_agreed_on_is_in_force() {
    let parameters = |pairs: &[&str]| {
        let step = Driver::new().named(last(), pairs);
        let parameters = &step.done().parameters;
        (parameters.task_reporting, parameters.protocol_level)
    };
    assert_eq!(parameters(&[]), (TaskReporting::Rfc3720, 1), "the defaults");
    let fence = ["TaskReporting=ResponseFence,RFC3720", "iSCSIProtocolLevel=2"];
    assert_eq!(parameters(&fence), (TaskReporting::ResponseFence, 2));
    let fast = ["TaskReporting=FastAbort,ResponseFence,RFC3720", "iSCSIProtocolLevel=0"];
    assert_eq!(parameters(&fast), (TaskReporting::FastAbort, 0));
}

/// The target leaves it to the initiator.
///
/// Covers: KEY-36/T.
#[test]
fn task_reporting_is_not_proposed() {
    let all = ["MaxBurstLength=65536", "iSCSIProtocolLevel=2", "MaxConnections=4"];
    for pairs in [&[][..], &all] {
        for first in [last(), operational(), request(Stage::Security, Some(Stage::FullFeature))] {
            let answers = Driver::new().named(first, pairs).answers();
            assert!(answers.iter().all(|pair| !pair.starts_with("TaskReporting")), "{answers:?}");
        }
    }
}

/// Covers: OBS-01/T, OBS-02/T.
#[test]
fn markers_are_rejected_and_understood() {
    for pair in [
        "IFMarker=Yes",
        "IFMarker=No",
        "OFMarker=Yes",
        "OFMarker=No",
        "IFMarkInt=2048",
        "OFMarkInt=2048~8192",
    ] {
        assert_eq!(offer(&settings(), pair).as_deref(), Some("Reject"), "{pair}");
    }
}

/// Covers: NEG-16/T, OBS-07/T.
#[test]
fn unknown_keys_are_not_understood() {
    for pair in ["X-com.example.foo=1", "X#Foo=1", "Foo=bar", "SPKM_REQ=x", "MaxBurstlength=1024"] {
        assert_eq!(offer(&settings(), pair).as_deref(), Some("NotUnderstood"), "{pair}");
    }
    let step = Driver::new().named(security(), &["X-com.example.foo=1"]);
    assert_eq!(step.answer("X-com.example.foo").as_deref(), Some("NotUnderstood"));
    // Also where an initiator should not have sent it (RFC 7143 §13.22).
    let discovery = [INITIATOR, "SessionType=Discovery", "X-com.example.foo=1"];
    let step = Driver::new().keys(last(), &discovery);
    assert_eq!(step.answer("X-com.example.foo").as_deref(), Some("NotUnderstood"));
    for first in [security(), operational(), last()] {
        let answers = Driver::new().named(first, &[]).answers();
        assert!(answers.iter().all(|pair| !pair.starts_with("X#")), "none of our own: {answers:?}");
    }
}

/// Covers: KEY-34/T.
#[test]
fn private_keys_do_not_disturb() {
    let step = Driver::new().named(last(), &["X-com.example.foo=1", "MaxBurstLength=65536"]);
    assert_eq!(step.answer("MaxBurstLength").as_deref(), Some("65536"));
    let step = Driver::new().keys(last(), &[INITIATOR, "SessionType=Discovery"]);
    assert!(step.answers().iter().all(|pair| !pair.starts_with("X-")));
}

/// Covers: KEY-40/T.
#[test]
fn the_node_architecture_changes_nothing() {
    let plain = Driver::new().named(last(), &[]);
    for value in ["", "a,b,c", "\u{1f980}", "NotReallyUnderstood"] {
        let step = Driver::new().named(last(), &[&format!("X#NodeArchitecture={value}")]);
        assert_eq!(step.answers(), plain.answers(), "and none is sent");
        assert_eq!(step.done().parameters, plain.done().parameters);
    }
}

/// Covers: KEY-41/T, KEY-39/T.
#[test]
fn the_node_architecture_is_told_where_configured() {
    let told = |kind: Option<&str>, request: LoginRequest| {
        let node_architecture = kind.map(str::to_owned);
        let mut driver = Driver::with(Settings { node_architecture, ..settings() });
        driver.named(request, &[]).answer("X#NodeArchitecture")
    };
    assert_eq!(told(None, last()), None);
    assert_eq!(told(Some("a,b"), last()).as_deref(), Some("a,b"));
    assert_eq!(told(Some(&"x".repeat(256)), last()), None, "255 bytes at most");
    let joining = LoginRequest { tsih: Tsih(7), ..last() };
    assert_eq!(told(Some("a,b"), joining), None, "once in a session");
}

/// The one private key that the target sends.
///
/// Covers: NEG-18/T.
#[test]
fn a_private_key_that_is_not_understood_is_dropped() {
    let node_architecture = Some("a,b".to_owned());
    let mut driver = Driver::with(Settings { node_architecture, ..settings() });
    let first = driver.named(operational(), &[]);
    assert_eq!(first.answer("X#NodeArchitecture").as_deref(), Some("a,b"));
    let step = driver.keys(last(), &["X#NodeArchitecture=NotUnderstood"]);
    assert_eq!(step.answer("X#NodeArchitecture"), None);
    assert_eq!(step.done().parameters, Driver::new().named(last(), &[]).done().parameters);
}

/// Covers: NEG-17/T.
#[test]
fn reserved_words_are_no_offers() {
    for word in ["Reject", "Irrelevant", "NotUnderstood"] {
        for key in ["MaxBurstLength", "InitialR2T", "HeaderDigest", "MaxRecvDataSegmentLength"] {
            let pair = format!("{key}={word}");
            Driver::new().named(last(), &[&pair]).assert_failed_for(0x0200, &pair);
        }
    }
}

/// Whatever cannot be agreed on.
///
/// Covers: LGN-49/T.
#[test]
fn a_negotiation_that_fails_ends_the_login() {
    for pairs in [
        &["MaxRecvDataSegmentLength=511"][..],
        &["MaxBurstLength=65536", "MaxBurstLength=65536"],
        &["MaxBurstLength=Reject"],
        &["TargetAlias=a"],
        &["SendTargets=All"],
        &["CHAP_A=5"],
    ] {
        Driver::new().named(last(), pairs).assert_failed(0x0200);
        let mut driver = Driver::new();
        driver.named(operational(), &[]);
        driver.keys(last(), pairs).assert_failed(0x0200);
    }
    for pairs in [&["DataDigest=None"][..], &["DataDigest=FOO"], &[]] {
        let settings = Settings { data_digest: DigestPolicy::Required, ..settings() };
        Driver::with(settings).named(last(), pairs).assert_failed_for(0x0200, "DataDigest");
    }
    let mut driver = Driver::new();
    driver.named(operational(), &["FirstBurstLength=65536"]);
    driver.keys(last(), &["MaxBurstLength=16384"]).assert_failed(0x0200);
}

/// Covers: NEG-23/T, LGN-06/T.
#[test]
fn values_are_in_force_together_at_the_end_or_not_at_all() {
    let agreed = ["HeaderDigest=CRC32C", "MaxRecvDataSegmentLength=65536"];
    let mut driver = Driver::new();
    assert!(driver.named(operational(), &agreed).keys.is_none());
    assert!(driver.keys(operational(), &["DataDigest=CRC32C"]).keys.is_none());
    let keys = driver.keys(last(), &[]).keys.expect("told");
    assert!(keys.header_digest && keys.data_digest);
    assert_eq!(keys.max_send_data_segment_length, 65536);
    let mut driver = Driver::new();
    driver.named(operational(), &agreed);
    let step = driver.keys(last(), &["HeaderDigest=CRC32C"]);
    step.assert_failed(0x0200);
    assert!(step.keys.is_none());
}

/// Covers: LGN-17.
#[test]
fn a_key_comes_once_in_a_login() {
    let pairs = [
        "MaxBurstLength=65536",
        "MaxRecvDataSegmentLength=65536",
        "IFMarker=No",
        "DataDigest=None",
    ];
    for pair in pairs {
        let name = pair.split('=').next().expect("a key");
        let mut driver = Driver::new();
        assert!(driver.named(operational(), &[pair]).failed.is_none());
        driver.keys(last(), &[pair]).assert_failed_for(0x0200, name);
        Driver::new().named(last(), &[pair, pair]).assert_failed_for(0x0200, "twice");
    }
    let mut driver = Driver::new();
    driver.named(security(), &["AuthMethod=None"]);
    driver.keys(security(), &["AuthMethod=None"]).assert_failed_for(0x0200, "AuthMethod");
}

/// Covers: LGN-19.
#[test]
fn a_key_has_its_stage() {
    for pair in
        ["MaxBurstLength=65536", "HeaderDigest=None", "MaxRecvDataSegmentLength=512", "IFMarker=No"]
    {
        let name = pair.split('=').next().expect("a key");
        Driver::new().named(security(), &[pair]).assert_failed_for(0x0200, name);
    }
    // AuthMethod: see `none_may_be_told_late`.
    for pair in ["CHAP_A=5", "SRP_U=user", "KRB_AP_REQ=0x00"] {
        let name = pair.split('=').next().expect("a key");
        Driver::new().named(operational(), &[pair]).assert_failed_for(0x0200, name);
    }
}

/// Covers: KEY-01/T.
#[test]
fn a_key_has_its_phase_and_its_sender() {
    // Full feature phase only.
    Driver::new().named(last(), &["SendTargets=All"]).assert_failed_for(0x0200, "SendTargets");
    // The target only.
    for pair in ["TargetPortalGroupTag=1", "TargetAlias=a", "TargetAddress=192.0.2.1"] {
        let name = pair.split('=').next().expect("a key");
        Driver::new().named(last(), &[pair]).assert_failed_for(0x0200, name);
    }
    // The leading login only.
    let other = LoginRequest { tsih: Tsih(3), ..last() };
    for pair in
        ["MaxBurstLength=65536", "InitialR2T=No", "ErrorRecoveryLevel=0", "X#NodeArchitecture=a"]
    {
        let name = pair.split('=').next().expect("a key");
        Driver::new().named(other, &[pair]).assert_failed_for(0x0200, name);
    }
    let mut driver = Driver::new();
    driver.tsih = Ok(Tsih(3));
    let step = driver.named(other, &["DataDigest=CRC32C", "MaxRecvDataSegmentLength=512"]);
    assert_eq!(step.answer("DataDigest").as_deref(), Some("CRC32C"));
    step.done();
}

/// Covers: LGN-50/T, NEG-15/T, NEG-14/T.
#[test]
fn every_key_of_the_standard_is_understood_and_answered() {
    let offers = [
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
    ];
    let declarations = [
        "InitiatorAlias=a",
        "MaxRecvDataSegmentLength=8192",
        "X#NodeArchitecture=a",
        "SessionType=Normal",
    ];
    let step = Driver::new().named(last(), &[&offers[..], &declarations[..]].concat());
    // FirstBurstLength is answered last, after the value that bounds it.
    let mut answers = step.answers();
    answers.sort();
    let mut expected: Vec<String> = offers.iter().map(ToString::to_string).collect();
    expected.push("TargetPortalGroupTag=1".to_string());
    expected.push("MaxRecvDataSegmentLength=262144".to_string());
    expected.sort();
    assert_eq!(answers, expected);
    step.done();
    // So is what cannot be agreed on.
    for offer in offers {
        let key = offer.split('=').next().expect("a key");
        let step = Driver::new().named(last(), &[&format!("{key}=Slow")]);
        assert_eq!(step.answer(key).as_deref(), Some("Reject"), "{key}");
    }
    // And nothing is answered that was not offered.
    let step = Driver::new().named(request(Stage::Security, Some(Stage::FullFeature)), &[]);
    assert_eq!(step.answers(), ["TargetPortalGroupTag=1"]);
}

/// Covers: DIS-13/T.
#[test]
fn discovery_has_no_use_for_most_keys() {
    let irrelevant = [
        "MaxConnections=8",
        "InitialR2T=No",
        "ImmediateData=Yes",
        "MaxBurstLength=65536",
        "FirstBurstLength=65536",
        "MaxOutstandingR2T=4",
        "DataPDUInOrder=No",
        "DataSequenceInOrder=No",
        "TaskReporting=FastAbort",
        "iSCSIProtocolLevel=2",
    ];
    let useful = ["ErrorRecoveryLevel=2", "DefaultTime2Wait=2", "HeaderDigest=CRC32C"];
    let names = [INITIATOR, "SessionType=Discovery"];
    let step = Driver::new().keys(last(), &[&names[..], &irrelevant[..], &useful[..]].concat());
    for pair in irrelevant {
        let name = pair.split('=').next().expect("a key");
        let answer = step.answer(name).expect("an answer");
        assert!(!["Irrelevant", "Reject", "NotUnderstood"].contains(&&*answer), "{name}={answer}");
    }
    assert_eq!(step.answer("ErrorRecoveryLevel").as_deref(), Some("0"));
    assert_eq!(step.answer("DefaultTime2Wait").as_deref(), Some("2"));
    assert_eq!(step.answer("HeaderDigest").as_deref(), Some("CRC32C"));
    let parameters = &step.done().parameters;
    assert_eq!((parameters.max_connections, parameters.error_recovery_level), (1, 0));
}

/// The iSER keys on a connection without iSER (RFC 7145 §6).
///
/// Covers: NEG-20/T.
#[test]
fn iser_is_declined() {
    assert_offers(&[
        ("RDMAExtensions=Yes", "No"),
        ("RDMAExtensions=No", "No"),
        ("TargetRecvDataSegmentLength=8192", "Irrelevant"),
        ("InitiatorRecvDataSegmentLength=8192", "Irrelevant"),
    ]);
    for pair in [
        "MaxOutstandingUnexpectedPDUs=0",
        "MaxAHSLength=256",
        "TaggedBufferForSolicitedDataOnly=Yes",
        "iSERHelloRequired=Yes",
    ] {
        assert_eq!(offer(&settings(), pair), None, "declared");
    }
}

/// A mover that knows no digests, numbers and markers: nobody is promised any of them.
#[test]
fn what_the_mover_cannot_do_is_not_agreed_on() {
    const PLAIN: Capabilities = Capabilities {
        collapses_status: true,
        recovery_level: 0,
        numbers_data: false,
        digests: false,
        markers: false,
        lands: false,
        rdma: Rdma::Never,
        buffers: None,
    };
    let required = DigestPolicy::Required;
    let settings = Settings {
        header_digest: required,
        data_digest: required,
        markers: true,
        error_recovery_level: 2,
        ..settings()
    };
    let offers = ["HeaderDigest=CRC32C,None", "DataDigest=CRC32C,None", "ErrorRecoveryLevel=2"];
    let offers = [&offers[..], &["OFMarker=Yes", "IFMarker=Yes"]].concat();
    let over = |capabilities| {
        let step = Driver::over(capabilities, settings.clone()).named(last(), &offers);
        let (parameters, keys) = (step.done().parameters.clone(), step.keys.expect("told"));
        assert_eq!(step.done().capabilities, capabilities);
        (parameters, keys)
    };
    let (parameters, keys) = over(PLAIN);
    assert_eq!(parameters.error_recovery_level, 0);
    assert!(!keys.header_digest && !keys.data_digest);
    assert_eq!(keys.markers, Markers::default());
    let (parameters, keys) = over(Capabilities::STREAM);
    assert_eq!(parameters.error_recovery_level, 2);
    assert!(keys.header_digest && keys.data_digest);
    assert!(keys.markers.send.is_some() && keys.markers.receive.is_some());
}
