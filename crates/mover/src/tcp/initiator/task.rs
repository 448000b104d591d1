// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a connection keeps for each task: its buffers, and what must come next.

use alloc::vec::Vec;

use buf::Buf;
use buf::Slice;
use iscsi::initiator::datamover::Keys;
use iscsi::initiator::datamover::TASK_SLOTS_MAX;
use iscsi::initiator::datamover::TaskId;
use iscsi::initiator::datamover::Violation;
use iscsi::initiator::datamover::itt;
use iscsi::initiator::datamover::slot;
use wire::iscsi::DataIn;
use wire::iscsi::Itt;
use wire::iscsi::R2t;
use wire::iscsi::ScsiCommand;

/// Books of one task on one connection.
#[derive(Debug)]
pub(super) struct Task {
    /// Sent to the target; byte 0 is byte 0 of the command's buffer.
    pub(super) write: Option<Slice>,
    /// Filled by Data-In.
    pub(super) read: Option<Buf>,
    /// Bytes that the command sends, and that it may get; zero until it is on its way.
    out_len: u32,
    in_len: u32,
    /// Bytes of Data-In so far, without a gap.
    pub(super) received: u32,
    /// Next DataSN or R2TSN: one series for both (RFC 7143 §4.2.2.4).
    pub(super) next_sn: u32,
    /// Data-In with a wrong digest came.
    pub(super) damaged: bool,
    /// Where the next R2T may begin at the earliest.
    asked: u32,
    /// R2Ts whose data is not yet on its way.
    pub(super) open_r2ts: u16,
    begun: bool,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    task: Option<Task>,
}

/// All tasks of one connection, by the slot number of their id.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    slots: Vec<Slot>,
    live: usize,
}

impl Tasks {
    pub(super) fn open(&mut self, id: TaskId, write: Option<Slice>, read: Option<Buf>) {
        debug_assert!(id.index < TASK_SLOTS_MAX, "task index {} is beyond the table", id.index);
        let index = id.index as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let Some(slot) = self.slots.get_mut(index) else { return };
        debug_assert!(slot.task.is_none(), "slot {index} was never released");
        self.live += usize::from(slot.task.is_none());
        let task = Task {
            write,
            read,
            out_len: 0,
            in_len: 0,
            received: 0,
            next_sn: 0,
            damaged: false,
            asked: 0,
            open_r2ts: 0,
            begun: false,
        };
        *slot = Slot { generation: id.generation, task: Some(task) };
    }

    /// The command goes out: what it may transfer is bounded by its buffers, too.
    pub(super) fn begin(&mut self, id: TaskId, command: &ScsiCommand) {
        let Some(task) = self.get_mut(id) else { return };
        let bounded = |wanted: bool, length: Option<usize>| {
            let length = length.and_then(|length| u32::try_from(length).ok()).unwrap_or(0);
            if wanted { command.expected_length.min(length) } else { 0 }
        };
        task.out_len = bounded(command.write, task.write.as_ref().map(Slice::len));
        task.in_len = bounded(command.read, task.read.as_ref().map(|buf| buf.len()));
        task.begun = true;
    }

    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.task.as_mut() } else { None }
    }

    /// The task that a PDU of the target belongs to.
    pub(super) fn find(&mut self, tag: Itt) -> Result<(TaskId, &mut Task), Violation> {
        let unknown = Violation::UnknownTask(tag);
        let index = slot(tag).ok_or(unknown)?;
        let slot = self.slots.get_mut(index as usize).ok_or(unknown)?;
        let id = TaskId { index, generation: slot.generation };
        match &mut slot.task {
            Some(task) if task.begun && itt(id) == tag => Ok((id, task)),
            _ => Err(unknown),
        }
    }

    pub(super) fn release(&mut self, id: TaskId) {
        let Some(slot) = self.slots.get_mut(id.index as usize) else { return };
        if slot.generation == id.generation && slot.task.take().is_some() {
            self.live -= 1;
        }
    }

    pub(super) const fn count(&self) -> usize {
        self.live
    }

    pub(super) fn check(&self) {
        let live = self.slots.iter().filter(|slot| slot.task.is_some()).count();
        assert_eq!(self.live, live, "live tasks");
        for task in self.slots.iter().filter_map(|slot| slot.task.as_ref()) {
            assert!(task.received <= task.in_len, "data lies in the buffer");
            assert!(task.asked <= task.out_len, "what was asked for lies in the buffer");
        }
    }
}

impl Task {
    /// Whether a Data-In of `length` bytes may come now; counts it. Returns where it goes.
    pub(super) fn admit(&mut self, pdu: &DataIn, length: u32) -> Result<u32, Violation> {
        self.count(pdu.data_sn.0)?;
        if length == 0 {
            return Ok(self.received);
        }
        let end = pdu.offset.checked_add(length).filter(|end| *end <= self.in_len);
        let Some(end) = end else {
            let (offset, buffer) = (pdu.offset, self.in_len);
            return Err(Violation::Range { offset, length, buffer });
        };
        // Both orders are agreed, so each byte comes right behind the one before it (RFC 7143
        // §13.18, §13.19). A gap would leave old bytes in the buffer.
        if pdu.offset != self.received {
            return Err(Violation::Offset { offset: pdu.offset, expected: self.received });
        }
        self.received = end;
        Ok(pdu.offset)
    }

    /// Whether an R2T may come now; counts it.
    pub(super) fn ask(&mut self, pdu: &R2t, keys: &Keys) -> Result<(), Violation> {
        self.count(pdu.r2t_sn.0)?;
        let (offset, length) = (pdu.offset, pdu.desired_length);
        let range = Violation::R2tRange { offset, length, buffer: self.out_len };
        let end = offset.checked_add(length).filter(|end| *end <= self.out_len).ok_or(range)?;
        if length > keys.max_burst_length || offset < self.asked {
            return Err(range);
        }
        if self.open_r2ts >= keys.max_outstanding_r2t {
            return Err(Violation::TooManyR2ts(keys.max_outstanding_r2t));
        }
        self.asked = end;
        self.open_r2ts += 1;
        Ok(())
    }

    fn count(&mut self, got: u32) -> Result<(), Violation> {
        if got != self.next_sn {
            return Err(Violation::Sequence { got, expected: self.next_sn });
        }
        self.next_sn = self.next_sn.wrapping_add(1);
        Ok(())
    }
}
