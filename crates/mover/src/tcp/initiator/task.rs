// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a connection keeps for each task: its buffers, and what must come next.

use alloc::boxed::Box;

use buf::Buf;
use buf::Slice;
use iscsi::initiator::datamover::Keys;
use iscsi::initiator::datamover::TASK_SLOTS_MAX;
use iscsi::initiator::datamover::TaskId;
use iscsi::initiator::datamover::Violation;
use iscsi::initiator::datamover::itt;
use iscsi::initiator::datamover::slot;
use slots::ById;
use wire::iscsi::DataIn;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::R2t;
use wire::iscsi::ScsiCommand;
use wire::iscsi::ScsiResponse;

use super::reassembly::Again;
use super::reassembly::ReassemblyState;

/// What one connection keeps of one task.
#[derive(Debug)]
pub(super) struct TaskState {
    /// Sent to the target; byte 0 is byte 0 of the command's buffer.
    pub(super) write: Option<Slice>,
    /// Filled by Data-In.
    pub(super) read: Option<Buf>,
    /// Bytes that the command sends, and that it may get; zero until it is on its way.
    out_len: u32,
    in_len: u32,
    /// The unit that its command names.
    lun: LunField,
    /// Bytes of Data-In so far, without a gap.
    pub(super) received: u32,
    /// Next DataSN or R2TSN: one series for both (RFC 7143 §4.2.2.4).
    pub(super) next_sn: u32,
    /// Data-In with a wrong digest came.
    pub(super) damaged: bool,
    /// The connection was lost in the middle of a Data-In that was counted.
    cut: bool,
    /// Where the next R2T may begin at the earliest.
    asked: u32,
    /// Where the data that was given out so far ends.
    given: u32,
    /// R2Ts whose data is not yet on its way.
    pub(super) open_r2ts: u16,
    begun: bool,
    /// It came from another connection: the target says where it goes on.
    resumed: bool,
    /// Nothing more is sent for it.
    pub(super) quiet: bool,
    /// Before this number and byte all is acknowledged to the target.
    confirmed: (u32, u32),
    /// Only of a task whose PDUs did not come in order.
    pub(super) reassembly: Option<Box<ReassemblyState>>,
}

/// A task on its way from one connection to another.
#[derive(Debug)]
pub struct Carried {
    id: TaskId,
    task: TaskState,
}

/// Where the data of a Data-In goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// Into the buffer, from this byte on.
    At(u32),
    /// Nowhere: it came before.
    Nowhere,
}

/// All tasks of one connection.
#[derive(Debug)]
pub(super) struct Tasks {
    tasks: ById<TaskId, TaskState>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { tasks: ById::new(TASK_SLOTS_MAX) }
    }
}

impl Tasks {
    pub(super) fn open(&mut self, id: TaskId, write: Option<Slice>, read: Option<Buf>) {
        debug_assert!(!self.holds(id), "the task is new");
        self.tasks.open(id, || TaskState {
            write,
            read,
            out_len: 0,
            in_len: 0,
            lun: LunField::default(),
            received: 0,
            next_sn: 0,
            damaged: false,
            cut: false,
            asked: 0,
            given: 0,
            open_r2ts: 0,
            begun: false,
            resumed: false,
            quiet: false,
            confirmed: (0, 0),
            reassembly: None,
        });
    }

    pub(super) fn holds(&self, id: TaskId) -> bool {
        self.tasks.get(id).is_some()
    }

    /// Takes a task out, for another connection. `cut`: in the middle of a Data-In.
    pub(super) fn carry(&mut self, id: TaskId, cut: bool) -> Option<Carried> {
        let mut task = self.tasks.remove(id)?;
        task.cut |= cut;
        Some(Carried { id, task })
    }

    /// Goes on with a task of another connection: the first DataSN or R2TSN that has not come. What
    /// came after it is forgotten (RFC 7143 §11.5.6).
    pub(super) fn resume(&mut self, id: TaskId) -> DataSn {
        self.get_mut(id).map_or(DataSn(0), |task| {
            task.rewind();
            DataSn(task.next_sn)
        })
    }

    /// All data of a task that is not acknowledged comes once more; `tag`: of the request.
    pub(super) fn restart(&mut self, id: TaskId, tag: u32) {
        if let Some(task) = self.get_mut(id) {
            task.restart(tag, false);
        }
    }

    /// All tasks.
    pub(super) fn ids(&self) -> impl Iterator<Item = TaskId> {
        self.tasks.iter().map(|(id, _)| id)
    }

    /// Takes a task over from another connection.
    pub(super) fn adopt(&mut self, carried: Carried) {
        let Carried { id, task } = carried;
        debug_assert!(!self.holds(id), "the task is new");
        self.tasks.open(id, || task);
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
        // A command that is sent once more begins from its first byte.
        (task.received, task.next_sn, task.asked, task.open_r2ts) = (0, 0, 0, 0);
        task.given = 0;
        (task.reassembly, task.resumed, task.damaged, task.confirmed) =
            (None, false, false, (0, 0));
        task.lun = command.lun;
        task.begun = true;
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&TaskState> {
        self.tasks.get(id)
    }

    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut TaskState> {
        self.tasks.get_mut(id)
    }

    /// The task that a PDU of the target belongs to.
    pub(super) fn find(&mut self, tag: Itt) -> Result<(TaskId, &mut TaskState), Violation> {
        let unknown = Violation::UnknownTask(tag);
        match slot(tag).and_then(|index| self.tasks.at_mut(index)) {
            Some((id, task)) if task.begun && itt(id) == tag => Ok((id, task)),
            _ => Err(unknown),
        }
    }

    /// Nothing more is sent for a task.
    pub(super) fn silence(&mut self, id: TaskId) {
        if let Some(task) = self.get_mut(id) {
            task.quiet = true;
        }
    }

    pub(super) fn release(&mut self, id: TaskId) {
        self.tasks.discard(id);
    }

    pub(super) const fn count(&self) -> usize {
        self.tasks.len()
    }

    pub(super) fn check(&self) {
        self.tasks.check();
        for (_, task) in self.tasks.iter() {
            assert!(task.received <= task.in_len, "data lies in the buffer");
            assert!(task.asked <= task.out_len, "what was asked for lies in the buffer");
            if let Some(reassembly) = &task.reassembly {
                reassembly.check(task.next_sn, task.in_len);
            }
        }
    }
}

impl Carried {
    /// Which task.
    #[must_use]
    pub const fn id(&self) -> TaskId {
        self.id
    }

    /// The read buffer, of a task that goes nowhere any more.
    #[must_use]
    pub fn into_read(self) -> Option<Buf> {
        self.task.read
    }
}

/// The number behind `got`. No command has so many PDUs that there would be none.
fn after(got: u32, expected: u32) -> Result<u32, Violation> {
    got.checked_add(1).ok_or(Violation::Sequence { got, expected })
}

impl TaskState {
    /// Whether a Data-In of `length` bytes may come now; counts it. Returns where it goes.
    pub(super) fn admit(
        &mut self,
        pdu: &DataIn,
        length: u32,
        keys: &Keys,
    ) -> Result<Placement, Violation> {
        if self.in_len == 0 && self.out_len > 0 {
            // Not even an empty one: the command writes (RFC 7143 §4.2.5.3).
            return Err(Violation::Range { offset: pdu.offset, length, buffer: 0 });
        }
        let is_next = pdu.data_sn.0 == self.next_sn && pdu.offset == self.received;
        if !is_next || self.reassembly.is_some() {
            return self.admit_odd(pdu, length, keys);
        }
        self.received = self.end_of(pdu, length)?;
        self.next_sn = after(pdu.data_sn.0, self.next_sn)?;
        Ok(Placement::At(pdu.offset))
    }

    /// One that does not come right behind the one before, or of a task where that has happened.
    fn admit_odd(
        &mut self,
        pdu: &DataIn,
        length: u32,
        keys: &Keys,
    ) -> Result<Placement, Violation> {
        // What is behind the first gap may come again, and is no beginning then.
        let resumed = core::mem::take(&mut self.resumed);
        if resumed && pdu.data_sn.0 <= self.next_sn && pdu.offset <= self.received {
            // The target goes on earlier than it had to: what it sends counts.
            (self.next_sn, self.received) = (pdu.data_sn.0, pdu.offset);
            self.reassembly = None;
            return self.admit(pdu, length, keys);
        }
        if !self.is_of_series(pdu.data_sn.0) {
            return Ok(Placement::Nowhere);
        }
        if !self.count(pdu.data_sn.0, keys)? {
            return Ok(Placement::Nowhere);
        }
        if length == 0 {
            return Ok(Placement::At(self.received));
        }
        let end = self.end_of(pdu, length)?;
        if self.reassembly.is_none() && pdu.offset == self.received {
            self.received = end;
            return Ok(Placement::At(pdu.offset));
        }
        // Where both orders are agreed and nothing may be lost, each byte comes right behind the
        // one before it (RFC 7143 §13.18, §13.19). A gap would leave old bytes in the buffer.
        if keys.data_in_order && !keys.recovery {
            return Err(Violation::Offset { offset: pdu.offset, expected: self.received });
        }
        let reassembly = self.reassembly();
        reassembly.cover(pdu.offset, end)?;
        self.received = reassembly.received();
        Ok(Placement::At(pdu.offset))
    }

    /// Whether a DataSN may belong to data that was asked for anew. TCP keeps the order, so what
    /// comes before its first PDU was sent before; and that PDU begins the series once more if an
    /// older one had the same number.
    fn is_of_series(&mut self, number: u32) -> bool {
        let Some(reassembly) = &mut self.reassembly else { return true };
        let Some(again) = &mut reassembly.again else { return true };
        if number != again.first {
            return again.begun;
        }
        let (tag, first, begun) = (again.tag, again.first, again.begun);
        again.begun = true;
        if begun && !reassembly.misses(first) {
            self.restart(tag, true);
        }
        true
    }

    /// The range of a Data-In lies in the buffer.
    fn end_of(&self, pdu: &DataIn, length: u32) -> Result<u32, Violation> {
        let end = pdu.offset.checked_add(length).filter(|end| *end <= self.in_len);
        let (offset, buffer) = (pdu.offset, self.in_len);
        end.ok_or(Violation::Range { offset, length, buffer })
    }

    /// The data of an admitted Data-In was damaged on its way: as if it had not come.
    pub(super) fn retract(&mut self, pdu: &DataIn, length: u32) -> Result<(), Violation> {
        let reassembly = self.reassembly();
        reassembly.uncover(pdu.offset, pdu.offset.saturating_add(length));
        reassembly.miss(pdu.data_sn.0, pdu.data_sn.0.saturating_add(1))?;
        self.received = reassembly.received();
        Ok(())
    }

    /// Whether an R2T may come now; counts it. False for one that came before.
    pub(super) fn ask(&mut self, pdu: &R2t, keys: &Keys) -> Result<bool, Violation> {
        if core::mem::take(&mut self.resumed) && pdu.r2t_sn.0 <= self.next_sn {
            self.next_sn = pdu.r2t_sn.0;
        }
        if !self.count(pdu.r2t_sn.0, keys)? {
            return Ok(false);
        }
        let (offset, length) = (pdu.offset, pdu.desired_length);
        if pdu.lun != self.lun {
            return Err(Violation::R2tUnit);
        }
        let range = Violation::R2tRange { offset, length, buffer: self.out_len };
        let end = offset.checked_add(length).filter(|end| *end <= self.out_len).ok_or(range)?;
        // A recovery R2T asks again (RFC 7143 §11.8).
        let backwards = offset < self.asked && keys.data_in_order && !keys.recovery;
        if length > keys.max_burst_length || backwards {
            return Err(range);
        }
        if self.open_r2ts >= keys.max_outstanding_r2t {
            return Err(Violation::TooManyR2ts(keys.max_outstanding_r2t));
        }
        self.asked = self.asked.max(end);
        self.open_r2ts += 1;
        Ok(true)
    }

    /// Data up to here is on its way.
    pub(super) fn give(&mut self, end: u32) {
        self.given = self.given.max(end);
    }

    /// See `Tcp::progress`.
    pub(super) fn progress(&self) -> u64 {
        u64::from(self.received) + u64::from(self.asked) + u64::from(self.given)
    }

    /// Counts a DataSN or R2TSN; false for one that came before.
    fn count(&mut self, got: u32, keys: &Keys) -> Result<bool, Violation> {
        let expected = self.next_sn;
        let next = after(got, expected)?;
        if got == expected {
            self.next_sn = next;
            return Ok(true);
        }
        if !keys.recovery {
            return Err(Violation::Sequence { got, expected });
        }
        if got < expected {
            return Ok(self.reassembly.as_mut().is_some_and(|reassembly| reassembly.fill(got)));
        }
        self.reassembly().miss(expected, got)?;
        self.next_sn = next;
        Ok(true)
    }

    /// Whether the command reads.
    pub(super) const fn takes_data(&self) -> bool {
        self.in_len > 0
    }

    /// Whether a status that names this SNACK tag is that of an older series of data.
    pub(super) fn is_outdated(&self, pdu: &ScsiResponse) -> bool {
        let again = self.reassembly.as_ref().and_then(|reassembly| reassembly.again);
        pdu.response == 0 && again.is_some_and(|again| again.tag != pdu.snack_tag)
    }

    /// A status says how many Data-Ins there were (RFC 7143 §11.4.8). Our number counts R2Ts as
    /// well, as targets of RFC 3720 do there: so less than it is no loss.
    pub(super) fn close_count(&mut self, pdu: &ScsiResponse, keys: &Keys) -> Result<(), Violation> {
        let (got, expected) = (pdu.exp_data_sn.0, self.next_sn);
        if pdu.response != 0 || got <= expected {
            return Ok(());
        }
        if !keys.recovery {
            return Err(Violation::Sequence { got, expected });
        }
        self.reassembly().miss(expected, got)?;
        self.next_sn = got;
        Ok(())
    }

    /// The reassembly state, begun if there was none.
    pub(super) fn reassembly(&mut self) -> &mut ReassemblyState {
        let received = self.received;
        self.reassembly.get_or_insert_with(|| Box::new(ReassemblyState::new(received)))
    }

    /// Drops the reassembly state once all is in order again.
    pub(super) fn close_reassembly(&mut self) {
        if self.reassembly.as_ref().is_some_and(|reassembly| reassembly.is_empty()) {
            self.reassembly = None;
        }
    }

    /// Forgets all that came behind a gap: another connection goes on from there.
    fn rewind(&mut self) {
        self.resumed = true;
        self.open_r2ts = 0;
        self.quiet = false;
        let reassembly = self.reassembly.take();
        if reassembly.is_some() || core::mem::take(&mut self.cut) {
            (self.next_sn, self.received) = self.confirmed;
            self.reassembly = reassembly.and_then(|reassembly| reassembly.resume()).map(Box::new);
        }
    }

    /// Forgets all that is not acknowledged: it comes once more, cut anew.
    fn restart(&mut self, tag: u32, begun: bool) {
        (self.next_sn, self.received) = self.confirmed;
        self.resumed = false;
        let reassembly = self.reassembly.take().and_then(|reassembly| reassembly.resume());
        let mut reassembly = reassembly.unwrap_or_else(|| ReassemblyState::new(self.received));
        reassembly.again = Some(Again { tag, first: self.next_sn, begun });
        self.reassembly = Some(Box::new(reassembly));
    }

    /// All that has come is acknowledged to the target.
    pub(super) fn confirm(&mut self) {
        self.confirmed = (self.next_sn, self.received);
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.confirm();
        }
    }
}
