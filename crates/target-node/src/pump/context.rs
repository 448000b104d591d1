// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sessions and connections of a reactor share: its port, its memory, work under way, and who
//! waits for what.

use std::collections::VecDeque;
use std::sync::Arc;

use buf::Pool;
use clock::Instant;
use engine::wheel::Timers;
use iscsi::datamover::TaskId;
use scsi::Step;

use super::PendingIo;
use super::awaiting_memory::MemoryQueue;
use super::jobs;
use super::quiescence::Management;
use super::stopping::Stopping;
use super::waiting::Waiting;
use crate::answers::Inbox;
use crate::reactor::Shared;
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
    pub(super) managements: Table<Management>,
    pub(super) timers: Timers,
    /// Local connections, whose messages nobody brings.
    pub(super) locals: Vec<Key>,
    /// Connections that may have something to send.
    pub(super) dirty: Vec<Key>,
    /// `dirty` of the turn before, kept for its memory.
    pub(super) flushing: Vec<Key>,
    /// Connections whose answers are held back.
    pub(super) held: Vec<Key>,
    /// When the first connection whose answers are held back must send.
    pub(super) send_at: Option<Instant>,
    /// What its sessions are owed together, bytes.
    pub(super) owed: usize,
    /// Commands that used up their turn.
    pub(super) runnable: VecDeque<(Key, TaskId, Step)>,
    /// Commands that wait for others.
    pub(super) waiting: Waiting,
    /// Sessions and connections that wait for memory.
    pub(super) memory_queue: MemoryQueue,
    /// The next sweep is due at some time.
    pub(super) sweeps: bool,
    pub(super) jobs: Table<jobs::Job>,
    /// Jobs that can go on.
    pub(super) job_turns: VecDeque<jobs::Turn>,
    pub(super) stopping: Option<Stopping>,
    pub(super) watch: Stopwatch,
}
