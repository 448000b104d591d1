// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may join a session, and what strangers learn of sessions (RFC 7143 §9.2, §12.1).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use iscsi::chap::Account;
use iscsi::chap::Algorithm;
use iscsi::chap::Credentials;
use iscsi::chap::Secret;
use iscsi::target_role::Settings;
use lunwire_conformance::raw::text;
use lunwire_conformance::server::FRIEND;
use lunwire_conformance::server::plan;
use lunwire_conformance::*;
use target::AuthenticationPolicy;
use target::Demand;
use wire::iscsi::*;

pub(crate) const SECRET: &[u8] = b"secretsecret1234";

fn secret(bytes: &[u8]) -> Secret {
    Secret::new(bytes).expect("a long secret")
}

/// A policy under which initiators prove to be `host`, as much as `demand` says.
pub(crate) fn policy(demand: Demand) -> AuthenticationPolicy {
    let credentials = Credentials::new("host".into(), secret(SECRET)).expect("a name");
    let account = Some(Arc::new(Account::new(credentials, None).expect("one secret")));
    AuthenticationPolicy { demand, algorithms: vec![Algorithm::Sha256], account }
}

fn each_server(demand: Demand, check: impl Fn(&Server)) {
    each_policy(demand, Demand::Off, check);
}

/// Targets that demand `demand`, and `discovery` of discovery sessions.
fn each_policy(demand: Demand, discovery: Demand, check: impl Fn(&Server)) {
    let uring = engine::choose(engine::Choice::Auto) == engine::Choice::Uring;
    let engines = [Some(engine::Choice::Epoll), uring.then_some(engine::Choice::Uring)];
    for engine in engines.into_iter().flatten() {
        for reactors in [1, 2] {
            let mut plan = plan(engine, Settings::default());
            plan.reactors = reactors;
            plan.nodes[0].authentication = policy(demand);
            plan.discovery = policy(discovery);
            check(&Server::start(plan));
        }
    }
}

/// Sends a request of the security stage; gives the answer and its keys.
pub(crate) fn exchange(
    raw: &mut Raw,
    plan: &LoginPlan,
    transit: bool,
    data: &[u8],
) -> (LoginResponse, Vec<(String, String)>) {
    let next = transit.then_some(Stage::FullFeature);
    let request = LoginRequest { current: Stage::Security, transit, next, ..plan.request() };
    raw.send(&Request::Login(request), data);
    let pdu = raw.read();
    match pdu.response() {
        Response::Login(response) => (response, pdu.pairs()),
        other => panic!("a Login Response was due: {other:?}"),
    }
}

fn value<'a>(pairs: &'a [(String, String)], key: &str) -> &'a str {
    let pair = pairs.iter().find(|(name, _)| name == key);
    pair.map_or_else(|| panic!("{key} is missing: {pairs:?}"), |(_, value)| value)
}

/// Logs in by CHAP with `secret`; gives all responses.
pub(crate) fn log_in(raw: &mut Raw, plan: &LoginPlan, secret: &[u8]) -> Vec<LoginResponse> {
    let mut first = plan.text();
    first.extend(text(&[("AuthMethod", "CHAP,None")]));
    let (begun, _) = exchange(raw, plan, false, &first);
    if begun.status != 0 {
        return vec![begun];
    }
    let (asked, pairs) = exchange(raw, plan, false, b"CHAP_A=7\0");
    let identifier = value(&pairs, "CHAP_I").parse().expect("a number");
    let digits = value(&pairs, "CHAP_C").strip_prefix("0x").expect("hexadecimal");
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    let challenge: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
    let proof = Algorithm::Sha256.response(identifier, &self::secret(secret), &challenge);
    let hex: String = proof.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let proof = text(&[("CHAP_N", "host"), ("CHAP_R", &format!("0x{hex}"))]);
    let (ended, _) = exchange(raw, plan, true, &proof);
    vec![begun, asked, ended]
}

pub(crate) fn leading() -> LoginPlan {
    LoginPlan::new().with(&[])
}

/// A session of several connections whose first one proved itself or not.
fn session(server: &Server, proved: bool) -> (Raw, LoginPlan) {
    let mut raw = server.connect();
    let mut plan = leading();
    let response = if proved {
        *log_in(&mut raw, &plan, SECRET).last().expect("an answer")
    } else {
        let mut first = plan.text();
        first.extend(text(&[("AuthMethod", "None")]));
        exchange(&mut raw, &plan, true, &first).0
    };
    assert_eq!((response.status, response.next), (0, Some(Stage::FullFeature)));
    plan.tsih = response.tsih;
    (raw, plan)
}

/// A connection that replaces the first one, as any login may that names its CID.
///
/// Covers: CHP-24/T, CHP-25/T.
#[test]
fn all_connections_of_a_session_have_one_identity() {
    each_server(Demand::Optional, |server| {
        for (proved, joins_proved) in [(true, true), (true, false), (false, true), (false, false)] {
            let (_first, plan) = session(server, proved);
            let mut raw = server.connect();
            let response = if joins_proved {
                *log_in(&mut raw, &plan, SECRET).last().expect("an answer")
            } else {
                let mut first = plan.text();
                first.extend(text(&[("AuthMethod", "None")]));
                exchange(&mut raw, &plan, true, &first).0
            };
            let expected = if proved == joins_proved { 0 } else { 0x0201 };
            assert_eq!(response.status, expected, "{proved} {joins_proved}");
        }
    });
}

/// Side by side and one after the other, on one reactor and on two.
///
/// Covers: CHP-22a/T, CHP-22b/T.
#[test]
fn every_login_has_a_challenge_of_its_own() {
    each_server(Demand::Required, |server| {
        let (mut challenges, mut identifiers) = (HashSet::new(), Vec::new());
        for _ in 0..4 {
            let mut connections = [(); 3].map(|()| (server.connect(), leading()));
            for (raw, plan) in &mut connections {
                let mut first = plan.text();
                first.extend(text(&[("AuthMethod", "CHAP")]));
                assert_eq!(exchange(raw, plan, false, &first).0.status, 0);
            }
            for (raw, plan) in &mut connections {
                let (_, pairs) = exchange(raw, plan, false, b"CHAP_A=7\0");
                let challenge = value(&pairs, "CHAP_C").to_owned();
                assert!(challenge.len() >= 2 + 32, "{challenge}");
                assert!(challenges.insert(challenge), "the challenge came before");
                identifiers.push(value(&pairs, "CHAP_I").to_owned());
            }
        }
        assert!(identifiers.windows(2).all(|pair| pair[0] != pair[1]), "{identifiers:?}");
    });
}

/// Whoever cannot prove who it is gets the same answers whether the session exists or not.
///
/// Covers: CHP-24/T.
#[test]
fn strangers_learn_nothing_of_sessions() {
    each_server(Demand::Required, |server| {
        let (_first, there) = session(server, true);
        let gone = LoginPlan { tsih: Tsih(there.tsih.0.wrapping_add(1)), ..there.clone() };
        let answers = |plan: &LoginPlan, secret: &[u8]| {
            let responses = log_in(&mut server.connect(), plan, secret);
            let told = |one: &LoginResponse| {
                let Numbers { exp_cmd_sn, max_cmd_sn, .. } = one.numbers;
                (one.status, one.transit, exp_cmd_sn, max_cmd_sn)
            };
            responses.iter().map(told).collect::<Vec<_>>()
        };
        let wrong = b"not-the-secret-at-all";
        let stranger = answers(&there, wrong);
        assert_eq!(stranger, answers(&gone, wrong));
        assert_eq!(stranger.last().expect("an answer").0, 0x0201);
        assert_eq!(answers(&gone, SECRET).last().expect("an answer").0, 0x020a);
        assert_eq!(answers(&there, SECRET).last().expect("an answer").0, 0);
    });
}

/// Logs in without a proof; gives the answer.
fn walk_in(raw: &mut Raw, plan: &LoginPlan) -> LoginResponse {
    let mut first = plan.text();
    first.extend(text(&[("AuthMethod", "None")]));
    exchange(raw, plan, true, &first).0
}

fn expect_alive(server: &Server, raw: &mut Raw, tsih: Tsih, what: &str) {
    let heard = raw.hear(Duration::from_millis(100));
    assert_eq!(heard, Heard::Nothing, "{what}: the session was told something");
    let sessions = server.target().sessions();
    assert!(sessions.iter().any(|one| one.tsih == tsih.0), "{what}: the session is gone");
}

/// Discovery may be open where the target is not, and the other way round: neither gives a way to
/// end sessions of the other kind, by their name, ISID, TSIH and CID.
///
/// Covers: CHP-24/T, DIS-18.
#[test]
fn a_login_reinstates_no_session_of_another_type() {
    let policies = [(Demand::Required, Demand::Off), (Demand::Off, Demand::Required)];
    for (demand, discovery) in policies {
        each_policy(demand, discovery, |server| {
            let victim = LoginPlan { discovery: discovery != Demand::Off, ..leading() };
            let mut raw = server.connect();
            let responses = log_in(&mut raw, &victim, SECRET);
            let tsih = responses.last().expect("an answer").tsih;
            assert_ne!(tsih, Tsih(0), "the victim is in");
            let impostor = LoginPlan { discovery: !victim.discovery, ..victim.clone() };
            let mut other = server.connect();
            let response = walk_in(&mut other, &impostor);
            assert_eq!(response.status, 0, "nobody has the place");
            assert_ne!(response.tsih, tsih);
            expect_alive(server, &mut raw, tsih, "reinstated");
            for cid in [victim.cid, Cid(77)] {
                let joins = LoginPlan { tsih, cid, ..impostor.clone() };
                assert_eq!(walk_in(&mut server.connect(), &joins).status, 0x020a);
                expect_alive(server, &mut raw, tsih, "joined");
            }
        });
    }
}

/// Where a proof is optional, a session that gave it ends for nobody who does not; who gives
/// one may end a session that anybody could end.
///
/// Covers: CHP-24/T, CHP-25/T.
#[test]
fn a_login_reinstates_no_session_of_another_identity() {
    each_server(Demand::Optional, |server| {
        let (mut raw, plan) = session(server, true);
        let again = LoginPlan { tsih: Tsih(0), ..plan.clone() };
        let mut impostor = server.connect();
        assert_eq!(walk_in(&mut impostor, &again).status, 0x0201);
        impostor.expect_closed();
        let responses = log_in(&mut server.connect(), &again, b"not-the-secret-at-all");
        assert_eq!(responses.last().expect("an answer").status, 0x0201);
        expect_alive(server, &mut raw, plan.tsih, "another identity");
        let mut owner = server.connect();
        let responses = log_in(&mut owner, &again, SECRET);
        assert_eq!(responses.last().expect("an answer").status, 0);
        raw.expect_closed();

        let (mut open, plan) = session(server, false);
        let again = LoginPlan { tsih: Tsih(0), ..plan };
        let responses = log_in(&mut server.connect(), &again, SECRET);
        assert_eq!(responses.last().expect("an answer").status, 0);
        open.expect_closed();
    });
}

/// A target at which a proof is optional, and `FRIEND` has an account of its own.
fn with_a_friend() -> target::Plan {
    let mut plan = plan(engine::choose(engine::Choice::Auto), Settings::default());
    let mut optional = policy(Demand::Optional);
    let account = optional.account.take();
    let rule = |initiator: &str, account| target::AccessRule {
        initiator: initiator.to_owned(),
        luns: None,
        account,
        target_reset: None,
    };
    plan.nodes[0].access = vec![rule(FRIEND, account), rule(&guest(), None)];
    plan.nodes[0].authentication = optional;
    plan
}

fn guest() -> String {
    LoginPlan::new().initiator.expect("it has one")
}

fn friend() -> LoginPlan {
    LoginPlan { initiator: Some(FRIEND.to_owned()), ..leading() }
}

/// Where a proof is optional, a name with an account of its own has to be proved all the same, by
/// whoever uses it: reservations belong to it, and it may be away just now.
///
/// Covers: CHP-24/T.
#[test]
fn a_name_that_can_be_proved_is_nobody_elses() {
    let server = Server::start(with_a_friend());
    for name in [FRIEND.to_owned(), FRIEND.replace("friend", "FRIEND")] {
        let impostor = LoginPlan { initiator: Some(name), ..friend() };
        assert_eq!(walk_in(&mut server.connect(), &impostor).status, 0x0201);
        let joins = LoginPlan { tsih: Tsih(1), ..impostor };
        assert_eq!(walk_in(&mut server.connect(), &joins).status, 0x0201);
    }
    let responses = log_in(&mut server.connect(), &friend(), SECRET);
    assert_eq!(responses.last().expect("an answer").status, 0);
    assert_eq!(walk_in(&mut server.connect(), &leading()).status, 0, "the others may walk in");
}

/// Sessions that anybody can have leave room for those with a proof.
#[test]
fn sessions_without_a_proof_leave_room_for_others() {
    let mut plan = with_a_friend();
    plan.sessions_max = 8;
    let server = Server::start(plan);
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut raw = server.connect();
        let status = walk_in(&mut raw, &leading()).status;
        assert_eq!(status, if held.len() < 6 { 0 } else { 0x0302 });
        if status == 0 {
            held.push(raw);
        }
    }
    for expected in [0, 0, 0x0302] {
        let mut raw = server.connect();
        let responses = log_in(&mut raw, &friend(), SECRET);
        assert_eq!(responses.last().expect("an answer").status, expected);
        held.push(raw);
    }
}

/// Sessions that wait for their initiator are bounded; those that anybody can open give way first.
#[test]
fn strangers_push_out_no_session_with_a_proof() {
    // Above the bound of one reactor.
    const MANY: usize = 1100;
    let mut plan = plan(engine::choose(engine::Choice::Auto), Settings::default());
    plan.nodes[0].authentication = policy(Demand::Optional);
    let server = Server::start(plan);
    let waiting = || leading().with(&[("DefaultTime2Retain", "60")]);
    let victim = LoginPlan { keys: Vec::new(), ..waiting() };
    let mut raw = server.connect();
    let tsih = log_in(&mut raw, &victim, SECRET).last().expect("an answer").tsih;
    drop(raw);
    for _ in 0..MANY {
        let response = waiting().begin(&mut server.connect()).0;
        assert_eq!(response.status, 0);
    }
    let sessions = server.target().sessions();
    assert!(sessions.iter().any(|one| one.tsih == tsih.0), "the session is gone");
}
