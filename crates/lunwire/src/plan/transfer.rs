// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How data travels, and the name server.

use anyhow::Result;
use control::config;
use control::config::Source;
use iscsi::target_role::Settings;

use super::checked;

/// What a target of the file wishes for its data.
pub(super) fn take(
    settings: &mut Settings,
    source: &Source,
    target: &config::Target,
) -> Result<()> {
    if let Some(value) = &target.max_outstanding_r2t {
        settings.max_outstanding_r2t =
            checked(source, "target.max-outstanding-r2t", value, |count| match *count {
                0 => Err("1 to 65535 is right"),
                count => Ok(count),
            })?;
    }
    if let Some(yes) = target.data_pdu_in_order {
        settings.data_pdu_in_order = yes;
    }
    if let Some(yes) = target.data_sequence_in_order {
        settings.data_sequence_in_order = yes;
    }
    if let Some(yes) = target.markers {
        settings.markers = yes;
    }
    Ok(())
}

/// `HOST:PORT` of a name server; the name is looked up when it is needed.
pub(super) fn name_server(text: &str) -> Result<String, &'static str> {
    let right = "HOST:PORT is right, for example isns.example.com:3205 or [2001:db8::7]:3205";
    let (host, port) = text.rsplit_once(':').ok_or(right)?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let good_host = !host.is_empty() && (bracketed || !host.contains(':'));
    let good_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    if good_host && good_port { Ok(text.to_owned()) } else { Err(right) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_server_has_host_and_port() {
        for good in ["isns.example.com:3205", "192.0.2.1:1", "[2001:db8::7]:3205"] {
            assert_eq!(name_server(good).unwrap(), good);
        }
        for bad in ["", ":3205", "host", "host:", "host:0", "host:65536", "2001:db8::7:3205"] {
            assert!(name_server(bad).is_err(), "{bad}");
        }
    }
}
