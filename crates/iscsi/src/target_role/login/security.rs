// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The security stage: which method, and whether the initiator may go on (RFC 7143 §6.3.1, §12.1).

use alloc::boxed::Box;

use super::answers::Answers;
use super::error::LoginError;
use crate::chap;
use crate::chap::Exchange;
use crate::chap::Reply;
use crate::params;
use crate::params::Id;
use crate::target_role::admission::Authentication;

/// Where authentication stands.
#[derive(Debug)]
pub(super) enum Security {
    /// No method was chosen yet.
    Open(Authentication),
    /// AuthMethod=None, or none at all, where the node allows it.
    None,
    /// AuthMethod=CHAP.
    Chap(Box<Exchange>),
}

impl Security {
    /// The methods that may be chosen, as a set of [`params::AUTH_METHODS`].
    pub(super) const fn methods(&self) -> u32 {
        match self {
            Self::Open(Authentication::Off) | Self::None => NONE,
            Self::Open(Authentication::Optional(_)) => NONE | CHAP,
            Self::Open(Authentication::Required(_)) | Self::Chap(_) => CHAP,
        }
    }

    /// Whether nobody has to prove anything, or could.
    pub(super) const fn asks_nothing(&self) -> bool {
        matches!(self, Self::Open(Authentication::Off))
    }

    /// The initiator offered, and this place of [`params::AUTH_METHODS`] was agreed.
    pub(super) fn choose(&mut self, method: u32) {
        let state = core::mem::replace(self, Self::None);
        *self =
            match state {
                Self::Open(
                    Authentication::Optional(exchange) | Authentication::Required(exchange),
                ) if 1 << method == CHAP => Self::Chap(exchange),
                Self::Open(Authentication::Required(exchange)) => {
                    Self::Open(Authentication::Required(exchange))
                }
                Self::Chap(exchange) => Self::Chap(exchange),
                Self::Open(_) | Self::None => Self::None,
            };
    }

    /// Whether keys of CHAP may come.
    pub(super) const fn is_chap(&self) -> bool {
        matches!(self, Self::Chap(_))
    }

    /// Takes the CHAP keys of one logical text.
    pub(super) fn handle(
        &mut self,
        keys: &chap::Keys<'_>,
        answers: &mut Answers,
    ) -> Result<(), LoginError> {
        let Self::Chap(exchange) = self else { return Ok(()) };
        match exchange.handle(keys).map_err(LoginError::Chap)? {
            Reply::Nothing => Ok(()),
            Reply::Challenge(algorithm, challenge) => {
                answers.push_number("CHAP_A", algorithm.number().into())?;
                answers.push_number("CHAP_I", challenge.identifier().into())?;
                answers.push_binary("CHAP_C", challenge.as_bytes(), chap::BinaryForm::Hex)
            }
            Reply::Proof { name, response, form } => {
                answers.push("CHAP_N", &name)?;
                answers.push_binary("CHAP_R", response.as_bytes(), form)
            }
        }
    }

    /// Whether the initiator may leave the stage now; if not, it must go on in it.
    pub(super) fn may_leave(&self) -> Result<bool, LoginError> {
        match self {
            Self::Open(Authentication::Required(_)) => Err(LoginError::SecuritySkipped),
            Self::Open(Authentication::Off | Authentication::Optional(_)) | Self::None => Ok(true),
            Self::Chap(exchange) => Ok(exchange.proved().is_some()),
        }
    }

    /// The name that the initiator has proved to have.
    pub(super) fn user(&self) -> Option<&str> {
        match self {
            Self::Chap(exchange) => exchange.proved(),
            _ => None,
        }
    }
}

/// Puts `value` where the key belongs; false: it is no key of CHAP.
pub(super) const fn set<'a>(keys: &mut chap::Keys<'a>, id: Id, value: &'a str) -> bool {
    let slot = match id {
        Id::ChapA => &mut keys.algorithms,
        Id::ChapI => &mut keys.identifier,
        Id::ChapC => &mut keys.challenge,
        Id::ChapN => &mut keys.name,
        Id::ChapR => &mut keys.response,
        _ => return false,
    };
    *slot = Some(value);
    true
}

/// The bits of the methods in the order of [`params::AUTH_METHODS`].
const NONE: u32 = 0b01;
const CHAP: u32 = 0b10;

const _: () = assert!(params::AUTH_METHODS.len() >= 2);
