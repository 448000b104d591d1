// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a session, or a connection of one, is over.

use core::fmt;

use crate::violation::Violation;

/// Why it is over. As text for the log: lower case, no full stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // who tells of it must know each
pub enum Ending {
    /// The initiator has logged out.
    Logout,
    /// The target has asked for its end, and there was nobody to log out.
    Closed,
    /// The target has dropped it, as somebody wanted.
    Dropped,
    /// The initiator has logged in anew in its place (RFC 7143 §6.3.5).
    Reinstated,
    /// Another connection has taken its place in the session (RFC 7143 §6.3.4).
    Replaced,
    /// The transport is gone.
    Lost,
    /// Nobody has come back to the session in time.
    Timeout,
    /// The initiator has broken the protocol.
    Violation(Violation),
}

impl Ending {
    /// Whether it has ended as it should.
    #[must_use]
    pub const fn is_orderly(self) -> bool {
        match self {
            Self::Logout | Self::Closed | Self::Dropped | Self::Reinstated => true,
            Self::Replaced | Self::Lost | Self::Timeout | Self::Violation(_) => false,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Logout => "logout",
            Self::Closed => "closed by the target",
            Self::Dropped => "dropped by the target",
            Self::Reinstated => "session reinstatement",
            Self::Replaced => "connection reinstatement",
            Self::Lost => "connection lost",
            Self::Timeout => "session timeout",
            Self::Violation(violation) => return violation.fmt(f),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// Whatever the words are.
    #[test]
    fn a_loss_is_no_logout() {
        for orderly in [Ending::Logout, Ending::Closed, Ending::Dropped, Ending::Reinstated] {
            assert!(orderly.is_orderly(), "{orderly}");
        }
        let violation = Ending::Violation(Violation::LogoutTimeout);
        for loss in [Ending::Replaced, Ending::Lost, Ending::Timeout, violation] {
            assert!(!loss.is_orderly(), "{loss}");
        }
        assert_eq!(violation.to_string(), Violation::LogoutTimeout.to_string());
    }
}
