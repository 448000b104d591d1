// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every way in which a login fails, for the initiator's user.

use alloc::string::String;

use wire::iscsi::Stage;
use wire::iscsi::keys::TextError;

use crate::chap::ClientError;
use crate::initiator::datamover::Violation;
use crate::limits;

/// Why a login failed. Text of the target in it is short; escape it where it is printed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// RFC 7143 §11.13.5.
    #[error("{}", describe(*.0))]
    Refused(u16),
    /// RFC 7143 §8.1.2: timers T6 and T7.
    #[error("no answer within the login timeout")]
    Timeout,
    /// RFC 7143 §11.2.1: it is no target at all.
    #[error("what answers there does not speak iscsi")]
    NotIscsi,
    /// RFC 7143 §4.2.4.
    #[error("the target sent another pdu than a login response")]
    OtherPdu,
    /// The byte stream.
    #[error("{0}")]
    Stream(Violation),
    /// RFC 7143 §11.13: what a response repeats or must hold.
    #[error("malformed login response ({0})")]
    Malformed(&'static str),
    /// RFC 7143 §11.13.1.
    #[error("the target speaks version {0} only, not version 0")]
    Version(u8),
    /// RFC 7143 §6.3.
    #[error("a login response of the stage {got:?} while the stage is {current:?}")]
    Stage {
        /// Of the response.
        got: Stage,
        /// Of the login.
        current: Stage,
    },
    /// RFC 7143 §6.2.
    #[error("more than {} login responses", limits::LOGIN_EXCHANGES_MAX)]
    Exchanges,
    /// RFC 7143 §6.2.
    #[error("text of more than {} bytes", limits::LOGIN_TEXT_LEN_MAX)]
    TextTooLong,
    /// RFC 7143 §6.2: each key wants an answer, and there is no room for all of them.
    #[error(
        "the target sent so many keys that our answers need more than {} bytes",
        limits::LOGIN_SEGMENT_LEN_MAX
    )]
    TooMuchToSay,
    /// RFC 7143 §6.1.
    #[error("malformed text: {0}")]
    Text(TextError),
    /// RFC 7143 §6.3: a key is sent or answered once.
    #[error("the target sent the key {0} twice")]
    Repeated(String),
    /// RFC 7143 §13.
    #[error("the target sent the key {0}, which only an initiator may send")]
    KeySender(&'static str),
    /// RFC 7143 §12, §13.
    #[error("the target sent the key {key} in the stage {stage:?}")]
    KeyStage {
        /// Its name.
        key: &'static str,
        /// Of the response.
        stage: Stage,
    },
    /// RFC 7143 §6.2: no result of the offer.
    #[error("the target answered {key}={value}, which is no result of our offer")]
    Answer {
        /// Its name.
        key: &'static str,
        /// What came.
        value: String,
    },
    /// RFC 7143 §12.1.
    #[error("the target accepts none of the offered authentication methods")]
    AuthMethod,
    /// RFC 7143 §12.1.3.
    #[error("{0}")]
    Chap(ClientError),
    /// RFC 7143 §6.3.2.
    #[error("the target ended authentication before it had proved who it is")]
    AuthenticationSkipped,
    /// Our own policy.
    #[error("the target has no {0}=CRC32C, which is required here")]
    DigestRequired(&'static str),
    /// RFC 7145 §6.3: iSER was asked for.
    #[error("the target does not speak iSER: it did not agree on RDMAExtensions=Yes")]
    NoRdma,
    /// RFC 7145 §6.8.
    #[error("the target takes additional headers of {0} bytes only, and commands have longer ones")]
    AdditionalHeaders(u32),
    /// RFC 7143 §6.3.1.
    #[error("the portal belongs to the group {got}, not to {expected}")]
    PortalGroup {
        /// TargetPortalGroupTag of the response.
        got: u16,
        /// That which is wanted.
        expected: u16,
    },
    /// RFC 7143 §11.13.5: class 1 without an address.
    #[error("the target has moved but does not say where to")]
    RedirectWithoutAddress,
    /// The connection ended meanwhile; the pump says so.
    #[error("the target closed the connection during login")]
    Disconnected,
}

impl LoginError {
    /// Whether the same login may succeed later: the target said so by status class 3, or the
    /// connection broke (RFC 7143 §11.13.5).
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Refused(status) => *status >> 8 == 3,
            Self::Timeout | Self::Disconnected => true,
            _ => false,
        }
    }
}

/// What a status says (RFC 7143 §11.13.5).
const fn describe(status: u16) -> &'static str {
    match status {
        0x0200 => "the target found an error in our login (status 0200)",
        0x0201 => {
            "authentication failed (status 0201): the user, the secret or the name of the \
             initiator is not what the target wants"
        }
        0x0202 => "this initiator may not use this target (status 0202)",
        0x0203 => "no such target (status 0203)",
        0x0204 => "the target has been removed (status 0204)",
        0x0205 => "the target does not speak our version (status 0205)",
        0x0206 => "too many connections (status 0206)",
        0x0207 => "the target wants a parameter that is missing (status 0207)",
        0x0208 => "the session cannot span these portals (status 0208)",
        0x0209 => "the target does not have this session type (status 0209)",
        0x020a => "the session does not exist (status 020a)",
        0x020b => "the request is invalid in this phase (status 020b)",
        0x0300 => "the target failed (status 0300)",
        0x0301 => "the target is not operational now (status 0301)",
        0x0302 => "the target has no resources left (status 0302)",
        _ => "the target refused the login for a reason that it does not name",
    }
}
