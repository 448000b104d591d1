// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a login asks to be done.

use crate::datamover::Op;
use crate::target_role::admission::AdmissionRequest;
use crate::target_role::logged_in::LoggedIn;
use alloc::string::String;

/// What the login machine gives.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // the pump must carry out each
pub enum LoginOutput {
    /// Must be carried out by the mover.
    Op(Op),
    /// Ask the node; answer with [`Login::admit`](crate::target_role::Login::admit). Until then the
    /// machine waits.
    Admit(AdmissionRequest),
    /// Negotiation has succeeded: the pump gives the TSIH (after ending a session that this one
    /// reinstates) by [`Login::establish`](crate::target_role::Login::establish); the final
    /// response goes out only then.
    Establish,
    /// Over: the connection belongs to a session from the next PDU on. Comes after the ops of the
    /// final response.
    Done(LoggedIn),
    /// Refused or broken; a Terminate op came before.
    Failed {
        /// What the initiator was told; None: closed silently.
        status: Option<u16>,
        /// For the log. Peer text in it is escaped and short.
        reason: String,
    },
}
