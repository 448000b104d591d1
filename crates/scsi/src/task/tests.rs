// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use crate::limits;
use crate::testing::Bench;
use crate::testing::cdb;
use crate::testing::run;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use wire::iscsi::LunField;
use wire::scsi::Sense;

/// A CDB: random, or that of a supported command with only bits that it understands, and a
/// small address.
fn any_cdb() -> impl Strategy<Value = [u8; 32]> {
    let unit = Bench::new().unit;
    let supported = (any::<prop::sample::Index>(), any::<[u8; 32]>(), any::<bool>()).prop_map(
        move |(index, mut bytes, small)| {
            let entries: Vec<_> = crate::table::DISK.all().collect();
            let entry = entries[index.index(entries.len())];
            let (usage, _) = entry.usage_for(&unit);
            if small && entry.length >= 10 {
                bytes[2..4].fill(0);
                bytes[12..18].fill(0);
                bytes[28..30].fill(0);
                if entry.length == 16 {
                    bytes[4..8].fill(0);
                    bytes[8] = 0;
                    bytes[10..12].fill(0);
                } else if entry.length == 12 {
                    bytes[6..8].fill(0);
                }
                bytes[4] = 0;
            }
            for (byte, usage) in bytes.iter_mut().zip(usage) {
                *byte &= usage;
            }
            for (byte, bare) in bytes.iter_mut().zip(entry.bare()) {
                *byte |= bare;
            }
            bytes
        },
    );
    prop_oneof![1 => any::<[u8; 32]>(), 4 => supported]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_command_ends_with_a_legal_status(
        bytes in any_cdb(), lun in prop_oneof![9 => Just([0; 8]), 1 => any::<[u8; 8]>()],
        out in prop_oneof![Just(0), Just(512), 0_usize..8192, Just(1 << 21)],
        expected_in in prop_oneof![Just(0), 0_u32..5000, Just(1 << 22)], fill: u8,
    ) {
        let out = vec![fill; out];
        let request = Request {
            lun: LunField(lun),
            cdb: cdb(&bytes),
            attribute: Attribute::Simple,
            expected_out: u32::try_from(out.len()).expect("short"),
            expected_in,
            unaware: false,
        };
        let completion = run(&Bench::new().nexus, request, &out);
        match completion.status {
            GOOD => {
                prop_assert!(completion.sense.is_empty());
                let data = completion.data_in.map_or(0, |data| data.len() as u64);
                prop_assert!(data <= completion.presented);
                prop_assert!(completion.presented <= u64::from(limits::TRANSFER_MAX));
            }
            CONDITION_MET => prop_assert!(matches!(bytes[0], 0x34 | 0x90)),
            RESERVATION_CONFLICT => prop_assert!(completion.sense.is_empty()),
            status => {
                prop_assert_eq!(status, CHECK_CONDITION);
                prop_assert!(completion.data_in.is_none());
                prop_assert!(completion.sense.len() <= usize::from(limits::SENSE_LEN_MAX));
                let sense = Sense::parse(&completion.sense).expect("sense data");
                prop_assert!(sense.field.is_none_or(|field| field.byte < 5000));
            }
        }
    }
}
