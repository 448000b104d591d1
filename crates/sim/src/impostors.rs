// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Impostors: whoever reaches the portal of a target may say that he is one of its initiators, and
//! knows the ISID, the TSIH and the CIDs of its session, but not its secret.
//!
//! Discovery asks for no secret here, and some targets let in who offers no proof. No impostor may
//! be let in where another has proved the name, and none may end the session whose name he uses: in
//! quiet classes no session may be lost at all, so its host finds that out.

use std::time::Duration;

use iscsi::target_role::DigestPolicy;
use target::SessionSnapshot;
use wire::iscsi::BHS_LEN;
use wire::iscsi::Cid;
use wire::iscsi::Isid;
use wire::iscsi::Itt;
use wire::iscsi::LoginRequest;
use wire::iscsi::Response;
use wire::iscsi::Stage as LoginStage;
use wire::iscsi::Tsih;

use crate::logins;
use crate::net::LinkId;
use crate::options::Secrets;
use crate::run::Run;
use crate::world;
use crate::world::Due;
use crate::world::Plan;
use crate::world::Reach;

/// An impostor goes again after so long; a login takes less.
const STAY: Duration = Duration::from_secs(5);

/// What an impostor tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Try {
    /// A discovery session that names the target.
    discovery: bool,
    /// A connection of the session that is there, with the CID of one that it has, or a new one.
    joins: Option<bool>,
    /// Offers CHAP, and then says no more.
    hesitates: bool,
}

impl Run {
    /// An impostor connects to a target and says that he is somebody who is logged in there.
    pub(crate) fn send_impostor(&mut self) {
        let guarded = |secrets: &Secrets| *secrets != Secrets::None;
        // He comes to the first portal. Where no proof is asked for, the name is free at a portal
        // group that the victim is not at.
        let elsewhere = |index: usize| {
            let plan = &self.machines[index].plan;
            plan.optional && plan.two_groups
        };
        let targets: Vec<usize> = (0..self.machines.len())
            .filter(|index| self.stage.secrets.get(*index).is_some_and(guarded))
            .filter(|index| !elsewhere(*index))
            .collect();
        let rng = &mut self.impostor_rng;
        let Some(index) = targets.get(rng.index(targets.len().max(1))).copied() else { return };
        let machine = &mut self.machines[index];
        let Some(target) = &machine.target else { return };
        let mut victims = target.sessions();
        victims.retain(|session| !session.discovery);
        if victims.is_empty() {
            return;
        }
        let victim = &victims[rng.index(victims.len())];
        let what = Try {
            discovery: rng.chance(500),
            joins: rng.pick(&[None, None, Some(true), Some(false)]),
            hesitates: rng.chance(300),
        };
        let bytes = what.request(victim);
        let digests = machine.plan.digests.contains(&DigestPolicy::Required);
        let mut world = self.world.borrow_mut();
        let desk = machine.desk;
        let entry = &world.desks[desk];
        if entry.state != world::State::Up || entry.accepting.is_none() {
            return;
        }
        let link = world.intrude(self.impostor_desk, desk, bytes);
        let now = world.now;
        world.trace.step(now, &[7, link], || {
            format!("link {link}: an impostor of session {} tries {what:?}", victim.tsih)
        });
        world.tally.mark("impostors");
        world.after(STAY, Due::Plan(Plan::Unmask(link, what.reach(digests))));
    }

    /// What has an impostor reached?
    pub(crate) fn unmask(&mut self, link: LinkId, reach: Reach) {
        let mut world = self.world.borrow_mut();
        let Some(entry) = world.net.links.get_mut(&link) else { return };
        let unread: Vec<u8> = entry.ends[0].unread.iter().copied().collect();
        world.close_end(link, 0, false);
        drop(world);
        let Some(header) = unread.get(..BHS_LEN) else { return };
        match Response::parse(header) {
            Ok(Response::Login(answer)) => {
                let is_in = answer.status == 0 && answer.next == Some(LoginStage::FullFeature);
                // Where sessions may be lost, that of the victim may have been gone before.
                match reach {
                    _ if self.stage.may_lose => {}
                    Reach::Nothing if is_in => {
                        self.stage.fail(format!("an impostor was let in (link {link})"));
                    }
                    Reach::Discovery if !is_in => {
                        let text = format!("discovery was refused (link {link})");
                        self.stage.fail(format!("{text}: {answer:?}"));
                    }
                    Reach::Nothing | Reach::Discovery | Reach::Either => {}
                }
            }
            // The target may have been killed, or bytes flipped.
            _ if self.stage.may_lose => {}
            other => self.stage.fail(format!("an impostor was answered by {other:?}")),
        }
    }
}

/// The login of an impostor who has no time, with what he [joins](Try::joins).
pub(crate) fn straight(joins: Option<bool>, victim: &SessionSnapshot) -> Vec<u8> {
    Try { discovery: false, joins, hesitates: false }.request(victim)
}

impl Try {
    /// `digests`: the target wants them, and he offers none.
    fn reach(self, digests: bool) -> Reach {
        match self.discovery && self.joins.is_none() && !self.hesitates {
            true if digests => Reach::Either,
            true => Reach::Discovery,
            false => Reach::Nothing,
        }
    }

    fn request(self, victim: &SessionSnapshot) -> Vec<u8> {
        let mut isid = [0; 6];
        for (byte, at) in isid.iter_mut().zip((0..).step_by(2)) {
            let digits = victim.isid.get(at..at + 2).unwrap_or_default();
            *byte = u8::from_str_radix(digits, 16).unwrap_or(0);
        }
        let own = victim.connections.first().map_or(1, |connection| connection.cid);
        let (tsih, cid) = match self.joins {
            Some(true) => (victim.tsih, own),
            Some(false) => (victim.tsih, own.wrapping_add(100)),
            None => (0, own),
        };
        let mut text = format!("InitiatorName={}\0", victim.initiator);
        if let Some(target) = &victim.target {
            text.push_str(&format!("TargetName={target}\0"));
        }
        if self.discovery {
            text.push_str("SessionType=Discovery\0");
        }
        text.push_str(if self.hesitates { "AuthMethod=CHAP\0" } else { "AuthMethod=None\0" });
        let login = LoginRequest {
            transit: !self.hesitates,
            current: LoginStage::Security,
            next: (!self.hesitates).then_some(LoginStage::FullFeature),
            itt: Itt(1),
            ..logins::straight(Isid(isid), Tsih(tsih), Cid(cid))
        };
        logins::pdu(login, &text)
    }
}
