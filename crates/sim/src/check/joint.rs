// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the connections of one session have in common: keys, and the numbers of commands.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use iscsi::serial::Serial;
use wire::iscsi::CmdSn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::ScsiCommand;

use super::Judgement;
use super::demand;
use super::keys::Keys;
use super::task::Task;

/// So many commands are remembered: more than come while one of them waits for a cluster that is
/// away, and may be reassigned then.
const REMEMBERED: usize = 16_384;

/// All sessions, by the port of their target and its name for them.
pub(crate) type Sessions = BTreeMap<(usize, u16), Rc<RefCell<Joint>>>;

/// One session.
#[derive(Debug)]
pub(crate) struct Joint {
    /// What its first connection has agreed on.
    pub(super) keys: Keys,
    commands: BTreeMap<u32, ScsiCommand>,
    /// The last number that the target takes, as far as it has said on any connection.
    last: CmdSn,
    /// Units whose older commands a task management function has ended, on all connections.
    ended: Vec<(LunField, CmdSn)>,
}

impl Joint {
    pub(super) const fn new(keys: Keys, last: CmdSn) -> Self {
        Self { keys, commands: BTreeMap::new(), last, ended: Vec::new() }
    }

    /// Whether this command was sent before: then all of it is as it was (RFC 7143 §7.2.1).
    pub(super) fn command(&mut self, pdu: &ScsiCommand) -> Result<bool, String> {
        if pdu.immediate {
            return Ok(false);
        }
        if let Some(before) = self.commands.get(&pdu.cmd_sn.0) {
            let same = ScsiCommand { exp_stat_sn: pdu.exp_stat_sn, ..*before };
            return demand(*pdu == same, || format!("its number was used for {before:?}"))
                .map(|()| true);
        }
        self.commands.insert(pdu.cmd_sn.0, *pdu);
        if self.commands.len() > REMEMBERED {
            let oldest = self
                .commands
                .keys()
                .copied()
                .reduce(|a, b| if CmdSn(b).is_before(CmdSn(a)) { b } else { a });
            oldest.map(|oldest| self.commands.remove(&oldest));
        }
        Ok(false)
    }

    /// The length of the newest command with this tag.
    pub(super) fn length_of(&self, itt: Itt) -> Option<u32> {
        let of = self.commands.values().filter(|command| command.itt == itt);
        let newest = of.reduce(|a, b| if b.cmd_sn.is_before(a.cmd_sn) { a } else { b })?;
        Some(newest.expected_length)
    }

    /// A function has ended what was sent for a unit before it.
    pub(super) fn ends(&mut self, unit: (LunField, CmdSn)) {
        self.ended.push(unit);
    }

    /// Whether a function has ended the task.
    pub(super) fn has_ended(&self, task: &Task) -> bool {
        self.ended.iter().any(|(lun, before)| task.is_older(*lun, *before))
    }

    /// The target says how far it goes.
    pub(super) fn told(&mut self, last: CmdSn) {
        if last.is_after(self.last) {
            self.last = last;
        }
    }

    /// A number is taken.
    pub(super) fn takes(&self, got: CmdSn) -> Judgement {
        let last = self.last;
        demand(!got.is_after(last), || format!("CmdSN {got:?} is beyond {last:?}"))
    }
}
