// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The security stage: which method, and the proofs of both sides (RFC 7143 §6.3.1, §12.1).

use alloc::boxed::Box;

use wire::iscsi::Stage;
use wire::iscsi::keys::TextWriter;

use super::Login;
use super::LoginError;
use super::State;
use super::negotiation::push;
use super::pairs;
use crate::chap;
use crate::chap::Client;
use crate::chap::ClientReply;
use crate::initiator::Authenticated;
use crate::params;
use crate::params::Id;

/// How far authentication has come.
#[derive(Debug)]
pub(super) enum Security {
    /// None was offered alone.
    Off,
    /// CHAP was offered.
    Offered(Box<Client>),
    /// CHAP was chosen.
    Chap(Box<Client>),
}

impl Login {
    /// Takes a text of the security stage; true if we are ready to leave it.
    pub(super) fn security(
        &mut self,
        text: &[u8],
        answers: &mut TextWriter,
    ) -> Result<bool, LoginError> {
        let mut steps = chap::Keys::default();
        let mut any = false;
        let mut chosen = None;
        for pair in pairs(text) {
            let (name, value) = pair.map_err(LoginError::Text)?;
            let key = params::find(name);
            let slot = match key.map(|key| key.id) {
                Some(Id::AuthMethod) => &mut chosen,
                Some(Id::ChapA) => &mut steps.algorithms,
                Some(Id::ChapI) => &mut steps.identifier,
                Some(Id::ChapC) => &mut steps.challenge,
                Some(Id::ChapN) => &mut steps.name,
                Some(Id::ChapR) => &mut steps.response,
                _ => {
                    self.negotiation.take((name, value), Stage::Security, answers)?;
                    continue;
                }
            };
            if let Some(key) = key {
                self.negotiation.check(key, Stage::Security)?;
                any |= key.id != Id::AuthMethod;
            }
            if slot.replace(value).is_some() {
                return Err(LoginError::Repeated(name.into()));
            }
        }
        if let Some(method) = chosen {
            self.choose(method)?;
        }
        self.step(&steps, any, chosen.is_some(), answers)
    }

    /// The target has chosen a method.
    fn choose(&mut self, method: &str) -> Result<(), LoginError> {
        let State::Security(security) = &mut self.state else { return Ok(()) };
        let old = core::mem::replace(security, Security::Off);
        *security = match (old, method) {
            (Security::Off, "None") => Security::Off,
            (Security::Offered(client), "None") if !client.is_mutual() => Security::Off,
            (Security::Offered(client), "CHAP") => Security::Chap(client),
            _ => return Err(LoginError::AuthMethod),
        };
        Ok(())
    }

    /// The next step of CHAP, if it goes on. `any`: the target sent keys of it; `begin`: it was
    /// chosen just now. True if we are ready to leave the stage.
    fn step(
        &mut self,
        steps: &chap::Keys<'_>,
        any: bool,
        begin: bool,
        answers: &mut TextWriter,
    ) -> Result<bool, LoginError> {
        let State::Security(security) = &mut self.state else { return Ok(true) };
        let client = match security {
            Security::Chap(client) => client,
            _ if any => return Err(LoginError::AuthMethod),
            Security::Off => return Ok(true),
            // Nothing was chosen yet: the target goes on to speak.
            Security::Offered(_) => return Ok(false),
        };
        if begin {
            if any {
                return Err(LoginError::Chap(chap::ClientError::Unexpected("CHAP_*")));
            }
            push(answers, Id::ChapA.key().name, &client.offer())?;
            return Ok(false);
        }
        if client.is_done() && !any {
            return Ok(true);
        }
        match client.handle(steps).map_err(LoginError::Chap)? {
            ClientReply::Nothing => {}
            ClientReply::Proof { name, response, challenge } => {
                let full = |_| LoginError::TooMuchToSay;
                push(answers, Id::ChapN.key().name, &name)?;
                let response = response.as_bytes();
                answers.push_binary_hex(Id::ChapR.key().name, response).map_err(full)?;
                if let Some(challenge) = challenge {
                    let (identifier, bytes) = (challenge.identifier(), challenge.as_bytes());
                    answers.push_number(Id::ChapI.key().name, identifier.into()).map_err(full)?;
                    answers.push_binary_hex(Id::ChapC.key().name, bytes).map_err(full)?;
                }
            }
        }
        Ok(true)
    }

    pub(super) fn leave_security(&mut self) -> Result<(), LoginError> {
        let State::Security(security) = &self.state else { return Ok(()) };
        self.authenticated = match security {
            Security::Off => Authenticated::Nobody,
            Security::Chap(client) if client.is_done() && client.is_mutual() => Authenticated::Both,
            Security::Chap(client) if client.is_done() => Authenticated::Initiator,
            Security::Offered(_) | Security::Chap(_) => {
                return Err(LoginError::AuthenticationSkipped);
            }
        };
        Ok(())
    }
}
