// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who remembers sessions beyond the life of a process.
//!
//! What a process that is killed has sent may be on its way for long, and come over what the next
//! one writes. A session of the same initiator port, in the same portal group, puts an end to it
//! (RFC 7143 §6.3.5): so the next process has to know which there were.

use std::fmt;

use wire::iscsi::Isid;

/// The two ends of a session, as far as they are to be remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nexus {
    /// The initiator's part of the session id.
    pub isid: Isid,
    /// `host:port` of the portal of its leading connection.
    pub portal: String,
    /// TargetPortalGroupTag of that; None: the target does not tell.
    pub group: Option<u16>,
}

/// Hears of a session ([`Options::witness`](crate::Options::witness)), in the thread that carries
/// it: what takes long holds up all others there.
pub trait Witness: Send + Sync + fmt::Debug {
    /// A session has begun, and nothing has gone over it yet: from now on something of it may be
    /// under way that comes about late. Also told of each session that takes the place of one.
    ///
    /// # Errors
    /// Why it cannot be remembered: then nothing goes over it, as over one that is lost.
    fn begins(&self, nexus: &Nexus) -> Result<(), String>;

    /// Nothing of the session that began last can come about any more.
    fn ends(&self, nexus: &Nexus);
}
