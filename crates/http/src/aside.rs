// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What waits for reactors, or for a file, is done in a thread of its own. Where there is none any
//! more, as at the bound of a control group, it is done here, and other connections wait.

use std::panic;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

use tokio::sync::Semaphore;
use tokio::sync::oneshot;

use crate::limits::ASIDE_MAX;

/// Threads for that, so many at a time. Clones have the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    free: Arc<Semaphore>,
    /// None: as large as others.
    stack_len: Option<usize>,
}

impl Default for Aside {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(ASIDE_MAX)), stack_len: None }
    }
}

impl Aside {
    /// Does `what`, which goes on where nobody waits for it any more. None: it has panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        what: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let permit = Arc::clone(&self.free).acquire_owned().await.ok()?;
        let (tell, told) = oneshot::channel();
        let work = move || {
            // Who has gone does not want to know.
            drop(tell.send(what()));
            drop(permit);
        };
        // A thread that cannot be had gives nothing back.
        let work = Arc::new(Mutex::new(Some(work)));
        let shared = Arc::clone(&work);
        let mut thread = thread::Builder::new().name("http-looks".into());
        if let Some(len) = self.stack_len {
            thread = thread.stack_size(len);
        }
        if thread.spawn(move || once(&shared)).is_err() {
            // As in a thread a panic, which has said why, ends no more than this.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| once(&work)));
        }
        told.await.ok()
    }

    /// No thread can be had.
    #[cfg(test)]
    pub(crate) fn without_threads() -> Self {
        Self { stack_len: Some(1 << 60), ..Self::default() }
    }
}

fn once<W: FnOnce()>(work: &Mutex<Option<W>>) {
    let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
    work.into_iter().for_each(|work| work());
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::runtime;

    use super::*;

    fn wait<F: Future>(what: F) -> F::Output {
        let mut runtime = runtime::Builder::new_current_thread();
        runtime.enable_time().build().expect("it needs no thread").block_on(what)
    }

    #[test]
    fn what_waits_is_done_elsewhere_or_here_where_there_is_no_thread() {
        let here = thread::current().id();
        let done = |aside: &Aside| wait(aside.run(|| thread::current().id()));
        assert!(done(&Aside::default()).is_some_and(|at| at != here));
        let none = Aside::without_threads();
        for _ in 0..=ASIDE_MAX {
            assert_eq!(done(&none), Some(here));
        }
    }

    /// Here it would end a connection without an answer, or the telling of all streams.
    #[test]
    fn what_panics_takes_nobody_along() {
        for aside in [Aside::default(), Aside::without_threads()] {
            for _ in 0..=ASIDE_MAX {
                assert_eq!(wait(aside.run(|| -> u8 { panic!("a defect") })), None);
            }
            assert_eq!(wait(aside.run(|| 7)), Some(7));
        }
    }

    #[test]
    fn what_nobody_waits_for_goes_on() {
        let (aside, (tell, told)) = (Aside::default(), mpsc::channel());
        let work = move || {
            thread::sleep(Duration::from_millis(50));
            tell.send(()).expect("heard");
        };
        let soon = async { tokio::time::timeout(Duration::from_millis(1), aside.run(work)).await };
        assert!(wait(soon).is_err());
        told.recv_timeout(Duration::from_secs(10)).expect("it is done");
        assert_eq!(wait(aside.run(|| 7)), Some(7));
    }
}
