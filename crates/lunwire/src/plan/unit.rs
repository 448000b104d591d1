// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a checked description to a logical unit with what was kept of it: at the start, and of
//! those that come later.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;
use control::admin;
use scsi::Explicit;
use scsi::Identity;
use scsi::Kept;
use scsi::LogicalUnit;
use scsi::PortGroup;
use target::StateFile;
use target::Stores;

use super::lun::DraftLun;
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
}

/// What the units of one target have in common.
#[derive(Clone, Debug)]
struct Terms {
    name: String,
    port_groups: Vec<PortGroup>,
    explicit: Explicit,
}

impl UnitMaker {
    pub(super) fn new(state_dir: Option<PathBuf>, targets: &[DraftTarget]) -> Self {
        let terms = |target: &DraftTarget| Terms {
            name: target.name.clone(),
            port_groups: target.port_groups.clone(),
            explicit: target.explicit,
        };
        Self { state_dir, targets: targets.iter().map(terms).collect() }
    }

    /// The unit, and what administration shows of it.
    pub(crate) fn make(
        &self,
        stores: &mut Stores,
        target: &str,
        lun: &DraftLun,
    ) -> Result<(LogicalUnit, admin::Lun)> {
        let place = || format!("target {target}, LUN {}, store {}", lun.number, lun.store);
        let product = if lun.spec.is_optical() { OPTICAL_PRODUCT } else { PRODUCT };
        let mut identity = Identity::derive(target, lun.number, VENDOR, product);
        if let Some(serial) = &lun.serial {
            identity.serial.clone_from(serial);
        }
        let unit = self.unit(identity, stores, lun, target).with_context(place)?;
        let geometry = unit.store().geometry();
        if unit.wipe_has_failed() {
            tracing::warn!(
                target, lun = lun.number, store = %lun.store,
                "a FORMAT UNIT or SANITIZE did not end well: until another one does, hosts \
                 cannot read or write"
            );
        }
        let shown = admin::Lun {
            number: lun.number,
            store: lun.store.clone(),
            bytes: geometry.bytes,
            block: unit.block(),
            read_only: geometry.read_only,
            lost_writes: false,
        };
        Ok((unit, shown))
    }

    /// A logical unit with what was kept of it.
    fn unit(
        &self,
        identity: Identity,
        stores: &mut Stores,
        lun: &DraftLun,
        target: &str,
    ) -> Result<LogicalUnit> {
        let (spec, block) = (&lun.spec, lun.block);
        let unit = match lun.protection {
            None if spec.is_optical() => {
                let store = stores.open(spec)?;
                return LogicalUnit::optical(identity, store).map_err(anyhow::Error::msg);
            }
            None => LogicalUnit::new(identity, stores.open(spec)?, block),
            Some(kind) => {
                let (store, format) = stores.open_protected(spec, block, kind)?;
                LogicalUnit::protected(identity, store, format)
            }
        };
        let unit = unit.map_err(anyhow::Error::msg)?;
        let mut unit = unit.with_space_warning(lun.space_warning);
        if let Some(terms) = self.targets.iter().find(|terms| terms.name == target) {
            unit = unit
                .with_port_groups(terms.port_groups.clone(), terms.explicit)
                .map_err(anyhow::Error::msg)?;
        }
        match &self.state_dir {
            None => Ok(unit),
            Some(folder) => {
                Kept::ALL.into_iter().try_fold(unit, |unit, kept| keep(unit, folder, kept))
            }
        }
    }
}

/// The unit with one kind of its state as it was kept in `folder`.
fn keep(unit: LogicalUnit, folder: &Path, kept: Kept) -> Result<LogicalUnit> {
    let (file, state) = StateFile::open(folder, unit.identity(), kept)
        .with_context(|| format!("cannot use {}", folder.display()))?;
    let path = file.path().to_owned();
    unit.with_keeper(kept, Arc::new(file), state.as_deref())
        .map_err(anyhow::Error::msg)
        .with_context(|| {
            let (path, name) = (path.display(), kept.name());
            format!("{path} holds {name} that hosts rely on; remove it only if none do")
        })
}
