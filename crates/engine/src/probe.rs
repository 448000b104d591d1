// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which engine this machine allows, and why not the faster one.

use std::fmt;
use std::fs;

use io_uring::IoUring;
use io_uring::Probe;
use io_uring::opcode;

use crate::Config;
use crate::filework::errno_of;
use crate::uring::Uring;

/// Which engine to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a caller makes the port that was chosen
pub enum Choice {
    /// io_uring if this machine allows it, otherwise epoll.
    #[default]
    Auto,
    /// io_uring.
    Uring,
    /// epoll and a few file threads.
    Epoll,
}

impl Choice {
    /// As in `--engine`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

/// What was found out about this machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Release of the kernel.
    pub kernel: String,
    /// What the ring uses; or why there is none.
    pub uring: Result<&'static str, Refusal>,
    /// What `Auto` means here: never `Auto`.
    pub choice: Choice,
}

/// Why io_uring cannot be used; says what to do where something can be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// `kernel.io_uring_disabled` is 1 or 2.
    #[error(
        "switched off by the system (kernel.io_uring_disabled = {value}); \
         try: sysctl kernel.io_uring_disabled=0"
    )]
    Disabled {
        /// Value of the setting.
        value: u32,
    },
    /// `EPERM` or `EACCES`: a seccomp filter or security module.
    #[error(
        "forbidden by a sandbox (seccomp or a security module), as container runtimes do by \
         default; try: allow io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Forbidden,
    /// `ENOSYS`.
    #[error("not in this kernel; try: Linux 6.1 or newer")]
    NoSystemCall,
    /// The kernel has io_uring but not all that is used of it.
    #[error("this kernel's io_uring lacks {missing}; try: Linux 6.1 or newer")]
    Missing {
        /// What.
        missing: &'static str,
    },
    /// Anything else, such as `ENOMEM`.
    #[error("io_uring_setup failed with errno {errno}")]
    Failed {
        /// Number of the kernel.
        errno: i32,
    },
}

impl fmt::Display for Report {
    /// One line for a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.uring {
            Ok(features) => write!(f, "uring ({features}) on Linux {}", self.kernel),
            Err(why) => write!(f, "epoll on Linux {}; io_uring: {why}", self.kernel),
        }
    }
}

/// Tries what the engines need.
#[must_use]
pub fn probe() -> Report {
    let uring = try_uring();
    let choice = if uring.is_ok() { Choice::Uring } else { Choice::Epoll };
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    Report { kernel, uring, choice }
}

/// What `wish` means on this machine: `Auto` becomes one of the others, which stay.
#[must_use]
pub fn choose(wish: Choice) -> Choice {
    match wish {
        Choice::Auto => probe().choice,
        forced => forced,
    }
}

fn try_uring() -> Result<&'static str, Refusal> {
    check_operations()?;
    // A whole port, but a small one: flags and the buffer ring are refused only on use.
    let config = Config { receive_buffers: 1, receive_buffer_bytes: 4096, ..Config::default() };
    match Uring::new(&config) {
        Ok(port) => Ok(port.features()),
        Err(error) => Err(refusal(errno_of(&error))),
    }
}

fn check_operations() -> Result<(), Refusal> {
    let ring = IoUring::new(4).map_err(|error| refusal(errno_of(&error)))?;
    let mut probe = Probe::new();
    let probed = ring.submitter().register_probe(&mut probe);
    probed.map_err(|_| Refusal::Missing { missing: "the probe" })?;
    let operations = [
        (opcode::AcceptMulti::CODE, "accept"),
        (opcode::RecvMulti::CODE, "receive"),
        (opcode::SendMsg::CODE, "sendmsg"),
        (opcode::PollAdd::CODE, "poll"),
        (opcode::AsyncCancel2::CODE, "cancel"),
        (opcode::Read::CODE, "read"),
        (opcode::Write::CODE, "write"),
        (opcode::Fsync::CODE, "fsync"),
        (opcode::Fallocate::CODE, "fallocate"),
    ];
    for (code, missing) in operations {
        if !probe.is_supported(code) {
            return Err(Refusal::Missing { missing });
        }
    }
    // Multishot receive came with this one; there is no other sign of it.
    if !probe.is_supported(opcode::SendZc::CODE) {
        return Err(Refusal::Missing { missing: "multishot receive" });
    }
    Ok(())
}

fn refusal(errno: i32) -> Refusal {
    match errno {
        libc::EPERM | libc::EACCES => match disabled() {
            0 => Refusal::Forbidden,
            value => Refusal::Disabled { value },
        },
        libc::ENOSYS => Refusal::NoSystemCall,
        libc::EINVAL => Refusal::Missing { missing: "buffer rings" },
        errno => Refusal::Failed { errno },
    }
}

fn disabled() -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forced_choices_stay_and_auto_is_decided() {
        assert_eq!(choose(Choice::Epoll), Choice::Epoll);
        assert_eq!(choose(Choice::Uring), Choice::Uring);
        assert_ne!(choose(Choice::Auto), Choice::Auto);
    }

    #[test]
    fn the_report_agrees_with_itself() {
        let report = probe();
        assert_eq!(report.uring.is_ok(), report.choice == Choice::Uring);
        assert!(report.to_string().contains(&report.kernel));
        assert!(report.to_string().starts_with(report.choice.name()));
    }

    #[test]
    fn refusals_name_the_way_out() {
        assert_eq!(refusal(libc::ENOSYS), Refusal::NoSystemCall);
        assert_eq!(refusal(libc::ENOMEM), Refusal::Failed { errno: libc::ENOMEM });
        assert!(Refusal::Disabled { value: 2 }.to_string().contains("sysctl"));
        assert!(Refusal::Forbidden.to_string().contains("seccomp"));
    }
}
