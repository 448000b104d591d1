// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A logical unit; [`gate`] is the way of each command into it, [`ports`] what it knows of hosts.

mod check;
mod extent;
mod gate;
mod making;
mod ports;
mod special;
#[cfg(test)]
mod tests;
mod watchers;

pub(crate) use extent::Extent;
pub(crate) use gate::Context;
pub use making::UnitError;
use ports::NexusEntry;
pub(crate) use ports::NexusState;
pub use ports::ReservationsShown;
pub(crate) use special::Special;
pub use watchers::Watchers;

use crate::Identity;
use crate::copy::tokens::Tokens;
use crate::exclusion::Outlasting;
use crate::exclusion::Waiters;
use crate::kept::KeepFailed;
use crate::kept::Keeper;
use crate::limits;
use crate::protect::Protection;
use crate::sbc::wipe::Wiping;
use crate::sense::Fault;
use crate::sense::Format;
use crate::space::Space;
use crate::spc::alua::groups::Access;
use crate::spc::identification::Identification;
use crate::spc::modes::Changed;
use crate::spc::modes::Lasting;
use crate::spc::modes::Modes;
use crate::spc::modes::Parameters;
use crate::spc::persistent::reservations::Reservations;
use crate::spc::persistent::rights::Reserved;
use crate::spc::persistent::rights::ReservedWord;
use crate::spc::timestamp::Timestamp;
use crate::statistics::Statistics;
use crate::table;
use crate::table::Commands;
use crate::task::Completion;
use crate::taskset::Sharing;
use crate::taskset::TaskSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use store::Geometry;
use store::Store;
use store::device::Device;
use store::foreign::Errand;
use wire::scsi::Sense;
use wire::scsi::protection::ProtectionType;

/// A logical unit: identity, store, and the little that its nexuses share. Everything here may be
/// used from several threads at once; only [`Nexus::new`](crate::Nexus::new), its loss and a reset
/// take a lock.
#[derive(Debug)]
pub struct LogicalUnit {
    identity: Identity,
    store: Arc<dyn Store>,
    geometry: Geometry,
    commands: &'static Commands,
    block: u32,
    block_shift: u32,
    /// Changed by [`LogicalUnit::resized`] alone.
    blocks: AtomicU64,
    /// Bits of [`Special`]; zero as a rule.
    special: AtomicU32,
    outlasting: Outlasting,
    waiters: Waiters,
    watchers: Watchers,
    ports: spin::Mutex<Vec<NexusEntry>>,
    /// Taken before `ports` where both are.
    reservations: spin::Mutex<Reservations>,
    reserved: ReservedWord,
    keeper: Option<Arc<dyn Keeper>>,
    /// Taken before `ports` where both are.
    task_set: spin::Mutex<TaskSet>,
    modes: Modes,
    identification: Identification,
    timestamp: Timestamp,
    space: Space,
    statistics: Statistics,
    access: Access,
    tokens: Tokens,
    wiping: Wiping,
    atomic_max: Option<u32>,
    compares_as_one: bool,
    writes_same: bool,
    protection: Option<Protection>,
    label: String,
}

impl LogicalUnit {
    /// The same under what whoever serves it calls its store; hosts never hear of it.
    #[must_use]
    pub fn with_label(mut self, label: String) -> Self {
        self.label = label;
        self
    }

    /// What whoever serves it calls its store; empty if it has said nothing.
    pub fn label(&self) -> &str {
        &self.label
    }

    pub(crate) const fn keeper(&self) -> Option<&Arc<dyn Keeper>> {
        self.keeper.as_ref()
    }

    pub(crate) const fn reservations(&self) -> &spin::Mutex<Reservations> {
        &self.reservations
    }

    /// A number that follows from the designator.
    pub(crate) fn number(&self) -> u64 {
        self.identity.naa.iter().fold(0, |number, byte| number.rotate_left(8) ^ u64::from(*byte))
    }

    pub(crate) const fn access(&self) -> &Access {
        &self.access
    }

    /// MAXIMUM ATOMIC TRANSFER LENGTH, bytes.
    pub(crate) const fn atomic_max(&self) -> Option<u32> {
        self.atomic_max
    }

    /// MAXIMUM COMPARE AND WRITE LENGTH, blocks. One where the store compares and writes by itself:
    /// a block never lies across the end of what it can do as one, and hosts cannot know that end.
    pub(crate) fn compare_max(&self) -> u8 {
        let most = if self.compares_as_one() { self.block() } else { limits::COMPARE_MAX };
        u8::try_from(self.blocks_in(most)).unwrap_or(u8::MAX)
    }

    /// Whether the store compares and writes a block by itself.
    pub(crate) const fn compares_as_one(&self) -> bool {
        self.compares_as_one
    }

    /// Whether the store repeats a block by itself.
    pub(crate) const fn writes_same(&self) -> bool {
        self.writes_same
    }

    /// True if nothing may be read beside a write that is to be whole.
    #[inline]
    pub(crate) const fn counts_readers(&self) -> bool {
        self.atomic_max.is_some()
    }

    /// What it knows if it can be formatted with protection information.
    pub(crate) const fn protection(&self) -> Option<&Protection> {
        self.protection.as_ref()
    }

    /// How it is formatted; None without protection information.
    pub fn protection_type(&self) -> Option<ProtectionType> {
        self.protection.as_ref().and_then(Protection::kind)
    }

    /// Whether hosts have given it other protection information than it had at the start.
    pub fn is_formatted_otherwise(&self) -> bool {
        self.protection.as_ref().is_some_and(Protection::is_another_kind)
    }

    /// False where a copy would leave protection information behind, or there is nothing to copy
    /// to.
    pub(crate) fn takes_part_in_copies(&self) -> bool {
        self.protection.is_none() && !self.is_optical() && self.device().is_none()
    }

    pub(crate) const fn wiping(&self) -> &Wiping {
        &self.wiping
    }

    pub(crate) const fn wiping_mut(&mut self) -> &mut Wiping {
        &mut self.wiping
    }

    pub(crate) const fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    pub(crate) fn reserved(&self) -> Reserved {
        self.reserved.load()
    }

    pub(crate) const fn access_mut(&mut self) -> &mut Access {
        &mut self.access
    }

    /// Where the steps of its tasks run.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The device that carries out its commands, if it is one.
    pub(crate) fn device(&self) -> Option<&Arc<dyn Device>> {
        self.store.device()
    }

    /// LOGICAL UNIT RESET of the device that it is, if it is one, as work for the driver; the
    /// function is carried out when its outcome says so.
    #[must_use]
    pub fn reset_device(&self) -> Option<Errand> {
        self.device().map(|device| device.reset())
    }

    /// Counts a failure, if it is one of the medium.
    pub(crate) fn count_failure(&self, sense: Sense) {
        self.statistics.count_failure(sense);
    }

    /// Who it is.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// It is not served any more: what other units copy from it or to it ends with the next piece,
    /// and so does what was asked of it. Its own commands are for who serves it to end.
    pub fn withdraw(&self) {
        self.make_special(Special::Withdrawn);
        self.end_copies();
    }

    pub(crate) const fn space(&self) -> &Space {
        &self.space
    }

    pub(crate) const fn space_mut(&mut self) -> &mut Space {
        &mut self.space
    }

    pub(crate) const fn commands(&self) -> &'static Commands {
        self.commands
    }

    /// True for a CD or DVD drive.
    #[must_use]
    pub fn is_optical(&self) -> bool {
        let kinds = [&raw const table::OPTICAL, &raw const table::PASSED_OPTICAL];
        kinds.into_iter().any(|kind| core::ptr::eq(self.commands, kind))
    }

    pub(crate) const fn task_set(&self) -> &spin::Mutex<TaskSet> {
        &self.task_set
    }

    pub(crate) const fn modes(&self) -> &Modes {
        &self.modes
    }

    pub(crate) const fn identification(&self) -> &Identification {
        &self.identification
    }

    pub(crate) const fn timestamp(&self) -> &Timestamp {
        &self.timestamp
    }

    /// True if all nexuses have one task set (TST = 000b): CLEAR TASK SET ends the tasks of all.
    pub fn shares_task_set(&self) -> bool {
        self.sharing() == Sharing::AllNexuses
    }

    /// Whose commands wait for the end of others.
    pub const fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// TAS: tasks that another nexus aborts end with status TASK ABORTED.
    pub fn reports_aborted_tasks(&self) -> bool {
        self.modes.current().control.task_aborted_status
    }

    /// TST.
    pub(crate) fn sharing(&self) -> Sharing {
        if self.modes.current().control.task_set_each_nexus {
            Sharing::EachNexus
        } else {
            Sharing::AllNexuses
        }
    }

    /// Puts mode parameters in force, unless they have to be kept first.
    pub(crate) fn change_modes(
        &self,
        wanted: Parameters,
        lasting: Lasting,
    ) -> Result<Changed, KeepFailed> {
        let changed = self.modes.change(wanted, lasting, self.number())?;
        self.show_modes();
        Ok(changed)
    }

    /// Mode parameters are in force when they are kept.
    pub(crate) fn modes_are_kept(
        &self,
        wanted: Parameters,
        result: Result<(), KeepFailed>,
    ) -> Result<(), KeepFailed> {
        self.modes.finish(wanted, result)?;
        self.show_modes();
        Ok(())
    }

    /// Mode parameters as they are after a reset.
    pub(crate) fn revert_modes(&self) {
        self.modes.revert();
        self.show_modes();
    }

    #[inline]
    pub(crate) const fn outlasting(&self) -> &Outlasting {
        &self.outlasting
    }

    /// Work for commands that have ended is not waited for any more, and keeps all others out.
    pub fn is_fenced(&self) -> bool {
        self.outlasting.is_fenced()
    }

    /// Some of such work is not waited for any more: it has shown that it does not end soon.
    pub fn has_left_work(&self) -> bool {
        self.outlasting.any_left()
    }

    pub(crate) const fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// Counts a fault, and says in which format it is reported.
    #[cold]
    pub(crate) fn fault(&self, fault: Fault) -> Completion {
        self.statistics.count_failure(fault.sense);
        let descriptor = self.is_special(Special::DescriptorSense);
        fault.complete(if descriptor { Format::Descriptor } else { Format::Fixed })
    }
}
