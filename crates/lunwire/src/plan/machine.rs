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
        too_much_memory(disks)
    }
}

/// A warning if disks in memory of so many bytes can be filled beyond what this machine has.
pub(crate) fn too_much_memory(disks: u64) -> Option<String> {
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

/// Bytes that a program can have without harm to the others.
pub(crate) fn free_memory() -> u64 {
    let facts = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    available(&facts).unwrap_or_else(|| {
        let machine = rustix::system::sysinfo();
        machine.freeram.saturating_mul(machine.mem_unit.into())
    })
}

/// What proc(5) calls MemAvailable.
fn available(facts: &str) -> Option<u64> {
    let line = facts.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_as_the_kernel_tells_it() {
        let facts = "MemTotal:  200 kB\nMemFree:  10 kB\nMemAvailable:   100 kB\nBuffers: 1 kB\n";
        assert_eq!(available(facts), Some(100 << 10));
        assert_eq!(available("MemTotal:  200 kB\n"), None);
        assert!(free_memory() > 0);
    }
}
