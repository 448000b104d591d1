// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What backs a logical unit, in a word: `kind:argument[,option[=value]]...`.
//!
//! Options that a kind does not have itself are filters in front of it, in the order in which they
//! are written: the last one meets a command first.

mod error;
mod filter;
mod rbd;
mod remote;
mod scsi;
mod size;

pub use error::SpecError;
pub use error::Unprotectable;
pub use filter::Filter;
pub use rbd::RbdSpec;
pub use remote::RemoteSpec;
pub use scsi::ScsiSpec;
pub use size::Exactly;
pub use size::SizeError;
pub use size::parse_bytes;
pub use size::parse_size;

use crate::limits::{FILTERS_MAX, NESTING_MAX};
use crate::stripe;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// A store to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the opener must handle each of them
pub enum Spec {
    /// `memory:SIZE`: in memory, gone with the process.
    Memory {
        /// Size, a multiple of 512.
        bytes: u64,
    },
    /// `file:PATH[,size=SIZE][,direct][,readonly][,sync][,format=raw]`: a regular file or a block
    /// device.
    File(FileSpec),
    /// `null:SIZE`: reads zeroes, drops writes.
    Null {
        /// Size, a multiple of 512.
        bytes: u64,
    },
    /// `rbd:POOL[/NAMESPACE]/IMAGE[@SNAP][,id=USER][,conf=FILE][,keyring=FILE][,create,size=SIZE]`:
    /// an image of Ceph.
    Rbd(RbdSpec),
    /// `iscsi://[USER@]HOST[:PORT]/TARGET/LUN[?...][,secret-file=FILE]
    /// [,mutual-user=USER,mutual-secret-file=FILE][,wait=TIME][,busy=TIME]`, or `iser://`: a disk
    /// of another target.
    Remote(RemoteSpec),
    /// `scsi:NODE[,timeout=TIME]`: a device of the system, which carries out commands itself.
    Scsi(ScsiSpec),
    /// `iso:PATH`: a CD or DVD, read only.
    Iso {
        /// Not empty; ends at the first comma.
        path: String,
    },
    /// `stripe:CHUNK(STORE;STORE;...)`: several stores as one, in turn.
    Stripe {
        /// Bytes that lie together in one store.
        chunk: u64,
        /// Two at least; each has blocks, and none is optical.
        stores: Vec<Self>,
    },
    /// A store with a filter in front.
    Filtered {
        /// What is behind the filter.
        behind: Box<Self>,
        /// The filter.
        filter: Filter,
    },
}

/// A file to be opened as a store.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// An image of a virtual machine is served as the bytes that it is.
    pub raw: bool,
}

impl Spec {
    /// True for a CD or DVD, whatever filters are in front.
    pub fn is_optical(&self) -> bool {
        match self {
            Self::Iso { .. } => true,
            Self::Filtered { behind, .. } => behind.is_optical(),
            _ => false,
        }
    }

    /// True for a device of the system, which has no filters.
    pub const fn is_device(&self) -> bool {
        matches!(self, Self::Scsi(_))
    }

    /// True for what is of this process alone: opening it reaches no file, device or other machine.
    pub fn is_by_itself(&self) -> bool {
        match self {
            Self::Memory { .. } | Self::Null { .. } => true,
            Self::Stripe { stores, .. } => stores.iter().all(Self::is_by_itself),
            Self::Filtered { behind, .. } => behind.is_by_itself(),
            Self::File(_) | Self::Iso { .. } | Self::Rbd(_) | Self::Remote(_) | Self::Scsi(_) => {
                false
            }
        }
    }

    /// What is behind all filters.
    pub fn unfiltered(&self) -> &Self {
        match self {
            Self::Filtered { behind, .. } => behind.unfiltered(),
            other => other,
        }
    }

    /// Whether protection information can be kept beside its blocks.
    ///
    /// # Errors
    /// Why not.
    pub fn protectable(&self) -> Result<(), Unprotectable> {
        match self {
            Self::Memory { .. } | Self::File(_) => Ok(()),
            Self::Null { .. } => Err(Unprotectable::Null),
            Self::Iso { .. } => Err(Unprotectable::Iso),
            Self::Rbd(_) => Err(Unprotectable::Rbd),
            Self::Remote(_) => Err(Unprotectable::Remote),
            Self::Scsi(_) => Err(Unprotectable::Scsi),
            Self::Stripe { .. } => Err(Unprotectable::Stripe),
            Self::Filtered { filter: Filter::Atomic, .. } => Err(Unprotectable::Atomic),
            Self::Filtered { behind, .. } => behind.protectable(),
        }
    }

    /// The same with `filter` in front.
    #[must_use]
    pub fn filtered(self, filter: Filter) -> Self {
        Self::Filtered { behind: Box::new(self), filter }
    }

    /// How many filters are in front.
    fn filters(&self) -> usize {
        match self {
            Self::Filtered { behind, .. } => 1 + behind.filters(),
            _ => 0,
        }
    }

    fn parse(word: &str, depth: usize) -> Result<Self, SpecError> {
        let (kind, rest) = word.split_once(':').ok_or_else(|| {
            let (path, _) = split_argument(word);
            let word = word.to_owned();
            if is_path(path) { SpecError::Path { word } } else { SpecError::NoArgument { word } }
        })?;
        let (kind, mut spec, options) = match kind {
            "memory" | "null" => {
                let (argument, options) = split_argument(rest);
                let kind = if kind == "null" { "null" } else { "memory" };
                let bytes = size(kind, "size", argument)?;
                let memory = kind == "memory";
                let spec = if memory { Self::Memory { bytes } } else { Self::Null { bytes } };
                (kind, spec, options)
            }
            "file" => {
                let (path, options) = split_argument(rest);
                ("file", Self::File(FileSpec::new(path)?), options)
            }
            "iso" => {
                let (path, options) = split_argument(rest);
                if path.is_empty() {
                    return Err(SpecError::EmptyPath { kind: "iso", usage: error::ISO_USAGE });
                }
                ("iso", Self::Iso { path: path.to_owned() }, options)
            }
            "stripe" => {
                let (spec, options) = parse_stripe(rest, depth)?;
                ("stripe", spec, options)
            }
            "rbd" => {
                let (place, options) = split_argument(rest);
                ("rbd", Self::Rbd(RbdSpec::new(place)?), options)
            }
            "iscsi" | "iser" | "ether" => {
                let (place, options) = split_argument(rest);
                let spec = RemoteSpec::new(kind, place)?;
                (spec.kind(), Self::Remote(spec), options)
            }
            "scsi" => {
                let (path, options) = split_argument(rest);
                ("scsi", Self::Scsi(ScsiSpec::new(path)?), options)
            }
            _ if is_path(kind) => return Err(SpecError::Path { word: word.to_owned() }),
            _ => return Err(SpecError::UnknownKind { kind: kind.to_owned() }),
        };
        for option in options.into_iter().flat_map(|options| options.split(',')) {
            let (option, value) = match option.split_once('=') {
                Some((option, value)) => (option, Some(value)),
                None => (option, None),
            };
            let is_its_own = match unfiltered(&mut spec) {
                Self::File(file) => file.take(option, value)?,
                Self::Rbd(image) => image.take(option, value)?,
                Self::Remote(disk) => disk.take(option, value)?,
                Self::Scsi(device) => device.take(option, value)?,
                _ => false,
            };
            if is_its_own {
                continue;
            }
            // A filter is before blocks, and a device has none.
            let filter = match kind {
                "scsi" => None,
                _ => Filter::parse(kind, option, value)?,
            };
            let Some(filter) = filter else {
                let (option, options) = (option.to_owned(), error::options_of(kind));
                return Err(SpecError::UnknownOption { kind, option, options });
            };
            spec = spec.filtered(filter);
            if spec.filters() > FILTERS_MAX {
                return Err(SpecError::TooManyFilters);
            }
        }
        if let Self::Rbd(image) = spec.unfiltered() {
            image.check()?;
        }
        Ok(spec)
    }
}

/// Whether a word looks like a file and not like a kind of store.
fn is_path(word: &str) -> bool {
    word.contains(['/', '.'])
}

/// The store that all filters are in front of.
fn unfiltered(spec: &mut Spec) -> &mut Spec {
    match spec {
        Spec::Filtered { behind, .. } => unfiltered(behind),
        other => other,
    }
}

/// The argument, which ends at the first comma, and the options behind it.
fn split_argument(rest: &str) -> (&str, Option<&str>) {
    match rest.split_once(',') {
        Some((argument, options)) => (argument, Some(options)),
        None => (rest, None),
    }
}

/// `CHUNK(STORE;STORE;...)` and the options behind it.
fn parse_stripe(rest: &str, depth: usize) -> Result<(Spec, Option<&str>), SpecError> {
    if depth >= NESTING_MAX {
        return Err(SpecError::TooDeep);
    }
    let (chunk, inner) = rest.split_once('(').ok_or(SpecError::Unbalanced)?;
    let mut open = 1_usize;
    let mut cuts = Vec::new();
    let mut end = None;
    for (at, character) in inner.char_indices() {
        match character {
            '(' => open += 1,
            ')' => open -= 1,
            ';' if open == 1 => cuts.push(at),
            _ => {}
        }
        if open == 0 {
            end = Some(at);
            break;
        }
    }
    let end = end.ok_or(SpecError::Unbalanced)?;
    let options = match inner.get(end + 1..).unwrap_or_default() {
        "" => None,
        more => Some(more.strip_prefix(',').ok_or(SpecError::Unbalanced)?),
    };
    let chunk = size("stripe", "chunk", chunk)?;
    let mut stores = Vec::new();
    let mut start = 0;
    for cut in cuts.into_iter().chain([end]) {
        let word = inner.get(start..cut).unwrap_or_default();
        let number = stores.len();
        let within = |error| SpecError::Within { number, error: Box::new(error) };
        let spec = Spec::parse(word, depth + 1).map_err(within)?;
        if spec.is_optical() {
            return Err(SpecError::OpticalInStripe);
        }
        if spec.is_device() {
            return Err(SpecError::DeviceInStripe);
        }
        stores.push(spec);
        start = cut + 1;
    }
    stripe::check(chunk, stores.len()).map_err(SpecError::Stripe)?;
    Ok((Spec::Stripe { chunk, stores }, options))
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(word: &str) -> Result<Self, SpecError> {
        Self::parse(word, 0)
    }
}

impl FileSpec {
    fn new(path: &str) -> Result<Self, SpecError> {
        if path.is_empty() {
            return Err(SpecError::EmptyPath { kind: "file", usage: error::FILE_USAGE });
        }
        let path = path.to_owned();
        Ok(Self { path, size: None, direct: false, read_only: false, sync: false, raw: false })
    }

    /// The file of a CD or DVD.
    pub const fn disc(path: String) -> Self {
        Self { path, size: None, direct: false, read_only: true, sync: false, raw: true }
    }

    /// Takes an option that files have; false if they have it not.
    fn take(&mut self, option: &str, value: Option<&str>) -> Result<bool, SpecError> {
        let (option, taken) = match option {
            "size" => ("size", self.size.is_some()),
            "direct" => ("direct", self.direct),
            "readonly" => ("readonly", self.read_only),
            "sync" => ("sync", self.sync),
            "format" => ("format", self.raw),
            _ => return Ok(false),
        };
        if taken {
            return Err(SpecError::Repeated { kind: "file", option });
        }
        match (option, value) {
            ("size", value) => {
                self.size = Some(size("file", "option `size`", value.unwrap_or_default())?);
            }
            ("format", Some("raw")) => self.raw = true,
            ("format", value) => {
                let (kind, right) = ("file", "raw");
                let value = value.unwrap_or_default().to_owned();
                return Err(SpecError::FilterValue { kind, option, value, right });
            }
            (_, Some(value)) => {
                let (kind, value) = ("file", value.to_owned());
                return Err(SpecError::ValueNotWanted { kind, option, value });
            }
            ("direct", None) => self.direct = true,
            ("readonly", None) => self.read_only = true,
            _ => self.sync = true,
        }
        Ok(true)
    }
}

impl fmt::Display for Spec {
    /// The word that parses to it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { bytes } => write!(f, "memory:{}", Exactly(*bytes)),
            Self::Null { bytes } => write!(f, "null:{}", Exactly(*bytes)),
            Self::File(file) => write!(f, "file:{file}"),
            Self::Iso { path } => write!(f, "iso:{path}"),
            Self::Rbd(image) => write!(f, "rbd:{image}"),
            Self::Remote(disk) => write!(f, "{disk}"),
            Self::Scsi(device) => write!(f, "scsi:{device}"),
            Self::Stripe { chunk, stores } => {
                write!(f, "stripe:{}(", Exactly(*chunk))?;
                for (index, store) in stores.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ";" };
                    write!(f, "{separator}{store}")?;
                }
                f.write_str(")")
            }
            Self::Filtered { behind, filter } => write!(f, "{behind},{filter}"),
        }
    }
}

impl fmt::Display for FileSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(size) = self.size {
            write!(f, ",size={}", Exactly(size))?;
        }
        let flags = [
            (self.direct, ",direct"),
            (self.read_only, ",readonly"),
            (self.sync, ",sync"),
            (self.raw, ",format=raw"),
        ];
        flags.iter().filter(|(set, _)| *set).try_for_each(|(_, text)| f.write_str(text))
    }
}

fn size(kind: &'static str, field: &'static str, value: &str) -> Result<u64, SpecError> {
    parse_size(value).map_err(|error| SpecError::Size {
        kind,
        field,
        value: value.to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests;
