// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue that leaves no session behind, however its command ends: a target that is hung up on
//! takes it for a lost connection and keeps the session for a while.

use std::ops::Deref;
use std::ops::DerefMut;
use std::time::Duration;

use initiator::Queue;

/// How long the logouts of a command that has failed may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// The queue of a command.
#[derive(Debug)]
pub(crate) struct Guest(Queue);

impl Guest {
    pub(crate) const fn new(queue: Queue) -> Self {
        Self(queue)
    }
}

impl Deref for Guest {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.0
    }
}

impl DerefMut for Guest {
    fn deref_mut(&mut self) -> &mut Queue {
        &mut self.0
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.leave(FAREWELL);
    }
}
