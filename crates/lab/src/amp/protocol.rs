// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of the reactor's work is not the kernel's: by the kernel's samples of it.

use crate::measure::real;
use crate::study::Figure;
use crate::threads::Usage;
use crate::verdict::{Bound, Spread, Test};

/// What iSCSI may be of the processing, in percent, where the study's remark holds: "less than 5%".
const SHARE: f64 = 5.0;

/// Fewer samples of a run tell no share.
const SAMPLES_MIN: u64 = 10;

/// The claim of figures 5 and 6, of the reactor in the runs of SMP.
pub(super) fn claim(figure: &mut Figure, runs: &[Usage]) {
    let theirs = "\"iSCSI without digests takes less than 5 % of processing\"";
    let samples = |usage: &Usage| usage.user + usage.system;
    let fewest = runs.iter().map(samples).min().unwrap_or(0);
    if fewest < SAMPLES_MIN {
        figure.not_here(
            theirs,
            format!(
                "a run is too short: the kernel took {fewest} samples of the reactor in one, and \
                 fewer than {SAMPLES_MIN} tell no share"
            ),
        );
        return;
    }
    let share = |usage: &Usage| 100.0 * real(usage.user) / real(samples(usage));
    let share = Spread::of(&runs.iter().map(share).collect::<Vec<_>>());
    figure.claim(
        theirs,
        format!(
            "all that is not the kernel (iSCSI, SCSI, store and engine) takes {:.0} % of SMP",
            share.median
        ),
        vec![Test::new("% that is not the kernel", share, Bound::Below(SHARE))],
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn told(runs: &[[u64; 2]]) -> (Verdict, String) {
        let usage =
            |[user, system]: &[u64; 2]| Usage { user: *user, system: *system, ..Usage::default() };
        let mut figure = Figure::new(&[], "Figure 5");
        claim(&mut figure, &runs.iter().map(usage).collect::<Vec<_>>());
        (figure.verdict(), figure.claims[0].ours.clone())
    }

    #[test]
    fn a_share_of_no_samples_is_no_verdict() {
        for few in [&[][..], &[[0, 0]; 3], &[[0, 5]; 3], &[[1, 40], [1, 40], [0, 9]]] {
            let (verdict, why) = told(few);
            assert_eq!(verdict, Verdict::NotHere, "{why}");
            assert!(why.contains("samples of the reactor"), "{why}");
        }
        assert!(told(&[[0, 0]; 3]).1.contains("took 0 samples"));
        assert_eq!(told(&[[0, 10]; 3]).0, Verdict::Holds);
        assert_eq!(told(&[[12, 37]; 3]).0, Verdict::NoLonger);
    }
}
