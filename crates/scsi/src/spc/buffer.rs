// SPDX-License-Identifier: Apache-2.0 OR MIT
//! READ BUFFER and WRITE BUFFER (SPC-4 §6.18, §6.49): an echo buffer for each nexus, by which a
//! host tests the way to the unit.

use crate::limits;
use crate::lun::Context;
use crate::sense;
use crate::sense::Fault;
use crate::spc::parameters;
use crate::task;
use crate::task::Started;
use crate::task::data;
use alloc::vec::Vec;
use wire::scsi::buffer;

/// What one nexus has written to its echo buffer.
#[derive(Debug, Default)]
pub(crate) struct EchoBuffer(spin::Mutex<Vec<u8>>);

impl EchoBuffer {
    /// Takes its memory away, so that nobody else ever sees what was in it.
    pub(crate) fn wipe(&self) {
        let mut bytes = self.0.lock();
        bytes.fill(0);
        *bytes = Vec::new();
    }
}

/// READ BUFFER(10).
pub(crate) fn read(context: &Context<'_>) -> Result<Started, Fault> {
    let request = buffer::Request::parse(&context.cdb);
    let bytes = match request.mode {
        // No buffer of any number.
        buffer::DESCRIPTOR => buffer::NO_BUFFER.to_vec(),
        buffer::ECHO => {
            let bytes = context.nexus_state.echo.0.lock().clone();
            if bytes.is_empty() {
                return Err(sense::COMMAND_SEQUENCE.into());
            }
            bytes
        }
        buffer::ECHO_DESCRIPTOR => {
            buffer::EchoDescriptor { capacity: limits::ECHO_BUFFER_LEN }.emit().to_vec()
        }
        _ => return Err(sense::invalid_bit(1, 4).into()),
    };
    Ok(data(bytes, request.length))
}

/// WRITE BUFFER.
pub(crate) fn write(context: &Context<'_>) -> Result<Started, Fault> {
    let buffer::Request { mode, length } = buffer::Request::parse(&context.cdb);
    if mode != buffer::ECHO {
        return Err(sense::invalid_bit(1, 4).into());
    }
    if length > u32::from(limits::ECHO_BUFFER_LEN) {
        return Err(sense::invalid_field(6).into());
    }
    if length == 0 {
        return Ok(task::good(0));
    }
    parameters::receive(context, length, |context, list| {
        context.nexus_state.echo.wipe();
        *context.nexus_state.echo.0.lock() = list.to_vec();
        Ok(task::good(u64::try_from(list.len()).unwrap_or(u64::MAX)))
    })
}
