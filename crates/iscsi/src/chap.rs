// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CHAP as the target has it: it verifies the initiator and proves itself where it is asked to.
//! [`Client`] is the initiator's side.
//! Read RFC 7143 §9.2.1, §12.1.3 and RFC 1994 §4 first.
//!
//! ```text
//! Offer --CHAP_A--> Challenged --CHAP_N, CHAP_R [CHAP_I, CHAP_C]--> Proved
//!   CHAP_A, CHAP_I, CHAP_C <--'          [CHAP_N, CHAP_R] <--'
//! any --error--> Failed
//! ```
//!
//! Randomness is an argument: the caller draws each [`Challenge`], one for one exchange.

mod algorithm;
mod client;
mod secret;

#[cfg(test)]
mod tests;

pub use algorithm::Algorithm;
pub use algorithm::Response;
pub use client::Client;
pub use client::ClientError;
pub use client::ClientReply;
pub use secret::Account;
pub use secret::Credentials;
pub use secret::CredentialsError;
pub use secret::Secret;
pub use secret::SecretError;

use alloc::string::String;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use subtle::ConstantTimeEq;
use wire::iscsi::keys;

use crate::limits;

/// Who may come in and how, for one login.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Those by which this initiator may prove itself; the caller has looked up its iSCSI name, so
    /// that no node can pose as another (RFC 7143 §9.2).
    pub accounts: Vec<Arc<Account>>,
    /// The allowed algorithms, in any order: the initiator's list decides between them.
    pub algorithms: Vec<Algorithm>,
    /// Whether the initiator must have the target prove itself, too.
    pub mutual: Mutual,
}

/// Whether the target must be authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a yes or no with a name
pub enum Mutual {
    /// If the initiator asks for it.
    OnRequest,
    /// An initiator that does not ask is refused.
    Required,
}

/// What the initiator has to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    identifier: u8,
    bytes: Vec<u8>,
}

impl Challenge {
    /// `bytes`: 1 to 1024 unpredictable ones that are used once; `identifier`: another one than
    /// last time (RFC 1994 §2.3, §4.1). None if there are none or too many.
    #[must_use]
    pub fn new(identifier: u8, bytes: &[u8]) -> Option<Self> {
        let right = (1..=limits::CHAP_BINARY_LEN_MAX).contains(&bytes.len());
        right.then(|| Self { identifier, bytes: bytes.to_vec() })
    }

    /// From the keys of a peer.
    fn read(identifier: &str, challenge: &str) -> Result<Self, Error> {
        let identifier = keys::numeric(identifier).and_then(|number| u8::try_from(number).ok());
        let identifier = identifier.ok_or(Error::Malformed("CHAP_I"))?;
        let mut buffer = [0; limits::CHAP_BINARY_LEN_MAX];
        let bytes = keys::binary(challenge, &mut buffer).map_err(|_| Error::Malformed("CHAP_C"))?;
        Self::new(identifier, bytes).ok_or(Error::Malformed("CHAP_C"))
    }

    /// CHAP_I.
    #[must_use]
    pub const fn identifier(&self) -> u8 {
        self.identifier
    }

    /// CHAP_C.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The keys of CHAP in one logical text of the initiator.
#[derive(Clone, Copy, Default)]
#[allow(missing_debug_implementations)] // it would print responses
pub struct Keys<'a> {
    /// CHAP_A.
    pub algorithms: Option<&'a str>,
    /// CHAP_N.
    pub name: Option<&'a str>,
    /// CHAP_R.
    pub response: Option<&'a str>,
    /// CHAP_I.
    pub identifier: Option<&'a str>,
    /// CHAP_C.
    pub challenge: Option<&'a str>,
}

impl Keys<'_> {
    /// The name of a key that is there, of those that begin or end an exchange.
    const fn of_proof(&self) -> Option<&'static str> {
        match self {
            Self { name: Some(_), .. } => Some("CHAP_N"),
            Self { response: Some(_), .. } => Some("CHAP_R"),
            Self { identifier: Some(_), .. } => Some("CHAP_I"),
            Self { challenge: Some(_), .. } => Some("CHAP_C"),
            _ => None,
        }
    }
}

/// What the target has to say.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // each must be sent
pub enum Reply {
    /// Nothing.
    Nothing,
    /// CHAP_A, CHAP_I and CHAP_C.
    Challenge(Algorithm, Challenge),
    /// CHAP_N and CHAP_R.
    Proof {
        /// CHAP_N.
        name: String,
        /// CHAP_R.
        response: Response,
        /// In which form: that of the initiator's CHAP_C, which it can surely read.
        form: BinaryForm,
    },
}

/// How a binary value is written (RFC 7143 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the two of the standard
pub enum BinaryForm {
    /// After `0x`.
    Hex,
    /// After `0b`.
    Base64,
}

impl BinaryForm {
    fn of(value: &str) -> Self {
        if value.starts_with("0b") || value.starts_with("0B") { Self::Base64 } else { Self::Hex }
    }
}

/// Why an exchange failed. The text is for the log and holds no secret and no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// RFC 7143 §12.1.3.
    #[error("CHAP: the key {0} is missing")]
    Missing(&'static str),
    /// RFC 7143 §12.1.3.
    #[error("CHAP: the key {0} does not belong to this step")]
    Unexpected(&'static str),
    /// RFC 7143 §12.1.3.
    #[error("CHAP: inadmissible value of {0}")]
    Malformed(&'static str),
    /// RFC 7143 §12.1.3.
    #[error("CHAP: none of the algorithms {0:?} is allowed")]
    Algorithm(String),
    /// RFC 7143 §12.1.3.
    #[error("CHAP: this initiator has no user {0:?}")]
    Name(String),
    /// RFC 7143 §12.1.3.
    #[error("CHAP: wrong response of the user {0:?}: is its secret the same on both sides?")]
    Response(String),
    /// RFC 7143 §9.2.1.
    #[error("CHAP: the user {0:?} answered with the secret of the target")]
    ReflectedResponse(String),
    /// RFC 7143 §9.2.1.
    #[error("CHAP: the user {0:?} sent our own challenge back")]
    ReflectedChallenge(String),
    /// RFC 7143 §12.1.3.
    #[error("CHAP: the target has no secret to prove itself to the user {0:?}")]
    NoTargetSecret(String),
    /// Our own policy.
    #[error("CHAP: the user {0:?} does not ask the target to prove itself, which is required here")]
    MutualRequired(String),
    /// The exchange is over.
    #[error("CHAP: the exchange is over")]
    Over,
}

impl Error {
    /// The status for the initiator (RFC 7143 §11.13.5): 0x0201 where values are well-formed and
    /// wrong, 0x0207 where one is missing, else 0x0200.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Missing(_) => 0x0207,
            Self::Unexpected(_) | Self::Malformed(_) | Self::Over => 0x0200,
            _ => 0x0201,
        }
    }
}

/// One authentication.
#[derive(Clone, Debug)]
pub struct Exchange {
    policy: Policy,
    challenge: Challenge,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// CHAP was chosen; CHAP_A comes next.
    Offer,
    /// The initiator has the challenge.
    Challenged(Algorithm),
    /// The initiator has this name.
    Proved(String),
    /// Nothing leads out of here.
    Failed,
}

impl Exchange {
    /// CHAP was chosen. `challenge` serves for this exchange and no other.
    #[must_use]
    pub const fn new(policy: Policy, challenge: Challenge) -> Self {
        Self { policy, challenge, state: State::Offer }
    }

    /// Takes the keys of one logical text.
    ///
    /// # Errors
    /// The login must end with [`Error::status`]; each later call fails.
    pub fn handle(&mut self, keys: &Keys<'_>) -> Result<Reply, Error> {
        let (state, reply) = match core::mem::replace(&mut self.state, State::Failed) {
            State::Offer => self.choose(keys)?,
            State::Challenged(algorithm) => self.verify(algorithm, keys)?,
            State::Proved(name) => match keys.of_proof() {
                None if keys.algorithms.is_none() => (State::Proved(name), Reply::Nothing),
                _ => return Err(Error::Over),
            },
            State::Failed => return Err(Error::Over),
        };
        self.state = state;
        Ok(reply)
    }

    /// The name that the initiator has proved to have.
    #[must_use]
    pub fn proved(&self) -> Option<&str> {
        match &self.state {
            State::Proved(name) => Some(name),
            _ => None,
        }
    }

    fn choose(&self, keys: &Keys<'_>) -> Result<(State, Reply), Error> {
        if let Some(early) = keys.of_proof() {
            return Err(Error::Unexpected(early));
        }
        let Some(list) = keys.algorithms else { return Ok((State::Offer, Reply::Nothing)) };
        let mut offered = Vec::new();
        for entry in keys::list(list) {
            offered.push(keys::numeric(entry).ok_or(Error::Malformed("CHAP_A"))?);
        }
        // The list is in the initiator's order of preference (RFC 7143 §12.1.3): ours says only
        // what is allowed.
        let allowed = &self.policy.algorithms;
        let algorithm = offered.iter().find_map(|number| {
            allowed.iter().find(|algorithm| u64::from(algorithm.number()) == *number)
        });
        let algorithm = *algorithm.ok_or_else(|| Error::Algorithm(quote(list)))?;
        let reply = Reply::Challenge(algorithm, self.challenge.clone());
        Ok((State::Challenged(algorithm), reply))
    }

    fn verify(&self, algorithm: Algorithm, keys: &Keys<'_>) -> Result<(State, Reply), Error> {
        if keys.algorithms.is_some() {
            return Err(Error::Unexpected("CHAP_A"));
        }
        let name = keys.name.ok_or(Error::Missing("CHAP_N"))?;
        let given = keys.response.ok_or(Error::Missing("CHAP_R"))?;
        if name.len() > limits::TEXT_VALUE_LEN_MAX {
            return Err(Error::Malformed("CHAP_N"));
        }
        let mut buffer = [0; limits::CHAP_BINARY_LEN_MAX];
        let response = keys::binary(given, &mut buffer).map_err(|_| Error::Malformed("CHAP_R"))?;
        let back = match (keys.identifier, keys.challenge) {
            (None, None) => None,
            (None, Some(_)) => return Err(Error::Missing("CHAP_I")),
            (Some(_), None) => return Err(Error::Missing("CHAP_C")),
            (Some(identifier), Some(bytes)) => {
                Some((Challenge::read(identifier, bytes)?, BinaryForm::of(bytes)))
            }
        };
        let account = self.authenticate(algorithm, name, response)?;
        let reply = match back {
            Some((challenge, form)) => self.prove(algorithm, account, &challenge, form)?,
            None if self.policy.mutual == Mutual::Required => {
                return Err(Error::MutualRequired(quote(name)));
            }
            None => Reply::Nothing,
        };
        Ok((State::Proved(name.to_string()), reply))
    }

    /// The account whose secret gives `response`. An unknown name takes as long as a wrong secret.
    fn authenticate(
        &self,
        algorithm: Algorithm,
        name: &str,
        response: &[u8],
    ) -> Result<&Account, Error> {
        let nobody = Secret::of_nobody();
        let account =
            self.policy.accounts.iter().find(|account| account.initiator().name() == name);
        let secret = account.map_or(&nobody, |account| account.initiator().secret());
        let target = account.and_then(|account| account.target());
        let ours = target.map_or(&nobody, Credentials::secret);
        let Challenge { identifier, bytes } = &self.challenge;
        let right = algorithm.response(*identifier, secret, bytes).is(response);
        let reflected = algorithm.response(*identifier, ours, bytes).is(response);
        match account {
            None => Err(Error::Name(quote(name))),
            Some(_) if reflected && target.is_some() => Err(Error::ReflectedResponse(quote(name))),
            Some(_) if !right => Err(Error::Response(quote(name))),
            Some(account) => Ok(account),
        }
    }

    /// Answers the challenge of an initiator that has proved itself.
    fn prove(
        &self,
        algorithm: Algorithm,
        account: &Account,
        challenge: &Challenge,
        form: BinaryForm,
    ) -> Result<Reply, Error> {
        let user = || quote(account.initiator().name());
        if self.challenge.as_bytes().ct_eq(challenge.as_bytes()).into() {
            return Err(Error::ReflectedChallenge(user()));
        }
        let target = account.target().ok_or_else(|| Error::NoTargetSecret(user()))?;
        let response =
            algorithm.response(challenge.identifier(), target.secret(), challenge.as_bytes());
        Ok(Reply::Proof { name: target.name().to_string(), response, form })
    }
}

/// Peer text for the log, of bounded length; it is escaped where it is printed.
fn quote(text: &str) -> String {
    text.chars().take(limits::QUOTE_LEN_MAX).collect()
}
