// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What units keep over a loss of power, on its way to stable storage: a chore of the port, so that
//! neither this reactor nor another one waits for the medium. It is work under way like that of a
//! store: resets, logouts and the end of a session wait until it is decided.

use engine::Chore;
use engine::Port;
use engine::Work;
use scsi::Input;
use scsi::Keep;
use scsi::KeepFailed;
use scsi::Step;
use scsi::Victims;

use super::Kind;
use super::Pump;
use super::context::Context;
use super::token;
use crate::table::Key;

/// Linux: input/output error. Why, the keeper has told the log.
const EIO: i32 = 5;

/// Keeps a state, on whatever thread.
#[derive(Debug)]
struct Keeping(Keep);

impl Chore for Keeping {
    fn run(&mut self) -> Result<(), i32> {
        self.0.run().map_err(|KeepFailed| EIO)
    }
}

impl<P: Port> Context<P> {
    /// Lets the port keep a state.
    #[cold]
    pub(super) fn submit_keep(&mut self, io: Key, keep: Keep) {
        let chore = Box::new(Keeping(keep));
        self.port.submit(token(Kind::Io, io), Work::Chore { chore });
    }
}

impl<P: Port> Pump<P> {
    /// It is kept, or not.
    #[cold]
    pub(super) fn kept(&mut self, key: Key, result: Result<(), i32>) {
        let result = result.map_err(|_| KeepFailed);
        let Some((key, id, _)) = self.take_done(key, Some(result)) else { return };
        if key == Key::NOBODY {
            return self.job_kept(id, result);
        }
        // A session that has waited for just this has gone.
        let Some(mut view) = self.session(key) else { return };
        if view.session.closed {
            return self.vacate(key);
        }
        view.resume(id, Input::Kept(result));
        self.settle(key);
    }

    /// The command has ended before: what is kept is in force all the same, and others do what that
    /// means for them.
    #[cold]
    pub(super) fn kept_late(
        &mut self,
        session: Key,
        mut task: scsi::Task,
        result: Result<(), KeepFailed>,
    ) {
        match task.kept_late(result) {
            Step::Abort { victims: Victims::Ports(ports) } => {
                if let Some(unit) = task.unit() {
                    self.preempt_for_nobody(session, unit, &ports);
                }
            }
            Step::Spawn { job, .. } => self.begin_job(*job, None),
            // It is over: nothing else is left to do for it.
            Step::Abort { .. }
            | Step::Store(_)
            | Step::ReceiveDataOut { .. }
            | Step::Wait
            | Step::Clock
            | Step::Draw
            | Step::Keep(_)
            | Step::Device(_)
            | Step::Complete(_) => {}
        }
        self.context.over(task);
    }
}
