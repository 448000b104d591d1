// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue that leaves no session behind, however its command ends, and nothing under way: see
//! [`leaving`].

use initiator::Queue;
use std::ops::Deref;
use std::ops::DerefMut;

use super::leaving;

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
        leaving::leave(&mut self.0);
    }
}
