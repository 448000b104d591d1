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

/// What of it is elsewhere if links lead there: who manages the network has one of its own.
const SYSTEM_LINKED: [&str; 3] = ["/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf"];
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
    /// Places of disks of other targets.
    pub(crate) fn remote_disks(&self) -> Vec<&str> {
        let luns = self.targets.iter().flat_map(|target| &target.luns);
        luns.flat_map(|lun| remotes_of(&lun.spec)).collect()
    }

    /// What serving it needs. `config`: the file that is read again; `socket`: where orders come
    /// in.
    pub(crate) fn reach(&self, config: Option<&Path>, socket: Option<&Path>) -> Reach {
        let all = self.targets.iter().flat_map(|target| &target.luns);
        let mut needs: Vec<Need> = all.flat_map(DraftLun::needs).collect();
        needs.extend(there(&SYSTEM).chain(linked(&SYSTEM_LINKED)).map(Need::Read));
        needs.extend(there(&SYSTEM_CHANGED).map(Need::Change));
        let adapters = self.adapters();
        if !adapters.at.is_empty() || !adapters.where_any.is_empty() {
            needs.extend(there(&[ADAPTERS]).map(Need::Change));
        }
        needs.extend(self.isns.iter().map(|_| Need::Connections));
        needs.extend(self.state_dir.iter().cloned().map(Need::Change));
        needs.extend(self.capture.iter().map(|(path, _)| Need::Change(path.clone())));
        // A file that is exchanged for another one is another one: so the folders, also that in
        // which a link is exchanged.
        let of_http = self.http_tokens.as_deref().into_iter().chain(self.http_tls.files());
        let read_again = config.into_iter().chain(of_http);
        for path in self.accounts.files().iter().map(|(path, _)| path.as_path()).chain(read_again) {
            let folder = real(folder_of(path));
            needs.extend((!is_the_systems(&folder)).then_some(Need::Read(folder)));
            needs.push(Need::Read(path.to_owned()));
        }
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

    /// What is said of what is left by a sandbox that takes nothing of it.
    pub(super) fn idle_allowance(&self) -> Option<String> {
        let is_idle = self.sandbox != Wish::Yes && !self.sandbox_allow.is_empty();
        let wish = self.sandbox.name();
        is_idle.then(|| {
            format!(
                "sandbox-allow (--sandbox-allow) is for sandbox = \"yes\" (--sandbox), and it is \
                 {wish}, which leaves all files and ports; try: --sandbox=yes, or without it"
            )
        })
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

fn remotes_of(spec: &Spec) -> Vec<&str> {
    match spec {
        Spec::Stripe { stores, .. } => stores.iter().flat_map(remotes_of).collect(),
        Spec::Filtered { behind, .. } => remotes_of(behind),
        Spec::Remote(disk) => vec![&disk.url],
        _ => Vec::new(),
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

/// Those of them that links lead to something else.
fn linked(paths: &[&str]) -> impl Iterator<Item = PathBuf> {
    there(paths).filter(|path| real(path) != *path)
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
    if is_file && !is_the_systems(folder) { folder.to_owned() } else { real }
}

fn is_the_systems(folder: &Path) -> bool {
    ["/", "/dev"].map(Path::new).contains(&folder)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    #[test]
    fn a_file_is_left_with_its_folder_and_a_device_alone() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().canonicalize().unwrap();
        std::fs::write(here.join("disk"), b"x").unwrap();
        std::fs::create_dir(here.join("links")).unwrap();
        std::os::unix::fs::symlink(here.join("disk"), here.join("links/disk")).unwrap();
        for path in ["disk", "missing", "links/disk", "links/../disk"] {
            assert_eq!(granted(&here.join(path)), here, "{path}");
        }
        for path in ["/dev/null", "/dev/missing", "/missing", "/etc"] {
            assert_eq!(granted(path.as_ref()), Path::new(path));
        }
    }

    /// The file is exchanged for another one when the network changes.
    #[test]
    fn names_are_left_where_a_link_leads_to_them() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().canonicalize().unwrap();
        std::fs::create_dir(here.join("netconfig")).unwrap();
        std::fs::write(here.join("netconfig/resolv.conf"), b"x").unwrap();
        std::fs::write(here.join("hosts"), b"x").unwrap();
        std::os::unix::fs::symlink("netconfig/resolv.conf", here.join("resolv.conf")).unwrap();
        let paths = ["hosts", "resolv.conf", "missing"].map(|name| here.join(name));
        let paths = paths.each_ref().map(|path| path.to_str().unwrap());
        let left: Vec<PathBuf> = linked(&paths).map(|path| granted(&path)).collect();
        assert_eq!(left, [here.join("netconfig")]);
    }

    #[test]
    fn a_store_needs_what_its_members_need() {
        let needs = |word: &str| DraftLun::new(0, word, word.parse().unwrap()).needs();
        let change = |path: &str| Need::Change(path.into());
        let stripe = "stripe:64K(file:/a;file:/b,readonly),limit=10iops";
        assert_eq!(needs(stripe), [change("/a"), Need::Read("/b".into())]);
        assert_eq!(needs("memory:1M"), []);
        let remote = needs("iscsi://a@127.0.0.1/iqn.2026-01.test:a/0,secret-file=/s");
        assert_eq!(remote.first(), Some(&Need::Read("/s".into())));
        assert_eq!(remote.last(), Some(&Need::Connections));
        let mut protected = DraftLun::new(0, "file:/a", "file:/a".parse().unwrap());
        protected.protection = scsi::ProtectionType::from_number(1);
        assert_eq!(protected.needs(), [change("/a"), change("/a.pi")]);
    }

    #[test]
    fn disks_of_other_targets_are_found_behind_all_there_is() {
        let [past, plain] = [
            "ether://02:00:5e:10:00:01%i0/iqn.2026-01.test:a/0?frames=xdp",
            "iscsi://127.0.0.1/iqn.2026-01.test:a/0",
        ];
        let word = format!("stripe:64K({past};{plain},wait=5s;file:/a),limit=10iops");
        let spec: Spec = word.parse().unwrap();
        assert_eq!(remotes_of(&spec), [past, plain]);
        assert!(remotes_of(&Spec::Memory { bytes: 512 }).is_empty());
    }

    #[test]
    fn ports_are_those_of_the_configuration() {
        let mut draft = Draft::new();
        draft.listen = vec!["127.0.0.1:3260".parse().unwrap()];
        draft.http = Some("127.0.0.1:0".parse().unwrap());
        let reach = draft.reach(None, None);
        assert_eq!(reach.listen, Some(BTreeSet::from([0, 3260])));
        assert!(reach.no_connections);
        draft.isns = Some("name:3205".into());
        draft.sandbox_allow = vec![Need::Portals];
        let reach = draft.reach(None, None);
        assert!(reach.listen.is_none() && !reach.no_connections);
    }

    /// Another certificate takes the place of the one that is there, under its name.
    #[test]
    fn a_certificate_is_left_with_its_folder() {
        let mut draft = Draft::new();
        draft.http_tls = super::super::HttpTls::at("/a/cert", "/b/key");
        let read = draft.reach(None, None).files.unwrap().read;
        for path in ["/a", "/b"] {
            assert!(read.contains(&path.into()), "{path}: {read:?}");
        }
    }

    /// The file system's root would be everything.
    #[test]
    fn a_configuration_at_the_top_leaves_no_more_than_itself() {
        let files = Draft::new().reach(Some("/lunwire.toml".as_ref()), None).files.unwrap();
        assert!(files.read.contains(&"/lunwire.toml".into()), "{files:?}");
        assert!(!files.read.iter().chain(&files.change).any(|path| path == Path::new("/")));
    }
}
