// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is let in, and who would be let in again.

use super::*;
use crate::Change;
use crate::ChangeError;
use crate::Error;
use crate::Plan;
use crate::Stores;
use crate::Target;
use crate::node::AccessRule;
use iscsi::chap::Algorithm;
use iscsi::chap::Credentials;
use iscsi::chap::Secret;
use iscsi::target_role::Authentication;
use iscsi::target_role::Settings;
use wire::iscsi::Cid;
use wire::iscsi::Isid;
use wire::iscsi::Tsih;

const DISK: &str = "iqn.2026-01.com.example:disk";

fn account(user: &str) -> Option<Arc<Account>> {
    let secret = Secret::new(format!("secret of {user}!").as_bytes()).unwrap();
    let credentials = Credentials::new(user.into(), secret).unwrap();
    Some(Arc::new(Account::new(credentials, None).unwrap()))
}

fn policy(demand: Demand, user: Option<&str>) -> AuthenticationPolicy {
    let algorithms = Algorithm::ALL.to_vec();
    AuthenticationPolicy { demand, algorithms, account: user.and_then(account) }
}

/// One target with access for `a` and `b`, each with its own account.
fn nodes(discovery: AuthenticationPolicy) -> Nodes {
    let rule = |name: &str| AccessRule {
        initiator: format!("iqn.2026-01.com.example:{name}"),
        luns: None,
        account: account(name),
        target_reset: None,
    };
    let node = Node {
        name: DISK.into(),
        alias: None,
        luns: Vec::new(),
        access: vec![rule("alice"), rule("bob")],
        authentication: policy(Demand::Required, None),
        settings: Settings::default(),
        redirect: None,
    };
    Nodes::new(vec![node], Vec::new(), discovery)
}

fn request(initiator: &str, target: Option<&str>, discovery: bool) -> AdmissionRequest {
    AdmissionRequest {
        initiator: format!("iqn.2026-01.com.example:{initiator}"),
        target: target.map(Into::into),
        discovery,
        isid: Isid([0; 6]),
        tsih: Tsih(0),
        cid: Cid(0),
    }
}

fn admit(nodes: &Nodes, request: &AdmissionRequest) -> Authentication {
    match nodes.admit(request, 1, || Challenge::new(1, &[1; 32])) {
        Admission::Granted { authentication, .. } => authentication,
        refused => panic!("{refused:?}"),
    }
}

#[test]
fn portals_are_listed_with_their_groups() {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let portals = vec![
        address("0.0.0.0:3260").into(),
        Portal { group: 7, ..address("192.0.2.2:3261").into() },
    ];
    let node = nodes(AuthenticationPolicy::default()).nodes[0].node().clone();
    let nodes = Nodes::new(vec![node], portals, AuthenticationPolicy::default());
    let local = address("192.0.2.2:3260");
    let records = nodes.records("iqn.2026-01.com.example:alice", None, (Way::Socket, local));
    assert_eq!(records[0].addresses, ["192.0.2.2:3260,1", "192.0.2.2:3261,7"]);
    assert_eq!(nodes.portal_group(local), 1);
    assert_eq!(nodes.portal_group(address("192.0.2.2:3261")), 7);
    assert_eq!(nodes.portal_group(address("192.0.2.2:9")), PORTAL_GROUP_TAG);
}

/// Also where no portal has an address of its own.
///
/// Covers: DIS-01.
#[test]
fn a_portal_for_all_addresses_tells_of_targets_on_each() {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let portals = ["0.0.0.0:3260", "[::]:3260"];
    let portals = portals.map(|any| Portal::from(address(any))).to_vec();
    let node = nodes(AuthenticationPolicy::default()).nodes[0].node().clone();
    let nodes = Nodes::new(vec![node], portals, AuthenticationPolicy::default());
    for local in ["192.0.2.2:3260", "198.51.100.7:3260", "[2001:db8::2]:3260"] {
        for only in [None, Some(DISK)] {
            let reached = (Way::Socket, address(local));
            let records = nodes.records("iqn.2026-01.com.example:alice", only, reached);
            let told: Vec<_> =
                records.iter().map(|record| (&*record.name, &*record.addresses)).collect();
            assert_eq!(told, [(DISK, &[format!("{local},1")][..])]);
        }
    }
}

/// Whose own family has one there: the other one's may be in another group, and speak otherwise.
#[test]
fn a_portal_for_all_addresses_is_of_one_family() {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let portals = vec![
        Portal { rdma: Some(Rdma::Iwarp), ..address("0.0.0.0:3260").into() },
        Portal { group: 6, rdma: Some(Rdma::Off), ..address("[::]:3260").into() },
        Portal { group: 7, rdma: Some(Rdma::Iwarp), ..address("192.0.2.7:3261").into() },
    ];
    let nodes = Nodes::new(Vec::new(), portals, AuthenticationPolicy::default());
    for (local, group, rdma) in [
        ("192.0.2.7:3260", 1, Some(Rdma::Iwarp)),
        ("[::1]:3260", 6, Some(Rdma::Off)),
        ("192.0.2.7:3261", 7, Some(Rdma::Iwarp)),
        // Nobody listens there any more.
        ("192.0.2.8:3261", PORTAL_GROUP_TAG, None),
        ("[::1]:3261", PORTAL_GROUP_TAG, None),
    ] {
        let local = address(local);
        assert_eq!((nodes.portal_group(local), nodes.rdma(local)), (group, rdma), "{local}");
    }
}

/// Who comes over TCP cannot use what adapters alone have, and the other way round.
#[test]
fn sendtargets_tells_of_portals_of_the_same_kind() {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let node = nodes(AuthenticationPolicy::default()).nodes[0].node().clone();
    let sockets = ["192.0.2.1:3260", "192.0.2.2:3260"];
    let sockets = sockets.map(|text| Portal::from(address(text))).to_vec();
    let adapters = ["192.0.2.1:3260", "192.0.2.3:3261"];
    let adapters = adapters.map(|text| Portal { group: 4, ..address(text).into() }).to_vec();
    let nodes =
        Nodes::new(vec![node], sockets, AuthenticationPolicy::default()).with_adapters(adapters);
    let told = |way| {
        let reached = (way, address("192.0.2.1:3260"));
        nodes.records("iqn.2026-01.com.example:alice", None, reached)[0].addresses.clone()
    };
    assert_eq!(told(Way::Socket), ["192.0.2.1:3260,1", "192.0.2.2:3260,1"]);
    assert_eq!(told(Way::Adapter), ["192.0.2.1:3260,4", "192.0.2.3:3261,4"]);
    assert_eq!(nodes.portal_groups(), [1, 4]);
    assert_eq!(nodes.portal_group(address("192.0.2.3:3261")), 4);
    assert_eq!(nodes.rdma(address("192.0.2.3:3261")), None);
}

/// The peer of a daemon that hides its targets cannot tell these apart; we can.
#[test]
fn a_refusal_has_its_reason_for_the_log() {
    let stranger = request("mallory", Some(DISK), false);
    let lost = request("alice", Some("iqn.2026-01.com.example:none"), false);
    for hide in [false, true] {
        let nodes = nodes(AuthenticationPolicy::default()).hidden(hide);
        let reason = |request| match nodes.admit(request, 1, || None) {
            Admission::Refused { status, reason } => (status, reason),
            admitted => panic!("{admitted:?}"),
        };
        let status = if hide { 0x0203 } else { 0x0202 };
        let listed = "the initiator is not on the list of the target";
        assert_eq!(reason(&stranger), (status, listed));
        assert_eq!(reason(&lost), (0x0203, "no such target is served here"));
    }
}

#[test]
fn an_initiator_can_prove_its_own_name_only() {
    let nodes = nodes(policy(Demand::Off, None));
    let shown = format!("{:?}", admit(&nodes, &request("alice", Some(DISK), false)));
    assert!(shown.contains("\"alice\"") && !shown.contains("\"bob\""), "{shown}");
    let stranger = nodes.admit(&request("carol", Some(DISK), false), 1, || None);
    assert!(matches!(stranger, Admission::Refused { status: 0x0202, .. }));
}

#[test]
fn discovery_has_a_policy_of_its_own() {
    for target in [None, Some(DISK)] {
        let request = request("alice", target, true);
        let open = nodes(policy(Demand::Off, None));
        assert!(matches!(admit(&open, &request), Authentication::Off));
        let guarded = nodes(policy(Demand::Required, Some("finder")));
        let Authentication::Required(exchange) = admit(&guarded, &request) else {
            panic!("discovery must be guarded");
        };
        let shown = format!("{exchange:?}");
        assert!(shown.contains("\"finder\"") && !shown.contains("\"alice\""), "{shown}");
    }
}

#[test]
fn without_randomness_a_login_is_refused() {
    let nodes = nodes(policy(Demand::Off, None));
    let refused = nodes.admit(&request("alice", Some(DISK), false), 1, || None);
    assert!(matches!(refused, Admission::Refused { status: 0x0300, .. }));
}

/// The one target of [`nodes`], with another policy and the same units.
fn next(nodes: &Nodes, change: impl FnOnce(&mut Node)) -> Nodes {
    let served = &nodes.nodes[0];
    let mut node = served.node().clone();
    change(&mut node);
    Nodes { nodes: vec![Arc::new(served.on_terms_of(node))], ..nodes.clone() }
}

/// What becomes of a session of `initiator`, which has proved something or nothing.
fn fate(old: &Nodes, new: &Nodes, initiator: &str, proved: bool) -> Option<Outdated> {
    let initiator = format!("iqn.2026-01.com.example:{initiator}");
    let terms = old.terms(&initiator, Some(DISK), false).expect("it was let in");
    new.review(&terms, &initiator, Some(DISK), false, proved).err()
}

#[test]
fn a_session_stays_while_it_would_be_let_in_again() {
    let old = nodes(AuthenticationPolicy::default());
    let same = next(&old, |node| node.alias = Some("another".into()));
    assert_eq!(fate(&old, &same, "alice", true), None);
    let without_bob = next(&old, |node| node.access.truncate(1));
    assert_eq!(fate(&old, &without_bob, "alice", true), None);
    assert_eq!(fate(&old, &without_bob, "bob", true), Some(Outdated::NotAdmitted));
    let moved = next(&old, |node| {
        let duration = iscsi::target_role::Redirection::Temporary;
        node.redirect = Some(Redirect { address: "192.0.2.1:3260".into(), duration });
    });
    assert_eq!(fate(&old, &moved, "alice", true), Some(Outdated::TargetMoved));
    assert_eq!(fate(&old, &Nodes::default(), "alice", true), Some(Outdated::TargetGone));
    // Another one by that name is not the one that it was let in to.
    let another = nodes(AuthenticationPolicy::default());
    assert_eq!(fate(&old, &another, "alice", true), Some(Outdated::TargetGone));
}

#[test]
fn a_session_stays_while_its_proof_is_what_is_demanded() {
    let demanding = |demand| move |node: &mut Node| node.authentication.demand = demand;
    let of_alice = |own: Option<&str>| {
        let own = own.and_then(account);
        move |node: &mut Node| node.access[0].account = own
    };
    let required = nodes(AuthenticationPolicy::default());
    // Equal is as good as the same: a configuration is read anew.
    assert_eq!(fate(&required, &next(&required, of_alice(Some("alice"))), "alice", true), None);
    for other in [Some("carol"), None] {
        let new = next(&required, of_alice(other));
        assert_eq!(fate(&required, &new, "alice", true), Some(Outdated::ProofChanged));
        assert_eq!(fate(&required, &new, "bob", true), None, "whose account is the same");
    }
    let off = next(&required, demanding(Demand::Off));
    assert_eq!(fate(&required, &off, "alice", true), None);
    assert_eq!(fate(&off, &required, "alice", false), Some(Outdated::ProofChanged));
    let optional = next(&required, demanding(Demand::Optional));
    assert_eq!(fate(&off, &optional, "alice", false), Some(Outdated::ProofChanged));
    let open = next(&optional, of_alice(None));
    assert_eq!(fate(&off, &open, "alice", false), None, "it need not prove anything");
    let mutual = next(&required, demanding(Demand::Mutual));
    assert_eq!(fate(&required, &mutual, "alice", true), Some(Outdated::ProofChanged));
    assert_eq!(fate(&mutual, &mutual, "alice", true), None);
    assert_eq!(fate(&mutual, &required, "alice", true), None);
}

#[test]
fn discovery_is_judged_by_its_own_policy() {
    let open = nodes(AuthenticationPolicy::default());
    let guarded = Nodes { discovery: policy(Demand::Required, Some("finder")), ..open.clone() };
    let alice = "iqn.2026-01.com.example:alice";
    for target in [None, Some(DISK)] {
        let terms = open.terms(alice, target, true).expect("anybody may ask");
        assert!(open.review(&terms, alice, target, true, false).is_ok());
        let why = guarded.review(&terms, alice, target, true, false).err();
        assert_eq!(why, Some(Outdated::ProofChanged));
    }
}

#[test]
fn who_has_taken_a_generation_keeps_it_whole() {
    let old = nodes(AuthenticationPolicy::default());
    let new = next(&old, |node| node.access.clear());
    let catalogue = Catalogue::new(old);
    let taken = catalogue.now();
    catalogue.exchange(Arc::new(new));
    let mallory = "iqn.2026-01.com.example:mallory";
    assert!(taken.terms(mallory, Some(DISK), false).is_err());
    assert!(catalogue.now().terms(mallory, Some(DISK), false).is_ok());
}

/// Covers: NAM-08/T.
#[test]
fn nothing_is_served_under_a_name_that_is_none() {
    let nodes = nodes(AuthenticationPolicy::default());
    let named = |name: &str| Node::new(name.to_owned(), Vec::new());
    let stranger = AccessRule {
        initiator: "IQN.2026-01.com.example:alice".into(),
        luns: None,
        account: None,
        target_reset: None,
    };
    let closed = Node { access: vec![stranger], ..named(DISK) };
    for change in [
        Change {
            add: vec![named("iqn.2026-01.com.example:b"), named("disk")],
            ..Change::default()
        },
        Change { replace: vec![closed], ..Change::default() },
    ] {
        assert!(matches!(nodes.after(&change), Err(ChangeError::Name(_))), "{change:?}");
    }
    let plan = Plan::new(Vec::new(), vec![named(DISK), named("t10.disk")], Stores::default());
    assert!(matches!(Target::start(plan), Err(Error::Name(_))));
}
