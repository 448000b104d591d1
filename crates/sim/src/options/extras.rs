// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a seed draws on top of its plain system: secrets, markers, connections, recovery, rare
//! commands, and long rests.
//!
//! It is drawn from streams of its own and put on last. A plain system is what the seed drew before
//! there were any of these, so seeds that found defects then still find them.

use std::time::Duration;

use iscsi::chap::Algorithm;

use crate::options::Class;
use crate::options::Fault;
use crate::options::Options;
use crate::rng::Rng;

/// What the sides of a login have to prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // neither, one or both
pub enum Secrets {
    /// Nothing.
    None,
    /// The initiator who it is.
    Initiator,
    /// The target too.
    Both,
}

/// Hash functions of CHAP.
const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha3_256];

/// Stream of [`crate::rng::Rng`] that extras are drawn from.
const STREAM: u64 = 5;

/// How many times a session rests.
pub(crate) const RESTS: u32 = 3;

impl Options {
    /// Puts on what goes beyond a plain system.
    pub(super) fn widen(&mut self) {
        let mut rng = Rng::stream(self.seed, STREAM);
        for target in &mut self.targets {
            target.secrets = rng.pick(&[Secrets::None, Secrets::Initiator, Secrets::Both]);
            target.algorithm = rng.pick(&ALGORITHMS);
            target.markers = rng.chance(300);
            target.connections = rng.pick(&[1, 2, 4, 8]);
        }
        // A liar is to be found out, which at other levels may end in recovery.
        let honest = self.class != Class::Liar;
        for session in self.hosts.iter_mut().flatten() {
            session.markers = rng.chance(400);
            let (level, connections) = (rng.pick(&[0, 0, 1, 2]), rng.pick(&[1, 1, 1, 2, 4]));
            if honest {
                (session.recovery, session.connections) = (level, connections);
            }
            session.least = rng.chance(500);
            session.rare = rng.pick(&[0, 100, 400]);
        }
        for target in 0..self.targets.len() {
            let mut sessions = self.hosts.iter_mut().flatten();
            let first = sessions.find(|session| session.target == target);
            if let Some(guard) = first.filter(|_| rng.chance(400)) {
                guard.guard = true;
            }
        }
        self.lengthen(&mut rng);
        if self.class == Class::Disk {
            self.slow = rng.pick(&[100, 1000, 10_000]);
            self.cut_slow_spells(&mut rng);
        }
        for session in self.hosts.iter_mut().flatten().filter(|_| honest) {
            session.in_order = [rng.chance(600), rng.chance(600)];
            let manages = rng.pick(&[0, 0, 20, 100]);
            if !matches!(self.class, Class::Calm | Class::Scarce) {
                session.manages = manages;
            }
        }
    }

    /// Systems that are in use have hours without a command: one run of three has rests.
    fn lengthen(&mut self, rng: &mut Rng) {
        if !rng.chance(333) {
            return;
        }
        let rest = Duration::from_secs(rng.within(60..=3600));
        self.hosts.iter_mut().flatten().for_each(|session| session.rest = rest.as_secs());
        // Faults come during rests too.
        let before = self.length;
        self.length += rest * RESTS;
        for (at, _) in &mut self.faults {
            *at = at.mul_f64(self.length.as_secs_f64() / before.as_secs_f64());
        }
    }

    /// Sessions are lost while a disk is slow: what is under way then must not come later than what
    /// their successors do.
    fn cut_slow_spells(&mut self, rng: &mut Rng) {
        let mut cuts = Vec::new();
        for (at, fault) in &self.faults {
            if let Fault::SlowDisk(length) = fault {
                for _ in 0..rng.within(1..=6) {
                    let after = rng.below(u64::from(*length));
                    cuts.push((*at + Duration::from_millis(after), Fault::Cut));
                }
            }
        }
        self.faults.append(&mut cuts);
        self.faults.sort();
    }
}
