// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a disk is that may be more than one: several paths, or a stripe.
//!
//! ```text
//! URL                              one disk
//! URL URL                          one disk over two paths
//! stripe:64K(URL;URL URL;URL)      three disks as one, the second over two paths
//! ```

use std::fmt;

use medium::stripe::Layout;

use super::Url;
use super::UrlError;
use super::without_secrets;
use crate::StripeError;

/// Where a disk is: URLs with blanks between them, which are paths to one, or
/// `stripe:CHUNK(URL;URL;...)`. Printed without secrets and options.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // all that a disk is made of
pub enum Address {
    /// Paths to one disk; one at least.
    Paths(Vec<Url>),
    /// Several disks as one.
    Stripe {
        /// Bytes that lie together in one disk.
        chunk: u64,
        /// The paths to each.
        members: Vec<Vec<Url>>,
    },
}

/// What is wrong with an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// A URL, which is given without its secrets.
    #[error("{1}")]
    Url(String, UrlError),
    /// The parentheses.
    #[error(
        "stripe:CHUNK(URL;URL;...) is right, such as stripe:64K(iscsi://...;iscsi://...); a secret \
         with ';' or ')' goes into a file"
    )]
    Form,
    /// The chunk.
    #[error("{0:?} is no chunk of a stripe: a power of two from 4K to 4M is right")]
    Chunk(String),
    /// Its parts.
    #[error("{0}")]
    Stripe(StripeError),
}

/// How a stripe begins.
const STRIPE: &str = "stripe:";

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// [`AddressError`].
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let Some(rest) = text.trim().strip_prefix(STRIPE) else {
            return paths(text).map(Self::Paths);
        };
        let (size, rest) = rest.split_once('(').ok_or(AddressError::Form)?;
        let rest = rest.strip_suffix(')').ok_or(AddressError::Form)?;
        if rest.contains(['(', ')']) {
            return Err(AddressError::Form);
        }
        let chunk = chunk(size).ok_or_else(|| AddressError::Chunk(size.to_owned()))?;
        let members = rest.split(';').map(paths).collect::<Result<Vec<_>, _>>()?;
        Layout::new(chunk, members.len())
            .map_err(|misfit| AddressError::Stripe(StripeError::from(misfit)))?;
        Ok(Self::Stripe { chunk, members })
    }

    /// Whether `text` is meant to be a stripe.
    #[must_use]
    pub fn is_stripe(text: &str) -> bool {
        text.trim_start().starts_with(STRIPE)
    }

    /// All URLs.
    pub fn urls(&self) -> impl Iterator<Item = &Url> {
        let (paths, members) = match self {
            Self::Paths(paths) => (Some(paths), None),
            Self::Stripe { members, .. } => (None, Some(members)),
        };
        paths.into_iter().flatten().chain(members.into_iter().flatten().flatten())
    }

    /// The first URL, whose LUN is that of the whole.
    #[must_use]
    pub fn first(&self) -> Option<&Url> {
        self.urls().next()
    }

    /// The first URL of what an error is about ([`Error::member`](crate::Error::member)), or of the
    /// whole.
    #[must_use]
    pub fn first_of(&self, member: Option<usize>) -> Option<&Url> {
        match (self, member) {
            (Self::Stripe { members, .. }, Some(member)) => members.get(member)?.first(),
            _ => self.first(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paths(urls) => fmt_paths(urls, f),
            Self::Stripe { chunk, members } => {
                match chunk % (1 << 20) {
                    0 => write!(f, "{STRIPE}{}M(", chunk >> 20)?,
                    _ => write!(f, "{STRIPE}{}K(", chunk >> 10)?,
                }
                for (at, urls) in members.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { ";" })?;
                    fmt_paths(urls, f)?;
                }
                f.write_str(")")
            }
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn fmt_paths(urls: &[Url], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, url) in urls.iter().enumerate() {
        f.write_str(if at == 0 { "" } else { " " })?;
        write!(f, "{url}")?;
    }
    Ok(())
}

/// URLs with blanks between them. What is blank is no URL, and that is said.
fn paths(text: &str) -> Result<Vec<Url>, AddressError> {
    let parse = |text: &str| {
        Url::parse_disk(text).map_err(|error| AddressError::Url(without_secrets(text), error))
    };
    match text.split_whitespace().map(parse).collect::<Result<Vec<_>, _>>()? {
        none if none.is_empty() => Ok(vec![parse(text)?]),
        urls => Ok(urls),
    }
}

/// A size with `K` or `M`, or in bytes.
fn chunk(text: &str) -> Option<u64> {
    let (digits, shift) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 10),
        None => match text.strip_suffix(['M', 'm']) {
            Some(digits) => (digits, 20),
            None => (text, 0),
        },
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = is_number.then(|| digits.parse().ok())??;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    const A: &str = "iscsi://a/iqn.2026-01.com.example:a/0";
    const B: &str = "iscsi://b/iqn.2026-01.com.example:b/1";

    #[test]
    fn addresses_are_read_and_written() {
        for text in [
            A.to_owned(),
            format!("{A} {B}"),
            format!("stripe:64K({A};{B})"),
            format!("stripe:1M({A} {A};{B};{A})"),
        ] {
            let address = Address::parse(&text).unwrap();
            assert_eq!(address.to_string().replace(":3260", ""), text);
            assert_eq!(address.first().unwrap().lun, Some(0));
        }
        let address = Address::parse(&format!(" stripe:65536( {A} ; {B} ) ")).unwrap();
        assert!(matches!(&address, Address::Stripe { chunk: 65_536, .. }));
        assert_eq!(address.urls().count(), 2);
        let host = |member| address.first_of(member).map(|url| url.host.as_str());
        let hosts = [None, Some(0), Some(1), Some(2)].map(host);
        assert_eq!(hosts, [Some("a"), Some("a"), Some("b"), None]);
        let hidden = format!("stripe:64K({A};iscsi://user%hidden@b/iqn.2026-01.com.example:b/1)");
        assert!(!Address::parse(&hidden).unwrap().to_string().contains("hidden"));
    }

    #[test]
    fn what_is_no_address_is_told() {
        let error = |text: &str| Address::parse(text).unwrap_err().to_string();
        for text in ["stripe:64K", "stripe:64K(", "stripe:64K(a", "stripe:64K(a;b))"] {
            assert!(error(text).starts_with("stripe:CHUNK(URL;URL;...)"), "{text}");
        }
        assert!(error(&format!("stripe:64K({A})")).contains("2 to 64 disks, not 1"));
        assert!(error(&format!("stripe:100K({A};{B})")).contains("102400 bytes is no chunk"));
        for chunk in ["", "K", "64KB", "-1", "99999999999999999999M"] {
            assert!(error(&format!("stripe:{chunk}({A};{B})")).contains("is no chunk"), "{chunk}");
        }
        assert!(error(&format!("stripe:64K({A};)")).contains("iscsi://"));
        assert!(error("").contains("iscsi://"));
    }
}
