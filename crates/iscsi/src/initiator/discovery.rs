// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a SendTargets answer says (RFC 7143 appendix C).

use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

use wire::iscsi::keys::Pairs;
use wire::iscsi::keys::TextError;

use crate::name;
use crate::name::NameError;

/// One target of a SendTargets answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// Its iSCSI name.
    pub name: String,
    /// Where it is. None at all: at the address of this very connection.
    pub addresses: Vec<Address>,
}

/// One TargetAddress (RFC 7143 §13.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// `HOST[:PORT]`; IPv6 in brackets.
    pub portal: String,
    /// The portal group tag.
    pub portal_group_tag: Option<u16>,
}

impl Address {
    /// From a TargetAddress; a tag that is none is left out.
    #[must_use]
    pub fn parse(value: &str) -> Self {
        let (portal, tag) = match value.rsplit_once(',') {
            Some((portal, tag)) => (portal, tag.parse().ok()),
            None => (value, None),
        };
        Self { portal: portal.to_string(), portal_group_tag: tag }
    }
}

/// Why a SendTargets answer cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// RFC 7143 §6.1.
    #[error("malformed text: {0}")]
    Text(TextError),
    /// RFC 7143 §4.2.7.
    #[error("a target without a proper name: {0}")]
    Name(NameError),
    /// RFC 7143 appendix C.
    #[error("an address before any target")]
    AddressFirst,
}

/// Reads all of an answer. Keys that have no meaning here are passed over.
///
/// # Errors
/// [`DiscoveryError`].
pub fn parse(text: &[u8]) -> Result<Vec<Discovered>, DiscoveryError> {
    let mut targets: Vec<Discovered> = Vec::new();
    for pair in Pairs::new(text) {
        match pair.map_err(DiscoveryError::Text)? {
            ("TargetName", value) => {
                name::validate_received(value).map_err(DiscoveryError::Name)?;
                targets.push(Discovered { name: value.to_string(), addresses: Vec::new() });
            }
            ("TargetAddress", value) => {
                let target = targets.last_mut().ok_or(DiscoveryError::AddressFirst)?;
                target.addresses.push(Address::parse(value));
            }
            _ => {}
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_with_and_without_addresses() {
        let text = b"TargetName=iqn.2026-01.com.example:a\0TargetAddress=10.0.0.1:3260,1\0\
                     TargetAddress=[2001:db8::1]:3260,2\0TargetName=iqn.2026-01.com.example:b\0";
        let targets = parse(text).unwrap();
        assert_eq!(targets.len(), 2);
        assert_eq!(targets[0].addresses[0].portal, "10.0.0.1:3260");
        assert_eq!(targets[0].addresses[1].portal, "[2001:db8::1]:3260");
        assert_eq!(targets[0].addresses[1].portal_group_tag, Some(2));
        assert_eq!(targets[1].addresses, []);
    }

    /// Covers: NAM-03/I.
    #[test]
    fn names_hold_223_bytes() {
        for (length, good) in [(1, true), (223, true), (224, false)] {
            let name = "n".repeat(length);
            let text = alloc::format!("TargetName={name}\0TargetAddress=192.0.2.1:3260,1\0");
            match parse(text.as_bytes()) {
                Ok(targets) => assert!(good && targets[0].name == name, "{length}"),
                Err(error) => {
                    assert!(!good, "{length}");
                    assert_eq!(error, DiscoveryError::Name(NameError::TooLong(length)));
                }
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(parse(b"TargetAddress=a:1,1\0"), Err(DiscoveryError::AddressFirst));
        assert!(matches!(parse(b"TargetName=\0"), Err(DiscoveryError::Name(_))));
        assert!(matches!(parse(b"TargetName"), Err(DiscoveryError::Text(_))));
        assert_eq!(parse(b"").unwrap(), []);
    }
}
