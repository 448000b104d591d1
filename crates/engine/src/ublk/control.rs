// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands to the driver, by `/dev/ublk-control`.

use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;

use io_uring::IoUring;
use io_uring::cqueue;
use io_uring::opcode::UringCmd80;
use io_uring::squeue::Entry128;
use io_uring::types::Fd;

use super::CONTROL;
use super::layout;

/// Asks the driver for something about device `number`, and waits for the answer.
pub(super) fn command(code: u32, number: u32, value: u64) -> io::Result<()> {
    send(code, number, &mut [], value)
}

/// The same with data, which the driver reads or writes.
///
/// JUSTIFICATION: the driver takes commands by io_uring alone, and no library has them without
/// threads and queues of its own.
pub(super) fn send(code: u32, number: u32, data: &mut [u8], value: u64) -> io::Result<()> {
    let control = File::options().read(true).write(true).open(CONTROL)?;
    let mut ring = IoUring::<Entry128, cqueue::Entry>::builder().build(1)?;
    // The kernel has the address of this until it has answered.
    let mut lent = data.to_vec();
    let address = if lent.is_empty() { 0 } else { lent.as_mut_ptr().addr() as u64 };
    let length = u16::try_from(lent.len()).map_err(|_| ErrorKind::InvalidInput)?;
    let command = layout::control(number, address, length, value);
    let entry = UringCmd80::new(Fd(control.as_raw_fd()), code).cmd(command).build();
    // SAFETY: the descriptor and what `address` leads to stay until the answer is here, or for
    // ever; the kernel reads and writes `length` bytes there and nothing else.
    let pushed = unsafe { ring.submission().push(&entry) };
    pushed.map_err(|_| ErrorKind::OutOfMemory)?;
    loop {
        if let Some(done) = ring.completion().next() {
            data.copy_from_slice(&lent);
            return match done.result() {
                error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
                _ => Ok(()),
            };
        }
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                // The command may be under way.
                std::mem::forget((lent, control));
                return Err(error);
            }
        }
    }
}
