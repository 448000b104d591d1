// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks that outlive their connection at ErrorRecoveryLevel 2, and TASK REASSIGN (RFC 7143 §6.3.4,
//! §7.2.2, §7.5, §11.5.6, §11.14, appendix E.1).
//!
//! ```text
//!   connection fails ----> Lost ----logout for recovery,---> Lost, logged out --TASK REASSIGN-->
//!   logout for recovery ------------login with its CID------>       |        on the connection
//!                            |                                      |        of the request
//!                            +---- Time2Wait + Time2Retain ---------+--> tasks cleared
//! ```

use super::retained::Retained;
use crate::datamover::TaskId;
use crate::serial::Serial;
use crate::status::StatusNumbers;
use crate::target_role::limits;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::Cid;
use wire::iscsi::StatSn;

/// Connections that are gone and whose tasks are not.
#[derive(Debug, Default)]
pub(in crate::target_role) struct LostConnections {
    all: Vec<Lost>,
    next_key: u32,
}

/// A connection that is gone and whose tasks wait for another one.
#[derive(Debug)]
struct Lost {
    /// Names it in its tasks.
    key: u32,
    cid: Cid,
    /// Its tasks may be reassigned: it was logged out for recovery.
    logged_out: bool,
    /// When its tasks are cleared.
    deadline: Instant,
    status: StatusNumbers,
    retained: Retained,
}

impl LostConnections {
    /// A connection is gone: gives the key for its tasks.
    pub(in crate::target_role) fn add(
        &mut self,
        cid: Cid,
        status: StatusNumbers,
        retained: Retained,
        deadline: Instant,
    ) -> u32 {
        let key = self.next_key;
        self.next_key = key.wrapping_add(1);
        self.all.push(Lost { key, cid, logged_out: false, deadline, status, retained });
        key
    }

    /// The connection `cid` counts as logged out for recovery (RFC 7143 §11.14): its tasks may be
    /// reassigned until `deadline`. Gives those that `expected` acknowledges; None if it is not
    /// known as lost.
    pub(in crate::target_role) fn log_out(
        &mut self,
        cid: Cid,
        expected: StatSn,
        deadline: Instant,
        now: Instant,
    ) -> Option<Vec<TaskId>> {
        let mut done = None;
        for lost in self.all.iter_mut().filter(|lost| lost.cid == cid) {
            let done = done.get_or_insert_with(Vec::new);
            if lost.logged_out {
                continue;
            }
            lost.logged_out = true;
            lost.deadline = deadline;
            // The field may mean nothing in a login; what was never sent is not acknowledged.
            if !expected.is_after(lost.status.next()) {
                lost.status.acknowledge(expected);
                done.extend(lost.retained.take_acknowledged(&lost.status, now));
            }
        }
        done
    }

    /// Takes out one with this CID; gives its key.
    pub(in crate::target_role) fn take(&mut self, cid: Cid) -> Option<u32> {
        let at = self.all.iter().position(|lost| lost.cid == cid)?;
        Some(self.all.remove(at).key)
    }

    /// Takes out one that nobody came for in time (RFC 7143 §7.5); gives its key. `claimed`:
    /// whether somebody has come, and the answer is in line.
    pub(in crate::target_role) fn take_due(
        &mut self,
        now: Instant,
        claimed: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let due = |lost: &Lost| lost.deadline <= now && !claimed(lost.key);
        let at = self.all.iter().position(due)?;
        Some(self.all.remove(at).key)
    }

    /// Takes out the oldest if there are too many; gives its key.
    pub(in crate::target_role) fn take_excess(&mut self) -> Option<u32> {
        let excess = self.all.len() > usize::from(limits::CONNECTIONS_MAX);
        excess.then(|| self.all.remove(0).key)
    }

    /// When one of them is cleared.
    pub(in crate::target_role) fn deadline(
        &self,
        claimed: impl Fn(u32) -> bool,
    ) -> Option<Instant> {
        let unclaimed = self.all.iter().filter(|lost| !claimed(lost.key));
        unclaimed.map(|lost| lost.deadline).min()
    }

    /// When the tasks of all have been cleared; None if there are none. `waits`: whether tasks of
    /// one are there.
    pub(in crate::target_role) fn until(&self, waits: impl Fn(u32) -> bool) -> Option<Instant> {
        let waiting = self.all.iter().filter(|lost| waits(lost.key));
        waiting.map(|lost| lost.deadline).max()
    }

    /// True if its tasks may be reassigned.
    pub(in crate::target_role) fn is_logged_out(&self, key: u32) -> bool {
        self.all.iter().any(|lost| lost.key == key && lost.logged_out)
    }

    pub(in crate::target_role) fn has(&self, key: u32) -> bool {
        self.all.iter().any(|lost| lost.key == key)
    }

    /// Panics if an invariant does not hold. `reassigns`: ErrorRecoveryLevel is 2.
    pub(in crate::target_role) fn check(&self, reassigns: bool) {
        assert!(reassigns || self.all.is_empty(), "tasks outlive connections at 2");
        assert!(self.all.len() <= usize::from(limits::CONNECTIONS_MAX), "lost connections");
        for lost in &self.all {
            lost.retained.check(true, &lost.status);
        }
    }
}
