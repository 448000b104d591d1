// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much LUNs and initiators may have: from the configuration, and by order.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::num::NonZeroU64;

use anyhow::Result;
use control::admin;
use control::config;
use control::config::Source;
use control::units;
use control::words;
use store::spec::Exactly;
use store::spec::parse_bytes;
use target::Limit;
use target::Limited;
use target::SESSIONS_MAX;
use toml_edit::ArrayOfTables;
use toml_edit::Item;
use toml_edit::Table;
use toml_edit::value;

use super::checked;
use super::document::Wrong;
use super::node::DraftTarget;

/// Each initiator.
const EACH: &str = "*";

/// No disk of today does more in a second.
const IOPS_MAX: u64 = 1_000_000_000;

/// With less in a second a host gives up before a command of the usual length has its turn.
const BANDWIDTH_MIN: u64 = 64 << 10;

/// What is wrong where there is nothing to be limited.
pub(crate) const NOTHING: &str = "iops, bandwidth or sessions is missing";

/// What is wrong where it is not known what is to be limited.
pub(crate) const WHOM: &str = "lun or initiator is right, and one of them alone";

/// Of disks.
pub(crate) const NO_SESSIONS: &str = "sessions are those of an initiator; a LUN has none";

/// The limits of a target. `numbers`: those that its LUNs have.
pub(super) fn from_file(
    source: &Source,
    target: &config::Target,
    numbers: Option<&BTreeSet<u16>>,
    wrong: &mut Wrong,
) -> Vec<Limit> {
    let mut limits: Vec<Limit> = Vec::new();
    for entry in &target.limit {
        let of = limited(source, target, entry, numbers, &limits);
        let limit = of.and_then(|of| limit(source, target, entry, of));
        if let Some(limit) = wrong.take(limit) {
            insert(&mut limits, limit);
        }
    }
    limits
}

/// In the order of what is limited.
fn insert(limits: &mut Vec<Limit>, limit: Limit) {
    let at = limits.partition_point(|other| other.of < limit.of);
    limits.insert(at, limit);
}

fn limited(
    source: &Source,
    target: &config::Target,
    entry: &config::Limit,
    numbers: Option<&BTreeSet<u16>>,
    others: &[Limit],
) -> Result<Limited> {
    let once = |of: Limited| match others.iter().any(|other| other.of == of) {
        true => Err("another limit is for the same; give one for each".to_owned()),
        false => Ok(of),
    };
    match (&entry.lun, &entry.initiator) {
        (Some(value), None) => checked(source, "target.limit.lun", value, |number| {
            match numbers.filter(|numbers| !numbers.contains(number)) {
                None => once(Limited::Lun(*number)),
                Some(_) => Err("the target has no such LUN".to_owned()),
            }
        }),
        (None, Some(value)) => {
            checked(source, "target.limit.initiator", value, |text| once(initiator(text)?))
        }
        (Some(value), Some(_)) => Err(source.error("target.limit.lun", value, WHOM).into()),
        (None, None) => {
            let problem = format!("[[target.limit]]: {WHOM}");
            Err(source.error("target.name", &target.name, problem).into())
        }
    }
}

fn limit(
    source: &Source,
    target: &config::Target,
    entry: &config::Limit,
    of: Limited,
) -> Result<Limit> {
    let field = "target.limit.iops";
    let operations = entry.iops.as_ref().map(|value| checked(source, field, value, |it| iops(*it)));
    let field = "target.limit.bandwidth";
    let bytes = entry.bandwidth.as_ref();
    let bytes = bytes.map(|value| checked(source, field, value, |text| bandwidth(text)));
    let field = "target.limit.sessions";
    let at_a_time = entry.sessions.as_ref().map(|value| {
        checked(source, field, value, |count| match of {
            Limited::Lun(_) => Err(NO_SESSIONS),
            _ => sessions(*count),
        })
    });
    let (operations, bytes) = (operations.transpose()?, bytes.transpose()?);
    let limit = Limit { of, operations, bytes, sessions: at_a_time.transpose()? };
    if is_none(&limit) {
        let problem = format!("[[target.limit]] of {}: {NOTHING}", shown(&limit.of));
        return Err(source.error("target.name", &target.name, problem).into());
    }
    Ok(limit)
}

/// Whether it limits nothing.
pub(crate) const fn is_none(limit: &Limit) -> bool {
    limit.operations.is_none() && limit.bytes.is_none() && limit.sessions.is_none()
}

/// The initiators that a text names.
pub(crate) fn initiator(text: &str) -> Result<Limited, String> {
    if text == EACH {
        return Ok(Limited::EachInitiator);
    }
    let name = iscsi::name::normalize_configured(text).map_err(|error| error.to_string())?;
    Ok(Limited::Initiator(name))
}

pub(crate) fn iops(count: u64) -> Result<NonZeroU64, &'static str> {
    NonZeroU64::new(count).filter(|it| it.get() <= IOPS_MAX).ok_or("1 to 1000000000 is right")
}

/// Bytes in a second.
pub(crate) fn bandwidth(text: &str) -> Result<NonZeroU64, String> {
    bytes(parse_bytes(text).map_err(|error| error.to_string())?).map_err(str::to_owned)
}

pub(crate) fn bytes(count: u64) -> Result<NonZeroU64, &'static str> {
    let count = NonZeroU64::new(count).filter(|it| it.get() >= BANDWIDTH_MIN);
    count.ok_or("a size of 64K at least is right, for example 100M")
}

pub(crate) fn sessions(count: u64) -> Result<NonZeroU64, &'static str> {
    let is_right = |count: &NonZeroU64| count.get() <= SESSIONS_MAX as u64;
    NonZeroU64::new(count).filter(is_right).ok_or("1 to 16384 is right")
}

/// What is limited, in words.
pub(crate) fn shown(of: &Limited) -> String {
    match of {
        Limited::Lun(number) => format!("LUN {number}"),
        Limited::Initiator(name) => format!("initiator {name}"),
        Limited::EachInitiator => "each initiator".to_owned(),
    }
}

/// How much that may have, in words.
pub(crate) fn most(limit: &Limit) -> String {
    let iops = limit.operations.map(|count| format!("{count} IOPS"));
    let bandwidth = limit.bytes.map(|bytes| format!("{}/s", units::bytes(bytes.get())));
    let sessions = limit.sessions.map(|count| words::count(count, "session"));
    let all: Vec<String> = iops.into_iter().chain(bandwidth).chain(sessions).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(" and ") }
}

/// The same as it is written down: LUN, initiator.
pub(crate) fn written(of: &Limited) -> (Option<u16>, Option<&str>) {
    match of {
        Limited::Lun(number) => (Some(*number), None),
        Limited::Initiator(name) => (None, Some(name)),
        Limited::EachInitiator => (None, Some(EACH)),
    }
}

/// As it is told to another process.
pub(super) fn told(target: &str, limit: &Limit) -> admin::Limit {
    let (lun, initiator) = written(&limit.of);
    admin::Limit {
        target: target.to_owned(),
        lun,
        initiator: initiator.map(str::to_owned),
        iops: limit.operations.map(u64::from),
        bandwidth: limit.bytes.map(u64::from),
        sessions: limit.sessions.map(u64::from),
        ..admin::Limit::default()
    }
}

/// The same, as it was told.
pub(super) fn heard(told: &admin::Limit) -> Result<Limit, String> {
    let of = match (told.lun, &told.initiator) {
        (Some(lun), None) => Limited::Lun(lun),
        (None, Some(text)) => initiator(text)?,
        _ => return Err(WHOM.to_owned()),
    };
    let at_a_time = told.sessions.map(sessions).transpose()?;
    if at_a_time.is_some() && told.lun.is_some() {
        return Err(NO_SESSIONS.to_owned());
    }
    Ok(Limit {
        of,
        operations: told.iops.map(iops).transpose()?,
        bytes: told.bandwidth.map(bytes).transpose()?,
        sessions: at_a_time,
    })
}

impl DraftTarget {
    /// Another limit is in the place of the one for the same, or none.
    pub(crate) fn set_limit(&mut self, limit: Limit) {
        self.limits.retain(|other| other.of != limit.of);
        if !is_none(&limit) {
            insert(&mut self.limits, limit);
        }
    }

    /// Those of disks that are there, and of initiators.
    pub(super) fn limits_of_now(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(|limit| match limit.of {
            Limited::Lun(number) => self.luns.iter().any(|lun| lun.number() == number),
            _ => true,
        })
    }

    /// Writes them down, unless `of_file` are the same.
    pub(super) fn write_limits(&self, table: &mut Table, of_file: &[Limit]) {
        let now: Vec<&Limit> = self.limits_of_now().collect();
        if now.iter().copied().eq(of_file) {
            return;
        }
        table.remove("limit");
        if now.is_empty() {
            return;
        }
        let mut tables = ArrayOfTables::new();
        for limit in now {
            let mut table = Table::new();
            let (lun, initiator) = written(&limit.of);
            let number = |count: &dyn Display| {
                count.to_string().parse::<i64>().map_or_else(|_| Item::None, value)
            };
            if let Some(lun) = lun {
                table["lun"] = value(i64::from(lun));
            }
            if let Some(initiator) = initiator {
                table["initiator"] = value(initiator);
            }
            if let Some(count) = limit.operations {
                table["iops"] = number(&count);
            }
            if let Some(bytes) = limit.bytes {
                table["bandwidth"] = value(Exactly(bytes.get()).to_string());
            }
            if let Some(count) = limit.sessions {
                table["sessions"] = number(&count);
            }
            tables.push(table);
        }
        table.insert("limit", Item::ArrayOfTables(tables));
    }
}
