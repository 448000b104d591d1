// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an application posts and what it is told: the entries of the work and the event queue.

use std::fmt;
use std::net::SocketAddr;

use buf::Buf;
use buf::Slice;
use iscsi::initiator::discovery::Discovered;
use wire::iscsi::Cdb;
use wire::iscsi::Isid;
use wire::iscsi::LunField;
use wire::scsi::Sense;
use wire::scsi::opcode::Opcode;
use wire::scsi::opcode::READ_32;

use crate::Error;
use crate::Fate;
use crate::Generation;
use crate::PathChange;

/// Names a session of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl slots::Id for SessionId {
    const BY_AGE: bool = true;

    fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    fn index(self) -> u32 {
        self.index
    }

    fn generation(self) -> u32 {
        self.generation
    }
}

/// One SCSI command.
#[derive(Debug)]
pub struct Request {
    /// Logical unit.
    pub lun: u16,
    /// What to do.
    pub cdb: Cdb,
    /// Data for the unit, or room for data from it.
    pub data: Data,
    /// What may be done if it is not known how it ended.
    pub retry: Retry,
}

impl Request {
    /// Bytes that must have come with GOOD: blocks are read whole, while parameter data is as long
    /// as it is.
    pub(crate) fn least(&self) -> u32 {
        match self.data {
            Data::In(length) if self.retry != Retry::Never && reads_blocks(&self.cdb) => length,
            _ => 0,
        }
    }
}

/// Whether a command is a READ of blocks.
fn reads_blocks(cdb: &Cdb) -> bool {
    let [code, _, _, _, _, _, _, _, high, low, ..] = cdb.bytes;
    match Opcode(code) {
        Opcode::READ_6 | Opcode::READ_10 | Opcode::READ_12 | Opcode::READ_16 => true,
        Opcode::VARIABLE_LENGTH => u16::from_be_bytes([high, low]) == READ_32,
        _ => false,
    }
}

/// The data of a command.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // SCSI has no other; both at once is not built
pub enum Data {
    /// None.
    None,
    /// For the unit.
    Out(Slice),
    /// At most so many bytes from the unit. A READ of blocks must bring all of them, unless it is
    /// sent with [`Retry::Never`]: less is [`Kind::Short`](crate::Kind).
    In(u32),
}

/// What may be done about a command that did not get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // callers choose
pub enum Retry {
    /// Send it again: doing it twice is as good as doing it once. Also after a unit attention, BUSY
    /// and an abort by the target or by another host (TASK ABORTED).
    Always,
    /// Send it again only if it was certainly not carried out: before it was sent, after a unit
    /// attention, a deferred error, BUSY or TASK SET FULL.
    IfNotDone,
    /// Tell whatever the target says; send it again only if it was never sent.
    Never,
}

/// A task management function over many tasks (RFC 7143 §11.5.1). The commands that it ends fail by
/// [`Kind::Ending`](crate::Kind) or by a status of the target, before its own answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // those of the standard that are about more than one task
pub enum Management {
    /// ABORT TASK SET: ends the commands of this session for the unit.
    AbortTaskSet(u16),
    /// CLEAR TASK SET: ends the commands of all sessions for the unit.
    ClearTaskSet(u16),
    /// LOGICAL UNIT RESET, which ends the commands of all sessions too.
    LogicalUnitReset(u16),
    /// TARGET WARM RESET: resets all units of the target.
    TargetWarmReset,
}

/// How a command ended well: by GOOD or CONDITION MET.
#[derive(Debug)]
pub struct Done {
    /// What came, if the command asked for data; as long as it is.
    pub data: Option<Buf>,
    /// In which generation of the unit it did: another one begins whenever what the unit had not
    /// brought to stable storage may have been lost ([`Ledger`](crate::Ledger)).
    pub generation: Generation,
}

/// Something that a target does otherwise than RFC 7143 says, and that does no harm here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Oddity {
    /// Login Responses name another ISID than the request (RFC 7143 §11.13).
    Isid {
        /// Of the request.
        asked: Isid,
        /// Of the response.
        got: Isid,
    },
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Isid { asked, got } => {
                f.write_str("the target answers the login with the session id ")?;
                got.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str(" instead of ")?;
                asked.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str(" (RFC 7143 11.13); going on")
            }
        }
    }
}

/// What a queue tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A request has ended.
    Done {
        /// Where.
        session: SessionId,
        /// As it was posted.
        tag: u64,
        /// How.
        result: Result<Done, Error>,
    },
    /// The session is logged in, for the first time or again.
    Up {
        /// Which.
        session: SessionId,
        /// The portal.
        peer: SocketAddr,
    },
    /// A command was not answered in time; its end follows.
    Overdue {
        /// Which session.
        session: SessionId,
        /// The tag of its request.
        tag: u64,
        /// Which command it is, and what is done about it now ([`Kind::Overdue`](crate::Kind)).
        error: Error,
    },
    /// A command is not carried out, for some time by now, and goes on being tried; why is told
    /// for each unit, and again after ten seconds.
    Again {
        /// Which session.
        session: SessionId,
        /// The tag of its request.
        tag: u64,
        /// Which command it is, and what the target says.
        error: Error,
    },
    /// A unit tells, in answer to another command, that something has failed which it had
    /// acknowledged: a deferred error (SPC-4 §4.5.7), as a rule of a write that was in its cache.
    /// What was not flushed may be lost ([`Done::generation`]). The command that met it is sent
    /// again, where that may be.
    Deferred {
        /// Which session.
        session: SessionId,
        /// Which unit, and what it says.
        error: Error,
    },
    /// A unit is not accessible over the portal of the session, which moves to another one; told
    /// once for each unit in ten seconds.
    Elsewhere {
        /// Which session.
        session: SessionId,
        /// The tag of the request that met it.
        tag: u64,
        /// Which command it is, and what the unit says.
        error: Error,
    },
    /// The target does something odd; all goes on.
    Oddity {
        /// Which session.
        session: SessionId,
        /// What.
        oddity: Oddity,
    },
    /// Something went wrong with an RDMA adapter, or on its way, which ends a connection.
    Adapter {
        /// Which session.
        session: SessionId,
        /// What.
        error: verbs::VerbsError,
    },
    /// A unit has told of a change (unit attention, SPC-4 §5.14), in answer to a command that is
    /// sent again where it may be.
    Attention {
        /// Which session.
        session: SessionId,
        /// Its unit.
        lun: u16,
        /// What it tells.
        sense: Sense,
    },
    /// A unit may have lost what it had acknowledged and not brought to stable storage. Comes
    /// before the end of any command that was carried out after that.
    MayHaveLost {
        /// Which session.
        session: SessionId,
        /// Its unit.
        lun: u16,
        /// Why: [`Fate::Reset`] or [`Fate::Failed`].
        fate: Fate,
    },
    /// The connection was lost; another one is being made.
    Down {
        /// Which.
        session: SessionId,
        /// Why.
        error: Error,
    },
    /// One path out of several ([`crate::Paths`]) is lost, back, or in another state.
    Path {
        /// Of all paths.
        session: SessionId,
        /// Which one, counted from zero.
        path: usize,
        /// What has happened.
        change: PathChange,
    },
    /// A session has taken the place of a lost one, of which nothing can come about any more.
    #[doc(hidden)]
    Settled {
        /// Which.
        session: SessionId,
    },
    /// The session is over; each of its requests has ended before.
    Ended {
        /// Which.
        session: SessionId,
        /// Why; None: as asked for.
        error: Option<Error>,
    },
    /// What a discovery session has found.
    Targets {
        /// Which.
        session: SessionId,
        /// The targets.
        result: Result<Vec<Discovered>, Error>,
    },
    /// A task management function has ended ([`crate::Queue::post_management`]).
    Managed {
        /// Where.
        session: SessionId,
        /// As it was posted.
        tag: u64,
        /// How.
        result: Result<(), Error>,
    },
    /// A longest data segment that was declared ([`crate::Queue::declare_segment`]) is in force on
    /// all connections, or that before still is.
    Declared {
        /// Which session.
        session: SessionId,
        /// How it went.
        result: Result<(), Error>,
    },
    /// A unit has something to tell (asynchronous event 0), as sense data.
    Asynchronous {
        /// Which session.
        session: SessionId,
        /// Its unit.
        lun: LunField,
        /// Sense data.
        sense: Vec<u8>,
    },
}

impl Event {
    /// The session that it is about.
    pub(crate) const fn session_mut(&mut self) -> &mut SessionId {
        match self {
            Self::Done { session, .. }
            | Self::Up { session, .. }
            | Self::Overdue { session, .. }
            | Self::Again { session, .. }
            | Self::Deferred { session, .. }
            | Self::Elsewhere { session, .. }
            | Self::Oddity { session, .. }
            | Self::Adapter { session, .. }
            | Self::Attention { session, .. }
            | Self::MayHaveLost { session, .. }
            | Self::Down { session, .. }
            | Self::Path { session, .. }
            | Self::Settled { session }
            | Self::Ended { session, .. }
            | Self::Targets { session, .. }
            | Self::Managed { session, .. }
            | Self::Declared { session, .. }
            | Self::Asynchronous { session, .. } => session,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_whole_and_parameter_data_is_not() {
        let least = |code, action: u16, retry| {
            let mut bytes = [0; 32];
            bytes[0] = code;
            bytes[8..10].copy_from_slice(&action.to_be_bytes());
            Request { lun: 0, cdb: Cdb { bytes, len: 32 }, data: Data::In(4096), retry }.least()
        };
        for (code, action, bytes) in [
            (0x08, 0, 4096),
            (0x28, 0, 4096),
            (0x88, 0, 4096),
            (0xa8, 0, 4096),
            (0x7f, 9, 4096),
            (0x7f, 11, 0),
            (0x12, 0, 0),
            (0x9e, 0, 0),
        ] {
            assert_eq!(least(code, action, Retry::Always), bytes, "{code:#x}");
            assert_eq!(least(code, action, Retry::IfNotDone), bytes, "{code:#x}");
            assert_eq!(least(code, action, Retry::Never), 0, "{code:#x}");
        }
    }
}
