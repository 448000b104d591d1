// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What backs a logical unit, in a word: `kind:argument[,option[=value]]...`.

use crate::limits::{BLOCK_MIN, SIZE_MAX};
use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// A store to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // the opener must handle each of them
pub enum Spec {
    /// `memory:SIZE`: in memory, gone with the process.
    Memory {
        /// Size, a multiple of 512.
        bytes: u64,
    },
    /// `file:PATH[,size=SIZE][,direct][,readonly][,sync]`: a regular file or a block device.
    File(FileSpec),
    /// `null:SIZE`: reads zeroes, drops writes.
    Null {
        /// Size, a multiple of 512.
        bytes: u64,
    },
}

/// A file to be opened as a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // the opener must heed each of them
pub struct FileSpec {
    /// Not empty; ends at the first comma.
    pub path: String,
    /// Size in bytes of a file that is to be created if it is missing, a multiple of 512.
    pub size: Option<u64>,
    /// Past the page cache of the system.
    pub direct: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// Every write is on stable storage before it is acknowledged.
    pub sync: bool,
}

/// Why a word is not a store: names the field, the value and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// No colon.
    #[error("store `{word}` has no argument: write {}", usage_of(word))]
    NoArgument {
        /// All of it.
        word: String,
    },
    /// Not in the list.
    #[error("store kind `{kind}` is unknown: write {USAGE}")]
    UnknownKind {
        /// Before the colon.
        kind: String,
    },
    /// In the list, but this build has it not.
    #[error("store kind `{kind}` is not built yet: this build has {USAGE}")]
    NotBuiltYet {
        /// Before the colon.
        kind: String,
    },
    /// `file:` without a path.
    #[error("path of store `file:` is empty: write {FILE_USAGE}")]
    EmptyPath,
    /// A size that cannot be.
    #[error("{field} of store `{kind}:` is `{value}`: {error}")]
    Size {
        /// The kind.
        kind: &'static str,
        /// Argument or option.
        field: &'static str,
        /// As written.
        value: String,
        /// What is wrong with it.
        error: SizeError,
    },
    /// Not an option of the kind.
    #[error("option `{option}` of store `{kind}:` is unknown: {options}")]
    UnknownOption {
        /// The kind.
        kind: &'static str,
        /// As written, without its value.
        option: String,
        /// What there is.
        options: &'static str,
    },
    /// An option twice.
    #[error("option `{option}` of store `file:` is given twice: leave one out")]
    Repeated {
        /// Its name.
        option: &'static str,
    },
    /// A value where none belongs.
    #[error("option `{option}` of store `file:` has the value `{value}`: it takes none")]
    ValueNotWanted {
        /// Its name.
        option: &'static str,
        /// As written.
        value: String,
    },
}

/// Why a text is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Other characters than digits and one suffix.
    #[error("a size is a number of bytes with an optional K, M, G or T, such as 512M")]
    NotANumber,
    /// Above what a file can be.
    #[error("a size is at most {SIZE_MAX} bytes")]
    TooLarge,
    /// A disk without blocks.
    #[error("a size is at least {BLOCK_MIN} bytes")]
    Zero,
    /// Part of a block.
    #[error("a size is a multiple of {BLOCK_MIN} bytes")]
    NotWholeBlocks,
}

/// The size of a store in bytes: a number with an optional suffix K, M, G or T (powers of 1024),
/// not zero, a multiple of 512, at most 2^63 - 1.
///
/// # Errors
/// What is wrong with `text`.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (text.get(..at), 10),
        Some((at, 'M' | 'm')) => (text.get(..at), 20),
        Some((at, 'G' | 'g')) => (text.get(..at), 30),
        Some((at, 'T' | 't')) => (text.get(..at), 40),
        _ => (Some(text), 0),
    };
    let digits = digits.ok_or(SizeError::NotANumber)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SizeError::NotANumber);
    }
    // Only digits: what does not parse is too large.
    let number: u64 = digits.parse().map_err(|_| SizeError::TooLarge)?;
    let bytes = number.checked_mul(1 << shift).ok_or(SizeError::TooLarge)?;
    match bytes {
        0 => Err(SizeError::Zero),
        bytes if bytes > SIZE_MAX => Err(SizeError::TooLarge),
        bytes if !bytes.is_multiple_of(BLOCK_MIN) => Err(SizeError::NotWholeBlocks),
        bytes => Ok(bytes),
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(word: &str) -> Result<Self, SpecError> {
        let (kind, rest) =
            word.split_once(':').ok_or_else(|| SpecError::NoArgument { word: word.to_owned() })?;
        match kind {
            "memory" => Ok(Self::Memory { bytes: size_alone("memory", rest)? }),
            "null" => Ok(Self::Null { bytes: size_alone("null", rest)? }),
            "file" => Ok(Self::File(rest.parse()?)),
            "scsi" | "stripe" | "iso" | "rbd" => {
                Err(SpecError::NotBuiltYet { kind: kind.to_owned() })
            }
            _ => Err(SpecError::UnknownKind { kind: kind.to_owned() }),
        }
    }
}

impl FromStr for FileSpec {
    type Err = SpecError;

    /// The word behind `file:`.
    fn from_str(rest: &str) -> Result<Self, SpecError> {
        let mut parts = rest.split(',');
        let path = parts.next().unwrap_or_default().to_owned();
        if path.is_empty() {
            return Err(SpecError::EmptyPath);
        }
        let mut spec = Self { path, size: None, direct: false, read_only: false, sync: false };
        for part in parts {
            let (option, value) = match part.split_once('=') {
                Some((option, value)) => (option, Some(value)),
                None => (part, None),
            };
            match option {
                "size" => spec.set_size(value.unwrap_or_default())?,
                "direct" => set_flag(&mut spec.direct, "direct", value)?,
                "readonly" => set_flag(&mut spec.read_only, "readonly", value)?,
                "sync" => set_flag(&mut spec.sync, "sync", value)?,
                _ => {
                    let (option, options) = (option.to_owned(), FILE_OPTIONS);
                    return Err(SpecError::UnknownOption { kind: "file", option, options });
                }
            }
        }
        Ok(spec)
    }
}

impl FileSpec {
    fn set_size(&mut self, value: &str) -> Result<(), SpecError> {
        if self.size.is_some() {
            return Err(SpecError::Repeated { option: "size" });
        }
        self.size = Some(size("file", "option `size`", value)?);
        Ok(())
    }
}

impl fmt::Display for Spec {
    /// The word that parses to it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { bytes } => write!(f, "memory:{bytes}"),
            Self::Null { bytes } => write!(f, "null:{bytes}"),
            Self::File(file) => write!(f, "file:{file}"),
        }
    }
}

impl fmt::Display for FileSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(size) = self.size {
            write!(f, ",size={size}")?;
        }
        let flags = [(self.direct, ",direct"), (self.read_only, ",readonly"), (self.sync, ",sync")];
        flags.iter().filter(|(set, _)| *set).try_for_each(|(_, text)| f.write_str(text))
    }
}

/// An argument that is a size, without options.
fn size_alone(kind: &'static str, rest: &str) -> Result<u64, SpecError> {
    let (argument, option) = match rest.split_once(',') {
        Some((argument, option)) => (argument, Some(option)),
        None => (rest, None),
    };
    if let Some(option) = option {
        let option = option.split(['=', ',']).next().unwrap_or_default().to_owned();
        return Err(SpecError::UnknownOption { kind, option, options: NO_OPTIONS });
    }
    size(kind, "size", argument)
}

fn size(kind: &'static str, field: &'static str, value: &str) -> Result<u64, SpecError> {
    parse_size(value).map_err(|error| SpecError::Size {
        kind,
        field,
        value: value.to_owned(),
        error,
    })
}

fn set_flag(flag: &mut bool, option: &'static str, value: Option<&str>) -> Result<(), SpecError> {
    if let Some(value) = value {
        return Err(SpecError::ValueNotWanted { option, value: value.to_owned() });
    }
    if *flag {
        return Err(SpecError::Repeated { option });
    }
    *flag = true;
    Ok(())
}

/// How to write the kind that `word` means, or all kinds.
fn usage_of(word: &str) -> &'static str {
    match word {
        "memory" => "memory:SIZE, such as memory:1G",
        "null" => "null:SIZE, such as null:1G",
        "file" => FILE_USAGE,
        _ => USAGE,
    }
}

const USAGE: &str = "memory:SIZE, file:PATH or null:SIZE";
const FILE_USAGE: &str = "file:PATH[,size=SIZE][,direct][,readonly][,sync]";
const FILE_OPTIONS: &str = "it has size=SIZE, direct, readonly and sync";
const NO_OPTIONS: &str = "it has none";

#[cfg(test)]
mod tests {
    use super::{FileSpec, SizeError, Spec, parse_size};
    use alloc::format;
    use alloc::string::{String, ToString};
    use proptest::prelude::*;

    fn file(path: &str) -> FileSpec {
        FileSpec {
            path: path.to_string(),
            size: None,
            direct: false,
            read_only: false,
            sync: false,
        }
    }

    #[test]
    fn words_of_each_kind() {
        let words = [
            ("memory:1G", Spec::Memory { bytes: 1 << 30 }),
            ("null:512", Spec::Null { bytes: 512 }),
            ("file:/dev/sdb", Spec::File(file("/dev/sdb"))),
            ("file:a:b", Spec::File(file("a:b"))),
            (
                "file:disk.img,size=8M,sync,direct",
                Spec::File(FileSpec {
                    size: Some(8 << 20),
                    direct: true,
                    sync: true,
                    ..file("disk.img")
                }),
            ),
            ("file:x,readonly", Spec::File(FileSpec { read_only: true, ..file("x") })),
        ];
        for (word, spec) in words {
            assert_eq!(word.parse(), Ok(spec), "{word}");
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let errors = [
            ("memory", "store `memory` has no argument: write memory:SIZE, such as memory:1G"),
            ("", "store `` has no argument: write memory:SIZE, file:PATH or null:SIZE"),
            (
                "ramdisk:1G",
                "store kind `ramdisk` is unknown: write memory:SIZE, file:PATH or null:SIZE",
            ),
            (
                "rbd:pool/image",
                "store kind `rbd` is not built yet: \
                 this build has memory:SIZE, file:PATH or null:SIZE",
            ),
            (
                "memory:1GB",
                "size of store `memory:` is `1GB`: \
                 a size is a number of bytes with an optional K, M, G or T, such as 512M",
            ),
            ("memory:0", "size of store `memory:` is `0`: a size is at least 512 bytes"),
            ("null:1000", "size of store `null:` is `1000`: a size is a multiple of 512 bytes"),
            (
                "memory:16777216T",
                "size of store `memory:` is `16777216T`: \
                 a size is at most 9223372036854775807 bytes",
            ),
            ("memory:1G,sync", "option `sync` of store `memory:` is unknown: it has none"),
            (
                "file:",
                "path of store `file:` is empty: \
                 write file:PATH[,size=SIZE][,direct][,readonly][,sync]",
            ),
            (
                "file:a,size=1,sync",
                "option `size` of store `file:` is `1`: a size is a multiple of 512 bytes",
            ),
            (
                "file:a,read-only",
                "option `read-only` of store `file:` is unknown: \
                 it has size=SIZE, direct, readonly and sync",
            ),
            ("file:a,sync,sync", "option `sync` of store `file:` is given twice: leave one out"),
            (
                "file:a,size=1M,size=1M",
                "option `size` of store `file:` is given twice: leave one out",
            ),
            (
                "file:a,direct=yes",
                "option `direct` of store `file:` has the value `yes`: it takes none",
            ),
        ];
        for (word, text) in errors {
            assert_eq!(word.parse::<Spec>().map_err(|error| error.to_string()), Err(text.into()));
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("8388607T"), Ok(8_388_607 << 40));
        assert_eq!(parse_size("1k"), Ok(1024));
        assert_eq!(parse_size("8388608T"), Err(SizeError::TooLarge));
        assert_eq!(parse_size("99999999999999999999"), Err(SizeError::TooLarge));
        for text in ["", "K", "-1K", "+1K", "1.5G", "1 G", "1GiB", "0x200", "\u{661}"] {
            assert_eq!(parse_size(text), Err(SizeError::NotANumber), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(word: String) {
            let _ = word.parse::<Spec>();
            let _ = format!("file:{word}").parse::<Spec>();
            let _ = parse_size(&word);
        }

        #[test]
        fn a_shown_word_parses_to_the_same(
            path in "[^,]+",
            blocks in proptest::option::of(1..1_u64 << 50),
            flags in any::<[bool; 3]>(),
        ) {
            let [direct, read_only, sync] = flags;
            let size = blocks.map(|blocks| blocks * 512);
            let spec = Spec::File(FileSpec { path, size, direct, read_only, sync });
            prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
            let spec = Spec::Memory { bytes: size.unwrap_or(512) };
            prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
        }
    }
}
