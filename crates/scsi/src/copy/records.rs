// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of the copies of one nexus, by list identifier (SPC-4 §5.16.4).

use crate::limits;
use crate::sense;
use crate::sense::Fault;
use crate::task::CHECK_CONDITION;
use crate::task::GOOD;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering;
use wire::scsi::copy::CopyStatus;
use wire::scsi::copy::Progress;
use wire::scsi::token::TOKEN_LEN;

/// The copies of one nexus at one unit.
#[derive(Debug, Default)]
pub(crate) struct Copies(spin::Mutex<Vec<Arc<Record>>>);

/// One copy.
#[derive(Debug)]
pub(crate) struct Record {
    id: u32,
    service_action: u16,
    cancelled: AtomicBool,
    state: spin::Mutex<State>,
}

#[derive(Debug)]
struct State {
    status: CopyStatus,
    segments: u16,
    blocks: u64,
    completion: u8,
    sense: Vec<u8>,
    token: Option<[u8; TOKEN_LEN]>,
}

/// Within its command or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    Fore,
    Back,
}

impl Copies {
    /// Makes a record, in place of a finished one of the same identifier.
    pub(crate) fn begin(
        &self,
        id: u32,
        service_action: u16,
        ground: Ground,
    ) -> Result<Arc<Record>, Fault> {
        let mut records = self.0.lock();
        let active = records.iter().filter(|record| record.is_active());
        if active.clone().any(|record| record.id == id) {
            return Err(sense::COPY_IN_PROGRESS.into());
        }
        if active.count() >= limits::COPIES_MAX {
            return Err(sense::INSUFFICIENT_RESOURCES.into());
        }
        records.retain(|record| record.id != id);
        if records.len() >= limits::COPY_RECORDS_MAX
            && let Some(oldest) = records.iter().position(|record| !record.is_active())
        {
            records.remove(oldest);
        }
        let status = match ground {
            Ground::Fore => CopyStatus::Foreground,
            Ground::Back => CopyStatus::Background,
        };
        let state = State {
            status,
            segments: 0,
            blocks: 0,
            completion: GOOD,
            sense: Vec::new(),
            token: None,
        };
        let record = Arc::new(Record {
            id,
            service_action,
            cancelled: AtomicBool::new(false),
            state: spin::Mutex::new(state),
        });
        records.push(Arc::clone(&record));
        Ok(record)
    }

    /// The copy of this identifier.
    pub(crate) fn find(&self, id: u32) -> Option<Arc<Record>> {
        self.0.lock().iter().find(|record| record.id == id).cloned()
    }

    /// Ends every copy that is under way, as soon as it takes its next step, and forgets all.
    pub(crate) fn clear(&self) {
        for record in self.0.lock().drain(..) {
            record.cancel();
        }
    }
}

impl Record {
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state.lock().status, CopyStatus::Foreground | CopyStatus::Background)
    }

    /// So much has been written.
    pub(crate) fn advance(&self, segments: usize, blocks: u64) {
        let mut state = self.state.lock();
        state.segments = u16::try_from(segments).unwrap_or(u16::MAX);
        state.blocks = blocks;
    }

    /// It is over, if it was not before.
    pub(crate) fn end(&self, status: CopyStatus, fault: Option<&Fault>) {
        let mut state = self.state.lock();
        if !matches!(state.status, CopyStatus::Foreground | CopyStatus::Background) {
            return;
        }
        state.status = status;
        if let Some(fault) = fault {
            state.completion = fault.status;
            if fault.status == CHECK_CONDITION {
                state.sense = fault.sense.emit_fixed().to_vec();
            }
        }
    }

    /// It made this token, of so many blocks.
    pub(crate) fn give(&self, token: [u8; TOKEN_LEN], blocks: u64) {
        let mut state = self.state.lock();
        state.token = Some(token);
        state.blocks = blocks;
        state.status = CopyStatus::Done;
    }

    /// Shows how far it is, and the token that it made.
    pub(crate) fn show<T>(
        &self,
        with: impl FnOnce(&Progress<'_>, Option<&[u8; TOKEN_LEN]>) -> T,
    ) -> T {
        let state = self.state.lock();
        let progress = Progress {
            service_action: self.service_action,
            status: state.status,
            segments: state.segments,
            blocks: state.blocks,
            delay_ms: limits::COPY_DELAY_MS,
            completion: state.completion,
            sense: &state.sense,
        };
        with(&progress, state.token.as_ref())
    }
}
