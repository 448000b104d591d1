// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the options of the command line say, on top of the configuration file.

use std::net::SocketAddr;

use anyhow::Result;
use control::units;
use store::spec::Spec;
use target::Demand;

use super::DEFAULT_STORE;
use super::DEFAULT_TARGET;
use super::Draft;
use super::check;
use super::check::addresses;
use super::check::allowed_cpu;
use super::check::engine;
use super::check::listened_once;
use super::check::log_level;
use super::check::login_timeout;
use super::check::option;
use super::check::reactors;
use super::check::strangers;
use super::check::strangers_of_address;
use super::lun::DraftLun;
use super::lun::protection;
use super::lun::serial;
use super::node;
use super::node::DraftTarget;
use super::reach;
use super::transfer;
use crate::args::ServeOptions;
use crate::args::Usage;
use crate::client::capture;
use crate::credentials::shown_file;

impl Draft {
    pub(super) fn take_options(&mut self, options: &ServeOptions) -> Result<()> {
        listened("--listen", &options.listen, &mut self.listen)?;
        if let Some(text) = &options.engine {
            self.engine = option("--engine", text, engine(text))?;
        }
        self.mode.take_options(options)?;
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
        if let Some(text) = &options.slow {
            self.slow = option("--slow", text, units::duration(text))?;
        }
        if let Some(text) = &options.rdma {
            self.rdma = option("--rdma", text, check::rdma(text))?;
            self.rdma_of.clear();
            if !self.rdma.has_adapters() {
                self.rdma_listen.clear();
            }
        }
        listened("--rdma-listen", &options.rdma_listen, &mut self.rdma_listen)?;
        if !self.rdma_listen.is_empty() && !self.rdma.has_adapters() {
            let problem = "--rdma-listen: it is for adapters; try: --rdma verbs beside it";
            return Err(Usage(problem.into()).into());
        }
        if !options.ether.is_empty() {
            self.ether.clear();
        }
        for name in &options.ether {
            let name = option("--ether", name, check::interface(name, &self.ether))?;
            self.ether.push(name);
        }
        if let Some(path) = &options.capture {
            capture::refuse_stream(path)?;
            let limit = capture::limit(options.capture_limit.as_deref())?;
            self.capture = Some((path.clone(), limit));
        }
        if let Some(count) = options.unauthenticated_max {
            self.connections.strangers = option("--unauthenticated-max", count, strangers(count))?;
        }
        if let Some(count) = options.unauthenticated_per_address {
            let most = self.connections.strangers;
            let checked = strangers(count).and_then(|count| strangers_of_address(count, most));
            self.connections.strangers_of_address =
                option("--unauthenticated-per-address", count, checked)?;
        }
        if let Some(text) = &options.http {
            self.http = Some(option("--http", text, check::http(text))?);
        }
        if let Some(path) = &options.http_token_file {
            let shown = shown_file("--http-token-file", &path.to_string_lossy());
            check::tokens(path).map_err(|problem| Usage(format!("{shown}: {problem}")))?;
            self.http_tokens = Some(path.clone());
        }
        self.http_tls.take_options(options);
        if let Some(text) = &options.log {
            self.log = option("--log", text, log_level(text))?;
        }
        if let Some(text) = &options.isns {
            self.isns = Some(option("--isns", text, transfer::name_server(text))?);
        }
        if let Some(text) = &options.sandbox {
            self.sandbox = option("--sandbox", text, reach::wish(text))?;
        }
        if !options.sandbox_allow.is_empty() {
            self.sandbox_allow.clear();
        }
        for text in &options.sandbox_allow {
            let allowed = reach::allowed(text, text.into());
            self.sandbox_allow.push(option("--sandbox-allow", text, allowed)?);
        }
        if let Some(path) = &options.control_socket {
            self.control_socket = Some(path.clone());
        }
        if let Some(path) = &options.state_dir {
            self.state_dir = Some(path.clone());
        }
        let of_luns = [
            ("--serial", !options.serial.is_empty()),
            ("--identity", options.identity.is_some()),
            ("--protection", options.protection.is_some()),
        ];
        let of_luns = of_luns.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag));
        let has_own = options.target.is_some() || !options.lun.is_empty();
        if let Some(flag) = of_luns.filter(|_| !has_own && !self.targets.is_empty()) {
            let key = flag.trim_start_matches('-');
            let problem = format!(
                "{flag}: it is for the LUNs of the command line, which has none; try: --lun \
                 beside it, or {key} in the file for those there"
            );
            return Err(Usage(problem).into());
        }
        if has_own || of_luns.is_some() {
            self.take_target(options)?;
        }
        Ok(())
    }

    /// The target of the command line.
    fn take_target(&mut self, options: &ServeOptions) -> Result<()> {
        let name = options.target.as_deref().unwrap_or(DEFAULT_TARGET);
        let normalized = option("--target", name, node::name(name, &self.targets))?;
        let mut target = DraftTarget::new(normalized);
        let default = [DEFAULT_STORE.to_owned()];
        let words: &[String] = if options.lun.is_empty() { &default } else { &options.lun };
        for (number, word) in (0_u16..).zip(words) {
            let spec = option("--lun", word, word.parse::<Spec>())?;
            let mut lun = DraftLun::new(number, word, spec);
            if let Some(kind) = options.protection {
                let kind = option("--protection", kind, protection(kind, &lun.spec))?;
                lun.protection = Some(kind);
            }
            if let Some(text) = options.serial.get(usize::from(number)) {
                lun.serial = Some(option("--serial", text, serial(text))?);
            }
            target.luns.push(lun);
        }
        if let Some(text) = options.serial.get(words.len()) {
            let problem = format!("--serial {text}: there is no --lun for it; give one for each");
            return Err(Usage(problem).into());
        }
        if let Some(text) = &options.identity {
            target.identity = option("--identity", text, check::identity(text))?;
        }
        self.targets.push(target);
        Ok(())
    }

    /// The credentials of the command line: for the target that it made, behind the `of_file` ones
    /// of the file, and for discovery, unless the file says who may ask.
    pub(super) fn take_credentials(
        &mut self,
        options: &ServeOptions,
        of_file: usize,
    ) -> Result<()> {
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
}

/// The addresses of an option take the place of those of the file.
fn listened(flag: &str, texts: &[String], known: &mut Vec<SocketAddr>) -> Result<()> {
    if !texts.is_empty() {
        known.clear();
    }
    for text in texts {
        let found = option(flag, text, addresses(text))?;
        option(flag, text, listened_once(known, &found))?;
        known.extend(found);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: ServeOptions,
    }

    /// The targets of a file and options, with their numbers of disks; the error otherwise.
    fn targets(file: &str, options: &[&str]) -> Result<Vec<(String, usize)>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lunwire.toml");
        std::fs::write(&path, file).expect("room");
        let path = path.display().to_string();
        let line = ["serve", "--config", &path].into_iter().chain(options.iter().copied());
        let draft = Draft::from_options(&Line::parse_from(line).options);
        let draft = draft.map_err(|error| error.to_string())?;
        let targets = draft.targets.into_iter();
        Ok(targets.map(|target| (target.name, target.luns.len())).collect())
    }

    /// They would bring a disk that nobody has asked for beside those of the file.
    #[test]
    fn options_of_disks_want_a_disk_of_the_command_line() {
        const FILE: &str = "[[target]]\nname = \"iqn.2026-01.test:a\"\n[[target.lun]]\n\
                            store = \"memory:1M\"\n";
        let own = || ("iqn.2026-01.test:a".to_owned(), 1);
        for option in [["--serial", "A1"], ["--identity", "name"], ["--protection", "1"]] {
            let [flag, _] = option;
            let said = targets(FILE, &option).expect_err(flag);
            let key = flag.trim_start_matches('-');
            assert!(said.starts_with(&format!("{flag}: ")), "{said}");
            assert!(
                said.contains("; try: --lun ") && said.contains(&format!(" {key} in ")),
                "{said}"
            );
            let with = |more: &[&str]| targets(FILE, &[&option[..], more].concat());
            let default = (DEFAULT_TARGET.to_owned(), 1);
            assert_eq!(with(&["--lun", "memory:1M"]), Ok(vec![own(), default.clone()]), "{flag}");
            let named = ("iqn.2026-01.test:b".to_owned(), 1);
            assert_eq!(with(&["--target", "iqn.2026-01.test:b"]), Ok(vec![own(), named]), "{flag}");
            // Of the disk that there is without a word.
            assert_eq!(targets("log = \"warn\"\n", &option), Ok(vec![default]), "{flag}");
        }
    }
}
