// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who answers in this process what the control socket answers: to the port for HTTP.

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
        let disks = self.0.disks();
        let all = disks.iter().map(plan::memory_of).fold(wanted, u64::saturating_add);
        plan::machine::beyond_memory(all)
    }
}

/// What commands are called, and what is the same in the API.
const WORDS: [(&str, &str); 8] = [
    ("--destroy-data", "destroy_data"),
    ("--shrink", "shrink"),
    ("--number", "number"),
    ("--target IQN", "target"),
    ("lunwire status", "/api/v1/status"),
    ("lunwire sessions", "/api/v1/sessions"),
    ("lunwire limit", "limits of /api/v1/status"),
    ("lunwire lun resize", "resize-lun"),
];

/// An answer that who asks over HTTP can follow where it is none, or tells why something cannot be.
fn in_their_words(mut reply: Reply) -> Reply {
    match &mut reply {
        Reply::Error { message } => *message = for_programs(message),
        Reply::Reloaded(told) => {
            told.refused.iter_mut().for_each(|refused| refused.why = for_programs(&refused.why));
        }
        _ => {}
    }
    reply
}

/// A message as who asks over HTTP can follow it.
fn for_programs(message: &str) -> String {
    WORDS.iter().fold(message.to_owned(), |said, (ours, theirs)| said.replace(ours, theirs))
}

impl http::Desk for Desk {
    fn answer(&self, request: &Request) -> Reply {
        // A question is no order: another process may take over meanwhile.
        let asked = self.0.answer(request);
        let reply = asked.unwrap_or_else(|| match self.beyond_memory(request) {
            Some(message) => Reply::Error { message },
            None => self.0.carry_out(request, &|| true),
        });
        in_their_words(reply)
    }

    fn order(&self, request: &Request, giver: &Giver) -> Reply {
        let reply = self.answer(request);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_commands_are_told_as_fields() {
        let said = for_programs("it would be lost; try: --destroy-data, or lunwire copy it first");
        assert_eq!(said, "it would be lost; try: destroy_data, or lunwire copy it first");
        let message = "no session 7; try: lunwire sessions".to_owned();
        let Reply::Error { message } = in_their_words(Reply::Error { message }) else {
            panic!("of another kind")
        };
        assert_eq!(message, "no session 7; try: /api/v1/sessions");
        let why = "size: try: lunwire lun resize first".to_owned();
        let refused = vec![Refused { what: "LUN 0".into(), why }];
        let told = control::admin::Reloaded { refused, ..Default::default() };
        let Reply::Reloaded(told) = in_their_words(Reply::Reloaded(told)) else {
            panic!("of another kind")
        };
        assert_eq!(told.refused[0].why, "size: try: resize-lun first");
    }
}
