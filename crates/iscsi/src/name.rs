// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSCSI names (RFC 7143 §4.2.7) and the SCSI port names made from them (RFC 7143 §4.4.2).
//!
//! The iSCSI stringprep profile (RFC 3722) maps letters to lower case, applies normalization form
//! KC and then prohibits all of ASCII but letters, digits and `-` `.` `:`. Names of our own nodes
//! are taken in ASCII only, where lower-casing is the whole of that mapping; a name with other
//! letters is refused rather than put on the wire in a form that may not be normalized.
//!
//! Names of others are what they are: targets are deployed whose names no profile gives. They are
//! sent byte for byte as they came; nothing but their length and freedom from controls and blanks
//! is demanded of them. What comes from the wire is [`prepared`] before it is compared.
//!
//! An initiator's name decides which session is replaced and who holds a reservation, so one that
//! cannot be prepared here, because it is not ASCII, is refused ([`received_initiator`]).

use alloc::format;
use alloc::string::String;

use wire::iscsi::Isid;

use crate::limits::NAME_LEN_MAX;

/// What is wrong with an iSCSI name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// RFC 7143 §4.2.7.1.
    #[error("the name is empty")]
    Empty,
    /// RFC 7143 §4.2.7.1.
    #[error("the name has {0} bytes, 223 are allowed")]
    TooLong(usize),
    /// RFC 3722 §6.
    #[error(
        "{0:?} may not stand in a name: lower-case ASCII letters, digits, '-', '.' and ':' may"
    )]
    Character(char),
    /// RFC 3722 §4: it would have to be normalized first, of which no more is done here than what
    /// ASCII needs.
    #[error(
        "the name is not ASCII ({0:?}), so it cannot be compared; give the initiator one that is"
    )]
    NotAscii(char),
    /// RFC 7143 §4.2.7.3.
    #[error("the name does not begin with iqn., eui. or naa.")]
    Designator,
    /// RFC 7143 §4.2.7.4.
    #[error("an iqn name is iqn.yyyy-mm.reversed-domain with an optional :local-part")]
    Qualified,
    /// RFC 7143 §4.2.7.5.
    #[error("an eui name is eui. and 16 hexadecimal digits")]
    Eui,
    /// RFC 7143 §4.2.7.6.
    #[error("a naa name is naa. and 16 or 32 hexadecimal digits")]
    Naa,
}

/// Checks a name that came over the wire: its length, and that it can be printed and stored without
/// harm.
///
/// # Errors
/// [`NameError::Empty`], [`NameError::TooLong`] or [`NameError::Character`].
pub fn validate_received(name: &str) -> Result<(), NameError> {
    check_length(name)?;
    match name.chars().find(|c| c.is_control() || c.is_whitespace()) {
        Some(bad) => Err(NameError::Character(bad)),
        None => Ok(()),
    }
}

/// Checks the name of an initiator that came over the wire, and prepares it: all that follows from
/// who the initiator is follows from this.
///
/// # Errors
/// As [`validate_received`], or [`NameError::NotAscii`].
pub fn received_initiator(name: &str) -> Result<String, NameError> {
    validate_received(name)?;
    match name.chars().find(|c| !c.is_ascii()) {
        Some(other) => Err(NameError::NotAscii(other)),
        None => Ok(prepared(name)),
    }
}

/// A name as RFC 3722 prepares it for comparison: prepared names are equal byte for byte if they
/// are one name. Lower-casing is the whole of that for ASCII; other letters are not composed anew
/// (NFKC).
#[must_use]
pub fn prepared(name: &str) -> String {
    name.chars().flat_map(char::to_lowercase).collect()
}

/// In what a name of somebody else departs from RFC 7143 §4.2.7, other than in letters that ought
/// to be in lower case.
#[must_use]
pub fn departure(name: &str) -> Option<NameError> {
    normalize_configured(name).err()
}

/// The form on the wire of a name that somebody gives to a node of ours: letters in lower case, the
/// rest unchanged.
///
/// # Errors
/// The name is then no iSCSI name.
pub fn normalize_configured(name: &str) -> Result<String, NameError> {
    check_length(name)?;
    let name = name.to_ascii_lowercase();
    if let Some(bad) = name.chars().find(|c| !is_name_character(*c)) {
        return Err(NameError::Character(bad));
    }
    let (designator, rest) = name.split_once('.').ok_or(NameError::Designator)?;
    match designator {
        "iqn" if is_qualified(rest) => Ok(name),
        "iqn" => Err(NameError::Qualified),
        "eui" if rest.len() == 16 && is_hex(rest) => Ok(name),
        "eui" => Err(NameError::Eui),
        "naa" if matches!(rest.len(), 16 | 32) && is_hex(rest) => Ok(name),
        "naa" => Err(NameError::Naa),
        _ => Err(NameError::Designator),
    }
}

/// The SCSI initiator port name, with the null that ends it in a TransportID (RFC 7143 §4.4.2).
#[must_use]
pub fn initiator_port(name: &str, isid: Isid) -> String {
    format!("{name},i,{}\0", isid_text(isid))
}

/// An ISID as names and logs show it: `0x` and 12 hexadecimal digits.
#[must_use]
pub fn isid_text(isid: Isid) -> String {
    let [a, b, c, d, e, f] = isid.0;
    format!("0x{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{f:02x}")
}

fn check_length(name: &str) -> Result<(), NameError> {
    match name.len() {
        0 => Err(NameError::Empty),
        1..=NAME_LEN_MAX => Ok(()),
        longer => Err(NameError::TooLong(longer)),
    }
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | ':')
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `yyyy-mm.reversed-domain[:local-part]`.
fn is_qualified(rest: &str) -> bool {
    let (authority, local) = rest.split_once(':').map_or((rest, None), |(a, l)| (a, Some(l)));
    let Some((date, domain)) = authority.split_once('.') else { return false };
    let Some((year, month)) = date.split_once('-') else { return false };
    let dated = year.len() == 4
        && year.bytes().all(|byte| byte.is_ascii_digit())
        && month.len() == 2
        && matches!(month.parse(), Ok(1..=12_u8))
        && month.bytes().all(|byte| byte.is_ascii_digit());
    dated && domain.split('.').all(is_domain_label) && local != Some("")
}

fn is_domain_label(label: &str) -> bool {
    !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// Covers: NAM-06/S.
    #[test]
    fn typed_in_names_are_lower_cased() {
        let name = normalize_configured("IQN.2001-04.COM.Example:A");
        assert_eq!(name.as_deref(), Ok("iqn.2001-04.com.example:a"));
    }

    /// Covers: NAM-07/S.
    #[test]
    fn names_are_compared_as_they_are_prepared() {
        let [synology, lower] = [
            "iqn.2000-01.com.synology:DiskStation.Target-1",
            "iqn.2000-01.com.synology:diskstation.target-1",
        ];
        assert_eq!(prepared(synology), lower);
        assert_eq!(prepared(lower), lower);
        assert_ne!(prepared("iqn.2000-01.com.synology:diskstation.target-2"), lower);
        assert_eq!(prepared("naa.62004567BA64678D"), "naa.62004567ba64678d");
        assert_eq!(departure(synology), None);
        assert_eq!(departure("iqn.test"), Some(NameError::Qualified));
        assert_eq!(departure("iqn.2001-04.com.example:my_disk"), Some(NameError::Character('_')));
    }

    /// Covers: NAM-08/S.
    #[test]
    fn a_name_needs_a_known_designator() {
        for name in [
            "iq.2001-04.com.example",
            "disk",
            "t10.abc",
            "iqn",
            "xiqn.2001-04.com.example",
            "-iqn.2001-04.com.example",
            "iqn-.2001-04.com.example",
        ] {
            assert_eq!(normalize_configured(name), Err(NameError::Designator), "{name}");
        }
    }

    /// Covers: NAM-05/S.
    #[test]
    fn characters_that_stringprep_cannot_give_are_refused() {
        let cases = [(' ', "a b"), ('\n', "a\n"), ('_', "a_b"), ('/', "a/b"), ('\u{e4}', "\u{e4}")];
        for (bad, tail) in cases {
            let name = format!("iqn.2001-04.com.example:{tail}");
            assert_eq!(normalize_configured(&name), Err(NameError::Character(bad)));
        }
    }

    /// Covers: NAM-09/S.
    #[test]
    fn qualified_names_have_a_date_and_a_domain() {
        let good = [
            "iqn.2001-04.com.example",
            "iqn.2001-12.com.example:disk",
            "iqn.2001-01.com.example:a:b.c-d",
            "iqn.1991-05.com.microsoft:host",
        ];
        for name in good {
            assert_eq!(normalize_configured(name).as_deref(), Ok(name));
        }
        let bad = [
            "iqn.2001-13.com.example",
            "iqn.2001-00.com.example",
            "iqn.2001-4.com.example",
            "iqn.201-04.com.example",
            "iqn.2001-04",
            "iqn.2001-04.",
            "iqn.2001-04..example",
            "iqn.2001-04:disk",
            "iqn.2001.04.com.example",
            "iqn.com.example:disk",
            "iqn.2001-04.com.example:",
            "iqn.2001-04.-com.example",
        ];
        for name in bad {
            assert_eq!(normalize_configured(name), Err(NameError::Qualified), "{name}");
        }
    }

    /// Covers: NAM-10/S.
    #[test]
    fn eui_names_have_sixteen_digits() {
        assert!(normalize_configured("eui.02004567A425678D").is_ok());
        for name in ["eui.02004567A425678", "eui.02004567A425678D0", "eui.02004567A425678G", "eui."]
        {
            assert_eq!(normalize_configured(name), Err(NameError::Eui), "{name}");
        }
    }

    /// Covers: NAM-11/S.
    #[test]
    fn naa_names_have_sixteen_or_thirty_two_digits() {
        for name in ["naa.52004567BA64678D", "naa.62004567BA64678D0123456789ABCDEF"] {
            assert!(normalize_configured(name).is_ok(), "{name}");
        }
        for name in ["naa.52004567BA64678", "naa.62004567BA64678D0", "naa.6200456zBA64678D"] {
            assert_eq!(normalize_configured(name), Err(NameError::Naa), "{name}");
        }
    }

    #[test]
    fn received_names_are_bounded_and_printable() {
        let longest = "x".repeat(NAME_LEN_MAX);
        assert_eq!(validate_received(&longest), Ok(()));
        assert_eq!(validate_received(&(longest + "x")), Err(NameError::TooLong(224)));
        assert_eq!(validate_received(""), Err(NameError::Empty));
        assert_eq!(validate_received("iqn.\u{1b}[2J"), Err(NameError::Character('\u{1b}')));
        assert_eq!(validate_received("IQN.2001-04.com.Example"), Ok(()));
    }

    #[test]
    fn an_initiator_port_name_ends_in_the_isid() {
        let isid = Isid([0x80, 0, 0x12, 0x34, 0x56, 0x78]);
        let port = initiator_port("iqn.2001-04.com.example:host", isid);
        assert_eq!(port, "iqn.2001-04.com.example:host,i,0x800012345678\0");
        assert_eq!(port.rsplit(',').next().map(str::len), Some(15));
    }

    #[test]
    fn errors_say_what_is_allowed() {
        assert!(NameError::Qualified.to_string().contains("iqn.yyyy-mm"));
    }
}
