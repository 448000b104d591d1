// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire discover PORTAL`.

use anyhow::Result;
use initiator::Discovered;
use serde_json::json;

use crate::args::DiscoverOptions;
use crate::client;
use crate::client::refusal;
use crate::client::refusal::Identity;
use crate::output;

/// What targets and portals there are.
pub(crate) fn run(options: &DiscoverOptions) -> Result<()> {
    let url = client::portal_url(&options.at)?;
    let mut queue = client::queue(&options.client)?;
    let settings = client::options(&options.client, &url)?;
    let identity = Identity::of(&settings);
    let targets = client::discover(&mut queue, settings, &url)?
        .map_err(|error| refusal::advised(error, &url, &identity))?;
    if targets.is_empty() {
        output::say(identity.sees_nothing(&url));
    }
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
        output::result(json!({ "initiator": identity.initiator(), "targets": targets }));
        return Ok(());
    }
    if targets.is_empty() {
        output::line("no targets");
    }
    for target in targets {
        output::line(format!("target {}", target.name.escape_debug()));
        for portal in portals(&target, &here) {
            output::line(format!("  {portal}"));
        }
    }
    Ok(())
}

/// Where a target is: one without an address is where we asked (RFC 7143 appendix C).
fn portals(target: &Discovered, here: &str) -> Vec<String> {
    if target.addresses.is_empty() {
        return vec![here.to_owned()];
    }
    let portals = target.addresses.iter().map(|address| {
        let group = address.portal_group_tag.map(|tag| format!(" (portal group {tag})"));
        format!("{}{}", address.portal.escape_debug(), group.unwrap_or_default())
    });
    portals.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: DIS-10.
    #[test]
    fn a_target_without_address_is_where_we_asked() {
        let target = Discovered { name: "iqn.2026-01.com.example:a".into(), addresses: Vec::new() };
        assert_eq!(portals(&target, "10.0.0.1:3260"), ["10.0.0.1:3260"]);
    }
}
