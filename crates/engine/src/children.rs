// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that do not outlive who has started them.

use std::io;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;
use rustix::process::getpid;
use rustix::process::getppid;
use rustix::process::set_parent_process_death_signal;

/// What `command` starts is killed when the thread ends that starts it, however that comes.
///
/// JUSTIFICATION: there is no safe way to do something in a process before it becomes a program;
/// a program that does it in between is one more that has to be there.
pub fn end_with_thread(command: &mut Command) -> &mut Command {
    let parent = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before.
        match getppid() {
            Some(now) if now == parent => Ok(()),
            _ => Err(io::Error::from(ErrorKind::BrokenPipe)),
        }
    };
    // SAFETY: all that it does between fork and exec are two system calls; it allocates nothing,
    // and takes no lock.
    unsafe { command.pre_exec(prepare) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_program_ends_with_its_thread() {
        let start = || end_with_thread(Command::new("sleep").arg("60")).spawn().unwrap();
        let mut program = std::thread::spawn(start).join().unwrap();
        assert_eq!(program.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
        let mut other = end_with_thread(&mut Command::new("true")).spawn().unwrap();
        assert!(other.wait().unwrap().success());
    }
}
