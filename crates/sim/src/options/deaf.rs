// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores that cannot be told that nobody waits any more, and hosts that end what they do not
//! answer.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use crate::options::Options;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 97;

impl Options {
    /// Half of what is elsewhere is deaf; in half of the systems where nothing goes wrong but that
    /// images are silent, hosts are impatient.
    pub(super) fn leave_work_behind(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        for target in &mut self.targets {
            let is_deaf = rng.chance(500);
            if let Some(remoteness) = &mut target.elsewhere {
                remoteness.deaf = is_deaf;
            }
        }
        if !self.is_silent_at_most() || !rng.chance(500) {
            return;
        }
        self.impatient = true;
        // Whoever wants commands to be over waits for what is being kept for them.
        self.targets.iter_mut().for_each(|target| target.keeping = None);
        for session in self.hosts.iter_mut().flatten() {
            session.command_timeout = rng.pick(&[5, 10, 30]);
            session.manages = rng.pick(&[0, 20, 100]);
            session.patience = 600;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Class;

    #[test]
    fn there_are_impatient_hosts_and_deaf_stores() {
        let clusters: Vec<Options> =
            (0..100).map(|seed| Options::draw(seed, Class::Cluster)).collect();
        let silent = clusters.iter().filter(|options| options.is_silent_at_most());
        let (impatient, patient): (Vec<_>, Vec<_>) = silent.partition(|options| options.impatient);
        assert!(impatient.len() > 5 && patient.len() > 5);
        let disks = (0..100).map(|seed| Options::draw(seed, Class::Disk));
        let targets = disks.flat_map(|options| options.targets);
        let deaf = targets.filter(|target| target.elsewhere.is_some_and(|one| one.deaf));
        assert!(deaf.count() > 5);
    }
}
