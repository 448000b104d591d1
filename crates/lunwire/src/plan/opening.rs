// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens the disks of a draft, which makes it a plan.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use anyhow::Result;
use control::admin::CarriedDisk;
use target::LunMap;
use target::Made;
use target::Node;
use target::Plan;
use target::StateFolder;
use target::Stores;

use super::Draft;
use super::files::served_already;
use super::node::DraftTarget;
use super::unit::Taken;
use super::unit::UnitMaker;
use crate::remotes::Opener;

/// A plan, and what it holds.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Ours as long as we serve.
    pub(crate) state_folder: Option<StateFolder>,
    pub(crate) plan: Plan,
    /// Files that this start made.
    pub(crate) made: Made,
}

impl Draft {
    /// Makes the units of this configuration.
    pub(crate) fn unit_maker(&self) -> UnitMaker {
        UnitMaker::new(self.state_dir.clone(), &self.targets)
    }

    /// How many disks it has opened, for who asks while it does.
    pub(crate) const fn opened(&self) -> &Arc<AtomicU64> {
        &self.opened
    }

    /// Opens the stores.
    pub(crate) fn open(&self, before: &[CarriedDisk]) -> Result<Opened> {
        let state_folder = self.state_dir.as_deref().map(StateFolder::take).transpose()?;
        let mut stores =
            Stores::with_remotes(Arc::new(Opener::with_state(self.state_dir.as_deref())));
        let maker = self.unit_maker().going_on_with(before);
        let opened = self.open_nodes(&maker, &mut stores, &self.targets, &|_| None);
        let made = stores.made();
        let nodes = match opened {
            Ok(nodes) => nodes,
            Err(error) => {
                made.take_back();
                return Err(error);
            }
        };
        let plan = Plan {
            portals: self.portals(),
            listening: Vec::new(),
            nodes,
            discovery: self.discovery.clone(),
            stores,
            engine: self.engine,
            mode: self.mode.mode(self.reactors),
            reactors: self.reactors,
            cpus: self.cpus.clone(),
            spin_max: self.spin,
            pool_bytes_max: target::POOL_BYTES_DEFAULT,
            login_timeout: self.login_timeout,
            rdma: self.rdma.of_sockets(),
            adapters: self.adapters(),
            ether: self.ether.clone(),
            frames: Vec::new(),
            capture: None,
            end_wait: target::END_WAIT_DEFAULT,
            isns: self.isns.clone(),
            sessions_max: self.sessions_max,
            connections: self.connections,
            hide_targets: self.hide_targets,
            limits: self.limits(),
        };
        Ok(Opened { state_folder, plan, made })
    }

    /// Opens the disks of these targets. `taken`: where else a disk is served.
    pub(crate) fn open_nodes<'a>(
        &self,
        maker: &UnitMaker,
        stores: &mut Stores,
        targets: impl IntoIterator<Item = &'a DraftTarget>,
        elsewhere: Taken<'_>,
    ) -> Result<Vec<Node>> {
        let mut nodes: Vec<Node> = Vec::new();
        for target in targets {
            let mut luns = LunMap::new();
            for lun in &target.luns {
                let taken = |naa: &[u8]| {
                    let here = lun_with(&target.name, &luns, naa);
                    here.or_else(|| disk_with(&nodes, naa)).or_else(|| elsewhere(naa))
                };
                let made = maker.make(stores, &target.name, lun, &taken);
                let unit = made.map_err(|error| {
                    let before = nodes.iter().flat_map(|node| labelled(&node.name, &node.luns));
                    served_already(error, before.chain(labelled(&target.name, &luns)))
                })?;
                luns.push((lun.number, Arc::new(unit)));
                self.opened.fetch_add(1, Ordering::Relaxed);
            }
            nodes.push(target.node(luns));
        }
        Ok(nodes)
    }
}

/// The disks of a target: its name, their numbers and stores.
fn labelled<'a>(
    target: &'a str,
    luns: &'a LunMap,
) -> impl Iterator<Item = (&'a str, u16, &'a str)> {
    luns.iter().map(move |(number, unit)| (target, *number, unit.label()))
}

/// Where the disk with this designator is among those of `nodes`.
pub(crate) fn disk_with(nodes: &[Node], naa: &[u8]) -> Option<(String, u16)> {
    nodes.iter().find_map(|node| lun_with(&node.name, &node.luns, naa))
}

/// Where the disk with this designator is among those of one target.
fn lun_with(target: &str, luns: &LunMap, naa: &[u8]) -> Option<(String, u16)> {
    let (number, _) = luns.iter().find(|(_, unit)| unit.identity().naa == naa)?;
    Some((target.to_owned(), *number))
}
