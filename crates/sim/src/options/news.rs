// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Targets that tell once of what they failed to keep.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use std::time::Duration;

use initiator::DigestOffer;
use iscsi::target_role::DigestPolicy;

use crate::options::Class;
use crate::options::Fault;
use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 93;

impl Options {
    /// In two runs of five: deferred errors, and flushes that are aborted. They are put into
    /// connections, where nothing else may count bytes or ask for a status again; and each host has
    /// one session, whose flush it must be that was refused.
    pub(super) fn tell_of_failures(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        if !matches!(self.class, Class::Disk | Class::Mixed) || !rng.chance(400) {
            return;
        }
        for target in &mut self.targets {
            (target.recovery, target.connections, target.markers) = (0, 1, false);
            target.digests = [DigestPolicy::Any; 2];
        }
        for host in &mut self.hosts {
            host.truncate(1);
            host.iter_mut().for_each(|session| session.digests = [DigestOffer::Off; 2]);
        }
        let span = u64::try_from(self.length.as_millis()).unwrap_or(0);
        for _ in 0..rng.within(1..=12) {
            // While there is load, which may not last for the whole time.
            let until = rng.pick(&[200, 1000, 10_000, span]);
            let count = u32::try_from(rng.within(1..=3)).unwrap_or(1);
            self.faults.push((Duration::from_millis(rng.below(until)), Fault::News(count)));
        }
        self.faults.sort();
    }
}
