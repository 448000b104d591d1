// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hash functions of CHAP and the response that they give (RFC 7143 §12.1.3, RFC 1994 §2.1).

use digest::Digest;
use md5::Md5;
use md5::digest;
use sha1::Sha1;
use sha2::Sha256;
use sha3::Sha3_256;
use subtle::ConstantTimeEq;

use super::Secret;

/// A hash function, by its number in the PPP authentication algorithms registry of IANA.
///
/// Some old peers use 7 for SHA-1; they fail here when they choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the whole registry
pub enum Algorithm {
    /// 5, the one that every peer has (RFC 7143 §12.1.3).
    Md5,
    /// 6.
    Sha1,
    /// 7.
    Sha256,
    /// 8.
    Sha3_256,
}

impl Algorithm {
    /// All of them, the strongest first.
    pub const ALL: [Self; 4] = [Self::Sha3_256, Self::Sha256, Self::Sha1, Self::Md5];

    /// The number in CHAP_A.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Md5 => 5,
            Self::Sha1 => 6,
            Self::Sha256 => 7,
            Self::Sha3_256 => 8,
        }
    }

    /// The name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha3_256 => "sha3-256",
        }
    }

    /// `hash(identifier, secret, challenge)` (RFC 1994 §4.1).
    #[must_use]
    pub fn response(self, identifier: u8, secret: &Secret, challenge: &[u8]) -> Response {
        let secret = secret.as_bytes();
        match self {
            Self::Md5 => hash::<Md5>(identifier, secret, challenge),
            Self::Sha1 => hash::<Sha1>(identifier, secret, challenge),
            Self::Sha256 => hash::<Sha256>(identifier, secret, challenge),
            Self::Sha3_256 => hash::<Sha3_256>(identifier, secret, challenge),
        }
    }
}

fn hash<D: Digest>(identifier: u8, secret: &[u8], challenge: &[u8]) -> Response {
    let digest =
        D::new().chain_update([identifier]).chain_update(secret).chain_update(challenge).finalize();
    let mut response = Response { bytes: [0; RESPONSE_LEN_MAX], len: 0 };
    for (to, from) in response.bytes.iter_mut().zip(digest.iter()) {
        *to = *from;
        response.len += 1;
    }
    assert_eq!(response.len, <D as Digest>::output_size(), "no hash is longer than the buffer");
    response
}

/// A value of CHAP_R.
#[derive(Clone, Debug)]
pub struct Response {
    bytes: [u8; RESPONSE_LEN_MAX],
    len: usize,
}

impl Response {
    /// As it goes out.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Whether a peer has given this response, in time that does not depend on where it differs.
    #[must_use]
    pub fn is(&self, given: &[u8]) -> bool {
        self.as_bytes().ct_eq(given).into()
    }
}

/// Bytes of the longest response, that of the 256-bit hashes.
const RESPONSE_LEN_MAX: usize = 32;
