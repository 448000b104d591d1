// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices of the system that carry out commands of hosts ([`store::device`]).
//!
//! ```text
//! reactors --begin--> line --> threads of the device --SG_IO--> kernel --> device
//!          <--------------------- Completer -------------
//! ```
//!
//! SG_IO waits for the end of its command, so each command under way has a thread ([`line`]): no
//! more than the device takes commands at a time. A command in the line can be taken back; one that
//! the kernel has cannot: it ends with the device, with its time-out, or with a reset, which has a
//! thread of its own. [`probe`] asks a device who it is when it is opened.

pub(crate) mod line;
pub(crate) mod probe;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::sg::Data;
use engine::sg::Reply;
use engine::sg::SgDevice;
use engine::sg::SgError;
use store::device::Command;
use store::device::Device;
use store::device::Facts;
use store::device::Failure;
use store::device::Pace;
use store::device::Transfer;
use store::foreign::Completer;
use store::foreign::Errand;
use store::foreign::Foreign;
use store::spec::ScsiSpec;
use wire::scsi::sam::CHECK_CONDITION;

use line::Line;
use probe::Known;

/// What sends commands to a device and waits for their ends.
pub(crate) trait Carrier: Send + Sync + Debug + 'static {
    /// The calling thread does nothing else from now on.
    fn begin_thread(&self) {}

    /// Carries out a command.
    ///
    /// # Errors
    /// It was not sent.
    fn carry_out(&self, cdb: &[u8], data: Data<'_>, timeout: Duration) -> io::Result<Reply>;

    /// Resets the device.
    ///
    /// # Errors
    /// It was not reset.
    fn reset(&self) -> io::Result<()>;
}

impl Carrier for SgDevice {
    fn begin_thread(&self) {
        engine::sg::without_signals();
    }

    fn carry_out(&self, cdb: &[u8], data: Data<'_>, timeout: Duration) -> io::Result<Reply> {
        // Where nobody answers any more, drivers say this and that of it.
        if !self.is_there() {
            return Err(io::Error::from_raw_os_error(ENODEV));
        }
        Self::carry_out(self, cdb, data, timeout)
    }

    fn reset(&self) -> io::Result<()> {
        Self::reset(self)
    }
}

/// A device that is served.
#[derive(Debug)]
pub(crate) struct Served<C: Carrier> {
    facts: Facts,
    line: Arc<Line<C>>,
}

/// How long commands may take, by their pace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    usual: Duration,
}

/// The usual one, unless the store says another: more than hosts wait for a disk, so that theirs
/// comes first, and their abort and reset say what they want.
const USUAL: Duration = Duration::from_secs(60);

/// What formats, erases or winds: the longest that drives are known to take is some hours.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// Commands at a time, whatever a device takes: SG nodes take so many of one descriptor, and each
/// has a thread.
const AT_A_TIME_MAX: u32 = 16;

/// PERIPHERAL DEVICE TYPEs of a tape drive and a changer, whose commands build upon each other.
const IN_ORDER: [u8; 2] = [0x01, 0x08];

/// Linux: no such device.
const ENODEV: i32 = 19;

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

impl Times {
    fn of(self, pace: Pace) -> Duration {
        match pace {
            Pace::Usual => self.usual,
            Pace::Long => self.usual.max(LONG),
        }
    }
}

/// What the end of a command is, if the device has ended it: as the system's drivers tell it.
pub(crate) fn judged(result: io::Result<Reply>) -> Result<Reply, Failure> {
    let reply = result.map_err(|error| match error.raw_os_error() {
        Some(ENODEV | 6) => Failure::Gone,        // ENXIO
        Some(1 | 13) => Failure::NotPermitted,    // EPERM, EACCES
        Some(22 | 7 | 90) => Failure::DoesNotFit, // EINVAL, E2BIG, EMSGSIZE
        Some(11 | 12 | 16) => Failure::Busy,      // EAGAIN, ENOMEM, EBUSY
        Some(62 | 110) => Failure::TimedOut,      // ETIME, ETIMEDOUT
        _ => Failure::Transport,
    })?;
    if reply.status == CHECK_CONDITION && !reply.sense.is_empty() {
        return Ok(reply);
    }
    if reply.driver_status & 0x0f == 6 {
        return Err(Failure::TimedOut);
    }
    // DID_... of <scsi/scsi_status.h>.
    match reply.host_status {
        0x00 => Ok(reply),
        // NO_CONNECT, BAD_TARGET, TRANSPORT_FAILFAST
        0x01 | 0x04 | 0x0f => Err(Failure::Gone),
        // BUS_BUSY, SOFT_ERROR, IMM_RETRY, REQUEUE, TRANSPORT_DISRUPTED
        0x02 | 0x0b | 0x0c | 0x0d | 0x0e => Err(Failure::Busy),
        0x03 => Err(Failure::TimedOut),
        0x05 => Err(Failure::Aborted),
        0x08 => Err(Failure::Reset),
        // What else a driver says of a command that the device has ended well enough to name a
        // status is said by that.
        _ if reply.status != 0 => Ok(reply),
        _ => Err(Failure::Transport),
    }
}
