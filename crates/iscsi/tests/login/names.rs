// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names, session types, and what the node decides.

use iscsi::target_role::Admission;
use wire::iscsi::Cid;
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

#[test]
fn a_discovery_login_needs_no_target_name() {
    let mut driver = Driver::new().alias("ignored");
    let step = driver.keys(last(), &[INITIATOR, "SessionType=Discovery"]);
    let admit = step.admit.as_ref().expect("the node is asked");
    assert!(admit.discovery && admit.target.is_none());
    assert_eq!(step.answers(), ["MaxRecvDataSegmentLength=262144"]);
    assert!(step.done().discovery);
    assert_eq!(step.keys.expect("told").first_burst_length, 0, "no commands in discovery");
}

#[test]
fn a_discovery_login_may_name_a_target() {
    let step = Driver::new().keys(last(), &[INITIATOR, TARGET, "SessionType=Discovery"]);
    assert_eq!(step.answer("TargetPortalGroupTag").as_deref(), Some("1"));
    assert_eq!(step.done().target.as_deref(), Some("iqn.2001-04.com.example:disk"));
}

/// Covers: LGN-41a, LGN-41b.
#[test]
fn missing_names_are_told() {
    Driver::new().keys(last(), &[TARGET]).assert_failed_for(0x0207, "InitiatorName");
    Driver::new().keys(last(), &[INITIATOR]).assert_failed_for(0x0207, "TargetName");
    Driver::new().keys(last(), &["SessionType=Discovery"]).assert_failed(0x0207);
    Driver::new().keys(security(), &[]).assert_failed(0x0207);
}

/// Covers: LGN-40.
#[test]
fn what_is_missing_comes_before_what_is_wrong() {
    let mut driver = Driver::new();
    driver.admission = Admission::Refused { status: 0x0203, reason: "none" };
    driver.keys(last(), &["TargetName=iqn.2001-04.com.example:none"]).assert_failed(0x0207);
    driver = Driver::new();
    driver.admission = Admission::Refused { status: 0x0203, reason: "none" };
    driver.named(last(), &["MaxBurstLength=Reject"]).assert_failed(0x0203);
}

/// Covers: LGN-43, KEY-33.
#[test]
fn the_session_type_is_normal_or_discovery() {
    let foo = Driver::new().named(last(), &["SessionType=Foo"]);
    foo.assert_failed_for(0x0209, "Foo");
    // It is declared: there is no answer, and the target has none of its own to say.
    for pairs in [&["SessionType=Normal"][..], &["SessionType=Discovery"], &[]] {
        let step = Driver::new().named(operational(), pairs);
        assert_eq!(step.answer("SessionType"), None);
    }
    assert!(!Driver::new().named(last(), &[]).done().discovery);
    assert!(!Driver::new().named(last(), &["SessionType=Normal"]).done().discovery);
    let mut driver = Driver::new();
    driver.named(operational(), &[]);
    driver.keys(last(), &["SessionType=Normal"]).assert_failed_for(0x0200, "SessionType");
}

/// Covers: NAM-03/T.
#[test]
fn names_hold_223_bytes() {
    for key in ["InitiatorName", "TargetName"] {
        let other = if key == "TargetName" { INITIATOR } else { TARGET };
        let longest = format!("{key}=iqn.2001-04.com.example:{}", "n".repeat(199));
        assert_eq!(longest.len() - key.len() - 1, 223);
        assert!(Driver::new().keys(last(), &[other, &longest]).done.is_some());
        for length in 1..=223 {
            let name = format!("{key}={}", "n".repeat(length));
            assert!(Driver::new().keys(last(), &[other, &name]).done.is_some(), "{name}");
        }
        let longer = longest + "n";
        let step = Driver::new().keys(last(), &[other, &longer]);
        step.assert_failed_for(0x0200, key);
    }
}

#[test]
fn names_are_passed_on_prepared() {
    let upper = "TargetName=iqn.2001-04.com.example:DISK";
    let host = "InitiatorName=iqn.2001-04.com.example:Host";
    let step = Driver::new().keys(last(), &[host, upper]);
    let admit = step.admit.as_ref().expect("the node is asked");
    assert_eq!(admit.target.as_deref(), Some("iqn.2001-04.com.example:disk"));
    assert_eq!(admit.initiator, "iqn.2001-04.com.example:host");
    assert_eq!(step.done().initiator, "iqn.2001-04.com.example:host");
    // The same name again, in whatever letters, is no other one.
    let mut driver = Driver::new();
    driver.keys(operational(), &[host, upper]);
    assert!(driver.keys(last(), &[&host.replace("Host", "hOST")]).done.is_some());
}

#[test]
fn names_with_controls_are_refused() {
    let step = Driver::new().keys(last(), &["InitiatorName=iqn.\u{1b}[2J", TARGET]);
    step.assert_failed_for(0x0200, "InitiatorName");
    let step = Driver::new().keys(last(), &["InitiatorName=Reject", TARGET]);
    step.assert_failed_for(0x0200, "reserved");
}

#[test]
fn an_initiator_whose_name_cannot_be_prepared_is_refused() {
    let step =
        Driver::new().keys(last(), &["InitiatorName=iqn.2001-04.com.example:\u{e4}", TARGET]);
    step.assert_failed_for(0x0200, "InitiatorName");
    let step =
        Driver::new().keys(last(), &[INITIATOR, "TargetName=iqn.2001-04.com.example:\u{e4}"]);
    assert!(step.admit.is_some(), "there is no such target, which the node tells");
}

#[test]
fn names_may_not_come_twice_or_late() {
    Driver::new().named(last(), &[TARGET]).assert_failed_for(0x0200, "twice");
    let mut driver = Driver::new();
    driver.named(operational(), &[]);
    let other = "InitiatorName=iqn.2001-04.com.example:other";
    driver.keys(last(), &[other]).assert_failed_for(0x0200, "InitiatorName");
    let mut driver = Driver::new();
    driver.keys(operational(), &[INITIATOR, "SessionType=Discovery"]);
    driver.keys(last(), &[TARGET]).assert_failed_for(0x0200, "TargetName");
}

/// libiscsi does so when it has been given a user name.
#[test]
fn an_initiator_may_introduce_itself_in_each_stage() {
    let mut driver = Driver::new();
    let introduction = ["InitiatorAlias=host", "SessionType=Normal"];
    let first = request(Stage::Security, Some(Stage::Operational));
    assert!(driver.named(first, &introduction).reply().header.transit);
    let step = driver.named(last(), &introduction);
    assert_eq!(step.answers(), ["MaxRecvDataSegmentLength=262144"]);
    assert_eq!(step.done().initiator_alias.as_deref(), Some("host"));
    for changed in ["InitiatorAlias=guest", "SessionType=Discovery", "TargetName=iqn.2001-04.com.b"]
    {
        let name = changed.split('=').next().expect("a key");
        let mut driver = Driver::new();
        driver.named(first, &introduction);
        driver.keys(last(), &[changed]).assert_failed_for(0x0200, name);
    }
}

#[test]
fn a_refusal_of_the_node_is_told() {
    for status in [0x0202, 0x0203, 0x0204, 0x0301, 0x0302] {
        let mut driver = Driver::new();
        driver.admission = Admission::Refused { status, reason: "why" };
        let step = driver.named(last(), &[]);
        step.assert_failed_for(status, "why");
        assert!(!step.established);
    }
    // What is no refusal would let the initiator believe that it is logged in.
    let mut driver = Driver::new();
    driver.admission = Admission::Refused { status: 0, reason: "none" };
    driver.named(last(), &[]).assert_failed(0x0300);
}

/// Covers: SES-13.
#[test]
fn the_old_session_is_touched_only_when_all_is_agreed() {
    let mut driver = Driver::new();
    assert!(!driver.named(operational(), &[]).established);
    let step = driver.keys(last(), &["MaxBurstLength=Irrelevant"]);
    step.assert_failed(0x0200);
    assert!(!step.established);
}

#[test]
fn the_node_decides_on_sessions_that_exist() {
    for status in [0x020a, 0x0206, 0x0302] {
        let mut driver = Driver::new();
        driver.tsih = Err(status);
        let step = driver.named(LoginRequest { tsih: Tsih(0x7777), cid: Cid(9), ..last() }, &[]);
        let admit = step.admit.as_ref().expect("the node is asked");
        assert_eq!((admit.tsih, admit.cid), (Tsih(0x7777), Cid(9)));
        assert!(step.established);
        step.assert_failed(status);
    }
    let mut driver = Driver::new();
    driver.tsih = Ok(Tsih(0x7777));
    let step =
        driver.named(LoginRequest { tsih: Tsih(0x7777), ..last() }, &["HeaderDigest=CRC32C"]);
    assert_eq!(step.reply().header.tsih, Tsih(0x7777));
    assert!(step.done().parameters.header_digest);
}

/// Covers: KEY-08, KEY-13, KEY-07.
#[test]
fn the_target_introduces_itself() {
    for tag in [0, 65535] {
        let mut driver = Driver::new().alias("scratch disk");
        if let Admission::Granted { portal_group_tag, .. } = &mut driver.admission {
            *portal_group_tag = tag;
        }
        let step = driver.named(last(), &[]);
        assert_eq!(step.answer("TargetPortalGroupTag"), Some(tag.to_string()));
        assert_eq!(step.answer("TargetAlias").as_deref(), Some("scratch disk"));
        assert_eq!(step.answer("TargetName"), None);
    }
    // An alias that would break the text is left out.
    for alias in ["a\0b".to_string(), "a".repeat(256)] {
        let step = Driver::new().alias(&alias).named(last(), &[]);
        assert_eq!(step.answer("TargetAlias"), None);
    }
}

/// Covers: KEY-10/T.
#[test]
fn an_alias_identifies_nobody() {
    let plain = Driver::new().named(last(), &[]).admit.expect("asked");
    let forged = Driver::new().named(last(), &["InitiatorAlias=iqn.2001-04.com.example:root"]);
    let asked = forged.admit.as_ref().expect("asked");
    assert_eq!(format!("{asked:?}"), format!("{plain:?}"));
    let (done, own) = (forged.done(), Driver::new().named(last(), &[]));
    assert!(done.initiator_alias.is_some());
    assert_eq!((&done.initiator, done.proved), (&own.done().initiator, false));
}

/// Covers: LGN-24.
#[test]
fn the_first_acceptable_method_is_chosen() {
    for offer in ["None", "CHAP,None", "None,CHAP", "KRB5,SRP,CHAP,None"] {
        let step = Driver::new().named(security(), &[&format!("AuthMethod={offer}")]);
        assert_eq!(step.answer("AuthMethod").as_deref(), Some("None"), "{offer}");
    }
}

/// Covers: LGN-26, OBS-05/T, LGN-49/T.
#[test]
fn no_acceptable_method_is_an_authentication_failure() {
    for offer in ["CHAP", "SPKM1,SPKM2", "KRB5", "Foo"] {
        let step = Driver::new().named(security(), &[&format!("AuthMethod={offer}")]);
        step.assert_failed_for(0x0201, offer);
    }
    let step = Driver::new().named(security(), &["AuthMethod=SPKM1,None"]);
    assert_eq!(step.answer("AuthMethod").as_deref(), Some("None"));
}

#[test]
fn keys_of_a_method_need_the_method() {
    for key in ["CHAP_A=5", "CHAP_I=1", "CHAP_C=0x00", "CHAP_N=u", "CHAP_R=0x00", "SRP_U=u"] {
        let name = key.split('=').next().expect("a key");
        let step = Driver::new().named(security(), &["AuthMethod=None", key]);
        step.assert_failed_for(0x0200, name);
    }
}

/// Covers: KEY-14a/T, KEY-15a/T, KEY-29a/T, KEY-30a/T, SES-30/T, KEY-02/T.
#[test]
fn every_login_begins_with_the_defaults() {
    let offers = ["MaxBurstLength=1048576", "HeaderDigest=CRC32C", "InitialR2T=No"];
    assert!(Driver::new().named(last(), &offers).done().parameters.header_digest);
    let step = Driver::new().named(request(Stage::Security, Some(Stage::FullFeature)), &[]);
    let parameters = &step.done().parameters;
    assert!(!parameters.header_digest && !parameters.data_digest);
    assert!(parameters.initial_r2t && parameters.immediate_data);
    assert!(parameters.data_pdu_in_order && parameters.data_sequence_in_order);
    assert_eq!(parameters.max_send_data_segment_length, 8192);
    assert_eq!(parameters.max_recv_data_segment_length, 8192);
    assert_eq!(parameters.max_burst_length, 262_144);
    assert_eq!(parameters.first_burst_length, 65536);
    assert_eq!(parameters.max_outstanding_r2t, 1);
    assert_eq!((parameters.time2wait, parameters.time2retain), (2, 20));
    assert_eq!((parameters.max_connections, parameters.error_recovery_level), (1, 0));
    assert_eq!(parameters.protocol_level, 1);
}
