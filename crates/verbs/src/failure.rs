// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a connection has ended: the first thing that went wrong with it, or with its memory.

use crate::error::VerbsError;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

/// What went wrong, if something did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<VerbsError>>>);

impl Failure {
    /// This went wrong; what went wrong before it is its cause, and is kept.
    pub(crate) fn note(&self, error: VerbsError) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    pub(crate) fn take(&self) -> Option<VerbsError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
