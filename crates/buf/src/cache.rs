// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Taking memory out of the processor's caches, for measurements.

/// Takes `bytes` out of all caches; false if this processor gives us no way to do so.
///
/// JUSTIFICATION: cold memory is what the laboratory measures; reading something else until all
/// caches have forgotten takes 25 ms where one of them has 260 MiB.
pub fn purge(bytes: &[u8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_clflush, _mm_mfence};
        for line in bytes.chunks(LINE) {
            // SAFETY: the address is readable, and what the line holds does not change.
            unsafe { _mm_clflush(line.as_ptr()) };
        }
        if let Some(last) = bytes.last() {
            // SAFETY: as above; the last line where `bytes` do not begin with one.
            unsafe { _mm_clflush(last) };
        }
        // SAFETY: every x86-64 processor has SSE 2.
        unsafe { _mm_mfence() };
        true
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = bytes;
        false
    }
}

/// A line of the cache.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

#[cfg(test)]
mod tests {
    use super::purge;

    #[test]
    fn what_is_purged_stays_what_it_is() {
        let bytes: Vec<u8> = (0..=255).cycle().take(10_001).collect();
        assert_eq!(purge(&bytes[1..]), cfg!(target_arch = "x86_64"));
        purge(&[]);
        assert!(bytes.iter().zip((0..=255).cycle()).all(|(a, b): (&u8, u8)| *a == b));
    }
}
