// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both halves back to back under random tasks, against a model that knows what belongs where.

use alloc::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Tasks at a time.
const SLOTS: u32 = 4;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A READ of `length` bytes, given in pieces; the last one has the status, or it comes alone.
    Read { length: u32, piece: u32, collapsed: bool },
    /// A WRITE: so much with the command, so much unasked, the rest in bursts.
    Write { length: u32, immediate: u32, unsolicited: u32, burst: u32 },
    /// One message to the target.
    Carry,
    /// One message to the initiator.
    Bring,
    /// The target ends a task before its time.
    Abort { slot: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0_u32..9000, 64_u32..5000, any::<bool>())
            .prop_map(|(length, piece, collapsed)| Step::Read { length, piece, collapsed }),
        2 => (1_u32..9000, 0_u32..3000, 0_u32..3000, 1_u32..4097).prop_map(
            |(length, immediate, unsolicited, burst)| Step::Write {
                length, immediate, unsolicited, burst
            }
        ),
        6 => Just(Step::Carry),
        6 => Just(Step::Bring),
        1 => (0..SLOTS).prop_map(|slot| Step::Abort { slot }),
    ]
}

/// What the model knows of a task.
#[derive(Clone, Debug)]
struct Task {
    id: TaskId,
    step: Step,
    data: Vec<u8>,
    /// Bytes that came unasked or were asked for.
    asked: u32,
    /// Bytes that the target has.
    there: u32,
    aborted: bool,
    /// The target has said its last word.
    answered: bool,
}

struct World {
    pair: Pair,
    to_target: VecDeque<ToTarget>,
    to_initiator: VecDeque<ToInitiator>,
    tasks: Vec<Task>,
    generation: u32,
    ended: usize,
    released: usize,
}

impl World {
    fn new() -> Self {
        Self {
            pair: Pair::new(),
            to_target: VecDeque::new(),
            to_initiator: VecDeque::new(),
            tasks: Vec::new(),
            generation: 0,
            ended: 0,
            released: 0,
        }
    }

    fn task(&mut self, id: TaskId) -> &mut Task {
        self.tasks.iter_mut().find(|task| task.id == id).unwrap()
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Read { length, .. } => self.begin(step, length),
            Step::Write { length, .. } => self.begin(step, length),
            Step::Carry => self.carry(),
            Step::Bring => self.bring(),
            Step::Abort { slot } => self.abort(slot),
        }
        self.pair.near.check();
        self.pair.far.check();
    }

    fn begin(&mut self, step: Step, length: u32) {
        let used = |index| self.tasks.iter().any(|task| task.id.index == index);
        let Some(index) = (0..SLOTS).find(|index| !used(*index)) else { return };
        self.generation += 1;
        let id = TaskId { index, generation: self.generation };
        let data = bytes(self.generation, length);
        let (mut immediate, mut end) = (0, 0);
        let (write, read) = match step {
            Step::Write { immediate: with, unsolicited, .. } => {
                immediate = with.min(length);
                end = (immediate + unsolicited).min(length);
                (Some(Slice::from(data.clone())), None)
            }
            _ => (None, self.pair.pool.take(length as usize)),
        };
        let final_ = end == immediate;
        let is_read = matches!(step, Step::Read { .. });
        let command = ScsiCommand { final_, ..command(id, is_read, length) };
        self.pair.near.submit(initiator::Op::Attach { task: id, write, read });
        let unsolicited_end = end;
        let op = initiator::Op::SendCommand { task: id, command, immediate, unsolicited_end };
        self.pair.near.submit(op);
        let (asked, there) = (end, 0);
        let (aborted, answered) = (false, false);
        self.tasks.push(Task { id, step, data, asked, there, aborted, answered });
    }

    fn carry(&mut self) {
        while let Some(message) = self.pair.near.poll_message(StatSn(1)) {
            self.to_target.push_back(message);
        }
        let Some(message) = self.to_target.pop_front() else { return };
        let mut event = self.pair.far.receive(message, &self.pair.pool);
        while let Some(told) = event {
            self.heard(told);
            event = self.pair.far.resume(&self.pair.pool);
        }
    }

    fn heard(&mut self, event: target::Event) {
        match event {
            target::Event::Control { request: Request::Command(command), immediate } => {
                let id = self.tasks.iter().find(|task| itt(task.id) == command.itt).unwrap().id;
                self.command(id, immediate);
            }
            target::Event::DataDone { task, length, .. } => {
                self.task(task).there += length;
                self.go_on(task);
            }
            target::Event::Released { task } => {
                self.released += 1;
                assert!(self.task(task).answered);
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    fn command(&mut self, id: TaskId, immediate: Immediate) {
        let task = self.task(id).clone();
        match task.step {
            Step::Write { immediate: with, .. } => {
                let length = u32::try_from(task.data.len()).unwrap();
                let with = with.min(length);
                let buf = match immediate {
                    Immediate::Staged { data, length } => {
                        assert_eq!(length, with);
                        data
                    }
                    Immediate::None => self.pair.pool.take(length as usize).unwrap(),
                    Immediate::Exhausted { .. } => panic!("there is memory"),
                };
                assert_eq!(buf[..with as usize], task.data[..with as usize]);
                self.pair.far.submit(target::Op::Attach { task: id, buf });
                self.task(id).there = with;
                if task.asked > with {
                    let (offset, length) = (with, task.asked - with);
                    let (itt, lun, discard) = (itt(id), UNIT, false);
                    self.pair.far.submit(target::Op::ExpectUnsolicited {
                        task: id,
                        itt,
                        lun,
                        offset,
                        length,
                        discard,
                    });
                }
                self.go_on(id);
            }
            Step::Read { piece, collapsed, .. } => self.answer_read(&task, piece, collapsed),
            _ => panic!("no task"),
        }
    }

    fn answer_read(&mut self, task: &Task, piece: u32, collapsed: bool) {
        let (id, mut offset) = (task.id, 0);
        let mut pieces = task.data.chunks(piece as usize).peekable();
        while let Some(data) = pieces.next() {
            let status = (collapsed && pieces.peek().is_none()).then_some(GOOD);
            self.pair.far.submit(put(id, data.to_vec(), offset, status));
            offset += u32::try_from(data.len()).unwrap();
        }
        if !collapsed || task.data.is_empty() {
            self.status(id, 0);
        }
        self.leave(id);
    }

    /// The next burst of a WRITE, or its end.
    fn go_on(&mut self, id: TaskId) {
        let task = self.task(id).clone();
        let length = u32::try_from(task.data.len()).unwrap();
        let Step::Write { burst, .. } = task.step else { return };
        if task.aborted || task.there < task.asked {
            return;
        }
        if task.asked < length {
            let count = burst.min(length - task.asked);
            self.pair.far.submit(get(id, task.asked, count));
            self.task(id).asked += count;
            return;
        }
        let buf = self.pair.far.submit(target::Op::Detach { task: id }).unwrap();
        assert_eq!(buf[..length as usize], task.data[..]);
        self.status(id, 0);
        self.leave(id);
    }

    fn abort(&mut self, slot: u32) {
        let there = |task: &&Task| task.id.index == slot && !task.answered && !task.aborted;
        let Some(task) = self.tasks.iter().find(there) else { return };
        let (id, known) = (task.id, task.there > 0);
        if !known {
            return;
        }
        self.task(id).aborted = true;
        self.pair.far.submit(target::Op::Abandon { task: id });
        self.status(id, 0x40);
        self.leave(id);
    }

    fn status(&mut self, id: TaskId, status: u8) {
        let response = Response::Scsi(ScsiResponse {
            response: 0,
            status,
            status_qualifier: 0,
            itt: itt(id),
            snack_tag: 0,
            numbers: numbers(9),
            exp_data_sn: DataSn(0),
            bidi_read_residual: Residual::None,
            residual: Residual::None,
        });
        let task = Some(id);
        self.pair.far.submit(target::Op::SendControl { response, data: Vec::new(), task });
    }

    fn leave(&mut self, id: TaskId) {
        self.task(id).answered = true;
        self.pair.far.submit(target::Op::Release { task: id });
    }

    fn bring(&mut self) {
        while let Some(message) = self.pair.far.poll_message() {
            self.to_initiator.push_back(message);
        }
        while let Some(event) = self.pair.far.poll_event() {
            self.heard(event);
        }
        let Some(message) = self.to_initiator.pop_front() else { return };
        match self.pair.near.receive(message) {
            None | Some(initiator::Event::Window(_)) => {}
            Some(initiator::Event::Ended(ended)) => self.end(&ended),
            Some(other) => panic!("unexpected {other:?}"),
        }
    }

    fn end(&mut self, ended: &Ended) {
        let at = self.tasks.iter().position(|task| task.id == ended.task).unwrap();
        let task = self.tasks.remove(at);
        assert!(task.answered);
        assert_eq!(ended.response.status == 0x40, task.aborted);
        let buf = self.pair.near.submit(initiator::Op::Detach { task: task.id });
        if matches!(task.step, Step::Read { .. }) {
            assert_eq!(ended.received as usize, task.data.len());
            assert!(buf.is_none_or(|buf| buf[..task.data.len()] == task.data[..]));
        }
        self.pair.near.submit(initiator::Op::Release { task: task.id });
        self.ended += 1;
    }
}

proptest! {
    #[test]
    fn every_task_ends_with_its_data(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.apply(step);
        }
        // Each round moves a message, or nothing is left to move.
        for _ in 0..100_000 {
            if world.tasks.is_empty() {
                break;
            }
            world.apply(Step::Carry);
            world.apply(Step::Bring);
        }
        prop_assert!(world.tasks.is_empty(), "{:?} are left", world.tasks.len());
        let begun = world.generation as usize;
        prop_assert_eq!((world.ended, world.released), (begun, begun));
        prop_assert_eq!((world.pair.near.task_count(), world.pair.far.task_count()), (0, 0));
        prop_assert_eq!(world.pair.far.open_bursts(), 0);
    }
}
