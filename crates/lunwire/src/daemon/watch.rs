// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks from time to time whether files behind disks have grown, whether they are still there, and
//! what space is left for them.

use std::sync::Arc;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use target::Target;

/// Between two looks at the space that is left: a fast host writes some GB meanwhile.
const PERIOD: Duration = Duration::from_secs(5);

/// Looks at space between two looks at sizes: who grows a file has `lunwire lun rescan`.
const SIZES_EVERY: u32 = 6;

/// Looks until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(target: Arc<Target>) -> Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("watch".into())
            .spawn(move || {
                let mut turn = 0_u32;
                loop {
                    target.note_usage();
                    target.note_names();
                    let _ = target.note_sizes();
                    if stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                    turn = turn.wrapping_add(1);
                    if turn.is_multiple_of(SIZES_EVERY) {
                        // What grew is logged; what is smaller is told to who asks.
                        let _ = target.rescan();
                    }
                }
            })
            .context("cannot start the thread that looks at sizes")?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has panicked at worst, and told so.
            let _ = thread.join();
        }
    }
}
