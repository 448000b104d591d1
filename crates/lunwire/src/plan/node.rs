// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target of the configuration.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::Result;
use control::config;
use control::config::Source;
use control::units;
use iscsi::target_role::DigestPolicy;
use iscsi::target_role::Redirection;
use iscsi::target_role::Settings;
use iscsi::target_role::TargetReset;
use scsi::AccessState;
use scsi::Explicit;
use scsi::PortGroup;
use target::AccessRule;
use target::AuthenticationPolicy;
use target::Demand;
use target::IdentityPolicy;
use target::Limit;
use target::LunMap;
use target::Node;
use target::Redirect;

use super::check;
use super::checked;
use super::document::Wrong;
use super::limit;
use super::lun;
use super::lun::DraftLun;
use super::transfer;
use crate::credentials;
use crate::credentials::Accounts;

#[derive(Debug)]
pub(crate) struct DraftTarget {
    pub(super) name: String,
    pub(super) alias: Option<String>,
    pub(super) settings: Settings,
    pub(super) redirect: Option<Redirect>,
    pub(crate) luns: Vec<DraftLun>,
    pub(super) access: Vec<AccessRule>,
    pub(super) authentication: AuthenticationPolicy,
    pub(super) port_groups: Vec<PortGroup>,
    /// States that orders gave them, of all disks: those that come have them, too.
    pub(super) states: Vec<(u16, AccessState)>,
    pub(super) explicit: Explicit,
    pub(super) identity: IdentityPolicy,
    /// In the order of what they limit.
    pub(super) limits: Vec<Limit>,
}

/// Who can use disks without a proof of who that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Open {
    ToAll,
    /// Names that everybody can tell.
    ToNames,
}

impl DraftTarget {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            alias: None,
            settings: Settings::default(),
            redirect: None,
            luns: Vec::new(),
            access: Vec::new(),
            authentication: credentials::nothing_demanded(),
            port_groups: Vec::new(),
            states: Vec::new(),
            explicit: Explicit::No,
            identity: IdentityPolicy::default(),
            limits: Vec::new(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What is served of it, with these disks.
    pub(crate) fn node(&self, luns: LunMap) -> Node {
        Node {
            name: self.name.clone(),
            alias: self.alias.clone(),
            luns,
            access: self.access.clone(),
            authentication: self.authentication.clone(),
            settings: self.settings.clone(),
            redirect: self.redirect.clone(),
        }
    }

    /// The target port groups that a disk has which comes now.
    pub(super) fn port_groups_of_now(&self) -> Vec<PortGroup> {
        let mut groups = self.port_groups.clone();
        for group in &mut groups {
            let ordered = self.states.iter().find(|(number, _)| *number == group.number);
            group.state = ordered.map_or(group.state, |(_, state)| *state);
        }
        groups
    }

    /// Whether its disks are for everybody who reaches it.
    pub(super) fn open(&self) -> Option<Open> {
        let all_prove = match self.authentication.demand {
            Demand::Required | Demand::Mutual => true,
            // Whoever has an account has to prove its name.
            Demand::Optional => {
                !self.access.is_empty() && self.access.iter().all(|rule| rule.account.is_some())
            }
            Demand::Off => false,
        };
        match (all_prove || self.redirect.is_some(), self.access.is_empty()) {
            (true, _) => None,
            (false, true) => Some(Open::ToAll),
            (false, false) => Some(Open::ToNames),
        }
    }

    pub(super) fn from_file(
        source: &Source,
        target: &config::Target,
        others: &[Self],
        wrong: &mut Wrong,
    ) -> Self {
        let name = checked(source, "target.name", &target.name, |text| name(text, others));
        let mut draft = Self::new(wrong.take(name).unwrap_or_default());
        draft.alias = target.alias.as_ref().map(|alias| alias.get_ref().clone());
        wrong.take(draft.take_settings(source, target));
        wrong.take(draft.take_times(source, target));
        wrong.take(transfer::take(&mut draft.settings, source, target));
        draft.redirect = wrong.take(redirect(source, target)).flatten();
        if let Some(value) = &target.identity {
            let policy = checked(source, "target.identity", value, |text| check::identity(text));
            draft.identity = wrong.take(policy).unwrap_or_default();
        }
        let mut numbers = BTreeSet::new();
        let before = wrong.count();
        for (place, lun) in (0..).zip(&target.lun) {
            let number = wrong.take(own_number(source, place, lun, &mut numbers));
            let lun = wrong.take(DraftLun::from_file(source, number.unwrap_or(place), lun));
            draft.luns.extend(lun);
        }
        if target.lun.is_empty() && target.redirect.is_none() {
            let none = "it has no LUN; add [[target.lun]] with store = \"memory:1G\", for example";
            wrong.take::<()>(Err(source.error("target.name", &target.name, none).into()));
        }
        // Where a number is wrong it is not known which there are.
        let numbers = (before == wrong.count()).then_some(numbers);
        draft.limits = limit::from_file(source, target, numbers.as_ref(), wrong);
        for initiator in &target.initiator {
            let rule = access_rule(source, initiator, numbers.as_ref());
            draft.access.extend(wrong.take(rule));
        }
        draft
    }

    /// The accounts of the target and of each initiator, and what is demanded of them.
    pub(super) fn take_authentication(
        &mut self,
        source: &Source,
        target: &config::Target,
        accounts: &mut Accounts,
        wrong: &mut Wrong,
    ) {
        // Without one of them the others are not at their places.
        let are_all_there = self.access.len() == target.initiator.len();
        let before = wrong.count();
        for (at, initiator) in target.initiator.iter().enumerate() {
            let account = accounts.of_file(source, "target.initiator", initiator.chap());
            let account = wrong.take(account).flatten();
            if let Some(rule) = self.access.get_mut(at).filter(|_| are_all_there) {
                rule.account = account;
            }
        }
        let rules: &[AccessRule] =
            if are_all_there && before == wrong.count() { &self.access } else { &[] };
        if rules.len() == target.initiator.len() {
            let policy = wrong.take(accounts.of_target(source, target, rules));
            self.authentication = policy.unwrap_or_default();
        }
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
        Ok(())
    }

    fn take_times(&mut self, source: &Source, target: &config::Target) -> Result<()> {
        let settings = &mut self.settings;
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

/// The number of a unit, which is at `place` in its list, among those that others have.
fn own_number(
    source: &Source,
    place: u16,
    lun: &config::Lun,
    numbers: &mut BTreeSet<u16>,
) -> Result<u16> {
    let number = match &lun.number {
        None => place,
        Some(value) => checked(source, "target.lun.number", value, |n| lun::number(*n))?,
    };
    if numbers.insert(number) {
        return Ok(number);
    }
    let taken = format!("LUN {number} is there already; give each its own number");
    Err(match &lun.number {
        Some(value) => source.error("target.lun.number", value, taken),
        None => source.error("target.lun.store", &lun.store, taken),
    }
    .into())
}

fn access_rule(
    source: &Source,
    initiator: &config::Initiator,
    numbers: Option<&BTreeSet<u16>>,
) -> Result<AccessRule> {
    let field = "target.initiator.name";
    let name = checked(source, field, &initiator.name, |text| {
        iscsi::name::normalize_configured(text).map_err(|error| error.to_string())
    })?;
    let mut luns = None;
    if let Some(list) = &initiator.luns {
        let mut visible = Vec::new();
        for number in list {
            visible.push(checked(source, "target.initiator.luns", number, |number| match numbers
                .filter(|numbers| !numbers.contains(number))
            {
                None => Ok(*number),
                Some(numbers) => {
                    let there: Vec<_> = numbers.iter().map(u16::to_string).collect();
                    Err(format!("no such LUN; there are {}", there.join(", ")))
                }
            })?);
        }
        luns = Some(visible);
    }
    let reset = initiator.target_reset.as_ref().map(|value| {
        checked(source, "target.initiator.target-reset", value, |text| target_reset(text))
    });
    Ok(AccessRule { initiator: name, luns, account: None, target_reset: reset.transpose()? })
}

/// What RFC 7143 §13.26 has in mind: the kinds of software, system and processor.
fn node_architecture() -> String {
    let [version, system, processor] =
        [env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH];
    format!("lunwire-{version},{system},{processor}")
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

pub(super) fn name(text: &str, others: &[DraftTarget]) -> Result<String, String> {
    let name = iscsi::name::normalize_configured(text).map_err(|error| error.to_string())?;
    if others.iter().any(|other| other.name == name) {
        return Err("another target has this name; give each its own".into());
    }
    Ok(name)
}
