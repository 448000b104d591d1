// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CDBs and data of any kind: every command ends as the standard lets it.

use super::*;
use crate::limits;
use crate::table::PROTECTED;
use crate::testing::request;
use crate::testing::run;
use proptest::prelude::*;
use wire::scsi::Lun;
use wire::scsi::protection::INFORMATION_LEN;

/// A command of a protected unit, with only bits that it understands, and a small address.
fn any_cdb() -> impl Strategy<Value = Vec<u8>> {
    let (bench, _) = Bench::protected(Some(One), 512);
    let unit = bench.unit;
    (any::<prop::sample::Index>(), any::<[u8; 32]>(), 0_u8..7, 0_u8..9).prop_map(
        move |(index, mut bytes, code, blocks)| {
            let entries: Vec<_> = PROTECTED.all().filter(|entry| entry.supported(&unit)).collect();
            let entry = entries[index.index(entries.len())];
            let (usage, length) = entry.usage_for(&unit);
            for (byte, usage) in bytes.iter_mut().zip(usage) {
                *byte &= usage;
            }
            if entry.has(crate::table::Flag::Protect) {
                // Near the start, few blocks, mostly a code that means something.
                let (flags, address, count) = match length {
                    10 => (1, 2..5, 7..9),
                    12 => (1, 2..5, 6..10),
                    16 => (1, 2..9, 10..14),
                    _ => (10, 12..19, 28..32),
                };
                bytes[flags] = bytes[flags] & 0x1f | code << 5;
                bytes[address].fill(0);
                bytes[count.clone()].fill(0);
                bytes[count.end - 1] = blocks & usage[count.end - 1];
            }
            for (byte, bare) in bytes.iter_mut().zip(entry.bare()) {
                *byte |= bare;
            }
            bytes[..length].to_vec()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_command_ends_with_a_legal_status(
        cdb in any_cdb(), number in 0_u8..4, large: bool,
        blocks in 0_usize..18, odd in prop_oneof![4 => Just(0_usize), 1 => 1_usize..600],
        travels: bool, fill: u8, expected_in in prop_oneof![Just(0), 0_u32..9000, Just(1 << 22)],
    ) {
        let block = if large { 4096 } else { 512 };
        let (bench, _) = Bench::protected(ProtectionType::from_number(number), block);
        let each = block as usize + if travels { INFORMATION_LEN } else { 0 };
        let out = vec![fill; blocks * each + odd];
        let completion =
            run(&bench.nexus, request(Lun::Unit(0), &cdb, &out, expected_in), &out);
        match completion.status {
            0 => {
                prop_assert!(completion.sense.is_empty());
                let data = completion.data_in.map_or(0, |data| data.len() as u64);
                prop_assert!(data <= completion.presented);
                let longest = u64::from(limits::TRANSFER_MAX) / 512 * 520;
                prop_assert!(completion.presented <= longest);
            }
            4 => prop_assert!(matches!(cdb[0], 0x34 | 0x90)),
            0x18 => prop_assert!(completion.sense.is_empty()),
            status => {
                prop_assert_eq!(status, 2);
                prop_assert!(completion.data_in.is_none());
                let sense = Sense::parse(&completion.sense).expect("sense data");
                prop_assert!(sense.key as u8 != 4, "an internal failure: {:x?} {:x?}", sense, cdb);
            }
        }
        // Whatever it was, what is written next is read.
        if let Some(kind) = ProtectionType::from_number(number).filter(|_| !large) {
            let now = bench.unit.protection_type();
            prop_assume!(now == Some(kind));
            let write = Ask::new(Name::Write, 1, 3, 1).cdb(kind);
            // It may not go well: write protected, stopped, an ACA condition.
            if bench.run(&write, &pairs(1, 3, 1), 0).status == 0 {
                let read = Ask::new(Name::Read, 1, 3, 1).cdb(kind);
                prop_assert_eq!(bench.data(&read), pairs(1, 3, 1));
            }
        }
    }
}
