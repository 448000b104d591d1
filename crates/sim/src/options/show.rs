// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was drawn, for people.

use std::fmt;

use initiator::Transport;

use crate::options::LimitPlan;
use crate::options::Options;
use crate::options::Resize;

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} class {}", self.seed, self.class.name())?;
        writeln!(
            f,
            "network latency {:?} us, pieces to {} bytes, windows {:?} bytes; disk {:?} us, \
             slow {} times that; {} blocks a unit; {} of 1000 lists out of order; safety {:?}",
            self.latency,
            self.piece,
            self.window,
            self.disk,
            self.slow,
            self.blocks,
            self.disorder,
            self.length
        )?;
        if self.hosts.iter().flatten().any(|session| session.transport == Transport::Verbs) {
            writeln!(f, "adapters: {:?}", self.adapters)?;
        }
        if self.hosts.iter().flatten().any(|session| session.transport == Transport::Ether) {
            writeln!(f, "raw Ethernet: {:?}", self.frames)?;
        }
        for (number, target) in self.targets.iter().enumerate() {
            writeln!(f, "target {number}: {target:?}")?;
        }
        for (number, host) in self.hosts.iter().enumerate() {
            for session in host {
                writeln!(f, "host {number}: {session:?}")?;
            }
        }
        if self.impatient {
            writeln!(f, "hosts end what silent images do not answer")?;
        }
        for at in &self.impostors {
            writeln!(f, "at {:>9.3} s an impostor", at.as_secs_f64())?;
        }
        for (at, hog) in &self.hogs {
            writeln!(f, "at {:>9.3} s a hog that {hog:?}", at.as_secs_f64())?;
        }
        for at in &self.hasty {
            writeln!(f, "at {:>9.3} s a hasty initiator", at.as_secs_f64())?;
        }
        for (at, rogue) in &self.rogues {
            writeln!(f, "at {:>9.3} s a rogue: {rogue:?}", at.as_secs_f64())?;
        }
        for Resize { at, target, lun, left } in &self.resizes {
            let at = at.as_secs_f64();
            writeln!(f, "at {at:>9.3} s target {target}, unit {lun} resized ({left} of 1000)")?;
        }
        for LimitPlan { at, target, rates } in &self.limits {
            writeln!(f, "at {:>9.3} s target {target} limited: {rates:?}", at.as_secs_f64())?;
        }
        for (at, fault) in &self.faults {
            writeln!(f, "at {:>9.3} s {fault:?}", at.as_secs_f64())?;
        }
        Ok(())
    }
}
