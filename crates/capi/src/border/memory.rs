// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of the caller: texts, buffers, and places for results.

use std::ffi::CStr;
use std::ffi::c_char;
use std::ptr;

use initiator::Chunks;

use crate::code::Failure;

/// A text of the caller.
///
/// # Safety
/// `text` is null, or a text that ends with a null and stays as it is for `'a`.
pub(super) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::argument(&format!("the {what} is null")));
    }
    // SAFETY: it is not null, and the caller vouches for the rest.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::argument(&format!("the {what} is no UTF-8")))
}

/// Bytes of the caller.
///
/// # Safety
/// `from` is null, or `length` bytes there can be read and stay as they are for `'a`.
pub(super) unsafe fn bytes<'a>(from: *const u8, length: usize) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    is_memory(from, length)?;
    // SAFETY: it is not null and no longer than memory may be; the caller vouches for the rest.
    Ok(unsafe { std::slice::from_raw_parts(from, length) })
}

/// Puts a result where the caller wants it.
///
/// # Safety
/// `to` is null, or a `T` can be written there.
pub(super) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() || !to.is_aligned() {
        return Err(Failure::argument("the place for the result is null, or not aligned"));
    }
    // SAFETY: it is aligned and not null; the caller vouches for the rest.
    unsafe { to.write(value) };
    Ok(())
}

/// Puts the first `length` bytes of a result where the caller wants it, who may know a shorter one,
/// or a longer one, the rest of which is zero.
///
/// # Safety
/// `to` is null, or `length` bytes can be written there. `T` has no padding.
pub(super) unsafe fn put_start<T>(to: *mut T, value: &T, length: usize) -> Result<(), Failure> {
    if to.is_null() || length == 0 {
        return Err(Failure::argument("the place for the result is null, or has no size"));
    }
    is_memory(to.cast(), length)?;
    let known = length.min(size_of::<T>());
    let to = to.cast::<u8>();
    // SAFETY: no more than `value` has are copied; the caller vouches for the place.
    unsafe { ptr::copy_nonoverlapping(ptr::from_ref(value).cast(), to, known) };
    // SAFETY: it is within the `length` bytes that the caller vouches for, or one behind them.
    let rest = unsafe { to.add(known) };
    // SAFETY: the caller vouches for what is left of `length`.
    unsafe { ptr::write_bytes(rest, 0, length - known) };
    Ok(())
}

fn is_memory(at: *const u8, length: usize) -> Result<(), Failure> {
    if at.is_null() {
        return Err(Failure::argument("the buffer is null"));
    }
    match isize::try_from(length) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::argument("the buffer is longer than memory")),
    }
}

/// Where the data of a read goes. It is written by `fill` alone.
#[derive(Debug)]
pub(crate) struct Destination {
    at: *mut u8,
    length: usize,
}

// SAFETY: whoever made it vouched for the memory until it is dropped, in whatever thread.
unsafe impl Send for Destination {}

impl Destination {
    /// # Safety
    /// `at` is null, or `length` bytes can be written there, and nobody else uses them, whenever
    /// `fill` is called until the destination is dropped.
    pub(super) unsafe fn new(at: *mut u8, length: usize) -> Result<Self, Failure> {
        if length > 0 {
            is_memory(at, length)?;
        }
        Ok(Self { at, length })
    }

    /// Puts the data at `offset` of it and behind; what has no place there is left out.
    pub(crate) fn fill(&mut self, offset: usize, chunks: &Chunks) {
        let mut at = offset.min(self.length);
        for part in chunks.iter() {
            let length = part.len().min(self.length - at);
            if length == 0 {
                return;
            }
            // SAFETY: `at` is within the memory that `new` was told of.
            let to = unsafe { self.at.add(at) };
            // SAFETY: `length` bytes from there are within it, too, and `part` has as many; it is
            // memory of the initiator's, so that the two do not overlap.
            unsafe { ptr::copy_nonoverlapping(part.as_ptr(), to, length) };
            at += length;
        }
    }
}
