// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A configuration file becomes a draft, and all that is wrong in it is found, as far as one thing
//! does not follow from another.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use control::config::Config;
use control::config::ConfigError;
use control::config::Source;
use control::units;
use toml::Spanned;

use super::Draft;
use super::addresses;
use super::allowed_cpu;
use super::check;
use super::checked;
use super::listened_once;
use super::node::DraftTarget;
use super::place;
use super::rdma::Provider;
use super::reach;
use super::transfer;
use crate::ports;

/// What is wrong so far.
#[derive(Debug, Default)]
pub(super) struct Wrong(Vec<anyhow::Error>);

impl Wrong {
    /// What `result` gives, unless it is one thing more.
    pub(super) fn take<V>(&mut self, result: Result<V>) -> Option<V> {
        result.map_err(|error| self.0.push(error)).ok()
    }

    /// How many things are wrong.
    pub(super) const fn count(&self) -> usize {
        self.0.len()
    }
}

impl Draft {
    /// Takes what is right, and gives what is wrong.
    pub(super) fn take_document(&mut self, source: &Source) -> Vec<anyhow::Error> {
        let (config, unread) = source.parse_all();
        let mut wrong = Wrong::default();
        if let Some(config) = &config {
            self.take_config(source, config, &mut wrong);
        }
        // What is said of a table with a key that could not be read may come of that alone.
        let doubtful: BTreeSet<usize> =
            unread.iter().filter_map(|error| source.table_of(error)).collect();
        let is_sure = |error: &anyhow::Error| {
            let known = error.downcast_ref::<ConfigError>();
            let table = known.and_then(|error| source.table_of(error));
            unread.is_empty() || known.is_some() && table.is_none_or(|at| !doubtful.contains(&at))
        };
        let Wrong(mut found) = wrong;
        found.retain(is_sure);
        unread.into_iter().map(anyhow::Error::from).chain(found).collect()
    }

    fn take_config(&mut self, source: &Source, config: &Config, wrong: &mut Wrong) {
        let begun = wrong.count();
        for listen in &config.listen {
            let once = || {
                let found = checked(source, "listen", listen, |text| addresses(text))?;
                checked(source, "listen", listen, |_| listened_once(&self.listen, &found))?;
                Ok(found)
            };
            self.listen.extend(wrong.take(once()).unwrap_or_default());
        }
        let mut are_known = wrong.count() == begun;
        wrong.take(self.mode.take_file(source, config));
        self.take_numbers(source, config, wrong);
        self.take_words(source, config, wrong);
        self.hide_targets = config.hide_targets.unwrap_or(false);
        let groups = ports::portal_groups(source, &config.portal_group, &self.listen);
        let groups = wrong.take(groups);
        are_known &= groups.is_some();
        for target in &config.target {
            let mut draft = DraftTarget::from_file(source, target, &self.targets, wrong);
            if let Some(groups) = &groups {
                let states = wrong.take(ports::port_groups(source, target, groups));
                draft.port_groups = states.unwrap_or_default();
            }
            draft.explicit = ports::explicit(target);
            draft.take_authentication(source, target, &mut self.accounts, wrong);
            self.targets.push(draft);
        }
        self.portal_groups = groups.unwrap_or_default();
        let known = are_known.then(|| self.all_portals());
        self.take_portals(source, config, known.as_deref(), wrong);
        if let Some(discovery) = &config.discovery {
            let policy = wrong.take(self.accounts.discovery(source, discovery));
            self.discovery = policy.unwrap_or_default();
        }
    }

    /// What is said of single portals. None: which there are cannot be told.
    fn take_portals(
        &mut self,
        source: &Source,
        config: &Config,
        known: Option<&[SocketAddr]>,
        wrong: &mut Wrong,
    ) {
        let mut named: Vec<SocketAddr> = Vec::new();
        for entry in &config.portal {
            let of_portal = |text: &String| {
                let found = addresses(text)?;
                if known.is_some_and(|known| !found.iter().all(|one| known.contains(one))) {
                    return Err("it is no portal of listen or of a [[portal-group]]".to_owned());
                }
                match found.iter().any(|one| named.contains(one)) {
                    true => Err("it is named before; once will do".to_owned()),
                    false => Ok(found),
                }
            };
            let found = wrong.take(checked(source, "portal.address", &entry.address, of_portal));
            named.extend(found.iter().flatten());
            let Some(value) = &entry.rdma else { continue };
            let rdma = |text: &String| {
                let of = |problem| format!("{problem} (of portal {})", entry.address.get_ref());
                check::rdma(text).map_err(of)
            };
            let rdma = wrong.take(checked(source, "portal.rdma", value, rdma));
            if let (Some(found), Some(rdma)) = (found, rdma) {
                self.rdma_of.extend(found.into_iter().map(|address| (address, rdma)));
            }
        }
    }

    fn take_numbers(&mut self, source: &Source, config: &Config, wrong: &mut Wrong) {
        let mut number = |field: &str,
                          value: &Option<Spanned<usize>>,
                          check: &dyn Fn(usize) -> Result<usize, String>| {
            let value = value.as_ref()?;
            wrong.take(checked(source, field, value, |count| check(*count)))
        };
        let reactors = |count| check::reactors(count).map_err(str::to_owned);
        if let Some(count) = number("reactors", &config.reactors, &reactors) {
            self.reactors = count;
        }
        for cpu in &config.cpus {
            self.cpus.extend(number("cpus", &Some(cpu.clone()), &allowed_cpu));
        }
        if let Some(count) = number("sessions-max", &config.sessions_max, &check::sessions) {
            self.sessions_max = count;
        }
        let all = number("unauthenticated-max", &config.unauthenticated_max, &check::strangers);
        if let Some(count) = all {
            self.connections.strangers = count;
        }
        let most = self.connections.strangers;
        let of_address = |count| {
            check::strangers(count).and_then(|count| check::strangers_of_address(count, most))
        };
        let field = "unauthenticated-per-address";
        if let Some(count) = number(field, &config.unauthenticated_per_address, &of_address) {
            self.connections.strangers_of_address = count;
        }
    }

    fn take_words(&mut self, source: &Source, config: &Config, wrong: &mut Wrong) {
        if let Some(value) = &config.engine {
            let engine = checked(source, "engine", value, |text| check::engine(text));
            self.engine = wrong.take(engine).unwrap_or(self.engine);
        }
        if let Some(value) = &config.rdma {
            let rdma = checked(source, "rdma", value, |text| check::rdma(text));
            // What is asked of `rdma-listen` does not come of a word that is none.
            self.rdma = wrong.take(rdma).unwrap_or(Provider::Auto);
        }
        for listen in &config.rdma_listen {
            let once = |text: &String| {
                if !self.rdma.has_adapters() {
                    let problem = "it is for adapters: rdma = \"verbs\" or \"auto\" is right \
                                   beside it";
                    return Err(problem.to_owned());
                }
                let found = addresses(text)?;
                listened_once(&self.rdma_listen, &found).map(|()| found)
            };
            let found = wrong.take(checked(source, "rdma-listen", listen, once));
            self.rdma_listen.extend(found.unwrap_or_default());
        }
        for interface in &config.ether {
            let once = |text: &String| check::interface(text, &self.ether);
            let checked = wrong.take(checked(source, "ether", interface, once));
            self.ether.extend(checked);
        }
        if let Some(value) = &config.spin {
            let spin = checked(source, "spin", value, |text| units::duration(text));
            self.spin = wrong.take(spin).unwrap_or(self.spin);
        }
        if let Some(value) = &config.login_timeout {
            let time = checked(source, "login-timeout", value, |text| check::login_timeout(text));
            self.login_timeout = wrong.take(time).unwrap_or(self.login_timeout);
        }
        if let Some(value) = &config.slow {
            let slow = checked(source, "slow", value, |text| units::duration(text));
            self.slow = wrong.take(slow).unwrap_or_default();
        }
        if let Some(value) = &config.http {
            self.http = wrong.take(checked(source, "http", value, |text| check::http(text)));
        }
        if let Some(value) = &config.log {
            let level = checked(source, "log", value, |text| check::log_level(text));
            self.log = wrong.take(level).unwrap_or_default();
        }
        if let Some(value) = &config.isns {
            let server = checked(source, "isns", value, |text| transfer::name_server(text));
            self.isns = wrong.take(server);
        }
        if let Some(value) = &config.sandbox {
            let sandbox = checked(source, "sandbox", value, |text| reach::wish(text));
            self.sandbox = wrong.take(sandbox).unwrap_or_default();
        }
        for value in &config.sandbox_allow {
            let allowed = checked(source, "sandbox-allow", value, |text| {
                let path = place::of_file(source, text)?;
                reach::allowed(text, path.into()).map_err(str::to_owned)
            });
            self.sandbox_allow.extend(wrong.take(allowed));
        }
        let mut path = |field: &str, value: &Option<Spanned<String>>| {
            let value = value.as_ref()?;
            let named = checked(source, field, value, |text| place::of_file(source, text));
            wrong.take(named).map(PathBuf::from)
        };
        self.control_socket = path("control-socket", &config.control_socket);
        self.state_dir = path("state-dir", &config.state_dir);
        self.http_tokens = tokens(source, config, wrong);
        self.http_tls.take_config(source, config, wrong);
    }
}

/// The file of tokens. What names none may be a token itself.
fn tokens(source: &Source, config: &Config, wrong: &mut Wrong) -> Option<PathBuf> {
    const FIELD: &str = "http-token-file";
    let value = config.http_token_file.as_ref()?;
    let named = place::of_file(source, value.get_ref()).map_err(|problem| problem.to_string());
    let is_there = named.as_ref().is_ok_and(|named| std::fs::symlink_metadata(named).is_ok());
    let path = named.map(PathBuf::from).and_then(|path| check::tokens(&path).map(|()| path));
    wrong.take(path.map_err(|problem| match is_there {
        true => source.error(FIELD, value, problem).into(),
        false => source.secret_error(FIELD, value, problem).into(),
    }))
}
