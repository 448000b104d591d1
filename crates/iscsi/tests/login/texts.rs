// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text: splitting over PDUs, limits, malformed pairs.

use wire::iscsi::LoginRequest;
use wire::iscsi::Stage;
use wire::iscsi::Tsih;

use crate::driver::Driver;
use crate::driver::INITIATOR;
use crate::driver::TARGET;
use crate::driver::last;
use crate::driver::operational;
use crate::driver::request;
use crate::driver::security;
use crate::driver::text;

fn continued() -> LoginRequest {
    LoginRequest { continue_: true, ..operational() }
}

/// Covers: NEG-02/T, LGN-35.
#[test]
fn a_pair_may_be_cut_anywhere() {
    let whole = text(&[INITIATOR, TARGET, "MaxBurstLength=65536"]);
    for cut in 0..=whole.len() {
        let mut driver = Driver::new();
        let step = driver.send(continued(), &whole[..cut]);
        assert!(step.reply().data.is_empty() && !step.reply().header.transit);
        assert!(step.admit.is_none(), "names are not complete");
        let step = driver.send(last(), &whole[cut..]);
        assert_eq!(step.answer("MaxBurstLength").as_deref(), Some("65536"), "cut at {cut}");
        assert_eq!(step.done().parameters.max_burst_length, 65536);
    }
    // Nor do later requests have an answer before they are whole.
    let whole = text(&["MaxBurstLength=65536", "MaxConnections=2"]);
    for cut in 0..=whole.len() {
        let mut driver = Driver::new();
        driver.named(operational(), &[]);
        let step = driver.send(continued(), &whole[..cut]);
        assert!(step.reply().data.is_empty() && !step.reply().header.transit, "cut at {cut}");
        let step = driver.send(last(), &whole[cut..]);
        assert_eq!(step.answers(), ["MaxBurstLength=65536", "MaxConnections=2"], "cut at {cut}");
        step.done();
    }
}

/// Covers: LGN-20.
#[test]
fn the_portal_group_tag_comes_with_the_first_whole_text() {
    let mut driver = Driver::new();
    let step = driver.named(operational(), &[]);
    assert_eq!(step.answers().first().map(String::as_str), Some("TargetPortalGroupTag=1"));
    assert_eq!(driver.keys(last(), &[]).answer("TargetPortalGroupTag"), None, "once");
    let mut driver = Driver::new();
    assert!(driver.keys(continued(), &[INITIATOR]).answers().is_empty());
    let step = driver.keys(last(), &[TARGET]);
    assert_eq!(step.answer("TargetPortalGroupTag").as_deref(), Some("1"));
    // In whichever stage the login begins, and on each connection of a session.
    let joins = LoginRequest { tsih: Tsih(7), ..last() };
    let secured = request(Stage::Security, Some(Stage::Operational));
    for first in [security(), secured, joins] {
        let step = Driver::new().named(first, &[]);
        assert_eq!(step.answer("TargetPortalGroupTag").as_deref(), Some("1"), "{first:?}");
    }
}

/// Covers: LGN-54.
#[test]
fn endless_text_is_stopped() {
    let mut driver = Driver::new();
    let mut taken = 0;
    let end = loop {
        let step = driver.send(continued(), &[b'x'; 4096]);
        if step.failed.is_some() {
            break step;
        }
        taken += 4096;
        assert!(taken <= 64 * 1024);
    };
    assert!(taken >= 8192, "8192 bytes must be accepted");
    end.assert_failed_for(0x0200, "bytes");
    // Empty requests with C=1 end too.
    let mut driver = Driver::new();
    let ended = (0..1000).any(|_| driver.send(continued(), &[]).failed.is_some());
    assert!(ended);
}

/// CVE-2021-28361: an empty text with the C bit.
#[test]
fn an_empty_text_with_the_c_bit_is_harmless() {
    let mut driver = Driver::new();
    let step = driver.send(continued(), &[]);
    assert!(step.reply().data.is_empty() && step.failed.is_none());
    driver.send(last(), &[]).assert_failed(0x0207);
}

/// Covers: NEG-09/T, NEG-16/T.
#[test]
fn eight_kibibytes_of_private_keys_are_answered() {
    let mut whole = text(&[INITIATOR, TARGET]);
    let mut count = 0;
    while whole.len() < 8192 {
        let pair = format!("X-com.example.key{count:03}=");
        let pad = (8192 - whole.len() - pair.len() - 1).min(100);
        whole.extend_from_slice(pair.as_bytes());
        whole.extend(std::iter::repeat_n(b'v', pad));
        whole.push(0);
        count += 1;
        if 8192 - whole.len() < 30 {
            break;
        }
    }
    let mut driver = Driver::new();
    let (a, rest) = whole.split_at(3000);
    let (b, c) = rest.split_at(3000);
    driver.send(continued(), a);
    driver.send(continued(), b);
    let step = driver.send(last(), c);
    let answers = step.answers();
    let unknown = answers.iter().filter(|pair| pair.ends_with("=NotUnderstood")).count();
    assert_eq!(unknown, count);
    step.done();
}

/// Covers: NEG-11a/T.
#[test]
fn t_and_c_together_are_refused() {
    let mut driver = Driver::new();
    let both = LoginRequest { continue_: true, ..last() };
    driver.named(both, &[]).assert_failed_for(0x0200, "T and C");
}

/// Long answers go out over several responses with the C bit, each asked for by an empty request.
///
/// Covers: NEG-11a/T.
#[test]
fn long_answers_are_continued() {
    let mut driver = Driver::new();
    driver.named(operational(), &[]);
    let offers: Vec<String> = (0..1000).map(|n| format!("X-{n}=")).collect();
    let pairs: Vec<&str> = offers.iter().map(String::as_str).collect();
    let whole = text(&pairs);
    let mut step = driver.send(last(), &whole);
    let mut answer = Vec::new();
    let mut responses = 1;
    while step.reply().header.continue_ {
        assert_eq!(step.reply().data.len(), 8192);
        answer.extend_from_slice(&step.reply().data);
        step = driver.send(last(), &[]);
        responses += 1;
    }
    answer.extend_from_slice(&step.reply().data);
    let expected: Vec<u8> =
        (0..1000).flat_map(|n| format!("X-{n}=NotUnderstood\0").into_bytes()).collect();
    assert_eq!(answer, expected);
    assert_eq!(responses, 3);
    step.done();
}

#[test]
fn keys_before_the_rest_of_an_answer_are_refused() {
    let mut driver = Driver::new();
    driver.named(operational(), &[]);
    let many: Vec<u8> = (0..700).flat_map(|n| format!("X-{n}=\0").into_bytes()).collect();
    assert!(driver.send(last(), &many).reply().header.continue_);
    driver.keys(last(), &["MaxBurstLength=512"]).assert_failed_for(0x0200, "must be empty");
}

#[test]
fn answers_are_bounded() {
    let mut driver = Driver::new();
    driver.named(operational(), &[]);
    let many: Vec<u8> = "A=\0".repeat(2700).into_bytes();
    driver.send(operational(), &many).assert_failed(0x0302);
}

/// Covers: NEG-01/T.
#[test]
fn every_pair_ends_with_a_null() {
    let mut driver = Driver::new();
    let mut whole = text(&[INITIATOR, TARGET]);
    whole.pop();
    driver.send(last(), &whole).assert_failed_for(0x0200, "text");
    let mut driver = Driver::new();
    let step = driver.named(last(), &["Maxburstlength=65536"]);
    assert_eq!(step.answer("Maxburstlength").as_deref(), Some("NotUnderstood"));
    for bad in [&b"\xff\xfe=1\0"[..], b"NoEqualsSign\0", b"=value\0"] {
        let mut driver = Driver::new();
        driver.named(operational(), &[]);
        driver.send(last(), bad).assert_failed(0x0200);
    }
}

/// CVE-2013-2850: the answer to an over-long key.
/// Covers: NEG-03/T.
#[test]
fn an_over_long_key_is_refused_or_not_understood() {
    for length in [63, 64, 255, 8000] {
        let mut driver = Driver::new();
        driver.named(operational(), &[]);
        let key = "K".repeat(length);
        let step = driver.keys(last(), &[&format!("{key}=1")]);
        if length <= 63 {
            assert_eq!(step.answer(&key).as_deref(), Some("NotUnderstood"));
        } else {
            step.assert_failed(0x0200);
        }
    }
}

/// Covers: NEG-04/T.
#[test]
fn the_value_begins_after_the_first_equals_sign() {
    let mut driver = Driver::new();
    let step = driver.named(last(), &["InitiatorAlias=a=b"]);
    assert_eq!(step.done().initiator_alias.as_deref(), Some("a=b"));
}

/// Covers: NEG-05/T, KEY-39/T.
#[test]
fn simple_values_hold_255_bytes() {
    for key in ["InitiatorAlias", "X#NodeArchitecture"] {
        let longest = format!("{key}={}", "a".repeat(255));
        assert!(Driver::new().named(last(), &[&longest]).done.is_some());
        let longer = format!("{longest}a");
        Driver::new().named(last(), &[&longer]).assert_failed_for(0x0200, key);
    }
    let twice = ["X#NodeArchitecture=a", "X#NodeArchitecture=b"];
    Driver::new().named(last(), &twice).assert_failed_for(0x0200, "twice");
}

/// Covers: NEG-37/T.
#[test]
fn padding_makes_no_empty_key() {
    let mut whole = text(&[INITIATOR, TARGET]);
    whole.extend_from_slice(&[0, 0]);
    let step = Driver::new().send(last(), &whole);
    assert_eq!(step.answers(), ["TargetPortalGroupTag=1", "MaxRecvDataSegmentLength=262144"]);
    step.done();
}

/// Covers: NEG-12/T.
#[test]
fn a_response_is_empty_only_if_a_rule_says_so() {
    let mut driver = Driver::new();
    let step =
        driver.named(request(Stage::Security, Some(Stage::Operational)), &["AuthMethod=None"]);
    assert_eq!(step.answers(), ["TargetPortalGroupTag=1", "AuthMethod=None"]);
    assert_eq!(driver.keys(last(), &[]).answers(), ["MaxRecvDataSegmentLength=262144"]);
}

#[test]
fn hostile_text_is_escaped_and_cut_in_the_log() {
    let value = format!("MaxRecvDataSegmentLength=\u{1b}[31m{}", "z".repeat(200));
    let step = Driver::new().named(last(), &[&value]);
    let (_, reason) = step.failed.expect("inadmissible");
    assert!(!reason.contains('\u{1b}') && reason.len() < 200, "{reason}");
}
