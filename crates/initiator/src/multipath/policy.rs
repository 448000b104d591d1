// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the best paths a request goes over.

use super::path::Path;

/// Which path a request goes over, of those whose ports are in the best state (active/optimized,
/// then active/non-optimized and preferred, then active/non-optimized).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // callers choose
pub enum PathPolicy {
    /// The one with the fewest requests under way.
    #[default]
    LeastQueued,
    /// One after the other.
    RoundRobin,
    /// The first one in the order of the list.
    Failover,
}

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Turn {
    policy: PathPolicy,
    last: usize,
}

impl Turn {
    pub(super) const fn new(policy: PathPolicy) -> Self {
        Self { policy, last: usize::MAX }
    }

    /// A path that takes commands; None: there is none.
    pub(super) fn choose(&mut self, paths: &[Path]) -> Option<usize> {
        let best = paths.iter().filter_map(Path::rank).min()?;
        let count = paths.len();
        let first = if self.policy == PathPolicy::Failover { 0 } else { self.last.wrapping_add(1) };
        let order = (0..count).map(|step| (first % count + step) % count);
        let fit = order
            .filter_map(|at| Some((at, paths.get(at)?)))
            .filter(|(_, path)| path.rank() == Some(best));
        let chosen = match self.policy {
            PathPolicy::LeastQueued => fit.min_by_key(|(_, path)| path.under_way),
            PathPolicy::RoundRobin | PathPolicy::Failover => fit.into_iter().next(),
        };
        let at = chosen.map(|(at, _)| at)?;
        self.last = at;
        Some(at)
    }
}
