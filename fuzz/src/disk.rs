// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small disk and a nexus to it.

use crate::device::Answering;
use crate::device::Script;
use crate::device::carried_out;
use buf::Pool;
use clock::Instant;
use scsi::DRAWN_LEN;
use scsi::Drawn;
use scsi::Identity;
use scsi::Input;
use scsi::LogicalUnit;
use scsi::Nexus;
use scsi::NexusNames;
use scsi::Request;
use scsi::Step;
use scsi::Task;
use std::sync::Arc;
use std::sync::PoisonError;
use store::Op;
use store::Outcome;
use store::Submitted;
use store::device::Passage;
use store::filter::ReadOnly;
use store::memory::Memory;
use store::null::Null;

const DISK_BYTES: u64 = 1 << 20;
/// More steps than any command within the limits can need.
const STEPS_MAX: usize = 100_000;
const CHECK_CONDITION: u8 = 2;

thread_local! {
    static STORE: Arc<Memory> = Arc::new(Memory::new(DISK_BYTES).expect("a megabyte"));
}

/// Blocks of a disc: some more than a CD has, so that it is a DVD; none of them is written.
const DISC_BYTES: u64 = 400_000 * 2048;

/// A logical unit of a megabyte in memory, at LUN 0; or a DVD drive there.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) nexus: Nexus,
    /// What a device answers with.
    script: Script,
}

impl Disk {
    pub(crate) fn new() -> Self {
        let identity = Identity::derive("iqn.2026-01.test.lunwire:disk", 0, "LUNWIRE", "FUZZ");
        let store = STORE.with(Arc::clone);
        Self::of(LogicalUnit::new(identity, store, 512).expect("a legal disk"))
    }

    /// A DVD drive with an empty disc in it.
    pub(crate) fn drive() -> Self {
        let identity = Identity::derive("iqn.2026-01.test.lunwire:disk", 0, "LUNWIRE", "FUZZ");
        let disc = Null::new(DISC_BYTES).expect("address space");
        let store = Arc::new(ReadOnly::new(Arc::new(disc)));
        Self::of(LogicalUnit::optical(identity, store).expect("a legal drive"))
    }

    /// A device of the system, of this type, which answers with what comes with a command.
    pub(crate) fn device(kind: u8) -> Self {
        let identity = Identity::derive("iqn.2026-01.test.lunwire:disk", 0, "LUNWIRE", "FUZZ");
        let script = Script::default();
        let passage = Passage::new(Arc::new(Answering::new(kind, Arc::clone(&script))));
        let unit = LogicalUnit::passing(identity, Arc::new(passage)).expect("a device");
        Self { script, ..Self::of(unit) }
    }

    fn of(unit: LogicalUnit) -> Self {
        let names = NexusNames {
            initiator_port: "iqn.2026-01.test.lunwire:fuzz,i,0x800000000001".to_owned(),
            target_device: "iqn.2026-01.test.lunwire:disk".to_owned(),
            portal_group_tag: 1,
            relative_port: 1,
        };
        Self { nexus: Nexus::new(names, vec![(0, Arc::new(unit))]), script: Script::default() }
    }

    /// Runs a command to its end; `bytes` is repeated to what it asks for.
    pub(crate) fn run(&mut self, request: &Request, bytes: &[u8], pool: &Pool) {
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec();
        let (mut task, mut step) = self.nexus.start(request);
        for _ in 0..STEPS_MAX {
            step = match self.turn(&mut task, step) {
                Turn::Next(step) => step,
                Turn::Waits => panic!("nobody else is there: {request:?}"),
                Turn::Over(completion) => {
                    assert!(completion.status == CHECK_CONDITION || completion.sense.is_empty());
                    return;
                }
                Turn::DataOut(length) => {
                    assert!(length <= request.expected_out, "more than the initiator sends");
                    let length = usize::try_from(length).expect("64-bit");
                    let Some(mut buf) = pool.take(length) else { return };
                    for (to, from) in buf.iter_mut().zip(bytes.iter().chain(&[0]).cycle()) {
                        *to = *from;
                    }
                    task.resume(&self.nexus, Input::DataOut(buf.freeze()))
                }
            };
        }
        panic!("a command without end: {request:?}");
    }

    /// Carries out one step.
    pub(crate) fn turn(&self, task: &mut Task, step: Step) -> Turn {
        match step {
            Step::Complete(completion) => Turn::Over(completion),
            Step::ReceiveDataOut { length } => Turn::DataOut(length),
            Step::Wait => Turn::Waits,
            // Nobody else is there: whatever is waited for has happened.
            Step::Abort { .. } => Turn::Next(task.resume(&self.nexus, Input::Turn)),
            Step::Clock => Turn::Next(task.resume(&self.nexus, Input::Clock(0))),
            Step::Draw => {
                let drawn = Drawn { random: Some([7; DRAWN_LEN]), now: Instant(0) };
                Turn::Next(task.resume(&self.nexus, Input::Drawn(drawn)))
            }
            Step::Spawn { job, completion } => {
                work(*job);
                match completion {
                    Some(completion) => Turn::Over(completion),
                    None => Turn::Next(task.resume(&self.nexus, Input::Turn)),
                }
            }
            Step::Keep(keep) => Turn::Next(task.resume(&self.nexus, Input::Kept(keep.run()))),
            Step::Device(errand) => {
                Turn::Next(task.resume(&self.nexus, Input::Device(carried_out(&errand))))
            }
            Step::Store(op) => {
                Turn::Next(task.resume(&self.nexus, Input::Store(submit(task, &op))))
            }
        }
    }
}

/// Runs a job to its end.
fn work(mut job: Task) {
    let mut step = job.work(Input::Turn);
    for _ in 0..STEPS_MAX {
        match step {
            Step::Store(op) => step = job.work(Input::Store(submit(&job, &op))),
            Step::Keep(keep) => step = job.work(Input::Kept(keep.run())),
            Step::Complete(_) => return,
            other => panic!("a job wants {other:?}"),
        }
    }
    panic!("a job without end");
}

fn submit(task: &Task, op: &Op) -> Outcome {
    let store = task.store().expect("a store step has a store");
    match store.submit(op) {
        Submitted::Done(outcome) => outcome,
        Submitted::Io(io) => panic!("a store in memory wants {io:?}"),
    }
}

/// What a step led to.
pub(crate) enum Turn {
    Next(Step),
    DataOut(u32),
    /// Others must end first.
    Waits,
    Over(scsi::Completion),
}
