// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a login asks its node, and what the node may answer.

use super::settings::Settings;
use crate::chap::Exchange;
use alloc::boxed::Box;
use alloc::string::String;
use wire::iscsi::Cid;
use wire::iscsi::Isid;
use wire::iscsi::Tsih;

/// Asked once, as soon as names are known and before the first answer that depends on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// InitiatorName, prepared for comparison (RFC 3722).
    pub initiator: String,
    /// TargetName, prepared for comparison (RFC 3722). None in a discovery session without one.
    pub target: Option<String>,
    /// Whether the session is for SendTargets only.
    pub discovery: bool,
    /// The initiator's part of the session id.
    pub isid: Isid,
    /// Zero asks for a new session (RFC 7143 §6.3.1).
    pub tsih: Tsih,
    /// Id of this connection in its session.
    pub cid: Cid,
}

/// For how long a target has moved (RFC 7143 §11.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the two of the standard
pub enum Redirection {
    /// This time only: status 0101h.
    Temporary,
    /// From now on: status 0102h.
    Permanent,
}

/// The answer of the node.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // the node decides; there is no other answer
pub enum Admission {
    /// The login may go on.
    Granted {
        /// Tag of the portal group that took the connection (RFC 7143 §13.9).
        portal_group_tag: u16,
        /// For the initiator's display, at most 255 bytes (RFC 7143 §13.6).
        target_alias: Option<String>,
        /// What to negotiate for.
        settings: Settings,
        /// How the initiator has to prove who it is.
        authentication: Authentication,
    },
    /// The target is elsewhere: the login ends with status 0101h or 0102h.
    Redirected {
        /// `ADDRESS:PORT`, IPv6 in brackets; at most 255 bytes, no portal group tag (RFC 7143
        /// §13.8).
        address: String,
        /// For how long.
        duration: Redirection,
    },
    /// The login ends.
    Refused {
        /// A status of class 2 or 3, for example 0x0203; another one is sent as 0x0300 (RFC 7143
        /// §11.13.5). Where names are to be hidden, give the same for unknown and forbidden
        /// targets.
        status: u16,
        /// Why, for our log alone: the initiator hears nothing of it.
        reason: &'static str,
    },
}

/// How an initiator has to prove who it is (RFC 7143 §6.3.2, §12.1).
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // the node decides; there is no fourth policy
pub enum Authentication {
    /// Not at all: of the methods, None alone is taken.
    Off,
    /// By CHAP if it offers that before None.
    Optional(Box<Exchange>),
    /// By CHAP; a login without is refused with 0x0201.
    Required(Box<Exchange>),
}
