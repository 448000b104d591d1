// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which CPUs this process may use, and where a thread runs.

use std::io;
use std::io::ErrorKind;

use rustix::process::getpid;
use rustix::thread::CpuSet;
use rustix::thread::sched_getaffinity;
use rustix::thread::sched_setaffinity;

/// CPUs that the process may run on, ascending; at least one.
///
/// Those of its first thread: reactors that are pinned already do not change the answer.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(Some(getpid())) else { return vec![0] };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// How many CPUs the machine has running, whether or not this process may use them; at least one.
///
/// A process that is pinned to one CPU of several has that CPU for itself as far as its peers go.
#[must_use]
pub fn online_cpus() -> usize {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    count_ranges(&online).max(allowed_cpus().len())
}

/// The size of a list such as `0-3,8`.
fn count_ranges(list: &str) -> usize {
    let ranges = list.trim().split(',');
    ranges
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
            last.checked_sub(first)?.checked_add(1)
        })
        .fold(0, usize::saturating_add)
}

/// Lets the calling thread run on `cpu` alone.
///
/// # Errors
///
/// `InvalidInput` if there is no such CPU or the process may not use it.
pub fn pin(cpu: usize) -> io::Result<()> {
    confine(&[cpu])
}

/// Lets the calling thread, and those that it starts from now on, run on `cpus` alone.
///
/// # Errors
///
/// `InvalidInput` if the process may use none of them, or there is no such CPU.
pub fn confine(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        if *cpu >= CpuSet::MAX_CPU {
            return Err(ErrorKind::InvalidInput.into());
        }
        set.set(*cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Lets the calling thread run only when nobody else wants its CPU (SCHED_IDLE), as the nicest one.
///
/// # Errors
///
/// Of the system; it asks for no right.
///
/// JUSTIFICATION: no library that we have offers policies of the scheduler.
pub fn run_last() -> io::Result<()> {
    rustix::process::setpriority_process(None, NICEST)?;
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the parameters, which live; 0 is the calling thread alone.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// So the kernel counts its time apart from that of others, too.
const NICEST: i32 = 19;

/// Names the calling thread, as `top -H` shows it; cut to the 15 bytes that Linux keeps.
pub fn name_thread(name: &str) {
    let mut end = name.len().min(15);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let Some(cut) = name.get(..end) else { return };
    if let Ok(text) = std::ffi::CString::new(cut) {
        let _ = rustix::thread::set_name(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, count) in [("0-1\n", 2), ("0", 1), ("0-3,8,10-11", 7), ("", 0), ("3-1,x", 0)] {
            assert_eq!(count_ranges(list), count, "{list:?}");
        }
        assert!(online_cpus() >= allowed_cpus().len());
    }

    #[test]
    fn who_runs_last_is_the_only_one() {
        let policy = |path: &str| {
            let stat = std::fs::read_to_string(path).unwrap();
            let words: Vec<String> =
                stat.rsplit_once(')').unwrap().1.split_whitespace().map(str::to_owned).collect();
            (words[16].clone(), words[38].clone())
        };
        let last = std::thread::spawn(move || {
            run_last().unwrap();
            policy("/proc/thread-self/stat")
        });
        let idle = libc::SCHED_IDLE.to_string();
        assert_eq!(last.join().unwrap(), (NICEST.to_string(), idle.clone()));
        assert_ne!(policy("/proc/thread-self/stat").1, idle);
    }

    #[test]
    fn pinning_moves_one_thread_and_not_the_process() {
        let before = allowed_cpus();
        let last = *before.last().unwrap();
        std::thread::spawn(move || {
            pin(last).unwrap();
            assert_eq!(rustix::thread::sched_getcpu(), last);
            name_thread("a-name-that-is-far-too-long");
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            assert_eq!(name.trim_end(), "a-name-that-is-");
        })
        .join()
        .unwrap();
        assert_eq!(allowed_cpus(), before);
        assert!(pin(CpuSet::MAX_CPU).is_err());
    }
}
