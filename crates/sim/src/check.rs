// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants that can be seen on the wire, over the headers as both sides sent them: numbers, the
//! window, who answers what, and how much data goes where (RFC 7143 §4.2.2, §11).

mod joint;
mod keys;
mod memory;
mod ranges;
mod rdma;
mod task;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use iscsi::serial::Serial;
use wire::iscsi::Cid;
use wire::iscsi::CmdSn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Numbers;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::ScsiCommand;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;

use self::joint::Joint;
pub(crate) use self::joint::Sessions;
use self::keys::Keys;
pub(crate) use self::memory::Memory;
use self::task::Task;
use crate::net::Side;
use crate::shuffle::Freedom;

/// What is known of one connection. Where PDUs may come twice, or there are more connections, less
/// can be said about the order in which numbers come.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    keys: Keys,
    up: bool,
    /// Of the next request that takes a number.
    cmd_sn: CmdSn,
    /// Of the next response that takes one.
    stat_sn: StatSn,
    /// What the target has told last.
    told: Option<(CmdSn, CmdSn)>,
    /// What the initiator has acknowledged.
    acknowledged: Option<StatSn>,
    tasks: BTreeMap<u32, Task>,
    /// Other requests that wait for their answers: what answers them, and for an abort its task.
    others: BTreeMap<u32, Other>,
    /// Commands that the target has rejected. They were not received, and at any recovery level
    /// the gap that they left in the numbers is filled by sending them again as they were, or by an
    /// abort (RFC 7143 §7.3, §7.2.1).
    rejected: BTreeMap<u32, ScsiCommand>,
    /// Over iSER.
    pub(crate) memory: Memory,
    /// The session that it belongs to, or asks to join.
    joint: Option<Rc<RefCell<Joint>>>,
    /// CID and TSIH of the login requests.
    cid: Cid,
    joins: Tsih,
    /// TSIH and MaxCmdSN of the last login response.
    joined: (Tsih, CmdSn),
    /// Broken invariants, to be taken by the world.
    pub(crate) broken: Vec<String>,
    /// What was said that concerns others, to be taken by the world.
    pub(crate) heard: Vec<Told>,
}

/// What is said on one connection, and concerns others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    /// A LOGICAL UNIT RESET of a session of one connection: there, what it ends was sent before it.
    ResetAsked(Itt, LunField),
    /// A task is to go on here.
    Reassigned,
    ResetDone(Itt),
    /// The unit, and how many bytes of data are to follow.
    Command(Itt, LunField, u32),
    R2t(Itt),
    /// So many bytes of data.
    DataOut(Itt, u32),
    /// Whether its status is GOOD.
    Ended(Itt, bool),
}

/// A request that is no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Nop,
    Text,
    Logout,
    /// Of one task, or of those of a unit that were sent before.
    Management {
        referenced: Itt,
        unit: Option<(LunField, CmdSn)>,
    },
}

/// Reason of a logout that names no connection (RFC 7143 §11.14.1).
const CLOSE_SESSION: u8 = 0;

/// Task management functions (RFC 7143 §11.5.1).
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const UNIT_RESET: u8 = 5;

/// Event of an Async Message: the target drops the connection (RFC 7143 §11.9.1).
const CONNECTION_DROPPED: u8 = 2;

/// Why something is wrong.
type Judgement = Result<(), String>;

fn demand(holds: bool, what: impl FnOnce() -> String) -> Judgement {
    if holds { Ok(()) } else { Err(what()) }
}

impl Checks {
    /// A PDU of the login phase.
    pub(crate) fn login(&mut self, side: Side, header: &[u8], text: &[u8]) {
        let judged = self.keys.hear(side, text);
        self.note(judged);
        match (side, Request::parse(header), Response::parse(header)) {
            (0, Ok(Request::Login(login)), _) => {
                (self.cmd_sn, self.cid, self.joins) = (login.cmd_sn, login.cid, login.tsih);
            }
            (1, _, Ok(Response::Login(login))) => {
                self.stat_sn = login.numbers.stat_sn.plus(1);
                self.joined = (login.tsih, login.numbers.max_cmd_sn);
            }
            _ => self.broken.push(format!("side {side} sends no valid login pdu")),
        }
    }

    /// Full feature phase begins, at the target with this port.
    pub(crate) fn begin(&mut self, target: usize, sessions: &mut Sessions) {
        self.up = true;
        let (tsih, last) = self.joined;
        let entry = match sessions.get(&(target, tsih.0)) {
            Some(entry) if self.joins == tsih => {
                self.keys.join(&entry.borrow().keys);
                entry.borrow_mut().told(last);
                Rc::clone(entry)
            }
            _ => {
                let entry = Rc::new(RefCell::new(Joint::new(self.keys.clone(), last)));
                sessions.insert((target, tsih.0), Rc::clone(&entry));
                entry
            }
        };
        self.joint = Some(entry);
    }

    /// Whether the session that it wants to join is over RDMA: then so is this connection.
    pub(crate) fn joins_rdma(&self, target: usize, sessions: &Sessions) -> bool {
        let (tsih, _) = self.joined;
        let session = sessions.get(&(target, tsih.0)).filter(|_| self.joins == tsih);
        session.is_some_and(|session| session.borrow().keys.rdma)
    }

    /// Whether PDUs may come twice.
    pub(crate) const fn recovers(&self) -> bool {
        self.keys.recovers()
    }

    /// Which order of data is free, where each PDU comes once.
    pub(crate) fn freedom(&self) -> Freedom {
        let [pdus, sequences] = self.keys.in_order.map(|yes| !yes && self.up && !self.recovers());
        Freedom { pdus, sequences }
    }

    /// Whether other connections may carry what is missing here.
    const fn shares(&self) -> bool {
        self.keys.max_connections > 1
    }

    /// A PDU of the full feature phase; `rejected`: the header in the data of a Reject.
    pub(crate) fn pdu(&mut self, side: Side, header: &[u8], data_len: usize, rejected: &[u8]) {
        if !self.up {
            return;
        }
        let length = u32::try_from(data_len).unwrap_or(u32::MAX);
        let judged = match side {
            0 => Request::parse(header)
                .map_err(|error| format!("the initiator sends a malformed pdu: {error}"))
                .and_then(|request| {
                    self.request(&request, length).map_err(|why| format!("{why}: {request:?}"))
                }),
            _ => Response::parse(header)
                .map_err(|error| format!("the target sends a malformed pdu: {error}"))
                .and_then(|response| {
                    self.response(&response, length).map_err(|why| format!("{why}: {response:?}"))
                }),
        };
        self.note(judged);
        if let Ok(request) = Request::parse(rejected) {
            self.reject(&request);
        }
    }

    /// Data of the command `tag` was lied about: it must not end well.
    pub(crate) fn distrust(&mut self, tag: u32) {
        if let Some(task) = self.tasks.get_mut(&tag) {
            task.distrusted = true;
        }
    }

    fn note(&mut self, judged: Judgement) {
        if let Err(why) = judged {
            self.broken.push(why);
        }
    }

    /// The target has rejected this request.
    fn reject(&mut self, request: &Request) {
        match request {
            Request::Command(pdu) => {
                let known = self.tasks.remove(&pdu.itt.0);
                self.rejected.extend(known.map(|_| (pdu.itt.0, *pdu)));
            }
            Request::NopOut(pdu) => drop(self.others.remove(&pdu.itt.0)),
            Request::Text(pdu) => drop(self.others.remove(&pdu.itt.0)),
            Request::TaskManagement(pdu) => drop(self.others.remove(&pdu.itt.0)),
            Request::Logout(pdu) => drop(self.others.remove(&pdu.itt.0)),
            _ => {}
        }
    }

    /// A command comes again: nothing of it may differ.
    fn retry(&mut self, pdu: &ScsiCommand, before: &ScsiCommand, length: u32) -> Judgement {
        let same = ScsiCommand { exp_stat_sn: pdu.exp_stat_sn, ..*before };
        demand(*pdu == same, || format!("it was rejected as {before:?}"))?;
        self.acknowledge(pdu.exp_stat_sn)?;
        let task = Task::begin(pdu, length, &self.keys)?;
        self.tasks.insert(pdu.itt.0, task);
        Ok(())
    }

    fn request(&mut self, request: &Request, length: u32) -> Judgement {
        let limit = self.keys.segment[1];
        demand(length <= limit, || format!("{length} bytes of data, the target takes {limit}"))?;
        match request {
            Request::Command(pdu) => {
                let before = self.rejected.remove(&pdu.itt.0);
                if let Some(before) = before.filter(|before| before.cmd_sn == pdu.cmd_sn) {
                    return self.retry(pdu, &before, length);
                }
                let again = self.joint.as_ref().map(|joint| joint.borrow_mut().command(pdu));
                let again = again.unwrap_or(Ok(false))?;
                demand(!again || self.recovers() || self.shares(), || "it was sent before".into())?;
                if again {
                    self.acknowledge(pdu.exp_stat_sn)?;
                    let task = Task::begin(pdu, length, &self.keys)?;
                    self.tasks.insert(pdu.itt.0, task);
                    return Ok(());
                }
                self.number(pdu.cmd_sn, pdu.immediate, Some(pdu.exp_stat_sn))?;
                self.fresh(pdu.itt)?;
                let task = Task::begin(pdu, length, &self.keys)?;
                let left = if pdu.write { pdu.expected_length.saturating_sub(length) } else { 0 };
                self.heard.push(Told::Command(pdu.itt, pdu.lun, left));
                self.tasks.insert(pdu.itt.0, task);
                Ok(())
            }
            Request::DataOut(pdu) => {
                self.acknowledge(pdu.exp_stat_sn)?;
                self.heard.push(Told::DataOut(pdu.itt, length));
                // The target may have ended the task meanwhile.
                let Some(task) = self.tasks.get_mut(&pdu.itt.0) else { return Ok(()) };
                task.data_out(pdu, length, &self.keys)
            }
            Request::NopOut(pdu) => {
                self.number(pdu.cmd_sn, pdu.immediate, Some(pdu.exp_stat_sn))?;
                if pdu.itt == Itt::NONE { Ok(()) } else { self.ask(pdu.itt, Other::Nop) }
            }
            Request::TaskManagement(pdu) => {
                // An abort fills the gap too.
                self.rejected.clear();
                self.number(pdu.cmd_sn, pdu.immediate, Some(pdu.exp_stat_sn))?;
                let is_wide = matches!(pdu.function, ABORT_TASK_SET | CLEAR_TASK_SET | UNIT_RESET);
                let unit = is_wide.then_some((pdu.lun, pdu.cmd_sn));
                // One who listens keeps its account, and so does the list of all sessions.
                let is_alone =
                    self.joint.as_ref().is_some_and(|joint| Rc::strong_count(joint) == 2);
                if pdu.function == UNIT_RESET && is_alone {
                    self.heard.push(Told::ResetAsked(pdu.itt, pdu.lun));
                }
                self.ask(pdu.itt, Other::Management { referenced: pdu.referenced_task, unit })
            }
            Request::Text(pdu) => {
                self.number(pdu.cmd_sn, pdu.immediate, None)?;
                self.others.remove(&pdu.itt.0);
                self.ask(pdu.itt, Other::Text)
            }
            Request::Logout(pdu) => {
                // It tells that of the connection that it closes (RFC 7143 §11.14.5).
                let own = pdu.reason == CLOSE_SESSION || pdu.cid == self.cid;
                self.number(pdu.cmd_sn, pdu.immediate, own.then_some(pdu.exp_stat_sn))?;
                self.ask(pdu.itt, Other::Logout)
            }
            Request::Snack(pdu) if self.recovers() && !self.keys.rdma => {
                self.acknowledge(pdu.exp_stat_sn)
            }
            Request::Snack(_) | Request::Login(_) => {
                Err("not at this recovery level and phase".to_owned())
            }
        }
    }

    /// CmdSN without gaps, within the window; ExpStatSN never goes back.
    fn number(&mut self, got: CmdSn, immediate: bool, exp_stat_sn: Option<StatSn>) -> Judgement {
        let next = self.cmd_sn;
        let again = got.is_before(next) && (self.recovers() || self.shares());
        let elsewhere = got.is_after(next) && self.shares();
        let fits = got == next || again || elsewhere || (immediate && self.shares());
        demand(fits, || format!("CmdSN {got:?} instead of {next:?}"))?;
        if !immediate && self.shares() {
            if !again {
                self.cmd_sn = got.plus(1);
            }
            self.joint.as_ref().map_or(Ok(()), |joint| joint.borrow().takes(got))?;
            return exp_stat_sn.map_or(Ok(()), |acknowledged| self.acknowledge(acknowledged));
        }
        if again {
            return exp_stat_sn.map_or(Ok(()), |acknowledged| self.acknowledge(acknowledged));
        }
        if !immediate {
            self.cmd_sn = next.plus(1);
            let open = self.told.is_none_or(|(_, max)| !got.is_after(max));
            demand(open, || format!("CmdSN {got:?} is beyond the window of {:?}", self.told))?;
        }
        exp_stat_sn.map_or(Ok(()), |acknowledged| self.acknowledge(acknowledged))
    }

    fn acknowledge(&mut self, exp_stat_sn: StatSn) -> Judgement {
        let next = self.stat_sn;
        demand(!exp_stat_sn.is_after(next), || format!("ExpStatSN is beyond {next:?}"))?;
        let before = self.acknowledged.replace(exp_stat_sn);
        let back = before.is_some_and(|before| exp_stat_sn.is_before(before));
        demand(!back, || format!("ExpStatSN goes back from {before:?}"))
    }

    fn fresh(&mut self, itt: Itt) -> Judgement {
        // What a function ended on another connection had no answer on this one.
        if let (Some(task), Some(joint)) = (self.tasks.get(&itt.0), &self.joint)
            && joint.borrow().has_ended(task)
        {
            self.tasks.remove(&itt.0);
        }
        let used = self.tasks.contains_key(&itt.0) || self.others.contains_key(&itt.0);
        demand(!used && itt != Itt::NONE, || "its tag is in use".to_owned())
    }

    fn ask(&mut self, itt: Itt, other: Other) -> Judgement {
        self.fresh(itt)?;
        self.others.insert(itt.0, other);
        Ok(())
    }

    fn answer(&mut self, itt: Itt) -> Result<Other, String> {
        self.others.remove(&itt.0).ok_or_else(|| "nobody asked for it".to_owned())
    }

    fn response(&mut self, response: &Response, length: u32) -> Judgement {
        let limit = self.keys.segment[0];
        demand(length <= limit, || format!("{length} bytes of data, the initiator takes {limit}"))?;
        if self.recovers()
            && let Some(judged) = self.recovery(response)
        {
            return judged;
        }
        match response {
            Response::DataIn(pdu) => {
                match pdu.status {
                    Some(_) => self.status(pdu.numbers)?,
                    None => self.window(pdu.numbers)?,
                }
                let task = self.tasks.get_mut(&pdu.itt.0).ok_or("data for no command")?;
                task.data_in(pdu, length, &self.keys)?;
                if let Some(status) = pdu.status
                    && let Some(task) = self.tasks.remove(&pdu.itt.0)
                {
                    self.heard.push(Told::Ended(pdu.itt, status.status == 0));
                    return task.end(status.status, status.residual);
                }
                Ok(())
            }
            Response::Scsi(pdu) => {
                self.status(pdu.numbers)?;
                let task = self.tasks.remove(&pdu.itt.0).ok_or("a response to no command")?;
                let is_good = pdu.response == 0 && pdu.status == 0;
                self.heard.push(Told::Ended(pdu.itt, is_good));
                self.memory.end(pdu.itt, is_good)?;
                if pdu.response == 0 { task.end(pdu.status, pdu.residual) } else { Ok(()) }
            }
            Response::R2t(pdu) => {
                self.next_status(pdu.numbers)?;
                self.window(pdu.numbers)?;
                let task = self.tasks.get_mut(&pdu.itt.0).ok_or("an R2T for no command")?;
                self.heard.push(Told::R2t(pdu.itt));
                task.r2t(pdu, &self.keys)
            }
            Response::NopIn(pdu) if pdu.itt == Itt::NONE => {
                self.next_status(pdu.numbers)?;
                self.window(pdu.numbers)
            }
            Response::NopIn(pdu) => self.answered(pdu.numbers, pdu.itt),
            Response::Text(pdu) => self.answered(pdu.numbers, pdu.itt),
            Response::Logout(pdu) => self.answered(pdu.numbers, pdu.itt),
            Response::TaskManagement(pdu) => {
                self.status(pdu.numbers)?;
                if pdu.response == 0 {
                    self.heard.push(Told::ResetDone(pdu.itt));
                }
                // Function complete, or no such task: it has no other answer.
                if let Other::Management { referenced, unit } = self.answer(pdu.itt)?
                    && pdu.response <= 1
                {
                    self.tasks.remove(&referenced.0);
                    if let (Some(unit), Some(joint)) = (unit, &self.joint) {
                        joint.borrow_mut().ends(unit);
                    }
                    self.tasks.retain(|_, task| {
                        unit.is_none_or(|(lun, before)| !task.is_older(lun, before))
                    });
                }
                Ok(())
            }
            // Statuses that were not sent yet go to another connection, with their tasks.
            Response::Async(pdu)
                if self.keys.error_recovery_level == 2
                    && pdu.event == CONNECTION_DROPPED
                    && pdu.parameter1 == self.cid.0
                    && pdu.numbers.stat_sn.is_after(self.stat_sn) =>
            {
                self.stat_sn = pdu.numbers.stat_sn.plus(1);
                self.window(pdu.numbers)
            }
            Response::Async(pdu) => self.status(pdu.numbers),
            Response::Reject(pdu) => self.status(pdu.numbers),
            Response::Login(_) => Err("not in this phase".to_owned()),
        }
    }

    /// What was sent before, or is about a task that has come from another connection. It tells the
    /// window as it is now.
    fn recovery(&mut self, response: &Response) -> Option<Judgement> {
        let stranger = |itt: &Itt| !self.tasks.contains_key(&itt.0);
        let (numbers, itt) = match response {
            Response::DataIn(pdu) if pdu.status.is_none() => {
                return stranger(&pdu.itt).then(|| self.window(pdu.numbers));
            }
            Response::R2t(pdu) => {
                return stranger(&pdu.itt).then(|| self.window(pdu.numbers));
            }
            Response::DataIn(pdu) => (pdu.numbers, Some(pdu.itt)),
            Response::Scsi(pdu) => {
                let is_good = pdu.response == 0 && pdu.status == 0;
                if let wrong @ Err(_) = self.memory.end(pdu.itt, is_good) {
                    return Some(wrong);
                }
                (pdu.numbers, Some(pdu.itt))
            }
            Response::NopIn(pdu) if pdu.itt != Itt::NONE => (pdu.numbers, None),
            Response::Text(pdu) => (pdu.numbers, None),
            Response::Logout(pdu) => (pdu.numbers, None),
            Response::TaskManagement(pdu) => (pdu.numbers, None),
            Response::Async(pdu) => (pdu.numbers, None),
            Response::Reject(pdu) => (pdu.numbers, None),
            _ => return None,
        };
        if numbers.stat_sn.is_before(self.stat_sn) {
            return Some(self.window(numbers));
        }
        itt.as_ref().is_some_and(stranger).then(|| self.status(numbers))
    }

    fn answered(&mut self, numbers: Numbers, itt: Itt) -> Judgement {
        self.status(numbers)?;
        self.answer(itt).map(|_| ())
    }

    /// A response that takes a StatSN.
    fn status(&mut self, numbers: Numbers) -> Judgement {
        self.next_status(numbers)?;
        self.stat_sn = numbers.stat_sn.plus(1);
        self.window(numbers)
    }

    fn next_status(&self, numbers: Numbers) -> Judgement {
        let next = self.stat_sn;
        demand(numbers.stat_sn == next, || format!("StatSN is not {next:?}"))
    }

    /// ExpCmdSN and MaxCmdSN never go back, and say nothing of what was not sent.
    fn window(&mut self, numbers: Numbers) -> Judgement {
        let Numbers { exp_cmd_sn, max_cmd_sn, .. } = numbers;
        let next = self.cmd_sn;
        let known = !exp_cmd_sn.is_after(next) || self.shares();
        demand(known, || format!("ExpCmdSN is beyond {next:?}"))?;
        if let Some(joint) = &self.joint {
            joint.borrow_mut().told(max_cmd_sn);
        }
        let counted = |pdu: &&ScsiCommand| !pdu.immediate && exp_cmd_sn.is_after(pdu.cmd_sn);
        let gap = self.rejected.values().find(counted).map(|pdu| pdu.cmd_sn);
        demand(gap.is_none(), || format!("ExpCmdSN counts {gap:?}, which was rejected"))?;
        let closed = max_cmd_sn.plus(1).is_before(exp_cmd_sn);
        demand(!closed, || "MaxCmdSN is before ExpCmdSN - 1".to_owned())?;
        let before = self.told.replace((exp_cmd_sn, max_cmd_sn));
        let back =
            before.is_some_and(|(exp, max)| exp_cmd_sn.is_before(exp) || max_cmd_sn.is_before(max));
        demand(!back, || format!("the window goes back from {before:?}"))
    }
}

#[cfg(test)]
mod tests;
