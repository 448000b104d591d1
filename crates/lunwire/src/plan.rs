// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From configuration file and options to a plan: every value checked, every error with its place.

mod transfer;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use control::admin;
use control::config;
use control::config::Source;
use control::units;
use engine::Choice;
use iscsi::target::DigestPolicy;
use iscsi::target::Redirection;
use iscsi::target::Settings;
use iscsi::target::TargetReset;
use scsi::Explicit;
use scsi::Identity;
use scsi::Kept;
use scsi::LogicalUnit;
use scsi::PortGroup;
use scsi::ProtectionType;
use store::spec::Filter;
use store::spec::Spec;
use target::AccessRule;
use target::AuthenticationPolicy;
use target::Demand;
use target::Node;
use target::Plan;
use target::Portal;
use target::Redirect;
use target::SESSIONS_MAX;
use target::StateFile;
use target::Stores;
use toml::Spanned;

use crate::args::ServeOptions;
use crate::args::Usage;
use crate::credentials::Accounts;
use crate::ports;

const DEFAULT_LISTEN: &str = "127.0.0.1:3260";
const DEFAULT_TARGET: &str = "iqn.2026-01.local.lunwire:disk";
const DEFAULT_STORE: &str = "memory:1G";
const DEFAULT_SPIN: Duration = Duration::from_micros(100);
const DEFAULT_LOGIN_TIMEOUT: Duration = Duration::from_secs(15);

/// What INQUIRY says of who made the disk (SPC-4 §6.6.2).
const VENDOR: &str = "LUNWIRE";
const PRODUCT: &str = "VIRTUAL DISK";
const OPTICAL_PRODUCT: &str = "VIRTUAL DVD-ROM";

/// Data buffers of one reactor: enough for a full window of 1 MiB commands of a session, touched
/// only when used.
const POOL_BYTES_MAX: usize = 512 << 20;

/// More threads than this serve no machine that we know.
const REACTORS_MAX: usize = 256;

/// A LUN number that fits the flat addressing method of SAM-5 §4.7.7.
const LUN_NUMBER_MAX: u16 = 16_383;

/// A configuration whose every value is good, before anything is opened.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) listen: Vec<SocketAddr>,
    portal_groups: Vec<Portal>,
    pub(crate) engine: Choice,
    pub(crate) reactors: usize,
    pub(crate) cpus: Vec<usize>,
    pub(crate) spin: Duration,
    pub(crate) login_timeout: Duration,
    sessions_max: usize,
    hide_targets: bool,
    pub(crate) log: String,
    pub(crate) control_socket: Option<PathBuf>,
    pub(crate) state_dir: Option<PathBuf>,
    isns: Option<String>,
    pub(crate) targets: Vec<DraftTarget>,
    discovery: AuthenticationPolicy,
    accounts: Accounts,
}

#[derive(Debug)]
pub(crate) struct DraftTarget {
    name: String,
    alias: Option<String>,
    settings: Settings,
    redirect: Option<Redirect>,
    pub(crate) luns: Vec<DraftLun>,
    access: Vec<AccessRule>,
    authentication: AuthenticationPolicy,
    port_groups: Vec<PortGroup>,
    explicit: Explicit,
}

#[derive(Debug)]
pub(crate) struct DraftLun {
    number: u16,
    store: String,
    spec: Spec,
    block: u32,
    protection: Option<ProtectionType>,
    serial: Option<String>,
    /// Bytes; zero: hosts are not warned.
    space_warning: u64,
}

/// A plan, and what administration shows of it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) plan: Plan,
    pub(crate) served: Vec<admin::Target>,
}

impl Draft {
    fn new() -> Self {
        Self {
            listen: Vec::new(),
            portal_groups: Vec::new(),
            engine: Choice::Auto,
            reactors: 1,
            cpus: Vec::new(),
            spin: DEFAULT_SPIN,
            login_timeout: DEFAULT_LOGIN_TIMEOUT,
            sessions_max: SESSIONS_MAX,
            hide_targets: false,
            log: "info".into(),
            control_socket: None,
            state_dir: None,
            isns: None,
            targets: Vec::new(),
            discovery: AuthenticationPolicy::default(),
            accounts: Accounts::default(),
        }
    }

    /// Reads and checks a configuration file.
    pub(crate) fn from_file(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let mut draft = Self::new();
        draft.take_file(&Source::new(name, text))?;
        draft.take_defaults()?;
        Ok(draft)
    }

    /// The configuration file, if any, with the options on top.
    pub(crate) fn from_options(options: &ServeOptions) -> Result<Self> {
        let mut draft = Self::new();
        if let Some(path) = &options.config {
            let name = path.display().to_string();
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
            draft.take_file(&Source::new(name, text))?;
        }
        let of_file = draft.targets.len();
        draft.take_options(options)?;
        draft.take_defaults()?;
        draft.take_credentials(options, of_file)?;
        if options.markers {
            draft.targets.iter_mut().for_each(|target| target.settings.markers = true);
        }
        Ok(draft)
    }

    fn take_file(&mut self, source: &Source) -> Result<()> {
        let config = source.parse()?;
        for listen in &config.listen {
            self.listen.push(checked(source, "listen", listen, |text| address(text))?);
        }
        if let Some(value) = &config.engine {
            self.engine = checked(source, "engine", value, |text| engine(text))?;
        }
        if let Some(value) = &config.reactors {
            self.reactors = checked(source, "reactors", value, |count| reactors(*count))?;
        }
        for cpu in &config.cpus {
            self.cpus.push(checked(source, "cpus", cpu, |cpu| allowed_cpu(*cpu))?);
        }
        if let Some(value) = &config.spin {
            self.spin = checked(source, "spin", value, |text| units::duration(text))?;
        }
        if let Some(value) = &config.login_timeout {
            self.login_timeout =
                checked(source, "login-timeout", value, |text| login_timeout(text))?;
        }
        if let Some(value) = &config.sessions_max {
            self.sessions_max = checked(source, "sessions-max", value, |count| sessions(*count))?;
        }
        self.hide_targets = config.hide_targets.unwrap_or(false);
        if let Some(value) = &config.log {
            self.log = checked(source, "log", value, |text| log_level(text))?;
        }
        if let Some(value) = &config.isns {
            self.isns = Some(checked(source, "isns", value, |text| transfer::name_server(text))?);
        }
        self.control_socket = config.control_socket.map(|path| path.into_inner().into());
        self.state_dir = config.state_dir.map(|path| path.into_inner().into());
        self.portal_groups = ports::portal_groups(source, &config.portal_group)?;
        for target in &config.target {
            let mut draft = DraftTarget::from_file(source, target, &self.targets)?;
            draft.port_groups = ports::port_groups(source, target, &self.portal_groups)?;
            draft.explicit = ports::explicit(target);
            draft.take_authentication(source, target, &mut self.accounts)?;
            self.targets.push(draft);
        }
        if let Some(discovery) = &config.discovery {
            self.discovery = self.accounts.discovery(source, discovery)?;
        }
        Ok(())
    }

    fn take_options(&mut self, options: &ServeOptions) -> Result<()> {
        if !options.listen.is_empty() {
            self.listen.clear();
        }
        for text in &options.listen {
            self.listen.push(option("--listen", text, address(text))?);
        }
        if let Some(text) = &options.engine {
            self.engine = option("--engine", text, engine(text))?;
        }
        if let Some(count) = options.reactors {
            self.reactors = option("--reactors", count, reactors(count))?;
        }
        if !options.cpus.is_empty() {
            self.cpus.clear();
        }
        for cpu in &options.cpus {
            self.cpus.push(option("--cpus", cpu, allowed_cpu(*cpu))?);
        }
        if let Some(text) = &options.spin {
            self.spin = option("--spin", text, units::duration(text))?;
        }
        if let Some(text) = &options.login_timeout {
            self.login_timeout = option("--login-timeout", text, login_timeout(text))?;
        }
        if let Some(text) = &options.log {
            self.log = option("--log", text, log_level(text))?;
        }
        if let Some(text) = &options.isns {
            self.isns = Some(option("--isns", text, transfer::name_server(text))?);
        }
        if let Some(path) = &options.control_socket {
            self.control_socket = Some(path.clone());
        }
        if let Some(path) = &options.state_dir {
            self.state_dir = Some(path.clone());
        }
        let of_luns = !options.lun.is_empty() || options.protection.is_some();
        if options.target.is_some() || of_luns {
            self.take_target(options)?;
        }
        Ok(())
    }

    /// The target of the command line.
    fn take_target(&mut self, options: &ServeOptions) -> Result<()> {
        let name = options.target.as_deref().unwrap_or(DEFAULT_TARGET);
        let normalized = option("--target", name, target_name(name, &self.targets))?;
        let mut target = DraftTarget::new(normalized);
        let default = [DEFAULT_STORE.to_owned()];
        let words: &[String] = if options.lun.is_empty() { &default } else { &options.lun };
        for (number, word) in (0..).zip(words) {
            let spec = option("--lun", word, word.parse::<Spec>())?;
            let mut lun = DraftLun::new(number, word, spec);
            if let Some(kind) = options.protection {
                let kind = option("--protection", kind, protection(kind, &lun.spec))?;
                lun.protection = Some(kind);
            }
            target.luns.push(lun);
        }
        self.targets.push(target);
        Ok(())
    }

    /// The credentials of the command line: for the target that it made, behind the `of_file` ones
    /// of the file, and for discovery, unless the file says who may ask.
    fn take_credentials(&mut self, options: &ServeOptions, of_file: usize) -> Result<()> {
        let Some(policy) = self.accounts.of_options(options)? else { return Ok(()) };
        let Some(target) = self.targets.get_mut(of_file) else {
            let place = "--chap-user: it is for the target of --target and --lun, which are \
                         missing; write chap-user into the file for the targets there";
            return Err(Usage(place.into()).into());
        };
        target.authentication = policy.clone();
        if self.discovery.account.is_none() && self.discovery.demand == Demand::Off {
            self.discovery = policy;
        }
        Ok(())
    }

    /// What is odd and does not prevent serving.
    pub(crate) fn warnings(&self) -> &[String] {
        self.accounts.warnings()
    }

    /// What nobody said.
    fn take_defaults(&mut self) -> Result<()> {
        if self.listen.is_empty() {
            self.listen.push(address(DEFAULT_LISTEN).map_err(Usage)?);
        }
        if self.targets.is_empty() {
            let mut target = DraftTarget::new(DEFAULT_TARGET.to_owned());
            let spec = DEFAULT_STORE.parse::<Spec>().map_err(|error| Usage(error.to_string()))?;
            target.luns.push(DraftLun::new(0, DEFAULT_STORE, spec));
            self.targets.push(target);
        }
        Ok(())
    }

    /// A logical unit with what was kept of it.
    fn unit(
        &self,
        identity: Identity,
        stores: &mut Stores,
        lun: &DraftLun,
        target: &DraftTarget,
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
        let unit = unit.with_space_warning(lun.space_warning);
        let unit = unit
            .with_port_groups(target.port_groups.clone(), target.explicit)
            .map_err(anyhow::Error::msg)?;
        match &self.state_dir {
            None => Ok(unit),
            Some(folder) => {
                Kept::ALL.into_iter().try_fold(unit, |unit, kept| keep(unit, folder, kept))
            }
        }
    }

    /// Opens the stores.
    pub(crate) fn open(&self) -> Result<Opened> {
        let mut stores = Stores::new();
        let mut nodes = Vec::new();
        let mut served = Vec::new();
        for target in &self.targets {
            let mut luns = Vec::new();
            let mut shown = Vec::new();
            for lun in &target.luns {
                let place =
                    || format!("target {}, LUN {}, store {}", target.name, lun.number, lun.store);
                let product = if lun.spec.is_optical() { OPTICAL_PRODUCT } else { PRODUCT };
                let mut identity = Identity::derive(&target.name, lun.number, VENDOR, product);
                if let Some(serial) = &lun.serial {
                    identity.serial.clone_from(serial);
                }
                let unit = self.unit(identity, &mut stores, lun, target).with_context(place)?;
                let geometry = unit.store().geometry();
                if unit.wipe_has_failed() {
                    tracing::warn!(
                        target = %target.name, lun = lun.number, store = %lun.store,
                        "a FORMAT UNIT or SANITIZE did not end well: until another one does, hosts \
                         cannot read or write"
                    );
                }
                shown.push(admin::Lun {
                    number: lun.number,
                    store: lun.store.clone(),
                    bytes: geometry.bytes,
                    block: unit.block(),
                    read_only: geometry.read_only,
                });
                luns.push((lun.number, Arc::new(unit)));
            }
            served.push(admin::Target { name: target.name.clone(), luns: shown });
            nodes.push(Node {
                name: target.name.clone(),
                alias: target.alias.clone(),
                luns,
                access: target.access.clone(),
                authentication: target.authentication.clone(),
                settings: target.settings.clone(),
                redirect: target.redirect.clone(),
            });
        }
        let portals = self.listen.iter().copied().map(Portal::from);
        let plan = Plan {
            portals: portals.chain(self.portal_groups.iter().copied()).collect(),
            nodes,
            discovery: self.discovery.clone(),
            stores,
            engine: self.engine,
            reactors: self.reactors,
            cpus: self.cpus.clone(),
            spin_max: self.spin,
            pool_bytes_max: POOL_BYTES_MAX,
            login_timeout: self.login_timeout,
            isns: self.isns.clone(),
            sessions_max: self.sessions_max,
            hide_targets: self.hide_targets,
        };
        Ok(Opened { plan, served })
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

impl DraftTarget {
    fn new(name: String) -> Self {
        Self {
            name,
            alias: None,
            settings: Settings::default(),
            redirect: None,
            luns: Vec::new(),
            access: Vec::new(),
            authentication: AuthenticationPolicy::default(),
            port_groups: Vec::new(),
            explicit: Explicit::No,
        }
    }

    fn from_file(source: &Source, target: &config::Target, others: &[Self]) -> Result<Self> {
        let name = checked(source, "target.name", &target.name, |text| target_name(text, others))?;
        let mut draft = Self::new(name);
        draft.alias = target.alias.as_ref().map(|alias| alias.get_ref().clone());
        draft.take_settings(source, target)?;
        transfer::take(&mut draft.settings, source, target)?;
        draft.redirect = redirect(source, target)?;
        let mut numbers = BTreeSet::new();
        for (place, lun) in (0..).zip(&target.lun) {
            let number = match &lun.number {
                None => place,
                Some(value) => checked(source, "target.lun.number", value, |n| lun_number(*n))?,
            };
            if !numbers.insert(number) {
                let taken = format!("LUN {number} is there already; give each its own number");
                return Err(source.error("target.lun.store", &lun.store, taken).into());
            }
            let word = lun.store.get_ref();
            let spec =
                checked(source, "target.lun.store", &lun.store, |text| text.parse::<Spec>())?;
            let mut draft_lun = DraftLun::new(number, word, spec);
            for word in &lun.filters {
                draft_lun.spec = checked(source, "target.lun.filters", word, |text| {
                    let filter: Filter = text.parse()?;
                    format!("{},{filter}", draft_lun.spec).parse::<Spec>()
                })?;
                draft_lun.store = format!("{},{}", draft_lun.store, word.get_ref());
            }
            if let Some(value) = &lun.block {
                draft_lun.block = checked(source, "target.lun.block", value, |b| {
                    if draft_lun.spec.is_optical() {
                        return Err("a CD or DVD has blocks of 2048 bytes; leave it out");
                    }
                    block(*b)
                })?;
            }
            if let Some(value) = &lun.protection {
                draft_lun.protection =
                    Some(checked(source, "target.lun.protection", value, |n| {
                        protection(*n, &draft_lun.spec)
                    })?);
            }
            if let Some(value) = &lun.space_warning {
                draft_lun.space_warning =
                    checked(source, "target.lun.space-warning", value, |text| {
                        if draft_lun.spec.is_optical() {
                            return Err("a CD or DVD takes no space; leave it out".to_owned());
                        }
                        store::spec::parse_size(text).map_err(|error| error.to_string())
                    })?;
            }
            if let Some(value) = &lun.serial {
                let serial = checked(source, "target.lun.serial", value, |text| serial(text))?;
                draft_lun.serial = Some(serial);
            }
            draft.luns.push(draft_lun);
        }
        if draft.luns.is_empty() && draft.redirect.is_none() {
            let none = "it has no LUN; add [[target.lun]] with store = \"memory:1G\", for example";
            return Err(source.error("target.name", &target.name, none).into());
        }
        for initiator in &target.initiator {
            draft.access.push(access_rule(source, initiator, &numbers)?);
        }
        Ok(draft)
    }

    /// The accounts of the target and of each initiator, and what is demanded of them.
    fn take_authentication(
        &mut self,
        source: &Source,
        target: &config::Target,
        accounts: &mut Accounts,
    ) -> Result<()> {
        for (rule, initiator) in self.access.iter_mut().zip(&target.initiator) {
            rule.account = accounts.of_file(source, "target.initiator", initiator.chap())?;
        }
        self.authentication = accounts.of_target(source, target, &self.access)?;
        Ok(())
    }

    fn take_settings(&mut self, source: &Source, target: &config::Target) -> Result<()> {
        let settings = &mut self.settings;
        if let Some(value) = &target.queue_depth {
            settings.queue_depth =
                checked(source, "target.queue-depth", value, |depth| match *depth {
                    depth @ 1..=1024 => Ok(depth),
                    _ => Err("1 to 1024 is right"),
                })?;
        }
        if let Some(value) = &target.max_connections {
            settings.max_connections =
                checked(source, "target.max-connections", value, |count| match *count {
                    count @ 1..=32 => Ok(count),
                    _ => Err("1 to 32 is right"),
                })?;
        }
        if let Some(value) = &target.time2wait {
            settings.time2wait = checked(source, "target.time2wait", value, |s| seconds(*s))?;
        }
        if let Some(value) = &target.time2retain {
            settings.time2retain = checked(source, "target.time2retain", value, |s| seconds(*s))?;
        }
        if let Some(value) = &target.error_recovery_level {
            settings.error_recovery_level =
                checked(source, "target.error-recovery-level", value, |level| match *level {
                    level @ 0..=2 => Ok(level),
                    _ => Err("0, 1 or 2 is right"),
                })?;
        }
        if target.node_architecture == Some(true) {
            settings.node_architecture = Some(node_architecture());
        }
        if let Some(value) = &target.header_digest {
            settings.header_digest =
                checked(source, "target.header-digest", value, |text| digest(text))?;
        }
        if let Some(value) = &target.data_digest {
            settings.data_digest =
                checked(source, "target.data-digest", value, |text| digest(text))?;
        }
        if let Some(value) = &target.target_reset {
            settings.target_reset =
                checked(source, "target.target-reset", value, |text| target_reset(text))?;
        }
        if let Some(value) = &target.ping_interval {
            settings.ping_interval =
                checked(source, "target.ping-interval", value, |text| units::duration(text))?;
        }
        if let Some(value) = &target.ping_timeout {
            settings.ping_timeout =
                checked(source, "target.ping-timeout", value, |text| units::duration(text))?;
        }
        Ok(())
    }
}

impl DraftLun {
    fn new(number: u16, word: &str, spec: Spec) -> Self {
        Self {
            number,
            store: word.to_owned(),
            spec,
            block: 512,
            protection: None,
            serial: None,
            space_warning: 0,
        }
    }
}

/// DefaultTime2Wait and DefaultTime2Retain (RFC 7143 §13.15, §13.16).
fn seconds(seconds: u16) -> Result<u16, &'static str> {
    if seconds <= 3600 { Ok(seconds) } else { Err("0 to 3600 seconds is right") }
}

fn redirect(source: &Source, target: &config::Target) -> Result<Option<Redirect>> {
    let Some(value) = &target.redirect else { return Ok(None) };
    let address = checked(source, "target.redirect", value, |text| {
        let right = "ADDRESS:PORT is right, for example 192.0.2.7:3260 or [2001:db8::7]:3260";
        text.parse::<SocketAddr>().map_err(|_| right)
    })?;
    let duration = match target.redirect_permanent {
        Some(true) => Redirection::Permanent,
        Some(false) | None => Redirection::Temporary,
    };
    Ok(Some(Redirect { address: address.to_string(), duration }))
}

fn access_rule(
    source: &Source,
    initiator: &config::Initiator,
    numbers: &BTreeSet<u16>,
) -> Result<AccessRule> {
    let field = "target.initiator.name";
    let name = checked(source, field, &initiator.name, |text| {
        iscsi::name::normalize_configured(text).map_err(|error| error.to_string())
    })?;
    let mut luns = None;
    if let Some(list) = &initiator.luns {
        let mut visible = Vec::new();
        for number in list {
            visible.push(checked(source, "target.initiator.luns", number, |number| {
                if numbers.contains(number) { Ok(*number) } else { Err("no such LUN") }
            })?);
        }
        luns = Some(visible);
    }
    let reset = initiator.target_reset.as_ref().map(|value| {
        checked(source, "target.initiator.target-reset", value, |text| target_reset(text))
    });
    Ok(AccessRule { initiator: name, luns, account: None, target_reset: reset.transpose()? })
}

/// A value of a file, checked; a problem gets its place.
pub(crate) fn checked<T: Display, V, E: Display>(
    source: &Source,
    field: &str,
    value: &Spanned<T>,
    check: impl FnOnce(&T) -> Result<V, E>,
) -> Result<V> {
    check(value.get_ref()).map_err(|problem| source.error(field, value, problem).into())
}

/// A value of the command line, checked.
pub(crate) fn option<V, E: Display>(
    flag: &str,
    value: impl Display,
    checked: Result<V, E>,
) -> Result<V> {
    checked.map_err(|problem| Usage(format!("{flag} {value}: {problem}")).into())
}

pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "ADDRESS:PORT is right, for example 127.0.0.1:3260 or [::1]:3260".to_owned())
}

fn engine(text: &str) -> Result<Choice, &'static str> {
    match text {
        "auto" => Ok(Choice::Auto),
        "uring" => Ok(Choice::Uring),
        "epoll" => Ok(Choice::Epoll),
        _ => Err("auto, uring or epoll is right"),
    }
}

fn reactors(count: usize) -> Result<usize, &'static str> {
    if (1..=REACTORS_MAX).contains(&count) { Ok(count) } else { Err("1 to 256 is right") }
}

fn allowed_cpu(cpu: usize) -> Result<usize, String> {
    let allowed = engine::affinity::allowed_cpus();
    if allowed.contains(&cpu) { Ok(cpu) } else { Err(format!("one of {allowed:?} is right")) }
}

fn login_timeout(text: &str) -> Result<Duration, &'static str> {
    match units::duration(text)? {
        Duration::ZERO => Err("it cannot be zero; 15s is a good value"),
        time => Ok(time),
    }
}

/// What RFC 7143 §13.26 has in mind: the kinds of software, system and processor.
fn node_architecture() -> String {
    let [version, system, processor] =
        [env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH];
    format!("lunwire-{version},{system},{processor}")
}

fn sessions(count: usize) -> Result<usize, String> {
    match count {
        1..=SESSIONS_MAX => Ok(count),
        _ => Err(format!("1 to {SESSIONS_MAX} is right")),
    }
}

fn log_level(text: &str) -> Result<String, &'static str> {
    match text {
        "error" | "warn" | "info" | "debug" | "trace" => Ok(text.to_owned()),
        _ => Err("error, warn, info, debug or trace is right"),
    }
}

fn digest(text: &str) -> Result<DigestPolicy, &'static str> {
    match text {
        "any" => Ok(DigestPolicy::Any),
        "required" => Ok(DigestPolicy::Required),
        "off" => Ok(DigestPolicy::Off),
        _ => Err("any, required or off is right"),
    }
}

fn target_reset(text: &str) -> Result<TargetReset, &'static str> {
    match text {
        "none" => Ok(TargetReset::None),
        "warm" => Ok(TargetReset::Warm),
        "cold" => Ok(TargetReset::Cold),
        _ => Err("none, warm or cold is right"),
    }
}

fn lun_number(number: u16) -> Result<u16, &'static str> {
    if number <= LUN_NUMBER_MAX { Ok(number) } else { Err("0 to 16383 is right") }
}

fn block(length: u32) -> Result<u32, &'static str> {
    if matches!(length, 512 | 4096) { Ok(length) } else { Err("512 or 4096 is right") }
}

fn protection(number: u8, spec: &Spec) -> Result<ProtectionType, String> {
    spec.protectable().map_err(|error| error.to_string())?;
    ProtectionType::from_number(number).ok_or_else(|| "1, 2 or 3 is right".into())
}

fn serial(text: &str) -> Result<String, &'static str> {
    let good = (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if good { Ok(text.to_owned()) } else { Err("1 to 32 printable ASCII characters are right") }
}

fn target_name(text: &str, others: &[DraftTarget]) -> Result<String, String> {
    let name = iscsi::name::normalize_configured(text).map_err(|error| error.to_string())?;
    if others.iter().any(|other| other.name == name) {
        return Err("another target has this name; give each its own".into());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: NAM-17.
    #[test]
    fn the_port_is_3260_unless_another_one_is_named() {
        let mut draft = Draft::new();
        draft.take_defaults().unwrap();
        assert_eq!(draft.listen, [SocketAddr::from(([127, 0, 0, 1], 3260))]);
        assert!(address("127.0.0.1").is_err(), "an address without a port is not guessed at");
    }
}
