// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task management (RFC 7143 §4.2.3, §11.5-11.6).
//!
//! ```text
//!   ABORT TASK ------------------------------> WithScsi --done--> Answered --its turn--> sent
//!   the others --> Waiting --conditions met--> WithScsi --done--> Answered --its turn--> sent
//! ```
//!
//! *Waiting*: for every command with a lower CmdSN and, without FastAbort, for the end of the data
//! of the tasks concerned; commands of the LUN with a higher CmdSN stay in the window until the
//! SCSI side is done. *Answered*: where the answer is fenced, or others are, it gets in line
//! (`fence`).

use super::fence::Fence;
use super::limits;
use super::lun::lun_key;
use super::names::ConnectionId;
use super::output::Outputs;
use super::settings::TargetReset;
use crate::datamover::TaskId;
use crate::serial::Serial;
use crate::service::Function;
use crate::service::Indication;
use crate::service::Management;
use crate::service::ServiceResponse;
use crate::violation::Violation;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::CmdSn;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Numbers;
use wire::iscsi::ScsiCommand;
use wire::iscsi::TaskManagementRequest;
use wire::iscsi::TaskManagementResponse;

/// Functions (RFC 7143 §11.5.1).
const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_ACA: u8 = 3;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const TARGET_COLD_RESET: u8 = 7;
const TASK_REASSIGN: u8 = 8;

/// Functions of protocol level 2 (RFC 7144 §6.3).
const QUERY_TASK: u8 = 9;
const QUERY_TASK_SET: u8 = 10;
const I_T_NEXUS_RESET: u8 = 11;
const QUERY_ASYNCHRONOUS_EVENT: u8 = 12;

/// Responses (RFC 7143 §11.6.1, RFC 7144 §6.4).
pub(super) const FUNCTION_COMPLETE: u8 = 0;
pub(super) const TASK_DOES_NOT_EXIST: u8 = 1;
pub(super) const STILL_ALLEGIANT: u8 = 3;
pub(super) const REASSIGN_NOT_SUPPORTED: u8 = 4;
const FUNCTION_NOT_SUPPORTED: u8 = 5;
const AUTHORIZATION_FAILED: u8 = 6;
pub(super) const FUNCTION_REJECTED: u8 = 255;

/// The task management requests of a session that are not answered yet.
#[derive(Debug)]
pub(super) struct Managements {
    pending: Vec<Pending>,
    next_id: u32,
    /// iSCSIProtocolLevel.
    protocol_level: u8,
    /// Which resets of the whole target its initiator may ask for.
    target_reset: TargetReset,
}

/// What a task management request comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// The task decides.
    AbortTask,
    QueryTask,
    Reassign,
    /// It [waits](Managements::wait), then the SCSI side carries it out.
    CarryOut(Function),
    /// The same; it waits for no command that has not come (RFC 7143 §4.2.3.3 b).
    ResetTarget(Function),
    /// It is answered with this response, without the SCSI side.
    Refuse(u8),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    id: u32,
    connection: ConnectionId,
    itt: Itt,
    lun: LunField,
    cmd_sn: CmdSn,
    immediate: bool,
    /// None for one that was refused, and for TASK REASSIGN.
    function: Option<Function>,
    /// What is reassigned once the answer leaves.
    claim: Option<Claim>,
    stage: ManagementState,
}

/// What TASK REASSIGN was granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// The referenced task tag.
    pub(super) task: Itt,
    /// ExpDataSN.
    pub(super) from: DataSn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ManagementState {
    /// `until`: when data that still does not come is given up.
    Waiting {
        until: Instant,
    },
    WithScsi,
    /// The answer is in line.
    Answered {
        response: u8,
        additional: u32,
    },
}

impl Managements {
    pub(super) const fn new(protocol_level: u8, target_reset: TargetReset) -> Self {
        Self { pending: Vec::new(), next_id: 0, protocol_level, target_reset }
    }

    /// What a request comes to whose turn it is, or an immediate one.
    pub(super) fn course(
        &self,
        id: ConnectionId,
        request: &TaskManagementRequest,
    ) -> Result<Course, Violation> {
        let own = |pending: &Pending| pending.immediate && pending.connection == id;
        let full = self.immediate() >= usize::from(limits::IMMEDIATE_MANAGEMENT_MAX)
            && self.pending.iter().any(own);
        if request.immediate && full {
            return Err(Violation::TooManyImmediate);
        }
        let new = self.protocol_level >= 2;
        Ok(match request.function {
            ABORT_TASK => Course::AbortTask,
            ABORT_TASK_SET => Course::CarryOut(Function::AbortTaskSet),
            CLEAR_ACA => Course::CarryOut(Function::ClearAca),
            CLEAR_TASK_SET => Course::CarryOut(Function::ClearTaskSet),
            LOGICAL_UNIT_RESET => Course::CarryOut(Function::LogicalUnitReset),
            TARGET_WARM_RESET | TARGET_COLD_RESET => match self.permitted_reset(request) {
                Some(function) => Course::ResetTarget(function),
                None => Course::Refuse(AUTHORIZATION_FAILED),
            },
            QUERY_TASK if new => Course::QueryTask,
            QUERY_TASK_SET if new => Course::CarryOut(Function::QueryTaskSet),
            I_T_NEXUS_RESET if new => Course::CarryOut(Function::NexusReset),
            QUERY_ASYNCHRONOUS_EVENT if new => Course::CarryOut(Function::QueryAsynchronousEvent),
            TASK_REASSIGN => Course::Reassign,
            _ => Course::Refuse(FUNCTION_NOT_SUPPORTED),
        })
    }

    /// The reset of the whole target that is asked for, if this initiator may ask for it.
    pub(super) fn permitted_reset(&self, request: &TaskManagementRequest) -> Option<Function> {
        match request.function {
            TARGET_WARM_RESET if self.target_reset >= TargetReset::Warm => {
                Some(Function::TargetWarmReset)
            }
            TARGET_COLD_RESET if self.target_reset >= TargetReset::Cold => {
                Some(Function::TargetColdReset)
            }
            _ => None,
        }
    }

    /// A function waits for commands before it, and until `until` for data.
    pub(super) fn wait(
        &mut self,
        connection: ConnectionId,
        request: &TaskManagementRequest,
        function: Function,
        until: Instant,
    ) -> Pending {
        let stage = ManagementState::Waiting { until };
        self.push(Pending { function: Some(function), stage, ..pending(connection, request) })
    }

    /// Gives a function that has nothing to wait for to the SCSI side.
    pub(super) fn hand_over(
        &mut self,
        connection: ConnectionId,
        request: &TaskManagementRequest,
        function: Function,
        outputs: &mut Outputs,
    ) -> Pending {
        let stage = ManagementState::WithScsi;
        let new = Pending { function: Some(function), stage, ..pending(connection, request) };
        let new = self.push(new);
        let Pending { id, lun, .. } = new;
        outputs.indicate(Indication::Management(Management { id, function, lun }));
        new
    }

    /// A request has its response without the SCSI side; it leaves when its turn comes.
    pub(super) fn respond(
        &mut self,
        connection: ConnectionId,
        request: &TaskManagementRequest,
        response: u8,
        claim: Option<Claim>,
    ) -> Pending {
        let stage = ManagementState::Answered { response, additional: 0 };
        self.push(Pending { claim, stage, ..pending(connection, request) })
    }

    /// The SCSI side has carried the function `id` out. None if it does not have it: its connection
    /// has gone.
    pub(super) fn done(&mut self, id: u32, response: ServiceResponse) -> Option<Pending> {
        let with_scsi = |at: &&mut Pending| at.id == id && at.stage == ManagementState::WithScsi;
        let pending = self.pending.iter_mut().find(with_scsi)?;
        let additional = match response {
            ServiceResponse::Succeeded { additional } => additional,
            _ => 0,
        };
        pending.stage = ManagementState::Answered { response: response.code(), additional };
        Some(*pending)
    }

    /// The `nth` request, if it waits for others than commands, and until when.
    pub(super) fn waiting(&self, nth: usize, exp: CmdSn) -> Option<(Pending, Instant)> {
        let pending = self.pending.get(nth).copied()?;
        match pending.stage {
            // All commands below it have come (RFC 7143 §4.2.3.3).
            ManagementState::Waiting { until } if !exp.is_before(pending.cmd_sn) => {
                Some((pending, until))
            }
            _ => None,
        }
    }

    /// The `nth` request waits no longer: the SCSI side gets it.
    pub(super) fn act(&mut self, nth: usize, outputs: &mut Outputs) {
        let Some(pending) = self.pending.get_mut(nth) else { return };
        pending.stage = ManagementState::WithScsi;
        let Pending { id, function, lun, .. } = *pending;
        debug_assert!(function.is_some(), "what waits has a function");
        if let Some(function) = function {
            outputs.indicate(Indication::Management(Management { id, function, lun }));
        }
    }

    /// Takes a request whose answer leaves. None if it is not answered, or its connection has gone.
    pub(super) fn take_answered(&mut self, id: u32) -> Option<Pending> {
        let at = self.pending.iter().position(|pending| pending.id == id)?;
        self.pending.get(at).filter(|pending| pending.is_answered())?;
        Some(self.pending.remove(at))
    }

    /// Forgets the requests of a connection that is gone; gives those that held tasks back.
    pub(super) fn forget_connection(&mut self, id: ConnectionId) -> Vec<Pending> {
        let of = |pending: &Pending| pending.connection == id;
        let gone = self.pending.iter().filter(|at| of(at) && !at.is_answered());
        let gone = gone.copied().collect();
        self.pending.retain(|pending| !of(pending));
        gone
    }

    /// True while the answer to a TARGET COLD RESET is in line.
    pub(super) fn answers_cold_reset(&self) -> bool {
        let mut answered = self.pending.iter().filter(|pending| pending.is_answered());
        answered.any(|pending| pending.function == Some(Function::TargetColdReset))
    }

    pub(super) fn clear(&mut self) {
        self.pending.clear();
    }

    /// When one of them gives up waiting for data.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let deadlines = self.pending.iter().filter_map(|pending| match pending.stage {
            ManagementState::Waiting { until } if until > now => Some(until),
            _ => None,
        });
        deadlines.min()
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.pending.len()
    }

    /// Requests that take a place in the command window.
    #[inline]
    pub(super) fn numbered(&self) -> u16 {
        let numbered = self.pending.iter().filter(|pending| !pending.immediate).count();
        u16::try_from(numbered).unwrap_or(u16::MAX)
    }

    #[inline]
    pub(super) fn has(&self, itt: Itt) -> bool {
        self.pending.iter().any(|pending| pending.itt == itt)
    }

    pub(super) fn get(&self, id: u32) -> Option<&Pending> {
        self.pending.iter().find(|pending| pending.id == id)
    }

    /// True if its answer is in line.
    pub(super) fn is_answered(&self, id: u32) -> bool {
        self.get(id).is_some_and(Pending::is_answered)
    }

    /// True if the reassignment of this task is in line.
    pub(super) fn claims(&self, task: Itt) -> bool {
        let mut claims = self.pending.iter().filter_map(|pending| pending.claim);
        claims.any(|claim| claim.task == task)
    }

    /// True if a function for its LUN and with a lower CmdSN is under way: the SCSI side must not
    /// have the command yet.
    #[inline]
    pub(super) fn bar_command(&self, command: &ScsiCommand) -> bool {
        self.pending.iter().any(|pending| pending.bars(command.lun, command.cmd_sn))
    }

    /// True if a function for `lun` is under way.
    pub(super) fn bar_lun(&self, lun: LunField) -> bool {
        self.pending.iter().any(|pending| pending.bars(lun, pending.cmd_sn))
    }

    /// Panics if an invariant does not hold. `lives`: whether a connection is open.
    pub(super) fn check(&self, lives: impl Fn(ConnectionId) -> bool) {
        let most = usize::from(limits::IMMEDIATE_MANAGEMENT_MAX + limits::CONNECTIONS_MAX);
        assert!(self.immediate() <= most, "immediate requests");
        for (at, pending) in self.pending.iter().enumerate() {
            assert!(lives(pending.connection), "a request outlived its connection");
            assert!(pending.is_answered() || pending.function.is_some(), "waits for nothing");
            let mut before = self.pending.iter().take(at);
            assert!(before.all(|other| other.id != pending.id), "one request of an id");
        }
    }

    fn push(&mut self, new: Pending) -> Pending {
        let new = Pending { id: self.next_id, ..new };
        self.next_id = self.next_id.wrapping_add(1);
        self.pending.push(new);
        new
    }

    fn immediate(&self) -> usize {
        self.pending.iter().filter(|pending| pending.immediate).count()
    }
}

/// A request as it comes.
fn pending(connection: ConnectionId, request: &TaskManagementRequest) -> Pending {
    Pending {
        id: 0,
        connection,
        itt: request.itt,
        lun: request.lun,
        cmd_sn: request.cmd_sn,
        immediate: request.immediate,
        function: None,
        claim: None,
        stage: ManagementState::WithScsi,
    }
}

impl Pending {
    pub(super) const fn id(&self) -> u32 {
        self.id
    }

    pub(super) const fn connection(&self) -> ConnectionId {
        self.connection
    }

    pub(super) const fn claim(&self) -> Option<Claim> {
        self.claim
    }

    /// The one task that it ends, if it is for one.
    pub(super) const fn aborts(&self) -> Option<TaskId> {
        match self.function {
            Some(Function::AbortTask { task }) => Some(task),
            _ => None,
        }
    }

    /// True if it ends all tasks of a scope.
    pub(super) fn ends_many(&self) -> bool {
        self.function.is_some_and(Function::ends_many)
    }

    /// Its answer, if it has one.
    pub(super) const fn answer(&self, numbers: Numbers) -> Option<TaskManagementResponse> {
        match self.stage {
            ManagementState::Answered { response, additional } => {
                Some(TaskManagementResponse { response, additional, itt: self.itt, numbers })
            }
            ManagementState::Waiting { .. } | ManagementState::WithScsi => None,
        }
    }

    const fn is_answered(&self) -> bool {
        matches!(self.stage, ManagementState::Answered { .. })
    }

    /// How its answer stands to other responses (RFC 7143 §4.2.2.3.4, §11.6.1).
    pub(super) fn fence(&self) -> Fence {
        match self.function {
            Some(Function::AbortTaskSet | Function::ClearTaskSet) => Fence::Always,
            Some(Function::ClearAca) => Fence::Promised,
            Some(function) if function.ends_many() => Fence::Promised,
            _ => Fence::None,
        }
    }

    /// True for commands to its units that came after it: they wait until it is done.
    fn bars(&self, lun: LunField, cmd_sn: CmdSn) -> bool {
        let acting =
            matches!(self.stage, ManagementState::Waiting { .. } | ManagementState::WithScsi);
        acting && self.is_for(lun) && !cmd_sn.is_before(self.cmd_sn)
    }

    /// True for a command of a unit that it ends, if it came before it.
    pub(super) fn covers(&self, command: &ScsiCommand) -> bool {
        let before = command.cmd_sn.is_before(self.cmd_sn)
            || (command.immediate && command.cmd_sn == self.cmd_sn);
        self.is_for(command.lun) && before
    }

    /// True if it ends all tasks on this unit.
    fn is_for(&self, lun: LunField) -> bool {
        let Some(function) = self.function else { return false };
        function.ends_many() && (function.is_for_all_units() || lun_key(self.lun) == lun_key(lun))
    }
}
