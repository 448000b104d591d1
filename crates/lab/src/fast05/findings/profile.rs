// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a Data-In costs, part by part, and which part is most of it.

use super::super::theirs;
use super::super::touching::Costs;
use super::{ALIKE, COLD, Measured, SARWATE, SLICING8};
use super::{largest, of_size, percent, protocol_of_one};
use crate::picture::{Bar, Kind, Picture, bytes, number};
use crate::study::{Figure, Table};
use crate::verdict::{Bound, Test};

/// Figures 11 and 15, and the same with the best kernel: copy and CRC one after the other.
pub(super) fn profile(measured: &Measured, tier: usize) -> Figure {
    let name = measured.tiers[tier].name();
    let (labels, beside, file): (&[&str], _, _) = match tier {
        SARWATE => (&["Figure 11"], "Figure 11", "figure-11"),
        SLICING8 => (&["Figure 15"], "Figure 15", "figure-15"),
        _ => (&[], "Beside figures 11 and 15", "best-kernel"),
    };
    let title = format!("{beside}: cost of a Data-In, copy, then CRC by {name}, cold");
    let mut figure = Figure::new(labels, title);
    let mut table = Table::new(&[
        "read",
        "protocol",
        "copy",
        "CRC",
        "sum",
        "shares, %",
        "in one go",
        "theirs, sum",
    ]);
    let protocol = protocol_of_one(measured);
    let mut bars = Vec::new();
    for (size, all) in &measured.costs {
        let Costs { copy, crc, .. } = all[tier][COLD];
        let sum = protocol + copy + crc;
        let shares = [protocol, copy, crc].map(|part| format!("{:.0}", percent(part, sum).median));
        table.row(vec![
            bytes((*size).into()),
            number(protocol.median),
            number(copy.median),
            number(crc.median),
            number(sum.median),
            shares.join("/"),
            number(of_size(&measured.reads, *size)[tier][COLD].median),
            their_sum(tier, *size),
        ]);
        let parts = [protocol, copy, crc].map(|part| part.median);
        bars.push(Bar::new("", &bytes((*size).into()), parts.to_vec()));
    }
    figure.tables.push(table);
    let title = format!("Cycles for a Data-In, {name}, this machine");
    let kind = Kind::Bars { parts: vec!["protocol", "copy", "CRC"], bars };
    figure.pictures.push(Picture { file, title, unit: "cycles", kind });
    claim_profile(measured, tier, &mut figure);
    figure
}

/// From the cycles per byte of the text.
fn their_sum(tier: usize, size: u32) -> String {
    let per_byte = match tier {
        SARWATE => theirs::SARWATE,
        SLICING8 => theirs::SLICING8,
        _ => return "-".to_owned(),
    };
    let total = match (tier, size) {
        (SARWATE, 8192) => theirs::TOTAL_SARWATE,
        (SLICING8, 8192) => theirs::TOTAL_SLICING8,
        _ => {
            return format!(
                "~{}",
                number(theirs::PROTOCOL_COLD + (per_byte + theirs::COPY) * f64::from(size))
            );
        }
    };
    number(total)
}

fn claim_profile(measured: &Measured, tier: usize, figure: &mut Figure) {
    let (size, Costs { copy, crc, .. }) = largest(measured, tier);
    let protocol = protocol_of_one(measured);
    let sum = protocol + copy + crc;
    let shares = [protocol, copy, crc].map(|part| percent(part, sum));
    let [of_protocol, of_copy, of_crc] = shares.map(|share| share.median);
    let ours = format!(
        "protocol/copy/CRC {of_protocol:.0}/{of_copy:.0}/{of_crc:.0} % at {}.",
        bytes(size.into())
    );
    let most = || vec![Test::new("% that are CRC", shares[2], Bound::Above(HALF))];
    match tier {
        SARWATE => {
            let [a, b, c] = theirs::SHARES_8K;
            let [d, e, f] = theirs::SHARES_512;
            let theirs = format!(
                "CRC is most of the cost of a Data-In: protocol/copy/CRC {a}/{b}/{c} % at 8 KiB, \
                 {d}/{e}/{f} % at 512 B."
            );
            figure.claim(theirs, ours, most());
        }
        SLICING8 => {
            let [a, b, c] = theirs::SHARES_8K_SLICING8;
            figure.claim(
                format!("With slicing-by-8 CRC costs as much as the copy: {a}/{b}/{c} %."),
                format!("{ours} CRC is {:.1} times the copy.", (crc / copy).median),
                vec![Test::new("CRC against copy", crc / copy, ALIKE)],
            );
            let before = largest(measured, SARWATE).1;
            let gain = (protocol + before.copy + before.crc) / sum;
            let theirs = theirs::TOTAL_SARWATE / theirs::TOTAL_SLICING8;
            figure.claim(
                format!("It makes iSCSI {theirs:.1} times as fast."),
                format!("{:.1} times.", gain.median),
                vec![Test::new("times as fast", gain, Bound::Above(FASTER))],
            );
        }
        _ => figure.claim(
            "CRC is most of the cost with the instructions of today, too, which is not in the \
             study.",
            ours,
            most(),
        ),
    }
}

/// Percent from which on a part is most of it.
const HALF: f64 = 50.0;

/// What is said to be about twice as fast has to be so many times as fast.
const FASTER: f64 = 1.5;
