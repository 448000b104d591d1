// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Letters between reactors, and from the daemon to them. Never on the way of a command.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use capture::Trace;
use engine::FileRefused;
use scsi::LogicalUnit;
use store::FileId;
use wire::iscsi::Tsih;

use super::Handover;
use super::OurEnd;
use crate::catalogue::Nodes;
use crate::catalogue::OutdatedSession;
use crate::ends::Ends;
use crate::figures::Figures;
use crate::registry::Identity;
use crate::stores::StoreFile;
use crate::table::Key;

/// A letter to a reactor.
#[derive(Debug)]
pub(crate) enum Letter {
    /// A connection to take over.
    Connection {
        fd: OwnedFd,
        ends: Ends,
    },
    /// A connection over an adapter that wants to begin.
    Incoming(Box<dyn verbs::Asking>),
    /// A connection from this process to take over.
    Local {
        end: OurEnd,
        ends: Ends,
    },
    /// A login under way, for a session that lives here.
    TakeOver(Box<Handover>),
    /// End a session at once: a login on `reactor` reinstates it and waits in `connection`.
    Reinstate {
        identity: Identity,
        tsih: Tsih,
        reactor: usize,
        connection: Key,
    },
    /// A stranger must make room for others.
    Evict {
        connection: Key,
    },
    /// The session that `connection` waits for has gone.
    Vacated {
        connection: Key,
    },
    /// End all tasks of `units` here, for task management that `management` on `reactor` waits for.
    AbortUnits {
        units: Units,
        effect: Effect,
        whose: Whose,
        reactor: usize,
        management: Key,
    },
    /// `AbortUnits` is done.
    UnitsAborted {
        management: Key,
    },
    /// Initiators may have a new file's blocks asked for from now on.
    AddFile {
        file: StoreFile,
        reply: Sender<Result<(), FileRefused>>,
    },
    /// Nobody asks for blocks of this file any more.
    RemoveFile {
        id: FileId,
        reply: Sender<()>,
    },
    /// The units of a target are others now: all its sessions here see them.
    Remap {
        target: Arc<str>,
        reply: Sender<()>,
    },
    /// End the commands for `unit` that are under way here.
    EndTasks {
        unit: Arc<LogicalUnit>,
        reply: Sender<()>,
    },
    /// Answer when the work on `unit` that is under way here is done.
    Drain {
        unit: Arc<LogicalUnit>,
        reply: Sender<()>,
    },
    /// TARGET COLD RESET: end all sessions with this target.
    EndSessions {
        target: Arc<str>,
    },
    /// End the session with this TSIH; the answer has the number of the reactor.
    Drop {
        tsih: Tsih,
        reply: Sender<(usize, bool)>,
    },
    /// Ask the initiator of the session with this TSIH to log out within so many seconds.
    Logout {
        tsih: Tsih,
        seconds: u16,
        reply: Sender<(usize, bool)>,
    },
    /// Which sessions `nodes` would not let in; they are ended within so many seconds, if that is
    /// said, and the others have their terms from it from now on.
    Review {
        nodes: Arc<Nodes>,
        ending: Option<u16>,
        reply: Sender<Vec<OutdatedSession>>,
    },
    /// Take connections that come to this socket.
    Listen {
        fd: OwnedFd,
        address: SocketAddr,
        reply: Sender<()>,
    },
    /// Take none any more that come to this address; answer when its socket is closed.
    Unlisten {
        address: SocketAddr,
        reply: Sender<()>,
    },
    /// Tell a trace what connections carry, or no more.
    Trace {
        trace: Trace,
    },
    Untrace {
        trace: Trace,
    },
    /// What there is and what was counted.
    Figures {
        reply: Sender<Figures>,
    },
    /// Accept no more, ask initiators to log out, end what is left after `grace`, then leave.
    Stop {
        grace: Duration,
    },
}

/// Units that a function is for.
pub(crate) type Units = Arc<[Arc<LogicalUnit>]>;

/// Whose tasks are to end.
#[derive(Clone, Debug)]
pub(crate) enum Whose {
    /// Everybody's.
    All,
    /// Those of these initiator ports.
    Ports(Arc<[String]>),
}

impl Whose {
    pub(crate) fn includes(&self, nexus: &scsi::Nexus) -> bool {
        match self {
            Self::All => true,
            Self::Ports(ports) => ports.contains(&nexus.names().initiator_port),
        }
    }
}

/// What other nexuses notice of a task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// CLEAR TASK SET: 2F/00 for a nexus that lost tasks.
    Cleared,
    /// LOGICAL UNIT RESET and TARGET WARM RESET: the unit itself raises 29/03 for all.
    Reset,
    /// TARGET COLD RESET: no task is answered, and all sessions end.
    PowerOn,
}
