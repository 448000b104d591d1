// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that are several disks: the events of their members pass through an [`Array`] each, and
//! what it puts out goes to these. A member is a session, or several paths (`bundles.rs`).

use engine::Port;
use medium::stripe::Layout;

use super::Pump;
use crate::Error;
use crate::Event;
use crate::Kind;
use crate::Paths;
use crate::Request;
use crate::SessionId;
use crate::Stripe;
use crate::StripeError;
use crate::stripe::Array;
use crate::stripe::Output;
use crate::stripe::Part;

impl<P: Port> Pump<P> {
    /// Begins to log in to all members; see [`crate::Queue::open_stripe`].
    ///
    /// # Errors
    /// As for [`Pump::open_paths`]; [`Kind::Stripe`].
    pub fn open_stripe(&mut self, stripe: Stripe) -> Result<SessionId, Error> {
        let layout = Layout::new(stripe.chunk, stripe.members.len())
            .map_err(|misfit| StripeError::from(misfit).error())?;
        let mut members = Vec::new();
        for (at, paths) in stripe.members.into_iter().enumerate() {
            match self.open_member(paths) {
                Ok(part) => members.push(part),
                Err(error) => {
                    members.iter().for_each(|part: &Part| self.close(part.session));
                    return Err(error.of_member(at));
                }
            }
        }
        let id = self.next_bundle_id();
        self.stripes.push(Array::new(id, layout, members));
        self.carry_stripes();
        Ok(id)
    }

    fn open_member(&mut self, paths: Paths) -> Result<Part, Error> {
        let first = paths.paths.first().ok_or_else(|| Error::new(Kind::NoPath))?;
        let (target, lun, count) = (first.0.target.clone(), first.1, paths.paths.len());
        let session = match <[_; 1]>::try_from(paths.paths) {
            Ok([(options, _)]) => self.open(options)?,
            Err(several) => self.open_paths(Paths { paths: several, policy: paths.policy })?,
        };
        Ok(Part { session, lun, target, paths: count })
    }

    pub(super) fn stripe(&self, id: SessionId) -> Option<&Array> {
        self.stripes.iter().find(|stripe| stripe.id() == id)
    }

    fn stripe_at(&self, id: SessionId) -> Option<usize> {
        self.stripes.iter().position(|stripe| stripe.id() == id)
    }

    /// The session that the caller knows: of a member that of the whole.
    pub(super) fn whole_of(&self, session: SessionId) -> SessionId {
        let stripe = self.stripes.iter().find(|stripe| stripe.member_of(session).is_some());
        stripe.map_or(session, Array::id)
    }

    /// Tells an event to the stripe that its session is a member of, or to the caller.
    pub(super) fn tell_whole(&mut self, mut event: Event) {
        let session = *event.session_mut();
        match self.whole_of(session) == session {
            true => self.told.push_back(event),
            false => self.told_members.push_back(event),
        }
    }

    pub(super) fn post_to_stripe(
        &mut self,
        id: SessionId,
        tag: u64,
        request: Request,
    ) -> Result<(), (Error, Request)> {
        let Some(place) = self.stripe_at(id) else {
            return Err((Error::new(Kind::Closed), request));
        };
        if let Some(stripe) = self.stripes.get_mut(place) {
            stripe.post(tag, request, &self.pool)?;
        }
        self.carry_stripe_outputs(place);
        let posted = self.stripes.get_mut(place).map_or(Ok(()), Array::posted);
        self.carry_stripes();
        posted
    }

    pub(super) fn close_stripe(&mut self, id: SessionId) {
        if let Some(stripe) = self.stripe_at(id).and_then(|place| self.stripes.get_mut(place)) {
            stripe.close();
        }
        self.carry_stripes();
    }

    pub(super) fn forget_stripe(&mut self, id: SessionId) {
        let Some(place) = self.stripe_at(id) else { return };
        if self.stripes.get(place).is_some_and(Array::is_over) {
            let stripe = self.stripes.remove(place);
            for session in stripe.sessions() {
                self.forget(session);
            }
        }
    }

    /// Does what is due for stripes.
    pub(super) fn expire_stripes(&mut self) {
        let now = self.port.now();
        for stripe in &mut self.stripes {
            if stripe.deadline().is_some_and(|at| at <= now) {
                stripe.expire(&self.pool, now);
            }
        }
        self.carry_stripes();
    }

    /// Gives bundles and stripes the events of their parts, and does what they want, until nothing
    /// is left.
    pub(super) fn carry_stripes(&mut self) {
        loop {
            self.carry_bundles();
            for place in 0..self.stripes.len() {
                self.carry_stripe_outputs(place);
            }
            let Some(mut event) = self.told_members.pop_front() else { return };
            let (session, now) = (*event.session_mut(), self.port.now());
            let found = self.stripes.iter_mut().find_map(|stripe| {
                let member = stripe.member_of(session)?;
                Some((stripe, member))
            });
            if let Some((stripe, member)) = found {
                stripe.handle(member, event, &self.pool, now);
            }
        }
    }

    fn carry_stripe_outputs(&mut self, place: usize) {
        while let Some(output) = self.stripes.get_mut(place).and_then(Array::poll_output) {
            let member = match &output {
                Output::Post { member, .. } | Output::Close(member) => *member,
                Output::Tell(_) => 0,
            };
            let session = self.stripes.get(place).and_then(|stripe| stripe.session_of(member));
            let Some(session) = session else { continue };
            match output {
                Output::Tell(event) => self.told.push_back(event),
                Output::Post { member, tag, request } => {
                    let Err(refused) = self.post(session, tag, request) else { continue };
                    let now = self.port.now();
                    if let Some(stripe) = self.stripes.get_mut(place) {
                        stripe.refused(member, tag, refused, now);
                    }
                }
                Output::Close(member) => {
                    if self.end_part(session)
                        && let Some(stripe) = self.stripes.get_mut(place)
                    {
                        stripe.closed(member);
                    }
                }
            }
        }
    }
}
