// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of a daemon one of whose threads has panicked. Without one of its reactors it would
//! be there and not serve: listeners gone, sessions silent, administration waiting for an answer.
//! So it ends whole, and soon, and who started it can start it again.

use std::process;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::target::Target;

/// Exit status of a process that has ended so: "internal software error" of sysexits(3).
pub const PANICKED: i32 = 70;

/// Flushing may take so long. The kernel has what was acknowledged of files all the same.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// From now on a panic, on whatever thread, flushes all disks of `target`, calls `last_word`, and
/// ends the process with [`PANICKED`].
pub fn end_process_on_panic(target: &Arc<Target>, last_word: impl Fn() + Send + Sync + 'static) {
    let target = Arc::downgrade(target);
    let failing = AtomicBool::new(false);
    std::panic::set_hook(Box::new(move |panic| {
        if failing.swap(true, Ordering::SeqCst) {
            // The first one ends the process.
            loop {
                thread::park();
            }
        }
        let name = thread::current().name().unwrap_or("(unnamed)").to_owned();
        let what = panic.to_string().replace('\n', " ");
        tracing::error!(thread = name, what, "a defect of this program: it ends; start it again");
        flush(&target);
        last_word();
        process::exit(PANICKED);
    }));
}

/// Whatever the thread that panicked holds, this ends.
fn flush(target: &Weak<Target>) {
    let Some(target) = target.upgrade() else { return };
    let (done, flushed) = mpsc::channel();
    let flush = move || {
        for result in [target.flush(), target.finish_stores()] {
            if let Err(error) = result {
                tracing::error!("{error}");
            }
        }
        // Who waited may have given up.
        let _ = done.send(());
    };
    let spawned = thread::Builder::new().name("last-flush".into()).spawn(flush);
    if spawned.is_ok() && flushed.recv_timeout(FLUSH_MAX).is_err() {
        tracing::error!("files are not flushed: that takes too long");
    }
}
