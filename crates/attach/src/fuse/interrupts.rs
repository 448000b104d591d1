// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of threads that are being killed: they get an end, whatever the disk does.
//!
//! The system tells once that a thread has a signal (`FUSE_INTERRUPT`), and which one it does not
//! tell. As at a block device a signal with a handler interrupts no request, which programs do not
//! expect; a thread that dies needs no answer. So as long as the request lasts its thread is looked
//! at.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use rustix::io::Errno;

use super::Shared;

/// Between two looks whether a thread is being killed.
const LOOK: Duration = Duration::from_millis(100);

/// So often a request is not found before it is one that has ended: another thread may be taking
/// it.
const MISSES_MAX: u32 = 2;

/// SIGKILL in a mask of signals. Linux sets it for each thread of a process that a signal ends.
const KILLED: u64 = 1 << 8;

/// A request whose thread has a signal.
struct Interrupted {
    unique: u64,
    misses: u32,
}

/// Takes the numbers of such requests until nobody sends any more.
pub(super) fn run(shared: &Arc<Shared>, told: &Receiver<u64>) {
    let mut all: Vec<Interrupted> = Vec::new();
    loop {
        let next = match all.is_empty() {
            true => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => told.recv_timeout(LOOK),
        };
        match next {
            Ok(unique) => all.push(Interrupted { unique, misses: 0 }),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        look(shared, &mut all);
    }
}

/// Ends those whose threads are being killed, and forgets those that have ended.
fn look(shared: &Shared, all: &mut Vec<Interrupted>) {
    let threads: Vec<Option<u32>> = {
        let mut carrier = shared.carrier();
        let thread_of = |unique| {
            let mut tickets = carrier.owners().map(|owner| owner.ticket());
            tickets.find(|ticket| ticket.is_of(unique)).map(|ticket| ticket.thread())
        };
        all.iter().map(|one| one.unique).map(thread_of).collect()
    };
    let mut threads = threads.into_iter();
    let mut killed = Vec::new();
    all.retain_mut(|one| match threads.next().flatten() {
        None => {
            one.misses += 1;
            one.misses < MISSES_MAX
        }
        Some(thread) if is_killed(thread) => {
            killed.push(one.unique);
            false
        }
        Some(_) => true,
    });
    if killed.is_empty() {
        return;
    }
    for owner in shared.carrier().owners() {
        let ticket = owner.ticket();
        if killed.iter().any(|unique| ticket.is_of(*unique)) {
            ticket.end(Errno::INTR);
        }
    }
}

fn is_killed(thread: u32) -> bool {
    // Zero: it is in a namespace that cannot be seen from here.
    thread != 0
        && std::fs::read_to_string(format!("/proc/{thread}/status"))
            .is_ok_and(|status| has_kill(&status))
}

/// Whether SIGKILL waits for the thread that has this `/proc/N/status`.
fn has_kill(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & KILLED != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_killed_has_sigkill_waiting() {
        assert!(has_kill("Name:\tdd\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(has_kill("SigPnd:\t0000000000004102\n"));
        for alive in ["SigPnd:\t0000000000002002\nShdPnd:\t0000000000000100\n", "SigPnd:\tx\n", ""]
        {
            assert!(!has_kill(alive), "{alive}");
        }
        assert!(!is_killed(std::process::id()) && !is_killed(0));
    }
}
