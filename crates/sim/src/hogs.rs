// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hogs: initiators that log in as anybody may and ask for all that their window lets them, a unit
//! in each command. Some send no data and take none, and stay; some leave, or abort, what they
//! asked for. Beside them every request of the hosts must still end, and soon.

use std::time::Duration;

use iscsi::serial::Serial;
use wire::iscsi::Attribute;
use wire::iscsi::BHS_LEN;
use wire::iscsi::Cid;
use wire::iscsi::CmdSn;
use wire::iscsi::DataSn;
use wire::iscsi::Isid;
use wire::iscsi::Itt;
use wire::iscsi::NopOut;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::ScsiCommand;
use wire::iscsi::StatSn;
use wire::iscsi::TaskManagementRequest;
use wire::iscsi::Tsih;
use wire::iscsi::Ttt;
use wire::iscsi::pad4;
use wire::scsi::cdb::BlockCommand;
use wire::scsi::lun::Lun;
use wire::scsi::opcode::Opcode;

use crate::host::target_name;
use crate::logins;
use crate::net::LinkId;
use crate::options::Hog;
use crate::run::Run;
use crate::world;
use crate::world::Due;
use crate::world::Plan;
use crate::world::World;

/// Function code (RFC 7143 §11.5.1).
const ABORT_TASK_SET: u8 = 2;

/// A login takes less.
const TO_LOG_IN: Duration = Duration::from_millis(100);

/// One that does not stay goes so long after it asked: some of it has begun.
const TO_LEAVE: Duration = Duration::from_millis(50);

/// From one time that a slow one takes something to the next.
const TO_TAKE: Duration = Duration::from_millis(100);

impl Run {
    /// Hog number `index` connects to a target and logs in.
    pub(crate) fn send_hog(&mut self, index: usize) {
        let desk = index % self.machines.len();
        let mut world = self.world.borrow_mut();
        if world.desks[desk].state != world::State::Up || world.desks[desk].accepting.is_none() {
            return;
        }
        let link = world.intrude(self.impostor_desk, desk, login(index, desk));
        let now = world.now;
        world.trace.step(now, &[8, link], || format!("link {link}: hog {index} comes"));
        world.tally.mark("hogs");
        world.after(TO_LOG_IN, Due::Plan(Plan::HogAsks(link, index)));
        self.hogs.push(link);
    }

    /// It asks for all that it can.
    pub(crate) fn hog_asks(&mut self, link: LinkId, index: usize) {
        let (desk, (_, hog)) = (index % self.machines.len(), self.options.hogs[index]);
        let plan = &self.options.targets[desk];
        let mut world = self.world.borrow_mut();
        let Some(exp_stat_sn) = logged_in(&world, link) else { return };
        let mut bytes = Vec::new();
        for number in 1..=u32::from(plan.window) {
            // WRITEs hold memory of which no store knows.
            let write = hog == Hog::Stays && number % 4 != 0;
            let opcode = if write { Opcode::WRITE_16 } else { Opcode::READ_16 };
            let length = u32::try_from(self.options.blocks).unwrap_or(0);
            let command = BlockCommand { opcode, lba: 0, length, flags: 0, group_number: 0 };
            let command = ScsiCommand {
                immediate: false,
                final_: true,
                read: !write,
                write,
                attribute: Attribute::Simple,
                priority: 0,
                lun: Lun::Unit(0).emit(),
                itt: Itt(number),
                expected_length: length * u32::try_from(plan.block_len).unwrap_or(0),
                cmd_sn: CmdSn(number),
                exp_stat_sn,
                cdb: command.emit().expect("a small range fits sixteen bytes"),
                bidi_read_length: None,
            };
            Request::Command(command).emit(0, &mut bytes);
        }
        world.send_bare(link, bytes);
        match hog {
            Hog::Stays => {}
            Hog::Leaves | Hog::Aborts => {
                world.after(TO_LEAVE, Due::Plan(Plan::HogLeaves(link, index)));
            }
            Hog::Takes(_) => {
                self.takers.insert(link, Vec::new());
                world.after(TO_TAKE, Due::Plan(Plan::HogTakes(link, index)));
            }
        }
    }

    /// It has enough.
    pub(crate) fn hog_leaves(&mut self, link: LinkId, index: usize) {
        let desk = index % self.machines.len();
        let mut world = self.world.borrow_mut();
        if self.options.hogs[index].1 == Hog::Leaves {
            return world.close_end(link, 0, true);
        }
        let Some(exp_stat_sn) = logged_in(&world, link) else { return };
        let abort = Request::TaskManagement(TaskManagementRequest {
            immediate: true,
            function: ABORT_TASK_SET,
            lun: Lun::Unit(0).emit(),
            itt: Itt(u32::MAX - 1),
            referenced_task: Itt::NONE,
            cmd_sn: CmdSn(u32::from(self.options.targets[desk].window) + 1),
            exp_stat_sn,
            ref_cmd_sn: CmdSn(0),
            exp_data_sn: DataSn(0),
        });
        let mut bytes = Vec::new();
        abort.emit(0, &mut bytes);
        world.send_bare(link, bytes);
    }

    /// One that is slow takes what has come, and answers a ping that is among it. As long as it
    /// does nobody may cut it.
    pub(crate) fn hog_takes(&mut self, link: LinkId, index: usize) {
        let (desk, Hog::Takes(rate)) = (index % self.machines.len(), self.options.hogs[index].1)
        else {
            return;
        };
        let mut world = self.world.borrow_mut();
        let Some(taken) = self.takers.get_mut(&link) else { return };
        let end = world.net.links.get_mut(&link).map(|of| &mut of.ends[0]);
        let Some(end) = end.filter(|end| end.ending.is_none()) else {
            return self.stage.fail(format!("hog {index} takes what comes, and was cut"));
        };
        let length = end.unread.len().min(rate / 10);
        taken.extend(end.unread.drain(..length));
        let cmd_sn = CmdSn(u32::from(self.options.targets[desk].window) + 1);
        let answers = answers(taken, cmd_sn);
        if !answers.is_empty() {
            world.tally.mark("slow readers pinged");
            world.send_bare(link, answers);
        }
        world.after(Duration::from_micros(1), Due::Push(link, 1));
        world.after(TO_TAKE, Due::Plan(Plan::HogTakes(link, index)));
    }

    /// Somebody takes what it asked for, slowly: the phase lasts as long as it may.
    pub(crate) fn is_somebody_slow(&self) -> bool {
        !self.takers.is_empty()
    }

    /// All that are still there go.
    pub(crate) fn dismiss_hogs(&mut self) {
        self.takers.clear();
        let mut world = self.world.borrow_mut();
        for link in self.hogs.drain(..) {
            world.close_end(link, 0, true);
        }
    }
}

/// Takes whole PDUs from the front of `bytes`; what answers the pings among them.
fn answers(bytes: &mut Vec<u8>, cmd_sn: CmdSn) -> Vec<u8> {
    let mut answers = Vec::new();
    while let Some(header) = bytes.first_chunk::<BHS_LEN>() {
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]);
        let end = BHS_LEN + pad4(usize::try_from(length).unwrap_or(usize::MAX));
        if bytes.len() < end {
            break;
        }
        if let Ok(Response::NopIn(ping)) = Response::parse(header)
            && ping.ttt != Ttt::NONE
        {
            let answer = Request::NopOut(NopOut {
                immediate: true,
                lun: ping.lun,
                itt: Itt::NONE,
                ttt: ping.ttt,
                cmd_sn,
                exp_stat_sn: ping.numbers.stat_sn,
            });
            answer.emit(0, &mut answers);
        }
        bytes.drain(..end);
    }
    answers
}

/// The next StatSN of a hog that the target has let in.
fn logged_in(world: &World, link: LinkId) -> Option<StatSn> {
    let end = &world.net.links.get(&link)?.ends[0];
    let unread: Vec<u8> = end.unread.iter().copied().take(BHS_LEN).collect();
    match Response::parse(&unread) {
        Ok(Response::Login(answer)) if answer.status == 0 => Some(answer.numbers.stat_sn.plus(1)),
        _ => None,
    }
}

fn login(index: usize, desk: usize) -> Vec<u8> {
    let text = format!(
        "InitiatorName=iqn.2026-01.local.lunwire.sim:hog-{index}\0TargetName={}\0\
         InitialR2T=Yes\0ImmediateData=No\0",
        target_name(desk)
    );
    logins::pdu(logins::straight(Isid([0x80, 0, 0, 1, 0, 0]), Tsih(0), Cid(1)), &text)
}
