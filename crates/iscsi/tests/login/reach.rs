// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far keys reach: the leading login, discovery sessions, other keys, and what the target says
//! unasked.

use iscsi::target_role::Settings;
use wire::iscsi::LoginRequest;
use wire::iscsi::Stage;
use wire::iscsi::Tsih;

use crate::driver::Driver;
use crate::driver::INITIATOR;
use crate::driver::last;
use crate::driver::operational;
use crate::driver::request;
use crate::driver::settings;

/// The keys that a leading login alone may have, with values at both ends.
pub(crate) const OF_SESSION: [(&str, [&str; 2]); 12] = [
    ("MaxConnections", ["1", "65535"]),
    ("InitialR2T", ["Yes", "No"]),
    ("ImmediateData", ["Yes", "No"]),
    ("MaxBurstLength", ["512", "16777215"]),
    ("FirstBurstLength", ["512", "16777215"]),
    ("DefaultTime2Wait", ["0", "3600"]),
    ("DefaultTime2Retain", ["0", "3600"]),
    ("MaxOutstandingR2T", ["1", "65535"]),
    ("DataPDUInOrder", ["Yes", "No"]),
    ("DataSequenceInOrder", ["Yes", "No"]),
    ("ErrorRecoveryLevel", ["0", "2"]),
    ("TaskReporting", ["RFC3720", "FastAbort"]),
];

/// Covers: KEY-05b/T, KEY-14b/T, KEY-15b/T, KEY-23b/T, KEY-24b/T, KEY-26b/T, KEY-27b/T, KEY-28b/T,
/// KEY-29b/T, KEY-30b/T, KEY-32b/T, KEY-35b/T.
#[test]
fn keys_of_the_session_come_in_its_leading_login() {
    let joining = LoginRequest { tsih: Tsih(3), ..last() };
    for (key, values) in OF_SESSION {
        for value in values {
            let pair = format!("{key}={value}");
            Driver::new().named(last(), &[&pair]).done();
            Driver::new().named(joining, &[&pair]).assert_failed_for(0x0200, key);
        }
    }
}

/// Where they mean nothing, no value of theirs ends a login.
///
/// Covers: KEY-05c/T, KEY-14c/T, KEY-15c/T, KEY-23c/T, KEY-24c/T, KEY-28c/T, KEY-29c/T, KEY-30c/T,
/// KEY-35c/T, P44-01c/T.
#[test]
fn keys_of_commands_mean_nothing_in_discovery() {
    for (key, values) in OF_SESSION {
        for value in values {
            let pair = format!("{key}={value}");
            let step = Driver::new().keys(last(), &[INITIATOR, "SessionType=Discovery", &pair]);
            let answer = step.answer(key).expect("an answer");
            assert!(!["Reject", "NotUnderstood"].contains(&&*answer), "{pair}: {answer}");
            let parameters = &step.done().parameters;
            assert_eq!((parameters.max_connections, parameters.error_recovery_level), (1, 0));
            assert_eq!(step.keys.expect("told").first_burst_length, 0, "no command, no data");
        }
    }
    // One that is no value of the key at all is rejected, and the login goes on.
    let nonsense = OF_SESSION.map(|(key, _)| format!("{key}=Slow"));
    for pair in &nonsense {
        let step = Driver::new().keys(last(), &[INITIATOR, "SessionType=Discovery", pair]);
        let key = pair.split('=').next().expect("a key");
        assert_eq!(step.answer(key).as_deref(), Some("Reject"), "{pair}");
        step.done();
    }
    // So does one of a later standard.
    for value in ["0", "1", "2", "31", "Slow", "32"] {
        let pair = format!("iSCSIProtocolLevel={value}");
        let step = Driver::new().keys(last(), &[INITIATOR, "SessionType=Discovery", &pair]);
        let answer = step.answer("iSCSIProtocolLevel").expect("an answer");
        assert_eq!(answer == "Reject", ["Slow", "32"].contains(&value), "{pair}: {answer}");
        step.done();
    }
    // Two that could not be together in a normal session.
    let mut driver = Driver::new();
    driver.keys(operational(), &[INITIATOR, "SessionType=Discovery", "FirstBurstLength=65536"]);
    driver.keys(last(), &["MaxBurstLength=512"]).done();
}

/// In whatever order, and in however many texts, the keys come.
///
/// Covers: KEY-31/T.
#[test]
fn one_r2t_at_a_time_is_agreed_where_sequences_come_in_order_and_may_be_lost() {
    let settings = Settings { error_recovery_level: 2, ..settings() };
    let r2ts = "MaxOutstandingR2T=8";
    for level in ["ErrorRecoveryLevel=0", "ErrorRecoveryLevel=1", "ErrorRecoveryLevel=2"] {
        for order in ["DataSequenceInOrder=Yes", "DataSequenceInOrder=No", "InitialR2T=Yes"] {
            let single = !level.ends_with('0') && !order.ends_with("=No");
            let expected = if single { 1 } else { 8 };
            for texts in [
                [&[level, order, r2ts][..], &[]],
                [&[r2ts, order, level], &[]],
                [&[level, order], &[r2ts]],
                [&[r2ts], &[order, level]],
            ] {
                let mut driver = Driver::with(settings.clone());
                let first = driver.named(operational(), texts[0]);
                let second = driver.keys(last(), texts[1]);
                let told = [&first, &second].map(|step| step.answer("MaxOutstandingR2T"));
                let told = told.into_iter().flatten().next().expect("an answer");
                // Told too early, it may have been more; what is used is not.
                let early = texts[0] == [r2ts];
                assert!(early || told == expected.to_string(), "{texts:?}: {told}");
                let agreed = second.done().parameters.max_outstanding_r2t;
                assert_eq!(agreed, expected, "{texts:?}");
            }
        }
    }
}

/// TaskReporting is left to the initiator, private keys are not used, and only who is configured
/// to tells what kind of node it is.
///
/// Covers: NEG-35/T, KEY-34/T, KEY-36/T, KEY-41/T.
#[test]
fn every_key_that_the_target_sends_unasked_is_known() {
    let registered = ["TargetPortalGroupTag", "TargetAlias", "MaxRecvDataSegmentLength"];
    for kind in [None, Some("os/1")] {
        for (tsih, session) in [
            (Tsih(0), "SessionType=Normal"),
            (Tsih(0), "SessionType=Discovery"),
            (Tsih(7), "SessionType=Normal"),
        ] {
            let node_architecture = kind.map(str::to_owned);
            let settings = Settings { node_architecture, ..settings() };
            let mut driver = Driver::with(settings).alias("disk");
            let of = |request| LoginRequest { tsih, ..request };
            let first = of(request(Stage::Security, Some(Stage::Operational)));
            let steps = [driver.named(first, &[session]), driver.keys(of(last()), &[])];
            for pair in steps.iter().flat_map(|step| step.answers()) {
                let name = pair.split('=').next().expect("a key");
                let of_node = name == "X#NodeArchitecture" && kind.is_some();
                assert!(registered.contains(&name) || of_node, "{pair}");
            }
            steps[1].done();
        }
    }
}

/// Covers: NEG-19/T.
#[test]
fn an_alias_that_is_no_value_is_left_out() {
    for reserved in ["None", "Reject", "Irrelevant", "NotUnderstood"] {
        assert_eq!(Driver::new().alias(reserved).named(last(), &[]).answer("TargetAlias"), None);
        let node_architecture = Some(reserved.to_owned());
        let step = Driver::with(Settings { node_architecture, ..settings() }).named(last(), &[]);
        assert_eq!(step.answer("X#NodeArchitecture"), None);
        let longer = format!("{reserved} 2");
        let step = Driver::new().alias(&longer).named(last(), &[]);
        assert_eq!(step.answer("TargetAlias"), Some(longer));
    }
}
