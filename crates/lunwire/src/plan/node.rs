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
use scsi::Explicit;
use scsi::PortGroup;
use target::AccessRule;
use target::AuthenticationPolicy;
use target::Demand;
use target::IdentityPolicy;
use target::Redirect;

use super::check;
use super::checked;
use super::lun;
use super::lun::DraftLun;
use super::transfer;
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
    pub(super) explicit: Explicit,
    pub(super) identity: IdentityPolicy,
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
            authentication: AuthenticationPolicy::default(),
            port_groups: Vec::new(),
            explicit: Explicit::No,
            identity: IdentityPolicy::default(),
        }
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
    ) -> Result<Self> {
        let name = checked(source, "target.name", &target.name, |text| name(text, others))?;
        let mut draft = Self::new(name);
        draft.alias = target.alias.as_ref().map(|alias| alias.get_ref().clone());
        draft.take_settings(source, target)?;
        transfer::take(&mut draft.settings, source, target)?;
        draft.redirect = redirect(source, target)?;
        if let Some(value) = &target.identity {
            draft.identity =
                checked(source, "target.identity", value, |text| check::identity(text))?;
        }
        let mut numbers = BTreeSet::new();
        for (place, lun) in (0..).zip(&target.lun) {
            let number = match &lun.number {
                None => place,
                Some(value) => checked(source, "target.lun.number", value, |n| lun::number(*n))?,
            };
            if !numbers.insert(number) {
                let taken = format!("LUN {number} is there already; give each its own number");
                return Err(match &lun.number {
                    Some(value) => source.error("target.lun.number", value, taken),
                    None => source.error("target.lun.store", &lun.store, taken),
                }
                .into());
            }
            draft.luns.push(DraftLun::from_file(source, number, lun)?);
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
    pub(super) fn take_authentication(
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
            visible.push(checked(source, "target.initiator.luns", number, |number| match numbers
                .contains(number)
            {
                true => Ok(*number),
                false => {
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
