// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every way in which a login fails, with the status that tells the initiator (RFC 7143 §11.13.5).

use alloc::string::String;
use alloc::vec::Vec;

use wire::iscsi::Stage;
use wire::iscsi::keys::TextError;

use crate::chap;
use crate::limits;
use crate::name::NameError;
use crate::target_role::admission::Redirection;

/// Why a login failed. The text is for the log; the initiator gets the status only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LoginError {
    /// RFC 7143 §4.2.4.
    #[error("the first PDU is no login request")]
    NotLogin,
    /// RFC 7143 §8.1.2: timers T6 and T7.
    #[error("login took longer than its timeout")]
    Timeout,
    /// RFC 7143 §4.2.4.
    #[error("another PDU than a login request during login")]
    OtherPdu,
    /// RFC 7143 §11.12.
    #[error("malformed login request ({0})")]
    Malformed(&'static str),
    /// RFC 7143 §11.13.2.
    #[error("the initiator's lowest version is {0}, only version 0 is spoken")]
    Version(u8),
    /// RFC 7143 §6.3: one request at a time.
    #[error("a login request before the last one was answered")]
    Unanswered,
    /// RFC 7143 §6.2.
    #[error("more than {} login requests", limits::LOGIN_EXCHANGES_MAX)]
    Exchanges,
    /// RFC 7143 §11.12: what stays the same throughout the phase.
    #[error("{0} changed during login")]
    Changed(&'static str),
    /// RFC 7143 §6.3.
    #[error("a login request of the stage {got:?} while the stage is {current:?}")]
    Stage { got: Stage, current: Stage },
    /// RFC 7143 §11.12.3.
    #[error("no transition from the stage {from:?} to {to:?}")]
    Transition { from: Stage, to: Option<Stage> },
    /// RFC 7143 §11.12.2.
    #[error("T and C are both set")]
    TransitContinued,
    /// RFC 7143 §6.2.
    #[error("text of more than {} bytes", limits::LOGIN_TEXT_LEN_MAX)]
    TextTooLong,
    /// RFC 7143 §6.2: the other half of a response with C=1 is asked for by an empty request.
    #[error("keys in a request that must be empty")]
    ContinuationNotEmpty,
    /// RFC 7143 §6.1.
    #[error("malformed text: {0}")]
    Text(TextError),
    /// A bound of ours.
    #[error("all answers need more than {} bytes", limits::LOGIN_ANSWER_LEN_MAX)]
    AnswerTooLong,
    /// RFC 7143 §6.3.
    #[error("the key {0} came twice")]
    Repeated(&'static str),
    /// RFC 7143 §12, §13.
    #[error("the key {key} may not be sent in the stage {stage:?}")]
    KeyStage { key: &'static str, stage: Stage },
    /// RFC 7143 §13.
    #[error("the key {0} may not be sent in this login")]
    KeyPhase(&'static str),
    /// RFC 7143 §13.
    #[error("the key {0} may not be sent by an initiator")]
    KeySender(&'static str),
    /// RFC 7143 §6.3.1.
    #[error("the key {0} may be sent with the first request only")]
    KeyLate(&'static str),
    /// RFC 7143 §12.1.
    #[error("the key {0} belongs to an authentication method that was not chosen")]
    KeyMethod(&'static str),
    /// RFC 7143 §6.2.
    #[error("{key}={value}: the value is reserved for answers")]
    Reserved { key: &'static str, value: String },
    /// RFC 7143 §13.
    #[error("{key}={value}: inadmissible value")]
    Value { key: &'static str, value: String },
    /// RFC 7143 §4.2.7.
    #[error("{key}: {error}")]
    Name { key: &'static str, error: NameError },
    /// RFC 7143 §6.3.1.
    #[error("the key {0} is missing")]
    Missing(&'static str),
    /// RFC 7143 §13.21.
    #[error("SessionType={0} is not supported")]
    SessionType(String),
    /// RFC 7143 §12.1.
    #[error("the initiator offers AuthMethod={0}: {why}", why = unacceptable(.0))]
    AuthMethod(String),
    /// RFC 7143 §6.3.1.
    #[error("the initiator skips authentication, which is required here")]
    SecuritySkipped,
    /// RFC 7143 §12.1.3.
    #[error("{0}")]
    Chap(chap::Error),
    /// RFC 7143 §13.14.
    #[error("FirstBurstLength {first} is above MaxBurstLength {max}")]
    Bursts { first: u32, max: u32 },
    /// RFC 7145 §6.3.
    #[error("the connection is one of RDMA, and RDMAExtensions=Yes was not agreed on")]
    RdmaMissing,
    /// RFC 7145 §10.1.
    #[error("the RDMA stream has ended, or brings no login request")]
    Rdma,
    /// Our own policy, which the initiator did not meet.
    #[error("{0}=CRC32C is required here")]
    DigestRequired(&'static str),
    /// RFC 7143 §11.13.5: class 1.
    #[error("the target has moved to {address}")]
    Redirected { address: String, duration: Redirection },
    /// The node said so.
    #[error("{reason}")]
    Refused { status: u16, reason: &'static str },
}

impl LoginError {
    /// The status for the initiator; None: the connection is closed without a word.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::NotLogin | Self::Timeout => None,
            Self::OtherPdu => Some(0x020b),
            Self::Version(_) => Some(0x0205),
            Self::Missing(_) | Self::RdmaMissing => Some(0x0207),
            Self::SessionType(_) => Some(0x0209),
            Self::AuthMethod(_) | Self::SecuritySkipped => Some(0x0201),
            Self::Chap(error) => Some(error.status()),
            Self::AnswerTooLong => Some(0x0302),
            Self::Redirected { duration: Redirection::Temporary, .. } => Some(0x0101),
            Self::Redirected { duration: Redirection::Permanent, .. } => Some(0x0102),
            Self::Refused { status, .. } => Some(*status),
            _ => Some(0x0200),
        }
    }
}

impl LoginError {
    /// What the response says besides the status: where the target is now (RFC 7143 §11.13.5,
    /// §13.8; without a portal group tag), or that it takes none of the methods (§6.3.2).
    pub(super) fn keys(&self) -> Vec<u8> {
        match self {
            Self::Redirected { address, .. } => {
                [b"TargetAddress=", address.as_bytes(), b"\0"].concat()
            }
            Self::AuthMethod(_) => b"AuthMethod=Reject\0".to_vec(),
            _ => Vec::new(),
        }
    }
}

/// Why no method of an offer will do.
fn unacceptable(offer: &str) -> &'static str {
    match offer.split(',').any(|method| method == "CHAP") {
        true => "None alone is taken here",
        false => "a proof by CHAP is wanted here",
    }
}

/// Peer text for the log: escaped and of bounded length.
pub(super) fn quote(text: &str) -> String {
    text.chars().take(limits::QUOTE_LEN_MAX).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::NameError;
    use alloc::string::ToString;

    #[test]
    fn a_method_that_will_not_do_is_told_from_one_that_is_missing() {
        for (offer, said) in
            [("None", "CHAP is wanted"), ("SRP,None", "CHAP is wanted"), ("SRP,CHAP", "None alone")]
        {
            let text = LoginError::AuthMethod(offer.into()).to_string();
            assert!(text.contains(said) && text.contains(offer), "{text}");
        }
    }

    #[test]
    fn every_error_has_its_status() {
        let (key, value) = ("MaxBurstLength", String::new());
        let (stage, current) = (Stage::Security, Stage::Operational);
        let cases = [
            (LoginError::NotLogin, None),
            (LoginError::Timeout, None),
            (LoginError::OtherPdu, Some(0x020b)),
            (LoginError::Malformed("x"), Some(0x0200)),
            (LoginError::Version(1), Some(0x0205)),
            (LoginError::Unanswered, Some(0x0200)),
            (LoginError::Exchanges, Some(0x0200)),
            (LoginError::Changed("x"), Some(0x0200)),
            (LoginError::Stage { got: stage, current }, Some(0x0200)),
            (LoginError::Transition { from: stage, to: None }, Some(0x0200)),
            (LoginError::TransitContinued, Some(0x0200)),
            (LoginError::TextTooLong, Some(0x0200)),
            (LoginError::ContinuationNotEmpty, Some(0x0200)),
            (LoginError::Text(TextError::NotUtf8), Some(0x0200)),
            (LoginError::AnswerTooLong, Some(0x0302)),
            (LoginError::Repeated(key), Some(0x0200)),
            (LoginError::KeyStage { key, stage }, Some(0x0200)),
            (LoginError::KeyPhase(key), Some(0x0200)),
            (LoginError::KeySender(key), Some(0x0200)),
            (LoginError::KeyLate(key), Some(0x0200)),
            (LoginError::KeyMethod(key), Some(0x0200)),
            (LoginError::Reserved { key, value: value.clone() }, Some(0x0200)),
            (LoginError::Value { key, value: value.clone() }, Some(0x0200)),
            (LoginError::Name { key, error: NameError::Empty }, Some(0x0200)),
            (LoginError::Missing(key), Some(0x0207)),
            (LoginError::SessionType(value.clone()), Some(0x0209)),
            (LoginError::AuthMethod(value), Some(0x0201)),
            (LoginError::SecuritySkipped, Some(0x0201)),
            (LoginError::Chap(chap::Error::Missing("CHAP_R")), Some(0x0207)),
            (LoginError::Chap(chap::Error::Unexpected("CHAP_R")), Some(0x0200)),
            (LoginError::Chap(chap::Error::Response("me".into())), Some(0x0201)),
            (LoginError::Bursts { first: 2, max: 1 }, Some(0x0200)),
            (LoginError::DigestRequired(key), Some(0x0200)),
            (LoginError::Refused { status: 0x0203, reason: "x" }, Some(0x0203)),
        ];
        for (error, status) in cases {
            assert_eq!(error.status(), status, "{error}");
        }
    }

    #[test]
    fn quoted_text_is_escaped_and_short() {
        assert_eq!(quote("a\u{1b}\n\"b"), "a\\u{1b}\\n\\\"b");
        assert_eq!(quote(&"x".repeat(500)).len(), limits::QUOTE_LEN_MAX);
    }
}
