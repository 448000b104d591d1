// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A look at what a configuration needs of the machine besides files.

use std::io;

use control::units;
use engine::Choice;
use target::Error;
use target::Portal;

use super::Draft;
use super::lun::memory_of;

impl Draft {
    /// Whether a target could start, as far as can be seen without listening; who has its portals
    /// now does not count.
    pub(crate) fn examine_machine(&self) -> Vec<anyhow::Error> {
        let mut wrong = Vec::new();
        for Portal { address, .. } in self.portals() {
            let failed = |source| Error::Listen { address, source };
            wrong.extend(engine::examine_address(address).map_err(failed).err());
        }
        if self.engine == Choice::Uring {
            let engine = self.engine.name();
            let failed = |refusal| Error::Engine { engine, source: io::Error::other(refusal) };
            wrong.extend(engine::probe().uring.map_err(failed).err());
        }
        wrong.into_iter().map(anyhow::Error::from).collect()
    }

    /// A warning if hosts can write more to disks in memory than this machine has.
    pub(super) fn too_much_memory(&self) -> Option<String> {
        let luns = self.targets.iter().flat_map(|target| &target.luns);
        let disks = luns.map(|lun| memory_of(&lun.spec)).fold(0, u64::saturating_add);
        let machine = rustix::system::sysinfo();
        let machine = machine.totalram.saturating_mul(machine.mem_unit.into());
        (disks > machine).then(|| {
            format!(
                "the disks in memory have {} in all, and this machine has {}: the system ends the \
                 daemon when hosts have filled them so far, and what is on them is lost; try: \
                 smaller ones, or file:PATH,size=SIZE",
                units::bytes(disks),
                units::bytes(machine)
            )
        })
    }
}
