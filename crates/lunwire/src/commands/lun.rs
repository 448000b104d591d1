// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire lun`: act on the disks of a running daemon.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use control::admin::NewLun;
use control::admin::Reply;
use control::admin::Request;
use control::units;

use crate::args::AdminOptions;
use crate::args::LunAction;
use crate::args::LunOptions;
use crate::args::Usage;
use crate::control_socket::advice::reaching;
use crate::control_socket::asking;
use crate::daemon::shown;
use crate::output;
use crate::plan;
use crate::plan::DraftLun;

/// Requests under way and large files take their time.
const PATIENCE: Duration = Duration::from_secs(120);

/// People who have waited for so long hear that they still do.
const TOLD_AFTER: Duration = Duration::from_secs(2);

/// Add, remove, resize, rescan or snapshot.
pub(crate) fn run(options: &LunOptions) -> Result<()> {
    match &options.action {
        LunAction::Add {
            store,
            number,
            block,
            protection,
            serial,
            space_warning,
            initiator,
            place,
        } => {
            let lun = NewLun {
                store: plan::absolute(store)?,
                block: *block,
                protection: *protection,
                serial: serial.clone(),
                space_warning: space_warning.clone(),
                initiators: initiator.clone(),
            };
            DraftLun::from_order(0, &lun).map_err(Usage)?;
            plan::initiators(&lun).map_err(Usage)?;
            let request = Request::AddLun { target: place.target.clone(), number: *number, lun };
            let reply = ask(&place.daemon, &request)?;
            if let Reply::Added { target, lun, for_nobody: true, .. } = &reply {
                let number = lun;
                let said = format!(
                    "no initiator sees LUN {number} of {target}: each has a list of luns, and it \
                     is on none; try: lunwire lun remove {number} --target {target}, then lunwire \
                     lun add with --initiator IQN, or its number in the configuration"
                );
                output::warn(reaching(&said, place.daemon.daemon.control_socket.as_deref()));
            }
            tell_warnings(&reply);
            if place.daemon.json {
                output::result(serde_json::to_value(&reply)?);
                return Ok(());
            }
            let Reply::Added { target, disk: lun, .. } = reply else {
                return other(&place.daemon);
            };
            let size = units::bytes(lun.bytes);
            let (store, protection) = (&lun.store, lun.protection_shown());
            let seen = lun.initiators_shown().map(|by| format!(", seen by {by}"));
            let (number, serial, seen) = (lun.number, &lun.serial, seen.unwrap_or_default());
            output::line(format!(
                "{target} LUN {number}: {size}, {store}{protection}, serial {serial}{seen}"
            ));
        }
        LunAction::Remove { lun, destroy_data, place } => {
            let (target, lun, destroy_data) = (place.target.clone(), *lun, *destroy_data);
            let request = Request::RemoveLun { target, lun, destroy_data };
            let reply = ask(&place.daemon, &request)?;
            if place.daemon.json {
                output::result(serde_json::to_value(&reply)?);
                return Ok(());
            }
            let Reply::Removed { .. } = reply else { return other(&place.daemon) };
            output::line(format!("LUN {lun} is not served any more"));
        }
        LunAction::Resize { lun, size, shrink, place } => {
            let bytes = store::spec::parse_size(size)
                .map_err(|error| Usage(format!("size {size}: {error}")))?;
            let (target, lun, shrink) = (place.target.clone(), *lun, *shrink);
            let request = Request::ResizeLun { target, lun, bytes, shrink };
            let reply = ask(&place.daemon, &request)?;
            tell_warnings(&reply);
            if place.daemon.json {
                output::result(serde_json::to_value(&reply)?);
                return Ok(());
            }
            let Reply::Resized { before, now, .. } = reply else { return other(&place.daemon) };
            let (before, now) = (units::bytes(before), units::bytes(now));
            output::line(format!("LUN {lun}: {before} before, {now} now"));
        }
        LunAction::Rescan(options) => {
            let reply = ask(options, &Request::RescanLuns)?;
            if options.json {
                output::result(serde_json::to_value(&reply)?);
                return Ok(());
            }
            let Reply::Rescanned { luns, warnings } = reply else { return other(options) };
            let smaller: Vec<String> = luns.iter().map(shown::smaller).collect();
            let more: Vec<_> = warnings.iter().filter(|said| !smaller.contains(said)).collect();
            let socket = options.daemon.control_socket.as_deref();
            more.iter().for_each(|said| output::warn(reaching(said, socket)));
            if luns.is_empty() {
                output::line(match more.is_empty() {
                    true => "no disk has another size",
                    false => "no disk that was looked at has another size",
                });
            }
            for found in luns {
                let (target, lun) = (&found.target, found.lun);
                let (before, now) = (units::bytes(found.before), units::bytes(found.now));
                let said = if found.now > found.before {
                    format!("{target} LUN {lun}: {before} before, {now} now")
                } else {
                    shown::smaller(&found)
                };
                output::line(reaching(&said, socket));
            }
        }
        LunAction::Snapshot { lun, path, place } => {
            let absolute = std::path::absolute(path).context("cannot name the snapshot")?;
            // An image has no folders.
            let name = path.to_str().filter(|name| !name.contains('/')).map(ToOwned::to_owned);
            let Some(path) = absolute.to_str().map(ToOwned::to_owned) else {
                bail!("the name of the snapshot must be UTF-8");
            };
            let request = Request::SnapshotLun {
                target: place.target.clone(),
                lun: *lun,
                path: path.clone(),
                name,
            };
            let reply = ask(&place.daemon, &request)?;
            tell_warnings(&reply);
            if place.daemon.json {
                output::result(serde_json::to_value(&reply)?);
                return Ok(());
            }
            let Reply::Snapshotted { bytes, name, .. } = reply else { return other(&place.daemon) };
            let path = name.unwrap_or(path);
            output::line(format!("{path}: {} of LUN {lun}", units::bytes(bytes)));
        }
    }
    Ok(())
}

fn tell_warnings(reply: &Reply) {
    if let Reply::Added { warnings, .. }
    | Reply::Resized { warnings, .. }
    | Reply::Snapshotted { warnings, .. } = reply
    {
        warnings.iter().for_each(output::warn);
    }
}

fn ask(daemon: &AdminOptions, request: &Request) -> Result<Reply> {
    let socket = daemon.daemon.control_socket.as_deref();
    let (is_terminal, mut is_told) = (std::io::stderr().is_terminal(), false);
    let reply = asking::ask_patiently(socket, request, PATIENCE, |waited| {
        if waited < TOLD_AFTER {
            return;
        }
        let told = "still waiting for the store";
        if is_terminal {
            output::rewrite(&format!("{told}: {} s", waited.as_secs()));
        } else if !std::mem::replace(&mut is_told, true) {
            output::say(format!("{told}..."));
        }
    });
    output::clear();
    reply
}

fn other(daemon: &AdminOptions) -> Result<()> {
    Err(asking::unexpected(daemon.daemon.control_socket.as_deref()))
}
