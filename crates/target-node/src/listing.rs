// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is served, as administration shows it: the one place that knows.

use scsi::LogicalUnit;
use scsi::Totals;
use store::Elsewhere;
use store::Usage;
use wire::scsi::protection::ProtectionType;

use crate::authentication::Demand;
use crate::served::Served;
use crate::target::Target;
use crate::volume::bytes_of;
use crate::volume::may_have_lost_writes;

/// A target as it is served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TargetSnapshot {
    /// Its iSCSI name.
    pub name: String,
    /// Its name for people.
    pub alias: Option<String>,
    /// Names of the initiators that may log in; if empty, everybody.
    pub access: Vec<String>,
    /// What they have to prove.
    pub demand: Demand,
    /// Its logical units.
    pub luns: Vec<LunSnapshot>,
}

/// A logical unit as it is served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LunSnapshot {
    /// Its number.
    pub number: u16,
    /// What its store is called ([`LogicalUnit::with_label`]).
    pub label: String,
    /// Its serial number.
    pub serial: String,
    /// Names of the initiators that see it; None: all that may log in.
    pub initiators: Option<Vec<String>>,
    /// Size that hosts see, bytes.
    pub bytes: u64,
    /// Logical block length, bytes.
    pub block: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// How it is formatted now.
    pub protection: Option<ProtectionType>,
    /// Blocks that were acknowledged may be lost, and were not written again since: flushes fail.
    pub lost_writes: bool,
    /// What has become of its file that was not found by its path at the last look: `deleted`,
    /// `replaced` or `moved`.
    pub astray: Option<&'static str>,
    /// The bytes that are left behind it, where these are less than hosts see.
    pub shrunk: Option<u64>,
    /// The space that it takes and that is left for it, where that is known: of a file as it was at
    /// the last look.
    pub usage: Option<Usage>,
    /// Who answers for it, if that is somebody elsewhere.
    pub elsewhere: Option<Elsewhere>,
    /// Commands are told BUSY until work of commands that have ended is over.
    pub is_fenced: bool,
    /// What it has done.
    pub totals: Totals,
}

impl Target {
    /// All that is served now, in the order in which it came.
    #[must_use]
    pub fn targets(&self) -> Vec<TargetSnapshot> {
        let nodes = self.nodes();
        let targets = nodes.all().iter().map(|served| TargetSnapshot {
            name: served.node().name.clone(),
            alias: served.node().alias.clone(),
            access: served.node().access.iter().map(|rule| rule.initiator.clone()).collect(),
            demand: served.node().authentication.demand,
            luns: served
                .luns()
                .iter()
                .map(|(number, unit)| self.snapshot_of(served, *number, unit))
                .collect(),
        });
        targets.collect()
    }

    fn snapshot_of(&self, served: &Served, number: u16, unit: &LogicalUnit) -> LunSnapshot {
        LunSnapshot {
            number,
            label: unit.label().to_owned(),
            serial: unit.identity().serial.clone(),
            initiators: served.initiators_of(number),
            bytes: bytes_of(unit),
            block: unit.block(),
            read_only: unit.store().geometry().read_only,
            protection: unit.protection_type(),
            lost_writes: may_have_lost_writes(unit),
            astray: self.astray_file_of(unit),
            shrunk: self.shrunk_bytes_of(unit),
            usage: unit.usage(),
            elsewhere: unit.store().elsewhere(),
            is_fenced: unit.is_fenced(),
            totals: unit.figures(),
        }
    }
}
