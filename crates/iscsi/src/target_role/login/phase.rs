// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a login keeps from one request to the next (RFC 7143 §6.3, §11.12).

use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

use wire::iscsi::LoginRequest;
use wire::iscsi::Stage;
use wire::iscsi::Tsih;

use super::answers::Answers;
use super::error::LoginError;
use super::negotiation::Introduction;
use super::negotiation::Names;
use super::negotiation::Negotiation;
use crate::limits;
use crate::negotiate;
use crate::negotiate::SessionType;
use crate::target_role::admission::Authentication;
use crate::target_role::parameters::Parameters;
use crate::target_role::settings::Settings;

/// What is known of a login that has begun.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) first: LoginRequest,
    pub(super) stage: Stage,
    exchanges: u32,
    /// Text that is continued in the next request.
    pub(super) text: Vec<u8>,
    /// Of the first text, until admitted.
    pub(super) names: Option<Names>,
    /// Once admitted.
    pub(super) negotiation: Option<Negotiation>,
    pub(super) answers: Answers,
}

impl Phase {
    pub(super) fn new(first: LoginRequest) -> Self {
        Self {
            first,
            stage: first.current,
            exchanges: 0,
            text: Vec::new(),
            names: None,
            negotiation: None,
            answers: Answers::new(),
        }
    }

    /// Whether the header of `request` is legal here (RFC 7143 §6.3, §11.12).
    pub(super) fn check(&mut self, request: &LoginRequest) -> Result<(), LoginError> {
        self.exchanges += 1;
        if self.exchanges > limits::LOGIN_EXCHANGES_MAX {
            return Err(LoginError::Exchanges);
        }
        let first = &self.first;
        let same = [
            ("the initiator task tag", request.itt == first.itt),
            ("the connection id", request.cid == first.cid),
            ("the ISID", request.isid == first.isid),
            ("the TSIH", request.tsih == first.tsih),
            ("the lowest version", request.version_min == first.version_min),
            ("the highest version", request.version_max == first.version_max),
            // In a session that exists CmdSN may move on meanwhile.
            ("CmdSN", request.cmd_sn == first.cmd_sn || first.tsih != Tsih(0)),
        ];
        if let Some((what, _)) = same.iter().find(|(_, same)| !same) {
            return Err(LoginError::Changed(what));
        }
        if request.current != self.stage || self.stage == Stage::FullFeature {
            return Err(LoginError::Stage { got: request.current, current: self.stage });
        }
        if request.transit && request.continue_ {
            return Err(LoginError::TransitContinued);
        }
        if request.transit && !is_transition(self.stage, request.next) {
            return Err(LoginError::Transition { from: self.stage, to: request.next });
        }
        Ok(())
    }

    /// Begins negotiation with what the target has to say of itself.
    pub(super) fn introduce(
        &mut self,
        portal_group_tag: u16,
        target_alias: Option<String>,
        settings: &Settings,
        authentication: Authentication,
    ) -> Result<(), LoginError> {
        let Some(names) = self.names.take() else {
            return Err(LoginError::Malformed("admission before names"));
        };
        if names.target.is_some() {
            self.answers.push("TargetPortalGroupTag", &portal_group_tag.to_string())?;
        }
        // An alias is ornament: one that does not fit the protocol is left out.
        let alias = target_alias
            .filter(|alias| negotiate::may_be_declared(alias))
            .filter(|_| names.session == SessionType::Normal);
        let leading = self.first.tsih == Tsih(0);
        let architecture = settings
            .node_architecture
            .clone()
            .filter(|kind| leading && negotiate::may_be_declared(kind));
        let introduction = Introduction { alias, architecture };
        let negotiation = Negotiation::new(names, leading, settings, authentication, introduction);
        self.negotiation = Some(negotiation);
        Ok(())
    }

    /// Whether the initiator may go to the stage that it asks for.
    pub(super) fn may_transit(&self) -> Result<bool, LoginError> {
        match &self.negotiation {
            Some(negotiation) => negotiation.security.may_leave(),
            None => Err(LoginError::Malformed("transition before admission")),
        }
    }

    /// The name that the initiator has proved to have.
    pub(super) fn user(&self) -> Option<&str> {
        self.negotiation.as_ref()?.security.user()
    }

    pub(super) fn finish(&self) -> Result<Parameters, LoginError> {
        match &self.negotiation {
            Some(negotiation) => negotiation.finish(),
            None => Err(LoginError::Malformed("end before admission")),
        }
    }
}

fn is_transition(from: Stage, to: Option<Stage>) -> bool {
    matches!(
        (from, to),
        (Stage::Security, Some(Stage::Operational | Stage::FullFeature))
            | (Stage::Operational, Some(Stage::FullFeature))
    )
}
