// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The choice of the kernel, made once.

#[cfg(target_arch = "aarch64")]
use crate::aarch64;
use crate::{bitwise, sarwate, slicing8};
#[cfg(target_arch = "x86_64")]
use crate::{clmul128, clmul256, clmul512, sse42};
use std::env;
use std::fmt;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A kernel, by what it needs of the processor; ascending by speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Tier {
    /// The definition itself: the oracle of the others.
    Bitwise,
    /// One table, on any processor.
    Sarwate,
    /// Eight tables, on any processor.
    Slicing8,
    /// The CRC instructions of ARMv8.
    Aarch64,
    /// The `crc32` instruction of x86-64 processors with SSE 4.2.
    Sse42,
    /// That instruction beside carry-less multiplication, 128 bits wide.
    Clmul128,
    /// The same with 256 bits: AVX2 and VPCLMULQDQ.
    Clmul256,
    /// Carry-less multiplication alone, 512 bits wide: AVX-512 and VPCLMULQDQ.
    Clmul512,
    /// That beside the `crc32` instruction, on AMD's processors, which do both at once.
    Clmul512Words,
}

impl Tier {
    /// All of them, whether the processor has them or not.
    pub const ALL: [Self; 9] = [
        Self::Bitwise,
        Self::Sarwate,
        Self::Slicing8,
        Self::Aarch64,
        Self::Sse42,
        Self::Clmul128,
        Self::Clmul256,
        Self::Clmul512,
        Self::Clmul512Words,
    ];

    /// The name in reports and in `LUNWIRE_CRC`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bitwise => "bitwise",
            Self::Sarwate => "sarwate",
            Self::Slicing8 => "slicing8",
            Self::Aarch64 => "aarch64",
            Self::Sse42 => "sse42",
            Self::Clmul128 => "clmul128",
            Self::Clmul256 => "clmul256",
            Self::Clmul512 => "clmul512",
            Self::Clmul512Words => "clmul512w",
        }
    }

    /// True if the processor can run it.
    pub fn is_available(self) -> bool {
        self.kernel().is_some()
    }

    /// None if the processor cannot run it.
    fn kernel(self) -> Option<&'static Kernel> {
        match self {
            Self::Bitwise => Some(&BITWISE),
            Self::Sarwate => Some(&SARWATE),
            Self::Slicing8 => Some(&SLICING8),
            #[cfg(target_arch = "x86_64")]
            Self::Sse42 => has_crc32().then_some(&SSE42),
            #[cfg(target_arch = "x86_64")]
            Self::Clmul128 => has_clmul128().then_some(&CLMUL128),
            #[cfg(target_arch = "x86_64")]
            Self::Clmul256 => has_clmul256().then_some(&CLMUL256),
            #[cfg(target_arch = "x86_64")]
            Self::Clmul512 => has_clmul512().then_some(&CLMUL512),
            #[cfg(target_arch = "x86_64")]
            Self::Clmul512Words => (has_clmul512() && is_amd()).then_some(&CLMUL512_WORDS),
            #[cfg(target_arch = "aarch64")]
            Self::Aarch64 => std::arch::is_aarch64_feature_detected!("crc").then_some(&AARCH64),
            #[allow(unreachable_patterns)] // those of other processors
            _ => None,
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_crc32() -> bool {
    std::arch::is_x86_feature_detected!("sse4.2")
}

#[cfg(target_arch = "x86_64")]
fn has_clmul128() -> bool {
    has_crc32() && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "x86_64")]
fn has_clmul256() -> bool {
    has_clmul128()
        && std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("vpclmulqdq")
}

#[cfg(target_arch = "x86_64")]
fn has_clmul512() -> bool {
    has_clmul256()
        && std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512vl")
}

/// AMD's, or one by its design.
#[cfg(target_arch = "x86_64")]
fn is_amd() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    let vendor = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    [&b"AuthenticAMD"[..], b"HygonGenuine"].contains(&vendor.as_flattened())
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The processor cannot run this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    install(tier.kernel().ok_or(Unavailable(tier))?);
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
pub(crate) struct Kernel {
    pub(crate) tier: Tier,
    update: unsafe fn(u32, &[u8]) -> u32,
    /// Both sides have the same length.
    copy_update: unsafe fn(u32, &mut [u8], &[u8]) -> u32,
}

/// The kernel of a module.
macro_rules! kernel_of {
    ($module:path, $tier:ident) => {{
        use $module as kernel;
        Kernel { tier: Tier::$tier, update: kernel::update, copy_update: kernel::copy_update }
    }};
}

static BITWISE: Kernel = kernel_of!(bitwise, Bitwise);
static SARWATE: Kernel = kernel_of!(sarwate, Sarwate);
static SLICING8: Kernel = kernel_of!(slicing8, Slicing8);
#[cfg(target_arch = "aarch64")]
static AARCH64: Kernel = kernel_of!(aarch64, Aarch64);
#[cfg(target_arch = "x86_64")]
static SSE42: Kernel = kernel_of!(sse42, Sse42);
#[cfg(target_arch = "x86_64")]
static CLMUL128: Kernel = kernel_of!(clmul128, Clmul128);
#[cfg(target_arch = "x86_64")]
static CLMUL256: Kernel = kernel_of!(clmul256, Clmul256);
#[cfg(target_arch = "x86_64")]
static CLMUL512: Kernel = kernel_of!(clmul512::alone, Clmul512);
#[cfg(target_arch = "x86_64")]
static CLMUL512_WORDS: Kernel = kernel_of!(clmul512::beside_words, Clmul512Words);

#[cfg(test)]
impl Kernel {
    pub(crate) fn run(&self, register: u32, bytes: &[u8]) -> u32 {
        assert!(self.tier.is_available());
        // SAFETY: its tier is available.
        unsafe { (self.update)(register, bytes) }
    }

    pub(crate) fn run_copy(&self, register: u32, dst: &mut [u8], src: &[u8]) -> u32 {
        assert!(self.tier.is_available() && dst.len() == src.len());
        // SAFETY: its tier is available.
        unsafe { (self.copy_update)(register, dst, src) }
    }
}

/// Those that this processor runs.
#[cfg(test)]
pub(crate) fn kernels() -> impl Iterator<Item = &'static Kernel> {
    Tier::ALL.into_iter().filter_map(Tier::kernel)
}

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
    let tier = available().find(named).or_else(|| available().next());
    install(tier.and_then(Tier::kernel).unwrap_or(&SLICING8))
}

fn install(kernel: &'static Kernel) -> &'static Kernel {
    CURRENT.store(std::ptr::from_ref(kernel).cast_mut(), Ordering::Relaxed);
    kernel
}
