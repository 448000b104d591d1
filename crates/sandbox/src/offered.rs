// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a kernel has.

use std::thread;

use landlock::LandlockStatus;

use crate::calls::refuse_calls;
use crate::reach::Reach;
use crate::reach::confine;

/// What a process can give up here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offered {
    /// System calls, by seccomp.
    pub calls: bool,
    /// Files, by landlock: its version. 4 has ports of TCP, 6 signals.
    pub landlock: Option<u32>,
}

/// Tries it, in a thread that ends with that.
#[must_use]
pub fn offered() -> Offered {
    let look = || Offered {
        landlock: confine(&Reach::default()).ok().map(|confined| confined.version),
        calls: refuse_calls().is_ok(),
    };
    let seen = thread::Builder::new().name("look".into()).spawn(look);
    let seen = seen.ok().and_then(|thread| thread.join().ok());
    seen.unwrap_or(Offered { calls: false, landlock: None })
}

/// The version of a landlock that is there.
pub(crate) fn version(status: LandlockStatus) -> u32 {
    match status {
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            u32::try_from(kernel_abi.unwrap_or(effective_abi as i32)).unwrap_or(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_changes_nothing() {
        let before = offered();
        assert_eq!(offered(), before);
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("a status");
        assert!(status.contains("Seccomp:\t0"), "{status}");
    }
}
