// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may write: the oracle of persistent reservations (SPC-4 §5.13).
//!
//! One session of each target is its guard: it reserves units for itself (Write Exclusive), and
//! releases them. A reservation belongs to an I_T nexus and outlives its sessions, not the process
//! of the target. A guard that comes back as another nexus preempts what it held before.

use clock::Instant;

/// Names an I_T nexus.
pub(crate) type Nexus = u64;

/// A service action of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Register,
    Reserve,
    Preempt,
    Release,
}

/// Somebody who may hold the reservation.
#[derive(Debug)]
struct Holder {
    nexus: Nexus,
    /// None: maybe still.
    until: Option<Instant>,
}

/// What is known of the reservation of one unit.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    holders: Vec<Holder>,
    /// Who holds it for certain, since when.
    certain: Option<(Nexus, Instant)>,
    registered: Option<Nexus>,
    /// An action is under way.
    acting: bool,
    /// The target has forgotten everything since that was asked for.
    overtaken: bool,
}

impl Claim {
    /// What the guard does next; None: nothing.
    pub(crate) fn next(&self, nexus: Nexus) -> Option<Action> {
        let others = self.holders.iter().any(|held| held.nexus != nexus && held.until.is_none());
        match self.certain {
            _ if self.acting => None,
            _ if self.registered != Some(nexus) => Some(Action::Register),
            Some((holder, _)) if holder == nexus => Some(Action::Release),
            _ if others => Some(Action::Preempt),
            _ => Some(Action::Reserve),
        }
    }

    /// The guard asks for it.
    pub(crate) fn ask(&mut self, nexus: Nexus, action: Action) {
        self.acting = true;
        match action {
            Action::Register => {}
            Action::Release => self.certain = None,
            Action::Reserve | Action::Preempt => {
                self.certain = None;
                if !self.holders.iter().any(|held| held.nexus == nexus && held.until.is_none()) {
                    self.holders.push(Holder { nexus, until: None });
                }
            }
        }
    }

    /// It was done, if it is `good`.
    pub(crate) fn end(&mut self, nexus: Nexus, action: Action, good: bool, now: Instant) {
        self.acting = false;
        let good = good && !std::mem::take(&mut self.overtaken);
        match action {
            // It may not be registered, or not any more.
            _ if !good => self.registered = None,
            Action::Register => self.registered = Some(nexus),
            Action::Release => self.close(now, |held| held == nexus),
            Action::Reserve => {
                self.certain = Some((nexus, now));
                self.close(now, |held| held != nexus);
            }
            // Who was preempted may have been registered and no more: then nobody holds it now
            // (SPC-4 §5.13.11.2).
            Action::Preempt => self.close(now, |held| held != nexus),
        }
    }

    /// These hold it no more.
    fn close(&mut self, now: Instant, which: impl Fn(Nexus) -> bool) {
        for held in self.holders.iter_mut().filter(|held| which(held.nexus)) {
            held.until.get_or_insert(now);
        }
    }

    /// The target was started anew: it knows of nothing. What was under way may come after that.
    pub(crate) fn forget(&mut self, now: Instant) {
        let acting = self.acting;
        self.close(now, |_| !acting);
        (self.certain, self.registered) = (None, None);
        self.overtaken = acting;
    }

    /// The host of the guard is gone: nobody will hear how it ended.
    pub(crate) const fn abandon(&mut self) {
        (self.acting, self.overtaken) = (false, false);
        self.certain = None;
    }

    /// Whether `nexus` may have written, by a command that was asked for at `asked` and ended now.
    pub(crate) fn lets(&self, nexus: Nexus, asked: Instant) -> bool {
        self.certain.is_none_or(|(holder, since)| holder == nexus || since > asked)
    }

    /// Whether RESERVATION CONFLICT is an answer to that.
    pub(crate) fn refuses(&self, nexus: Nexus, asked: Instant) -> bool {
        let other =
            |held: &Holder| held.nexus != nexus && held.until.is_none_or(|until| until >= asked);
        self.holders.iter().any(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_it_keeps_others_out_until_it_is_released() {
        let mut claim = Claim::default();
        for (action, at) in [(Action::Register, 10), (Action::Reserve, 20)] {
            assert_eq!(claim.next(1), Some(action));
            claim.ask(1, action);
            assert_eq!(claim.next(1), None, "one at a time");
            claim.end(1, action, true, Instant(at));
        }
        assert!(claim.lets(2, Instant(15)), "it may have written before");
        assert!(!claim.lets(2, Instant(25)));
        assert!(claim.lets(1, Instant(25)) && !claim.refuses(1, Instant(25)));
        assert!(claim.refuses(2, Instant(25)));
        assert_eq!(claim.next(1), Some(Action::Release));
        claim.ask(1, Action::Release);
        assert!(claim.lets(2, Instant(25)), "it may be released");
        claim.end(1, Action::Release, true, Instant(40));
        assert!(claim.refuses(2, Instant(35)) && !claim.refuses(2, Instant(45)));
    }

    #[test]
    fn another_nexus_preempts_and_a_new_process_knows_nothing() {
        let mut claim = Claim::default();
        claim.end(1, Action::Register, true, Instant(5));
        claim.ask(1, Action::Reserve);
        claim.abandon();
        assert_eq!(claim.next(2), Some(Action::Register));
        claim.end(2, Action::Register, true, Instant(10));
        assert_eq!(claim.next(2), Some(Action::Preempt));
        claim.ask(2, Action::Preempt);
        assert!(claim.refuses(2, Instant(11)), "the old one may hold it");
        claim.end(2, Action::Preempt, true, Instant(18));
        assert!(claim.lets(1, Instant(19)), "it may have held nothing");
        assert_eq!(claim.next(2), Some(Action::Reserve));
        claim.ask(2, Action::Reserve);
        claim.end(2, Action::Reserve, true, Instant(20));
        assert!(!claim.refuses(2, Instant(21)) && !claim.lets(1, Instant(21)));
        claim.forget(Instant(30));
        assert!(claim.lets(1, Instant(31)) && !claim.refuses(1, Instant(31)));
        assert_eq!(claim.next(2), Some(Action::Register));
    }
}
