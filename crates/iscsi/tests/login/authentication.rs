// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The security stage with CHAP.

use std::sync::Arc;

use iscsi::chap::Account;
use iscsi::chap::Algorithm;
use iscsi::chap::Challenge;
use iscsi::chap::Credentials;
use iscsi::chap::Exchange;
use iscsi::chap::Mutual;
use iscsi::chap::Policy;
use iscsi::chap::Secret;
use iscsi::target_role::Admission;
use iscsi::target_role::Authentication;
use wire::iscsi::LoginRequest;
use wire::iscsi::Stage;
use wire::iscsi::Tsih;

use crate::driver::Driver;
use crate::driver::INITIATOR;
use crate::driver::Step;
use crate::driver::TARGET;
use crate::driver::last;
use crate::driver::operational;
use crate::driver::request;
use crate::driver::security;
use crate::driver::settings;
use crate::reach::OF_SESSION;

/// The exchange of a published example: secrets `secretsecret1234` and `targetsecret5678`.
const RESPONSE: &str = "CHAP_R=0xb2646b71529fe738d17b66d5baad4a2aafe06150d842bb92ff92ff56a743f83e";
const CHALLENGE: &str = "CHAP_C=0x000102030405060708090a0b0c0d0e0f";
const OURS: &str = "CHAP_R=0x7f0fe7d2a75ad80865f4158892658f7020c50430c0f74633de072a7147a62b3c";
const THEIRS: &str = "CHAP_C=0xf0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";
const NAME: &str = "CHAP_N=hostuser";

/// What a node may be told to do.
#[derive(Clone, Copy)]
enum Policies {
    Optional,
    Required,
    Mutual,
}

pub(crate) fn exchange(mutual: Mutual) -> Box<Exchange> {
    let credentials = |name: &str, secret: &[u8]| {
        Credentials::new(name.into(), Secret::new(secret).expect("16 bytes")).expect("a name")
    };
    let account = Account::new(
        credentials("hostuser", b"secretsecret1234"),
        Some(credentials("diskuser", b"targetsecret5678")),
    );
    let policy = Policy {
        accounts: vec![Arc::new(account.expect("two secrets"))],
        algorithms: Algorithm::ALL.to_vec(),
        mutual,
    };
    let challenge: Vec<u8> = (0..16).collect();
    Box::new(Exchange::new(policy, Challenge::new(1, &challenge).expect("16 bytes")))
}

fn driver(policies: Policies) -> Driver {
    let mut driver = Driver::new();
    driver.admission = Admission::Granted {
        portal_group_tag: 1,
        target_alias: None,
        settings: settings(),
        authentication: match policies {
            Policies::Optional => Authentication::Optional(exchange(Mutual::OnRequest)),
            Policies::Required => Authentication::Required(exchange(Mutual::OnRequest)),
            Policies::Mutual => Authentication::Required(exchange(Mutual::Required)),
        },
    };
    driver
}

fn to_operational() -> LoginRequest {
    request(Stage::Security, Some(Stage::Operational))
}

/// A login that has been given the challenge.
fn challenged(policies: Policies) -> Driver {
    let mut driver = driver(policies);
    let step = driver.named(security(), &["AuthMethod=CHAP,None"]);
    assert_eq!(step.answers(), ["TargetPortalGroupTag=1", "AuthMethod=CHAP"]);
    let step = driver.keys(security(), &["CHAP_A=7,5"]);
    assert_eq!(step.answers(), ["CHAP_A=7", "CHAP_I=1", CHALLENGE]);
    driver
}

#[track_caller]
fn assert_moved(step: &Step, next: Option<Stage>) {
    assert!(step.failed.is_none(), "{:?}", step.failed);
    assert_eq!(step.reply().header.next, next);
}

/// Covers: CHP-01/T.
#[test]
fn one_way() {
    for next in [Stage::Operational, Stage::FullFeature] {
        let mut driver = challenged(Policies::Required);
        assert_eq!(driver.login.authenticated(), None);
        let step = driver.keys(request(Stage::Security, Some(next)), &[NAME, RESPONSE]);
        assert_moved(&step, Some(next));
        assert_eq!(step.answers(), [""; 0]);
        if next == Stage::Operational {
            assert_eq!(driver.login.authenticated(), Some("hostuser"));
            driver.keys(last(), &[]).done();
        } else {
            step.done();
        }
    }
}

/// Covers: CHP-04/T.
#[test]
fn the_security_stage_has_its_own_keys_only() {
    let of_connection = [
        ("MaxRecvDataSegmentLength", "8192"),
        ("HeaderDigest", "None"),
        ("DataDigest", "None"),
        ("OFMarker", "No"),
        ("IFMarkInt", "2048"),
        ("iSCSIProtocolLevel", "1"),
        ("RDMAExtensions", "No"),
    ];
    let of_session = OF_SESSION.map(|(key, [value, _])| (key, value));
    for (key, value) in of_connection.into_iter().chain(of_session) {
        let pair = format!("{key}={value}");
        for early in [driver(Policies::Required), Driver::new()] {
            let mut early = early;
            early.named(security(), &[&pair]).assert_failed_for(0x0200, key);
        }
    }
}

/// Covers: LGN-51/T, CHP-01/T.
#[test]
fn mutual_as_in_the_example() {
    for policies in [Policies::Required, Policies::Mutual] {
        let mut driver = challenged(policies);
        let keys = [NAME, RESPONSE, "CHAP_I=42", THEIRS];
        let step = driver.keys(to_operational(), &keys);
        assert_moved(&step, Some(Stage::Operational));
        assert_eq!(step.answers(), ["CHAP_N=diskuser", OURS]);
        driver.keys(last(), &["InitialR2T=No"]).done();
    }
    let step = challenged(Policies::Mutual).keys(to_operational(), &[NAME, RESPONSE]);
    step.assert_failed_for(0x0201, "prove itself");
}

/// Covers: CHP-02/T, LGN-24.
#[test]
fn the_list_of_the_initiator_decides_among_what_is_allowed() {
    let pick =
        |policies, offer: &str| driver(policies).named(security(), &[offer]).answer("AuthMethod");
    for (offer, picked) in [
        ("AuthMethod=CHAP,None", "CHAP"),
        ("AuthMethod=None,CHAP", "None"),
        ("AuthMethod=KRB5,None", "None"),
    ] {
        assert_eq!(pick(Policies::Optional, offer).as_deref(), Some(picked), "{offer}");
    }
    for offer in ["AuthMethod=CHAP,None", "AuthMethod=None,CHAP", "AuthMethod=CHAP"] {
        assert_eq!(pick(Policies::Required, offer).as_deref(), Some("CHAP"), "{offer}");
        let step = Driver::new().named(security(), &[offer]);
        match offer {
            "AuthMethod=CHAP" => step.assert_failed(0x0201),
            _ => assert_eq!(step.answer("AuthMethod").as_deref(), Some("None")),
        }
    }
    for offer in ["AuthMethod=None", "AuthMethod=KRB5,SRP", "AuthMethod=", "AuthMethod=chap"] {
        let step = driver(Policies::Required).named(security(), &[offer]);
        step.assert_failed(0x0201);
        assert_eq!(step.reply().answers(), ["AuthMethod=Reject"], "{offer}");
    }
}

/// A connection that joins a session has its own negotiation, as the first one had.
///
/// Covers: CHP-02/T.
#[test]
fn each_connection_negotiates_its_method() {
    let joins = LoginRequest { tsih: Tsih(7), ..security() };
    for (offer, picked) in [("CHAP,None", "CHAP"), ("None,CHAP", "None"), ("None", "None")] {
        let step = driver(Policies::Optional).named(joins, &[&format!("AuthMethod={offer}")]);
        assert_eq!(step.answer("AuthMethod").as_deref(), Some(picked), "{offer}");
    }
    let step = driver(Policies::Required).named(joins, &["AuthMethod=None,CHAP"]);
    assert_eq!(step.answer("AuthMethod").as_deref(), Some("CHAP"));
    driver(Policies::Required).named(joins, &["AuthMethod=None"]).assert_failed(0x0201);
}

/// Only methods with items of a few kilobytes are taken.
///
/// Covers: NEG-10/T, OBS-05/T, CHP-27/T.
#[test]
fn methods_that_are_not_known_are_skipped() {
    for offer in ["AuthMethod=KRB5,SRP,CHAP", "AuthMethod=SPKM1,SPKM2,CHAP", "AuthMethod=Z-a,CHAP"]
    {
        let step = driver(Policies::Required).named(security(), &[offer]);
        assert_eq!(step.answer("AuthMethod").as_deref(), Some("CHAP"), "{offer}");
    }
    driver(Policies::Optional).named(security(), &["AuthMethod=SPKM1,SPKM2"]).assert_failed(0x0201);
    for key in ["SPKM_REQ", "SPKM_ERROR", "SPKM_REP_TI", "SPKM_REP_IT"] {
        let pair = format!("{key}=0x01");
        let step = driver(Policies::Optional).named(security(), &["AuthMethod=None", &pair]);
        assert_eq!(step.answer(key).as_deref(), Some("NotUnderstood"));
        assert!(step.failed.is_none());
    }
}

/// Covers: LGN-22.
#[test]
fn security_cannot_be_skipped() {
    for policies in [Policies::Required, Policies::Mutual] {
        driver(policies).named(last(), &[]).assert_failed(0x0201);
        driver(policies).named(operational(), &[]).assert_failed(0x0201);
        for next in [Stage::Operational, Stage::FullFeature] {
            let leave = request(Stage::Security, Some(next));
            driver(policies).named(leave, &[]).assert_failed(0x0201);
            driver(policies).named(leave, &["AuthMethod=None"]).assert_failed(0x0201);
            let mut driver = driver(policies);
            assert_moved(&driver.named(security(), &[]), None);
            driver.keys(leave, &[]).assert_failed(0x0201);
        }
    }
}

#[test]
fn without_demand_none_will_do() {
    driver(Policies::Optional).named(last(), &[]).done();
    let full = request(Stage::Security, Some(Stage::FullFeature));
    driver(Policies::Optional).named(full, &[]).done();
    driver(Policies::Optional).named(full, &["AuthMethod=None"]).done();
    let mut chosen = driver(Policies::Optional);
    assert_moved(&chosen.named(full, &["AuthMethod=CHAP,None"]), None);
    chosen.keys(full, &["CHAP_A=7"]);
    chosen.keys(full, &[NAME, "CHAP_R=0x00"]).assert_failed(0x0201);
}

#[test]
fn no_transition_before_the_proof() {
    let mut driver = driver(Policies::Required);
    for next in [Stage::Operational, Stage::FullFeature] {
        let leave = request(Stage::Security, Some(next));
        let keys: &[&str] = match next {
            Stage::Operational => &[INITIATOR, TARGET, "AuthMethod=CHAP"],
            _ => &[],
        };
        let step = driver.keys(leave, keys);
        assert_moved(&step, None);
        assert!(!step.established);
    }
    assert_moved(&driver.keys(to_operational(), &["CHAP_A=7"]), None);
    assert_moved(&driver.keys(security(), &[NAME, RESPONSE]), None);
    assert_moved(&driver.keys(to_operational(), &[]), Some(Stage::Operational));
    driver.keys(last(), &[]).done();
}

/// Covers: LGN-26, CHP-11, CHP-18, CHP-01/T.
#[test]
fn wrong_values_are_authentication_failures() {
    let wrong = "CHAP_R=0xb2646b71529fe738d17b66d5baad4a2aafe06150d842bb92ff92ff56a743f83f";
    let cases: &[(&[&str], u16)] = &[
        (&[NAME, wrong], 0x0201),
        (&["CHAP_N=nobody", RESPONSE], 0x0201),
        (&[NAME, RESPONSE, "CHAP_I=2", CHALLENGE], 0x0201),
        (&[NAME], 0x0207),
        (&[RESPONSE], 0x0207),
        (&[], 0x0207),
        (&[NAME, "CHAP_I=42", THEIRS], 0x0207),
        (&[NAME, RESPONSE, "CHAP_I=42"], 0x0207),
        (&[NAME, RESPONSE, THEIRS], 0x0207),
        (&[NAME, RESPONSE, "CHAP_I=256", THEIRS], 0x0200),
        (&[NAME, RESPONSE, "CHAP_I=-1", THEIRS], 0x0200),
        (&[NAME, NAME, RESPONSE], 0x0200),
        (&["CHAP_A=5", NAME, RESPONSE], 0x0200),
        (&[NAME, RESPONSE, "SRP_U=me"], 0x0200),
        (&[NAME, RESPONSE, "AuthMethod=None"], 0x0200),
    ];
    for (keys, status) in cases {
        let step = challenged(Policies::Required).keys(to_operational(), keys);
        step.assert_failed(*status);
        assert!(step.reply().data.is_empty(), "no proof for {keys:?}");
    }
    let long = format!("CHAP_C=0x{}", "ab".repeat(1025));
    let step =
        challenged(Policies::Required).keys(security(), &[NAME, RESPONSE, "CHAP_I=1", &long]);
    step.assert_failed(0x0200);
    let step = driver(Policies::Required).named(security(), &["AuthMethod=CHAP", "CHAP_A=5"]);
    step.assert_failed_for(0x0200, "CHAP_A");
    let step = driver(Policies::Required).named(operational(), &["CHAP_A=5"]);
    step.assert_failed(0x0201);
    let mut none = Driver::new();
    none.named(security(), &["AuthMethod=None"]);
    none.keys(security(), &["CHAP_A=5"]).assert_failed_for(0x0200, "CHAP_A");
}

#[test]
fn a_proof_cannot_be_said_twice() {
    let mut driver = challenged(Policies::Required);
    assert_moved(&driver.keys(security(), &[NAME, RESPONSE]), None);
    driver.keys(security(), &[NAME]).assert_failed(0x0200);
}

#[test]
fn the_log_names_the_reason_and_no_secret() {
    let mut driver = challenged(Policies::Required);
    assert!(!format!("{:?}", driver.login).contains("115, 101, 99, 114"));
    let step = driver.keys(to_operational(), &["CHAP_N=x\u{1b}[2J", RESPONSE]);
    step.assert_failed_for(0x0201, "x\\u{1b}[2J");
}

/// Some initiators speak of the method in the operational stage. Where nothing has to be proved the
/// answer is None; where something has, or may be, the stage is wrong.
///
/// Covers: LGN-19, CHP-02/T.
#[test]
fn none_may_be_told_late() {
    for offer in ["AuthMethod=None", "AuthMethod=CHAP,None"] {
        let step = Driver::new().named(last(), &[offer]);
        assert_eq!(step.answer("AuthMethod").as_deref(), Some("None"), "{offer}");
        assert!(!step.done().proved);
        // With a demand the login has failed before: it skips security.
        driver(Policies::Optional).named(last(), &[offer]).assert_failed_for(0x0200, "AuthMethod");
        let mut later = driver(Policies::Optional);
        later.named(operational(), &[]);
        later.keys(last(), &[offer]).assert_failed_for(0x0200, "AuthMethod");
        for policies in [Policies::Required, Policies::Mutual] {
            driver(policies).named(last(), &[offer]).assert_failed(0x0201);
            // Nor is there another choice once the stage was left by a proof.
            let mut proved = challenged(policies);
            let keys = [NAME, RESPONSE, "CHAP_I=42", THEIRS];
            assert_moved(&proved.keys(to_operational(), &keys), Some(Stage::Operational));
            proved.keys(last(), &[offer]).assert_failed_for(0x0200, "AuthMethod");
        }
    }
    Driver::new().named(last(), &["AuthMethod=CHAP"]).assert_failed(0x0201);
    let mut driver = Driver::new();
    driver.named(operational(), &[]);
    let step = driver.keys(last(), &["AuthMethod=None"]);
    assert_eq!(step.answer("AuthMethod").as_deref(), Some("None"));
    step.done();
}

/// Before a proof that is demanded, nobody is told more of the node than the names it asked for;
/// what is no key of the security stage is not told in it at all.
///
/// Covers: CHP-04/T, CHP-06.
#[test]
fn the_node_introduces_itself_after_the_proof() {
    let mut driver = driver(Policies::Required).alias("payroll");
    if let Admission::Granted { settings, .. } = &mut driver.admission {
        settings.node_architecture = Some("lunwire/1".into());
    }
    let step = driver.named(security(), &["AuthMethod=CHAP,None"]);
    assert_eq!(step.answers(), ["TargetPortalGroupTag=1", "AuthMethod=CHAP"]);
    let step = driver.keys(security(), &["CHAP_A=7,5"]);
    assert_eq!(step.answers(), ["CHAP_A=7", "CHAP_I=1", CHALLENGE]);
    let step = driver.keys(to_operational(), &[NAME, RESPONSE]);
    assert_eq!(step.answers(), ["TargetAlias=payroll"]);
    let step = driver.keys(last(), &[]);
    assert_eq!(step.answer("X#NodeArchitecture").as_deref(), Some("lunwire/1"));
    assert_eq!(step.answer("TargetAlias"), None);
}
