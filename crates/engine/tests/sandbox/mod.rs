// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forbids system calls to a thread and to those that it starts, for ever.

use std::io;

use libc::sock_filter;
use libc::sock_fprog;

/// Puts a filter of seccomp(2) over the calling thread.
///
/// # Errors
///
/// What prctl(2) says where there are no such filters.
pub(crate) fn confine(filter: &mut [sock_filter]) -> io::Result<()> {
    let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: changes a flag of this thread; the other arguments must be zero.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its instructions live during the call, which copies them.
    if unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
