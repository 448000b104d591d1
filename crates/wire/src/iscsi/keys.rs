// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Key=value text of Login and Text PDUs (RFC 7143 §6.1): splitting, values, and building.
//!
//! What a key means, and which value it may have, is known to the negotiation; here is only how it
//! is written.

mod value;
mod writer;

pub use value::*;
pub use writer::*;

use core::fmt;

/// Longest key name, characters (RFC 7143 §6.1).
pub const KEY_LEN_MAX: usize = 63;

/// Longest value of a key that names no other limit, bytes (RFC 7143 §6.1).
pub const VALUE_LEN_MAX: usize = 255;

/// Registered keys that do not begin with a capital letter (RFC 7143 §13.24, RFC 7145 §6.10).
const LOWER_CASE_KEYS: [&str; 2] = ["iSCSIProtocolLevel", "iSERHelloRequired"];

/// The pairs of a logical text segment: the data segments of all PDUs that C joins (RFC 7143 §6.2).
///
/// Ends after the first error. Null bytes after the last pair are padding.
///
/// ```
/// # use lunwire_wire::iscsi::keys::Pairs;
/// let mut pairs = Pairs::new(b"TargetAlias=a=b\0\0\0");
/// assert_eq!(pairs.next(), Some(Ok(("TargetAlias", "a=b"))));
/// assert_eq!(pairs.next(), None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    rest: &'a [u8],
    limit: fn(&str) -> usize,
}

impl<'a> Pairs<'a> {
    /// All values are limited to [`VALUE_LEN_MAX`].
    pub fn new(text: &'a [u8]) -> Self {
        Self { rest: text, limit: |_| VALUE_LEN_MAX }
    }

    /// `limit` gives the longest value of a key, in bytes.
    #[must_use]
    pub fn with_limit(self, limit: fn(&str) -> usize) -> Self {
        Self { limit, ..self }
    }

    fn take(&mut self) -> Result<(&'a str, &'a str), TextError> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(TextError::Unterminated)?;
        let (pair, rest) = self.rest.split_at(end);
        self.rest = rest.get(1..).unwrap_or_default();
        let pair = core::str::from_utf8(pair).map_err(|_| TextError::NotUtf8)?;
        let (key, value) = pair.split_once('=').ok_or(TextError::NoValue)?;
        check_key(key)?;
        let limit = (self.limit)(key);
        if value.len() > limit {
            return Err(TextError::ValueTooLong { limit });
        }
        Ok((key, value))
    }
}

impl<'a> Iterator for Pairs<'a> {
    /// Key and value.
    type Item = Result<(&'a str, &'a str), TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.rest.first()?;
        if *first == 0 && self.rest.iter().all(|byte| *byte == 0) {
            self.rest = &[];
            return None;
        }
        let item = self.take();
        if item.is_err() {
            self.rest = &[];
        }
        Some(item)
    }
}

/// Why text is no list of pairs. In a login each of them is an initiator error, status 0x0200.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextError {
    /// The last pair has no null byte behind it.
    Unterminated,
    /// A pair is no UTF-8.
    NotUtf8,
    /// A pair has no equals sign.
    NoValue,
    /// A key has no characters.
    EmptyKey,
    /// A key has more than [`KEY_LEN_MAX`] characters.
    KeyTooLong,
    /// A key has a character that none may have, or does not begin with a capital letter.
    BadKey,
    /// A value is longer than its key allows.
    ValueTooLong {
        /// What the key allows, bytes.
        limit: usize,
    },
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unterminated => "text without final null byte",
            Self::NotUtf8 => "text that is no UTF-8",
            Self::NoValue => "text without equals sign",
            Self::EmptyKey => "empty key name",
            Self::KeyTooLong => "key name of more than 63 characters",
            Self::BadKey => "bad key name",
            Self::ValueTooLong { limit } => {
                return write!(f, "value of more than {limit} bytes");
            }
        })
    }
}

impl core::error::Error for TextError {}

/// Checks the name rule of RFC 7143 §6.1: a capital letter, then letters, digits and `.-+@_`.
/// Beside it pass the keys of public extensions, `X#...`, and the registered ones that begin with a
/// small letter.
///
/// # Errors
/// [`TextError::EmptyKey`], [`TextError::KeyTooLong`], [`TextError::BadKey`].
pub fn check_key(key: &str) -> Result<(), TextError> {
    if key.is_empty() {
        return Err(TextError::EmptyKey);
    }
    if key.chars().nth(KEY_LEN_MAX).is_some() {
        return Err(TextError::KeyTooLong);
    }
    if LOWER_CASE_KEYS.contains(&key) {
        return Ok(());
    }
    let label = key.strip_prefix("X#").unwrap_or(key);
    let is_label =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+' | b'@' | b'_');
    if key.starts_with(|first: char| first.is_ascii_uppercase())
        && !label.is_empty()
        && label.bytes().all(is_label)
    {
        return Ok(());
    }
    Err(TextError::BadKey)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn split(text: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
        Pairs::new(text).collect()
    }

    /// The text of a login with mutual CHAP, step by step.
    const CHAP_LOGIN: [&[(&str, &str)]; 3] = [
        &[
            ("InitiatorName", "iqn.2001-04.com.example:host"),
            ("TargetName", "iqn.2001-04.com.example:disk"),
            ("SessionType", "Normal"),
            ("AuthMethod", "CHAP,None"),
        ],
        &[("CHAP_A", "7"), ("CHAP_I", "1"), ("CHAP_C", "0x000102030405060708090a0b0c0d0e0f")],
        &[
            ("HeaderDigest", "CRC32C,None"),
            ("MaxRecvDataSegmentLength", "262144"),
            ("InitialR2T", "No"),
            ("IFMarker", "No"),
        ],
    ];

    #[test]
    fn pairs_of_a_login() {
        for step in CHAP_LOGIN {
            let text: String = step.iter().map(|(key, value)| format!("{key}={value}\0")).collect();
            assert_eq!(split(text.as_bytes()).unwrap(), step);
        }
    }

    #[test]
    fn pairs_of_a_whole_data_segment() {
        let text = b"TargetPortalGroupTag=1\0HeaderDigest=None\0DataDigest=None\0\
                     MaxRecvDataSegmentLength=131072\0\0\0\0";
        assert_eq!(
            split(text).unwrap(),
            [
                ("TargetPortalGroupTag", "1"),
                ("HeaderDigest", "None"),
                ("DataDigest", "None"),
                ("MaxRecvDataSegmentLength", "131072"),
            ]
        );
    }

    /// Covers: NEG-37/S.
    #[test]
    fn padding_is_no_key() {
        assert_eq!(split(b""), Ok([].to_vec()));
        assert_eq!(split(&[0; 4]), Ok([].to_vec()));
        assert_eq!(split(b"A=\0\0").unwrap(), [("A", "")]);
        assert_eq!(split(b"A=1\0\0B=2\0"), Err(TextError::NoValue));
    }

    /// Covers: NEG-04/S.
    #[test]
    fn first_equals_sign_splits() {
        assert_eq!(split(b"TargetAlias=a=b\0").unwrap(), [("TargetAlias", "a=b")]);
        assert_eq!(split(b"TargetAlias==\0").unwrap(), [("TargetAlias", "=")]);
    }

    /// Covers: NEG-01/S.
    #[test]
    fn broken_text() {
        assert_eq!(split(b"A=1"), Err(TextError::Unterminated));
        assert_eq!(split(b"A=1\0B=2"), Err(TextError::Unterminated));
        assert_eq!(split(b"A=\xff\0"), Err(TextError::NotUtf8));
        assert_eq!(split(b"TargetName\0"), Err(TextError::NoValue));
        assert_eq!(split(b"=1\0"), Err(TextError::EmptyKey));
        let mut pairs = Pairs::new(b"a=1\0B=2\0");
        assert_eq!(pairs.next(), Some(Err(TextError::BadKey)));
        assert_eq!(pairs.next(), None, "an error ends the list");
    }

    /// Covers: NEG-03/S.
    #[test]
    fn key_names() {
        let name = |len: usize| format!("X-{}", "a".repeat(len - 2));
        let good =
            ["A", "CHAP_A", "X-com.example.foo", "A.-+@_9z", "X#NodeArchitecture", "X#Unknown"];
        for key in good.into_iter().chain(["iSCSIProtocolLevel", "iSERHelloRequired", &name(63)]) {
            assert_eq!(check_key(key), Ok(()), "{key}");
        }
        for key in ["a", "1A", "_A", "A B", "A#B", "X#", "X##A", "Y#A", "A,B", "A\u{e4}", "iSCSI"] {
            assert_eq!(check_key(key), Err(TextError::BadKey), "{key}");
        }
        assert_eq!(check_key(""), Err(TextError::EmptyKey));
        assert_eq!(check_key(&name(64)), Err(TextError::KeyTooLong));
    }

    /// Covers: NEG-05/S.
    #[test]
    fn value_length() {
        let text = |len: usize| format!("TargetAlias={}\0", "x".repeat(len));
        assert!(split(text(255).as_bytes()).is_ok());
        assert_eq!(split(text(256).as_bytes()), Err(TextError::ValueTooLong { limit: 255 }));
        let text = text(256);
        let limit = |key: &str| if key == "TargetAlias" { 256 } else { 0 };
        let mut pairs = Pairs::new(text.as_bytes()).with_limit(limit);
        assert!(pairs.next().unwrap().is_ok());
        let mut pairs = Pairs::new(b"Other=1\0").with_limit(limit);
        assert_eq!(pairs.next(), Some(Err(TextError::ValueTooLong { limit: 0 })));
    }

    proptest! {
        #[test]
        fn any_bytes_end(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Pairs::new(&text).count() <= text.len());
        }

        #[test]
        fn any_text_ends(text in "([A-Za-z#=\u{e4}]{0,4}\0?){0,20}") {
            for pair in Pairs::new(text.as_bytes()) {
                prop_assert!(pair.map_or(true, |(key, _)| check_key(key).is_ok()));
            }
        }

        #[test]
        fn what_is_written_is_read(
            pairs in proptest::collection::vec(("[A-Z][a-z0-9.+@_-]{0,62}", "[^\0]{0,60}"), 0..8),
        ) {
            let mut writer = TextWriter::new(8192);
            for (key, value) in &pairs {
                writer.push(key, value).unwrap();
            }
            let pairs: Vec<_> =
                pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            prop_assert_eq!(split(writer.as_bytes()), Ok(pairs));
        }
    }
}
