// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What carries a command to its device, how long that may take, and what its end means.

use std::fmt::Debug;
use std::io;
use std::time::Duration;

use engine::sg::Data;
use engine::sg::Reply;
use engine::sg::SgDevice;
use store::device::Failure;
use store::device::Pace;
use wire::scsi::sam::CHECK_CONDITION;

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

/// How long commands may take, by their pace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(super) usual: Duration,
}

/// What formats, erases or winds: the longest that drives are known to take is some hours.
pub(super) const LONG: Duration = Duration::from_secs(24 * 3600);

/// Linux: no such device.
const ENODEV: i32 = 19;

impl Times {
    pub(super) fn of(self, pace: Pace) -> Duration {
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
        // EAGAIN, ENOMEM, EBUSY; EDOM: an SG node has as many commands as it takes.
        Some(11 | 12 | 16 | 33) => Failure::Busy,
        Some(62 | 110) => Failure::TimedOut, // ETIME, ETIMEDOUT
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
