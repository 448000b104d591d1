// SPDX-License-Identifier: Apache-2.0 OR MIT

use crate::dispatch::{Kernel, kernels};
use crate::{
    Crc32c, Piece, PieceMut, RESIDUE, Tier, Unavailable, bitwise, combine, crc32c, force, tier,
};
use proptest::prelude::*;

/// In debug builds a sample of lengths, coprime to all powers of two.
const LENGTH_STEP: usize = if cfg!(debug_assertions) { 61 } else { 1 };

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

/// Covers: DGT-01/S.
#[test]
fn every_kernel_gives_the_vectors_of_the_standard() {
    for (bytes, crc, wire) in vectors() {
        assert_eq!(crc32c(&bytes), crc);
        assert_eq!(crc.to_le_bytes(), wire);
        for kernel in kernels() {
            assert_eq!(!kernel.run(!0, &bytes), crc, "{}, {} bytes", kernel.tier, bytes.len());
        }
        let with_digest = [bytes.as_slice(), &wire].concat();
        assert_eq!(crc32c(&with_digest), RESIDUE);
    }
}

/// The register of the oracle, from `register` on, behind each length of `bytes`.
fn oracle(register: u32, bytes: &[u8]) -> Vec<u32> {
    let mut registers = vec![register];
    for byte in bytes {
        let last = registers.last().copied().expect("not empty");
        registers.push(bitwise::update(last, &[*byte]));
    }
    registers
}

/// `bytes` at an address that is `alignment` more than a multiple of 64, and where they start.
fn at_alignment(alignment: usize, bytes: &[u8]) -> (Vec<u8>, usize) {
    let mut memory = vec![0xee; bytes.len() + 192];
    let start = memory.as_ptr().align_offset(64) + alignment;
    memory[start..start + bytes.len()].copy_from_slice(bytes);
    (memory, start)
}

/// Runs a kernel with copy, to a place at `alignment`; nothing around it may change.
fn copied(kernel: &Kernel, register: u32, alignment: usize, src: &[u8]) -> u32 {
    let (mut memory, start) = at_alignment(alignment, &vec![0; src.len()]);
    let end = start + src.len();
    let register = kernel.run_copy(register, &mut memory[start..end], src);
    assert!(memory[start..end] == *src, "{}, {} bytes: the copy", kernel.tier, src.len());
    let around = memory[..start].iter().chain(&memory[end..]);
    assert!(around.copied().all(|byte| byte == 0xee), "{}: beyond the end", kernel.tier);
    register
}

#[test]
fn every_kernel_agrees_with_the_oracle_at_all_lengths() {
    let bytes = noise(4096);
    let oracle = oracle(0x1234_5678, &bytes);
    for kernel in kernels().filter(|kernel| kernel.tier != Tier::Bitwise) {
        for (len, expected) in oracle.iter().enumerate() {
            let actual = kernel.run(0x1234_5678, &bytes[..len]);
            assert_eq!(actual, *expected, "{}, {len} bytes", kernel.tier);
            let actual = copied(kernel, 0x1234_5678, len % 64, &bytes[..len]);
            assert_eq!(actual, *expected, "{}, {len} bytes, copied", kernel.tier);
        }
    }
}

#[test]
fn every_kernel_agrees_with_the_oracle_at_all_alignments() {
    let bytes = noise(4096);
    let oracle = oracle(!0, &bytes);
    for alignment in 0..64 {
        let (memory, start) = at_alignment(alignment, &bytes);
        let lens = (alignment..=4096).step_by(LENGTH_STEP).chain([4096]);
        for kernel in kernels().filter(|kernel| kernel.tier != Tier::Bitwise) {
            for len in lens.clone() {
                let piece = &memory[start..start + len];
                let (tier, expected) = (kernel.tier, oracle[len]);
                assert_eq!(kernel.run(!0, piece), expected, "{tier}, {len} bytes at {alignment}");
            }
            for len in lens.clone().step_by(16) {
                let piece = &memory[start..start + len];
                let (tier, expected) = (kernel.tier, oracle[len]);
                let actual = copied(kernel, !0, (5 * alignment) % 64, piece);
                assert_eq!(actual, expected, "{tier}, {len} bytes copied from {alignment}");
            }
        }
    }
}

#[test]
fn long_messages_agree_with_the_oracle() {
    let bytes = noise(150_000);
    let oracle = oracle(7, &bytes);
    let lens = [8191, 8192, 12_288, 20_480, 24_576, 40_960, 65_535, 65_536, 131_072, 149_999];
    for kernel in kernels().filter(|kernel| kernel.tier != Tier::Bitwise) {
        for len in lens.into_iter().chain((0..150_000).step_by(11_117)) {
            let piece = &bytes[..len];
            assert_eq!(kernel.run(7, piece), oracle[len], "{}, {len} bytes", kernel.tier);
            let actual = copied(kernel, 7, len % 64, piece);
            assert_eq!(actual, oracle[len], "{}, {len} bytes, copied", kernel.tier);
        }
    }
}

#[test]
fn a_split_at_any_point_changes_nothing() {
    let bytes: Vec<u8> = (0..=255).cycle().take(8192).collect();
    for kernel in kernels() {
        let step = if kernel.tier == Tier::Bitwise { 97 } else { 1 };
        for at in (0..=bytes.len()).step_by(step) {
            let (a, b) = bytes.split_at(at);
            let crc = !kernel.run(kernel.run(!0, a), b);
            assert_eq!(crc, 0x2770_f75a, "{}, split at {at}", kernel.tier);
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
    let bytes = noise(5000);
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
    assert_eq!(kernels().count(), Tier::ALL.into_iter().filter(|t| t.is_available()).count());
    assert!(kernels().all(|kernel| Tier::ALL.contains(&kernel.tier)));
    assert_eq!(Tier::ALL.map(Tier::name)[..3], ["bitwise", "sarwate", "slicing8"]);
    assert_eq!(Unavailable(Tier::Sse42).to_string(), "the processor has no sse42");
}

/// Data with markers, as FAST05 has it: `C` is 0 for the markers.
#[test]
fn pieces_that_do_not_count_are_copied_only() {
    let data = noise(3000);
    let (first, second) = data.split_at(1234);
    let list = || {
        [(first, true), (b"mark".as_slice(), false), (second, true), (b"mark".as_slice(), false)]
            .map(|(bytes, counts)| Piece { bytes, counts })
    };
    let mut crc = Crc32c::new();
    crc.update_list(list());
    assert_eq!(crc.finish(), crc32c(&data));

    let (mut crc, mut wire) = (Crc32c::new(), vec![0; 3008]);
    assert_eq!(crc.gather(&mut wire, list()), 3008);
    assert_eq!(crc.finish(), crc32c(&data));
    assert_eq!(wire, [first, b"mark", second, b"mark"].concat());

    let (mut landed, mut markers) = (vec![0; 3000], [0; 8]);
    let (to_first, to_second) = landed.split_at_mut(1234);
    let (to_mark, to_last) = markers.split_at_mut(4);
    let parts = [(to_first, true), (to_mark, false), (to_second, true), (to_last, false)];
    let mut crc = Crc32c::new();
    let pieces = parts.map(|(bytes, counts)| PieceMut { bytes, counts });
    assert_eq!(crc.scatter(pieces, &wire), 3008);
    assert_eq!(crc.finish(), crc32c(&data));
    assert_eq!((landed, markers.as_slice()), (data, b"markmark".as_slice()));
}

#[test]
fn lists_and_buffers_of_other_lengths_end_with_the_shorter() {
    let bytes = noise(100);
    let piece = |len: usize| Piece { bytes: &bytes[..len], counts: true };
    let (mut crc, mut short) = (Crc32c::new(), [0; 60]);
    assert_eq!(crc.gather(&mut short, [piece(40), piece(40), piece(40)]), 60);
    assert_eq!(crc.finish(), crc32c(&short));
    assert_eq!(short, *[&bytes[..40], &bytes[..20]].concat());
    let (mut crc, mut first, mut second) = (Crc32c::new(), [0; 60], [0; 60]);
    let pieces = [first.as_mut_slice(), &mut second].map(|bytes| PieceMut { bytes, counts: true });
    assert_eq!(crc.scatter(pieces, &bytes), 100);
    assert_eq!(crc.finish(), crc32c(&bytes));
    assert_eq!([&first[..], &second[..40]].concat(), bytes);
    assert_eq!(second[40..], [0; 20]);
}

proptest! {
    #[test]
    fn kernels_agree_and_parts_combine(
        register: u32,
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..1500), 0..6),
    ) {
        let whole = parts.concat();
        let expected = bitwise::update(register, &whole);
        for kernel in kernels() {
            prop_assert_eq!(kernel.run(register, &whole), expected);
            let in_parts = parts.iter().fold(register, |at, part| kernel.run(at, part));
            prop_assert_eq!(in_parts, expected);
        }
        let combined = parts.iter().fold(0, |crc, part| {
            combine(crc, crc32c(part), part.len() as u64)
        });
        prop_assert_eq!(combined, crc32c(&whole));
    }
}
