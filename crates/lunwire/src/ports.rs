// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Portal groups and target port groups: from the configuration, and while the daemon runs.

use std::net::SocketAddr;

use anyhow::Result;
use control::admin;
use control::config;
use control::config::Source;
use scsi::AccessState;
use scsi::Explicit;
use scsi::PortGroup;
use target::PORTAL_GROUP_TAG;
use target::Portal;
use target::Target;

use crate::plan::addresses;
use crate::plan::checked;
use crate::plan::listened_once;

const STATES: [(&str, AccessState); 5] = [
    ("active-optimized", AccessState::ActiveOptimized),
    ("active-non-optimized", AccessState::ActiveNonOptimized),
    ("standby", AccessState::Standby),
    ("unavailable", AccessState::Unavailable),
    ("transitioning", AccessState::Transitioning),
];

/// The portals of all portal groups but the one of `listen`.
pub(crate) fn portal_groups(
    source: &Source,
    groups: &[config::PortalGroup],
    listen: &[SocketAddr],
) -> Result<Vec<Portal>> {
    let mut portals: Vec<Portal> = Vec::new();
    for entry in groups {
        let group = checked(source, "portal-group.tag", &entry.tag, |tag| match *tag {
            0 => Err("2 to 65535 is right"),
            PORTAL_GROUP_TAG => Err("group 1 has the portals of listen; 2 to 65535 is right"),
            tag if portals.iter().any(|portal| portal.group == tag) => {
                Err("another portal group has this tag; give each its own")
            }
            tag => Ok(tag),
        })?;
        if entry.listen.is_empty() {
            let none = "it has no portal; add listen = [\"192.0.2.1:3260\"], for example";
            return Err(source.error("portal-group.tag", &entry.tag, none).into());
        }
        for text in &entry.listen {
            let found = checked(source, "portal-group.listen", text, |text| addresses(text))?;
            let others = portals.iter().map(|portal| portal.address);
            let others: Vec<SocketAddr> = others.chain(listen.iter().copied()).collect();
            let once = |_: &String| listened_once(&others, &found);
            checked(source, "portal-group.listen", text, once)?;
            portals.extend(found.into_iter().map(|address| Portal { group, ..address.into() }));
        }
    }
    Ok(portals)
}

/// The target port groups of a target, which take up every portal group if there are any.
pub(crate) fn port_groups(
    source: &Source,
    target: &config::Target,
    portals: &[Portal],
) -> Result<Vec<PortGroup>> {
    let mut tags = vec![PORTAL_GROUP_TAG];
    tags.extend(portals.iter().map(|portal| portal.group));
    tags.dedup();
    let mut groups: Vec<PortGroup> = Vec::new();
    for entry in &target.port_group {
        let field = "target.port-group.number";
        let number = checked(source, field, &entry.number, |number| match *number {
            0 => Err("1 to 65535 is right"),
            number if groups.iter().any(|group| group.number == number) => {
                Err("another port group has this number; give each its own")
            }
            number => Ok(number),
        })?;
        let mut ports = Vec::new();
        for tag in &entry.portal_groups {
            let field = "target.port-group.portal-groups";
            ports.push(checked(source, field, tag, |tag| {
                let taken = groups.iter().flat_map(|group| &group.ports).chain(&ports);
                if !tags.contains(tag) {
                    Err("no such portal group; add [[portal-group]] with this tag")
                } else if taken.into_iter().any(|other| other == tag) {
                    Err("a portal group belongs to one port group")
                } else {
                    Ok(*tag)
                }
            })?);
        }
        if ports.is_empty() {
            let none = "it has no portal group; add portal-groups = [1], for example";
            return Err(source.error(field, &entry.number, none).into());
        }
        let state = match &entry.state {
            None => AccessState::ActiveOptimized,
            Some(value) => checked(source, "target.port-group.state", value, |text| state(text))?,
        };
        groups.push(PortGroup { number, ports, preferred: entry.preferred, state });
    }
    let missing = tags.iter().find(|tag| !groups.iter().any(|group| group.ports.contains(tag)));
    if let (Some(tag), Some(last)) = (missing, target.port_group.last()) {
        let problem =
            format!("portal group {tag} is in no port group of the target; add it to one");
        return Err(source.error("target.port-group.number", &last.number, problem).into());
    }
    Ok(groups)
}

/// Whether hosts may change states.
pub(crate) const fn explicit(target: &config::Target) -> Explicit {
    if target.explicit_alua { Explicit::Yes } else { Explicit::No }
}

/// Every port group of every unit. Where none is configured each portal group is one.
pub(crate) fn shown(target: &Target) -> Vec<admin::PortGroup> {
    let mut list = Vec::new();
    for name in target.names() {
        for (lun, unit) in target.units(&name).into_iter().flatten() {
            let configured = unit.port_groups();
            let fixed = configured.is_empty();
            list.extend(configured.into_iter().map(|group| admin::PortGroup {
                target: name.clone(),
                lun,
                group: group.number,
                preferred: group.preferred,
                state: name_of(group.state).into(),
                portal_groups: group.ports,
                fixed,
            }));
            let tags = if fixed { target.portal_groups() } else { Vec::new() };
            list.extend(tags.into_iter().map(|tag| admin::PortGroup {
                target: name.clone(),
                lun,
                group: tag,
                preferred: false,
                state: name_of(AccessState::ActiveOptimized).into(),
                portal_groups: vec![tag],
                fixed,
            }));
        }
    }
    list
}

/// Changes a group's state for one unit or for all, and gives it; the error says what to do.
pub(crate) fn set(
    target: &Target,
    name: &str,
    lun: Option<u16>,
    group: u16,
    text: &str,
) -> Result<AccessState, String> {
    let state = state(text).map_err(|right| format!("{text}: {right}"))?;
    let missing = || format!("no target {name}; try: lunwire status");
    let units = target.units(name).ok_or_else(missing)?;
    let wanted = || units.iter().filter(|(number, _)| lun.is_none_or(|lun| lun == *number));
    if let (Some(lun), None) = (lun, wanted().next()) {
        return Err(format!("no LUN {lun} in {name}; try: lunwire status"));
    }
    if wanted().any(|(_, unit)| unit.port_groups().is_empty()) {
        return Err(format!(
            "{name} has no port groups of its own: each portal group is one, always active and \
             optimized; try: [[target.port-group]] in the configuration"
        ));
    }
    for (_, unit) in wanted() {
        let missing = |error| format!("{error} in {name}; try: lunwire alua");
        unit.set_access_state(group, state).map_err(missing)?;
    }
    tracing::info!(
        name: target::Event::Change.name(), target = name, group, state = text,
        "port group changed"
    );
    Ok(state)
}

/// The state that `text` names; the error says what is right.
pub(crate) fn state(text: &str) -> Result<AccessState, &'static str> {
    let known = STATES.into_iter().find(|(name, _)| *name == text);
    known.map(|(_, state)| state).ok_or(
        "active-optimized, active-non-optimized, standby, unavailable or transitioning is right",
    )
}

pub(crate) fn name_of(state: AccessState) -> &'static str {
    STATES.into_iter().find(|(_, other)| *other == state).map_or("unknown", |(name, _)| name)
}
