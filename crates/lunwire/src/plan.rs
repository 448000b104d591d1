// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From configuration file and options to a plan: every value checked, every error with its place.

mod carried;
mod check;
mod difference;
mod document;
mod dump;
mod files;
mod images;
pub(crate) mod limit;
mod listeners;
mod lun;
pub(crate) mod machine;
mod mode;
mod node;
mod opening;
mod options;
mod place;
mod rdma;
mod reach;
mod secured;
mod transfer;
mod unit;

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use control::config::Source;
use engine::Choice;
use iscsi::target_role::DigestPolicy;
use store::spec::Spec;
use target::AuthenticationPolicy;
use target::ConnectionLimits;
use target::Limit;
use target::Limited;
use target::Portal;
use target::Rdma;
use target::SESSIONS_MAX;

use crate::args::ServeOptions;
use crate::args::Usage;
use crate::credentials::Accounts;

use mode::DraftMode;
use node::DraftTarget;
use node::Open;
use rdma::Provider;
use secured::HttpTls;

pub(crate) use check::addresses;
pub(crate) use check::allowed_cpu;
pub(crate) use check::checked;
pub(crate) use check::listened_once;
pub(crate) use check::option;
pub(crate) use difference::Difference;
pub(crate) use dump::Dumped;
pub(crate) use dump::Served;
pub(crate) use files::Examination;
pub(crate) use files::served_already;
pub(crate) use images::Described;
pub(crate) use images::await_clusters;
pub(crate) use images::is_of_snapshots;
pub(crate) use images::makes_images;
pub(crate) use lun::DraftLun;
pub(crate) use lun::initiators;
pub(crate) use lun::is_in_memory;
pub(crate) use lun::memory_of;
pub(crate) use lun::memory_of_all;
pub(crate) use lun::number as lun_number;
pub(crate) use lun::store_of_now;
pub(crate) use opening::Opened;
pub(crate) use opening::disk_with;
pub(crate) use place::absolute;
pub(crate) use place::folder_of;
pub(crate) use place::of_file as path_of_file;
pub(crate) use place::whole_options;
pub(crate) use reach::Need;
pub(crate) use reach::Wish;
pub(crate) use reach::real;
pub(crate) use unit::UnitMaker;
pub(crate) use unit::carried as carried_disk;

const DEFAULT_LISTEN: &str = "127.0.0.1:3260";
pub(crate) const DEFAULT_TARGET: &str = "iqn.2026-01.local.lunwire:disk";
pub(crate) const DEFAULT_STORE: &str = "memory:1G";
const DEFAULT_SPIN: Duration = Duration::from_micros(100);

/// Longest configuration, bytes: more than 100,000 disks with all that can be said of them.
const CONFIG_LEN_MAX: u64 = 16 << 20;

/// A configuration whose every value is good, before anything is opened.
#[derive(Debug)]
pub(crate) struct Draft {
    /// The file, as it was read.
    source: Option<Source>,
    pub(crate) listen: Vec<SocketAddr>,
    portal_groups: Vec<Portal>,
    pub(crate) engine: Choice,
    mode: DraftMode,
    pub(crate) reactors: usize,
    pub(crate) cpus: Vec<usize>,
    pub(crate) spin: Duration,
    pub(crate) login_timeout: Duration,
    rdma: Provider,
    /// Of single portals.
    rdma_of: Vec<(SocketAddr, Provider)>,
    rdma_listen: Vec<SocketAddr>,
    /// Interfaces at which frames are taken.
    pub(crate) ether: Vec<target::Interface>,
    /// File and bytes of a capture.
    pub(crate) capture: Option<(PathBuf, u64)>,
    sessions_max: usize,
    connections: ConnectionLimits,
    hide_targets: bool,
    /// Commands are told of that take so long; zero: none.
    slow: Duration,
    /// Where HTTP is spoken.
    pub(crate) http: Option<SocketAddr>,
    pub(crate) http_tokens: Option<PathBuf>,
    /// That file, and what it was when it was read.
    tokens_as_read: Option<(PathBuf, Option<Metadata>)>,
    pub(crate) http_tls: HttpTls,
    pub(crate) log: String,
    pub(crate) control_socket: Option<PathBuf>,
    pub(crate) state_dir: Option<PathBuf>,
    isns: Option<String>,
    pub(crate) sandbox: Wish,
    /// What it leaves beside what the configuration needs.
    sandbox_allow: Vec<Need>,
    pub(crate) targets: Vec<DraftTarget>,
    /// Nobody named a target: there is one with a disk in memory.
    pub(crate) default_disk: bool,
    discovery: AuthenticationPolicy,
    accounts: Accounts,
    /// The disks that file and options have: target, number, store. Orders change nothing of it.
    as_read: Vec<(String, u16, String)>,
    /// Its limits then, by target.
    limits_as_read: Vec<(String, Vec<Limit>)>,
    /// Disks that were opened by it.
    opened: Arc<AtomicU64>,
}

/// What a configuration has of iSER.
#[derive(Debug, Default)]
pub(crate) struct DescribedIser {
    /// The portals that speak it by software iWARP.
    pub(crate) portals: Vec<String>,
    /// Where adapters are to listen, and whether they must.
    pub(crate) adapters: Vec<(SocketAddr, bool)>,
    /// Targets that insist on digests, which are none there, and the keys that say so.
    pub(crate) without_digests: Vec<(String, Vec<&'static str>)>,
}

impl Draft {
    pub(crate) fn new() -> Self {
        Self {
            source: None,
            listen: Vec::new(),
            portal_groups: Vec::new(),
            engine: Choice::Auto,
            mode: DraftMode::default(),
            reactors: 1,
            cpus: Vec::new(),
            spin: DEFAULT_SPIN,
            login_timeout: target::LOGIN_TIMEOUT_DEFAULT,
            rdma: Provider::Off,
            rdma_of: Vec::new(),
            rdma_listen: Vec::new(),
            ether: Vec::new(),
            capture: None,
            sessions_max: SESSIONS_MAX,
            connections: ConnectionLimits::default(),
            hide_targets: false,
            slow: Duration::ZERO,
            http: None,
            http_tokens: None,
            tokens_as_read: None,
            http_tls: HttpTls::default(),
            log: "info".into(),
            control_socket: None,
            state_dir: None,
            isns: None,
            sandbox: Wish::default(),
            sandbox_allow: Vec::new(),
            targets: Vec::new(),
            default_disk: false,
            discovery: AuthenticationPolicy::default(),
            accounts: Accounts::default(),
            as_read: Vec::new(),
            limits_as_read: Vec::new(),
            opened: Arc::default(),
        }
    }

    /// Reads and checks a configuration file, and gives all that is wrong: the draft is one of what
    /// is right.
    pub(crate) fn from_file(path: &Path) -> Result<(Self, Vec<anyhow::Error>)> {
        let mut draft = Self::new();
        let mut wrong = draft.take_document(&read_configuration(path)?);
        if wrong.is_empty() {
            wrong.extend(draft.take_defaults().err());
            wrong.extend(draft.take_tls().err());
        }
        Ok((draft, wrong))
    }

    /// What its file said; None: there is none.
    pub(crate) fn text(&self) -> Option<&str> {
        self.source.as_ref().map(Source::text)
    }

    /// The files beside the configuration that were read with it: secrets, tokens, certificates.
    pub(crate) fn files_read(&self) -> Vec<PathBuf> {
        self.facts_as_read().into_iter().map(|(path, _)| path).collect()
    }

    /// What those files were when they were read, each once; None: one was not there.
    pub(crate) fn facts_as_read(&self) -> Vec<(PathBuf, Option<Metadata>)> {
        let secrets = self.accounts.files().iter();
        let secrets = secrets.map(|(path, facts)| (path.clone(), Some(facts.clone())));
        let of_http = self.http_tls.facts_as_read().iter().cloned();
        let mut facts = BTreeMap::new();
        for (path, fact) in secrets.chain(of_http).chain(self.tokens_as_read.clone()) {
            facts.entry(path).or_insert(fact);
        }
        facts.into_iter().collect()
    }

    /// The folder from which its paths count.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.source.as_ref().and_then(Source::folder)
    }

    /// The configuration file, if any, with the options on top.
    pub(crate) fn from_options(options: &ServeOptions) -> Result<Self> {
        let mut draft = Self::new();
        if let Some(path) = &options.config {
            let source = read_configuration(path)?;
            let wrong = draft.take_document(&source);
            if let Some(first) = wrong.into_iter().next() {
                return Err(first);
            }
            draft.source = Some(source);
        }
        let of_file = draft.targets.len();
        draft.take_options(options)?;
        draft.take_defaults()?;
        draft.take_tls().map_err(|error| secured::blamed(options, error))?;
        draft.take_credentials(options, of_file)?;
        if options.markers {
            draft.targets.iter_mut().for_each(|target| target.settings.markers = true);
        }
        draft.as_read = draft.places().collect();
        draft.limits_as_read = draft.limits();
        Ok(draft)
    }

    /// What is odd and does not prevent serving.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.accounts.warnings().to_vec();
        warnings.extend(self.open_to_everybody());
        warnings.extend(self.http_tls.warning());
        warnings.extend(self.idle_http());
        warnings.extend(self.idle_allowance());
        warnings.extend(self.too_much_memory());
        warnings.extend(self.too_little_room());
        warnings
    }

    /// Warnings of disks that are for everybody in every network that this machine is in.
    fn open_to_everybody(&self) -> Vec<String> {
        let portals = self.listen.iter().copied();
        let mut portals = portals.chain(self.portal_groups.iter().map(|portal| portal.address));
        let Some(portal) = portals.find(|address| address.ip().is_unspecified()) else {
            return Vec::new();
        };
        let warning = |open: Open, whom: &str| {
            let targets = self.targets.iter().filter(|target| target.open() == Some(open));
            let targets: Vec<&str> = targets.map(|target| target.name.as_str()).collect();
            (!targets.is_empty()).then(|| {
                format!(
                    "{} can be used by everybody who reaches any address of this machine \
                     ({portal}){whom}; try: --listen (listen) with one address, or chap-user",
                    targets.join(", ")
                )
            })
        };
        let named = " and tells a name of its list of initiators, which nobody has to prove";
        [warning(Open::ToAll, ""), warning(Open::ToNames, named)].into_iter().flatten().collect()
    }

    /// What nobody said.
    fn take_defaults(&mut self) -> Result<()> {
        if self.listen.is_empty() {
            self.listen.extend(addresses(DEFAULT_LISTEN).map_err(Usage)?);
        }
        if self.targets.is_empty() {
            let mut target = DraftTarget::new(DEFAULT_TARGET.to_owned());
            let spec = DEFAULT_STORE.parse::<Spec>().map_err(|error| Usage(error.to_string()))?;
            target.luns.push(DraftLun::new(0, DEFAULT_STORE, spec));
            self.targets.push(target);
            self.default_disk = true;
        }
        // The options may have changed what the file has.
        let groups: Vec<SocketAddr> =
            self.portal_groups.iter().map(|portal| portal.address).collect();
        listened_once(&self.listen, &groups).map_err(|problem| {
            anyhow!("the portals of listen and of [[portal-group]]: {problem}")
        })?;
        let known = self.all_portals();
        if let Some((address, _)) = self.rdma_of.iter().find(|(one, _)| !known.contains(one)) {
            bail!("[[portal]] {address}: it is no portal any more, since --listen is given");
        }
        let own = self.rdma_of.iter().filter(|(_, provider)| provider.has_adapters());
        let own: Vec<SocketAddr> = own.map(|(address, _)| *address).collect();
        listened_once(&self.rdma_listen, &own).map_err(|problem| {
            anyhow!("the addresses of rdma-listen and the adapters of [[portal]]: {problem}")
        })?;
        self.mode.check(self.reactors)
    }

    /// What of iSER there is.
    pub(crate) fn describe_iser(&self) -> DescribedIser {
        let speaks =
            |portal: &Portal| portal.rdma.unwrap_or_else(|| self.rdma.of_sockets()) != Rdma::Off;
        let portals = self.portals().into_iter().filter(speaks);
        let portals: Vec<String> = portals.map(|portal| portal.address.to_string()).collect();
        let mut without_digests = Vec::new();
        let wanted = self.adapters();
        let must = wanted.at.iter().map(|portal| (portal.address, true));
        let may = wanted.where_any.iter().map(|portal| (portal.address, false));
        let adapters: Vec<(SocketAddr, bool)> = must.chain(may).collect();
        let is_any = !portals.is_empty() || !adapters.is_empty();
        for target in self.targets.iter().filter(|_| is_any) {
            let settings = &target.settings;
            let keys =
                [("header-digest", settings.header_digest), ("data-digest", settings.data_digest)];
            let required = keys.into_iter().filter(|(_, policy)| *policy == DigestPolicy::Required);
            let keys: Vec<&str> = required.map(|(key, _)| key).collect();
            if !keys.is_empty() {
                without_digests.push((target.name.clone(), keys));
            }
        }
        DescribedIser { portals, adapters, without_digests }
    }

    /// All that is listened on.
    pub(crate) fn portals(&self) -> Vec<Portal> {
        let portals = self.listen.iter().copied().map(Portal::from);
        let portals = portals.chain(self.portal_groups.iter().copied());
        let own = |portal: Portal| {
            let rdma = self.own_provider(portal.address).map(Provider::of_sockets);
            Portal { rdma, ..portal }
        };
        portals.map(own).collect()
    }

    /// Their addresses, also that which nobody has said.
    fn all_portals(&self) -> Vec<SocketAddr> {
        let portals = self.portals().into_iter().map(|portal| portal.address);
        let default = addresses(DEFAULT_LISTEN).unwrap_or_default();
        portals.chain(default.into_iter().filter(|_| self.listen.is_empty())).collect()
    }

    /// The disk of an order is among those of its target from now on.
    pub(crate) fn add_lun(&mut self, target: &str, lun: DraftLun) {
        let draft = self.targets.iter_mut().find(|draft| draft.name == target);
        if let Some(draft) = draft {
            draft.luns.retain(|other| other.number != lun.number);
            draft.luns.push(lun);
        }
    }

    /// Disks that are not served any more are not among it.
    pub(crate) fn keep_luns(&mut self, is_served: impl Fn(&str, u16) -> bool) {
        for DraftTarget { name, luns, limits, .. } in &mut self.targets {
            luns.retain(|lun| is_served(name, lun.number));
            limits.retain(|limit| match limit.of {
                Limited::Lun(number) => is_served(name, number),
                _ => true,
            });
        }
    }

    /// The limits, by target.
    pub(crate) fn limits(&self) -> Vec<(String, Vec<Limit>)> {
        let of = |target: &DraftTarget| target.limits_of_now().cloned().collect();
        self.targets.iter().map(|target| (target.name.clone(), of(target))).collect()
    }

    /// A limit that came by an order is among those of its target from now on.
    pub(crate) fn set_limit(&mut self, target: &str, limit: Limit) {
        let draft = self.targets.iter_mut().find(|draft| draft.name == target);
        if let Some(draft) = draft {
            draft.set_limit(limit);
        }
    }

    /// The numbers of the disks of a target.
    pub(crate) fn lun_numbers(&self, target: &str) -> Vec<u16> {
        let luns = self.targets.iter().filter(|draft| draft.name == target);
        luns.flat_map(|draft| &draft.luns).map(|lun| lun.number).collect()
    }

    /// What initiators have to prove in discovery sessions.
    pub(crate) const fn discovery(&self) -> &AuthenticationPolicy {
        &self.discovery
    }

    /// Commands are told of that take so long; zero: none.
    pub(crate) const fn slow(&self) -> Duration {
        self.slow
    }

    /// Whether a target that an initiator may not use looks to it like one that is not there.
    pub(crate) const fn hides_targets(&self) -> bool {
        self.hide_targets
    }
}

/// What a configuration file says.
pub(crate) fn text_of(path: &Path) -> Result<String> {
    let text = engine::files::read_text(path, CONFIG_LEN_MAX);
    text.map_err(|error| unreadable(path, error))
}

/// Why a configuration cannot be read, and what to do where that is plain.
pub(crate) fn unreadable(path: &Path, error: std::io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        ErrorKind::PermissionDenied => {
            format!("; try: let user {} read it", rustix::process::geteuid().as_raw())
        }
        _ => String::new(),
    };
    anyhow::Error::from(error).context(format!("cannot read {}{advice}", path.display()))
}

/// A configuration; it may come through a pipe.
fn read_configuration(path: &Path) -> Result<Source> {
    let text = text_of(path)?;
    Ok(Source::new(path.display().to_string(), text).in_folder(folder_of(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: NAM-17/T.
    #[test]
    fn the_port_is_3260_unless_another_one_is_named() {
        let mut draft = Draft::new();
        draft.take_defaults().unwrap();
        assert_eq!(draft.listen, [SocketAddr::from(([127, 0, 0, 1], 3260))]);
        assert!(addresses("127.0.0.1").is_err(), "an address without a port is not guessed at");
    }

    #[test]
    fn a_file_of_somebody_else_says_who_is_to_read_it() {
        let said = |kind: ErrorKind| {
            let told = unreadable(Path::new("/etc/lunwire.toml"), kind.into());
            crate::output::chain(&told)
        };
        let denied = said(ErrorKind::PermissionDenied);
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(
            denied,
            format!(
                "cannot read /etc/lunwire.toml: permission denied; try: let user {user} read it"
            )
        );
        assert!(!said(ErrorKind::NotFound).contains("try:"));
    }
}
