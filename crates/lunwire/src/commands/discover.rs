// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire discover PORTAL`.

use anyhow::Result;
use initiator::Discovered;
use serde_json::Value;
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
        let targets: Vec<_> = targets.iter().map(|target| described(target, &here)).collect();
        output::result(json!({ "initiator": identity.initiator(), "targets": targets }));
        return Ok(());
    }
    if targets.is_empty() {
        output::line("no targets");
    }
    for target in targets {
        output::line(format!("target {}", output::on_one_line(&target.name)));
        for portal in portals(&target, &here) {
            output::line(format!("  {portal}"));
        }
    }
    Ok(())
}

/// Portals and their groups. A target without an address is where we asked (RFC 7143 appendix C).
fn places<'a>(target: &'a Discovered, here: &'a str) -> Vec<(&'a str, Option<u16>)> {
    if target.addresses.is_empty() {
        return vec![(here, None)];
    }
    target.addresses.iter().map(|at| (at.portal.as_str(), at.portal_group_tag)).collect()
}

fn described(target: &Discovered, here: &str) -> Value {
    let portals = places(target, here).into_iter();
    let portals = portals.map(|(portal, group)| json!({ "portal": portal, "group": group }));
    json!({ "name": target.name, "portals": portals.collect::<Vec<_>>() })
}

fn portals(target: &Discovered, here: &str) -> Vec<String> {
    let portals = places(target, here).into_iter().map(|(portal, group)| {
        let group = group.map(|tag| format!(" (portal group {tag})"));
        format!("{}{}", output::on_one_line(portal), group.unwrap_or_default())
    });
    portals.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_shown() {
        let target = Discovered { name: "iqn.2026-01.com.example:a".into(), addresses: Vec::new() };
        assert_eq!(portals(&target, "a\u{2800}\u{1b}"), ["a\\u{2800}\\u{1b}"]);
    }

    /// Covers: DIS-10.
    #[test]
    fn a_target_without_address_is_where_we_asked() {
        let target = Discovered { name: "iqn.2026-01.com.example:a".into(), addresses: Vec::new() };
        let here = "10.0.0.1:3260";
        assert_eq!(portals(&target, here), [here]);
        assert_eq!(
            described(&target, here),
            json!({ "name": target.name, "portals": [{ "portal": here, "group": null }] })
        );
    }
}
