// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire alua`: target port groups of a running daemon.

use anyhow::Result;
use control::admin::Reply;
use control::admin::Request;

use crate::args::AluaAction;
use crate::args::AluaOptions;
use crate::args::Usage;
use crate::control_socket::asking;
use crate::output;
use crate::ports;

/// Lists the groups, or changes one.
pub(crate) fn run(options: &AluaOptions) -> Result<()> {
    match &options.action {
        None => show(options),
        Some(AluaAction::Set { target, group, state, lun, daemon }) => {
            ports::state(state).map_err(|right| Usage(format!("STATE {state}: {right}")))?;
            let request = Request::SetPortGroup {
                target: target.clone(),
                lun: *lun,
                group: *group,
                state: state.clone(),
            };
            let socket = daemon.daemon.control_socket.as_deref();
            match asking::ask(socket, &request)? {
                Reply::Done => {
                    let units = lun.map_or_else(String::new, |lun| format!(" LUN {lun}"));
                    output::done(
                        daemon.json,
                        &format!("{target}{units}: group {group} is {state} now"),
                    );
                    Ok(())
                }
                _ => Err(asking::unexpected(socket)),
            }
        }
    }
}

fn show(options: &AluaOptions) -> Result<()> {
    let socket = options.show.daemon.control_socket.as_deref();
    let reply = asking::ask(socket, &Request::PortGroups)?;
    if options.show.json {
        output::result(serde_json::to_value(&reply)?);
        return Ok(());
    }
    let Reply::PortGroups { groups } = reply else { return Err(asking::unexpected(socket)) };
    if groups.is_empty() {
        output::line("no disks");
    }
    for group in groups {
        let preferred = if group.preferred { ", preferred" } else { "" };
        let fixed = if group.fixed { ", always: no [[target.port-group]]" } else { "" };
        let portals: Vec<String> = group.portal_groups.iter().map(ToString::to_string).collect();
        output::line(format!(
            "{} LUN {}: group {} (portal groups {}) is {}{preferred}{fixed}",
            group.target,
            group.lun,
            group.group,
            portals.join(", "),
            group.state,
        ));
    }
    Ok(())
}
