// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process gives up for good, system calls, files and ports; the command line calls it.
//!
//! ```text
//! calls.rs    system calls that are refused from then on: seccomp
//! reach.rs    files and ports that are left, nothing is executed: landlock
//! offered.rs  what this kernel has of both
//! ```
//!
//! Both hold for the thread that calls and for those that it starts later, so who wants a whole
//! process under them calls before there is another thread. There is no way back.
#![forbid(unsafe_code)]

mod calls;
mod offered;
mod reach;

pub use calls::refuse_calls;
pub use offered::Offered;
pub use offered::offered;
pub use reach::Confined;
pub use reach::Files;
pub use reach::Reach;
pub use reach::confine;

/// Why a kernel does not take it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// No filters of system calls.
    #[error("seccomp cannot be put on: {0}")]
    Calls(#[from] seccompiler::Error),
    /// There is none, or it was not started with the kernel.
    #[error(
        "there is no landlock: the kernel has none (Linux 5.13 with landlock in lsm= of its \
         command line), or the container allows none"
    )]
    NoLandlock,
    /// It is there, and says no.
    #[error("landlock cannot be put on: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// What is to be left cannot be named.
    #[error("landlock: {0}")]
    Path(#[from] landlock::PathFdError),
}
