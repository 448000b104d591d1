// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a Data-In costs, part by part, and which part is most of it.

use super::super::theirs;
use super::super::touching::Costs;
use super::{COLD, Measured, SARWATE, SLICING8};
use super::{largest, of_size, percent, protocol_of_one};
use crate::figure::{Bar, Figure, Kind, bytes, number};
use crate::report::{Section, Table};

/// Figures 11 and 15, and the same with the best kernel: copy and CRC one after the other.
pub(super) fn profile(measured: &Measured, tier: usize) -> Section {
    let name = measured.tiers[tier].name();
    let (figure, file) = match tier {
        SARWATE => ("Figure 11", "figure-11"),
        SLICING8 => ("Figure 15", "figure-15"),
        _ => ("Beside figures 11 and 15", "best-kernel"),
    };
    let mut section =
        Section::new(format!("{figure}: cost of a Data-In, copy, then CRC by {name}, cold"));
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
        let shares = [protocol, copy, crc].map(|part| format!("{:.0}", percent(part, sum)));
        table.row(vec![
            bytes((*size).into()),
            number(protocol),
            number(copy),
            number(crc),
            number(sum),
            shares.join("/"),
            number(of_size(&measured.reads, *size)[tier][COLD]),
            their_sum(tier, *size),
        ]);
        bars.push(Bar::new("", &bytes((*size).into()), vec![protocol, copy, crc]));
    }
    section.tables.push(table);
    let title = format!("Cycles for a Data-In, {name}, this machine");
    let kind = Kind::Bars { parts: vec!["protocol", "copy", "CRC"], bars };
    section.figures.push(Figure { file, title, unit: "cycles", kind });
    conclude_profile(measured, tier, &mut section);
    section
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

fn conclude_profile(measured: &Measured, tier: usize, section: &mut Section) {
    let (size, Costs { copy, crc, .. }) = largest(measured, tier);
    let protocol = protocol_of_one(measured);
    let sum = protocol + copy + crc;
    let [of_protocol, of_copy, of_crc] = [protocol, copy, crc].map(|part| percent(part, sum));
    let ours =
        format!("{of_protocol:.0}/{of_copy:.0}/{of_crc:.0} % here at {}", bytes(size.into()));
    match tier {
        SARWATE => {
            let [a, b, c] = theirs::SHARES_8K;
            let [d, e, f] = theirs::SHARES_512;
            section.conclude(
                of_crc > 50.0,
                format!(
                    "CRC is most of the cost of a Data-In. Protocol/copy/CRC: {a}/{b}/{c} % there \
                     at 8 KiB ({d}/{e}/{f} % at 512 B), {ours}."
                ),
            );
        }
        SLICING8 => {
            let [a, b, c] = theirs::SHARES_8K_SLICING8;
            let ratio = crc / copy.max(1e-9);
            section.conclude(
                (0.5..=2.0).contains(&ratio),
                format!(
                    "With slicing-by-8 CRC costs as much as the copy. {a}/{b}/{c} % there, {ours}: \
                     {ratio:.1} times the copy."
                ),
            );
            let before = largest(measured, SARWATE).1;
            let gain = (protocol + before.copy + before.crc) / sum;
            let theirs = theirs::TOTAL_SARWATE / theirs::TOTAL_SLICING8;
            section.conclude(
                gain > 1.5,
                format!("It makes iSCSI about twice as fast: {theirs:.1} there, {gain:.1} here."),
            );
        }
        _ => section.conclude(
            of_crc > 50.0,
            format!("CRC is most of the cost with the instructions of today, too: {ours}."),
        ),
    }
}
