// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much LUNs and initiators may have: what is shown of it, and orders.

use control::admin;
use target::Figures;
use target::Limit;
use target::LimitSnapshot;
use target::Limited;
use target::Target;

use crate::plan::limit;

/// All limits. `figures`: of the reactors that have answered.
pub(super) fn shown(target: &Target, figures: &[Figures]) -> Vec<admin::Limit> {
    let shown = |one: LimitSnapshot| {
        let held = figures.iter().flat_map(|figures| &figures.held);
        let held = held.filter(|held| one.is_for(held)).map(|held| held.commands).sum();
        let LimitSnapshot { target, limit, begun, held: delayed, .. } = one;
        let (lun, initiator) = limit::written(&limit.of);
        admin::Limit {
            target,
            lun,
            initiator: initiator.map(str::to_owned),
            iops: limit.operations.map(u64::from),
            bandwidth: limit.bytes.map(u64::from),
            sessions: limit.sessions.map(u64::from),
            held,
            begun,
            delayed,
        }
    };
    target.limits().into_iter().map(shown).collect()
}

/// The limit that an order names, of the target `name`; the error says what to do.
pub(super) fn of_order(
    target: &Target,
    name: &str,
    (lun, initiator): (Option<u16>, Option<&str>),
    (iops, bandwidth, sessions): (Option<u64>, Option<u64>, Option<u64>),
) -> Result<Limit, String> {
    let units = target.units(name);
    let units = units.ok_or_else(|| format!("no target {name}; try: lunwire status"))?;
    let wrong = |what: &str, count: u64, why: &str| format!("{what} {count}: {why}");
    let of = match (lun, initiator) {
        (Some(lun), None) if !units.iter().any(|(number, _)| *number == lun) => {
            return Err(format!("no LUN {lun} in {name}; try: lunwire status"));
        }
        (Some(lun), None) => Limited::Lun(lun),
        (None, Some(text)) => {
            limit::initiator(text).map_err(|why| format!("initiator {text}: {why}"))?
        }
        _ => return Err(limit::WHOM.to_owned()),
    };
    if lun.is_some() && sessions.is_some() {
        return Err(limit::NO_SESSIONS.to_owned());
    }
    let operations = iops.map(|it| limit::iops(it).map_err(|why| wrong("iops", it, why)));
    let bytes = bandwidth.map(|it| limit::bytes(it).map_err(|why| wrong("bandwidth", it, why)));
    let sessions = sessions.map(|it| limit::sessions(it).map_err(|why| wrong("sessions", it, why)));
    Ok(Limit {
        of,
        operations: operations.transpose()?,
        bytes: bytes.transpose()?,
        sessions: sessions.transpose()?,
    })
}
