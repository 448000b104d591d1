// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device that carries out commands itself, and answers with the fuzzer's bytes.

use buf::Pool;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use store::Outcome;
use store::device::Answer;
use store::device::Command;
use store::device::Device;
use store::device::Facts;
use store::device::Failure;
use store::device::Transfer;
use store::device::answer_of;
use store::foreign::Answers;
use store::foreign::Completer;
use store::foreign::Errand;
use store::foreign::Foreign;

/// The longest transfer, bytes.
const TRANSFER_MAX: u32 = 1 << 20;
const STATUSES: [u8; 6] = [0, 0, 2, 8, 0x18, 0x28];
const FAILURES: [Failure; 8] = [
    Failure::Gone,
    Failure::Busy,
    Failure::TimedOut,
    Failure::Reset,
    Failure::Aborted,
    Failure::NotPermitted,
    Failure::DoesNotFit,
    Failure::Transport,
];

thread_local! {
    static POOL: Pool = Pool::new(4 << 20).expect("address space");
}

/// What the next answers are made of.
pub(crate) type Script = Arc<Mutex<Vec<u8>>>;

/// The device.
#[derive(Debug)]
pub(crate) struct Answering {
    facts: Facts,
    script: Script,
}

impl Answering {
    pub(crate) fn new(kind: u8, script: Script) -> Self {
        let facts =
            Facts { kind, removable: kind != 0, transfer_max: TRANSFER_MAX, capacity: None };
        Self { facts, script }
    }
}

impl Device for Answering {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn carry_out(&self, command: Command) -> Errand {
        let room = if let Transfer::In(room) = command.transfer { room } else { 0 };
        assert!(room <= TRANSFER_MAX, "more than the device takes");
        Errand::reading(Arc::new(Work { command, script: Arc::clone(&self.script) }), room)
    }

    fn reset(&self) -> Errand {
        unreachable!("a pump resets devices")
    }

    fn send(&self, _: Command) {}

    fn close(&self) -> Result<(), store::Error> {
        Ok(())
    }
}

#[derive(Debug)]
struct Work {
    command: Command,
    script: Script,
}

impl Foreign for Work {
    fn begin(&self, mut completer: Completer) {
        let length = usize::from(self.command.cdb_len);
        assert!(self.command.cdb[length..].iter().all(|byte| *byte == 0), "behind the CDB");
        let script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        let (head, rest) = script.split_at(script.len().min(2));
        let [status, sense] = [0, 1].map(|at| head.get(at).copied().unwrap_or(0));
        if status >= 0xF0 {
            return completer.fail_command(FAILURES[usize::from(status) % FAILURES.len()]);
        }
        let status = STATUSES[usize::from(status) % STATUSES.len()];
        let (sense, rest) = rest.split_at(rest.len().min(usize::from(sense) % 64));
        let moved = match &self.command.transfer {
            Transfer::Nothing => 0,
            Transfer::Out(data) => data.len(),
            Transfer::In(_) => {
                let room = completer.room();
                let moved = rest.len().min(room.len());
                room[..moved].copy_from_slice(&rest[..moved]);
                moved
            }
        };
        let sense = if status == 2 { sense.to_vec() } else { Vec::new() };
        completer.answer_command(status, sense, u32::try_from(moved).expect("short"));
    }
}

/// Carries out what a step asks of a device.
pub(crate) fn carried_out(errand: &Errand) -> Answer {
    #[derive(Debug, Default)]
    struct Inbox(Mutex<Option<Outcome>>);
    impl Answers for Inbox {
        fn answer(&self, _: u64, outcome: Outcome) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        }
    }
    let room = usize::try_from(errand.room()).expect("64-bit");
    let buf = (room > 0).then(|| POOL.with(|pool| pool.take(room).expect("room")));
    let inbox = Arc::new(Inbox::default());
    errand.begin(Arc::clone(&inbox) as _, 0, buf);
    let outcome = inbox.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    answer_of(outcome.expect("it answers at once"))
}
