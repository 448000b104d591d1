// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A logical unit, and the gate through which each command for it goes (SAM-5 §5.14, SPC-4 §5.3).

use crate::Identity;
use crate::attention::Attention;
use crate::attention::Attentions;
use crate::copy::records::Copies;
use crate::copy::tokens::Tokens;
use crate::exclusion::Writers;
use crate::kept::KeepFailed;
use crate::kept::Keeper;
use crate::kept::Kept;
use crate::kept::RestoreError;
use crate::limits;
use crate::mmc::medium::MediumLink;
use crate::nexus::Nexus;
use crate::nexus::NexusNames;
use crate::sbc::wipe::Wiping;
use crate::sense;
use crate::sense::Fault;
use crate::sense::Format;
use crate::space::Space;
use crate::spc::alua::groups::Access;
use crate::spc::alua::reach::Reach;
use crate::spc::buffer::EchoBuffer;
use crate::spc::identification::Identification;
use crate::spc::modes::Changed;
use crate::spc::modes::Lasting;
use crate::spc::modes::Modes;
use crate::spc::modes::Parameters;
use crate::spc::persistent;
use crate::spc::persistent::registry::Port as NexusPort;
use crate::spc::persistent::registry::Registry;
use crate::spc::persistent::rights;
use crate::spc::persistent::rights::Guard;
use crate::spc::persistent::rights::Reserved;
use crate::spc::persistent::rights::ReservedWord;
use crate::spc::persistent::rights::StandingWord;
use crate::spc::persistent::rights::Starts;
use crate::spc::timestamp::Timestamp;
use crate::statistics::Counter;
use crate::statistics::Statistics;
use crate::statistics::Totals;
use crate::statistics::Traffic;
use crate::table;
use crate::table::Commands;
use crate::table::Entry;
use crate::table::Flag;
use crate::task::Completion;
use crate::task::Request;
use crate::task::Started;
use crate::taskset::Running;
use crate::taskset::Sharing;
use crate::taskset::TaskSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;
use store::Geometry;
use store::Store;
use wire::scsi::cdb::CdbView;
use wire::scsi::cdb::Group;
use wire::scsi::mmc;
use wire::scsi::opcode::Opcode;

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
/// used from several threads at once; only [`Nexus::new`], its loss and a reset take a lock.
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
}

/// What a unit keeps for one I_T nexus; it outlives the nexus. On a cache line of its own, because
/// each write of the nexus counts itself here.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Link {
    pub(crate) attentions: Attentions,
    pub(crate) writers: Writers,
    pub(crate) standing: StandingWord,
    pub(crate) running: Running,
    pub(crate) copies: Copies,
    pub(crate) traffic: Traffic,
    pub(crate) echo: EchoBuffer,
    pub(crate) medium: MediumLink,
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

#[derive(Debug)]
struct Port {
    initiator_port: String,
    portal_group_tag: u16,
    relative_port: u16,
    link: Arc<Link>,
}

/// A run of blocks within a unit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Everything that a handler sees.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) nexus: &'a Nexus,
    pub(crate) unit: &'a LogicalUnit,
    pub(crate) link: &'a Link,
    pub(crate) request: &'a Request,
    pub(crate) cdb: CdbView<'a>,
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

    pub(crate) const fn wiping(&self) -> &Wiping {
        &self.wiping
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

    /// Does `what` with what is kept for each nexus.
    pub(crate) fn each_link(&self, what: impl Fn(&Link)) {
        self.ports.lock().iter().for_each(|port| what(&port.link));
    }

    /// True if `holds` for any nexus.
    pub(crate) fn any_link(&self, holds: impl Fn(&Link) -> bool) -> bool {
        self.ports.lock().iter().any(|port| holds(&port.link))
    }

    /// What this unit keeps for the nexus of these names, made if need be; a new nexus is told why
    /// it knows nothing.
    pub(crate) fn link(&self, names: &NexusNames) -> Arc<Link> {
        let registry = self.reservations.lock();
        let mut ports = self.ports.lock();
        let known = ports.iter().find(|port| {
            port.initiator_port == names.initiator_port
                && port.portal_group_tag == names.portal_group_tag
        });
        if let Some(port) = known {
            port.link.attentions.establish(Attention::NexusLoss);
            return Arc::clone(&port.link);
        }
        let lost = ports.iter().filter(|port| port.lost()).count();
        if lost >= limits::LOST_PORTS_MAX
            && let Some(oldest) = ports.iter().position(Port::lost)
        {
            let gone = ports.remove(oldest);
            self.statistics.retire(&gone.link.traffic);
        }
        let link = Arc::new(Link::default());
        link.standing.store(registry.standing(&NexusPort::from(names)));
        link.attentions.establish(Attention::PowerOn);
        ports.push(Port {
            initiator_port: names.initiator_port.clone(),
            portal_group_tag: names.portal_group_tag,
            relative_port: names.relative_port,
            link: Arc::clone(&link),
        });
        link
    }

    #[cfg(test)]
    pub(crate) fn ports(&self) -> usize {
        self.ports.lock().len()
    }

    /// Sets the words that commands read without a lock.
    pub(crate) fn show_reservations(&self, registry: &Registry) {
        for port in self.ports.lock().iter() {
            port.link.standing.store(registry.standing(&port.name()));
        }
        let reserved = registry.reserved();
        self.reserved.store(reserved);
        if reserved == Reserved::Nobody {
            self.make_ordinary(Special::Reserved);
        } else {
            self.make_special(Special::Reserved);
        }
    }

    /// Ends the reservation of RESERVE, if it is of `holder`, or of anybody for None (SPC-2
    /// §5.5.1).
    pub(crate) fn end_legacy_reservation(&self, holder: Option<&NexusNames>) {
        if self.reserved.load() != Reserved::Legacy {
            return;
        }
        let mut registry = self.reservations.lock();
        let port = holder.map(NexusPort::from);
        if port.is_none() || registry.legacy == port {
            registry.legacy = None;
            self.show_reservations(&registry);
        }
    }

    /// What power on leaves of reservations and registrations: all if they are to persist (APTPL),
    /// none otherwise (SPC-4 §5.9.1).
    pub(crate) fn forget_reservations(&self) {
        let mut registry = self.reservations.lock();
        if !registry.persists {
            *registry = Registry::default();
            self.show_reservations(&registry);
        }
    }

    /// Tells one nexus, if it was ever there.
    pub(crate) fn establish_at(&self, name: &NexusPort, attention: Attention) {
        let ports = self.ports.lock();
        for port in ports.iter().filter(|port| port.name() == *name) {
            port.link.attentions.establish(attention);
        }
    }

    /// The ACA condition of a preempted nexus ends (SPC-4 §5.12.11.5).
    pub(crate) fn clear_aca_of(&self, name: &NexusPort) {
        let link = {
            let ports = self.ports.lock();
            let port = ports.iter().find(|port| port.name() == *name);
            port.map(|port| Arc::clone(&port.link))
        };
        if let Some(link) = link {
            self.task_set.lock().clear_fault(self, Some(&link));
        }
    }

    /// Tells every nexus but the one of `own`.
    pub(crate) fn establish_at_others(&self, own: Option<*const Link>, attention: Attention) {
        for port in self.ports.lock().iter() {
            if own != Some(Arc::as_ptr(&port.link)) {
                port.link.attentions.establish(attention);
            }
        }
    }

    /// What the unit has counted.
    pub(crate) fn totals(&self) -> Totals {
        self.statistics.totals(|totals| self.sum_traffic(totals))
    }

    /// Lets counters begin anew.
    pub(crate) fn reset_statistics(&self, counters: &[Counter]) {
        self.statistics.reset(counters, |totals| self.sum_traffic(totals));
    }

    fn sum_traffic(&self, totals: &mut Totals) {
        self.ports.lock().iter().for_each(|port| port.link.traffic.sum(totals));
    }

    /// Counts a fault, and says in which format it is reported.
    #[cold]
    pub(crate) fn fault(&self, fault: Fault) -> Completion {
        self.statistics.count_failure(fault.sense);
        let descriptor = self.is_special(Special::DescriptorSense);
        fault.complete(if descriptor { Format::Descriptor } else { Format::Fixed })
    }

    /// Ends the copies that were asked of this unit, as soon as they take their next step.
    pub fn end_copies(&self) {
        for port in self.ports.lock().iter() {
            port.link.copies.clear();
        }
    }

    /// Tells every nexus but the one of `link`.
    pub(crate) fn establish_elsewhere(&self, link: &Link, attention: Attention) {
        for port in self.ports.lock().iter().filter(|port| !core::ptr::eq(&*port.link, link)) {
            port.link.attentions.establish(attention);
        }
    }

    /// Tells every nexus, also those that are lost for now.
    pub(crate) fn establish_everywhere(&self, attention: Attention) {
        for port in self.ports.lock().iter() {
            port.link.attentions.establish(attention);
        }
    }

    /// Tells every nexus this and nothing else.
    pub(crate) fn replace_everywhere(&self, attention: Attention) {
        for port in self.ports.lock().iter() {
            port.link.attentions.replace(attention);
        }
    }
}

impl Port {
    fn name(&self) -> NexusPort {
        NexusPort { initiator: self.initiator_port.clone(), target: self.relative_port }
    }

    /// True if no nexus holds the link.
    fn lost(&self) -> bool {
        Arc::strong_count(&self.link) == 1
    }
}

impl Context<'_> {
    /// The gate: what may stop a command before its handler sees it, in the order of SPC-4 §5.3 and
    /// SAM-5 §5.14. A reservation conflict comes behind the unit attentions of a reset and before
    /// all others (SAM-5 §5.3.3).
    pub(crate) fn start(&self) -> Result<Started, Fault> {
        let found = self.unit.commands.find(&self.cdb);
        let pending = self.link.attentions.pending()
            && !matches!(&found, Ok(entry) if entry.has(Flag::Informative));
        if pending && self.link.attentions.begins_with_reset() {
            self.report_attention()?;
        }
        if self.unit.is_special(Special::Reserved)
            && let Ok(entry) = &found
        {
            self.check_reservation(entry.guard)?;
        }
        if pending {
            self.report_attention()?;
        }
        let entry = found?;
        if !entry.supported(self.unit) {
            return Err(self.unit.commands.not_found(&self.cdb));
        }
        entry.check(&self.request.cdb)?;
        if self.unit.special.load(Ordering::SeqCst) & Special::OBSTACLES != 0 {
            self.check_obstacles(entry)?;
        }
        if entry.has(Flag::Writes) {
            if self.unit.geometry.read_only {
                return Err(sense::WRITE_PROTECTED.into());
            }
            if self.unit.is_special(Special::WriteProtected) {
                return Err(sense::SOFTWARE_WRITE_PROTECTED.into());
            }
        }
        (entry.handler)(self)
    }

    /// A pending unit attention, which this clears.
    #[cold]
    fn report_attention(&self) -> Result<(), Fault> {
        match self.link.attentions.take() {
            Some(attention) => Err(attention.sense().into()),
            None => Ok(()),
        }
    }

    /// What the state of the unit, or of the way to it, lets through.
    #[cold]
    fn check_obstacles(&self, entry: &Entry) -> Result<(), Fault> {
        if self.unit.is_special(Special::Asymmetric)
            && let Some(obstacle) =
                self.unit.access.obstacle(self.nexus.names().relative_port, Reach::of(entry))
        {
            return Err(obstacle.into());
        }
        if self.unit.is_special(Special::Wiping) && Reach::of(entry) != Reach::Always {
            return Err(self.unit.wiping_sense().into());
        }
        if entry.has(Flag::Medium)
            && let Some(sense) = self.unit.not_ready()
        {
            return Err(sense.into());
        }
        let ends_failure = matches!(entry.opcode, Opcode::SANITIZE | Opcode::FORMAT_UNIT);
        if self.unit.is_special(Special::WipeFailed) && entry.has(Flag::Medium) && !ends_failure {
            return Err(self.unit.wipe_failed_sense().into());
        }
        Ok(())
    }

    #[cold]
    fn check_reservation(&self, guard: Guard) -> Result<(), Fault> {
        let only_starts = self.cdb.byte(4) & 0xf1 == 1;
        let starts = if only_starts { Starts::Only } else { Starts::No };
        let standing = self.link.standing.load();
        if rights::allows(self.unit.reserved.load(), standing, guard, starts) {
            return Ok(());
        }
        Err(Fault::RESERVATION_CONFLICT)
    }

    /// The extent of a READ, WRITE or VERIFY: within the unit, and no longer than MAXIMUM TRANSFER
    /// LENGTH.
    pub(crate) fn transfer(&self) -> Result<(Extent, u32), Fault> {
        let extent = self.unit.extent(self.cdb.lba(), u64::from(self.cdb.transfer_length()))?;
        match u32::try_from(extent.length) {
            Ok(length) if length <= limits::TRANSFER_MAX => Ok((extent, length)),
            _ => Err(self.length_field().into()),
        }
    }

    /// 5/24/00 that points at a field of the byte of DPO and FUA.
    pub(crate) fn flag_field(&self, bit: u8) -> wire::scsi::Sense {
        let at = Group::of(self.cdb.opcode()).map_or(1, Group::flags_at);
        sense::invalid_bit(u16::from(at), bit)
    }

    /// 5/24/00 that points at TRANSFER LENGTH.
    pub(crate) fn length_field(&self) -> wire::scsi::Sense {
        sense::invalid_field(Group::of(self.cdb.opcode()).map_or(0, Group::length_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use crate::testing::Disk;
    use crate::testing::codes;
    use crate::testing::geometry;
    use crate::testing::request;
    use crate::testing::run;
    use crate::testing::sense_of;
    use alloc::string::ToString;
    use wire::scsi::Lun;

    fn unit(geometry: Geometry, block: u32, edit: fn(&mut Identity)) -> Option<UnitError> {
        let mut identity = Identity::derive("iqn.a", 0, "v", "p");
        edit(&mut identity);
        LogicalUnit::new(identity, Disk::new(geometry), block).err()
    }

    #[test]
    fn a_store_must_hold_whole_blocks() {
        let sized = |bytes| Geometry { bytes, ..geometry() };
        let keep = |_: &mut Identity| {};
        assert_eq!(unit(sized(512), 512, keep), None);
        assert_eq!(unit(sized(512), 1024, keep), Some(UnitError::BlockLength(1024)));
        assert_eq!(unit(sized(0), 512, keep), Some(UnitError::Empty { bytes: 0, block: 512 }));
        let partial = UnitError::PartialBlock { bytes: 4608, block: 4096 };
        assert_eq!(unit(sized(4608), 4096, keep), Some(partial));
        assert_eq!(
            partial.to_string(),
            "store of 4608 bytes is not a multiple of the block length 4096"
        );
    }

    #[test]
    fn an_identity_must_be_one_that_hosts_accept() {
        assert_eq!(unit(geometry(), 512, |id| id.serial.clear()), Some(UnitError::Serial));
        assert_eq!(unit(geometry(), 512, |id| id.serial.push('\n')), Some(UnitError::Serial));
        assert_eq!(unit(geometry(), 512, |id| id.naa.truncate(4)), Some(UnitError::Naa));
        assert_eq!(unit(geometry(), 512, |id| id.naa[0] = 0x60), Some(UnitError::Naa));
    }

    #[test]
    fn attentions_stop_all_but_informative_commands() {
        let bench = Bench::new();
        bench.nexus.logical_unit_reset(&bench.unit);
        assert_eq!(bench.sense(&[0x12, 0, 0, 0, 36, 0]), None);
        assert_eq!(bench.sense(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0]), None);
        assert_eq!(codes(bench.sense(&[0xff; 16])), (6, 0x29, 3), "before the operation code");
        assert_eq!(codes(bench.sense(&[0xff; 16])), (5, 0x20, 0));
        bench.nexus.logical_unit_reset(&bench.unit);
        let data = bench.data(&[3, 0, 0, 0, 18, 0]);
        assert_eq!(codes(wire::scsi::Sense::parse(&data)), (6, 0x29, 3));
        assert_eq!(bench.sense(&[0; 6]), None, "REQUEST SENSE has cleared it");
    }

    #[test]
    fn naca_is_understood_and_the_aca_attribute_needs_a_condition() {
        let bench = Bench::new();
        assert_eq!(bench.sense(&[0, 0, 0, 0, 0, 4]), None);
        let mut aca = request(Lun::Unit(0), &[0; 6], &[], 0);
        aca.attribute = wire::iscsi::Attribute::Aca;
        assert_eq!(codes(sense_of(&run(&bench.nexus, aca, &[]))), (5, 0x49, 0));
    }

    #[test]
    fn ranges_do_not_overflow() {
        let bench = Bench::new();
        for (lba, blocks) in [(u64::MAX, 1), (u64::MAX, u64::from(u32::MAX)), (4096, 1), (4097, 0)]
        {
            let fault = bench.unit.extent(lba, blocks).expect_err("out of range");
            assert_eq!(fault.sense.asc, 0x21);
            assert_eq!(fault.sense.information, Some(lba.max(4096)));
        }
        let end = bench.unit.extent(4096, 0).expect("zero blocks at the end");
        assert_eq!((end.offset, end.length), (4096 * 512, 0));
    }

    /// A disk of some size.
    #[derive(Debug)]
    struct Elastic(AtomicU64);

    impl Store for Elastic {
        fn geometry(&self) -> Geometry {
            Geometry { bytes: self.0.load(Ordering::Relaxed), ..geometry() }
        }

        fn submit(&self, _: &store::Op) -> store::Submitted {
            store::Submitted::Done(store::Outcome::Failed(store::Error::Range))
        }

        fn complete(&self, op: &store::Op, _: &store::Io, _: store::IoResult) -> store::Submitted {
            self.submit(op)
        }
    }

    #[test]
    fn another_size_is_seen_at_once_and_told_to_all() {
        let store = Arc::new(Elastic(AtomicU64::new(1 << 20)));
        let identity = Identity::derive("iqn.a", 0, "v", "p");
        let unit = LogicalUnit::new(identity, Arc::<Elastic>::clone(&store), 4096).expect("legal");
        let unit = Arc::new(unit);
        let nexuses = ["iqn.a,i,0x1", "iqn.b,i,0x1"].map(|name| {
            Nexus::new(crate::testing::names(name), alloc::vec![(0, Arc::clone(&unit))])
        });
        let at = |nexus: &Nexus, cdb: &[u8]| run(nexus, request(Lun::Unit(0), cdb, &[], 4096), &[]);
        let capacity = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for nexus in &nexuses {
            assert_eq!(codes(sense_of(&at(nexus, &capacity))), (6, 0x29, 0));
        }
        assert_eq!(unit.resized(), Ok(false));
        // What is left of a last block is not used.
        store.0.store((2 << 20) + 512, Ordering::Relaxed);
        assert_eq!(unit.resized(), Ok(true));
        for nexus in &nexuses {
            assert_eq!(codes(sense_of(&at(nexus, &capacity))), (6, 0x2a, 9));
            let data = at(nexus, &capacity).data_in.expect("data").to_vec();
            assert_eq!(data, [0, 0, 1, 0xff, 0, 0, 0x10, 0]);
        }
        store.0.store(512, Ordering::Relaxed);
        assert_eq!(unit.resized(), Err(UnitError::Empty { bytes: 512, block: 4096 }));
        assert_eq!(unit.blocks(), 512, "as it was");
        // The store has become smaller on the way of the command.
        let late = at(&nexuses[0], &[0x28, 0, 0, 0, 0, 7, 0, 0, 1, 0]);
        let sense = sense_of(&late).expect("out of range");
        assert_eq!((codes(Some(sense)), sense.information), ((5, 0x21, 0), Some(7)));
    }
}
