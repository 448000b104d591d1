// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reservations that change, in the log and among the events: who of a cluster took a disk from
//! whom is asked afterwards, and hosts do not tell.

use engine::Port;
use iscsi::datamover::TaskId;
use scsi::ReservationsShown;
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

    /// Whether it has done anything, now that these are there: RESERVE and RELEASE of registrants
    /// (CRH), and RELEASE of what others hold, end well and do nothing (SPC-2 §7.16).
    const fn changes(self, shown: &ReservationsShown) -> bool {
        match self.opcode {
            Opcode::RESERVE_6 | Opcode::RESERVE_10 => shown.legacy,
            Opcode::RELEASE_6 | Opcode::RELEASE_10 => !shown.legacy && shown.registrants == 0,
            _ => true,
        }
    }

    fn name(self) -> &'static str {
        let name = self.opcode.action_name(self.action.into());
        let name = name.or_else(|| self.opcode.name()).unwrap_or("RESERVE");
        name.strip_prefix("PERSISTENT RESERVE OUT, ").unwrap_or(name)
    }
}

impl<P: Port> SessionView<'_, P> {
    /// A command has ended.
    #[inline]
    pub(super) fn tell_reservation(&mut self, id: TaskId, status: u8) {
        let task = task_of(&mut self.session.tasks, id);
        if let Some(reserving) = task.and_then(|task| task.reserving)
            && status == GOOD
        {
            self.tell_reserved(id, reserving);
        }
    }

    #[cold]
    fn tell_reserved(&mut self, id: TaskId, reserving: Reserving) {
        let session = &mut *self.session;
        let peer = session.connections.iter().find_map(|key| self.connections.get(*key));
        let peer = peer.map_or(session.peer, |connection| connection.peer);
        let task = task_of(&mut session.tasks, id);
        let Some((nexus, task)) = session.nexus.as_ref().zip(task) else { return };
        let Some(unit) = task.scsi.unit() else { return };
        let (target, lun) =
            scene(&self.context.shared, nexus, session.login.target.as_deref()).place(Some(unit));
        let shown = unit.reservations_shown();
        if !reserving.changes(&shown) {
            return;
        }
        tracing::info!(
            name: Event::Reservation.name(),
            %peer,
            initiator = session.login.initiator,
            tsih = session.tsih.0,
            target,
            lun,
            action = reserving.name(),
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
