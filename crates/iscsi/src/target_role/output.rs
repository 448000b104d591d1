// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a session gives, and the queue in which it waits to be taken.

use super::ending::Ending;
use super::names::ConnectionId;
use crate::datamover::Op;
use crate::datamover::TaskId;
use crate::service::Indication;
use alloc::collections::VecDeque;
use alloc::string::String;
use buf::Buf;

/// What a session gives, in order.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // the pump must carry out each
pub enum Output {
    /// For the mover of this connection.
    Op(ConnectionId, Op),
    /// For the SCSI side.
    Indication(Indication),
    /// SendTargets was asked: answer with `targets`. None: all that the initiator may see.
    Targets(Option<String>),
    /// Give the mover of this connection a buffer for a task whose data comes before the SCSI side
    /// has asked for it, and answer with [`Session::reserved`](super::Session::reserved) before the
    /// next poll.
    Reserve {
        /// The connection of the task.
        connection: ConnectionId,
        /// The task.
        task: TaskId,
        /// Bytes that the buffer must have.
        length: u32,
        /// Immediate data, which becomes the beginning of it; with a task that the SCSI side has,
        /// that has it instead.
        staged: Option<(Buf, u32)>,
    },
    /// Take the buffer of a task back from the mover of this connection and keep it: the task
    /// leaves it.
    Detach {
        /// The connection that the task leaves.
        connection: ConnectionId,
        /// The task.
        task: TaskId,
    },
    /// Give the mover of this connection the buffer that was kept for a task.
    Attach {
        /// The connection that takes the task over.
        connection: ConnectionId,
        /// The task.
        task: TaskId,
    },
    /// This connection is over and no longer belongs to the session: close it once all has left.
    ConnectionClosed {
        /// Names it for the last time: the id may be given to another.
        connection: ConnectionId,
        /// Why.
        reason: Ending,
    },
    /// The session is over (logout, failure, timeout): drop it when its connections are closed.
    Closed {
        /// Why.
        reason: Ending,
    },
}

/// What waits to be taken, oldest first. The machines of a session put in what they want done.
#[derive(Debug)]
pub(super) struct Outputs {
    queue: VecDeque<Output>,
}

impl Outputs {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { queue: VecDeque::with_capacity(capacity) }
    }

    /// For the mover of a connection.
    #[inline]
    pub(super) fn op(&mut self, id: ConnectionId, op: Op) {
        self.queue.push_back(Output::Op(id, op));
    }

    /// For the SCSI side.
    #[inline]
    pub(super) fn indicate(&mut self, indication: Indication) {
        self.queue.push_back(Output::Indication(indication));
    }

    #[inline]
    pub(super) fn push(&mut self, output: Output) {
        self.queue.push_back(output);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Output> {
        self.queue.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// What was said to a connection that is gone is not for the next one of its id.
    pub(super) fn forget_ops(&mut self, id: ConnectionId) {
        self.queue.retain(|output| !matches!(output, Output::Op(to, _) if *to == id));
    }
}
