// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of threads that are being killed: they get an end, whatever the disk does.
//!
//! The system tells once that a thread has a signal (`FUSE_INTERRUPT`), and which one it does not
//! tell. As at a block device a signal with a handler interrupts no request, which programs do not
//! expect; a thread that dies needs no answer. So as long as the request lasts its thread is looked
//! at.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use std::time::Instant;

use rustix::io::Errno;

use super::Shared;

/// Between two looks whether a thread is being killed.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// So often a request is not found before it is one that has ended: another thread may be taking
/// it. The first look is at once.
const MISSES_MAX: u32 = 3;

/// SIGKILL in a mask of signals. Linux sets it for each thread of a process that a signal ends.
const KILLED: u64 = 1 << 8;

/// A request whose thread has a signal.
struct Interrupted {
    unique: u64,
    misses: u32,
}

/// What a look at such a request has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It is not under way.
    Nothing,
    Waits,
    /// Its thread is being killed, so it has its end now.
    Ended,
}

/// Takes the numbers of such requests until nobody sends any more.
pub(super) fn run(shared: &Arc<Shared>, told: &Receiver<u64>) {
    watch(told, |uniques| look(shared, uniques));
}

/// Looks at each request that is told of at once, and then again and again with all others.
fn watch(told: &Receiver<u64>, mut look: impl FnMut(&[u64]) -> Vec<Found>) {
    let mut all: Vec<Interrupted> = Vec::new();
    let mut next = Instant::now();
    loop {
        let one = match all.is_empty() {
            true => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => told.recv_timeout(next.saturating_duration_since(Instant::now())),
        };
        match one {
            Ok(unique) => {
                if all.is_empty() {
                    next = Instant::now() + LOOK;
                }
                let mut new = vec![Interrupted { unique, misses: 0 }];
                sift(&mut new, &mut look);
                all.append(&mut new);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // Others may come without a pause.
        if Instant::now() >= next {
            sift(&mut all, &mut look);
            next = Instant::now() + LOOK;
        }
    }
}

/// Forgets those that have ended.
fn sift(all: &mut Vec<Interrupted>, mut look: impl FnMut(&[u64]) -> Vec<Found>) {
    let uniques: Vec<u64> = all.iter().map(|one| one.unique).collect();
    let mut found = look(&uniques).into_iter();
    all.retain_mut(|one| match found.next() {
        Some(Found::Waits) => true,
        Some(Found::Ended) => false,
        Some(Found::Nothing) | None => {
            one.misses += 1;
            one.misses < MISSES_MAX
        }
    });
}

fn look(shared: &Shared, uniques: &[u64]) -> Vec<Found> {
    let threads: HashMap<u64, u32> = waiting(shared).into_iter().collect();
    let find = |unique: &u64| match threads.get(unique) {
        None => Found::Nothing,
        Some(thread) if is_killed(*thread) => Found::Ended,
        Some(_) => Found::Waits,
    };
    let found: Vec<Found> = uniques.iter().map(find).collect();
    let killed = uniques.iter().zip(&found).filter(|(_, found)| **found == Found::Ended);
    end(shared, &killed.map(|(unique, _)| *unique).collect::<Vec<_>>());
    found
}

/// Ends all requests under way whose threads are being killed, for when nobody takes what the
/// system tells of signals.
pub(super) fn let_go(shared: &Shared) {
    let killed = waiting(shared).into_iter().filter(|(_, thread)| is_killed(*thread));
    end(shared, &killed.map(|(unique, _)| unique).collect::<Vec<_>>());
}

/// Requests under way whose answers somebody waits for, and their threads.
fn waiting(shared: &Shared) -> Vec<(u64, u32)> {
    shared.carrier().owners().filter_map(|owner| owner.ticket().waits()).collect()
}

fn end(shared: &Shared, killed: &[u64]) {
    if killed.is_empty() {
        return;
    }
    for owner in shared.carrier().owners() {
        let ticket = owner.ticket();
        if ticket.waits().is_some_and(|(unique, _)| killed.contains(&unique)) {
            ticket.end(Errno::INTR);
        }
    }
}

pub(super) fn is_killed(thread: u32) -> bool {
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
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use std::sync::mpsc;

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

    /// Many that are killed at once are told of at once, while some are just being taken.
    #[test]
    fn a_request_that_is_being_taken_is_found_however_many_others_are_told_of() {
        let (tell, told) = mpsc::channel();
        let (to, ended) = mpsc::channel();
        let begun = Instant::now();
        let looking = std::thread::spawn(move || {
            let find = |unique: &u64| match unique {
                0 if begun.elapsed() < LOOK / 2 => Found::Nothing,
                0 => {
                    let _ = to.send(());
                    Found::Ended
                }
                1 => Found::Waits,
                _ => Found::Nothing,
            };
            watch(&told, |uniques| uniques.iter().map(find).collect());
        });
        for unique in 0..1000 {
            tell.send(unique).unwrap();
        }
        let is_found = ended.recv_timeout(LOOK * 50).is_ok();
        drop(tell);
        looking.join().unwrap();
        assert!(is_found, "it is forgotten");
    }
}
