// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which units may have lost what they had not brought to stable storage.
//!
//! Nobody is told of that twice, and some targets tell it never: a unit that was reset says so by a
//! unit attention (SPC-4 §5.14), to the next command of each nexus, and one whose target has begun
//! anew is met by a session that has, too. A write that failed behind its acknowledgement is told
//! once as well, by a deferred error in the answer to some later command (SPC-4 §4.5.7), or by a
//! flush that fails: the next flush finds nothing that is left to write, and is good. So each unit
//! has a generation, which counts both. A flush covers the writes of its own generation only; where
//! the unit writes through resets are excused, and what it has told itself is not.

use std::collections::BTreeMap;

use iscsi::initiator::Ending;
use iscsi::initiator::Outcome;
use wire::iscsi::Cdb;
use wire::scsi::Sense;
use wire::scsi::SenseKey;
use wire::scsi::opcode::Opcode;
use wire::scsi::sam::BUSY;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::GOOD;
use wire::scsi::sam::RESERVATION_CONFLICT;
use wire::scsi::sam::TASK_ABORTED;
use wire::scsi::sam::TASK_SET_FULL;

use crate::Fate;
use crate::Generation;

/// All units of a session that have answered.
#[derive(Debug, Default)]
pub(super) struct Caches {
    units: BTreeMap<u16, Cache>,
    /// What has just been told, and nobody has been told yet.
    loss: Option<Fate>,
}

#[derive(Debug, Default)]
struct Cache {
    generation: Generation,
    /// The session is a new one, and the unit has said nothing since.
    suspect: bool,
    /// Nor had it in the session before, of whose loss it may tell now: that it had begun anew
    /// before that one was never said.
    silent: bool,
}

impl Caches {
    /// A session has begun in the place of another one.
    pub(super) fn is_up(&mut self) {
        for cache in self.units.values_mut() {
            cache.silent |= std::mem::replace(&mut cache.suspect, true);
        }
    }

    /// The command `cdb` has ended; gives the generation in which it did.
    pub(super) fn note_outcome(&mut self, lun: u16, cdb: &Cdb, outcome: &Outcome) -> Generation {
        self.note(lun, says(cdb, outcome))
    }

    /// A unit tells of itself without being asked (RFC 7143 §11.9.1, event 0).
    pub(super) fn told(&mut self, lun: u16, sense: Sense) {
        if let Some(says @ (Says::Lost | Says::Failed)) = of_sense(sense) {
            self.note(lun, says);
        }
    }

    /// What the last end of a command, or the last word of a unit, means for what the unit had
    /// acknowledged; once.
    pub(super) fn take_loss(&mut self) -> Option<Fate> {
        self.loss.take()
    }

    fn note(&mut self, lun: u16, says: Says) -> Generation {
        let cache = self.units.entry(lun).or_default();
        let is_reset = match says {
            Says::Nothing => return cache.generation,
            Says::Kept => cache.silent,
            Says::Lost => true,
            Says::Ready | Says::Failed => cache.suspect,
        };
        (cache.suspect, cache.silent) = (false, false);
        if is_reset {
            cache.generation.reset();
            self.loss = Some(Fate::Reset);
        }
        if says == Says::Failed {
            cache.generation.failed();
            self.loss = Some(Fate::Failed);
        }
        cache.generation
    }
}

/// What an answer tells of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// It does not come from the unit.
    Nothing,
    /// The nexus alone was lost: a unit that was reset would have said that first.
    Kept,
    /// It was reset, or may have been.
    Lost,
    /// What it had acknowledged has failed.
    Failed,
    /// No more than that there is a unit.
    Ready,
}

fn says(cdb: &Cdb, outcome: &Outcome) -> Says {
    let flushes = flushes(cdb);
    let completion = match outcome {
        Outcome::Done(completion) => completion,
        Outcome::Failed(Ending::Lost { sent: false }) => return Says::Nothing,
        // It may have failed, and nobody will be told that again; nor has anybody been told.
        Outcome::Failed(_) if flushes => return Says::Lost,
        Outcome::Failed(_) => return Says::Nothing,
    };
    let sense = Sense::parse(&completion.sense);
    let sense = match completion.status {
        // Sense data may come with any status (SPC-4 §4.5.1).
        _ if sense.is_some_and(|sense| sense.deferred) => sense,
        // As with one that did not end.
        TASK_ABORTED if flushes => return Says::Lost,
        BUSY | TASK_SET_FULL | TASK_ABORTED | RESERVATION_CONFLICT => return Says::Nothing,
        GOOD if is_quiet(cdb) => return Says::Nothing,
        GOOD => return Says::Ready,
        CHECK_CONDITION => sense,
        _ => None,
    };
    match (sense.and_then(of_sense), sense) {
        (Some(says), _) => says,
        (None, sense) if flushes && !is_untouched(sense) => Says::Failed,
        (None, _) if is_quiet(cdb) => Says::Nothing,
        (None, _) => Says::Ready,
    }
}

/// Whether it is a command that need not tell of unit attentions before it is done (SAM-5 §5.14).
const fn is_quiet(cdb: &Cdb) -> bool {
    let [code, ..] = cdb.bytes;
    matches!(Opcode(code), Opcode::INQUIRY | Opcode::REPORT_LUNS | Opcode::REQUEST_SENSE)
}

/// What sense data tells of a cache, whichever command it came with.
fn of_sense(sense: Sense) -> Option<Says> {
    match (sense.key, sense.asc, sense.ascq) {
        _ if sense.deferred => Some(Says::Failed),
        // I_T NEXUS LOSS OCCURRED.
        (SenseKey::UnitAttention, 0x29, 0x07) => Some(Says::Kept),
        // POWER ON, RESET, OR BUS DEVICE RESET OCCURRED and its kin; PARAMETERS CHANGED and MODE
        // PARAMETERS CHANGED, which is all that some say after a restart.
        (SenseKey::UnitAttention, 0x29, _) | (SenseKey::UnitAttention, 0x2a, 0x00 | 0x01) => {
            Some(Says::Lost)
        }
        _ => None,
    }
}

/// Whether a flush that ends with `sense` has either done all, or not begun.
fn is_untouched(sense: Option<Sense>) -> bool {
    use SenseKey as K;
    sense.is_some_and(|sense| {
        matches!(sense.key, K::UnitAttention | K::IllegalRequest | K::NotReady | K::RecoveredError)
    })
}

const fn flushes(cdb: &Cdb) -> bool {
    let [code, ..] = cdb.bytes;
    matches!(Opcode(code), Opcode::SYNCHRONIZE_CACHE_10 | Opcode::SYNCHRONIZE_CACHE_16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iscsi::initiator::Completion;
    use wire::iscsi::Residual;
    use wire::scsi::command;

    fn ends(status: u8, sense: Vec<u8>) -> Outcome {
        Outcome::Done(Completion { status, sense, received: 0, residual: Residual::None })
    }

    fn attention(asc: u8, ascq: u8) -> Outcome {
        let sense = vec![0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
        ends(CHECK_CONDITION, sense)
    }

    /// Behind so many resets.
    const fn after(resets: u64) -> Generation {
        Generation::of(resets, 0)
    }

    impl Caches {
        /// A command that does nothing has ended.
        fn hears(&mut self, lun: u16, outcome: &Outcome) -> Generation {
            self.note_outcome(lun, &command::plain(Opcode::TEST_UNIT_READY), outcome)
        }
    }

    #[test]
    fn a_failure_behind_an_acknowledgement_begins_a_generation() {
        let sense = |code, key| vec![code, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x0c, 0, 0, 0, 0, 0];
        let read = command::plain(Opcode::READ_10);
        let flush = command::synchronize_cache();
        for (code, key, of_read, of_flush) in [
            (0x71, 0x0b, 1, 1),
            (0x71, 1, 1, 1),
            (0x71, 6, 1, 1),
            (0x70, 0x0b, 0, 1),
            (0x70, 3, 0, 1),
            (0x70, 1, 0, 0),
            (0x70, 2, 0, 0),
            (0x70, 5, 0, 0),
            (0x70, 6, 0, 0),
        ] {
            let outcome = ends(CHECK_CONDITION, sense(code, key));
            for (cdb, failures) in [(&read, of_read), (&flush, of_flush)] {
                let heard = Caches::default().note_outcome(0, cdb, &outcome);
                assert_eq!(heard, Generation::of(0, failures), "{code:x}, key {key:x}");
            }
        }
        for status in [GOOD, BUSY] {
            for cdb in [&read, &flush] {
                let heard = Caches::default().note_outcome(0, cdb, &ends(status, sense(0x71, 3)));
                assert_eq!(heard, Generation::of(0, 1), "beside status {status:x}");
                let heard = Caches::default().note_outcome(0, cdb, &ends(status, sense(0x70, 1)));
                assert_eq!(heard, after(0), "of its own, beside status {status:x}");
            }
        }
        for (outcome, of_flush) in [
            // It may have failed, and nobody was told.
            (Outcome::Failed(Ending::TimedOut), after(1)),
            (Outcome::Failed(Ending::Lost { sent: true }), after(1)),
            (Outcome::Failed(Ending::Lost { sent: false }), after(0)),
            // By another host.
            (ends(TASK_ABORTED, Vec::new()), after(1)),
            (ends(CHECK_CONDITION, Vec::new()), Generation::of(0, 1)),
            (ends(BUSY, Vec::new()), after(0)),
        ] {
            assert_eq!(
                Caches::default().note_outcome(0, &flush, &outcome),
                of_flush,
                "{outcome:?}"
            );
            assert_eq!(Caches::default().note_outcome(0, &read, &outcome), after(0), "{outcome:?}");
        }
    }

    #[test]
    fn a_failure_that_is_the_first_word_in_a_session_may_stand_behind_a_reset() {
        let mut caches = Caches::default();
        caches.hears(0, &ends(0, Vec::new()));
        caches.is_up();
        let deferred = vec![0x71, 0, 3, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x0c, 0, 0, 0, 0, 0];
        let told = caches.hears(0, &ends(CHECK_CONDITION, deferred));
        assert_eq!(told, Generation::of(1, 1), "it may have begun anew besides");
    }

    #[test]
    fn resets_and_new_sessions_begin_a_generation() {
        let mut caches = Caches::default();
        assert_eq!(caches.hears(0, &ends(0, Vec::new())), after(0));
        let mut resets = 0;
        for (asc, ascq, goes_up) in
            [(0x29, 0, 1), (0x29, 1, 1), (0x29, 4, 1), (0x2a, 1, 1), (0x29, 7, 0), (0x3f, 0x0e, 0)]
        {
            resets += goes_up;
            let heard = caches.hears(0, &attention(asc, ascq));
            assert_eq!(heard, after(resets), "{asc:x}/{ascq:x}");
            assert_eq!(caches.hears(0, &ends(0, Vec::new())), after(resets), "once");
        }
        assert_eq!(caches.hears(7, &ends(0, Vec::new())), after(0), "each unit has its own");
    }

    #[test]
    fn the_first_word_of_a_unit_says_what_became_of_its_cache() {
        let fresh = || {
            let mut caches = Caches::default();
            caches.hears(0, &ends(0, Vec::new()));
            caches.is_up();
            caches
        };
        assert_eq!(fresh().hears(0, &ends(0, Vec::new())), after(1), "it does not say");
        assert_eq!(fresh().hears(0, &attention(0x29, 0)), after(1));
        let mut kept = fresh();
        assert_eq!(kept.hears(0, &attention(0x29, 7)), after(0));
        assert_eq!(kept.hears(0, &ends(0, Vec::new())), after(0));
        let mut silent = fresh();
        silent.is_up();
        assert_eq!(
            silent.hears(0, &attention(0x29, 7)),
            after(1),
            "of a session that had no command"
        );
        assert_eq!(silent.hears(0, &attention(0x29, 7)), after(1));
        let mut later = fresh();
        assert_eq!(later.hears(0, &ends(BUSY, Vec::new())), after(0), "the unit was not asked");
        assert_eq!(later.hears(0, &Outcome::Failed(Ending::Aborted)), after(0));
        assert_eq!(later.hears(0, &ends(0, Vec::new())), after(1));
    }

    #[test]
    fn who_a_unit_is_says_nothing_of_its_cache() {
        let mut caches = Caches::default();
        caches.hears(0, &ends(0, Vec::new()));
        caches.is_up();
        for code in [0x12, 0xa0, 0x03] {
            let cdb = Cdb { bytes: [code; 32], len: 10 };
            assert_eq!(caches.note_outcome(0, &cdb, &ends(0, Vec::new())), after(0));
        }
        assert_eq!(caches.hears(0, &attention(0x29, 7)), after(0));
    }
}
