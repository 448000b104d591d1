// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of all text keys: RFC 7143 §12 and §13, RFC 7145 §6, and the obsolete ones of RFC
//! 3720.
//!
//! Every negotiated value is a number here: a boolean is 0 or 1, a choice is its place in the list
//! of known entries. So one array holds the outcome of all negotiations and the table alone says
//! how it comes about.

mod table;

pub use table::{AUTH_METHODS, DIGESTS, SESSION_TYPES, TASK_REPORTING};

use core::ops::RangeInclusive;
use table::TABLE;

/// Names a key; also its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
// The names are the standard's, and match arms must be complete.
#[allow(missing_docs)]
#[expect(clippy::exhaustive_enums)]
pub enum Id {
    SessionType,
    InitiatorName,
    TargetName,
    InitiatorAlias,
    TargetAlias,
    TargetAddress,
    TargetPortalGroupTag,
    AuthMethod,
    ChapA,
    ChapI,
    ChapC,
    ChapN,
    ChapR,
    SrpU,
    TargetAuth,
    SrpGroup,
    SrpSalt,
    SrpA,
    SrpB,
    SrpM,
    SrpHm,
    KrbApReq,
    KrbApRep,
    HeaderDigest,
    DataDigest,
    MaxConnections,
    SendTargets,
    InitialR2T,
    ImmediateData,
    MaxRecvDataSegmentLength,
    MaxBurstLength,
    FirstBurstLength,
    DefaultTime2Wait,
    DefaultTime2Retain,
    MaxOutstandingR2T,
    DataPduInOrder,
    DataSequenceInOrder,
    ErrorRecoveryLevel,
    TaskReporting,
    ProtocolLevel,
    NodeArchitecture,
    IfMarker,
    OfMarker,
    IfMarkInt,
    OfMarkInt,
    RdmaExtensions,
    TargetRecvDataSegmentLength,
    InitiatorRecvDataSegmentLength,
    MaxOutstandingUnexpectedPdus,
    MaxAhsLength,
    TaggedBufferForSolicitedDataOnly,
    IserHelloRequired,
}

/// How the value of a key comes about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a new rule must be handled everywhere
pub enum Rule {
    /// Declared text of at most this many bytes.
    Text(usize),
    /// A declared iSCSI name.
    Name,
    /// One of these words, declared.
    Word(&'static [&'static str]),
    /// A declared number.
    Number(RangeInclusive<u32>),
    /// A declared boolean.
    Boolean,
    /// The first offered entry that the answerer supports, of these (RFC 7143 §6.2.1).
    List(&'static [&'static str]),
    /// Yes only if both say Yes.
    And,
    /// No only if both say No.
    Or,
    /// The smaller number.
    Minimum(RangeInclusive<u32>),
    /// The larger number.
    Maximum(RangeInclusive<u32>),
    /// A key of an authentication method: legal only once the method was chosen (RFC 7143 §12.1).
    Method,
    /// Has a meaning in SendTargets only.
    SendTargets,
    /// Of markers: answered with Reject, never with NotUnderstood (RFC 7143 §13.25), unless the
    /// node wants them.
    Obsolete,
}

/// When a key may be sent (RFC 7143 §13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the four of the standard
pub enum Use {
    /// In the leading login of a session only (LO).
    LeadingOnly,
    /// In any login (IO).
    InitializeOnly,
    /// In full feature phase only (FFPO).
    FullFeatureOnly,
    /// In login and in full feature phase (ALL).
    All,
}

/// The stages of the login phase in which a key may be sent (RFC 7143 §12, §13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // there are two stages
pub enum Stages {
    /// SecurityNegotiation only.
    Security,
    /// LoginOperationalNegotiation only.
    Operational,
    /// Either.
    Any,
}

/// What a value holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the two of the standard
pub enum Scope {
    /// One connection (CO).
    Connection,
    /// The whole session (SW).
    Session,
}

/// Who may send a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the roles of the standard
pub enum Sender {
    /// The initiator only.
    Initiator,
    /// The target only.
    Target,
    /// Either.
    Both,
}

/// When a key has no meaning and is answered with Irrelevant. In discovery sessions many have none;
/// they are answered by values all the same, since deployed initiators fail on Irrelevant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // each is a condition of the standard
pub enum Irrelevant {
    /// It always has one.
    Never,
    /// Unless RDMAExtensions=Yes was agreed (RFC 7145 §6).
    WithoutRdma,
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name for the program.
    pub id: Id,
    /// Its name on the wire.
    pub name: &'static str,
    /// How its value comes about.
    pub rule: Rule,
    /// The value without negotiation, coded as this module says.
    pub default: u32,
    /// Phases.
    pub usage: Use,
    /// Stages of the login phase.
    pub stages: Stages,
    /// Reach of the value.
    pub scope: Scope,
    /// Who may send it.
    pub sender: Sender,
    /// When it is without meaning.
    pub irrelevant: Irrelevant,
}

impl Key {
    /// Whether it has a meaning where these values are in force.
    #[must_use]
    pub fn is_relevant(&self, values: &Values) -> bool {
        self.irrelevant == Irrelevant::Never || values.is_yes(Id::RdmaExtensions)
    }

    /// Whether a number within its range is a value of it. Zero states no limit for PDUs and
    /// additional headers, and a limit begins with 2 (RFC 7145 §6.7, §6.8).
    pub(crate) const fn takes(&self, number: u32) -> bool {
        number != 1 || !matches!(self.id, Id::MaxOutstandingUnexpectedPdus | Id::MaxAhsLength)
    }
}

/// The row of the key `name`, which is case sensitive (RFC 7143 §6.1).
#[must_use]
pub fn find(name: &str) -> Option<&'static Key> {
    TABLE.iter().find(|key| key.name == name)
}

impl Id {
    /// The row of this key.
    #[must_use]
    pub fn key(self) -> &'static Key {
        &TABLE[self as usize]
    }

    /// Whether it is younger than RFC 3720, so that a peer may not understand it (RFC 7143 §6.2).
    pub(crate) const fn is_later(self) -> bool {
        matches!(
            self,
            Self::TaskReporting
                | Self::ProtocolLevel
                | Self::NodeArchitecture
                | Self::RdmaExtensions
                | Self::TargetRecvDataSegmentLength
                | Self::InitiatorRecvDataSegmentLength
                | Self::MaxOutstandingUnexpectedPdus
                | Self::MaxAhsLength
                | Self::TaggedBufferForSolicitedDataOnly
                | Self::IserHelloRequired
        )
    }
}

/// One number for each key: what is in force, or what a side wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values([u32; TABLE.len()]);

impl Values {
    /// The values that hold without negotiation.
    #[must_use]
    pub fn defaults() -> Self {
        Self(core::array::from_fn(|place| TABLE[place].default))
    }

    /// Sets the wish for `id`: the nearest value that its range has (RFC 7143 §13).
    pub(crate) fn wish(&mut self, id: Id, value: u32) {
        let value = match &id.key().rule {
            Rule::Number(range) | Rule::Minimum(range) | Rule::Maximum(range) => {
                value.clamp(*range.start(), *range.end())
            }
            _ => value,
        };
        self.set(id, value);
    }

    /// Sets the value of `id`.
    pub fn set(&mut self, id: Id, value: u32) {
        self.0[id as usize] = value;
    }

    /// The value of `id`.
    #[must_use]
    pub fn get(&self, id: Id) -> u32 {
        self.0[id as usize]
    }

    /// Whether the boolean `id` is Yes.
    #[must_use]
    pub fn is_yes(&self, id: Id) -> bool {
        self.get(id) != 0
    }
}

/// A set of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeySet(u64);

impl KeySet {
    /// Adds `id`; false if it was there.
    #[must_use]
    pub fn insert(&mut self, id: Id) -> bool {
        let bit = 1 << (id as u32);
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new
    }

    /// Whether `id` is there.
    #[must_use]
    pub fn contains(&self, id: Id) -> bool {
        self.0 & (1 << (id as u32)) != 0
    }
}

const _: () = assert!(TABLE.len() <= 64, "a KeySet has one bit a key");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_stands_once_and_in_its_place() {
        for (place, key) in TABLE.iter().enumerate() {
            assert_eq!(key.id as usize, place, "{}", key.name);
            assert_eq!(find(key.name), Some(key), "{} appears twice", key.name);
            assert_eq!(key.id.key(), key);
        }
    }

    #[test]
    fn names_are_key_names() {
        for key in &TABLE {
            assert!(key.name.len() <= 63, "{}", key.name);
            assert!(key.name.chars().all(|c| c.is_ascii_alphanumeric() || "-.+@_#".contains(c)));
        }
        assert_eq!(find("maxburstlength"), None);
    }

    /// Covers: NEG-35/S.
    #[test]
    fn no_key_of_ours_is_a_new_extension() {
        for key in &TABLE {
            assert!(!key.name.starts_with("X-"));
            assert!(!key.name.starts_with("X#") || key.id == Id::NodeArchitecture);
        }
    }

    /// Covers: CHP-28/S.
    #[test]
    fn no_method_of_ours_is_private() {
        for method in AUTH_METHODS {
            let registered = ["None", "CHAP", "SRP", "KRB5"].contains(method);
            assert!(registered || method.starts_with("Z-"), "{method}");
        }
    }

    /// Covers: KEY-04/S.
    #[test]
    fn no_digest_of_ours_is_private() {
        assert!(DIGESTS.iter().all(|digest| ["None", "CRC32C"].contains(digest)), "{DIGESTS:?}");
    }

    #[test]
    fn defaults_are_admissible() {
        for key in &TABLE {
            match &key.rule {
                Rule::List(known) | Rule::Word(known) => {
                    assert!((key.default as usize) < known.len())
                }
                Rule::Number(range) | Rule::Minimum(range) | Rule::Maximum(range) => {
                    assert!(range.contains(&key.default), "{}", key.name);
                }
                Rule::And | Rule::Or | Rule::Boolean => assert!(key.default <= 1),
                _ => {}
            }
        }
    }

    #[test]
    fn a_set_tells_what_is_new() {
        let mut set = KeySet::default();
        assert!(set.insert(Id::IserHelloRequired));
        assert!(!set.insert(Id::IserHelloRequired));
        assert!(set.insert(Id::SessionType));
        assert!(set.contains(Id::SessionType) && !set.contains(Id::ChapA));
    }
}
