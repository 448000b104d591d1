// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a daemon needs of files and of the network to serve a configuration.

use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use engine::files::folder_of;
use sandbox::Files;
use sandbox::Reach;
use store::spec::Spec;

use super::Draft;
use super::lun::DraftLun;

/// What a daemon gives up when it serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wish {
    /// What no configuration needs.
    #[default]
    Auto,
    /// All that this configuration does not need.
    Yes,
    No,
}

impl Wish {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Yes => "yes",
            Self::No => "no",
        }
    }
}

/// What is needed later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A file, or a folder with all in it.
    Read(PathBuf),
    Change(PathBuf),
    /// Connections to other machines.
    Connections,
    /// Portals that this configuration has not.
    Portals,
}

/// Where the system has what its libraries read: names, time zones, who is who, what there is.
const SYSTEM: [&str; 10] = [
    "/dev/random",
    "/dev/urandom",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/run/resolvconf",
    "/run/systemd/resolve",
    "/sys",
    "/usr",
];
const SYSTEM_CHANGED: [&str; 1] = ["/dev/null"];
const ADAPTERS: &str = "/dev/infiniband";

/// Where Ceph's client has its configuration and its keys, and what it writes if that says so.
const CEPH: &str = "/var/lib/ceph";
const CEPH_NAMES: [&str; 2] = ["CEPH_CONF", "CEPH_KEYRING"];
const CEPH_CHANGED: [&str; 2] = ["/run/ceph", "/var/log/ceph"];

pub(super) fn wish(text: &str) -> Result<Wish, &'static str> {
    match text {
        "auto" => Ok(Wish::Auto),
        "yes" => Ok(Wish::Yes),
        "no" => Ok(Wish::No),
        _ => Err("auto, yes or no is right"),
    }
}

/// A word of `sandbox-allow`; `path`: what it names if it is a path.
pub(super) fn allowed(text: &str, path: PathBuf) -> Result<Need, &'static str> {
    match text {
        "connect" => Ok(Need::Connections),
        "listen" => Ok(Need::Portals),
        _ if path.exists() => Ok(Need::Change(path)),
        _ => Err("a file or folder that is there, connect or listen is right"),
    }
}

impl Draft {
    /// What serving it needs. `config`: the file that is read again; `socket`: where orders come
    /// in.
    pub(crate) fn reach(&self, config: Option<&Path>, socket: Option<&Path>) -> Reach {
        let all = self.targets.iter().flat_map(|target| &target.luns);
        let mut needs: Vec<Need> = all.flat_map(DraftLun::needs).collect();
        needs.extend(there(&SYSTEM).map(Need::Read));
        needs.extend(there(&SYSTEM_CHANGED).map(Need::Change));
        let adapters = self.adapters();
        if !adapters.at.is_empty() || !adapters.where_any.is_empty() {
            needs.extend(there(&[ADAPTERS]).map(Need::Change));
        }
        needs.extend(self.isns.iter().map(|_| Need::Connections));
        needs.extend(self.state_dir.iter().cloned().map(Need::Change));
        needs.extend(self.capture.iter().map(|(path, _)| Need::Change(path.clone())));
        // A file that is exchanged for another one is another one: so the folders.
        let of_text = self.accounts.files().iter().map(PathBuf::as_path).chain(config);
        let folders = of_text.flat_map(|path| [folder_of(path).to_owned(), real(path)]);
        needs.extend(folders.map(Need::Read));
        let mut files = Files::default();
        for need in &needs {
            match need {
                Need::Read(path) => files.read.push(granted(path)),
                Need::Change(path) => files.change.push(granted(path)),
                Need::Connections | Need::Portals => {}
            }
        }
        for allowed in &self.sandbox_allow {
            match allowed {
                Need::Read(path) | Need::Change(path) => files.change.push(real(path)),
                Need::Connections | Need::Portals => needs.push(allowed.clone()),
            }
        }
        files.sockets.extend(socket.map(|path| real(folder_of(path))));
        Reach {
            files: Some(files),
            listen: (!needs.contains(&Need::Portals)).then(|| self.ports()),
            no_connections: !needs.contains(&Need::Connections),
        }
    }

    /// Ports of TCP at which it is reached.
    fn ports(&self) -> BTreeSet<u16> {
        let portals = self.portals().into_iter().map(|portal| portal.address);
        let others = self.rdma_listen.iter().copied().chain(self.http);
        portals.chain(others).map(|address| address.port()).collect()
    }
}

impl DraftLun {
    /// What opening it needs.
    pub(crate) fn needs(&self) -> Vec<Need> {
        let mut needs = Vec::new();
        of_store(&self.spec, &mut needs);
        if let (Some(_), Spec::File(file)) = (self.protection, self.spec.unfiltered()) {
            needs.push(Need::Change(format!("{}.pi", file.path).into()));
        }
        needs
    }
}

fn of_store(spec: &Spec, needs: &mut Vec<Need>) {
    match spec {
        Spec::File(file) if file.read_only => needs.push(Need::Read(file.path.clone().into())),
        Spec::File(file) => {
            needs.push(Need::Change(file.path.clone().into()));
            needs.extend(engine::files::file_behind(file.path.as_ref()).map(Need::Change));
        }
        Spec::Iso { path } => needs.push(Need::Read(path.into())),
        Spec::Scsi(device) => {
            needs.push(Need::Change(device.path.clone().into()));
            needs.extend(nodes_of(device.path.as_ref()).into_iter().map(Need::Change));
        }
        Spec::Stripe { stores, .. } => stores.iter().for_each(|store| of_store(store, needs)),
        Spec::Filtered { behind, .. } => of_store(behind, needs),
        Spec::Rbd(image) => {
            let named = [&image.conf, &image.keyring].into_iter().flatten().cloned();
            let of_environment = CEPH_NAMES.iter().filter_map(|name| std::env::var(name).ok());
            let named: Vec<String> = named.chain(of_environment).collect();
            // A list of files may be named.
            let named = named.iter().flat_map(|paths| paths.split(',')).map(PathBuf::from);
            needs.extend(named.filter(|path| path.exists()).map(Need::Read));
            needs.extend(there(&[CEPH]).map(Need::Read));
            needs.extend(there(&CEPH_CHANGED).map(Need::Change));
            needs.push(Need::Connections);
        }
        Spec::Remote(disk) => {
            let named = [&disk.secret_file, &disk.mutual_secret_file].into_iter().flatten();
            needs.extend(named.map(|path| Need::Read(path.into())));
            needs.extend(there(&[ADAPTERS]).map(Need::Change));
            needs.push(Need::Connections);
        }
        Spec::Memory { .. } | Spec::Null { .. } => {}
    }
}

/// Those that are there: no other is made.
fn there(paths: &[&str]) -> impl Iterator<Item = PathBuf> {
    paths.iter().map(PathBuf::from).filter(|path| path.exists())
}

/// The other nodes of the device whose node this is: who serves it keeps the system from them.
fn nodes_of(path: &Path) -> Vec<PathBuf> {
    let Ok(facts) = path.metadata() else { return Vec::new() };
    let kind = if facts.file_type().is_block_device() { "block" } else { "char" };
    let (major, minor) = (rustix::fs::major(facts.rdev()), rustix::fs::minor(facts.rdev()));
    let device = PathBuf::from(format!("/sys/dev/{kind}/{major}:{minor}/device"));
    let named = ["block", "scsi_generic"].map(|class| std::fs::read_dir(device.join(class)));
    let named = named.into_iter().flatten().flatten().flatten();
    named.map(|entry| Path::new("/dev").join(entry.file_name())).collect()
}

/// Where `path` leads; of what is not there, where it would be.
pub(crate) fn real(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let folder = || Some(folder_of(&whole).canonicalize().ok()?.join(whole.file_name()?));
    whole.canonicalize().ok().or_else(folder).unwrap_or(whole)
}

/// What is left where `path` is needed: a file may be made, exchanged for another one, and have
/// others beside it, so that is its folder, unless that is one in which the system has its own.
fn granted(path: &Path) -> PathBuf {
    let real = real(path);
    let is_file = real.metadata().map_or(true, |facts| facts.is_file());
    let folder = folder_of(&real);
    let is_the_systems = [Path::new("/"), Path::new("/dev")].contains(&folder);
    if is_file && !is_the_systems { folder.to_owned() } else { real }
}
