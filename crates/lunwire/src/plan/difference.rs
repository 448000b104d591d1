// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is otherwise in a configuration than in what is served, and whether that can change while
//! the daemon runs.

use std::net::SocketAddr;

use anyhow::Result;
use control::admin;
use control::admin::Change;
use scsi::AccessState;
use scsi::Explicit;
use scsi::PortGroup;
use target::Limit;
use target::Limited;
use target::Portal;

use super::Draft;
use super::Served;
use super::limit;
use super::lun::DraftLun;
use super::lun::store_of_now;
use super::node::DraftTarget;
use super::place::absolute;

/// Of what is made once.
const AT_START: &str = "it is read when the daemon starts; try: restart it";

/// Of disks that hosts know by their number.
const SAME_NUMBER: &str = "hosts would take another disk for the one that they know by this \
                           number; try: another number, or reload without it first";

/// Of what a disk has from when it is opened.
const AT_OPENING: &str = "a disk has it from when it is opened; try: reload without it first";

/// All that is otherwise.
#[derive(Debug, Default)]
pub(crate) struct Difference<'a> {
    pub(crate) told: Vec<admin::Difference>,
    pub(crate) refused: Vec<admin::Refused>,
    /// Targets that come.
    pub(crate) add: Vec<&'a DraftTarget>,
    /// Targets on other terms.
    pub(crate) replace: Vec<&'a DraftTarget>,
    pub(crate) remove: Vec<String>,
    pub(crate) add_luns: Vec<(&'a DraftTarget, &'a DraftLun)>,
    pub(crate) remove_luns: Vec<(String, u16)>,
    /// Target port groups of targets that get other states.
    pub(crate) states: Vec<(String, u16, AccessState)>,
    pub(crate) listen: Vec<Portal>,
    /// As the configuration names them.
    pub(crate) unlisten: Vec<SocketAddr>,
    pub(crate) discovery: bool,
    pub(crate) hide_targets: bool,
}

/// The keys that say something else, of pairs of a key and whether it says the same.
fn changed<const N: usize>(keys: [(&str, bool); N]) -> Vec<String> {
    let changed = keys.into_iter().filter(|(_, is_same)| !is_same);
    changed.map(|(key, _)| key.to_owned()).collect()
}

impl<'a> Difference<'a> {
    /// From what is served to what is wanted. `units`: what they say of themselves now.
    pub(crate) fn between(served: &Draft, wanted: &'a Draft, units: &dyn Served) -> Result<Self> {
        let mut found = Self::default();
        for key in fixed(served, wanted) {
            found.refuse(key, AT_START);
        }
        found.take_portals(served, wanted);
        let general = changed([
            ("discovery", served.discovery == wanted.discovery),
            ("hide-targets", served.hide_targets == wanted.hide_targets),
            ("slow", served.slow == wanted.slow),
            // What is in the files, which are the same ones.
            ("http-certificate", served.http_tls.shows_what(&wanted.http_tls)),
        ]);
        found.discovery = served.discovery != wanted.discovery;
        found.hide_targets = served.hide_targets != wanted.hide_targets;
        if !general.is_empty() {
            found.tell(Change::Changed, "the daemon".into(), general);
        }
        let named = |all: &'a [DraftTarget], name: &str| all.iter().find(|one| one.name == name);
        for old in &served.targets {
            match named(&wanted.targets, &old.name) {
                Some(new) => found.take_target(old, new, units)?,
                None => {
                    let stores = old.luns.iter().map(|lun| lun.store.clone()).collect();
                    found.tell(Change::Removed, format!("target {}", old.name), stores);
                    found.remove.push(old.name.clone());
                }
            }
        }
        for new in &wanted.targets {
            if !served.targets.iter().any(|old| old.name == new.name) {
                let stores = new.luns.iter().map(|lun| lun.store.clone()).collect();
                found.tell(Change::Added, format!("target {}", new.name), stores);
                found.add.push(new);
            }
        }
        found.refuse_moves(served)?;
        Ok(found)
    }

    /// A store cannot come before it has gone.
    fn refuse_moves(&mut self, served: &Draft) -> Result<()> {
        let mut going = Vec::new();
        for target in &served.targets {
            let is_all = self.remove.contains(&target.name);
            for lun in &target.luns {
                let place = (target.name.clone(), lun.number);
                if is_all || self.remove_luns.contains(&place) {
                    going.push((without_options(&absolute(&lun.store)?), place));
                }
            }
        }
        let of_targets = self
            .add
            .iter()
            .flat_map(|target| target.luns.iter().map(|lun| (target.name.as_str(), lun)));
        let come = self.add_luns.iter().map(|(target, lun)| (target.name.as_str(), *lun));
        let come: Vec<(&str, &DraftLun)> = of_targets.chain(come).collect();
        for (name, lun) in come {
            let store = without_options(&absolute(&lun.store)?);
            let here = going.iter().find(|(other, _)| *other == store && is_one(&lun.store));
            if let Some((_, (target, number))) = here {
                let why = format!(
                    "it has the store of LUN {number} of {target}, which goes; try: reload \
                     without it first"
                );
                self.refuse(format!("LUN {} of {name}", lun.number), &why);
            }
        }
        Ok(())
    }

    /// The stores of the disks that come.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &str> {
        let of_targets = self.add.iter().flat_map(|target| &target.luns);
        let come = self.add_luns.iter().map(|(_, lun)| *lun);
        of_targets.chain(come).map(|lun| &*lun.store)
    }

    fn tell(&mut self, change: Change, what: String, keys: Vec<String>) {
        self.told.push(admin::Difference { change, what, keys });
    }

    fn refuse(&mut self, what: String, why: &str) {
        self.refused.push(admin::Refused { what, why: why.to_owned() });
    }

    fn take_portals(&mut self, served: &Draft, wanted: &Draft) {
        let (old, new) = (served.portals(), wanted.portals());
        let free = |all: &[Portal]| {
            let free = all.iter().map(|portal| portal.address).filter(|one| one.port() == 0);
            let mut free: Vec<SocketAddr> = free.collect();
            free.sort_unstable();
            free
        };
        let (before, after) = (free(&old), free(&new));
        let twice = |all: &[SocketAddr]| all.windows(2).any(|two| two.first() == two.last());
        if old != new && (twice(&before) || twice(&after)) {
            let why = "which of several portals with port 0 is meant cannot be told; try: ports of \
                       their own, or restart the daemon";
            self.refuse("listen".into(), why);
            return;
        }
        let place = |portal: &Portal| (portal.address, portal.group);
        for portal in &old {
            if !new.iter().any(|other| place(other) == place(portal)) {
                self.tell(Change::Removed, shown(portal), Vec::new());
                self.unlisten.push(portal.address);
            }
        }
        for portal in &new {
            match old.iter().find(|other| place(other) == place(portal)) {
                Some(before) if before.rdma == portal.rdma => continue,
                Some(_) => self.tell(Change::Changed, shown(portal), vec!["rdma".into()]),
                None => self.tell(Change::Added, shown(portal), Vec::new()),
            }
            self.listen.push(*portal);
        }
        let moves = |address: &SocketAddr| new.iter().any(|portal| portal.address == *address);
        if let Some(address) = self.unlisten.iter().copied().find(moves) {
            let why = "sessions would be at another target port; try: reload without it first";
            self.refuse(format!("portal {address}: portal group"), why);
        }
    }

    /// A target that stays.
    fn take_target(
        &mut self,
        old: &DraftTarget,
        new: &'a DraftTarget,
        units: &dyn Served,
    ) -> Result<()> {
        let name = &new.name;
        let of_disks = changed([
            ("port-group", are_alike(&old.port_groups, &new.port_groups)),
            ("explicit-alua", old.explicit == new.explicit),
            ("identity", old.identity == new.identity),
        ]);
        for key in of_disks {
            let why = "its disks have it from when they are opened; try: reload without the target \
                       first";
            self.refuse(format!("target {name}: {key}"), why);
        }
        if are_alike(&old.port_groups, &new.port_groups) {
            self.take_states(new, units);
        }
        if old.limits != new.limits {
            self.tell(Change::Changed, format!("limits of {name}"), limited(old, new));
        }
        let terms = terms(old, new);
        if !terms.is_empty() {
            self.tell(Change::Changed, format!("target {name}"), terms);
            self.replace.push(new);
        }
        for lun in &old.luns {
            let number = lun.number;
            match new.luns.iter().find(|other| other.number == number) {
                Some(other) => {
                    let bytes = units.bytes_of(name, number);
                    self.take_lun(&format!("LUN {number} of {name}"), lun, other, bytes)?;
                }
                None => {
                    let store = vec![lun.store.clone()];
                    self.tell(Change::Removed, format!("LUN {number} of {name}"), store);
                    self.remove_luns.push((name.clone(), number));
                }
            }
        }
        for lun in &new.luns {
            if !old.luns.iter().any(|other| other.number == lun.number) {
                let store = vec![lun.store.clone()];
                self.tell(Change::Added, format!("LUN {} of {name}", lun.number), store);
                self.add_luns.push((new, lun));
            }
        }
        Ok(())
    }

    /// Its access states, whether a file or an order has set those of now. Those that hosts set are
    /// theirs.
    fn take_states(&mut self, new: &DraftTarget, units: &dyn Served) {
        if new.explicit == Explicit::Yes {
            return;
        }
        for group in &new.port_groups {
            let now = units.states_of(&new.name, group.number);
            if now.iter().all(|state| *state == group.state) {
                continue;
            }
            let what = format!("port group {} of {}", group.number, new.name);
            self.tell(Change::Changed, what, vec!["state".into()]);
            self.states.push((new.name.clone(), group.number, group.state));
        }
    }

    /// A disk that stays: it is what it was.
    fn take_lun(
        &mut self,
        what: &str,
        old: &DraftLun,
        new: &DraftLun,
        bytes: Option<u64>,
    ) -> Result<()> {
        let (before, after) = (absolute(&old.store)?, absolute(&new.store)?);
        let is_of_now = |store: &str| bytes.is_none_or(|bytes| store_of_now(store, bytes) == store);
        if before != after {
            match (without_size(&before) == without_size(&after), is_of_now(&after)) {
                (true, true) => {}
                (true, false) => {
                    self.refuse(format!("{what}: size"), "try: lunwire lun resize first");
                }
                _ if without_options(&before) == without_options(&after) => {
                    self.refuse(format!("{what}: store"), AT_OPENING);
                }
                _ => self.refuse(format!("{what}: store"), SAME_NUMBER),
            }
        }
        for key in changed([
            ("block", old.block == new.block),
            ("protection", old.protection == new.protection),
            ("serial", old.serial == new.serial),
            ("space-warning", old.space_warning == new.space_warning),
        ]) {
            self.refuse(format!("{what}: {key}"), AT_OPENING);
        }
        if !old.only.is_empty() {
            let why = "it was added for some initiators alone, which the file cannot say; try: \
                       lunwire lun remove first";
            self.refuse(what.to_owned(), why);
        }
        Ok(())
    }
}

/// What is limited otherwise, from what to what.
fn limited(old: &DraftTarget, new: &DraftTarget) -> Vec<String> {
    let (old, new) = (&old.limits, &new.limits);
    let find = |limits: &'_ [Limit], of: &Limited| -> Option<Limit> {
        limits.iter().find(|limit| limit.of == *of).cloned()
    };
    let gone = old.iter().filter(|limit| find(new, &limit.of).is_none());
    let all = new.iter().chain(gone).map(|limit| &limit.of);
    let changed = all.map(|of| (of, find(old, of), find(new, of)));
    let changed = changed.filter(|(_, before, after)| before != after);
    let words =
        |limit: Option<Limit>| limit.map_or_else(|| "none".to_owned(), |it| limit::most(&it));
    changed
        .map(|(of, before, after)| {
            format!("{}: {} -> {}", limit::shown(of), words(before), words(after))
        })
        .collect()
}

/// Whether target port groups are the same, whatever their states.
fn are_alike(old: &[PortGroup], new: &[PortGroup]) -> bool {
    let fixed = |group: &PortGroup| (group.number, group.ports.clone(), group.preferred);
    old.iter().map(fixed).eq(new.iter().map(fixed))
}

/// A store without the size that its file is made with.
pub(super) fn without_size(store: &str) -> String {
    let rest = store.split(',').filter(|option| !option.starts_with("size="));
    rest.collect::<Vec<_>>().join(",")
}

/// What is behind a store, without how it is used.
fn without_options(store: &str) -> String {
    store.split(',').next().unwrap_or_default().to_owned()
}

/// Whether what is behind a store is there once.
fn is_one(store: &str) -> bool {
    !store.starts_with("memory:") && !store.starts_with("null:")
}

fn shown(portal: &Portal) -> String {
    let Portal { address, group, .. } = portal;
    match *group {
        target::PORTAL_GROUP_TAG => format!("portal {address}"),
        group => format!("portal {address} of portal group {group}"),
    }
}

/// The keys of the whole daemon that say something else, and are read at its start alone.
fn fixed(old: &Draft, new: &Draft) -> Vec<String> {
    let [is_certificate, is_key] = old.http_tls.names(&new.http_tls);
    changed([
        ("engine", old.engine == new.engine),
        ("mode", old.mode.amp == new.mode.amp),
        ("ppes", old.mode.ppes == new.mode.ppes),
        ("poll", old.mode.poll == new.mode.poll),
        ("reactors", old.reactors == new.reactors),
        ("cpus", old.cpus == new.cpus),
        ("spin", old.spin == new.spin),
        ("login-timeout", old.login_timeout == new.login_timeout),
        ("sessions-max", old.sessions_max == new.sessions_max),
        ("unauthenticated-max", old.connections.strangers == new.connections.strangers),
        (
            "unauthenticated-per-address",
            old.connections.strangers_of_address == new.connections.strangers_of_address,
        ),
        ("rdma", old.rdma == new.rdma),
        // What adapters listen at follows from the portals, too.
        ("rdma-listen", old.adapters() == new.adapters()),
        ("ether", old.ether == new.ether),
        ("http", old.http == new.http),
        ("http-token-file", old.http_tokens == new.http_tokens),
        ("http-certificate", is_certificate),
        ("http-key", is_key),
        ("log", old.log == new.log),
        ("control-socket", old.control_socket == new.control_socket),
        ("state-dir", old.state_dir == new.state_dir),
        ("isns", old.isns == new.isns),
        ("sandbox", old.sandbox == new.sandbox),
        ("sandbox-allow", old.sandbox_allow == new.sandbox_allow),
    ])
}

/// The keys of a target that say something else, and can change under its sessions.
fn terms(old: &DraftTarget, new: &DraftTarget) -> Vec<String> {
    let (was, is) = (&old.settings, &new.settings);
    changed([
        ("alias", old.alias == new.alias),
        ("queue-depth", was.queue_depth == is.queue_depth),
        ("max-connections", was.max_connections == is.max_connections),
        ("time2wait", was.time2wait == is.time2wait),
        ("time2retain", was.time2retain == is.time2retain),
        ("error-recovery-level", was.error_recovery_level == is.error_recovery_level),
        ("max-outstanding-r2t", was.max_outstanding_r2t == is.max_outstanding_r2t),
        ("data-pdu-in-order", was.data_pdu_in_order == is.data_pdu_in_order),
        ("data-sequence-in-order", was.data_sequence_in_order == is.data_sequence_in_order),
        ("markers", was.markers == is.markers),
        ("target-reset", was.target_reset == is.target_reset),
        ("redirect", old.redirect == new.redirect),
        ("node-architecture", was.node_architecture == is.node_architecture),
        ("header-digest", was.header_digest == is.header_digest),
        ("data-digest", was.data_digest == is.data_digest),
        ("ping-interval", was.ping_interval == is.ping_interval),
        ("ping-timeout", was.ping_timeout == is.ping_timeout),
        ("authentication", old.authentication == new.authentication),
        ("initiator", old.access == new.access),
    ])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    /// The reference of the configuration says of each key whether a reload takes it.
    #[test]
    fn what_is_refused_is_what_the_schema_says() {
        const SCHEMA: &str = include_str!("../../../control/src/config.rs");
        let top = SCHEMA.split("pub struct Config {").nth(1).unwrap();
        let top = top.split("\n}").next().unwrap();
        let fields = top.split("    pub ").zip(top.split("    pub ").skip(1));
        let refused = fields.filter(|(said, _)| said.contains("Reload: no"));
        let name = |field: &str| field.split(':').next().unwrap().replace('_', "-");
        let mut refused: Vec<String> = refused.map(|(_, field)| name(field)).collect();
        let mut other = Draft::new();
        other.engine = engine::Choice::Epoll;
        other.mode.amp = true;
        other.mode.ppes = Some(1);
        other.mode.poll = true;
        other.reactors = 2;
        other.cpus = vec![0];
        other.spin *= 2;
        other.login_timeout *= 2;
        other.sessions_max -= 1;
        other.connections.strangers -= 1;
        other.connections.strangers_of_address -= 1;
        other.rdma = super::super::rdma::Provider::Verbs;
        other.rdma_listen = vec!["127.0.0.1:1".parse().unwrap()];
        other.ether = vec!["eth0".into()];
        other.http = Some("127.0.0.1:1".parse().unwrap());
        other.http_tokens = Some("a".into());
        other.http_tls = super::super::HttpTls::at("a", "b");
        other.log = "debug".into();
        other.control_socket = Some("a".into());
        other.state_dir = Some("b".into());
        other.isns = Some("c".into());
        other.sandbox = super::super::Wish::No;
        other.sandbox_allow = vec![super::super::Need::Portals];
        let mut found = fixed(&Draft::new(), &other);
        refused.sort();
        found.sort();
        assert_eq!(found, refused);
    }
}
