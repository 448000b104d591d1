// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The border: what every function does when it is entered and left, and those about errors and
//! options. All unsafe code of this crate is in this file and those below it.
//!
//! JUSTIFICATION: a library for C takes pointers; there is no safe way. It is kept to what
//! `memory.rs` does with them.

mod calls;
mod fork;
mod memory;
mod ring;

use std::cell::RefCell;
use std::ffi::CStr;
use std::ffi::c_char;
use std::ffi::c_int;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::ptr;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::code::Code;
use crate::code::Failure;
use crate::handles::OPTIONS;
use crate::options::Draft;
use crate::options::NAMES;

pub(crate) use self::fork::hear_of_forks;
pub(crate) use self::memory::Destination;

/// A handle, as C has it: a number in a structure, so that a compiler tells kinds apart.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Handle {
    id: u64,
}

/// `struct lunwire_error`. No padding.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Record {
    code: i32,
    system: i32,
    has_sense: u8,
    status: u8,
    sense_key: u8,
    asc: u8,
    ascq: u8,
    reserved: [u8; 3],
    text: [u8; TEXT],
}

/// Bytes of the text of an error, with its null.
const TEXT: usize = 1008;

const _: () = assert!(size_of::<Record>() == 16 + TEXT);

thread_local! {
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Runs what a function does: its errors are noted, and no panic gets out.
fn enter(call: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(Code::Defect, "a defect of this library: it panicked"),
    };
    let code = failure.code() as c_int;
    // A thread that is ending has no place for it any more.
    let _ = LAST.try_with(|last| last.replace(Some(failure)));
    code
}

fn count(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

impl Record {
    fn of(failure: &Failure) -> Self {
        let mut record = Self {
            code: failure.code() as i32,
            system: failure.errno(),
            has_sense: 0,
            status: 0,
            sense_key: 0,
            asc: 0,
            ascq: 0,
            reserved: [0; 3],
            text: c_text(&failure.text()),
        };
        if let Some((status, sense)) = failure.status() {
            record.status = status;
            if let Some(sense) = sense {
                record.has_sense = 1;
                (record.sense_key, record.asc, record.ascq) =
                    (sense.key as u8, sense.asc, sense.ascq);
            }
        }
        record
    }
}

/// A text with its null, cut at a character where it is too long.
fn c_text<const N: usize>(text: &str) -> [u8; N] {
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut to = [0; N];
    for (to, from) in to.iter_mut().zip(&text.as_bytes()[..end]) {
        *to = *from;
    }
    to
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    const { assert!(CStr::from_bytes_with_nul(VERSION.as_bytes()).is_ok()) };
    VERSION.as_ptr().cast()
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_errno(code: c_int) -> c_int {
    let known = Code::ALL.into_iter().find(|known| *known as c_int == code);
    known.map_or(0, Code::errno)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_last_error(error: *mut Record) -> c_int {
    // Not entered: it must leave what it reads as it is.
    let put = || {
        let last = LAST.try_with(|last| last.borrow().as_ref().map(Record::of)).ok().flatten();
        // SAFETY: the caller says that there is place for it.
        match last.map(|record| unsafe { memory::put(error, record) }) {
            Some(Ok(())) => 0,
            Some(Err(failure)) => failure.code() as c_int,
            None => Code::None as c_int,
        }
    };
    catch_unwind(AssertUnwindSafe(put)).unwrap_or(Code::Defect as c_int)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_options_new(options: *mut Handle) -> c_int {
    enter(|| {
        // SAFETY: as the caller says; no handle is made for whom it cannot be given.
        unsafe { memory::put(options, Handle { id: 0 }) }?;
        let id = OPTIONS.insert(Mutex::new(Draft::default()))?;
        // SAFETY: as before.
        unsafe { memory::put(options, Handle { id }) }.map(|()| 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lunwire_options_set(
    options: Handle,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    enter(|| {
        // SAFETY: the caller says that it is a text.
        let name = unsafe { memory::text(name, "name of the option") }?;
        // SAFETY: the same.
        let value = unsafe { memory::text(value, "value of the option") }?;
        let options = OPTIONS.get(options.id)?;
        let mut draft = options.lock().unwrap_or_else(PoisonError::into_inner);
        draft.set(name, value).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_option_name(index: usize) -> *const c_char {
    static TEXTS: [[u8; 32]; NAMES.len()] = {
        let mut texts = [[0; 32]; NAMES.len()];
        let mut at = 0;
        while at < NAMES.len() {
            let name = NAMES[at].as_bytes();
            assert!(name.len() < 32);
            let mut letter = 0;
            while letter < name.len() {
                texts[at][letter] = name[letter];
                letter += 1;
            }
            at += 1;
        }
        texts
    };
    TEXTS.get(index).map_or(ptr::null(), |text| text.as_ptr().cast())
}

#[unsafe(no_mangle)]
extern "C" fn lunwire_options_free(options: Handle) -> c_int {
    enter(|| OPTIONS.remove(options.id).map(|_| 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_as_an_error() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let code = enter(|| panic!("a defect"));
        std::panic::set_hook(hook);
        assert_eq!(code, Code::Defect as c_int);
        let mut record = Record::of(&Failure::argument(""));
        // SAFETY: it is a place for one.
        assert_eq!(unsafe { lunwire_last_error(&raw mut record) }, 0);
        assert_eq!(record.code, Code::Defect as c_int);
    }

    #[test]
    fn texts_are_cut_at_a_character() {
        assert_eq!(&c_text::<4>("ab"), b"ab\0\0");
        assert_eq!(&c_text::<4>("abcdef"), b"abc\0");
        assert_eq!(&c_text::<4>("ab\u{e9}"), b"ab\0\0");
    }

    #[test]
    fn nothing_is_written_to_null() {
        // SAFETY: null is what it must take.
        assert_eq!(unsafe { lunwire_options_new(ptr::null_mut()) }, Code::Argument as c_int);
        let unknown = Handle { id: 5 };
        // SAFETY: null is what it must take.
        let set = unsafe { lunwire_options_set(unknown, ptr::null(), c"a".as_ptr()) };
        assert_eq!(set, Code::Argument as c_int);
        // SAFETY: both are texts.
        let set = unsafe { lunwire_options_set(unknown, c"a".as_ptr(), c"a".as_ptr()) };
        assert_eq!(set, Code::Handle as c_int);
        assert!(lunwire_option_name(NAMES.len()).is_null());
    }
}
