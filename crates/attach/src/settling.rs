// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A flush that whoever serves a disk asks for, before he decides whether to serve it no more.

use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::server::Error;

/// Between him and the thread that serves. One flush at a time.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    /// Looked at whenever anything happens: no lock for that.
    asked: AtomicBool,
    is_under_way: Mutex<bool>,
    ended: Condvar,
}

impl Settling {
    /// Asks for a flush, and waits until it has ended, well or not; `wake`: whoever serves is to
    /// look.
    ///
    /// # Errors
    /// [`Error::Silent`] if that takes longer than `patience`.
    pub(crate) fn ask(&self, patience: Duration, wake: impl FnOnce()) -> Result<(), Error> {
        let mut is_under_way = self.is_under_way();
        // One that is under way since an earlier question covers less.
        if !*is_under_way {
            *is_under_way = true;
            self.asked.store(true, Ordering::Release);
        }
        drop(is_under_way);
        wake();
        let (is_under_way, _) = self
            .ended
            .wait_timeout_while(self.is_under_way(), patience, |is_under_way| *is_under_way)
            .unwrap_or_else(PoisonError::into_inner);
        if *is_under_way { Err(Error::Silent) } else { Ok(()) }
    }

    /// Whether somebody has asked since the last call.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::AcqRel)
    }

    /// The flush has ended.
    pub(crate) fn ended(&self) {
        *self.is_under_way() = false;
        self.ended.notify_all();
    }

    fn is_under_way(&self) -> MutexGuard<'_, bool> {
        self.is_under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
