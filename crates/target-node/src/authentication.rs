// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who has to prove who it is, and by what (RFC 7143 §9.2, §12.1).

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering;

use iscsi::chap::Account;
use iscsi::chap::Algorithm;
use iscsi::chap::Challenge;
use iscsi::chap::Exchange;
use iscsi::chap::Mutual;
use iscsi::chap::Policy;
use iscsi::target_role::Authentication;

/// What is demanded of initiators, at one target or of discovery sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationPolicy {
    /// How much.
    pub demand: Demand,
    /// The allowed hash functions, of which the initiator's order chooses.
    pub algorithms: Vec<Algorithm>,
    /// For initiators that have no account of their own.
    pub account: Option<Arc<Account>>,
}

/// How much an initiator has to prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the steps of RFC 7143 §9.2
pub enum Demand {
    /// Nothing.
    #[default]
    Off,
    /// What it likes; but a name that has an account of its own has to be proved.
    Optional,
    /// Who it is.
    Required,
    /// Who it is; and it must have the target prove itself.
    Mutual,
}

impl AuthenticationPolicy {
    /// For an initiator whose own account is `own`, which replaces the common one. None: `draw`
    /// could not draw a challenge.
    pub(crate) fn authentication(
        &self,
        own: Option<&Arc<Account>>,
        draw: impl FnOnce() -> Option<Challenge>,
    ) -> Option<Authentication> {
        let account = own.or(self.account.as_ref());
        if self.demand == Demand::Off || (self.demand == Demand::Optional && account.is_none()) {
            return Some(Authentication::Off);
        }
        let policy = Policy {
            accounts: account.cloned().into_iter().collect(),
            algorithms: self.algorithms.clone(),
            mutual: match self.demand {
                Demand::Mutual => Mutual::Required,
                _ => Mutual::OnRequest,
            },
        };
        let exchange = Box::new(Exchange::new(policy, draw()?));
        // Whoever could use a name without its proof would have its session and its reservations.
        Some(match (self.demand, own) {
            (Demand::Optional, None) => Authentication::Optional(exchange),
            _ => Authentication::Required(exchange),
        })
    }
}

/// Makes challenges of random bytes.
#[derive(Debug, Default)]
pub(crate) struct Challenges {
    /// Of the next challenge; RFC 1994 §4.1 wants another one each time.
    identifier: AtomicU8,
}

/// Random bytes of a challenge: as many as the longest hash has (RFC 1994 §2.3).
const CHALLENGE_LEN: usize = 32;

impl Challenges {
    /// A new one; None if the system has no randomness for us.
    pub(crate) fn draw(
        &self,
        random: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> Option<Challenge> {
        let mut bytes = [0; CHALLENGE_LEN];
        if let Err(error) = random(&mut bytes) {
            tracing::error!(%error, "cannot draw a challenge; logins with CHAP are refused");
            return None;
        }
        Challenge::new(self.identifier.fetch_add(1, Ordering::Relaxed), &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iscsi::chap::Credentials;
    use iscsi::chap::Secret;

    fn system(bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(|error| io::Error::other(error.to_string()))
    }

    fn account(name: &str) -> Arc<Account> {
        let secret = Secret::new(b"secretsecret1234").unwrap();
        let credentials = Credentials::new(name.into(), secret).unwrap();
        Arc::new(Account::new(credentials, None).unwrap())
    }

    fn decide(demand: Demand, common: bool, own: bool) -> Option<Authentication> {
        let policy = AuthenticationPolicy {
            demand,
            algorithms: Algorithm::ALL.to_vec(),
            account: common.then(|| account("common")),
        };
        let own = own.then(|| account("own"));
        policy.authentication(own.as_ref(), || Challenges::default().draw(system))
    }

    /// Covers: CHP-22a/T, CHP-22b/T.
    #[test]
    fn challenges_never_repeat() {
        let (challenges, others) = (Challenges::default(), Challenges::default());
        let mut seen = std::collections::HashSet::new();
        let mut last = None;
        for _ in 0..1000 {
            let challenge = challenges.draw(system).unwrap();
            assert_ne!(Some(challenge.identifier()), last);
            last = Some(challenge.identifier());
            assert!(seen.insert(challenge.as_bytes().to_vec()), "the challenge came before");
            assert!(seen.insert(others.draw(system).unwrap().as_bytes().to_vec()));
        }
        assert!(seen.iter().all(|challenge| challenge.len() == CHALLENGE_LEN));
    }

    /// Covers: CHP-22a/T.
    #[test]
    fn a_challenge_is_random_from_its_first_byte_to_its_last() {
        let drawn = std::cell::Cell::new(0);
        let random = |bytes: &mut [u8]| {
            drawn.set(drawn.get() + 1);
            (0..).zip(bytes).for_each(|(at, byte)| *byte = 0xa0 + at);
            Ok(())
        };
        let challenge = Challenges::default().draw(random).unwrap();
        let expected: Vec<u8> = (0xa0..).take(CHALLENGE_LEN).collect();
        assert_eq!((challenge.as_bytes(), drawn.get()), (&expected[..], 1));
        assert!(Challenges::default().draw(|_| Err(io::Error::other("none"))).is_none());
    }

    #[test]
    fn demand_and_accounts_give_the_policy() {
        for (common, own) in [(false, false), (false, true), (true, false), (true, true)] {
            assert!(matches!(decide(Demand::Off, common, own), Some(Authentication::Off)));
            let optional = decide(Demand::Optional, common, own);
            // A name that can be proved has to be.
            assert_eq!(matches!(optional, Some(Authentication::Required(_))), own);
            assert_eq!(matches!(optional, Some(Authentication::Optional(_))), common && !own);
            assert_eq!(matches!(optional, Some(Authentication::Off)), !common && !own);
            for demand in [Demand::Required, Demand::Mutual] {
                let required = decide(demand, common, own);
                let Some(Authentication::Required(exchange)) = required else {
                    panic!("{demand:?} without an account must shut everybody out");
                };
                let shown = format!("{exchange:?}");
                assert_eq!(shown.contains("\"own\""), own);
                assert_eq!(shown.contains("\"common\""), common && !own);
                assert_eq!(shown.contains("mutual: Required"), demand == Demand::Mutual);
            }
        }
    }

    #[test]
    fn without_randomness_nobody_comes_in() {
        let policy = AuthenticationPolicy {
            demand: Demand::Optional,
            algorithms: Algorithm::ALL.to_vec(),
            account: Some(account("common")),
        };
        assert!(policy.authentication(None, || None).is_none());
    }
}
