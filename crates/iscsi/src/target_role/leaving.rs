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

/// How a task goes on that another connection takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reassigned {
    Running,
    /// Its answer is sent again.
    Answered,
}
