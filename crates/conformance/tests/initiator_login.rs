// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What our initiator says of itself in the logins of a node: all of its sessions, and all of their
//! connections (RFC 7143 §4.2.7.1, §9.2.1; RFC 1994 §2.3).
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use iscsi::chap::Account;
use iscsi::chap::Algorithm;
use iscsi::chap::Credentials;
use iscsi::chap::Secret;
use iscsi::target_role::Settings;
use lunwire_conformance::Digests;
use lunwire_conformance::Fate;
use lunwire_conformance::Proxy;
use lunwire_conformance::Server;
use lunwire_conformance::raw::pairs;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::plan;
use target::AuthenticationPolicy;
use target::Demand;
use wire::iscsi::LoginRequest;
use wire::iscsi::Request;

type Pairs = Vec<(String, String)>;

/// The Login Requests that went through, with their keys.
fn logins(proxy: &Proxy) -> Vec<(LoginRequest, Pairs)> {
    let passed = proxy.passed();
    let of = passed.iter().filter_map(|pdu| match pdu.request() {
        Some(Request::Login(login)) => Some((login, pairs(&pdu.data))),
        _ => None,
    });
    of.collect()
}

/// The values that the logins gave a key, in order.
fn values(proxy: &Proxy, key: &str) -> Vec<String> {
    let logins = logins(proxy);
    let pairs = logins.into_iter().flat_map(|(_, pairs)| pairs);
    pairs.filter(|(name, _)| name == key).map(|(_, value)| value).collect()
}

fn options(proxy: &Proxy) -> initiator::Options {
    let mut options = initiator::Options::new(proxy.portal().to_string(), Some(TARGET.to_owned()));
    options.settings.connections = 4;
    options
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A proxy, and so another address for the target, for each of two sessions and for discovery.
///
/// Covers: NAM-01/I.
#[test]
fn a_node_has_one_name_wherever_it_goes() {
    let server = Server::start(plan(engine::Choice::Epoll, Settings::default()));
    let pass = || Proxy::start(server.portal(), Digests::default(), |_| Fate::Pass);
    let proxies = [pass(), pass(), pass()];
    let node = initiator::Initiator::start(&initiator::Config::default()).unwrap();
    let [one, other, discovery] = &proxies;
    let sessions = [one, other].map(|proxy| node.connect(options(proxy)).unwrap());
    node.discover(initiator::Options::new(discovery.portal().to_string(), None)).unwrap();
    for proxy in [one, other] {
        wait_until("four connections", || values(proxy, "InitiatorName").len() >= 4);
    }
    let names: HashSet<String> =
        proxies.iter().flat_map(|proxy| values(proxy, "InitiatorName")).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    sessions.into_iter().for_each(|session| session.logout());
}

/// The same account on each of them, and never none.
///
/// Covers: CHP-22a/I, CHP-22b/I, CHP-24/I, CHP-25/I.
#[test]
fn every_login_has_a_challenge_of_its_own() {
    let credentials = |name: &str, secret: &[u8]| {
        Credentials::new(name.into(), Secret::new(secret).unwrap()).unwrap()
    };
    let target = credentials("disk", b"targetsecret5678");
    let account = Account::new(credentials("host", b"secretsecret1234"), Some(target));
    let account = Some(Arc::new(account.unwrap()));
    let mut plan = plan(engine::Choice::Epoll, Settings::default());
    let algorithms = vec![Algorithm::Sha256];
    let demand = Demand::Mutual;
    plan.nodes[0].authentication =
        AuthenticationPolicy { demand, algorithms, account: account.clone() };
    let server = Server::start(plan);
    let proxy = Proxy::start(server.portal(), Digests::default(), |_| Fate::Pass);
    let node = initiator::Initiator::start(&initiator::Config::default()).unwrap();
    let options = initiator::Options { account, ..options(&proxy) };
    let session = node.connect(options).unwrap();
    // Connections of one session, and then again when all of them are gone.
    for count in [4, 8] {
        wait_until("connections", || values(&proxy, "CHAP_R").len() >= count);
        proxy.cut();
    }
    let (identifiers, challenges) = (values(&proxy, "CHAP_I"), values(&proxy, "CHAP_C"));
    assert!(challenges.len() >= 8 && identifiers.len() == challenges.len());
    let distinct: HashSet<&String> = challenges.iter().collect();
    assert_eq!(distinct.len(), challenges.len(), "{challenges:?}");
    assert!(challenges.iter().all(|one| one.len() >= 2 + 32), "{challenges:?}");
    assert!(identifiers.windows(2).all(|pair| pair[0] != pair[1]), "{identifiers:?}");
    assert!(values(&proxy, "AuthMethod").iter().all(|offer| offer == "CHAP"));
    assert!(values(&proxy, "CHAP_N").iter().all(|name| name == "host"));
    drop(session);
}
