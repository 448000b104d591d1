// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire reload`, `lunwire diff` and `lunwire dump`: the configuration file against what a
//! daemon serves.

use std::time::Duration;

use anyhow::Result;
use control::admin::Reloaded;
use control::admin::Reply;
use control::admin::Request;
use control::words;
use serde_json::json;

use crate::args::AdminOptions;
use crate::args::ReloadOptions;
use crate::control_socket::advice::reaching;
use crate::control_socket::asking;
use crate::output;

/// Disks that come may be on a cluster, and those that go have a last flush.
const PATIENCE: Duration = Duration::from_secs(120);

/// Serves what the file says now. False: something of it cannot be served while the daemon runs.
pub(crate) fn run(options: &ReloadOptions) -> Result<bool> {
    let ReloadOptions { dry_run, destroy_data, admin } = options;
    let told = ask(admin, *dry_run, *destroy_data)?;
    let can_be = told.refused.is_empty();
    if admin.json {
        return Ok(can_be);
    }
    let count = words::count(told.differences.len() as u64, "difference");
    let refused = words::count(told.refused.len() as u64, "thing");
    match (told.applied, can_be, told.differences.len()) {
        (true, _, 0) => output::line("nothing is otherwise"),
        (true, ..) => output::line(format!("served as the file has it: {count}")),
        (false, false, _) => output::say(format!(
            "nothing has changed: {refused} cannot be so while the daemon runs as it does"
        )),
        (false, true, _) => output::line("nothing has changed: that was a look (--dry-run)"),
    }
    Ok(can_be)
}

/// Tells what the file says otherwise, and whether it does.
pub(crate) fn diff(options: &AdminOptions) -> Result<bool> {
    let told = ask(options, true, false)?;
    let is_same = told.differences.is_empty() && told.refused.is_empty();
    if is_same && !options.json {
        output::line("nothing is otherwise");
    }
    Ok(!is_same)
}

/// Writes down what is served.
pub(crate) fn dump(options: &AdminOptions) -> Result<()> {
    let socket = options.daemon.control_socket.as_deref();
    let reply = asking::ask_patiently(socket, &Request::Dump, PATIENCE, |_| {})?;
    let Reply::Dumped { text, warnings } = reply else { return Err(asking::unexpected(socket)) };
    warnings.iter().for_each(output::warn);
    match options.json {
        true => output::result(json!({ "configuration": text, "warnings": warnings })),
        false => output::line(text.trim_end()),
    }
    Ok(())
}

/// The answer of the daemon, which is shown.
fn ask(options: &AdminOptions, dry_run: bool, destroy_data: bool) -> Result<Reloaded> {
    let socket = options.daemon.control_socket.as_deref();
    let request = Request::Reload { dry_run, destroy_data };
    let reply = asking::ask_patiently(socket, &request, PATIENCE, |_| {})?;
    let Reply::Reloaded(told) = reply else { return Err(asking::unexpected(socket)) };
    told.warnings.iter().for_each(|said| output::warn(reaching(said, socket)));
    match options.json {
        true => output::result(serde_json::to_value(&told)?),
        false => show(&told),
    }
    Ok(told)
}

fn show(told: &Reloaded) {
    for difference in &told.differences {
        output::line(difference.to_string());
    }
    for refused in &told.refused {
        output::line(format!("! {}: {}", refused.what, refused.why));
    }
    for session in &told.sessions {
        let target = session.target.as_deref().unwrap_or("a discovery session");
        let (tsih, initiator, why) = (session.tsih, &session.initiator, &session.why);
        output::line(format!("session {tsih} of {initiator} at {target} ends: {why}"));
    }
}
