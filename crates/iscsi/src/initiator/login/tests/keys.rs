// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an initiator offers, and what comes of the answers (RFC 7143 §6.2, §13).

use super::*;
use crate::initiator::ConnectionId;
use crate::initiator::Parameters;
use crate::initiator::TaskReporting;

/// The keys that a leading login alone may have, with a value that is no default.
pub(super) const OF_SESSION: [(&str, &str); 12] = [
    ("MaxConnections", "3"),
    ("InitialR2T", "No"),
    ("ImmediateData", "No"),
    ("MaxBurstLength", "16384"),
    ("FirstBurstLength", "4096"),
    ("DefaultTime2Wait", "7"),
    ("DefaultTime2Retain", "11"),
    ("MaxOutstandingR2T", "5"),
    ("DataPDUInOrder", "No"),
    ("DataSequenceInOrder", "No"),
    ("ErrorRecoveryLevel", "2"),
    ("TaskReporting", "FastAbort"),
];

/// Offers all keys, and leaves the target a choice of each.
pub(super) fn wide() -> Settings {
    Settings {
        max_burst_length: 1 << 20,
        first_burst_length: 256 << 10,
        initial_r2t: false,
        immediate_data: true,
        max_outstanding_r2t: 8,
        data_pdu_in_order: false,
        data_sequence_in_order: false,
        error_recovery_level: 2,
        time2wait: 5,
        time2retain: 60,
        connections: 4,
        fast_abort: true,
        ..Settings::default()
    }
}

/// As [`wide`], but each boolean is as the initiator alone decides it.
fn narrow() -> Settings {
    Settings {
        initial_r2t: true,
        immediate_data: false,
        data_pdu_in_order: true,
        data_sequence_in_order: true,
        ..wide()
    }
}

/// A leading login that has made its offer.
fn offered(settings: &Settings) -> Lab {
    let mut lab = Lab::with(settings, None);
    lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
    lab
}

/// What comes of this answer.
fn outcome(settings: &Settings, answer: &str) -> Result<Parameters, LoginError> {
    let mut lab = offered(settings);
    lab.answer(DONE, answer);
    match lab.ends.pop() {
        Some(LoginOutput::Done(login)) => Ok(login.parameters),
        Some(LoginOutput::Failed(error)) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn value(parameters: &Parameters, key: &str) -> u32 {
    match key {
        "MaxConnections" => parameters.max_connections.into(),
        "InitialR2T" => parameters.initial_r2t.into(),
        "ImmediateData" => parameters.immediate_data.into(),
        "MaxBurstLength" => parameters.max_burst_length,
        "FirstBurstLength" => parameters.first_burst_length,
        "DefaultTime2Wait" => parameters.time2wait.into(),
        "DefaultTime2Retain" => parameters.time2retain.into(),
        "MaxOutstandingR2T" => parameters.max_outstanding_r2t.into(),
        "DataPDUInOrder" => parameters.data_pdu_in_order.into(),
        "DataSequenceInOrder" => parameters.data_sequence_in_order.into(),
        "ErrorRecoveryLevel" => parameters.error_recovery_level.into(),
        "TaskReporting" => match parameters.task_reporting {
            TaskReporting::Rfc3720 => 0,
            TaskReporting::ResponseFence => 1,
            TaskReporting::FastAbort => 2,
        },
        other => panic!("{other}"),
    }
}

/// The value that a login offers for a key.
pub(super) fn offer<'l>(lab: &'l Lab, key: &str) -> Option<&'l str> {
    let pairs = lab.requests.iter().flat_map(|(_, text)| text.lines());
    let mut values = pairs.filter_map(|pair| pair.split_once('=')).filter(|(name, _)| *name == key);
    let found = values.next();
    assert!(values.next().is_none(), "{key} twice");
    found.map(|(_, value)| value)
}

/// All text of a login.
fn said(lab: &Lab) -> String {
    lab.requests.iter().map(|(_, text)| text.as_str()).collect()
}

/// Covers: KEY-05a/I, KEY-23a/I, KEY-24a/I, KEY-26a/I, KEY-27a/I, KEY-28a/I, KEY-32a/I, KEY-35a/I,
/// NEG-31/I.
#[test]
fn an_answer_within_the_offer_is_in_force_and_no_other() {
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, u32)], &'a [&'a str]);
    let cases: [Case<'_>; 8] = [
        ("MaxConnections", "4", &[("1", 1), ("3", 3), ("4", 4)], &["0", "5", "65536"]),
        (
            "MaxBurstLength",
            "1048576",
            &[("512", 512), ("513", 513), ("0x400", 1024), ("1048576", 1 << 20)],
            &["511", "1048577", "16777216"],
        ),
        ("FirstBurstLength", "262144", &[("512", 512), ("262144", 1 << 18)], &["511", "262145"]),
        ("DefaultTime2Wait", "5", &[("5", 5), ("3600", 3600)], &["4", "3601"]),
        ("DefaultTime2Retain", "60", &[("0", 0), ("60", 60)], &["61", "-1"]),
        ("MaxOutstandingR2T", "8", &[("1", 1), ("2", 2), ("8", 8)], &["0", "9"]),
        ("ErrorRecoveryLevel", "2", &[("0", 0), ("1", 1), ("2", 2)], &["3"]),
        (
            "TaskReporting",
            "FastAbort,ResponseFence,RFC3720",
            &[("RFC3720", 0), ("ResponseFence", 1), ("FastAbort", 2)],
            &["Slow", "FastAbort,RFC3720", ""],
        ),
    ];
    for (key, offers, good, bad) in cases {
        assert_eq!(offer(&offered(&wide()), key), Some(offers), "{key}");
        for (answer, result) in good {
            let agreed = outcome(&wide(), &format!("{key}={answer}\n")).unwrap();
            assert_eq!(value(&agreed, key), *result, "{key}={answer}");
        }
        for answer in bad {
            let error = outcome(&wide(), &format!("{key}={answer}\n")).unwrap_err();
            assert!(error.to_string().contains("no result"), "{key}={answer}: {error}");
        }
    }
}

/// Covers: KEY-14a/I, KEY-15a/I, KEY-29a/I, KEY-30a/I, NEG-33/I.
#[test]
fn booleans_are_what_both_sides_make_them() {
    for (key, any) in [
        ("InitialR2T", true),
        ("ImmediateData", false),
        ("DataPDUInOrder", true),
        ("DataSequenceInOrder", true),
    ] {
        let word = |yes| if yes { "Yes" } else { "No" };
        // The offer leaves it to the target.
        assert_eq!(offer(&offered(&wide()), key), Some(word(!any)));
        for yes in [false, true] {
            let agreed = outcome(&wide(), &format!("{key}={}\n", word(yes))).unwrap();
            assert_eq!(value(&agreed, key), u32::from(yes), "{key}={yes}");
        }
        // The offer decides: there is one result.
        assert_eq!(offer(&offered(&narrow()), key), Some(word(any)));
        let agreed = outcome(&narrow(), &format!("{key}={}\n", word(any))).unwrap();
        assert_eq!(value(&agreed, key), u32::from(any), "{key}");
        assert!(outcome(&narrow(), &format!("{key}={}\n", word(!any))).is_err(), "{key}");
        assert!(outcome(&wide(), &format!("{key}=yes\n")).is_err(), "{key}");
    }
}

/// A target need not answer a boolean that the offer has decided (RFC 7143 §6.2.2).
///
/// Covers: NEG-33/I, NEG-34/I.
#[test]
fn a_boolean_that_the_offer_decides_needs_no_answer() {
    let agreed = outcome(&narrow(), "").unwrap();
    assert!(!agreed.immediate_data, "No, whatever the target might have said");
    assert!(agreed.initial_r2t && agreed.data_pdu_in_order && agreed.data_sequence_in_order);
    // One that is rejected is as without negotiation.
    let rejected = outcome(&narrow(), "ImmediateData=Reject\n").unwrap();
    assert!(rejected.immediate_data);
}

/// Covers: KEY-05a/I, KEY-14a/I, KEY-15a/I, KEY-23a/I, KEY-24a/I, KEY-26a/I, KEY-27a/I, KEY-28a/I,
/// KEY-29a/I, KEY-30a/I, KEY-32a/I, KEY-35a/I, NEG-14/I, KEY-02/I.
#[test]
fn what_is_offered_and_not_answered_has_its_default() {
    let agreed = outcome(&wide(), "").unwrap();
    let defaults = [1, 1, 1, 262_144, 65536, 2, 20, 1, 1, 1, 0, 0];
    for ((key, _), default) in OF_SESSION.into_iter().zip(defaults) {
        assert_eq!(value(&agreed, key), default, "{key}");
    }
    assert_eq!(agreed.max_send_data_segment_length, 8192);
    assert!(!agreed.header_digest && !agreed.data_digest);
    // Nor is anything answered that the target did not name.
    let mut lab = offered(&wide());
    lab.answer(MORE, "MaxBurstLength=65536\n");
    assert_eq!(lab.requests.last().map(|(_, text)| text.as_str()), Some(""));
}

/// A connection that joins a session, and what that has agreed on.
fn joined() -> (Lab, Parameters) {
    let answers: String = OF_SESSION.map(|(key, value)| format!("{key}={value}\n")).concat();
    let session = outcome(&wide(), &answers).unwrap();
    let joining = Joining {
        connection: ConnectionId(1),
        tsih: Tsih(9),
        cid: Cid(1),
        cmd_sn: CmdSn(40),
        exp_stat_sn: StatSn(0),
        parameters: session.clone(),
    };
    let settings = Settings { header_digest: DigestOffer::Preferred, ..wide() };
    let mut lab = Lab::of_login(Login::join(identity(), &settings, None, joining, START));
    lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
    (lab, session)
}

/// Covers: KEY-05b/I, KEY-14b/I, KEY-15b/I, KEY-23b/I, KEY-24b/I, KEY-26b/I, KEY-27b/I, KEY-28b/I,
/// KEY-29b/I, KEY-30b/I, KEY-30d/I, KEY-32b/I, KEY-35b/I, KEY-01/I, KEY-02/I.
#[test]
fn a_connection_that_joins_negotiates_its_own_keys_only() {
    let (mut lab, session) = joined();
    for (key, agreed) in OF_SESSION {
        assert_eq!(offer(&lab, key), None, "{key}");
        let result = match agreed {
            "No" => 0,
            "FastAbort" => 2,
            number => number.parse().unwrap(),
        };
        assert_eq!(value(&session, key), result, "{key}");
    }
    assert_eq!(offer(&lab, "SessionType"), None);
    assert_eq!(offer(&lab, "HeaderDigest"), Some("CRC32C,None"));
    assert_eq!(offer(&lab, "MaxRecvDataSegmentLength"), Some("262144"));
    // The target may not speak of the others either.
    lab.answer(MORE, &OF_SESSION.map(|(key, value)| format!("{key}={value}\n")).concat());
    let answers = &lab.requests.last().unwrap().1;
    assert_eq!(answers, &OF_SESSION.map(|(key, _)| format!("{key}=Reject\n")).concat());
    lab.answer(DONE, "HeaderDigest=CRC32C\nMaxRecvDataSegmentLength=1024\n");
    let connection = &lab.done().parameters;
    for (key, _) in OF_SESSION {
        assert_eq!(value(connection, key), value(&session, key), "{key}");
    }
    assert!(connection.header_digest && !session.header_digest);
    assert_eq!(connection.max_send_data_segment_length, 1024);
}

/// Nothing of ours is private, and nothing tells what kind of node this is.
///
/// Covers: NEG-12/I, NEG-35/I, KEY-34/I, KEY-39/I, KEY-41/I.
#[test]
fn every_key_that_goes_out_is_one_of_the_standard() {
    let mut labs = Vec::from([joined().0]);
    let discovery = Identity { target: None, discovery: true, ..identity() };
    for (identity, settings) in [(identity(), wide()), (identity(), narrow()), (discovery, wide())]
    {
        let mut lab = Lab::of(identity, &settings, None);
        lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
        labs.push(lab);
    }
    for mut lab in labs {
        lab.answer(DONE, "");
        lab.done();
        assert!(lab.requests.iter().all(|(_, text)| !text.is_empty()), "nothing empty");
        for pair in said(&lab).lines() {
            let name = pair.split('=').next().unwrap();
            assert!(params::find(name).is_some_and(|key| key.id != Id::NodeArchitecture), "{name}");
        }
    }
}

/// Covers: KEY-02/I.
#[test]
fn digests_are_offered_as_they_are_wanted() {
    for (wanted, list, takes) in [
        (DigestOffer::Off, "None", &["None"][..]),
        (DigestOffer::Allowed, "None,CRC32C", &["None", "CRC32C"]),
        (DigestOffer::Preferred, "CRC32C,None", &["None", "CRC32C"]),
        (DigestOffer::Required, "CRC32C", &["CRC32C"]),
    ] {
        let settings = Settings { header_digest: wanted, data_digest: wanted, ..wide() };
        assert_eq!(offer(&offered(&settings), "HeaderDigest"), Some(list));
        assert_eq!(offer(&offered(&settings), "DataDigest"), Some(list));
        for header in ["None", "CRC32C"] {
            for data in ["None", "CRC32C"] {
                let mut lab = offered(&settings);
                lab.answer(DONE, &format!("HeaderDigest={header}\nDataDigest={data}\n"));
                if !takes.contains(&header) || !takes.contains(&data) {
                    assert!(lab.error().to_string().contains("no result"), "{}", lab.error());
                    continue;
                }
                let keys = lab.done().keys();
                assert_eq!(
                    (keys.header_digest, keys.data_digest),
                    (header != "None", data != "None")
                );
            }
        }
    }
}

/// Covers: NEG-28/I.
#[test]
fn a_digest_that_was_not_offered_is_no_answer() {
    for (offers, answer) in [(DigestOffer::Off, "CRC32C"), (DigestOffer::Required, "None")] {
        let settings = Settings { data_digest: offers, ..wide() };
        let error = outcome(&settings, &format!("DataDigest={answer}\n")).unwrap_err();
        assert!(error.to_string().contains("no result"), "{error}");
    }
}

/// A target that does not understand a private key says so, and nobody minds.
///
/// Covers: KEY-34/I.
#[test]
fn a_private_key_need_not_be_understood() {
    for answer in ["NotUnderstood", "Reject", "Irrelevant"] {
        let mut lab = offered(&Settings::default());
        lab.answer(MORE, &format!("X-com.example.lunwire={answer}\n"));
        assert_eq!(lab.requests.last().unwrap().1, "", "an answer has none");
        lab.answer(DONE, "");
        lab.done();
    }
}

/// A private digest would come with CRC32C and without None; there is none.
///
/// Covers: KEY-04/I.
#[test]
fn the_default_offer_has_no_private_digest() {
    let lab = offered(&Settings::default());
    for key in ["HeaderDigest", "DataDigest"] {
        let list = offer(&lab, key).unwrap();
        assert!(list.split(',').all(|digest| ["None", "CRC32C"].contains(&digest)), "{list}");
    }
}

/// Covers: KEY-20a/I, KEY-20b/I, KEY-20c/I, NEG-36/I.
#[test]
fn each_side_declares_its_segment_length() {
    for (wish, declared) in
        [(0, "512"), (512, "512"), (16_777_215, "16777215"), (u32::MAX, "16777215")]
    {
        let settings = Settings { max_recv_data_segment_length: wish, ..Settings::default() };
        assert_eq!(offer(&offered(&settings), "MaxRecvDataSegmentLength"), Some(declared));
        // What the target declares has nothing to do with that.
        for theirs in ["512", "8192", "16777215"] {
            let agreed =
                outcome(&settings, &format!("MaxRecvDataSegmentLength={theirs}\n")).unwrap();
            assert_eq!(agreed.max_send_data_segment_length.to_string(), theirs);
            assert_eq!(agreed.max_recv_data_segment_length.to_string(), declared);
        }
        let agreed = outcome(&settings, "").unwrap();
        assert_eq!(agreed.max_send_data_segment_length, 8192, "the default");
        assert_eq!(agreed.max_recv_data_segment_length.to_string(), declared);
    }
    let discovery = Identity { target: None, discovery: true, ..identity() };
    let settings = Settings { max_recv_data_segment_length: 4096, ..Settings::default() };
    let mut lab = Lab::of(discovery, &settings, None);
    lab.answer(SECURED, "AuthMethod=None\n");
    assert_eq!(offer(&lab, "MaxRecvDataSegmentLength"), Some("4096"));
    for theirs in ["511", "16777216", "x"] {
        let answer = format!("MaxRecvDataSegmentLength={theirs}\n");
        assert!(outcome(&Settings::default(), &answer).is_err(), "{theirs}");
    }
}

/// Covers: KEY-25/I.
#[test]
fn the_first_burst_is_no_longer_than_a_burst() {
    let settings = Settings { max_burst_length: 16384, first_burst_length: 65536, ..wide() };
    let lab = offered(&settings);
    assert_eq!(offer(&lab, "MaxBurstLength"), Some("16384"));
    assert_eq!(offer(&lab, "FirstBurstLength"), Some("16384"));
    for answer in ["MaxBurstLength=4096\nFirstBurstLength=16384\n", "MaxBurstLength=4096\n"] {
        let agreed = outcome(&settings, answer).unwrap();
        assert_eq!((agreed.max_burst_length, agreed.first_burst_length), (4096, 4096));
    }
}

/// Covers: KEY-24d/I, NEG-20/I.
#[test]
fn the_first_burst_is_irrelevant_without_unsolicited_data() {
    let answers = "InitialR2T=Yes\nImmediateData=No\nFirstBurstLength=Irrelevant\n";
    for settings in [wide(), narrow()] {
        let agreed = outcome(&settings, answers).unwrap();
        assert!(agreed.initial_r2t && !agreed.immediate_data);
    }
}

/// Covers: NEG-17/I.
#[test]
fn the_keys_of_rfc_3720_are_understood_by_every_target() {
    let lab = offered(&wide());
    let (_, text) = lab.requests.last().unwrap();
    let names = text.lines().filter_map(|pair| pair.split_once('=')).map(|(name, _)| name);
    for name in names.filter(|name| *name != "TaskReporting") {
        let error = outcome(&wide(), &format!("{name}=NotUnderstood\n")).unwrap_err();
        assert!(error.to_string().contains("no result"), "{name}: {error}");
    }
}

/// TaskReporting is younger than RFC 3720: a target that does not know it reports as that has it.
///
/// Covers: NEG-18/I.
#[test]
fn a_later_key_that_is_not_understood_is_not_used() {
    let agreed = outcome(&wide(), "TaskReporting=NotUnderstood\nMaxOutstandingR2T=2\n").unwrap();
    assert_eq!(agreed.task_reporting, TaskReporting::Rfc3720);
    assert_eq!(agreed.max_outstanding_r2t, 2);
}

/// The target may make offers of its own.
///
/// Covers: NEG-15/I, NEG-16/I, KEY-38/I.
#[test]
fn offers_of_the_target_are_answered() {
    let mut lab = offered(&Settings::default());
    let offers = "TaskReporting=FastAbort,RFC3720\niSCSIProtocolLevel=2\nRDMAExtensions=Yes\n\
                  X-other=1\nX#Kind=2\n";
    lab.answer(MORE, offers);
    let (_, text) = lab.requests.last().unwrap();
    let answers = "TaskReporting=RFC3720\niSCSIProtocolLevel=1\nRDMAExtensions=No\n\
                   X-other=NotUnderstood\nX#Kind=NotUnderstood\n";
    assert_eq!(text, answers);
    lab.answer(DONE, "");
    assert_eq!(lab.done().parameters.protocol_level, 1);
}

/// Covers: KEY-10/I, KEY-40/I.
#[test]
fn what_the_target_says_of_itself_decides_nothing() {
    let plain = outcome(&wide(), "").unwrap();
    for said in [
        "TargetAlias=iqn.2026-01.com.example:other\n",
        "TargetAlias=\n",
        "X#NodeArchitecture=\n",
        "X#NodeArchitecture=os/9,cpu/6502\n",
    ] {
        assert_eq!(outcome(&wide(), said).unwrap(), plain, "{said}");
    }
}

/// Covers: NEG-05/I, NEG-19/I.
#[test]
fn an_alias_that_is_no_value_is_left_out() {
    let alias = |alias: &str| {
        let identity = Identity { initiator_alias: Some(alias.to_string()), ..identity() };
        let lab = Lab::of(identity, &Settings::default(), None);
        offer(&lab, "InitiatorAlias").map(ToString::to_string)
    };
    let long = "a".repeat(255);
    assert_eq!(alias(&long), Some(long.clone()));
    assert_eq!(alias(&(long + "a")), None);
    for reserved in ["None", "Reject", "Irrelevant", "NotUnderstood"] {
        assert_eq!(alias(reserved), None);
        let longer = format!("{reserved} 2");
        assert_eq!(alias(&longer), Some(longer));
    }
}

/// Covers: NEG-02/I, NEG-11a/I.
#[test]
fn a_pair_of_the_target_may_be_cut_anywhere() {
    // Also where a piece is a text of its own: it is not looked at before the last one is there.
    let whole = "X-a=1\nMaxBurstLength=32768\nDataDigest=CRC32C\nX-b=1\n";
    for cut in 0..=whole.len() {
        let mut lab = offered(&Settings::default());
        let piece = LoginResponse { continue_: true, ..lab.response(MORE) };
        lab.feed(piece, &whole[..cut]);
        let (request, text) = lab.requests.last().unwrap();
        assert!(!request.transit && text.is_empty(), "cut at {cut}: {text}");
        lab.answer(MORE, &whole[cut..]);
        let (_, text) = lab.requests.last().unwrap();
        assert_eq!(text, "X-a=NotUnderstood\nX-b=NotUnderstood\n", "cut at {cut}");
        lab.answer(DONE, "");
        let agreed = &lab.done().parameters;
        assert_eq!((agreed.max_burst_length, agreed.data_digest), (32768, true), "cut at {cut}");
        let both = |request: &LoginRequest| request.transit && request.continue_;
        assert!(!lab.requests.iter().any(|(request, _)| both(request)));
    }
}

/// Covers: NEG-09/I.
#[test]
fn eight_kibibytes_of_keys_are_taken() {
    let mut lab = offered(&Settings::default());
    let text: String = (0..128).map(|n| format!("X-k{n:03}={}\n", "v".repeat(56))).collect();
    assert_eq!(text.len(), 8192);
    for piece in [&text[..3000], &text[3000..6000]] {
        let response = LoginResponse { continue_: true, ..lab.response(MORE) };
        lab.feed(response, piece);
    }
    lab.answer(MORE, &text[6000..]);
    let (_, answers) = lab.requests.last().unwrap();
    assert_eq!(answers.lines().count(), text.lines().count());
    assert!(answers.lines().all(|answer| answer.ends_with("=NotUnderstood")));
    lab.answer(DONE, "");
    lab.done();
}

/// Methods whose items are longer than a login segment are not offered.
///
/// Covers: NEG-10/I.
#[test]
fn no_method_with_long_items_is_offered() {
    for (client, offers) in
        [(None, "None"), (Some(client(false)), "CHAP,None"), (Some(client(true)), "CHAP")]
    {
        let lab = Lab::with(&Settings::default(), client);
        assert_eq!(offer(&lab, "AuthMethod"), Some(offers));
    }
}
