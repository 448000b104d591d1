// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Offer and own wish give the result (RFC 7143 §6.2): pure functions from the table of keys.

use alloc::string::String;
use alloc::string::ToString;

use wire::iscsi::keys;

use crate::limits;
use crate::params::Key;
use crate::params::Rule;

/// The reserved words that only an answer may hold (RFC 7143 §6.2).
pub const RESERVED: [&str; 3] = [REJECT, IRRELEVANT, NOT_UNDERSTOOD];
/// The offer is inadmissible or has no acceptable value; the old value stays.
pub const REJECT: &str = "Reject";
/// The key has no meaning here.
pub const IRRELEVANT: &str = "Irrelevant";
/// The key is not known.
pub const NOT_UNDERSTOOD: &str = "NotUnderstood";

/// What a negotiation is about, where the meaning of a key depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the two session types of RFC 7143 §13.21
pub enum SessionType {
    /// For SCSI commands.
    Normal,
    /// For SendTargets only.
    Discovery,
}

/// How an offer is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // callers must handle each
pub enum Answer {
    /// The result, which is the answer and is in force when the stage ends.
    Agreed(u32),
    /// `Reject`.
    Reject,
    /// `Irrelevant`.
    Irrelevant,
}

/// The answer to `offer` for a negotiated key, by a side that wishes `wish`: a number or boolean as
/// [`crate::params`] codes it, and for a list one bit for each supported entry.
///
/// A boolean is answered even where silence would do (AND with No, OR with Yes; RFC 7143 §6.2.2):
/// peers that count answers are content with both.
#[must_use]
pub fn answer(key: &Key, offer: &str, wish: u32) -> Answer {
    let agreed = match &key.rule {
        Rule::List(known) => choose(known, offer, wish),
        Rule::And => keys::boolean(offer).map(|offer| u32::from(offer && wish != 0)),
        Rule::Or => keys::boolean(offer).map(|offer| u32::from(offer || wish != 0)),
        Rule::Minimum(range) => number(offer, range).map(|offer| offer.min(wish)),
        Rule::Maximum(range) => number(offer, range).map(|offer| offer.max(wish)),
        _ => None,
    };
    agreed.map_or(Answer::Reject, Answer::Agreed)
}

/// Whether `text` may be declared as the value of a key: neither too long (RFC 7143 §6.1) nor a
/// word that has a meaning of its own (§6.2).
pub(crate) fn may_be_declared(text: &str) -> bool {
    let reserved = text == "None" || RESERVED.contains(&text);
    text.len() <= limits::TEXT_VALUE_LEN_MAX && !text.contains('\0') && !reserved
}

/// A number of a key value within `range`.
#[must_use]
pub fn number(text: &str, range: &core::ops::RangeInclusive<u32>) -> Option<u32> {
    let value = u32::try_from(keys::numeric(text)?).ok()?;
    range.contains(&value).then_some(value)
}

/// The first entry of `offer` that is supported, as its place in `known`.
fn choose(known: &[&str], offer: &str, supported: u32) -> Option<u32> {
    keys::list(offer).find_map(|entry| {
        let place = u32::try_from(known.iter().position(|word| *word == entry)?).ok()?;
        (supported >> place & 1 == 1).then_some(place)
    })
}

/// `value` of a negotiated key as text.
#[must_use]
pub fn text(key: &Key, value: u32) -> String {
    match &key.rule {
        Rule::List(known) => {
            let entry = usize::try_from(value).ok().and_then(|place| known.get(place));
            entry.copied().unwrap_or(REJECT).to_string()
        }
        Rule::And | Rule::Or | Rule::Boolean => {
            if value == 0 {
                "No".to_string()
            } else {
                "Yes".to_string()
            }
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params;

    /// Key, offer, own wish, answer.
    #[track_caller]
    fn assert_answer(name: &str, offer: &str, wish: u32, expected: &str) {
        let key = params::find(name).expect("a key of the table");
        let found = match answer(key, offer, wish) {
            Answer::Agreed(value) => text(key, value),
            Answer::Reject => REJECT.to_string(),
            Answer::Irrelevant => IRRELEVANT.to_string(),
        };
        assert_eq!(found, expected, "{name}={offer}");
    }

    /// Covers: NEG-25/S, NEG-26/S, NEG-27/S, NEG-29/S, NEG-30/S, NEG-32/S, NEG-33/S.
    #[test]
    fn the_truth_table() {
        assert_answer("InitialR2T", "Yes", 0, "Yes");
        assert_answer("InitialR2T", "No", 0, "No");
        assert_answer("InitialR2T", "No", 1, "Yes");
        assert_answer("ImmediateData", "Yes", 1, "Yes");
        assert_answer("ImmediateData", "Yes", 0, "No");
        assert_answer("ImmediateData", "No", 1, "No");
        assert_answer("ImmediateData", "No", 0, "No");
        assert_answer("MaxBurstLength", "1048576", 262_144, "262144");
        assert_answer("MaxBurstLength", "16384", 262_144, "16384");
        assert_answer("MaxBurstLength", "511", 262_144, "Reject");
        // No key of ours has a range: 512 would not be within this one.
        assert_answer("MaxBurstLength", "1024~2048", 512, "Reject");
        assert_answer("DefaultTime2Wait", "0", 2, "2");
        assert_answer("DefaultTime2Retain", "3600", 20, "20");
        assert_answer("HeaderDigest", "CRC32C,None", 0b01, "None");
        assert_answer("HeaderDigest", "CRC32C", 0b01, "Reject");
        assert_answer("HeaderDigest", "FOO,CRC32C", 0b11, "CRC32C");
        assert_answer("HeaderDigest", "CRC32C,None", 0b11, "CRC32C");
        assert_answer("HeaderDigest", "None,CRC32C", 0b11, "None");
        assert_answer("HeaderDigest", "FOO", 0b11, "Reject");
        assert_answer("TaskReporting", "FastAbort,ResponseFence,RFC3720", 0b111, "FastAbort");
        assert_answer("iSCSIProtocolLevel", "2", 1, "1");
    }

    #[test]
    fn what_is_not_negotiated_has_no_answer() {
        for name in ["MaxRecvDataSegmentLength", "InitiatorName", "SessionType", "IFMarker"] {
            assert_answer(name, "8192", 8192, "Reject");
        }
    }

    #[test]
    fn keys_of_rdma_have_the_smaller_length() {
        assert_answer("TargetRecvDataSegmentLength", "16384", 8192, "8192");
    }
}
