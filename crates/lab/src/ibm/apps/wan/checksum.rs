// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checksum of TCP. Interfaces of the pair that a host has leave it to whoever is behind them,
//! and who passes frames on has to make good on it.

/// Ethernet's header.
pub(super) const ETHERNET: usize = 14;

/// Fills it in where the frame carries TCP over IPv4; leaves others as they are.
pub(super) fn fill(frame: &mut [u8]) {
    let Some(packet) = frame.get_mut(ETHERNET..) else { return };
    let Some(&[first, _, high, low]) = packet.first_chunk() else { return };
    let (header, length) = (usize::from(first & 15) * 4, usize::from(high) << 8 | usize::from(low));
    if first >> 4 != 4 || packet.get(9) != Some(&TCP) || header < 20 {
        return;
    }
    let Some(addresses) = packet.get(12..20).map(sum) else { return };
    let Some(segment) = packet.get_mut(header..length) else { return };
    let bytes = segment.len() as u64;
    let Some(place) = segment.get_mut(PLACE..PLACE + 2) else { return };
    place.fill(0);
    let whole = fold(addresses + u64::from(TCP) + bytes + sum(segment));
    let place = segment.get_mut(PLACE..PLACE + 2);
    place.into_iter().for_each(|place| place.copy_from_slice(&(!whole).to_be_bytes()));
}

/// Its number in the header of IP.
const TCP: u8 = 6;

/// Where it stands in the header of TCP.
const PLACE: usize = 16;

/// Of all words of 16 bits (RFC 1071), without what overflows added.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let words: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    let rest: u64 = rest.iter().zip([24, 16, 8]).map(|(byte, by)| u64::from(*byte) << by).sum();
    words + rest
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ACK from a capture, and the same with data of an odd length behind it.
    #[test]
    fn a_segment_gets_the_sum_that_makes_it_right() {
        for data in [0_usize, 1, 3, 100, 1447] {
            let mut frame = vec![0; ETHERNET];
            let length = u16::try_from(40 + data).unwrap();
            frame.extend([0x45, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 198, 18, 77, 1, 198, 18, 77, 2]);
            frame.extend([0x0c, 0xbc, 0x9c, 0x40, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0]);
            frame.extend([0xab, 0xcd, 0, 0]);
            frame.extend((0..data).map(|at| at.to_le_bytes()[0]));
            // Ethernet pads short frames: no part of the packet.
            frame.extend([0xee; 6]);
            fill(&mut frame);
            let segment = &frame[ETHERNET + 20..ETHERNET + 40 + data];
            // By words, as RFC 793 has it.
            let mut by_words = 198 * 256 + 18 + 77 * 256 + 1 + 198 * 256 + 18 + 77 * 256 + 2 + 6;
            by_words += segment.len() as u64;
            by_words += segment
                .chunks(2)
                .map(|two| u64::from(two[0]) << 8 | u64::from(two.get(1).copied().unwrap_or(0)))
                .sum::<u64>();
            assert_eq!(fold(by_words), 0xffff, "{data}");
        }
    }

    #[test]
    fn what_is_no_tcp_is_left_alone() {
        for frame in [vec![], vec![0x45; 10], vec![0xff; 60], vec![0x45; 34]] {
            let mut same = frame.clone();
            fill(&mut same);
            assert_eq!(same, frame);
        }
    }
}
