// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system calls that carry a command to a device: SG_IO in its two forms, and SG_SCSI_RESET.
//!
//! Both forms of SG_IO wait for the end of their command. Since Linux 5.0 the block SG node
//! (`/dev/bsg`) has no other way; the SG node (`/dev/sg`) has write(2) and read(2), too, for at
//! most 16 commands of a descriptor, and would need a thread as well. Neither can take a command
//! back.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use libc::Ioctl;
use libc::c_int;

use super::Data;
use super::Reply;

/// Longest sense data, bytes (SPC-4 §4.5.2.1).
const SENSE_LEN_MAX: u8 = 252;

const SG_IO: Ioctl = 0x2285;
const SG_SCSI_RESET: Ioctl = 0x2284;
const SG_GET_VERSION_NUM: Ioctl = 0x2282;
/// Of an SG node in bytes, not in sectors.
const BLKSECTGET: Ioctl = 0x1267;

/// SG_SCSI_RESET_DEVICE without a wider reset where that fails: other devices are not ours.
const RESET_DEVICE_ALONE: c_int = 1 | 0x100;

/// In the order in which they come; the SG node would put each before all others.
const QUEUE_AT_TAIL: u32 = 0x10;

/// `sg_io_hdr` of `<scsi/sg.h>`.
#[repr(C)]
struct Header3 {
    interface_id: c_int,
    direction: c_int,
    cdb_len: u8,
    sense_len_max: u8,
    vectors: u16,
    data_len: u32,
    data: *mut c_void,
    cdb: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack_id: c_int,
    user: *mut c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_len: u8,
    host_status: u16,
    driver_status: u16,
    residual: c_int,
    duration_ms: u32,
    info: u32,
}

/// `sg_io_v4` of `<linux/bsg.h>`.
#[repr(C)]
#[derive(Default)]
struct Header4 {
    guard: i32,
    protocol: u32,
    subprotocol: u32,
    cdb_len: u32,
    cdb: u64,
    tag: u64,
    attribute: u32,
    priority: u32,
    extra: u32,
    sense_len_max: u32,
    sense: u64,
    out_vectors: u32,
    out_len: u32,
    in_vectors: u32,
    in_len: u32,
    out_data: u64,
    in_data: u64,
    timeout_ms: u32,
    flags: u32,
    user: u64,
    spare_in: u32,
    driver_status: u32,
    host_status: u32,
    status: u32,
    retry_delay: u32,
    info: u32,
    duration_ms: u32,
    sense_len: u32,
    in_residual: i32,
    out_residual: i32,
    generated_tag: u64,
    spare_out: u32,
    padding: u32,
}

const _: () = assert!(size_of::<Header4>() == 160, "as <linux/bsg.h> has it");
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Header3>() == 88, "as <scsi/sg.h> has it");

/// Carries out a command by the header of version 3, which the SG node knows.
pub(super) fn carry_out_3(
    fd: BorrowedFd<'_>,
    cdb: &[u8],
    data: Data<'_>,
    timeout: Duration,
) -> io::Result<Reply> {
    let mut sense = [0; SENSE_LEN_MAX as usize];
    let (direction, pointer, length) = match data {
        Data::Nothing => (-1, std::ptr::null_mut(), 0),
        // The system only reads it.
        Data::Out(bytes) => (-2, bytes.as_ptr().cast_mut().cast(), bytes.len()),
        Data::In(bytes) => (-3, bytes.as_mut_ptr().cast(), bytes.len()),
    };
    let data_len = u32::try_from(length).map_err(|_| too_long())?;
    let mut header = Header3 {
        interface_id: c_int::from(b'S'),
        direction,
        cdb_len: u8::try_from(cdb.len()).map_err(|_| too_long())?,
        sense_len_max: SENSE_LEN_MAX,
        vectors: 0,
        data_len,
        data: pointer,
        cdb: cdb.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms: milliseconds(timeout),
        flags: QUEUE_AT_TAIL,
        pack_id: 0,
        user: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_len: 0,
        host_status: 0,
        driver_status: 0,
        residual: 0,
        duration_ms: 0,
        info: 0,
    };
    call(fd, SG_IO, &mut header)?;
    Ok(Reply {
        status: header.status,
        host_status: u32::from(header.host_status),
        driver_status: u32::from(header.driver_status),
        sense: kept(&sense, usize::from(header.sense_len)),
        moved: moved(data_len, header.residual),
    })
}

/// Carries out a command by the header of version 4, which the block SG node knows.
pub(super) fn carry_out_4(
    fd: BorrowedFd<'_>,
    cdb: &[u8],
    data: Data<'_>,
    timeout: Duration,
) -> io::Result<Reply> {
    let mut sense = [0; SENSE_LEN_MAX as usize];
    let mut header = Header4 {
        guard: i32::from(b'Q'),
        cdb_len: u32::try_from(cdb.len()).map_err(|_| too_long())?,
        cdb: cdb.as_ptr() as u64,
        sense_len_max: u32::from(SENSE_LEN_MAX),
        sense: sense.as_mut_ptr() as u64,
        timeout_ms: milliseconds(timeout),
        flags: QUEUE_AT_TAIL,
        ..Header4::default()
    };
    match data {
        Data::Nothing => {}
        Data::Out(bytes) => {
            header.out_len = u32::try_from(bytes.len()).map_err(|_| too_long())?;
            header.out_data = bytes.as_ptr() as u64;
        }
        Data::In(bytes) => {
            header.in_len = u32::try_from(bytes.len()).map_err(|_| too_long())?;
            header.in_data = bytes.as_mut_ptr() as u64;
        }
    }
    call(fd, SG_IO, &mut header)?;
    let out = moved(header.out_len, header.out_residual);
    Ok(Reply {
        status: u8::try_from(header.status & 0xff).unwrap_or(u8::MAX),
        host_status: header.host_status,
        driver_status: header.driver_status,
        sense: kept(&sense, usize::try_from(header.sense_len).unwrap_or(usize::MAX)),
        moved: out.max(moved(header.in_len, header.in_residual)),
    })
}

/// LOGICAL UNIT RESET, by the SG node. Waits until the driver of the host adapter has done it.
pub(super) fn reset(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut what = RESET_DEVICE_ALONE;
    call(fd, SG_SCSI_RESET, &mut what)
}

/// The version of the driver behind an SG node; an error for anything else.
pub(super) fn version(fd: BorrowedFd<'_>) -> io::Result<c_int> {
    let mut version = 0;
    call(fd, SG_GET_VERSION_NUM, &mut version)?;
    Ok(version)
}

/// Bytes of the longest transfer of the device behind an SG node.
pub(super) fn transfer_max(fd: BorrowedFd<'_>) -> io::Result<c_int> {
    let mut bytes = 0;
    call(fd, BLKSECTGET, &mut bytes)?;
    Ok(bytes)
}

/// Keeps signals from the calling thread for good. A command that a signal interrupts is lost to
/// its sender while the device carries it out, and the system may begin it again.
pub(super) fn block_signals() {
    // SAFETY: a set of signals is plain data, of which all zero is one; it is filled before use.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is of a set that lives, and nothing else has it.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: the set lives; no old one is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()) };
}

/// JUSTIFICATION: no library has SG_IO; without it no command reaches a device.
fn call<T>(fd: BorrowedFd<'_>, request: Ioctl, argument: &mut T) -> io::Result<()> {
    // SAFETY: the callers give to each request the argument that `<scsi/sg.h>` and `<linux/bsg.h>`
    // name. What a header points to (CDB, sense, data) is borrowed by the caller until this
    // returns, with the lengths that stand beside it, and data for writing where the device sends.
    // The system keeps no address of it: the block SG node returns when the command is over, and
    // the SG node, which a signal can interrupt, copies within this call and at no other time. The
    // descriptor is open.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn milliseconds(time: Duration) -> u32 {
    // The system takes them for a signed number.
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX).min(c_int::MAX.unsigned_abs())
}

/// What has moved of `asked` bytes. A driver may say nonsense of what it has not moved.
fn moved(asked: u32, residual: c_int) -> u32 {
    asked - u32::try_from(residual).unwrap_or(0).min(asked)
}

fn kept(sense: &[u8], length: usize) -> Vec<u8> {
    sense.get(..length).unwrap_or(sense).to_vec()
}

fn too_long() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_says_of_the_rest_is_bounded() {
        assert_eq!(moved(512, 0), 512);
        assert_eq!(moved(512, 500), 12);
        assert_eq!(moved(512, 600), 0);
        assert_eq!(moved(512, -8), 512, "more than there was room for");
        assert_eq!(moved(0, 0), 0);
    }

    #[test]
    fn a_time_is_never_without_an_end() {
        assert_eq!(milliseconds(Duration::from_secs(60)), 60_000);
        assert_eq!(milliseconds(Duration::MAX), 0x7fff_ffff);
    }

    #[test]
    fn sense_is_what_was_written() {
        assert_eq!(kept(&[1, 2, 3], 2), [1, 2]);
        assert_eq!(kept(&[1, 2, 3], 9), [1, 2, 3]);
    }
}
