// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logout (RFC 7143 §11.14-11.15): what a request comes to, and answers that wait for the SCSI
//! side.

use super::leaving::Leaving;
use super::names::ConnectionId;
use crate::violation::Violation;
use alloc::vec::Vec;
use wire::iscsi::Itt;
use wire::iscsi::LogoutRequest;

/// Reasons (RFC 7143 §11.14.1).
const CLOSE_SESSION: u8 = 0;
const CLOSE_CONNECTION: u8 = 1;
const RECOVER_CONNECTION: u8 = 2;

/// The answer to a logout (RFC 7143 §11.15.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Closed,
    CidNotFound,
    RecoveryNotSupported,
}

impl Answer {
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::CidNotFound => 1,
            Self::RecoveryNotSupported => 2,
        }
    }
}

/// How things stand when a Logout Request comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// The connection with the CID of the request.
    pub(super) named: Option<ConnectionId>,
    /// Open connections.
    pub(super) connections: usize,
    /// ErrorRecoveryLevel lets tasks outlive their connection.
    pub(super) reassigns: bool,
    /// They would outlive the named one.
    pub(super) retains: bool,
    /// Tasks of lost connections are waited for.
    pub(super) has_lost: bool,
}

/// What a Logout Request comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    EndSession,
    Close {
        connection: ConnectionId,
        leaving: Leaving,
    },
    /// The named connection is not there: it may be lost, and its tasks not.
    CloseAbsent(Leaving),
    Refuse(Answer),
}

/// What can be wrong with a Logout Request of a session that is for `discovery` only, or not.
pub(super) fn check(request: &LogoutRequest, discovery: bool) -> Result<(), Violation> {
    match request.reason {
        CLOSE_SESSION => Ok(()),
        CLOSE_CONNECTION | RECOVER_CONNECTION if discovery => Err(Violation::NotInDiscovery),
        CLOSE_CONNECTION | RECOVER_CONNECTION => Ok(()),
        reason => Err(Violation::UnknownLogoutReason(reason)),
    }
}

/// What a Logout Request comes to. Closing the last connection closes the session.
pub(super) fn course(request: &LogoutRequest, standing: &Standing) -> Course {
    let others = standing.connections > 1;
    match (request.reason, standing.named) {
        (RECOVER_CONNECTION, _) if !standing.reassigns => {
            Course::Refuse(Answer::RecoveryNotSupported)
        }
        (RECOVER_CONNECTION, Some(connection)) if others || standing.retains => {
            Course::Close { connection, leaving: Leaving::Recoverable }
        }
        (RECOVER_CONNECTION, None) => Course::CloseAbsent(Leaving::Recoverable),
        (CLOSE_CONNECTION, None) => Course::CloseAbsent(Leaving::Closed),
        (CLOSE_CONNECTION, Some(connection)) if others || standing.has_lost => {
            Course::Close { connection, leaving: Leaving::Closed }
        }
        _ => Course::EndSession,
    }
}

/// A logout that is to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logout {
    /// Where the request came and the answer goes.
    pub(super) connection: ConnectionId,
    pub(super) itt: Itt,
    /// How the connection leaves; None: the session ends.
    pub(super) leaving: Option<Leaving>,
}

/// Logouts that wait for the SCSI side.
#[derive(Debug, Default)]
pub(super) struct Logouts {
    /// Each with the id of the question to the SCSI side.
    waiting: Vec<(u32, Logout)>,
    next_id: u32,
}

impl Logouts {
    /// Waits until nothing of the tasks that have ended is left; gives the id of the question.
    pub(super) fn wait(&mut self, logout: Logout) -> u32 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.waiting.push((id, logout));
        id
    }

    /// The SCSI side has answered the question `id`. None if its connection, or the
    /// session, has gone meanwhile.
    pub(super) fn quiesced(&mut self, id: u32) -> Option<Logout> {
        let at = self.waiting.iter().position(|(waiting, _)| *waiting == id)?;
        Some(self.waiting.remove(at).1)
    }

    /// Logouts that a lost connection asked for need no answer any more.
    pub(super) fn forget_connection(&mut self, id: ConnectionId) {
        self.waiting.retain(|(_, logout)| logout.connection != id);
    }

    /// Nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The session has ended.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Whether this is the tag of a logout that is not answered yet.
    pub(super) fn has(&self, itt: Itt) -> bool {
        self.waiting.iter().any(|(_, logout)| logout.itt == itt)
    }

    /// Panics if an invariant does not hold. `lives`: whether a connection is open.
    pub(super) fn check(&self, lives: impl Fn(ConnectionId) -> bool) {
        let mut all = self.waiting.iter();
        assert!(
            all.all(|(_, logout)| lives(logout.connection)),
            "a logout outlived its connection"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::iscsi::Cid;
    use wire::iscsi::CmdSn;
    use wire::iscsi::StatSn;

    const OWN: ConnectionId = ConnectionId(0);

    fn request(reason: u8) -> LogoutRequest {
        LogoutRequest {
            immediate: true,
            reason,
            itt: Itt(1),
            cid: Cid(1),
            cmd_sn: CmdSn(1),
            exp_stat_sn: StatSn(1),
        }
    }

    #[test]
    fn what_a_logout_comes_to() {
        let alone = Standing {
            named: Some(OWN),
            connections: 1,
            reassigns: true,
            retains: false,
            has_lost: false,
        };
        let absent = Standing { named: None, ..alone };
        let close = |leaving| Course::Close { connection: OWN, leaving };
        let refused = Course::Refuse(Answer::RecoveryNotSupported);
        let table = [
            (CLOSE_SESSION, alone, Course::EndSession),
            (CLOSE_CONNECTION, alone, Course::EndSession),
            (CLOSE_CONNECTION, Standing { connections: 2, ..alone }, close(Leaving::Closed)),
            (CLOSE_CONNECTION, Standing { has_lost: true, ..alone }, close(Leaving::Closed)),
            (CLOSE_CONNECTION, absent, Course::CloseAbsent(Leaving::Closed)),
            (RECOVER_CONNECTION, Standing { reassigns: false, ..alone }, refused),
            (RECOVER_CONNECTION, alone, Course::EndSession),
            (RECOVER_CONNECTION, Standing { retains: true, ..alone }, close(Leaving::Recoverable)),
            (RECOVER_CONNECTION, absent, Course::CloseAbsent(Leaving::Recoverable)),
        ];
        for (reason, standing, expected) in table {
            assert_eq!(course(&request(reason), &standing), expected, "{reason} {standing:?}");
        }
    }
}
