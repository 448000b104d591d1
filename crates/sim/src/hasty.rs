// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Initiators that join their own session over several connections at once, and on each say the
//! next thing before their login is answered: it comes while the connection goes to another
//! reactor, and must not be lost there.

use std::time::Duration;

use iscsi::target_role::DigestPolicy;
use wire::iscsi::BHS_LEN;
use wire::iscsi::Cid;
use wire::iscsi::CmdSn;
use wire::iscsi::Isid;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::NopOut;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;
use wire::iscsi::Ttt;
use wire::iscsi::pad4;

use crate::host::target_name;
use crate::logins;
use crate::net::LinkId;
use crate::options::Secrets;
use crate::run::Run;
use crate::world;
use crate::world::Due;
use crate::world::Plan;

/// A login takes less.
const TO_LOG_IN: Duration = Duration::from_millis(500);

/// So do a login and a ping; and no target asks whether the initiator is there before.
const TO_BE_ANSWERED: Duration = Duration::from_millis(1500);

/// What is said in haste follows the login so much later, microseconds: while the connection moves,
/// or with it.
const HASTE_MAX: u64 = 300;

/// Tag of the ping.
const PING: Itt = Itt(7);

/// The target's StatSNs begin with this one.
const STAT_SN: StatSn = StatSn(1);

impl Run {
    /// One logs in to a target of several reactors that asks for nothing it cannot give.
    pub(crate) fn send_hasty(&mut self) {
        let fits = |index: &usize| {
            let plan = &self.machines[*index].plan;
            let bare = !plan.digests.contains(&DigestPolicy::Required);
            let wide = plan.connections >= 4;
            plan.reactors.is_some() && plan.secrets == Secrets::None && bare && wide
        };
        let Some(index) = (0..self.machines.len()).find(fits) else { return };
        let mut world = self.world.borrow_mut();
        let entry = &world.desks[index];
        if entry.state != world::State::Up || entry.accepting.is_none() {
            return;
        }
        let link = world.knock(self.impostor_desk, index);
        world.unheard.insert(link);
        world.send_bare(link, login(link, index, Tsih(0), Cid(1)));
        let now = world.now;
        world.trace.step(now, &[10, link], || format!("link {link}: a hasty initiator comes"));
        world.tally.mark("hasty initiators");
        world.after(TO_LOG_IN, Due::Plan(Plan::HastyJoins(link)));
    }

    /// It joins its session three times at once.
    pub(crate) fn hasty_joins(&mut self, first: LinkId) {
        let mut world = self.world.borrow_mut();
        let Some(link) = world.net.links.get(&first) else { return };
        let home = world.desks[link.ends[1].desk].home;
        let answers: Vec<Response> = heard(link.ends[0].unread.iter().copied().collect());
        let Some(Response::Login(answer)) = answers.first() else {
            return world.close_end(first, 0, true);
        };
        if answer.status != 0 || world.desks[home].accepting.is_none() {
            return world.close_end(first, 0, true);
        }
        let tsih = answer.tsih;
        let mut links = [first; 4];
        for (cid, place) in (2..).zip(&mut links[1..]) {
            let link = world.knock(self.impostor_desk, home);
            *place = link;
            world.unheard.insert(link);
            world.send_bare(link, login(first, home, tsih, Cid(cid)));
            // The same way, but a little behind it.
            let delay = self.impostor_rng.micros(0..=HASTE_MAX);
            world.after(delay, Due::Plan(Plan::HastyPings(link)));
        }
        world.after(TO_BE_ANSWERED, Due::Plan(Plan::HastyLeaves(links)));
    }

    /// It says the next thing.
    pub(crate) fn hasty_pings(&self, link: LinkId) {
        let mut bytes = Vec::new();
        let ping = Request::NopOut(NopOut {
            immediate: true,
            lun: LunField::default(),
            itt: PING,
            ttt: Ttt::NONE,
            cmd_sn: CmdSn(1),
            exp_stat_sn: STAT_SN,
        });
        ping.emit(0, &mut bytes);
        self.world.borrow_mut().send_bare(link, bytes);
    }

    /// It goes; all that it said must have been answered, unless something befell the connections.
    pub(crate) fn hasty_leaves(&mut self, links: [LinkId; 4]) {
        let mut world = self.world.borrow_mut();
        let mut text = None;
        for link in &links[1..] {
            let Some(entry) = world.net.links.get(link) else { continue };
            let answers = heard(entry.ends[0].unread.iter().copied().collect());
            let is_in = |one: &Response| matches!(one, Response::Login(pdu) if pdu.status == 0);
            let is_pong = |one: &Response| matches!(one, Response::NopIn(pdu) if pdu.itt == PING);
            if !answers.iter().any(is_in) {
                text = Some(format!("a login that joins a session is not let in (link {link})"));
            } else if !answers.iter().any(is_pong) {
                text = Some(format!("what came while its login moved is lost (link {link})"));
            }
        }
        for link in links {
            world.close_end(link, 0, false);
        }
        world.tally.mark("hasty joins");
        drop(world);
        if let Some(text) = text.filter(|_| !self.stage.may_lose) {
            self.stage.fail(text);
        }
    }
}

/// All whole PDUs of `bytes`.
fn heard(mut bytes: Vec<u8>) -> Vec<Response> {
    let mut all = Vec::new();
    while let Some(header) = bytes.first_chunk::<BHS_LEN>() {
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]);
        let end = BHS_LEN + pad4(usize::try_from(length).unwrap_or(usize::MAX));
        all.extend(Response::parse(header).ok());
        bytes.drain(..end.min(bytes.len()));
    }
    all
}

/// `who`: the first of its connections, which gives it its name.
fn login(who: LinkId, desk: usize, tsih: Tsih, cid: Cid) -> Vec<u8> {
    let mut text = format!("InitiatorName=iqn.2026-01.local.lunwire.sim:hasty-{who}\0");
    text.push_str(&format!("TargetName={}\0", target_name(desk)));
    if tsih == Tsih(0) {
        text.push_str("MaxConnections=4\0");
    }
    logins::pdu(logins::straight(Isid([0x80, 0, 0, 2, 0, 0]), tsih, cid), &text)
}
