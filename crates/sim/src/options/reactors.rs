// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Targets of several reactors, how far these come apart, and initiators that join sessions in
//! haste.
//!
//! As with the other extras, a stream of its own leaves what was drawn before as it was.

use std::time::Duration;

use initiator::Transport;

use crate::options::Hog;
use crate::options::Options;
use crate::options::Usual;
use crate::rng::Rng;

/// Stream of [`crate::rng::Rng`] that this is drawn from.
const STREAM: u64 = 90;

/// The reactors of a target that has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reactors {
    /// How many.
    pub count: usize,
    /// From the moment that one has something to do to that at which it gets to it, microseconds.
    pub lag: (u64, u64),
    /// So many of a thousand times it takes far longer: its thread does not get a processor.
    pub naps: u64,
    /// So many of a thousand commands become ORDERED or HEAD OF QUEUE on their way.
    pub ordered: u64,
}

/// Hasty initiators at most.
const HASTY_MAX: u64 = 8;

impl Options {
    /// Two of three targets have two or three reactors.
    pub(super) fn add_reactors(&mut self) {
        self.draw_reactors(None);
    }

    /// All targets have so many reactors, whatever was drawn; with one, these are the systems that
    /// the seed gave before there were more.
    pub fn set_reactors(&mut self, count: usize) {
        self.draw_reactors(Some(count));
        if count == 1 {
            self.leave_home();
            self.set_transport(Transport::Tcp, Usual::Yes);
        }
    }

    /// Nothing ends commands but themselves.
    pub(crate) fn is_undisturbed(&self) -> bool {
        let mut sessions = self.hosts.iter().flatten();
        let patient = sessions.all(|one| one.command_timeout == 0 && one.manages == 0);
        patient && self.faults.is_empty() && self.resizes.is_empty()
    }

    /// Windows of connections, bytes. A slow initiator that is alone on a reactor is given far more
    /// than beside others. What its system has taken for it and it has not, no target knows of:
    /// that must be less than it takes while a ping has time.
    pub(crate) fn windows(&self) -> (u64, u64) {
        let (low, high) = self.window;
        let several = self.targets.iter().any(|target| target.reactors.is_some());
        let rates = self.hogs.iter().filter_map(|(_, hog)| match hog {
            Hog::Takes(rate) => Some(*rate as u64),
            _ => None,
        });
        let ping = self.targets.iter().map(|target| target.ping).min().unwrap_or_default();
        match rates.min() {
            None => (low, high),
            Some(_) if several => (low, low),
            Some(rate) => (low, high.min(rate * ping).max(low)),
        }
    }

    fn draw_reactors(&mut self, forced: Option<usize>) {
        let mut rng = Rng::stream(self.seed, STREAM);
        for target in &mut self.targets {
            let drawn = rng.pick(&[1, 2, 3]);
            let count = forced.unwrap_or(drawn);
            let (lag, naps) = (rng.pick(&[(0, 2), (0, 50), (1, 2000)]), rng.pick(&[0, 5, 50]));
            let ordered = rng.pick(&[0, 300]);
            // What these wait for must end soon.
            let quick = target.limit == 0 && target.keeping.is_none() && self.hogs.is_empty();
            let ordered = if quick { ordered } else { 0 };
            target.reactors = (count > 1).then_some(Reactors { count, lag, naps, ordered });
        }
        let several = self.targets.iter().any(|target| target.reactors.is_some());
        let most = u64::try_from(self.length.as_millis()).unwrap_or(1);
        let times = (0..rng.below(HASTY_MAX + 1)).map(|_| Duration::from_millis(rng.below(most)));
        self.hasty = if several { times.collect() } else { Vec::new() };
        self.hasty.sort();
    }
}
