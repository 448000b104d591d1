// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of one login: what the initiator's text means, and what is answered (RFC 7143 §6.2,
//! §6.3).

use alloc::string::String;
use alloc::string::ToString;

use wire::iscsi::Stage;
use wire::iscsi::keys;
use wire::iscsi::keys::Pairs;

use super::answers::Answers;
use super::error::LoginError;
use super::error::quote;
use super::markers::Intervals;
use super::markers::Markers;
use super::security;
use super::security::Security;
use crate::chap;
use crate::datamover::Rdma;
use crate::limits;
use crate::name;
use crate::name::NameError;
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
use crate::target_role::admission::Authentication;
use crate::target_role::limits::CONNECTIONS_MAX;
use crate::target_role::parameters::Parameters;
use crate::target_role::settings::DigestPolicy;
use crate::target_role::settings::Settings;

/// Who wants what, from the first text of a login.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) initiator: String,
    pub(super) target: Option<String>,
    pub(super) session: SessionType,
}

impl Names {
    /// Finds the identifying keys (RFC 7143 §6.3.1). What is missing comes before what is wrong, so
    /// that the status tells the primary reason.
    pub(super) fn read(text: &[u8]) -> Result<Self, LoginError> {
        let (mut initiator, mut target, mut session) = (None, None, None);
        for pair in pairs(text) {
            let (name, value) = pair.map_err(LoginError::Text)?;
            let slot = match name {
                "InitiatorName" => &mut initiator,
                "TargetName" => &mut target,
                "SessionType" => &mut session,
                _ => continue,
            };
            if slot.replace(value).is_some() {
                return Err(LoginError::Repeated(params::find(name).map_or("", |key| key.name)));
            }
        }
        let initiator = initiator.ok_or(LoginError::Missing("InitiatorName"))?;
        let session = match session {
            None | Some("Normal") => SessionType::Normal,
            Some("Discovery") => SessionType::Discovery,
            Some(other) => return Err(LoginError::SessionType(quote(other))),
        };
        if session == SessionType::Normal && target.is_none() {
            return Err(LoginError::Missing("TargetName"));
        }
        Ok(Self {
            initiator: received("InitiatorName", initiator, name::received_initiator)?,
            target: target
                .map(|target| {
                    received("TargetName", target, |name| {
                        name::validate_received(name).map(|()| name::prepared(name))
                    })
                })
                .transpose()?,
            session,
        })
    }
}

/// A name, checked and prepared for comparison; nobody sees it as it came.
fn received(
    key: &'static str,
    value: &str,
    prepare: impl FnOnce(&str) -> Result<String, NameError>,
) -> Result<String, LoginError> {
    if negotiate::RESERVED.contains(&value) {
        return Err(LoginError::Reserved { key, value: quote(value) });
    }
    prepare(value).map_err(|error| LoginError::Name { key, error })
}

/// What the node says of itself, beside the tag of its portal group.
#[derive(Debug)]
pub(super) struct Introduction {
    pub(super) alias: Option<String>,
    pub(super) architecture: Option<String>,
}

/// The outcome so far.
#[derive(Debug)]
pub(super) struct Negotiation {
    names: Names,
    pub(super) security: Security,
    /// Whether this login creates a session, so that session-wide keys may be negotiated.
    leading: bool,
    header_digest: DigestPolicy,
    data_digest: DigestPolicy,
    markers: Markers,
    rdma: Rdma,
    /// What we say of RDMA was declared.
    rdma_declared: bool,
    wish: Values,
    values: Values,
    seen: KeySet,
    /// Our own MaxRecvDataSegmentLength was declared.
    declared: bool,
    /// What is still to be told of the node.
    introduction: Introduction,
    initiator_alias: Option<String>,
}

impl Negotiation {
    pub(super) fn new(
        names: Names,
        leading: bool,
        settings: &Settings,
        authentication: Authentication,
        introduction: Introduction,
    ) -> Self {
        let security = Security::Open(authentication);
        let mut wish = wishes(settings);
        if names.session == SessionType::Discovery {
            wish.set(Id::ErrorRecoveryLevel, 0);
            wish.set(Id::MaxConnections, 1);
            // Without commands there is nothing to gain (RFC 7145 §6.3).
            wish.set(Id::RdmaExtensions, 0);
        }
        wish.set(Id::AuthMethod, security.methods());
        let mut negotiation = Self {
            names,
            security,
            leading,
            header_digest: settings.header_digest,
            data_digest: settings.data_digest,
            markers: Markers::new(settings.markers),
            rdma: settings.rdma,
            rdma_declared: false,
            wish,
            values: Values::defaults(),
            seen: KeySet::default(),
            declared: false,
            introduction,
            initiator_alias: None,
        };
        if settings.rdma == Rdma::Always {
            // Initiators that begin with RDMA do so and do not say it: ib_iser of Linux, libiscsi.
            negotiation.values.set(Id::TaggedBufferForSolicitedDataOnly, 1);
        }
        negotiation
    }

    /// Takes the logical text of one or several requests of `stage` and appends the answers.
    pub(super) fn read(
        &mut self,
        text: &[u8],
        stage: Stage,
        turn: Turn,
        answers: &mut Answers,
    ) -> Result<(), LoginError> {
        let (mut first_burst, mut outstanding) = (None, None);
        let mut waiting = Waiting::default();
        let mut intervals = Intervals::default();
        // A method begins with the text after the one in which it was chosen (RFC 7143 §12.1).
        let is_chap = self.security.is_chap();
        let mut chap = chap::Keys::default();
        for pair in pairs(text) {
            let (name, value) = pair.map_err(LoginError::Text)?;
            let Some(key) = params::find(name) else {
                answers.push(name, negotiate::NOT_UNDERSTOOD)?;
                continue;
            };
            self.check(key, value, stage, turn)?;
            if self.rdma == Rdma::Possible && waiting.hold(key.id, value) {
            } else if key.id == Id::FirstBurstLength {
                first_burst = Some(value);
            } else if key.id == Id::MaxOutstandingR2T {
                outstanding = Some(value);
            } else if !(is_chap && security::set(&mut chap, key.id, value)
                || intervals.set(key.id, value))
            {
                self.take(key, value, answers)?;
            }
        }
        if is_chap {
            self.security.handle(&chap, answers)?;
        }
        if let Some(offer) = waiting.rdma {
            self.take_rdma(offer, answers)?;
        }
        for (id, offer) in waiting.others() {
            self.take(id.key(), offer, answers)?;
        }
        // What depends on other keys comes last, when they are known: FirstBurstLength on
        // MaxBurstLength (RFC 7143 §13.14), MaxOutstandingR2T on ErrorRecoveryLevel (§13.19).
        if let Some(offer) = first_burst {
            let wish = self.wish.get(Id::FirstBurstLength);
            self.wish.set(Id::FirstBurstLength, wish.min(self.values.get(Id::MaxBurstLength)));
            self.take(Id::FirstBurstLength.key(), offer, answers)?;
        }
        if let Some(offer) = outstanding {
            let wish = self.wish.get(Id::MaxOutstandingR2T);
            self.wish.set(Id::MaxOutstandingR2T, wish.min(self.outstanding_max()));
            self.take(Id::MaxOutstandingR2T.key(), offer, answers)?;
        }
        self.markers.take_intervals(&intervals, answers)
    }

    /// With recovery and data sequences in order, a task has one R2T at a time (RFC 7143 §13.19).
    fn outstanding_max(&self) -> u32 {
        let recovers = self.values.get(Id::ErrorRecoveryLevel) > 0;
        if recovers && self.values.is_yes(Id::DataSequenceInOrder) { 1 } else { u32::MAX }
    }

    /// Declares our MaxRecvDataSegmentLength, once, in the operational stage (RFC 7143 §13.12), and
    /// tells of the node whoever has proved what has to be proved.
    pub(super) fn declare(
        &mut self,
        stage: Stage,
        answers: &mut Answers,
    ) -> Result<(), LoginError> {
        if self.security.may_leave().unwrap_or(false) {
            if let Some(alias) = self.introduction.alias.take() {
                answers.push("TargetAlias", &alias)?;
            }
            // No key of the security stage (RFC 7143 §12).
            let kind = &mut self.introduction.architecture;
            if let Some(kind) = kind.take_if(|_| stage == Stage::Operational) {
                answers.push("X#NodeArchitecture", &kind)?;
            }
        }
        // Whoever states no limit is told none, which is the default: open-iscsi 2.1 ends a login
        // at a key of RFC 7145 that it does not know.
        let key = Id::MaxOutstandingUnexpectedPdus.key();
        let is_limited = self.values.get(key.id) > 0;
        if self.values.is_yes(Id::RdmaExtensions) && is_limited && !self.rdma_declared {
            self.rdma_declared = true;
            answers.push(key.name, &negotiate::text(key, self.wish.get(key.id)))?;
        }
        if stage != Stage::Operational || self.declared {
            return Ok(());
        }
        self.declared = true;
        let key = Id::MaxRecvDataSegmentLength.key();
        answers.push(key.name, &negotiate::text(key, self.wish.get(key.id)))
    }

    /// A byte stream goes on with RDMA if nothing was agreed on that RDMA does not have, and from
    /// then on nothing such is.
    fn take_rdma(&mut self, offer: &str, answers: &mut Answers) -> Result<(), LoginError> {
        if !self.values.is_yes(Id::DataPduInOrder) {
            self.wish.set(Id::RdmaExtensions, 0);
        }
        self.take(Id::RdmaExtensions.key(), offer, answers)?;
        if self.values.is_yes(Id::RdmaExtensions) {
            self.wish.set(Id::DataPduInOrder, 1);
        }
        Ok(())
    }

    /// Whether the connection is one of RDMA, or becomes one.
    fn has_rdma(&self) -> bool {
        self.rdma == Rdma::Always || self.values.is_yes(Id::RdmaExtensions)
    }

    /// Who logged in, and the InitiatorAlias.
    pub(super) fn into_names(self) -> (Names, Option<String>) {
        (self.names, self.initiator_alias)
    }

    /// Checks what must hold between keys (RFC 7143 §6.2) and gives the result.
    pub(super) fn finish(&self) -> Result<Parameters, LoginError> {
        if !self.security.may_leave()? {
            return Err(LoginError::SecuritySkipped);
        }
        let digests = [(Id::HeaderDigest, self.header_digest), (Id::DataDigest, self.data_digest)];
        for (id, policy) in digests {
            // Over RDMA there are others (RFC 7145 §6.1).
            if policy == DigestPolicy::Required && !self.values.is_yes(id) && !self.has_rdma() {
                return Err(LoginError::DigestRequired(id.key().name));
            }
        }
        if self.rdma == Rdma::Always {
            let is_wanted = self.leading && self.names.session == SessionType::Normal;
            if is_wanted && !self.values.is_yes(Id::RdmaExtensions) {
                return Err(LoginError::RdmaMissing);
            }
        }
        let max = self.values.get(Id::MaxBurstLength);
        let first = self.values.get(Id::FirstBurstLength);
        if first > max && self.seen.contains(Id::FirstBurstLength) && self.sends_unasked() {
            return Err(LoginError::Bursts { first, max });
        }
        let parameters = self.parameters();
        assert!(parameters.first_burst_length <= parameters.max_burst_length);
        Ok(parameters)
    }

    /// Whether FirstBurstLength means anything (RFC 7143 §13.14).
    fn sends_unasked(&self) -> bool {
        let asked_always = self.values.is_yes(Id::InitialR2T);
        let unasked = !asked_always || self.values.is_yes(Id::ImmediateData);
        unasked && self.names.session == SessionType::Normal
    }

    fn parameters(&self) -> Parameters {
        let declared = if self.declared { &self.wish } else { &Values::defaults() };
        let agreed = Parameters::agreed(&self.values, declared, self.markers.agreed());
        let lengths = (Id::TargetRecvDataSegmentLength, Id::InitiatorRecvDataSegmentLength);
        let mut agreed = match self.has_rdma() {
            true => agreed.over_rdma(&self.values, lengths),
            false => agreed,
        };
        if let Some(rdma) = agreed.rdma.as_mut().filter(|_| self.rdma_declared) {
            rdma.own_unexpected_max = self.wish.get(Id::MaxOutstandingUnexpectedPdus);
        }
        agreed
    }

    /// Whether `key` may be sent here at all.
    fn check(
        &mut self,
        key: &'static Key,
        value: &str,
        stage: Stage,
        turn: Turn,
    ) -> Result<(), LoginError> {
        // Some initiators say that they prove nothing where keys of no method have their place.
        let nothing = key.id == Id::AuthMethod && self.security.asks_nothing();
        let stage_fits = match key.stages {
            _ if nothing => true,
            Stages::Any => true,
            Stages::Security => stage == Stage::Security,
            Stages::Operational => stage == Stage::Operational,
        };
        let phase_fits = match key.usage {
            Use::FullFeatureOnly => false,
            // That it is a normal session may be said again on each connection.
            Use::LeadingOnly => self.leading || key.id == Id::SessionType,
            Use::InitializeOnly | Use::All => true,
        };
        if key.sender == Sender::Target {
            return Err(LoginError::KeySender(key.name));
        }
        if !phase_fits {
            return Err(LoginError::KeyPhase(key.name));
        }
        if !stage_fits {
            return Err(LoginError::KeyStage { key: key.name, stage });
        }
        let again = turn == Turn::Later && self.is_told_again(key.id, value);
        if !self.seen.insert(key.id) && !again {
            return Err(LoginError::Repeated(key.name));
        }
        let identifies = matches!(key.rule, Rule::Word(_) | Rule::Name);
        if identifies && turn == Turn::Later && !again {
            return Err(LoginError::KeyLate(key.name));
        }
        // The one key of ours that an initiator may not understand (RFC 7143 §6.2, §13.26).
        let answers = key.id == Id::NodeArchitecture && value == negotiate::NOT_UNDERSTOOD;
        if negotiate::RESERVED.contains(&value) && !answers {
            return Err(LoginError::Reserved { key: key.name, value: quote(value) });
        }
        Ok(())
    }

    /// Whether `value` only says again who is speaking: libiscsi introduces itself in each stage.
    /// That changes nothing and is let pass; a name that changes is not.
    fn is_told_again(&self, id: Id, value: &str) -> bool {
        let prepared = name::prepared(value);
        let names = matches!(id, Id::InitiatorName | Id::TargetName);
        let value = if names { prepared.as_str() } else { value };
        let told = match id {
            Id::InitiatorName => Some(self.names.initiator.as_str()),
            Id::TargetName => self.names.target.as_deref(),
            Id::SessionType => Some(match self.names.session {
                SessionType::Normal => "Normal",
                SessionType::Discovery => "Discovery",
            }),
            Id::InitiatorAlias => self.initiator_alias.as_deref(),
            _ => None,
        };
        self.seen.contains(id) && told == Some(value)
    }

    fn take(
        &mut self,
        key: &'static Key,
        value: &str,
        answers: &mut Answers,
    ) -> Result<(), LoginError> {
        let inadmissible = || LoginError::Value { key: key.name, value: quote(value) };
        match &key.rule {
            // `Names` took them.
            Rule::Word(_) | Rule::Name => {}
            Rule::Text(longest) => {
                if value.len() > *longest {
                    return Err(inadmissible());
                }
                if key.id == Id::InitiatorAlias {
                    self.initiator_alias = Some(value.to_string());
                }
            }
            // A declaration has no answer, so there is no way to refuse it but to fail.
            Rule::Number(range) => {
                let number = negotiate::number(value, range).ok_or_else(inadmissible)?;
                if !key.takes(number) {
                    return Err(inadmissible());
                }
                self.values.set(key.id, number);
            }
            Rule::Boolean => {
                let yes = keys::boolean(value).ok_or_else(inadmissible)?;
                self.values.set(key.id, yes.into());
            }
            Rule::Method | Rule::SendTargets => return Err(LoginError::KeyMethod(key.name)),
            Rule::Obsolete => self.markers.take(key.id, value, answers)?,
            Rule::List(_) | Rule::And | Rule::Or | Rule::Minimum(_) | Rule::Maximum(_) => {
                self.negotiate(key, value, answers)?;
            }
        }
        Ok(())
    }

    fn negotiate(
        &mut self,
        key: &'static Key,
        offer: &str,
        answers: &mut Answers,
    ) -> Result<(), LoginError> {
        if !key.is_relevant(&self.values) && self.rdma != Rdma::Always {
            return answers.push(key.name, negotiate::IRRELEVANT);
        }
        match negotiate::answer(key, offer, self.wish.get(key.id)) {
            Answer::Agreed(value) => {
                if key.id == Id::AuthMethod {
                    self.security.choose(value);
                }
                self.values.set(key.id, value);
                answers.push(key.name, &negotiate::text(key, value))
            }
            Answer::Reject if key.id == Id::AuthMethod => Err(LoginError::AuthMethod(quote(offer))),
            Answer::Reject => answers.push(key.name, negotiate::REJECT),
            Answer::Irrelevant => answers.push(key.name, negotiate::IRRELEVANT),
        }
    }
}

/// Offers of one text that depend on RDMAExtensions, wherever in it that stands.
#[derive(Debug, Default)]
struct Waiting<'a> {
    rdma: Option<&'a str>,
    others: [Option<(Id, &'a str)>; 5],
}

impl<'a> Waiting<'a> {
    /// Keeps an offer; false if it does not wait.
    fn hold(&mut self, id: Id, offer: &'a str) -> bool {
        let place = match id {
            Id::RdmaExtensions => {
                self.rdma = Some(offer);
                return true;
            }
            Id::MaxConnections => 0,
            Id::DataPduInOrder => 1,
            Id::ErrorRecoveryLevel => 2,
            Id::TargetRecvDataSegmentLength => 3,
            Id::InitiatorRecvDataSegmentLength => 4,
            _ => return false,
        };
        if let Some(other) = self.others.get_mut(place) {
            *other = Some((id, offer));
        }
        true
    }

    fn others(&self) -> impl Iterator<Item = (Id, &'a str)> {
        self.others.into_iter().flatten()
    }
}

/// Which text of a login this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    First,
    Later,
}

/// The pairs of `text`. The limits of values are checked where the key is known.
fn pairs(text: &[u8]) -> Pairs<'_> {
    Pairs::new(text).with_limit(|_| usize::MAX)
}

/// What this target wishes of each key. AuthMethod is wished by [`Security`].
fn wishes(settings: &Settings) -> Values {
    let mut wish = Values::defaults();
    let mut within = |id: Id, value: u32| wish.wish(id, value);
    within(Id::HeaderDigest, digests(settings.header_digest));
    within(Id::DataDigest, digests(settings.data_digest));
    within(Id::MaxConnections, settings.max_connections.min(CONNECTIONS_MAX).into());
    within(Id::InitialR2T, u32::from(settings.initial_r2t));
    within(Id::ImmediateData, u32::from(settings.immediate_data));
    within(Id::MaxRecvDataSegmentLength, settings.max_recv_data_segment_length);
    within(Id::MaxBurstLength, settings.max_burst_length);
    within(Id::FirstBurstLength, settings.first_burst_length);
    within(Id::DefaultTime2Wait, settings.time2wait.into());
    within(Id::DefaultTime2Retain, settings.time2retain.into());
    within(Id::MaxOutstandingR2T, settings.max_outstanding_r2t.into());
    within(Id::DataPduInOrder, settings.data_pdu_in_order.into());
    within(Id::DataSequenceInOrder, settings.data_sequence_in_order.into());
    within(Id::ErrorRecoveryLevel, settings.error_recovery_level.into());
    within(Id::TaskReporting, 0b111);
    within(Id::ProtocolLevel, 2);
    within(Id::RdmaExtensions, u32::from(settings.rdma != Rdma::Never));
    within(Id::MaxOutstandingUnexpectedPdus, settings.unexpected_pdus_max.max(2));
    within(Id::TargetRecvDataSegmentLength, limits::RDMA_SEGMENT_LEN);
    within(Id::InitiatorRecvDataSegmentLength, limits::RDMA_SEGMENT_LEN);
    wish
}

/// The supported entries of [`params::DIGESTS`] as a set.
fn digests(policy: DigestPolicy) -> u32 {
    match policy {
        DigestPolicy::Off => 0b01,
        DigestPolicy::Required => 0b10,
        DigestPolicy::Any => 0b11,
    }
}
