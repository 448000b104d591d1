// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether there was standard output when the process began. The standard library opens `/dev/null`
//! in its place (`>&-`), and whoever writes there hears of no failure.

use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

static HAS_OUTPUT: AtomicBool = AtomicBool::new(true);

/// Whether nobody gave this process a standard output.
#[must_use]
pub fn output_is_missing() -> bool {
    // Named, so that no linker leaves it out.
    black_box(&LOOK);
    !HAS_OUTPUT.load(Ordering::Relaxed)
}

extern "C" fn look() {
    // SAFETY: F_GETFD takes no pointer, and any number is a legal argument for a descriptor.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    HAS_OUTPUT.store(flags != -1, Ordering::Relaxed);
}

/// JUSTIFICATION: what runs before the standard library is the only one that can see it; asking
/// later finds a device that anybody may have meant.
// SAFETY: functions of this section are called once, without arguments that matter, before `main`
// (System V ABI, Dynamic Linking); this one calls the kernel and stores to an atomic, which need
// nothing of the library to be set up.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
