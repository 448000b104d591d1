// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a checked description to a logical unit with what was kept of it: at the start, and of
//! those that come later.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use control::admin::CarriedDisk;
use engine::files::SECTOR;
use scsi::Explicit;
use scsi::Identity;
use scsi::KeepFailed;
use scsi::Keeper;
use scsi::Kept;
use scsi::LogicalUnit;
use scsi::PortGroup;
use store::Store;
use store::null::Null;
use store::spec::Spec;
use target::DiskNumber;
use target::IdentityPolicy;
use target::Sought;
use target::StateFile;
use target::Stores;

use super::lun::DraftLun;
use super::lun::is_fleeting;
use super::lun::without_filters;
use super::node::DraftTarget;

/// What INQUIRY says of who made the disk (SPC-4 §6.6.2).
const VENDOR: &str = "LUNWIRE";
const PRODUCT: &str = "VIRTUAL DISK";
const OPTICAL_PRODUCT: &str = "VIRTUAL DVD-ROM";

/// Makes units; knows what they have from their target and from the daemon.
#[derive(Clone, Debug)]
pub(crate) struct UnitMaker {
    state_dir: Option<PathBuf>,
    targets: Vec<Terms>,
    /// Who disks were in the process before that begin anew with each.
    before: Vec<CarriedDisk>,
}

/// What the units of one target have in common.
#[derive(Clone, Debug)]
struct Terms {
    name: String,
    port_groups: Vec<PortGroup>,
    explicit: Explicit,
    identity: IdentityPolicy,
}

/// Tells where the disk with an NAA designator is served, if it is.
pub(crate) type Taken<'a> = &'a dyn Fn(&[u8]) -> Option<(String, u16)>;

/// Who a disk is, and whether it is so for longer than the daemon lives.
struct Known {
    identity: Identity,
    lasting: bool,
}

impl UnitMaker {
    pub(super) fn new(state_dir: Option<PathBuf>, targets: &[DraftTarget]) -> Self {
        let terms = |target: &DraftTarget| Terms {
            name: target.name.clone(),
            port_groups: target.port_groups_of_now(),
            explicit: target.explicit,
            identity: target.identity,
        };
        Self { state_dir, targets: targets.iter().map(terms).collect(), before: Vec::new() }
    }

    /// For the disks that a process begins with: they are who they were in the one before.
    pub(super) fn going_on_with(mut self, before: &[CarriedDisk]) -> Self {
        self.before = before.to_vec();
        self
    }

    /// The unit, labelled with its store.
    pub(crate) fn make(
        &self,
        stores: &mut Stores,
        target: &str,
        lun: &DraftLun,
        taken: Taken<'_>,
    ) -> Result<LogicalUnit> {
        let place = || format!("target {target}, LUN {}, store {}", lun.number, lun.store);
        let unit = self.unit(stores, lun, target, taken).with_context(place)?;
        if unit.wipe_has_failed() {
            tracing::warn!(
                target, lun = lun.number, store = %lun.store,
                "a FORMAT UNIT or SANITIZE did not end well: until another one does, hosts \
                 cannot read or write"
            );
        }
        Ok(unit.with_label(super::place::absolute(&lun.store)?))
    }

    /// Who the disk on `store` is. No two units of a daemon are one disk: they would not know of
    /// each other's reservations.
    fn identify(
        &self,
        stores: &Stores,
        store: &dyn Store,
        lun: &DraftLun,
        target: &str,
        policy: IdentityPolicy,
        taken: Taken<'_>,
    ) -> Result<Known> {
        let product = if lun.spec.is_optical() { OPTICAL_PRODUCT } else { PRODUCT };
        let state_dir = self.state_dir.as_deref();
        let sought = Sought { target, lun: lun.number, policy, state_dir };
        let mut known = match &lun.serial {
            Some(serial) if policy == IdentityPolicy::Own => {
                Known { identity: Identity::of_serial(serial, VENDOR, product), lasting: true }
            }
            serial => {
                let DiskNumber { mut number, lasting } =
                    stores.disk_number(store, &lun.spec, sought)?;
                let naa = |number| Identity::of(number, VENDOR, product).naa;
                if store.geometry().read_only && taken(&naa(number)).is_some() {
                    number = in_drive(number, target, lun.number);
                }
                let mut identity = Identity::of(number, VENDOR, product);
                if let Some(serial) = serial {
                    identity.serial.clone_from(serial);
                }
                Known { identity, lasting }
            }
        };
        if let Spec::Scsi(device) = &lun.spec {
            known.identity = stores.identity_of_device(device, known.identity);
        }
        if known.lasting {
            known.identity.content = target::content_number(&lun.spec)?;
        }
        if let Some(before) = self.before_of(target, lun) {
            known.go_on_with(before);
        }
        if let Some((other, number)) = taken(&known.identity.naa) {
            return Err(same_identity(&other, number, &known.identity));
        }
        Ok(known)
    }

    /// Who it was in the process before, if that had this disk there.
    fn before_of(&self, target: &str, lun: &DraftLun) -> Option<&CarriedDisk> {
        let is_there = |disk: &&CarriedDisk| disk.target == target && disk.lun == lun.number;
        let before = self.before.iter().find(is_there)?;
        let what = |word: &str| word.parse().ok().map(|spec| without_filters(&spec));
        let now = super::place::absolute(&lun.store).ok()?;
        (what(&before.store)? == what(&now)?).then_some(before)
    }

    /// A logical unit with what was kept of it.
    fn unit(
        &self,
        stores: &mut Stores,
        lun: &DraftLun,
        target: &str,
        taken: Taken<'_>,
    ) -> Result<LogicalUnit> {
        let (spec, block) = (&lun.spec, lun.block);
        let terms = self.targets.iter().find(|terms| terms.name == target);
        let mut lasting = false;
        let mut known = |stores: &Stores, store: &dyn Store| {
            let policy = terms.map(|terms| terms.identity).unwrap_or_default();
            let known = self.identify(stores, store, lun, target, policy, taken)?;
            lasting = known.lasting;
            anyhow::Ok(known.identity)
        };
        let unit = match lun.protection {
            None if spec.is_optical() => {
                let store = stores.open(spec)?;
                let identity = known(stores, &*store)?;
                return LogicalUnit::optical(identity, store).map_err(anyhow::Error::msg);
            }
            None if spec.is_device() => {
                let store = stores.open(spec)?;
                LogicalUnit::passing(known(stores, &*store)?, store)
            }
            None => {
                let store = stores.open_for(spec, block)?;
                LogicalUnit::new(known(stores, &*store)?, store, block)
            }
            Some(kind) => {
                let (store, format) = stores.open_protected(spec, block, kind)?;
                LogicalUnit::protected(known(stores, &*store)?, store, format)
            }
        };
        let unit = unit.map_err(anyhow::Error::msg)?;
        let mut unit = unit.with_space_warning(lun.space_warning);
        if let Some(terms) = terms {
            unit = unit
                .with_port_groups(terms.port_groups.clone(), terms.explicit)
                .map_err(anyhow::Error::msg)?;
        }
        match &self.state_dir {
            // What is kept of a disk that is gone with the daemon would be found by nobody.
            // Mode parameters and the like a device keeps itself.
            Some(folder) if lasting && spec.is_device() => keep(unit, folder, Kept::Reservations),
            Some(folder) if lasting => {
                Kept::ALL.into_iter().try_fold(unit, |unit, kept| keep(unit, folder, kept))
            }
            _ => Ok(unit),
        }
    }
}

impl Known {
    /// Is who it was in the process before, where nothing but that process has ended.
    fn go_on_with(&mut self, before: &CarriedDisk) {
        let Identity { vendor, product, naa, .. } = &self.identity;
        if self.lasting {
            if hexadecimal(naa) == before.naa {
                self.identity.content = before.content.or(self.identity.content);
            }
            return;
        }
        // A serial number of the configuration before was another name.
        let number = u64::from_str_radix(&before.serial, 16);
        let same = number.map(|number| Identity::of(number, vendor, product));
        if let Ok(same) = same
            && hexadecimal(&same.naa) == before.naa
        {
            self.identity = same;
        }
    }
}

/// Who the disk of `unit` is, for the process that serves it next; None: it tells so itself.
pub(crate) fn carried(target: &str, lun: u16, unit: &LogicalUnit) -> Option<CarriedDisk> {
    let store = unit.label().to_owned();
    if !is_fleeting(&store.parse().ok()?) {
        return None;
    }
    let Identity { serial, naa, content, .. } = unit.identity();
    let (target, serial, naa) = (target.to_owned(), serial.clone(), hexadecimal(naa));
    Some(CarriedDisk { target, lun, store, serial, naa, content: *content })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why a disk is refused that has the identity of LUN `number` of `other`.
pub(super) fn same_identity(other: &str, number: u16, identity: &Identity) -> anyhow::Error {
    let serial = &identity.serial;
    anyhow!(
        "hosts would take it for LUN {number} of {other}, which has the serial number {serial} \
         too; try: serial with a value of its own"
    )
}

/// A medium that may be in many drives.
fn in_drive(number: u64, target: &str, lun: u16) -> u64 {
    let place = Identity::number_of_place(target, lun);
    Identity::number_of(&number.to_be_bytes(), &place.to_be_bytes())
}

/// The unit with one kind of its state as it was kept in `folder`.
fn keep(unit: LogicalUnit, folder: &Path, kept: Kept) -> Result<LogicalUnit> {
    let (file, state) =
        StateFile::open(folder, unit.identity(), kept).with_context(|| unusable(folder))?;
    let path = file.path().to_owned();
    unit.with_keeper(kept, Arc::new(file), state.as_deref())
        .map_err(anyhow::Error::msg)
        .with_context(|| relied_on(&path, kept))
}

/// Whether what is kept in `folder` of the unit with this identity is such that a unit can have it.
pub(super) fn examine_kept(folder: &Path, identity: &Identity) -> Result<()> {
    let store = Arc::new(Null::new(SECTOR)?);
    let block = u32::try_from(SECTOR)?;
    let unit = LogicalUnit::new(identity.clone(), store, block).map_err(anyhow::Error::msg)?;
    Kept::ALL.into_iter().try_fold(unit, |unit, kept| {
        let (path, state) =
            StateFile::examine(folder, identity, kept).with_context(|| unusable(folder))?;
        unit.with_keeper(kept, Arc::new(Nobody), state.as_deref())
            .map_err(anyhow::Error::msg)
            .with_context(|| relied_on(&path, kept))
    })?;
    Ok(())
}

fn unusable(folder: &Path) -> String {
    format!("cannot use {}", folder.display())
}

fn relied_on(path: &Path, kept: Kept) -> String {
    let (path, name) = (path.display(), kept.name());
    format!("{path} holds {name} that hosts rely on; remove it only if none do")
}

/// Keeps nothing: of a unit that is only looked at nothing changes.
#[derive(Debug)]
struct Nobody;

impl Keeper for Nobody {
    fn keep(&self, _: &[u8]) -> Result<(), KeepFailed> {
        Err(KeepFailed)
    }
}
