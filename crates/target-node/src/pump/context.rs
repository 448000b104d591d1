// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sessions and connections of a reactor share: its port, its memory, work under way, and who
//! waits for what.

use std::collections::VecDeque;
use std::sync::Arc;

use buf::Pool;
use capture::Trace;
use engine::wheel::Timers;

use super::PendingIo;
use super::awaiting_memory::MemoryQueue;
use super::held::HeldBoard;
use super::jobs;
use super::owed::Owed;
use super::quiescence::Managements;
use super::sending::Sending;
use super::services::Runnable;
use super::shared::Shared;
use super::stopping::Stopping;
use super::tally::Tally;
use super::view::Effects;
use super::waiting::Waiting;
use crate::answers::Answer;
use crate::answers::Inbox;
use crate::stopwatch::Stopwatch;
use crate::table::Key;
use crate::table::Table;

/// All of a reactor but its sessions and connections.
#[derive(Debug)]
pub(super) struct Context<P> {
    pub(super) port: P,
    pub(super) pool: Pool,
    pub(super) shared: Arc<Shared>,
    pub(super) reactor: usize,
    pub(super) ios: Table<PendingIo>,
    /// How work has ended that stores have done elsewhere.
    pub(super) inbox: Arc<Inbox>,
    /// Work that is done elsewhere and has not been answered.
    pub(super) errands: usize,
    /// The next look for stores that do not answer is due at some time.
    pub(super) looks_for_silence: bool,
    /// Work of tasks that have ended for which nobody waits any more.
    pub(super) left: usize,
    /// Emptied and given to the inbox in turn.
    pub(super) answers: Vec<Answer>,
    pub(super) managements: Managements,
    pub(super) timers: Timers,
    /// Sessions whose timers are to be set.
    pub(super) to_arm: Vec<Key>,
    /// Local connections, whose messages nobody brings.
    pub(super) locals: Vec<Key>,
    /// Connections over adapters that are to be looked at once more.
    pub(super) stirred: Vec<Key>,
    /// Listeners of adapters that are.
    pub(super) knocks: Vec<Key>,
    pub(super) sending: Sending,
    pub(super) owed: Owed,
    pub(super) runnable: Runnable,
    /// Commands that wait for others.
    pub(super) waiting: Waiting,
    /// Those that a limit holds.
    pub(super) held: HeldBoard,
    /// Sessions and connections that wait for memory.
    pub(super) memory_queue: MemoryQueue,
    /// The next sweep is due at some time.
    pub(super) sweeps: bool,
    /// Jobs that can go on.
    pub(super) job_turns: VecDeque<jobs::Turn>,
    /// What an event means for others than it is about.
    pub(super) effects: Effects,
    pub(super) stopping: Option<Stopping>,
    /// Who is told what connections carry.
    pub(super) traces: Vec<Trace>,
    /// There is somebody who is told that.
    pub(super) is_observed: bool,
    pub(super) watch: Stopwatch,
    pub(super) tally: Tally,
}
