// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CHAP as the initiator has it: it proves itself and, where it wants, has the target do so, too.
//! Read RFC 7143 §9.2.1, §12.1.3 and RFC 1994 §4 first.
//!
//! ```text
//! Offered --CHAP_A, CHAP_I, CHAP_C--> Proved (one way)
//!   `--'CHAP_N, CHAP_R                Waiting (mutual) --CHAP_N, CHAP_R--> Proved
//! any --error--> Failed
//! ```

use alloc::string::String;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use subtle::ConstantTimeEq;
use wire::iscsi::keys;

use super::Account;
use super::Algorithm;
use super::Challenge;
use super::Keys;
use super::Response;
use super::quote;
use crate::limits;

/// Why the initiator ends an exchange. The text is for people and holds no secret and no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// RFC 7143 §12.1.3.
    #[error("CHAP: the target left out the key {0}")]
    Missing(&'static str),
    /// RFC 7143 §12.1.3.
    #[error("CHAP: the target sent the key {0} where it does not belong")]
    Unexpected(&'static str),
    /// RFC 7143 §12.1.3.
    #[error("CHAP: the target sent an inadmissible value of {0}")]
    Malformed(&'static str),
    /// RFC 7143 §12.1.3.
    #[error("CHAP: the target chose the algorithm {0:?}, which was not offered")]
    Algorithm(String),
    /// RFC 7143 §9.2.1.
    #[error("CHAP: the target sent our own challenge back")]
    ReflectedChallenge,
    /// RFC 7143 §9.2.1.
    #[error("CHAP: the target answered with the secret of the initiator")]
    ReflectedResponse,
    /// RFC 7143 §12.1.3.
    #[error("CHAP: the target calls itself {0:?}, which is not the expected name")]
    Name(String),
    /// RFC 7143 §12.1.3.
    #[error("CHAP: the target does not know its own secret: it may not be what it says it is")]
    Response,
    /// The exchange is over.
    #[error("CHAP: the exchange is over")]
    Over,
}

/// What the initiator has to say.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // each must be sent
pub enum ClientReply {
    /// Nothing: the exchange is over.
    Nothing,
    /// CHAP_N and CHAP_R, and CHAP_I and CHAP_C if the target shall prove itself.
    Proof {
        /// CHAP_N.
        name: String,
        /// CHAP_R.
        response: Response,
        /// CHAP_I and CHAP_C.
        challenge: Option<Challenge>,
    },
}

/// One authentication, from the initiator's side.
#[derive(Clone, Debug)]
pub struct Client {
    account: Arc<Account>,
    algorithms: Vec<Algorithm>,
    challenge: Challenge,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// CHAP_A goes out or is out.
    Offered,
    /// Proved itself by this algorithm; the target's proof comes next.
    Waiting(Algorithm),
    Proved,
    Failed,
}

impl Client {
    /// Proves who it is by `account`; with a target in it, the target must prove itself, too.
    /// `algorithms`: most wanted first; MD5 is added where it is missing, as every list must have
    /// it. `challenge` serves for this exchange and no other.
    #[must_use]
    pub fn new(
        account: Arc<Account>,
        mut algorithms: Vec<Algorithm>,
        challenge: Challenge,
    ) -> Self {
        if !algorithms.contains(&Algorithm::Md5) {
            algorithms.push(Algorithm::Md5);
        }
        Self { account, algorithms, challenge, state: State::Offered }
    }

    /// CHAP_A: the numbers of the algorithms, most wanted first.
    #[must_use]
    pub fn offer(&self) -> String {
        let numbers: Vec<String> =
            self.algorithms.iter().map(|algorithm| algorithm.number().to_string()).collect();
        numbers.join(",")
    }

    /// Takes the keys of one logical text of the target.
    ///
    /// # Errors
    /// The connection must be closed (RFC 7143 §9.2, §12.1.3); each later call fails.
    pub fn handle(&mut self, keys: &Keys<'_>) -> Result<ClientReply, ClientError> {
        let (state, reply) = match core::mem::replace(&mut self.state, State::Failed) {
            State::Offered => self.prove(keys)?,
            State::Waiting(algorithm) => self.verify(algorithm, keys)?,
            State::Proved | State::Failed => return Err(ClientError::Over),
        };
        self.state = state;
        Ok(reply)
    }

    /// Whether all proofs have been given.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Proved
    }

    /// Whether the target proves itself, too.
    #[must_use]
    pub fn is_mutual(&self) -> bool {
        self.account.target().is_some()
    }

    fn prove(&self, keys: &Keys<'_>) -> Result<(State, ClientReply), ClientError> {
        if let Some(key) = keys.of_answer() {
            return Err(ClientError::Unexpected(key));
        }
        let chosen = keys.algorithms.ok_or(ClientError::Missing("CHAP_A"))?;
        let number = keys::numeric(chosen);
        let mut offered = self.algorithms.iter();
        let algorithm = offered.find(|algorithm| number == Some(algorithm.number().into()));
        let algorithm = *algorithm.ok_or_else(|| ClientError::Algorithm(quote(chosen)))?;
        let identifier = keys.identifier.ok_or(ClientError::Missing("CHAP_I"))?;
        let bytes = keys.challenge.ok_or(ClientError::Missing("CHAP_C"))?;
        let theirs = Challenge::read(identifier, bytes).map_err(|error| match error {
            super::Error::Malformed(key) => ClientError::Malformed(key),
            _ => ClientError::Malformed("CHAP_C"),
        })?;
        // An initiator that took the target's challenge for its own would be shown the answer to
        // it (RFC 7143 §9.2.1); ours was drawn before, so equality means reflection.
        if self.challenge.as_bytes().ct_eq(theirs.as_bytes()).into() {
            return Err(ClientError::ReflectedChallenge);
        }
        let own = self.account.initiator();
        let response = algorithm.response(theirs.identifier(), own.secret(), theirs.as_bytes());
        let challenge = self.is_mutual().then(|| self.challenge.clone());
        let next = if challenge.is_some() { State::Waiting(algorithm) } else { State::Proved };
        Ok((next, ClientReply::Proof { name: own.name().to_string(), response, challenge }))
    }

    fn verify(
        &self,
        algorithm: Algorithm,
        keys: &Keys<'_>,
    ) -> Result<(State, ClientReply), ClientError> {
        if let Some(key) = keys.of_challenge() {
            return Err(ClientError::Unexpected(key));
        }
        let name = keys.name.ok_or(ClientError::Missing("CHAP_N"))?;
        let given = keys.response.ok_or(ClientError::Missing("CHAP_R"))?;
        let mut buffer = [0; limits::CHAP_BINARY_LEN_MAX];
        let given =
            keys::binary(given, &mut buffer).map_err(|_| ClientError::Malformed("CHAP_R"))?;
        let target = self.account.target().ok_or(ClientError::Over)?;
        if name != target.name() {
            return Err(ClientError::Name(quote(name)));
        }
        let (identifier, bytes) = (self.challenge.identifier(), self.challenge.as_bytes());
        let own = self.account.initiator().secret();
        if algorithm.response(identifier, own, bytes).is(given) {
            return Err(ClientError::ReflectedResponse);
        }
        if !algorithm.response(identifier, target.secret(), bytes).is(given) {
            return Err(ClientError::Response);
        }
        Ok((State::Proved, ClientReply::Nothing))
    }
}

impl Keys<'_> {
    /// The name of a key that is there, of those that the second step of the target has.
    const fn of_answer(&self) -> Option<&'static str> {
        match self {
            Self { name: Some(_), .. } => Some("CHAP_N"),
            Self { response: Some(_), .. } => Some("CHAP_R"),
            _ => None,
        }
    }

    /// The name of a key that is there, of those that the first step of the target has.
    const fn of_challenge(&self) -> Option<&'static str> {
        match self {
            Self { algorithms: Some(_), .. } => Some("CHAP_A"),
            Self { identifier: Some(_), .. } => Some("CHAP_I"),
            Self { challenge: Some(_), .. } => Some("CHAP_C"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec;

    use super::*;
    use crate::chap::Credentials;
    use crate::chap::Exchange;
    use crate::chap::Mutual;
    use crate::chap::Policy;
    use crate::chap::Reply;
    use crate::chap::Secret;

    fn credentials(name: &str, secret: &[u8]) -> Credentials {
        Credentials::new(name.to_string(), Secret::new(secret).unwrap()).unwrap()
    }

    fn account() -> Arc<Account> {
        let initiator = credentials("host", b"secret of host");
        let target = credentials("disk", b"secret of disk");
        Arc::new(Account::new(initiator, Some(target)).unwrap())
    }

    fn hex(bytes: &[u8]) -> String {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("0x{digits}")
    }

    fn client(account: Arc<Account>) -> Client {
        Client::new(account, Algorithm::ALL.to_vec(), Challenge::new(9, &[2; 16]).unwrap())
    }

    /// Covers: CHP-01/T, CHP-01/I, CHP-05, CHP-07.
    #[test]
    fn both_sides_prove_themselves_by_each_algorithm() {
        for algorithm in Algorithm::ALL {
            let mut client = client(account());
            assert!(client.offer().split(',').any(|number| number == "5"));
            let policy = Policy {
                accounts: vec![account()],
                algorithms: vec![algorithm],
                mutual: Mutual::Required,
            };
            let mut target = Exchange::new(policy, Challenge::new(7, &[1; 16]).unwrap());
            let offer = client.offer();
            let keys = Keys { algorithms: Some(&offer), ..Keys::default() };
            let Reply::Challenge(chosen, challenge) = target.handle(&keys).unwrap() else {
                panic!("no challenge");
            };
            let (number, identifier) = (chosen.number().to_string(), "7");
            let bytes = hex(challenge.as_bytes());
            let keys = Keys {
                algorithms: Some(&number),
                identifier: Some(identifier),
                challenge: Some(&bytes),
                ..Keys::default()
            };
            let ClientReply::Proof { name, response, challenge } = client.handle(&keys).unwrap()
            else {
                panic!("no proof");
            };
            let challenge = challenge.unwrap();
            let (response, bytes) = (hex(response.as_bytes()), hex(challenge.as_bytes()));
            let identifier = challenge.identifier().to_string();
            let keys = Keys {
                name: Some(&name),
                response: Some(&response),
                identifier: Some(&identifier),
                challenge: Some(&bytes),
                ..Keys::default()
            };
            let Reply::Proof { name, response, .. } = target.handle(&keys).unwrap() else {
                panic!("the target gives no proof");
            };
            assert!(!client.is_done());
            let response = hex(response.as_bytes());
            let keys = Keys { name: Some(&name), response: Some(&response), ..Keys::default() };
            client.handle(&keys).unwrap();
            assert!(client.is_done());
            assert_eq!(client.handle(&keys).unwrap_err(), ClientError::Over);
        }
    }

    /// Covers: CHP-05.
    #[test]
    fn md5_is_always_offered_and_the_order_is_kept() {
        let offer = |algorithms: &[Algorithm]| {
            let challenge = Challenge::new(9, &[2; 16]).unwrap();
            Client::new(account(), algorithms.to_vec(), challenge).offer()
        };
        assert_eq!(offer(&Algorithm::ALL), "8,7,6,5");
        assert_eq!(offer(&[Algorithm::Md5, Algorithm::Sha256]), "5,7");
        assert_eq!(offer(&[Algorithm::Sha1, Algorithm::Sha3_256]), "6,8,5");
        assert_eq!(offer(&[]), "5");
    }

    /// Covers: CHP-13/I.
    #[test]
    fn binary_values_have_at_most_1024_bytes_in_either_form() {
        let base64 = |groups: usize| format!("0b{}", "AQEB".repeat(groups));
        let cases = [
            (hex(&[1; 1024]), true),
            (base64(341), true),
            (hex(&[1; 1025]), false),
            (base64(342), false),
            (hex(&[]), false),
        ];
        for (value, good) in &cases {
            let keys = Keys {
                algorithms: Some("5"),
                identifier: Some("7"),
                challenge: Some(value),
                ..Keys::default()
            };
            match client(account()).handle(&keys) {
                Ok(_) => assert!(good, "{} digits", value.len()),
                Err(error) => {
                    assert!(!good, "{} digits", value.len());
                    assert_eq!(error, ClientError::Malformed("CHAP_C"));
                }
            }
            let keys = Keys { name: Some("disk"), response: Some(value), ..Keys::default() };
            let expected =
                if *good { ClientError::Response } else { ClientError::Malformed("CHAP_R") };
            assert_eq!(proved(account()).handle(&keys).unwrap_err(), expected);
        }
    }

    fn proved(account: Arc<Account>) -> Client {
        let mut client = client(account);
        let bytes = hex(&[1; 16]);
        let keys = Keys {
            algorithms: Some("5"),
            identifier: Some("7"),
            challenge: Some(&bytes),
            ..Keys::default()
        };
        let ClientReply::Proof { challenge, .. } = client.handle(&keys).unwrap() else {
            panic!("no proof");
        };
        assert_eq!(challenge, Challenge::new(9, &[2; 16]), "its own, not the target's");
        client
    }

    /// Covers: CHP-10, CHP-15/I, CHP-23/I, CHP-01/I.
    #[test]
    fn a_target_that_does_not_prove_itself_is_left() {
        let wrong = hex(&[0; 16]);
        let cases = [
            (Keys { name: Some("disk"), ..Keys::default() }, ClientError::Missing("CHAP_R")),
            (Keys { response: Some(&wrong), ..Keys::default() }, ClientError::Missing("CHAP_N")),
            (
                Keys { name: Some("disk"), response: Some(&wrong), ..Keys::default() },
                ClientError::Response,
            ),
            (
                Keys { name: Some("other"), response: Some(&wrong), ..Keys::default() },
                ClientError::Name("other".to_string()),
            ),
            (
                Keys { name: Some("disk"), response: Some("0xzz"), ..Keys::default() },
                ClientError::Malformed("CHAP_R"),
            ),
        ];
        for (keys, error) in cases {
            assert_eq!(proved(account()).handle(&keys).unwrap_err(), error);
        }
        let own = Algorithm::Md5.response(9, account().initiator().secret(), &[2; 16]);
        let own = hex(own.as_bytes());
        let keys = Keys { name: Some("disk"), response: Some(&own), ..Keys::default() };
        let error = proved(account()).handle(&keys).unwrap_err();
        assert_eq!(error, ClientError::ReflectedResponse);
    }

    /// Covers: CHP-12, CHP-17.
    #[test]
    fn keys_that_do_not_fit_the_step_are_refused() {
        let (good, reflected) = (hex(&[1; 16]), hex(&[2; 16]));
        let full = Keys {
            algorithms: Some("5"),
            identifier: Some("7"),
            challenge: Some(&good),
            ..Keys::default()
        };
        let cases = [
            (Keys { algorithms: None, ..full }, ClientError::Missing("CHAP_A")),
            (Keys { identifier: None, ..full }, ClientError::Missing("CHAP_I")),
            (Keys { challenge: None, ..full }, ClientError::Missing("CHAP_C")),
            (Keys { algorithms: Some("9"), ..full }, ClientError::Algorithm("9".to_string())),
            (Keys { identifier: Some("256"), ..full }, ClientError::Malformed("CHAP_I")),
            (Keys { name: Some("x"), ..full }, ClientError::Unexpected("CHAP_N")),
            (Keys { challenge: Some(&reflected), ..full }, ClientError::ReflectedChallenge),
        ];
        for (keys, error) in cases {
            assert_eq!(client(account()).handle(&keys).unwrap_err(), error);
        }
        let late = Keys { algorithms: Some("5"), ..Keys::default() };
        let error = proved(account()).handle(&late).unwrap_err();
        assert_eq!(error, ClientError::Unexpected("CHAP_A"));
    }
}
