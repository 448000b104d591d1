// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a reactor counts of commands that are timed or fail, and of who comes: what is rare, and
//! costs the others nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Weak;

use engine::cycles;
use engine::laps;
use scsi::LogicalUnit;
use wire::iscsi::Cdb;
use wire::scsi::Sense;
use wire::scsi::cdb::CdbView;
use wire::scsi::opcode::Opcode;
use wire::scsi::opcode::READ_32;
use wire::scsi::opcode::WRITE_32;
use wire::scsi::opcode::WRITE_AND_VERIFY_32;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::CONDITION_MET;
use wire::scsi::sam::GOOD;

use crate::figures::DiskFigures;
use crate::figures::Failure;
use crate::figures::Operation;
use crate::figures::Visits;

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) visits: Visits,
    /// By the place of the unit in memory, which is nobody else's as long as it is known here.
    units: BTreeMap<usize, (Weak<LogicalUnit>, Counts)>,
    nowhere: Counts,
}

/// Of one unit.
#[derive(Debug, Default)]
struct Counts {
    took: Took,
    failures: BTreeMap<Failure, u64>,
}

/// How long commands took, by operation; it has memory as soon as one was timed.
#[derive(Debug, Default)]
pub(super) struct Took(Option<Box<[laps::Layer; Operation::ALL.len()]>>);

impl Took {
    fn count(&mut self, operation: Operation, cycles: u64) {
        let all = self.0.get_or_insert_default();
        if let Some(layer) = all.get_mut(operation as usize) {
            layer.add(cycles);
        }
    }

    /// Those operations that some of was timed.
    pub(super) fn told(&self) -> Vec<(Operation, laps::Layer)> {
        let all = Operation::ALL.into_iter().zip(self.0.iter().flat_map(|all| &**all));
        let timed = all.filter(|(_, layer)| layer.laps > 0);
        timed.map(|(operation, layer)| (operation, layer.clone())).collect()
    }
}

/// A command that is timed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    stamp: u64,
    operation: Operation,
}

impl Timed {
    /// A command that has come at `stamp`; None: its turn is not timed.
    #[inline]
    pub(super) fn since(stamp: u64, cdb: &Cdb) -> Option<Self> {
        (stamp != 0).then(|| Self { stamp, operation: operation_of(cdb) })
    }
}

impl Tally {
    /// A command for `unit` has ended. `timed`: when it came, if it is timed; it is a command of
    /// who has `session`.
    #[inline]
    pub(super) fn ended(
        &mut self,
        unit: Option<&Arc<LogicalUnit>>,
        timed: Option<Timed>,
        status: u8,
        sense: &[u8],
        session: &mut Took,
    ) {
        let is_well = status == GOOD || status == CONDITION_MET;
        if !is_well {
            self.failed(unit, status, sense);
        }
        if let Some(timed) = timed {
            self.took(unit, timed, session);
        }
    }

    /// A command for `unit` has failed.
    #[cold]
    pub(super) fn failed(&mut self, unit: Option<&Arc<LogicalUnit>>, status: u8, sense: &[u8]) {
        let failures = &mut self.counts(unit).failures;
        *failures.entry(Failure::of(status, sense)).or_default() += 1;
    }

    /// One measure for both: they tell the same.
    #[cold]
    fn took(&mut self, unit: Option<&Arc<LogicalUnit>>, timed: Timed, session: &mut Took) {
        let cycles = cycles::glance().wrapping_sub(timed.stamp);
        self.counts(unit).took.count(timed.operation, cycles);
        session.count(timed.operation, cycles);
    }

    #[cold]
    fn counts(&mut self, unit: Option<&Arc<LogicalUnit>>) -> &mut Counts {
        let Some(unit) = unit else { return &mut self.nowhere };
        let place = Arc::as_ptr(unit).addr();
        if !self.units.contains_key(&place) {
            self.units.retain(|_, (unit, _)| unit.strong_count() > 0);
        }
        let known = || (Arc::downgrade(unit), Counts::default());
        &mut self.units.entry(place).or_insert_with(known).1
    }

    /// The counts of all disks that are there.
    pub(super) fn disks(&self) -> Vec<DiskFigures> {
        let units = self.units.values().filter_map(|(unit, counts)| {
            Some(counts.figures(Some(unit.upgrade()?.identity().serial.clone())))
        });
        units.chain([self.nowhere.figures(None)]).collect()
    }
}

impl Counts {
    fn figures(&self, disk: Option<String>) -> DiskFigures {
        let failures = self.failures.iter().map(|(failure, count)| (*failure, *count));
        DiskFigures { disk, took: self.took.told(), failures: failures.collect() }
    }
}

impl Failure {
    fn of(status: u8, sense: &[u8]) -> Self {
        let sense = Sense::parse(sense).filter(|_| status == CHECK_CONDITION);
        Self { status, sense_key: sense.map(|sense| sense.key as u8) }
    }
}

fn operation_of(cdb: &Cdb) -> Operation {
    let cdb = CdbView::new(cdb);
    match cdb.opcode() {
        Opcode::READ_6 | Opcode::READ_10 | Opcode::READ_12 | Opcode::READ_16 => Operation::Read,
        Opcode::WRITE_6
        | Opcode::WRITE_10
        | Opcode::WRITE_12
        | Opcode::WRITE_16
        | Opcode::WRITE_AND_VERIFY_10
        | Opcode::WRITE_AND_VERIFY_12
        | Opcode::WRITE_AND_VERIFY_16
        | Opcode::WRITE_ATOMIC_16 => Operation::Write,
        Opcode::VARIABLE_LENGTH => match cdb.service_action() {
            READ_32 => Operation::Read,
            WRITE_32 | WRITE_AND_VERIFY_32 => Operation::Write,
            _ => Operation::Other,
        },
        _ => Operation::Other,
    }
}
