// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Completion queues.

use std::ffi::c_int;
use std::time::Duration;

use initiator::Operation;

use super::Destination;
use super::Handle;
use super::Record;
use super::calls;
use super::count;
use super::enter;
use super::memory;
use crate::code::Code;
use crate::code::Failure;
use crate::handles::DISKS;
use crate::handles::QUEUES;
use crate::ring::Ring;

/// `struct lunwire_completion`. No padding.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Entry {
    tag: u64,
    what: i32,
    code: i32,
    bytes: u64,
}

const _: () = assert!(size_of::<Entry>() == 24);

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_queue_new(depth: u32, queue: *mut Handle) -> c_int {
    enter(|| {
        // SAFETY: as the caller says; no queue is made for whom it cannot be given.
        unsafe { memory::put(queue, Handle { id: 0 }) }?;
        let id = QUEUES.insert(Ring::new(depth)?)?;
        // SAFETY: as before.
        unsafe { memory::put(queue, Handle { id }) }.map(|()| 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_queue_free(queue: Handle) -> c_int {
    enter(|| {
        // Another thread may be in it still.
        QUEUES.remove(queue.id)?.free();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_queue_fd(queue: Handle) -> c_int {
    enter(|| Ok(QUEUES.get(queue.id)?.descriptor()))
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_watch(disk: Handle, queue: Handle, tag: u64) -> c_int {
    enter(|| {
        QUEUES.get(queue.id)?.watch(&*DISKS.get(disk.id)?, tag);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_submit_read(
    disk: Handle,
    queue: Handle,
    tag: u64,
    to: *mut u8,
    length: usize,
    offset: u64,
) -> c_int {
    enter(|| {
        let (disk, queue) = (DISKS.get(disk.id)?, QUEUES.get(queue.id)?);
        calls::bounded(length)?;
        // SAFETY: the caller says that there is place until the end is reaped or forgotten.
        let to = unsafe { Destination::new(to, length) }?;
        queue.submit(&disk, tag, Operation::read(offset, length as u64), Some(to)).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_submit_write(
    disk: Handle,
    queue: Handle,
    tag: u64,
    from: *const u8,
    length: usize,
    offset: u64,
    flags: u32,
) -> c_int {
    enter(|| {
        let (disk, queue) = (DISKS.get(disk.id)?, QUEUES.get(queue.id)?);
        calls::bounded(length)?;
        // SAFETY: the caller says that they are there; they are copied.
        let from = unsafe { memory::bytes(from, length) }?;
        queue.submit(&disk, tag, calls::write(&disk, from, offset, flags)?, None).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_submit_flush(disk: Handle, queue: Handle, tag: u64) -> c_int {
    enter(|| submit(disk, queue, tag, Operation::Flush))
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_submit_discard(
    disk: Handle,
    queue: Handle,
    tag: u64,
    offset: u64,
    length: u64,
    flags: u32,
) -> c_int {
    enter(|| submit(disk, queue, tag, calls::discard(offset, length, flags)?))
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_submit_zero(
    disk: Handle,
    queue: Handle,
    tag: u64,
    offset: u64,
    length: u64,
    flags: u32,
) -> c_int {
    enter(|| submit(disk, queue, tag, calls::zero(offset, length, flags)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_submit_compare_and_write(
    disk: Handle,
    queue: Handle,
    tag: u64,
    expected: *const u8,
    new: *const u8,
    length: usize,
    offset: u64,
) -> c_int {
    enter(|| {
        let (disk, queue) = (DISKS.get(disk.id)?, QUEUES.get(queue.id)?);
        calls::bounded(length)?;
        // SAFETY: the caller says that they are there; they are copied.
        let expected = unsafe { memory::bytes(expected, length) }?;
        // SAFETY: the same.
        let new = unsafe { memory::bytes(new, length) }?;
        let operation = calls::compare_and_write(&disk, expected, new, offset)?;
        queue.submit(&disk, tag, operation, None).map(|()| 0)
    })
}

fn submit(disk: Handle, queue: Handle, tag: u64, operation: Operation) -> Result<c_int, Failure> {
    let (disk, queue) = (DISKS.get(disk.id)?, QUEUES.get(queue.id)?);
    queue.submit(&disk, tag, operation, None).map(|()| 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_reap(queue: Handle, entries: *mut Entry, wanted: usize) -> c_int {
    enter(|| {
        let queue = QUEUES.get(queue.id)?;
        if entries.is_null() || !entries.is_aligned() {
            return Err(Failure::argument("the place for completions is null, or not aligned"));
        }
        let wanted = wanted.min(c_int::MAX as usize);
        let given = queue.reap(wanted, |index, reaped| {
            let code = reaped.code.map_or(0, |code| code as i32);
            let what = reaped.what as i32;
            let entry = Entry { tag: reaped.tag, what, code, bytes: reaped.bytes };
            // SAFETY: the caller says that there is place for as many as `wanted`; `index` is
            // below that.
            let place = unsafe { entries.add(index) };
            // SAFETY: the same.
            unsafe { place.write(entry) };
        });
        Ok(count(given))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_reaped_error(
    queue: Handle,
    index: usize,
    error: *mut Record,
) -> c_int {
    enter(|| {
        let failure = QUEUES.get(queue.id)?.failure(index);
        let none = || Failure::new(Code::None, "that one did not fail, or it is gone");
        let record = Record::of(&failure.ok_or_else(none)?);
        // SAFETY: the caller says that there is place for it.
        unsafe { memory::put(error, record) }.map(|()| 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_wait(queue: Handle, timeout_ms: c_int) -> c_int {
    enter(|| {
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        Ok(c_int::from(QUEUES.get(queue.id)?.wait(timeout)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_forget(queue: Handle, tag: u64) -> c_int {
    enter(|| Ok(count(QUEUES.get(queue.id)?.forget(tag))))
}
