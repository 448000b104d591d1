// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire lun`: act on one disk of a running daemon.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use control::admin::Reply;
use control::admin::Request;
use control::units;

use crate::args::LunAction;
use crate::args::LunOptions;
use crate::args::Usage;
use crate::daemon::admin;
use crate::output;

/// Requests under way and large files take their time.
const PATIENCE: Duration = Duration::from_secs(120);

/// Resize, rescan or snapshot.
pub(crate) fn run(options: &LunOptions) -> Result<()> {
    match &options.action {
        LunAction::Resize { lun, size, shrink, place } => {
            let bytes = store::spec::parse_size(size)
                .map_err(|error| Usage(format!("size {size}: {error}")))?;
            let (target, lun, shrink) = (place.target.clone(), *lun, *shrink);
            let request = Request::ResizeLun { target, lun, bytes, shrink };
            let reply = ask(place.control_socket.as_deref(), &request)?;
            let Reply::Resized { before, now } = reply else { bail!(OTHER) };
            let (before, now) = (units::bytes(before), units::bytes(now));
            output::line(format!("LUN {lun}: {before} before, {now} now"));
        }
        LunAction::Rescan { control_socket, json } => {
            let reply = ask(control_socket.as_deref(), &Request::RescanLuns)?;
            if *json {
                output::line(serde_json::to_string(&reply)?);
                return Ok(());
            }
            let Reply::Rescanned { luns } = reply else { bail!(OTHER) };
            if luns.is_empty() {
                output::line("no disk has another size");
            }
            for found in luns {
                let (target, lun) = (found.target, found.lun);
                let (before, now) = (units::bytes(found.before), units::bytes(found.now));
                output::line(if found.now > found.before {
                    format!("{target} LUN {lun}: {before} before, {now} now")
                } else {
                    format!(
                        "{target} LUN {lun}: its file has {now}, less than the {before} that hosts \
                         see; try: lunwire lun resize {lun} SIZE, with --shrink if need be"
                    )
                });
            }
        }
        LunAction::Snapshot { lun, path, place } => {
            let absolute = std::path::absolute(path).context("cannot name the snapshot")?;
            let Some(path) = absolute.to_str().map(ToOwned::to_owned) else {
                bail!("the name of the snapshot must be UTF-8");
            };
            let request = Request::SnapshotLun {
                target: place.target.clone(),
                lun: *lun,
                path: path.clone(),
            };
            let reply = ask(place.control_socket.as_deref(), &request)?;
            let Reply::Snapshot { bytes } = reply else { bail!(OTHER) };
            output::line(format!("{path}: {} of LUN {lun}", units::bytes(bytes)));
        }
    }
    Ok(())
}

const OTHER: &str = "the daemon answered something else";

fn ask(socket: Option<&Path>, request: &Request) -> Result<Reply> {
    admin::ask_patiently(socket, request, PATIENCE)
}
