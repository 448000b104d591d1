// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a word is not a store.

use super::SizeError;
use crate::limits::{FILTERS_MAX, NESTING_MAX};
use crate::stripe::StripeError;
use alloc::boxed::Box;
use alloc::string::String;

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
    /// A file without the kind in front.
    #[error("store `{word}` has no kind: did you mean file:{word}?")]
    Path {
        /// All of it.
        word: String,
    },
    /// Not in the list.
    #[error("store kind `{kind}` is unknown: write {USAGE}")]
    UnknownKind {
        /// Before the colon.
        kind: String,
    },
    /// `file:`, `iso:` or `scsi:` without a path.
    #[error("path of store `{kind}:` is empty: write {usage}")]
    EmptyPath {
        /// The kind.
        kind: &'static str,
        /// What is right.
        usage: &'static str,
    },
    /// `rbd:` without the name of an image.
    #[error("`{place}` names no image of Ceph: write {usage}")]
    Image {
        /// As written.
        place: String,
        /// What is right.
        usage: &'static str,
    },
    /// A URL with a secret in it.
    #[error(
        "the URL of a disk that is served again has a secret in it, which `lunwire status` would \
         show: write iscsi://USER@HOST/TARGET/LUN,secret-file=FILE"
    )]
    RemoteSecret,
    /// `create` without a size, or the other way round.
    #[error(
        "an image of Ceph is made with `create` and `size` together, such as \
         rbd:rbd/disk,create,size=100G; one that is there has its size: leave both out"
    )]
    CreateAndSize,
    /// `id=` with the type of the user.
    #[error("id is `{user}`, without `client.`: write id={user}")]
    RbdUser {
        /// Without it.
        user: String,
    },
    /// A snapshot is not made by being served.
    #[error("a snapshot cannot be made by `create`: leave that out, or @SNAP")]
    CreateSnapshot,
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
    #[error("option `{option}` of store `{kind}:` is unknown: it has {options}")]
    UnknownOption {
        /// The kind.
        kind: &'static str,
        /// As written, without its value.
        option: String,
        /// What there is.
        options: &'static str,
    },
    /// An option twice.
    #[error("option `{option}` of store `{kind}:` is given twice: leave one out")]
    Repeated {
        /// The kind.
        kind: &'static str,
        /// Its name.
        option: &'static str,
    },
    /// A value where none belongs.
    #[error("option `{option}` of store `{kind}:` has the value `{value}`: it takes none")]
    ValueNotWanted {
        /// The kind.
        kind: &'static str,
        /// Its name.
        option: &'static str,
        /// As written.
        value: String,
    },
    /// A value that a filter does not understand.
    #[error("option `{option}` of store `{kind}:` has the value `{value}`: {right} is right")]
    FilterValue {
        /// The kind.
        kind: &'static str,
        /// Its name.
        option: &'static str,
        /// As written.
        value: String,
        /// What is right.
        right: &'static str,
    },
    /// A word that is no filter, where filters are listed.
    #[error("`{word}` is no filter: {FILTERS} are right")]
    UnknownFilter {
        /// As written.
        word: String,
    },
    /// More than anybody needs.
    #[error("there are more than {FILTERS_MAX} filters in front of a store: leave some out")]
    TooManyFilters,
    /// Parentheses of a stripe that do not fit.
    #[error("parentheses of store `stripe:` do not fit: write {STRIPE_USAGE}")]
    Unbalanced,
    /// Stripes in stripes in stripes.
    #[error("stripes are {NESTING_MAX} deep at most")]
    TooDeep,
    /// A CD as a part of a disk.
    #[error("`iso:` cannot be a part of a stripe: use file:PATH")]
    OpticalInStripe,
    /// A device as a part of a disk.
    #[error("`scsi:` cannot be a part of a stripe: use file: with its block device")]
    DeviceInStripe,
    /// Chunk or number of stores of a stripe.
    #[error("store `stripe:`: {0}")]
    Stripe(StripeError),
    /// A store of a stripe.
    #[error("store {number} of the stripe: {error}")]
    Within {
        /// Which, from 0.
        number: usize,
        /// What is wrong with it.
        error: Box<Self>,
    },
}

/// Why a store cannot hold protection information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unprotectable {
    /// It drops what is written.
    #[error("`null:` keeps nothing, protection information neither: use memory: or file:")]
    Null,
    /// No disk.
    #[error("a CD or DVD has no protection information: leave it out")]
    Iso,
    /// Nowhere to keep it beside the image.
    #[error("`rbd:` has no place for protection information beside the image: use file:")]
    Rbd,
    /// It has its own.
    #[error("a disk of another target has what that target keeps beside it: leave it out")]
    Remote,
    /// It has its own.
    #[error("`scsi:` passes on what the device has of protection information: leave it out")]
    Scsi,
    /// Several.
    #[error("`stripe:` has no one file beside which to keep protection information: use file:")]
    Stripe,
    /// Two stores cannot promise that together.
    #[error(
        "protection information is written apart, so that `atomic` cannot be promised: \
         leave one of them out"
    )]
    Atomic,
}

/// How to write the kind that `word` means, or all kinds.
fn usage_of(word: &str) -> &'static str {
    match word {
        "memory" => "memory:SIZE, such as memory:1G",
        "null" => "null:SIZE, such as null:1G",
        "file" => FILE_USAGE,
        "iso" => ISO_USAGE,
        "rbd" => RBD_USAGE,
        "scsi" => SCSI_USAGE,
        "iscsi" | "iser" | "ether" => REMOTE_USAGE,
        "stripe" => STRIPE_USAGE,
        _ => USAGE,
    }
}

/// The options of a kind.
pub(super) fn options_of(kind: &str) -> &'static str {
    match kind {
        "file" => FILE_OPTIONS,
        "rbd" => RBD_OPTIONS,
        "scsi" => SCSI_OPTIONS,
        "iscsi" | "iser" | "ether" => REMOTE_OPTIONS,
        "memory" | "null" => FORGETFUL_OPTIONS,
        _ => FILTERS,
    }
}

const USAGE: &str = "memory:SIZE, file:PATH, rbd:POOL/IMAGE, iscsi://HOST/TARGET/LUN, \
                     scsi:NODE, iso:PATH, stripe:CHUNK(STORE;STORE;...) or null:SIZE";
pub(super) const FILE_USAGE: &str = "file:PATH[,size=SIZE][,direct][,readonly][,sync][,format=raw]";
pub(super) const ISO_USAGE: &str = "iso:PATH, such as iso:/srv/install.iso";
pub(super) const RBD_USAGE: &str = "rbd:POOL[/NAMESPACE]/IMAGE[@SNAP][,id=USER][,conf=FILE]\
                                    [,keyring=FILE][,busy=TIME][,create,size=SIZE]";
pub(super) const REMOTE_USAGE: &str = "iscsi://[USER@]HOST[:PORT]/TARGET/LUN[,secret-file=FILE]\
                                       [,mutual-user=USER,mutual-secret-file=FILE][,wait=TIME]\
                                       [,busy=TIME], or iser://";
pub(super) const SCSI_USAGE: &str = "scsi:NODE[,timeout=TIME], such as scsi:/dev/sg1";
const STRIPE_USAGE: &str =
    "stripe:CHUNK(STORE;STORE;...), such as stripe:64K(file:/dev/sdb;file:/dev/sdc)";
const FILTERS: &str = "readonly, discard=off, physical=, delay=, error=, limit= and log";
const FORGETFUL_OPTIONS: &str =
    "readonly, discard=off, physical=, atomic, delay=, error=, limit= and log";
const FILE_OPTIONS: &str = "size=SIZE, direct, readonly, sync, format=raw, discard=off, physical=, \
                            delay=, error=, limit= and log";
const RBD_OPTIONS: &str = "id=USER, conf=FILE, keyring=FILE, busy=TIME, create, size=SIZE, \
                           readonly, discard=off, physical=, delay=, error=, limit= and log";
const REMOTE_OPTIONS: &str = "secret-file=FILE, mutual-user=USER, mutual-secret-file=FILE, \
                              wait=TIME, busy=TIME, readonly, discard=off, physical=, delay=, \
                              error=, limit= and log";
const SCSI_OPTIONS: &str = "timeout=TIME";
