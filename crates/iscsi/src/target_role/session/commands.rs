// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCSI commands: each gets its turn, its data and its answer (RFC 7143 §4.2.5, §11.3-11.4,
//! §11.7-11.8). The tasks know how far each is; numbers and places in line are joined here.

use super::Session;
use crate::datamover::DataError;
use crate::datamover::Immediate;
use crate::datamover::Op;
use crate::datamover::TaskId;
use crate::service::Completion;
use crate::target_role::fence::Holder;
use crate::target_role::lun::lun_key;
use crate::target_role::numbering::Turn;
use crate::target_role::pdu::Pdu;
use crate::target_role::reply::RDMA_SENSE_MAX;
use crate::target_role::reply::Reply;
use crate::target_role::reply::sense_segment;
use crate::target_role::task::BufferNeed;
use crate::target_role::task::Room;
use crate::violation::Violation;
use alloc::vec::Vec;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Response;
use wire::iscsi::ScsiCommand;

impl Session {
    /// SCSI side: the command takes `length` bytes of write data.
    ///
    /// Before, the pump attaches a buffer as [`buffer_need`](Self::buffer_need) says to the mover.
    /// `Indication::DataOutReceived` follows when they are there; a call for a task that has ended
    /// is ignored.
    pub fn receive_data_out(&mut self, task: TaskId, length: u32) {
        if self.tasks.receive(task, length, self.now, &mut self.outputs) {
            self.ask(task);
            self.advance(task);
            self.settle();
        }
    }

    /// SCSI side: the command is over. If write data is still on its way, the status waits for its
    /// end (RFC 7143 §11.4.2). A call for a task that has ended is ignored.
    pub fn complete(&mut self, task: TaskId, completion: Completion) {
        if self.tasks.complete(task, completion, self.now, &mut self.outputs) {
            self.advance(task);
            self.settle();
        }
    }

    /// End a task without a response (task management, another nexus's reset). `Ended` follows when
    /// its buffer is free. A task that has been answered already is left alone.
    pub fn abort(&mut self, task: TaskId) {
        self.tasks.end(task, &mut self.outputs);
        self.settle();
    }

    /// The tasks of `lun` (None: of all) that the SCSI side has or is to get an answer out of,
    /// oldest first.
    pub fn tasks(&self, lun: Option<LunField>) -> Vec<TaskId> {
        let key = lun.map(lun_key);
        self.tasks
            .in_order()
            .into_iter()
            .filter(|task| key.is_none_or(|key| lun_key(task.command().lun) == key))
            .map(|task| task.id())
            .collect()
    }

    /// What buffer `task` needs for `length` bytes of write data.
    pub fn buffer_need(&self, task: TaskId, length: u32) -> BufferNeed {
        self.tasks.buffer_need(task, length)
    }

    /// The answer to [`Output::Reserve`](super::Output::Reserve).
    pub fn reserved(&mut self, task: TaskId, room: Room) {
        self.tasks.reserved(task, room, self.now, &mut self.outputs);
    }

    /// A SCSI Command PDU has arrived.
    pub(super) fn handle_command(
        &mut self,
        pdu: &Pdu<'_>,
        command: ScsiCommand,
        data: Immediate,
    ) -> Result<(), Violation> {
        if command.itt == Itt::NONE {
            return Err(Violation::ReservedTaskTag);
        }
        if !command.final_ && !command.write {
            return Err(Violation::FinalMissing);
        }
        self.check_task_tag(&command)?;
        if command.immediate {
            if self.tasks.has_all_immediate(pdu.connection) || self.managements.bar_lun(command.lun)
            {
                return Err(Violation::TooManyImmediate);
            }
            let task = self.tasks.arrive(pdu.connection, command, data)?;
            self.deliver(task);
            return Ok(());
        }
        let cmd_sn = command.cmd_sn;
        match self.numbering.turn(cmd_sn)? {
            Turn::Now if !self.managements.bar_command(&command) => {
                let task = self.tasks.arrive(pdu.connection, command, data)?;
                self.numbering.advance();
                self.deliver(task);
            }
            Turn::Now | Turn::Later => {
                let task = self.tasks.arrive(pdu.connection, command, data)?;
                self.numbering.hold_command(cmd_sn, task);
                self.tasks.reserve(task, self.now, &mut self.outputs);
            }
        }
        Ok(())
    }

    /// Gives a command whose turn it is to the SCSI side.
    pub(super) fn deliver(&mut self, task: TaskId) {
        let delivered = self.tasks.deliver(task, self.now, &mut self.outputs);
        let Some(delivered) = delivered else { return };
        if let Some(connection) = self.connections.present_mut(delivered.connection) {
            connection.note_lun(delivered.lun);
        }
        if delivered.is_broken {
            self.advance(task);
        }
    }

    /// A burst has come in whole.
    pub(super) fn data_done(&mut self, task: TaskId, burst: (u32, u32)) {
        self.tasks.data_done(task, burst, self.now);
        self.ask(task);
        self.advance(task);
    }

    /// A burst has ended in error.
    pub(super) fn data_failed(&mut self, task: TaskId, burst: (u32, u32), error: DataError) {
        if error == DataError::Overdue {
            self.tasks.note_silence(task);
        }
        self.tasks.data_failed(task, burst, error.into(), self.now, &mut self.outputs);
        self.ask(task);
        self.advance(task);
    }

    /// Lets a task go on that waited for task management in vain.
    pub(super) fn resume(&mut self, task: TaskId) {
        if self.tasks.resume(task) {
            self.ask(task);
            self.advance(task);
        }
    }

    /// Sends the answer that is ready, and gives the task's resources back.
    pub(super) fn answer_task(&mut self, task: TaskId) {
        // It stays where it was made: it is as long as ten words.
        let mut reply = self.tasks.answer(task);
        let Some(reply) = &mut reply else { return };
        self.open_window();
        if self.login.parameters.rdma.is_some() {
            reply.sense.truncate(RDMA_SENSE_MAX);
        }
        match self.keeps_answers() {
            false => self.respond(task, reply),
            true => self.respond_and_keep(task, reply),
        }
    }

    /// Asks for all data that may be asked for now.
    fn ask(&mut self, task: TaskId) {
        while let Some(burst) = self.tasks.next_burst(task, self.now) {
            let numbers = self.numbers(burst.connection);
            self.outputs.op(burst.connection, burst.ask(numbers));
        }
    }

    /// What follows once no data is on its way.
    fn advance(&mut self, task: TaskId) {
        let Some(fence) = self.tasks.advance(task, &mut self.outputs) else { return };
        let waits = self.fences.holds_up(fence) && self.get_in_line(Holder::Task(task), fence);
        if !waits {
            self.answer_task(task);
        }
    }

    /// Sends data, in bursts of MaxBurstLength, and status, which goes with the last one if it can.
    #[inline]
    fn respond(&mut self, task: TaskId, reply: &mut Reply) {
        let (connection, itt) = (reply.connection, reply.itt);
        let status = reply.collapsed();
        if let Some(data) = reply.data.take() {
            let burst = self.login.parameters.max_burst_length.max(1);
            let numbers = match status {
                Some(_) => self.response_numbers(connection),
                None => self.numbers(connection),
            };
            let put = Op::PutData { task, itt, data, offset: 0, burst, numbers, status };
            self.outputs.op(connection, put);
        }
        if status.is_none() {
            let numbers = self.response_numbers(connection);
            let response = Response::Scsi(reply.response(numbers));
            let data = sense_segment(&reply.sense);
            self.outputs.op(connection, Op::SendControl { response, data, task: Some(task) });
        }
        self.outputs.op(connection, Op::Release { task });
    }

    /// Looks for a live task with the same tag before anything else (RFC 7143 §4.2.2.1): a retry of
    /// a command that runs is dropped, any other use of the tag is an error.
    fn check_task_tag(&self, command: &ScsiCommand) -> Result<(), Violation> {
        let retried = match self.tasks.find(command.itt).map(|task| task.command()) {
            Some(task) => Some((task.cmd_sn, task.immediate)),
            None => self.managements.has(command.itt).then_some((command.cmd_sn, true)),
        };
        match retried {
            None => Ok(()),
            Some((number, false)) if !command.immediate && number == command.cmd_sn => {
                Err(Violation::DuplicateCommand(number))
            }
            Some(_) if !command.immediate => match self.numbering.turn(command.cmd_sn) {
                Err(outside @ Violation::OutsideWindow(_)) => Err(outside),
                _ => Err(Violation::TaskInProgress),
            },
            Some(_) => Err(Violation::TaskInProgress),
        }
    }
}
