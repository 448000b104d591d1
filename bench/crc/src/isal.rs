// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ISA-L's `crc32_iscsi`, the peer in assembly, from the shared library if this machine has it.

use libloading::Library;
use std::ffi::{c_int, c_uint};
use std::sync::OnceLock;

/// The register behind `len` bytes. ISA-L neither begins nor ends with a complement.
type Crc32Iscsi = unsafe extern "C" fn(buffer: *mut u8, len: c_int, register: c_uint) -> c_uint;

const FILE: &str = "libisal.so.2";

/// True if there is ISA-L.
pub(crate) fn is_here() -> bool {
    function().is_some()
}

/// The CRC32C of `bytes`; of none where there is no ISA-L.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let (Some(function), Ok(len)) = (function(), c_int::try_from(bytes.len())) else { return 0 };
    // SAFETY: it reads `len` bytes of `bytes` and writes none, whatever its prototype says.
    unsafe { !function(bytes.as_ptr().cast_mut(), len, !0) }
}

#[inline]
fn function() -> Option<Crc32Iscsi> {
    static FUNCTION: OnceLock<Option<Crc32Iscsi>> = OnceLock::new();
    *FUNCTION.get_or_init(load)
}

fn load() -> Option<Crc32Iscsi> {
    // SAFETY: the library's constructors do nothing; the name stands for a function of this type
    // in version 2 of it. It is never unloaded.
    unsafe {
        let library = Library::new(FILE).ok()?;
        let function = *library.get::<Crc32Iscsi>(b"crc32_iscsi\0").ok()?;
        std::mem::forget(library);
        Some(function)
    }
}
