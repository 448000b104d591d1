// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is told of logical units, as far as there are not too many.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::DescriptorEncoder;
use target::LunSnapshot;
use target::Totals;

use super::table::Column;
use super::table::Family;
use super::table::In;
use super::table::Labels;
use super::table::Table;
use super::table::Value;
use super::table::number;
use crate::limits::LUNS_MAX;
use crate::looks::Serving;

pub(super) const ABOUT: Table<()> = Table {
    labels: &["target", "lun", "serial", "store"],
    columns: &[Column::new(
        Family::info("lunwire_lun", "What the LUN is: its serial number, and what backs it"),
        |()| Some(Value::Known),
    )],
};

pub(super) const EACH: Table<LunSnapshot> = Table {
    labels: &["target", "lun"],
    columns: &[
        Column::new(
            Family::gauge("lunwire_lun_size", Some(In::Bytes), "Size that hosts see"),
            |lun| number(lun.bytes),
        ),
        Column::new(
            Family::gauge("lunwire_lun_block", Some(In::Bytes), "Logical block length"),
            |lun| number(lun.block),
        ),
        Column::new(
            Family::gauge("lunwire_lun_read_only", None, "1 if writes are refused, else 0"),
            |lun| number(u64::from(lun.read_only)),
        ),
        Column::new(
            Family::gauge(
                "lunwire_lun_lost_writes",
                None,
                "1 if blocks that were acknowledged may be lost, and flushes fail, else 0",
            ),
            |lun| number(u64::from(lun.lost_writes)),
        ),
        Column::new(
            Family::gauge(
                "lunwire_lun_file_lost",
                None,
                "1 if its file is not found by its path any more, else 0",
            ),
            |lun| number(u64::from(lun.astray.is_some())),
        ),
        Column::new(
            Family::gauge(
                "lunwire_lun_left",
                Some(In::Bytes),
                "What is left behind a LUN whose file has become smaller than hosts see",
            ),
            |lun| lun.shrunk.map(Value::Number),
        ),
        Column::new(
            Family::gauge("lunwire_lun_busy", None, "1 if commands are told BUSY, else 0"),
            |lun| {
                let elsewhere = lun.elsewhere.is_some_and(|elsewhere| elsewhere.is_busy);
                number(u64::from(lun.is_fenced || elsewhere))
            },
        ),
    ],
};

/// What waits for the store of a LUN, for a second and longer.
pub(super) const WAITING: Table<(usize, Duration)> = Table {
    labels: &["target", "lun"],
    columns: &[
        Column::new(
            Family::gauge(
                "lunwire_lun_waiting_commands",
                None,
                "Commands that wait for the LUN's store for a second and longer",
            ),
            |(commands, _)| number(*commands),
        ),
        Column::new(
            Family::gauge(
                "lunwire_lun_waiting",
                Some(In::Seconds),
                "How long the oldest of these commands waits",
            ),
            |(_, oldest)| Some(Value::Seconds(oldest.as_secs_f64())),
        ),
    ],
};

/// Reads or writes of a LUN: how many, and bytes.
pub(super) const TRAFFIC: Table<(u64, u64)> = Table {
    labels: &["target", "lun", "operation"],
    columns: &[
        Column::new(
            Family::counter("lunwire_lun_operations", None, "Reads and writes that ended well"),
            |(operations, _)| number(*operations),
        ),
        Column::new(
            Family::counter("lunwire_lun_data", Some(In::Bytes), "Data of these reads and writes"),
            |(_, bytes)| number(*bytes),
        ),
    ],
};

pub(super) const ERRORS: Table<u64> = Table {
    labels: &["target", "lun", "operation"],
    columns: &[Column::new(
        Family::counter(
            "lunwire_lun_medium_errors",
            None,
            "Commands that failed since blocks could not be read or written, or were not what \
             they were compared with (verify)",
        ),
        |count| number(*count),
    )],
};

/// How many have no metrics of their own.
pub(super) fn left_out(serving: &Serving) -> usize {
    all(serving).count().saturating_sub(LUNS_MAX)
}

fn all(serving: &Serving) -> impl Iterator<Item = (&str, &LunSnapshot)> {
    let targets = serving.targets.iter();
    targets.flat_map(|target| target.luns.iter().map(|lun| (target.name.as_str(), lun)))
}

pub(super) fn encode(serving: &Serving, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let told: Vec<(&str, &LunSnapshot)> = all(serving).take(LUNS_MAX).collect();
    let each = || told.iter().map(|(target, lun)| (labels(target, lun), *lun));
    let about: Vec<_> = each()
        .map(|(mut labels, lun)| {
            labels.extend([lun.serial.clone(), lun.label.clone()]);
            (labels, ())
        })
        .collect();
    ABOUT.encode(encoder, &about)?;
    EACH.encode(encoder, &each().collect::<Vec<_>>())?;
    let waiting = each().filter_map(|(labels, lun)| Some((labels, waits(serving, lun)?)));
    WAITING.encode(encoder, &waiting.collect::<Vec<_>>())?;
    let by = |kinds: fn(&Totals) -> [(&'static str, (u64, u64)); 2]| {
        each()
            .flat_map(move |(of, lun)| kinds(&lun.totals).map(|(kind, row)| (with(&of, kind), row)))
    };
    let traffic =
        by(|of| [("read", (of.reads, of.bytes_read)), ("write", (of.writes, of.bytes_written))]);
    TRAFFIC.encode(encoder, &traffic.collect::<Vec<_>>())?;
    let errors = each().flat_map(|(of, lun)| {
        let Totals { read_errors, write_errors, verify_errors, .. } = lun.totals;
        let kinds = [("read", read_errors), ("write", write_errors), ("verify", verify_errors)];
        kinds.map(|(kind, count)| (with(&of, kind), count))
    });
    ERRORS.encode(encoder, &errors.collect::<Vec<_>>())
}

fn labels(target: &str, lun: &LunSnapshot) -> Labels {
    vec![target.to_owned(), lun.number.to_string()]
}

fn with(labels: &Labels, kind: &str) -> Labels {
    labels.iter().cloned().chain([kind.to_owned()]).collect()
}

/// What waits for its store on all reactors: how many commands, and the oldest one.
fn waits(serving: &Serving, lun: &LunSnapshot) -> Option<(usize, Duration)> {
    let waits = serving.figures.iter().flat_map(|figures| &figures.waits);
    let its = waits.filter(|wait| wait.disk == lun.serial);
    its.map(|wait| (wait.commands, wait.oldest))
        .reduce(|(sum, longest), (commands, oldest)| (sum + commands, longest.max(oldest)))
}
