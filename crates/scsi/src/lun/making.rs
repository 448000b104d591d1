// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a store becomes a unit: a disk, a disk with protection information, or a CD or DVD drive.

use super::LogicalUnit;
use super::Watchers;
use crate::Identity;
use crate::copy::tokens::Tokens;
use crate::exclusion::Outlasting;
use crate::exclusion::Waiters;
use crate::kept::Keeper;
use crate::kept::Kept;
use crate::kept::RestoreError;
use crate::limits;
use crate::protect::Protection;
use crate::protect::ProtectionFormat;
use crate::sbc::wipe::Wiping;
use crate::space::Space;
use crate::spc::alua::groups::Access;
use crate::spc::identification::Identification;
use crate::spc::modes::Modes;
use crate::spc::persistent;
use crate::spc::persistent::rights::ReservedWord;
use crate::spc::timestamp::Timestamp;
use crate::statistics::Statistics;
use crate::table;
use crate::table::Commands;
use crate::taskset::TaskSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use store::Store;
use store::beside::Beside;
use wire::scsi::inquiry;
use wire::scsi::mmc;

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
    /// Neither blocks nor a device.
    #[error("the store is no device that carries out commands")]
    NoDevice,
    /// Not one whole block.
    #[error("store of {bytes} bytes holds no block of {block}")]
    Empty {
        /// Size of the store.
        bytes: u64,
        /// Block length.
        block: u32,
    },
    /// A last block would be cut.
    #[error(
        "store of {bytes} bytes is not a multiple of the block length {block}: {} and {} are the \
         nearest sizes",
        bytes - bytes % u64::from(*block), bytes.next_multiple_of(u64::from(*block))
    )]
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

    /// Whether a store of `bytes` bytes holds whole blocks of `block` bytes.
    ///
    /// # Errors
    /// If not.
    pub fn check_size(bytes: u64, block: u32) -> Result<(), UnitError> {
        if bytes < u64::from(block) {
            return Err(UnitError::Empty { bytes, block });
        }
        if !bytes.is_multiple_of(u64::from(block)) {
            return Err(UnitError::PartialBlock { bytes, block });
        }
        Ok(())
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

    /// A unit whose commands the device of `store` carries out. `identity` is what is kept of the
    /// unit under, and what hosts are told of one that does not say who it is.
    ///
    /// # Errors
    /// If there is no device, or the identity is none that hosts accept.
    pub fn passing(identity: Identity, store: Arc<dyn Store>) -> Result<Self, UnitError> {
        Self::check_identity(&identity)?;
        let facts = store.device().map(|device| device.facts().clone());
        let facts = facts.ok_or(UnitError::NoDevice)?;
        let commands = match facts.kind {
            inquiry::TYPE_OPTICAL => &table::PASSED_OPTICAL,
            inquiry::TYPE_DISK => &table::PASSED_DISK,
            _ => &table::PASSED,
        };
        // A unit without blocks has none of some length.
        let (block, blocks) = facts.capacity.unwrap_or((512, 0));
        Ok(Self::of_store(commands, identity, store, block, blocks))
    }

    fn check_identity(identity: &Identity) -> Result<(), UnitError> {
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
        Ok(())
    }

    fn of_kind(
        commands: &'static Commands,
        identity: Identity,
        store: Arc<dyn Store>,
        block: u32,
    ) -> Result<Self, UnitError> {
        let bytes = store.geometry().bytes;
        Self::check_size(bytes, block)?;
        Self::check_identity(&identity)?;
        let blocks = bytes >> block.trailing_zeros();
        Ok(Self::of_store(commands, identity, store, block, blocks))
    }

    fn of_store(
        commands: &'static Commands,
        identity: Identity,
        store: Arc<dyn Store>,
        block: u32,
        blocks: u64,
    ) -> Self {
        let geometry = store.geometry();
        let (atomic_max, writes_same) = (store.atomic_max(), store.writes_same());
        let compares_as_one =
            store.compare_unit().is_some_and(|unit| unit >= block && unit.is_multiple_of(block));
        let modes = Modes::new(geometry.volatile_cache);
        Self {
            identity,
            store,
            commands,
            block,
            block_shift: block.trailing_zeros(),
            blocks: AtomicU64::new(blocks),
            geometry,
            special: AtomicU32::new(0),
            outlasting: Outlasting::default(),
            waiters: Waiters::default(),
            watchers: Watchers::default(),
            ports: spin::Mutex::new(Vec::new()),
            reservations: spin::Mutex::default(),
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
            compares_as_one,
            writes_same,
            protection: None,
            label: String::new(),
        }
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
                    self.reservations = spin::Mutex::new(registry.into());
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
}
