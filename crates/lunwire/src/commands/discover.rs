// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire discover PORTAL`.

use anyhow::Result;
use serde_json::json;

use crate::args::DiscoverOptions;
use crate::client;
use crate::output;

/// What targets and portals there are.
pub(crate) fn run(options: &DiscoverOptions) -> Result<()> {
    let url = client::portal_url(&options.at)?;
    let mut queue = client::queue(&options.client)?;
    let settings = client::options(&options.client, &url)?;
    let targets = queue.discover(settings).map_err(|error| client::advised(error, &url))?;
    let here = url.portal();
    if options.json {
        let targets: Vec<_> = targets
            .iter()
            .map(|target| {
                let portals: Vec<_> = target
                    .addresses
                    .iter()
                    .map(|at| json!({ "portal": at.portal, "group": at.portal_group_tag }))
                    .collect();
                json!({ "name": target.name, "portals": portals })
            })
            .collect();
        output::line(json!({ "targets": targets }));
        return Ok(());
    }
    if targets.is_empty() {
        output::line("no targets");
    }
    for target in targets {
        output::line(format!("target {}", target.name.escape_debug()));
        // One without an address is where we asked (RFC 7143 appendix C).
        if target.addresses.is_empty() {
            output::line(format!("  {here}"));
        }
        for address in target.addresses {
            let group = address.portal_group_tag.map(|tag| format!(" (portal group {tag})"));
            let portal = address.portal.escape_debug().to_string();
            output::line(format!("  {portal}{}", group.unwrap_or_default()));
        }
    }
    Ok(())
}
