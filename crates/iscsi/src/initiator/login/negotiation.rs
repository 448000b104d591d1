// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of a login, from the initiator's side. Read RFC 7143 §6.2, §12 and §13.

use alloc::string::String;
use alloc::string::ToString;

use wire::iscsi::Stage;
use wire::iscsi::keys;
use wire::iscsi::keys::TextWriter;

use super::LoginError;
use super::markers::OwnMarkers;
use crate::datamover::Rdma;
use crate::initiator::DigestOffer;
use crate::initiator::Identity;
use crate::initiator::Parameters;
use crate::initiator::Settings;
use crate::initiator::discovery::Address;
use crate::limits;
use crate::negotiate;
use crate::negotiate::Answer;
use crate::negotiate::SessionType;
use crate::params;
use crate::params::Id;
use crate::params::Key;
use crate::params::KeySet;
use crate::params::Rule;
use crate::params::Sender;
use crate::params::Stages;
use crate::params::Use;
use crate::params::Values;

/// What is offered in a normal session, in this order.
const NORMAL: &[Id] = &[
    Id::HeaderDigest,
    Id::DataDigest,
    Id::MaxConnections,
    Id::InitialR2T,
    Id::ImmediateData,
    Id::MaxBurstLength,
    Id::FirstBurstLength,
    Id::DefaultTime2Wait,
    Id::DefaultTime2Retain,
    Id::MaxOutstandingR2T,
    Id::DataPduInOrder,
    Id::DataSequenceInOrder,
    Id::ErrorRecoveryLevel,
];

/// What each connection negotiates for itself (RFC 7143 §13: CO).
const CONNECTION: &[Id] = &[Id::HeaderDigest, Id::DataDigest];

/// What a session over RDMA negotiates besides (RFC 7145 §6).
const RDMA: &[Id] =
    &[Id::RdmaExtensions, Id::TargetRecvDataSegmentLength, Id::InitiatorRecvDataSegmentLength];

/// What has a meaning in a discovery session.
const DISCOVERY: &[Id] = &[
    Id::HeaderDigest,
    Id::DataDigest,
    Id::DefaultTime2Wait,
    Id::DefaultTime2Retain,
    Id::ErrorRecoveryLevel,
];

/// Offers, answers and outcome.
#[derive(Debug)]
pub(super) struct Negotiation {
    session: SessionType,
    rdma: Rdma,
    /// Over RDMA there is to be a Hello.
    hello: bool,
    digests: [(Id, DigestOffer); 2],
    /// What was offered; for lists one bit for each entry.
    wish: Values,
    values: Values,
    offered: KeySet,
    /// Keys that the target has sent.
    seen: KeySet,
    /// MaxRecvDataSegmentLength was declared.
    declared: bool,
    /// Of the session that a connection is added to.
    session_wide: Option<Parameters>,
    fast_abort: bool,
    markers: OwnMarkers,
    pub(super) target_alias: Option<String>,
    pub(super) portal_group_tag: Option<u16>,
    pub(super) address: Option<String>,
}

impl Negotiation {
    /// `session_wide`: of the session that the connection is added to, if there is one.
    pub(super) fn new(
        identity: &Identity,
        settings: &Settings,
        session_wide: Option<Parameters>,
    ) -> Self {
        let session = if identity.discovery { SessionType::Discovery } else { SessionType::Normal };
        let mut wish = wishes(settings);
        if session == SessionType::Discovery {
            // It has one connection, and nothing to recover (RFC 7143 §7.4.1, §13.21).
            wish.set(Id::MaxConnections, 1);
            wish.set(Id::ErrorRecoveryLevel, 0);
            wish.set(Id::DefaultTime2Retain, 0);
            // Nor has it tasks whose end could be reported in a new way.
            wish.set(Id::TaskReporting, 1);
        }
        Self {
            session,
            rdma: settings.rdma,
            hello: settings.hello,
            digests: [
                (Id::HeaderDigest, settings.header_digest),
                (Id::DataDigest, settings.data_digest),
            ],
            wish,
            values: Values::defaults(),
            offered: KeySet::default(),
            seen: KeySet::default(),
            declared: false,
            session_wide,
            fast_abort: settings.fast_abort,
            markers: OwnMarkers::new(settings.markers),
            target_alias: None,
            portal_group_tag: None,
            address: None,
        }
    }

    /// Offers everything, and declares what is not negotiated.
    pub(super) fn offer(&mut self, text: &mut TextWriter) -> Result<(), LoginError> {
        let declared = Id::MaxRecvDataSegmentLength.key();
        push(text, declared.name, &negotiate::text(declared, self.wish.get(declared.id)))?;
        self.declared = true;
        let ids = match self.session {
            _ if self.session_wide.is_some() => CONNECTION,
            SessionType::Normal => NORMAL,
            SessionType::Discovery => DISCOVERY,
        };
        let rdma = match (self.rdma, self.session) {
            (Rdma::Never, _) | (_, SessionType::Discovery) => &[],
            // That it has RDMA is the session's.
            _ if self.session_wide.is_some() => RDMA.get(1..).unwrap_or_default(),
            _ => RDMA,
        };
        for id in ids.iter().chain(rdma) {
            let key = id.key();
            let digest = self.digests.iter().find(|(digest, _)| digest == id);
            let value = match digest {
                Some((_, offer)) => digest_list(*offer).to_string(),
                None => negotiate::text(key, self.wish.get(*id)),
            };
            push(text, key.name, &value)?;
            let _ = self.offered.insert(*id);
        }
        if rdma.contains(&Id::RdmaExtensions) {
            // A target tells its own limit to whoever has one.
            let key = Id::MaxOutstandingUnexpectedPdus.key();
            push(text, key.name, &negotiate::text(key, self.wish.get(key.id)))?;
            if self.rdma == Rdma::Always {
                // LIO and tgt believe so of every initiator, and do not understand the key.
                let key = Id::TaggedBufferForSolicitedDataOnly.key();
                push(text, key.name, &negotiate::text(key, 1))?;
                let _ = self.offered.insert(key.id);
                self.values.set(key.id, 1);
            }
            if self.hello && self.session_wide.is_none() {
                let key = Id::IserHelloRequired.key();
                push(text, key.name, &negotiate::text(key, 1))?;
                let _ = self.offered.insert(key.id);
                self.values.set(key.id, 1);
            }
        }
        if self.session == SessionType::Normal {
            if self.fast_abort && self.session_wide.is_none() {
                let all = "FastAbort,ResponseFence,RFC3720";
                push(text, Id::TaskReporting.key().name, all)?;
                let _ = self.offered.insert(Id::TaskReporting);
            }
            self.markers.offer(text)?;
        }
        Ok(())
    }

    /// Takes a key of the target that is not one of authentication; an offer is answered in
    /// `answers`.
    pub(super) fn take(
        &mut self,
        (name, value): (&str, &str),
        stage: Stage,
        answers: &mut TextWriter,
    ) -> Result<(), LoginError> {
        let Some(key) = params::find(name) else {
            if negotiate::RESERVED.contains(&value) {
                return Ok(());
            }
            return push(answers, name, negotiate::NOT_UNDERSTOOD);
        };
        self.check(key, stage)?;
        match &key.rule {
            Rule::Text(_) | Rule::Name | Rule::Number(_) => self.declare(key, value),
            _ if self.offered.contains(key.id) => self.conclude(key, value),
            Rule::List(_) | Rule::And | Rule::Or | Rule::Minimum(_) | Rule::Maximum(_) => {
                self.answer(key, value, answers)
            }
            Rule::Obsolete if self.markers.are_wanted() => self.markers.conclude(key, value),
            Rule::Obsolete => push(answers, key.name, negotiate::REJECT),
            Rule::Word(_) | Rule::Boolean | Rule::Method | Rule::SendTargets => {
                Err(LoginError::KeySender(key.name))
            }
        }
    }

    /// The outcome, once the target agrees to end the login.
    pub(super) fn finish(&self) -> Result<Parameters, LoginError> {
        for (id, offer) in self.digests {
            if offer == DigestOffer::Required && !self.values.is_yes(id) {
                return Err(LoginError::DigestRequired(id.key().name));
            }
        }
        let declared = if self.declared { &self.wish } else { &Values::defaults() };
        let values = self.results();
        let mut agreed = Parameters::agreed(&values, declared, self.markers.agreed());
        if self.rdma != Rdma::Never && self.session == SessionType::Normal {
            if self.session_wide.is_none() && !values.is_yes(Id::RdmaExtensions) {
                return Err(LoginError::NoRdma);
            }
            if (1..limits::AHS_LEN).contains(&values.get(Id::MaxAhsLength)) {
                return Err(LoginError::AdditionalHeaders(values.get(Id::MaxAhsLength)));
            }
        }
        // Over RDMA from the first byte on the lengths hold in any session.
        let joins_rdma = self.session_wide.as_ref().is_some_and(|session| session.rdma.is_some());
        if self.rdma == Rdma::Always || values.is_yes(Id::RdmaExtensions) || joins_rdma {
            let own = Id::InitiatorRecvDataSegmentLength;
            agreed = agreed.over_rdma(&values, (own, Id::TargetRecvDataSegmentLength));
        }
        Ok(match &self.session_wide {
            Some(session) => agreed.joining(session.clone()),
            None => agreed,
        })
    }

    /// What was answered, and what an offer alone decides: a target may be silent then (RFC 7143
    /// §6.2.2).
    fn results(&self) -> Values {
        let mut values = self.values;
        for id in NORMAL.iter().copied() {
            if !self.offered.contains(id) || self.seen.contains(id) {
                continue;
            }
            match id.key().rule {
                Rule::And if !self.wish.is_yes(id) => values.set(id, 0),
                Rule::Or if self.wish.is_yes(id) => values.set(id, 1),
                _ => {}
            }
        }
        values
    }

    /// Whether the target may send `key` here. TargetAddress alone may come several times, with
    /// other values.
    pub(super) fn check(&mut self, key: &'static Key, stage: Stage) -> Result<(), LoginError> {
        let fits = match key.stages {
            Stages::Any => true,
            Stages::Security => stage == Stage::Security,
            Stages::Operational => stage == Stage::Operational,
        };
        // A reserved value may answer what is ours alone to say.
        let is_ours = key.sender == Sender::Initiator && !self.offered.contains(key.id);
        if is_ours || key.usage == Use::FullFeatureOnly {
            return Err(LoginError::KeySender(key.name));
        }
        if !fits {
            return Err(LoginError::KeyStage { key: key.name, stage });
        }
        let step = matches!(key.rule, Rule::Method);
        if !self.seen.insert(key.id) && !step && key.id != Id::TargetAddress {
            return Err(LoginError::Repeated(key.name.to_string()));
        }
        Ok(())
    }

    fn declare(&mut self, key: &'static Key, value: &str) -> Result<(), LoginError> {
        if negotiate::RESERVED.contains(&value) {
            return must_be_known(key, value);
        }
        match (key.id, &key.rule) {
            (Id::TargetAlias, _) => self.target_alias = Some(value.to_string()),
            (Id::TargetAddress, _) => {
                let _ = self.address.get_or_insert_with(|| Address::parse(value).portal);
            }
            (id, Rule::Number(range)) => {
                let number = negotiate::number(value, range).ok_or_else(|| wrong(key, value))?;
                if !key.takes(number) {
                    return Err(wrong(key, value));
                }
                if id == Id::TargetPortalGroupTag {
                    self.portal_group_tag = u16::try_from(number).ok();
                }
                self.values.set(id, number);
            }
            _ => {}
        }
        Ok(())
    }

    /// The answer to an offer of ours. Where there is none that means something, the value without
    /// negotiation stays in force (RFC 7143 §6.2).
    fn conclude(&mut self, key: &'static Key, value: &str) -> Result<(), LoginError> {
        if negotiate::RESERVED.contains(&value) {
            return must_be_known(key, value);
        }
        let wish = self.wish.get(key.id);
        let agreed = match &key.rule {
            Rule::List(known) => known
                .iter()
                .position(|word| *word == value)
                .and_then(|place| u32::try_from(place).ok())
                .filter(|place| wish >> place & 1 == 1),
            Rule::And => keys::boolean(value).filter(|yes| wish != 0 || !yes).map(u32::from),
            Rule::Or => keys::boolean(value).filter(|yes| wish == 0 || *yes).map(u32::from),
            Rule::Minimum(range) => negotiate::number(value, range).filter(|got| *got <= wish),
            Rule::Maximum(range) => negotiate::number(value, range).filter(|got| *got >= wish),
            _ => None,
        };
        self.values.set(key.id, agreed.ok_or_else(|| wrong(key, value))?);
        Ok(())
    }

    /// An offer of the target.
    fn answer(
        &mut self,
        key: &'static Key,
        offer: &str,
        answers: &mut TextWriter,
    ) -> Result<(), LoginError> {
        // A connection that joins has no say in what is the session's.
        let answer = if self.session_wide.is_some() && key.usage == Use::LeadingOnly {
            Answer::Reject
        } else if !key.is_relevant(&self.values) && self.rdma != Rdma::Always {
            Answer::Irrelevant
        } else {
            negotiate::answer(key, offer, self.wish.get(key.id))
        };
        match answer {
            Answer::Agreed(value) => {
                self.values.set(key.id, value);
                push(answers, key.name, &negotiate::text(key, value))
            }
            Answer::Reject => push(answers, key.name, negotiate::REJECT),
            Answer::Irrelevant => push(answers, key.name, negotiate::IRRELEVANT),
        }
    }
}

/// A target that does not understand a key of RFC 3720 is none; one that does not understand a
/// later key does without (RFC 7143 §6.2).
fn must_be_known(key: &'static Key, value: &str) -> Result<(), LoginError> {
    if value == negotiate::NOT_UNDERSTOOD && !key.id.is_later() {
        return Err(wrong(key, value));
    }
    Ok(())
}

pub(super) fn wrong(key: &'static Key, value: &str) -> LoginError {
    let value = value.chars().take(limits::QUOTE_LEN_MAX).collect();
    LoginError::Answer { key: key.name, value }
}

/// Appends a pair. All that an initiator has to say is far shorter than a login segment: a target
/// that asks for more answers than fit gets none, since each key must have its own (RFC 7143 §6.2).
pub(super) fn push(text: &mut TextWriter, key: &str, value: &str) -> Result<(), LoginError> {
    text.push(key, value).map_err(|_| LoginError::TooMuchToSay)
}

/// The value of a digest key.
const fn digest_list(offer: DigestOffer) -> &'static str {
    match offer {
        DigestOffer::Off => "None",
        DigestOffer::Allowed => "None,CRC32C",
        DigestOffer::Preferred => "CRC32C,None",
        DigestOffer::Required => "CRC32C",
    }
}

/// What this initiator wishes of each key.
fn wishes(settings: &Settings) -> Values {
    let mut wish = Values::defaults();
    let mut within = |id: Id, value: u32| wish.wish(id, value);
    within(Id::HeaderDigest, digest_bits(settings.header_digest));
    within(Id::DataDigest, digest_bits(settings.data_digest));
    let connections = settings.connections.min(limits::CONNECTIONS_MAX);
    within(Id::MaxConnections, connections.into());
    within(Id::InitialR2T, u32::from(settings.initial_r2t));
    within(Id::ImmediateData, u32::from(settings.immediate_data));
    within(Id::MaxRecvDataSegmentLength, settings.max_recv_data_segment_length);
    within(Id::MaxBurstLength, settings.max_burst_length);
    let first = settings.first_burst_length.min(settings.max_burst_length);
    within(Id::FirstBurstLength, first);
    within(Id::DefaultTime2Wait, settings.time2wait.into());
    let keeps_tasks = settings.error_recovery_level >= 2;
    within(Id::DefaultTime2Retain, if keeps_tasks { settings.time2retain.into() } else { 0 });
    // What is lost of one of several sequences could not be told from what comes later.
    let single = settings.error_recovery_level > 0 && settings.data_sequence_in_order;
    let r2ts = if single { 1 } else { settings.max_outstanding_r2t };
    within(Id::MaxOutstandingR2T, r2ts.into());
    within(Id::DataPduInOrder, settings.data_pdu_in_order.into());
    within(Id::DataSequenceInOrder, settings.data_sequence_in_order.into());
    within(Id::ErrorRecoveryLevel, settings.error_recovery_level.into());
    // Unless FastAbort is wanted it is not offered, and offers of it are answered with what is old.
    within(Id::TaskReporting, if settings.fast_abort { 0b111 } else { 1 });
    within(Id::ProtocolLevel, 1);
    within(Id::RdmaExtensions, u32::from(settings.rdma != Rdma::Never));
    within(Id::MaxOutstandingUnexpectedPdus, settings.unexpected_pdus_max.max(2));
    within(Id::TargetRecvDataSegmentLength, limits::RDMA_SEGMENT_LEN);
    within(Id::InitiatorRecvDataSegmentLength, limits::RDMA_SEGMENT_LEN);
    wish
}

/// The offered entries of [`params::DIGESTS`] as a set.
const fn digest_bits(offer: DigestOffer) -> u32 {
    match offer {
        DigestOffer::Off => 0b01,
        DigestOffer::Required => 0b10,
        DigestOffer::Allowed | DigestOffer::Preferred => 0b11,
    }
}
