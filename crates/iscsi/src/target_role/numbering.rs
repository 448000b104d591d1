// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Command numbering (RFC 7143 §4.2.2.1): requests are carried out in the order of their CmdSN, and
//! the window says how many may come.
//!
//! What comes before its turn waits in the window. SCSI commands wait as tasks, which own their
//! immediate data; other PDUs as they came, within a bound on their bytes.

use super::limits;
use super::names::ConnectionId;
use super::pdu::Pdu;
use crate::datamover::TaskId;
use crate::serial::Serial;
use crate::violation::Violation;
use crate::window::Position;
use crate::window::Window;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wire::iscsi::CmdSn;
use wire::iscsi::Request;

/// The command window of a session.
#[derive(Debug)]
pub(super) struct Numbering {
    window: Window<Held>,
    /// Bytes of PDUs in `window`.
    held_bytes: usize,
    /// The MaxCmdSN that the initiator heard last, on whatever connection.
    told: CmdSn,
}

/// When a numbered request is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    /// Others come before it.
    Later,
}

/// What waits in the window for the commands before it.
#[derive(Debug)]
pub(super) enum Held {
    Command(TaskId),
    Other(Box<HeldPdu>),
}

#[derive(Debug)]
pub(super) struct HeldPdu {
    connection: ConnectionId,
    request: Request,
    header: Vec<u8>,
    data: Vec<u8>,
}

impl HeldPdu {
    /// As it came.
    pub(super) fn pdu(&self) -> Pdu<'_> {
        Pdu { connection: self.connection, header: &self.header, data: &self.data }
    }

    pub(super) const fn request(&self) -> &Request {
        &self.request
    }

    fn bytes(&self) -> usize {
        self.header.len() + self.data.len()
    }
}

impl Numbering {
    /// An open window of `depth` commands from `exp` on.
    pub(super) fn new(exp: CmdSn, depth: u16) -> Self {
        let window = Window::new(exp, depth);
        Self { held_bytes: 0, told: window.max(), window }
    }

    /// Lets the initiator send as many commands as there is room for.
    #[inline]
    pub(super) fn open(&mut self, running: u16, draining: u16) {
        let depth = u32::from(self.window.depth());
        let used = u32::from(running) + u32::from(draining);
        let allowed =
            depth.saturating_sub(u32::from(running)).min((2 * depth).saturating_sub(used));
        self.window.open(u16::try_from(allowed).unwrap_or(u16::MAX));
    }

    /// When the request `cmd_sn` is carried out.
    #[inline]
    pub(super) fn turn(&self, cmd_sn: CmdSn) -> Result<Turn, Violation> {
        match self.window.position(cmd_sn) {
            Position::Outside => Err(Violation::OutsideWindow(cmd_sn)),
            Position::Duplicate => Err(Violation::DuplicateCommand(cmd_sn)),
            Position::Next => Ok(Turn::Now),
            Position::Ahead => Ok(Turn::Later),
        }
    }

    /// The request whose turn it is is taken.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.window.advance();
    }

    /// What was taken last was rejected: it counts as not received (RFC 7143 §7.3).
    pub(super) fn retreat(&mut self) {
        self.window.retreat();
    }

    /// Keeps a command of the window until its turn.
    pub(super) fn hold_command(&mut self, cmd_sn: CmdSn, task: TaskId) {
        let held = self.window.hold(cmd_sn, Held::Command(task));
        debug_assert!(held, "a command is held at a hole of the window");
    }

    /// Keeps a PDU until the hole before it is filled.
    pub(super) fn hold_pdu(
        &mut self,
        pdu: &Pdu<'_>,
        request: Request,
        cmd_sn: CmdSn,
    ) -> Result<(), Violation> {
        let bytes = pdu.header.len() + pdu.data.len();
        if self.held_bytes + bytes > limits::HELD_BYTES_MAX {
            return Err(Violation::TextTooLong);
        }
        let (header, data) = (pdu.header.to_vec(), pdu.data.to_vec());
        let held = HeldPdu { connection: pdu.connection, request, header, data };
        let held = self.window.hold(cmd_sn, Held::Other(Box::new(held)));
        debug_assert!(held, "a PDU is held at a hole of the window");
        self.held_bytes += bytes;
        Ok(())
    }

    /// What no hole holds back any more.
    #[inline]
    pub(super) fn next(&mut self) -> Option<&Held> {
        self.window.peek()
    }

    /// Takes [what is next](Self::next).
    pub(super) fn take_next(&mut self) -> Option<Held> {
        let held = self.window.pop();
        if let Some(Held::Other(held)) = &held {
            self.held_bytes -= held.bytes();
        }
        held
    }

    /// Takes a command that waits out of turn: its number counts as received.
    pub(super) fn take_command(&mut self, cmd_sn: CmdSn) -> Option<TaskId> {
        match self.window.take(cmd_sn) {
            Some(Held::Command(task)) => Some(task),
            Some(Held::Other(held)) => {
                debug_assert!(false, "the number of a command is that of {:?}", held.request);
                self.held_bytes -= held.bytes();
                None
            }
            None => None,
        }
    }

    /// A command that is missing counts as received from now on. False if it is not missing.
    pub(super) fn plug(&mut self, cmd_sn: CmdSn) -> bool {
        let plugged = self.window.plug(cmd_sn);
        if plugged {
            // Steps over the plug, so that an answer shows it.
            self.window.peek();
        }
        plugged
    }

    /// All commands before `cmd_sn` that have not come count as received.
    pub(super) fn plug_before(&mut self, cmd_sn: CmdSn) {
        let first = self.window.exp();
        let missing = cmd_sn.steps_from(first);
        if missing <= self.window.size() {
            for step in 0..missing {
                self.window.plug(first.plus(step));
            }
        }
    }

    /// What waits of a connection that is gone counts as not received (RFC 7143 §11.14). `owns`:
    /// whether a task is its.
    pub(super) fn forget_connection(&mut self, id: ConnectionId, owns: impl Fn(TaskId) -> bool) {
        let forgotten = self.window.forget(|held| match held {
            Held::Command(task) => owns(*task),
            Held::Other(held) => held.connection == id,
        });
        for held in forgotten {
            if let Held::Other(held) = held {
                self.held_bytes -= held.bytes();
            }
        }
    }

    /// ExpCmdSN and MaxCmdSN, for a PDU that leaves: the initiator hears of them.
    #[inline]
    pub(super) fn tell(&mut self) -> (CmdSn, CmdSn) {
        self.told = self.window.max();
        (self.window.exp(), self.told)
    }

    /// What the initiator has heard for certain: others may not have arrived.
    pub(super) fn confirm_told(&mut self, max: CmdSn) {
        self.told = max;
    }

    /// True for a window that was closed when the initiator heard of it last, and is open (RFC 7143
    /// §11.4.11).
    #[inline]
    pub(super) fn is_news(&self) -> bool {
        self.window.exp().is_after(self.told) && self.window.max().is_after(self.told)
    }

    #[inline]
    pub(super) const fn exp(&self) -> CmdSn {
        self.window.exp()
    }

    #[inline]
    pub(super) const fn max(&self) -> CmdSn {
        self.window.max()
    }

    /// True if the initiator may send nothing but immediate commands.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.window.size() == 0
    }

    /// Panics if an invariant does not hold. `running`: commands that have been taken.
    pub(super) fn check(&self, running: u16) {
        self.window.check();
        let depth = u32::from(self.window.depth());
        assert!(u32::from(running) + self.window.size() <= depth, "more commands than the depth");
        assert!(self.held_bytes <= limits::HELD_BYTES_MAX, "bytes behind a hole");
        assert!(!self.told.is_after(self.window.max()), "told of a window that never was");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use wire::iscsi::Itt;
    use wire::iscsi::LunField;
    use wire::iscsi::NopOut;
    use wire::iscsi::StatSn;
    use wire::iscsi::Ttt;

    const OWN: ConnectionId = ConnectionId(0);
    const OTHER: ConnectionId = ConnectionId(1);

    fn nop() -> Request {
        Request::NopOut(NopOut {
            immediate: false,
            lun: LunField::default(),
            itt: Itt(1),
            ttt: Ttt::NONE,
            cmd_sn: CmdSn(2),
            exp_stat_sn: StatSn(0),
        })
    }

    fn hold(
        numbering: &mut Numbering,
        connection: ConnectionId,
        cmd_sn: u32,
        bytes: usize,
    ) -> bool {
        let data = vec![0; bytes];
        let pdu = Pdu { connection, header: &[], data: &data };
        numbering.hold_pdu(&pdu, nop(), CmdSn(cmd_sn)).is_ok()
    }

    #[test]
    fn bytes_of_what_waits_are_bounded_and_given_back() {
        let mut numbering = Numbering::new(CmdSn(1), 8);
        assert!(hold(&mut numbering, OWN, 2, limits::HELD_BYTES_MAX - 1));
        assert!(!hold(&mut numbering, OWN, 3, 2));
        assert!(hold(&mut numbering, OTHER, 3, 1));
        numbering.forget_connection(OWN, |_| false);
        assert_eq!(numbering.held_bytes, 1);
        numbering.plug_before(CmdSn(3));
        assert!(matches!(numbering.take_next(), Some(Held::Other(held)) if held.pdu().data == [0]));
        assert_eq!((numbering.held_bytes, numbering.exp()), (0, CmdSn(4)));
        numbering.check(0);
    }

    #[test]
    fn a_window_is_news_once_it_opens() {
        let mut numbering = Numbering::new(CmdSn(1), 1);
        numbering.advance();
        numbering.open(1, 0);
        assert!(numbering.is_closed() && !numbering.is_news());
        numbering.open(0, 0);
        assert!(numbering.is_news());
        assert_eq!(numbering.tell(), (CmdSn(2), CmdSn(2)));
        assert!(!numbering.is_news());
        numbering.confirm_told(CmdSn(1));
        assert!(numbering.is_news());
        numbering.check(0);
    }
}
