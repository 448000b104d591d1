// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who answers in this process what the control socket answers: to the port for HTTP.

mod wording;

use std::sync::Arc;

use control::admin::Refused;
use control::admin::Reply;
use control::admin::Request;
use control::units;
use http::Giver;
use target::Event;

use super::Shared;
use crate::plan;

/// Answers as the control socket does, with or without one.
#[derive(Clone, Debug)]
pub(crate) struct Desk(Arc<Shared>);

impl Desk {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Why a disk in memory is one too many. Orders over HTTP are carried out one at a time.
    fn beyond_memory(&self, request: &Request) -> Option<String> {
        let Request::AddLun { lun, .. } = request else { return None };
        let wanted = plan::memory_of(&lun.store.parse().ok()?);
        if wanted == 0 {
            return None;
        }
        let disks = plan::memory_of_all(&self.0.disks());
        plan::machine::beyond_memory(disks.saturating_add(wanted))
    }
}

impl http::Desk for Desk {
    fn answer(&self, request: &Request) -> Reply {
        // A question is no order: another process may take over meanwhile.
        let asked = self.0.answer(request);
        wording::for_programs(asked.unwrap_or_else(|| self.0.carry_out(request, &|| true)))
    }

    fn order(&self, request: &Request, giver: &Giver) -> Reply {
        let reply = match self.beyond_memory(request) {
            Some(message) => Reply::Error { message },
            None => self.answer(request),
        };
        // The log says what was done, and who had it done. What he wrote is in fields, where it
        // begins no line of its own.
        let (peer, token) = (giver.peer.map(tracing::field::display), &*giver.token);
        if let Some(order) = words(request) {
            match &reply {
                Reply::Error { message: why } => {
                    tracing::warn!(peer, token, order, why, "not done over HTTP");
                }
                Reply::Reloaded(told) if !told.applied => {
                    let refused = told.refused.iter();
                    let refused = refused.map(|Refused { what, why }| format!("{what}: {why}"));
                    let why = refused.collect::<Vec<_>>().join("; ");
                    tracing::warn!(peer, token, order, why, "not done over HTTP");
                }
                _ => tracing::info!(
                    name: Event::Change.name(), peer, token, order, "done over HTTP"
                ),
            }
        }
        reply
    }
}

/// An order as its command has it; None: nothing is changed by it.
fn words(request: &Request) -> Option<String> {
    Some(match request {
        Request::Reload { dry_run: false, destroy_data } => {
            format!("reload{}", if *destroy_data { " --destroy-data" } else { "" })
        }
        Request::DropSession { tsih } => format!("session drop {tsih}"),
        Request::LogoutSession { tsih, .. } => format!("session logout {tsih}"),
        Request::SetPortGroup { target, lun, group, state } => {
            let lun = lun.map(|lun| format!(" --lun {lun}")).unwrap_or_default();
            format!("alua set {target} {group} {state}{lun}")
        }
        Request::SetLimit { target, lun, initiator, iops, bandwidth, sessions } => {
            let target = target.iter().map(|target| format!(" --target {target}"));
            let lun = lun.map(|lun| format!(" --lun {lun}"));
            let initiator = initiator.as_ref().map(|name| format!(" --initiator {name}"));
            let iops = iops.map(|count| format!(" --iops {count}"));
            let bandwidth = bandwidth.map(|bytes| format!(" --bandwidth {bytes}"));
            let sessions = sessions.map(|count| format!(" --sessions {count}"));
            let of = target.chain(lun).chain(initiator);
            let options: String = of.chain(iops).chain(bandwidth).chain(sessions).collect();
            format!("limit set{options}")
        }
        Request::ResizeLun { target, lun, bytes, shrink } => {
            let target = target.iter().map(|target| format!(" --target {target}"));
            let shrink = shrink.then(|| " --shrink".to_owned());
            let options: String = target.chain(shrink).collect();
            format!("lun resize {lun} {bytes} ({}){options}", units::bytes(*bytes))
        }
        Request::AddLun { target, number, lun } => {
            let number = number.map(|number| format!(" --number {number}"));
            let target = target.iter().map(|target| format!(" --target {target}"));
            let seen = lun.initiators.iter().map(|name| format!(" --initiator {name}"));
            let options: String = number.into_iter().chain(target).chain(seen).collect();
            format!("lun add {}{options}", lun.store)
        }
        Request::RemoveLun { target, lun, destroy_data } => {
            let target = target.iter().map(|target| format!(" --target {target}"));
            let destroy = destroy_data.then(|| " --destroy-data".to_owned());
            let options: String = target.chain(destroy).collect();
            format!("lun remove {lun}{options}")
        }
        _ => return None,
    })
}
