// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images that are watched for another size, by numbers, for the same reason as flights.

use crate::image::Fate;
use crate::worker::Chore;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

/// What is known of the size of an image beside what is served.
#[derive(Debug)]
pub(crate) struct Watched {
    number: usize,
    chores: Sender<Chore>,
    /// Bytes; 0: nothing was heard.
    bytes: AtomicU64,
    /// The image may have another size.
    is_in_doubt: AtomicBool,
    /// Other clients that have it open, where that matters.
    others: Mutex<Option<usize>>,
    fate: Mutex<Fate>,
}

static WATCHES: Mutex<BTreeMap<usize, Arc<Watched>>> = Mutex::new(BTreeMap::new());

fn watches() -> MutexGuard<'static, BTreeMap<usize, Arc<Watched>>> {
    // What the lock guards is whole between any two statements.
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    pub(crate) fn new(chores: Sender<Chore>) -> Arc<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            number,
            chores,
            bytes: AtomicU64::new(0),
            is_in_doubt: AtomicBool::new(false),
            others: Mutex::default(),
            fate: Mutex::default(),
        })
    }

    pub(crate) fn note(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Release);
    }

    pub(crate) fn note_fate(&self, fate: Fate) {
        *self.fate.lock().unwrap_or_else(PoisonError::into_inner) = fate;
    }

    pub(crate) fn fate(&self) -> Fate {
        *self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_others(&self, count: usize) {
        *self.others.lock().unwrap_or_else(PoisonError::into_inner) = Some(count);
    }

    pub(crate) fn others(&self) -> Option<usize> {
        *self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the size is to be asked for, which is the asker's to do then.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt.swap(false, Ordering::SeqCst)
    }

    /// What was heard last.
    pub(crate) fn bytes(&self) -> Option<u64> {
        Some(self.bytes.load(Ordering::Acquire)).filter(|bytes| *bytes > 0)
    }
}

/// The number for the library.
pub(crate) fn remember(watched: &Arc<Watched>) -> usize {
    watches().insert(watched.number, Arc::clone(watched));
    watched.number
}

pub(crate) fn forget(watched: &Watched) {
    watches().remove(&watched.number);
}

/// What the library calls, from a thread of its own that must not wait for the cluster.
pub(crate) unsafe extern "C" fn updated(argument: *mut c_void) {
    let watched = watches().get(&argument.addr()).map(Arc::clone);
    if let Some(watched) = watched {
        watched.is_in_doubt.store(true, Ordering::SeqCst);
        // Without the thread nobody wants to know.
        let _ = watched.chores.send(Chore::Look);
    }
}
