// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task management functions (SAM-5 §7): the pump has ended the tasks, this does the rest.

use crate::attention::Attention;
use crate::lun::LogicalUnit;
use crate::nexus::Nexus;
use crate::pass;
use crate::taskset::Sharing;
use wire::scsi::Sense;

/// What CLEAR ACA found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the pump must know every one
pub enum AcaCleared {
    /// The condition has ended.
    Done,
    /// There was none.
    Nothing,
    /// There is one that only another nexus can clear.
    OfAnother,
}

/// Sense that waits for the next command of a nexus (SAM-5 §7.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingSense {
    /// What that command will be told.
    pub sense: Sense,
    /// Whether more waits behind it.
    pub more: bool,
}

impl Nexus {
    /// I_T NEXUS RESET (SAM-5 §6.3.4): as if this nexus had been lost and were back: 29/07 from
    /// each unit, its reservation of RESERVE ends.
    pub fn reset(&self) {
        for unit in self.units() {
            unit.end_legacy_reservation(Some(self.names()));
            if let Some(nexus_state) = self.state_at(unit) {
                unit.task_set().lock().clear_fault(unit, Some(nexus_state));
                nexus_state.copies.clear();
                pass::allow_removal(unit, nexus_state);
            }
            self.establish(unit, Attention::NexusLoss);
        }
    }

    /// QUERY ASYNCHRONOUS EVENT (SAM-5 §7.10): what the next command will be told, which stays.
    #[must_use]
    pub fn pending_sense(&self, unit: &LogicalUnit) -> Option<PendingSense> {
        let (sense, more) = self.state_at(unit)?.peek_attention()?;
        Some(PendingSense { sense, more })
    }

    /// Tasks of this nexus were ended by another one's CLEAR TASK SET (SAM-5 §7.4): 2F/00.
    pub fn commands_cleared(&self, unit: &LogicalUnit) {
        self.establish(unit, Attention::CommandsCleared);
    }

    /// Tasks of this nexus were ended by a logout or time-out of one of its connections (RFC 7143
    /// §11.14.5): 47/7F.
    pub fn commands_cleared_by_iscsi(&self, unit: &LogicalUnit) {
        self.establish(unit, Attention::ClearedByIscsi);
    }

    /// CLEAR ACA (SAM-5 §7.5): the ACA condition of this nexus ends.
    pub fn clear_aca(&self, unit: &LogicalUnit) -> AcaCleared {
        let mut set = unit.task_set().lock();
        match self.state_at(unit) {
            Some(nexus_state) if set.clear_fault(unit, Some(nexus_state)) => AcaCleared::Done,
            _ if unit.sharing() == Sharing::AllNexuses && set.is_faulted() => AcaCleared::OfAnother,
            _ => AcaCleared::Nothing,
        }
    }

    fn establish(&self, unit: &LogicalUnit, attention: Attention) {
        if let Some(nexus_state) = self.state_at(unit) {
            nexus_state.attentions.establish(attention);
        }
    }
}

impl LogicalUnit {
    /// LOGICAL UNIT RESET (SAM-5 §6.3.3): a stopped unit starts again, mode parameters have their
    /// saved or default values, ACA conditions and the reservation of RESERVE end, and every nexus,
    /// that which asked too, is told with 29/03.
    ///
    /// Gives whether something was reserved by RESERVE.
    pub fn logical_unit_reset(&self) -> bool {
        let ended = self.reset();
        self.establish_everywhere(Attention::DeviceReset);
        ended
    }

    /// TARGET COLD RESET: the unit is as after power on (SAM-5 §6.3.1). Reservations and
    /// registrations that are not to persist are gone, all else is as after a reset, and every
    /// nexus is told with 29/00 and of nothing that was before.
    ///
    /// Gives whether reservations or registrations went; those that go with a change that is just
    /// being kept are not among them.
    pub fn power_on(&self) -> bool {
        let ended = self.reset();
        let forgot = self.forget_reservations();
        self.replace_everywhere(Attention::PowerOn);
        ended || forgot
    }

    fn reset(&self) -> bool {
        self.restart();
        self.each_nexus(|nexus_state| nexus_state.medium.allow_removal());
        self.revert_modes();
        self.timestamp().revert();
        self.task_set().lock().clear_fault(self, None);
        let ended = self.end_legacy_reservation(None);
        self.end_copies();
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Queries;
    use crate::testing::Bench;
    use crate::testing::codes;
    use crate::testing::names;
    use crate::testing::request;
    use crate::testing::run;
    use crate::testing::sense_of;
    use alloc::sync::Arc;
    use alloc::vec;
    use alloc::vec::Vec;
    use wire::scsi::Lun;
    use wire::scsi::SenseKey;

    const POWER_ON: (u8, u8, u8) = (6, 0x29, 0);
    const RESET: (u8, u8, u8) = (6, 0x29, 3);
    const NEXUS_LOSS: (u8, u8, u8) = (6, 0x29, 7);
    const NOTHING: (u8, u8, u8) = (0, 0, 0);

    fn ready(nexus: &Nexus) -> (u8, u8, u8) {
        codes(sense_of(&run(nexus, request(Lun::Unit(0), &[0; 6], &[], 0), &[])))
    }

    /// Another nexus of the unit, without attentions.
    fn other(bench: &Bench) -> Nexus {
        let nexus = Nexus::new(names("iqn.o,i,0x1"), vec![(0, Arc::clone(&bench.unit))]);
        assert_eq!(ready(&nexus), POWER_ON);
        nexus
    }

    fn reserve_out(nexus: &Nexus, action: u8, list: [u8; 24]) -> u8 {
        let cdb = [0x5f, action, 1, 0, 0, 0, 0, 0, 24, 0];
        run(nexus, request(Lun::Unit(0), &cdb, &list, 0), &list).status
    }

    fn keys(nexus: &Nexus) -> Vec<u8> {
        let cdb = [0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0];
        let completion = run(nexus, request(Lun::Unit(0), &cdb, &[], 64), &[]);
        completion.data_in.expect("keys").to_vec()
    }

    #[test]
    fn power_on_leaves_nothing_but_what_is_to_persist() {
        let bench = Bench::new();
        let other = other(&bench);
        let mut list = [0; 24];
        list[15] = 7;
        assert_eq!(reserve_out(&other, 0, list), 0, "REGISTER");
        list[7] = 7;
        list[15] = 0;
        assert_eq!(reserve_out(&other, 1, list), 0, "RESERVE");
        assert_eq!(ready(&bench.nexus), NOTHING);
        bench.unit.logical_unit_reset();
        assert_eq!(ready(&other), RESET);
        assert_eq!(keys(&other)[7], 8, "a reset leaves registrations alone");
        other.commands_cleared(&bench.unit);
        bench.unit.stop();
        bench.unit.power_on();
        for nexus in [&bench.nexus, &other] {
            assert_eq!(ready(nexus), POWER_ON);
            assert_eq!(ready(nexus), NOTHING, "and of nothing that was before");
        }
        assert_eq!(keys(&other), [0; 8], "also PRGENERATION begins anew");
    }

    #[test]
    fn nexus_reset_concerns_one_nexus() {
        let bench = Bench::new();
        let other = other(&bench);
        let reserve = request(Lun::Unit(0), &[0x16, 0, 0, 0, 0, 0], &[], 0);
        assert_eq!(run(&other, reserve, &[]).status, 0);
        let ready_cdb = request(Lun::Unit(0), &[0; 6], &[], 0);
        assert_eq!(run(&bench.nexus, ready_cdb, &[]).status, 0x18, "RESERVATION CONFLICT");
        bench.nexus.reset();
        assert_eq!(ready(&bench.nexus), NEXUS_LOSS, "which comes before a conflict");
        assert_eq!(run(&bench.nexus, ready_cdb, &[]).status, 0x18, "that was not its own");
        other.reset();
        assert_eq!(ready(&bench.nexus), NOTHING);
        assert_eq!(ready(&other), NEXUS_LOSS);
    }

    #[test]
    fn pending_sense_stays() {
        let bench = Bench::new();
        let (nexus, unit) = (&bench.nexus, &bench.unit);
        assert_eq!(nexus.pending_sense(unit), None);
        nexus.reset();
        unit.logical_unit_reset();
        let reset = Sense::new(SenseKey::UnitAttention, 0x29, 3);
        let alone = Some(PendingSense { sense: reset, more: false });
        assert_eq!(nexus.pending_sense(unit), alone, "the nexus loss is told with it");
        nexus.commands_cleared(unit);
        let first = Some(PendingSense { sense: reset, more: true });
        assert_eq!(nexus.pending_sense(unit), first);
        assert_eq!(nexus.pending_sense(unit), first);
        assert_eq!(ready(nexus), RESET);
        let last = Sense::new(SenseKey::UnitAttention, 0x2f, 0);
        assert_eq!(nexus.pending_sense(unit), Some(PendingSense { sense: last, more: false }));
    }

    /// Covers: STS-13b.
    #[test]
    fn attentions_about_the_tasks_of_many_are_fenced() {
        let bench = Bench::new();
        let (nexus, unit) = (&bench.nexus, &bench.unit);
        let fenced = || run(nexus, request(Lun::Unit(0), &[0; 6], &[], 0), &[]).fence;
        assert!(!fenced());
        unit.logical_unit_reset();
        assert!(fenced());
        nexus.commands_cleared(unit);
        assert!(fenced());
        nexus.commands_cleared_by_iscsi(unit);
        assert!(!fenced(), "that concerns one nexus");
    }

    #[test]
    fn functions_of_the_transport_are_reported() {
        let bench = Bench::new();
        let report = |nexus: &Nexus| {
            let cdb = [0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0];
            let completion = run(nexus, request(Lun::Unit(0), &cdb, &[], 16), &[]);
            completion.data_in.expect("functions").to_vec()
        };
        let before = report(&bench.nexus);
        assert_eq!((before[0] & 0x04, before[1]), (0, 0));
        let newer = other(&bench).with_queries(Queries::All);
        let after = report(&newer);
        assert_eq!((after[0], after[1]), (before[0] | 0x04, 0x07));
    }
}
