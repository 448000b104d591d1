// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reservations that change, in the log and among the events: who of a cluster took a disk from
//! whom is asked afterwards, and hosts do not tell.

use std::sync::Arc;

use engine::Port;
use iscsi::datamover::TaskId;
use scsi::LogicalUnit;
use scsi::Nexus;
use wire::iscsi::Cdb;
use wire::scsi::opcode::Opcode;
use wire::scsi::persistent::Type;
use wire::scsi::sam::GOOD;

use super::services::scene;
use super::services::task_of;
use super::view::SessionView;
use crate::events::Event;

/// A command that changes reservations, if it ends well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reserving {
    opcode: Opcode,
    action: u8,
}

impl Reserving {
    #[inline]
    pub(super) fn of(cdb: &Cdb) -> Option<Self> {
        let [opcode, action, ..] = cdb.bytes;
        let opcode = Opcode(opcode);
        match opcode {
            Opcode::PERSISTENT_RESERVE_OUT => Some(Self { opcode, action: action & 0x1f }),
            Opcode::RESERVE_6 | Opcode::RESERVE_10 | Opcode::RELEASE_6 | Opcode::RELEASE_10 => {
                Some(Self { opcode, action: 0 })
            }
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        let name = self.opcode.action_name(self.action.into());
        let name = name.or_else(|| self.opcode.name()).unwrap_or("RESERVE");
        name.strip_prefix("PERSISTENT RESERVE OUT, ").unwrap_or(name)
    }
}

impl<P: Port> SessionView<'_, P> {
    /// A command has ended. What ends well and does nothing is not told: RESERVE and RELEASE of
    /// registrants (CRH), RELEASE of what others hold or nobody, RESERVE by who has it (SPC-2
    /// §7.16).
    #[inline]
    pub(super) fn tell_reservation(&mut self, id: TaskId, status: u8) {
        let task = task_of(&mut self.session.tasks, id);
        if let Some(task) = task
            && let Some(reserving) = task.reserving
            && status == GOOD
            && task.scsi.has_changed_reservations()
            && let Some(unit) = task.scsi.unit().map(Arc::clone)
        {
            self.tell_reserved(&unit, reserving.name());
        }
    }

    /// What RESERVE gave to this session ends with it, or with the state of its nexus: `action`.
    pub(super) fn end_reservations(&self, action: &'static str) {
        let nexus = self.session.nexus.as_ref();
        let ended = nexus.map(Nexus::end_reservations).unwrap_or_default();
        ended.iter().for_each(|unit| self.tell_reserved(unit, action));
    }

    /// What is reserved of `unit` is something else by what this session did, or became.
    #[cold]
    pub(super) fn tell_reserved(&self, unit: &Arc<LogicalUnit>, action: &str) {
        let session = &*self.session;
        let peer = session.connections.iter().find_map(|key| self.connections.get(*key));
        let peer = peer.map_or(session.peer, |connection| connection.peer);
        let Some(nexus) = session.nexus.as_ref() else { return };
        let (target, lun) =
            scene(&self.context.shared, nexus, session.login.target.as_deref()).place(Some(unit));
        let shown = unit.reservations_shown();
        tracing::info!(
            name: Event::Reservation.name(),
            %peer,
            initiator = session.login.initiator,
            tsih = session.tsih.0,
            target,
            lun,
            action,
            mode = shown.kind.map_or(if shown.legacy { "exclusive" } else { "none" }, words),
            holder = shown.holder,
            registered = shown.registrants,
            "reservations changed"
        );
    }
}

const fn words(kind: Type) -> &'static str {
    match kind {
        Type::WriteExclusive => "write exclusive",
        Type::ExclusiveAccess => "exclusive access",
        Type::WriteExclusiveRegistrantsOnly => "write exclusive, registrants only",
        Type::ExclusiveAccessRegistrantsOnly => "exclusive access, registrants only",
        Type::WriteExclusiveAllRegistrants => "write exclusive, all registrants",
        Type::ExclusiveAccessAllRegistrants => "exclusive access, all registrants",
    }
}
