// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Foreign programs that studies run: where they are, and how they end.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Error;

/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Where the program is; the reason, if it is not installed.
pub(crate) fn installed(name: &str, package: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path);
    // Where root's programs are, which others do not look for.
    let places = places.chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = places.map(|place| place.join(name)).find(|file: &PathBuf| is_program(file));
    found.ok_or_else(|| format!("it needs {name} (package {package}), which is not installed"))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// Lets a program end, which is killed if that takes longer than `most`.
pub(crate) fn end(program: &mut Child, name: &str, most: Duration) -> Result<(), Error> {
    let _ = kill_process(Pid::from_child(program), Signal::TERM);
    let until = Instant::now() + most;
    while program.try_wait().map_err(Error::rig)?.is_none() {
        if Instant::now() >= until {
            let _ = program.kill();
            let _ = program.wait();
            return Err(Error::Rig(format!("{name} did not end, and was killed")));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_not_installed_is_named_with_its_package() {
        assert!(installed("sh", "dash").is_ok());
        let why = installed("no-such-program", "none").unwrap_err();
        assert_eq!(why, "it needs no-such-program (package none), which is not installed");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let sh = installed("sh", "dash").unwrap();
        let start = |script| Command::new(&sh).args(["-c", script]).spawn().unwrap();
        let mut one = start("exec sleep 60");
        end(&mut one, "sleep", Duration::from_secs(10)).unwrap();
        let mut other = start("trap '' TERM; while :; do sleep 0.1; done");
        // It has to have heard that it is not to listen.
        std::thread::sleep(Duration::from_millis(100));
        let why = end(&mut other, "sh", Duration::from_millis(50)).unwrap_err();
        assert!(why.to_string().ends_with("sh did not end, and was killed"), "{why}");
        assert!(other.try_wait().unwrap().is_some());
    }
}
