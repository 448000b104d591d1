// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of logical units that another unit has got.
//!
//! What an initiator sent to the unit before may come at any time after that: from its socket,
//! which may stand still, or out of a hole in the order. It must not reach the new unit. Which
//! commands these are is known: an initiator that has seen the first command refused with 3F/03
//! says so by the ExpStatSN of those that it sends from then on (RFC 7143 §4.2.2.2).
//!
//! ```text
//! Watching --numbered command whose ExpStatSN acknowledges 3F/03--> over
//! ```
//!
//! Numbered commands are carried out in the order in which they were sent, over all connections of
//! a session (§4.2.2.1): when the first of them comes whose initiator knows, all older ones have
//! come. An immediate command overtakes what was sent before it, behind a hole in the order or in
//! the socket of another connection. Where its initiator knows, it reaches the new unit, and the
//! watch goes on.

use iscsi::datamover::TaskId;
use iscsi::serial::Serial;
use iscsi::service;
use iscsi::target_role::ConnectionId;
use wire::iscsi::StatSn;
use wire::scsi::Lun;

use super::Session;
use super::services::task_of;

/// A number that has another unit.
#[derive(Debug)]
pub(super) struct Exchange {
    number: u16,
    /// Where the initiator was told so first, and the StatSN after that response.
    told: Vec<(ConnectionId, StatSn)>,
}

impl Session {
    /// Numbers have other units from now on.
    pub(super) fn begin_exchanges(&mut self, numbers: Vec<u16>) {
        for number in numbers {
            self.exchanges.retain(|exchange| exchange.number != number);
            self.exchanges.push(Exchange { number, told: Vec::new() });
        }
    }

    /// The number that a command is for, if its initiator sent it before it knew that this has
    /// another unit. The first numbered one that was sent later ends the watch.
    #[cold]
    pub(super) fn is_unaware(&mut self, command: &service::Command) -> Option<u16> {
        let Some(Lun::Unit(number)) = Lun::parse(command.lun) else { return None };
        let connection = self.machine.connection_of(command.task);
        let at = self.exchanges.iter().position(|exchange| exchange.number == number)?;
        let told = &self.exchanges.get(at)?.told;
        let knows = told
            .iter()
            .any(|(by, after)| Some(*by) == connection && !command.acknowledged.is_before(*after));
        if knows {
            if command.numbered {
                self.exchanges.swap_remove(at);
            }
            return None;
        }
        Some(number)
    }

    /// A command is about to end with CHECK CONDITION: where that tells of an exchange, gives which
    /// and on which connection.
    #[cold]
    pub(super) fn telling(&mut self, id: TaskId) -> Option<(u16, ConnectionId)> {
        let number = task_of(&mut self.tasks, id)?.unaware?;
        Some((number, self.machine.connection_of(id)?))
    }

    /// It was answered.
    #[cold]
    pub(super) fn told(&mut self, (number, connection): (u16, ConnectionId)) {
        let after = self.machine.next_stat_sn(connection);
        let exchange = self.exchanges.iter_mut().find(|exchange| exchange.number == number);
        if let Some(exchange) = exchange
            && exchange.told.iter().all(|(by, _)| *by != connection)
        {
            exchange.told.push((connection, after));
        }
    }
}
