// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which units may have lost what they had not brought to stable storage.
//!
//! Nobody is told of that twice, and some targets tell it never: a unit that was reset says so by a
//! unit attention (SPC-4 §5.14), to the next command of each nexus, and one whose target has begun
//! anew is met by a session that has, too. So each unit has a generation, which goes up with every
//! such event. A flush covers the writes of its own generation only.

use std::collections::BTreeMap;

use iscsi::initiator::Outcome;
use wire::iscsi::Cdb;
use wire::scsi::Sense;
use wire::scsi::SenseKey;
use wire::scsi::opcode::Opcode;
use wire::scsi::sam::BUSY;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::RESERVATION_CONFLICT;
use wire::scsi::sam::TASK_SET_FULL;

/// All units of a session that have answered.
#[derive(Debug, Default)]
pub(super) struct Caches {
    units: BTreeMap<u16, Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    generation: u64,
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

    /// A command has ended; gives the generation in which it did.
    pub(super) fn heard(&mut self, lun: u16, cdb: &Cdb, outcome: &Outcome) -> u64 {
        let cache = self.units.entry(lun).or_default();
        let [code, ..] = cdb.bytes;
        // Who answers these need not tell of unit attentions before (SAM-5 §5.14).
        if matches!(Opcode(code), Opcode::INQUIRY | Opcode::REPORT_LUNS | Opcode::REQUEST_SENSE) {
            return cache.generation;
        }
        let lost = match says(outcome) {
            Says::Nothing => return cache.generation,
            Says::Kept => cache.silent,
            Says::Lost => true,
            Says::Ready => cache.suspect,
        };
        (cache.suspect, cache.silent) = (false, false);
        cache.generation += u64::from(lost);
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
    Lost,
    /// No more than that there is a unit.
    Ready,
}

fn says(outcome: &Outcome) -> Says {
    let Outcome::Done(completion) = outcome else { return Says::Nothing };
    match completion.status {
        BUSY | TASK_SET_FULL | RESERVATION_CONFLICT => return Says::Nothing,
        CHECK_CONDITION => {}
        _ => return Says::Ready,
    }
    let sense = Sense::parse(&completion.sense);
    match sense.filter(|sense| sense.key == SenseKey::UnitAttention) {
        None => Says::Ready,
        Some(sense) => match (sense.asc, sense.ascq) {
            // I_T NEXUS LOSS OCCURRED.
            (0x29, 0x07) => Says::Kept,
            // POWER ON, RESET, OR BUS DEVICE RESET OCCURRED and its kin; PARAMETERS CHANGED and
            // MODE PARAMETERS CHANGED, which is all that some say after a restart.
            (0x29, _) | (0x2a, 0x00 | 0x01) => Says::Lost,
            _ => Says::Ready,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iscsi::initiator::Completion;
    use iscsi::initiator::Ending;
    use wire::iscsi::Residual;

    const READ: Cdb = Cdb { bytes: [0x28; 32], len: 10 };

    fn ends(status: u8, sense: Vec<u8>) -> Outcome {
        Outcome::Done(Completion { status, sense, received: 0, residual: Residual::None })
    }

    fn attention(asc: u8, ascq: u8) -> Outcome {
        let sense = vec![0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
        ends(CHECK_CONDITION, sense)
    }

    #[test]
    fn resets_and_new_sessions_begin_a_generation() {
        let mut caches = Caches::default();
        assert_eq!(caches.heard(0, &READ, &ends(0, Vec::new())), 0);
        for (asc, ascq, goes_up) in
            [(0x29, 0, 1), (0x29, 1, 1), (0x29, 4, 1), (0x2a, 1, 1), (0x29, 7, 0), (0x3f, 0x0e, 0)]
        {
            let before = caches.heard(0, &READ, &ends(0, Vec::new()));
            assert_eq!(
                caches.heard(0, &READ, &attention(asc, ascq)),
                before + goes_up,
                "{asc:x}/{ascq:x}"
            );
            assert_eq!(caches.heard(0, &READ, &ends(0, Vec::new())), before + goes_up, "once");
        }
        assert_eq!(caches.heard(7, &READ, &ends(0, Vec::new())), 0, "each unit has its own");
    }

    #[test]
    fn the_first_word_of_a_unit_says_what_became_of_its_cache() {
        let fresh = || {
            let mut caches = Caches::default();
            caches.heard(0, &READ, &ends(0, Vec::new()));
            caches.is_up();
            caches
        };
        assert_eq!(fresh().heard(0, &READ, &ends(0, Vec::new())), 1, "it does not say");
        assert_eq!(fresh().heard(0, &READ, &attention(0x29, 0)), 1);
        let mut kept = fresh();
        assert_eq!(kept.heard(0, &READ, &attention(0x29, 7)), 0);
        assert_eq!(kept.heard(0, &READ, &ends(0, Vec::new())), 0);
        let mut silent = fresh();
        silent.is_up();
        assert_eq!(
            silent.heard(0, &READ, &attention(0x29, 7)),
            1,
            "of a session that had no command"
        );
        assert_eq!(silent.heard(0, &READ, &attention(0x29, 7)), 1);
        let mut later = fresh();
        assert_eq!(later.heard(0, &READ, &ends(BUSY, Vec::new())), 0, "the unit was not asked");
        assert_eq!(later.heard(0, &READ, &Outcome::Failed(Ending::Aborted)), 0);
        assert_eq!(later.heard(0, &READ, &ends(0, Vec::new())), 1);
    }

    #[test]
    fn who_a_unit_is_says_nothing_of_its_cache() {
        let mut caches = Caches::default();
        caches.heard(0, &READ, &ends(0, Vec::new()));
        caches.is_up();
        for code in [0x12, 0xa0, 0x03] {
            let cdb = Cdb { bytes: [code; 32], len: 10 };
            assert_eq!(caches.heard(0, &cdb, &ends(0, Vec::new())), 0);
        }
        assert_eq!(caches.heard(0, &READ, &attention(0x29, 7)), 0);
    }
}
