// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One path: what it is asked before it carries anything, and what it is known to be.
//!
//! ```text
//! Lost --session is up--> Asking: Make, Names, [Groups,] Ready, Size, Mode --same--> Usable
//!   ^                       |                                                       |
//!   +-------session is lost-+---another disk--> Refused                access is lost or changes:
//!                                                                        Asking: Groups, Ready
//!                                                                      modes may have changed:
//!                                                                        Asking: Ready, Size, Mode
//!                                                                      the unit is gone:
//!                                                                        Asking: Make
//!                           |
//!                           +---not ready, no size--> Asking: Ready
//! ```

use std::fmt;
use std::net::SocketAddr;

use clock::Instant;
use wire::iscsi::Cdb;
use wire::scsi::Sense;
use wire::scsi::SenseKey;
use wire::scsi::alua;
use wire::scsi::alua::AccessState;
use wire::scsi::capacity::Capacity;
use wire::scsi::command;
use wire::scsi::inquiry::PortGroups;
use wire::scsi::inquiry::Standard;
use wire::scsi::mode;
use wire::scsi::opcode::Opcode;
use wire::scsi::sam::BUSY;
use wire::scsi::sam::TASK_ABORTED;
use wire::scsi::sam::TASK_SET_FULL;
use wire::scsi::vpd;
use wire::scsi::vpd::Designator;

use crate::Data;
use crate::Error;
use crate::Generation;
use crate::Kind;
use crate::Retry;
use crate::SessionId;
use crate::limits;
use crate::modes::Mode;
use crate::scsi;

/// What a path is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Whether the unit has target port groups.
    Make,
    /// Which unit it is, and in which group its port is.
    Names,
    /// In which state that group is.
    Groups,
    /// Nothing: unit attentions that wait are taken.
    Ready,
    /// How large it is: names alone may lie.
    Size,
    /// The same of a unit that does not know that command.
    ShortSize,
    /// What it promises of its cache, and whether it takes writes.
    Mode,
}

impl Question {
    pub(super) fn command(self) -> (Cdb, Data) {
        let room = limits::IDENTITY_BYTES;
        let length = u16::try_from(room).unwrap_or(u16::MAX);
        match self {
            Self::Make => (command::inquiry(None, 255), Data::In(255)),
            Self::Names => {
                (command::inquiry(Some(vpd::DEVICE_IDENTIFICATION), length), Data::In(room))
            }
            Self::Groups => (command::report_target_port_groups(room), Data::In(room)),
            Self::Ready => (command::plain(Opcode::TEST_UNIT_READY), Data::None),
            Self::Size => (command::read_capacity_16(32), Data::In(32)),
            Self::ShortSize => (command::plain(Opcode::READ_CAPACITY_10), Data::In(8)),
            Self::Mode => (command::mode_sense_6(mode::ALL_PAGES, 255), Data::In(255)),
        }
    }
}

/// What a path can be used for.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// There is no session.
    Lost,
    /// The question is under way, or is to be asked again.
    Asking(Question),
    /// Commands go over it as far as its access allows.
    Usable,
    /// It leads to another disk.
    Refused,
}

/// A path.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) session: SessionId,
    pub(super) lun: u16,
    /// What a process before this one has left on its way there ends with the first session.
    pub(super) takes_over: bool,
    /// Where its session is.
    pub(super) peer: Option<SocketAddr>,
    pub(super) state: State,
    pub(super) access: AccessState,
    pub(super) preferred: bool,
    /// The target port group of its port, of a unit that has such.
    group: Option<u16>,
    has_groups: bool,
    /// What it has told of size and modes, since they may have changed, has been compared with what
    /// the others tell.
    pub(super) is_measured: bool,
    /// What was told over it last. Of one that is lost, too: what went over it is not forgotten.
    pub(super) mode: Option<Mode>,
    /// Requests under way on it.
    pub(super) under_way: usize,
    /// The unit's as this nexus has heard of it last.
    pub(super) seen: Generation,
    /// When a question is asked, or the session tried again.
    pub(super) due: Option<Instant>,
    /// A question is under way.
    pub(super) is_asked: bool,
    /// Why it is not used.
    pub(super) error: Option<Error>,
    /// The target says that there is no such unit.
    pub(super) is_gone: bool,
    /// It was usable before.
    pub(super) was_usable: bool,
    /// That it is of no use was told.
    pub(super) is_told: bool,
    /// Its nexus knows what the unit was like at some time before.
    pub(super) has_heard: bool,
    /// Its session has ended for good.
    pub(super) is_over: bool,
}

impl Path {
    pub(super) fn new(session: SessionId, lun: u16) -> Self {
        Self {
            session,
            lun,
            takes_over: false,
            peer: None,
            state: State::Lost,
            access: AccessState::ActiveOptimized,
            preferred: false,
            group: None,
            has_groups: false,
            is_measured: false,
            mode: None,
            under_way: 0,
            seen: Generation::default(),
            due: None,
            is_asked: false,
            error: None,
            is_gone: false,
            was_usable: false,
            is_told: false,
            has_heard: false,
            is_over: false,
        }
    }

    /// How well commands go over it, the lower the better; None: not at all.
    pub(super) fn rank(&self) -> Option<u8> {
        let is_usable = matches!(self.state, State::Usable);
        match (self.access, self.preferred) {
            _ if !is_usable => None,
            (AccessState::ActiveOptimized, _) => Some(0),
            (AccessState::ActiveNonOptimized, true) => Some(1),
            (AccessState::ActiveNonOptimized, false) => Some(2),
            _ => None,
        }
    }

    /// Whether something of a process before this one may still come.
    pub(super) const fn is_inherited(&self) -> bool {
        self.takes_over && self.peer.is_none()
    }

    /// Whether the unit may be asked for its groups.
    pub(super) const fn has_groups(&self) -> bool {
        self.has_groups && self.group.is_some()
    }

    /// Whether it is used, and is being asked what may have changed.
    pub(super) fn is_to_tell(&self) -> bool {
        self.was_usable && !self.is_measured && matches!(self.state, State::Asking(_))
    }

    /// The unit is asked from the beginning.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.has_groups, self.group, self.preferred) = (false, None, false);
        (self.is_measured, self.is_gone) = (false, false);
        self.access = AccessState::ActiveOptimized;
        self.ask(Question::Make, now);
    }

    pub(super) fn ask(&mut self, question: Question, at: Instant) {
        self.state = State::Asking(question);
        self.due = Some(at);
    }

    /// There is no session any more.
    pub(super) fn lose(&mut self, error: Error) {
        (self.state, self.due, self.is_asked) = (State::Lost, None, false);
        self.error = Some(error);
    }

    /// Takes what the unit says of its make; false: there is none (SPC-4 §6.6.2).
    pub(super) fn hear_make(&mut self, data: &[u8]) -> bool {
        let standard = Standard::parse(data);
        let is_there = standard.as_ref().is_none_or(|made| made.peripheral >> 5 == 0);
        self.has_groups = standard.is_some_and(|made| made.port_groups != PortGroups::None);
        self.is_gone = !is_there;
        is_there
    }

    /// The unit does not tell of groups, whatever it said: what it does with commands shows its
    /// access.
    pub(super) const fn forget_groups(&mut self) {
        self.has_groups = false;
    }

    /// Takes what names the unit and its port.
    pub(super) fn hear_names(&mut self, data: &[u8]) -> Vec<Designator> {
        let content = vpd::content(data, vpd::DEVICE_IDENTIFICATION).unwrap_or_default();
        let names = vpd::designators(content);
        self.group = names.iter().find_map(|name| match name {
            Designator::TargetPortGroup(group) => Some(*group),
            _ => None,
        });
        names
    }

    /// Takes the states of groups; one that is not told of has a state that is not built, and is
    /// not used.
    pub(super) fn hear_groups(&mut self, data: &[u8]) {
        let Some((_, groups)) = alua::parse(data) else { return };
        let own = groups.iter().find(|group| Some(group.number) == self.group);
        (self.access, self.preferred) = match own {
            Some(group) => (group.state, group.preferred),
            None => (AccessState::Unavailable, false),
        };
    }
}

/// What a unit that is NOT READY says of the way to it (SPC-4 §5.15.2.4).
pub(super) fn access_of(error: &Error) -> Option<AccessState> {
    let sense = error.sense().filter(|sense| sense.key == SenseKey::NotReady && !sense.deferred)?;
    match (sense.asc, sense.ascq) {
        (0x04, 0x0a) => Some(AccessState::Transitioning),
        (0x04, 0x0b) => Some(AccessState::Standby),
        (0x04, 0x0c) => Some(AccessState::Unavailable),
        _ => None,
    }
}

/// Whether the unit has not taken a command now, and may take it later, or over another path.
pub(super) fn is_busy(error: &Error, retry: Retry) -> bool {
    let Kind::Status { status, .. } = error.kind() else { return false };
    let sense = error.sense().filter(|sense| !sense.deferred);
    match *status {
        BUSY | TASK_SET_FULL => true,
        // It may have been carried out in part.
        TASK_ABORTED => retry == Retry::Always,
        _ => sense.is_some_and(|sense| {
            sense.key == SenseKey::UnitAttention || scsi::is_becoming_ready(sense)
        }),
    }
}

/// Whether the target has no such unit behind this path: LOGICAL UNIT NOT SUPPORTED.
pub(super) fn is_gone(error: &Error) -> bool {
    error.sense().is_some_and(|sense| {
        let code = (sense.asc, sense.ascq);
        sense.key == SenseKey::IllegalRequest && !sense.deferred && code == (0x25, 0x00)
    })
}

/// The same, where the unit was not asked for anything that could fail.
pub(super) fn gone() -> Error {
    Error::new(Kind::NotADisk("the target has no such logical unit".into()))
}

/// How large a unit says it is: the bytes of a block, and its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) block: u32,
    pub(super) blocks: u64,
}

impl Size {
    /// By the answer to one of the questions for it.
    pub(super) fn of(question: Question, data: &[u8]) -> Option<Self> {
        let (last, block) = match question {
            Question::Size => {
                let capacity = Capacity::parse_16(data)?;
                (capacity.last_lba, capacity.block_length)
            }
            _ => {
                let (last, block) = Capacity::parse_10(data)?;
                (last.into(), block)
            }
        };
        Some(Self { block, blocks: last.saturating_add(1) })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks of {} bytes", self.blocks, self.block)
    }
}

/// Behind which other modes may be in force: PARAMETERS CHANGED, MODE PARAMETERS CHANGED, and any
/// reset but the loss of a nexus.
pub(super) const fn is_of_modes(sense: Sense) -> bool {
    match (sense.asc, sense.ascq) {
        (0x29, ascq) => ascq != 0x07,
        code => matches!(code, (0x2a, 0x00 | 0x01)),
    }
}

/// ASYMMETRIC ACCESS STATE CHANGED, IMPLICIT ASYMMETRIC ACCESS STATE TRANSITION FAILED.
pub(super) const fn is_of_access(sense: Sense) -> bool {
    matches!((sense.asc, sense.ascq), (0x2a, 0x06 | 0x07))
}
