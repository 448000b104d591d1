// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live sessions of a daemon: the ISID rule and TSIHs (RFC 7143 §4.4.3, §6.3.1).
//!
//! A session has a place: initiator, ISID and [`Scope`]. Another login for it ends the session that
//! has it ([`Registry::claim`] says who may). Only logins and their ends come here; a lock is fine.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::PoisonError;

use iscsi::target_role::AdmissionRequest;
use wire::iscsi::Isid;
use wire::iscsi::Tsih;

/// What makes a session unique.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) initiator: String,
    pub(crate) isid: Isid,
    pub(crate) scope: Scope,
}

impl Identity {
    /// What a login asks for, over a connection that came to `local` of a portal group.
    pub(crate) fn of(request: &AdmissionRequest, local: SocketAddr, portal_group_tag: u16) -> Self {
        let scope = match &request.target {
            Some(name) if request.discovery => Scope::Discovery(name.clone(), portal_group_tag),
            Some(name) => Scope::Target(name.clone(), portal_group_tag),
            None => Scope::Portal(local),
        };
        Self { initiator: request.initiator.clone(), isid: request.isid, scope }
    }
}

/// The target's side of an identity, which is a target port: its name and portal group tag. An
/// unnamed discovery session belongs to its portal (RFC 7143 §6.3.1).
///
/// Discovery has scopes of its own: other proofs are asked for there, so a discovery session must
/// not end a session with a disk, nor be ended by one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    Target(String, u16),
    Discovery(String, u16),
    Portal(SocketAddr),
}

/// Where a session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) reactor: usize,
    pub(crate) tsih: Tsih,
}

/// What a login that wants to be a session finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is one now.
    New(Tsih),
    /// An older session must end first (session reinstatement).
    Occupied(Home),
    /// An older session has it whose initiator has proved who it is, and this one has not.
    Foreign,
    /// There are as many sessions as may be.
    Exhausted,
    /// Its initiator has as many as it may have with this target.
    TooMany,
}

#[derive(Debug)]
pub(crate) struct Registry {
    inner: Mutex<Inner>,
    sessions_max: usize,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: HashMap<Identity, Entry>,
    /// Sessions that take one of the places.
    counted: usize,
    /// As many of them have an initiator that has proved nothing.
    unproved: usize,
    /// So many places are for initiators that have proved who they are.
    for_proof: usize,
    last: u16,
}

/// A session that has its place.
#[derive(Debug)]
struct Entry {
    home: Home,
    /// Whom its initiator has proved to be.
    user: Option<String>,
    /// It takes one of the places.
    counts: bool,
}

/// More sessions than this cannot be configured: TSIH has 16 bits, and each session costs memory.
pub const SESSIONS_MAX: usize = 16_384;

/// Of so many places one is for initiators that have proved who they are, where any can: enough for
/// theirs, and few enough that the others do not miss them.
const PROVED_SHARE: usize = 4;

impl Registry {
    /// Room for `sessions_max` sessions, [`SESSIONS_MAX`] at most.
    pub(crate) fn new(sessions_max: usize) -> Self {
        let sessions_max = sessions_max.min(SESSIONS_MAX);
        Self { inner: Mutex::default(), sessions_max }
    }

    /// From now on there are places that only initiators get that have proved who they are, or none
    /// such. Sessions that have a place keep it.
    pub(crate) fn keep_room_for_proof(&self, wanted: bool) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.for_proof = if wanted { self.sessions_max / PROVED_SHARE } else { 0 };
    }

    /// Takes the place `identity` for a session on `reactor`, if it is free. `user`: whom the
    /// initiator has proved to be, so only after its proof. A session that was opened with a proof
    /// makes room only for the same proof; one without, which anybody could end, for any. The
    /// number: as many sessions as the initiator may have with the target.
    pub(crate) fn claim(
        &self,
        (identity, most): (&Identity, Option<usize>),
        user: Option<&str>,
        reactor: usize,
    ) -> Claim {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Entry { home, user: owner, .. }) = inner.sessions.get(identity) {
            return match owner.as_deref() {
                Some(owner) if user != Some(owner) => Claim::Foreign,
                _ => Claim::Occupied(*home),
            };
        }
        if most.is_some_and(|most| inner.count_like(identity) >= most) {
            return Claim::TooMany;
        }
        // Discovery that nobody proved anything for is bounded as strangers are, and takes no
        // place from anybody.
        let counts = user.is_some() || matches!(identity.scope, Scope::Target(..));
        let unproved = counts && user.is_none();
        let is_full = counts && inner.counted >= self.sessions_max;
        if is_full || unproved && inner.unproved >= self.sessions_max - inner.for_proof {
            return Claim::Exhausted;
        }
        inner.counted += usize::from(counts);
        inner.unproved += usize::from(unproved);
        let tsih = inner.free_tsih();
        let user = user.map(ToOwned::to_owned);
        let entry = Entry { home: Home { reactor, tsih }, user, counts };
        inner.sessions.insert(identity.clone(), entry);
        Claim::New(tsih)
    }

    /// The session that `identity` names, if it lives.
    pub(crate) fn find(&self, identity: &Identity) -> Option<Home> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.sessions.get(identity).map(|entry| entry.home)
    }

    /// Gives the place back; a newer session in the same place stays.
    pub(crate) fn release(&self, identity: &Identity, tsih: Tsih) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.sessions.get(identity).is_some_and(|entry| entry.home.tsih == tsih) {
            let Some(entry) = inner.sessions.remove(identity) else { return };
            inner.counted -= usize::from(entry.counts);
            inner.unproved -= usize::from(entry.counts && entry.user.is_none());
        }
    }
}

impl Inner {
    /// Sessions of the same initiator with the same target, over whatever portal group.
    fn count_like(&self, wanted: &Identity) -> usize {
        let Scope::Target(wanted_target, _) = &wanted.scope else { return 0 };
        let is_like = |identity: &&Identity| {
            identity.initiator == wanted.initiator
                && matches!(&identity.scope, Scope::Target(target, _) if target == wanted_target)
        };
        self.sessions.keys().filter(is_like).count()
    }

    /// The next TSIH that no session has; there is one, since `SESSIONS_MAX` and `STRANGERS_MAX`
    /// together are below their number.
    fn free_tsih(&mut self) -> Tsih {
        loop {
            self.last = self.last.wrapping_add(1);
            let tsih = Tsih(self.last);
            if self.last != 0 && self.sessions.values().all(|entry| entry.home.tsih != tsih) {
                return tsih;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Registry {
        fn claim_any(&self, identity: &Identity, user: Option<&str>, reactor: usize) -> Claim {
            self.claim((identity, None), user, reactor)
        }
    }

    fn identity(initiator: &str, isid: u8) -> Identity {
        Identity {
            initiator: initiator.into(),
            isid: Isid([0x80, 0, 0, 0, 0, isid]),
            scope: Scope::Target("iqn.2026-01.example:disk".into(), 1),
        }
    }

    #[test]
    fn an_initiator_has_as_many_sessions_as_it_may_have() {
        let registry = Registry::new(SESSIONS_MAX);
        let claim =
            |initiator, isid| registry.claim((&identity(initiator, isid), Some(2)), None, 0);
        let Claim::New(first) = claim("a", 1) else { panic!() };
        assert!(matches!(claim("a", 2), Claim::New(_)));
        assert_eq!(claim("a", 3), Claim::TooMany);
        assert!(matches!(claim("b", 1), Claim::New(_)), "another one has its own");
        assert!(matches!(claim("a", 1), Claim::Occupied(_)), "one that comes anew is no other");
        registry.release(&identity("a", 1), first);
        assert!(matches!(claim("a", 3), Claim::New(_)));
    }

    /// Covers: SES-01, SES-04, SES-05.
    #[test]
    fn one_session_for_each_initiator_isid_and_target() {
        let registry = Registry::new(SESSIONS_MAX);
        let Claim::New(first) = registry.claim_any(&identity("a", 1), None, 0) else { panic!() };
        assert_eq!(
            registry.claim_any(&identity("a", 1), None, 1),
            Claim::Occupied(Home { reactor: 0, tsih: first })
        );
        let Claim::New(second) = registry.claim_any(&identity("a", 2), None, 1) else { panic!() };
        let Claim::New(third) = registry.claim_any(&identity("b", 1), None, 1) else { panic!() };
        assert!(first != second && second != third && first != third);
    }

    /// What a login says, at a portal of a group.
    fn of_login(initiator: &str, isid: u8, target: &str, group: u16) -> Identity {
        let request = AdmissionRequest {
            initiator: initiator.into(),
            target: Some(target.into()),
            discovery: false,
            isid: Isid([0x80, 0, 0, 0, 0, isid]),
            tsih: Tsih(0),
            cid: wire::iscsi::Cid(0),
        };
        Identity::of(&request, SocketAddr::from(([127, 0, 0, 1], 3260)), group)
    }

    /// Covers: SES-01, SES-04, SES-05, MCS-03/T.
    #[test]
    fn logins_that_differ_in_anything_are_of_different_sessions() {
        let registry = Registry::new(SESSIONS_MAX);
        let first = of_login("a", 1, "t", 1);
        assert!(matches!(registry.claim_any(&first, None, 0), Claim::New(_)));
        assert!(matches!(
            registry.claim_any(&of_login("a", 1, "t", 1), None, 0),
            Claim::Occupied(_)
        ));
        for other in [
            of_login("b", 1, "t", 1),
            of_login("a", 2, "t", 1),
            of_login("a", 1, "u", 1),
            of_login("a", 1, "t", 2),
        ] {
            assert!(matches!(registry.claim_any(&other, None, 0), Claim::New(_)), "{other:?}");
        }
        // Names are compared as a whole.
        for name in ["iqn.2026-01.example:a", "iqn.2026-01.example:b", "iqn.2026-01.example"] {
            let other = of_login(name, 1, "t", 1);
            assert!(matches!(registry.claim_any(&other, None, 0), Claim::New(_)), "{other:?}");
        }
    }

    /// Covers: DIS-16.
    #[test]
    fn unnamed_discovery_is_told_apart_by_name_isid_and_portal() {
        let of = |initiator: &str, isid: u8, port: u16| {
            let request = AdmissionRequest {
                initiator: initiator.into(),
                target: None,
                discovery: true,
                isid: Isid([0x80, 0, 0, 0, 0, isid]),
                tsih: Tsih(0),
                cid: wire::iscsi::Cid(0),
            };
            Identity::of(&request, SocketAddr::from(([127, 0, 0, 1], port)), 1)
        };
        let registry = Registry::new(SESSIONS_MAX);
        let claim = |identity| registry.claim_any(&identity, None, 0);
        assert!(matches!(claim(of("a", 1, 3260)), Claim::New(_)));
        assert!(matches!(claim(of("a", 1, 3260)), Claim::Occupied(_)));
        for other in [of("b", 1, 3260), of("a", 2, 3260), of("a", 1, 3261)] {
            assert!(matches!(claim(other.clone()), Claim::New(_)), "{other:?}");
        }
    }

    #[test]
    fn the_same_isid_at_another_portal_group_is_another_session() {
        let registry = Registry::new(SESSIONS_MAX);
        let (one, mut other) = (identity("a", 1), identity("a", 1));
        other.scope = Scope::Target("iqn.2026-01.example:disk".into(), 2);
        assert!(matches!(registry.claim_any(&one, None, 0), Claim::New(_)));
        assert!(matches!(registry.claim_any(&other, None, 0), Claim::New(_)));
    }

    #[test]
    fn discovery_without_a_proof_takes_no_place_of_a_session() {
        let registry = Registry::new(1);
        let mut discovery = identity("a", 1);
        discovery.scope = Scope::Discovery("iqn.2026-01.example:disk".into(), 1);
        assert!(matches!(registry.claim_any(&discovery, None, 0), Claim::New(_)));
        let Claim::New(tsih) = registry.claim_any(&identity("a", 1), None, 0) else { panic!() };
        assert_eq!(registry.claim_any(&identity("a", 2), None, 0), Claim::Exhausted);
        registry.release(&identity("a", 1), tsih);
        assert!(matches!(registry.claim_any(&identity("a", 2), None, 0), Claim::New(_)));
    }

    #[test]
    fn a_quarter_of_the_places_is_for_who_has_proved_itself() {
        let registry = Registry::new(5);
        registry.keep_room_for_proof(true);
        let claim = |isid, user| registry.claim_any(&identity("a", isid), user, 0);
        let places: Vec<Claim> = (1..=4).map(|isid| claim(isid, None)).collect();
        assert!(places.iter().all(|claim| matches!(claim, Claim::New(_))));
        assert_eq!(claim(5, None), Claim::Exhausted);
        assert!(matches!(claim(5, Some("alice")), Claim::New(_)));
        assert_eq!(claim(6, Some("alice")), Claim::Exhausted);
        let Claim::New(first) = places[0] else { panic!() };
        registry.release(&identity("a", 1), first);
        assert!(matches!(claim(6, None), Claim::New(_)));
        let all = Registry::new(1);
        all.keep_room_for_proof(true);
        assert!(matches!(all.claim_any(&identity("a", 1), None, 0), Claim::New(_)));
    }

    /// Covers: SES-06.
    #[test]
    fn discovery_has_places_of_its_own() {
        let registry = Registry::new(SESSIONS_MAX);
        let (normal, mut discovery) = (identity("a", 1), identity("a", 1));
        discovery.scope = Scope::Discovery("iqn.2026-01.example:disk".into(), 1);
        assert!(matches!(registry.claim_any(&normal, None, 0), Claim::New(_)));
        let Claim::New(tsih) = registry.claim_any(&discovery, None, 0) else { panic!() };
        assert!(tsih != Tsih(0) && registry.find(&discovery) == Some(Home { reactor: 0, tsih }));
    }

    #[test]
    fn who_has_proved_itself_makes_room_for_the_same_proof_alone() {
        let registry = Registry::new(SESSIONS_MAX);
        let proved = identity("a", 1);
        assert!(matches!(registry.claim_any(&proved, Some("alice"), 0), Claim::New(_)));
        assert_eq!(registry.claim_any(&proved, None, 0), Claim::Foreign);
        assert_eq!(registry.claim_any(&proved, Some("bob"), 0), Claim::Foreign);
        assert!(matches!(registry.claim_any(&proved, Some("alice"), 0), Claim::Occupied(_)));
        let open = identity("a", 2);
        assert!(matches!(registry.claim_any(&open, None, 0), Claim::New(_)));
        assert!(matches!(registry.claim_any(&open, Some("alice"), 0), Claim::Occupied(_)));
    }

    #[test]
    fn a_late_release_leaves_the_newer_session_alone() {
        let registry = Registry::new(SESSIONS_MAX);
        let id = identity("a", 1);
        let Claim::New(old) = registry.claim_any(&id, None, 0) else { panic!() };
        registry.release(&id, old);
        let Claim::New(new) = registry.claim_any(&id, None, 0) else { panic!() };
        assert_ne!(old, new);
        registry.release(&id, old);
        assert_eq!(registry.find(&id), Some(Home { reactor: 0, tsih: new }));
    }

    /// Covers: SES-06.
    #[test]
    fn tsih_is_never_zero_when_the_counter_wraps() {
        let registry = Registry::new(SESSIONS_MAX);
        registry.inner.lock().unwrap().last = u16::MAX - 1;
        let Claim::New(first) = registry.claim_any(&identity("a", 1), None, 0) else { panic!() };
        let Claim::New(second) = registry.claim_any(&identity("a", 2), None, 0) else { panic!() };
        assert_eq!((first, second), (Tsih(u16::MAX), Tsih(1)));
    }
}
