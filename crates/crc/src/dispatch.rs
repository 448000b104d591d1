// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The choice of the kernel, made once.

#[cfg(target_arch = "x86_64")]
use crate::sse42;
use crate::{bitwise, slicing8};
use std::env;
use std::fmt;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A kernel, by what it needs of the processor; ascending by speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Tier {
    /// The definition itself: the oracle of the others.
    Bitwise,
    /// Tables, on any processor.
    Slicing8,
    /// The `crc32` instruction of x86-64 processors with SSE 4.2.
    Sse42,
}

impl Tier {
    /// All of them, whether the processor has them or not.
    pub const ALL: [Self; 3] = [Self::Bitwise, Self::Slicing8, Self::Sse42];

    /// The name in reports and in `LUNWIRE_CRC`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bitwise => "bitwise",
            Self::Slicing8 => "slicing8",
            Self::Sse42 => "sse42",
        }
    }

    /// True if the processor can run it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Bitwise | Self::Slicing8 => true,
            #[cfg(target_arch = "x86_64")]
            Self::Sse42 => std::arch::is_x86_feature_detected!("sse4.2"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Sse42 => false,
        }
    }

    fn kernel(self) -> &'static Kernel {
        match self {
            Self::Bitwise => &BITWISE,
            Self::Slicing8 => &SLICING8,
            #[cfg(target_arch = "x86_64")]
            Self::Sse42 => &SSE42,
            #[cfg(not(target_arch = "x86_64"))]
            Self::Sse42 => &SLICING8,
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The processor cannot run this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // says all there is to say
pub struct Unavailable(pub Tier);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the processor has no {}", self.0)
    }
}

impl std::error::Error for Unavailable {}

/// The kernel in use.
pub fn tier() -> Tier {
    kernel().tier
}

/// Uses `tier` from now on, in all threads: for tests and measurements.
///
/// # Errors
/// If the processor cannot run it; nothing changes.
pub fn force(tier: Tier) -> Result<(), Unavailable> {
    if !tier.is_available() {
        return Err(Unavailable(tier));
    }
    install(tier);
    Ok(())
}

/// The register behind `bytes`, by the kernel in use.
#[inline]
pub(crate) fn update(register: u32, bytes: &[u8]) -> u32 {
    // SAFETY: `kernel` gives only kernels whose tier is available.
    unsafe { (kernel().update)(register, bytes) }
}

/// Copies `src` to `dst`, which has the same length; the register behind the bytes, by the kernel
/// in use.
#[inline]
pub(crate) fn copy_update(register: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    // SAFETY: `kernel` gives only kernels whose tier is available.
    unsafe { (kernel().copy_update)(register, dst, src) }
}

/// A kernel: its functions may be called only where its tier is available.
///
/// JUSTIFICATION: the instruction may only be compiled into functions that ask for it, and calling
/// one is unsafe; the safe way, tables, takes ten times as long for 8 KiB.
struct Kernel {
    tier: Tier,
    update: unsafe fn(u32, &[u8]) -> u32,
    /// Both sides have the same length.
    copy_update: unsafe fn(u32, &mut [u8], &[u8]) -> u32,
}

static BITWISE: Kernel =
    Kernel { tier: Tier::Bitwise, update: bitwise::update, copy_update: bitwise::copy_update };
static SLICING8: Kernel =
    Kernel { tier: Tier::Slicing8, update: slicing8::update, copy_update: slicing8::copy_update };
#[cfg(target_arch = "x86_64")]
static SSE42: Kernel =
    Kernel { tier: Tier::Sse42, update: sse42::update, copy_update: sse42::copy_update };

/// Null until the first use; then one of the statics above whose tier is available.
static CURRENT: AtomicPtr<Kernel> = AtomicPtr::new(std::ptr::null_mut());

#[inline]
fn kernel() -> &'static Kernel {
    let current = CURRENT.load(Ordering::Relaxed);
    // SAFETY: null, or the address of an immutable static.
    match unsafe { current.as_ref() } {
        Some(kernel) => kernel,
        None => detect(),
    }
}

/// The fastest kernel that is available, or the one that `LUNWIRE_CRC` names if it is.
#[cold]
fn detect() -> &'static Kernel {
    let wish = env::var("LUNWIRE_CRC").ok();
    let named = |tier: &Tier| wish.as_deref() == Some(tier.name());
    let available = || Tier::ALL.into_iter().rev().filter(|tier| tier.is_available());
    install(available().find(named).or_else(|| available().next()).unwrap_or(Tier::Slicing8))
}

/// `tier` is available.
fn install(tier: Tier) -> &'static Kernel {
    let kernel = tier.kernel();
    CURRENT.store(std::ptr::from_ref(kernel).cast_mut(), Ordering::Relaxed);
    kernel
}
