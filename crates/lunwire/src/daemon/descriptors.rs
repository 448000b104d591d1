// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many connections the system lets this process have.

use rustix::process::Resource;
use rustix::process::Rlimit;

/// Descriptors for what comes later: disks that are added, control connections, logs.
const KEPT: usize = 64;

/// Descriptors of a reactor and its engine at the most.
const OF_REACTOR: usize = 16;

/// What counts as no limit: more connections than any machine has.
const NO_LIMIT: u64 = 1 << 24;

/// Raises the soft limit of open files to the hard one. Shells set it to 1,024 for the sake of
/// programs that use select, and we are none.
pub(crate) fn raise_limit() {
    let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let wanted = Rlimit { current: maximum, maximum };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, wanted) {
        let limit = current.unwrap_or(NO_LIMIT);
        tracing::warn!(%error, limit, "cannot raise the limit of open files (ulimit -n)");
    }
}

/// Descriptors that are left for connections, once disks are open and before reactors start.
pub(crate) fn left_for_connections(reactors: usize) -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(NO_LIMIT);
    let limit = usize::try_from(limit.min(NO_LIMIT)).unwrap_or(usize::MAX);
    // Without /proc nobody knows; what is open then comes out of what is kept.
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    limit.saturating_sub(open + KEPT + OF_REACTOR * reactors)
}
