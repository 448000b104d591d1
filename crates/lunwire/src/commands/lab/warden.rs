// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process beside a run, which takes away what that leaves when it is killed: programs, mounts,
//! devices, huge pages. Where it is killed, too, the next run does.

use std::io::Read;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::os::unix::process::parent_id;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

/// A process whose files are closed is gone after so long.
const GONE_MOST: Duration = Duration::from_secs(10);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Told to it when there is nothing to do.
const OVER: &[u8] = b"over";

/// One that waits.
#[derive(Debug)]
pub(super) struct Warden(Option<Child>);

impl Warden {
    pub(super) fn start() -> Self {
        let start = |program| {
            Command::new(program)
                .args(["lab", "clean", "--after", &std::process::id().to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                // Who interrupts a run, or kills all of its group, does not mean it.
                .process_group(0)
                .spawn()
        };
        Self(std::env::current_exe().and_then(start).ok())
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        if let Some(mut process) = self.0.take() {
            if let Some(mut to) = process.stdin.take() {
                let _ = to.write_all(OVER);
            }
            let _ = process.wait();
        }
    }
}

/// Waits until process `pid`, which has started this one, is gone; false: it needs nobody.
pub(super) fn is_left_alone(pid: u32) -> bool {
    let mut said = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut said);
    let until = Instant::now() + GONE_MOST;
    while said.is_empty() && parent_id() == pid && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
    said.is_empty()
}
