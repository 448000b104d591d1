// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire limit`: how much LUNs and initiators of a running daemon may have.

use anyhow::Result;
use control::admin::Limit;
use control::admin::Reply;
use control::admin::Request;
use control::units;
use control::words;

use crate::args::AdminOptions;
use crate::args::LimitAction;
use crate::args::LimitOptions;
use crate::args::Limited;
use crate::args::LimitedOptions;
use crate::args::Usage;
use crate::control_socket::asking;
use crate::output;
use crate::plan;
use crate::plan::limit;

/// Lists the limits, or changes one.
pub(crate) fn run(options: &LimitOptions) -> Result<()> {
    match &options.action {
        None => show(&options.show),
        Some(LimitAction::Set { whom, iops, bandwidth, sessions, daemon }) => {
            if iops.is_none() && bandwidth.is_none() && sessions.is_none() {
                let problem = "--iops, --bandwidth or --sessions is missing; try: lunwire limit \
                               lift to limit it no more";
                return Err(Usage(problem.into()).into());
            }
            if let Some(count) = *iops {
                plan::option("--iops", count, limit::iops(count))?;
            }
            let bytes = bandwidth.as_ref();
            let bytes = bytes.map(|text| plan::option("--bandwidth", text, limit::bandwidth(text)));
            if let Some(count) = *sessions {
                let checked = match whom.of.lun {
                    Some(_) => Err(limit::NO_SESSIONS),
                    None => limit::sessions(count),
                };
                plan::option("--sessions", count, checked)?;
            }
            let most = (*iops, bytes.transpose()?.map(u64::from), *sessions);
            change(whom, most, daemon, "limited now")
        }
        Some(LimitAction::Lift { whom, daemon }) => {
            change(whom, (None, None, None), daemon, "not limited any more")
        }
    }
}

fn change(
    whom: &LimitedOptions,
    (iops, bandwidth, sessions): (Option<u64>, Option<u64>, Option<u64>),
    daemon: &AdminOptions,
    how: &str,
) -> Result<()> {
    let LimitedOptions { of: Limited { lun, initiator }, target } = whom;
    if let Some(name) = initiator {
        plan::option("--initiator", name, limit::initiator(name))?;
    }
    let request = Request::SetLimit {
        target: target.clone(),
        lun: *lun,
        initiator: initiator.clone(),
        iops,
        bandwidth,
        sessions,
    };
    let socket = daemon.daemon.control_socket.as_deref();
    match asking::ask(socket, &request)? {
        Reply::Done => {
            let of = whom_shown(*lun, initiator.as_deref());
            output::done(daemon.json, &format!("{of} is {how}"));
            Ok(())
        }
        _ => Err(asking::unexpected(socket)),
    }
}

fn show(options: &AdminOptions) -> Result<()> {
    let socket = options.daemon.control_socket.as_deref();
    let Reply::Status(status) = asking::ask(socket, &Request::Status)? else {
        return Err(asking::unexpected(socket));
    };
    if options.json {
        output::result(serde_json::json!({ "limits": status.limits }));
        return Ok(());
    }
    if status.limits.is_empty() {
        output::line("no limits");
    }
    for limit in &status.limits {
        output::line(format!("{}: {}", limit.target, shown(limit)));
    }
    Ok(())
}

fn whom_shown(lun: Option<u16>, initiator: Option<&str>) -> String {
    match (lun, initiator) {
        (Some(number), _) => format!("LUN {number}"),
        (None, Some("*")) => "each initiator".to_owned(),
        (None, name) => format!("initiator {}", name.unwrap_or_default()),
    }
}

/// A limit in words.
pub(crate) fn shown(limit: &Limit) -> String {
    let iops = limit.iops.map(|count| format!("{count} IOPS"));
    let bandwidth = limit.bandwidth.map(|bytes| format!("{}/s", units::bytes(bytes)));
    let sessions = limit.sessions.map(|count| words::count(count, "session"));
    let most: Vec<String> = iops.into_iter().chain(bandwidth).chain(sessions).collect();
    let held = match limit.held {
        0 => String::new(),
        held => format!(", {} held now by any limit", words::count(held as u64, "command")),
    };
    let of = whom_shown(limit.lun, limit.initiator.as_deref());
    let (most, delayed, begun) = (most.join(", "), limit.delayed, limit.begun);
    format!("{of}: {most}; {delayed} of {begun} commands had to wait{held}")
}
