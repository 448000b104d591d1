// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may write: the oracle of persistent reservations (SPC-4 §5.13).
//!
//! One session of each target is its guard: it reserves units, and releases them; what is kept from
//! others follows from the type of reservation that the target was drawn with. Other sessions may
//! register. A reservation belongs to an I_T nexus and outlives its sessions, not the process of
//! the target. A guard that comes back as another nexus preempts what it held before.

use std::collections::BTreeMap;

use clock::Instant;
use wire::scsi::persistent::Type;

/// Names an I_T nexus.
pub(crate) type Nexus = u64;

/// A service action of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Register,
    Reserve,
    Preempt,
    Release,
    /// Ends all reservations and registrations.
    Clear,
    /// Somebody else registers.
    Join,
}

/// What a command does to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// What the guard does before all is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    Clean,
    /// An action is under way.
    Wait,
    Do(Action),
}

/// Somebody who may hold the reservation.
#[derive(Debug)]
struct Holder {
    nexus: Nexus,
    /// None: maybe still.
    until: Option<Instant>,
}

/// What is known of the reservation of one unit.
#[derive(Debug)]
pub(crate) struct Claim {
    kind: Type,
    holders: Vec<Holder>,
    /// Who holds it for certain, since when.
    certain: Option<(Nexus, Instant)>,
    registered: Option<Nexus>,
    /// An action is under way.
    acting: bool,
    /// The target has forgotten everything since that was asked for.
    overtaken: bool,
    /// Who may be registered; since when for certain.
    joined: BTreeMap<Nexus, Option<Instant>>,
    /// When all registrations may have gone last.
    emptied: Option<Instant>,
    /// Nobody has reserved anything since it was cleared.
    clean: bool,
}

impl Claim {
    /// Reservations of this unit are of this type.
    pub(crate) const fn new(kind: Type) -> Self {
        Self {
            kind,
            holders: Vec::new(),
            certain: None,
            registered: None,
            acting: false,
            overtaken: false,
            joined: BTreeMap::new(),
            emptied: None,
            clean: true,
        }
    }

    pub(crate) const fn kind(&self) -> Type {
        self.kind
    }

    /// What the guard does so that everybody may read.
    pub(crate) fn sweep(&self, nexus: Nexus) -> Sweep {
        if self.acting {
            Sweep::Wait
        } else if self.clean || lets_read(self.kind) {
            Sweep::Clean
        } else if self.registered == Some(nexus) {
            Sweep::Do(Action::Clear)
        } else {
            Sweep::Do(Action::Register)
        }
    }

    /// Registrations that were certain are so no more.
    fn empty(&mut self, now: Instant) {
        self.emptied = Some(now);
        self.joined.values_mut().for_each(|since| *since = None);
    }

    /// Somebody else is registered, who asked at `asked`.
    pub(crate) fn join(&mut self, nexus: Nexus, asked: Instant, now: Instant) {
        if self.emptied.is_none_or(|emptied| emptied < asked) {
            self.joined.insert(nexus, Some(now));
        }
    }

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
    pub(crate) fn ask(&mut self, nexus: Nexus, action: Action, now: Instant) {
        self.acting |= action != Action::Join;
        match action {
            Action::Register | Action::Join => {
                self.joined.entry(nexus).or_default();
            }
            Action::Clear => {
                self.certain = None;
                self.empty(now);
            }
            Action::Release => self.certain = None,
            Action::Reserve | Action::Preempt => {
                (self.certain, self.clean) = (None, false);
                if !self.holders.iter().any(|held| held.nexus == nexus && held.until.is_none()) {
                    self.holders.push(Holder { nexus, until: None });
                }
            }
        }
    }

    /// It was done, if it is `good`.
    pub(crate) fn end(&mut self, nexus: Nexus, action: Action, good: bool, now: Instant) {
        if action == Action::Join {
            return;
        }
        self.acting = false;
        let good = good && !std::mem::take(&mut self.overtaken);
        match action {
            // It may not be registered, or not any more.
            _ if !good => {
                self.registered = None;
                self.joined.insert(nexus, None);
            }
            Action::Register => {
                self.registered = Some(nexus);
                self.joined.insert(nexus, Some(now));
            }
            Action::Join => {}
            Action::Clear => {
                self.close(now, |_| true);
                self.empty(now);
                (self.registered, self.clean) = (None, true);
            }
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
        self.empty(now);
    }

    /// The host of the guard is gone: nobody will hear how it ended.
    pub(crate) const fn abandon(&mut self) {
        (self.acting, self.overtaken) = (false, false);
        self.certain = None;
    }

    /// Whether somebody else held it for certain since before `asked`.
    pub(crate) fn is_others(&self, nexus: Nexus, asked: Instant) -> bool {
        self.certain.is_some_and(|(holder, since)| holder != nexus && since <= asked)
    }

    /// Whether `nexus` may have read or written, by a command that was asked for at `asked` and
    /// ended now.
    pub(crate) fn lets(&self, nexus: Nexus, asked: Instant, access: Access) -> bool {
        let registered = lets_registrants(self.kind) && self.joined.contains_key(&nexus);
        let anyway = registered || (access == Access::Read && lets_read(self.kind));
        anyway || !self.is_others(nexus, asked)
    }

    /// Whether RESERVATION CONFLICT is an answer to that.
    pub(crate) fn refuses(&self, nexus: Nexus, asked: Instant, access: Access) -> bool {
        let since = self.joined.get(&nexus).copied().flatten();
        let registered = lets_registrants(self.kind) && since.is_some_and(|since| since <= asked);
        if registered || (access == Access::Read && lets_read(self.kind)) {
            return false;
        }
        let other =
            |held: &Holder| held.nexus != nexus && held.until.is_none_or(|until| until >= asked);
        self.holders.iter().any(other)
    }
}

/// Whether others may read (SPC-4 §5.13.1). Not the product's own word on it, nor is the next.
const fn lets_read(kind: Type) -> bool {
    use Type as T;
    matches!(
        kind,
        T::WriteExclusive | T::WriteExclusiveRegistrantsOnly | T::WriteExclusiveAllRegistrants
    )
}

/// Whether registrants may do what the holder may.
const fn lets_registrants(kind: Type) -> bool {
    !matches!(kind, Type::WriteExclusive | Type::ExclusiveAccess)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_it_keeps_others_out_until_it_is_released() {
        let mut claim = Claim::new(Type::WriteExclusive);
        for (action, at) in [(Action::Register, 10), (Action::Reserve, 20)] {
            assert_eq!(claim.next(1), Some(action));
            claim.ask(1, action, Instant(1));
            assert_eq!(claim.next(1), None, "one at a time");
            claim.end(1, action, true, Instant(at));
        }
        assert!(claim.lets(2, Instant(15), Access::Write), "it may have written before");
        assert!(!claim.lets(2, Instant(25), Access::Write));
        assert!(
            claim.lets(1, Instant(25), Access::Write)
                && !claim.refuses(1, Instant(25), Access::Write)
        );
        assert!(claim.refuses(2, Instant(25), Access::Write));
        assert_eq!(claim.next(1), Some(Action::Release));
        claim.ask(1, Action::Release, Instant(1));
        assert!(claim.lets(2, Instant(25), Access::Write), "it may be released");
        claim.end(1, Action::Release, true, Instant(40));
        assert!(
            claim.refuses(2, Instant(35), Access::Write)
                && !claim.refuses(2, Instant(45), Access::Write)
        );
    }

    #[test]
    fn another_nexus_preempts_and_a_new_process_knows_nothing() {
        let mut claim = Claim::new(Type::WriteExclusive);
        claim.end(1, Action::Register, true, Instant(5));
        claim.ask(1, Action::Reserve, Instant(1));
        claim.abandon();
        assert_eq!(claim.next(2), Some(Action::Register));
        claim.end(2, Action::Register, true, Instant(10));
        assert_eq!(claim.next(2), Some(Action::Preempt));
        claim.ask(2, Action::Preempt, Instant(1));
        assert!(claim.refuses(2, Instant(11), Access::Write), "the old one may hold it");
        claim.end(2, Action::Preempt, true, Instant(18));
        assert!(claim.lets(1, Instant(19), Access::Write), "it may have held nothing");
        assert_eq!(claim.next(2), Some(Action::Reserve));
        claim.ask(2, Action::Reserve, Instant(1));
        claim.end(2, Action::Reserve, true, Instant(20));
        assert!(
            !claim.refuses(2, Instant(21), Access::Write)
                && !claim.lets(1, Instant(21), Access::Write)
        );
        claim.forget(Instant(30));
        assert!(
            claim.lets(1, Instant(31), Access::Write)
                && !claim.refuses(1, Instant(31), Access::Write)
        );
        assert_eq!(claim.next(2), Some(Action::Register));
    }

    #[test]
    fn the_type_says_who_may_do_what() {
        let (before, during) = (Instant(15), Instant(25));
        for kind in Type::ALL {
            let mut claim = Claim::new(kind);
            claim.ask(3, Action::Join, Instant(1));
            claim.join(3, Instant(1), Instant(2));
            claim.end(1, Action::Register, true, Instant(10));
            claim.ask(1, Action::Reserve, Instant(11));
            claim.end(1, Action::Reserve, true, Instant(20));
            let (shared, group) = (kind.lets_read(), kind.lets_registrants());
            assert!(!claim.lets(2, during, Access::Write) && claim.lets(2, before, Access::Write));
            assert!(claim.refuses(2, during, Access::Write));
            assert_eq!(claim.lets(2, during, Access::Read), shared);
            assert_eq!(claim.refuses(2, during, Access::Read), !shared);
            assert_eq!(claim.lets(3, during, Access::Write), group);
            assert_eq!(claim.refuses(3, during, Access::Write), !group);
            assert_eq!(claim.sweep(1) == Sweep::Clean, shared);
            claim.ask(1, Action::Clear, Instant(30));
            assert_eq!(claim.sweep(1), Sweep::Wait);
            claim.end(1, Action::Clear, true, Instant(40));
            assert_eq!(claim.sweep(1), Sweep::Clean);
            let later = Instant(45);
            assert!([2, 3].iter().all(|nexus| !claim.refuses(*nexus, later, Access::Write)));
        }
    }

    #[test]
    fn a_guard_that_comes_back_is_registered_beside_what_it_held() {
        for kind in Type::ALL {
            let mut claim = Claim::new(kind);
            claim.end(1, Action::Register, true, Instant(10));
            claim.ask(1, Action::Reserve, Instant(11));
            claim.end(1, Action::Reserve, true, Instant(20));
            claim.ask(2, Action::Register, Instant(21));
            claim.end(2, Action::Register, true, Instant(22));
            assert_eq!(claim.lets(2, Instant(25), Access::Write), kind.lets_registrants());
            assert_eq!(claim.refuses(2, Instant(25), Access::Write), !kind.lets_registrants());
        }
    }

    #[test]
    fn a_registration_that_may_be_gone_proves_nothing() {
        let mut claim = Claim::new(Type::ExclusiveAccessRegistrantsOnly);
        claim.ask(3, Action::Join, Instant(1));
        claim.forget(Instant(5));
        claim.join(3, Instant(1), Instant(6));
        claim.end(1, Action::Register, true, Instant(10));
        claim.ask(1, Action::Reserve, Instant(11));
        claim.end(1, Action::Reserve, true, Instant(20));
        let during = Instant(25);
        assert!(claim.lets(3, during, Access::Read) && claim.refuses(3, during, Access::Read));
    }
}
