// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of the table of text keys.

use super::Irrelevant::{self, WithoutRdma};
use super::Sender::{self, Initiator, Target};
use super::Stages::{self, Any, Security};
use super::Use::{self, All, FullFeatureOnly, InitializeOnly, LeadingOnly};
use super::{Id, Key, Rule, Scope};
use core::ops::RangeInclusive;

/// The entries of HeaderDigest and DataDigest.
pub const DIGESTS: &[&str] = &["None", "CRC32C"];
/// The entries of SessionType.
pub const SESSION_TYPES: &[&str] = &["Normal", "Discovery"];
/// The entries of AuthMethod; SPKM1 and SPKM2 are obsolete and not known (RFC 7143 §15).
pub const AUTH_METHODS: &[&str] = &["None", "CHAP", "SRP", "KRB5"];
/// The entries of TaskReporting.
pub const TASK_REPORTING: &[&str] = &["RFC3720", "ResponseFence", "FastAbort"];

const NO: u32 = 0;
const YES: u32 = 1;
const SEGMENT: RangeInclusive<u32> = 512..=16_777_215;
const TEXT: Rule = Rule::Text(crate::limits::TEXT_VALUE_LEN_MAX);

const fn key(id: Id, name: &'static str, rule: Rule, default: u32, usage: Use) -> Key {
    Key {
        id,
        name,
        rule,
        default,
        usage,
        stages: Stages::Operational,
        scope: Scope::Session,
        sender: Sender::Both,
        irrelevant: Irrelevant::Never,
    }
}

impl Key {
    const fn from(self, sender: Sender) -> Self {
        Self { sender, ..self }
    }

    const fn in_stages(self, stages: Stages) -> Self {
        Self { stages, ..self }
    }

    const fn of_connection(self) -> Self {
        Self { scope: Scope::Connection, ..self }
    }

    const fn irrelevant(self, irrelevant: Irrelevant) -> Self {
        Self { irrelevant, ..self }
    }
}

const fn method(id: Id, name: &'static str) -> Key {
    key(id, name, Rule::Method, 0, InitializeOnly).in_stages(Security).of_connection()
}

const fn obsolete(id: Id, name: &'static str, default: u32) -> Key {
    key(id, name, Rule::Obsolete, default, InitializeOnly).of_connection()
}

pub(super) static TABLE: [Key; 52] = [
    key(Id::SessionType, "SessionType", Rule::Word(SESSION_TYPES), 0, LeadingOnly)
        .from(Initiator)
        .in_stages(Any),
    key(Id::InitiatorName, "InitiatorName", Rule::Name, 0, InitializeOnly)
        .from(Initiator)
        .in_stages(Any),
    key(Id::TargetName, "TargetName", Rule::Name, 0, InitializeOnly).in_stages(Any),
    key(Id::InitiatorAlias, "InitiatorAlias", TEXT, 0, All).from(Initiator).in_stages(Any),
    key(Id::TargetAlias, "TargetAlias", TEXT, 0, All).from(Target).in_stages(Any),
    key(Id::TargetAddress, "TargetAddress", TEXT, 0, All).from(Target).in_stages(Any),
    key(
        Id::TargetPortalGroupTag,
        "TargetPortalGroupTag",
        Rule::Number(0..=65535),
        0,
        InitializeOnly,
    )
    .from(Target)
    .in_stages(Any),
    key(Id::AuthMethod, "AuthMethod", Rule::List(AUTH_METHODS), 0, InitializeOnly)
        .in_stages(Security)
        .of_connection(),
    method(Id::ChapA, "CHAP_A"),
    method(Id::ChapI, "CHAP_I"),
    method(Id::ChapC, "CHAP_C"),
    method(Id::ChapN, "CHAP_N"),
    method(Id::ChapR, "CHAP_R"),
    method(Id::SrpU, "SRP_U"),
    method(Id::TargetAuth, "TargetAuth"),
    method(Id::SrpGroup, "SRP_GROUP"),
    method(Id::SrpSalt, "SRP_s"),
    method(Id::SrpA, "SRP_A"),
    method(Id::SrpB, "SRP_B"),
    method(Id::SrpM, "SRP_M"),
    method(Id::SrpHm, "SRP_HM"),
    method(Id::KrbApReq, "KRB_AP_REQ"),
    method(Id::KrbApRep, "KRB_AP_REP"),
    key(Id::HeaderDigest, "HeaderDigest", Rule::List(DIGESTS), 0, InitializeOnly).of_connection(),
    key(Id::DataDigest, "DataDigest", Rule::List(DIGESTS), 0, InitializeOnly).of_connection(),
    key(Id::MaxConnections, "MaxConnections", Rule::Minimum(1..=65535), 1, LeadingOnly),
    key(Id::SendTargets, "SendTargets", Rule::SendTargets, 0, FullFeatureOnly).from(Initiator),
    key(Id::InitialR2T, "InitialR2T", Rule::Or, YES, LeadingOnly),
    key(Id::ImmediateData, "ImmediateData", Rule::And, YES, LeadingOnly),
    key(Id::MaxRecvDataSegmentLength, "MaxRecvDataSegmentLength", Rule::Number(SEGMENT), 8192, All)
        .of_connection(),
    key(Id::MaxBurstLength, "MaxBurstLength", Rule::Minimum(SEGMENT), 262_144, LeadingOnly),
    key(Id::FirstBurstLength, "FirstBurstLength", Rule::Minimum(SEGMENT), 65536, LeadingOnly),
    key(Id::DefaultTime2Wait, "DefaultTime2Wait", Rule::Maximum(0..=3600), 2, LeadingOnly),
    key(Id::DefaultTime2Retain, "DefaultTime2Retain", Rule::Minimum(0..=3600), 20, LeadingOnly),
    key(Id::MaxOutstandingR2T, "MaxOutstandingR2T", Rule::Minimum(1..=65535), 1, LeadingOnly),
    key(Id::DataPduInOrder, "DataPDUInOrder", Rule::Or, YES, LeadingOnly),
    key(Id::DataSequenceInOrder, "DataSequenceInOrder", Rule::Or, YES, LeadingOnly),
    key(Id::ErrorRecoveryLevel, "ErrorRecoveryLevel", Rule::Minimum(0..=2), 0, LeadingOnly),
    key(Id::TaskReporting, "TaskReporting", Rule::List(TASK_REPORTING), 0, LeadingOnly),
    key(Id::ProtocolLevel, "iSCSIProtocolLevel", Rule::Minimum(0..=31), 1, LeadingOnly),
    key(Id::NodeArchitecture, "X#NodeArchitecture", TEXT, 0, LeadingOnly),
    obsolete(Id::IfMarker, "IFMarker", NO),
    obsolete(Id::OfMarker, "OFMarker", NO),
    obsolete(Id::IfMarkInt, "IFMarkInt", 2048),
    obsolete(Id::OfMarkInt, "OFMarkInt", 2048),
    key(Id::RdmaExtensions, "RDMAExtensions", Rule::And, NO, LeadingOnly),
    key(
        Id::TargetRecvDataSegmentLength,
        "TargetRecvDataSegmentLength",
        Rule::Minimum(SEGMENT),
        8192,
        InitializeOnly,
    )
    .of_connection()
    .irrelevant(WithoutRdma),
    key(
        Id::InitiatorRecvDataSegmentLength,
        "InitiatorRecvDataSegmentLength",
        Rule::Minimum(SEGMENT),
        8192,
        InitializeOnly,
    )
    .of_connection()
    .irrelevant(WithoutRdma),
    key(
        Id::MaxOutstandingUnexpectedPdus,
        "MaxOutstandingUnexpectedPDUs",
        Rule::Number(0..=u32::MAX),
        0,
        LeadingOnly,
    )
    .irrelevant(WithoutRdma),
    key(Id::MaxAhsLength, "MaxAHSLength", Rule::Number(0..=u32::MAX), 256, LeadingOnly)
        .irrelevant(WithoutRdma),
    key(
        Id::TaggedBufferForSolicitedDataOnly,
        "TaggedBufferForSolicitedDataOnly",
        Rule::Boolean,
        NO,
        LeadingOnly,
    )
    .from(Initiator)
    .irrelevant(WithoutRdma),
    key(Id::IserHelloRequired, "iSERHelloRequired", Rule::Boolean, NO, LeadingOnly)
        .from(Initiator)
        .irrelevant(WithoutRdma),
];
