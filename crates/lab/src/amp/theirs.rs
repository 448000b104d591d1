// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the study published: A. Foong, G. McAlpine, D. Minturn, G. Regnier, V. Saletore, "An
//! Architecture for Software-Based iSCSI: Experiences and Analyses", Networking 2005, on two Xeons
//! of 2.4 GHz and two Gigabit Ethernet links, as initiator. Its plots are not in its text; the
//! tables are.

/// Clock of the study's processors, GHz.
pub(crate) const CLOCK_GHZ: f64 = 2.4;

/// The bins of Table 1, from the application to the wire; the first is not of the CPU's work.
pub(crate) const BINS: [&str; 8] =
    ["others", "SCSI", "iSCSI", "interface", "kernel", "TCP", "copies", "driver"];

/// Table 1 for one mode and direction: counts, normalized to the work done, of the two CPUs. In
/// AMP mode CPU 0 is the host and CPU 1 the polling core.
#[derive(Debug)]
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    /// Cycles of each bin.
    pub(crate) cycles: [[f64; 8]; 2],
    /// Cycles, instructions, machine clears, misses of the second cache, without the idle ones.
    pub(crate) totals: [[f64; 4]; 2],
    /// Idle cycles.
    pub(crate) idle: [f64; 2],
}

pub(crate) const SMP_WRITE: Mode = Mode {
    name: "SMP write",
    cycles: [
        [
            359_423.0,
            3_130_769.0,
            310_385.0,
            4_338_654.0,
            8_938_462.0,
            7_068_077.0,
            4_142_885.0,
            3_299_423.0,
        ],
        [
            545_192.0,
            3_987_500.0,
            356_731.0,
            1_696_154.0,
            4_874_615.0,
            6_935_000.0,
            5_012_115.0,
            1_660_769.0,
        ],
    ],
    totals: [
        [31_588_077.0, 7_157_452.0, 94_141.0, 54_297.0],
        [25_068_077.0, 6_750_000.0, 73_936.0, 51_917.0],
    ],
    idle: [8_104_615.0, 14_580_192.0],
};

pub(crate) const AMP_WRITE: Mode = Mode {
    name: "AMP write",
    cycles: [
        [786_476.0, 6_494_857.0, 988_857.0, 1_587_333.0, 217_714.0, 198_667.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 1_878_762.0, 5_537_905.0, 5_065_619.0, 1_712_667.0, 4_773_810.0],
    ],
    totals: [
        [10_273_905.0, 3_577_976.0, 13_827.0, 3_435.0],
        [18_968_762.0, 7_321_429.0, 21_063.0, 13_342.0],
    ],
    idle: [9_109_619.0, 2_120_190.0],
};

pub(crate) const SMP_READ: Mode = Mode {
    name: "SMP read",
    cycles: [
        [
            708_254.0,
            2_165_079.0,
            519_524.0,
            4_152_222.0,
            7_323_333.0,
            8_747_937.0,
            3_507_619.0,
            2_886_032.0,
        ],
        [
            824_762.0,
            5_011_429.0,
            647_302.0,
            2_271_905.0,
            4_677_302.0,
            5_586_667.0,
            5_331_905.0,
            821_270.0,
        ],
    ],
    totals: [
        [30_010_000.0, 5_156_746.0, 99_762.0, 56_949.0],
        [25_172_540.0, 4_914_683.0, 71_815.0, 61_190.0],
    ],
    idle: [2_560_159.0, 7_073_492.0],
};

pub(crate) const AMP_READ: Mode = Mode {
    name: "AMP read",
    cycles: [
        [660_762.0, 5_420_762.0, 779_048.0, 2_100_667.0, 293_714.0, 178_571.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 1_151_143.0, 4_927_143.0, 6_304_286.0, 5_525_524.0, 2_335_810.0],
    ],
    totals: [
        [9_433_524.0, 3_249_405.0, 16_152.0, 4_152.0],
        [20_243_905.0, 5_072_619.0, 18_821.0, 49_167.0],
    ],
    idle: [9_872_667.0, 737_333.0],
};

/// Percent by which AMP is more efficient than SMP, "30-40%" (§5.1): cycles for each bit.
pub(crate) const GAIN: [f64; 2] = [30.0, 40.0];

/// Line rate that AMP reached and SMP did not, MB/s (§5.1).
pub(crate) const LINE_RATE: f64 = 200.0;

/// Percent of improvement of each bin in Table 2, of cycles, and their totals: writes, reads.
pub(crate) const IMPROVED: [[f64; 8]; 2] =
    [[0.1, 0.8, -0.4, 3.2, 10.2, 11.0, 9.4, 0.2], [1.3, 2.7, 0.6, 4.9, 10.5, 12.1, 5.1, 2.1]];
pub(crate) const IMPROVED_TOTAL: [f64; 2] = [34.6, 39.3];

impl Mode {
    /// Cycles that are not idle, of both CPUs.
    pub(crate) fn busy(&self) -> f64 {
        self.totals.iter().map(|cpu| cpu[0]).sum()
    }

    /// Cycles of each bin, of both CPUs.
    pub(crate) fn bins(&self) -> [f64; 8] {
        let [first, second] = self.cycles;
        std::array::from_fn(|at| first[at] + second[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows were copied without a slip, and Table 2 is a share of all cycles, idle ones included.
    #[test]
    fn the_tables_agree_with_each_other() {
        for (smp, amp, improved, total) in [
            (SMP_WRITE, AMP_WRITE, IMPROVED[0], IMPROVED_TOTAL[0]),
            (SMP_READ, AMP_READ, IMPROVED[1], IMPROVED_TOTAL[1]),
        ] {
            for mode in [&smp, &amp] {
                for (cycles, totals) in mode.cycles.iter().zip(mode.totals) {
                    assert!(
                        (cycles.iter().sum::<f64>() - totals[0]).abs() < 100.0,
                        "{}",
                        mode.name
                    );
                }
            }
            let all = smp.busy() + smp.idle.iter().sum::<f64>();
            let saved = 100.0 * (smp.busy() - amp.busy()) / all;
            assert!((saved - total).abs() < 0.1, "{saved}");
            for ((before, after), percent) in smp.bins().iter().zip(amp.bins()).zip(improved) {
                assert!((100.0 * (before - after) / all - percent).abs() < 0.15, "{percent}");
            }
        }
    }
}
