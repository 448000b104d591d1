// SPDX-License-Identifier: Apache-2.0 OR MIT

use crate::{Crc32c, RESIDUE, Tier, Unavailable, bitwise, combine, crc32c, force, slicing8, tier};
use proptest::prelude::*;

type Update = fn(u32, &[u8]) -> u32;

#[cfg(target_arch = "x86_64")]
fn sse42(register: u32, bytes: &[u8]) -> u32 {
    assert!(Tier::Sse42.is_available(), "chosen only where available");
    // SAFETY: the processor has SSE 4.2.
    unsafe { crate::sse42::update(register, bytes) }
}

/// All kernels that this processor runs.
fn kernels() -> Vec<(Tier, Update)> {
    let mut kernels: Vec<(Tier, Update)> =
        vec![(Tier::Bitwise, bitwise::update), (Tier::Slicing8, slicing8::update)];
    #[cfg(target_arch = "x86_64")]
    if Tier::Sse42.is_available() {
        kernels.push((Tier::Sse42, sse42));
    }
    kernels
}

type CopyUpdate = fn(u32, &mut [u8], &[u8]) -> u32;

#[cfg(target_arch = "x86_64")]
fn sse42_copy(register: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    assert!(Tier::Sse42.is_available(), "chosen only where available");
    // SAFETY: the processor has SSE 4.2.
    unsafe { crate::sse42::copy_update(register, dst, src) }
}

/// As [`kernels`], with copy.
fn copying_kernels() -> Vec<(Tier, CopyUpdate)> {
    let mut kernels: Vec<(Tier, CopyUpdate)> =
        vec![(Tier::Bitwise, bitwise::copy_update), (Tier::Slicing8, slicing8::copy_update)];
    #[cfg(target_arch = "x86_64")]
    if Tier::Sse42.is_available() {
        kernels.push((Tier::Sse42, sse42_copy));
    }
    kernels
}

/// Bytes without a pattern that a wrong table could share.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}

/// The command header of the RFC's example: READ(10).
const READ_10: [u8; 48] = [
    0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
    0x14, 0, 0, 0, 0, 0, 0x04, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18, //
    0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0,
];

/// Input, CRC, bytes on the wire; the first five are those of RFC 7143 appendix A.4.
fn vectors() -> Vec<(Vec<u8>, u32, [u8; 4])> {
    vec![
        (vec![0; 32], 0x8a91_36aa, [0xaa, 0x36, 0x91, 0x8a]),
        (vec![0xff; 32], 0x62a8_ab43, [0x43, 0xab, 0xa8, 0x62]),
        ((0..32).collect(), 0x46dd_794e, [0x4e, 0x79, 0xdd, 0x46]),
        ((0..32).rev().collect(), 0x113f_db5c, [0x5c, 0xdb, 0x3f, 0x11]),
        (READ_10.to_vec(), 0xd996_3a56, [0x56, 0x3a, 0x96, 0xd9]),
        (vec![], 0x0000_0000, [0, 0, 0, 0]),
        (b"123456789".to_vec(), 0xe306_9283, [0x83, 0x92, 0x06, 0xe3]),
        (vec![0], 0x527d_5351, [0x51, 0x53, 0x7d, 0x52]),
        (b"a\0\0\0".to_vec(), 0xe9a1_aa13, [0x13, 0xaa, 0xa1, 0xe9]),
        (b"a\xff\xff\xff".to_vec(), 0x763a_f669, [0x69, 0xf6, 0x3a, 0x76]),
        (b"abc\0".to_vec(), 0x3494_0e4c, [0x4c, 0x0e, 0x94, 0x34]),
        (vec![0; 48], 0x288c_3ab9, [0xb9, 0x3a, 0x8c, 0x28]),
        (vec![0; 512], 0x30fc_edc0, [0xc0, 0xed, 0xfc, 0x30]),
        (vec![0xa5; 512], 0x7be5_157d, [0x7d, 0x15, 0xe5, 0x7b]),
        (vec![0; 4096], 0x98f9_4189, [0x89, 0x41, 0xf9, 0x98]),
        ((0..=255).cycle().take(8192).collect(), 0x2770_f75a, [0x5a, 0xf7, 0x70, 0x27]),
    ]
}

/// Covers: DGT-01.
#[test]
fn every_kernel_gives_the_vectors_of_the_standard() {
    for (bytes, crc, wire) in vectors() {
        assert_eq!(crc32c(&bytes), crc);
        assert_eq!(crc.to_le_bytes(), wire);
        for (tier, update) in kernels() {
            assert_eq!(!update(!0, &bytes), crc, "{tier}, {} bytes", bytes.len());
        }
        let with_digest = [bytes.as_slice(), &wire].concat();
        assert_eq!(crc32c(&with_digest), RESIDUE);
    }
}

#[test]
fn every_kernel_agrees_with_the_oracle_at_all_lengths() {
    let bytes = noise(4096);
    let mut oracle = vec![0x1234_5678];
    for byte in &bytes {
        let last = oracle.last().copied().expect("not empty");
        oracle.push(bitwise::update(last, &[*byte]));
    }
    for (tier, update) in kernels().into_iter().filter(|(tier, _)| *tier != Tier::Bitwise) {
        for (len, expected) in oracle.iter().enumerate() {
            assert_eq!(update(0x1234_5678, &bytes[..len]), *expected, "{tier}, {len} bytes");
        }
    }
}

#[test]
fn every_kernel_agrees_with_the_oracle_at_all_alignments() {
    let bytes = noise(4096 + 128);
    let start = bytes.as_ptr().align_offset(64);
    for alignment in 0..64 {
        for len in [1, 7, 8, 9, 48, 335, 336, 343, 1000, 4079, 4080, 4096] {
            let piece = &bytes[start + alignment..start + alignment + len];
            let expected = bitwise::update(!0, piece);
            for (tier, update) in kernels() {
                assert_eq!(update(!0, piece), expected, "{tier}, {len} bytes at {alignment}");
            }
        }
    }
}

#[test]
fn a_split_at_any_point_changes_nothing() {
    let bytes: Vec<u8> = (0..=255).cycle().take(8192).collect();
    for (tier, update) in kernels() {
        let step = if tier == Tier::Bitwise { 97 } else { 1 };
        for at in (0..=bytes.len()).step_by(step) {
            let (a, b) = bytes.split_at(at);
            assert_eq!(!update(update(!0, a), b), 0x2770_f75a, "{tier}, split at {at}");
        }
    }
    for at in (0..=bytes.len()).step_by(11) {
        let (a, b) = bytes.split_at(at);
        let mut crc = Crc32c::resume(crc32c(a));
        crc.update(b);
        assert_eq!(crc.finish(), 0x2770_f75a);
        assert_eq!(combine(crc32c(a), crc32c(b), b.len() as u64), 0x2770_f75a, "split at {at}");
    }
}

#[test]
fn the_copy_arrives_and_counts() {
    let bytes = noise(10_000);
    for (tier, copy_update) in copying_kernels() {
        for len in (0..700).step_by(3).chain([4079, 4080, 4081, 4095, 4096, 4097, 8192, 10_000]) {
            let mut copy = vec![0; len];
            let register = copy_update(!0, &mut copy, &bytes[..len]);
            assert!(copy == bytes[..len], "{tier}, {len} bytes");
            assert_eq!(!register, crc32c(&bytes[..len]), "{tier}, {len} bytes");
        }
    }
    let mut crc = Crc32c::default();
    let mut copy = vec![0; 5000];
    crc.copy_update(&mut copy[..48], &bytes[..48]);
    crc.copy_update(&mut copy[48..], &bytes[48..5000]);
    assert!(copy == bytes[..5000]);
    assert_eq!(crc.finish(), crc32c(&bytes[..5000]));
}

#[test]
#[should_panic(expected = "the same length")]
fn a_copy_to_another_length_is_a_mistake() {
    Crc32c::new().copy_update(&mut [0; 3], &[0; 4]);
}

#[test]
fn zeroes_far_beyond_memory_combine() {
    let mut crc = crc32c(&[0; 4096]);
    let mut len = 4096_u64;
    for _ in 0..30 {
        crc = combine(crc, crc, len);
        len *= 2;
    }
    assert_eq!(combine(crc, 0, 0), crc);
    let (front, back) = (crc32c(b"front"), crc32c(b"back"));
    let right_to_left = combine(front, combine(crc, back, 4), len + 4);
    assert_eq!(combine(combine(front, crc, len), back, 4), right_to_left);
}

#[test]
fn a_kernel_can_be_forced_and_named() {
    for tier_wanted in Tier::ALL {
        match force(tier_wanted) {
            Ok(()) => assert_eq!(crc32c(b"123456789"), 0xe306_9283, "{tier_wanted}"),
            Err(error) => {
                assert_eq!(error, Unavailable(tier_wanted));
                assert!(!tier_wanted.is_available());
            }
        }
    }
    assert!(tier().is_available());
    assert_eq!(Tier::ALL.map(Tier::name), ["bitwise", "slicing8", "sse42"]);
    assert_eq!(Unavailable(Tier::Sse42).to_string(), "the processor has no sse42");
}

proptest! {
    #[test]
    fn kernels_agree_and_parts_combine(
        register: u32,
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..1500), 0..6),
    ) {
        let whole = parts.concat();
        let expected = bitwise::update(register, &whole);
        for (_, update) in kernels() {
            prop_assert_eq!(update(register, &whole), expected);
            let in_parts = parts.iter().fold(register, |register, part| update(register, part));
            prop_assert_eq!(in_parts, expected);
        }
        let combined = parts.iter().fold(0, |crc, part| {
            combine(crc, crc32c(part), part.len() as u64)
        });
        prop_assert_eq!(combined, crc32c(&whole));
    }
}
