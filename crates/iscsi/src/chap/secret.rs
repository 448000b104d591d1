// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Secrets, names, and what belongs together (RFC 7143 §9.2.1).

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use subtle::ConstantTimeEq;
use wire::iscsi::keys;
use wire::iscsi::keys::BinaryError;
use zeroize::Zeroizing;

use crate::limits;
use crate::negotiate;

/// A shared secret: whole bytes, wiped when dropped, never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

/// Why a secret is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// RFC 7143 §9.2.1: less than 96 bits can be found by trial from one login that was overheard.
    #[error(
        "the secret has {0} bytes; at least {min} (96 bits) are right, and random ones are best: \
         0x and what openssl rand -hex 16 prints",
        min = limits::CHAP_SECRET_LEN_MIN
    )]
    TooShort(usize),
    /// A file that was torn by a loss of power holds zeros; nobody has drawn these 96 bits
    /// (RFC 7143 §9.2.1).
    #[error(
        "the secret is nothing but zero bytes, as in a file that was cut off while it was \
         written; try: write it again"
    )]
    Zeros,
    /// A bound of ours: it is refused rather than cut.
    #[error("the secret has more than {} bytes", limits::CHAP_SECRET_LEN_MAX)]
    TooLong,
    /// RFC 7143 §9.2.1: secrets are whole bytes.
    #[error("the secret begins with 0x and has an odd number of hex digits; whole bytes are right")]
    HalfByte,
    /// Neither can it be meant as plain text, because peers would not agree.
    #[error("the secret begins with 0x but is no hex")]
    Hex,
    /// As for hex.
    #[error("the secret begins with 0b but is no base64; a plain secret cannot begin with 0b")]
    Base64,
}

impl Secret {
    /// These bytes as they are.
    ///
    /// # Errors
    /// [`SecretError::TooShort`], [`SecretError::Zeros`], [`SecretError::TooLong`].
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        match bytes.len() {
            limits::CHAP_SECRET_LEN_MIN.. if bytes.iter().all(|byte| *byte == 0) => {
                Err(SecretError::Zeros)
            }
            limits::CHAP_SECRET_LEN_MIN..=limits::CHAP_SECRET_LEN_MAX => {
                Ok(Self(Zeroizing::new(bytes.to_vec())))
            }
            short if short < limits::CHAP_SECRET_LEN_MIN => Err(SecretError::TooShort(short)),
            _ => Err(SecretError::TooLong),
        }
    }

    /// As somebody wrote it: hex after `0x`, base64 after `0b`, or else the bytes themselves. One
    /// line end behind it does not belong to it.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn from_text(text: &[u8]) -> Result<Self, SecretError> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        match text {
            [b'0', b'x' | b'X', digits @ ..] if digits.len() % 2 == 1 => Err(SecretError::HalfByte),
            [b'0', b'x' | b'X', ..] => Self::decode(text, SecretError::Hex),
            [b'0', b'b' | b'B', ..] => Self::decode(text, SecretError::Base64),
            plain => Self::new(plain),
        }
    }

    fn decode(text: &[u8], malformed: SecretError) -> Result<Self, SecretError> {
        let text = core::str::from_utf8(text).map_err(|_| malformed)?;
        let mut buffer = Zeroizing::new(vec![0; limits::CHAP_SECRET_LEN_MAX]);
        match keys::binary(text, &mut buffer) {
            Ok(bytes) => Self::new(bytes),
            Err(BinaryError::TooLong) => Err(SecretError::TooLong),
            Err(_) => Err(malformed),
        }
    }

    /// What stands in for the secret of a name that nobody has, so that it costs the same time.
    pub(super) fn of_nobody() -> Self {
        Self(Zeroizing::new(vec![0; limits::CHAP_SECRET_LEN_MIN]))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// By what one side proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    name: String,
    secret: Secret,
}

/// Why credentials are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// RFC 7143 §6.1: CHAP_N is a text value.
    #[error("the name has {0} bytes; 1 to 255 are right")]
    NameLength(usize),
    /// A null byte ends a text value (RFC 7143 §6.1).
    #[error("a name has no control characters")]
    NameCharacter,
    /// RFC 7143 §6.2: a word that stands for an answer is never a value.
    #[error("{0} is a word of the protocol and no name; another one is right")]
    NameReserved(&'static str),
    /// RFC 7143 §9.2.1.
    #[error("the secret is the same in both directions; each needs its own")]
    SameSecret,
}

impl Credentials {
    /// `name` is what CHAP_N says; it is compared byte for byte.
    ///
    /// # Errors
    /// [`CredentialsError::NameLength`], [`CredentialsError::NameCharacter`],
    /// [`CredentialsError::NameReserved`].
    pub fn new(name: String, secret: Secret) -> Result<Self, CredentialsError> {
        if name.is_empty() || name.len() > limits::TEXT_VALUE_LEN_MAX {
            return Err(CredentialsError::NameLength(name.len()));
        }
        if name.chars().any(char::is_control) {
            return Err(CredentialsError::NameCharacter);
        }
        if let Some(word) = negotiate::RESERVED.into_iter().find(|word| *word == name) {
            return Err(CredentialsError::NameReserved(word));
        }
        Ok(Self { name, secret })
    }

    /// CHAP_N.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What only the two sides know.
    #[must_use]
    pub const fn secret(&self) -> &Secret {
        &self.secret
    }
}

/// How an initiator proves who it is, and how the target does to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    initiator: Credentials,
    target: Option<Credentials>,
}

impl Account {
    /// `target`: None if the target cannot be authenticated by this initiator.
    ///
    /// # Errors
    /// [`CredentialsError::SameSecret`].
    pub fn new(
        initiator: Credentials,
        target: Option<Credentials>,
    ) -> Result<Self, CredentialsError> {
        if target.as_ref().is_some_and(|target| target.secret == initiator.secret) {
            return Err(CredentialsError::SameSecret);
        }
        Ok(Self { initiator, target })
    }

    /// What the initiator has to know.
    #[must_use]
    pub const fn initiator(&self) -> &Credentials {
        &self.initiator
    }

    /// What the target answers with.
    #[must_use]
    pub const fn target(&self) -> Option<&Credentials> {
        self.target.as_ref()
    }
}
