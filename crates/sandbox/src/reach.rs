// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files and ports that are left to a process. Those that it has open stay open, with the rights
//! that they had.

use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;

use landlock::ABI;
use landlock::Access;
use landlock::AccessFs;
use landlock::AccessNet;
use landlock::BitFlags;
use landlock::NetPort;
use landlock::PathBeneath;
use landlock::PathFd;
use landlock::Ruleset;
use landlock::RulesetAttr;
use landlock::RulesetCreated;
use landlock::RulesetCreatedAttr;
use landlock::RulesetStatus;
use landlock::Scope;
use landlock::make_bitflags;

use crate::Refused;
use crate::offered::version;

/// What we know of. A kernel that has less does what it can, one that has more does no more.
const KNOWN: ABI = ABI::V6;

/// Of TCP.
const PORTS_SINCE: u32 = 4;
const SIGNALS_SINCE: u32 = 6;

/// What a process may reach. Nothing is executed and no device node made in any case, and signals
/// stay within the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // who puts it on says all of it
pub struct Reach {
    /// None: all files, as far as the system lets it.
    pub files: Option<Files>,
    /// Ports of TCP that it may listen at, 0 for one that the system chooses; None: all.
    pub listen: Option<BTreeSet<u16>>,
    /// It makes no connections of TCP.
    pub no_connections: bool,
}

/// Files, and folders with all that is in them. What does not exist is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // as above
pub struct Files {
    /// May be read.
    pub read: Vec<PathBuf>,
    /// May be read, changed, made and removed.
    pub change: Vec<PathBuf>,
    /// Folders in which sockets are made and removed, and nothing else.
    pub sockets: Vec<PathBuf>,
}

/// What has been put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Confined {
    /// The version of landlock.
    pub version: u32,
    /// Nothing but what was named of files can be opened.
    pub files: bool,
    /// And of ports, or no connections are made.
    pub ports: bool,
    /// Signals stay within the process.
    pub signals: bool,
}

/// Leaves `reach` to this thread and those that it starts.
///
/// # Errors
/// The kernel has no landlock, or does not let this process use it.
pub fn confine(reach: &Reach) -> Result<Confined, Refused> {
    let all = AccessFs::from_all(KNOWN);
    let files = reach.files.as_ref();
    // Without being handled, a rename from one folder to another is refused everywhere.
    let handled = files.map_or_else(|| never() | AccessFs::Refer, |_| all);
    let mut rules = Ruleset::default().handle_access(handled)?.scope(Scope::Signal)?;
    if reach.listen.is_some() {
        rules = rules.handle_access(AccessNet::BindTcp)?;
    }
    if reach.no_connections {
        rules = rules.handle_access(AccessNet::ConnectTcp)?;
    }
    let mut rules = rules.create()?;
    match files {
        None => rules = rules.add_rule(PathBeneath::new(PathFd::new("/")?, AccessFs::Refer))?,
        Some(Files { read, change, sockets }) => {
            let reads = make_bitflags!(AccessFs::{ReadFile | ReadDir});
            let makes = make_bitflags!(AccessFs::{MakeSock | RemoveFile});
            rules = below(rules, read, reads)?;
            rules = below(rules, change, all & !never())?;
            rules = below(rules, sockets, makes)?;
        }
    }
    for port in reach.listen.iter().flatten() {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::BindTcp))?;
    }
    let status = rules.restrict_self()?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(Refused::NoLandlock);
    }
    let version = version(status.landlock);
    let has_ports = reach.listen.is_some() || reach.no_connections;
    Ok(Confined {
        version,
        files: files.is_some(),
        ports: has_ports && version >= PORTS_SINCE,
        signals: version >= SIGNALS_SINCE,
    })
}

/// What is done nowhere.
fn never() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{Execute | MakeChar | MakeBlock})
}

fn below(
    mut rules: RulesetCreated,
    paths: &[PathBuf],
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, Refused> {
    for path in paths {
        let Some(is_folder) = kind(path) else { continue };
        // A file has none of the rights that are about what is in a folder.
        let rights = if is_folder { rights } else { rights & AccessFs::from_file(KNOWN) };
        if !rights.is_empty() {
            let rule = PathBeneath::new(PathFd::new(path)?, rights);
            rules = rules.add_rule(rule)?;
        }
    }
    Ok(rules)
}

/// Whether it is a folder; None: it is not there, or out of reach already.
fn kind(path: &Path) -> Option<bool> {
    path.metadata().ok().map(|facts| facts.is_dir())
}

#[cfg(test)]
mod tests;
