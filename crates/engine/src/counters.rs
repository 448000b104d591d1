// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of the kernel and of the processor, for measurements (perf_event_open(2)).

use std::fs;
use std::io;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

/// What to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // callers choose
pub enum What {
    /// Instructions; virtual machines seldom let us.
    Instructions,
    /// Misses of the last cache; the same.
    CacheMisses,
    /// Times that another thread got the CPU; the kernel counts them.
    Switches,
    /// System calls; needs root and tracefs, and makes each call a little slower.
    SystemCalls,
}

/// A counter of one thread, running from `open` to drop.
#[derive(Debug)]
pub struct Counter(OwnedFd);

/// Kinds of events and their numbers (perf_event_open(2)).
const HARDWARE: u64 = 0;
const SOFTWARE: u64 = 1;
const TRACEPOINT: u64 = 2;
const INSTRUCTIONS: u64 = 1;
const CACHE_MISSES: u64 = 3;
const CONTEXT_SWITCHES: u64 = 3;

/// Length of the attributes in their first version but one, bytes; what follows is zero.
const ATTRIBUTES_LEN: u64 = 72;

/// Not in the kernel and not in the hypervisor, where we may not look.
const OURS_ALONE: u64 = 1 << 5 | 1 << 6;

/// Where tracefs says which number the event of a system call has.
const SYSTEM_CALL_IDS: [&str; 2] = [
    "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id",
    "/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id",
];

impl Counter {
    /// Counts `what` of the thread `tid` of this process, in the kernel too where that is allowed.
    ///
    /// # Errors
    /// `ENOENT` if the processor or the kernel has no such counter, `EACCES` or `EPERM` if we may
    /// not use it.
    pub fn open(tid: u32, what: What) -> io::Result<Self> {
        let (kind, event) = match what {
            What::Instructions => (HARDWARE, INSTRUCTIONS),
            What::CacheMisses => (HARDWARE, CACHE_MISSES),
            What::Switches => (SOFTWARE, CONTEXT_SWITCHES),
            What::SystemCalls => (TRACEPOINT, system_call_id()?),
        };
        Self::with_flags(tid, kind, event, 0).or_else(|error| match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Self::with_flags(tid, kind, event, OURS_ALONE),
            _ => Err(error),
        })
    }

    fn with_flags(tid: u32, kind: u64, event: u64, flags: u64) -> io::Result<Self> {
        // Type and size are half a word each, the size behind the type.
        let first = if cfg!(target_endian = "little") {
            kind | ATTRIBUTES_LEN << 32
        } else {
            kind << 32 | ATTRIBUTES_LEN
        };
        let mut attributes = [0_u64; 16];
        attributes[..6].copy_from_slice(&[first, event, 0, 0, 0, flags]);
        let (any_cpu, no_group, close_on_exec) = (-1, -1, 8_u64);
        // SAFETY: the kernel reads the attributes, which are as long as they say, during the call.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                attributes.as_ptr(),
                tid,
                any_cpu,
                no_group,
                close_on_exec,
            )
        };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
        let fd = fd.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel made this descriptor for us just now.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// How many so far.
    ///
    /// # Errors
    /// Of read(2).
    pub fn read(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        rustix::io::read(&self.0, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

fn system_call_id() -> io::Result<u64> {
    let text = SYSTEM_CALL_IDS.iter().find_map(|path| fs::read_to_string(path).ok());
    text.and_then(|text| text.trim().parse().ok()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_counts_goes_up() {
        let tid = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        for what in [What::Instructions, What::CacheMisses, What::Switches, What::SystemCalls] {
            let counter = match Counter::open(tid, what) {
                Ok(counter) => counter,
                Err(error) => {
                    println!("skipped: {what:?}: {error}");
                    continue;
                }
            };
            let before = counter.read().unwrap();
            for _ in 0..10 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let after = counter.read().unwrap();
            if what == What::CacheMisses {
                assert!(after >= before);
            } else {
                assert!(after > before, "{what:?}");
            }
        }
    }
}
