// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How connections and their tasks go.

/// How a connection leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// For good.
    Closed,
    /// Its tasks may go on elsewhere, if ErrorRecoveryLevel allows.
    Recoverable,
}

/// Whether the SCSI side was told to drop tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cleared {
    Nothing,
    Tasks,
}

impl Cleared {
    /// What was cleared in all.
    pub(super) const fn or(self, other: Self) -> Self {
        match self {
            Self::Nothing => other,
            Self::Tasks => Self::Tasks,
        }
    }
}

/// How a task goes on that another connection takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reassigned {
    Running,
    /// Its answer is sent again.
    Answered,
}
