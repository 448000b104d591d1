// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target of one connection: mover, session and disk, joined as the pump joins them.

use crate::disk::Disk;
use crate::disk::Turn;
use crate::input::Input;
use crate::transmit;
use buf::Buf;
use buf::Pool;
use clock::Instant;
use iscsi::datamover::Event;
use iscsi::datamover::Op;
use iscsi::datamover::TaskId;
use iscsi::service;
use iscsi::service::Indication;
use iscsi::service::ServiceResponse;
use iscsi::target_role::ConnectionId;
use iscsi::target_role::LoggedIn;
use iscsi::target_role::Output;
use iscsi::target_role::Room;
use iscsi::target_role::Session;
use iscsi::target_role::Settings;
use iscsi::target_role::TargetRecord;
use mover::tcp::Tcp;
use std::collections::BTreeMap;
use std::time::Duration;

const LEADING: ConnectionId = ConnectionId(0);
const TASK_SET_FULL: u8 = 0x28;
const STEPS_MAX: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Target<'a> {
    session: Session,
    mover: Tcp,
    pool: &'a Pool,
    disk: Disk,
    tasks: BTreeMap<TaskId, Command>,
    /// Tasks that wait for others.
    waiting: Vec<TaskId>,
    now: Instant,
    closed: bool,
}

#[derive(Debug)]
struct Command {
    scsi: scsi::Task,
    immediate: Option<(Buf, u32)>,
    wanted: u32,
}

impl<'a> Target<'a> {
    pub(crate) fn new(logged_in: LoggedIn, mover: Tcp, pool: &'a Pool, now: Instant) -> Self {
        Self {
            session: Session::new(logged_in, &Settings::default(), now),
            mover,
            pool,
            disk: Disk::new(),
            tasks: BTreeMap::new(),
            waiting: Vec::new(),
            now,
            closed: false,
        }
    }

    /// Feeds PDUs until the input or the session ends.
    pub(crate) fn run(&mut self, input: &mut Input<'_>) {
        let mut cmd_sn = 1;
        while !input.is_empty() && !self.closed {
            let stream = input.pdu(&mut cmd_sn);
            self.take(&stream);
            self.try_again();
            if input.peek() == 0xA5 {
                self.now = self.now + Duration::from_secs(u64::from(input.byte() & 63));
                if self.session.poll_timeout().is_some_and(|due| due <= self.now) {
                    self.session.handle_timeout(self.now);
                    self.drain();
                }
            }
        }
    }

    fn take(&mut self, mut stream: &[u8]) {
        while !self.closed {
            let (taken, event) = self.mover.feed(stream, self.pool);
            stream = stream.get(taken..).expect("a mover takes no more than it is given");
            let Some(event) = event else { break };
            let violated = matches!(event, Event::Violation(_));
            let (header, data) = (self.mover.header().to_vec(), self.mover.control_data().to_vec());
            self.session.handle_event(LEADING, event, &header, &data, self.now);
            self.drain();
            if violated {
                break;
            }
        }
    }

    fn drain(&mut self) {
        loop {
            while let Some(output) = self.session.poll_output() {
                self.carry_out(output);
            }
            transmit(&mut self.mover);
            let mut any = false;
            while let Some(event) = self.mover.poll_event() {
                any = true;
                self.session.handle_event(LEADING, event, &[], &[], self.now);
            }
            if !any {
                break;
            }
        }
        self.session.check();
        self.mover.check();
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Op(_, op) => drop(self.mover.submit(op)),
            Output::Reserve { task, length, staged, .. } => self.reserve(task, length, staged),
            // No other connection takes tasks over here.
            Output::Detach { task, .. } => drop(self.mover.submit(Op::Detach { task })),
            Output::Attach { .. } => {}
            Output::Targets(_) => self.session.targets(vec![TargetRecord {
                name: "iqn.2026-01.test.lunwire:disk".to_owned(),
                addresses: vec!["127.0.0.1:3260,1".to_owned()],
            }]),
            Output::ConnectionClosed { .. } | Output::Closed { .. } => self.closed = true,
            Output::Indication(indication) => self.indicate(indication),
        }
    }

    fn indicate(&mut self, indication: Indication) {
        match indication {
            Indication::Command(command) => self.start(command),
            Indication::DataOutReceived { task } => self.data_out(task),
            Indication::Dropped { task } | Indication::Cleared { task } => {
                drop(self.tasks.remove(&task));
            }
            Indication::Quiesce { id } => self.session.quiesced(id),
            Indication::Ended { task } => drop(self.mover.submit(Op::Detach { task })),
            Indication::Management(request) => {
                for task in self.session.tasks(None) {
                    self.tasks.remove(&task);
                }
                self.session.task_management_done(request.id, ServiceResponse::Complete);
                // Tasks of other units live on; they are answered so that nothing waits for ever.
                for task in self.session.tasks(None) {
                    self.finish(task, TASK_SET_FULL);
                }
            }
            Indication::OutOfBuffers => {}
            Indication::NexusLost => self.tasks.clear(),
        }
    }

    fn start(&mut self, command: service::Command) {
        if command.exhausted {
            return self.finish(command.task, TASK_SET_FULL);
        }
        let (scsi, step) = self.disk.nexus.start(&scsi::Request {
            lun: command.lun,
            cdb: command.cdb,
            attribute: command.attribute,
            expected_out: command.expected_out,
            expected_in: command.expected_in,
            unaware: false,
        });
        let immediate = command.immediate;
        self.tasks.insert(command.task, Command { scsi, immediate, wanted: 0 });
        self.advance(command.task, step);
    }

    fn advance(&mut self, id: TaskId, mut step: scsi::Step) {
        for _ in 0..STEPS_MAX {
            let Some(task) = self.tasks.get_mut(&id) else { return };
            step = match self.disk.turn(&mut task.scsi, step) {
                Turn::Next(step) => step,
                Turn::DataOut(length) => return self.receive(id, length),
                Turn::Waits => return self.waiting.push(id),
                Turn::Over(completion) => {
                    self.tasks.remove(&id);
                    return self.session.complete(
                        id,
                        service::Completion {
                            status: completion.status,
                            sense: completion.sense,
                            data_in: completion.data_in,
                            presented: completion.presented,
                            fence: false,
                        },
                    );
                }
            };
        }
        panic!("a command without end");
    }

    /// Tasks that wait for others have another try.
    fn try_again(&mut self) {
        for id in std::mem::take(&mut self.waiting) {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            let step = task.scsi.resume(&self.disk.nexus, scsi::Input::Turn);
            self.advance(id, step);
        }
        self.drain();
    }

    /// Data that comes before its task asks for it.
    fn reserve(&mut self, id: TaskId, length: u32, staged: Option<(Buf, u32)>) {
        let task = self.tasks.get_mut(&id);
        let immediate = task.and_then(|task| task.immediate.take()).or(staged);
        let room = match buffer(self.pool, immediate, length) {
            Some(buf) => {
                self.mover.submit(Op::Attach { task: id, buf });
                Room::Attached
            }
            None => Room::None,
        };
        self.session.reserved(id, room);
    }

    fn receive(&mut self, id: TaskId, length: u32) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.wanted = length;
        let need = self.session.buffer_need(id, length);
        let staged = match need.is_reserved {
            true => self.mover.submit(Op::Detach { task: id }).map(whole),
            false => task.immediate.take(),
        };
        let Some(buf) = buffer(self.pool, staged, need.length) else {
            return self.finish(id, TASK_SET_FULL);
        };
        self.mover.submit(Op::Attach { task: id, buf });
        self.session.receive_data_out(id, length);
    }

    fn data_out(&mut self, id: TaskId) {
        let mut buf = self
            .mover
            .submit(Op::Detach { task: id })
            .expect("the buffer of a task whose data is there");
        let Some(task) = self.tasks.get_mut(&id) else { return };
        buf.truncate(usize::try_from(task.wanted).expect("64-bit"));
        let step = task.scsi.resume(&self.disk.nexus, scsi::Input::DataOut(buf.freeze()));
        self.advance(id, step);
    }

    fn finish(&mut self, id: TaskId, status: u8) {
        self.tasks.remove(&id);
        let completion = service::Completion {
            status,
            sense: Vec::new(),
            data_in: None,
            presented: 0,
            fence: false,
        };
        self.session.complete(id, completion);
    }
}

/// A buffer of `length` bytes that begins with what is staged.
pub(crate) fn buffer(pool: &Pool, staged: Option<(Buf, u32)>, length: u32) -> Option<Buf> {
    let mut buf = pool.take(usize::try_from(length).expect("64-bit"))?;
    if let Some((staged, valid)) = staged {
        let valid = usize::try_from(valid).expect("64-bit").min(buf.len());
        buf[..valid].copy_from_slice(&staged[..valid]);
    }
    Some(buf)
}

/// A buffer of which all may be valid.
pub(crate) fn whole(buf: Buf) -> (Buf, u32) {
    let length = u32::try_from(buf.len()).expect("short");
    (buf, length)
}
