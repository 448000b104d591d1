// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often is told what clients do: whoever reaches the port could fill a log with it, and keep
//! from being heard what has happened to the disk. No I/O.

use clock::Instant;

use crate::limits;

/// What was told, and what was not.
#[derive(Debug, Default)]
pub(crate) struct Gossip {
    /// Since when it is counted.
    since: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Gossip {
    /// Something has happened with a client: whether it is told. It counts as told, or not.
    pub(crate) fn may_tell(&mut self, now: Instant) -> bool {
        self.since.get_or_insert(now);
        let is_told = self.told < limits::CLIENT_NEWS_MAX;
        match is_told {
            true => self.told += 1,
            false => self.untold += 1,
        }
        is_told
    }

    /// When there is something to sum up.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.since.map(|since| since + limits::CLIENT_NEWS_INTERVAL)
    }

    /// A sentence for all that was not told, when it is time for that.
    pub(crate) fn sum_up(&mut self, now: Instant) -> Option<String> {
        if self.deadline().is_none_or(|at| at > now) {
            return None;
        }
        let untold = std::mem::take(self).untold;
        let times = limits::CLIENT_NEWS_INTERVAL.as_secs();
        (untold > 0).then(|| {
            format!("{untold} more connections were closed or refused within the last {times} s")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_summed_up() {
        let mut gossip = Gossip::default();
        let now = Instant(1);
        assert!(gossip.deadline().is_none() && gossip.sum_up(now).is_none());
        let told = (0..1000).filter(|_| gossip.may_tell(now)).count();
        assert_eq!(told, limits::CLIENT_NEWS_MAX as usize);
        assert_eq!(gossip.sum_up(now), None);
        let later = gossip.deadline().expect("something was told");
        let sum = gossip.sum_up(later).expect("it is time");
        assert!(sum.starts_with(&format!("{} more", 1000 - told)), "{sum}");
        assert!(gossip.deadline().is_none() && gossip.may_tell(later));
        assert_eq!(gossip.sum_up(later + limits::CLIENT_NEWS_INTERVAL), None, "all was told");
    }
}
