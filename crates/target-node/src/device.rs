// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices of the system that carry out commands of hosts ([`store::device`]).
//!
//! ```text
//! reactors --begin--> line --> threads of the device --SG_IO--> kernel --> device
//!          <--------------------- Completer -------------
//! ```
//!
//! SG_IO waits for the end of its command, so each command under way has a thread (`line.rs`): no
//! more than the device takes commands at a time. A command in the line can be taken back; one that
//! the kernel has cannot: it ends with the device, with its time-out, or with a reset, which has a
//! thread of its own. `probe.rs` asks a device who it is when it is opened.

mod carrier;
mod line;
pub(crate) mod probe;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::sg::SgDevice;
use engine::sg::SgError;
use store::device::Command;
use store::device::Device;
use store::device::Facts;
use store::device::Transfer;
use store::foreign::Completer;
use store::foreign::Errand;
use store::foreign::Foreign;
use store::spec::ScsiSpec;

use carrier::Carrier;
use carrier::Times;
use line::Line;
use probe::Known;

/// A device that is served.
#[derive(Debug)]
pub(crate) struct Served<C: Carrier> {
    facts: Facts,
    line: Arc<Line<C>>,
}

/// The usual one, unless the store says another: more than hosts wait for a disk, so that theirs
/// comes first, and their abort and reset say what they want.
const USUAL: Duration = Duration::from_secs(60);

/// Commands at a time, whatever a device takes: SG nodes take so many of one descriptor, and each
/// has a thread.
const AT_A_TIME_MAX: u32 = 16;

/// PERIPHERAL DEVICE TYPEs of a tape drive and a changer, whose commands build upon each other.
const IN_ORDER: [u8; 2] = [0x01, 0x08];

/// Opens the device of `spec`, and asks it who it is.
///
/// # Errors
/// See [`SgError`].
pub(crate) fn open(spec: &ScsiSpec) -> Result<(Arc<dyn Device>, Known), SgError> {
    let path = Path::new(&spec.path);
    let device = SgDevice::open(path)?;
    let limits = device.limits();
    let known = probe::probe(&device, limits.transfer_max)
        .map_err(|source| SgError::Silent { path: path.into(), source })?;
    let times = Times { usual: spec.timeout.unwrap_or(USUAL) };
    let served = Served::new(&spec.path, device, known.facts.clone(), times, limits.queue_depth);
    Ok((Arc::new(served), known))
}

impl<C: Carrier> Served<C> {
    pub(crate) fn new(path: &str, carrier: C, facts: Facts, times: Times, depth: u32) -> Self {
        let at_a_time = match IN_ORDER.contains(&facts.kind) {
            true => 1,
            false => depth.clamp(1, AT_A_TIME_MAX),
        };
        Self { facts, line: Line::new(path, carrier, times, at_a_time) }
    }
}

impl<C: Carrier> Device for Served<C> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn carry_out(&self, command: Command) -> Errand {
        let room = if let Transfer::In(room) = command.transfer { room } else { 0 };
        let line = Arc::clone(&self.line);
        Errand::reading(Arc::new(Order { line, command: Arc::new(command) }), room)
    }

    fn reset(&self) -> Errand {
        Errand::new(Arc::new(Reset { line: Arc::clone(&self.line) }))
    }

    fn send(&self, command: Command) {
        self.line.push(Arc::new(command), None);
    }

    fn close(&self) -> Result<(), store::Error> {
        self.line.close()
    }
}

impl<C: Carrier> Drop for Served<C> {
    fn drop(&mut self) {
        // Its threads end with their commands; whoever wants to wait for that has closed it.
        self.line.end();
    }
}

/// A command, as work that is done elsewhere.
#[derive(Debug)]
struct Order<C: Carrier> {
    line: Arc<Line<C>>,
    command: Arc<Command>,
}

impl<C: Carrier> Foreign for Order<C> {
    fn begin(&self, completer: Completer) {
        self.line.push(Arc::clone(&self.command), Some(completer));
    }

    fn cancel(&self) {
        self.line.take_back(&self.command);
    }
}

/// LOGICAL UNIT RESET.
#[derive(Debug)]
struct Reset<C: Carrier> {
    line: Arc<Line<C>>,
}

impl<C: Carrier> Foreign for Reset<C> {
    fn begin(&self, completer: Completer) {
        self.line.reset(completer);
    }
}
