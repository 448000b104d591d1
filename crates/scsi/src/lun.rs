// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A logical unit; [`gate`] is the way of each command into it, [`ports`] what it knows of hosts.

mod gate;
mod ports;
#[cfg(test)]
mod tests;

pub(crate) use gate::Context;
pub(crate) use ports::Link;
use ports::Port;

use crate::Identity;
use crate::attention::Attention;
use crate::copy::tokens::Tokens;
use crate::exclusion::Outlasting;
use crate::kept::KeepFailed;
use crate::kept::Keeper;
use crate::kept::Kept;
use crate::kept::RestoreError;
use crate::limits;
use crate::protect::Protection;
use crate::protect::ProtectionFormat;
use crate::sbc::wipe::Wiping;
use crate::sense;
use crate::sense::Fault;
use crate::sense::Format;
use crate::space::Space;
use crate::spc::alua::groups::Access;
use crate::spc::identification::Identification;
use crate::spc::modes::Changed;
use crate::spc::modes::Lasting;
use crate::spc::modes::Modes;
use crate::spc::modes::Parameters;
use crate::spc::persistent;
use crate::spc::persistent::registry::Registry;
use crate::spc::persistent::rights::Reserved;
use crate::spc::persistent::rights::ReservedWord;
use crate::spc::timestamp::Timestamp;
use crate::statistics::Statistics;
use crate::table;
use crate::table::Commands;
use crate::task::Completion;
use crate::taskset::Sharing;
use crate::taskset::TaskSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;
use store::Geometry;
use store::Store;
use store::beside::Beside;
use wire::scsi::mmc;
use wire::scsi::protection::ProtectionType;

/// Why a store cannot be a logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// Neither 512 nor 4096.
    #[error("logical block length {0} is neither 512 nor 4096")]
    BlockLength(u32),
    /// A CD or DVD that somebody could write to.
    #[error("a CD or DVD needs a store that is read only")]
    Writable,
    /// Not one whole block.
    #[error("store of {bytes} bytes holds no block of {block}")]
    Empty {
        /// Size of the store.
        bytes: u64,
        /// Block length.
        block: u32,
    },
    /// A last block would be cut.
    #[error("store of {bytes} bytes is not a multiple of the block length {block}")]
    PartialBlock {
        /// Size of the store.
        bytes: u64,
        /// Block length.
        block: u32,
    },
    /// Protection information is kept for another number of blocks.
    #[error("protection information is kept for {formatted} blocks, and the store has {blocks}")]
    Formatted {
        /// As it is formatted.
        formatted: u64,
        /// What the store has.
        blocks: u64,
    },
    /// Names a field of the identity that hosts would not accept.
    #[error("serial number must be 1 to 64 printable ASCII characters")]
    Serial,
    /// The designator is not of NAA type 6 with 16 bytes, nor of type 2, 3 or 5 with 8.
    #[error("naa must have 16 bytes and type 6, or 8 bytes and type 2, 3 or 5")]
    Naa,
    /// A target port group with the number of another one, without ports, or with another's.
    #[error("target port group {0} needs its own number and its own ports")]
    PortGroup(u16),
}

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
    ports: spin::Mutex<Vec<Port>>,
    /// Taken before `ports` where both are.
    reservations: spin::Mutex<Registry>,
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
    protection: Option<Protection>,
}

/// What is out of the ordinary with a unit, so that one load tells that nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Special {
    /// By START STOP UNIT.
    Stopped = 1,
    /// A command reads, decides and writes as one.
    Claimed = 2,
    /// Somebody holds a reservation.
    Reserved = 4,
    /// SWP: writing is refused.
    WriteProtected = 8,
    /// D_SENSE: sense data are in descriptor format.
    DescriptorSense = 16,
    /// Tasks are listed: some are not SIMPLE, or there is an ACA condition.
    Queued = 32,
    /// An ACA condition: tasks that run may have to stop.
    Aca = 64,
    /// WCE is off though the store has a cache: what is written goes to stable storage.
    WriteThrough = 128,
    /// A target port group is in a state that does not let every command through.
    Asymmetric = 256,
    /// ROD tokens stand for some of its blocks.
    Tokens = 1 << 20,
    /// FORMAT UNIT or SANITIZE is under way.
    Wiping = 1 << 21,
    /// The last of them has failed.
    WipeFailed = 1 << 22,
    /// It is no longer served: copies that other units carry out end.
    Withdrawn = 1 << 23,
    /// The tray is open: there is no medium.
    Ejected = 1 << 16,
}

impl Special {
    /// What stops commands that have passed everything else.
    const OBSTACLES: u32 = Self::Stopped as u32
        | Self::Asymmetric as u32
        | Self::Ejected as u32
        | Self::Wiping as u32
        | Self::WipeFailed as u32;
}

/// A run of blocks within a unit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl LogicalUnit {
    /// `block`: logical block length, 512 or 4096 bytes.
    ///
    /// # Errors
    /// If the store does not hold whole blocks, or the identity is none that hosts accept.
    pub fn new(identity: Identity, store: Arc<dyn Store>, block: u32) -> Result<Self, UnitError> {
        if block != 512 && block != 4096 {
            return Err(UnitError::BlockLength(block));
        }
        Self::of_kind(&table::DISK, identity, store, block)
    }

    /// A CD or DVD drive with the content of `store` in it: blocks of 2048 bytes, read only.
    ///
    /// # Errors
    /// If the store can be written to or does not hold whole blocks, or the identity is none that
    /// hosts accept.
    pub fn optical(identity: Identity, store: Arc<dyn Store>) -> Result<Self, UnitError> {
        if !store.geometry().read_only {
            return Err(UnitError::Writable);
        }
        Self::of_kind(&table::OPTICAL, identity, store, mmc::BLOCK_LEN)
    }

    /// A disk that hosts can format with protection information, and that is formatted so now.
    ///
    /// # Errors
    /// As [`LogicalUnit::new`]; or if the disk is formatted with another capacity than its store
    /// has.
    pub fn protected(
        identity: Identity,
        store: Arc<Beside>,
        format: ProtectionFormat,
    ) -> Result<Self, UnitError> {
        let mut unit = Self::new(identity, store, format.block)?;
        if unit.blocks() != format.blocks {
            return Err(UnitError::Formatted { formatted: format.blocks, blocks: unit.blocks() });
        }
        unit.commands = &table::PROTECTED;
        unit.modes.protect();
        unit.protection = Some(Protection::new(format.kind));
        Ok(unit)
    }

    fn of_kind(
        commands: &'static Commands,
        identity: Identity,
        store: Arc<dyn Store>,
        block: u32,
    ) -> Result<Self, UnitError> {
        let geometry = store.geometry();
        let atomic_max = store.atomic_max();
        let bytes = geometry.bytes;
        if bytes < u64::from(block) {
            return Err(UnitError::Empty { bytes, block });
        }
        if !bytes.is_multiple_of(u64::from(block)) {
            return Err(UnitError::PartialBlock { bytes, block });
        }
        let serial = &identity.serial;
        if serial.is_empty()
            || serial.len() > limits::SERIAL_LEN_MAX
            || !serial.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        {
            return Err(UnitError::Serial);
        }
        match (identity.naa.len(), identity.naa.first().map(|byte| byte >> 4)) {
            (16, Some(6)) | (8, Some(2 | 3 | 5)) => {}
            _ => return Err(UnitError::Naa),
        }
        let block_shift = block.trailing_zeros();
        let modes = Modes::new(geometry.volatile_cache);
        Ok(Self {
            identity,
            store,
            commands,
            block,
            block_shift,
            blocks: AtomicU64::new(bytes >> block_shift),
            geometry,
            special: AtomicU32::new(0),
            outlasting: Outlasting::default(),
            ports: spin::Mutex::new(Vec::new()),
            reservations: spin::Mutex::new(Registry::default()),
            reserved: ReservedWord::default(),
            keeper: None,
            task_set: spin::Mutex::new(TaskSet::default()),
            modes,
            identification: Identification::default(),
            timestamp: Timestamp::default(),
            space: Space::default(),
            statistics: Statistics::default(),
            access: Access::default(),
            tokens: Tokens::default(),
            wiping: Wiping::default(),
            atomic_max,
            protection: None,
        })
    }

    /// The same with somebody who keeps one kind of its state, and with what was kept last, if
    /// anything.
    ///
    /// # Errors
    /// If `state` is not what was kept of this unit: hosts rely on it, so it cannot be ignored.
    pub fn with_keeper(
        mut self,
        kept: Kept,
        keeper: Arc<dyn Keeper>,
        state: Option<&[u8]>,
    ) -> Result<Self, RestoreError> {
        let number = self.number();
        match kept {
            Kept::Reservations => {
                if let Some(state) = state {
                    let registry = persistent::restore(state, number)?;
                    self.show_reservations(&registry);
                    self.reservations = spin::Mutex::new(registry);
                }
                self.keeper = Some(keeper);
            }
            Kept::ModeParameters => {
                self.modes.keep(keeper, state, number)?;
                self.show_modes();
            }
            Kept::Identification => self.identification.keep(keeper, state, number)?,
            Kept::Wipe => self.keep_wipes(keeper, state)?,
        }
        Ok(self)
    }

    pub(crate) fn keeper(&self) -> Option<&dyn Keeper> {
        self.keeper.as_deref()
    }

    pub(crate) const fn reservations(&self) -> &spin::Mutex<Registry> {
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

    /// False where a copy would leave protection information behind, or there is nothing to copy
    /// to.
    pub(crate) fn takes_part_in_copies(&self) -> bool {
        self.protection.is_none() && !self.is_optical()
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

    /// Who it is.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Logical block length, bytes.
    pub const fn block(&self) -> u32 {
        self.block
    }

    /// Capacity, blocks; at least one. It may be another one a moment later.
    #[inline]
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// The store has another size: commands from now on see it, and every nexus is told (SBC-3
    /// §4.10: CAPACITY DATA HAS CHANGED). What is left of a last block that is not whole is not
    /// used. False if nothing has changed.
    ///
    /// # Errors
    /// If the store does not hold one block; nothing has changed then.
    pub fn resized(&self) -> Result<bool, UnitError> {
        let bytes = self.store.geometry().bytes;
        let blocks = bytes >> self.block_shift;
        if blocks == 0 {
            return Err(UnitError::Empty { bytes, block: self.block });
        }
        if self.blocks.swap(blocks, Ordering::Relaxed) == blocks {
            return Ok(false);
        }
        self.establish_everywhere(Attention::CapacityChanged);
        Ok(true)
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
        core::ptr::eq(self.commands, &raw const table::OPTICAL)
    }

    pub(crate) const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) const fn can_discard(&self) -> bool {
        self.geometry.discard_granularity.is_some()
    }

    /// `bytes` in blocks, rounded down.
    pub(crate) const fn blocks_in(&self, bytes: u32) -> u32 {
        bytes >> self.block_shift
    }

    /// `length` rounded up to whole blocks.
    pub(crate) const fn round_up(&self, length: u64) -> u64 {
        length.next_multiple_of(1 << self.block_shift)
    }

    /// The block of a byte.
    pub(crate) const fn lba_of(&self, offset: u64) -> u64 {
        offset >> self.block_shift
    }

    /// The bytes of `blocks` blocks from `lba` on, if all are there. No block at the very end is
    /// there too (SBC-3 §4.5).
    pub(crate) fn extent(&self, lba: u64, blocks: u64) -> Result<Extent, Fault> {
        let capacity = self.blocks();
        match lba.checked_add(blocks) {
            Some(end) if end <= capacity => {
                Ok(Extent { offset: lba << self.block_shift, length: blocks << self.block_shift })
            }
            _ => {
                let first_bad = lba.max(capacity);
                Err(sense::LBA_OUT_OF_RANGE.with_information(first_bad).into())
            }
        }
    }

    /// Why the medium cannot be used, if it cannot.
    #[inline]
    pub(crate) fn not_ready(&self) -> Option<wire::scsi::Sense> {
        const NOT_READY: u32 = Special::Stopped as u32 | Special::Ejected as u32;
        match self.special.load(Ordering::SeqCst) & NOT_READY {
            0 => None,
            why if why & Special::Ejected as u32 != 0 => Some(sense::TRAY_OPEN),
            _ => Some(sense::STOPPED),
        }
    }

    pub(crate) fn stop(&self) {
        self.make_special(Special::Stopped);
    }

    pub(crate) fn restart(&self) {
        self.make_ordinary(Special::Stopped);
    }

    /// True if tasks that run need a closer look at each step.
    #[inline]
    pub(crate) fn watches_steps(&self) -> bool {
        const WATCHED: u32 = Special::Aca as u32 | Special::WriteThrough as u32;
        self.special.load(Ordering::SeqCst) & WATCHED != 0
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

    /// Puts mode parameters in force.
    pub(crate) fn change_modes(
        &self,
        wanted: Parameters,
        lasting: Lasting,
    ) -> Result<Changed, KeepFailed> {
        let changed = self.modes.change(wanted, lasting, self.number())?;
        self.show_modes();
        Ok(changed)
    }

    /// Mode parameters as they are after a reset.
    pub(crate) fn revert_modes(&self) {
        self.modes.revert();
        self.show_modes();
    }

    /// Sets the bits that commands read.
    fn show_modes(&self) {
        let Parameters { control, caching } = self.modes.current();
        for (special, holds) in [
            (Special::DescriptorSense, control.descriptor_sense),
            (Special::WriteProtected, control.software_write_protect),
            (Special::WriteThrough, self.modes.has_cache() && !caching.write_cache),
        ] {
            if holds {
                self.make_special(special);
            } else {
                self.make_ordinary(special);
            }
        }
    }

    #[inline]
    pub(crate) fn specials(&self) -> u32 {
        self.special.load(Ordering::SeqCst)
    }

    #[inline]
    pub(crate) const fn outlasting(&self) -> &Outlasting {
        &self.outlasting
    }

    #[inline]
    pub(crate) fn is_special(&self, special: Special) -> bool {
        self.special.load(Ordering::SeqCst) & special as u32 != 0
    }

    /// True if it was not so before.
    pub(crate) fn make_special(&self, special: Special) -> bool {
        self.special.fetch_or(special as u32, Ordering::SeqCst) & special as u32 == 0
    }

    pub(crate) fn make_ordinary(&self, special: Special) {
        self.special.fetch_and(!(special as u32), Ordering::SeqCst);
    }

    /// Counts a fault, and says in which format it is reported.
    #[cold]
    pub(crate) fn fault(&self, fault: Fault) -> Completion {
        self.statistics.count_failure(fault.sense);
        let descriptor = self.is_special(Special::DescriptorSense);
        fault.complete(if descriptor { Format::Descriptor } else { Format::Fixed })
    }
}
